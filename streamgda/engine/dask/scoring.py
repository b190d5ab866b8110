"""Rows to scores on dask: lazily, block by block, or by the workers of a cluster."""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import delayed

from streamgda.engine.dask import cluster, parts
from streamgda.engine.dask.collections import OneThread, as_rows, held
from streamgda.engine.fingerprints import fingerprint_rows
from streamgda.engine.progress import reporter
from streamgda.engine.resumable_outputs import Output, grid_of
from streamgda.engine.scoring import Scoring
from streamgda.errors import InvalidDataError, sendable
from streamgda.rows import Rows
from streamgda.rows.grids import Grid, in_type_of
from streamgda.rows.sources import RowSource, how_to_count


def score(asked: Scoring, rows: RowSource, out: Any = None) -> Any:
    """Score a dask collection lazily, block by block; with `out`, compute the scores into it."""
    mapped = rows.map(asked.function, asked.dtype, asked.columns)
    scores = rows.gridded(as_rows(mapped))
    if out is None:
        return rows.wrapped(scores, asked.name, asked.classes, asked.fill)
    return store(scores, Output(out, rows, asked))


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
            f"X has row chunks of unknown size, and out needs their number: {how_to_count('X')}"
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
    cuts = [(first + a, first + b) for a, b in parts.cut_rows(rows.n_rows - first, unit, most)]
    if written <= slab_rows:
        slab_rows -= slab_rows % written
    function, tasks = held(asked.function), []
    for number, (start, stop) in enumerate(cuts):
        part = parts.StoredPart(parts.windows(Rows(rows), start, stop), start, slab_rows)
        work = partial(score_part, part, written, output.grid, out, output.keeps)
        with dask.annotate(priority=-number):  # the first rows are the ones that can be kept
            tasks.append(delayed(work, pure=False)(function))
    found: dict[int, Any] = {}
    done, written_parts = first, 0

    with reporter(asked.progress, rows.n_rows, "scoring", first=first) as report, output:

        def ended(number: int, result: Any) -> None:
            """Report a part, and record parts as written once all earlier ones are."""
            nonlocal done, written_parts
            found[number] = result
            done += cuts[number][1] - cuts[number][0]
            report(done)
            while out is not None and written_parts in found:
                start, stop = cuts[written_parts]
                output.advance(stop, start, *found.pop(written_parts))
                written_parts += 1

        cluster.compute(tasks, ended)
    if out is not None:
        return out
    return rows.grid.shaped(np.concatenate([found[number] for number in range(len(cuts))]))


def scored_rows(rows: RowSource) -> int:
    """Return the rows of a store that are worth a task that scores them: whole chunks."""
    total = rows.n_rows * rows.row_bytes
    most = max(parts.SCORED_BYTES, total // parts.MOST_PARTS) // rows.row_bytes
    return max(1, most // rows.unit) * rows.unit


@sendable
def score_part(
    part: parts.StoredPart, unit: int, grid: Grid, out: Any, marked: bool, function: OneThread
) -> Any:
    """Score a part of a store; return the scores, or write them to `out`.

    Each `unit` rows of `out` are written at once, for another task may write the same ones: one
    that a lost client has left behind. The result is then the end of the first slab and, if `out`
    is `marked`, the fingerprint of its rows.
    """
    if out is not None:
        cluster.check_opens(out)
    scores: list[np.ndarray] = []
    first = start = part.first_row
    end, first_slab = first + part.rows.X.n_rows, None
    for _, (X, *_, at) in part.slabs(()):
        scores.append(function(X, at))
        stop = at + len(X)
        if out is not None and ((stop - first) % unit == 0 or stop == end):
            grid.write(out, start, np.concatenate(scores))
            start, scores = stop, []
        first_slab = first_slab or (stop, fingerprint_rows(X) if marked else 0)
    return np.concatenate(scores) if out is None else first_slab
