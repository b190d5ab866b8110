"""Rows to scores on dask: lazily, block by block, or in rounds of blocks to an array."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from streamgda.engine.checkpoint import checksum
from streamgda.engine.dask.collections import as_rows, compute
from streamgda.engine.outputs import Output, Scoring
from streamgda.engine.reading import reporter
from streamgda.errors import InvalidDataError
from streamgda.rows.counting import Slab
from streamgda.rows.source import RowSource, how_to_count

_ROUND = 64  # So many blocks are computed before their scores are written.
_ROUND_BYTES = 1 << 28  # Their scores have at most so many bytes.


def score_blocks(asked: Scoring, rows: RowSource, out: Any = None) -> Any:
    """Score a dask collection lazily, block by block; with `out`, compute the scores into it.

    Rounds of blocks are computed, and written by this process; those that are written are not
    computed again by the same call.

    Raises
    ------
    InvalidDataError
        If the number of rows is unknown, or an array cannot hold the scores.
    ClusterError
        If the cluster fails.
    """
    scores = as_rows(rows.map(asked.function, asked.dtype, asked.columns))
    if out is None:
        return scores
    if np.isnan(scores.shape[0]):
        raise InvalidDataError(
            f"X has row chunks of unknown size, and out needs their number: {how_to_count('X')}"
        )
    output = Output(out, rows, asked)
    sizes, width = scores.chunks[0], scores.shape[1:]

    def checked(start: int, stop: int) -> int:
        return checksum(Slab(*compute(scores[start:stop])))

    # A run that is resumed may have had larger blocks.
    output.resume(output.seen.get("slab_rows", next(filter(None, sizes), 1)), checked)
    with reporter(asked.progress, rows.n_rows, "scoring", first=output.done) as report, output:
        output.prepare(width, scores.dtype, max(sizes))
        each = min(_ROUND, max(1, _ROUND_BYTES // max(1, max(sizes) * asked.row_bytes)))
        edges = [0, *itertools.accumulate(sizes)]
        for first in range(0, len(sizes), each):
            blocks = [size for size in sizes[first : first + each] if size]
            start, stop = edges[first], edges[first] + sum(blocks)
            if stop > output.done:
                (found,) = compute(scores[start:stop])
                output.put(start, found, blocks)
                report(stop)
    return output.result
