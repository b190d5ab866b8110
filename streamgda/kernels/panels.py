"""Scores of rows by squared distances to the centres of classes, panel by panel.

A panel holds some rows as columns, shape ``(d, width)``, so that every loop runs along rows.
`triangle_scores` multiplies panels by triangular matrices, in LLVM's vector types. Plain loops take
several times as long, because their sums do not stay in registers, and so does BLAS for usual
widths (``python -m bench kernels``).
"""

from itertools import product

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import fast_kernel, inline_kernel, kernel
from streamgda.kernels.vectors import (
    SHAPE,
    as_structures,
    broadcast,
    function_of,
    fused_multiply_add,
    vector_at,
)

VECTOR_BYTES = max(32, SHAPE.vector_bytes)
# A tile is a product of some rows of a matrix and some vectors of a panel: each number and each
# vector that is loaded is used several times, and the sums fill the registers.
VECTORS = 3
MATRIX_ROWS = 8 if VECTOR_BYTES == 64 else 4
PANEL_VALUES = 1 << 13  # Panels of narrow rows stay in the first cache.


@inline_kernel
def panel_width(n_rows, d, together):
    """Return the number of rows of a panel, a multiple of the rows that are computed together."""
    n = max(1, min(n_rows, max(together, PANEL_VALUES // max(1, d))))
    return (n + together - 1) // together * together


@inline_kernel
def fill_panel(X, start, stop, features, origin, panel):
    """Write rows less the origin as columns; the columns beyond them are copies of the last row."""
    for r in range(panel.shape[1]):
        row = X[min(start + r, stop - 1)]
        for j in range(features.size):
            panel[j, r] = row[features[j]] - origin[j]


@kernel
def triangle_scores(X, features, origin, centres, roots, scale, constants, out):
    """Write ``constants[k] + scale |roots[k] (x - centres[k])|^2`` to ``out[k, r]``.

    Here x are the given features of row r of `X` less the origin, in float64. What is left of it
    without the centre is rounded to the type of the roots, which are lower triangular and of shape
    ``(n_classes, d, d)``. Squares are summed in float64.
    """
    n_rows, d = X.shape[0], features.size
    width = panel_width(n_rows, d, VECTORS * VECTOR_BYTES // roots.itemsize)
    panel, squares = np.empty((d, width)), np.empty(width)
    centred = np.empty((d, width), roots.dtype)
    for start in range(0, n_rows, width):
        fill_panel(X, start, n_rows, features, origin, panel)
        for k in range(constants.size):
            for j in range(d):
                centre = centres[k, j]
                for r in range(width):
                    centred[j, r] = panel[j, r] - centre
            sum_squares(roots[k], centred, squares)
            for r in range(min(width, n_rows - start)):
                out[k, start + r] = constants[k] + scale * squares[r]


@fast_kernel
def diagonal_scores(X, features, origin, centres, precisions, scale, constants, out):
    """Write ``constants[k] + scale * sum(precisions[k] (x - centres[k])^2)`` to ``out[k, r]``.

    x is that of `triangle_scores`. Precisions of shape ``(1, d)`` serve all classes.
    """
    n_rows, d = X.shape[0], features.size
    width = panel_width(n_rows, d, 16)
    panel, squares = np.empty((d, width)), np.empty(width)
    for start in range(0, n_rows, width):
        fill_panel(X, start, n_rows, features, origin, panel)
        for k in range(constants.size):
            squares[:] = 0.0
            for j in range(d):
                centre, precision = centres[k, j], precisions[min(k, len(precisions) - 1), j]
                for r in range(width):
                    t = panel[j, r] - centre
                    squares[r] += precision * t * t
            for r in range(min(width, n_rows - start)):
                out[k, start + r] = constants[k] + scale * squares[r]


@kernel
def largest(scores, codes):
    """Write the class of the largest score of each row, the first one of equals."""
    codes[:] = 0
    top = scores[0].copy()
    for k in range(1, len(scores)):
        for r in range(codes.size):
            larger = scores[k, r] > top[r]
            top[r] = scores[k, r] if larger else top[r]
            codes[r] = k if larger else codes[r]


@intrinsic
def sum_squares(typing, W, centred, squares):
    """Write the sums of the squares of ``W @ centred`` over its rows.

    W is lower triangular, shape ``(d, d)``, and `centred` has shape ``(d, width)``, for a width
    that is a multiple of `VECTORS` vectors.
    """

    def generate(context, builder, signature, arguments):
        W, centred, squares = as_structures(context, builder, signature, arguments)
        d, width = cgutils.unpack_tuple(builder, centred.shape)
        given = [d, width, W.data, centred.data, squares.data]
        name = f"sum_squares_{signature.args[0].dtype}"
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, name, kinds, _write_squares), given)
        return context.get_dummy_value()

    return types.void(W, centred, squares), generate


def _write_squares(builder, d, width, W, centred, squares):
    """Sum squares of tiles, from the top of the matrix on, for some columns of the panel at a time.

    The first rows are single ones, so that those that follow are whole tiles.
    """
    index, zero, element = d.type, d.type(0), W.type.pointee
    size = 4 if element == ir.FloatType() else 8
    vector = ir.VectorType(element, VECTOR_BYTES // size)
    wide = ir.VectorType(ir.DoubleType(), vector.count)
    zeros, together = ir.Constant(vector, None), index(VECTORS * vector.count)
    sums = [
        [cgutils.alloca_once(builder, vector) for _ in range(VECTORS)] for _ in range(MATRIX_ROWS)
    ]
    totals = [cgutils.alloca_once(builder, wide) for _ in range(VECTORS)]

    def add_products(r, first, rows, j):
        """Add the products of column j of the matrix and row j of the panel."""
        start = builder.gep(centred, [builder.add(builder.mul(j, width), r)])
        places = [vector_at(builder, start, v, vector) for v in range(VECTORS)]
        x = [builder.load(place, align=size) for place in places]
        for i in rows:
            row = builder.mul(builder.add(first, index(i)), d)
            w = broadcast(builder, builder.load(builder.gep(W, [builder.add(row, j)])), vector)
            for held, values in zip(sums[i], x, strict=True):
                builder.store(fused_multiply_add(builder, w, values, builder.load(held)), held)

    def add_rows(r, first, last, n):
        """Add the squares of rows of the matrix, `n` at a time."""
        with cgutils.for_range_slice(builder, first, last, index(n), index) as (row, _):
            for i, v in product(range(n), range(VECTORS)):
                builder.store(zeros, sums[i][v])
            with cgutils.for_range(builder, row, intp=index) as loop:
                add_products(r, row, range(n), loop.index)
            for j in range(n):  # These columns have entries up to the diagonal only.
                add_products(r, row, range(j, n), builder.add(row, index(j)))
            for v, total in enumerate(totals):
                part = zeros
                for i in range(n):
                    value = builder.load(sums[i][v])
                    part = fused_multiply_add(builder, value, value, part)
                part = part if vector == wide else builder.fpext(part, wide)
                builder.store(builder.fadd(part, builder.load(total)), total)

    with cgutils.for_range_slice(builder, zero, width, together, index) as (r, _):
        for total in totals:
            builder.store(ir.Constant(wide, None), total)
        middle = builder.urem(d, index(MATRIX_ROWS))
        add_rows(r, zero, middle, 1)
        add_rows(r, middle, d, MATRIX_ROWS)
        start = builder.gep(squares, [r])
        for v, total in enumerate(totals):
            builder.store(builder.load(total), vector_at(builder, start, v, wide), align=8)
