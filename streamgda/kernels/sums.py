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
        # Views of the ranges, so that the loops below are over contiguous memory.
        x = X[r, start:stop]
        m = centre[codes[r], start:stop]
        s = sums[codes[r], start:stop]
        if weighted:
            w = weights[r]
            for j in range(x.shape[0]):
                s[j] += w * (x[j] - m[j])
        else:
            for j in range(x.shape[0]):
                s[j] += x[j] - m[j]


@kernel
def add_squares(X, codes, weights, centre, centre_low, group, start, stop, squares):
    """Add ``w (x - centre[class])^2`` of features ``start:stop`` to ``squares[group[class]]``.

    The centre is ``centre + centre_low``, two parts of one number.
    """
    weighted = weights.shape[0] > 0
    for r in range(X.shape[0]):
        x = X[r, start:stop]
        m = centre[codes[r], start:stop]
        m_low = centre_low[codes[r], start:stop]
        s = squares[group[codes[r]], start:stop]
        if weighted:
            w = weights[r]
            for j in range(x.shape[0]):
                t = (x[j] - m[j]) - m_low[j]
                s[j] += w * (t * t)
        else:
            for j in range(x.shape[0]):
                t = (x[j] - m[j]) - m_low[j]
                s[j] += t * t


@kernel
def count_rows(codes, weights, count):
    """Add each row's weight (one, where `weights` is empty) to the count of its class."""
    if weights.shape[0] > 0:
        for r in range(codes.shape[0]):
            count[codes[r]] += weights[r]
    else:
        for r in range(codes.shape[0]):
            count[codes[r]] += 1
