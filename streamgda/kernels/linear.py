"""Linear functions of rows, which are transposed in registers.

As many features of a few vectors of rows as there are lanes are multiplied by all functions before
the next ones are read. That needs no copy of the rows, so that few functions of many features take
little more time than to read the rows.
"""

from functools import partial
from itertools import chain

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import kernel
from streamgda.kernels.scoring import (
    in_registers,
    largest_at,
    no_largest,
    panel_width,
    score_writer,
    write_answers,
)
from streamgda.kernels.vectors import (
    LANES,
    as_floats,
    as_structures,
    broadcast,
    empty_indices,
    empty_vectors,
    function_of,
    fused_multiply_add,
    least,
    prefetch,
    transposed,
    vector_at,
    whole_vectors,
)

PADDED = 2 * LANES  # vectors are as long as a multiple of it

_FUNCTIONS = 32  # whose vectors stay in the second cache, and sums in the first
_LINES = 128  # bytes of two cache lines: the processor loads that beside one, too


@intrinsic
def put_dots(typing, X, start, n, centre, vectors, scale, offsets, scratch, out, at, tops, codes):
    """Write `linear_scores` of `n` rows from `start` on to the columns of `out` from `at` on.

    `scratch` is memory for `PADDED` numbers for each of `_FUNCTIONS` or all functions. If `out` is
    empty, only `tops` and `codes` are written. They and the result are those of `score_panel`.
    """
    arrays = X, centre, vectors, offsets, scratch, out, tops, codes
    if {array.layout for array in arrays} != {"C"}:
        return None  # no match: the function is given pointers and no strides
    scalar, number = X.dtype, vectors.dtype

    def generate(context, builder, signature, arguments):
        X, start, n, centre, vectors, scale, offsets, scratch, out, at, *held = as_structures(
            context, builder, signature, arguments
        )
        shapes = (cgutils.unpack_tuple(builder, array.shape) for array in (X, vectors, out))
        places = (array.data for array in (X, centre, vectors, offsets))
        given = [start, n, scale, *chain(*shapes), *places]
        given += [builder.bitcast(scratch.data, vectors.data.type), builder.gep(out.data, [at])]
        given += [array.data for array in held]
        kinds = (context.get_data_type(kind) for kind in (scalar, number))
        write = partial(_write_dots, scalar, *kinds)
        name = f"put_dots_{scalar}_{number}"
        types_given = [value.type for value in given]
        function = function_of(builder.module, name, types_given, write, ir.IntType(1))
        return builder.call(function, given)

    index = types.intp
    kinds = X, index, index, centre, vectors, types.float64, offsets, scratch, out, index
    return types.boolean(*kinds, tops, codes), generate


def _write_dots(
    scalar, stored, element, builder, start, n, scale, n_rows, d, n_functions, width, n_out, stride,
    X, centre, vectors, offsets, sums, out, tops, codes,
):  # fmt: skip
    """Write dot products of vectors of rows, for some functions at a time."""
    index, zero = d.type, d.type(0)
    single = isinstance(element, ir.FloatType)
    lanes, size = (2 * LANES, 4) if single else (LANES, 8)
    vector, stored = ir.VectorType(element, lanes), ir.VectorType(stored, lanes)
    wide, zeros = ir.VectorType(ir.DoubleType(), lanes), ir.Constant(vector, None)
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    last_row = builder.sub(n_rows, index(1))
    # A centre in float64 is a single number.
    centres = [centre, builder.gep(centre, [width])][: 1 + single]
    put, finite = score_writer(builder, wide, n, scale, n_out, stride, offsets, out)

    def load_at(start, at):
        return builder.load(vector_at(builder, builder.gep(start, [at]), 0, vector), align=size)

    def score_rows(first, last, r, n_vectors, whole):
        """Write the scores of some vectors of rows; copies of the last row fill up the last one."""
        n_numbers, row = n_vectors * lanes, builder.add(start, r)
        begin, left = builder.gep(X, [builder.mul(row, d)]), builder.sub(last_row, row)
        numbers = (index(i) if whole else least(builder, index(i), left) for i in range(n_numbers))
        rows = [builder.gep(begin, [builder.mul(number, d)]) for number in numbers]
        # As many rows that follow are loaded meanwhile, in the order in which they are in memory.
        later = builder.gep(begin, [builder.mul(n, d)])
        later = builder.bitcast(later, ir.IntType(8).as_pointer())
        n_bytes = index(n_numbers * lanes * scalar.bitwidth // 8)

        def add_products(number, load, end):
            """Add the products of a vector of features, and call `end` for each function."""
            at, x = builder.mul(number, index(lanes)), []
            shifts = [load_at(place, at) for place in centres]
            for row in rows:
                values = load(vector_at(builder, builder.gep(row, [at]), 0, stored))
                values = as_floats(builder, values, scalar, element)
                for shift in shifts:
                    values = builder.fsub(values, shift)
                x.append(values)
            columns = [transposed(builder, x[i : i + lanes]) for i in range(0, n_numbers, lanes)]
            follows = builder.icmp_signed(">", number, zero)
            ahead = builder.gep(later, [builder.mul(number, n_bytes)])
            # One of its places with each function, and those that are left before.
            after = builder.mul(builder.sub(last, first), index(_LINES))
            with cgutils.for_range_slice(builder, after, n_bytes, index(_LINES), index) as (
                byte,
                _,
            ):
                prefetch(builder, builder.gep(ahead, [byte]), nearness=2)
            with cgutils.for_range_slice(builder, first, last, index(1), index) as (k, _):
                turn = builder.sub(k, first)
                byte = builder.mul(turn, index(_LINES))
                prefetch(builder, builder.gep(ahead, [byte]), nearness=2)
                own = builder.gep(vectors, [builder.add(builder.mul(k, width), at)])
                weights = [builder.load(builder.gep(own, [index(j)])) for j in range(lanes)]
                weights = [broadcast(builder, weight, vector) for weight in weights]
                held = builder.gep(sums, [builder.mul(turn, index(n_numbers))])
                places = [vector_at(builder, held, v, vector) for v in range(n_vectors)]
                totals = []
                for place, column in zip(places, columns, strict=True):
                    total = builder.select(follows, builder.load(place, align=size), zeros)
                    parts = [total, zeros]  # because an addition takes cycles
                    for j, (weight, values) in enumerate(zip(weights, column, strict=True)):
                        parts[j % 2] = fused_multiply_add(builder, weight, values, parts[j % 2])
                    totals.append(builder.fadd(*parts))
                end(k, places, totals)

        def hold(_, places, totals):
            for total, place in zip(totals, places, strict=True):
                builder.store(total, place, align=size)

        with cgutils.for_range(builder, n_whole, intp=index) as loop:
            add_products(loop.index, partial(builder.load, align=scalar.bitwidth // 8), hold)
        places = largest_at(builder, tops, codes, r, wide, n_vectors)
        with in_registers(builder, places) as largest:

            def write(k, _, totals):
                put(k, r, [builder.fpext(t, wide) if single else t for t in totals], largest)

            add_products(n_whole, load_last, write)

    together = 1 if single else 2  # vectors whose transposes fill half of the registers
    step, many = index(_FUNCTIONS), index(together * lanes)
    whole = builder.sub(n, builder.srem(n, many))
    with cgutils.for_range_slice(builder, zero, n_functions, step, index) as (first, _):
        last = least(builder, builder.add(first, step), n_functions)
        with cgutils.for_range_slice(builder, zero, whole, many, index) as (r, _):
            score_rows(first, last, r, together, whole=True)
        with cgutils.for_range_slice(builder, whole, n, index(lanes), index) as (r, _):
            score_rows(first, last, r, 1, whole=False)
    return finite()


@kernel
def linear_scores(X, centre, vectors, scale, offsets, scores, labels, rows, shares):
    """Write ``offsets[k] + scale * vectors[k] . (x - centre)`` for each row x.

    `scores`, `labels`, `rows`, `shares` and the result are those of `panel_scores`. Products are
    in the type of the vectors. These are as long as a multiple of `PADDED`, and as the two rows
    whose sum is the centre: its values in that type, and what is left.
    """
    n_rows = X.shape[0]
    # The rows of a panel are in a cache, and those of the next one on their way to it.
    most = panel_width(n_rows, 2 * max(X.shape[1], offsets.size), PADDED)
    some = empty_vectors((offsets.size if scores.size == labels.size == 0 else 0, most))
    scratch = empty_vectors(min(offsets.size, _FUNCTIONS) * PADDED)
    tops, sums, codes, finite = empty_vectors(most), empty_vectors(most), empty_indices(most), True
    for start in range(0, n_rows, most):
        n = min(most, n_rows - start)
        out, at = (scores, start) if scores.size > 0 else (some, 0)
        no_largest(tops, codes)
        finite &= put_dots(
            X, start, n, centre, vectors, scale, offsets, scratch, out, at, tops, codes
        )
        if scores.size == 0:
            write_answers(some, n, start, labels, rows, shares, codes, tops, sums)
    return finite
