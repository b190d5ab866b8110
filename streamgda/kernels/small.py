"""Squared lengths of rows times a small triangular matrix, all in vector registers.

For few features, the tile of `tiles` is too large a hammer: half of its sums are of zeros beyond
the diagonal, and its calls cost as much as its work. Here the loops over features are unrolled for
each number of them, in LLVM's vector types. Values are float64.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.tiles import ROWS
from streamgda.kernels.vectors import (
    broadcast,
    call_for,
    fused_multiply_add,
    loop_function,
    vector_at,
)

SMALL = 12  # features; of more, tiles are as fast
_LANES = 4
_VECTORS = 2  # side by side: an entry of the matrix is loaded for both
GROUP = _LANES * _VECTORS  # rows that are treated at a time


def _small_triangle_squares(panel, centre, strips, out):
    """Write ``|W (x - centre)|^2`` of the rows of a panel of shape (d, width): ``out[r]``.

    ``strips[s, j, a]`` is ``W[ROWS * s + a, j]`` of a lower triangular W with at most `SMALL`
    columns. Widths are multiples of `GROUP`.
    """
    d = centre.size
    W = np.moveaxis(strips, 2, 1).reshape(-1, d)[:d]
    out[:] = ((W @ (panel - centre[:, None])) ** 2).sum(axis=0)


@intrinsic
def _small_triangle_squares_in_registers(typing, panel, centre, strips, out):
    """`_small_triangle_squares` for the compiler."""
    if {array.layout for array in (panel, centre, strips, out)} != {"C"}:
        return None  # pointers are all that is seen of them: no match

    def generate(context, builder, signature, arguments):
        panel, centre, strips, out = (
            context.make_array(kind)(context, builder, argument)
            for kind, argument in zip(signature.args, arguments, strict=True)
        )
        d, width = cgutils.unpack_tuple(builder, panel.shape)
        row = [panel.data, width, centre.data, strips.data, out.data]
        call_for(builder, d, SMALL, lambda n: _function(builder.module, d.type, n), row)
        return context.get_dummy_value()

    return types.void(panel, centre, strips, out), generate


def _function(module, index, d):
    """The function (panel, width, centre, strips, out) for d features."""
    name = f"small_triangle_squares_{d}"
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
    for first in range(0, d, ROWS):  # few sums at a time, so that registers hold them
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
    following = builder.add(r, index(GROUP))
    r.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, width), loop, after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


small_triangle_squares = (
    _small_triangle_squares if config.DISABLE_JIT else _small_triangle_squares_in_registers
)
