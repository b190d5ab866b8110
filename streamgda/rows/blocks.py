"""Blocks of rows in the layout and the data types that the kernels read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamgda.kernels.scatter import DEPTH

NO_WEIGHTS = np.empty(0)
NO_WEIGHTS.setflags(write=False)  # as those that `as_rows` returns
# Data types that the kernels read as they are; blocks of other types are cast to float64.
_FLOAT64 = np.dtype(np.float64)
_NATIVE = {np.dtype(name) for name in ("u1", "i1", "u2", "i2", "f4", "f8")}
_WINDOW_BYTES = 1 << 26  # rows that are grouped by class at a time


def read_dtype(dtype: np.dtype) -> np.dtype:
    """The data type in which the kernels read rows of a data type."""
    native = dtype if dtype.isnative else dtype.newbyteorder("=")
    return native if native in _NATIVE else _FLOAT64


def blocks(X: np.ndarray, dtype: np.dtype) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of `X` as the kernels want them."""
    row_bytes = dtype.itemsize * max(1, X.shape[1])
    n_rows = max(DEPTH, _WINDOW_BYTES // row_bytes)
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_rows(X[rows], dtype)


def as_rows(X: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`X`, or a copy that is C-contiguous and of that type.

    It cannot be written to, as a memory map often cannot: one compiled kernel then serves both.
    """
    rows = np.ascontiguousarray(X, dtype).view()
    rows.setflags(write=False)
    return rows
