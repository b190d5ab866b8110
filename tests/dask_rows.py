"""Rows in dask's blocks and partitions, and passes over them that are interrupted."""

import dask
import dask.array as da
import numpy as np
import pytest

from streamgda import accumulate

N_ROWS = 300
NAMES = np.array(["ant", "bee", "a rather long name"])

CHUNKS = {
    "one": (300,),
    "three": (100, 100, 100),
    "uneven": (7, 1, 192, 100),
    "thirty": (10,) * 30,
    "a hundred": (3,) * 100,
    "empty ones": (0, 150, 0, 0, 150, 0),
}


def in_blocks(chunks, *arrays):
    return [da.from_array(array, (CHUNKS[chunks], *array.shape[1:])) for array in arrays]


def in_partitions(*batches):
    """Delayed objects that give the batches."""
    make = dask.delayed(lambda batch: batch, pure=False)
    return [make(batch) for batch in batches]


def stop_after(n_rows, *data, **options):
    """Return the message when accumulation is interrupted after this many rows."""

    def stop(done, total):
        if done > n_rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        accumulate(*data, progress=stop, **options)
    return getattr(stopped.value, "__notes__", [""])[0]
