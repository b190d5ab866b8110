"""Passes over rows on dask: moments merged in a fixed tree; scores, lazily or to zarr.

The cuts into parts and the order in which these are merged depend on the chunks of the rows and
on the size of the moments, never on the scheduler or the number of its workers.
"""

from typing import Any

from streamgda.engine.dask.accumulation import (
    accumulate,
    accumulate_partitions,
    accumulate_store,
)
from streamgda.engine.dask.cluster import active_client, compute
from streamgda.engine.dask.collections import aligned, as_rows, sized
from streamgda.engine.dask.cuts import scored_rows
from streamgda.engine.dask.scoring import score_store, store
from streamgda.engine.outputs import Output, Scoring
from streamgda.rows.sources import RowSource

__all__ = [
    "accumulate",
    "accumulate_partitions",
    "accumulate_store",
    "active_client",
    "aligned",
    "compute",
    "score",
    "score_store",
    "scored_rows",
    "sized",
]


def score(asked: Scoring, rows: RowSource, out: Any = None) -> Any:
    """Score a dask collection lazily, block by block; with `out`, compute the scores into it."""
    mapped = rows.map(asked.function, asked.dtype, asked.columns)
    scores = rows.gridded(as_rows(mapped))
    if out is None:
        return rows.wrapped(scores, asked.name, asked.classes, asked.fill)
    return store(scores, Output(out, rows, asked))
