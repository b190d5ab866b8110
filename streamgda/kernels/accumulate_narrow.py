"""From narrow rows to sums in one call: the products of all classes stay in a near cache."""

import numpy as np

from streamgda.kernels import kernel
from streamgda.kernels.accumulate import add_squared_weights, merge_sums
from streamgda.kernels.narrow_products import add_narrow_products, empty_buckets
from streamgda.kernels.vectors import padded_width

# Number of rows whose products, of differences below 1.5 * 2^16, are summed exactly in float64.
EXACT_NARROW_ROWS = 1 << 19


@kernel
def add_centred_narrow(
    X, codes, weights, block_rows, limit, count, squares, mean, mean_low, scatter
):
    """Add narrow rows as `add_centred` does, to scatter matrices.

    Each block is read once, for sums and products about pivots, from which the products of the
    means are subtracted. If the subtraction leaves too few digits, the block is read a second
    time, with its means as pivots.
    """
    n_classes, d = mean.shape
    n_groups, width = scatter.shape[0], padded_width(d)
    shared = n_classes // n_groups  # number of classes that share a scatter
    totals, numbers = np.empty(n_classes), np.empty(n_classes)
    vectors, products = np.empty((3, n_classes, width)), np.empty((n_groups, width, width))
    buckets = empty_buckets(n_classes, width, min(X.shape[0], block_rows))
    for first in range(0, X.shape[0], block_rows):
        last = min(first + block_rows, X.shape[0])
        left, r = 0, first
        for k in range(n_classes):
            totals[k] = count[k]
            left += not totals[k] > 0
            for j in range(width):
                vectors[0, k, j] = mean[k, j] if j < d else 0.0
        while left > 0 and r < last:  # the pivot of a class without a mean is its first row
            k = codes[r]
            if not totals[k] > 0:
                totals[k] = 1.0
                left -= 1
                for j in range(d):
                    vectors[0, k, j] = X[r, j]
            r += 1
        block = X, codes, weights, first, last
        for times in range(2):
            add_narrow_products(block, buckets, totals, vectors, products)
            # If the pivot was a mean, most of what is subtracted is added again for its distance.
            again, within = False, True
            for g in range(n_groups):
                for j in range(d if times == 0 else 0):
                    square = products[g, j, j]
                    for k in range(g * shared, (g + 1) * shared):
                        if totals[k] > 0:
                            part = vectors[1, k, j] / (totals[k] + count[k])
                            square -= vectors[1, k, j] * part
                    again |= square < products[g, j, j] / 64
                    within &= products[g, j, j] <= limit * limit
            for k in range(0 if again else n_classes):
                g = k // shared
                inverse = 1.0 / np.sqrt(totals[k]) if totals[k] > 0 else 0.0
                for i in range(d if totals[k] > 0 else 0):
                    row = inverse * vectors[1, k, i]  # its square may not overflow
                    for j in range(i + 1):
                        # In this order, duplicate features stay equal, and one row leaves nothing.
                        products[g, i, j] -= row * (inverse * vectors[1, k, j])
            if times == 0:
                for k in range(n_classes):
                    numbers[k] = totals[k]
                if not (within and merge_sums(limit, count, mean, mean_low, numbers, vectors)):
                    return False
                add_squared_weights(codes[first:last], weights[first:last], squares)
            if not again:
                break
        for k in range(n_classes):
            g = k // shared
            for i in range(d if numbers[k] > 0 else 0):
                for j in range(i + 1):
                    products[g, i, j] += numbers[k] * (vectors[2, k, i] * vectors[2, k, j])
        for g in range(n_groups):
            for i in range(d):
                for j in range(i + 1):
                    scatter[g, i, j] += products[g, i, j]
    return True


@kernel
def add_exact_narrow(X, codes, origin, count, total, scatter):
    """Add narrow rows as `add_integers` does, to matrices; at most `EXACT_NARROW_ROWS` rows."""
    n_classes, d = total.shape
    n_groups, width = scatter.shape[0], padded_width(d)
    totals, weights = np.empty(n_classes), np.empty(0)
    vectors, products = np.empty((2, n_classes, width)), np.empty((n_groups, width, width))
    for k in range(n_classes):
        for j in range(width):
            vectors[0, k, j] = origin if j < d else 0.0
    buckets = empty_buckets(n_classes, width, X.shape[0])
    block = X, codes, weights, 0, X.shape[0]
    add_narrow_products(block, buckets, totals, vectors, products)
    for k in range(n_classes):
        count[k] += np.int64(totals[k])
        for j in range(d):
            total[k, j] += np.int64(vectors[1, k, j])
    for g in range(n_groups):
        for i in range(d):
            for j in range(i + 1):
                scatter[g, i, j] += np.int64(products[g, i, j])
