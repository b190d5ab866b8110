"""Sums and scores of sparse rows, in time proportional to the entries that are stored.

Row r has the entries ``values[p]`` in the columns ``columns[p]``, for p from ``first[r]`` up to
``last[r]``; all others are zero.
"""

import numpy as np

from streamgda.kernels import kernel
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
