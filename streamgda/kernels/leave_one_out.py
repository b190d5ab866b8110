"""Distances by covariances that differ from row to row, as those without the row do.

Rows are given as columns, shape (d, n_rows), in coordinates in which the covariance of all rows is
one, and that without a row diagonal: the variance of coordinate j for row r is
``v_j = alpha[r] + beta[r] * ridges[j] - gamma[r] * s_j``, where s_j is the square of that
coordinate, less the own mean.
"""

import numpy as np

from streamgda.kernels import fast_kernel, kernel

_BLOCK = 256  # rows that stay in the first cache
_FACTORS = 24  # of a product whose logarithm is taken: all are between LEAST and its inverse
LEAST = 1e-6  # share of a variance without the row below which rounding errors count


@fast_kernel
def changed_squares(columns, ridges, alpha, beta, gamma, distances, logs):
    """Write the sums of ``s_j / v_j`` and of ``log(v_j)`` over j."""
    d, n_rows = columns.shape
    factors = np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        a, b, c = alpha[start : start + n], beta[start : start + n], gamma[start : start + n]
        squares, log = distances[start : start + n], logs[start : start + n]
        for r in range(n):
            squares[r], log[r], factors[r] = 0.0, 0.0, 1.0
        for j in range(d):
            x, ridge = columns[j, start:], ridges[j]
            for r in range(n):
                s = x[r] * x[r]
                v = max(a[r] + b[r] * ridge - c[r] * s, LEAST)
                squares[r] += s / v
                factors[r] *= v
            if (j + 1) % _FACTORS == 0 or j == d - 1:
                for r in range(n):
                    log[r] += np.log(factors[r])
                    factors[r] = 1.0


@fast_kernel
def pooled_squares(columns, codes, centres, ridges, alpha, beta, gamma, distances, products):
    """Write squared distances to all centres, by variances without the row.

    If `products` is empty, rows are subtracted from variances; otherwise from a matrix, by the
    formula of Sherman and Morrison, and gamma is not part of v_j. `products` is scratch space.
    """
    d, n_rows = columns.shape
    matrix = products.size > 0
    shares, own = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        for k in range(centres.shape[0]):
            distances[k, start : start + n] = 0.0
            if matrix:
                products[k, start : start + n] = 0.0
        for j in range(d):
            x, ridge = columns[j, start:], ridges[j]
            for r in range(n):
                i = start + r
                own[r] = x[r] - centres[codes[i], j]
                lost = 0.0 if matrix else gamma[i] * (own[r] * own[r])
                shares[r] = 1 / max(alpha[i] + beta[i] * ridge - lost, LEAST)
            for k in range(centres.shape[0]):
                centre, squares = centres[k, j], distances[k, start:]
                if matrix:
                    product = products[k, start:]
                    for r in range(n):
                        t = (x[r] - centre) * shares[r]
                        squares[r] += t * (x[r] - centre)
                        product[r] += t * own[r]
                else:
                    for r in range(n):
                        t = x[r] - centre
                        squares[r] += t * t * shares[r]
        if matrix:
            for r in range(n):
                i = start + r
                shares[r] = gamma[i] / (1 - gamma[i] * distances[codes[i], i])
            for k in range(centres.shape[0]):
                squares, product = distances[k, start:], products[k, start:]
                for r in range(n):
                    squares[r] += shares[r] * (product[r] * product[r])


@kernel
def scaled_columns(X, rows, features, centre, low, scales, out):
    """Write some rows less a centre and its rounding error, times scales, as columns."""
    for start in range(0, rows.size, _BLOCK):
        stop = min(start + _BLOCK, rows.size)
        for j in range(features.size):
            for r in range(start, stop):
                out[j, r] = ((X[rows[r], features[j]] - centre[j]) - low[j]) * scales[j]


@kernel
def own_squares(X, features, codes, centres, lows, scales, out):
    """Write sums of the squares of rows less their classes' centres, over the classes' scales."""
    for r in range(X.shape[0]):
        centre, low, scale = centres[codes[r]], lows[codes[r]], scales[codes[r]]
        total = 0.0
        for j in range(features.size):
            t = ((X[r, features[j]] - centre[j]) - low[j]) / scale[j]
            total += t * t
        out[r] = total


@kernel
def largest_without(X, features, mean, squares, order, factor, divisor, out):
    """Write the largest ``(squares[j] - factor[r] (x_j - mean[j])^2) / divisor[r]`` over j.

    `order` sorts `squares`, the largest first: for most rows, none but the first is looked at.
    """
    for r in range(out.size):
        best = 0.0
        for j in order:
            if squares[j] <= best:
                break
            t = X[r, features[j]] - mean[j]
            best = max(best, squares[j] - factor[r] * (t * t))
        out[r] = best / divisor[r]


@kernel
def loses_variance(X, features, codes, centres, lows, precisions, alpha, beta, gamma, out):
    """Write True where some v_j is at most `LEAST`, in the coordinates of the row's class."""
    for r in range(X.shape[0]):
        centre, low, precision = centres[codes[r]], lows[codes[r]], precisions[codes[r]]
        lost = False
        for j in range(features.size):
            t = (X[r, features[j]] - centre[j]) - low[j]
            lost |= alpha[r] + precision[j] * (beta[r] - gamma[r] * (t * t)) <= LEAST
        out[r] = lost
