"""Arrays in memory and memory maps: their rows, data types, and blocks of rows."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.labels import CodedLabels
from streamgda.rows.source import RowSource, as_slab, refuse_delayed, refuse_records


def read_only(values: np.ndarray) -> np.ndarray:
    """Return a view of an array that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


# --- data types -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowType:
    """Treatment of rows of one data type.

    Attributes
    ----------
    dtype : dtype
        Type that the kernels read.
    floating : dtype
        Type in which rows are centred, multiplied and scored where that is not done in integers.
        float32 is only used where its accuracy is enough, float64 otherwise.
    """

    dtype: np.dtype
    floating: np.dtype

    @property
    def exact(self) -> bool:
        """True for integers, which have exact sums."""
        return self.dtype.kind in "iu"

    @cached_property
    def reach(self) -> int:
        """The largest magnitude of a value of this integer type."""
        limits = np.iinfo(self.dtype)
        return max(-int(limits.min), int(limits.max))


_TYPES = {
    np.dtype(kind): RowType(np.dtype(kind), floating=np.dtype("f4" if kind == "f4" else "f8"))
    for kind in ("u1", "i1", "u2", "i2", "f4", "f8")
}
_FLOAT64 = _TYPES[np.dtype("f8")]  # that rows of all other types are cast to
_TYPES[np.dtype("f2")] = _TYPES[np.dtype("f4")]

INTEGERS = tuple(dtype for dtype, kind in _TYPES.items() if kind.exact)


def row_type(dtype: np.dtype) -> RowType:
    """Return the treatment of rows of a data type, in any byte order.

    Examples
    --------
    >>> row_type(np.dtype(">f4")).dtype, row_type(np.dtype("int64")).dtype
    (dtype('float32'), dtype('float64'))
    """
    found = _TYPES.get(dtype)
    if found is None:
        found = _TYPES.get(dtype.newbyteorder("="), _FLOAT64)
    return found


# --- blocks of rows -------------------------------------------------------------------------------


def is_plain(X: Any) -> bool:
    """Return whether `X` is exactly a numpy array whose values are in memory."""
    return type(X) is np.ndarray and not isinstance(X.base, np.memmap)


NO_WEIGHTS = np.empty(0)
WINDOW_BYTES = 1 << 26  # held of rows that are grouped by class at a time


def blocks(X: Any, dtype: np.dtype, beside: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of rows as `as_kernel_rows` returns them, each with its place in `X`.

    They are as large as memory for copies, and for the bytes that are held beside each row, allows:
    large sums are read and written once for each block.
    """
    as_it_is = isinstance(X, np.ndarray) and X.dtype == dtype and X.flags.c_contiguous
    row_bytes = beside + (0 if as_it_is else dtype.itemsize * X.shape[1])
    n_rows = max(1024, WINDOW_BYTES // max(1, row_bytes))
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_kernel_rows(X[rows], dtype)


def as_kernel_rows(X: Any, dtype: np.dtype) -> Any:
    """Return `X`, or a copy of it, as a C-contiguous array of a data type, for reading.

    Sparse rows stay sparse.
    """
    return np.ascontiguousarray(X, dtype) if hasattr(X, "__array__") else X.astype(dtype)


# --- rows of arrays -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrayRows(RowSource):
    """Rows of an array in memory, or of a memory map."""

    in_memory = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked."""
        return True

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Convert `X` to an array; raise `InvalidDataError` for a scalar and for records."""
        refuse_delayed(X, name)
        refuse_records(X, name)
        X = X if isinstance(X, CodedLabels) else as_slab(X, name)
        if not X.ndim:
            found, advice = type(X.item()).__name__, "; open files first: X, y = open_store(path)"
            raise InvalidDataError(
                f"{name} has no rows: it is {found}{advice if found == 'str' else ''}"
            )
        return cls(X, X.shape, X.dtype, name)

    def _slice(self, start: int, stop: int) -> Any:
        _drop_pages(self.values)
        rows = self.values[start:stop]
        return rows if isinstance(rows, CodedLabels) else np.asarray(rows)

    @property
    def read_as_views(self) -> bool:
        """True unless rows are transformed."""
        return self.mapping is None

    @property
    def copied_bytes(self) -> float:
        """Bytes of the array, infinity if they are in a memory map."""
        return float(self.values.nbytes) if is_plain(self.values) else math.inf


def _drop_pages(values: Any) -> None:
    """Drop the pages of a memory map from this process; the operating system caches them.

    Changes to a private map are in its pages only, and stay.
    """
    mode = ""
    while isinstance(values, np.ndarray):
        mode, values = getattr(values, "mode", mode), values.base
    if isinstance(values, mmap.mmap) and mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        values.madvise(mmap.MADV_DONTNEED)
