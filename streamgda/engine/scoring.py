"""`score`: scores of rows of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import describe, fingerprint_rows
from streamgda.engine.outputs import Output, Scoring, only_writer
from streamgda.engine.plan import plan_rows
from streamgda.engine.reading import on_dask, read_by_workers, reading, resume
from streamgda.rows import Rows, as_source
from streamgda.rows.arrays import is_plain
from streamgda.rows.sources import RowSource, check_rows, placing
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes


def score(function: Callable[..., np.ndarray], X: Any, out: Any = None, **options: Any) -> Any:
    """Score rows from any container.

    Parameters
    ----------
    function : callable
        Called as ``function(rows, first_row)``; returns an array with one entry for each row.
    X : array-like, memmap, zarr.Array, data frame or dask collection
        Rows, shape (n_rows, n_features).
    out : numpy.ndarray, zarr.Array, or path or store to create one in; optional
        Destination of the scores; by default they are gathered in memory.
    **options
        What else is known of the scores, and how they are written; see `Scoring`.

    Returns
    -------
    numpy.ndarray or zarr.Array; or a lazy dask.array.Array; or a DataArray
        `out`, or what was created in its place. Scores of dask collections are lazy without
        `out`. Those of a raster have its shape, and the columns last.

    Raises
    ------
    CheckpointError
        If `out` is half-written with scores of other rows or by another function.
    InvalidDataError
        If `out` has another shape, or a data type that cannot hold the scores.
    """
    asked = Scoring(function, **options)
    if out is None and asked.max_memory is None and not asked.progress and not asked.keys:
        whole = X if is_plain(X) else Rows(X).at_once
        if whole is not None:
            return function(whole, 0)  # nothing to read, and no memory to plan
    rows = as_source(X)
    if rows.executor == "dask":
        with only_writer(out):
            return on_dask().score(asked, rows, out)
    check_rows(rows)
    scores = _score_source(asked, rows, out)
    return rows.wrapped(scores, asked.name, asked.classes, asked.fill) if out is None else scores


def _score_source(asked: Scoring, rows: RowSource, out: Any) -> Any:
    """Score rows in this process, or by the workers of an active client."""
    held = asked.held + (rows.n_rows * asked.row_bytes if out is None else 0)
    beside = [rows.keys(asked.keys)] if asked.keys else []
    allowed = allowed_bytes(asked.max_memory)
    kept = None
    if asked.fingerprint and out is not None:
        kept = {**asked.fingerprint, "X": describe(rows)}
    with only_writer(out):
        output = Output(out, rows, asked, kept)
        output.check()
        slab_rows = plan_rows(
            rows,
            allowed,
            held,
            beside=beside,
            out_row_bytes=asked.row_bytes,
            out_rows=output.unit,
        )
        if kept:
            slab_rows = resume(output, slab_rows, Rows(rows))
        if read_by_workers(rows):
            dask = on_dask()
            if out is not None:
                first = asked.function(rows.read(0, 1), 0)
                output.prepare(first.shape[1:], first.dtype, dask.scored_rows(rows))
            if out is None or output.shareable:
                with placing(rows):
                    return dask.score_store(asked, rows, output, slab_rows)
        return _score_slabs(asked, rows, output, slab_rows)


def _score_slabs(asked: Scoring, rows: RowSource, output: Output, slab_rows: int) -> Any:
    """Score rows in this process; a slab is written while the next one is scored."""
    with (
        reading(Rows(rows), slab_rows, "scoring", asked.progress, output.done) as slabs,
        output,
    ):

        def scored() -> Iterator[tuple[int, int, np.ndarray]]:
            prepared = False
            for slab in slabs:
                scores = asked.function(slab.X, slab.first_row)
                if not prepared:
                    output.prepare(scores.shape[1:], scores.dtype, slab_rows)
                    prepared = True
                sampled = fingerprint_rows(slab.X) if output.marked else 0
                yield slab.first_row, sampled, scores

        threads.in_background(output.put, scored())
    return output.result
