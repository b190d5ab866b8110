"""Passes over rows on dask: moments merged in a fixed tree; scores, lazily or to zarr.

The cuts into parts and the order in which these are merged depend on the chunks of the rows and
on the size of the moments, never on the scheduler or the number of its workers.
"""

from streamgda.engine.dask.cluster import active_client, compute
from streamgda.engine.dask.collections import aligned, sized, with_targets
from streamgda.engine.dask.merge_tree import accumulate, accumulate_partitions, accumulate_store
from streamgda.engine.dask.scoring import score, score_store, scored_rows

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
    "with_targets",
]
