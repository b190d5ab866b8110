"""Centred float64 moments from exact integer ones: integers all the way to one final rounding.

A sum s over n rows is written ``s = n m + r`` with an integer quotient m and ``0 <= r < n``. Then
``sum (x - s/n)(x - s/n)' = S - m s' - r m' - r r'/n``. Every term but the last fits in 64 bits
(the additions may wrap on the way, but their sum fits), and so does the product in the last one for
n < 2**31. The last term is split into the nearest integer and a fraction of at most one half, so
that the integers sum to zero or to something larger than the fraction.
"""

import numpy as np

from streamgda.kernels import inline_kernel, kernel

# Products of remainders below this are exact in float64, in which vectors of them are divided.
_FLOAT_ROWS = 1 << 26
_TO_WHOLE = 1.5 * 2.0**52  # added and subtracted again, it rounds to the nearest integer


@inline_kernel
def _nearest_quotient(product, n):
    quotient = product // n
    if 2 * (product - quotient * n) > n:
        quotient += 1
    return quotient


@kernel
def centre_scatter(count, total, quotient, remainder, square, features, first, last, scatter):
    """Centre the lower triangles of int64 `square` (groups, d, d) into float64 `scatter`.

    As many successive classes make each group. Only some features are centred, given
    in rising order, to which all arguments but `square` are limited already. Rows ``first:last`` of
    each triangle are written.
    """
    n_groups, d, _ = scatter.shape
    shared = count.shape[0] // max(n_groups, 1)
    whole, part, taken = np.empty(d, np.int64), np.empty(d), np.empty(d)
    rest = remainder.astype(np.float64)
    for g in range(n_groups):
        classes = range(g * shared, (g + 1) * shared)
        for i in range(first, last):
            for j in range(i + 1):
                whole[j], part[j], taken[j] = square[g, features[i], features[j]], 0.0, 0.0
            for k in classes:
                n = count[k]
                q, r, at = quotient[k, i], remainder[k, i], rest[k, i]
                if n == 0:
                    continue
                for j in range(i + 1):
                    whole[j] -= q * total[k, j] + r * quotient[k, j]
                if n < _FLOAT_ROWS:
                    size = float(n)
                    for j in range(i + 1):
                        product = at * rest[k, j]
                        nearest = (product / size + _TO_WHOLE) - _TO_WHOLE
                        taken[j] += nearest
                        part[j] += (product - nearest * size) / size
                else:
                    for j in range(i + 1):
                        product = r * remainder[k, j]
                        nearest = _nearest_quotient(product, n)
                        whole[j] -= nearest
                        part[j] += (product - nearest * n) / n
            for j in range(i + 1):
                scatter[g, i, j] = (whole[j] - np.int64(taken[j])) - part[j]


@kernel
def centre_squares(count, total, quotient, remainder, square, scatter):
    """Centre int64 `square` (groups, d) into float64 `scatter`, as `centre_scatter` does."""
    n_groups, d = square.shape
    shared = count.shape[0] // max(n_groups, 1)
    for g in range(n_groups):
        classes = range(g * shared, (g + 1) * shared)
        for j in range(d):
            whole = square[g, j]
            part = 0.0
            for k in classes:
                n = count[k]
                if n > 0:
                    product = remainder[k, j] * remainder[k, j]
                    nearest = _nearest_quotient(product, n)
                    whole -= (
                        quotient[k, j] * total[k, j] + remainder[k, j] * quotient[k, j] + nearest
                    )
                    part += (product - nearest * n) / n
            scatter[g, j] = whole - part
