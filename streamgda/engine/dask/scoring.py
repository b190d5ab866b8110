"""Rows to scores on dask: lazily, block by block, or by the workers of a cluster."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

from streamgda.engine.dask import cluster, tasks
from streamgda.engine.dask.cuts import cut_rows, scored_rows
from streamgda.engine.outputs import Output, Scoring, grid_of
from streamgda.engine.progress import reporter
from streamgda.errors import InvalidDataError
from streamgda.rows.grids import in_type_of
from streamgda.rows.sources import RowSource, Transformation


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
        return da.map_blocks(_apply, X, _hold(function), drop_axis=1, **options)
    return da.map_blocks(_apply, X, _hold(function), chunks=(X.chunks[0], (columns,)), **options)


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


def _hold(function: Callable[..., np.ndarray]) -> Any:
    n_bytes = len(pickle.dumps(function))
    return cluster.hold(tasks.OneThread(function, n_bytes), n_bytes)


def store(scores: Any, output: Output) -> Any:
    """Compute scores into an array, or into a file.

    Each chunk or shard of a zarr array is written by one task. For other destinations, the blocks
    along the first dimension are computed one after the other.

    Parameters
    ----------
    scores : dask.array.Array
        Scores in the shape of the grid of rows.
    output : Output

    Returns
    -------
    zarr.Array or ndarray
        The destination.

    Raises
    ------
    InvalidDataError
        If the number of rows is unknown, or an array cannot hold the scores.
    ClusterError
        If the cluster fails.
    """
    if np.isnan(scores.shape[0]):
        raise InvalidDataError(
            "X has row chunks of unknown size, and out needs the number of rows: call "
            "X.compute_chunk_sizes() first"
        )
    output.check()
    width = scores.shape[len(scores.shape) - (output.columns is not None) :]
    with output:
        output.prepare(width, scores.dtype, output.grid.line)
        out: Any = output.array
        n = len(output.grid.shape)
        scores = scores.reshape(out.shape)  # of a raster, for its pixels one by one
        if isinstance(out, np.ndarray):
            out[...] = in_type_of(out, cluster.compute([scores])[0])
        elif output.shareable:
            sizes = zip(scores.chunks, grid_of(out, n).chunks, strict=False)
            whole = tuple(max(1, max(held) // unit) * unit for held, unit in sizes)
            scores = scores.rechunk((*whole, *width))
            if np.dtype(scores.dtype).kind == "f":
                rounded = partial(in_type_of, np.empty(0, out.dtype))
                dtype = rounded(np.empty(0, scores.dtype)).dtype
                scores = scores.map_blocks(rounded, dtype=dtype)
            cluster.compute([da.store(scores, out, lock=False, compute=False)])
        else:
            line = math.prod(output.grid.shape[1:])
            for start, stop in pairwise([0, *accumulate(scores.chunks[0])]):
                (part,) = cluster.compute([scores[start:stop]])
                output.write(start * line, part.reshape(-1, *width))
    return output.result


def score_store(asked: Scoring, rows: RowSource, output: Output, slab_rows: int) -> Any:
    """Score rows in a store that the workers of a cluster read themselves.

    Parameters
    ----------
    asked : Scoring
    rows : RowSource
        Of a store that other processes can open.
    output : Output
        Of an array to which workers write, each chunk or shard in one task; or of none, to have
        the scores returned. It is resumed after the rows that are done.
    slab_rows : int
        Rows that a task reads at a time.

    Returns
    -------
    zarr.Array or ndarray

    Raises
    ------
    ClusterError
        If the cluster fails, or a worker cannot open the store.
    """
    out = output.array
    most = scored_rows(rows)
    written = 1 if out is None else output.unit
    aligned = math.lcm(written, rows.unit)
    first = output.done // written * written
    if first == rows.n_rows:
        return out
    unit = aligned if aligned <= most else written
    cuts = [(first + a, first + b) for a, b in cut_rows(rows.n_rows - first, unit, most)]
    if written <= slab_rows:
        slab_rows -= slab_rows % written
    topic = cluster.new_topic() if asked.progress else ""
    held = _hold(asked.function)
    parts, sizes = [], {}
    for number, (start, stop) in enumerate(cuts):
        part, window = tasks.Part(number, topic), tasks.window(rows, start, stop)
        work = partial(
            tasks.score_rows,
            *(part, start, slab_rows, written, window, output.grid, out, output.marked),
        )
        with dask.annotate(priority=-number):  # the first rows are the ones that can be kept
            parts.append(delayed(work, pure=False)(held))
        sizes[parts[-1].key] = stop - start
    ended = None if out is None else _advance_in_order(output, [p.key for p in parts], cuts)
    with reporter(asked.progress, rows.n_rows, "scoring", first=first) as report, output:
        scores = cluster.compute(
            parts, sizes, topic, lambda done: report(first + done), ended=ended
        )
    return rows.grid.shaped(np.concatenate(scores)) if out is None else out


def _advance_in_order(
    output: Output, keys: list[str], cuts: list[tuple[int, int]]
) -> Callable[[str, Callable[[], Any]], Sequence[str]]:
    """Return a callback that records parts as written once all earlier ones are."""
    waiting = list(zip(keys, cuts, strict=True))[::-1]
    fetches: dict[str, Callable[[], Any]] = {}

    def ended(key: str, fetch: Callable[[], Any]) -> Sequence[str]:
        fetches[key] = fetch
        while waiting and waiting[-1][0] in fetches:
            done, (start, stop) = waiting.pop()
            output.advance(stop, start, *fetches.pop(done)())
        return ()

    return ended
