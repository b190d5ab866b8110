"""Rows that a feature map lifts when they are read: block by block, never as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamgda.rows.counting import WINDOW_BYTES, all_finite, refuse_not_finite
from streamgda.runtime import threads

_PART_ELEMENTS = 1 << 21  # A thread computes so many elements of lifted rows at a time.
_PART_ROWS = 256  # A part has at least so many rows: BLAS packs the matrix of a map for each.
_LEAST_ROWS = 1024  # A window has at least so many rows, as each costs a pass over the moments.
_WINDOW_BYTES = WINDOW_BYTES // 2  # Lifted rows are centred in a copy.


class LiftedRows:
    """An array of rows behind a feature map: a slice, or some rows, are lifted when it is read.

    Attributes
    ----------
    values : ndarray, shape (n_rows, n_features)
        Rows before the map; they are finite.
    lifting : streamgda.moments.feature_maps.Lifting
    shape : tuple of int
    dtype : dtype
    """

    def __init__(self, values: np.ndarray, lifting: Any) -> None:
        self.values, self.lifting = values, lifting
        self.shape = len(values), lifting.n_out
        self.dtype = lifting.dtype(values.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        """Return lifted rows, given as a slice or by their indices; computed on all threads."""
        values, width = self.values[rows], self.shape[1]
        out = np.empty((len(values), width), self.dtype)
        # The size of a part does not depend on the number of threads, and so no bit does.
        step = max(_PART_ROWS, _PART_ELEMENTS // width)

        def lift(start: int) -> None:
            part = slice(start, start + step)
            self.lifting.apply(values[part], out[part])

        threads.run_serial_blas(lift, ((start,) for start in range(0, len(values), step)))
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[:], dtype)

    def windows(self) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield lifted rows, window by window, each with its place."""
        n_rows = max(_LEAST_ROWS, _WINDOW_BYTES // (self.dtype.itemsize * self.shape[1]))
        for start in range(0, len(self), n_rows):
            rows = slice(start, start + n_rows)
            yield rows, self[rows]


def window_bytes(n_features: int) -> int:
    """Return the bytes of the lifted rows that are in memory at a time, at most."""
    return max(_WINDOW_BYTES, 8 * _LEAST_ROWS * n_features)


def lifted(X: Any, lifting: Any, first_row: int = 0, numbers: np.ndarray | None = None) -> Any:
    """Return rows as they are without a map; with one, rows that are lifted when they are read.

    Raises
    ------
    InvalidDataError
        For NaN and infinity; see `refuse_not_finite`.
    """
    if lifting is None:
        return X
    if X.dtype.kind == "f" and not all_finite(X):
        refuse_not_finite(X, first_row, numbers)
    return LiftedRows(X, lifting)
