"""`RowSource`: the base of all adapters, one for each container; and any container as an array."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.storage.opening import check_complete

_PLURALS = {"y": "labels", "sample_weight": "weights"}
_OBJECT_BYTES = 64  # A label that is a Python object takes about so many bytes.
_CHUNK_TASK_BYTES = 1 << 12  # Reading a chunk takes so much, however small it is.


@dataclass(frozen=True)
class RowSource:
    """Rows that are read block by block and never as a whole.

    An adapter for a container is a subclass in a separate file, named in `ADAPTERS` of
    `streamgda.rows`. `accepts` recognises a container, `of` returns a source with its shape, data
    type and `chunks`, and `read` reads rows. It overrides `feature_names` and `place`, which names
    the store, and the chunk of a row, in errors, if the container has names or chunks.

    Attributes
    ----------
    values : object
        The container.
    shape : tuple of int
        The number of rows is NaN if it is unknown.
    dtype : numpy.dtype or None
        None if columns have different types.
    name : str
        Name of the array in error messages.
    chunks : tuple of int
        Shape of a chunk: reading less decodes as much. Empty for rows that are not in chunks.
    held_bytes : int
        Bytes that reading holds besides, however few rows are read.
    in_memory : bool
        This process holds the rows in their order.
    read_as_views : bool
        Reading takes neither time nor memory.
    executor : {"process", "dask"}
        The executor of a pass over the rows: this process, or dask, which evaluates them.
    """

    values: Any
    shape: tuple[int, ...]
    dtype: np.dtype | None
    name: str = "X"
    chunks: tuple[int, ...] = ()
    held_bytes: int = 0
    in_memory: bool = False
    read_as_views: bool = False
    executor: str = "process"

    def __post_init__(self) -> None:
        """Raise an error for scores that are half-written: all rows pass this place."""
        check_complete(self.values, self.name)

    # --- what an adapter implements -----------------------------------------------------------

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Return whether the adapter reads this container."""
        raise NotImplementedError

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows of `X`, which the adapter accepts."""
        raise NotImplementedError

    def read(self, start: int, stop: int) -> Any:
        """Return rows ``start:stop``; `stop` may be beyond the last row.

        Raises
        ------
        ReadError
            If they cannot be read.
        """
        return as_slab(self.values[start:stop])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the container has them and all are strings."""
        return None

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the name, with the store; and with the chunk or block that holds a row."""
        return self.name

    # --- what all adapters share --------------------------------------------------------------

    @property
    def n_rows(self) -> int:
        """Number of rows; NaN if it is unknown."""
        return self.shape[0] if self.shape else 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that has been read."""
        if self.dtype is None:
            itemsize = 8
        else:  # Objects and variable-width strings are stored outside of the array.
            itemsize = self.dtype.itemsize + (_OBJECT_BYTES if self.dtype.kind in "OT" else 0)
        return itemsize * math.prod(self.shape[1:])

    @property
    def chunk_rows(self) -> int:
        """Rows that are stored together."""
        return max(1, min(self.chunks[0], self.n_rows)) if self.chunks else 1

    @property
    def chunks_across(self) -> int:
        """Chunks side by side, none for rows that are not in chunks."""
        pairs = zip(self.shape[1:], self.chunks[1:], strict=False)
        return math.prod(max(1, -(-size // n)) for size, n in pairs) if self.chunks else 0

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        if self.read_as_views:
            return 0
        copies = self.row_bytes * (2 if n_rows < self.n_rows else 1) * n_rows
        if self.in_memory:
            return 2 * copies
        size = self.chunk_rows
        lines = min(-(-n_rows // size) + (n_rows % size > 0), -(-self.n_rows // size))
        tasks = _CHUNK_TASK_BYTES * lines * self.chunks_across
        return self.held_bytes + copies + 2 * self.row_bytes * size * lines + tasks

    def whole(self) -> Any:
        """Return all rows."""
        return self.read(0, self.n_rows)

    def map(
        self, function: Callable[..., Any], dtype: Any, columns: int | None = None
    ) -> MappedRows:
        """Return a source of what a function makes of the rows when they are read.

        Parameters
        ----------
        function : callable
            Called as ``function(rows, first_row)`` with the number of the first of these rows;
            returns an array with one entry for each row.
        dtype : numpy.dtype
            Data type of the result.
        columns : int or None
            Width of the result; None if it is one-dimensional.
        """
        shape = self.shape[:1] if columns is None else (self.n_rows, columns)
        about = self.name, self.chunks, self.held_bytes, self.in_memory, False, self.executor
        return MappedRows(self.values, shape, np.dtype(dtype), *about, self, function)


@dataclass(frozen=True)
class MappedRows(RowSource):
    """What a function makes of other rows when they are read; see `RowSource.map`."""

    rows: Any = None
    function: Any = None

    def read(self, start: int, stop: int) -> Any:
        """Return what the function makes of rows ``start:stop``."""
        return self.function(self.rows.read(start, stop), start)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, which are those of the rows if there are as many."""
        return self.rows.feature_names if self.shape == self.rows.shape else None

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the place of the rows."""
        return self.rows.place(row, column)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row before and after the function."""
        return self.rows.row_bytes + super().row_bytes


# --- any container --------------------------------------------------------------------------------


def as_numpy(values: Any) -> Any:
    """Return a tensor as an array, copied from its device; return anything else unchanged.

    bfloat16 of PyTorch, which NumPy does not have, becomes float32.

    Raises
    ------
    InvalidDataError
        For tensors that no array can hold, such as sparse ones.
    """
    if isinstance(values, np.ndarray | np.generic):
        return values
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = values.float() if "bfloat16" in str(values.dtype) else values
        if callable(getattr(values, "numpy", None)):
            return values.numpy()
        if hasattr(values, "__dlpack__") and hasattr(values, "get"):  # It is an array of CuPy.
            return values.get()
        plain = not hasattr(values, "__dlpack__") or hasattr(values, "__array__")
        return values if plain else np.from_dlpack(values)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidDataError(
            f"a {type(values).__name__} cannot be converted to an array: {error}"
        ) from None


def as_slab(values: Any, name: str = "X") -> Any:
    """Return an array-like in memory as an array; masked values of rows become NaN.

    Collections of dask are evaluated, tensors are copied from their device. Texts in a list of
    labels become objects.

    Raises
    ------
    InvalidDataError
        If NumPy cannot convert them, and for masked labels, groups and weights.
    """
    if type(values) in (np.ndarray, np.memmap):
        return values
    if hasattr(values, "__dask_graph__"):
        values = values.compute()
    values = as_numpy(values)
    if isinstance(values, np.ma.MaskedArray):
        if not np.ma.is_masked(values):
            return values.data
        if name != "X":
            raise InvalidDataError(
                f"{name} is a masked array; give the masked entries a value (filled(...)), or "
                f"leave their rows out"
            )
        floats = values.dtype if values.dtype.kind == "f" else np.float64
        return np.ma.filled(values.astype(floats), np.nan)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InvalidDataError(f"{name} cannot be converted to an array: {error}") from None
    # In an array, the numbers beside texts in a list of labels would be texts.
    mixed = isinstance(values, list | tuple) and array.dtype.kind in "US" and name != "X"
    return np.asarray(values, object) if mixed else array


# Adapters are asked in this order; `streamgda.rows` fills the list.
ADAPTERS: list[type[RowSource]] = []


def adapter_of(X: Any, name: str = "X") -> type[RowSource]:
    """Return the adapter for a container."""
    if isinstance(X, RowSource):
        return type(X)
    check_container(X, name)
    return next(adapter for adapter in ADAPTERS if adapter.accepts(X))


def check_container(values: Any, name: str) -> None:
    """Raise `InvalidDataError` for objects of dask.delayed, paths, iterators and lists of dicts."""
    if type(values).__module__ == "dask.delayed":  # It has every attribute.
        raise InvalidDataError(
            f"{name} is an object of dask.delayed; pass an array of it, "
            f"dask.array.from_delayed({name}, shape, dtype), or delayed batches (X, y) in a list"
        )
    if isinstance(values, str | os.PathLike):
        raise InvalidDataError(
            f"{name} is the path {str(values)!r}; open its rows and labels first: "
            f"X, y = open_store(path)"
        )
    if isinstance(values, Iterator):
        raise InvalidDataError(
            f"{name} is an iterator ({type(values).__name__}); expected an array. Pass batches one "
            f"by one, partial_fit(X, y) or predict(X), or sum them: accumulate(batches)"
        )
    if isinstance(values, list) and values and isinstance(values[0], Mapping):
        raise InvalidDataError(
            f"{name} is a list of dicts (records); pass a frame of them: "
            f"pandas.DataFrame({name}), without the column of labels"
        )


def as_source(X: Any, name: str = "X") -> RowSource:
    """Return a source of the rows of `X`: `X` itself if it is one already.

    Parameters
    ----------
    X : array-like, memmap, zarr.Array, data frame, dask collection or DataArray
    name : str
        Name of the array in error messages.

    Raises
    ------
    InvalidDataError
        If it is not an array and cannot be converted to one.
    SourceError
        If it is a group or a dictionary of arrays.
    """
    return X if isinstance(X, RowSource) else adapter_of(X, name).of(X, name)


def as_array(values: Any, name: str = "X") -> Any:
    """Return all values of a container as an array; labels may be by their codes.

    Raises
    ------
    InvalidDataError
        If numpy cannot convert them.
    ReadError
        If a store cannot be read; the message names the array by this name, chunk and rows.
    """
    if isinstance(values, np.ndarray | list | tuple) or np.isscalar(values):
        return as_slab(values, name)
    return as_source(values, name).whole()


# --- rows and what belongs to them ----------------------------------------------------------------


@contextlib.contextmanager
def placing(*sources: RowSource) -> Iterator[None]:
    """Add the array and the chunk to errors about a row that are raised within this context."""
    try:
        yield
    except InvalidDataError as error:
        if error.row is not None:
            for source in sources:
                where = source.place(error.row, error.column)
                if source.name == error.array and where != source.name:
                    error.place(where)
        raise


def check_rows(rows: RowSource, *companions: RowSource) -> None:
    """Raise `InvalidDataError` unless all have shape (n_rows,) and X (n_rows, n_features)."""
    if len(rows.shape) != 2:
        raise_for_shape(rows.shape)
    check_lengths(rows, *companions)


def raise_for_type(dtype: np.dtype) -> NoReturn:
    """Raise `InvalidDataError` for rows that are not real numbers."""
    what = "Complex data not supported: X" if dtype.kind == "c" else "X"
    raise InvalidDataError(f"{what} has dtype {dtype}; real numbers are expected")


def raise_for_shape(shape: tuple[int, ...]) -> NoReturn:
    """Raise `InvalidDataError` for another shape than that of rows, (n_rows, n_features)."""
    raise InvalidDataError(
        f"X has shape {shape}; expected a 2D array of rows x features (one row: X.reshape(1, -1), "
        f"one feature: X.reshape(-1, 1), images: X.reshape(len(X), -1))"
    )


def how_to_count(name: str) -> str:
    """Return what to do about an array, or a frame, of dask whose number of rows is not known."""
    return (
        f"call {name}.compute_chunk_sizes(), or of a frame "
        f"{name}.to_dask_array().compute_chunk_sizes()"
    )


def check_lengths(rows: RowSource, *companions: RowSource) -> None:
    """Raise `InvalidDataError` unless there are rows, and one label and weight for each."""
    for source in (rows, *companions):
        if math.isnan(source.n_rows):
            raise InvalidDataError(
                f"{source.name} has row chunks of unknown size; {how_to_count(source.name)}"
            )
    for companion in companions:
        name = _PLURALS.get(companion.name, companion.name)
        if len(companion.shape) != 1:
            raise InvalidDataError(
                f"{name} have shape {companion.shape}; expected one entry for each row"
            )
        if companion.n_rows != rows.n_rows:
            stores = (f"; {s.place()}" for s in (rows, companion) if s.place() != s.name)
            raise InvalidDataError(
                f"X has {rows.n_rows} rows but there are {companion.n_rows} {name} (inconsistent "
                f"numbers of samples); give one for each row{''.join(stores)}"
            )
    if not rows.n_rows:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
