"""Exact sums and products of integers: rows are packed into panels of bytes, and multiplied.

The kernels read rows as bytes, shape ``(n_rows, n_features * size)``, and so are compiled once for
integers of any size and sign. The *bytes* of a value, lowest first, count as unsigned digits of its
distance from the lowest value of its type: `sign` is exclusive-ored with the highest byte, and is
128 for signed types. `offset` is the distance of the origin from the lowest value.

A block of rows of one group becomes panels. They hold only the features that differ from the origin
in some row of the block, so that border pixels of images and sparse counts cost no multiplication.
The digits of the origin are subtracted from the sums of products, not from the values:
``sum (u - o)(v - p) = sum u v - p sum u - o sum (v - p)``.

A panel holds `WIDTH` features. Each of its entries is a line of int32 words, one a feature, that
hold the bytes of `TOGETHER` rows side by side: two as 16-bit integers for ``pmaddwd`` and
``vpdpwssd``, or four for ``vpdpbusd``. Panels are flat arrays of the type of those bytes, `PART`.
`multiply_tile` multiplies a few columns of one panel with some of another, in a small tile of sums
that stay in vector registers. It is written in LLVM's vector types, because no compiler keeps such
a block of sums in registers when it is written as scalar loops.

Centred float64 moments follow with one final rounding. A sum s over n rows is written
``s = n m + r`` with an integer quotient m and ``0 <= r < n``. Then
``sum (x - s/n)(x - s/n)' = S - m s' - r m' - r r'/n``. Every term but the last fits in 64 bits
(the additions may wrap on the way, but their sum fits), and so does the product in the last one for
n < 2**31. The last term is split into the nearest integer and a fraction of at most one half, so
that the integers sum to zero or to something larger than the fraction.
"""

from functools import partial

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import inline_kernel, intrinsic_of, kernel
from streamgda.kernels.centred import group_of_class
from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import broadcast, function_of, repeated, vector_at

ROWS, COLUMNS, TOGETHER = SHAPE.rows, SHAPE.columns, SHAPE.together
WIDTH = SHAPE.panel_width
PART = SHAPE.part
LINE = WIDTH * TOGETHER  # parts of an entry

# Entries that are multiplied at a time: those of two panels stay in the first cache.
DEPTH = max(16, 2048 // WIDTH)

# ``vpdpbusd`` multiplies unsigned with signed bytes. The right ones are made signed by subtracting
# this from them, so that this times the sum of the left ones is missing from the products.
LOWERED = 128 if TOGETHER == 4 else 0

# Rows whose products, up to 255^2, an int32 can sum.
MOST_ROWS = (2**31 - 1) // 255**2

PACKED_ROWS = 1024  # rows that are multiplied before their products are added to a scatter

# Products of remainders below this are exact in float64, in which vectors of them are divided.
_FLOAT_ROWS = 1 << 26
_TO_WHOLE = 1.5 * 2.0**52  # added and subtracted again, it rounds to the nearest integer

_WORD = ir.IntType(32)


def plain_tile(shape, panels, left, right, depth, row, column, T):
    """Compute the tile of a shape with NumPy, as `tile_function` explains it."""
    width, together = shape.panel_width, shape.together

    def bytes_of(first, some):
        words = panels[first : first + depth * width * together]
        return words.reshape(depth, width, together)[:, some].astype(np.int32)

    rows, columns = slice(row, row + shape.rows), slice(column, column + shape.columns)
    lowered = 128 if together == 4 else 0
    T.reshape(width, width)[rows, columns] += np.einsum(
        "kat,kbt->ab", bytes_of(left, rows), bytes_of(right, columns) - lowered
    )


def tile_function(shape):
    """Return the function that multiplies a tile, for a shape of tiles."""
    width, together = shape.panel_width, shape.together

    def generate(context, builder, signature, arguments):
        panels, left, right, depth, row, column, T = arguments
        panels, T = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 6)
        )
        function = _generated_tile(builder.module, shape)
        words = [
            builder.bitcast(
                builder.gep(
                    panels.data, [builder.add(first, builder.mul(own, own.type(together)))]
                ),
                _WORD.as_pointer(),
            )
            for first, own in ((left, row), (right, column))
        ]
        sums = builder.gep(T.data, [builder.add(builder.mul(row, row.type(width)), column)])
        builder.call(function, [*words, depth, sums])
        return context.get_dummy_value()

    @intrinsic_of(partial(plain_tile, shape))
    def multiply(typing, panels, left, right, depth, row, column, T):
        """Add to ``T[a * WIDTH + b]`` the sums of ``A[k, a] * (B[k, b] - LOWERED)``.

        That is for ``k < depth``, where A and B are the parts of panels that start at
        ``panels[left]`` and ``panels[right]``. The tile is that whose first sum is that of `row`
        and `column`.
        """
        index = types.intp
        return types.void(panels, index, index, index, index, index, T), generate

    return multiply


def _generated_tile(module, shape):
    """Return the function (left, right, depth, sums) that adds to a tile of sums."""
    width, vector = shape.panel_width, ir.VectorType(_WORD, shape.vector_bytes // 4)
    index, pointer = ir.IntType(64), _WORD.as_pointer()
    places = [(row, v) for row in range(shape.rows) for v in range(shape.vectors)]
    add_products = _add_four_products(shape) if shape.together == 4 else _add_two_products

    def generate(builder, left, right, depth, sums):
        stored = [
            vector_at(builder, builder.gep(sums, [index(row * width)]), v, vector)
            for row, v in places
        ]

        def add(k, totals):
            at = builder.mul(k, index(width))
            left_words, right_words = builder.gep(left, [at]), builder.gep(right, [at])
            operands = [
                builder.load(vector_at(builder, right_words, v, vector), align=4)
                for v in range(shape.vectors)
            ]
            if shape.together == 4:  # less 128 each, as signed bytes
                top_bits = ir.Constant(vector, [_WORD(-0x7F7F7F80)] * vector.count)
                operands = [builder.xor(operand, top_bits) for operand in operands]
            results = []
            for row in range(shape.rows):  # one factor at a time, for there are few registers
                word = builder.load(builder.gep(left_words, [index(row)]), align=4)
                factor, first = broadcast(builder, word, vector), row * shape.vectors
                own = zip(operands, totals[first : first + shape.vectors], strict=True)
                results += [add_products(builder, factor, *pair) for pair in own]
            return results

        initial = [builder.load(place, align=4) for place in stored]
        for place, total in zip(stored, repeated(builder, depth, initial, add), strict=True):
            builder.store(total, place, align=4)

    kinds = [pointer, pointer, index, pointer]
    return function_of(module, f"multiply_tile_{shape.name}", kinds, generate)


def _add_two_products(builder, x, y, total):
    """Return ``total`` plus the products of the two int16 in each word of x and y."""
    # LLVM recognises ``pmaddwd`` and ``vpdpwssd`` in these instructions.
    return _add_parts(builder, x, y, total, ir.IntType(16), builder.sext)


def _add_four_products(shape):
    """Return what adds the products of four unsigned bytes with four signed ones.

    LLVM does not recognise ``vpdpbusd``, which is therefore called by its name where the processor
    has it.
    """

    def call(builder, x, y, total):
        vector = total.type
        dot = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * 3),
            f"llvm.x86.avx512.vpdpbusd.{8 * shape.vector_bytes}",
        )
        return builder.call(dot, [total, x, y])

    def plain(builder, x, y, total):
        return _add_parts(builder, x, y, total, ir.IntType(8), builder.zext)

    return call if shape.native else plain


def _add_parts(builder, x, y, total, part, extend):
    """Return ``total`` plus the products of all parts of each word of x and y.

    The parts of y are signed. `extend` makes words of those of x.
    """
    lanes, parts = total.type.count, _WORD.width // part.width
    narrow, wide = (ir.VectorType(element, parts * lanes) for element in (part, _WORD))
    x, y = (builder.bitcast(words, narrow) for words in (x, y))
    products = builder.mul(extend(x, wide), builder.sext(y, wide))
    undefined = ir.Constant(wide, ir.Undefined)
    added = None
    for first in range(parts):
        numbers = [_WORD(parts * lane + first) for lane in range(lanes)]
        chosen = ir.Constant(ir.VectorType(_WORD, lanes), numbers)
        some = builder.shuffle_vector(products, undefined, chosen)
        added = some if added is None else builder.add(added, some)
    return builder.add(total, added)


multiply_tile = tile_function(SHAPE)


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
    most = (min(most, PACKED_ROWS) + TOGETHER - 1) // TOGETHER
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
        pieces = max(1, (n + PACKED_ROWS - 1) // PACKED_ROWS)
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
def add_packed(panels, at, places, totals, active, n_rows, groups, size, offset, part, T, S):
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


@inline_kernel
def _nearest_quotient(product, n):
    quotient = product // n
    if 2 * (product - quotient * n) > n:
        quotient += 1
    return quotient


@kernel
def centre_scatter(count, total, quotient, remainder, square, features, first, last, scatter):
    """Centre the lower triangles of int64 `square` (groups, d, d) into float64 `scatter`.

    As many successive classes make each group. Only some features are centred, given
    in rising order, to which all arguments but `square` are limited already. Rows ``first:last`` of
    each triangle are written.
    """
    n_groups, d, _ = scatter.shape
    shared = count.shape[0] // max(n_groups, 1)
    whole, part, taken = np.empty(d, np.int64), np.empty(d), np.empty(d)
    rest = remainder.astype(np.float64)
    for g in range(n_groups):
        classes = range(g * shared, (g + 1) * shared)
        for i in range(first, last):
            for j in range(i + 1):
                whole[j], part[j], taken[j] = square[g, features[i], features[j]], 0.0, 0.0
            for k in classes:
                n = count[k]
                q, r, at = quotient[k, i], remainder[k, i], rest[k, i]
                if n == 0:
                    continue
                for j in range(i + 1):
                    whole[j] -= q * total[k, j] + r * quotient[k, j]
                if n < _FLOAT_ROWS:
                    size = float(n)
                    for j in range(i + 1):
                        product = at * rest[k, j]
                        nearest = (product / size + _TO_WHOLE) - _TO_WHOLE
                        taken[j] += nearest
                        part[j] += (product - nearest * size) / size
                else:
                    for j in range(i + 1):
                        product = r * remainder[k, j]
                        nearest = _nearest_quotient(product, n)
                        whole[j] -= nearest
                        part[j] += (product - nearest * n) / n
            for j in range(i + 1):
                scatter[g, i, j] = (whole[j] - np.int64(taken[j])) - part[j]


@kernel
def centre_squares(count, total, quotient, remainder, square, scatter):
    """Centre int64 `square` (groups, d) into float64 `scatter`, as `centre_scatter` does."""
    n_groups, d = square.shape
    shared = count.shape[0] // max(n_groups, 1)
    for g in range(n_groups):
        classes = range(g * shared, (g + 1) * shared)
        for j in range(d):
            whole = square[g, j]
            part = 0.0
            for k in classes:
                n = count[k]
                if n > 0:
                    product = remainder[k, j] * remainder[k, j]
                    nearest = _nearest_quotient(product, n)
                    whole -= (
                        quotient[k, j] * total[k, j] + remainder[k, j] * quotient[k, j] + nearest
                    )
                    part += (product - nearest * n) / n
            scatter[g, j] = whole - part
