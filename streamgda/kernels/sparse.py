"""Sums and scores of sparse rows, in time proportional to the entries that are stored.

Row r has the entries ``values[p]`` in the columns ``columns[p]``, for p from ``first[r]`` up to
``last[r]``; all others are zero.
"""

import numpy as np

from streamgda.kernels import contracting_kernel, kernel
from streamgda.kernels.centred import (
    add_squared_weights,
    group_of_class,
    means_of_sums,
)
from streamgda.kernels.sums import add_outer, group_rows, merge_means

_CACHED = 1 << 17  # sums that a cache holds, beside as many squares


@kernel
def add_sparse_centred(
    values, columns, first, last, codes, weights, limit, count, squares, mean, mean_low, scatter
):
    """Add rows to counts, means and variances about the means; return False if not all are finite.

    Nothing has changed then, nor if values, means or weights are beyond `limit`. Like dense rows,
    those of a class are summed about its first row and squared about their mean; the zeros of a
    feature count once, with their weight.
    """
    n_classes, d = mean.shape
    weighted = weights.shape[0] > 0
    total = most = 0.0
    for k in range(n_classes):
        total += count[k]
        for j in range(d):
            most = max(most, abs(mean[k, j]))
    for r in range(codes.shape[0]):
        total += weights[r] if weighted else 1.0
        for p in range(first[r], last[r]):
            size = abs(values[p])
            if not size < limit / 4:  # NaN is not less
                return False
            most = max(most, size)
    if not (total < limit and total * (4 * most) * (4 * most) <= limit * limit):
        return False
    add_squared_weights(codes, weights, 0, codes.shape[0], squares)
    order, starts = np.empty(codes.shape[0], np.intp), np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    group = group_of_class(n_classes, scatter.shape[0])
    number, weight, at = np.empty(1), np.empty(1), np.empty(1, np.intp)
    pivot, sums, gap = np.empty((1, d)), np.empty((1, d)), np.empty((1, d))
    present, zeros = np.empty(d, np.int64), np.empty(d)
    for k in range(n_classes):
        own = order[starts[k] : starts[k + 1]]
        if own.shape[0] == 0:
            continue
        number[0], at[0] = 0.0, k
        pivot[:], sums[:], present[:], zeros[:] = 0, 0, 0, 0
        for p in range(first[own[0]], last[own[0]]):
            pivot[0, columns[p]] = values[p]
        for i in range(own.shape[0]):
            r = own[i]
            w = weights[r] if weighted else 1.0
            number[0] += w
            for p in range(first[r], last[r]):
                j = columns[p]
                sums[0, j] += w * (values[p] - pivot[0, j])
                present[j] += 1
                zeros[j] -= w
        for j in range(d):
            # Weights that are summed in another order leave a rest.
            zeros[j] = max(zeros[j] + number[0], 0.0) if present[j] < own.shape[0] else 0.0
            sums[0, j] -= zeros[j] * pivot[0, j]
        means_of_sums(limit, number, pivot, sums)
        squares = scatter[group[k]]
        for i in range(own.shape[0]):
            r = own[i]
            w = weights[r] if weighted else 1.0
            for p in range(first[r], last[r]):
                j = columns[p]
                t = (values[p] - pivot[0, j]) - sums[0, j]
                squares[j] += w * (t * t)
        for j in range(d):
            if zeros[j] > 0:  # the square of a mean may be infinite
                t = pivot[0, j] + sums[0, j]
                squares[j] += zeros[j] * (t * t)
        merge_means(number, pivot, sums, at, count, mean, mean_low, gap, weight)
        if weight[0] > 0:
            add_outer(gap, weight, group[k : k + 1], scatter)
    return True


@kernel
def add_sparse_exact(values, columns, first, last, codes, count, total, scatter):
    """Add rows of whole numbers to counts, and to int64 sums and squares."""
    group = group_of_class(total.shape[0], scatter.shape[0])
    order, starts = np.arange(codes.shape[0]), np.empty(total.shape[0] + 1, np.intp)
    if total.size > _CACHED:  # those of a class stay in a cache
        group_rows(codes, order, starts)
    for r in order:
        k = codes[r]
        count[k] += 1
        sums, squares = total[k], scatter[group[k]]
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
