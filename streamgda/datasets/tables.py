"""Tables: what is known of rows before they are read, and an iterator of row blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamgda.errors import InvalidDataError

Block = tuple[np.ndarray, ...]  # (X, y), or (X,) where there are no labels
_WIDEST = {"i": np.dtype(np.int64), "u": np.dtype(np.int64), "f": np.dtype(np.float64)}


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
        ``blocks(rows)`` iterates ``(X, y)``, or ``(X,)`` where there are no labels. Every block
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
            yield (values.reshape(len(values), width),)

    granule = getattr(column, "granule", 1)
    return Table(column.shape[0], width, column.dtype, None, blocks, granule)


def with_labels(table: Table, labels: Column) -> Table:
    """The table with these labels for its own."""
    if len(labels.shape) != 1:
        raise InvalidDataError(f"labels of shape {labels.shape}, expected one dimension")
    if labels.shape[0] != table.n_rows:
        raise InvalidDataError(f"{table.n_rows} rows, but {labels.shape[0]} labels")

    def blocks(rows: int) -> Iterator[Block]:
        for (X,), y in zip(table.blocks(rows), labels.blocks(rows), strict=True):
            yield X, y

    return replace(table, label_dtype=labels.dtype, blocks=blocks)


def batch_table(batches: Iterable[Any], n_rows: int | None, *, labelled: bool) -> Table:
    """Rows from batches ``(X, y)`` or X; the first one tells width and dtypes.

    Labels that are numbers become int64 or float64, for a later batch may hold what does not fit
    the first one's dtype. Where `labelled` is false, the batches' labels are left out.
    """
    parts = (_batch(batch, labelled) for batch in batches)
    first = next(parts, None)
    if first is None:
        raise InvalidDataError("there are no batches, so nothing tells how wide the rows are")
    X, *y = first
    label_dtype = y[0].dtype if y else None
    if label_dtype is not None and label_dtype != np.uint64:
        label_dtype = _WIDEST.get(label_dtype.kind, label_dtype)

    def checked(block: Block) -> Block:
        if len(block) != len(first) or block[0].shape[1] != X.shape[1]:
            raise InvalidDataError(
                f"a batch with {_described(block)} after one with {_described(first)}"
            )
        return block

    def blocks(_: int) -> Iterator[Block]:
        return map(checked, itertools.chain([first], parts))

    return Table(n_rows, X.shape[1], X.dtype, label_dtype, blocks)


def _batch(batch: Any, labelled: bool) -> Block:
    parts = batch if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 2:
        raise InvalidDataError(f"a batch of {len(parts)} parts; expected (X, y) or X")
    block = tuple(np.asarray(part) for part in parts if part is not None)
    if block[0].ndim != 2 or any(y.ndim != 1 for y in block[1:]):
        raise InvalidDataError(
            f"a batch with {_described(block)}; expected (X, y) or X, with X of shape "
            "(rows, features) and y of shape (rows,)"
        )
    if any(len(y) != len(block[0]) for y in block[1:]):
        raise InvalidDataError(f"a batch has {len(block[0])} rows, but {len(block[1])} labels")
    return block if labelled else block[:1]


def _described(block: Block) -> str:
    return " and ".join(
        f"{name} of shape {part.shape}" for name, part in zip("Xy", block, strict=False)
    ) + ("" if len(block) > 1 else " and no y")
