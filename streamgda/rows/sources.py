"""Where rows come from: arrays, memory maps, zarr and HDF5 arrays, data frames, stores on disk.

Each becomes a `RowSource`, which is read in row blocks and never as a whole. Libraries that are
not loaded are not loaded here either: kinds are told apart by what they offer.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamgda.errors import (
    InvalidDataError,
    ReadError,
    SourceError,
)
from streamgda.runtime.retry import brief, with_retries

_OBJECT_BYTES = 64  # of a label that is a Python object of its own
_CHUNK_TASK_BYTES = 1 << 12  # what reading a chunk takes, however small it is


@dataclass(frozen=True)
class RowSource:
    """Something with rows.

    Attributes
    ----------
    values : object
        What is sliced.
    shape : tuple of int
    dtype : numpy.dtype or None
        None where columns have types of their own.
    unit : int
        Rows that are stored together: reading fewer decodes as many.
    in_memory : bool
        Whether reading rows costs no memory.
    shard : int
        Rows of a shard, which holds whole chunks; of a chunk where there are no shards.
    columns : int
        Chunks beside each other, of rows that are cut along the features too.
    name : str
        What errors call it.
    """

    values: Any
    shape: tuple[int, ...]
    dtype: np.dtype | None
    unit: int
    in_memory: bool
    shard: int = 1
    columns: int = 1
    name: str = "X"

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row once it is read."""
        if self.dtype is None:
            itemsize = 8
        else:  # objects and texts of any width are not where they are counted
            itemsize = self.dtype.itemsize + (_OBJECT_BYTES if self.dtype.kind in "OT" else 0)
        return itemsize * self.row_elements

    @property
    def row_elements(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape[1:])

    def reading_bytes(self, n_rows: int) -> int:
        """Bytes in flight where so many rows are worked on and as many are read ahead."""
        if self.in_memory:
            return 0
        touched = min(
            -(-n_rows // self.unit) + (n_rows % self.unit > 0), -(-self.n_rows // self.unit)
        )
        chunks = touched * self.columns
        return self.row_bytes * 2 * (n_rows + touched * self.unit) + _CHUNK_TASK_BYTES * chunks

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop``.

        Where a store fails in a way that may pass, it is asked again, later and later.

        Raises
        ------
        ReadError
            Where they cannot be read.
        """
        if self.in_memory:
            return np.asarray(self.values[start:stop])
        if hasattr(self.values, "iloc"):
            return np.asarray(self.values.iloc[start:stop])
        try:
            return with_retries(lambda: np.asarray(self.values[start:stop]))
        except (MemoryError, InvalidDataError):  # rows that were read, and are wrong
            raise
        except Exception as error:  # every store and codec has its own
            raise self._explained(error, start, min(stop, self.n_rows)) from error

    def held(self) -> RowSource:
        """The same rows, read into memory."""
        return replace(self, values=self.read(0, self.n_rows), unit=1, shard=1, in_memory=True)

    def _explained(self, error: Exception, start: int, stop: int) -> ReadError:
        """An error that names the first chunk in which it occurs again."""
        where = self.title
        for first in range(start // self.unit * self.unit, stop, self.unit):
            rows = slice(first, min(first + self.unit, self.n_rows))
            for column in range(self.columns):
                try:
                    self.values[self._chunk(rows, column)]
                except Exception as again:  # as above
                    chunk = (first // self.unit, column)[: len(self.shape)]
                    return ReadError(
                        f"{where}: chunk {chunk}, rows {first} to {rows.stop - 1}, cannot be read: "
                        f"{brief(again)}"
                    )
        return ReadError(f"{where}: rows {start} to {stop - 1} cannot be read: {brief(error)}")

    @property
    def title(self) -> str:
        """Its name, and of an array in a store the path."""
        if not is_store(self.values):
            return self.name
        return f"{self.name} ({getattr(self.values, 'store_path', type(self.values).__name__)})"

    def place(self, row: int, column: int | None = None) -> str:
        """Which array and chunk, or block of dask's, a row is in; empty where there are none."""
        if is_dask(self.values):
            block = np.searchsorted(np.cumsum(self.values.chunks[0]), row, "right")
            return f"{self.name}: block {block}"
        if not is_store(self.values) or not self.values.chunks:
            return ""
        chunk = (row // self.unit, *((column or 0) // n for n in self.values.chunks[1:]))
        return f"{self.title}: chunk {chunk}"

    def _chunk(self, rows: slice, column: int) -> slice | tuple[slice, slice]:
        if self.columns == 1:
            return rows
        width = self.values.chunks[1]
        return rows, slice(column * width, (column + 1) * width)

    def release(self) -> None:
        """Let go of the pages of a memory map; they stay in the system's cache."""
        base = self.values
        private = False
        while isinstance(base, np.ndarray):
            private = private or getattr(base, "mode", "r") == "c"  # what was changed lies there
            base = base.base
        if isinstance(base, mmap.mmap) and not private and hasattr(mmap, "MADV_DONTNEED"):
            base.madvise(mmap.MADV_DONTNEED)


def is_dask(X: Any) -> bool:
    """Whether this is a dask array, data frame or series (dask is not loaded to find out)."""
    kinds = ("rechunk", "to_dask_array")
    return hasattr(X, "__dask_graph__") and any(hasattr(X, kind) for kind in kinds)


def is_store(X: Any) -> bool:
    """Whether this is an array that is read by slicing: zarr, HDF5 and their like."""
    return (
        not isinstance(X, np.ndarray)
        and hasattr(X, "chunks")
        and hasattr(X, "shape")
        and hasattr(X, "dtype")
        and not is_dask(X)
    )


def as_source(X: Any, what: str = "X") -> RowSource:
    """See rows in `X`.

    Raises
    ------
    InvalidDataError
        Where it is not an array, nor can be made one.
    SourceError
        Where it is a zarr group.
    """
    if is_store(X):
        shape, chunks = tuple(X.shape), X.chunks or X.shape
        n_rows = max(1, *shape[:1])
        unit = min(max(1, *chunks[:1]), n_rows)
        shard = min(max(unit, *(getattr(X, "shards", None) or chunks)[:1]), n_rows)
        columns = math.prod(-(-n // max(1, c)) for n, c in zip(shape[1:], chunks[1:], strict=True))
        return RowSource(X, shape, _dtype(X.dtype), unit, False, shard, max(1, columns), what)
    refuse_group(X, what)
    if hasattr(X, "iloc"):
        return RowSource(X, tuple(X.shape), None, 1, False, name=what)
    if not isinstance(X, np.ndarray):
        X = np.asarray(X)
    if not X.ndim:
        raise InvalidDataError(f"{what} has no rows: it is {type(X.item()).__name__}")
    return RowSource(X, X.shape, X.dtype, 1, True, name=what)


@contextlib.contextmanager
def placing(*sources: RowSource) -> Iterator[None]:
    """Within this context, errors about a row say in which of the arrays and chunks it is."""
    try:
        yield
    except InvalidDataError as error:
        if error.row is not None:
            for source in sources:
                where = source.place(error.row, error.column) if source.name == error.array else ""
                if where:
                    error.place(where)
        raise


def refuse_group(X: Any, what: str = "X") -> None:
    """Raise `SourceError` where this is a zarr group and not one of its arrays."""
    if hasattr(X, "create_array") and hasattr(X, "members"):
        raise SourceError(
            f"{what} is a zarr group, where an array is due; pass one of its arrays: "
            f"{', '.join(sorted(X.array_keys())) or 'it has none'}"
        )


def check_rows(rows: RowSource, *companions: RowSource) -> None:
    """Raise `InvalidDataError` unless all have one shape (n_rows,) beside (n_rows, n_features)."""
    if len(rows.shape) != 2:
        raise InvalidDataError(
            f"X has shape {rows.shape}; expected a 2D array of rows x features (one row: "
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1))"
        )
    for companion, name in zip(companions, ("labels", "weights"), strict=False):
        if len(companion.shape) != 1:
            raise InvalidDataError(f"{name} have shape {companion.shape}; expected one a row")
        if companion.n_rows != rows.n_rows:
            stores = (f"; {s.title}" for s in (rows, companion) if s.title != s.name)
            raise InvalidDataError(
                f"X has {rows.n_rows} rows but there are {companion.n_rows} {name} (inconsistent "
                f"numbers of samples); give one a row{''.join(stores)}"
            )
    if not rows.n_rows:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")


def _dtype(dtype: Any) -> np.dtype:
    return dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)
