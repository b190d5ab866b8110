"""From rows to centred sums in one call, in blocks of rows that stay in a cache."""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import (
    fast_kernel,
    inline_kernel,
    kernel,
    shared_kernel,
)
from streamgda.kernels.products import FEW_ROWS, add_few, add_gram, empty_rows
from streamgda.kernels.sums import scalar_two_sum
from streamgda.kernels.vectors import (
    LANES,
    as_structures,
    broadcast,
    clear,
    empty_vectors,
    fused_multiply_add,
    padded_width,
    take_rows,
    vector_at,
)

# Number of rows whose products, of 16-bit integers, are summed exactly in float64.
EXACT_ROWS = 1 << 19

_PARTS = 4  # sums of squares to which successive rows are added, if many are of one class
_CLASS_ROWS = 8  # that take as long to add as the sums of their class in a block
_SAMPLE = 256  # successive rows of a block that are looked at for that
# Rotations of a vector by which all pairs of its lanes meet.
N_ROTATIONS = LANES // 2 + 1


def _adding(n_sums, begin):
    """Return the type and the code of a function that adds rows to sums of their classes."""

    def add(typing, X, order, codes, weights, first, last, n_parts, vectors, sums):
        index = types.intp

        def generate(context, builder, signature, arguments):
            *block, n_parts, vectors, sums = as_structures(context, builder, signature, arguments)
            _, n_pivots, width = cgutils.unpack_tuple(builder, vectors.shape)
            size, one = builder.mul(width, width.type(n_sums)), width.type(1)
            n_classes = builder.udiv(sums.nitems, builder.mul(n_parts, size))
            step = builder.select(builder.icmp_signed(">", n_pivots, one), width, width.type(0))
            others = vectors.data, step, sums.data, n_parts, n_classes, size
            take_rows(context, builder, X.dtype, block, others, begin)
            return context.get_dummy_value()

        kinds = X, order, codes, weights, index, index, index, vectors, sums
        return types.void(*kinds), generate

    return add


def _add_row_squares(builder, r, k, w, _, pivots, step, sums, n_parts, n_classes, size):
    """Return what adds vectors of a row to the sums of its class."""
    pivot, own, w = _places(builder, r, k, w, pivots, step, sums, n_parts, n_classes, size)
    squares = builder.gep(own, [builder.udiv(size, size.type(2))])

    def add(at, values):
        about, total, square = (
            vector_at(builder, builder.gep(start, [at]), 0, w.type)
            for start in (pivot, own, squares)
        )
        t = builder.fsub(values, builder.load(about, align=8))
        weighted = builder.fmul(w, t)
        sum_ = builder.fadd(builder.load(total, align=8), weighted)
        square_sum = fused_multiply_add(builder, weighted, t, builder.load(square, align=8))
        builder.store(sum_, total, align=8)
        builder.store(square_sum, square, align=8)

    return add, None


def _add_row_products(builder, r, k, w, _, pivots, step, sums, n_parts, n_classes, size):
    """Return what adds a row, which is one vector, to the sums of its class."""
    pivot, own, w = _places(builder, r, k, w, pivots, step, sums, n_parts, n_classes, size)
    numbers = ir.VectorType(ir.IntType(32), LANES)

    def add(_, values):
        t = builder.fsub(values, builder.load(vector_at(builder, pivot, 0, w.type), align=8))
        place = vector_at(builder, own, 0, w.type)
        builder.store(builder.fadd(builder.load(place, align=8), t), place, align=8)
        for i in range(N_ROTATIONS):
            lanes = ir.Constant(numbers, [numbers.element((j + i) % LANES) for j in range(LANES)])
            rotated = builder.shuffle_vector(t, t, lanes)
            place = vector_at(builder, own, 1 + i, w.type)
            total = fused_multiply_add(builder, t, rotated, builder.load(place, align=8))
            builder.store(total, place, align=8)

    return add, None


def _places(builder, r, k, w, pivots, step, sums, n_parts, n_classes, size):
    """Return the places of the pivot and of the sums of a row's class, and a vector of `w`."""
    part = builder.and_(r, builder.sub(n_parts, size.type(1)))
    number = builder.add(builder.mul(part, n_classes), k)
    pivot = builder.gep(pivots, [builder.mul(k, step)])
    own = builder.gep(sums, [builder.mul(number, size)])
    return pivot, own, broadcast(builder, w, ir.VectorType(ir.DoubleType(), LANES))


# Add ``w t`` to ``sums[p, k, 0]`` and ``w t^2`` to ``sums[p, k, 1]``, t being x - vectors[0, k].
#
# Rows from `first` to `last` are added, at least one, in an order (see `take_rows`); k is the class
# of a row, and w its weight. Successive rows are added to `n_parts` different sums p, a power of
# two, so that those of one class do not wait for each other. A single pivot is that of all classes.
# The arrays but for the rows have rows of whole vectors (`padded_width`), with zeros beyond the
# last feature. The loop is written in LLVM's vector types, as a compiler would check in each row
# how many vectors there are.
add_class_squares = intrinsic(_adding(2, _add_row_squares))

# The same with products of pairs of up to `LANES` features: that of t and of t rotated by i lanes
# goes to ``sums[p, k, 1 + i]``. The sums are a flat array. Weights are empty.
add_class_products = intrinsic(_adding(1 + N_ROTATIONS, _add_row_products))


@inline_kernel
def parts_for(codes, first, last):
    """Return the number of sums of each class to which successive rows of a block are added."""
    sample, repeated = min(_SAMPLE, last - first), 0
    for r in range(first + 1, first + sample):
        repeated += codes[r] == codes[r - 1]
    return 1 + (_PARTS - 1) * (4 * repeated > sample)


@inline_kernel
def sum_weights(codes, weights, first, last, totals):
    """Write the sums of the weights of each class's rows from `first` to `last`."""
    n_classes = totals.shape[0]
    parts = empty_vectors((_PARTS, n_classes))
    clear(parts, 0, parts.size)
    for r in range(first, last):
        w = weights[r] if weights.shape[0] > 0 else 1.0
        parts[r & (_PARTS - 1), np.uint64(codes[r])] += w
    for k in range(n_classes):
        totals[k] = (parts[0, k] + parts[1, k]) + (parts[2, k] + parts[3, k])


@inline_kernel
def clear_sums(sums, n_parts, size, totals):
    """Write zeros to sums of the classes that a block has: for each class `size` numbers a part."""
    for k in range(totals.shape[0]):
        for p in range(n_parts if totals[k] > 0 else 0):
            at = (p * totals.shape[0] + k) * size
            clear(sums, at, at + size)


@inline_kernel
def begin_block(X, order, codes, weights, first, last, count, mean, numbers, totals, vectors):
    """Write the weights of the classes of a block, twice, and pivots to ``vectors[0]``.

    The pivot of a class is its mean so far, or else its first row. Only those of classes that the
    block has are written: a few rows take no time for all others.
    """
    n, codes, width = last - first, codes[first:last], vectors.shape[2]
    sum_weights(codes, weights[first:last], 0, n, numbers)
    left, r = 0, 0
    for k in range(numbers.shape[0]):
        totals[k] = 0.0
        if count[k] > 0:
            totals[k] = numbers[k]
        left += numbers[k] > totals[k]
        if numbers[k] > 0:
            clear(vectors, (k + 1) * width - LANES, (k + 1) * width)
            for j in range(mean.shape[1]):
                vectors[0, k, j] = mean[k, j]
    while left > 0:
        k = np.uint64(codes[r])  # unsigned: no check for negative indices
        if numbers[k] > totals[k]:
            totals[k] = numbers[k]
            left -= 1
            row = order[first + r] if order.shape[0] > 0 else first + r
            for j in range(mean.shape[1]):
                vectors[0, k, j] = X[row, j]
        r += 1


@kernel
def add_centred(X, codes, weights, block_rows, limit, count, squares, mean, mean_low, scatter):
    """Add rows to counts, means and scatter matrices; return False if not all are finite.

    Each block is read twice, for its class means and for its scatter about them. The first block
    with a sum that is not finite, or with values or weights beyond `limit`, ends the call, and is
    not added. If `limit` is `LARGE`, squares cannot overflow. `squares` are the sums of the squared
    weights, or empty.

    This is one long function because each that a kernel calls takes long to compile.
    """
    n_classes, d = mean.shape
    shared = n_classes // scatter.shape[0]  # number of classes that share a scatter
    numbers, vectors = np.empty(n_classes), np.empty((3, n_classes, d))
    rows = empty_rows(X.shape[0], d, n_classes)
    starts, order = np.empty(n_classes, np.intp), np.empty(min(block_rows, X.shape[0]), np.intp)
    width = d if rows.shape[0] > FEW_ROWS else 0
    magnitude, features, product = np.empty(d), np.empty(d, np.intp), np.empty((width, width))
    for first in range(0, X.shape[0], block_rows):
        last = min(first + block_rows, X.shape[0])
        if not merge_block(
            X, codes, weights, first, last, limit, count, squares, mean, mean_low, numbers, vectors,
            starts,
        ):  # fmt: skip
            return False
        at = 0
        for k in range(n_classes):
            at += starts[k]
            starts[k] = at - starts[k]
        for r in range(first, last):
            k = np.uint64(codes[r])
            order[starts[k]] = r
            starts[k] += 1  # in the end, one past the last row of the class
        for g in range(scatter.shape[0]):
            k, last_class = g * shared, (g + 1) * shared
            q, stop = starts[k - 1] if k > 0 else 0, starts[last_class - 1]
            while q < stop or k < last_class:
                n = 0
                for j in range(d):
                    magnitude[j] = 0.0
                while n < rows.shape[0] and q < stop:
                    r = np.uint64(order[q])  # unsigned: no check for negative indices
                    c = np.uint64(codes[r])
                    root = np.sqrt(weights[r]) if weights.shape[0] > 0 else 1.0
                    for j in range(d):
                        value = root * ((X[r, j] - vectors[0, c, j]) - vectors[1, c, j])
                        rows[n, j] = value
                        magnitude[j] += abs(value)
                    n += 1
                    q += 1
                while q == stop and n < rows.shape[0] and k < last_class:
                    for j in range(d if numbers[k] > 0 else 0):
                        rows[n, j] = np.sqrt(numbers[k]) * vectors[2, k, j]
                        magnitude[j] += abs(rows[n, j])
                    n += numbers[k] > 0
                    k += 1
                if n > FEW_ROWS:
                    add_gram(rows, n, magnitude, features, product, scatter[g])
                elif n > 0:
                    add_few(rows, n, scatter[g])
    return True


@kernel
def add_centred_squares(
    X, order, codes, weights, block_rows, limit, count, squares, mean, mean_low, scatter
):
    """Add rows as `add_centred` does, to sums of squares of each group of classes.

    Each block is read once, in an order (see `take_rows`), for sums and squares about pivots, from
    which the squares of the means are subtracted. If the subtraction leaves too few digits, the
    block is read a second time, with its means as pivots.
    """
    n_classes, d = mean.shape
    shared, width = n_classes // scatter.shape[0], padded_width(d)
    numbers, totals = empty_vectors(n_classes), empty_vectors(n_classes)
    vectors, sums = empty_vectors((3, n_classes, width)), empty_vectors((n_classes, width))
    parts = empty_vectors((_PARTS, n_classes, 2, width))
    for first in range(0, codes.shape[0], block_rows):
        last = min(first + block_rows, codes.shape[0])
        n_parts = parts_for(codes, first, last)
        begin_block(X, order, codes, weights, first, last, count, mean, numbers, totals, vectors)
        for times in range(2):
            clear_sums(parts, n_parts, 2 * width, totals)
            add_class_squares(X, order, codes, weights, first, last, n_parts, vectors, parts)
            again, within = False, True
            for k in range(n_classes):
                if totals[k] > 0:
                    inverse = 1.0 / np.sqrt(totals[k])
                    share = totals[k] / (totals[k] + count[k])
                    for j in range(d):
                        total, square = parts[0, k, 0, j], parts[0, k, 1, j]
                        for p in range(1, n_parts):
                            total += parts[p, k, 0, j]
                            square += parts[p, k, 1, j]
                        vectors[1, k, j] = total
                        total *= inverse  # its square may not overflow
                        sums[k, j] = square - total * total
                        within &= square <= limit * limit
                        # If the pivot is a mean, most of this is added again for its distance.
                        again |= square - share * (total * total) < square / 64
            if times == 0:
                if not (within and merge_sums(limit, count, mean, mean_low, numbers, vectors)):
                    return False
                add_squared_weights(codes, weights, first, last, squares)
            if not again:
                break
        for k in range(n_classes):
            if totals[k] > 0:
                g = k // shared
                for j in range(d):
                    gap = vectors[2, k, j]
                    scatter[g, j] += sums[k, j] + numbers[k] * (gap * gap)
    return True


@kernel
def add_exact_squares(X, order, codes, count, total, squares):
    """Add rows of integers, in an order (see `take_rows`), to counts, sums and sums of squares.

    Those of a block are summed in float64, where they are exact, and then added. Only memory of
    classes that it has is touched. Few rows of many classes are added where the sums are.
    """
    n_classes, d = total.shape
    shared, width = n_classes // squares.shape[0], padded_width(d)
    if codes.shape[0] < _CLASS_ROWS * n_classes:
        for r in range(codes.shape[0]):
            row, k = order[r] if order.shape[0] > 0 else r, codes[r]
            count[k] += 1
            for j in range(d):
                value = np.int64(X[row, j])
                total[k, j] += value
                squares[k // shared, j] += value * value
        return
    numbers, weights = empty_vectors(n_classes), empty_vectors(0)
    vectors = empty_vectors((1, 1, width))
    clear(vectors, 0, width)
    for first in range(0, codes.shape[0], EXACT_ROWS):
        last = min(first + EXACT_ROWS, codes.shape[0])
        n_parts = parts_for(codes, first, last)
        parts = empty_vectors((n_parts, n_classes, 2, width))
        sum_weights(codes, weights, first, last, numbers)
        clear_sums(parts, n_parts, 2 * width, numbers)
        add_class_squares(X, order, codes, weights, first, last, n_parts, vectors, parts)
        for k in range(n_classes):
            if numbers[k] > 0:
                count[k] += np.int64(numbers[k])
                for p in range(n_parts):
                    for j in range(d):
                        total[k, j] += np.int64(parts[p, k, 0, j])
                        squares[k // shared, j] += np.int64(parts[p, k, 1, j])


@inline_kernel
def merge_block(
    X, codes, weights, first, last, limit, count, squares, mean, mean_low, numbers, vectors, starts
):
    """Merge counts and means with those of a block, by `merge_means`' formula.

    The rows from `first` to `last` are summed about the class's mean so far, or its first row if it
    had none. About either, the mean of a constant feature is exactly its value.

    Two parts of the block's class means go to ``vectors[0]`` and ``vectors[1]``, their distances
    from the means so far to ``vectors[2]``, with weights in `numbers`, and the numbers of rows to
    `starts`. Return False, and change nothing else, if a sum is not finite, or a value or a weight
    beyond `limit`.
    """
    n_classes, d = mean.shape
    beyond = False
    for k in range(n_classes):
        numbers[k] = 0.0
        starts[k] = 0
    for r in range(first, last):
        k = np.uint64(codes[r])
        w = weights[r] if weights.shape[0] > 0 else 1.0
        if starts[k] == 0:
            for j in range(d):
                vectors[0, k, j] = mean[k, j] if count[k] > 0 else X[r, j]
                vectors[1, k, j] = 0.0
        starts[k] += 1
        numbers[k] += w
        for j in range(d):
            t = X[r, j] - vectors[0, k, j]
            vectors[1, k, j] += w * t
            beyond |= abs(t) + abs(w * t) > limit
    if beyond or not merge_sums(limit, count, mean, mean_low, numbers, vectors):
        return False
    add_squared_weights(codes, weights, first, last, squares)
    return True


@inline_kernel
def merge_sums(limit, count, mean, mean_low, numbers, vectors):
    """Merge counts and means with those of sums of rows, ``vectors[1]``, about ``vectors[0]``.

    A class with rows has been summed about its mean. See `merge_block` for what becomes of the
    arguments, and what is returned.
    """
    n_classes, d = mean.shape
    within = True
    for k in range(n_classes):
        n = numbers[k]
        within &= count[k] + n < limit  # which NaN is not
        if n > 0:
            for j in range(d):
                reach = abs(vectors[1, k, j] / n) + abs(vectors[0, k, j])
                within &= reach < limit
                within &= n * reach * reach <= limit * limit
    for k in range(n_classes if within else 0):
        n, before = numbers[k], count[k]
        if n > 0:
            share = min(n, before) / (before + n)
            numbers[k] = max(n, before) * share
            for j in range(d):
                pivot, part = vectors[0, k, j], vectors[1, k, j] / n
                gap = part - mean_low[k, j]
                low = part - gap * share if n > before else mean_low[k, j] + gap * share
                mean[k, j], mean_low[k, j] = scalar_two_sum(pivot, low)
                vectors[0, k, j], vectors[1, k, j] = scalar_two_sum(pivot, part)
                vectors[2, k, j] = gap
            count[k] = before + n
    return within


@inline_kernel
def add_squared_weights(codes, weights, first, last, squares):
    """Add the squared weight of each row to that of its class, unless `squares` is empty."""
    if squares.shape[0] > 0:
        for r in range(first, last):
            w = weights[r] if weights.shape[0] > 0 else 1.0
            squares[codes[r]] += w * w


@inline_kernel
def group_of_class(n_classes, n_groups):
    """Return the index of each class's scatter, which as many successive classes share."""
    group = np.empty(n_classes, np.intp)
    for k in range(n_classes):
        group[k] = k // (n_classes // n_groups)
    return group


@shared_kernel
def means_of_sums(limit, number, pivot, sums):
    """Turn sums about pivots into means in two parts, `pivot` + `sums`, for classes with rows.

    Return False, with the work half done, if a sum is not finite or beyond `limit`.
    """
    for k in range(number.shape[0]):
        n = number[k]
        if not n > 0:
            continue
        for j in range(pivot.shape[1]):
            gap = sums[k, j] / n
            reach = abs(gap) + abs(pivot[k, j])
            # NaN is not less.
            if not (reach < limit and n * reach * reach <= limit * limit):
                return False
            pivot[k, j], sums[k, j] = scalar_two_sum(pivot[k, j], gap)
    return True


@fast_kernel
def add_norms(X, codes, weights, mean, mean_low, inverse, norms):
    """Add ``w |t|^2 t`` and then ``w |t|^4`` to the class's row of `norms`, of d + 1 entries.

    t is the row minus its class mean, which is ``mean + mean_low``, times `inverse`.
    """
    d = X.shape[1]
    centred = np.empty(d)
    for r in range(X.shape[0]):
        k = np.uint64(codes[r])
        square = 0.0
        for j in range(d):
            t = (X[r, j] - mean[k, j] - mean_low[k, j]) * inverse[k, j]
            centred[j] = t
            square += t * t
        weighted = square * weights[r] if weights.shape[0] > 0 else square
        for j in range(d):
            norms[k, j] += weighted * centred[j]
        norms[k, d] += weighted * square
