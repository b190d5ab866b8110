"""dask: blocks of rows to moments, merged in a fixed tree; blocks of rows to scores, lazily.

A task never changes what it was given: a task may run twice, and each row must count once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import dask
import dask.array as da
import numpy as np

from streamgda import threads
from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.sources import is_dask, is_store

_MERGED_AT_ONCE = 8
# Blocks are accumulated one after the other in a task until they are worth a state of their own.
_TASK_BYTES = 1 << 25
_MOST_TASK_BYTES = 1 << 27
_CLASSES_EXPECTED = 10


def accumulate(
    X: Any, y: Any, *, covariance_type: str = "full", sample_weight: Any = None
) -> ClassMoments:
    """Class moments of dask arrays, on whatever scheduler or client is active.

    Parameters
    ----------
    X : dask.array.Array, shape (n_rows, n_features)
        With any chunks; row chunks of unknown size too.
    y, sample_weight : dask.array.Array or array-like, shape (n_rows,)
        Where chunk sizes are unknown, dask arrays with the same blocks as `X`.
    covariance_type : str

    Returns
    -------
    ClassMoments

    Raises
    ------
    InvalidDataError
        For shapes or blocks that do not fit each other.
    """
    if y is None:
        raise InvalidDataError("y is missing: labels are needed beside a dask array of rows")
    X = as_rows(X)
    companions = [beside(X, y, "y")]
    if sample_weight is not None:
        companions.append(beside(X, sample_weight, "sample_weight"))
    blocks = list(
        zip(
            _first_rows(X),
            X.to_delayed().ravel(),
            *(c.to_delayed().ravel() for c in companions),
            strict=True,
        )
    )
    take, merge = dask.delayed(_take, pure=False), dask.delayed(_merge, pure=False)
    size = _blocks_per_task(X, covariance_type)
    parts = [take(covariance_type, blocks[i : i + size]) for i in range(0, len(blocks), size)]
    while len(parts) > 1:
        parts = [
            merge(parts[i : i + _MERGED_AT_ONCE]) for i in range(0, len(parts), _MERGED_AT_ONCE)
        ]
    moments: ClassMoments = dask.compute(parts[0])[0]
    if moments.n_features is None and sample_weight is None:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return moments


def _take(covariance_type: str, blocks: list[tuple[Any, ...]]) -> ClassMoments:
    moments = ClassMoments(covariance_type)
    with threads.limit(1):
        for first_row, X, y, *weights in blocks:
            if X.shape[0]:
                moments._update(X, y, weights[0] if weights else None, first_row)
    return moments


def _merge(parts: list[ClassMoments]) -> ClassMoments:
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def _blocks_per_task(X: Any, covariance_type: str) -> int:
    from streamgda.moments.structure import structure_of  # noqa: PLC0415

    state = structure_of(covariance_type).state_bytes(_CLASSES_EXPECTED, X.shape[1])
    rows = [n for n in X.chunks[0] if not np.isnan(n)]
    block = max(1, int(np.mean(rows) * X.shape[1] * X.dtype.itemsize)) if rows else _TASK_BYTES
    return max(1, min(max(_TASK_BYTES, state), _MOST_TASK_BYTES) // block)


def score(
    function: Callable[..., np.ndarray], X: Any, dtype: Any, n_columns: int | None = None
) -> Any:
    """Score a dask array lazily, block by block.

    Parameters
    ----------
    function : callable
        Called as ``function(rows, first_row)`` for a block; gives one entry a row.
    X : dask.array.Array, shape (n_rows, n_features)
    dtype : dtype
        Of what the function gives.
    n_columns : int, optional
        Width of what it gives; None for one-dimensional.

    Returns
    -------
    dask.array.Array, shape (n_rows,) or (n_rows, n_columns)
    """
    X = as_rows(X)
    # One key of the graph for the model, however many blocks there are.
    held = dask.delayed(partial(_call, function), pure=False)
    shape = (0,) if n_columns is None else (0, n_columns)
    options: dict[str, Any] = {"dtype": dtype, "meta": np.empty(shape, dtype)}
    if n_columns is None:
        return da.map_blocks(_apply, X, held, drop_axis=1, **options)
    return da.map_blocks(_apply, X, held, chunks=(X.chunks[0], (n_columns,)), **options)


def _apply(
    X: np.ndarray, function: Callable[..., np.ndarray], block_info: dict[Any, Any]
) -> np.ndarray:
    first_row = block_info[0]["array-location"][0][0]
    return function(X, 0 if np.isnan(first_row) else int(first_row))


def _call(function: Callable[..., np.ndarray], X: np.ndarray, first_row: int) -> np.ndarray:
    with threads.limit(1):
        return function(X, first_row)


def as_rows(X: Any) -> Any:
    """Rows as a dask array with all features in one chunk.

    Raises
    ------
    InvalidDataError
        Where it is not two-dimensional.
    """
    if not is_dask(X):
        X = da.from_array(X if is_store(X) else np.asarray(X))
    if X.ndim != 2:
        raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
    if np.isnan(X.shape[1]):
        raise InvalidDataError("X has an unknown number of features; call X.compute_chunk_sizes()")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def beside(X: Any, y: Any, what: str) -> Any:
    """`y` as a dask array in the row blocks of `X`."""
    unknown = any(np.isnan(n) for n in X.chunks[0])
    if not is_dask(y):
        if unknown:
            raise InvalidDataError(
                f"X has row chunks of unknown size, so {what} must be a dask array with the same "
                f"blocks; or call X.compute_chunk_sizes() first"
            )
        y = y if hasattr(y, "ndim") else np.asarray(y)
        y = da.from_array(y, chunks=(X.chunks[0],) if y.shape == X.shape[:1] else "auto")
    if y.ndim != 1:
        raise InvalidDataError(f"{what} has shape {y.shape}; expected one entry a row")
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
            f"samples); give one a row"
        )
    return y if y.chunks[0] == X.chunks[0] else y.rechunk((X.chunks[0],))


def _first_rows(X: Any) -> list[int]:
    """Number of each block's first row, as far as sizes are known."""
    sizes = [0 if np.isnan(n) else int(n) for n in X.chunks[0]]
    return np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(int).tolist()
