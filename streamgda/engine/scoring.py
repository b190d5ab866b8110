"""`score`: scores of rows of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamgda.engine.checkpoint import checksum
from streamgda.engine.outputs import Output, Scoring
from streamgda.engine.plan import plan_rows
from streamgda.engine.reading import reading
from streamgda.rows import Rows
from streamgda.rows.counting import Slab, is_plain
from streamgda.rows.opening import table_files
from streamgda.rows.source import RowSource, as_slab, as_source, check_rows
from streamgda.rows.xarray import LabelledRows, wrapped
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes
from streamgda.runtime.parameters import unexpected


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
        `out`. Those of a DataArray are one, with the columns last.

    Raises
    ------
    CheckpointError
        If `out` is half-written with scores of other rows or by another function.
    InvalidDataError
        If `out` has another shape, or a data type that cannot hold the scores.
    """
    asked = Scoring(function, **options)
    whole, rows = None, X
    if out is None and not asked.keys and asked.max_memory is None and not asked.progress:
        whole = X if is_plain(X) else Rows(X).at_once
    if whole is not None:  # There is nothing to read, and no memory to plan.
        scores = function(whole, 0)
    else:
        rows = as_source(X)
        if out is not None and isinstance(rows, LabelledRows):
            raise unexpected(
                "out", out, "None: write the DataArray that is returned by its to_zarr"
            )
        scores = _score_source(asked, rows, out)
    about = asked.name, asked.classes, asked.fill
    return scores if out is not None else wrapped(rows, scores, *about)


def _score_source(asked: Scoring, rows: RowSource, out: Any) -> Any:
    """Score rows on dask, or in this process: a slab is written while the next one is scored."""
    if rows.executor == "dask":
        from streamgda.engine.dask.scoring import score_blocks  # noqa: PLC0415

        return score_blocks(asked, rows, out)
    check_rows(rows)
    keys = table_files(out).keys_of(rows, asked.keys) if asked.keys else None
    held = asked.held + (rows.n_rows * asked.row_bytes if out is None else 0)
    output = Output(out, rows, asked)
    slab_rows, _ = plan_rows(
        Rows(rows, keys),
        allowed_bytes(asked.max_memory),
        held,
        out_row_bytes=asked.row_bytes,
        out_rows=output.unit,
    )

    def checked(start: int, stop: int) -> int:
        return checksum(Slab(asked.function(rows.read(start, stop), start)))

    slab_rows = output.resume(slab_rows, checked)
    with (
        reading(Rows(rows), slab_rows, "scoring", asked.progress, output.done) as slabs,
        output,
    ):

        def scored() -> Iterator[tuple[int, np.ndarray]]:
            for slab in slabs:
                scores = as_slab(asked.function(slab.X, slab.first_row), "scores")
                output.prepare(scores.shape[1:], scores.dtype, slab_rows)
                yield slab.first_row, scores

        threads.in_background(output.put, scored())
    return output.result
