"""Scatters of floating-point rows: centred rows are products that BLAS adds.

The centred rows of a block of one group are multiplied with each other. Features that are zero in
all of them are left out, so that border pixels of images cost no multiplication.
"""

import sys

import numpy as np

from streamgda.kernels import inline_kernel, inner_kernel, kernel, shared_kernel
from streamgda.kernels.blas import cross, gram
from streamgda.kernels.sums import row_start
from streamgda.kernels.vectors import prefetch_values

# Rows of a product. float32 products are summed in float32 in a block: about four of these, or of
# wide rows sixteen. An element of the sum is off by less than 2^-24 of the sum of magnitudes for
# each row of a product, each product of a block, and each of four roundings of two centred values.
PRODUCT_ROWS = 224
BLOCK_ROWS = 4 * PRODUCT_ROWS

# Rows of the smallest blocks: for fewer, work that each block repeats would take too long.
LEAST_ROWS = 256

_LOOKED_AT = 8  # rows of a block, before it is seen whether each feature has a value
_AHEAD = 6  # rows that processors cannot foresee, as they are in the order of classes
_VALUES_AHEAD = 1 << 10  # of a triangle, which is changed line by line

_SERIAL_WORK = 1 << 18  # multiplications for which OpenBLAS uses a single thread
_FEW_FEATURES = 50  # of which many rows have no more multiplications

FEW_ROWS = 5  # up to here, not worth a call of BLAS

# If the magnitudes of a feature in a block sum to a value between these, their squares and the
# sums of those neither overflow nor underflow in float32.
_LEAST, _MOST = 1e-15, 1e17


def most_serial_rows(n_features):
    """Return the most rows in `empty_rows` whose product BLAS computes on one thread."""
    return _SERIAL_WORK // n_features**2 if n_features > _FEW_FEATURES else sys.maxsize


@shared_kernel
def empty_rows(n_rows, n_features, n_classes):
    """Return empty scratch space for the centred rows of a product, and the gaps between means.

    For few features, it is so small that BLAS uses a single thread without being told.
    """
    most = BLOCK_ROWS if n_features > _FEW_FEATURES else _SERIAL_WORK // n_features**2
    return np.empty((max(FEW_ROWS, min(most, n_rows + min(n_classes, n_rows))), n_features))


@inner_kernel
def centre_rows(X, codes, order, weights, high, low, start, rows, magnitude):
    """Write each row numbered by `order`, less its class's centre, times the root of its weight.

    Values are read from feature `start` on. The centre is ``high + low``; rows are centred in the
    type of these and of `magnitude`, to which the magnitudes of each feature are added.
    """
    number, width = high.dtype.type, magnitude.shape[0]
    for q in range(order.shape[0]):
        following = order[min(q + _AHEAD, order.shape[0] - 1)]
        prefetch_values(X, following * X.shape[1] + start, width)
        r = np.uint64(order[q])  # unsigned: no check for negative indices
        k = np.uint64(codes[r])
        row, centre, rest = X[r, start:], high[k, start:], low[k, start:]
        if weights.shape[0] > 0:
            root = number(np.sqrt(weights[r]))
            for j in range(width):  # values that float32 rounds to zero are nonzero here
                value = root * ((row[j] - centre[j]) - rest[j])
                rows[q, j] = value
                magnitude[j] += abs(value)
        else:
            for j in range(width):
                rows[q, j] = (row[j] - centre[j]) - rest[j]
            for j in range(width):
                magnitude[j] += abs(rows[q, j])


@inner_kernel
def squeeze(rows, magnitude, features):
    """Move the columns of features that are not zero to the front; return their number.

    The numbers of these features go to `features`. If float32 rows cannot hold the squares of a
    feature, the rows do not change, and the function returns -1.
    """
    active = 0
    for j in range(magnitude.shape[0]):
        features[active] = j
        active += magnitude[j] != 0
    if rows.itemsize == 4 and not within(magnitude):
        return -1
    move_columns(rows, features[:active], 0)
    return active


@inline_kernel
def within(magnitude):
    """Return True if float32 can hold the squares of all features, and their sums."""
    for j in range(magnitude.shape[0]):
        if magnitude[j] != 0 and not _LEAST < magnitude[j] < _MOST:
            return False
    return True


@inline_kernel
def move_columns(rows, features, start):
    """Move the columns of some features to the front; the first column is that of `start`."""
    n = features.shape[0]
    if n > 0 and features[n - 1] - start >= n:
        for q in range(rows.shape[0]):
            for a in range(n):
                rows[q, a] = rows[q, np.uint64(features[a] - start)]


@kernel
def multiply_blocks(source, first, last, groups, rows, features, active, products, S):
    """Centre blocks ``order[first[b]:last[b]]``, one after another, and write their products.

    `source` is what `centre_rows` reads. If `S` has triangles, the products of each block are added
    to that of its group instead, and `products` holds those of one block. `rows` does in any case.
    """
    X, codes, order, weights, high, low = source
    magnitude = np.empty(X.shape[1], high.dtype)
    for b in range(first.shape[0]):
        block, own = rows[: last[b] - first[b]], features[b]
        for j in range(magnitude.shape[0]):
            magnitude[j] = 0
        centre_rows(X, codes, order[first[b] : last[b]], weights, high, low, 0, block, magnitude)
        active[b] = squeeze(block, magnitude, own)
        n = max(0, active[b])
        product = products[b if S.shape[0] == 0 else 0, :n, :n]
        step = rows_at_a_time(block.shape[0], PRODUCT_ROWS)
        for q in range(0, block.shape[0] if n > 0 else 0, step):
            gram(block[q : q + step, :n], 0.0 if q == 0 else 1.0, product)
        if S.shape[0] > 0:
            add_lower(product, 0, 0, own, S[groups[b]])


@kernel
def add_blocks(products, features, active, groups, first, last, S):
    """Add products of blocks, see `multiply_blocks`, to rows of their groups' triangles in `S`."""
    for b in range(groups.shape[0]):
        i, i_stop = count_below(features[b], active[b], first, last)
        product = products[b, i:i_stop, : max(0, active[b])]
        if product.size > 0:
            add_lower(product, i, 0, features[b], S[groups[b]])


@kernel
def multiply_part(source, first, last, part, rows, features, product):
    """Write a part of the products of the block ``order[first:last]``, whose rows are centred.

    `part` are the first row of the part, one past the last, and the same of its columns: those of
    the rows, or all before them. As many rows are centred at a time as are multiplied, in two
    arrays `rows`, so that they stay in a cache. `source` is what `centre_rows` reads.

    Features that are zero in all rows are left out; `features` are the others, of the columns if
    these are apart, and of the rows. Return the numbers of both, the second one negative if float32
    has too small a range.
    """
    X, codes, order, weights, high, low = source
    own, apart = order[first:last], part[0] != part[2]
    n_columns = 0
    if apart:
        n_columns = find_features(X, codes, own, high, low, part[2], part[3], features)
    others = features[n_columns:]
    n_rows = find_features(X, codes, own, high, low, part[0], part[1], others)
    if n_rows == 0 or (apart and n_columns == 0):
        return 0, 0
    magnitude = np.zeros((2, rows.shape[2]), high.dtype)
    left, right = magnitude[0, : part[1] - part[0]], magnitude[1, : part[3] - part[2]]
    step = rows_at_a_time(own.shape[0], rows.shape[1])
    for q in range(0, own.shape[0], step):
        some, beta = own[q : q + step], 0.0 if q == 0 else 1.0
        A, B = rows[0, : some.shape[0]], rows[1, : some.shape[0]]
        centre_rows(X, codes, some, weights, high, low, part[0], A, left)
        move_columns(A, others[:n_rows], part[0])
        if apart:
            centre_rows(X, codes, some, weights, high, low, part[2], B, right)
            move_columns(B, features[:n_columns], part[2])
            cross(A[:, :n_rows], B[:, :n_columns], beta, product[:n_rows, :n_columns])
        else:
            gram(A[:, :n_rows], beta, product[:n_rows, :n_rows])
    if rows.itemsize == 4 and not (within(left) and within(right)):
        return 0, -1
    return n_columns, n_rows


@inner_kernel
def find_features(X, codes, order, high, low, first, last, features):
    """Write the features between two that are not zero in all rows once these are centred.

    Return their number. Once all are found, as soon happens to most rows, no other row is read.
    """
    found, n = np.zeros(last - first, np.bool_), 0
    for q in range(order.shape[0]):
        r = np.uint64(order[q])  # unsigned: no check for negative indices
        k = np.uint64(codes[r])
        row, centre, rest = X[r, first:], high[k, first:], low[k, first:]
        for j in range(found.shape[0]):
            found[j] |= (row[j] - centre[j]) - rest[j] != 0
        if q % _LOOKED_AT == 0:
            missing = 0
            for j in range(found.shape[0]):
                missing += not found[j]
            if missing == 0:
                break
    for j in range(found.shape[0]):
        features[n] = first + j
        n += found[j]
    return n


@kernel
def add_part(product, features, n_columns, n_rows, S):
    """Add a part of the products of a block, see `multiply_part`, to the triangle `S`."""
    if n_rows > 0:
        width = n_columns if n_columns > 0 else n_rows
        add_lower(product[:n_rows, :width], n_columns, 0, features, S)


@inline_kernel
def rows_at_a_time(n_rows, most):
    """Return the number of rows of each product of a block."""
    n_products = (n_rows + most - 1) // most
    return (n_rows + n_products - 1) // n_products


@inline_kernel
def count_below(features, active, first, last):
    """Count the active features with smaller numbers than each of two."""
    n, m = 0, 0
    for j in range(active):
        n += features[j] < first
        m += features[j] < last
    return n, m


@inner_kernel
def add_lower(product, i, j, features, S):
    """Add the lower triangle of a matrix to parts of a triangle.

    ``product[a, b]`` is added to row ``features[i + a]`` and column ``features[j + b]`` of `S`, if
    that is not above the diagonal.
    """
    for a in range(product.shape[0]):
        row, values = S[row_start(features[i + a]) :], product[a]
        prefetch_values(row, _VALUES_AHEAD, features[i + a])
        places = features[j : j + min(product.shape[1], i + a + 1 - j)]
        size = places.shape[0]
        if places[size - 1] - places[0] == size - 1:
            part = row[places[0] : places[0] + size]
            for b in range(size):
                part[b] += values[b]
        else:
            for b in range(size):
                row[np.uint64(places[b])] += values[b]


@inline_kernel
def add_gram(rows, n, magnitude, features, product, S):
    """Add the products of the first `n` rows to the triangle `S`.

    The rows are overwritten, like `features` and `product`; see `squeeze` and `add_lower`.
    """
    active = 0
    for j in range(magnitude.shape[0]):
        features[active] = j
        active += magnitude[j] != 0
    if active < magnitude.shape[0]:
        for q in range(n):
            for a in range(active):
                rows[q, a] = rows[q, np.uint64(features[a])]
    gram(rows[:n, :active], 0.0, product[:active, :active])
    for a in range(active):
        i, first = features[a], features[0]
        row = S[row_start(i) :]
        if i == first + a:
            for b in range(a + 1):
                row[first + b] += product[a, b]
        else:
            for b in range(a + 1):
                row[np.uint64(features[b])] += product[a, b]


@inline_kernel
def add_few(rows, n, S):
    """Add the products of the first `n` of at most `FEW_ROWS` rows to the triangle `S`, at once."""
    for q in range(n, FEW_ROWS):
        for j in range(rows.shape[1]):
            rows[q, j] = 0.0
    for i in range(rows.shape[1]):
        a, b, c, d, e = rows[0, i], rows[1, i], rows[2, i], rows[3, i], rows[4, i]
        row = S[row_start(i) :]
        for j in range(i + 1):
            row[j] += (
                (a * rows[0, j] + b * rows[1, j]) + (c * rows[2, j] + d * rows[3, j])
            ) + e * rows[4, j]
