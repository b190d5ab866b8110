"""dask: parts of the rows to moments, merged in a fixed tree; rows to scores, lazily or to zarr.

How rows are cut into parts and in which order these are merged depends on the rows' chunks and on
the size of the moments, never on the scheduler or the number of its workers.
"""

from __future__ import annotations

import math
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed, delayed

from streamgda.engine.dask import cluster, tasks
from streamgda.engine.dask.blocks import blocks_of
from streamgda.engine.dask.merge_tree import Harvest, Range, halves, joined, missing
from streamgda.engine.fingerprints import REMEDY, checksum
from streamgda.engine.outputs import Output, target
from streamgda.engine.progress import Progress, reporter
from streamgda.errors import CheckpointError, InvalidDataError
from streamgda.moments import Moments, planned_bytes
from streamgda.rows.slabs import Slabs
from streamgda.rows.sources import RowSource, as_source, is_dask, is_store

# A part is as many rows as are worth a task: so many bytes; or several times the moments, which are
# moved to be merged. Rows are cut finer where that makes many parts at all, for many workers, and
# coarser where it makes more than schedulers are quick with.
_PART_BYTES = 1 << 26
_PART_STATES = (2, 8)
_MANY_PARTS = 1 << 6
_MOST_PARTS = 1 << 13
_CLASSES_EXPECTED = 10
_SAMPLED = 17  # parts of a store, some rows of which are compared where it is gone on
_MADE_AGAIN = 4  # parts of a dask collection that are
_NAMED = "{}, by the name that dask gives it"
_SCORED_BYTES = 1 << 23  # of a part that is scored: more work a row, and nothing to merge


# --- moments ------------------------------------------------------------------------------------


def accumulate(
    X: Any,
    y: Any = None,
    *,
    moments: Moments,
    sample_weight: Any = None,
    progress: Progress = False,
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
    made_of: Mapping[str, str] | None = None,
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
    checkpoint, checkpoint_every
        As of `streamgda.accumulate`.
    made_of : dict of str
        What is in `options`, and how else the moments are made, for the checkpoint.
    **options
        Of `add_rows`.

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
    made_of = {**(made_of or {}), "read by": "dask"}
    if is_partitions(X) and y is None:
        if sample_weight is not None:
            raise InvalidDataError("a delayed partition holds its own weights: (X, y, weight)")
        made_of[_NAMED.format("X")] = (
            f"checksum {checksum(np.array([str(part.key) for part in X]))}"
        )
        blocks, elsewhere = blocks_of(list(X))
        sizes, row_bytes, state, name = [math.nan] * len(blocks), 0, 0, "partition"
    elif y is None:
        raise InvalidDataError("y is missing: labels are needed beside rows in dask")
    else:
        X = as_rows(X)
        companions = [beside(X, y, "y")]
        if sample_weight is not None:
            companions.append(beside(X, sample_weight, "sample_weight"))
        for column, what in zip((X, *companions), ("X", "y", "sample_weight"), strict=False):
            made_of[what] = f"shape {column.shape}, {column.dtype}"
            made_of[_NAMED.format(what)] = column.name
        blocks, elsewhere = blocks_of(X, *companions)
        sizes, row_bytes, name = list(X.chunks[0]), X.shape[1] * X.dtype.itemsize, "block"
        state, _ = planned_bytes(moments, _CLASSES_EXPECTED, X.shape[1])
    total = None if np.isnan(sizes).any() else int(sum(sizes))
    bounds = [0, *np.nancumsum(sizes).astype(int).tolist()]
    found = [
        (f"{name} {number}", None if total is None else bounds[number], block)
        for number, block in enumerate(blocks)
    ]
    weights = [_PART_BYTES if math.isnan(n) else int(n) * row_bytes for n in sizes]

    def of_blocks(function: Callable[..., Any], start: int, stop: int) -> Any:
        mine = found[start:stop]
        keys = sorted({key for _, _, block in mine for key in block.needs}, key=str)
        task = delayed(partial(function, mine, keys), pure=False)
        return task([elsewhere[key] for key in keys])

    def take(part: tasks.Part, start: int, stop: int) -> Any:
        return of_blocks(partial(tasks.take_blocks, taking, part), start, stop)

    journal = _begun(checkpoint, checkpoint_every, made_of, options)
    taking = tasks.Taking(moments, options, journal.keeps)
    cuts = _cuts(weights, state)
    journal.begin(cuts, {})
    again = {
        number: of_blocks(tasks.see_blocks, *cuts[number])
        for number in _spread([*journal.seen], _MADE_AGAIN)
    }
    _check(journal, again, f"{name}s", cuts)
    rows = [bounds[stop] - bounds[start] for start, stop in cuts]
    merged = _merged(take, cuts, rows, total, progress, journal)
    if merged.n_features is None and sample_weight is None:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def accumulate_store(
    rows: RowSource,
    companions: Sequence[RowSource],
    plan: Slabs,
    *,
    moments: Moments,
    progress: Progress = False,
    checkpoint: Any = None,
    checkpoint_every: float = 60.0,
    made_of: Mapping[str, str] | None = None,
    **options: Any,
) -> Moments:
    """Class moments of a store that workers read themselves, slab by slab.

    Parameters
    ----------
    rows : RowSource
        One that `reads_itself`.
    companions : list of RowSource
        Labels, and perhaps weights. Where workers cannot read them, they are sent.
    plan : Slabs
        What a task reads at a time.
    moments, progress, checkpoint, checkpoint_every, made_of, **options
        As of `accumulate`.

    Returns
    -------
    Moments

    Raises
    ------
    ClusterError
        Where the cluster fails, or a worker does not see the store.
    """
    made_of = {**(made_of or {}), "read by": "workers"}
    journal = _begun(checkpoint, checkpoint_every, made_of, options)
    if journal.kept is not None:
        plan = plan.resumed(journal.slab_rows)
    state, _ = planned_bytes(moments, _CLASSES_EXPECTED, rows.shape[1])
    taking = tasks.Taking(moments, options, journal.keeps)

    def windows(start: int, stop: int) -> list[RowSource]:
        return [tasks.window(source, start, stop) for source in (rows, *companions)]

    def take(part: tasks.Part, start: int, stop: int) -> Any:
        take = partial(tasks.take_rows, taking, part, start, plan.n_rows, windows(start, stop))
        return delayed(take, pure=False)()

    def see_again(number: int, sampled: bool) -> Any:
        see = partial(tasks.see_rows, plan.n_rows, sampled, windows(*cuts[number]))
        return delayed(see, pure=False)()

    most = part_bytes(rows.n_rows * rows.row_bytes, state) // rows.row_bytes
    cuts = _ranges(rows.n_rows, plan.n_rows, most)
    journal.begin(cuts, {"slab_rows": plan.n_rows})
    sampled = _spread([*journal.seen], _SAMPLED)
    again = {number: see_again(number, number in sampled) for number in journal.seen}
    _check(journal, again, "rows", cuts)
    return _merged(take, cuts, [b - a for a, b in cuts], rows.n_rows, progress, journal)


def _begun(path: Any, every: float, made_of: Mapping[str, str], options: Any) -> Harvest:
    """What is kept of the parts, in a file or not at all."""
    journal = Harvest(path, every, made_of)
    if "invalid" in options and options["invalid"].action == "raise":
        journal.refuse_skipped()
    return journal


def _merged(
    take: Callable[[tasks.Part, int, int], Any],
    cuts: list[tuple[int, int]],
    rows: list[int],
    total: int | None,
    progress: Progress,
    journal: Harvest,
) -> Moments:
    """The moments of all parts, merged in a tree that is none of the scheduler's choice."""
    topic = cluster.new_topic() if progress else ""
    merge = delayed(tasks.merge, pure=False)
    nodes: dict[Range, Any] = {}

    def node(parts: Range) -> Any:
        start, stop = parts
        made = [*map(node, halves(parts))] if stop - start > 1 else []
        # Of what can be done, the first parts are: dask would begin in their midst.
        with dask.annotate(priority=-start):
            if made:
                nodes[parts] = merge(*made)
            else:
                nodes[parts] = take(tasks.Part(start, topic), *cuts[start])
        return nodes[parts]

    wanted = missing(journal.whole, journal.values)
    roots = [node(parts) for parts in wanted]
    sizes = {nodes[n, n + 1].key: size for n, size in enumerate(rows) if (n, n + 1) in nodes}
    first = sum(rows) - sum(sizes.values())
    if total is None:
        first = int(sum(taken.moments.class_count.sum() for taken in journal.values.values()))
    watching: dict[str, Any] = {}
    if journal.keeps:
        ranges = {task.key: parts for parts, task in nodes.items()}
        watching = {
            "inner": [task for parts, task in nodes.items() if parts not in wanted],
            "ended": lambda key, fetch: [
                nodes[parts].key for parts in journal.ended(ranges[key], fetch)
            ],
        }
    with reporter(progress, total, "accumulating", first=first) as report, journal:
        found = cluster.compute(roots, sizes, topic, lambda done: report(first + done), **watching)
        journal.values.update(zip(wanted, found, strict=True))
    return joined(journal.whole, journal.values, tasks.merge)[journal.whole].moments


def _check(journal: Harvest, again: Mapping[int, Any], what: str, cuts: list[Range]) -> None:
    """Compare what is seen of parts that are done with what was seen when they were taken in."""
    seen = journal.seen
    found = cluster.compute([*again.values()]) if again else []
    for number, (labels, rows) in zip(again, found, strict=True):
        start, stop = cuts[number]
        where = f"those of {what} {start} to {stop - 1} are not what they were. {REMEDY}"
        if labels != seen[number][0]:
            raise CheckpointError(f"{journal} was begun with other labels or weights: {where}")
        if rows not in (0, seen[number][1]):
            raise CheckpointError(f"{journal} was begun with other rows: {where}")


def _spread(numbers: list[int], most: int) -> list[int]:
    """So many of them, evenly spread, the first and the last among them."""
    places = np.linspace(0, len(numbers) - 1, most).astype(int)
    return sorted({numbers[place] for place in places}) if numbers else []


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
    output: Output,
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
    output : Output
        Of an array that workers write to themselves, each chunk or shard in one task; or of none,
        to have the scores back. It is gone on with after the rows that are done.
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
    out = output.array
    most = scored_rows(rows)
    written = 1 if out is None else as_source(out, "out").shard
    aligned = math.lcm(written, rows.unit)
    first = output.done // written * written
    if first == rows.n_rows:
        return out
    unit = aligned if aligned <= most else written
    cuts = [(first + a, first + b) for a, b in _ranges(rows.n_rows - first, unit, most)]
    if written <= slab_rows:
        slab_rows -= slab_rows % written
    topic = cluster.new_topic() if progress else ""
    held = _held(function)
    parts, sizes = [], {}
    for number, (start, stop) in enumerate(cuts):
        part, window = tasks.Part(number, topic), tasks.window(rows, start, stop)
        score = partial(tasks.score_rows, part, start, slab_rows, written, window, out)
        with dask.annotate(priority=-number):  # for what is kept are the first rows
            parts.append(delayed(score, pure=False)(held))
        sizes[parts[-1].key] = stop - start
    ends: dict[str, Callable[[], Any]] = {}
    waiting = [part.key for part in reversed(parts)]

    def ended(key: str, fetch: Callable[[], Any]) -> Sequence[str]:
        ends[key] = fetch
        while waiting and waiting[-1] in ends:
            start, stop = cuts[len(parts) - len(waiting)]
            output.advance(stop, start, *ends.pop(waiting.pop())())
        return ()

    with reporter(progress, rows.n_rows, "scoring", first=first) as report, output:
        made = cluster.compute(
            parts,
            sizes,
            topic,
            lambda done: report(first + done),
            ended=None if out is None else ended,
        )
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
