"""Rows of a class become counts, means and scatters, block by block, and these are merged.

The mean of a class is ``origin + offset``. The origin is one of its rows, so that a difference from
it loses no digits however far the rows are from zero. Each block is centred about its own mean, and
is merged by the formula of Chan, Golub and LeVeque: errors depend neither on the number of rows nor
on the first of them.

A scatter is a packed lower triangle or, for variances, its diagonal: arrays of shape (groups, size)
with one group a class, or a single group for all of them (pooled).
"""

import numpy as np
from llvmlite import binding
from numba import types
from numba.extending import get_cython_function_address

from streamgda.kernels import contracting_kernel, kernel
from streamgda.kernels.sums import row_start

LARGE = 1e140  # Sums of any number of squares of smaller values are finite.
# Means of 1,024 values are as short binary fractions as these, and rounding errors of their squares
# have one sign more often than another: numbers of rows are no powers of two.
PRODUCT_ROWS = 1000  # BLAS multiplies so many rows at a time.
_NEAR_VALUES, _LEAST_ROWS = 30_000, 60  # A block of this size is read twice.
_SQUARE_ROWS = 1000  # So many squares are summed in turn.
_NOTHING = 1e-12  # A smaller share of a weight is what rounding leaves of a subtraction.
_FLOAT32 = 1e-15, 1e17  # Squares of magnitudes between these fit float32.

# Kernels call BLAS by symbols, which are registered when this module is imported; addresses in the
# code would make cached kernels invalid in other processes. BLAS may use several threads for a
# call, and other bits with them, unless `runtime.threads` limits it.
for _name in ("ssyrk", "dsyrk"):
    _address = get_cython_function_address("scipy.linalg.cython_blas", _name)
    binding.add_symbol(f"streamgda_{_name}", _address)

_SYRK = types.void(*[types.voidptr] * 10)
_ssyrk = types.ExternalFunction("streamgda_ssyrk", _SYRK)
_dsyrk = types.ExternalFunction("streamgda_dsyrk", _SYRK)


@kernel
def gram(A, C):
    """Write the lower triangle of ``A.T @ A``, float32 or float64 as both contiguous matrices."""
    # BLAS stores matrices by columns: it sees their transposes, and an upper triangle.
    flags = np.array([ord("U"), ord("N")], np.uint8)
    sizes, scales = np.array([A.shape[1], A.shape[0]], np.int32), np.array([1, 0], A.dtype)
    options = flags.ctypes, flags[1:].ctypes, sizes.ctypes, sizes[1:].ctypes
    one, zero, width = scales.ctypes, scales[1:].ctypes, sizes.ctypes
    if A.itemsize == 4:
        _ssyrk(*options, one, A.ctypes, width, zero, C.ctypes, width)
    else:
        _dsyrk(*options, one, A.ctypes, width, zero, C.ctypes, width)


@kernel
def merge(
    at, sign, counts, square_sums, origins, offsets, scatters,
    count, squares, origin, offset, scatter,
):  # fmt: skip
    """Add the moments of other rows, or subtract them if `sign` is -1.

    Class b of the other moments is class ``at[b]`` here. `squares` are the sums of the squared
    weights. The mean of the heavier part is moved by the smaller distance, which is rounded less.
    """
    d = origin.shape[1]
    gap = np.empty(d)
    for b in range(scatters.shape[0]):
        if scatters.shape[0] == at.size and counts[b] == 0.0:
            continue
        own, other = scatter[at[b] if scatter.shape[0] > 1 else 0], scatters[b]
        for i in range(own.shape[0]):
            own[i] += sign * other[i]
    for b in range(at.size):
        k = at[b]
        n, m = count[k], sign * counts[b]
        if m == 0.0:
            continue
        both = n + m
        count[k] = both
        squares[k] += sign * square_sums[b]
        if n == 0.0:
            for j in range(d):
                origin[k, j], offset[k, j] = origins[b, j], offsets[b, j]
            continue
        if m < 0.0 and both <= _NOTHING * n:
            count[k] = squares[k] = 0.0
            for j in range(d):
                origin[k, j] = offset[k, j] = 0.0
            continue
        apart = False
        for j in range(d):
            gap[j] = (origins[b, j] - origin[k, j]) + (offsets[b, j] - offset[k, j])
            apart |= gap[j] != 0.0
        if m > n:
            share = n / both
            for j in range(d):
                origin[k, j], offset[k, j] = origins[b, j], offsets[b, j] - share * gap[j]
        else:
            share = m / both
            for j in range(d):
                offset[k, j] += share * gap[j]
        if apart:
            weight = m * share if m > n else n * share
            add_outer(gap, weight, scatter[k if scatter.shape[0] > 1 else 0])


@contracting_kernel
def add_outer(gap, weight, scatter):
    """Add ``weight * gap gap'`` to a scatter."""
    d = gap.shape[0]
    if scatter.shape[0] == d:
        for j in range(d):
            scatter[j] += weight * (gap[j] * gap[j])
        return
    for i in range(d):
        factor = gap[i]
        if factor != 0.0:
            out = scatter[row_start(i) :]
            for j in range(i + 1):  # This order of factors keeps duplicate features equal.
                out[j] += weight * (factor * gap[j])


@contracting_kernel
def meet(k, n, square, start, mean, count, squares, origin, offset, gap):
    """Add n rows with a mean of ``start + mean`` to class k but for the scatter.

    The scatter of both is the sum of theirs and of ``gap gap'`` with the returned weight.
    """
    before = count[k]
    both = before + n
    count[k] = both
    squares[k] += square
    share = n / both
    if before == 0.0:
        for j in range(gap.shape[0]):
            origin[k, j], offset[k, j], gap[j] = start[j], mean[j], 0.0
        return 0.0
    for j in range(gap.shape[0]):
        gap[j] = (start[j] - origin[k, j]) + (mean[j] - offset[k, j])
    if n > before:  # As in `merge`, the mean of the heavier part is moved.
        for j in range(gap.shape[0]):
            origin[k, j], offset[k, j] = start[j], mean[j] - (before / both) * gap[j]
    else:
        for j in range(gap.shape[0]):
            offset[k, j] += share * gap[j]
    return before * share


@contracting_kernel
def add_wide(X, order, codes, weights, base, count, squares, origin, offset, scatter):
    """Add the rows ``X[order]``, which are in the order of their classes.

    `base` is subtracted from their codes. BLAS multiplies blocks of one class in the type of the
    rows, without columns that are zero throughout the block.
    """
    d, last = X.shape[1], order.size
    room = min(PRODUCT_ROWS, last) * d
    held, products = np.empty(room, X.dtype), np.empty(d * d, X.dtype)
    start, mean, gap, peak = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    used = np.empty(d, np.intp)
    flat, width = X.reshape(X.size), np.uint64(d)  # A view of each row would take longer.
    at = end = 0
    while at < last:
        code = codes[order[at]]
        while end < last and codes[order[end]] == code:
            end += 1
        # Blocks are even.
        stop = at + (end - at) // ((end - at + PRODUCT_ROWS - 1) // PRODUCT_ROWS)
        k, n, total, square, m = code - base, stop - at, 0.0, 0.0, 0
        row = np.uint64(order[at]) * width
        for j in range(d):
            start[j], mean[j], peak[j] = flat[row + np.uint64(j)], 0.0, 0.0
        for q in range(at, stop):
            r = np.uint64(order[q])
            row, w = r * width, weights[r] if weights.size else 1.0
            total += w
            square += w * w
            for j in range(d):
                x = flat[row + np.uint64(j)]
                mean[j] += w * (x - start[j])
                peak[j] = max(peak[j], abs(x))
        for j in range(d):
            mean[j] /= total
        S = scatter[k if scatter.shape[0] > 1 else 0]
        for j in range(d):
            used[m] = j
            m += peak[j] != 0.0
        tiny, huge = _FLOAT32
        for c in range(m):
            peak[c] = 0.0
        rows = held[: n * m].reshape(n, m)
        for q in range(n):
            r = np.uint64(order[at + q])
            root = np.sqrt(weights[r]) if weights.size else 1.0
            row, out = r * width, np.uint64(q * m)
            if m == d:
                for c in range(m):
                    f = np.uint64(c)
                    held[out + f] = root * ((flat[row + f] - start[c]) - mean[c])
            else:
                for c in range(m):
                    j = np.uint64(used[c])
                    held[out + np.uint64(c)] = root * ((flat[row + j] - start[j]) - mean[j])
            if X.itemsize == 4:
                for c in range(m):
                    peak[c] = max(peak[c], abs(held[out + np.uint64(c)]))
        fits = True
        if X.itemsize == 4:
            for c in range(m):
                fits &= peak[c] == 0.0 or tiny < peak[c] < huge
        if fits and m > 0:
            P = products[: m * m].reshape(m, m)
            gram(rows, P)
            add_products(P, used, S)
        elif m > 0:
            longer, P = np.empty((n, m)), np.empty((m, m))
            for q in range(n):
                r = np.uint64(order[at + q])
                root = np.sqrt(weights[r]) if weights.size else 1.0
                for c in range(m):
                    j = used[c]
                    longer[q, c] = root * ((X[r, j] - start[j]) - mean[j])
            gram(longer, P)
            add_products(P, used, S)
        weight = meet(k, total, square, start, mean, count, squares, origin, offset, gap)
        if weight > 0.0:
            add_outer(gap, weight, S)
        at = stop


@contracting_kernel
def add_products(P, used, scatter):
    """Add a lower triangle of products of some features to a packed one of all."""
    m = P.shape[0]
    for c in range(m):
        row, out = P[c], scatter[row_start(used[c]) :]
        if used[c] == c:
            for e in range(c + 1):
                out[e] += row[e]
        else:
            for e in range(c + 1):
                out[np.uint64(used[e])] += row[e]


@contracting_kernel
def add_variances(X, order, codes, weights, base, count, squares, origin, offset, scatter):
    """Add the rows ``X[order]`` to counts, means and sums of squares of their classes.

    `base` is subtracted from their codes. Each block of rows is read twice, the second time from a
    near cache: its sums about the first row of each class, and its squares about the means.
    """
    n_rows, (K, d) = order.size, origin.shape
    start, mean, square, gap = np.empty((K, d)), np.zeros((K, d)), np.zeros((K, d)), np.empty(d)
    number, number_squared, found = np.zeros(K), np.zeros(K), np.empty(K, np.intp)
    flat, width = X.reshape(X.size), np.uint64(d)
    starts, means, sums = start.reshape(K * d), mean.reshape(K * d), square.reshape(K * d)
    size = max(_LEAST_ROWS, min(_NEAR_VALUES // d, max(_SQUARE_ROWS, 8 * K)))
    for at in range(0, n_rows, size):
        stop, n_found = min(at + size, n_rows), 0
        for q in range(at, stop):
            r = np.uint64(order[q])
            k = np.uint64(codes[r] - base)
            row, own, w = r * width, k * width, weights[r] if weights.size else 1.0
            if number[k] == 0.0:
                found[n_found] = k
                n_found += 1
                for j in range(width):
                    starts[own + j] = flat[row + j]
            number[k] += w
            number_squared[k] += w * w
            for j in range(width):
                means[own + j] += w * (flat[row + j] - starts[own + j])
        for i in range(n_found):
            for j in range(d):
                mean[found[i], j] /= number[found[i]]
        for q in range(at, stop):
            r = np.uint64(order[q])
            row, own = r * width, np.uint64(codes[r] - base) * width
            w = weights[r] if weights.size else 1.0
            for j in range(width):
                t = (flat[row + j] - starts[own + j]) - means[own + j]
                sums[own + j] += w * (t * t)
        for i in range(n_found):
            k = found[i]
            S, n, n_squared = (
                scatter[k if scatter.shape[0] > 1 else 0],
                number[k],
                number_squared[k],
            )
            for j in range(d):
                S[j] += square[k, j]
            weight = meet(k, n, n_squared, start[k], mean[k], count, squares, origin, offset, gap)
            if weight > 0.0:
                add_outer(gap, weight, S)
            number[k] = number_squared[k] = 0.0
            for j in range(d):
                mean[k, j] = square[k, j] = 0.0
