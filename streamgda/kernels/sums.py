"""Sums and sums of squares per class and feature, about a given centre.

The same source serves floating point (float64 centres) and exact integers (int64 centres).
"""

import numpy as np

from streamgda.kernels import kernel, shared_kernel
from streamgda.kernels.accumulate import LARGE


@kernel
def add_sums(X, codes, weights, centre, sums, beyond):
    """Add ``w (x - centre[class])`` to ``sums[class]``, and to `beyond` the rows beyond `LARGE`."""
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        k = np.uint64(codes[r])  # unsigned: no check for negative indices
        large = False
        if weighted:
            w = weights[r]
            for j in range(X.shape[1]):
                t = X[r, j] - centre[k, j]
                sums[k, j] += w * t
                large |= abs(t) + abs(w * t) > LARGE
        else:
            for j in range(X.shape[1]):
                t = X[r, j] - centre[k, j]
                sums[k, j] += t
                large |= abs(t) > LARGE
        beyond[0] += large


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
