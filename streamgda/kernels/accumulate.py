"""From rows to sums in one call, in blocks of rows that stay in a cache."""

import numpy as np

from streamgda.kernels import inline_kernel, kernel, shared_kernel
from streamgda.kernels.grouping import group_rows
from streamgda.kernels.merging import add_outer, merge_means, scalar_two_sum
from streamgda.kernels.scatter import FEW_ROWS, add_few, add_rows, centre_few, empty_scratch
from streamgda.kernels.sums import add_squares, add_sums, count_rows

# The squares of values below this can be summed in float64, however many there are.
LARGE = 1e140


@kernel
def add_centred(X, codes, weights, block_rows, count, squares, mean, mean_low, panels, scatter):
    """Add rows to counts, means and scatters about the means; return False if not all are finite.

    Each block is read twice, for its class means and for its scatter about them, and then merged.
    The first block with a sum that is not finite ends the call, and is not added. `squares` are
    the sums of the squared weights, or empty. `panels` is scratch space, which variances do not
    use.
    """
    n_classes, d = mean.shape
    classes = group_of_class(n_classes, n_classes)
    group = group_of_class(n_classes, scatter.shape[0])
    per_class = scatter.shape[0] > 1
    by_class, by_feature = np.empty((2, n_classes)), np.empty((3, n_classes, d))
    number, weight = by_class[0], by_class[1]
    pivot, sums, gap = by_feature[0], by_feature[1], by_feature[2]
    if scatter.ndim == 3:
        scratch = empty_scratch(d, panels)
        few = np.empty((FEW_ROWS + 1, d))
    for first in range(0, X.shape[0], block_rows):
        x = X[first : first + block_rows]
        labels, w = codes[first : first + block_rows], weights[first : first + block_rows]
        start_block(x, labels, w, count, mean, number, pivot, sums)
        add_sums(x, labels, w, pivot, sums)
        if not means_of_sums(number, pivot, sums):
            return False
        merge_means(number, pivot, sums, classes, count, mean, mean_low, gap, weight)
        add_squared_weights(labels, w, squares)
        if scatter.ndim == 3:
            order, starts = rows_by_group(labels, n_classes, scatter.shape[0])
            for g in range(scatter.shape[0]):
                own = order[starts[g] : starts[g + 1]]
                if per_class and own.shape[0] <= FEW_ROWS:
                    if own.shape[0] > 0:
                        centre_few(x, labels, own, w, pivot, sums, few)
                        for j in range(d):
                            few[FEW_ROWS, j] = np.sqrt(weight[g]) * gap[g, j]
                        add_few(few, scatter[g])
                    continue
                add_rows(x, labels, own, w, pivot, sums, scratch, panels, scatter[g])
                for k in range(g, g + 1 if per_class else n_classes):
                    if weight[k] > 0:
                        add_outer(gap[k], weight[k], scatter[g])
        else:
            add_squares(x, labels, w, pivot, sums, group, scatter)
            for k in range(n_classes):
                if weight[k] > 0:
                    add_outer(gap[k], weight[k], scatter[group[k]])
    return True


@inline_kernel
def add_squared_weights(codes, weights, squares):
    """Add the squared weight of each row to that of its class, unless `squares` is empty."""
    if squares.shape[0] > 0:
        for r in range(codes.shape[0]):
            squares[codes[r]] += weights[r] * weights[r] if weights.shape[0] > 0 else 1.0


@inline_kernel
def group_of_class(n_classes, n_groups):
    """Return the index of each class's scatter, which is its own or the only one."""
    group = np.empty(n_classes, np.intp)
    for k in range(n_classes):
        group[k] = min(k, n_groups - 1)
    return group


@shared_kernel
def rows_by_group(codes, n_classes, n_groups):
    """Return the row numbers in order of their classes, and the start of each group in them."""
    order = np.empty(codes.shape[0], np.intp)
    starts = np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    if n_groups < n_classes:  # one group holds the rows of all classes
        starts[1] = codes.shape[0]
    return order, starts[: n_groups + 1]


@inline_kernel
def start_block(X, codes, weights, count, mean, number, pivot, sums):
    """Count the rows of a block by class, choose the pivots and set the sums to zero."""
    number[:] = 0
    count_rows(codes, weights, number)
    choose_pivots(X, codes, number, count, mean, pivot)
    sums[:] = 0


@inline_kernel
def choose_pivots(X, codes, number, count, mean, pivot):
    """Write the point about which each class's rows are summed.

    It is the class's mean so far, or its first row if it had none. About either, the mean of a
    constant feature is exactly its value.
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
    """Turn sums about pivots into means in two parts, `pivot` + `sums`, for classes with rows.

    Return False, with the work half done, if a sum is not finite or too large to be squared.
    """
    for k in range(number.shape[0]):
        n = number[k]
        if not n > 0:
            continue
        for j in range(pivot.shape[1]):
            gap = sums[k, j] / n
            reach = abs(gap) + abs(pivot[k, j])
            if not (reach < LARGE and n * reach * reach < np.inf):  # NaN is not less
                return False
            pivot[k, j], sums[k, j] = scalar_two_sum(pivot[k, j], gap)
    return True
