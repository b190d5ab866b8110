"""Rows, labels, groups and weights as dask arrays with the same row blocks, and their values."""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np

from streamgda.errors import ClusterError, InvalidDataError, cause_of, sendable
from streamgda.rows import Rows, side_by_side, target_columns
from streamgda.rows.labels import CodedLabels
from streamgda.rows.source import (
    MappedRows,
    RowSource,
    as_source,
    check_lengths,
    how_to_count,
    raise_for_shape,
)
from streamgda.runtime import threads


def aligned(rows: Rows) -> dict[str, Any]:
    """Return sources as dask arrays with the row blocks of the rows, by the fields of `Rows`."""
    X = as_rows(rows.X)
    others = {"y": rows.y, "groups": rows.groups, "weight": rows.weight}
    return {"X": X} | {name: beside(X, each) for name, each in others.items() if each is not None}


def as_rows(source: RowSource) -> Any:
    """Return rows as a dask array with all features in one chunk, transformed if they are to be.

    Raises
    ------
    InvalidDataError
        If they are not two-dimensional.
    """
    if isinstance(source, MappedRows):
        return map_blocks(source, as_rows(source.rows))
    X = _as_array(source)
    if X.ndim != 2:
        raise_for_shape(X.shape)
    if np.isnan(X.shape[1]):
        raise InvalidDataError("X has an unknown number of features; call X.compute_chunk_sizes()")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def beside(X: Any, source: RowSource) -> Any:
    """Return labels, groups or weights as a dask array with the row blocks of `X`.

    Raises
    ------
    InvalidDataError
        If their number differs, or if blocks of unknown size cannot be matched.
    """
    unknown = np.isnan(X.shape[0])
    if unknown and source.executor != "dask":
        raise InvalidDataError(
            f"X has row chunks of unknown size, so {source.name} must be a dask array with the "
            f"same blocks; or {how_to_count('X')}"
        )
    y = _as_array(source, X.chunks[0])
    unknown = unknown or np.isnan(y.shape[:1]).any()
    if not unknown or y.ndim != 1:
        check_lengths(RowSource(X, X.shape, X.dtype), RowSource(y, y.shape, y.dtype, source.name))
    if not unknown:
        return y.rechunk((X.chunks[0],))
    if X.numblocks[0] != y.numblocks[0]:
        given = {"X": X, source.name: y}
        uncounted = [name for name, array in given.items() if np.isnan(array.shape[0])]
        raise InvalidDataError(
            f"X has {X.numblocks[0]} row blocks and {source.name} has {y.numblocks[0]}, which "
            f"cannot be matched without their sizes: {'; and '.join(map(how_to_count, uncounted))}"
        )
    return y


def joined_blocks(X: RowSource, y: RowSource) -> Any:
    """Return rows with their targets as further columns, as a dask array."""
    rows = as_rows(X)
    if y.executor == "dask" or not y.in_memory:
        targets = _as_array(y, rows.chunks[0])
    else:
        targets = da.from_array(target_columns(_whole(y)))
    columns = [targets] if targets.ndim == 1 else [*targets.T]
    columns = [beside(rows, as_source(column, "y"))[:, None] for column in columns]
    targets = da.concatenate(columns, axis=1, allow_unknown_chunksizes=True).rechunk({1: -1})
    shape = (rows.chunks[0], (rows.shape[1] + len(columns),))
    meta = np.empty((0, shape[1][0]))
    return da.map_blocks(side_by_side, rows, targets, chunks=shape, dtype=meta.dtype, meta=meta)


# --- arrays of sources ----------------------------------------------------------------------------


class _Sliced:
    """A source, as dask slices it where the rows are needed."""

    def __init__(self, source: RowSource) -> None:
        self.source, self.shape, self.ndim = source, source.shape, len(source.shape)
        self.dtype = source.dtype

    @sendable
    def __getitem__(self, index: Any) -> Any:
        rows, *others = index if isinstance(index, tuple) else (index,)
        start, stop, _ = rows.indices(self.shape[0])
        return self.source.read(start, stop)[(slice(None), *others)]


def _whole(source: RowSource) -> np.ndarray:
    values: Any = source.whole()
    return np.asarray(values) if type(values) is CodedLabels else values


def _as_array(source: RowSource, chunks: tuple[int, ...] | None = None) -> Any:
    """Return a dask array of a source; in row blocks of these sizes if it is not a collection."""
    values = source.values
    if source.executor == "dask":
        return _of_frame(values) if hasattr(values, "to_dask_array") else values
    fitting = chunks is not None and sum(chunks) == source.n_rows
    blocks = (chunks, *source.shape[1:]) if fitting else "auto"
    if source.in_memory or source.dtype is None:
        return da.from_array(_whole(source), chunks=blocks, name=False)
    meta = np.empty((0,) * len(source.shape), source.dtype)
    return da.from_array(_Sliced(source), chunks=blocks, name=False, meta=meta)


def _of_frame(frame: Any) -> Any:
    """Return an array with a block for each partition of a data frame or a series of dask.

    Left to itself, dask joins partitions by the bytes of the columns that are read, and so rows
    and labels of one frame differently.
    """
    columns = [*frame.columns] if frame.ndim == 2 else None
    shape = (math.nan,) if columns is None else (math.nan, len(columns))
    with warnings.catch_warnings():
        # Labels that are strings become objects, which are accepted as labels.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        meta = np.empty((0,) * frame.ndim, frame.to_dask_array().dtype)
    values = dask.delayed(_values, pure=True)
    parts = [values(part, columns) for part in frame.to_delayed(optimize_graph=False)]
    arrays = [da.from_delayed(part, shape, meta=meta) for part in parts]
    return da.concatenate(arrays, allow_unknown_chunksizes=True)


def _values(part: Any, columns: list[Any] | None) -> np.ndarray:
    """Return the values of a partition, the columns of which may come in another order."""
    values: np.ndarray = (part if columns is None else part[columns]).to_numpy()
    return values


# --- rows that are transformed ------------------------------------------------------------------


def map_blocks(mapped: MappedRows, X: Any) -> Any:
    """Apply the function of mapped rows to a dask array lazily, block by block.

    Returns
    -------
    dask.array.Array, shape (n_rows,) or (n_rows, n_columns)
    """
    held = dask.delayed(mapped.function, pure=False, traverse=False)  # All blocks share one node.
    width, dtype = mapped.shape[1:], mapped.dtype
    options: dict[str, Any] = {"dtype": dtype, "meta": np.empty((0, *width), dtype)}
    options |= {"chunks": (X.chunks[0], width)} if width else {"drop_axis": 1}
    return da.map_blocks(_apply, X, held, **options)


def _apply(
    X: np.ndarray, function: Callable[..., np.ndarray], block_info: dict[Any, Any]
) -> np.ndarray:
    place = block_info[0]
    with within_block(place["chunk-location"][0], place["array-location"][0][0]) as first_row:
        return function(X, first_row)


@contextlib.contextmanager
def within_block(number: int, first_row: float, what: str = "block") -> Iterator[int]:
    """Enter a context of one thread, in which errors about rows name the block.

    It provides the number of its first row, or 0 if that is NaN.
    """
    unknown = np.isnan(first_row)
    try:
        with threads.limit(1):  # Dask runs a thread for each block.
            yield 0 if unknown else int(first_row)
    except InvalidDataError as error:
        error.place(f"{what} {number}{' (rows counted from its first)' if unknown else ''}")
        raise


# --- computing ------------------------------------------------------------------------------------


def compute(*collections: Any) -> tuple[Any, ...]:
    """Return the values of collections, as `dask.compute` does, from the thread that calls it.

    Inside of a task, dask lets another task take the place of the one that waits. It can do so
    for the thread of the task only.

    Raises
    ------
    ClusterError
        If the cluster fails, rather than what is computed.
    """
    if "distributed" not in sys.modules:
        return tuple(dask.compute(*collections))
    # Labels in memory and models have to be sent.
    with _failures(), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
        return tuple(dask.compute(*collections))


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415
    from distributed.client import ClosedClientError  # noqa: PLC0415
    from distributed.comm import CommClosedError  # noqa: PLC0415

    try:
        yield
    except KilledWorker as error:
        raise ClusterError(
            f"workers died repeatedly on the same rows: {error} Give them more memory, or "
            f"fewer threads each, or keep less (covariance_type='tied' or 'diag', smaller blocks)"
        ) from cause_of(error)
    except (CancelledError, ClosedClientError, CommClosedError) as error:
        raise ClusterError(
            f"the scheduler has cancelled this work, or is gone ({error!r}): connect a Client and "
            f"run this again"
        ) from cause_of(error)
