"""Vector instructions of LLVM, and functions written in them."""

from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import inline_kernel
from streamgda.kernels.processors import SHAPE

LANES = max(4, SHAPE.vector_bytes // 8)  # numbers of float64 in a vector

_AHEAD = 4096


@inline_kernel
def padded_width(n_features):
    """Return the number of features, rounded up to whole vectors of float64."""
    return (n_features + LANES - 1) // LANES * LANES


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


def whole_vectors(builder, d, scalar, stored):
    """Return the number of vectors of `d` values but for the last one, and what loads that.

    A mask keeps it from reading beyond the last row, where the memory may end.
    """
    index, lanes = d.type, stored.count
    n_whole = builder.sdiv(builder.sub(d, index(1)), index(lanes))
    numbers = ir.Constant(ir.VectorType(index, lanes), [index(i) for i in range(lanes)])
    left = builder.sub(d, builder.mul(n_whole, index(lanes)))
    mask = builder.icmp_signed("<", numbers, broadcast(builder, left, numbers.type))
    kind = "i" if isinstance(scalar, types.Integer) else "f"
    load = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(stored, [stored.as_pointer(), ir.IntType(32), mask.type, stored]),
        f"llvm.masked.load.v{lanes}{kind}{scalar.bitwidth}.p0",
    )
    alignment = ir.Constant(ir.IntType(32), scalar.bitwidth // 8)
    zeros = ir.Constant(stored, None)
    return n_whole, lambda place: builder.call(load, [place, alignment, mask, zeros])


def as_doubles(builder, values, scalar):
    """Return a vector of values of a data type as float64."""
    vector = ir.VectorType(ir.DoubleType(), values.type.count)
    if isinstance(scalar, types.Integer):
        return (builder.sitofp if scalar.signed else builder.uitofp)(values, vector)
    return values if values.type == vector else builder.fpext(values, vector)


def prefetch(builder, place):
    """Start to load what is `_AHEAD` bytes further on: processors stop at the end of a page."""
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    prefetch = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
        "llvm.prefetch.p0",
    )
    ahead = builder.gep(builder.bitcast(place, byte), [ir.IntType(64)(_AHEAD)])
    builder.call(prefetch, [ahead, number(0), number(3), number(1)])  # read, keep, data


def loop_function(module, name, arguments):
    """Declare a function, and return it with its blocks before, in and after a loop.

    It is never inlined, because the code around it would take registers from it.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    return function, *(function.append_basic_block(part) for part in ("before", "loop", "after"))


def as_structures(context, builder, signature, arguments):
    """Return arguments for the compiler: arrays as structures, other values as they are."""
    return [
        context.make_array(kind)(context, builder, argument)
        if isinstance(kind, types.Array)
        else argument
        for kind, argument in zip(signature.args, arguments, strict=True)
    ]
