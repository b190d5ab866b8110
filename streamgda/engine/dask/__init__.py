"""Passes over rows on dask: moments merged in a fixed tree, and lazy scores, block by block."""

from streamgda.engine.dask.accumulate import accumulate, accumulate_partitions
from streamgda.engine.dask.collections import aligned, with_targets
from streamgda.engine.dask.scoring import score

__all__ = [
    "accumulate",
    "accumulate_partitions",
    "aligned",
    "score",
    "with_targets",
]
