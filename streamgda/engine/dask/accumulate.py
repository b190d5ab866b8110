"""Rows to moments on dask: one leaf a block, merged in a fixed tree.

The moments of each block are summed in one task. Sixteen of them are merged, four of these sums
make a round, and the rounds are added in order, whatever the scheduler and the number of its
workers: the moments have the same bits. A task never changes its arguments, as it may run twice.
"""

from __future__ import annotations

import contextlib
import warnings
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed
from dask.sizeof import sizeof

from streamgda.engine.checkpoint import checksum
from streamgda.engine.dask.collections import aligned, compute, within_block
from streamgda.engine.reading import reporter
from streamgda.errors import InvalidDataError, sendable
from streamgda.moments import Moments
from streamgda.rows import Rows
from streamgda.rows.batches import Batches, read_batch
from streamgda.rows.counting import Slab
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes, readable

if TYPE_CHECKING:
    from streamgda.engine.passes import Accumulation

SPLIT = 16  # Moments of so many blocks are merged at a time.
ROUND = 64  # So many blocks are computed between two writes of a checkpoint.
_REPORTS = 64  # Progress is reported about so many times.
_MANY_BLOCKS, _TINY_BYTES = 1000, 1 << 20


def accumulate_blocks(asked: Accumulation, rows: Rows) -> Moments:
    """Accumulate dask collections on the active scheduler or client.

    Parameters
    ----------
    asked : Accumulation
    rows : Rows
        Sources, at least one a dask collection. If chunk sizes are unknown, all are collections
        with the same blocks.

    Returns
    -------
    Moments

    Raises
    ------
    InvalidDataError
        If shapes or blocks do not fit each other.
    MemoryBudgetError
        If `max_memory` has no room for the moments of some blocks.
    ClusterError
        If the cluster fails.
    """
    columns = aligned(rows)
    X = columns["X"]
    sizes = np.array(X.chunks[0], np.float64)
    of_block = X.nbytes / sizes.size
    if sizes.size > _MANY_BLOCKS and of_block < _TINY_BYTES:  # Nothing is computed yet.
        warnings.warn(
            f"X has {sizes.size:,} blocks of about {readable(of_block)}, and each costs a task of "
            f"some milliseconds: rechunk to blocks of {readable(_TINY_BYTES)} or more "
            f"(X = X.rechunk({{0: 'auto', 1: -1}}))",
            da.PerformanceWarning,
            stacklevel=2,
        )
    blocks = f"{sizes.size}, sizes of checksum {zlib.crc32(sizes.tobytes())}"
    ends = np.cumsum(sizes)  # NaN if they are unknown
    places = da.map_blocks(_place, chunks=X.chunks[:1], dtype=object, meta=np.empty(0, object))
    arrays = [value for a in columns.values() for value in (a, "ij"[: a.ndim])]

    def leaves(function: Callable[[Slab], Any]) -> list[Delayed]:
        held = dask.delayed(function, pure=False, traverse=False)
        every = da.blockwise(
            _of_block,
            "ij",
            *(held, None, tuple(columns), None, places, "i", *arrays),
            align_arrays=False,
            dtype=object,
            meta=np.empty((0, 0), object),
        )
        (every,) = dask.optimize(every)  # One task makes what a leaf needs.
        return [*every.to_delayed(optimize_graph=False).ravel()]

    moments = _merged(asked, leaves, ends, rows.sources, blocks=blocks)
    if moments._n_features_in not in (None, X.shape[1]):
        raise InvalidDataError(
            f"X has {X.shape[1]} columns by its shape, and its blocks have "
            f"{moments._n_features_in}; declare the shape that they have (chunks= of map_blocks)"
        )
    return moments


def accumulate_partitions(asked: Accumulation, batches: Batches) -> Moments:
    """Accumulate delayed batches.

    Parameters, results and errors are those of `accumulate_blocks`.
    """
    partitions, columns = batches.values, batches.columns

    def leaves(function: Callable[[Slab], Any]) -> list[Delayed]:
        held = dask.delayed(function, pure=False, traverse=False)
        leaf = dask.delayed(_of_partition, pure=False)
        return [leaf(held, n, each, columns) for n, each in enumerate(partitions)]

    ends = np.full(len(partitions), np.nan)
    return _merged(asked, leaves, ends, [], X=f"{len(partitions)} partitions")


# --- the tree -------------------------------------------------------------------------------------


def _merged(
    asked: Accumulation,
    leaves: Callable[[Callable[[Slab], Any]], list[Delayed]],
    ends: np.ndarray,
    sources: list[Any],
    **described: str,
) -> Moments:
    """Return the moments of all blocks, those that the checkpoint holds included.

    Parameters
    ----------
    asked : Accumulation
    leaves : callable
        Called with a function of a `Slab`; returns its delayed results.
    ends : ndarray
        Number of the rows up to each block; NaN if it is unknown.
    sources : list of RowSource
    **described : str
        Description of the rows, for the checkpoint.
    """
    n_blocks = len(ends)
    task = replace(asked, progress=False, checkpoint=None)
    if asked.max_memory is not None:  # Moments wait to be merged while others are summed.
        held = min(n_blocks, SPLIT + ROUND // SPLIT + dask.system.CPU_COUNT)
        task = replace(task, n_bytes=allowed_bytes(asked.max_memory) // held)
    sums = leaves(partial(_moments_of, task))
    done, moments = 0, asked.empty
    kept = asked.started("dask", "blocks", sources, **described)
    if kept is not None:
        checksums = leaves(checksum)
        kept.resume(1, lambda start, stop: compute(checksums[start])[0])
        done, moments = kept.done, kept.moments
    # Rounds that are computed together: all of them, unless somebody waits for some.
    together = n_blocks
    if kept is not None or asked.progress:
        together = max(1, n_blocks // (ROUND * _REPORTS)) * ROUND

    def n_rows() -> int:
        end = ends[done - 1] if done else 0
        return int(moments.class_count.sum() if np.isnan(end) else end)

    total = None if np.isnan(ends[-1:]).any() else int(ends[-1])
    with (
        reporter(asked.progress, total, "accumulating", first=n_rows()) as report,
        kept or contextlib.nullcontext(),
    ):
        while done < n_blocks:
            stop = min(n_blocks, done + together)
            added = _added(moments if done else None, sums[done:stop])
            if kept is None:
                (moments,) = compute(added)
            else:
                moments, first, last = compute(added, checksums[done], checksums[stop - 1])
                kept.replace(moments, stop, first, last)
            done = stop
            report(n_rows())
    weighted = any(source.name == "sample_weight" for source in sources)
    if moments.n_features is None and not weighted and not asked.rule.selects:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return moments


def _added(moments: Moments | None, sums: list[Delayed]) -> Delayed:
    """Return the delayed sum of moments, and of rounds of those of blocks."""
    merge = dask.delayed(_merge, pure=False)
    held = [] if moments is None else [dask.delayed(moments, pure=False, traverse=False)]
    for start in range(0, len(sums), ROUND):
        parts = sums[start : start + ROUND]
        while len(parts) > 1:
            parts = [merge(*parts[at : at + SPLIT]) for at in range(0, len(parts), SPLIT)]
        held = [merge(*held, *parts)]
    return held[0]


# --- tasks ----------------------------------------------------------------------------------------


@sizeof.register(Moments)
def _(moments: Moments) -> int:
    # Workers spill results to disk, and the scheduler places merges, by the size of results.
    return moments.nbytes


def _place(block_info: dict[Any, Any]) -> tuple[int, float]:
    """Return the number of a block and of its first row, which may be NaN."""
    block = block_info[None]
    return block["chunk-location"][0], block["array-location"][0][0]


@sendable
def _of_block(
    function: Callable[[Slab], Any], names: Any, place: tuple[int, float], *columns: Any
) -> Any:
    """Return what a function makes of a block."""
    values = dict(zip(names, columns, strict=True))
    with within_block(*place) as first_row:
        return function(Slab(**values, first_row=first_row))


@sendable
def _of_partition(function: Callable[[Slab], Any], number: int, batch: Any, columns: Any) -> Any:
    """Return what a function makes of a batch."""
    slab = read_batch(batch, f"partition {number}", columns)
    with within_block(number, np.nan, "partition"):
        return function(slab)


def _moments_of(asked: Accumulation, slab: Slab) -> Moments:
    moments = asked.empty.copy()
    if slab.X.shape[0]:
        asked.add(moments, slab)
    return moments


@sendable
def _merge(first: Moments, *others: Moments) -> Moments:
    """Return the sum of moments, none of which changes."""
    with threads.limit(1):
        total = first.copy()
        for moments in others:
            total += moments
        return total
