"""Blocks of rows in the memory layout and the data types that the kernels read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamgda.kernels.products import LEAST_ROWS
from streamgda.rows.dtypes import row_type
from streamgda.rows.sparse import CompressedRows

NO_WEIGHTS = np.empty(0)
NO_WEIGHTS.setflags(write=False)  # as those that `as_rows` returns
WINDOW_BYTES = 1 << 26  # rows that are grouped by class at a time


def blocks(X: np.ndarray, dtype: np.dtype) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of rows as `as_rows` returns them, each with its place in `X`."""
    row_bytes = dtype.itemsize * max(1, X.shape[1])
    n_rows = max(LEAST_ROWS, WINDOW_BYTES // row_bytes)
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_rows(X[rows], dtype)


def as_rows(X: Any, dtype: np.dtype) -> Any:
    """Return `X`, or a copy of it, as a C-contiguous read-only array of a data type.

    Sparse rows stay sparse.

    Memory maps are often read-only; making every array so lets one compiled kernel serve both.
    """
    if type(X) is CompressedRows:
        return X.astype(dtype)
    rows = np.ascontiguousarray(X, dtype).view()
    rows.setflags(write=False)
    return rows


def byte_rows(X: np.ndarray, origin: int) -> tuple[np.ndarray, tuple[int, np.uint8, int]]:
    """Return rows of integers as bytes, and what `kernels.integer_scatter` must know of them.

    That is the size of a value in bytes, the bits that differ in its highest byte from an unsigned
    number, and the distance of an origin from the lowest value.
    """
    lowest = row_type(X.dtype).limits[0]
    return X.view(np.uint8), (X.itemsize, np.uint8(128 if lowest else 0), origin - lowest)
