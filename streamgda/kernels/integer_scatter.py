"""Exact sums and products of integers: rows are packed into panels of bytes, and multiplied.

The kernels read rows as bytes, shape ``(n_rows, n_features * size)``, and so are compiled once for
integers of any size and sign. The *bytes* of a value, lowest first, count as unsigned digits of its
distance from the lowest value of its type: `sign` is exclusive-ored with the highest byte, and is
128 for signed types. `offset` is the distance of the origin from the lowest value.

A block of rows of one group becomes panels (see `integer_tiles`). They hold only the features that
differ from the origin in some row of the block, so that border pixels of images and sparse counts
cost no multiplication. The digits of the origin are subtracted from the sums of products, not from
the values: ``sum (u - o)(v - p) = sum u v - p sum u - o sum (v - p)``.
"""

import numpy as np

from streamgda.kernels import inline_kernel, kernel, shared_kernel
from streamgda.kernels.accumulate import rows_by_group
from streamgda.kernels.integer_tiles import (
    COLUMNS,
    DEPTH,
    LOWERED,
    ROWS,
    TOGETHER,
    WIDTH,
    multiply_tile,
)

# Rows that are multiplied before their products are added to a scatter. Their int32 sums are exact
# (`integer_tiles.MOST_ROWS`), and the panels of some hundred features stay in the second cache.
BLOCK_ROWS = 1024

_PANELS = 2  # that stay in the second cache while they are multiplied with all others


@kernel
def add_totals(rows, codes, size, sign, offset, count, total):
    """Add rows to the counts of their classes, and to their sums about the origin."""
    for r in range(rows.shape[0]):
        k = np.uint64(codes[r])  # unsigned: no check for negative indices
        row, sums = rows[r], total[k]
        count[k] += 1
        if size == 1:
            for j in range(sums.shape[0]):
                sums[j] += np.int64(row[j] ^ sign) - offset
        else:
            for j in range(sums.shape[0]):
                sums[j] += (row[2 * j] | np.int64(row[2 * j + 1] ^ sign) << 8) - offset


@kernel
def add_integer_squares(rows, codes, size, sign, offset, count, total, squares):
    """Add rows to counts, and to sums and sums of squares about the origin."""
    per_class = squares.shape[0] > 1
    for r in range(rows.shape[0]):
        k = np.uint64(codes[r])
        row, sums, own = rows[r], total[k], squares[k if per_class else np.uint64(0)]
        count[k] += 1
        for j in range(sums.shape[0]):
            value = np.int64(row[j] ^ sign)
            if size == 2:
                value = row[2 * j] | np.int64(row[2 * j + 1] ^ sign) << 8
            sums[j] += value - offset
            own[j] += (value - offset) * (value - offset)


@inline_kernel
def _choose_features(rows, order, size, sign, offset, features):
    """Write the places of the bytes of all features that differ from the origin in some row."""
    n_bytes = rows.shape[1]
    origin, differs = np.empty(n_bytes, np.uint8), np.zeros(n_bytes, np.uint8)
    for f in range(n_bytes):
        part = f % size
        origin[f] = np.uint8(offset >> 8 * part & 255) ^ (sign if part == size - 1 else np.uint8(0))
    if offset >> 8 * size:  # no value of the type equals the origin
        differs[:] = 1
    for r in order:
        row = rows[np.uint64(r)]
        for f in range(n_bytes):
            differs[f] |= row[f] ^ origin[f]
    active = 0
    for first in range(0, n_bytes, size):
        chosen = False
        for part in range(size):
            chosen |= differs[first + part] != 0
            features[active + part] = first + part
        active += size if chosen else 0
    return active


@kernel
def pack_bytes(rows, order, size, sign, offset, panels, features, sums):
    """Pack the rows numbered by `order`; return the number of packed bytes of a row.

    Their places in a row go to `features`, and their sums over the rows to `sums`, both of which
    have an entry for each column of `panels`, shape ``(panels, entries, WIDTH)``.
    """
    n = order.shape[0]
    active = _choose_features(rows, order, size, sign, offset, features)
    n_panels = (active + WIDTH - 1) // WIDTH
    signs = np.zeros(n_panels * WIDTH, np.uint8)
    for c in range(size - 1, active, size):
        signs[c] = sign
    lines = np.zeros((TOGETHER, signs.shape[0]), np.uint8)
    sums[: signs.shape[0]] = 0
    for entry in range((n + TOGETHER - 1) // TOGETHER):
        for part in range(TOGETHER):
            q = entry * TOGETHER + part
            line = lines[part]
            if q < n:
                row = rows[np.uint64(order[q])]
                for c in range(active):
                    line[c] = row[np.uint64(features[c])]
                for c in range(active):
                    line[c] ^= signs[c]
            else:
                line[:] = 0
        for p in range(n_panels):
            words, own = panels[p, entry], slice(p * WIDTH, (p + 1) * WIDTH)
            _join_words(lines[:, own], words, sums[own])
    return active


@inline_kernel
def _join_words(lines, words, sums):
    """Join the bytes of some rows to words, and add them to `sums`."""
    for c in range(WIDTH):
        if TOGETHER == 2:
            first, second = np.int32(lines[0, c]), np.int32(lines[1, c])
            words[c] = first | second << 16
            sums[c] += first + second
        else:
            first, second = np.int32(lines[0, c]), np.int32(lines[1, c])
            third, fourth = np.int32(lines[2, c]), np.int32(lines[3, c])
            words[c] = first | second << 8 | third << 16 | fourth << 24
            sums[c] += first + second + third + fourth


@inline_kernel
def _count_below(features, active, feature):
    """Count the active features with a smaller number than the given one."""
    n = 0
    for c in range(active):
        n += features[c] < feature
    return n


@kernel
def add_byte_product(panels, features, sums, active, n_rows, size, offset, first, last, S):
    """Add the product of packed rows with themselves to rows of the lower triangle of `S`.

    The rows are those of the features ``first <= i < last``.
    """
    T = np.empty((WIDTH, WIDTH), np.int32)
    start = _count_below(features, active, size * first)
    stop = _count_below(features, active, size * last)
    step = _PANELS * WIDTH
    for i_first in range(start // WIDTH * WIDTH, stop, step):
        for j_panel in range(0, min(i_first + step, stop), WIDTH):
            for i_panel in range(max(i_first, j_panel), min(i_first + step, stop), WIDTH):
                A, B = panels[i_panel // WIDTH], panels[j_panel // WIDTH]
                top, bottom = max(0, start - i_panel), min(WIDTH, stop - i_panel)
                right = min(WIDTH, i_panel + bottom - j_panel)
                _multiply_panels(A, B, n_rows, top, bottom, right, i_panel - j_panel, T)
                for a in range(top, bottom):
                    f = i_panel + a
                    some = slice(j_panel, min(j_panel + right, f + 1))
                    own, across = (features[f], sums[f]), (features[some], sums[some])
                    _add_row(T[a], own, across, n_rows, size, offset, S[features[f] // size])


@inline_kernel
def _multiply_panels(A, B, n_rows, top, bottom, right, below, T):
    """Write the product of some columns of a panel and some of another, which is `below` it."""
    entries = (n_rows + TOGETHER - 1) // TOGETHER
    top = top // ROWS * ROWS
    T[top : bottom + ROWS - 1] = 0
    for entry in range(0, entries, DEPTH):
        depth = min(DEPTH, entries - entry)
        for column in range(0, right, COLUMNS):
            for row in range(top, bottom, ROWS):
                if below + row + ROWS > column:  # not all of the tile is above the diagonal
                    multiply_tile(A, B, entry, depth, row, column, T)


@inline_kernel
def _add_row(products, own, across, n_rows, size, offset, out):
    """Add a row of products of bytes, less the origin's, to a row of a scatter.

    `own` is the place of the row's byte and its sum; `across` holds those of the columns.
    """
    place, total = own[0], np.int64(own[1])
    places, totals = across
    lowered, n = LOWERED * total, places.shape[0]
    if size == 1:
        if places[n - 1] - places[0] == n - 1:
            part = out[places[0] : places[0] + n]
            for b in range(n):
                part[b] += products[b] + lowered
        else:
            for b in range(n):
                out[np.uint64(places[b])] += products[b] + lowered
        if offset:
            for b in range(n):
                out[places[b]] -= offset * (total + totals[b] - n_rows * offset)
        return
    high = place & 1
    digit = _digit(offset, high)
    for b in range(n):
        other_high = places[b] & 1
        other = _digit(offset, other_high)
        value = products[b] + lowered - other * total - digit * (totals[b] - n_rows * other)
        value <<= 8 * (high + other_high)
        if places[b] >> 1 == place >> 1 and places[b] != place:
            value *= 2  # both bytes of one feature: the other product is above the diagonal
        out[places[b] >> 1] += value


@inline_kernel
def _digit(offset, high):
    """Return one of two digits of the offset; the high one has no limit."""
    return offset >> 8 if high else offset & 255


@shared_kernel
def empty_panels(n_blocks, n_rows, n_bytes):
    """Return empty panels, features and sums for blocks of at most `n_rows` rows."""
    n_panels = (n_bytes + WIDTH - 1) // WIDTH
    panels = np.empty((n_blocks, n_panels, (n_rows + TOGETHER - 1) // TOGETHER, WIDTH), np.int32)
    columns = n_blocks, n_panels * WIDTH
    return panels, np.empty(columns, np.intp), np.empty(columns, np.int32)


@kernel
def add_integers(rows, codes, size, sign, offset, count, total, scatter):
    """Add rows to counts, and to int64 sums and products about the origin."""
    add_totals(rows, codes, size, sign, offset, count, total)
    order, starts = rows_by_group(codes, count.shape[0], scatter.shape[0])
    groups = np.arange(scatter.shape[0])
    add_groups(rows, order, starts, groups, size, sign, offset, scatter)


@kernel
def add_groups(rows, order, starts, groups, size, sign, offset, scatter):
    """Add the products of the rows ``order[starts[g]:starts[g + 1]]`` of some groups."""
    most = 0
    for g in groups:
        most = max(most, starts[g + 1] - starts[g])
    panels, features, sums = empty_panels(1, min(most, BLOCK_ROWS), rows.shape[1])
    panels, features, sums = panels[0], features[0], sums[0]
    for g in groups:
        own = order[starts[g] : starts[g + 1]]
        pieces = max(1, (own.shape[0] + BLOCK_ROWS - 1) // BLOCK_ROWS)
        step = (own.shape[0] + pieces - 1) // pieces
        for first in range(0, own.shape[0], max(1, step)):
            block = own[first : first + step]
            active = pack_bytes(rows, block, size, sign, offset, panels, features, sums)
            add_byte_product(
                *(panels, features, sums, active, block.shape[0], size, offset),
                *(0, scatter.shape[2], scatter[g]),
            )


@kernel
def add_byte_products(blocks, groups, size, offset, first, last, scatter):
    """Add each block's product to rows of ``scatter[groups[b]]``, as `add_byte_product` does.

    `blocks` holds panels, features, sums, numbers of packed bytes and of rows.
    """
    panels, features, sums, active, n_rows = blocks
    for b in range(groups.shape[0]):
        add_byte_product(
            *(panels[b], features[b], sums[b], active[b], n_rows[b], size, offset, first, last),
            scatter[groups[b]],
        )
