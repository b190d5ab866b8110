"""Samples of the test sets of splits, which depend on the numbers of rows only."""

from __future__ import annotations

import numpy as np

from streamgda.engine.splits import Splits, hashes

_ROWS = 1 << 20  # whose keys are computed at a time
_STREAM = 1 << 63  # added to seeds: keys do not depend on the hashes that choose the folds


class TestSamples:
    """A sample of the rows of each test set, in proportion to their numbers.

    Each row has a random key; the rows of a test set with the smallest keys are drawn.

    Parameters
    ----------
    splits : Splits
    n_rows : int
        Number of all rows.
    size : int or float
        Rows to draw of all test sets: a number, or a share of them.
    seed : int
    """

    __test__ = False  # no class of tests

    def __init__(self, splits: Splits, n_rows: int, size: float, seed: int) -> None:
        self.splits, self.seed = splits, seed + _STREAM
        starts = range(0, n_rows, _ROWS)
        counts = np.zeros(len(splits.tests), np.int64)
        for start in starts:
            counts += [rows.size for rows in splits.test_rows(start, min(start + _ROWS, n_rows))]
        share = size if isinstance(size, float) else size / max(1, counts.sum())
        most = np.minimum(np.ceil(counts * share).astype(np.int64), counts)
        smallest = [np.empty(0, np.uint64) for _ in counts]
        for start in starts:
            stop = min(start + _ROWS, n_rows)
            keys = hashes(start, stop, self.seed)
            for s, rows in enumerate(splits.test_rows(start, stop)):
                found = np.concatenate([smallest[s], keys[rows]])
                smallest[s] = (
                    np.partition(found, most[s])[: most[s]] if most[s] < found.size else found
                )
        self._limits = [keys.max(initial=0) for keys in smallest]

    def drawn(self, s: int, start: int, rows: np.ndarray) -> np.ndarray:
        """Return those of the rows of test set `s`, numbered from `start`, that are drawn."""
        if not rows.size:
            return rows
        keys = hashes(start, start + int(rows.max()) + 1, self.seed)
        return rows[keys[rows] <= self._limits[s]]
