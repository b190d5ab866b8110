"""Squared Mahalanobis distances and linear scores of rows; labels and probabilities from scores.

Scores have shape ``(n_classes, n_rows)``. Below, x holds the given features of a row of `X`, in
their order. It is centred in float64, and then rounded to the type of what it is multiplied by.

Rows with many features are multiplied by BLAS. Those with few, or with variances only, are treated
in panels of shape ``(d, width)``, so that every loop runs along rows; the last panel is as narrow
as its rows, and filled up with copies of the last one. For few features, BLAS would spend more time
on copies than on products: their triangular matrix is multiplied `_SUMS` rows at a time, up to its
diagonal, in LLVM's vector types. So it would for few linear functions, which are multiplied by rows
where they are.
"""

from functools import partial
from itertools import chain

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import (
    fast_kernel,
    inline_kernel,
    intrinsic_of,
    kernel,
)
from streamgda.kernels.blas import lower_product, product
from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import (
    LANES,
    as_doubles,
    as_structures,
    broadcast,
    empty_vectors,
    function_of,
    fused_multiply_add,
    padded_width,
    vector_at,
    whole_vectors,
)

# Values of the rows that BLAS multiplies at a time, and least numbers of rows.
_VALUES, _ROWS = 1 << 15, 192
BLOCK = 128  # entries of W (x - centre) that are computed at a time

# Largest numbers of rows and of values of a panel.
_PANEL_ROWS = 96
_PANEL_VALUES = 1 << 15
_ROW_GROUP = 4  # rows that are packed at a time: cache lines of more may share a set

FLOAT64_FEATURES = 12  # so few are multiplied in float64 whatever the rows are
PANEL_FEATURES = 96  # for more, BLAS is as fast
_ROW_BYTES = 64  # of a feature of the rows that are computed together
_VECTOR_BYTES = max(32, SHAPE.vector_bytes)
# Side by side: an element of the matrix is loaded once for all of them. Eight sums are added to in
# turn, because each addition takes several cycles.
_VECTORS = _ROW_BYTES // _VECTOR_BYTES
_SUMS = 8 // _VECTORS


def _narrow_triangle_squares(panel, width, W, out):
    products = W @ panel[: len(W) * width].reshape(-1, width)
    out[:width] = (products.astype(np.float64) ** 2).sum(axis=0)


@intrinsic_of(_narrow_triangle_squares)
def narrow_triangle_squares(typing, panel, width, W, out):
    """Write ``|W x|^2`` to ``out[r]`` for each column x of a panel, whose rows have that width.

    W is lower triangular. It has the type of the panel; the squares are summed in float64. The
    width is a multiple of `row_step`.
    """
    if {array.layout for array in (panel, W, out)} != {"C"} or panel.dtype != W.dtype:
        return None  # no match: the function is given pointers and no strides

    def generate(context, builder, signature, arguments):
        panel, width, W, out = as_structures(context, builder, signature, arguments)
        d, _ = cgutils.unpack_tuple(builder, W.shape)
        matrices = [panel.data, width, W.data, d, out.data]
        kinds = [value.type for value in matrices]
        name = f"narrow_triangle_squares_{signature.args[0].dtype}"
        builder.call(function_of(builder.module, name, kinds, _write_squares), matrices)
        return context.get_dummy_value()

    return types.void(panel, types.intp, W, out), generate


def _write_squares(builder, panel, width, W, d, out):
    """Write the squared lengths of the columns of a panel times a triangle."""
    element, index, double = panel.type.pointee, d.type, ir.DoubleType()
    size = 4 if isinstance(element, ir.FloatType) else 8
    vector = ir.VectorType(element, _VECTOR_BYTES // size)
    wide = ir.VectorType(double, vector.count)
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(_VECTORS)] for _ in range(_SUMS)]
    squares = [cgutils.alloca_once(builder, wide) for _ in range(_VECTORS)]

    def add_products(j, first, rows):
        """Add ``W[first + i, j] * panel[j]`` to the sums of some rows i."""
        start = builder.gep(panel, [builder.add(builder.mul(j, width), r)])
        x = [
            builder.load(vector_at(builder, start, v, vector), align=size) for v in range(_VECTORS)
        ]
        for i in rows:
            row = builder.mul(builder.add(first, index(i)), d)
            w = broadcast(builder, builder.load(builder.gep(W, [builder.add(row, j)])), vector)
            for v in range(_VECTORS):
                total = fused_multiply_add(builder, w, x[v], builder.load(sums[i][v]))
                builder.store(total, sums[i][v])

    def add_squares(first, last, n_rows):
        """Add the squares for rows of the matrix from `first` to `last`, `n_rows` at a time."""
        with cgutils.for_range_slice(builder, first, last, index(n_rows), index) as (row, _):
            for total in chain(*sums[:n_rows]):
                builder.store(ir.Constant(vector, None), total)
            with cgutils.for_range(builder, row, intp=index) as loop:
                add_products(loop.index, row, range(n_rows))
            for j in range(n_rows):  # up to the diagonal
                add_products(builder.add(row, index(j)), row, range(j, n_rows))
            for row_sums in sums[:n_rows]:
                for total, square in zip(row_sums, squares, strict=True):
                    value = builder.load(total)
                    if wide != vector:
                        value = builder.fpext(value, wide)
                    added = fused_multiply_add(builder, value, value, builder.load(square))
                    builder.store(added, square)

    step = index(_VECTORS * vector.count)
    n_single = builder.urem(d, index(_SUMS))
    with cgutils.for_range_slice(builder, index(0), width, step, index) as (r, _):
        for total in squares:
            builder.store(ir.Constant(wide, None), total)
        add_squares(index(0), n_single, 1)
        add_squares(n_single, d, _SUMS)
        for v in range(_VECTORS):
            place = vector_at(builder, builder.gep(out, [r]), v, wide)
            builder.store(builder.load(squares[v]), place, align=8)


FUNCTIONS = 5  # that are computed together
MOST_FUNCTIONS = 32  # of more, BLAS is as fast
_ROWS_TOGETHER = 4 if LANES == 8 else 2  # AVX-512 has registers for 20 sums, others for 10


def _products_in_place(X, centre, vectors, offsets, out):
    d = X.shape[1]
    out[...] = offsets[:, None] + vectors[:, :d] @ (X - centre[:d]).T


@intrinsic_of(_products_in_place)
def products_in_place(typing, X, centre, vectors, offsets, out):
    """Write ``offsets[k] + vectors[k] . (x - centre)`` to ``out[k, r]``, all in float64.

    There are a multiple of `FUNCTIONS` vectors, which are zero from the width of `X` up to whole
    vectors of the processor, as is the centre.
    """
    if {array.layout for array in (X, centre, vectors, offsets, out)} != {"C"}:
        return None  # no match: the function is given pointers and no strides
    scalar = X.dtype

    def generate(context, builder, signature, arguments):
        X, centre, vectors, offsets, out = as_structures(context, builder, signature, arguments)
        shapes = (cgutils.unpack_tuple(builder, array.shape) for array in (X, vectors))
        places = (array.data for array in (X, centre, vectors, offsets, out))
        matrices = [*chain(*shapes), *places]
        stored = ir.VectorType(context.get_data_type(scalar), LANES)
        kinds, name = [value.type for value in matrices], f"products_in_place_{scalar}"
        write = partial(_write_products, scalar, stored)
        builder.call(function_of(builder.module, name, kinds, write), matrices)
        return context.get_dummy_value()

    return types.void(X, centre, vectors, offsets, out), generate


def _write_products(
    scalar, stored, builder, n_rows, d, n_functions, width, X, centre, vectors, offsets, out
):
    """Write products of rows, where they are, and of vectors."""
    index, double = d.type, ir.DoubleType()
    vector = ir.VectorType(double, LANES)
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    sums = [
        [cgutils.alloca_once(builder, vector) for _ in range(_ROWS_TOGETHER)]
        for _ in range(FUNCTIONS)
    ]
    add_up = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(double, [double, vector]),
        f"llvm.vector.reduce.fadd.v{LANES}f64",
    )

    def load_numbers(start, at):
        return builder.load(vector_at(builder, builder.gep(start, [at]), 0, vector), align=8)

    def add_products(number, rows, factors, load):
        """Add the products of a vector of features of some rows."""
        at = builder.mul(number, index(LANES))
        middle, x = load_numbers(centre, at), []
        for row in rows:
            values = load(vector_at(builder, builder.gep(row, [at]), 0, stored))
            x.append(builder.fsub(as_doubles(builder, values, scalar), middle))
        for factor, totals in zip(factors, sums, strict=True):
            w = load_numbers(factor, at)
            for total, values in zip(totals, x, strict=True):
                added = fused_multiply_add(builder, w, values, builder.load(total))
                builder.store(added, total)

    def load_whole(place):
        return builder.load(place, align=scalar.bitwidth // 8)

    last = builder.sub(n_rows, index(1))
    step = index(_ROWS_TOGETHER)
    with cgutils.for_range_slice(builder, index(0), n_rows, step, index) as (first, _):
        numbers = [builder.add(first, index(i)) for i in range(_ROWS_TOGETHER)]
        below = [builder.icmp_signed("<", number, last) for number in numbers]
        # The last rows are filled up with copies of the last one.
        numbers = [builder.select(b, n, last) for b, n in zip(below, numbers, strict=True)]
        rows = [builder.gep(X, [builder.mul(number, d)]) for number in numbers]
        step_k = index(FUNCTIONS)
        with cgutils.for_range_slice(builder, index(0), n_functions, step_k, index) as (k, _):
            functions = [builder.add(k, index(i)) for i in range(FUNCTIONS)]
            factors = [builder.gep(vectors, [builder.mul(i, width)]) for i in functions]
            for total in chain(*sums):
                builder.store(ir.Constant(vector, None), total)
            with cgutils.for_range(builder, n_whole, intp=index) as loop:
                add_products(loop.index, rows, factors, load_whole)
            add_products(n_whole, rows, factors, load_last)
            for function, totals in zip(functions, sums, strict=True):
                offset = builder.load(builder.gep(offsets, [function]))
                for number, total in zip(numbers, totals, strict=True):
                    parts = [offset, builder.load(total)]
                    value = builder.call(add_up, parts, fastmath=("reassoc",))
                    at = builder.add(builder.mul(function, n_rows), number)
                    builder.store(value, builder.gep(out, [at]))


@kernel
def few_linear_scores(X, centre, vectors, offsets, out):
    """Write ``offsets[k] + vectors[k] . (x - centre)``: see `products_in_place`."""
    products_in_place(X, centre, vectors, offsets, out)


def rows_at_a_time(n_rows, n_features):
    """Return the number of rows that BLAS multiplies at a time."""
    return min(n_rows, max(_ROWS, _VALUES // n_features))


@fast_kernel
def linear_scores(X, features, centre, vectors, offsets, centred, products, out):
    """Write ``offsets[k] + vectors[k] . (x - centre)`` to ``out[k, r]`` for each row x.

    `centred` and `products` are scratch space for some rows, their features and their scores.
    """
    d, most = features.size, centred.shape[0]
    for first in range(0, X.shape[0], most):
        n = min(most, X.shape[0] - first)
        for r in range(n):
            for j in range(d):
                centred[r, j] = X[first + r, features[j]] - centre[j]
        product(centred[:n], vectors, 0.0, products[:n])
        for k in range(vectors.shape[0]):
            for r in range(n):
                out[k, first + r] = offsets[k] + products[r, k]


@inline_kernel
def _select(guesses, k, others, rows):
    """Write the rows whose guess is class k, or is another class; return their number."""
    n = 0
    for r in range(guesses.size):
        rows[n] = r
        n += (guesses[r] == k) != others
    return n


# Indices without a sign, because a check that others are not negative prevents vectorisation.
@inline_kernel
def _square_diagonal(X, rows, start, n, columns, ends, centre, weights, first, distances):
    """Write the sum of ``(weights[i] (x_i - centre[i]))^2`` over all i from `first`."""
    for q in range(n):
        r, total, i = rows[start + q], 0.0, np.uint64(first)
        while i < np.uint64(columns.size):
            shift = columns[i] - i
            for j in range(i, ends[i]):
                t = weights[j] * (X[r, j + shift] - centre[j])
                total += t * t
            i = ends[i]
        distances[q] = total


@inline_kernel
def _centre_rows(X, rows, start, n, columns, ends, centre, first, last, centred, block):
    """Write the columns from `first` to `last`, less the centre, in two places."""
    for q in range(n):
        r, i = rows[start + q], np.uint64(first)
        while i < np.uint64(last):
            shift = columns[i] - i
            for j in range(i, min(ends[i], np.uint64(last))):
                centred[q, j] = X[r, j + shift] - centre[j]
            i = ends[i]
        for j in range(np.uint64(first), np.uint64(last)):
            block[q, j - np.uint64(first)] = centred[q, j]


@inline_kernel
def _add_squares(block, n, width, distances):
    for q in range(n):
        total = 0.0
        for i in range(width):
            t = np.float64(block[q, i])
            total += t * t
        distances[q] += total


@inline_kernel
def _keep_close(rows, start, n, distances, centred, width, scale, offset, best, margin, out):
    """Write scores, and move rows whose scores may matter to the front; return their number."""
    kept = 0
    for q in range(n):
        r = rows[start + q]
        score = offset + scale * distances[q]
        out[r] = score
        if score < best[r] - margin:
            continue
        if kept < q:
            rows[start + kept] = r
            distances[kept] = distances[q]
            for i in range(width):
                centred[kept, i] = centred[q, i]
        kept += 1
    return kept


@fast_kernel
def matrix_scores(
    X, columns, ends, centres, n_coupled, weights, starts, triangles, scale, offsets, guesses,
    others, margin, rows, best, distances, centred, block, out,
):  # fmt: skip
    """Write ``offsets[k] + scale |W[k] (x - centres[k])|^2`` to ``out[k, r]`` for each row x.

    W[k] is lower triangular. A single one serves all centres. The features of class k are the
    columns ``columns[k]`` of `X`, which are adjacent up to ``ends[k, i]``. Its first
    ``n_coupled[k]`` rows and columns are the square matrix at ``triangles[starts[k]]``, and the
    others are the diagonal ``weights[k]``. Products are squared and summed in float64.

    A call scores the class ``guesses[r]`` of each row, or with `others` all other classes.

    `scale` is negative. The sum of a part of the squares bounds a score from above. Where such a
    bound is more than `margin` below the largest score of the row, it may be written in place of
    the score. This saves most work if the classes of the largest scores are known: `guesses`.

    `best` holds the largest score of each row so far, at first -inf. The arrays between it and
    `out`, and `rows`, are scratch space.
    """
    most = distances.size
    for k in range(centres.shape[0]):
        n_rows = _select(guesses, k, others, rows)
        g = min(k, n_coupled.size - 1)
        m, W = n_coupled[g], triangles[starts[g] :]
        for start in range(0, n_rows, most):
            n, last = min(most, n_rows - start), 0
            _square_diagonal(
                X, rows, start, n, columns[g], ends[g], centres[k], weights[g], m, distances
            )
            while True:
                n = _keep_close(
                    rows, start, n, distances, centred, last, scale, offsets[k], best, margin,
                    out[k],
                )  # fmt: skip
                if n == 0 or last == m:
                    break
                first, last = last, min(last + BLOCK, m)
                _centre_rows(
                    X, rows, start, n, columns[g], ends[g], centres[k], first, last, centred, block
                )
                z = block[:n, : last - first]
                lower_product(z, W[first:last, first:last])
                product(centred[:n, :first], W[first:last, :first], 1.0, z)
                _add_squares(block, n, last - first, distances)
            for q in range(n):
                r = rows[start + q]
                best[r] = max(best[r], out[k, r])


@inline_kernel
def _pack_panel(X, features, start, width, panel):
    """Write feature ``features[j]`` of row ``start + r`` to ``panel[j * width + r]``."""
    last = X.shape[0] - 1
    for first in range(0, width, _ROW_GROUP):
        for j in range(features.size):
            x = panel[j * width :]
            for r in range(first, first + _ROW_GROUP):
                x[r] = X[min(start + r, last), features[j]]


def row_step(dtype):
    """Return the number of rows of a type that are computed together."""
    return _ROW_BYTES // np.dtype(dtype).itemsize


@inline_kernel
def _panel_width(n_rows, d, step):
    """Return the number of rows in a panel, a multiple of `step`."""
    most = max(1, min(_PANEL_ROWS, _PANEL_VALUES // d) // step)
    return step * min(most, (n_rows + step - 1) // step)


@inline_kernel
def _write_scores(distances, scale, offset, k, start, n, top, scores, labels):
    """Write ``offset + scale * distance``, or k where no class before has so large a score."""
    if scores.size > 0:
        out = scores[k, start:]
        for r in range(n):
            out[r] = offset + scale * distances[r]
    else:
        out = labels[start : start + n]
        if k == 0:
            for r in range(out.size):
                top[r], out[r] = -np.inf, 0
        for r in range(out.size):
            score = offset + scale * distances[r]
            out[r] = k if score > top[r] else out[r]
            top[r] = max(top[r], score)


@fast_kernel
def diagonal_scores(X, features, centres, precisions, scale, offsets, scores, labels):
    """Write ``offsets[k] + scale sum_j precisions[k, j] (x_j - centres[k, j])^2`` to ``[k, r]``.

    If `scores` is empty, write the class with the largest of these to `labels` instead, the first
    one of equals. x holds the given features of a row of `X`, as float64. A single row of
    precisions serves all centres.
    """
    d, step = features.size, _ROW_BYTES // precisions.itemsize
    most = _panel_width(X.shape[0], d, step)
    panel, distances, best = np.empty(d * most), np.empty(most), np.empty(most)
    for start in range(0, X.shape[0], most):
        n = min(most, X.shape[0] - start)
        width = _panel_width(n, d, step)
        _pack_panel(X, features, start, width, panel)
        for k in range(centres.shape[0]):
            g = min(k, precisions.shape[0] - 1)
            for r in range(width):
                distances[r] = 0.0
            for j in range(d):
                x, centre, precision = panel[j * width :], centres[k, j], precisions[g, j]
                for r in range(width):
                    t = x[r] - centre
                    distances[r] += precision * (t * t)
            _write_scores(distances, scale, offsets[k], k, start, n, best, scores, labels)


@fast_kernel
def narrow_matrix_scores(X, features, centres, roots, scale, offsets, scores, labels):
    """Compute `matrix_scores` of few features, or labels, as `diagonal_scores` does.

    There are at most `PANEL_FEATURES` features.
    """
    d, step = features.size, _ROW_BYTES // roots.itemsize
    most = _panel_width(X.shape[0], d, step)
    panel, distances, best = np.empty(d * most), np.empty(most), np.empty(most)
    centred = np.empty(d * most, roots.dtype)
    for start in range(0, X.shape[0], most):
        n = min(most, X.shape[0] - start)
        width = _panel_width(n, d, step)
        _pack_panel(X, features, start, width, panel)
        for k in range(centres.shape[0]):
            for j in range(d):
                x, t, centre = panel[j * width :], centred[j * width :], centres[k, j]
                for r in range(width):
                    t[r] = x[r] - centre
            narrow_triangle_squares(centred, width, roots[min(k, roots.shape[0] - 1)], distances)
            _write_scores(distances, scale, offsets[k], k, start, n, best, scores, labels)


@kernel
def largest(scores, labels):
    """Write the class of the largest score of each row, the first one of equals."""
    for r in range(labels.size):
        labels[r] = 0
    best = scores[0].copy()
    for k in range(1, scores.shape[0]):
        x = scores[k]
        for r in range(labels.size):
            labels[r] = k if x[r] > best[r] else labels[r]
            best[r] = x[r] if x[r] > best[r] else best[r]


_LOG2_E = 1 / np.log(2)
# The product of the first part of ln 2 and a whole number of 11 bits is exact.
_LN2 = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b39p-40")
_TAYLOR = tuple((1 / np.cumprod([1.0, *range(1, 14)])).tolist())
_LEAST = -708.0  # exp of anything less is not a normal number
FAR = -_LEAST  # scores that are further below the largest have probability zero
_TO_BITS = 1.5 * 2.0**52  # adding this to a whole number leaves it in the last bits

# Rows whose exponentials stay in the first cache, and values.
_EXP_ROWS, _EXP_VALUES = 256, 1 << 13


def _add_exponentials(x, top, out, total):
    t = np.subtract(x, top, out=np.zeros(len(x)), where=top > -np.inf)
    out[: len(x)] = np.where(t >= _LEAST, np.exp(np.maximum(t, _LEAST)), 0.0)
    total += out[: len(x)]


@intrinsic_of(_add_exponentials)
def add_exponentials(typing, x, top, out, total):
    """Write ``exp(x - top)``, or one where `top` is -inf, and add it to `total`.

    No x is above `top`. The arrays but for `x` are in memory for whole vectors, up to which
    anything is written.
    """

    def generate(context, builder, signature, arguments):
        arrays = as_structures(context, builder, signature, arguments)
        given = [arrays[0].nitems, *(array.data for array in arrays)]
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, "add_exponentials", kinds, _write_exps), given)
        return context.get_dummy_value()

    return types.void(x, top, out, total), generate


def _write_exps(builder, n, x, top, out, total):
    """Write exponentials, and add them to a total."""
    vector = ir.VectorType(ir.DoubleType(), LANES)
    n_whole, load_last = whole_vectors(builder, n, types.float64, vector)

    def write(number, load):
        at = builder.mul(number, n.type(LANES))
        places = [vector_at(builder, builder.gep(a, [at]), 0, vector) for a in (x, top, out, total)]
        result = _exponential(builder, load(places[0]), builder.load(places[1], align=8))
        builder.store(result, places[2], align=8)
        total_ = builder.fadd(builder.load(places[3], align=8), result)
        builder.store(total_, places[3], align=8)

    with cgutils.for_range(builder, n_whole, intp=n.type) as loop:
        write(loop.index, lambda place: builder.load(place, align=8))
    write(n_whole, load_last)


def _exponential(builder, x, top):
    """Return ``exp(x - top)``, or one where `top` is -inf.

    The result is accurate to two units in the last place, and zero below -708. With
    ``x - top = n ln 2 + t``, ``exp(t)`` is from its Taylor series, in groups of four terms that do
    not depend on each other.
    """
    vector, whole = x.type, ir.VectorType(ir.IntType(64), LANES)

    def fma(a, b, c):
        parts = (number(v) if isinstance(v, float) else v for v in (a, b, c))
        return fused_multiply_add(builder, *parts)

    def number(value):
        return ir.Constant(vector, [value] * LANES)

    finite = builder.fcmp_ordered(">", top, number(-np.inf))
    t = builder.select(finite, builder.fsub(x, top), number(0.0))
    normal = builder.fcmp_ordered(">=", t, number(_LEAST))
    t = builder.select(normal, t, number(_LEAST))
    shifted = fma(t, float(_LOG2_E), _TO_BITS)
    n = builder.fsub(shifted, number(_TO_BITS))
    t = fma(n, -_LN2[1], fma(n, -_LN2[0], t))
    t2 = builder.fmul(t, t)
    t4 = builder.fmul(t2, t2)
    pairs = [fma(_TAYLOR[i + 1], t, _TAYLOR[i]) for i in range(0, 14, 2)]
    result = pairs[6]
    for i in (4, 2, 0):
        result = fma(result, t4, fma(pairs[i + 1], t2, pairs[i]))
    bits = [builder.bitcast(value, whole) for value in (result, shifted)]
    power = builder.shl(bits[1], ir.Constant(whole, [52] * LANES))  # n, added to the exponents
    result = builder.bitcast(builder.add(bits[0], power), vector)
    return builder.select(normal, result, number(0.0))


def _put_products(values, factors, out):
    out[...] = (values[:, : len(out)] * factors[: len(out)]).T


@intrinsic_of(_put_products)
def put_products(typing, values, factors, out):
    """Write ``values[k, r] * factors[r]`` to ``out[r, k]`` for all rows of `out`.

    The loop is written in LLVM's vector types, because a compiler would scatter vectors.
    """
    if {array.layout for array in (values, factors, out)} != {"C"}:
        return None  # no match: pointers and no strides are used

    def generate(context, builder, signature, arguments):
        values, factors, out = as_structures(context, builder, signature, arguments)
        _, width = cgutils.unpack_tuple(builder, values.shape)
        n_rows, n_classes = cgutils.unpack_tuple(builder, out.shape)
        index, vector = width.type, ir.VectorType(ir.DoubleType(), LANES)

        def put(r, n, load):
            """Write `n` rows from row r on."""
            start = builder.gep(out.data, [builder.mul(r, n_classes)])
            w = load(builder.gep(factors.data, [r]))
            with cgutils.for_range(builder, n_classes, intp=index) as loop:
                at = builder.add(builder.mul(loop.index, width), r)
                products = builder.fmul(load(builder.gep(values.data, [at])), w)
                for i in range(n):
                    lane = ir.IntType(32)(i)
                    value = products if n == 1 else builder.extract_element(products, lane)
                    place = builder.add(builder.mul(index(i), n_classes), loop.index)
                    builder.store(value, builder.gep(start, [place]))

        def load_vector(place):
            return builder.load(vector_at(builder, place, 0, vector), align=8)

        zero, whole = index(0), builder.and_(n_rows, index(-LANES))
        with cgutils.for_range_slice(builder, zero, whole, index(LANES), index) as (r, _):
            put(r, LANES, load_vector)
        with cgutils.for_range_slice(builder, whole, n_rows, index(1), index) as (r, _):
            put(r, 1, builder.load)
        return context.get_dummy_value()

    return types.void(values, factors, out), generate


@kernel
def normalise(scores, logarithmic, densities, out):
    """Write posteriors ``exp(scores[k, r]) / sum`` to ``out[r, k]``, or their logarithms.

    The logarithms of the sums go to `densities`. It or `out` may be empty. All classes are equally
    probable where all scores are -inf. Scores are read once, and their exponentials stay in the
    first cache until they are written row by row.
    """
    n_classes, n_rows = scores.shape
    most = max(1, min(n_rows, _EXP_ROWS, max(_ROW_GROUP, _EXP_VALUES // n_classes)))
    width = padded_width(most)
    every = empty_vectors(n_classes * width).reshape((n_classes, width))
    tops, sums = empty_vectors(width), empty_vectors(width)
    tops[:], sums[:] = 0.0, 0.0  # to the end: arithmetic with denormal numbers would take long
    for first in range(0, n_rows, most):
        n = min(most, n_rows - first)
        top, total = tops[:n], sums[:n]
        for r in range(n):
            top[r], total[r] = scores[0, first + r], 0.0
        for k in range(1, n_classes):
            x = scores[k, first : first + n]
            for r in range(n):
                top[r] = max(top[r], x[r])
        for k in range(n_classes):
            add_exponentials(scores[k, first : first + n], top, every[k], total)
        for r in range(densities[first : first + n].size):
            densities[first + r] = top[r] + np.log(total[r])
        if out.size == 0:
            continue
        if logarithmic:
            for r in range(n):
                total[r] = np.log(total[r])
            for k in range(n_classes):
                x, share = scores[k, first : first + n], every[k]
                for r in range(n):
                    share[r] = (x[r] - top[r] if top[r] > -np.inf else 0.0) - total[r]
        for r in range(n):
            total[r] = 1.0 if logarithmic else 1.0 / total[r]
        put_products(every, sums, out[first : first + n])
