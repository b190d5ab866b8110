"""Arrays that are read by slicing: zarr, HDF5 and others with the same interface."""

from __future__ import annotations

import itertools
import math
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, ReadError, SourceError, cause_of
from streamgda.rows.arrays import as_slab
from streamgda.rows.grids import nodata_of, warn_if_scaled
from streamgda.rows.names import ATTRIBUTE, as_names
from streamgda.rows.sources import RowSource
from streamgda.runtime.retry import brief, with_retries
from streamgda.storage.opening import innermost, named, path_of

if TYPE_CHECKING:
    from streamgda.storage.remote import Requests

_FEW_CHUNKS = 16  # whose sizes are looked up
_LARGE_BYTES = 1 << 25  # of an array whose chunks are
_REFERENCE_BYTES = 1_000_000  # a store whose pickle is larger holds the rows themselves


@dataclass(frozen=True)
class StoredRows(RowSource):
    """Rows of an array in a store, which is read in whole chunks.

    Attributes
    ----------
    ahead : int
        Rows that may be requested from a remote store beyond those that are read.
    requests : Requests, optional
        What has been requested.
    """

    ahead: int = 0
    requests: Requests | None = field(default=None, repr=False, compare=False)

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept chunked arrays, and groups, which `of` refuses with a clear message."""
        if isinstance(X, np.ndarray) or hasattr(X, "__dask_graph__"):  # of dask and of xarray
            return False
        return is_group(X) or all(hasattr(X, what) for what in ("chunks", "shape", "dtype"))

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source with the geometry of the chunks; raise `SourceError` for a group."""
        if is_group(X):
            raise SourceError(
                f"{name} is a {type(X).__name__} of arrays; expected an array. Pass one of its "
                f"entries: {', '.join(sorted(map(str, X))) or 'it has none':.500}"
            )
        X = retried_array(X)
        warn_if_scaled(X, name)
        shape = tuple(X.shape or ())  # of HDF5 without values, it is None
        chunks = X.chunks or shape
        n_rows = max([1, *shape[:1]])
        unit = min(max([1, *chunks[:1]]), n_rows)
        shard = min(max([unit, *(getattr(X, "shards", None) or chunks)[:1]]), n_rows)
        columns = math.prod(-(-n // max(1, c)) for n, c in zip(shape[1:], chunks[1:], strict=True))
        dtype = X.dtype if isinstance(X.dtype, np.dtype) else np.dtype(X.dtype)
        return cls(X, shape, dtype, name, unit, shard, max(1, columns))

    @property
    def title(self) -> str:
        """The name, with the path of the array or the type of the store."""
        where = getattr(self.values, "store_path", None)
        return f"{self.name} ({type(self.values).__name__ if where is None else named(where)})"

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
                f"{self.title} has {len(names)} names in its attribute {ATTRIBUTE!r} and shape "
                f"{self.shape}; expected a name for each column: correct or delete the attribute"
            )
        return names

    @property
    def nodata(self) -> float | None:
        """Number that marks missing measurements, from the attribute ``_FillValue``."""
        marked = "_FillValue" in getattr(self.values, "attrs", ())
        return nodata_of(self.values) if marked and self.mapping is None else None

    @property
    def shareable(self) -> bool:
        """True if the array can be pickled as a reference to a store on disk or elsewhere."""
        return is_reference(self.values)

    def place(self, row: int, column: int | None = None) -> str:
        """Return the title and the chunk that holds the row."""
        if not self.values.chunks:
            return ""
        chunk = (row // self.unit, *((column or 0) // n for n in self.values.chunks[1:]))
        return f"{self.title}: chunk {chunk}"

    @cached_property
    def _encoded(self) -> float:
        """Bytes of a chunk beside its decoded rows, relative to these: those that are stored."""
        if not hasattr(self.values, "compressors"):  # not of zarr
            return 1.0
        if not self.values.compressors and not self.values.filters:
            return 0.0  # its bytes are the rows
        folder = path_of(self.values)
        large = self.row_bytes * self.n_rows >= _LARGE_BYTES
        if folder is None or self.values.nchunks > _FEW_CHUNKS or not large:
            return 1.0
        stored = max(
            (file.stat().st_size for file in folder.rglob("*") if file.is_file()), default=0
        )
        return min(1.0, stored / (self.row_bytes * self.unit) * self.columns)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.get(slice(start, stop))

    def get(self, index: Any) -> np.ndarray:
        """Return part of the array: the only place where stores are read.

        Temporary failures are retried.

        Raises
        ------
        ReadError
            If it cannot be read.
        """

        def read() -> np.ndarray:
            return as_slab(self.values[index])

        try:
            return self._with_missing(self._requested(index, read))
        except (MemoryError, InvalidDataError):
            raise
        except Exception as error:  # each store and codec has its own exceptions
            rows = index[0] if isinstance(index, tuple) and index else index
            every = range(self.shape[0] if self.shape else 1)
            found = every[rows] if isinstance(rows, slice) and every[rows] else every
            first, last = sorted((found[0], found[-1]))
            raise self._explained(error, first, last + 1) from cause_of(error)

    def _requested(self, index: Any, read: Callable[[], np.ndarray]) -> np.ndarray:
        """Call a function that reads part of the array; request the chunks of a remote one first.

        Those of the rows that follow are requested, too.
        """
        if not hasattr(getattr(self.values, "store", None), "request"):
            return with_retries(read)
        from streamgda.storage.remote import Requests  # noqa: PLC0415  (it needs zarr)

        requests = self.requests or Requests(self._requested_bytes)
        return requests.read(self.values.store, self._keys(index), read)

    def _keys(self, index: Any) -> Iterator[str]:
        """Yield the keys of the chunks, or whole shards, of part of the array and of what follows.

        An index other than slices of consecutive rows and columns has none.
        """
        parts = index if isinstance(index, tuple) else (index,)
        shape, chunks = self.values.shape, self.values.shards or self.values.chunks
        if not all(isinstance(part, slice) and part.step in (None, 1) for part in parts):
            return
        ranges = []
        parts = (*parts, *[slice(None)] * (len(shape) - len(parts)))
        for axis, (part, size, chunk) in enumerate(zip(parts, shape, chunks, strict=True)):
            start, stop, _ = part.indices(size)
            if not axis and self.ahead:
                stop = min(stop + self.ahead, self.start + self.shape[0])
            if self.values.shards:  # zarr reads parts of a shard that is not wanted as a whole
                ranges.append(range(-(-start // chunk), stop // chunk))
            else:
                ranges.append(range(start // chunk, -(-stop // chunk)))
        for place in itertools.product(*ranges):
            yield f"{self.values.path}/{self.values.metadata.encode_chunk_key(place)}".lstrip("/")

    def reading_ahead(self, n_rows: int) -> Self:
        """Return a source that requests so many rows beyond those that are read."""
        if not hasattr(getattr(self.values, "store", None), "request"):
            return self
        from streamgda.storage.remote import MOST, Requests  # noqa: PLC0415  (it needs zarr)

        most = 2 * MOST * self._requested_bytes // max(1, self.row_bytes)
        return replace(self, ahead=min(n_rows, most), requests=Requests(self._requested_bytes))

    @property
    def _requested_bytes(self) -> int:
        """Bytes of a chunk, or of a whole shard."""
        return int(self.values.dtype.itemsize) * math.prod(self.values.shards or self.values.chunks)

    def close(self) -> None:
        """Drop what was requested and not read."""
        if self.requests is not None:
            self.requests.end()

    def _with_missing(self, part: np.ndarray) -> np.ndarray:
        """Return labels, groups or weights with those masked that the array marks as missing.

        zarr's strings have no missing value: `streamgda.datasets.convert` writes "" instead, and
        that this is no label to the attribute ``missing_label``. Such labels become None.
        """
        if part.dtype.kind in "iuf" and part.ndim == 1 and self.nodata is not None:
            return as_slab(np.ma.masked_equal(part, self.nodata))
        marker = None
        if part.dtype.kind in "TO":
            marker = getattr(self.values, "attrs", {}).get("missing_label")
        if marker is None or not (missing := part == marker).any():
            return part
        part = part.astype(object)
        part[missing] = None
        return part

    def _explained(self, error: Exception, start: int, stop: int) -> ReadError:
        """Return an error that names the chunk that has failed, or the first that fails again."""
        from streamgda.storage.remote import RequestError  # noqa: PLC0415  (it needs zarr)

        end = self.values.shape[0]
        if isinstance(error, RequestError):
            at = map(int, re.findall(r"\d+", error.key.removeprefix(self.values.path)))
            stored = zip(
                at, self.values.shards or self.values.chunks, self.values.chunks, strict=True
            )
            chunk = tuple(n * held // size for n, held, size in stored)  # the first of a shard
            first = chunk[0] * self.unit
            return self._unreadable(chunk, first, min(first + self.unit, end), error.reason)
        for first in range(start // self.unit * self.unit, stop, self.unit):
            rows = slice(first, min(first + self.unit, end))
            for column in range(self.columns):
                try:
                    self.values[self._chunk(rows, column)]
                except Exception as again:  # as above
                    chunk = (first // self.unit, column)[: len(self.shape)]
                    return self._unreadable(chunk, first, rows.stop, brief(again))
        return ReadError(f"{self.title}: rows {start} to {stop - 1} cannot be read: {brief(error)}")

    def _unreadable(self, chunk: tuple[int, ...], first: int, stop: int, why: str) -> ReadError:
        where = f"chunk {chunk}, rows {first} to {stop - 1}"
        return ReadError(f"{self.title}: {where}, cannot be read: {why}")

    def _chunk(self, rows: slice, column: int) -> slice | tuple[slice, slice]:
        if self.columns == 1:
            return rows
        width = self.values.chunks[1]
        return rows, slice(column * width, (column + 1) * width)


def retried_array(array: Any) -> Any:
    """Return a zarr array in a remote store with requests that are retried; others as given."""
    if not type(array).__module__.startswith("zarr."):
        return array
    import zarr  # noqa: PLC0415

    from streamgda.storage.remote import retried  # noqa: PLC0415  (it needs zarr)

    place = retried(array.store_path)
    if place.store is array.store:
        return array
    found = array.async_array
    return zarr.Array(zarr.AsyncArray(found.metadata, place, found.config))


def is_reference(array: Any) -> bool:
    """Return whether an array can be pickled as a reference to a store on disk or elsewhere."""
    if type(innermost(getattr(array, "store", None))).__name__ == "MemoryStore":
        return False
    try:
        pickled = pickle.dumps(array)
        return len(pickled) < _REFERENCE_BYTES and _is_found(pickle.loads(pickled))
    except Exception:  # stores that cannot be pickled, such as HDF5 files, raise any type
        return False


def _is_found(copied: Any) -> bool:
    """Return whether the copy of an array has a store with its metadata.

    Stores in the memory of a process may be pickled without their contents, as Icechunk's.
    """
    import zarr  # noqa: PLC0415

    if isinstance(copied, zarr.Array) and not isinstance(copied.store, zarr.storage.LocalStore):
        zarr.open_array(copied.store_path, mode="r")
    return True


def is_group(X: Any) -> bool:
    """Return whether this holds arrays by name, as groups of zarr and HDF5 and dictionaries do."""
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")  # as sparse matrices of scipy that are dictionaries have
    return hasattr(X, "create_array") and hasattr(X, "members")
