"""Rows and labels, and passes over them that stop half-way."""

import numpy as np
import pytest
from samples import blobs

from streamgda import accumulate
from streamgda.errors import MemoryBudgetError

N_ROWS = 300
SLAB = 30
X, Y = blobs(N_ROWS, 4)
WEIGHTS = np.random.default_rng(1).uniform(0, 2, N_ROWS)


class Rows:
    """Rows that are read by slicing, with an event at one row."""

    def __init__(self, array=X, at=None, error=None):
        self.array, self.at, self.error = array, at, error
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, (SLAB, *array.shape[1:])
        self.read = []

    def __getitem__(self, rows):
        self.read.append(rows.start)
        if rows.start == self.at:
            raise self.error
        return self.array[rows]


def stopped(path, at=150, error=KeyboardInterrupt, X=X, y=Y, **options):
    """A checkpoint of the rows before the given one."""
    with pytest.raises(error):
        accumulate(Rows(X, at, error("stop")), y, checkpoint=path, **options)
    assert path.exists()


def least_memory(rows, **options):
    """The least budget, to the byte, that accumulation accepts."""
    too_little, enough = 0, 1 << 22
    while enough - too_little > 1:
        middle = (too_little + enough) // 2
        try:
            accumulate(rows, Y, max_memory=middle, **options)
            enough = middle
        except MemoryBudgetError:
            too_little = middle
    return enough
