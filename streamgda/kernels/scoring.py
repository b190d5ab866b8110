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

# Values of the rows that BLAS multiplies at a time, and least numbers of rows.
_VALUES, _ROWS = 1 << 15, 192
BLOCK = 128  # entries of W (x - centre) that are computed at a time

# Largest numbers of rows and of values of a panel.
_PANEL_ROWS = 96
_PANEL_VALUES = 1 << 15
_ROW_GROUP = 4  # rows that are packed at a time: cache lines of more may share a set


def rows_at_a_time(n_rows, n_features):
    """Return the number of rows that BLAS multiplies at a time."""
    return min(n_rows, max(_ROWS, _VALUES // n_features))


@fast_kernel
def linear_scores(X, features, centre, vectors, offsets, centred, products, out):
    """Write ``offsets[k] + vectors[k] . (x - centre)`` to ``out[k, r]`` for each row x.

    `centred` and `products` are scratch space for some rows, their features and their scores.
    """
    d, most = features.size, centred.shape[0]
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


# Indices without a sign, because a check that others are not negative prevents vectorisation.
@inline_kernel
def _square_diagonal(X, rows, start, n, columns, ends, centre, weights, first, distances):
    """Write the sum of ``(weights[i] (x_i - centre[i]))^2`` over all i from `first`."""
    for q in range(n):
        r, total, i = rows[start + q], 0.0, np.uint64(first)
        while i < np.uint64(columns.size):
            shift = columns[i] - i
            for j in range(i, ends[i]):
                t = weights[j] * (X[r, j + shift] - centre[j])
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
def _keep_close(rows, start, n, distances, centred, width, scale, offset, best, margin, out):
    """Write scores, and move rows whose scores may matter to the front; return their number."""
    kept = 0
    for q in range(n):
        r = rows[start + q]
        score = offset + scale * distances[q]
        out[r] = score
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
    X, columns, ends, centres, n_coupled, weights, starts, triangles, scale, offsets, guesses,
    others, margin, rows, best, distances, centred, block, out,
):  # fmt: skip
    """Write ``offsets[k] + scale |W[k] (x - centres[k])|^2`` to ``out[k, r]`` for each row x.

    W[k] is lower triangular. A single one serves all centres. The features of class k are the
    columns ``columns[k]`` of `X`, which are adjacent up to ``ends[k, i]``. Its first
    ``n_coupled[k]`` rows and columns are the square matrix at ``triangles[starts[k]]``, and the
    others are the diagonal ``weights[k]``. Products are squared and summed in float64.

    A call scores the class ``guesses[r]`` of each row, or with `others` all other classes.

    `scale` is negative. The sum of a part of the squares bounds a score from above. Where such a
    bound is more than `margin` below the largest score of the row, it may be written in place of
    the score. This saves most work if the classes of the largest scores are known: `guesses`.

    `best` holds the largest score of each row so far, at first -inf. The arrays between it and
    `out`, and `rows`, are scratch space.
    """
    most = distances.size
    for k in range(centres.shape[0]):
        n_rows = _select(guesses, k, others, rows)
        g = min(k, n_coupled.size - 1)
        m, W = n_coupled[g], triangles[starts[g] :]
        for start in range(0, n_rows, most):
            n, last = min(most, n_rows - start), 0
            _square_diagonal(
                X, rows, start, n, columns[g], ends[g], centres[k], weights[g], m, distances
            )
            while True:
                n = _keep_close(
                    rows, start, n, distances, centred, last, scale, offsets[k], best, margin,
                    out[k],
                )  # fmt: skip
                if n == 0 or last == m:
                    break
                first, last = last, min(last + BLOCK, m)
                _centre_rows(
                    X, rows, start, n, columns[g], ends[g], centres[k], first, last, centred, block
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
        for j in range(features.size):
            x = panel[j]
            for r in range(first, first + _ROW_GROUP):
                x[r] = X[min(start + r, last), features[j]]


@inline_kernel
def _panel_width(n_rows, d):
    """Return the number of rows in a panel, a multiple of `ROW_STEP`."""
    most = max(1, min(_PANEL_ROWS, _PANEL_VALUES // d) // ROW_STEP)
    return ROW_STEP * min(most, (n_rows + ROW_STEP - 1) // ROW_STEP)


@inline_kernel
def _write_scores(distances, scale, offset, k, start, n, top, scores, labels):
    """Write ``offset + scale * distance``, or k where no class before has so large a score."""
    if scores.size > 0:
        out = scores[k, start:]
        for r in range(n):
            out[r] = offset + scale * distances[r]
    else:
        out = labels[start : start + n]
        if k == 0:
            for r in range(out.size):
                top[r], out[r] = -np.inf, 0
        for r in range(out.size):
            score = offset + scale * distances[r]
            out[r] = k if score > top[r] else out[r]
            top[r] = max(top[r], score)


@fast_kernel
def diagonal_scores(X, features, centres, precisions, scale, offsets, scores, labels):
    """Write ``offsets[k] + scale sum_j precisions[k, j] (x_j - centres[k, j])^2`` to ``[k, r]``.

    If `scores` is empty, write the class with the largest of these to `labels` instead, the first
    one of equals. x holds the given features of a row of `X`, as float64. A single row of
    precisions serves all centres.
    """
    d, width = features.size, _panel_width(X.shape[0], features.size)
    panel, distances, top = np.empty((d, width)), np.empty(width), np.empty(width)
    for start in range(0, X.shape[0], width):
        n = min(width, X.shape[0] - start)
        _pack_panel(X, features, start, panel)
        for k in range(centres.shape[0]):
            g = min(k, precisions.shape[0] - 1)
            for r in range(width):
                distances[r] = 0.0
            for j in range(d):
                x, centre, precision = panel[j], centres[k, j], precisions[g, j]
                for r in range(width):
                    t = x[r] - centre
                    distances[r] += precision * (t * t)
            _write_scores(distances, scale, offsets[k], k, start, n, top, scores, labels)


@fast_kernel
def narrow_matrix_scores(X, features, centres, roots, scale, offsets, scores, labels):
    """Compute `matrix_scores` of few features, or labels, as `diagonal_scores` does.

    There are at most `narrow_distances.MAX_FEATURES` features.
    """
    d, width = features.size, _panel_width(X.shape[0], features.size)
    panel, distances, top = np.empty((d, width)), np.empty(width), np.empty(width)
    centred = np.empty((d, width), roots.dtype)
    for start in range(0, X.shape[0], width):
        n = min(width, X.shape[0] - start)
        _pack_panel(X, features, start, panel)
        for k in range(centres.shape[0]):
            for j in range(d):
                x, t, centre = panel[j], centred[j], centres[k, j]
                for r in range(width):
                    t[r] = x[r] - centre
            narrow_triangle_squares(centred, roots[min(k, roots.shape[0] - 1)], distances)
            _write_scores(distances, scale, offsets[k], k, start, n, top, scores, labels)


@kernel
def largest(scores, labels):
    """Write the class of the largest score of each row, the first one of equals."""
    for r in range(labels.size):
        labels[r] = 0
    best = scores[0].copy()
    for k in range(1, scores.shape[0]):
        x = scores[k]
        for r in range(labels.size):
            labels[r] = k if x[r] > best[r] else labels[r]
            best[r] = x[r] if x[r] > best[r] else best[r]


_LOG2_E = 1 / np.log(2)
# The product of the first part of ln 2 and a whole number of 11 bits is exact.
_LN2 = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b39p-40")
_TAYLOR = tuple((1 / np.cumprod([1.0, *range(1, 14)])).tolist())
_LEAST = -708.0  # exp of anything less is not a normal number
FAR = -_LEAST  # scores that are further below the largest have probability zero
# Adding this to n leaves n + 1023, the exponent of 2^n, in the last bits.
_TO_BITS = 1.5 * 2.0**52 + 1023


@contracting_kernel
def exponentials(scores, total, powers, bits):
    """Write ``exp(scores[k, r])`` in place, for scores <= 0, and its sum over k to ``total[r]``.

    The result is accurate to two units in the last place, and zero below -708. The function is
    written out so that the compiler vectorises it: ``x = n ln 2 + t``, with ``exp(t)`` from its
    Taylor series, in groups of four terms that do not depend on each other. `powers` is scratch
    space, and `bits` are the same bytes as integers.
    """
    c = _TAYLOR
    for first in range(0, total.size, powers.size):
        sums = total[first : first + powers.size]
        for k in range(scores.shape[0]):
            x = scores[k, first:]
            for r in range(sums.size):
                t = x[r] if x[r] > _LEAST else _LEAST
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
            for r in range(sums.size):
                bits[r] <<= 52  # n + 1023 becomes the exponent
            for r in range(sums.size):
                x[r] *= powers[r]
                sums[r] = x[r] if k == 0 else sums[r] + x[r]
