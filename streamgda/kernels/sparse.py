"""Sums and scores of sparse rows, in time proportional to the entries that are stored.

Row r has the entries ``values[p]`` in the columns ``columns[p]``, for p from ``first[r]`` up to
``last[r]``; all others are zero.
"""

import numpy as np

from streamgda.kernels import contracting_kernel, kernel
from streamgda.kernels.blocks import add_outer, meet
from streamgda.kernels.sums import group_rows


@kernel
def add_sparse(
    values, columns, first, last, codes, weights, count, squares, origin, offset, scatter
):
    """Add rows to counts, means and variances of their classes; see `blocks.add_variances`.

    Rows of a class are one block. The zeros of a feature count once, with their weight.
    """
    n_classes, d = origin.shape
    order, starts = np.empty(codes.shape[0], np.intp), np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    present, zeros = np.empty(d, np.int64), np.empty(d)
    start, mean, gap = np.empty(d), np.empty(d), np.empty(d)
    for k in range(n_classes):
        own = order[starts[k] : starts[k + 1]]
        if own.shape[0] == 0:
            continue
        S, total, square = scatter[k if scatter.shape[0] > 1 else 0], 0.0, 0.0
        start[:], mean[:], present[:], zeros[:] = 0.0, 0.0, 0, 0.0
        for p in range(first[own[0]], last[own[0]]):
            start[columns[p]] = values[p]
        for r in own:
            w = weights[r] if weights.shape[0] else 1.0
            total += w
            square += w * w
            for p in range(first[r], last[r]):
                j = columns[p]
                mean[j] += w * (values[p] - start[j])
                present[j] += 1
                zeros[j] += w
        for j in range(d):  # weights that are summed in another order leave a rest
            zeros[j] = max(total - zeros[j], 0.0) if present[j] < own.shape[0] else 0.0
            mean[j] = (mean[j] - zeros[j] * start[j]) / total
            if zeros[j] > 0.0:
                t = start[j] + mean[j]
                S[j] += zeros[j] * (t * t)
        for r in own:
            w = weights[r] if weights.shape[0] else 1.0
            for p in range(first[r], last[r]):
                j = columns[p]
                t = (values[p] - start[j]) - mean[j]
                S[j] += w * (t * t)
        weight = meet(k, total, square, start, mean, count, squares, origin, offset, gap)
        if weight > 0.0:
            add_outer(gap, weight, S)


@kernel
def add_sparse_exact(values, columns, first, last, codes, count, total, square):
    """Add rows of whole numbers to counts, and to int64 sums and squares."""
    order, starts = np.empty(codes.shape[0], np.intp), np.empty(count.shape[0] + 1, np.intp)
    group_rows(codes, order, starts)  # the sums of a class stay in a cache
    for r in order:
        k = codes[r]
        count[k] += 1
        sums, squares = total[k], square[k if square.shape[0] > 1 else 0]
        for p in range(first[r], last[r]):
            x, j = np.int64(values[p]), np.uint64(columns[p])  # no check of the sign
            sums[j] += x
            squares[j] += x * x


@contracting_kernel
def sparse_scores(
    values, columns, first, last, quadratic, linear, base, far, slots, scale, offsets, out
):
    """Write ``offsets[k] + scale * sum_j t (A t + B)`` with t = x - m, by class, row and feature.

    Near features have coefficients of x and of its square, shape (n_features, n_classes), and
    `base` holds their sum for a row of zeros; `quadratic` is empty if A is zero. Far features are
    centred: ``slots[j]`` is the position of feature j among those of any class, or -1. `far` holds
    the start of each class in the four arrays that follow: positions, m, A and B.
    """
    starts, positions, centres, second, one = far
    n_classes = base.shape[0]
    square, centred, n_slots = quadratic.shape[0] > 0, slots.shape[0] > 0, 0
    for slot in slots:
        n_slots = max(n_slots, slot + 1)
    row = np.zeros(n_slots)
    sums = np.empty(n_classes)
    for r in range(first.shape[0]):
        for k in range(n_classes):  # a slice would compile for seconds, with its message of errors
            sums[k] = base[k]
        p = first[r]
        while not square and p + 4 <= last[r]:  # sums are loaded and stored once for four entries
            a, b, c, d = values[p], values[p + 1], values[p + 2], values[p + 3]
            u, v = linear[np.uint64(columns[p])], linear[np.uint64(columns[p + 1])]
            w, x = linear[np.uint64(columns[p + 2])], linear[np.uint64(columns[p + 3])]
            for k in range(n_classes):
                sums[k] += (a * u[k] + b * v[k]) + (c * w[k] + d * x[k])
            p += 4
        for i in range(p, last[r]):
            value, j = values[i], np.uint64(columns[i])
            for k in range(n_classes):
                slope = value * quadratic[j, k] + linear[j, k] if square else linear[j, k]
                sums[k] += value * slope
        if centred:
            for i in range(first[r], last[r]):
                if slots[columns[i]] >= 0:
                    row[slots[columns[i]]] = values[i]
            for k in range(n_classes):
                for i in range(starts[k], starts[k + 1]):
                    t = row[positions[i]] - centres[i]
                    sums[k] += t * (second[i] * t + one[i])
            for p in range(first[r], last[r]):
                if slots[columns[p]] >= 0:
                    row[slots[columns[p]]] = 0.0
        for k in range(n_classes):
            out[k, r] = offsets[k] + scale * sums[k]
