"""From rows to sums in one call, in blocks of rows that stay in a cache."""

import numpy as np

from streamgda.kernels import inline_kernel, inner_kernel, kernel, shared_kernel
from streamgda.kernels.grouping import group_rows
from streamgda.kernels.merging import add_outer, merge_means, scalar_two_sum
from streamgda.kernels.products import add_gram, centre_rows
from streamgda.kernels.sums import add_squares, count_rows

# The squares of values below this can be summed in float64, however many there are.
LARGE = 1e140


@kernel
def add_centred(X, codes, weights, block_rows, count, squares, mean, mean_low, rows, scatter):
    """Add rows to counts, means and scatters about the means; return False if not all are finite.

    Each block is read twice, for its class means and for its scatter about them, and then merged.
    The first block with a sum that is not finite ends the call, and is not added. `squares` are
    the sums of the squared weights, or empty. `rows` is scratch space for centred rows, which
    variances do not use.
    """
    n_classes, d = mean.shape
    classes, group = np.empty(n_classes, np.intp), np.empty(n_classes, np.intp)
    for k in range(n_classes):
        classes[k] = k
        group[k] = min(k, scatter.shape[0] - 1)
    by_class, by_feature = np.empty((2, n_classes)), np.empty((3, n_classes, d))
    number, weight = by_class[0], by_class[1]
    high, low, gap = by_feature[0], by_feature[1], by_feature[2]
    starts = np.empty(n_classes + 1, np.intp)
    for first in range(0, X.shape[0], block_rows):
        x = X[first : first + block_rows]
        labels, w = codes[first : first + block_rows], weights[first : first + block_rows]
        order = np.empty(labels.shape[0], np.intp)
        group_rows(labels, order, starts)
        if not class_means(x, order, starts, w, count, mean, number, high, low):
            return False
        merge_means(number, high, low, classes, count, mean, mean_low, gap, weight)
        add_squared_weights(labels, w, squares)
        if scatter.ndim == 3:
            add_block(x, labels, order, w, high, low, starts, gap, weight, rows, scatter)
        else:
            add_squares(x, labels, w, high, low, group, scatter)
            for k in range(n_classes):
                if weight[k] > 0:
                    add_outer(gap[k], weight[k], scatter[group[k]])
    return True


@inner_kernel
def class_means(X, order, starts, weights, count, mean, number, high, low):
    """Write the numbers of rows, or weights, of classes, and their means in two parts.

    The rows are summed about the class's mean so far, or its first row if it had none. About
    either, the mean of a constant feature is exactly its value. Return False, with the work half
    done, if a sum is not finite or too large to be squared.
    """
    for k in range(number.shape[0]):
        own = order[starts[k] : starts[k + 1]]
        number[k] = own.shape[0]
        if weights.shape[0] > 0:
            number[k] = 0.0
            for q in range(own.shape[0]):
                number[k] += weights[own[q]]
        pivot, sums = high[k], low[k]
        for j in range(pivot.shape[0]):
            sums[j] = pivot[j] = 0.0
            if number[k] > 0:
                pivot[j] = mean[k, j] if count[k] > 0 else X[own[0], j]
        for q in range(own.shape[0]):
            r = np.uint64(own[q])  # unsigned: no check for negative indices
            w = weights[r] if weights.shape[0] > 0 else 1.0
            for j in range(pivot.shape[0]):
                sums[j] += w * (X[r, j] - pivot[j])
    return means_of_sums(number, high, low)


@inner_kernel
def add_block(X, codes, order, weights, high, low, starts, gap, weight, rows, scatter):
    """Add the products of centred rows, and of the gaps between means, to scatters."""
    n_classes, d = gap.shape
    per_class = scatter.shape[0] > 1
    magnitude, features = np.empty(d), np.empty(d, np.intp)
    for g in range(scatter.shape[0]):
        r, last, k, last_class = 0, order.shape[0], 0, n_classes
        if per_class:
            r, last, k, last_class = starts[g], starts[g + 1], g, g + 1
        while r < last or k < last_class:
            own = order[r : min(r + rows.shape[0], last)]
            centre_rows(X, codes, own, weights, high, low, rows, magnitude)
            n = own.shape[0]
            r += n
            while n < rows.shape[0] and k < last_class:  # after the last row
                if weight[k] > 0:
                    for j in range(d):
                        rows[n, j] = np.sqrt(weight[k]) * gap[k, j]
                        magnitude[j] += abs(rows[n, j])
                    n += 1
                k += 1
            add_gram(rows, n, magnitude, features, scatter[g])


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
