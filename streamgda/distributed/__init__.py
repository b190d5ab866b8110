"""dask: parts of the rows to moments, merged in a fixed tree; rows to scores, lazily or to zarr.

How rows are cut into parts and in which order these are merged depends on the rows' chunks and on
the size of the moments, never on the scheduler or the number of its workers.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed

from streamgda.distributed import cluster, tasks
from streamgda.distributed.blocks import blocks_of
from streamgda.errors import InvalidDataError
from streamgda.moments import Moments
from streamgda.outputs import target
from streamgda.progress import Progress, reporter
from streamgda.sources import RowSource, as_source, is_dask, is_store

# A part is as many rows as are worth a task: so many bytes; or several times the moments, which are
# moved to be merged. Rows are cut finer where that makes many parts at all, for many workers, and
# coarser where it makes more than schedulers are quick with.
_PART_BYTES = 1 << 26
_PART_STATES = (2, 8)
_MANY_PARTS = 1 << 6
_MOST_PARTS = 1 << 13
_CLASSES_EXPECTED = 10
_SCORED_BYTES = 1 << 23  # of a part that is scored: more work a row, and nothing to merge


# --- moments ------------------------------------------------------------------------------------


def accumulate(
    X: Any,
    y: Any = None,
    *,
    moments: Moments,
    sample_weight: Any = None,
    progress: Progress = False,
    **options: Any,
) -> Moments:
    """Class moments of dask collections, on whatever scheduler or client is active.

    Parameters
    ----------
    X : dask array or data frame, shape (n_rows, n_features)
        With any chunks; row chunks of unknown size too. With `y` omitted: a list of delayed
        objects, each to become ``(X, y)`` or ``(X, y, sample_weight)``.
    y, sample_weight : dask array or series, or array-like, shape (n_rows,)
        Where chunk sizes are unknown, dask collections with the same blocks as `X`.
    moments : Moments
        Without rows, like those to be made.
    progress : bool or callable
        As of `streamgda.accumulate`; where chunk sizes are unknown, so is the total.
    **options
        Of `Moments._update`.

    Returns
    -------
    Moments

    Raises
    ------
    InvalidDataError
        For shapes or blocks that do not fit each other.
    ClusterError
        Where the cluster fails.
    """
    if is_partitions(X) and y is None:
        if sample_weight is not None:
            raise InvalidDataError("a delayed partition holds its own weights: (X, y, weight)")
        blocks, elsewhere = blocks_of(list(X))
        sizes, row_bytes, state, name = [math.nan] * len(blocks), 0, 0, "partition"
    elif y is None:
        raise InvalidDataError("y is missing: labels are needed beside rows in dask")
    else:
        X = as_rows(X)
        companions = [beside(X, y, "y")]
        if sample_weight is not None:
            companions.append(beside(X, sample_weight, "sample_weight"))
        blocks, elsewhere = blocks_of(X, *companions)
        sizes, row_bytes, name = list(X.chunks[0]), X.shape[1] * X.dtype.itemsize, "block"
        state, _ = moments._bytes(_CLASSES_EXPECTED, X.shape[1])
    total = None if np.isnan(sizes).any() else int(sum(sizes))
    bounds = [0, *np.nancumsum(sizes).astype(int).tolist()]
    found = [
        (f"{name} {number}", None if total is None else bounds[number], block)
        for number, block in enumerate(blocks)
    ]
    weights = [_PART_BYTES if math.isnan(n) else int(n) * row_bytes for n in sizes]

    def take(part: tasks.Part, start: int, stop: int) -> Any:
        mine = found[start:stop]
        keys = sorted({key for _, _, block in mine for key in block.needs}, key=str)
        take = partial(tasks.take_blocks, taking, part, mine, keys)
        return delayed(take, pure=False)([elsewhere[key] for key in keys])

    taking = tasks.Taking(moments, options)
    cuts = _cuts(weights, state)
    rows = [bounds[stop] - bounds[start] for start, stop in cuts]
    merged = _merged(take, cuts, rows, total, progress)
    if merged.n_features is None and sample_weight is None:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def accumulate_store(
    rows: RowSource,
    companions: Sequence[RowSource],
    slab_rows: int,
    *,
    moments: Moments,
    progress: Progress = False,
    **options: Any,
) -> Moments:
    """Class moments of a store that workers read themselves, slab by slab.

    Parameters
    ----------
    rows : RowSource
        One that `reads_itself`.
    companions : list of RowSource
        Labels, and perhaps weights. Where workers cannot read them, they are sent.
    slab_rows : int
        Rows that a task reads at a time.
    moments, progress, **options
        As of `accumulate`.

    Returns
    -------
    Moments

    Raises
    ------
    ClusterError
        Where the cluster fails, or a worker does not see the store.
    """
    state, _ = moments._bytes(_CLASSES_EXPECTED, rows.shape[1])
    taking = tasks.Taking(moments, options)

    def take(part: tasks.Part, start: int, stop: int) -> Any:
        sources = [tasks.window(source, start, stop) for source in (rows, *companions)]
        take = partial(tasks.take_rows, taking, part, start, slab_rows, sources)
        return delayed(take, pure=False)()

    most = part_bytes(rows.n_rows * rows.row_bytes, state) // rows.row_bytes
    cuts = _ranges(rows.n_rows, slab_rows, most)
    return _merged(take, cuts, [b - a for a, b in cuts], rows.n_rows, progress)


def _merged(
    take: Callable[[tasks.Part, int, int], Any],
    cuts: list[tuple[int, int]],
    rows: list[int],
    total: int | None,
    progress: Progress,
) -> Moments:
    """The moments of all parts, merged in pairs: so few are held, and few waited for, at a time."""
    topic = cluster.new_topic() if progress else ""
    parts = [take(tasks.Part(n, topic), *cut) for n, cut in enumerate(cuts)]
    keys = [part.key for part in parts]
    merge = delayed(tasks.merge, pure=False)
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [merge(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
    with reporter(progress, total, "accumulating") as report:
        (moments,) = cluster.compute(parts, dict(zip(keys, rows, strict=True)), topic, report)
    return moments


def part_bytes(total: int, state: int) -> int:
    """Bytes of rows that are worth a part, of so many in all and moments of that size."""
    least, most = (states * state for states in _PART_STATES)
    states = min(most, max(least, total // _MANY_PARTS))
    return max(_PART_BYTES, states, total // _MOST_PARTS)


def _cuts(weights: list[int], state: int) -> list[tuple[int, int]]:
    """Neighbouring blocks put together until they are worth a part, as (start, stop)."""
    enough = part_bytes(sum(weights), state)
    cuts, start, held = [], 0, 0
    for number, weight in enumerate(weights):
        if held and held + weight > enough:
            cuts.append((start, number))
            start, held = number, 0
        held += weight
    return [*cuts, (start, len(weights))]


def _ranges(n_rows: int, unit: int, most: int) -> list[tuple[int, int]]:
    """Ranges of whole units, all about as large and none larger than it must be above `most`."""
    units = -(-n_rows // unit)
    parts = -(-units // max(1, most // unit))
    cuts = [min(units * part // parts * unit, n_rows) for part in range(parts + 1)]
    return list(pairwise(cuts))


# --- scores -------------------------------------------------------------------------------------


def score(
    function: Callable[..., np.ndarray], X: Any, dtype: Any, n_columns: int | None = None
) -> Any:
    """Score a dask array or data frame lazily, block by block.

    Parameters
    ----------
    function : callable
        Called as ``function(rows, first_row)`` for a block; gives one entry a row.
    X : dask array or data frame, shape (n_rows, n_features)
    dtype : dtype
        Of what the function gives.
    n_columns : int, optional
        Width of what it gives; None for one-dimensional.

    Returns
    -------
    dask.array.Array, shape (n_rows,) or (n_rows, n_columns)
    """
    X = as_rows(X)
    held = _held(function)
    shape = (0,) if n_columns is None else (0, n_columns)
    options: dict[str, Any] = {"dtype": dtype, "meta": np.empty(shape, dtype)}
    if n_columns is None:
        return da.map_blocks(_apply, X, held, drop_axis=1, **options)
    return da.map_blocks(_apply, X, held, chunks=(X.chunks[0], (n_columns,)), **options)


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


def _held(function: Callable[..., np.ndarray]) -> Any:
    n_bytes = len(pickle.dumps(function))
    return cluster.hold(tasks.Scorer(function, n_bytes), n_bytes)


def store(scores: Any, out: Any) -> Any:
    """Compute scores into a zarr array, each of whose chunks or shards is written by one task.

    Parameters
    ----------
    scores : dask.array.Array
    out : zarr.Array, or path or store for one to create; or an array in memory

    Returns
    -------
    zarr.Array or ndarray
        `out`, or what was made in its place.

    Raises
    ------
    InvalidDataError
        Where the number of rows is not known.
    ClusterError
        Where the cluster fails.
    """
    if np.isnan(scores.shape[0]):
        raise InvalidDataError(
            "X has row chunks of unknown size, and out needs the number of rows: call "
            "X.compute_chunk_sizes() first"
        )
    out = target(out, scores.shape, scores.dtype, max(1, *scores.chunks[0]))
    if cluster.travels(out):
        unit = as_source(out, "out").shard
        rows = max(1, max(scores.chunks[0]) // unit) * unit
        scores = scores.rechunk((rows, *scores.shape[1:]))
        cluster.compute([da.store(scores, out, lock=False, compute=False)])
    else:
        out[...] = cluster.compute([scores])[0]
    return out


def scored_rows(rows: RowSource) -> int:
    """How many rows of a store are worth a task that scores them, as a multiple of its chunks."""
    most = max(_SCORED_BYTES, rows.n_rows * rows.row_bytes // _MOST_PARTS) // rows.row_bytes
    return max(1, most // rows.unit) * rows.unit


def score_store(
    function: Callable[..., np.ndarray],
    rows: RowSource,
    out: Any,
    slab_rows: int,
    progress: Progress = False,
) -> Any:
    """Score a store that workers read themselves.

    Parameters
    ----------
    function : callable
        As of `score`.
    rows : RowSource
        One that `reads_itself`.
    out : zarr.Array or None
        One that workers write to themselves, each chunk or shard in one task; or None to have the
        scores back.
    slab_rows : int
        Rows that a task reads at a time.
    progress : bool or callable

    Returns
    -------
    zarr.Array or ndarray

    Raises
    ------
    ClusterError
        Where the cluster fails, or a worker does not see the store.
    """
    most = scored_rows(rows)
    written = 1 if out is None else as_source(out, "out").shard
    aligned = math.lcm(written, rows.unit)
    cuts = _ranges(rows.n_rows, aligned if aligned <= most else written, most)
    if written <= slab_rows:
        slab_rows -= slab_rows % written
    topic = cluster.new_topic() if progress else ""
    held = _held(function)
    parts, sizes = [], {}
    for number, (start, stop) in enumerate(cuts):
        part, window = tasks.Part(number, topic), tasks.window(rows, start, stop)
        score = partial(tasks.score_rows, part, start, slab_rows, window, out)
        parts.append(delayed(score, pure=False)(held))
        sizes[parts[-1].key] = stop - start
    with reporter(progress, rows.n_rows, "scoring") as report:
        made = cluster.compute(parts, sizes, topic, report)
    return np.concatenate(made) if out is None else out


# --- what is taken ------------------------------------------------------------------------------


def reads_itself(X: Any) -> bool:
    """Whether workers of an active client can read, or write, this store."""
    return cluster.active_client() is not None and cluster.travels(X)


def is_partitions(X: Any) -> bool:
    """Whether this is a list of delayed objects."""
    return isinstance(X, list | tuple) and bool(X) and all(isinstance(x, Delayed) for x in X)


def as_rows(X: Any) -> Any:
    """Rows as a dask array with all features in one chunk.

    Raises
    ------
    InvalidDataError
        Where it is not two-dimensional.
    """
    X = _as_array(X)
    if not is_dask(X):
        X = da.from_array(X if is_store(X) else np.asarray(X))
    if X.ndim != 2:
        raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
    if np.isnan(X.shape[1]):
        raise InvalidDataError("X has an unknown number of features; call X.compute_chunk_sizes()")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _as_array(X: Any) -> Any:
    if not hasattr(X, "to_dask_array"):
        return X
    with warnings.catch_warnings():
        # Labels that are strings become objects, which are labels as well.
        warnings.filterwarnings("ignore", "Dask currently has limited support", UserWarning)
        return X.to_dask_array()


def beside(X: Any, y: Any, what: str) -> Any:
    """`y` as a dask array in the row blocks of `X`."""
    y = _as_array(y)
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
