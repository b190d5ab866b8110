"""Instructions of LLVM on vectors, and functions that are written in them."""

from llvmlite import ir
from numba.core import cgutils


def vector_at(builder, pointer, number, vector):
    """Where the vector of that number lies from a pointer on."""
    start = builder.gep(pointer, [ir.IntType(64)(number * vector.count)])
    return builder.bitcast(start, vector.as_pointer())


def broadcast(builder, scalar, vector):
    """A vector of that type with the scalar in every place."""
    undefined = ir.Constant(vector, ir.Undefined)
    start = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(start, undefined, zeros)


def fused_multiply_add(builder, x, y, total):
    """``x y + total`` of vectors, rounded once."""
    vector = total.type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    fma = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{vector.count}f{bits}",
    )
    return builder.call(fma, [x, y, total])


def loop_function(module, name, arguments):
    """A function of these arguments, and its blocks before, in and after a loop.

    It is never inlined: what surrounds it would cost it registers.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, *(function.append_basic_block(part) for part in ("before", "loop", "after"))


def call_for(builder, number, most, function_of, arguments):
    """Call ``function_of(n)`` for the n that a number is: of 1 to `most`, for others nothing."""
    after = builder.append_basic_block("after")
    choice = builder.switch(number, after)
    for n in range(1, most + 1):
        block = builder.append_basic_block(f"for_{n}")
        choice.add_case(number.type(n), block)
        builder.position_at_end(block)
        builder.call(function_of(n), arguments)
        builder.branch(after)
    builder.position_at_end(after)
