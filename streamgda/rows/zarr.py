"""Arrays in stores, which are read by slicing: zarr, HDF5 and others with the same interface."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, ReadError, SourceError, brief, cause_of
from streamgda.rows.names import ATTRIBUTE, as_names
from streamgda.rows.source import RowSource, as_slab
from streamgda.storage.opening import is_remote, named

_CONCURRENCY, _ZARRS_OWN = "async.concurrency", 10  # The default of zarr's configuration is 10.
_REMOTE_REQUESTS = 128  # So many chunks are requested at a time from a store that is not local.


@dataclass(frozen=True)
class StoredRows(RowSource):
    """Rows of an array in a store, read in whole chunks, or in slabs of any size without chunks.

    A chunk that the store lacks holds the fill value, as in zarr itself.
    """

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept chunked arrays, and groups, for which `of` raises a clear error."""
        if isinstance(X, np.ndarray) or hasattr(X, "__dask_graph__"):  # of dask and of xarray
            return False
        return is_group(X) or all(hasattr(X, what) for what in ("chunks", "shape", "dtype"))

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source with the shape of the chunks; raise `SourceError` for a group."""
        if is_group(X):
            raise SourceError(
                f"{name} is a {type(X).__name__} of arrays; expected an array. Pass one of its "
                f"entries: {', '.join(sorted(map(str, X))) or 'it has none':.500}"
            )
        shape, dtype = tuple(X.shape or ()), np.dtype(X.dtype)  # of empty HDF5, the shape is None
        return cls(X, shape, dtype, name, X.chunks or ())  # Contiguous HDF5 has none.

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, in the attribute ``feature_names`` of a zarr array.

        Raises
        ------
        SourceError
            If there are names, but not one for each column.
        """
        held = getattr(self.values, "attrs", {}).get(ATTRIBUTE)
        names = as_names(held) if isinstance(held, list) else None
        if names is not None and self.shape[1:] != (len(names),):
            raise SourceError(
                f"{self.place()} has {len(names)} names in its attribute {ATTRIBUTE!r} and shape "
                f"{self.shape}; expected a name for each column: correct or delete the attribute"
            )
        return names

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the name, with the path of the array or the type of the store, and the chunk."""
        where = getattr(self.values, "store_path", None)
        title = f"{self.name} ({type(self.values).__name__ if where is None else named(where)})"
        if row is None or not self.chunks:
            return title
        chunk = (row // self.chunks[0], *((column or 0) // n for n in self.chunks[1:]))
        return f"{title}: chunk {chunk}"

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return some rows: the only place where stores are read."""
        try:
            with many_requests(self.values):
                return as_slab(self.values[start:stop])
        except (MemoryError, InvalidDataError):
            raise
        except Exception as error:  # Each store and codec has its own exceptions.
            raise self._explained(error, start, stop) from cause_of(error)

    def _explained(self, error: Exception, start: int, stop: int) -> ReadError:
        """Return an error that names the first chunk that cannot be read, if one fails again."""
        stop, chunks = min(stop, self.n_rows), self.chunks
        where = f"rows {start} to {stop - 1}"
        if chunks:
            lines = range(start // chunks[0], -(-stop // chunks[0]))
            while len(lines) > 1:
                half = lines[: len(lines) // 2]
                failed = self._failure((half,)) is not None
                lines = half if failed else lines[len(half) :]
            others = (range(-(-n // c)) for n, c in zip(self.shape[1:], chunks[1:], strict=True))
            for chunk in product(lines, *others):
                whole = chunk if self.chunks_across > 1 else chunk[:1]
                again = self._failure([range(number, number + 1) for number in whole])
                if again is not None:
                    rows = range(self.n_rows)[chunk[0] * chunks[0] : (chunk[0] + 1) * chunks[0]]
                    where, error = f"chunk {chunk}, rows {rows[0]} to {rows[-1]},", again
                    break
        return ReadError(f"{self.place()}: {where} cannot be read: {brief(error)}")

    def _failure(self, some: Sequence[range]) -> Exception | None:
        """Return the error of reading some chunks along each axis; None if they can be read."""
        pairs = zip(some, self.chunks, strict=False)
        index = tuple(slice(n.start * size, n.stop * size) for n, size in pairs)
        try:
            with many_requests(self.values):
                self.values[index if len(index) > 1 else index[0]]
        except Exception as error:  # Each store and codec has its own exceptions.
            return error
        return None


_reading = threading.Lock()
_readers = 0  # Threads that read remote stores now.
_raised = contextlib.ExitStack()  # It restores zarr's configuration after the last of them.


@contextlib.contextmanager
def many_requests(array: Any) -> Iterator[None]:
    """Enter a context in which zarr requests many chunks of a remote array at a time.

    zarr requests ten, which suits a disk, and limits chunks of 128 kB from 50 ms away to 25 MB a
    second. Any other number in zarr's configuration stays.
    """
    global _readers  # noqa: PLW0603  (zarr's configuration is one for all threads, too)
    if not is_remote(array):
        yield
        return
    import zarr  # noqa: PLC0415

    with _reading:
        _readers += 1
        if zarr.config.get(_CONCURRENCY) == _ZARRS_OWN:
            _raised.enter_context(zarr.config.set({_CONCURRENCY: _REMOTE_REQUESTS}))
    try:
        yield
    finally:
        with _reading:
            _readers -= 1
            if not _readers:
                _raised.close()


def is_group(X: Any) -> bool:
    """Return whether this holds arrays by name, as groups of zarr and HDF5 and dictionaries do."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # as sparse matrices of scipy that are dictionaries have
    return hasattr(X, "create_array") and hasattr(X, "members")
