"""Rows to sums in one call, block by block while they are in a cache."""

import numpy as np

from streamgda.kernels import inline_kernel, kernel, shared_kernel
from streamgda.kernels.grouping import group_rows
from streamgda.kernels.merging import add_outer, merge_means, two_sum_of_numbers
from streamgda.kernels.scatter import FEW, add_few, add_rows, centre_few, empty_scratch
from streamgda.kernels.sums import add_squares, add_sums, count_rows

# Values of whose squares even a great many can be summed in float64.
LARGE = 1e140


@kernel
def add_centred(X, codes, weights, block_rows, count, mean, mean_low, panels, scatter):
    """Add rows to counts, means and scatters about the means; say whether all sums are finite.

    Where they are not, nothing of the block in question has been added. Each block is read twice,
    for its class means and for its scatter about them, and then merged. `panels` is scratch, not
    looked at for variances.
    """
    n_classes, d = mean.shape
    everyone, group = groups(n_classes, n_classes), groups(n_classes, scatter.shape[0])
    per_class = scatter.shape[0] > 1
    number, weight = np.empty(n_classes), np.empty(n_classes)
    pivot, sums = np.empty((n_classes, d)), np.empty((n_classes, d))
    gap = np.empty((n_classes, d))
    scratch = empty_scratch(d, panels)
    few = np.empty((FEW + 1, d))
    for first in range(0, X.shape[0], block_rows):
        x = X[first : first + block_rows]
        labels, w = codes[first : first + block_rows], weights[first : first + block_rows]
        number[:] = 0
        count_rows(labels, w, number)
        choose_pivots(x, labels, number, count, mean, pivot)
        sums[:] = 0
        add_sums(x, labels, w, pivot, sums)
        if not means_of_sums(number, pivot, sums):
            return False
        merge_means(number, pivot, sums, everyone, count, mean, mean_low, gap, weight)
        if scatter.ndim == 3:
            order, starts = ordered(labels, n_classes, scatter.shape[0])
            for g in range(scatter.shape[0]):
                own = order[starts[g] : starts[g + 1]]
                if per_class and own.shape[0] <= FEW:
                    if own.shape[0] > 0:
                        centre_few(x, labels, own, w, pivot, sums, few)
                        for j in range(d):
                            few[FEW, j] = np.sqrt(weight[g]) * gap[g, j]
                        add_few(few, scatter[g])
                    continue
                add_rows(x, labels, own, w, pivot, sums, scratch, panels, scatter[g])
                for k in range(g, g + 1 if per_class else n_classes):
                    if weight[k] > 0:
                        add_outer(gap[k], weight[k], scatter[g])
        else:
            add_squares(x, labels, w, pivot, sums, group, scatter)
            for k in range(n_classes):
                add_outer(gap[k], weight[k], scatter[group[k]])
    return True


@inline_kernel
def groups(n_classes, n_groups):
    """Which scatter is each class's: its own, or the only one."""
    group = np.empty(n_classes, np.intp)
    for k in range(n_classes):
        group[k] = min(k, n_groups - 1)
    return group


@shared_kernel
def ordered(codes, n_classes, n_groups):
    """Rows ordered by class, and where each group's rows start."""
    order = np.empty(codes.shape[0], np.intp)
    starts = np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    if n_groups < n_classes:  # blocks of rows may run across classes
        starts[1] = codes.shape[0]
    return order, starts[: n_groups + 1]


@inline_kernel
def choose_pivots(X, codes, number, count, mean, pivot):
    """Write what each class's rows are summed about: its mean so far, or its first row.

    About either, constant features have a mean that is their value to the bit.
    """
    first = np.empty(number.shape[0], np.intp)
    first_rows(codes, number, count, first)
    for k in range(number.shape[0]):
        before = number[k] > 0 and count[k] > 0
        for j in range(mean.shape[1]):
            pivot[k, j] = mean[k, j] if before else 0.0
            if first[k] >= 0:
                pivot[k, j] = X[first[k], j]


@shared_kernel
def first_rows(codes, number, count, first):
    """Write the first row of each class that has rows now and had none before, -1 for others."""
    left = 0
    for k in range(number.shape[0]):
        first[k] = -1
        left += number[k] > 0 and count[k] <= 0
    for r in range(codes.shape[0]):
        if left == 0:
            break
        k = codes[r]
        if first[k] < 0 and count[k] <= 0:
            first[k] = r
            left -= 1


@shared_kernel
def means_of_sums(number, pivot, sums):
    """Turn sums about pivots into means in two parts, `pivot` + `sums`; whether all are finite."""
    for k in range(number.shape[0]):
        n = number[k] if number[k] > 0 else 1.0
        for j in range(pivot.shape[1]):
            if not (abs(sums[k, j]) < LARGE and abs(pivot[k, j]) < LARGE):  # NaN is not less
                return False
            pivot[k, j], sums[k, j] = two_sum_of_numbers(pivot[k, j], sums[k, j] / n)
    return True


@kernel
def add_exact(X, codes, block_rows, count, total, origins, centre, zeros, panels, scatter):
    """Add rows of whole numbers to counts, and to int64 sums and products about an origin.

    `origins` holds the origin for each class and feature, `centre` the same and `zeros` zeros in
    the type of the panels; `panels` is scratch. For variances all of them are int64.
    """
    n_classes, d = total.shape
    unweighted = np.empty(0)
    group = groups(n_classes, scatter.shape[0])
    scratch = empty_scratch(d, panels)
    for first in range(0, X.shape[0], block_rows):
        x, labels = X[first : first + block_rows], codes[first : first + block_rows]
        count_rows(labels, unweighted, count)
        add_sums(x, labels, unweighted, origins, total)
        if scatter.ndim == 3:
            order, starts = ordered(labels, n_classes, scatter.shape[0])
            for g in range(scatter.shape[0]):
                own = order[starts[g] : starts[g + 1]]
                add_rows(x, labels, own, unweighted, centre, zeros, scratch, panels, scatter[g])
        else:
            add_squares(x, labels, unweighted, centre, zeros, group, scatter)
