"""Tables: rows with known shape and types, which are read in blocks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamgda.errors import InvalidDataError

Names = tuple[str, ...]
Block = tuple[np.ndarray, ...]  # (X, y), or (X,) without labels
_WIDEST = {"i": np.dtype(np.int64), "u": np.dtype(np.int64), "f": np.dtype(np.float64)}


@dataclass(frozen=True)
class Table:
    """Rows, with or without labels, that have not been read yet.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None if it is known only at the end.
    n_features : int
        Number of features.
    dtype : numpy.dtype
        Type of the features.
    label_dtype : numpy.dtype or None
        Type of the labels; None without labels.
    blocks : callable
        ``blocks(rows)`` iterates over ``(X, y)``, or ``(X,)`` without labels. Every block but the
        last has `rows` rows, unless the rows come from text or batches. It raises `Revised` if
        the rows differ from what the table says.
    unit : int
        Number of rows of which a block should be a multiple, so that chunks are read once.
    feature_names : tuple of str or None
        Names of the features; None if they have none.
    missing_label : str or None
        Label that stands for a missing one; None if there is no such label.
    fraction : callable or None
        ``fraction()`` is the share of the source, from 0 to 1, that has been read; None if it is
        unknown.
    note : str or None
        Warning for the user.
    """

    n_rows: int | None
    n_features: int
    dtype: np.dtype
    label_dtype: np.dtype | None
    blocks: Callable[[int], Iterator[Block]]
    unit: int = 1
    feature_names: tuple[str, ...] | None = None
    missing_label: str | None = None
    fraction: Callable[[], float] | None = None
    note: str | None = None


class Revised(Exception):  # noqa: N818  (no error: it is always caught)
    """The rows differ from what their table says: read them again, as another table.

    Parameters
    ----------
    table : Table
    """

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table


class Column(Protocol):
    """Array that is read in blocks along its first axis, such as `IdxFile`."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yield the array in blocks of `rows` rows; the last may have fewer."""


class Slices:
    """Column of an array that has a shape, a dtype and slices: NumPy, zarr, dask, HDF5.

    Parameters
    ----------
    array : array
    name : str
        Its name in errors.
    """

    def __init__(self, array: Any, name: str) -> None:
        from streamgda.rows import as_source  # noqa: PLC0415  (it needs Numba)

        self._source = as_source(array, name)
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype = np.dtype(array.dtype)

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yield the array in blocks of `rows` rows; the last may have fewer."""
        from streamgda.rows.masked import as_slab, unmasked  # noqa: PLC0415

        source = self._source
        for start in range(0, self.shape[0], rows):
            if source.executor == "dask":
                block = as_slab(source.values[start : start + rows])
            else:
                block = source.read(start, start + rows)
            yield unmasked(block, source.name, start)

    @property
    def unit(self) -> int:
        """Rows per chunk of the array; 1 if it has no chunks."""
        return self._source.unit

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if the array has them."""
        return self._source.feature_names


def column_table(column: Column) -> Table:
    """Return a table without labels; all dimensions but the first are flattened."""
    if len(column.shape) < 2:
        raise InvalidDataError(f"features of shape {column.shape}, expected rows x features")
    width = math.prod(column.shape[1:])

    def blocks(rows: int) -> Iterator[Block]:
        for values in column.blocks(rows):
            yield (values.reshape(len(values), width),)

    unit, names = getattr(column, "unit", 1), getattr(column, "feature_names", None)
    return Table(column.shape[0], width, column.dtype, None, blocks, unit, names)


def with_labels(table: Table, labels: Column) -> Table:
    """Return the table with the given labels."""
    if len(labels.shape) != 1:
        raise InvalidDataError(f"labels of shape {labels.shape}, expected one dimension")
    n_labels = labels.shape[0]
    if table.n_rows not in (None, n_labels):
        raise InvalidDataError(f"{table.n_rows} rows, but {n_labels} labels")

    def blocks(rows: int) -> Iterator[Block]:
        parts = labels.blocks(rows)
        held, done = next(parts, np.empty(0, labels.dtype)), 0
        try:
            for (X,) in table.blocks(rows):
                done += len(X)
                if done > n_labels:
                    raise InvalidDataError(f"{done} or more rows, but {n_labels} labels")
                while len(held) < len(X):
                    held = np.concatenate([held, next(parts)])
                yield X, held[: len(X)]
                held = held[len(X) :]
        except Revised as revised:
            raise Revised(with_labels(revised.table, labels)) from None
        if done < n_labels:
            raise InvalidDataError(f"{done} rows, but {n_labels} labels")

    return replace(table, label_dtype=labels.dtype, blocks=blocks)


def batch_table(batches: Iterable[Any], n_rows: int | None, *, labelled: bool) -> Table:
    """Return the rows of batches ``(X, y)`` or X; the first determines width and dtypes.

    Numeric labels become int64 or float64, because a later batch may have values that do not fit
    the dtype of the first. If `labelled` is false, the labels are left out.
    """
    waiting = iter(batches)
    head = next(waiting, None)
    if head is None:
        raise InvalidDataError(
            "no batches; expected at least one, which determines the number of features"
        )
    X, *y = first = _batch(head, labelled)
    names = _names(head)
    label_dtype = y[0].dtype if y else None
    if label_dtype is not None and label_dtype != np.uint64:
        label_dtype = _WIDEST.get(label_dtype.kind, label_dtype)

    def checked(batch: Any) -> Block:
        _check_names(names, batch)
        block = _batch(batch, labelled)
        if len(block) != len(first) or block[0].shape[1] != X.shape[1]:
            raise InvalidDataError(
                f"a batch with {_described(block)} after one with {_described(first)}"
            )
        return block

    def blocks(_: int) -> Iterator[Block]:
        return itertools.chain([first], map(checked, waiting))

    return Table(n_rows, X.shape[1], X.dtype, label_dtype, blocks, feature_names=names)


def _names(batch: Any) -> Names | None:
    from streamgda.rows import names_of  # noqa: PLC0415  (it needs Numba)

    return names_of(batch[0] if isinstance(batch, tuple | list) and batch else batch)


def _check_names(names: Names | None, batch: Any) -> None:
    from streamgda.rows.names import join_names  # noqa: PLC0415  (as above)

    join_names(names, _names(batch), "the first batch", InvalidDataError)


def _batch(batch: Any, labelled: bool) -> Block:
    from streamgda.rows.containers import as_array  # noqa: PLC0415  (it needs Numba)
    from streamgda.rows.masked import unmasked  # noqa: PLC0415

    parts = batch if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 2:
        raise InvalidDataError(f"a batch of {len(parts)} parts; expected (X, y) or X")
    block = tuple(
        unmasked(as_array(part, name), name)
        for name, part in zip("Xy", parts, strict=False)
        if part is not None
    )
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
