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

from streamgda.kernels import inline_kernel, kernel
from streamgda.kernels.accumulate import group_of_class
from streamgda.kernels.integer_tiles import (
    COLUMNS,
    DEPTH,
    LINE,
    LOWERED,
    PART,
    ROWS,
    TOGETHER,
    WIDTH,
    multiply_tile,
)

# Rows that are multiplied before their products are added to a scatter. Their int32 sums are exact
# (`integer_tiles.MOST_ROWS`).
BLOCK_ROWS = 1024


@kernel
def add_totals(rows, codes, own, size, sign, offset, first, last, total):
    """Add the features ``first <= j < last`` of some rows to the sums of their classes."""
    for r in own:
        k = np.uint64(codes[r])  # unsigned: no check for negative indices
        row = rows[r, size * first : size * last]
        _add_values(row, size, sign, offset, total[k, first:last])


@inline_kernel
def _add_values(row, size, sign, offset, sums):
    """Add the values of a row, less the origin, to sums."""
    if size == 1:
        for j in range(sums.shape[0]):
            sums[j] += np.int64(row[j] ^ sign) - offset
    else:
        for j in range(sums.shape[0]):
            sums[j] += (row[2 * j] | np.int64(row[2 * j + 1] ^ sign) << 8) - offset


@kernel
def add_integer_squares(rows, codes, size, sign, offset, count, total, squares):
    """Add rows to counts, and to sums and sums of squares about the origin."""
    group = group_of_class(total.shape[0], squares.shape[0])
    for r in range(rows.shape[0]):
        k = np.uint64(codes[r])
        row, sums, own = rows[r], total[k], squares[np.uint64(group[k])]
        count[k] += 1
        for j in range(sums.shape[0]):
            value = np.int64(row[j] ^ sign)
            if size == 2:
                value = row[2 * j] | np.int64(row[2 * j + 1] ^ sign) << 8
            sums[j] += value - offset
            own[j] += (value - offset) * (value - offset)


@kernel
def add_integers(rows, codes, order, starts, groups, size, sign, offset, count, total, scatter):
    """Add the rows ``order[starts[g]:starts[g + 1]]`` of some groups.

    They are added to the counts and sums of their classes, and to the products of their groups.
    """
    most = 0
    for g in groups:
        most = max(most, starts[g + 1] - starts[g])
    most = (min(most, BLOCK_ROWS) + TOGETHER - 1) // TOGETHER
    columns = (rows.shape[1] + WIDTH - 1) // WIDTH * WIDTH
    # Pieces of one array, for compiling a second ``np.empty`` would take longer than this.
    words, row_words = most * columns, (rows.shape[1] + 7) // 8
    space = np.empty(columns + (columns + WIDTH * WIDTH + words) // 2 + 3 * row_words + 2, np.intp)
    places, space = space[:columns], space[columns:]
    ends, space = space[: 3 * row_words].view(np.uint8), space[3 * row_words :].view(np.int32)
    totals, space = space[:columns], space[columns:]
    T, panels = space[: WIDTH * WIDTH], space[WIDTH * WIDTH :].view(PART)
    packed = places, totals, 0
    for g in groups:
        n = starts[g + 1] - starts[g]
        pieces = max(1, (n + BLOCK_ROWS - 1) // BLOCK_ROWS)
        for piece in range(pieces if n > 0 else 0):
            first, last = starts[g] + piece * n // pieces, starts[g] + (piece + 1) * n // pieces
            own = order[first:last]
            for r in own:
                k = np.uint64(codes[r])
                count[k] += 1
                _add_values(rows[np.uint64(r)], size, sign, offset, total[k])
            active = _pack_block(rows, own, size, sign, offset, ends, panels, packed)
            part = 0, scatter.shape[2]
            _add_product(panels, packed, active, last - first, size, offset, part, T, scatter[g])


@kernel
def pack_block(rows, own, size, sign, offset, ends, panels, places, totals):
    """Pack some rows; return the number of packed bytes of a row. See `_pack_block`."""
    packed = places, totals, 0
    return _pack_block(rows, own, size, sign, offset, ends, panels, packed)


@kernel
def add_products(panels, at, places, totals, active, n_rows, groups, size, offset, part, T, S):
    """Add the products of packed blocks to some rows of the scatters of their groups.

    The blocks start at ``panels[at[b]]``; the rows are those of the features of a part, given by
    the first and one past the last.
    """
    for b in range(groups.shape[0]):
        packed = places[b], totals[b], at[b]
        _add_product(panels, packed, active[b], n_rows[b], size, offset, part, T, S[groups[b]])


@inline_kernel
def _pack_block(rows, own, size, sign, offset, ends, panels, packed):
    """Pack some rows; return the number of packed bytes of a row.

    Their places in a row, and their sums over the rows where products need them, go to arrays of
    `packed`, whose last entry is where the panels start. `ends` is scratch space for three rows.
    """
    places, totals, start = packed
    n_bytes = rows.shape[1]
    lowest, origin, differs = ends[:n_bytes], ends[n_bytes : 2 * n_bytes], ends[2 * n_bytes :]
    for f in range(n_bytes):
        part = f & (size - 1)
        lowest[f] = sign if part == size - 1 else 0
        origin[f] = lowest[f] ^ (offset >> 8 * part & 255)
        differs[f] = offset >> 8 * size != 0  # no value of the type equals the origin
        totals[f] = 0
    for r in own:
        row = rows[np.uint64(r)]
        for f in range(n_bytes):
            differs[f] |= row[f] ^ origin[f]
        if LOWERED or offset:
            for f in range(n_bytes):
                totals[f] += row[f] ^ lowest[f]
    active = 0
    for f in range(0, n_bytes, size):
        if differs[f] | differs[f + size - 1]:
            for g in range(f, f + size):
                places[active], totals[active] = g, totals[g]
                active += 1
    n_panels, n = (active + WIDTH - 1) // WIDTH, own.shape[0]
    for c in range(active, n_panels * WIDTH):
        places[c] = 0
    entries = (n + TOGETHER - 1) // TOGETHER
    for q in range(entries * TOGETHER):
        row = rows[np.uint64(own[q])] if q < n else lowest
        line = start + q // TOGETHER * LINE + q % TOGETHER
        for p in range(n_panels):
            for c in range(WIDTH):
                f = np.uint64(places[p * WIDTH + c])
                panels[np.uint64(line + c * TOGETHER)] = row[f] ^ lowest[f]
            line += entries * LINE
    return active


@inline_kernel
def _add_product(panels, packed, active, n, size, offset, part, T, scatter):
    """Add the product of a packed block with itself to some rows of a scatter's lower triangle."""
    places, totals, start = packed
    low = 255 if size == 2 else -1  # the highest digit of the offset has no limit
    entries = (n + TOGETHER - 1) // TOGETHER
    step = entries * TOGETHER  # parts of a column
    top, bottom = 0, 0
    for c in range(active):
        top += places[c] < size * part[0]
        bottom += places[c] < size * part[1]
    for i in range(top // WIDTH * WIDTH, bottom, WIDTH):
        for j in range(0, i + 1, WIDTH):
            _multiply_panels(panels, start + i * step, start + j * step, entries, T)
            for c in range(max(i, top), min(i + WIDTH, bottom)):
                products, f, width = T[(c - i) * WIDTH :], places[c], min(WIDTH, c + 1 - j)
                lowered = LOWERED * np.int64(totals[c])
                if size == 1 and offset == 0:
                    out = scatter[f]
                    for b in range(width):
                        out[np.uint64(places[j + b])] += products[b] + lowered
                    continue
                out = scatter[f // size]
                high = f & (size - 1)
                digit = offset >> 8 if high else offset & low
                for b in range(width):
                    g = places[j + b]
                    other_high = g & (size - 1)
                    other = offset >> 8 if other_high else offset & low
                    value = products[b] + lowered - other * np.int64(totals[c])
                    value -= digit * (totals[j + b] - n * other)
                    value <<= 8 * (high + other_high)
                    if g // size == f // size and g != f:
                        value *= 2  # both bytes of a feature: the other product is above
                    out[g // size] += value


@inline_kernel
def _multiply_panels(panels, left, right, entries, T):
    """Write the products of the columns of two panels."""
    for a in range(WIDTH * WIDTH):
        T[a] = 0
    for entry in range(0, entries, DEPTH):
        k = entry * LINE
        depth = min(DEPTH, entries - entry)
        for column in range(0, WIDTH, COLUMNS):
            for row in range(0, WIDTH, ROWS):
                multiply_tile(panels, left + k, right + k, depth, row, column, T)
