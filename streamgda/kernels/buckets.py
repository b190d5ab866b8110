"""Sums and products of rows of few features: buckets of rows of one class, in plain Numba.

A bucket holds the numbers of rows. When it is full, the rows become the columns of a panel in the
first cache, whose products are computed in tiles of 4 x 4, each sum in a vector register. A view of
an array in the loop over rows would take as long as all else.
"""

import numpy as np

from streamgda.kernels import fast_kernel
from streamgda.kernels.blocks import add_outer, meet
from streamgda.kernels.sums import row_start

_VALUES = 8000  # Numbers in a panel.
_LEAST, _MOST = 60, 500  # Rows of a bucket.
_SETS = 8  # Gaps after columns of a panel make them start in different cache sets.


@fast_kernel
def multiply_columns(panel, n, products):
    """Write the lower triangle of the products of the columns of a panel of n rows.

    There is a whole number of fours of columns, of which those beyond the last feature are zero.
    """
    width = panel.shape[0]
    for i in range(0, width, 4):
        a0, a1, a2, a3 = panel[i], panel[i + 1], panel[i + 2], panel[i + 3]
        for j in range(0, i + 4, 4):
            b0, b1, b2, b3 = panel[j], panel[j + 1], panel[j + 2], panel[j + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for r in range(n):
                x0, x1, x2, x3 = a0[r], a1[r], a2[r], a3[r]
                y0, y1, y2, y3 = b0[r], b1[r], b2[r], b3[r]
                s00 += x0 * y0
                s01 += x0 * y1
                s02 += x0 * y2
                s03 += x0 * y3
                s10 += x1 * y0
                s11 += x1 * y1
                s12 += x1 * y2
                s13 += x1 * y3
                s20 += x2 * y0
                s21 += x2 * y1
                s22 += x2 * y2
                s23 += x2 * y3
                s30 += x3 * y0
                s31 += x3 * y1
                s32 += x3 * y2
                s33 += x3 * y3
            products[i, j], products[i, j + 1] = s00, s01
            products[i, j + 2], products[i, j + 3] = s02, s03
            products[i + 1, j], products[i + 1, j + 1] = s10, s11
            products[i + 1, j + 2], products[i + 1, j + 3] = s12, s13
            products[i + 2, j], products[i + 2, j + 1] = s20, s21
            products[i + 2, j + 2], products[i + 2, j + 3] = s22, s23
            products[i + 3, j], products[i + 3, j + 1] = s30, s31
            products[i + 3, j + 2], products[i + 3, j + 3] = s32, s33


@fast_kernel
def next_bucket(order, codes, base, buckets, filled, q):
    """Put rows from the number `q` on into the buckets of their classes, until one is full.

    Returns the next number and the class of the bucket; after the last row, classes with rows in
    their buckets; then -1. (A generator of Numba would leak its arrays.)
    """
    n_rows = order.size
    while q < n_rows:
        r = order[np.uint64(q)]
        k = np.uint64(codes[np.uint64(r)] - base)
        buckets[k, np.uint64(filled[k])] = r
        filled[k] += 1
        q += 1
        if filled[k] == buckets.shape[1]:
            return q, k
    while q < n_rows + filled.size:
        k = np.uint64(q - n_rows)
        q += 1
        if filled[k]:
            return q, k
    return -1, np.uint64(0)


@fast_kernel
def add_narrow(X, order, codes, weights, base, count, squares, origin, offset, scatter):
    """Add the rows ``X[order]`` of few features to the moments of their classes; see `blocks`.

    `base` is subtracted from their codes.
    """
    (n_rows, K), d = (order.size, count.size), X.shape[1]
    size, width = min(max(_LEAST, min(_MOST, _VALUES // d)), max(1, n_rows)), (d + 3) // 4 * 4
    panel, products = np.zeros((width, size + _SETS)), np.zeros((width, width))
    start, mean, gap, root = np.empty(d), np.empty(d), np.empty(d), np.ones(size)
    buckets, filled = np.empty((K, size), np.int32), np.zeros(K, np.int32)
    q, k = next_bucket(order, codes, base, buckets, filled, 0)
    while q >= 0:
        n, bucket = np.int64(filled[k]), buckets[k]
        filled[k] = 0
        total = square = float(n)
        if weights.size:
            total = square = 0.0
            for i in range(n):
                w = weights[np.uint64(bucket[i])]
                total += w
                square += w * w
                root[i] = np.sqrt(w)
        for j in range(d):
            x, first, m = panel[j], np.float64(X[bucket[0], j]), 0.0
            for i in range(n):
                x[i] = X[np.uint64(bucket[i]), np.uint64(j)] - first
            if weights.size:
                for i in range(n):
                    m += (root[i] * root[i]) * x[i]
            else:
                for i in range(n):
                    m += x[i]
            start[j], mean[j] = first, m / total
            m /= total
            for i in range(n):
                x[i] = root[i] * (x[i] - m)
        multiply_columns(panel, n, products)
        S = scatter[k if scatter.shape[0] > 1 else np.uint64(0)]
        for i in range(d):
            at = row_start(i)
            for j in range(i + 1):
                S[at + j] += products[i, j]
        weight = meet(k, total, square, start, mean, count, squares, origin, offset, gap)
        if weight > 0.0:
            add_outer(gap, weight, S)
        q, k = next_bucket(order, codes, base, buckets, filled, q)


@fast_kernel
def add_narrow_exact(X, order, codes, base, count, total, square):
    """Add the rows ``X[order]`` of 8- or 16-bit integers, whose products float64 holds exactly."""
    (n_rows, K), d = (order.size, count.size), X.shape[1]
    size, width = min(max(_LEAST, min(_MOST, _VALUES // d)), max(1, n_rows)), (d + 3) // 4 * 4
    panel, products = np.zeros((width, size + _SETS)), np.zeros((width, width))
    buckets, filled = np.empty((K, size), np.int32), np.zeros(K, np.int32)
    q, k = next_bucket(order, codes, base, buckets, filled, 0)
    while q >= 0:
        n, bucket = np.int64(filled[k]), buckets[k]
        filled[k] = 0
        count[k] += n
        for j in range(d):
            x, m = panel[j], 0.0
            for i in range(n):
                x[i] = X[np.uint64(bucket[i]), np.uint64(j)]
            for i in range(n):
                m += x[i]
            total[k, j] += np.int64(m)
        multiply_columns(panel, n, products)
        S = square[k if square.shape[0] > 1 else np.uint64(0)]
        for i in range(d):
            at = row_start(i)
            for j in range(i + 1):
                S[at + j] += np.int64(products[i, j])
        q, k = next_bucket(order, codes, base, buckets, filled, q)
