"""Rows by their columns, as tables hold them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from streamgda.kernels.columns import write_rows
from streamgda.runtime import threads

_TASK_ELEMENTS = 1 << 18  # that are worth a call on another thread


class _Part(NamedTuple):
    """Rows ``first:last`` of some columns, and the addresses of these."""

    columns: list[np.ndarray]
    addresses: np.ndarray
    first: int
    last: int


class ColumnRows:
    """Rows whose columns are separate arrays; they become an array where one is needed.

    Kernels ask for some rows at a time, on all threads, so that the rows never exist as a whole.

    Parameters
    ----------
    parts : list
        Consecutive rows.
    n_features : int
    dtype : numpy.dtype

    Examples
    --------
    >>> rows = ColumnRows.of([np.array([1, 2, 3]), np.array([0.5, 1.5, 2.5])], np.dtype("f8"))
    >>> rows[1:].shape, np.asarray(rows[1:])
    ((2, 2), array([[2. , 1.5],
           [3. , 2.5]]))
    """

    ndim = 2

    def __init__(self, parts: list[_Part], n_features: int, dtype: np.dtype) -> None:
        self._parts, self.dtype = parts, dtype
        self.shape = sum(part.last - part.first for part in parts), n_features

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], dtype: np.dtype) -> ColumnRows:
        """Return the rows of columns, which are converted to a type if they have another one."""
        held = [np.ascontiguousarray(column, dtype) for column in columns]
        addresses = [column.__array_interface__["data"][0] for column in held]
        part = _Part(held, np.array(addresses, np.uint64), 0, len(held[0]))
        return cls([part], len(held), dtype)

    @classmethod
    def concatenated(cls, rows: Sequence[ColumnRows]) -> ColumnRows:
        """Return consecutive rows as one."""
        parts = [part for some in rows for part in some._parts]
        return cls(parts, rows[0].shape[1], rows[0].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as an array."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return consecutive rows by their columns, and others as an array."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            found = [
                part._replace(
                    first=max(part.first, part.first + start - at),
                    last=min(part.last, part.first + stop - at),
                )
                for at, part in self._placed()
            ]
            kept = [part for part in found if part.first < part.last]
            return ColumnRows(kept, self.shape[1], self.dtype)
        numbers = np.arange(len(self))[rows]
        out = np.empty((numbers.size, self.shape[1]), self.dtype)
        for at, part in self._placed():
            own = np.flatnonzero((numbers >= at) & (numbers < at + part.last - part.first))
            within = numbers[own] - at + part.first
            for number, column in enumerate(part.columns if own.size else ()):
                out[own, number] = column[within]
        return out

    def _placed(self) -> Iterator[tuple[int, _Part]]:
        """Yield the number of the first row of each part, and the part."""
        at = 0
        for part in self._parts:
            yield at, part
            at += part.last - part.first

    def row(self, number: int) -> np.ndarray:
        """Return a row."""
        found: np.ndarray = self[[number]][0]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the rows as an array."""
        rows = np.empty(self.shape, self.dtype)
        bits = rows.view(f"u{rows.itemsize}")  # so that one kernel serves several types
        step = max(1, _TASK_ELEMENTS // max(1, self.shape[1]))
        threads.run(
            write_rows,
            (
                (
                    part.addresses,
                    start,
                    bits[at + start - part.first :][: min(step, part.last - start)],
                )
                for at, part in self._placed()
                for start in range(part.first, part.last, step)
            ),
        )
        return rows if dtype is None else rows.astype(dtype, copy=False)
