"""Distances by covariances that differ from row to row, as those without the row do.

Rows are given as columns, shape (d, n_rows), in coordinates in which the covariances are diagonal.
With :math:`s_j = p_j (x_j - c_j)^2`, the precisions p and the centre c, the variance of coordinate
j for row r is :math:`v_j / p_j`, where ``v_j = alpha[r] + beta[r] * ridges[j] - gamma[r] * s_j``.
"""

import numpy as np

from streamgda.kernels import fast_kernel, kernel

_BLOCK = 256  # rows that stay in the first cache
_FACTORS = 24  # of a product whose logarithm is taken: all are between LEAST and its inverse
LEAST = 1e-12  # share of a variance that is no more than rounding


@fast_kernel
def varied_squares(columns, centre, precisions, ridges, alpha, beta, distances, logs):
    """Write the sums of ``s_j / v_j`` and of ``log(v_j)`` over j, with gamma zero.

    The sums are NaN if some v_j is zero.
    """
    d, n_rows = columns.shape
    factors, least = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        a, b = alpha[start : start + n], beta[start : start + n]
        squares, log = distances[start : start + n], logs[start : start + n]
        for r in range(n):
            squares[r], log[r], factors[r], least[r] = 0.0, 0.0, 1.0, 1.0
        for j in range(d):
            x, middle, precision, ridge = columns[j, start:], centre[j], precisions[j], ridges[j]
            for r in range(n):
                t = x[r] - middle
                s = precision * (t * t)
                v = a[r] + b[r] * ridge
                least[r] = min(least[r], v)
                v = max(v, LEAST)
                squares[r] += s / v
                factors[r] *= v
            if (j + 1) % _FACTORS == 0 or j == d - 1:
                for r in range(n):
                    log[r] += np.log(factors[r])
                    factors[r] = 1.0
        for r in range(n):
            squares[r] = squares[r] if least[r] > LEAST else np.nan


@fast_kernel
def pooled_squares(
    columns, codes, centres, precisions, ridges, alpha, beta, gamma, distances, products
):
    """Write squared distances to all centres, and the products with the way to the own centre.

    The variances are those of the centre ``codes[r]``, for all centres: the sums over j of
    ``p_j (x_j - centres[k, j])^2 / v_j``, and of ``p_j (x_j - centres[k, j]) (x_j - c_j) / v_j``.
    These are not written if `products` is empty. The distances are NaN if some v_j is zero.
    """
    d, n_rows = columns.shape
    shares, own, least = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        for r in range(n):
            least[r] = 1.0
        for k in range(centres.shape[0]):
            distances[k, start : start + n] = 0.0
            if products.size > 0:
                products[k, start : start + n] = 0.0
        for j in range(d):
            x, precision, ridge = columns[j, start:], precisions[j], ridges[j]
            for r in range(n):
                i = start + r
                own[r] = x[r] - centres[codes[i], j]
                v = alpha[i] + beta[i] * ridge - gamma[i] * (precision * (own[r] * own[r]))
                least[r] = min(least[r], v)
                shares[r] = precision / max(v, LEAST)
            for k in range(centres.shape[0]):
                centre, squares = centres[k, j], distances[k, start:]
                if products.size > 0:
                    product = products[k, start:]
                    for r in range(n):
                        t = (x[r] - centre) * shares[r]
                        squares[r] += t * (x[r] - centre)
                        product[r] += t * own[r]
                else:
                    for r in range(n):
                        t = x[r] - centre
                        squares[r] += t * t * shares[r]
        for k in range(centres.shape[0]):
            squares = distances[k, start:]
            for r in range(n):
                squares[r] = squares[r] if least[r] > LEAST else np.nan


@fast_kernel
def own_diagonal_squares(
    X, features, codes, centres, precisions, alpha, beta, gamma, distances, logs
):
    """Compute `varied_squares` of each row for its own class, whose ridges are its precisions."""
    d = features.size
    for r in range(X.shape[0]):
        c, total, log, singular = codes[r], 0.0, 0.0, 0
        a, b, g = alpha[r], beta[r], gamma[r]
        for start in range(0, d, _FACTORS):
            factor = 1.0
            for j in range(start, min(start + _FACTORS, d)):
                t = X[r, features[j]] - centres[c, j]
                s = precisions[c, j] * (t * t)
                v = a + b * precisions[c, j] - g * s
                singular += v <= LEAST
                total += s / v
                factor *= v
            log += np.log(factor)
        distances[r], logs[r] = total if singular == 0 else np.nan, log


@fast_kernel
def own_matrix_squares(
    X, features, codes, centres, axes, ridges, alpha, beta, centred, distances, logs
):
    """Compute `varied_squares` of each row for its own class, in coordinates ``axes[codes[r]]``.

    `centred` is scratch space of the shape (d,).
    """
    d = features.size
    for r in range(X.shape[0]):
        c, total, log, singular = codes[r], 0.0, 0.0, 0
        for j in range(d):
            centred[j] = X[r, features[j]] - centres[c, j]
        for start in range(0, d, _FACTORS):
            factor = 1.0
            for i in range(start, min(start + _FACTORS, d)):
                z, axis = 0.0, axes[c, i]
                for j in range(d):
                    z += axis[j] * centred[j]
                v = alpha[r] + beta[r] * ridges[c, i]
                singular += v <= LEAST
                total += z * z / v
                factor *= v
            log += np.log(factor)
        distances[r], logs[r] = total if singular == 0 else np.nan, log


@kernel
def centre_rows(X, features, codes, centres, out):
    """Write the rows less the centres of their classes."""
    for r in range(X.shape[0]):
        for j in range(features.size):
            out[r, j] = X[r, features[j]] - centres[codes[r], j]


@kernel
def pick(scores, codes, out):
    """Write the score of each row for its own class."""
    for r in range(codes.size):
        out[r] = scores[codes[r], r]


@kernel
def place(own, codes, scores):
    """Write the score of each row for its own class in its place."""
    for r in range(codes.size):
        scores[codes[r], r] = own[r]


@fast_kernel
def pooled_from_scores(linear, picked, codes, own, gaps, shrink, downdate, offsets, scores):
    """Turn linear scores into scores by a covariance without the row.

    ``linear[k, r]`` is, up to a term that all classes share, minus half the squared distance to
    centre k by the covariance of all rows, ``picked[r]`` that to the own centre, ``own[r]`` that
    squared distance, and ``gaps[k, l]`` the one between two centres. Distances are multiplied by
    ``shrink[r]``. To these are added the squares of the products with the way to the own centre,
    times ``downdate[r]``. A score is ``offsets[k]`` less half the result.
    """
    for k in range(scores.shape[0]):
        x, gap, out, offset = linear[k], gaps[k], scores[k], offsets[k]
        for r in range(codes.size):
            square = own[r] - 2 * (x[r] - picked[r])
            product = 0.5 * (square + own[r] - gap[codes[r]]) * shrink[r]
            out[r] = offset - 0.5 * (square * shrink[r] + downdate[r] * (product * product))


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
