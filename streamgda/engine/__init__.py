"""One pass over rows: `accumulate` and `score` take rows of every kind.

Only they choose what executes a pass: this process, which reads slabs of rows in order, or dask.
"""

from streamgda.engine.passes import accumulate, accumulate_into
from streamgda.engine.reading import with_targets
from streamgda.engine.scoring import score

__all__ = ["accumulate", "accumulate_into", "score", "with_targets"]
