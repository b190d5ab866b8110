"""Rows written from columns that are separate arrays."""

import ctypes

import numpy as np
from numba import carray, types

from streamgda.kernels import intrinsic_of, kernel

_BLOCK_ROWS = 128  # that stay in a near cache while one column after another is written


def _numbers_at(address, like):
    return ctypes.cast(int(address), ctypes.POINTER(np.ctypeslib.as_ctypes_type(like.dtype)))


@intrinsic_of(_numbers_at)
def numbers_at(typing, address, like):
    """Return a pointer to numbers of the type of an array, given its address."""
    kind = types.CPointer(like.dtype)

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(kind))

    return kind(types.intp, like), generate


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
        for j in range(0, d - 3, 4):  # fewer writes to the same line of a cache
            some = rows[:, j : j + 4]
            a = carray(numbers_at(places[j] + skipped, out), m)
            b = carray(numbers_at(places[j + 1] + skipped, out), m)
            c = carray(numbers_at(places[j + 2] + skipped, out), m)
            e = carray(numbers_at(places[j + 3] + skipped, out), m)
            for r in range(m):
                some[r, 0], some[r, 1], some[r, 2], some[r, 3] = a[r], b[r], c[r], e[r]
        for j in range(d // 4 * 4, d):
            a = carray(numbers_at(places[j] + skipped, out), m)
            for r in range(m):
                rows[r, j] = a[r]
        start += m
