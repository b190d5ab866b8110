"""Squared Mahalanobis distances and linear scores of rows; labels and probabilities from scores.

Scores have shape ``(n_classes, n_rows)``. Below, x holds the given features of a row of `X`, in
their order. It is centred in float64, and then rounded to the type of what it is multiplied by.

Rows with many features are multiplied by BLAS. Those with few, or with variances only, are treated
in panels of shape ``(d, width)``, so that every loop runs along rows; the last panel is filled up
with copies of the last row.
"""

import numpy as np

from streamgda.kernels import contracting_kernel, fast_kernel, inline_kernel, kernel
from streamgda.kernels.blas import lower_product, product
from streamgda.kernels.narrow_distances import ROW_STEP, narrow_triangle_squares

# Values of the rows that BLAS multiplies at a time, and numbers of rows even of more values.
_VALUES = 1 << 15
_LINEAR_ROWS, _MATRIX_ROWS = 256, 192
BLOCK = 128  # entries of W (x - centre) that are computed at a time

# Largest numbers of rows and of values of a panel.
_PANEL_ROWS = 96
_PANEL_VALUES = 1 << 15
_ROW_GROUP = 4  # rows that are packed at a time: cache lines of more may share a set


@inline_kernel
def _rows_at_a_time(X, d, least):
    return min(X.shape[0], max(least, _VALUES // d))


@fast_kernel
def linear_scores(X, features, centre, vectors, offsets, out):
    """Write ``offsets[k] + vectors[k] . (x - centre)`` to ``out[k, r]`` for each row x."""
    d = features.size
    most = _rows_at_a_time(X, d, _LINEAR_ROWS)
    centred = np.empty((most, d), vectors.dtype)
    products = np.empty((most, vectors.shape[0]), vectors.dtype)
    for first in range(0, X.shape[0], most):
        n = min(most, X.shape[0] - first)
        for r in range(n):
            for j in range(d):
                centred[r, j] = X[first + r, features[j]] - centre[j]
        product(centred[:n], vectors, 0.0, products[:n])
        for k in range(vectors.shape[0]):
            for r in range(n):
                out[k, first + r] = offsets[k] + products[r, k]


@inline_kernel
def _select(guesses, k, others, rows):
    """Write the rows whose guess is class k, or is another class; return their number."""
    n = 0
    for r in range(guesses.size):
        rows[n] = r
        n += (guesses[r] == k) != others
    return n


@inline_kernel
def _set_order(order, g, features, centres, k, columns, ends, centre):
    """Write the columns of `X` in an order, the ends of runs of adjacent ones, and the centre."""
    d = features.size
    for i in range(d):
        columns[i] = features[order[g, i]]
        centre[i] = centres[k, order[g, i]]
        ends[i] = d
    for i in range(d - 2, -1, -1):
        adjacent = columns[i + 1] == columns[i] + 1
        ends[i] = ends[i + 1] if adjacent else i + 1


# Indices without a sign, because a check that others are not negative prevents vectorisation.
@inline_kernel
def _square_diagonal(X, rows, start, n, columns, ends, centre, weights, g, first, distances):
    """Write the sum of ``(weights[g, i] (x_i - centre[i]))^2`` over all i from `first`."""
    for q in range(n):
        r, total, i = rows[start + q], 0.0, np.uint64(first)
        while i < np.uint64(columns.size):
            shift = columns[i] - i
            for j in range(i, ends[i]):
                t = weights[g, j] * (X[r, j + shift] - centre[j])
                total += t * t
            i = ends[i]
        distances[q] = total


@inline_kernel
def _centre_rows(X, rows, start, n, columns, ends, centre, first, last, centred, block):
    """Write the columns from `first` to `last`, less the centre, in two places."""
    for q in range(n):
        r, i = rows[start + q], np.uint64(first)
        while i < np.uint64(last):
            shift = columns[i] - i
            for j in range(i, min(ends[i], np.uint64(last))):
                centred[q, j] = X[r, j + shift] - centre[j]
            i = ends[i]
        for j in range(np.uint64(first), np.uint64(last)):
            block[q, j - np.uint64(first)] = centred[q, j]


@inline_kernel
def _add_squares(block, n, width, distances):
    for q in range(n):
        total = 0.0
        for i in range(width):
            t = np.float64(block[q, i])
            total += t * t
        distances[q] += total


@inline_kernel
def _keep_close(rows, start, n, distances, centred, width, scale, offset, best, margin, k, out):
    """Write scores, and move rows whose scores may matter to the front; return their number."""
    kept = 0
    for q in range(n):
        r = rows[start + q]
        score = offset + scale * distances[q]
        out[k, r] = score
        if score < best[r] - margin:
            continue
        if kept < q:
            rows[start + kept] = r
            distances[kept] = distances[q]
            for i in range(width):
                centred[kept, i] = centred[q, i]
        kept += 1
    return kept


@fast_kernel
def matrix_scores(
    X, features, centres, order, n_coupled, weights, starts, triangles, scale, offsets, guesses,
    margin, out,
):  # fmt: skip
    """Write ``offsets[k] + scale |W[k] (x - centres[k])|^2`` to ``out[k, r]`` for each row x.

    W[k] is lower triangular. A single one serves all centres. In the order ``order[k]``, its first
    ``n_coupled[k]`` rows and columns are the square matrix at ``triangles[starts[k]]``, and the
    others are the diagonal ``weights[k]``. Products are squared and summed in float64.

    `scale` is negative. The sum of a part of the squares bounds a score from above. Where such a
    bound is more than `margin` below the largest score of the row, it may be written in place of
    the score. This saves most work if the classes of the largest scores are known: `guesses`.
    """
    d, widest = features.size, 0
    for m in n_coupled:
        widest = max(widest, m)
    most = _rows_at_a_time(X, d, _MATRIX_ROWS)
    centred = np.empty((most, widest), triangles.dtype)
    block = np.empty((most, min(BLOCK, widest)), triangles.dtype)
    columns, ends, centre = np.empty(d, np.uint64), np.empty(d, np.uint64), np.empty(d)
    rows, distances = np.empty(X.shape[0] + 1, np.int64), np.empty(most)
    best = np.empty(X.shape[0])
    best[:] = -np.inf
    for turn in range(2):
        for k in range(centres.shape[0]):
            n_rows = _select(guesses, k, turn == 1, rows)
            g = min(k, order.shape[0] - 1)
            _set_order(order, g, features, centres, k, columns, ends, centre)
            m = n_coupled[g]
            W = triangles[starts[g] : starts[g] + m * m].reshape(m, m)
            for start in range(0, n_rows, most):
                n, last = min(most, n_rows - start), 0
                _square_diagonal(X, rows, start, n, columns, ends, centre, weights, g, m, distances)
                while True:
                    n = _keep_close(
                        rows, start, n, distances, centred, last, scale, offsets[k], best, margin,
                        k, out,
                    )  # fmt: skip
                    if n == 0 or last == m:
                        break
                    first, last = last, min(last + BLOCK, m)
                    _centre_rows(
                        X, rows, start, n, columns, ends, centre, first, last, centred, block
                    )
                    z = block[:n, : last - first]
                    lower_product(z, W[first:last, first:last])
                    product(centred[:n, :first], W[first:last, :first], 1.0, z)
                    _add_squares(block, n, last - first, distances)
                for q in range(n):
                    r = rows[start + q]
                    best[r] = max(best[r], out[k, r])


@inline_kernel
def _pack_panel(X, features, start, panel):
    """Write feature ``features[j]`` of row ``start + r`` to ``panel[j, r]``."""
    last = X.shape[0] - 1
    for first in range(0, panel.shape[1], _ROW_GROUP):
        for j in range(features.shape[0]):
            for r in range(first, first + _ROW_GROUP):
                panel[j, r] = X[min(start + r, last), features[j]]


@inline_kernel
def _empty_panel(X, features):
    """Return an empty panel, whose width is a multiple of `ROW_STEP`."""
    d = features.shape[0]
    most = max(1, min(_PANEL_ROWS, _PANEL_VALUES // d) // ROW_STEP)
    return np.empty((d, ROW_STEP * min(most, (X.shape[0] + ROW_STEP - 1) // ROW_STEP)))


@inline_kernel
def _scale(distances, scale, offset, out):
    """Write ``offset + scale * distance`` for as many distances as `out` has rows."""
    for r in range(out.shape[0]):
        out[r] = offset + scale * distances[r]


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
def diagonal_scores(X, features, centres, precisions, scale, offsets, out):
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
def narrow_matrix_scores(X, features, centres, roots, scale, offsets, out):
    """Compute `matrix_scores` of few features; `out` may have one dimension.

    It is treated as in `diagonal_scores`. There are at most `narrow_distances.MAX_FEATURES`
    features.
    """
    panel = _empty_panel(X, features)
    d, width = panel.shape
    centred = np.empty((d, width), roots.dtype)
    distances, top = np.empty(width), np.empty(width)
    for start in range(0, X.shape[0], width):
        _pack_panel(X, features, start, panel)
        for k in range(centres.shape[0]):
            for j in range(d):
                x, t, centre = panel[j], centred[j], centres[k, j]
                for r in range(width):
                    t[r] = x[r] - centre
            narrow_triangle_squares(centred, roots[min(k, roots.shape[0] - 1)], distances)
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
FAR = -_LEAST  # scores that are further below the largest have probability zero
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
