"""Sums and sums of squares per class and feature, about a given centre.

The same source serves floating point (float64 centres) and exact integers (int64 centres).
"""

from streamgda.kernels import kernel


@kernel
def add_sums(X, codes, weights, centre, start, stop, sums):
    """Add ``w (x - centre[class])`` of features ``start:stop`` to ``sums[class]``.

    `weights` is empty where all rows weigh one.
    """
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        k = codes[r]
        if weighted:
            for j in range(start, stop):
                sums[k, j] += weights[r] * (X[r, j] - centre[k, j])
        else:
            for j in range(start, stop):
                sums[k, j] += X[r, j] - centre[k, j]


@kernel
def add_squares(X, codes, weights, centre, centre_low, group, start, stop, squares):
    """Add ``w (x - centre[class])^2`` of features ``start:stop`` to ``squares[group[class]]``.

    The centre is ``centre + centre_low``, two parts of one number.
    """
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        k = codes[r]
        g = group[k]
        if weighted:
            for j in range(start, stop):
                t = (X[r, j] - centre[k, j]) - centre_low[k, j]
                squares[g, j] += weights[r] * (t * t)
        else:
            for j in range(start, stop):
                t = (X[r, j] - centre[k, j]) - centre_low[k, j]
                squares[g, j] += t * t


@kernel
def count_rows(codes, weights, count):
    """Add each row's weight (one, where `weights` is empty) to the count of its class."""
    if weights.shape[0] > 0:
        for r in range(codes.shape[0]):
            count[codes[r]] += weights[r]
    else:
        for r in range(codes.shape[0]):
            count[codes[r]] += 1
