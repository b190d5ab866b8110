"""Exact sums and products of integers: rows are packed into panels of bytes, and multiplied.

The kernels read rows as bytes, shape ``(n_rows, n_features * size)``, and so are compiled once for
integers of any size and sign. The *bytes* of a value, lowest first, count as unsigned digits of its
distance from the lowest value of its type: `sign` is exclusive-ored with the highest byte, and is
128 for signed types. The digits of zero are zeros, but for that one.

A block of rows of one group becomes panels. They hold only the bytes that are not zero in some row
of the block, so that border pixels of images, sparse counts and small values in a large type cost
no multiplication. The digits of zero are subtracted from the sums of products, not from the values:
``sum (u - o)(v - p) = sum u v - p sum u - o sum (v - p)``.

A panel holds `WIDTH` bytes of a row. Each of its entries is a line of int32 words, one a byte, that
hold the bytes of `TOGETHER` rows side by side: two as 16-bit integers for ``pmaddwd`` and
``vpdpwssd``, or four for ``vpdpbusd``. Tiles read them as flat arrays of these parts, `PART`.
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

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel, kernel
from streamgda.kernels.sums import WORD, row_start
from streamgda.kernels.vectors import (
    SHAPE,
    as_structures,
    broadcast,
    function_of,
    repeated,
    vector_at,
)

ROWS, COLUMNS, TOGETHER = SHAPE.rows, SHAPE.columns, SHAPE.together
WIDTH = SHAPE.panel_width
PART = SHAPE.part
LINE = WIDTH * TOGETHER  # Parts of an entry.

# Entries that are multiplied at a time: those of two panels stay in the first cache.
DEPTH = max(16, 2048 // WIDTH)

# ``vpdpbusd`` multiplies unsigned with signed bytes. The left ones are made signed by subtracting
# this from them, so that this times the sum of the right ones is missing from the products.
LOWERED = 128 if TOGETHER == 4 else 0

# Rows that are multiplied before their products, up to 255^2, are added to a scatter from an int32.
PACKED_ROWS = 1024

# Products of remainders below this are exact in float64, in which vectors of them are divided.
_FLOAT_ROWS = 1 << 26
_TO_WHOLE = 1.5 * 2.0**52  # Adding and subtracting it rounds to the nearest integer.

_WORD = ir.IntType(32)


def tile_function(shape):
    """Return the function that multiplies a tile, for a shape of tiles."""
    width, together = shape.panel_width, shape.together

    def generate(context, builder, signature, arguments):
        lowered, left, panels, right, depth, row, column, T = arguments
        lowered, panels, T = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 7)
        )
        function = _generated_tile(builder.module, shape)
        words = [
            builder.bitcast(
                builder.gep(panel.data, [builder.add(first, builder.mul(own, own.type(together)))]),
                _WORD.as_pointer(),
            )
            for panel, first, own in ((lowered, left, row), (panels, right, column))
        ]
        sums = builder.gep(T.data, [builder.add(builder.mul(row, row.type(width)), column)])
        builder.call(function, [*words, depth, sums])
        return context.get_dummy_value()

    @intrinsic
    def multiply(typing, lowered, left, panels, right, depth, row, column, T):
        """Add to ``T[a * WIDTH + b]`` the sums of ``A[k, a] * B[k, b]``, where A has signs.

        That is for ``k < depth``, where A and B are the parts of panels that start at
        ``lowered[left]`` and ``panels[right]``. The tile is that whose first sum is that of `row`
        and `column`.
        """
        index = types.intp
        return types.void(lowered, index, panels, index, index, index, index, T), generate

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
            results = []
            # There are few registers, so one factor is loaded at a time.
            for row in range(shape.rows):
                word = builder.load(builder.gep(left_words, [index(row)]), align=4)
                factor, first = broadcast(builder, word, vector), row * shape.vectors
                own = zip(operands, totals[first : first + shape.vectors], strict=True)
                results += [add_products(builder, operand, factor, sum_) for operand, sum_ in own]
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


@intrinsic
def copy_word(typing, source, at, target, to):
    """Copy `WORD` bytes from position `at` of an array of bytes to position `to` of another."""

    def generate(context, builder, signature, arguments):
        source, at, target, to = as_structures(context, builder, signature, arguments)
        places = (
            builder.bitcast(builder.gep(array.data, [place]), ir.IntType(64).as_pointer())
            for array, place in ((source, at), (target, to))
        )
        start, end = places
        builder.store(builder.load(start, align=1), end, align=1)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), generate


@kernel
def add_bytes(rows, order, codes, base, size, sign, count, total, scatter):
    """Add the rows ``rows[order]``, which are in the order of their classes.

    They are added to the counts and sums of their classes, and to the products of their groups.
    `base` is subtracted from their codes.
    """
    n, pooled = order.shape[0], scatter.shape[0] < count.shape[0]
    entries = (min(n, PACKED_ROWS) + TOGETHER - 1) // TOGETHER
    columns = (rows.shape[1] + WIDTH - 1) // WIDTH * WIDTH
    places, totals = np.empty(columns, np.intp), np.empty(columns, np.int32)
    words, P = np.empty(entries * columns, np.int32), np.empty(columns * WIDTH, np.int32)
    first = end = 0
    while first < n:
        code = codes[order[first]]
        g = 0 if pooled else code - base
        while end < n and (pooled or codes[order[end]] == code):
            end += 1
        pieces = (end - first + PACKED_ROWS - 1) // PACKED_ROWS
        own = order[first : first + (end - first) // pieces]
        active = pack_block(rows, own, size, sign, words, places, totals)
        add_totals(rows, codes, own, base, places, totals, active, size, sign, count, total)
        for i in range((active + WIDTH - 1) // WIDTH):
            multiply_panels(words, own.shape[0], i, P)
            add_tiles(P, i, places, totals, active, own.shape[0], size, sign, scatter[g])
        first += own.shape[0]


@kernel
def add_squares_exact(X, order, codes, base, count, total, square):
    """Add the rows ``X[order]`` to the counts, sums and sums of squares of their classes."""
    d, pooled = np.uint64(X.shape[1]), square.shape[0] < count.shape[0]
    flat, sums, squares = X.reshape(X.size), total.reshape(total.size), square.reshape(square.size)
    for q in range(order.shape[0]):
        r = np.uint64(order[np.uint64(q)])
        k = np.uint64(codes[r] - base)
        row, own, other = r * d, k * d, np.uint64(0) if pooled else k * d
        count[k] += 1
        for j in range(d):
            x = np.int64(flat[row + j])
            sums[own + j] += x
            squares[other + j] += x * x


@kernel
def add_totals(rows, codes, own, base, places, totals, active, size, sign, count, total):
    """Add at most ``2**15`` rows, in the order of classes, to the counts and sums of these.

    The sums of all, of those of a single class, are known, see `pack_block`.
    """
    d, k, high = total.shape[1], codes[own[0]], np.uint64(size - 1)
    if codes[own[-1]] == k:
        k -= base
        count[k] += own.shape[0]
        for c in range(active):
            f = np.uint64(places[c])
            place = np.int64(f & high)
            zero = np.int64(sign) * own.shape[0] if place == high else 0
            total[k, f >> high] += totals[c] - zero << 8 * place
        return
    sums, held = np.zeros(d, np.int32), 0
    zero = np.int64(sign) << 8 * (size - 1)
    for q in range(own.shape[0]):
        r = np.uint64(own[q])
        row = rows[r]
        held += 1
        if size == 1:
            for j in range(d):
                sums[j] += row[j] ^ sign
        else:
            for j in range(d):
                sums[j] += row[2 * j] | np.int32(row[2 * j + 1] ^ sign) << 8
        k = codes[r]
        if q + 1 == own.shape[0] or codes[own[q + 1]] != k:
            count[k - base] += held
            for j in range(d):
                total[k - base, j] += sums[j] - held * zero
                sums[j] = 0
            held = 0


@kernel
def pack_block(rows, own, size, sign, words, places, totals):
    """Pack some rows into panels of words; return the number of packed bytes of a row.

    Their places in a row go to `places`, and their sums over the rows to `totals`. Bytes are copied
    in words, each of which starts with one that is packed: a later word overwrites those of an
    earlier one that are not.
    """
    n_bytes, n = rows.shape[1], own.shape[0]
    line = (n_bytes + WIDTH - 1) // WIDTH * WIDTH + WORD
    space = np.empty(2 * n_bytes, np.intp)
    sources, targets = space[:n_bytes], space[n_bytes : 2 * n_bytes]
    held = np.zeros((2 + 2 * TOGETHER) * line, np.uint8)
    lowest, differs = held[:line], held[line : 2 * line]
    raw, lines = held[2 * line : (2 + TOGETHER) * line], held[(2 + TOGETHER) * line :]
    for f in range(n_bytes):
        lowest[f] = sign if f & (size - 1) == size - 1 else 0
    for q in range(0, n, 4):  # Four rows, which often lie far apart, are read at a time.
        a = rows[np.uint64(own[q])]
        b = rows[np.uint64(own[min(q + 1, n - 1)])]
        c = rows[np.uint64(own[min(q + 2, n - 1)])]
        d = rows[np.uint64(own[min(q + 3, n - 1)])]
        for f in range(n_bytes):
            differs[f] |= a[f] | b[f] | c[f] | d[f]
    active, n_words, f = 0, 0, 0
    while f < n_bytes:
        if not differs[f]:
            f += 1
            continue
        sources[n_words], targets[n_words] = f, active
        n_words += 1
        end = min(f + WORD, n_bytes)
        while f < end and differs[f]:
            places[active] = f
            active += 1
            f += 1
    n_panels, entries = (active + WIDTH - 1) // WIDTH, (n + TOGETHER - 1) // TOGETHER
    for c in range(n_panels * WIDTH):
        totals[c] = 0
    panels = words.view(PART)
    for entry in range(entries):
        for t in range(TOGETHER):
            q = entry * TOGETHER + t
            row = raw[t * line :]
            if q < n:
                values = rows[np.uint64(own[q])]
                for f in range(n_bytes):
                    row[f] = values[f] ^ lowest[f]
            else:
                for f in range(n_bytes):
                    row[f] = 0
        for w in range(n_words):
            source, target = sources[w], targets[w]
            for t in range(TOGETHER):
                copy_word(raw, t * line + source, lines, t * line + target)
        for p in range(n_panels):
            at = (p * entries + entry) * LINE
            out = panels[at : at + LINE]
            sums = totals[p * WIDTH : (p + 1) * WIDTH]
            part = lines[p * WIDTH :]
            for c in range(WIDTH):
                total = np.int32(0)
                for t in range(TOGETHER):  # Unsigned indices need no check.
                    value = part[np.uint64(t * line + c)]
                    out[TOGETHER * c + t] = value
                    total = np.int32(total + value)
                sums[c] += total
    return active


@kernel
def multiply_panels(words, n, i, P):
    """Write the products of panel i of `n` rows with those up to it to successive tiles of `P`.

    A tile has ``WIDTH ** 2`` sums.
    """
    panels = words.view(PART)
    entries = (n + TOGETHER - 1) // TOGETHER
    lowered, panel = np.empty(entries * LINE, PART), panels[i * entries * LINE :]
    for at in range(entries * LINE):
        lowered[at] = panel[at] ^ LOWERED
    for j in range(i + 1):
        T = P[j * WIDTH * WIDTH : (j + 1) * WIDTH * WIDTH]
        for a in range(WIDTH * WIDTH):
            T[a] = 0
        right = j * entries * LINE
        for entry in range(0, entries, DEPTH):
            k, depth = entry * LINE, min(DEPTH, entries - entry)
            for column in range(0, WIDTH, COLUMNS):
                for row in range(0, WIDTH, ROWS):
                    multiply_tile(lowered, k, panels, right + k, depth, row, column, T)


@kernel
def add_tiles(P, i, places, totals, active, n, size, sign, S):
    """Add the products of panel i of `n` rows, see `multiply_panels`, to a lower triangle."""
    high = np.uint64(size - 1)
    digits = sign == 0  # Zeros have no digits; bytes alone are lowest digits.
    for c in range(active):
        digits &= places[c] & (size - 1) == 0
    for j in range(i + 1):
        T = P[j * WIDTH * WIDTH : (j + 1) * WIDTH * WIDTH]
        for c in range(i * WIDTH, min((i + 1) * WIDTH, active)):
            products, f = T[(c - i * WIDTH) * WIDTH :], np.uint64(places[c])
            width, out = min(WIDTH, c + 1 - j * WIDTH), S[row_start(f >> high) :]
            others = totals[j * WIDTH :]
            if digits:
                for b in range(width):
                    value = products[b] + LOWERED * np.int64(others[b])
                    out[np.uint64(places[j * WIDTH + b]) >> high] += value
                continue
            place, own = f & high, np.int64(totals[c])
            zero = np.int64(sign) if place == high else 0
            for b in range(width):
                g = np.uint64(places[j * WIDTH + b])
                other_place = g & high
                other = np.int64(sign) if other_place == high else 0
                value = products[b] + LOWERED * np.int64(others[b]) - other * own
                value -= zero * (others[b] - n * other)
                value <<= np.int64(8 * (place + other_place))
                if g >> high == f >> high and g != f:
                    value *= 2  # The product of both bytes of a feature stands above, too.
                out[g >> high] += value


@kernel
def add_entries(held, others, at, sign):
    """Add row b of integers to row ``at[b]`` of others, or subtract it."""
    for b in range(at.size):
        for j in range(held.shape[1]):
            held[at[b], j] += sign * others[b, j]


def nearest_quotient(product, n):
    """Return an integer quotient, rounded to the nearest."""
    quotient = product // n
    return quotient + (2 * (product - quotient * n) > n)


_nearest_quotient = inline_kernel(nearest_quotient)


@kernel
def centre_scatter(count, total, quotient, remainder, square, first, last, scatter):
    """Centre rows ``first:last`` of int64 triangles into those of the float64 `scatter`.

    As many successive classes make each group.
    """
    n_groups, d = scatter.shape[0], total.shape[1]
    shared = count.shape[0] // max(n_groups, 1)
    whole, part, taken = np.empty(d, np.int64), np.empty(d), np.empty(d)
    rest = remainder.astype(np.float64)
    for g in range(n_groups):
        classes = range(g * shared, (g + 1) * shared)
        for i in range(first, last):
            row = square[g, row_start(i) :]
            for j in range(i + 1):
                whole[j], part[j], taken[j] = row[j], 0.0, 0.0
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
            out = scatter[g, row_start(i) :]
            for j in range(i + 1):
                out[j] = (whole[j] - np.int64(taken[j])) - part[j]
