"""Arrays in stores, which are read by slicing: zarr, HDF5 and others with the same interface."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
        # Arrays of dask and xarray have other adapters.
        if isinstance(X, np.ndarray) or hasattr(X, "__dask_graph__"):
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
        # Empty HDF5 has no shape, and contiguous HDF5 has no chunks.
        return cls(X, tuple(X.shape or ()), np.dtype(X.dtype), name, X.chunks or ())

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
        """Return an error that names a chunk that cannot be read, if one fails again."""
        stop = min(stop, self.n_rows)
        where = f"rows {start} to {stop - 1}"
        bounds = [(start, stop), *((0, size) for size in self.shape[1:])]
        some = [range(a // n, -(-b // n)) for (a, b), n in zip(bounds, self.chunks, strict=False)]
        for axis in range(len(some)):
            while len(numbers := some[axis]) > 1:  # One half is read again, until one is left.
                some[axis] = numbers[: len(numbers) // 2]
                if self._failure(some) is None:
                    some[axis] = numbers[len(numbers) // 2 :]
        again = self._failure(some) if some else None
        if again is not None:
            size, chunk = self.chunks[0], tuple(numbers[0] for numbers in some)
            rows = range(self.n_rows)[chunk[0] * size : (chunk[0] + 1) * size]
            where, error = f"chunk {chunk}, rows {rows[0]} to {rows[-1]},", again
        return ReadError(f"{self.place()}: {where} cannot be read: {brief(error)}")

    def _failure(self, some: Sequence[range]) -> Exception | None:
        """Return the error of reading some chunks along each axis; None if they can be read."""
        pairs = zip(some, self.chunks, strict=True)
        index = tuple(slice(n.start * size, n.stop * size) for n, size in pairs)
        try:
            with many_requests(self.values):
                self.values[index]
        except Exception as error:  # Each store and codec has its own exceptions.
            return error
        return None


_changing = threading.Lock()


@contextlib.contextmanager
def many_requests(array: Any) -> Iterator[None]:
    """Enter a context in which zarr requests many chunks of a remote array at a time.

    zarr requests ten, which suits a disk, and limits chunks of 128 kB from 50 ms away to 25 MB a
    second. Any other number in zarr's configuration stays, and so does this one where another
    thread has raised it.
    """
    raised: Any = contextlib.nullcontext()
    if is_remote(array):
        import zarr  # noqa: PLC0415

        with _changing:
            if zarr.config.get(_CONCURRENCY) == _ZARRS_OWN:
                raised = zarr.config.set({_CONCURRENCY: _REMOTE_REQUESTS})
    with raised:
        yield


def is_group(X: Any) -> bool:
    """Return whether this holds arrays by name, as groups of zarr and HDF5 and dictionaries do."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # SciPy has sparse matrices that are mappings.
    return hasattr(X, "create_array") and hasattr(X, "members")
