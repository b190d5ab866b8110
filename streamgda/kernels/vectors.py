"""Instructions of LLVM on vectors, as `tiles` and `narrow` write them."""

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
