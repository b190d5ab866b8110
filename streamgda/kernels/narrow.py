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
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel, kernel
from streamgda.kernels.centred import (
    N_ROTATIONS,
    add_class_products,
    add_squared_weights,
    begin_block,
    merge_sums,
    sum_weights,
)
from streamgda.kernels.vectors import (
    LANES,
    as_structures,
    broadcast,
    clear,
    empty_indices,
    empty_vectors,
    function_of,
    fused_multiply_add,
    padded_width,
    repeated,
    take_rows,
    vector_at,
)

BUCKET_FEATURES = 64 * LANES  # for more, BLAS is as fast

_SIDE_BY_SIDE = 3  # with one line for each lane, sums fill 32 registers of 8 lanes, or 16 of 4
_BUCKET_ROWS = 32  # a power of two
LEAST_BUCKET_ROWS = 16  # another one
_BUCKETS_BYTES = 1 << 16  # of all larger buckets

# Each pair of lanes, the lower one last, and its place in the sums of `add_class_products`. Half a
# turn meets each pair twice.
_PAIRS = np.array(
    [
        (max(i, j), min(i, j), (1 + turn) * LANES + i)
        for turn in range(N_ROTATIONS)
        for i, j in enumerate((np.arange(LANES) + turn) % LANES)
        if 2 * turn < LANES or i > j
    ]
)


@inline_kernel
def empty_buckets(n_classes, width, n_rows):
    """Return buckets for that many rows: centred rows, the roots of their weights, and ends.

    The next row of class k goes to slot ``ends[k]`` of all buckets.
    """
    most = min(_BUCKETS_BYTES // (8 * width * n_classes), 2 * n_rows - 1)
    size = _BUCKET_ROWS if most >= _BUCKET_ROWS else LEAST_BUCKET_ROWS
    rows, roots = empty_vectors((n_classes, size, width)), empty_vectors((n_classes, size))
    ends = empty_indices(n_classes)
    for k in range(n_classes):
        ends[k] = k * size
    return rows, roots, ends


@inline_kernel
def add_vectors(X, order, codes, weights, first, last, totals, vectors, products):
    """Add rows that are single vectors, without weights; see `add_narrow_products`.

    To load and store their products and sums for each row takes less time than to copy it.
    """
    n_classes, n_sums = vectors.shape[1], 1 + N_ROTATIONS
    shared, sums = n_classes // products.shape[0], empty_vectors(n_classes * n_sums * LANES)
    clear(sums, 0, sums.size)
    add_class_products(X, order, codes, weights, first, last, 1, vectors, sums)
    for k in range(n_classes):
        at, g = k * n_sums * LANES, k // shared
        for i in range(LANES):
            vectors[1, k, i] = sums[at + i]
        for pair in range(_PAIRS.shape[0] if totals[k] > 0 else 0):
            products[g, _PAIRS[pair, 0], _PAIRS[pair, 1]] += sums[at + _PAIRS[pair, 2]]


@inline_kernel
def add_narrow_products(X, order, codes, weights, first, last, totals, vectors, products):
    """Write the sums of ``w t`` to ``vectors[1]``, and those of ``w t t'`` to `products`.

    They are of the rows from `first` to `last`, in an order (see `take_rows`). For a row of class k
    with weight w, t is ``x - vectors[0, k]``. There is a matrix of products for each group, of as
    many successive classes. All matrices except the rows are padded. Products are computed below
    the diagonal, and some above it. `totals` are the weights of the classes: matrices of single
    ones without rows are left as they are, so that a few rows take no time for them.
    """
    n_classes, width = vectors.shape[1], vectors.shape[2]
    n_groups, size = products.shape[0], width * width
    for g in range(n_groups):
        if n_groups < n_classes or totals[g] > 0:
            clear(products, g * size, (g + 1) * size)
    clear(vectors, n_classes * width, 2 * n_classes * width)
    if width == LANES and weights.shape[0] == 0 and first < last:
        add_vectors(X, order, codes, weights, first, last, totals, vectors, products)
    else:
        rows, roots, ends = empty_buckets(n_classes, width, last - first)
        size, r = rows.shape[1], first
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


@intrinsic
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
        root, taken = builder.call(sqrt, [w]), builder.block
    factor = builder.phi(double)
    factor.add_incoming(one, start)
    factor.add_incoming(root, taken)
    builder.store(factor, builder.gep(roots, [slot]))
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


@intrinsic
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
    totals, numbers = empty_vectors(n_classes), empty_vectors(n_classes)
    vectors, lost = empty_vectors((4, n_classes, width)), empty_vectors((n_groups, width))
    products = empty_vectors((n_groups, width, width))
    for first in range(0, codes.shape[0], block_rows):
        last = min(first + block_rows, codes.shape[0])
        begin_block(X, order, codes, weights, first, last, count, mean, numbers, totals, vectors)
        for times in range(2):
            add_narrow_products(X, order, codes, weights, first, last, totals, vectors, products)
            # If the pivot was a mean, most of what is subtracted is added again for its distance.
            clear(lost, 0, lost.size)
            for k in range(n_classes):
                if totals[k] > 0:
                    g, inverse = k // shared, 1.0 / np.sqrt(totals[k])
                    share = totals[k] / (totals[k] + count[k])
                    for j in range(d):
                        part = inverse * vectors[1, k, j]  # its square may not overflow
                        vectors[3, k, j] = part
                        lost[g, j] += share * (part * part)
            again, within = False, True
            for g in range(n_groups):
                for j in range(d if shared > 1 or totals[g] > 0 else 0):
                    square = products[g, j, j]
                    again |= square - lost[g, j] < square / 64
                    within &= square <= limit * limit
            if times == 0:
                if not (within and merge_sums(limit, count, mean, mean_low, numbers, vectors)):
                    return False
                add_squared_weights(codes, weights, first, last, squares)
            if not again:
                break
        for k in range(n_classes):
            if totals[k] > 0:
                g = k // shared
                for i in range(d):
                    mean_i, gap_i = vectors[3, k, i], vectors[2, k, i]
                    for j in range(i + 1):
                        # In this order, duplicate features stay equal, and one row leaves nothing.
                        value = products[g, i, j] - mean_i * vectors[3, k, j]
                        products[g, i, j] = value + numbers[k] * (gap_i * vectors[2, k, j])
        for g in range(n_groups):
            at = 0
            for i in range(d if shared > 1 or totals[g] > 0 else 0):
                for j in range(i + 1):
                    scatter[g, at + j] += products[g, i, j]
                at += i + 1
    return True


@kernel
def add_exact_narrow(X, order, codes, count, total, scatter):
    """Add narrow rows as `add_integers` does, to matrices; at most `EXACT_ROWS` rows."""
    n_classes, d = total.shape
    n_groups, width = scatter.shape[0], padded_width(d)
    totals, weights = empty_vectors(n_classes), empty_vectors(0)
    vectors = empty_vectors((2, n_classes, width))
    products = empty_vectors((n_groups, width, width))
    clear(vectors, 0, n_classes * width)
    n_rows = codes.shape[0]
    sum_weights(codes, weights, 0, n_rows, totals)
    add_narrow_products(X, order, codes, weights, 0, n_rows, totals, vectors, products)
    for k in range(n_classes):
        count[k] += np.int64(totals[k])
        for j in range(d):
            total[k, j] += np.int64(vectors[1, k, j])
    for g in range(n_groups):
        at = 0
        for i in range(d if n_groups < n_classes or totals[g] > 0 else 0):
            for j in range(i + 1):
                scatter[g, at + j] += np.int64(products[g, i, j])
            at += i + 1
