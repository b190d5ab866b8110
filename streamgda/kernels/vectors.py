"""Vector instructions of LLVM, and functions written in them."""

from llvmlite import ir
from numba.core import cgutils


def vector_at(builder, pointer, number, vector):
    """Return a pointer to a vector, given its number counted from another pointer."""
    start = builder.gep(pointer, [ir.IntType(64)(number * vector.count)])
    return builder.bitcast(start, vector.as_pointer())


def broadcast(builder, scalar, vector):
    """Return a vector of the given type with the scalar in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    start = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(start, undefined, zeros)


def fused_multiply_add(builder, x, y, total):
    """Return ``x y + total`` of vectors, rounded once."""
    vector = total.type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    fma = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{vector.count}f{bits}",
    )
    return builder.call(fma, [x, y, total])


def loop_function(module, name, arguments):
    """Declare a function, and return it with its blocks before, in and after a loop.

    It is never inlined, because the code around it would take registers from it.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, *(function.append_basic_block(part) for part in ("before", "loop", "after"))


def switch_call(builder, number, most, function_for, arguments):
    """Call ``function_for(n)`` for the n in 1 to `most` that equals `number`, if there is one."""
    after = builder.append_basic_block("after")
    choice = builder.switch(number, after)
    for n in range(1, most + 1):
        block = builder.append_basic_block(f"for_{n}")
        choice.add_case(number.type(n), block)
        builder.position_at_end(block)
        builder.call(function_for(n), arguments)
        builder.branch(after)
    builder.position_at_end(after)
