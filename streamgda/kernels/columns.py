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

    return kind(types.uint64, like), generate


@kernel
def write_rows(addresses, first, out):
    """Write rows from the row `first` on of columns, given by the addresses of these."""
    n, d = out.shape
    for start in range(0, n, _BLOCK_ROWS):
        rows, at = out[start : start + _BLOCK_ROWS], first + start
        m = rows.shape[0]
        for j in range(0, d - 3, 4):  # fewer writes to the same line of a cache
            some = rows[:, j : j + 4]
            a = carray(numbers_at(addresses[j], out), first + n)[at:]
            b = carray(numbers_at(addresses[j + 1], out), first + n)[at:]
            c = carray(numbers_at(addresses[j + 2], out), first + n)[at:]
            e = carray(numbers_at(addresses[j + 3], out), first + n)[at:]
            for r in range(m):
                some[r, 0], some[r, 1], some[r, 2], some[r, 3] = a[r], b[r], c[r], e[r]
        for j in range(d // 4 * 4, d):
            a = carray(numbers_at(addresses[j], out), first + n)[at:]
            for r in range(m):
                rows[r, j] = a[r]
