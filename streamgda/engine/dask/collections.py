"""Rows, labels and weights as dask arrays with the same row blocks."""

from __future__ import annotations

import warnings
from typing import Any

import dask.array as da
import numpy as np

from streamgda.engine.dask.scoring import map_blocks
from streamgda.errors import InvalidDataError
from streamgda.rows import as_source
from streamgda.rows.codes import CodedLabels
from streamgda.rows.sources import RowSource


def aligned(rows: RowSource, *companions: RowSource) -> list[Any]:
    """Return rows, labels and weights as dask arrays with the row blocks of the rows."""
    X = as_rows(rows)
    return [X, *(beside(X, companion) for companion in companions)]


def as_rows(source: RowSource) -> Any:
    """Return rows as a dask array with all features in one chunk, transformed if they are to be.

    Raises
    ------
    InvalidDataError
        If they are not two-dimensional.
    """
    X = _as_array(source)
    if X.ndim != 2:
        raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
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
            f"blocks; or call X.compute_chunk_sizes() first"
        )
    else:
        y = _whole(source) if source.in_memory or not hasattr(y, "ndim") else y
        chunks = (X.chunks[0],) if y.shape == X.shape[:1] else "auto"
        y = as_source(da.from_array(y, chunks=chunks), what).values
    if y.ndim != 1:
        raise InvalidDataError(f"{what} has shape {y.shape}; expected one entry for each row")
    if unknown or any(np.isnan(n) for n in y.chunks[0]):
        if X.numblocks[0] != y.numblocks[0]:
            raise InvalidDataError(
                f"X has {X.numblocks[0]} row blocks of unknown size and {what} has "
                f"{y.numblocks[0]}; they cannot be matched: call compute_chunk_sizes() on both"
            )
        return y
    if X.shape[0] != y.shape[0]:
        raise InvalidDataError(
            f"X has {X.shape[0]} rows but {what} has {y.shape[0]} (inconsistent numbers of "
            f"samples); give one for each row"
        )
    return y if y.chunks[0] == X.chunks[0] else y.rechunk((X.chunks[0],))


def sized(*arrays: Any) -> list[Any]:
    """Return the arrays with chunks of known size, which are counted if they are not known."""
    return [a.copy().compute_chunk_sizes() if np.isnan(a.shape[0]) else a for a in arrays]


def _whole(source: RowSource) -> np.ndarray:
    values = source.whole()
    return np.asarray(values) if type(values) is CodedLabels else values


def _as_array(source: RowSource) -> Any:
    values = source.values
    if source.executor != "dask":
        array = da.from_array(_whole(source) if source.in_memory else values)
        return as_source(array, source.name).values
    if not hasattr(values, "to_dask_array"):
        return values
    with warnings.catch_warnings():
        # Labels that are strings become objects, which are accepted as labels.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return values.to_dask_array()
