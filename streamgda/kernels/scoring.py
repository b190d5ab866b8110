"""Scores of rows, such as squared Mahalanobis distances; labels and probabilities from scores.

Scores have shape ``(n_classes, n_rows)``. Below, x holds the given features of a row of `X`, in
their order. It is centred as if in float64, and rounded to the type of what it is multiplied by.

Rows are treated in panels of shape ``(d, width)``, so that every loop runs along rows, in LLVM's
vector types; the last panel is as narrow as its rows, and filled up with copies of the last one.
Some rows of a triangular matrix at a time are multiplied up to the diagonal. Of many features, the
panels are those of one class, from which rows are left out whose score cannot matter.
"""

from contextlib import contextmanager
from functools import partial
from itertools import chain

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import (
    fast_kernel,
    inline_kernel,
    kernel,
)
from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import (
    LANES,
    as_floats,
    as_structures,
    broadcast,
    empty_indices,
    empty_vectors,
    for_vectors,
    function_of,
    fused_multiply_add,
    least,
    loader,
    masked_store,
    padded_width,
    repeated,
    transposed,
    vector_at,
    whole_vectors,
)

# Of more features, the panels are of one class, without rows whose score cannot matter. That is
# looked at after so many entries of W (x - centre), and twice as many, and so on; as long as the
# rows with all entries are fewer than all rows by a factor, which is more for fewer features.
PANEL_FEATURES = 128
BLOCK = 64
_WORTH = 512

# Largest numbers of rows and of values of a panel.
_PANEL_ROWS = 96
_PANEL_VALUES = 1 << 15

FLOAT64_FEATURES = 12  # so few are multiplied in float64 whatever the rows are
_VECTOR_BYTES = max(32, SHAPE.vector_bytes)
# Of rows, side by side: an element of the matrix is loaded once for all of them, and a vector once
# for so many rows of the matrix, as far as there are registers for their sums.
_VECTORS = 3
_SUMS = 8 if _VECTOR_BYTES == 64 else 4
_ADDED = 8  # sums that are added to in turn, because each addition takes several cycles


@inline_kernel
def _select(guesses, k, others, rows):
    """Write the rows whose guess is class k, or is another class; return their number."""
    n = 0
    for r in range(guesses.size):
        rows[n] = r
        n += (guesses[r] == k) != others
    return n


@inline_kernel
def _square_diagonal(X, rows, n, columns, centre, weights, first, distances):
    """Write the sum of ``(weights[i] (x_i - centre[i]))^2`` over all i from `first`."""
    for q in range(n):
        r, total = np.uint64(rows[q]), 0.0  # unsigned: no check for negative indices
        for i in range(first, columns.size):
            t = weights[i] * (X[r, np.uint64(columns[i])] - centre[i])
            total += t * t
        distances[q] = total


@inline_kernel
def _keep_close(rows, n, distances, scale, offset, best, margin, out):
    """Write scores, and move rows whose scores may matter to the front; return their number."""
    kept = 0
    for q in range(n):
        r = rows[q]
        out[r] = offset + scale * distances[q]
        rows[kept], distances[kept] = r, distances[q]
        kept += not out[r] < best[r] - margin
    return kept


@fast_kernel
def matrix_scores(
    X, columns, centres, parts, n_coupled, weights, starts, triangles, scale, offsets, guesses,
    others, margin, best, out,
):  # fmt: skip
    """Write ``offsets[k] + scale |W[k] (x - centres[k])|^2`` to ``out[k, r]`` for each row x.

    W[k] is lower triangular. The features of class k are the columns ``columns[k]`` of `X`. The
    first ``n_coupled[k]`` rows and columns of W[k] are the square matrix at
    ``triangles[starts[k]]``, of columns in rising order, and the others are the diagonal
    ``weights[k]``. Squares are summed in float64. ``parts[k]`` is the centre as `halves` returns
    it, for all columns of `X`.

    A call scores the class ``guesses[r]`` of each row, or with `others` all other classes.

    `scale` is negative. The sum of a part of the squares bounds a score from above. Where such a
    bound is more than `margin` below the largest score of the row, it may be written in place of
    the score. This saves most work if the classes of the largest scores are known: `guesses`.

    `best` holds the largest score of each row so far, at first -inf.
    """
    step, bounded = _VECTOR_BYTES // triangles.itemsize, others and margin < np.inf
    most, n_all, n_whole = _VECTORS * step, X.shape[0], 0
    panel = empty_vectors(padded_width(X.shape[1]) * most)
    rows, distances = empty_indices(X.shape[0] + 1), empty_vectors(X.shape[0] + most)
    for k in range(centres.shape[0]):
        n, m, last = _select(guesses, k, others, rows), n_coupled[k], 0
        W, places = triangles[starts[k] : starts[k + 1]], columns[k]
        _square_diagonal(X, rows, n, places, centres[k], weights[k], m, distances)
        n_all += n
        while last < m and n > 0:
            n = _keep_close(rows, n, distances, scale, offsets[k], best, margin, out[k])
            first, last = last, min(max(BLOCK, 2 * last), m) if bounded else m
            n_whole += n if last == m else 0
            begin, end = places[0], places[last - 1] + 1
            for start in range(0, n, most):
                width = (min(most, n - start) + step - 1) // step * step
                pack_panel(X, rows[start:n], begin, end, width, W, parts[k], panel)
                add_squares(panel, width, begin, places, W, first, last, distances[start:])
        bounded &= n_whole * _WORTH <= n_all * m
        for q in range(n):
            r = rows[q]
            out[k, r] = offsets[k] + scale * distances[q]
            best[r] = max(best[r], out[k, r])


@intrinsic
def pack_panel(typing, X, rows, begin, end, width, like, parts, panel):
    """Write feature ``begin + j`` of row ``rows[r]`` to ``panel[j * width + r]`` up to `end`.

    It is written in the type of `like`, which is float64, or the type of `X`, less the `parts` of a
    centre, which may be ``()``. Rows beyond the last one are copies of it. The width is whole
    vectors, up to which there is memory for features, too.
    """
    given = [X, rows, panel, *([parts] if isinstance(parts, types.Array) else [])]
    if {array.layout for array in given} != {"C"}:
        return None  # no match: the function is given pointers and no strides
    scalar, element, centred = X.dtype, like.dtype, len(given) > 3

    def generate(context, builder, signature, arguments):
        X, rows, begin, end, width, like, parts, panel = as_structures(
            context, builder, signature, arguments
        )
        memory = builder.bitcast(panel.data, like.data.type)
        _, d = cgutils.unpack_tuple(builder, X.shape)
        first = builder.gep(X.data, [begin])
        given = [d, first, builder.sub(end, begin), rows.data, rows.nitems, width, memory]
        if centred:
            high = builder.gep(parts.data, [begin])
            low = builder.gep(high, [cgutils.unpack_tuple(builder, parts.shape)[1]])
            given += [high, low] if element == types.float32 else [high]
        lanes = _VECTOR_BYTES * 8 // element.bitwidth
        stored = ir.VectorType(context.get_data_type(scalar), lanes)
        write = partial(_write_panel, scalar, stored)
        name = f"pack_panel_{scalar}_{element}" + centred * "_centred"
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, name, kinds, write), given)
        return context.get_dummy_value()

    index = types.intp
    return types.void(X, rows, index, index, index, like, parts, panel), generate


def _write_panel(scalar, stored, builder, stride, X, d, rows, n_rows, width, panel, *parts):
    """Write rows as columns: whole vectors of features of as many rows are transposed."""
    index, n_lanes, element = d.type, stored.count, panel.type.pointee
    lanes, size = range(n_lanes), _VECTOR_BYTES // n_lanes
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    last, floating = builder.sub(n_rows, index(1)), ir.VectorType(element, n_lanes)
    with cgutils.for_range_slice(builder, index(0), width, index(n_lanes), index) as (r, _):
        numbers = [least(builder, builder.add(r, index(i)), last) for i in lanes]
        numbers = [builder.load(builder.gep(rows, [number])) for number in numbers]
        places_of = [builder.gep(X, [builder.mul(number, stride)]) for number in numbers]

        def put(number, load):
            at = builder.mul(number, index(n_lanes))
            places = [vector_at(builder, builder.gep(row, [at]), 0, stored) for row in places_of]
            values = [as_floats(builder, load(place), scalar, element) for place in places]
            for part in parts:
                place = vector_at(builder, builder.gep(part, [at]), 0, floating)
                middle = builder.load(place, align=size)
                values = [builder.fsub(value, middle) for value in values]
            for i, column in enumerate(transposed(builder, values)):
                place = builder.add(builder.mul(builder.add(at, index(i)), width), r)
                place = vector_at(builder, builder.gep(panel, [place]), 0, column.type)
                builder.store(column, place, align=size)

        with cgutils.for_range(builder, n_whole, intp=index) as loop:
            put(loop.index, lambda place: builder.load(place, align=scalar.bitwidth // 8))
        put(n_whole, load_last)


def row_step(dtype):
    """Return the number of rows of a type that are computed together."""
    return _VECTOR_BYTES // np.dtype(dtype).itemsize


@inline_kernel
def panel_width(n_rows, d, step):
    """Return the number of rows in a panel, a multiple of `step`."""
    most = max(1, min(_PANEL_ROWS, _PANEL_VALUES // d) // step)
    return step * min(most, (n_rows + step - 1) // step)


_FUNCTIONS = 5  # whose sums of some rows are added to in turn, because an addition takes cycles


@intrinsic
def score_panel(
    typing, panel, width, n, features, centres, factors, scale, offsets, scratch, out, start, tops,
    codes, X, following,
):  # fmt: skip
    """Write `panel_scores` of the first `n` rows of a panel to `out`, from column `start` on.

    `scratch` is memory for `row_step` numbers of each feature, in the type of the factors. `tops`
    and `codes`, of the width of the panel, hold the largest score of each row so far, and its
    class. If `out` is empty, only they are written. Return True if all sums are finite.

    Meanwhile, as many rows of `X` from number `following` on are loaded, little by little: those of
    a whole panel at once would be more than the processor can wait for.
    """
    arrays = panel, features, centres, factors, offsets, scratch, out, tops, codes, X
    if {array.layout for array in arrays} != {"C"}:
        return None  # no match: the function is given pointers and no strides
    write = _write_triangles if factors.ndim == 3 else _write_sums
    name = f"score_panel_{factors.ndim}_{factors.dtype}"

    def generate(context, builder, signature, arguments):
        structures = as_structures(context, builder, signature, arguments)
        panel, width, n, features, centres, factors, scale, offsets, scratch, out = structures[:10]
        start, tops, codes, X, following = structures[10:]
        n_factors, _ = cgutils.unpack_tuple(builder, factors.shape)[:2]
        n_out, stride = cgutils.unpack_tuple(builder, out.shape)
        numbers = width, n, features.nitems, n_factors, offsets.nitems, scale, n_out, stride
        row_bytes, _ = cgutils.unpack_tuple(builder, X.strides)
        later = builder.bitcast(X.data, ir.IntType(8).as_pointer())
        later = builder.gep(later, [builder.mul(following, row_bytes)])
        first = builder.gep(out.data, [start])
        places = (a.data for a in (features, centres, factors, offsets))
        rows, memory = (builder.bitcast(a.data, factors.data.type) for a in (panel, scratch))
        given = [*numbers, rows, *places, memory, first, tops.data, codes.data, later, row_bytes]
        kinds = [value.type for value in given]
        function = function_of(builder.module, name, kinds, write, ir.IntType(1))
        return builder.call(function, given)

    kinds = panel, types.intp, types.intp, features, centres, factors, types.float64, offsets
    return types.boolean(*kinds, scratch, out, types.intp, tops, codes, X, types.intp), generate


def _write_sums(
    builder, width, n, d, n_factors, n_classes, scale, n_out, stride,
    panel, features, centres, factors, offsets, _, out, tops, codes, later, row_bytes,
):  # fmt: skip
    """Write sums of squares over the features, for some classes at a time."""
    index, vector, zero = d.type, ir.VectorType(ir.DoubleType(), LANES), d.type(0)
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(2)] for _ in range(_FUNCTIONS)]
    last_class, last_factor = (builder.sub(n, index(1)) for n in (n_classes, n_factors))
    put, finite = score_writer(builder, vector, n, scale, n_out, stride, offsets, out)

    def number(start, at):
        return broadcast(builder, builder.load(builder.gep(start, [at])), vector)

    def add_products(j, x, middles, weights, used):
        """Add the products of feature j of some vectors of rows."""
        for weight, middle, totals in zip(weights, middles, used, strict=True):
            w, own = number(weight, j), number(middle, j)
            for total, values in zip(totals, x, strict=True):
                t = builder.fsub(values, own)
                added = fused_multiply_add(builder, builder.fmul(w, t), t, builder.load(total))
                builder.store(added, total)

    def score_rows(start, stop, n_vectors):
        """Write the scores of so many vectors of rows at a time."""
        used, step = [totals[:n_vectors] for totals in sums], index(n_vectors * LANES)
        with cgutils.for_range_slice(builder, start, stop, step, index) as (r, _):
            places = largest_at(builder, tops, codes, r, vector, n_vectors)
            with in_registers(builder, places) as largest:
                score_classes(r, n_vectors, used, largest)

    def score_classes(r, n_vectors, used, largest):
        n_groups = builder.sdiv(builder.add(last_class, index(_FUNCTIONS)), index(_FUNCTIONS))
        own = builder.gep(later, [builder.mul(r, row_bytes)])
        n_bytes = builder.mul(row_bytes, index(n_vectors * LANES))
        load_part = loader(builder, own, n_bytes, builder.mul(n_groups, d))
        with cgutils.for_range_slice(builder, zero, n_classes, index(_FUNCTIONS), index) as (k, _):
            # The last classes are filled up with copies of the last one.
            numbers = (builder.add(k, index(i)) for i in range(_FUNCTIONS))
            classes = [least(builder, number, last_class) for number in numbers]
            groups = [least(builder, c, last_factor) for c in classes]
            weights = [builder.gep(factors, [builder.mul(g, d)]) for g in groups]
            middles = [builder.gep(centres, [builder.mul(c, d)]) for c in classes]
            for total in chain(*used):
                builder.store(ir.Constant(vector, None), total)
            before = builder.mul(builder.sdiv(k, index(_FUNCTIONS)), d)
            with cgutils.for_range(builder, d, intp=index) as loop:
                load_part(builder.add(before, loop.index))
                column = builder.mul(builder.load(builder.gep(features, [loop.index])), width)
                place = builder.gep(panel, [builder.add(column, r)])
                places = (vector_at(builder, place, v, vector) for v in range(n_vectors))
                x = [builder.load(place, align=8) for place in places]
                add_products(loop.index, x, middles, weights, used)
            for c, totals in zip(classes, used, strict=True):
                put(c, r, [builder.load(total) for total in totals], largest)

    whole = builder.and_(width, index(-2 * LANES))
    score_rows(zero, whole, 2)  # two vectors, so that a number is loaded for both
    score_rows(whole, width, 1)
    return finite()


def _write_triangles(
    builder, width, n, d, n_factors, n_classes, scale, n_out, stride,
    panel, features, centres, factors, offsets, scratch, out, tops, codes, later, row_bytes,
):  # fmt: skip
    """Write sums of the squares of triangles times centred columns, class by class."""
    index, (vector, wide, size) = d.type, _types_of(scratch)
    put, finite = score_writer(builder, wide, n, scale, n_out, stride, offsets, out)

    def place_of(j, r, n_vectors, v):
        start = builder.gep(scratch, [builder.mul(j, index(n_vectors * vector.count))])
        return vector_at(builder, start, v, vector)

    with cgutils.for_range(builder, n_classes, intp=index) as classes:
        k = classes.index
        group = least(builder, k, builder.sub(n_factors, index(1)))
        W = builder.gep(factors, [builder.mul(group, builder.mul(d, d))])
        high = builder.gep(centres, [builder.mul(k, d)])
        low = builder.gep(high, [builder.mul(n_classes, d)])
        parts = [high] if vector == wide else [high, low]

        def begin(r, n_vectors):
            """Write columns less the centre, and return sums of zero."""
            own = builder.gep(later, [builder.mul(r, row_bytes)])
            n_bytes = builder.mul(row_bytes, index(n_vectors * vector.count))
            load_part = loader(builder, own, n_bytes, builder.mul(n_classes, d))
            before = builder.mul(k, d)
            with cgutils.for_range(builder, d, intp=index) as loop:
                j = loop.index
                load_part(builder.add(before, j))
                column = builder.mul(builder.load(builder.gep(features, [j])), width)
                place = builder.gep(panel, [builder.add(column, r)])
                middles = [builder.load(builder.gep(part, [j])) for part in parts]
                middles = [broadcast(builder, middle, vector) for middle in middles]
                for v in range(n_vectors):
                    t = builder.load(vector_at(builder, place, v, vector), align=size)
                    for middle in middles:
                        t = builder.fsub(t, middle)
                    builder.store(t, place_of(j, r, n_vectors, v), align=size)
            return [ir.Constant(wide, None)] * n_vectors

        def end(r, sums):
            put(k, r, sums, largest_at(builder, tops, codes, r, wide, len(sums)))

        _sum_squares(builder, width, index(0), d, d, W, place_of, begin, end)
    return finite()


@intrinsic
def add_squares(typing, panel, width, begin, columns, W, first, last, distances):
    """Add the squares of rows `first` to `last` of a triangle W times the centred rows of a panel.

    Its features are the columns from `begin` on of an array of rows, in which those of W have the
    numbers `columns`. There is memory for whole panels of distances.
    """
    if {array.layout for array in (panel, columns, W, distances)} != {"C"}:
        return None  # no match: the function is given pointers and no strides

    def generate(context, builder, signature, arguments):
        panel, width, begin, columns, W, first, last, distances = as_structures(
            context, builder, signature, arguments
        )
        rows = builder.bitcast(panel.data, W.data.type)
        rows = builder.gep(rows, [builder.neg(builder.mul(begin, width))])
        _, stride = cgutils.unpack_tuple(builder, W.shape)
        given = [width, first, last, stride, rows, columns.data, W.data, distances.data]
        kinds = [value.type for value in given]
        name = f"add_squares_{signature.args[4].dtype}"
        builder.call(function_of(builder.module, name, kinds, _add_to_distances), given)
        return context.get_dummy_value()

    index = types.intp
    return types.void(panel, index, index, columns, W, index, index, distances), generate


def _add_to_distances(builder, width, first, last, stride, panel, columns, W, distances):
    vector, wide, _ = _types_of(panel)

    def place_of(j, r, n_vectors, v):
        column = builder.mul(builder.load(builder.gep(columns, [j])), width)
        return vector_at(builder, builder.gep(panel, [builder.add(column, r)]), v, vector)

    def places(r, n_vectors):
        start = builder.gep(distances, [r])
        return [vector_at(builder, start, v, wide) for v in range(n_vectors)]

    def begin(r, n_vectors):
        return [builder.load(place, align=8) for place in places(r, n_vectors)]

    def end(r, sums):
        for value, place in zip(sums, places(r, len(sums)), strict=True):
            builder.store(value, place, align=8)

    _sum_squares(builder, width, first, last, stride, W, place_of, begin, end)


def _types_of(numbers):
    """Return the types of vectors of numbers at a pointer and of as many in float64, and a size."""
    element = numbers.type.pointee
    size = 4 if element == ir.FloatType() else 8
    vector = ir.VectorType(element, _VECTOR_BYTES // size)
    return vector, ir.VectorType(ir.DoubleType(), vector.count), size


def _sum_squares(builder, width, first, last, stride, W, place_of, begin, end):
    """Sum the squares of rows `first` to `last` of a triangle times centred columns.

    ``begin(r, n_vectors)`` returns what the sums are before, of vectors of rows from r on, and
    ``end(r, sums)`` takes the sums. ``place_of(j, r, n_vectors, v)`` is where one of the vectors
    of column j is.
    """
    vector, wide, size = _types_of(W)
    index, zero = width.type, width.type(0)

    def sum_columns(start, stop, n_vectors, n_sums):
        """Sum the squares of so many vectors of rows, from so many sums, at a time."""
        numbers, step = range(n_vectors), index(n_vectors * vector.count)
        sums = [[cgutils.alloca_once(builder, vector) for _ in numbers] for _ in range(n_sums)]
        squares = [cgutils.alloca_once(builder, wide) for _ in numbers]

        def add_products(r, j, first, rows):
            """Add ``W[first + i, j]`` times column j to the sums of some rows i."""
            x = [builder.load(place_of(j, r, n_vectors, v), align=size) for v in numbers]
            for i in rows:
                row = builder.mul(builder.add(first, index(i)), stride)
                w = broadcast(builder, builder.load(builder.gep(W, [builder.add(row, j)])), vector)
                for total, values in zip(sums[i], x, strict=True):
                    added = fused_multiply_add(builder, w, values, builder.load(total))
                    builder.store(added, total)

        def add_rows(r, first, last, n_rows):
            """Add the squares for rows of the matrix from `first` to `last`, `n_rows` at a time."""
            with cgutils.for_range_slice(builder, first, last, index(n_rows), index) as (row, _):
                for total in chain(*sums[:n_rows]):
                    builder.store(ir.Constant(vector, None), total)
                with cgutils.for_range(builder, row, intp=index) as loop:
                    add_products(r, loop.index, row, range(n_rows))
                for j in range(n_rows):  # up to the diagonal
                    add_products(r, builder.add(row, index(j)), row, range(j, n_rows))
                for i in range(0, n_rows, _SUMS):
                    some = zip(*sums[i : min(i + _SUMS, n_rows)], strict=True)
                    for square, totals in zip(squares, some, strict=True):
                        part = ir.Constant(vector, None)
                        for value in map(builder.load, totals):
                            part = fused_multiply_add(builder, value, value, part)
                        part = part if vector == wide else builder.fpext(part, wide)
                        builder.store(builder.fadd(part, builder.load(square)), square)

        with cgutils.for_range_slice(builder, start, stop, step, index) as (r, _):
            for value, total in zip(begin(r, n_vectors), squares, strict=True):
                builder.store(value, total)
            middle = builder.add(first, builder.urem(builder.sub(last, first), index(_ADDED)))
            add_rows(r, first, middle, 1)
            add_rows(r, middle, last, n_sums)
            end(r, [builder.load(total) for total in squares])

    together = index(_VECTORS * vector.count)
    several = builder.sub(width, builder.urem(width, together))
    sum_columns(zero, several, _VECTORS, _SUMS)
    sum_columns(several, width, 1, _ADDED)


def largest_at(builder, tops, codes, r, vector, n_vectors):
    """Return pointers to the largest scores of vectors of rows from `r` on, and their classes."""
    kinds = vector, ir.VectorType(r.type, vector.count)
    pairs = [*zip((builder.gep(array, [r]) for array in (tops, codes)), kinds, strict=True)]
    return [[vector_at(builder, place, v, kind) for place, kind in pairs] for v in range(n_vectors)]


@contextmanager
def in_registers(builder, largest):
    """Provide variables in place of pointers of `largest_at`, which are written afterwards."""
    held = [[cgutils.alloca_once(builder, at.type.pointee) for at in pair] for pair in largest]
    pairs = [*zip(chain(*largest), chain(*held), strict=True)]
    for place, variable in pairs:
        builder.store(builder.load(place, align=8), variable)
    yield held
    for place, variable in pairs:
        builder.store(builder.load(variable), place, align=8)


def _larger(builder, scored, before):
    """Return the larger one of two scores, each with its class; of equal ones, that before."""
    (score, own), (top, code) = scored, before
    larger = builder.fcmp_ordered(">", score, top)
    return builder.select(larger, score, top), builder.select(larger, own, code)


def score_writer(builder, vector, n, scale, n_out, stride, offsets, out):
    """Return what writes scores from sums, and what returns True if all these were finite.

    ``write(k, r, sums, largest)`` is for class k of rows from r on; `largest` are pointers to their
    largest scores so far and to the classes of these, which it changes. Without classes in the
    output, `n_out`, it writes no scores.
    """
    index, scale = n.type, broadcast(builder, scale, vector)
    codes = ir.VectorType(index, vector.count)
    numbers = ir.Constant(codes, [index(i) for i in range(vector.count)])
    store, zeros = masked_store(builder, vector), ir.Constant(vector, None)
    wanted = builder.icmp_signed(">", n_out, index(0))
    # NaN once a sum is not finite; several, because an addition takes cycles.
    lost = [cgutils.alloca_once_value(builder, zeros) for _ in range(_VECTORS)]

    def write(k, r, sums, largest):
        own, offset = broadcast(builder, k, codes), builder.load(builder.gep(offsets, [k]))
        offset = broadcast(builder, offset, vector)
        start = builder.gep(out, [builder.add(builder.mul(k, stride), r)])
        for v, (total, held) in enumerate(zip(sums, largest, strict=False)):
            score = fused_multiply_add(builder, scale, total, offset)
            with builder.if_then(wanted, likely=False):
                left = builder.sub(n, builder.add(r, index(v * vector.count)))
                below = builder.icmp_signed("<", numbers, broadcast(builder, left, codes))
                store(score, vector_at(builder, start, v, vector), below)
            before = [builder.load(place, align=8) for place in held]
            for value, place in zip(_larger(builder, (score, own), before), held, strict=True):
                builder.store(value, place, align=8)
            nothing = fused_multiply_add(builder, total, zeros, builder.load(lost[v]))
            builder.store(nothing, lost[v])

    def finite():
        first, *others = map(builder.load, lost)
        for other in others:
            first = builder.fadd(first, other)
        bits = ir.IntType(vector.count)
        equal = builder.bitcast(builder.fcmp_ordered("==", first, first), bits)
        return builder.icmp_signed("==", equal, bits(-1))

    return write, finite


@kernel
def panel_scores(X, features, centres, factors, scale, offsets, scores, labels, rows, shares):
    """Write scores to ``scores[k, r]``, or what follows from them panel by panel, in a cache.

    They are ``offsets[k] + scale * sum``, where the sum is that of the squares of ``factors[k] t``
    for lower triangular matrices, and that of ``factors[k] * t^2`` for vectors; t is x less
    ``centres[k]``. x holds the given features of a row of `X`. Factors of a single class serve all
    of them.

    If `scores` is empty, the classes of the largest are written to `labels`, the first of equal
    ones. If that is empty, too, the scores are written to ``rows[r, k]``, or posteriors with
    `shares`, as by `normalise`. Sums are in float64, as are products but for those with matrices of
    float32.

    Return True if all sums are finite. Then so are the values of the features.
    """
    n_rows, columns = X.shape
    step = _VECTOR_BYTES // factors.itemsize
    most = panel_width(n_rows, columns, step)
    panel = empty_vectors(padded_width(max(1, columns)) * most)  # a vector is written in any case
    scratch = empty_vectors(features.size * step * _VECTORS)
    some = empty_vectors((offsets.size if scores.size == labels.size == 0 else 0, most))
    tops, sums, codes, finite = empty_vectors(most), empty_vectors(most), empty_indices(most), True
    order = empty_indices(most)
    for start in range(0, n_rows, most):
        n = min(most, n_rows - start)
        width = panel_width(n, columns, step)
        for r in range(n):
            order[r] = start + r
        pack_panel(X, order[:n], 0, columns, width, factors, (), panel)
        out, at = (scores, start) if scores.size > 0 else (some, 0)
        no_largest(tops, codes)
        finite &= score_panel(
            panel, width, n, features, centres, factors, scale, offsets, scratch, out, at, tops,
            codes, X, start + most,
        )  # fmt: skip
        if scores.size == 0:
            write_answers(some, n, start, labels, rows, shares, codes, tops, sums)
    return finite


@inline_kernel
def no_largest(tops, codes):
    """Write what is before the first class of a panel."""
    for r in range(tops.size):
        tops[r], codes[r] = -np.inf, 0


@inline_kernel
def write_answers(scores, n, start, labels, rows, shares, codes, tops, sums):
    """Write what follows from the scores of `n` rows, `start` and later; see `panel_scores`.

    `codes` are the classes of the largest; `tops` and `sums` are scratch space.
    """
    if labels.size > 0:
        for r in range(n):
            labels[start + r] = codes[r]
    else:
        if shares:
            put_exponentials(scores, 0, n, scores, tops, sums)
        else:
            for r in range(n):
                sums[r] = 1.0
        put_shares(scores, sums, rows[start : start + n])


@intrinsic
def write_largest(typing, scores, n, labels, start):
    """Write the classes of the largest scores of `n` rows to `labels`, from `start` on."""
    if scores.layout != "C" or labels.layout != "C":
        return None  # no match: the function is given pointers and no strides

    def generate(context, builder, signature, arguments):
        scores, n, labels, start = as_structures(context, builder, signature, arguments)
        given = [*cgutils.unpack_tuple(builder, scores.shape), n, scores.data]
        given.append(builder.gep(labels.data, [start]))
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, "largest", kinds, _write_codes), given)
        return context.get_dummy_value()

    return types.void(scores, types.intp, labels, types.intp), generate


def _write_codes(builder, n_classes, stride, n, scores, labels):
    """Write the class of the largest score of each row, the first one of equals."""
    index, vector = n.type, ir.VectorType(ir.DoubleType(), LANES)
    codes = ir.VectorType(index, LANES)
    put = masked_store(builder, codes)
    numbers = ir.Constant(codes, [index(i) for i in range(LANES)])

    def write(number, n_vectors, load):
        r = builder.mul(number, index(LANES))
        start = builder.gep(scores, [r])

        def compare(k, held):
            at, own = builder.gep(start, [builder.mul(k, stride)]), broadcast(builder, k, codes)
            found = []
            for v, (top, code) in enumerate(zip(held[::2], held[1::2], strict=True)):
                score = load(vector_at(builder, at, v, vector))
                found += _larger(builder, (score, own), (top, code))
            return found

        held = [ir.Constant(vector, [-np.inf] * LANES), ir.Constant(codes, None)] * n_vectors
        found = repeated(builder, n_classes, held, compare)[1::2]
        for v, code in enumerate(found):
            below = broadcast(builder, builder.sub(n, builder.add(r, index(v * LANES))), codes)
            below = builder.icmp_signed("<", numbers, below)
            put(code, vector_at(builder, builder.gep(labels, [r]), v, codes), below)

    # Most often some vectors, because those of different classes may be in the same cache set.
    for_vectors(builder, n, vector, 4, write)


@kernel
def largest(scores, labels):
    """Write the class of the largest score of each row, the first one of equals."""
    if labels.size > 0:
        write_largest(scores, labels.size, labels, 0)


_LOG2_E = 1 / np.log(2)
# The product of the first part of ln 2 and a whole number of 11 bits is exact.
_LN2 = float.fromhex("0x1.62e42fefa0000p-1"), float.fromhex("0x1.cf79abc9e3b39p-40")
# Of exp between -ln(2) / 2 and ln(2) / 2, with a relative error of at most 4e-18.
_POWERS = (
    1.0, 1.0, 0.5000000000000011, 0.16666666666666413, 0.041666666666530267,
    0.008333333333494335, 0.0013888888943598022, 0.00019841269506777785,
    2.480149313582193e-05, 2.755758626737624e-06, 2.7630234059192756e-07, 2.5000072213603394e-08,
)  # fmt: skip
_LEAST = -708.0  # exp of anything less is not a normal number
FAR = -_LEAST  # scores that are further below the largest have probability zero
_TO_BITS = 1.5 * 2.0**52  # adding this to a whole number leaves it in the last bits

# Rows whose exponentials stay in the first cache, and values.
_EXP_ROWS, _EXP_VALUES = 256, 1 << 13
_LINE_VECTORS = 8 // LANES  # in a cache line, which is loaded once for all of them


@intrinsic
def put_exponentials(typing, scores, first, n, exponentials, tops, sums):
    """Write ``exp(scores[k, first + r] - tops[r])`` to ``exponentials[k, r]`` for `n` rows r.

    `tops` gets their largest scores, and `sums` the sums of the exponentials, which are one where
    the largest score is -inf. All but the scores are in memory for whole vectors, up to which
    anything is written.
    """
    if {array.layout for array in (scores, exponentials, tops, sums)} != {"C"}:
        return None  # no match: pointers and no strides are used

    def generate(context, builder, signature, arguments):
        scores, first, n, *out = as_structures(context, builder, signature, arguments)
        given = [n, *cgutils.unpack_tuple(builder, scores.shape)]
        given += [cgutils.unpack_tuple(builder, out[0].shape)[1], builder.gep(scores.data, [first])]
        given += [array.data for array in out]
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, "put_exponentials", kinds, _write_exps), given)
        return context.get_dummy_value()

    index = types.intp
    return types.void(scores, index, index, exponentials, tops, sums), generate


def _write_exps(builder, n, n_classes, stride, width, scores, exponentials, tops, sums):
    """Write exponentials of vectors of rows, class by class."""
    vector = ir.VectorType(ir.DoubleType(), LANES)
    lowest, zeros = (ir.Constant(vector, [value] * LANES) for value in (-np.inf, 0.0))

    def write(number, n_vectors, load):
        at = builder.mul(number, n.type(LANES))

        def places(array, *entry):
            start = builder.gep(array, [builder.add(builder.mul(*entry), at) if entry else at])
            return [vector_at(builder, start, v, vector) for v in range(n_vectors)]

        def larger(k, held):
            values = map(load, places(scores, k, stride))
            return [
                builder.select(builder.fcmp_ordered(">", x, top), x, top)
                for x, top in zip(values, held, strict=True)
            ]

        def add(k, held):
            totals, values = [], map(load, places(scores, k, stride))
            put = places(exponentials, k, width)
            for x, top, total, place in zip(values, largest, held, put, strict=True):
                finite = builder.fcmp_ordered(">", top, lowest)
                t = builder.select(finite, builder.fsub(x, top), zeros)
                result = _exponential(builder, t)
                builder.store(result, place, align=8)
                totals.append(builder.fadd(total, result))
            return totals

        largest = repeated(builder, n_classes, [lowest] * n_vectors, larger)
        totals = repeated(builder, n_classes, [zeros] * n_vectors, add)
        for array, values in ((tops, largest), (sums, totals)):
            for value, place in zip(values, places(array), strict=True):
                builder.store(value, place, align=8)

    for_vectors(builder, n, vector, _LINE_VECTORS, write)


def _exponential(builder, t):
    """Return exponentials of numbers of at most zero.

    They are accurate to two units in the last place, and zero below -708. With the number
    ``n ln 2 + t``, ``exp(t)`` is a polynomial, in groups of four terms that do not depend on each
    other.
    """
    vector, whole = t.type, ir.VectorType(ir.IntType(64), LANES)

    def fma(a, b, c):
        parts = (number(v) if isinstance(v, float) else v for v in (a, b, c))
        return fused_multiply_add(builder, *parts)

    def number(value):
        return ir.Constant(vector, [value] * LANES)

    normal = builder.fcmp_ordered(">=", t, number(_LEAST))
    t = builder.select(normal, t, number(_LEAST))
    shifted = fma(t, float(_LOG2_E), _TO_BITS)
    n = builder.fsub(shifted, number(_TO_BITS))
    t = fma(n, -_LN2[1], fma(n, -_LN2[0], t))
    t2 = builder.fmul(t, t)
    t4 = builder.fmul(t2, t2)
    pairs = [fma(_POWERS[i + 1], t, _POWERS[i]) for i in range(0, 12, 2)]
    result, *others = [fma(pairs[i + 1], t2, pairs[i]) for i in (4, 2, 0)]
    for some in others:
        result = fma(result, t4, some)
    bits = [builder.bitcast(value, whole) for value in (result, shifted)]
    power = builder.shl(bits[1], ir.Constant(whole, [52] * LANES))  # n, added to the exponents
    result = builder.bitcast(builder.add(bits[0], power), vector)
    return builder.select(normal, result, number(0.0))


@intrinsic
def put_shares(typing, values, sums, out):
    """Write ``values[k, r] / sums[r]`` to ``out[r, k]`` for all rows of `out`.

    The values and sums are in memory for whole vectors of rows. They are transposed in LLVM's
    vector types, because a compiler would scatter vectors.
    """
    if {array.layout for array in (values, sums, out)} != {"C"}:
        return None  # no match: pointers and no strides are used

    def generate(context, builder, signature, arguments):
        values, sums, out = as_structures(context, builder, signature, arguments)
        _, width = cgutils.unpack_tuple(builder, values.shape)
        given = [*cgutils.unpack_tuple(builder, out.shape), width]
        given += [values.data, sums.data, out.data]
        kinds = [value.type for value in given]
        builder.call(function_of(builder.module, "put_shares", kinds, _write_shares), given)
        return context.get_dummy_value()

    return types.void(values, sums, out), generate


def _write_shares(builder, n_rows, n_classes, width, values, sums, out):
    """Write shares of vectors of rows, and of as many classes, the last ones twice."""
    index, vector = width.type, ir.VectorType(ir.DoubleType(), LANES)
    put = masked_store(builder, vector)
    numbers = ir.Constant(ir.VectorType(index, LANES), [index(i) for i in range(LANES)])
    last_row, last_class = (builder.sub(n, index(1)) for n in (n_rows, n_classes))
    step, zero = index(LANES), index(0)

    def load(start, at):
        return builder.load(vector_at(builder, builder.gep(start, [at]), 0, vector), align=8)

    with cgutils.for_range_slice(builder, zero, n_rows, step, index) as (r, _):
        rows = [least(builder, builder.add(r, index(i)), last_row) for i in range(LANES)]
        w = builder.fdiv(ir.Constant(vector, [1.0] * LANES), load(sums, r))
        with cgutils.for_range_slice(builder, zero, n_classes, step, index) as (k, _):
            classes = (least(builder, builder.add(k, index(i)), last_class) for i in range(LANES))
            places = (builder.add(builder.mul(c, width), r) for c in classes)
            products = [builder.fmul(load(values, place), w) for place in places]
            left = broadcast(builder, builder.sub(n_classes, k), numbers.type)
            below = builder.icmp_signed("<", numbers, left)
            # The last row itself comes after what is beyond it, in the same place.
            pairs = zip(rows, transposed(builder, products), strict=True)
            for row, product in reversed(list(pairs)):
                place = builder.gep(out, [builder.add(builder.mul(row, n_classes), k)])
                put(product, vector_at(builder, place, 0, vector), below)


@kernel
def normalise(scores, logarithmic, densities, out):
    """Write posteriors ``exp(scores[k, r]) / sum`` to ``out[r, k]``, or their logarithms.

    The logarithms of the sums go to `densities`. It or `out` may be empty. All classes are equally
    probable where all scores are -inf. Exponentials stay in the first cache until they are written
    row by row.
    """
    n_classes, n_rows = scores.shape
    most = max(1, min(n_rows, _EXP_ROWS, max(LANES, _EXP_VALUES // n_classes)))
    width = padded_width(most)
    every = empty_vectors((n_classes, width))
    tops, sums = empty_vectors(width), empty_vectors(width)
    for first in range(0, n_rows, most):
        n = min(most, n_rows - first)
        put_exponentials(scores, first, n, every, tops, sums)
        for r in range(densities[first : first + n].size):
            densities[first + r] = tops[r] + np.log(sums[r])
        if out.size == 0:
            continue
        if logarithmic:
            for r in range(n):
                sums[r] = np.log(sums[r])
            for k in range(n_classes):
                x, share = scores[k, first : first + n], every[k]
                for r in range(n):
                    share[r] = (x[r] - tops[r] if tops[r] > -np.inf else 0.0) - sums[r]
            sums[:n] = 1.0
        put_shares(every, sums, out[first : first + n])
