"""Sums and products of narrow rows, which are gathered in buckets, one for each class.

If a whole row fits into a few vectors, packing rows into panels for BLAS takes longer than their
products. Rows are read once, in their order, and copied to the bucket of their class, less its
pivot. A full bucket is summed in vector registers, and only the totals are added to memory: the
products of all classes stay in a near cache. Rows of a single vector have so few products that
these are added to memory at once. Sums and products have rows of whole vectors (`padded_width`),
with zeros beyond the last feature. The loops are written in LLVM's vector types.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import inline_kernel, inner_kernel, intrinsic_of, kernel
from streamgda.kernels.centred import (
    N_ROTATIONS,
    add_class_products,
    add_squared_weights,
    merge_sums,
    parts_for,
    sum_weights,
)
from streamgda.kernels.sums import row_start
from streamgda.kernels.vectors import (
    LANES,
    as_structures,
    broadcast,
    empty_vectors,
    function_of,
    fused_multiply_add,
    padded_width,
    repeated,
    take_rows,
    vector_at,
)

BUCKET_FEATURES = 32 * LANES  # for more, BLAS is as fast

# Number of rows whose products, of 16-bit integers, are summed exactly in float64.
EXACT_NARROW_ROWS = 1 << 19

_SIDE_BY_SIDE = 3  # with one line for each lane, sums fill 32 registers of 8 lanes, or 16 of 4
_BUCKET_ROWS = 32  # a power of two
LEAST_BUCKET_ROWS = 16
_BUCKETS_BYTES = 1 << 16  # of all buckets, if these are not too small then


@inline_kernel
def empty_buckets(n_classes, width, n_rows):
    """Return buckets for that many rows: centred rows, the roots of their weights, and ends.

    The next row of class k goes to slot ``ends[k]`` of all buckets.
    """
    size = _BUCKET_ROWS
    while size > LEAST_BUCKET_ROWS and (
        size * width * n_classes * 8 > _BUCKETS_BYTES or size >= 2 * n_rows
    ):
        size //= 2
    rows = empty_vectors(n_classes * size * width).reshape((n_classes, size, width))
    roots = np.empty((n_classes, size))
    ends = np.empty(n_classes, np.intp)
    for k in range(n_classes):
        ends[k] = k * size
        for slot in range(size):
            roots[k, slot] = 1.0
    return rows, roots, ends


@inner_kernel
def add_vectors(block, vectors, products):
    """Add rows that are single vectors, without weights; see `add_narrow_products`.

    To load and store their products and sums for each row takes less time than to copy it.
    """
    X, order, codes, weights, first, last = block
    n_classes, n_sums = vectors.shape[1], 1 + N_ROTATIONS
    shared, n_parts = n_classes // products.shape[0], parts_for(codes, first, last)
    size, edge = n_classes * n_sums * LANES, n_classes * LANES
    memory = empty_vectors(edge + n_parts * size)
    pivots, total = memory[:edge].reshape((n_classes, LANES)), memory[edge:]
    sums = total.reshape((n_parts, n_classes, n_sums, LANES))
    for k in range(n_classes):  # by loops, as assignments of arrays take seconds to compile
        for i in range(LANES):
            pivots[k, i] = vectors[0, k, i]
    for i in range(n_parts * size):
        total[i] = 0.0
    add_class_products(X, order, codes, weights, first, last, pivots, sums)
    while n_parts > 1:  # in pairs: whichever sum the first row of a class went to, no bit changes
        n_parts //= 2
        for i in range(n_parts * size):
            total[i] += total[n_parts * size + i]
    for k in range(n_classes):
        for i in range(LANES):
            vectors[1, k, i] += sums[0, k, 0, i]
            for turn in range(N_ROTATIONS):
                j = (i + turn) % LANES
                if 2 * turn < LANES or i > j:  # half a turn meets each pair twice
                    products[k // shared, max(i, j), min(i, j)] += sums[0, k, 1 + turn, i]


@inner_kernel
def add_narrow_products(block, vectors, products):
    """Write the sums of ``w t`` to ``vectors[1]``, and those of ``w t t'`` to `products`.

    They are of a block: all rows, their order (see `take_rows`), classes and weights, and the
    numbers of the first row and of the one past the last. For a row of class k with weight w, t is
    ``x - vectors[0, k]``. There is a matrix of products for each group, of as many successive
    classes. All matrices except the rows are padded. Products are computed below the diagonal, and
    some above it.
    """
    X, order, codes, weights, first, last = block
    _, n_classes, width = vectors.shape
    for k in range(n_classes):
        for j in range(width):
            vectors[1, k, j] = 0.0
    for g in range(products.shape[0]):
        for i in range(width):
            for j in range(width):
                products[g, i, j] = 0.0
    if width == LANES and weights.shape[0] == 0 and first < last:
        add_vectors(block, vectors, products)
        return
    rows, roots, ends = empty_buckets(n_classes, width, last - first)
    size = rows.shape[1]
    r = first
    while r < last:
        r = fill_buckets(X, order, codes, weights, r, last, vectors, rows, roots, ends)
        k = codes[r - 1]
        if ends[k] == (k + 1) * size:
            add_bucket(rows, roots, k, size, vectors, products)
            ends[k] = k * size
    for k in range(n_classes):
        n = ends[k] - k * size
        if n > 0:
            add_bucket(rows, roots, k, n, vectors, products)


def _fill_buckets(X, order, codes, weights, first, last, vectors, rows, roots, ends):
    size, d = rows.shape[1], X.shape[1]
    for r in range(first, last):
        k = codes[r]
        b, slot = divmod(ends[k], size)
        if len(weights):
            roots[b, slot] = np.sqrt(weights[r])
        rows[b, slot] = 0.0
        rows[b, slot, :d] = (X[order[r] if len(order) else r] - vectors[0, k, :d]) * roots[b, slot]
        ends[k] += 1
        if slot + 1 == size:
            return r + 1
    return last


@intrinsic_of(_fill_buckets)
def fill_buckets(typing, X, order, codes, weights, first, last, vectors, rows, roots, ends):
    """Copy rows from number `first` on to their buckets, until one is full; return the next row.

    They are centred, and multiplied by the roots of their weights.
    """
    index = types.intp

    def generate(context, builder, signature, arguments):
        *block, vectors, rows, roots, ends = as_structures(context, builder, signature, arguments)
        _, size, width = cgutils.unpack_tuple(builder, rows.shape)
        others = vectors.data, rows.data, roots.data, ends.data, size, width
        return take_rows(context, builder, signature.args[0].dtype, block, others, _copy_row)

    kinds = X, order, codes, weights, index, index, vectors, rows, roots, ends
    return index(*kinds), generate


def _copy_row(builder, _, k, w, weighted, pivots, rows, roots, ends, size, width):
    """Return what copies vectors of a row to its bucket, and what ends the row."""
    double = ir.DoubleType()
    vector, index = ir.VectorType(double, LANES), size.type
    slot_at = builder.gep(ends, [k])
    slot = builder.load(slot_at)
    sqrt = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(double, [double]), "llvm.sqrt.f64"
    )
    start, one = builder.block, double(1)
    with builder.if_then(weighted):
        root = builder.call(sqrt, [w])
        builder.store(root, builder.gep(roots, [slot]))
        stored = builder.block
    factor = builder.phi(double)
    factor.add_incoming(one, start)
    factor.add_incoming(root, stored)
    factor = broadcast(builder, factor, vector)
    pivot, row = (
        builder.gep(array, [builder.mul(number, width)])
        for array, number in ((pivots, k), (rows, slot))
    )

    def copy(at, values):
        about, copied = (vector_at(builder, builder.gep(a, [at]), 0, vector) for a in (pivot, row))
        t = builder.fsub(values, builder.load(about, align=8))
        builder.store(builder.fmul(factor, t), copied, align=8)

    def has_space():
        end = builder.add(slot, index(1))
        builder.store(end, slot_at)
        last_slot = builder.sub(size, index(1))
        return builder.icmp_signed("!=", builder.and_(end, last_slot), index(0))

    return copy, has_space


def _add_bucket(rows, roots, k, n, vectors, products):
    t = rows[k, :n]
    vectors[1, k] += roots[k, :n] @ t
    products[k // (len(rows) // len(products))] += (t[:, :, None] * t[:, None, :]).sum(axis=0)


@intrinsic_of(_add_bucket)
def add_bucket(typing, rows, roots, k, n, vectors, products):
    """Add the sums and products of the first n rows of bucket k."""
    index = types.intp

    def generate(context, builder, signature, arguments):
        rows, roots, k, n, vectors, products = as_structures(context, builder, signature, arguments)
        n_classes, size, width = cgutils.unpack_tuple(builder, rows.shape)
        n_groups, _, _ = cgutils.unpack_tuple(builder, products.shape)
        group = builder.udiv(k, builder.udiv(n_classes, n_groups))
        start = builder.mul(k, size)
        bucket = [
            builder.gep(rows.data, [builder.mul(start, width)]),
            builder.gep(roots.data, [start]),
            n,
            width,
            builder.gep(vectors.data, [builder.mul(builder.add(n_classes, k), width)]),
            builder.gep(products.data, [builder.mul(group, builder.mul(width, width))]),
        ]
        kinds = [value.type for value in bucket]
        function = function_of(builder.module, "add_narrow_bucket", kinds, _sum_bucket)
        builder.call(function, bucket)
        return context.get_dummy_value()

    return types.void(rows, roots, index, index, vectors, products), generate


def _sum_bucket(builder, rows, roots, n, width, sums, products):
    """Add the sums and products of a bucket of rows.

    As many lines of the triangle of products as a vector has lanes are summed at a time, up to
    `_SIDE_BY_SIDE` vectors of each. The last ones are those on the diagonal.
    """
    bucket, index = (rows, roots, n), width.type
    lanes, side = index(LANES), index(_SIDE_BY_SIDE * LANES)
    with cgutils.for_range_slice(builder, index(0), width, lanes, index) as (line, _):
        before = builder.mul(builder.udiv(line, side), side)  # columns of vectors side by side
        start = builder.gep(products, [builder.mul(line, width)])
        with cgutils.for_range_slice(builder, index(0), before, side, index) as (column, _):
            _add_tile(builder, bucket, width, line, column, _SIDE_BY_SIDE, start, None)
        rest = builder.udiv(builder.sub(line, before), lanes)
        after = builder.append_basic_block()
        choice = builder.switch(rest, after)
        for n_vectors in range(1, _SIDE_BY_SIDE + 1):
            block = builder.append_basic_block()
            choice.add_case(index(n_vectors - 1), block)
            builder.position_at_end(block)
            _add_tile(builder, bucket, width, line, before, n_vectors, start, sums)
            builder.branch(after)
        builder.position_at_end(after)


def _add_tile(builder, bucket, width, line, column, n_vectors, start, sums):
    """Add the products of the columns from `line` on with the vectors from `column` on.

    They are added to the lines from `start` on. The last vector is added to `sums`, too, unless
    that is None.
    """
    rows, roots, n = bucket
    index, vector = width.type, ir.VectorType(ir.DoubleType(), LANES)
    lines = [builder.gep(start, [builder.mul(index(i), width)]) for i in range(LANES)]
    lines = [builder.gep(each, [column]) for each in lines]
    places = [vector_at(builder, each, v, vector) for each in lines for v in range(n_vectors)]
    if sums is not None:
        places.append(vector_at(builder, builder.gep(sums, [line]), 0, vector))

    def add(r, totals):
        row = builder.gep(rows, [builder.mul(r, width)])
        factors = [builder.gep(row, [builder.add(line, index(i))]) for i in range(LANES)]
        columns = builder.gep(row, [column])
        x = [
            builder.load(vector_at(builder, columns, v, vector), align=8) for v in range(n_vectors)
        ]
        pairs = [(factor, t) for factor in factors for t in x]
        if sums is not None:
            pairs.append((builder.gep(roots, [r]), x[-1]))
        return [
            fused_multiply_add(builder, broadcast(builder, builder.load(factor), vector), t, total)
            for (factor, t), total in zip(pairs, totals, strict=True)
        ]

    zeros = [ir.Constant(vector, None)] * len(places)
    for place, total in zip(places, repeated(builder, n, zeros, add), strict=True):
        builder.store(builder.fadd(builder.load(place, align=8), total), place, align=8)


@kernel
def add_centred_narrow(
    X, order, codes, weights, block_rows, limit, count, squares, mean, mean_low, scatter
):
    """Add narrow rows, in an order (see `take_rows`), as `add_centred` does, to scatter matrices.

    Each block is read once, for sums and products about pivots, from which the products of the
    means are subtracted. If the subtraction leaves too few digits, the block is read a second
    time, with its means as pivots.
    """
    n_classes, d = mean.shape
    n_groups, width = scatter.shape[0], padded_width(d)
    shared = n_classes // n_groups  # number of classes that share a scatter
    totals, numbers = np.empty(n_classes), np.empty(n_classes)
    vectors = empty_vectors(3 * n_classes * width).reshape((3, n_classes, width))
    products = empty_vectors(n_groups * width * width).reshape((n_groups, width, width))
    for first in range(0, codes.shape[0], block_rows):
        last = min(first + block_rows, codes.shape[0])
        sum_weights(codes, weights, first, last, totals)
        left, r = 0, first
        for k in range(n_classes):
            numbers[k] = count[k] if totals[k] > 0 else 1.0
            left += not numbers[k] > 0
            for j in range(width):
                vectors[0, k, j] = mean[k, j] if j < d else 0.0
        while left > 0:  # the pivot of a class without a mean is its first row
            k = np.uint64(codes[r])  # unsigned: no check for negative indices
            if not numbers[k] > 0:
                numbers[k] = 1.0
                left -= 1
                row = order[r] if order.shape[0] > 0 else r
                for j in range(d):
                    vectors[0, k, j] = X[row, j]
            r += 1
        block = X, order, codes, weights, first, last
        for times in range(2):
            add_narrow_products(block, vectors, products)
            # If the pivot was a mean, most of what is subtracted is added again for its distance.
            again, within = False, True
            for g in range(n_groups):
                for j in range(d if times == 0 else 0):
                    square = products[g, j, j]
                    for k in range(g * shared, (g + 1) * shared):
                        if totals[k] > 0:
                            part = vectors[1, k, j] / (totals[k] + count[k])
                            square -= vectors[1, k, j] * part
                    again |= square < products[g, j, j] / 64
                    within &= products[g, j, j] <= limit * limit
            for k in range(0 if again else n_classes):
                g = k // shared
                inverse = 1.0 / np.sqrt(totals[k]) if totals[k] > 0 else 0.0
                for i in range(d if totals[k] > 0 else 0):
                    row = inverse * vectors[1, k, i]  # its square may not overflow
                    for j in range(i + 1):
                        # In this order, duplicate features stay equal, and one row leaves nothing.
                        products[g, i, j] -= row * (inverse * vectors[1, k, j])
            if times == 0:
                for k in range(n_classes):
                    numbers[k] = totals[k]
                if not (within and merge_sums(limit, count, mean, mean_low, numbers, vectors)):
                    return False
                add_squared_weights(codes[first:last], weights[first:last], squares)
            if not again:
                break
        for k in range(n_classes):
            g = k // shared
            for i in range(d if numbers[k] > 0 else 0):
                for j in range(i + 1):
                    products[g, i, j] += numbers[k] * (vectors[2, k, i] * vectors[2, k, j])
        for g in range(n_groups):
            for i in range(d):
                row = scatter[g, row_start(i) :]
                for j in range(i + 1):
                    row[j] += products[g, i, j]
    return True


@kernel
def add_exact_narrow(X, order, codes, count, total, scatter):
    """Add narrow rows as `add_integers` does, to matrices; at most `EXACT_NARROW_ROWS` rows."""
    n_classes, d = total.shape
    n_groups, width = scatter.shape[0], padded_width(d)
    totals, weights = np.empty(n_classes), np.empty(0)
    vectors = empty_vectors(2 * n_classes * width).reshape((2, n_classes, width))
    products = empty_vectors(n_groups * width * width).reshape((n_groups, width, width))
    for k in range(n_classes):
        for j in range(width):
            vectors[0, k, j] = 0.0
    block = X, order, codes, weights, 0, codes.shape[0]
    sum_weights(codes, weights, 0, codes.shape[0], totals)
    add_narrow_products(block, vectors, products)
    for k in range(n_classes):
        count[k] += np.int64(totals[k])
        for j in range(d):
            total[k, j] += np.int64(vectors[1, k, j])
    for g in range(n_groups):
        for i in range(d):
            row = scatter[g, row_start(i) :]
            for j in range(i + 1):
                row[j] += np.int64(products[g, i, j])
