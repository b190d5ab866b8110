"""`RowSource`: the base of all adapters, one for each container; and any container as an array."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import numpy as np

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
)
from streamgda.runtime.parameters import shown
from streamgda.storage.opening import refuse_half_written

_PLURALS = {"y": "labels", "sample_weight": "weights"}
_OBJECT_BYTES = 64  # A label that is a Python object takes about so many bytes.
_CHUNK_TASK_BYTES = 1 << 12  # Reading a chunk takes so much, however small it is.


class Transformation(NamedTuple):
    """A transformation of rows.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)`` with the number of the first of these rows;
        returns an array with one entry for each row.
    dtype : numpy.dtype
        Data type of the result.
    columns : int or None
        Width of the result; None if it is one-dimensional.
    """

    function: Callable[..., np.ndarray]
    dtype: np.dtype
    columns: int | None


@dataclass(frozen=True)
class RowSource:
    """Rows that are read block by block and never as a whole.

    An adapter for a container is a subclass in a separate file, named in `ADAPTERS` of
    `streamgda.rows`. `accepts` recognises a container, `of` returns a source with its shape, data
    type and `chunk_rows`, and `read` reads rows. It overrides `feature_names` and `place`, which
    names the store, and the chunk of a row, in errors, if the container has names or chunks.

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
    chunk_rows : int
        Rows that are stored together: reading fewer decodes as many.
    columns : int
        Chunks side by side, for rows that are split along the features too; none for rows that
        are not stored in chunks.
    mapping : Mapping, optional
        Transformation that is applied to rows when they are read. All other attributes describe
        the rows before it.
    """

    values: Any
    shape: tuple[int, ...]
    dtype: np.dtype | None
    name: str = "X"
    chunk_rows: int = 1
    columns: int = 0
    mapping: Transformation | None = None

    def __post_init__(self) -> None:
        """Refuse scores that are half-written: the only place where any rows pass."""
        refuse_half_written(self.values, self.name)

    # True if this process holds the rows.
    in_memory: ClassVar[bool] = False
    # The executor of a pass over the rows: this process, or dask, which evaluates them.
    executor: ClassVar[Literal["process", "dask"]] = "process"

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
        """Return rows ``start:stop``, before any mapping; `stop` may be beyond the last row.

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

    def keys(self, names: Sequence[str]) -> RowSource:
        """Return a source of other columns of the same rows, which are copied beside their scores.

        Raises
        ------
        InvalidParameterError
            If the rows are not those of a table.
        """
        raise InvalidParameterError(
            f"keys={shown(names)} names columns of the table that is scored, and {self.place()} is "
            f"no table in a file; open one with open_store"
        )

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels or weights, given in the shape of the container, in the order of rows."""
        return values

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
        return itemsize * self.row_elements

    @property
    def row_elements(self) -> int:
        """Numbers in a row."""
        return math.prod(self.shape[1:])

    @property
    def copied_bytes(self) -> float:
        """Bytes of the rows as an array if this process holds them, otherwise infinity."""
        return float(self.n_rows * self.row_bytes) if self.in_memory else math.inf

    @property
    def read_as_views(self) -> bool:
        """True if reading costs neither time nor memory."""
        return False

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        if self.read_as_views:
            return 0
        copies = self.row_bytes * (2 if n_rows < self.n_rows else 1) * n_rows
        if self.in_memory:
            return 2 * copies
        size = self.chunk_rows
        lines = min(-(-n_rows // size) + (n_rows % size > 0), -(-self.n_rows // size))
        tasks = _CHUNK_TASK_BYTES * lines * self.columns
        return copies + 2 * self.row_bytes * size * lines + tasks

    def mapped(self, start: int, stop: int) -> Any:
        """Return rows ``start:stop`` as `mapping` transforms them, if there is one."""
        rows = self.read(start, stop)
        return rows if self.mapping is None else self.mapping.function(rows, start)

    def whole(self) -> Any:
        """Return all rows."""
        return self.mapped(0, self.n_rows)

    def map(
        self, function: Callable[..., np.ndarray], dtype: Any, columns: int | None = None
    ) -> Self:
        """Return a source of the same rows that transforms them when they are read.

        Parameters
        ----------
        function, dtype, columns
            See `Transformation`.
        """
        return replace(self, mapping=Transformation(function, np.dtype(dtype), columns))


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
    refuse_others(X, name)
    return next(adapter for adapter in ADAPTERS if adapter.accepts(X))


def refuse_others(values: Any, name: str) -> None:
    """Raise `InvalidDataError` for objects of dask.delayed, paths, and lists of dicts."""
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


def beside(X: RowSource, values: Any, name: str) -> Any:
    """Return a source of labels, groups or weights in the order of the rows; None for None."""
    if values is None:
        return None
    source = as_source(X.laid_out(values, name), name)
    if source.executor == "dask" and X.executor != "dask" and not X.columns:
        source = as_source(source.values.compute(), name)  # X is read here, and has no chunks.
    # Columns that were opened as labels may be weights.
    return source if source.name == name else replace(source, name=name)


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
        refuse_shape(rows.shape)
    check_lengths(rows, *companions)


def refuse_type(dtype: np.dtype) -> NoReturn:
    """Raise `InvalidDataError` for rows that are not real numbers."""
    what = "Complex data not supported: X" if dtype.kind == "c" else "X"
    raise InvalidDataError(f"{what} has dtype {dtype}; real numbers are expected")


def refuse_shape(shape: tuple[int, ...]) -> NoReturn:
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
