"""Scatter matrices: rows are packed into transposed panels, and panels multiplied by themselves.

A panel holds up to `PANEL` rows, feature by feature, so that each element of the product is a
dot product over a contiguous axis. Elements are computed in 4 x 3 tiles of scalar accumulators,
each of which LLVM turns into a vector register: twelve of them, with four and three operands,
are what the sixteen registers of AVX2 hold.
"""

import numpy as np

from streamgda.kernels import fast_kernel, inline_kernel, kernel

PANEL = 512  # rows; float32 products of centred bytes (up to 2**14) stay exact up to 2**10 rows
TILE_ROWS = 4
TILE_COLUMNS = 3
DEPTH = 12  # panels' feature axis is padded to a multiple of this: whole tiles both ways
LANES = 16  # panels' row axis is padded with zeros to a multiple of this


@kernel
def pack_rows(
    X, codes, order, root_weights, centre, centre_low, starts, stops, first, last, panels
):
    """Write features ``first:last`` of centred rows into panels.

    Panel p takes rows ``order[starts[p]:stops[p]]``, each less its class's centre, times the
    root of its weight; centres are of the panels' type. Rows are centred a few at a time, along
    themselves, and then transposed: both steps run over contiguous memory.
    """
    weighted = root_weights.shape[0] > 0
    number = panels.dtype.type
    rows = np.zeros((LANES, last - first), panels.dtype)
    for p in range(starts.shape[0]):
        n = stops[p] - starts[p]
        for c in range(0, n, LANES):
            for q in range(LANES):
                if c + q >= n:
                    rows[q] = 0
                    continue
                r = order[starts[p] + c + q]
                # Views of the ranges, so that the loops below are over contiguous memory.
                x = X[r, first:last]
                m = centre[codes[r], first:last]
                m_low = centre_low[codes[r], first:last]
                row = rows[q]
                for j in range(x.shape[0]):
                    row[j] = (number(x[j]) - m[j]) - m_low[j]
                if weighted:
                    for j in range(x.shape[0]):
                        row[j] *= root_weights[r]
            for j in range(last - first):
                for q in range(LANES):
                    panels[p, first + j, c + q] = rows[q, j]


@inline_kernel
def _store(S, g, i, j, value):
    if j <= i < S.shape[1]:
        S[g, i, j] += S.dtype.type(value)


@fast_kernel
def add_products(panels, sizes, groups, first, last, S):
    """Add each panel's product with itself to rows ``first:last`` of ``S[groups[p]]``.

    `first` is a multiple of `TILE_ROWS`; only the lower triangle is written.
    """
    zero = panels.dtype.type(0)
    for p in range(sizes.shape[0]):
        P = panels[p]
        g = groups[p]
        n = (sizes[p] + LANES - 1) // LANES * LANES
        for i in range(first, last, TILE_ROWS):
            for j in range(0, i + TILE_ROWS, TILE_COLUMNS):
                s00 = s01 = s02 = zero
                s10 = s11 = s12 = zero
                s20 = s21 = s22 = zero
                s30 = s31 = s32 = zero
                for q in range(n):
                    a0 = P[i, q]
                    a1 = P[i + 1, q]
                    a2 = P[i + 2, q]
                    a3 = P[i + 3, q]
                    b0 = P[j, q]
                    b1 = P[j + 1, q]
                    b2 = P[j + 2, q]
                    s00 += a0 * b0
                    s01 += a0 * b1
                    s02 += a0 * b2
                    s10 += a1 * b0
                    s11 += a1 * b1
                    s12 += a1 * b2
                    s20 += a2 * b0
                    s21 += a2 * b1
                    s22 += a2 * b2
                    s30 += a3 * b0
                    s31 += a3 * b1
                    s32 += a3 * b2
                _store(S, g, i, j, s00)
                _store(S, g, i, j + 1, s01)
                _store(S, g, i, j + 2, s02)
                _store(S, g, i + 1, j, s10)
                _store(S, g, i + 1, j + 1, s11)
                _store(S, g, i + 1, j + 2, s12)
                _store(S, g, i + 2, j, s20)
                _store(S, g, i + 2, j + 1, s21)
                _store(S, g, i + 2, j + 2, s22)
                _store(S, g, i + 3, j, s30)
                _store(S, g, i + 3, j + 1, s31)
                _store(S, g, i + 3, j + 2, s32)


@kernel
def add_outer(vectors, coefficients, group, S):
    """Add ``coefficients[k] * outer(vectors[k], vectors[k])`` to ``S[group[k]]`` (lower)."""
    d = vectors.shape[1]
    for k in range(vectors.shape[0]):
        if coefficients[k] != 0:
            g = group[k]
            for i in range(d):
                scaled = coefficients[k] * vectors[k, i]
                for j in range(i + 1):
                    S[g, i, j] += scaled * vectors[k, j]
