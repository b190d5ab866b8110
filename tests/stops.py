"""Rows and labels, and passes over them that stop half-way."""

import contextlib

import pytest
from samples import blobs

from streamgda import accumulate
from streamgda.engine.plan import SLAB_BYTES

N_ROWS = 300
SLAB = 30
X, Y = blobs(N_ROWS, 4)


@contextlib.contextmanager
def slabs_of(n_bytes):
    """Plan slabs of at most so many bytes of rows."""
    token = SLAB_BYTES.set(n_bytes)
    try:
        yield
    finally:
        SLAB_BYTES.reset(token)


class Rows:
    """Rows that are read by slicing, with an event at one row."""

    def __init__(self, array=X, at=None, error=None):
        self.array, self.at, self.error = array, at, error
        self.shape, self.dtype, self.chunks = array.shape, array.dtype, (SLAB, *array.shape[1:])
        self.read = []

    def __getitem__(self, rows):
        rows = rows[0] if isinstance(rows, tuple) else rows
        self.read.append(rows.start)
        if rows.start == self.at:
            raise self.error
        return self.array[rows]


def stop_after(n_rows, *data, **options):
    """Return the message when accumulation is interrupted after this many rows."""

    def stop(done, total):
        if done > n_rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        accumulate(*data, progress=stop, **options)
    return getattr(stopped.value, "__notes__", [""])[0]
