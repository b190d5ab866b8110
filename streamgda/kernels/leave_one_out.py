"""Distances by covariances that differ from row to row, as those without the row do.

Rows are given as columns, shape (d, n_rows), in coordinates in which the covariances are diagonal.
With :math:`s_j = p_j (x_j - c_j)^2`, the precisions p and the centre c, the variance of coordinate
j for row r is :math:`v_j / p_j`, where ``v_j = alpha[r] + beta[r] * ridges[j] - gamma[r] * s_j``.
"""

import numpy as np

from streamgda.kernels import fast_kernel, inline_kernel, kernel

_BLOCK = 256  # rows that stay in the first cache
_FACTORS = 24  # of a product whose logarithm is taken: all are between LEAST and its inverse
LEAST = 1e-6  # share of a variance without the row below which rounding errors count


@fast_kernel
def varied_squares(columns, centre, precisions, ridges, alpha, beta, distances, logs):
    """Write the sums of ``s_j / v_j`` and of ``log(v_j)`` over j, with gamma zero.

    The sums are NaN if some v_j is at most `LEAST`.
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
    These are not written if `products` is empty. Distances are NaN if some v_j is at most `LEAST`.
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


@inline_kernel
def _own_sums(squares, ridges, a, b, g):
    """Return the sums of `varied_squares` for one row, from its ``s_j``, and the last product.

    The logarithm of this is not in the second sum.
    """
    total, log, factor, singular = 0.0, 0.0, 1.0, 0.0
    for start in range(0, squares.size, _FACTORS):
        if start > 0:
            log += np.log(factor)
        s, ridge = squares[start : start + _FACTORS], ridges[start : start + _FACTORS]
        part, product, zeros = 0.0, 1.0, 0.0  # of this part alone, or they are not in registers
        for j in range(s.size):
            v = a + b * ridge[j] - g * s[j]
            zeros += 1.0 if v <= LEAST else 0.0
            part += s[j] / v
            product *= v
        total += part
        singular += zeros
        factor = product
    return total if singular == 0.0 else np.nan, log, factor


@fast_kernel
def own_diagonal_squares(
    X, features, codes, centres, precisions, alpha, beta, gamma, squares, distances, logs, factors
):
    """Compute `varied_squares` of each row for its own class, whose ridges are its precisions.

    Here gamma counts. The logarithms of `factors` are to be added to `logs`; to compute them
    together is faster. `squares` is scratch space of the shape (d,).
    """
    for r in range(X.shape[0]):
        centre, precision = centres[codes[r]], precisions[codes[r]]
        for j in range(features.size):
            t = X[r, features[j]] - centre[j]
            squares[j] = precision[j] * (t * t)
        sums = _own_sums(squares, precision, alpha[r], beta[r], gamma[r])
        distances[r], logs[r], factors[r] = sums


@fast_kernel
def own_matrix_squares(
    X, features, codes, centres, axes, ridges, alpha, beta, squares, distances, logs, factors
):
    """Compute `varied_squares` of each row for its own class, in the coordinates of that class.

    ``axes[k]`` has a column for each of these. See `own_diagonal_squares` for the rest.
    """
    for r in range(X.shape[0]):
        centre, axis = centres[codes[r]], axes[codes[r]]
        for i in range(features.size):
            squares[i] = 0.0
        for j in range(features.size):
            t, along = X[r, features[j]] - centre[j], axis[j]
            for i in range(features.size):
                squares[i] += t * along[i]
        for i in range(features.size):
            squares[i] *= squares[i]
        sums = _own_sums(squares, ridges[codes[r]], alpha[r], beta[r], 0.0)
        distances[r], logs[r], factors[r] = sums


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


@kernel
def loses_variance(X, features, mean, squares, factor, out):
    """Write True where ``squares[j] - factor[r] (x_j - mean[j])^2`` is at most a `LEAST` share."""
    for r in range(out.size):
        out[r] = False
        for j in range(features.size):
            t = X[r, features[j]] - mean[j]
            if squares[j] - factor[r] * (t * t) <= LEAST * squares[j]:
                out[r] = True
                break
