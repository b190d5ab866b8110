"""Squared Mahalanobis distances and linear scores of rows; labels and probabilities from scores.

Rows are scored in panels of shape ``(d, width)``, and scores have shape ``(n_classes, n_rows)``, so
that every loop runs along rows. The score of a row does not depend on its position: the last panel
is filled up with copies of the last row, and so is computed like the others.

Kernels that multiply tiles expect all panels of the rows. The others take the rows themselves, and
pack one panel at a time. They write either scores or only labels.
"""

import numpy as np

from streamgda.kernels import contracting_kernel, fast_kernel, inline_kernel, kernel
from streamgda.kernels.narrow_distances import ROW_STEP, narrow_triangle_squares
from streamgda.kernels.tiles import ROWS, add_tile_squares, multiply_tile

# Centred panels at a time: as many as the first cache holds, but enough that a factor that comes
# from a farther cache is used several times.
_BLOCK_BYTES = 1 << 14
_BLOCK_PANELS = 4

# Largest numbers of rows and of values of a panel, for kernels without tiles.
_PANEL_ROWS = 96
_PANEL_VALUES = 1 << 15


@inline_kernel
def _pack_panel(X, features, start, panel):
    """Write feature ``features[j]`` of row ``start + r`` to ``panel[j, r]``."""
    last = X.shape[0] - 1
    for first in range(0, panel.shape[1], ROWS):  # few rows: their cache lines share a set
        for j in range(features.shape[0]):
            for r in range(first, first + ROWS):
                panel[j, r] = X[min(start + r, last), features[j]]


@fast_kernel
def pack_panels(X, features, out):
    """Write feature ``features[j]`` of row ``b * width + r`` to ``out[b, j, r]``."""
    for b in range(out.shape[0]):
        _pack_panel(X, features, b * out.shape[2], out[b])


@inline_kernel
def _empty_panel(X, features):
    """Return an empty panel for kernels without tiles; its width is a multiple of `ROW_STEP`."""
    d = features.shape[0]
    most = max(1, min(_PANEL_ROWS, _PANEL_VALUES // d) // ROW_STEP)
    return np.empty((d, ROW_STEP * min(most, (X.shape[0] + ROW_STEP - 1) // ROW_STEP)))


@inline_kernel
def _panels_at_a_time(panels):
    size = panels.itemsize * panels.shape[1] * panels.shape[2]
    return max(_BLOCK_PANELS, _BLOCK_BYTES // size)


@inline_kernel
def _centre_panels(panels, width, centre, repeated, out):
    """Write flat panels minus the centre, subtracted in float64 and then rounded.

    `repeated` is scratch space for the centre in the shape of a panel, which makes the loops long.
    """
    for j in range(centre.shape[0]):
        for r in range(width):
            repeated[j * width + r] = centre[j]
    for b in range(panels.shape[0]):
        x = panels[b]
        t = out[b]
        for i in range(repeated.shape[0]):
            t[i] = x[i] - repeated[i]


@inline_kernel
def _scale(distances, scale, offset, out):
    """Write ``offset + scale * distance`` for as many distances as `out` has rows."""
    for r in range(out.shape[0]):
        out[r] = offset + scale * distances[r]


@fast_kernel
def matrix_distances(panels, centres, strips, scale, offsets, out):
    """Write ``offsets[k] + scale |W[k] (x - centres[k])|^2`` to ``out[k, r]`` for each row x.

    W[k] is lower triangular. ``strips[k, s, j, a]`` is ``W[k, ROWS * s + a, j]``, or zero beyond
    the end of W. A single W serves all centres. float32 panels are centred, rounded to float32 and
    multiplied in it; the squares are summed in float64.
    """
    n_panels, d, width = panels.shape
    block = _panels_at_a_time(panels)
    centred = np.empty((block, d, width), panels.dtype)
    flat = panels.reshape(n_panels, -1)
    flat_centred = centred.reshape(block, -1)
    repeated = np.empty(d * width)
    distances = np.empty((block, width))
    for k in range(centres.shape[0]):
        W = strips[min(k, strips.shape[0] - 1)]
        for first in range(0, n_panels, block):
            part = flat[first : first + block]
            _centre_panels(part, width, centres[k], repeated, flat_centred)
            distances[:] = 0.0
            for s in range(W.shape[0]):
                depth = min(ROWS * (s + 1), d)
                for b in range(part.shape[0]):
                    add_tile_squares(W[s], 0, centred[b], depth, distances[b])
            rows = out[k, first * width : (first + block) * width]
            _scale(distances.reshape(-1), scale, offsets[k], rows)


@fast_kernel
def linear_scores(panels, centre, strips, scale, offsets, out):
    """Write ``offsets[k] + scale w[k] . (x - centre)`` to ``out[k, r]`` for each row x.

    ``strips[s, j, a]`` is ``w[ROWS * s + a, j]``, or zero beyond the end of w. float32 panels are
    treated as in `matrix_distances`.
    """
    n_panels, d, width = panels.shape
    block = _panels_at_a_time(panels)
    centred = np.empty((block, d, width), panels.dtype)
    flat = panels.reshape(n_panels, -1)
    flat_centred = centred.reshape(block, -1)
    repeated = np.empty(d * width)
    tile = np.empty((ROWS, width))
    for first in range(0, n_panels, block):
        part = flat[first : first + block]
        _centre_panels(part, width, centre, repeated, flat_centred)
        for s in range(strips.shape[0]):
            scores = out[ROWS * s : ROWS * (s + 1)]
            for b in range(part.shape[0]):
                multiply_tile(strips[s], 0, centred[b], d, tile)
                start = (first + b) * width
                for a in range(scores.shape[0]):
                    rows = scores[a, start : start + width]
                    offset = offsets[ROWS * s + a]
                    for r in range(rows.shape[0]):
                        rows[r] = offset + scale * tile[a, r]


@inline_kernel
def _compare(distances, scale, offset, k, top, out):
    """Write k for the rows whose score of class k exceeds those of all classes before it."""
    if k == 0:
        top[:] = -np.inf
        out[:] = 0
    for r in range(out.shape[0]):
        score = offset + scale * distances[r]
        out[r] = k if score > top[r] else out[r]
        top[r] = max(top[r], score)


@fast_kernel
def diagonal_distances(X, features, centres, precisions, scale, offsets, out):
    """Write ``offsets[k] + scale sum_j precisions[k, j] (x_j - centres[k, j])^2`` to ``out[k, r]``.

    If `out` has one dimension, write the class with the largest of these instead, and the first
    one of equals. x holds the given features of a row of `X`, as float64. A single row of
    precisions serves all centres.
    """
    panel = _empty_panel(X, features)
    d, width = panel.shape
    distances, top = np.empty(width), np.empty(width)
    for start in range(0, X.shape[0], width):
        _pack_panel(X, features, start, panel)
        for k in range(centres.shape[0]):
            g = min(k, precisions.shape[0] - 1)
            distances[:] = 0.0
            for j in range(d):
                x = panel[j]
                centre = centres[k, j]
                precision = precisions[g, j]
                for r in range(width):
                    t = x[r] - centre
                    distances[r] += precision * (t * t)
            if out.ndim == 2:
                _scale(distances, scale, offsets[k], out[k, start : start + width])
            else:
                _compare(distances, scale, offsets[k], k, top, out[start : start + width])


@fast_kernel
def narrow_matrix_distances(X, features, centres, strips, scale, offsets, out):
    """Compute `matrix_distances` of narrow rows, with `X` and `out` as in `diagonal_distances`.

    There are at most `narrow_distances.MAX_FEATURES` features.
    """
    panel = _empty_panel(X, features)
    width = panel.shape[1]
    distances, top = np.empty(width), np.empty(width)
    for start in range(0, X.shape[0], width):
        _pack_panel(X, features, start, panel)
        for k in range(centres.shape[0]):
            W = strips[min(k, strips.shape[0] - 1)]
            narrow_triangle_squares(panel, centres[k], W, distances)
            if out.ndim == 2:
                _scale(distances, scale, offsets[k], out[k, start : start + width])
            else:
                _compare(distances, scale, offsets[k], k, top, out[start : start + width])


@fast_kernel
def all_finite(X):
    """Return True if all values of a C-contiguous array of floats are finite."""
    values = X.reshape(-1)
    check = 0.0
    for i in range(values.size):
        check += values[i] * 0.0
    return check == 0.0


@kernel
def largest(scores, out):
    """Write the class of the largest score of each row, the first one of equals."""
    top = scores[0].copy()
    out[:] = 0
    for k in range(1, scores.shape[0]):
        row = scores[k]
        for r in range(out.shape[0]):
            out[r] = k if row[r] > top[r] else out[r]
            top[r] = max(top[r], row[r])


_LOG2_E = 1 / np.log(2)
# The product of the first part of ln 2 and a whole number of 11 bits is exact.
_LN2 = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b39p-40")
_TAYLOR = tuple((1 / np.cumprod([1.0, *range(1, 14)])).tolist())
_LEAST = -708.0  # exp of anything less is not a normal number
# Adding this to n leaves n + 1023, the exponent of 2^n, in the last bits.
_TO_BITS = 1.5 * 2.0**52 + 1023
_EXP_BLOCK = 256  # rows that stay in the first cache, with the scores of some classes


@inline_kernel
def _exponentials(x, powers, total):
    """Write ``exp(x)`` in place, for x <= 0, and add it to `total`; `powers` is scratch space.

    The result is accurate to two units in the last place, and zero below -708. The function is
    written out so that the compiler vectorises it: ``x = n ln 2 + t``, with ``exp(t)`` from its
    Taylor series, in groups of four terms that do not depend on each other.
    """
    bits = powers.view(np.int64)
    c = _TAYLOR
    for r in range(x.size):
        t = max(x[r], _LEAST)
        powers[r] = t * _LOG2_E + _TO_BITS
        n = powers[r] - _TO_BITS
        t = (t - n * _LN2[0]) - n * _LN2[1]
        t2 = t * t
        t4 = t2 * t2
        s = c[12] + c[13] * t
        s = s * t4 + ((c[8] + c[9] * t) + (c[10] + c[11] * t) * t2)
        s = s * t4 + ((c[4] + c[5] * t) + (c[6] + c[7] * t) * t2)
        s = s * t4 + ((c[0] + c[1] * t) + (c[2] + c[3] * t) * t2)
        x[r] = s if x[r] >= _LEAST else 0.0
    for r in range(x.size):
        bits[r] <<= 52  # n + 1023 becomes the exponent
    for r in range(x.size):
        x[r] *= powers[r]
        total[r] += x[r]


@contracting_kernel
def exponentials(scores, out):
    """Write ``exp(scores[k, r])`` in place, for scores <= 0, and its sum over k to ``out[r]``."""
    powers = np.empty(_EXP_BLOCK)
    out[:] = 0.0
    for first in range(0, out.size, _EXP_BLOCK):
        rows = slice(first, min(first + _EXP_BLOCK, out.size))
        for k in range(scores.shape[0]):
            _exponentials(scores[k, rows], powers, out[rows])


@contracting_kernel
def posteriors(scores, out):
    """Write ``exp(scores[k, r])`` divided by its sum over k to ``out[r, k]``; overwrite `scores`.

    A row whose scores are all -inf gets equal probabilities.
    """
    top, total, powers = np.empty(_EXP_BLOCK), np.empty(_EXP_BLOCK), np.empty(_EXP_BLOCK)
    for first in range(0, out.shape[0], _EXP_BLOCK):
        rows = slice(first, min(first + _EXP_BLOCK, out.shape[0]))
        top[:] = -np.inf
        total[:] = 0.0
        for k in range(out.shape[1]):
            x = scores[k, rows]
            for r in range(x.size):
                top[r] = max(top[r], x[r])
        for k in range(out.shape[1]):
            x = scores[k, rows]
            for r in range(x.size):
                x[r] = x[r] - top[r] if top[r] > -np.inf else 0.0
            _exponentials(x, powers, total)
        for k in range(out.shape[1]):
            x = scores[k, rows]
            for r in range(x.size):
                x[r] /= total[r]
        for r in range(rows.start, rows.stop):
            for k in range(out.shape[1]):
                out[r, k] = scores[k, r]
