"""From narrow rows to sums in one call: the products of all classes stay in the first cache."""

import numpy as np

from streamgda.kernels import inline_kernel, kernel
from streamgda.kernels.accumulate import (
    add_squared_weights,
    group_of_class,
    means_of_sums,
    start_block,
)
from streamgda.kernels.merging import add_outer, merge_means
from streamgda.kernels.narrow_products import add_narrow_products, add_narrow_sums, padded_width
from streamgda.kernels.sums import count_rows

# Rows per class from which it pays to read a block once, and to subtract the products of the means
# from those of the rows.
_ROWS_TO_READ_ONCE = 32

# Number of rows whose products, of differences below 1.5 * 2^16, are summed exactly in float64.
EXACT_NARROW_ROWS = 1 << 19


@kernel
def add_centred_narrow(X, codes, weights, block_rows, count, squares, mean, mean_low, scatter):
    """Add narrow rows as `add_centred` does, to scatter matrices.

    Each block is read once, for sums and products about pivots, from which the products of the
    means are subtracted. It is read a second time if the subtraction leaves too few digits, or if
    the block has few rows per class.
    """
    n_classes, d = mean.shape
    classes = group_of_class(n_classes, n_classes)
    width = padded_width(d)
    number, weight = np.empty(n_classes), np.empty(n_classes)
    pivot, sums = np.zeros((n_classes, width)), np.empty((n_classes, width))
    gap, zeros = np.empty((n_classes, width)), np.zeros((n_classes, width))
    products = np.empty((scatter.shape[0], width, width))
    about_pivot, ignored = np.empty((products.shape[0], d)), np.zeros((1, width))
    step = 1 if scatter.shape[0] > 1 else 0  # from the products of one class to those of the next
    for first in range(0, X.shape[0], block_rows):
        x = X[first : first + block_rows]
        labels, w = codes[first : first + block_rows], weights[first : first + block_rows]
        start_block(x, labels, w, count, mean, number, pivot, sums)
        products[:] = 0
        once = x.shape[0] >= _ROWS_TO_READ_ONCE * n_classes
        if once:
            add_narrow_products(x, labels, w, pivot, zeros, 1, sums, step, products)
            for g in range(products.shape[0]):
                for j in range(d):
                    about_pivot[g, j] = products[g, j, j]
            for k in range(n_classes):
                if number[k] > 0:
                    add_outer(sums[k], -1 / number[k], products[step * k])
        else:
            add_narrow_sums(x, labels, w, pivot, zeros, 1, sums, step, products)
        if not means_of_sums(number, pivot, sums):
            return False
        merge_means(number, pivot, sums, classes, count, mean, mean_low, gap, weight)
        add_squared_weights(labels, w, squares)
        add_narrow_products(gap, classes, weight, zeros, zeros, 0, ignored, step, products)
        if once and _cancelled(about_pivot, products):
            products[:] = 0
            add_narrow_products(gap, classes, weight, zeros, zeros, 0, ignored, step, products)
            once = False
        if not once:
            add_narrow_products(x, labels, w, pivot, sums, 0, ignored, step, products)
        _add_padded(products, scatter)
    return True


@inline_kernel
def _cancelled(before, products):
    """Return True if a subtraction has cost some sum of squares more than six bits."""
    for g in range(products.shape[0]):
        for j in range(before.shape[1]):
            if products[g, j, j] < before[g, j] / 64:
                return True
    return False


@inline_kernel
def _add_padded(products, scatter):
    """Add padded matrices to the lower triangles of others."""
    for g in range(products.shape[0]):
        for i in range(scatter.shape[1]):
            for j in range(i + 1):
                scatter[g, i, j] += scatter.dtype.type(products[g, i, j])


@kernel
def add_exact_narrow(X, codes, block_rows, count, total, origins, scatter):
    """Add narrow rows as `add_exact` does, to matrices; at most `EXACT_NARROW_ROWS` rows."""
    n_classes, d = total.shape
    unweighted = np.empty(0)
    width = padded_width(d)
    about, zeros = np.zeros((n_classes, width)), np.zeros((n_classes, width))
    sums, products = np.zeros((n_classes, width)), np.zeros((scatter.shape[0], width, width))
    for k in range(n_classes):
        for j in range(d):
            about[k, j] = origins[k, j]
    step = 1 if scatter.shape[0] > 1 else 0
    for first in range(0, X.shape[0], block_rows):
        x, labels = X[first : first + block_rows], codes[first : first + block_rows]
        count_rows(labels, unweighted, count)
        add_narrow_products(x, labels, unweighted, about, zeros, 1, sums, step, products)
    _add_padded(products, scatter)
    for k in range(n_classes):
        for j in range(d):
            total[k, j] += np.int64(sums[k, j])
