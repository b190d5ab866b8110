"""Rows written from columns that are separate arrays."""

import ctypes

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from streamgda.kernels import inner_kernel, intrinsic_of, kernel
from streamgda.kernels.vectors import as_structures, least, prefetch, transposed

_BLOCK_ROWS = 128  # that stay in a near cache while some columns after others are written
_ROWS_AHEAD = 64  # that are requested while others are written


def _writing(width):
    """Return a function that writes as many columns, transposed in tiles of as many rows."""

    def plain(places, column, skipped, rows):
        number = np.ctypeslib.as_ctypes_type(rows.dtype)
        for j in range(column, column + width):
            numbers = ctypes.cast(int(places[j] + skipped), ctypes.POINTER(number))
            rows[:, j] = np.ctypeslib.as_array(numbers, (len(rows),))

    @intrinsic_of(plain)
    def write(typing, places, column, skipped, rows):
        """Write columns from a number on, of which some bytes are skipped, to no fewer rows.

        The last tile overlaps the one before.
        """
        size = rows.dtype.bitwidth // 8

        def generate(context, builder, signature, arguments):
            places, column, skipped, rows = as_structures(context, builder, signature, arguments)
            (n, _), (stride, _) = (
                cgutils.unpack_tuple(builder, t) for t in (rows.shape, rows.strides)
            )
            index, vector = n.type, ir.VectorType(ir.IntType(8 * size), width)

            def vector_at(address):
                return builder.inttoptr(address, vector.as_pointer())

            starts = [
                builder.gep(places.data, [builder.add(column, index(j))]) for j in range(width)
            ]
            starts = [builder.add(builder.load(start), skipped) for start in starts]
            out = builder.add(builder.ptrtoint(rows.data, index), builder.mul(column, index(size)))
            last = builder.sub(n, index(width))
            with cgutils.for_range_slice(builder, index(0), n, index(width), index) as (start, _):
                r = least(builder, start, last)
                at = [builder.add(start, builder.mul(r, index(size))) for start in starts]
                for place in at if width > 1 else ():
                    ahead = builder.add(place, index(_ROWS_AHEAD * size))
                    prefetch(builder, vector_at(ahead), nearness=2)
                columns = [builder.load(vector_at(place), align=size) for place in at]
                for i, row in enumerate(transposed(builder, columns)):
                    place = builder.mul(builder.add(r, index(i)), stride)
                    builder.store(row, vector_at(builder.add(out, place)), align=size)
            return context.get_dummy_value()

        return types.void(places, types.intp, types.intp, rows), generate

    return write


_write_8, _write_4, _write_1 = (_writing(width) for width in (8, 4, 1))


@kernel
def write_rows(addresses, stops, first, out):
    """Write rows from the row `first` on of columns that consist of parts.

    The rows of part i end before the row ``stops[i]``, and ``addresses[i, j]`` is where the first
    row of all would be if all of column j were where this part is.
    """
    n, d = out.shape
    start, part = 0, 0
    while start < n:
        at = first + start
        while stops[part] <= at:
            part += 1
        m = min(_BLOCK_ROWS, n - start, stops[part] - at)
        rows, places, skipped = out[start : start + m], addresses[part], at * out.itemsize
        if min(m, d) >= 8:
            for j in range(0, d, 8):
                _write_8(places, min(j, d - 8), skipped, rows)
        elif min(m, d) >= 4:
            for j in range(0, d, 4):
                _write_4(places, min(j, d - 4), skipped, rows)
        else:
            for j in range(d):
                _write_1(places, j, skipped, rows)
        start += m


@inner_kernel
def rows_between(X, order, columns, stops, first, last):
    """Return rows from number `first` to `last`, or, in an order, all rows.

    If addresses of columns in parts are given (see `write_rows`), they are written to `X`, which
    has space for as many.
    """
    if columns.shape[0] > 0:
        rows = X[: last - first]
        write_rows(columns, stops, first, rows)
        return rows
    return X if order.shape[0] > 0 else X[first:last]


@inner_kernel
def rows_at_a_time(X, columns, first, last):
    """Return for how many rows `rows_between` has space: all, unless they are written to `X`."""
    return max(1, X.shape[0] if columns.shape[0] > 0 else last - first)
