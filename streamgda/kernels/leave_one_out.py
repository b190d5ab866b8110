"""Distances by covariances that differ from row to row, as those without the row do.

Rows are given as columns, shape (d, n_rows), in coordinates in which the covariance of all rows is
one, and that without a row diagonal: the variance of coordinate j for row r is
``v_j = alpha[r] + beta[r] * ridges[j] - gamma[r] * s_j``, where s_j is the square of that
coordinate, less the own mean.
"""

import numpy as np

from streamgda.kernels import fast_kernel, kernel

_BLOCK = 256  # rows that stay in the first cache
_FEATURES = 4  # that are added to a sum at a time
_FACTORS = 24  # of a product whose logarithm is taken: all are between LEAST and its inverse
LEAST = 1e-6  # share of a variance without the row below which rounding errors count


@fast_kernel
def white_squares(columns, rows, at, table, growth, ridges, squares, logs):
    """Write squared lengths of columns by variances that differ from row to row, and their logs.

    Column r is that of row ``rows[r]``, and ``at[rows[r]]`` its place in the table. `growth` is
    added to beta, and gamma is not part of the variances. Of rows that leave nearly nothing of one,
    the length is infinite. The logarithms are of the products of the variances.
    """
    d, n_rows = columns.shape
    a, b, total = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    factors, added = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        numbers = rows[start : start + n]
        for r in range(n):
            number = np.uint64(numbers[r])
            i = np.uint64(at[number])
            a[r], b[r] = table[0, i], table[1, i] + growth[number]
        total[:], factors[:], added[:] = 0.0, 1.0, 0.0
        for j in range(d):
            x, ridge = columns[j, start : start + n], ridges[j]
            for r in range(n):
                v = a[r] + b[r] * ridge
                total[r] += x[r] * x[r] / v if v > LEAST else np.inf
                factors[r] *= v if v > LEAST else LEAST
            if (j + 1) % _FACTORS == 0 or j == d - 1:
                for r in range(n):
                    added[r] += np.log(factors[r])
                factors[:] = 1.0
        for r in range(n):
            squares[numbers[r]], logs[numbers[r]] = total[r], added[r]


@fast_kernel
def pooled_scores(
    columns, centre, scales, codes, at, table, growth, centres, ridges, matrix, log_priors, scores,
    influential,
):  # fmt: skip
    """Write scores by a pooled covariance without the row.

    Columns, less a centre and scaled, are those of the rows, and `centres` the class means, in the
    same coordinates. If a row is not subtracted from a `matrix`, it is from each of the variances.
    `influential` is as for `removed_products`.
    """
    d, n_rows = columns.shape
    n_classes = log_priors.size
    a, b, c = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    own, least, x = np.empty(_BLOCK), np.empty(_BLOCK), np.empty((_FEATURES, _BLOCK))
    shares, weighted = np.empty(x.shape), np.empty(x.shape)
    distances, products = np.empty((n_classes, _BLOCK)), np.empty((n_classes, _BLOCK))
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        classes, places = codes[start : start + n], at[start : start + n]
        for r in range(n):
            i = np.uint64(places[r])
            a[r], b[r], c[r] = table[0, i], table[1, i] + growth[start + r], table[2, i]
        least[:], distances[:], products[:] = np.inf, 0.0, 0.0
        for first in range(0, d, _FEATURES):
            for i in range(_FEATURES):
                # The last features are filled up with copies of the last one that do not count.
                j, counts = min(first + i, d - 1), 1.0 if first + i < d else 0.0
                middle, scale, ridge = centre[j], scales[j], ridges[j]
                for r in range(n):
                    x[i, r] = (columns[j, start + r] - middle) * scale
                    own[r] = x[i, r] - centres[np.uint64(classes[r]), j]
                for r in range(n):
                    v = a[r] + b[r] * ridge - (0.0 if matrix else c[r] * (own[r] * own[r]))
                    least[r] = least[r] if least[r] < v else v
                    shares[i, r] = counts / (v if v > LEAST else LEAST)
                    weighted[i, r] = own[r] * shares[i, r]
            last = d - 1
            for k in range(n_classes):
                m0, m1 = centres[k, first], centres[k, min(first + 1, last)]
                m2, m3 = centres[k, min(first + 2, last)], centres[k, min(first + 3, last)]
                square, product = distances[k], products[k]
                if matrix:
                    for r in range(n):
                        t0, t1, t2, t3 = x[0, r] - m0, x[1, r] - m1, x[2, r] - m2, x[3, r] - m3
                        square[r] += (t0 * t0 * shares[0, r] + t1 * t1 * shares[1, r]) + (
                            t2 * t2 * shares[2, r] + t3 * t3 * shares[3, r]
                        )
                        product[r] += (t0 * weighted[0, r] + t1 * weighted[1, r]) + (
                            t2 * weighted[2, r] + t3 * weighted[3, r]
                        )
                else:
                    for r in range(n):
                        t0, t1, t2, t3 = x[0, r] - m0, x[1, r] - m1, x[2, r] - m2, x[3, r] - m3
                        square[r] += (t0 * t0 * shares[0, r] + t1 * t1 * shares[1, r]) + (
                            t2 * t2 * shares[2, r] + t3 * t3 * shares[3, r]
                        )
        for r in range(n):
            own[r], limit = distances[classes[r], r], table[5, np.uint64(places[r])]
            safe = own[r] < limit if matrix else limit > 0
            safe &= least[r] > LEAST
            influential[start + r] |= not safe
            c[r] = c[r] / (1 - c[r] * own[r]) if matrix else 0.0
        for k in range(n_classes):
            square, product, prior = distances[k], products[k], log_priors[k]
            for r in range(n):
                lost = square[r] + c[r] * (product[r] * product[r])
                scores[k, start + r] = prior - 0.5 * lost
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            lost = own[r] + c[r] * (own[r] * own[r])
            scores[k, start + r] = log_priors[k] + table[4, i] - 0.5 * table[3, i] * lost


@fast_kernel
def removed_products(
    shared, codes, at, table, alphas, gaps, offsets, log_priors, scores, influential
):
    """Replace joint scores by those without the row, for one covariance of all classes.

    The score of class k was ``offsets[k]`` less half of the squared distance to its mean, up to
    what the classes of a row have `shared`. `gaps` are the squared distances between the means,
    shape (n_classes, n_classes): they give the products of deviations from two means. Column
    ``at[r]`` of the table tells what changes for row r, but for `alphas`. True is written to
    `influential` for rows beyond a limit there.
    """
    n_classes, n_rows = scores.shape
    own, inverse, factors = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        classes, places = codes[start : start + n], at[start : start + n]
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            lost = table[2, i]
            inverse[r] = 1 / alphas[start + r]
            own[r] = 2 * (offsets[k] - scores[k, start + r] - shared[start + r]) * inverse[r]
            factors[r] = lost / (1 - lost * own[r])
            influential[start + r] |= not own[r] < table[5, i]
        for k in range(n_classes):
            x, gap, offset, prior = scores[k, start : start + n], gaps[k], offsets[k], log_priors[k]
            both = shared[start : start + n]
            for r in range(n):
                square = 2 * (offset - x[r] - both[r]) * inverse[r]
                product = 0.5 * (square + own[r] - gap[np.uint64(classes[r])] * inverse[r])
                x[r] = prior - 0.5 * (square + factors[r] * (product * product))
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            square = own[r] + factors[r] * (own[r] * own[r])
            scores[k, start + r] = log_priors[k] + table[4, i] - 0.5 * table[3, i] * square


@fast_kernel
def own_by_factors(codes, at, table, squares, logs, offsets, own, influential):
    """Write the scores of rows for their own classes without the rows, as `removed_products` does.

    Each class has a covariance. The squared distances to the own means, by it without what it loses
    to the row itself, and what the log-determinant changes by are given.
    """
    for r in range(codes.size):
        k, i = np.uint64(codes[r]), np.uint64(at[r])
        rest = 1 - table[2, i] * squares[r]
        influential[r] |= not squares[r] < table[5, i]
        log = logs[r] + np.log(rest)
        own[r] = offsets[k] + table[4, i] - 0.5 * (log + table[3, i] * (squares[r] / rest))


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
def own_squares(X, codes, centres, lows, precisions, total, largest):
    """Write the sum and the largest of the squares of rows less their classes' centres.

    They are multiplied by the precisions of the classes.
    """
    for r in range(X.shape[0]):
        k, added, most = np.uint64(codes[r]), 0.0, np.int64(0)
        for j in range(X.shape[1]):
            t = (X[r, j] - centres[k, j]) - lows[k, j]
            square = precisions[k, j] * (t * t)
            added += square
            bits = np.float64(square).view(np.int64)  # in the order of numbers of at least zero
            most = bits if bits > most else most
        total[r], largest[r] = added, np.int64(most).view(np.float64)


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
