"""Sums and sums of squares per class and feature, about a given centre.

The same source serves floating point (float64 centres) and exact integers (int64 centres).
"""

import numpy as np

from streamgda.kernels import kernel, shared_kernel


@kernel
def add_sums(X, codes, weights, centre, sums):
    """Add ``w (x - centre[class])`` to ``sums[class]``."""
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        k = np.uint64(codes[r])  # unsigned: no check for negative indices
        if weighted:
            w = weights[r]
            for j in range(X.shape[1]):
                sums[k, j] += w * (X[r, j] - centre[k, j])
        else:
            for j in range(X.shape[1]):
                sums[k, j] += X[r, j] - centre[k, j]


@kernel
def add_squares(X, codes, weights, centre, centre_low, group, squares):
    """Add ``w (x - centre[class])^2`` to ``squares[group[class]]``.

    The centre is the sum of two parts, ``centre + centre_low``.
    """
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        k = np.uint64(codes[r])
        g = np.uint64(group[k])
        if weighted:
            w = weights[r]
            for j in range(X.shape[1]):
                t = (X[r, j] - centre[k, j]) - centre_low[k, j]
                squares[g, j] += w * (t * t)
        else:
            for j in range(X.shape[1]):
                t = (X[r, j] - centre[k, j]) - centre_low[k, j]
                squares[g, j] += t * t


@shared_kernel
def count_rows(codes, weights, count):
    """Add the weight of each row to the count of its class."""
    if weights.shape[0] > 0:
        for r in range(codes.shape[0]):
            count[codes[r]] += weights[r]
    else:
        for r in range(codes.shape[0]):
            count[codes[r]] += 1
