"""Sums and squares of the rows of each class, added in vector registers.

A row is read once, in the order of the rows, and added to the sums of its class. These have rows of
whole vectors (`padded_width`), with zeros beyond the last feature. The loop is written in LLVM's
vector types, as a compiler would check in each row how many vectors there are.
"""

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.vectors import (
    LANES,
    as_doubles,
    as_structures,
    broadcast,
    fused_multiply_add,
    loop_function,
    prefetch,
    vector_at,
    whole_vectors,
)


def _add_class_squares(X, codes, weights, first, last, vectors, squares):
    """Add ``w t`` to ``vectors[1, k]`` and ``w t^2`` to ``squares[k]``, t being x - vectors[0, k].

    Rows from `first` to `last` are added; k is the class of a row, and w its weight. The arrays but
    for the rows are padded.
    """
    d = X.shape[1]
    for r in range(first, last):
        k, w = codes[r], weights[r] if len(weights) else 1.0
        t = X[r] - vectors[0, k, :d]
        vectors[1, k, :d] += w * t
        squares[k, :d] += (w * t) * t


@intrinsic
def _add_in_registers(typing, X, codes, weights, first, last, vectors, squares):
    """Compile `_add_class_squares`."""
    index = types.intp

    def generate(context, builder, signature, arguments):
        X, codes, weights, first, last, vectors, squares = as_structures(
            context, builder, signature, arguments
        )
        _, d = cgutils.unpack_tuple(builder, X.shape)
        n_classes, width = cgutils.unpack_tuple(builder, squares.shape)
        sums = builder.gep(vectors.data, [builder.mul(n_classes, width)])
        function = _function(context, builder.module, signature.args[0].dtype)
        rows = [X.data, last, d, codes.data, weights.data, weights.nitems, first]
        with builder.if_then(builder.icmp_signed("<", first, last)):
            builder.call(function, [*rows, vectors.data, sums, squares.data, width])
        return context.get_dummy_value()

    return types.void(X, codes, weights, index, index, vectors, squares), generate


def _function(context, module, scalar):
    """Return the function that adds rows of a type, at least one."""
    name = f"add_class_squares_{scalar}"
    if name in module.globals:
        return module.globals[name]
    index, double = context.get_value_type(types.intp), ir.DoubleType()
    element = context.get_data_type(scalar)
    vector, stored = ir.VectorType(double, LANES), ir.VectorType(element, LANES)
    kinds = [element, None, None, index, double, None, None, double, double, double, None]
    arguments = [kind.as_pointer() if kind else index for kind in kinds]
    function, before, loop, after = loop_function(module, name, arguments)
    X, last_row, d, codes, weights, n_weights, first, pivots, sums, squares, width = function.args

    builder = ir.IRBuilder(before)
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    one = cgutils.alloca_once_value(builder, double(1))
    weighted = builder.icmp_signed(">", n_weights, index(0))
    weights = builder.select(weighted, weights, one)
    step = builder.select(weighted, index(1), index(0))
    builder.branch(loop)

    builder.position_at_end(loop)
    r = builder.phi(index)
    r.add_incoming(first, before)
    x = builder.gep(X, [builder.mul(r, d)])
    prefetch(builder, x)
    start = builder.mul(builder.load(builder.gep(codes, [r])), width)
    own = [builder.gep(array, [start]) for array in (pivots, sums, squares)]
    w = broadcast(builder, builder.load(builder.gep(weights, [builder.mul(r, step)])), vector)

    def add(v, load):
        at = builder.mul(v, index(LANES))
        about, total, square = (vector_at(builder, builder.gep(a, [at]), 0, vector) for a in own)
        value = as_doubles(
            builder, load(vector_at(builder, builder.gep(x, [at]), 0, stored)), scalar
        )
        t = builder.fsub(value, builder.load(about, align=8))
        weighted = builder.fmul(w, t)
        sum_ = builder.fadd(builder.load(total, align=8), weighted)
        square_sum = fused_multiply_add(builder, weighted, t, builder.load(square, align=8))
        builder.store(sum_, total, align=8)
        builder.store(square_sum, square, align=8)

    with cgutils.for_range(builder, n_whole, intp=index) as inner:
        add(inner.index, lambda place: builder.load(place, align=scalar.bitwidth // 8))
    add(n_whole, load_last)
    following = builder.add(r, index(1))
    r.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, last_row), loop, after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


add_class_squares = _add_class_squares if config.DISABLE_JIT else _add_in_registers
