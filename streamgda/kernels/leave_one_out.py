"""Distances by covariances that differ from row to row, as those without the row do.

Rows are given as columns, shape (d, n_rows), in coordinates in which the covariance of all rows is
one, and that without a row diagonal: the variance of coordinate j for row r is
``v_j = alpha[r] + beta[r] * ridges[j] - gamma[r] * s_j``, where s_j is the square of that
coordinate, less the own mean.
"""

import numpy as np

from streamgda.kernels import fast_kernel, inline_kernel, kernel
from streamgda.kernels.scoring import pack_panel, panel_width, row_step
from streamgda.kernels.vectors import empty_vectors, padded_width

_BLOCK = 256  # rows that stay in the first cache
_STEP = row_step(np.float64)
_FEATURES = 4  # that are added to a sum at a time
_FACTORS = 24  # of a product whose logarithm is taken: all are between LEAST and its inverse
LEAST = 1e-6  # share of a variance without the row below which rounding errors count


@inline_kernel
def _add_quotients(n, dividends, divisors, totals, logs):
    """Add quotients to the sums of `n` rows, and the logarithms of their divisors to those."""
    for r in range(n):
        totals[r] += dividends[r] / divisors[r]
        logs[r] += np.log(divisors[r])
    dividends[:], divisors[:] = 0.0, 1.0


@fast_kernel
def white_squares(columns, rows, at, table, growth, ridges, squares, logs):
    """Write squared lengths of columns by variances that differ from row to row, and their logs.

    Column r is that of row ``rows[r]``, and ``at[rows[r]]`` its place in the table. `growth` is
    added to beta, and gamma is not part of the variances. Of rows that leave nearly nothing of one,
    the length is infinite. The logarithms are of the products of the variances.
    """
    d, n_rows = columns.shape
    a, b, least = np.empty(_BLOCK), np.empty(_BLOCK), np.empty(_BLOCK)
    dividends, divisors = np.zeros(_BLOCK), np.ones(_BLOCK)  # quotients are added as one
    total, added = np.empty(_BLOCK), np.empty(_BLOCK)
    for start in range(0, n_rows, _BLOCK):
        n = min(_BLOCK, n_rows - start)
        numbers = rows[start : start + n]
        for r in range(n):
            number = np.uint64(numbers[r])
            i = np.uint64(at[number])
            a[r], b[r] = table[0, i], table[1, i] + growth[number]
        total[:], added[:], least[:] = 0.0, 0.0, np.inf
        for j in range(d):
            x, ridge = columns[j, start : start + n], ridges[j]
            for r in range(n):
                v = a[r] + b[r] * ridge
                least[r] = least[r] if least[r] < v else v
                dividends[r] = dividends[r] * v + (x[r] * x[r]) * divisors[r]
                divisors[r] *= v
            if (j + 1) % _FACTORS == 0 or j == d - 1:
                _add_quotients(n, dividends, divisors, total, added)
        for r in range(n):
            squares[numbers[r]] = total[r] if least[r] > LEAST else np.inf
            logs[numbers[r]] = added[r]


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
    most = panel_width(n_rows, n_classes, _STEP)
    own, inverse, others, factors = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    own_gaps = empty_vectors(padded_width(n_classes) * most)
    for start in range(0, n_rows, most):
        n = min(most, n_rows - start)
        width = panel_width(n, n_classes, _STEP)
        classes, places = codes[start : start + n], at[start : start + n]
        pack_panel(gaps, classes, 0, n_classes, width, gaps, (), own_gaps)
        for r in range(n):
            k, i = np.uint64(classes[r]), np.uint64(places[r])
            lost, half = table[2, i], offsets[k] - scores[k, start + r]
            inverse[r], others[r] = 1 / alphas[start + r], half - 2 * shared[start + r]
            own[r] = (half + others[r]) * inverse[r]
            factors[r] = 0.5 * lost / (1 - lost * own[r])
            influential[start + r] |= not own[r] < table[5, i]
        for k in range(n_classes):
            x, gap = scores[k, start : start + n], own_gaps[k * width :][:n]
            offset, prior = offsets[k], log_priors[k]
            for r in range(n):
                half = offset - x[r]
                product = (half + others[r] - 0.5 * gap[r]) * inverse[r]
                x[r] = prior - half * inverse[r] - factors[r] * (product * product)
        for r in range(n):
            k, i, both = np.uint64(classes[r]), np.uint64(places[r]), shared[start + r] * inverse[r]
            half = 0.5 * own[r] + factors[r] * (own[r] * own[r])
            scores[k, start + r] = log_priors[k] + table[4, i] - table[3, i] * half - both


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
    X, features, order, starts, at, centres, lows, precisions, offsets, table, growth, own,
    influential,
):  # fmt: skip
    """Write the scores of rows for their own classes without the rows, by variances.

    The rows of class k are ``order[starts[k] : starts[k + 1]]``. Coordinate j is the deviation from
    the centre of the class, and its ridge the precision, times which `growth` is added to the
    variance. Arguments are as of `removed_products`; a row that leaves nearly nothing of a variance
    is influential, too.
    """
    d, columns = features.size, X.shape[1]
    most = panel_width(X.shape[0], columns, _STEP)
    a, b, c, least = np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    dividends, divisors = np.zeros(most), np.ones(most)
    total, added = np.empty(most), np.empty(most)
    panel = empty_vectors(padded_width(columns) * most)
    for k in range(centres.shape[0]):
        for start in range(starts[k], starts[k + 1], most):
            rows = order[start : min(start + most, starts[k + 1])]
            n, width = rows.size, panel_width(rows.size, columns, _STEP)
            pack_panel(X, rows, 0, columns, width, precisions, (), panel)
            for r in range(n):
                row = np.uint64(rows[r])
                i = np.uint64(at[row])
                a[r], b[r], c[r] = table[0, i], table[1, i] + growth[row], table[2, i]
            total[:], added[:], least[:] = 0.0, 0.0, np.inf
            for j in range(d):
                x = panel[features[j] * width :][:n]
                middle, low, precision = centres[k, j], lows[k, j], precisions[k, j]
                for r in range(n):
                    t = (x[r] - middle) - low
                    square = precision * (t * t)
                    v = a[r] + b[r] * precision - c[r] * square
                    least[r] = least[r] if least[r] < v else v
                    dividends[r] = dividends[r] * v + square * divisors[r]
                    divisors[r] *= v
                if (j + 1) % _FACTORS == 0 or j == d - 1:
                    _add_quotients(n, dividends, divisors, total, added)
            for r in range(n):
                row = np.uint64(rows[r])
                i = np.uint64(at[row])
                influential[row] |= not least[r] > LEAST or not table[5, i] > 0
                own[row] = offsets[k] + table[4, i] - 0.5 * (added[r] + table[3, i] * total[r])


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
def smoothing_growth(X, features, mean, squares, order, total, weights, share, before, out):
    """Write what smoothing adds to variances without each row, less what it added `before`.

    It is a share of the largest variance, which is one of ``squares[j] / total`` with all rows,
    about the mean; `order` sorts them, the largest first. `weights` is empty if all are one.
    """
    out[:], least = 0.0, -np.inf
    for j in order:  # most often the first alone
        if squares[j] <= least:
            break
        least = np.inf
        for r in range(out.size):
            w, t = weights[r] if weights.size else 1.0, X[r, features[j]] - mean[j]
            out[r] = max(out[r], squares[j] - total * w / (total - w) * (t * t))
            least = min(least, out[r])
    for r in range(out.size):
        w = weights[r] if weights.size else 1.0
        out[r] = share * (out[r] / (total - w)) - before


@kernel
def add_columns(terms, columns, scores):
    """Add column i of the terms to column ``columns[i]`` of the scores."""
    for k in range(scores.shape[0]):
        for i in range(columns.size):
            scores[k, columns[i]] += terms[k, i]


@kernel
def put_own(own, codes, scores):
    """Replace the scores of rows for their own classes."""
    for r in range(own.size):
        scores[codes[r], r] = own[r]
