"""Linear functions of rows, as dot products that stay in registers.

A few rows are multiplied by a few functions at a time. That needs no copy of the rows, so that few
functions of many features take little more time than to read the rows.
"""

from functools import partial
from itertools import chain, product

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import intrinsic_of, kernel
from streamgda.kernels.processors import SHAPE
from streamgda.kernels.scoring import (
    in_registers,
    keep_largest,
    largest_at,
    no_largest,
    score_writer,
    write_answers,
)
from streamgda.kernels.vectors import (
    LANES,
    as_floats,
    as_structures,
    empty_indices,
    empty_vectors,
    function_of,
    fused_multiply_add,
    interleaved,
    least,
    padded_width,
    prefetch,
    shuffled,
    vector_at,
    whole_vectors,
)

PADDED = 2 * LANES  # vectors are as long as a multiple of it

_FUNCTIONS = 5
_ROWS = 4 if SHAPE.vector_bytes == 64 else 2  # whose sums for these functions fill the registers
_PANEL_ROWS = 32  # that stay in the second cache, with as many to come


def _put_dots(X, start, n, centre, vectors, scale, offsets, out, at, tops, codes):
    d = X.shape[1]
    t = (X[start : start + n].astype(vectors.dtype) - centre[0, :d]) - centre[1, :d]
    dots = vectors[:, :d] @ t.T
    scores = out[:, at : at + n]
    scores[...] = offsets[:, None] + scale * dots.astype(np.float64)
    keep_largest(scores, tops, codes)
    return bool(np.isfinite(dots).all())


@intrinsic_of(_put_dots)
def put_dots(typing, X, start, n, centre, vectors, scale, offsets, out, at, tops, codes):
    """Write `linear_scores` of `n` rows from `start` on to the columns of `out` from `at` on.

    `tops`, `codes` and the result are those of `score_panel`.
    """
    if {array.layout for array in (X, centre, vectors, offsets, out, tops, codes)} != {"C"}:
        return None  # no match: the function is given pointers and no strides
    scalar, number = X.dtype, vectors.dtype

    def generate(context, builder, signature, arguments):
        X, start, n, centre, vectors, scale, offsets, out, at, *held = as_structures(
            context, builder, signature, arguments
        )
        shapes = (cgutils.unpack_tuple(builder, array.shape) for array in (X, vectors, out))
        places = (array.data for array in (X, centre, vectors, offsets))
        given = [start, n, scale, *chain(*shapes), *places, builder.gep(out.data, [at])]
        given += [array.data for array in held]
        kinds = (context.get_data_type(kind) for kind in (scalar, number))
        write = partial(_write_dots, scalar, *kinds)
        name = f"put_dots_{scalar}_{number}"
        types_given = [value.type for value in given]
        function = function_of(builder.module, name, types_given, write, ir.IntType(1))
        return builder.call(function, given)

    index = types.intp
    kinds = X, index, index, centre, vectors, types.float64, offsets, out, index, tops, codes
    return types.boolean(*kinds), generate


def _write_dots(
    scalar, stored, element, builder, start, n, scale, n_rows, d, n_functions, width, _, stride,
    X, centre, vectors, offsets, out, tops, codes,
):  # fmt: skip
    """Write dot products, for some functions at a time and some rows, as far as these go."""
    index, zero = d.type, d.type(0)
    single = isinstance(element, ir.FloatType)
    lanes, size = (2 * LANES, 4) if single else (LANES, 8)
    vector, stored = ir.VectorType(element, lanes), ir.VectorType(stored, lanes)
    pairs = [*product(range(_FUNCTIONS), range(_ROWS))]
    sums = [cgutils.alloca_once(builder, vector) for _ in pairs]
    n_whole, load_last = whole_vectors(builder, d, scalar, stored)
    last_row, last_function = (builder.sub(number, index(1)) for number in (n_rows, n_functions))
    n_groups = builder.sdiv(builder.add(last_function, index(_FUNCTIONS)), index(_FUNCTIONS))
    # A centre in float64 is a single number.
    centres = [centre, builder.gep(centre, [width])][: 1 + single]
    scores = ir.VectorType(ir.DoubleType(), _ROWS)
    put, finite = score_writer(builder, scores, n, scale, stride, offsets, out)

    def load_at(start, at):
        return builder.load(vector_at(builder, builder.gep(start, [at]), 0, vector), align=size)

    def add_products(rows, ahead, weights, number, load):
        """Add the products of a vector of features."""
        at, centred = builder.mul(number, index(lanes)), []
        shifts = [load_at(place, at) for place in centres]
        for row, later in zip(rows, ahead, strict=True):
            place = builder.gep(row, [at])
            prefetch(builder, builder.gep(place, [later]), nearness=2)
            x = load(vector_at(builder, place, 0, stored))
            x = as_floats(builder, x, scalar, element)
            for shift in shifts:
                x = builder.fsub(x, shift)
            centred.append(x)
        weights = [load_at(place, at) for place in weights]
        for (i, r), total in zip(pairs, sums, strict=True):
            added = fused_multiply_add(builder, weights[i], centred[r], builder.load(total))
            builder.store(added, total)

    with (
        cgutils.for_range_slice(builder, zero, n_functions, index(_FUNCTIONS), index) as (k, _),
        cgutils.for_range_slice(builder, zero, n, index(_ROWS), index) as (r, _),
    ):
        group, first = builder.sdiv(k, index(_FUNCTIONS)), builder.add(start, r)
        rows, ahead = [], []
        for i in range(_ROWS):
            row = least(builder, builder.add(first, index(i)), last_row)
            rows.append(builder.gep(X, [builder.mul(row, d)]))
            # As many rows that follow are loaded in the course of all functions.
            turn = builder.sdiv(builder.mul(index(i), n_groups), index(_ROWS))
            own = builder.icmp_signed("==", group, turn)
            ahead.append(builder.select(own, builder.mul(n, d), zero))
        # The last functions and rows are filled up with copies of the last one.
        every = (builder.add(k, index(i)) for i in range(_FUNCTIONS))
        functions = [least(builder, number, last_function) for number in every]
        weights = [builder.gep(vectors, [builder.mul(number, width)]) for number in functions]
        for total in sums:
            builder.store(ir.Constant(vector, None), total)
        with cgutils.for_range(builder, n_whole, intp=index) as loop:
            load = partial(builder.load, align=scalar.bitwidth // 8)
            add_products(rows, ahead, weights, loop.index, load)
        add_products(rows, ahead, weights, n_whole, load_last)
        with in_registers(builder, largest_at(builder, tops, codes, r, scores, 1)) as largest:
            for i, number in enumerate(functions):
                some = [builder.load(total) for total in sums[i * _ROWS :][:_ROWS]]
                total = _summed(builder, some)
                put(number, r, [builder.fpext(total, scores) if single else total], largest)
    return finite()


def _summed(builder, vectors):
    """Return a vector with the sum over the lanes of each of some vectors."""
    many, n = len(vectors), 1
    while n < many:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [builder.fadd(*interleaved(builder, a, b, n)) for a, b in pairs]
        n *= 2
    [total] = vectors
    while total.type.count > many:
        n = total.type.count // 2
        halves = (shuffled(builder, total, total, range(i, i + n)) for i in (0, n))
        total = builder.fadd(*halves)
    return total


@kernel
def linear_scores(X, centre, vectors, scale, offsets, scores, labels, rows, shares):
    """Write ``offsets[k] + scale * vectors[k] . (x - centre)`` for each row x.

    `scores`, `labels`, `rows`, `shares` and the result are those of `panel_scores`. Products are
    in the type of the vectors. These are as long as a multiple of `PADDED`, and as the two rows
    whose sum is the centre: its values in that type, and what is left.
    """
    n_rows = X.shape[0]
    most = padded_width(min(n_rows, _PANEL_ROWS))
    some = empty_vectors((offsets.size if scores.size == 0 else 0, most))
    tops, sums, codes, finite = empty_vectors(most), empty_vectors(most), empty_indices(most), True
    for start in range(0, n_rows, most):
        n = min(most, n_rows - start)
        out, at = (scores, start) if scores.size > 0 else (some, 0)
        no_largest(tops, codes)
        finite &= put_dots(X, start, n, centre, vectors, scale, offsets, out, at, tops, codes)
        if scores.size == 0:
            write_answers(some, n, start, labels, rows, shares, codes, tops, sums)
    return finite
