"""Squared lengths of narrow rows times a triangular matrix, computed in vector registers.

For few features, the tile of `tiles` is wasteful: half of its sums are of zeros beyond the
diagonal, and calling it costs as much as its work. Here the loops over features are unrolled for
each number of features, in LLVM's vector types. Values are float64.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.tiles import ROWS
from streamgda.kernels.vectors import (
    broadcast,
    fused_multiply_add,
    loop_function,
    switch_call,
    vector_at,
)

MAX_FEATURES = 12  # for more, tiles are as fast
_LANES = 4
_VECTORS = 2  # side by side: an element of the matrix is loaded once for both
ROW_STEP = _LANES * _VECTORS  # rows that are computed together


def _triangle_squares(panel, centre, strips, out):
    """Write ``|W (x - centre)|^2`` to ``out[r]`` for each row x of a panel of shape (d, width).

    ``strips[s, j, a]`` is ``W[ROWS * s + a, j]`` of a lower triangular W with at most
    `MAX_FEATURES` columns. `width` is a multiple of `ROW_STEP`.
    """
    d = centre.size
    W = np.moveaxis(strips, 2, 1).reshape(-1, d)[:d]
    out[:] = ((W @ (panel - centre[:, None])) ** 2).sum(axis=0)


@intrinsic
def _triangle_squares_in_registers(typing, panel, centre, strips, out):
    """Compile `_triangle_squares`."""
    if {array.layout for array in (panel, centre, strips, out)} != {"C"}:
        return None  # no match: the function is given pointers and no strides

    def generate(context, builder, signature, arguments):
        panel, centre, strips, out = (
            context.make_array(kind)(context, builder, argument)
            for kind, argument in zip(signature.args, arguments, strict=True)
        )
        d, width = cgutils.unpack_tuple(builder, panel.shape)
        row = [panel.data, width, centre.data, strips.data, out.data]

        def function(features):
            return _distance_function(builder.module, d.type, features)

        switch_call(builder, d, MAX_FEATURES, function, row)
        return context.get_dummy_value()

    return types.void(panel, centre, strips, out), generate


def _distance_function(module, index, d):
    """Return the function (panel, width, centre, strips, out) for d features."""
    name = f"narrow_triangle_squares_{d}"
    if name in module.globals:
        return module.globals[name]
    double = ir.DoubleType()
    vector, pointer = ir.VectorType(double, _LANES), double.as_pointer()
    arguments = [pointer, index, pointer, pointer, pointer]
    function, before, loop, after = loop_function(module, name, arguments)
    panel, width, centre, strips, out = function.args
    builder = ir.IRBuilder(before)
    builder.branch(loop)

    def scalar(start, i):
        return broadcast(builder, builder.load(builder.gep(start, [index(i)])), vector)

    builder.position_at_end(loop)
    r = builder.phi(index)
    r.add_incoming(index(0), before)
    squares = [ir.Constant(vector, None)] * _VECTORS
    for first in range(0, d, ROWS):  # few sums at a time, so that they fit in registers
        rows = range(first, min(first + ROWS, d))
        sums = {row: [ir.Constant(vector, None)] * _VECTORS for row in rows}
        for j in range(rows[-1] + 1):
            x = builder.gep(panel, [builder.add(builder.mul(index(j), width), r)])
            c = scalar(centre, j)
            gaps = [
                builder.fsub(builder.load(vector_at(builder, x, v, vector), align=8), c)
                for v in range(_VECTORS)
            ]
            for row in rows[max(j - first, 0) :]:
                w = scalar(strips, (first * d // ROWS + j) * ROWS + row - first)
                sums[row] = [
                    fused_multiply_add(builder, w, gap, total)
                    for gap, total in zip(gaps, sums[row], strict=True)
                ]
        for row in rows:
            squares = [
                fused_multiply_add(builder, value, value, total)
                for value, total in zip(sums[row], squares, strict=True)
            ]
    start = builder.gep(out, [r])
    for v in range(_VECTORS):
        builder.store(squares[v], vector_at(builder, start, v, vector), align=8)
    following = builder.add(r, index(ROW_STEP))
    r.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, width), loop, after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


narrow_triangle_squares = (
    _triangle_squares if config.DISABLE_JIT else _triangle_squares_in_registers
)
