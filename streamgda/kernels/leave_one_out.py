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
def removed_squares(columns, codes, centres, ridges, alpha, beta, gamma, distances, products, logs):
    """Write squared distances to all centres, by variances without the row, and log-determinants.

    If `products` is empty, rows are subtracted from variances; otherwise from a matrix, by the
    formula of Sherman and Morrison, and gamma is not part of v_j. `products` is scratch space. Of
    log-determinants, the last factor of a matrix is left out; none are written if `logs` is empty.
    """
    d, n_rows = columns.shape
    matrix = products.size > 0
    shares, own, factors = np.empty(_BLOCK), np.empty(_BLOCK), np.ones(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        a, b, c = alpha[start : start + n], beta[start : start + n], gamma[start : start + n]
        logs[start : start + n] = 0.0
        for k in range(centres.shape[0]):
            distances[k, start : start + n] = 0.0
            if matrix:
                products[k, start : start + n] = 0.0
        for j in range(d):
            x, ridge = columns[j, start : start + n], ridges[j]
            if centres.shape[0] == 1:
                for r in range(n):
                    own[r] = x[r] - centres[0, j]
            else:
                for r in range(n):
                    own[r] = x[r] - centres[codes[start + r], j]
            for r in range(n):
                lost = 0.0 if matrix else c[r] * (own[r] * own[r])
                v = max(a[r] + b[r] * ridge - lost, LEAST)
                factors[r] *= v
                shares[r] = 1 / v
            if (j + 1) % _FACTORS == 0 or j == d - 1:
                for r in range(logs[start : start + n].size):
                    logs[start + r] += np.log(factors[r])
                factors[:] = 1.0
            for k in range(centres.shape[0]):
                centre, squares = centres[k, j], distances[k, start : start + n]
                if matrix:
                    product = products[k, start : start + n]
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
                shares[r] = c[r] / (1 - c[r] * distances[codes[start + r], start + r])
            for k in range(centres.shape[0]):
                squares, product = distances[k, start : start + n], products[k, start : start + n]
                for r in range(n):
                    squares[r] += shares[r] * (product[r] * product[r])


@fast_kernel
def removed_products(codes, at, table, gaps, offsets, log_priors, scores, influential):
    """Replace joint scores by those without the row, for one covariance of all classes.

    The score of class k was ``offsets[k]`` less half of the squared distance to its mean. `gaps`
    are the squared distances between the means, shape (n_classes, n_classes): they give the
    products of deviations from two means. Column ``at[r]`` of the table tells what changes for row
    r. True is written to `influential` for rows beyond a limit there.
    """
    n_classes, n_rows = scores.shape
    own, inverse, factors = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        classes, places = codes[start : start + n], at[start : start + n]
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            lost = table[2, i]
            inverse[r] = 1 / table[0, i]
            own[r] = 2 * (offsets[k] - scores[k, start + r]) * inverse[r]
            factors[r] = lost / (1 - lost * own[r])
            influential[start + r] |= not own[r] < table[5, i]
        for k in range(n_classes):
            x, gap, offset, prior = scores[k, start : start + n], gaps[k], offsets[k], log_priors[k]
            for r in range(n):
                square = 2 * (offset - x[r]) * inverse[r]
                product = 0.5 * (square + own[r] - gap[np.uint64(classes[r])] * inverse[r])
                x[r] = prior - 0.5 * (square + factors[r] * (product * product))
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            square = own[r] + factors[r] * (own[r] * own[r])
            scores[k, start + r] = log_priors[k] + table[4, i] - 0.5 * table[3, i] * square


@fast_kernel
def own_by_factors(codes, at, table, logs, offsets, scores, influential):
    """Replace scores of rows' own classes by those without the rows, as `removed_products` does.

    Each class has a covariance, and `logs` what its log-determinant changes by, but for the last
    factor.
    """
    for r in range(codes.size):
        k, i = np.uint64(codes[r]), np.uint64(at[r])
        square = 2 * (offsets[k] - scores[k, r]) / table[0, i]
        rest = 1 - table[2, i] * square
        influential[r] |= not square < table[5, i]
        log = logs[i] + np.log(rest)
        scores[k, r] = offsets[k] + table[4, i] - 0.5 * (log + table[3, i] * (square / rest))


@fast_kernel
def own_variances(
    X, codes, at, centres, lows, precisions, offsets, table, growth, own, influential
):
    """Write the scores of rows for their own classes without the rows, by variances.

    Coordinate j is the deviation from the centre of the class, and its ridge the precision, times
    which `growth` is added to the variance. Arguments are as of `removed_products`; a row that
    leaves nearly nothing of a variance is influential, too.
    """
    d = X.shape[1]
    squares = np.empty(d)
    for r in range(X.shape[0]):
        k, i = np.uint64(codes[r]), np.uint64(at[r])
        a, b, c = table[0, i], table[1, i] + growth[r], table[2, i]
        total, log, lost = 0.0, 0.0, 0
        for j in range(d):
            t = (X[r, j] - centres[k, j]) - lows[k, j]
            squares[j] = precisions[k, j] * (t * t)
        for start in range(0, d, _FACTORS):
            part, factor = 0.0, 1.0  # of this part alone, or they are not in registers
            # Unsigned: no check for negative indices.
            for j in range(np.uint64(start), np.uint64(min(start + _FACTORS, d))):
                v = a + b * precisions[k, j] - c * squares[j]
                lost += v <= LEAST
                part += squares[j] / v
                factor *= v
            total += part
            log += np.log(factor)
        influential[r] |= lost > 0 or not table[5, i] > 0
        own[r] = offsets[k] + table[4, i] - 0.5 * (log + table[3, i] * total)


@fast_kernel
def own_squares(X, features, codes, centres, lows, precisions, total, largest):
    """Write the sum and the largest of the squares of rows less their classes' centres.

    They are multiplied by the precisions of the classes.
    """
    for r in range(X.shape[0]):
        centre, low, precision = centres[codes[r]], lows[codes[r]], precisions[codes[r]]
        added, most = 0.0, 0.0
        for j in range(features.size):
            t = (X[r, features[j]] - centre[j]) - low[j]
            square = t * t * precision[j]
            added += square
            most = max(most, square)
        total[r], largest[r] = added, most


@kernel
def largest_without(X, features, mean, squares, order, factor, divisor, out):
    """Write the largest ``(squares[j] - factor[r] (x_j - mean[j])^2) / divisor[r]`` over j.

    `order` sorts `squares`, the largest first: for most rows, none but the first is looked at.
    """
    for r in range(out.size):
        best, i = 0.0, 0
        while i < order.size and squares[order[i]] > best:
            j = order[i]
            t = X[r, features[j]] - mean[j]
            best = max(best, squares[j] - factor[r] * (t * t))
            i += 1
        out[r] = best / divisor[r]
