"""Rows, labels, groups and weights as dask arrays with the same row blocks; rows transformed."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dask
import dask.array as da
import numpy as np

from streamgda.engine.dask import cluster
from streamgda.errors import InvalidDataError
from streamgda.rows import FIELDS, Rows, as_source
from streamgda.rows.arrays import CodedLabels
from streamgda.rows.sources import (
    RowSource,
    Transformation,
    check_lengths,
    how_to_count,
    refuse_shape,
)
from streamgda.rows.targets import side_by_side, target_columns
from streamgda.rows.zarr import StoredRows
from streamgda.runtime import threads


def aligned(rows: Rows) -> dict[str, Any]:
    """Return sources as dask arrays with the row blocks of the rows, by the fields of `Rows`."""
    X = as_rows(rows.X)
    given = {name: getattr(rows, name) for name in FIELDS if getattr(rows, name) is not None}
    return {name: X if name == "X" else beside(X, source) for name, source in given.items()}


def in_blocks(rows: Rows) -> tuple[dict[str, Any], Rows]:
    """Return dask arrays with the same row blocks, by their fields, and what else is beside them.

    Labels that this process holds stay as they are, if the sizes of blocks are known.
    """
    X = as_rows(rows.X)
    columns, others = {"X": X}, {}
    for name in FIELDS[1:]:
        source = getattr(rows, name)
        if source is None:
            continue
        if source.executor == "dask" or np.isnan(X.shape[0]):
            columns[name] = beside(X, source)
        else:
            check_lengths(rows.X, source)
            others[name] = source
    return columns, Rows(None, **others)


def as_rows(source: RowSource) -> Any:
    """Return rows as a dask array with all features in one chunk, transformed if they are to be.

    Raises
    ------
    InvalidDataError
        If they are not two-dimensional.
    """
    X = _as_array(source)
    if X.ndim != 2:
        refuse_shape(X.shape)
    if np.isnan(X.shape[1]):
        raise InvalidDataError("X has an unknown number of features; call X.compute_chunk_sizes()")
    X = X.rechunk({1: -1}) if X.numblocks[1] > 1 else X
    return X if source.mapping is None else map_blocks(source.mapping, X)


def beside(X: Any, source: RowSource) -> Any:
    """Return labels or weights as a dask array with the row blocks of `X`."""
    what, y = source.name, source.values
    unknown = any(np.isnan(n) for n in X.chunks[0])
    if source.executor == "dask":
        y = _as_array(source)
    elif unknown:
        raise InvalidDataError(
            f"X has row chunks of unknown size, so {what} must be a dask array with the same "
            f"blocks; or {how_to_count('X')}"
        )
    else:
        y = _whole(source) if source.in_memory or not hasattr(y, "ndim") else y
        chunks = (X.chunks[0],) if y.shape == X.shape[:1] else "auto"
        y = as_source(da.from_array(y, chunks=chunks), what).values
    unknown = unknown or any(np.isnan(n) for n in y.chunks[0])
    if not unknown or y.ndim != 1:
        check_lengths(RowSource(X, X.shape, X.dtype), RowSource(y, y.shape, y.dtype, what))
    if unknown:
        if X.numblocks[0] != y.numblocks[0]:
            remedies = [how_to_count(n) for n, a in (("X", X), (what, y)) if np.isnan(a.shape[0])]
            raise InvalidDataError(
                f"X has {X.numblocks[0]} row blocks and {what} has {y.numblocks[0]}, which cannot "
                f"be matched without their sizes: {'; and '.join(remedies)}"
            )
        return y
    return y if y.chunks[0] == X.chunks[0] else y.rechunk((X.chunks[0],))


def with_targets(X: RowSource, y: RowSource) -> Any:
    """Return rows with their targets as further columns, as a dask array."""
    rows, in_blocks = as_rows(X), y.executor == "dask" or isinstance(y, StoredRows)
    targets = _as_array(y) if in_blocks else da.from_array(target_columns(_whole(y)))
    columns = [targets] if targets.ndim == 1 else [*targets.T]
    columns = [beside(rows, as_source(column, "y"))[:, None] for column in columns]
    targets = da.concatenate(columns, axis=1, allow_unknown_chunksizes=True).rechunk({1: -1})
    shape = (rows.chunks[0], (rows.shape[1] + len(columns),))
    meta = np.empty((0, shape[1][0]))
    return da.map_blocks(side_by_side, rows, targets, chunks=shape, dtype=meta.dtype, meta=meta)


def sized(array: Any) -> Any:
    """Return an array with chunks of known size, which are counted if they are not known."""
    return array.copy().compute_chunk_sizes() if np.isnan(array.shape[0]) else array


def name_of(source: RowSource) -> str:
    """Return the name of a collection, or one of its kind for rows that are none."""
    if source.executor == "dask":
        return _as_array(source).name
    values = _whole(source) if source.in_memory else source.values
    return f"array-{dask.base.tokenize(values)}"


def _whole(source: RowSource) -> np.ndarray:
    values: Any = source.whole()
    return np.asarray(values) if type(values) is CodedLabels else values


def _as_array(source: RowSource) -> Any:
    values = source.values
    if source.executor != "dask":
        array = da.from_array(_whole(source) if source.in_memory else values)
        return as_source(array, source.name).values
    if not hasattr(values, "to_dask_array"):
        return values
    if values.ndim == 2:
        values = values.map_partitions(_in_order, [*values.columns], meta=values)
    with warnings.catch_warnings():
        # Labels that are strings become objects, which are accepted as labels.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return values.to_dask_array()


def _in_order(part: Any, columns: list[Any]) -> Any:
    """Return a partition with the columns of its frame; dask does not ask each for their order."""
    return part if [*part.columns] == columns else part[columns]


# --- rows that are transformed ------------------------------------------------------------------


@dataclass(frozen=True)
class OneThread:
    """A function that scores rows on one thread.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)``.
    nbytes : int
        Size of the function with all that it holds, most often a model.
    """

    function: Callable[..., np.ndarray]
    nbytes: int

    def __call__(self, X: np.ndarray, first_row: int) -> np.ndarray:
        """Return the scores of a block."""
        with threads.limit(1):
            return self.function(X, first_row)

    def __sizeof__(self) -> int:
        return self.nbytes


def held(function: Callable[..., np.ndarray]) -> Any:
    """Return a function that scores rows as one node of a graph."""
    n_bytes = len(pickle.dumps(function))
    return cluster.hold(OneThread(function, n_bytes), n_bytes)


def map_blocks(mapping: Transformation, X: Any) -> Any:
    """Transform the rows of a dask array lazily, block by block.

    Returns
    -------
    dask.array.Array, shape (n_rows,) or (n_rows, n_columns)
    """
    function, dtype, columns = mapping
    shape = (0,) if columns is None else (0, columns)
    options: dict[str, Any] = {"dtype": dtype, "meta": np.empty(shape, dtype)}
    if columns is None:
        return da.map_blocks(_apply, X, held(function), drop_axis=1, **options)
    return da.map_blocks(_apply, X, held(function), chunks=(X.chunks[0], (columns,)), **options)


def _apply(
    X: np.ndarray, function: Callable[..., np.ndarray], block_info: dict[Any, Any]
) -> np.ndarray:
    first_row, number = (block_info[0][which][0] for which in ("array-location", "chunk-location"))
    first_row = first_row[0]
    try:
        return function(X, 0 if np.isnan(first_row) else int(first_row))
    except InvalidDataError as error:
        counted = " (rows counted from its first)" if np.isnan(first_row) else ""
        error.place(f"block {number}{counted}")
        raise
