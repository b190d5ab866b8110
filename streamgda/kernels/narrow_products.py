"""Sums and products of narrow rows, which are gathered in buckets, one for each class.

If a whole row fits into a few vectors, packing rows into panels for BLAS takes longer than their
products. Rows are read once, in their order, and copied to the bucket of their class, less its
pivot. A full bucket is summed in vector registers, and only the totals are added to memory. Sums
and products have rows of whole vectors (`padded_width`), with zeros beyond the last feature. The
loops are written in LLVM's vector types.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel, inner_kernel
from streamgda.kernels.vectors import (
    LANES,
    as_doubles,
    as_structures,
    broadcast,
    fused_multiply_add,
    loop_function,
    prefetch,
    vector_at,
    whole_vectors,
)

MAX_FEATURES = 16 * LANES

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
    ends = np.arange(n_classes) * size
    rows, roots = np.empty((n_classes, size, width)), np.empty((n_classes, size))
    ends = np.empty(n_classes, np.intp)
    for k in range(n_classes):
        ends[k] = k * size
        for slot in range(size):
            roots[k, slot] = 1.0
    return rows, roots, ends


@inner_kernel
def add_narrow_products(block, buckets, totals, vectors, products):
    """Write the sums of ``w`` to `totals`, ``w t`` to ``vectors[1]`` and ``w t t'`` to `products`.

    They are of a block: all rows, their classes, their weights, and the first row and one past
    the last. For a row of class k with weight w, t is ``x - vectors[0, k]``. There is a matrix of
    products for each group, of as many successive classes. All matrices except the rows are padded.
    Products are computed below the diagonal, and some above it.
    """
    X, codes, weights, first, last = block
    rows, roots, ends = buckets
    n_classes, size, width = rows.shape
    for k in range(n_classes):
        totals[k] = 0.0
        for j in range(width):
            vectors[1, k, j] = 0.0
    for g in range(products.shape[0]):
        for i in range(width):
            for j in range(width):
                products[g, i, j] = 0.0
    r = first
    while r < last:
        r = fill_buckets(X, codes, weights, r, last, vectors, rows, roots, ends)
        k = codes[r - 1]
        if ends[k] == (k + 1) * size:
            add_bucket(rows, roots, k, size, vectors, products)
            ends[k] = k * size
            totals[k] += size
    for k in range(n_classes):
        n = ends[k] - k * size
        if n > 0:
            add_bucket(rows, roots, k, n, vectors, products)
            ends[k] = k * size
            totals[k] += n
    if weights.shape[0] > 0:
        for k in range(n_classes):
            totals[k] = 0.0
        for r in range(first, last):
            totals[codes[r]] += weights[r]


def _fill_buckets(X, codes, weights, first, last, vectors, rows, roots, ends):
    """Copy rows from number `first` on to their buckets, until one is full; return the next row.

    They are centred, and multiplied by the roots of their weights.
    """
    size, width = rows.shape[1:]
    for r in range(first, last):
        k = codes[r]
        b, slot = divmod(ends[k], size)
        t = np.zeros(width)
        t[: X.shape[1]] = X[r]
        if len(weights):
            roots[b, slot] = np.sqrt(weights[r])
        rows[b, slot] = (t - vectors[0, k]) * roots[b, slot]
        ends[k] += 1
        if slot + 1 == size:
            return r + 1
    return last


def _add_bucket(rows, roots, k, n, vectors, products):
    """Add the sums and products of the first n rows of bucket k."""
    t = rows[k, :n]
    vectors[1, k] += roots[k, :n] @ t
    products[k // (len(rows) // len(products))] += (t[:, :, None] * t[:, None, :]).sum(axis=0)


@intrinsic
def _fill_in_registers(typing, X, codes, weights, first, last, vectors, rows, roots, ends):
    """Compile `_fill_buckets`."""
    index = types.intp

    def generate(context, builder, signature, arguments):
        X, codes, weights, first, last, vectors, rows, roots, ends = as_structures(
            context, builder, signature, arguments
        )
        _, d = cgutils.unpack_tuple(builder, X.shape)
        _, size, width = cgutils.unpack_tuple(builder, rows.shape)
        following = cgutils.alloca_once(builder, d.type)
        row = [X.data, last, d, codes.data, weights.data, weights.nitems, first, vectors.data]
        row += [width, size, rows.data, roots.data, ends.data, following]
        function = _fill_function(context, builder.module, signature.args[0].dtype)
        builder.call(function, row)
        return builder.load(following)

    return index(X, codes, weights, index, index, vectors, rows, roots, ends), generate


@intrinsic
def _add_in_registers(typing, rows, roots, k, n, vectors, products):
    """Compile `_add_bucket`."""
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
        builder.call(_sum_function(builder.module, n.type), bucket)
        return context.get_dummy_value()

    return types.void(rows, roots, index, index, vectors, products), generate


def _fill_function(context, module, scalar):
    """Return the function that fills buckets with rows of a type."""
    name = f"fill_narrow_buckets_{scalar}"
    if name in module.globals:
        return module.globals[name]
    index, double = context.get_value_type(types.intp), ir.DoubleType()
    element = context.get_data_type(scalar)
    vector, stored = ir.VectorType(double, LANES), ir.VectorType(element, LANES)
    kinds = [element, None, None, index, double, None, None, double, None, None, double, double]
    arguments = [kind.as_pointer() if kind else index for kind in [*kinds, index, index]]
    function, before, loop, after = loop_function(module, name, arguments)
    X, last_row, d, codes, weights, n_weights, first, pivots, *buckets, ends, out = function.args
    width, size, rows, roots = buckets

    builder = ir.IRBuilder(before)
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    weighted = builder.icmp_signed(">", n_weights, index(0))
    last_slot = builder.sub(size, index(1))
    builder.branch(loop)

    builder.position_at_end(loop)
    r = builder.phi(index)
    r.add_incoming(first, before)
    k = builder.load(builder.gep(codes, [r]))
    slot_at = builder.gep(ends, [k])
    slot = builder.load(slot_at)
    x = builder.gep(X, [builder.mul(r, d)])
    prefetch(builder, x)
    pivot, row = (
        builder.gep(array, [builder.mul(number, width)])
        for array, number in ((pivots, k), (rows, slot))
    )
    factor = _root_weight(builder, weighted, weights, r, builder.gep(roots, [slot]))
    factor = broadcast(builder, factor, vector)

    def copy(v, load):
        at = builder.mul(v, index(LANES))
        about, copied = (vector_at(builder, builder.gep(a, [at]), 0, vector) for a in (pivot, row))
        values = load(vector_at(builder, builder.gep(x, [at]), 0, stored))
        t = builder.fsub(as_doubles(builder, values, scalar), builder.load(about, align=8))
        builder.store(builder.fmul(factor, t), copied, align=8)

    with cgutils.for_range(builder, n_whole, intp=index) as inner:
        copy(inner.index, lambda place: builder.load(place, align=scalar.bitwidth // 8))
    copy(n_whole, load_last)
    end, following = builder.add(slot, index(1)), builder.add(r, index(1))
    builder.store(end, slot_at)
    r.add_incoming(following, builder.block)
    space = builder.icmp_signed("!=", builder.and_(end, last_slot), index(0))
    more = builder.and_(space, builder.icmp_signed("<", following, last_row))
    builder.cbranch(more, loop, after)
    builder.position_at_end(after)
    builder.store(following, out)
    builder.ret_void()
    return function


def _root_weight(builder, weighted, weights, r, place):
    """Return the root of the weight of row `r`, which is stored, or one without weights."""
    double = weights.type.pointee
    with builder.if_else(weighted) as (then, otherwise):
        with then:
            sqrt = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(double, [double]), "llvm.sqrt.f64"
            )
            root = builder.call(sqrt, [builder.load(builder.gep(weights, [r]))])
            builder.store(root, place)
            weighted_block = builder.block
        with otherwise:
            unweighted_block = builder.block
    factor = builder.phi(double)
    factor.add_incoming(root, weighted_block)
    factor.add_incoming(ir.Constant(double, 1.0), unweighted_block)
    return factor


def _sum_function(module, index):
    """Return the function that adds a bucket of rows.

    As many lines of the triangle of products as a vector has lanes are summed at a time, up to
    `_SIDE_BY_SIDE` vectors of each. The last ones are those on the diagonal.
    """
    name = "add_narrow_bucket"
    if name in module.globals:
        return module.globals[name]
    pointer = ir.DoubleType().as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, pointer, index, index, pointer, pointer])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")  # the code around it would take registers from it
    *bucket, width, sums, products = function.args
    builder = ir.IRBuilder(function.append_basic_block())
    lanes, side = index(LANES), index(_SIDE_BY_SIDE * LANES)
    with cgutils.for_range_slice(builder, index(0), width, lanes, index) as (line, _):
        before = builder.mul(builder.udiv(line, side), side)  # columns of vectors side by side
        start = builder.gep(products, [builder.mul(line, width)])
        with cgutils.for_range_slice(builder, index(0), before, side, index) as (column, _):
            _add_tile(builder, bucket, width, line, column, _SIDE_BY_SIDE, start, None)
        rest = builder.udiv(builder.sub(line, before), lanes)
        after = builder.append_basic_block()
        choice = builder.switch(rest, after)
        for n in range(_SIDE_BY_SIDE):
            block = builder.append_basic_block()
            choice.add_case(index(n), block)
            builder.position_at_end(block)
            _add_tile(builder, bucket, width, line, before, n + 1, start, sums)
            builder.branch(after)
        builder.position_at_end(after)
    builder.ret_void()
    return function


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
    entry, loop = builder.block, builder.append_basic_block()
    after = builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    r = builder.phi(index)
    r.add_incoming(index(0), entry)
    totals = [builder.phi(vector) for _ in places]
    row = builder.gep(rows, [builder.mul(r, width)])
    factors = [builder.gep(row, [builder.add(line, index(i))]) for i in range(LANES)]
    columns = builder.gep(row, [column])
    x = [builder.load(vector_at(builder, columns, v, vector), align=8) for v in range(n_vectors)]
    pairs = [(factor, t) for factor in factors for t in x]
    if sums is not None:
        pairs.append((builder.gep(roots, [r]), x[-1]))
    increased = []
    for (factor, t), total in zip(pairs, totals, strict=True):
        value = broadcast(builder, builder.load(factor), vector)
        increased.append(fused_multiply_add(builder, value, t, total))
        total.add_incoming(ir.Constant(vector, None), entry)
        total.add_incoming(increased[-1], loop)
    following = builder.add(r, index(1))
    r.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
    builder.position_at_end(after)
    for place, total in zip(places, increased, strict=True):
        builder.store(builder.fadd(builder.load(place, align=8), total), place, align=8)


fill_buckets = _fill_buckets if config.DISABLE_JIT else _fill_in_registers
add_bucket = _add_bucket if config.DISABLE_JIT else _add_in_registers
