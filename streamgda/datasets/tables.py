"""Tables: what is known of rows before they are read, and an iterator of row blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamgda.errors import InvalidDataError

Block = tuple[np.ndarray, np.ndarray | None]


@dataclass(frozen=True)
class Table:
    """Rows, with labels or without, that have not been read yet.

    Attributes
    ----------
    n_rows : int or None
        None where it will be known at the end.
    n_features : int
    dtype : numpy.dtype
        Of the features.
    label_dtype : numpy.dtype or None
        None where there are no labels.
    blocks : callable
        ``blocks(rows)`` iterates ``(X, y)``, y being None where there are no labels. Every block
        has that many rows and the last may have fewer, except where the caller made the batches.
    granule : int
        Blocks of a multiple of so many rows are the cheapest to read.
    """

    n_rows: int | None
    n_features: int
    dtype: np.dtype
    label_dtype: np.dtype | None
    blocks: Callable[[int], Iterator[Block]]
    granule: int = 1


class Column(Protocol):
    """An array that is read in blocks along its first axis, such as `IdxFile`."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The array in blocks of that many rows; the last may have fewer."""


class Slices:
    """A column from whatever has a shape, a dtype and slices: NumPy, zarr, dask, HDF5."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """The array in blocks of that many rows; the last may have fewer."""
        for start in range(0, self.shape[0], rows):
            yield np.asarray(self.array[start : start + rows])

    @property
    def granule(self) -> int:
        """Rows in a chunk of the array; 1 where it has no chunks."""
        chunks = getattr(self.array, "chunks", None)
        return max(1, int(np.max(chunks[0]))) if chunks else 1


def column_table(column: Column) -> Table:
    """Rows without labels: what lies at one index of the first axis becomes one row."""
    if len(column.shape) < 2:
        raise InvalidDataError(f"features of shape {column.shape}, expected rows x features")
    width = math.prod(column.shape[1:])

    def blocks(rows: int) -> Iterator[Block]:
        for values in column.blocks(rows):
            yield values.reshape(len(values), width), None

    granule = getattr(column, "granule", 1)
    return Table(column.shape[0], width, column.dtype, None, blocks, granule)


def with_labels(table: Table, labels: Column) -> Table:
    """The table with these labels for its own."""
    if len(labels.shape) != 1:
        raise InvalidDataError(f"labels of shape {labels.shape}, expected one dimension")
    if labels.shape[0] != table.n_rows:
        raise InvalidDataError(f"{table.n_rows} rows, but {labels.shape[0]} labels")

    def blocks(rows: int) -> Iterator[Block]:
        for (X, _), y in zip(table.blocks(rows), labels.blocks(rows), strict=True):
            yield X, y

    return replace(table, label_dtype=labels.dtype, blocks=blocks)


def batch_table(batches: Iterable[Any], n_rows: int | None, *, labelled: bool) -> Table:
    """Rows from batches ``(X, y)`` or X; the first one tells width and dtypes.

    Integer labels become int64, for a later batch may hold greater ones. Where `labelled` is
    false, the batches' labels are left out.
    """
    parts = (_batch(batch, labelled) for batch in batches)
    first = next(parts, None)
    if first is None:
        raise InvalidDataError("there are no batches, so nothing tells how wide the rows are")
    X, y = first
    label_dtype = None if y is None else y.dtype
    if label_dtype is not None and label_dtype.kind in "iu" and label_dtype != np.uint64:
        label_dtype = np.dtype(np.int64)

    def blocks(_: int) -> Iterator[Block]:
        return itertools.chain([first], parts)

    return Table(n_rows, X.shape[1], X.dtype, label_dtype, blocks)


def _batch(batch: Any, labelled: bool) -> Block:
    X, y = batch if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)
    X, y = np.asarray(X), np.asarray(y) if labelled and y is not None else None
    if X.ndim != 2 or (y is not None and y.ndim != 1):
        raise InvalidDataError(
            f"a batch with X of shape {X.shape} and y of shape {None if y is None else y.shape}, "
            "expected (rows, features) and (rows,)"
        )
    if y is not None and len(X) != len(y):
        raise InvalidDataError(f"a batch has {len(X)} rows, but {len(y)} labels")
    return X, y
