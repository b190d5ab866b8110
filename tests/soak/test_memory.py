"""Work stays within the memory that was planned for it, each in a process of its own.

A work is given the least budget that the plan accepts, so that the test measures the plan.
"""

import ctypes
import gc
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from soak.driver import in_a_fork

from streamgda import GaussianDiscriminantAnalysis, RandomFeatures, accumulate, open_store
from streamgda.errors import MemoryBudgetError
from streamgda.runtime.memory import as_bytes

pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not Path("/proc/self/clear_refs").exists(), reason="peaks are read from Linux's /proc"
    ),
]
N, D = 60_000, 200
SLACK = 4 << 20  # Python and zarr keep some memory between calls.
RANDOM = np.random.default_rng(0)
ROWS, Y = RANDOM.integers(0, 256, (N, D), np.uint8), RANDOM.integers(0, 3, N)
SOME = ROWS[:5000]
GAPS = np.where(SOME < 60, np.nan, SOME)


class Made:
    """Narrow rows, or labels, that are generated when they are read."""

    def __init__(self, *shape):
        self.shape, self.chunks, self.dtype = shape, (10**6, *shape[1:]), np.dtype(np.uint8)

    def __getitem__(self, rows):
        n = min(rows.stop, self.shape[0]) - rows.start
        shape = n, *self.shape[1:]
        return np.tile(np.arange(4, dtype=np.uint8) % 3, np.prod(shape) // 4).reshape(shape)


# --- work -----------------------------------------------------------------------------------------
# Each function writes rows to a folder, and returns a function of the budget.

DIAG = {"covariance_type": "diag"}


def stored(n=N, dtype="u1", score=False, **options):
    """Moments, or scores, of rows in zarr."""

    def make(folder):
        X = zarr.create_array(folder / "X", shape=(n, D), dtype=dtype, **options)
        for start in range(0, n, 20_000):
            X[start : start + 20_000] = ROWS[start : min(start + 20_000, n)]
        if not score:
            return lambda budget: accumulate(X, Y[:n], max_memory=budget, **DIAG)
        fitted = GaussianDiscriminantAnalysis("tied").fit(SOME, Y[:5000])
        return lambda budget: fitted.predict_proba(X, out=folder / f"{budget}", max_memory=budget)

    return make


def table(width, dtype, n, group, parquet):
    """Moments of rows in a Parquet or Feather file."""

    def make(folder):
        pa = pytest.importorskip("pyarrow")
        from pyarrow import feather
        from pyarrow import parquet as pq

        columns = {f"x{j}": RANDOM.integers(0, 256, n).astype(dtype) for j in range(width)}
        path = folder / ("rows.parquet" if parquet else "rows.feather")
        content = pa.table(columns | {"y": RANDOM.integers(0, 3, n)})
        if parquet:
            pq.write_table(content, path, row_group_size=group)
        else:
            feather.write_feather(content, path, chunksize=group)
        del content, columns
        pa.default_memory_pool().release_unused()
        X, y = open_store(path, label="y")
        return lambda budget: accumulate(X, y, max_memory=budget, **DIAG)

    return make


def of_a_map(folder):
    X = zarr.create_array(folder / "X", data=np.tile(SOME, (16, 1)), chunks=(80_000, D))
    fitted = GaussianDiscriminantAnalysis(
        "tied", shrinkage=0.1, feature_map=RandomFeatures(1000)
    ).fit(SOME, Y[:5000])
    return lambda budget: fitted.predict(X, max_memory=budget)


def behind_a_map(folder):
    """All rows behind the map are 640 MB."""
    X = zarr.create_array(folder / "X", data=np.tile(SOME, (16, 1)), chunks=(80_000, D))
    options = {"covariance_type": "tied", "feature_map": RandomFeatures(1000)}
    return lambda budget: accumulate(X, np.arange(80_000) % 3, max_memory=budget, **options)


def memory_map(folder):
    mapped = np.memmap(folder / "X", np.float64, "w+", shape=(2 * N, 40))
    mapped[...] = ROWS[0, :40]
    mapped[::7] = ROWS[1, :40]
    mapped.flush()
    del mapped
    X = np.memmap(folder / "X", np.float64, "r", shape=(2 * N, 40))
    return lambda budget: accumulate(X, np.tile(Y, 2), max_memory=budget)


def pairs(n_classes):
    y = np.arange(5000) % n_classes
    options = {"on_invalid": "pairwise"}
    return lambda folder: lambda budget: accumulate(GAPS, y, max_memory=budget, **options)


def many_classes(learn):
    return lambda folder: (
        lambda budget: learn(SOME[:3000], np.arange(3000) // 30, max_memory=budget)
    )


def made(n):
    return lambda folder: lambda budget: accumulate(Made(n, 2), Made(n), max_memory=budget)


WORKS = {
    "chunks": stored(chunks=(1000, D)),
    "chunks, raw": stored(chunks=(1000, D), compressors=None),
    "large chunks": stored(chunks=(20_000, D)),
    "all rows in one": stored(chunks=(N, D)),
    "split features": stored(chunks=(2000, 30)),
    "shards": stored(chunks=(500, D), shards=(10_000, D)),
    "one shard": stored(chunks=(500, D), shards=(N, D)),
    "a row a chunk": stored(1000, chunks=(1, D)),
    "floats": stored(dtype="f4", chunks=(5000, D)),
    "scores of chunks": stored(score=True, chunks=(1000, D)),
    "scores of all rows in one": stored(score=True, chunks=(N, D)),
    "memory map": memory_map,
    "Parquet, wide": table(784, "u1", 20_000, 5000, True),
    "Parquet, narrow": table(8, "f8", 400_000, 100_000, True),
    "Feather, wide": table(784, "u1", 20_000, 5000, False),
    "Feather, narrow": table(8, "f8", 400_000, 400_000, False),
    "rows behind a map": behind_a_map,
    "scores behind a map": of_a_map,
    "pairs of two classes": pairs(2),
    "pairs of many classes": pairs(30),
    "many classes": many_classes(accumulate),
    "a model of many classes": many_classes(GaussianDiscriminantAnalysis(reg_param=0.5).fit),
    "three million rows": made(3 * 10**6),
}


# --- measures -------------------------------------------------------------------------------------


def status(name):
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", text).group(1)) << 10


def peak_above(work):
    """The peak memory of work beyond what was in use; freed memory does not hide it."""
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: freed arrays are returned at once
    libc.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = status("VmRSS")
    work()
    return status("VmHWM") - before


def least_budget(work):
    """The least budget that is accepted, from the error for a single byte."""
    with pytest.raises(MemoryBudgetError) as caught:
        work(1)
    number, unit = re.search(r"needs? ([\d.]+) (\w+)", str(caught.value)).groups()
    return int((float(number) + 0.1) * as_bytes(f"1{unit}"))


def measured(make, folder):
    """The budget of work, and what it takes."""
    work = make(folder)
    budget = least_budget(work)
    while True:
        try:
            work(2 * budget)  # The first call compiles and imports.
            return budget, peak_above(partial(work, budget))
        except MemoryBudgetError:  # There are more classes than expected.
            budget *= 2


@pytest.mark.parametrize("name", WORKS)
def test_no_work_takes_more_than_its_budget(tmp_path, name):
    budget, peak = in_a_fork(lambda: measured(WORKS[name], tmp_path))
    assert peak <= budget + SLACK


def test_the_peak_does_not_grow_with_the_rows(tmp_path):
    few, many = (in_a_fork(lambda n=n: measured(made(n), tmp_path))[1] for n in (3 * 10**6, 10**7))
    assert many < few + (8 << 20)


def test_tasks_of_dask_hold_a_few_blocks_each(tmp_path):
    """A thread holds a block, its encoded form, its copy in dask, and the previous block."""
    stored = zarr.create_array(tmp_path / "X", shape=(200_000, 40), dtype="f8", chunks=(5000, 40))
    for start in range(0, 200_000, 5000):
        stored[start : start + 5000] = RANDOM.normal(size=(5000, 40))
    X, y = da.from_zarr(stored), da.arange(200_000, chunks=5000) % 3

    def peak_of_tasks():  # The threads of dask do not live on in a fork, so it gets its own.
        with dask.config.set(pool=ThreadPoolExecutor(dask.system.CPU_COUNT)):
            accumulate(X[:5000], y[:5000], **DIAG)
            return peak_above(lambda: accumulate(X, y, **DIAG))

    peak = in_a_fork(peak_of_tasks)
    assert peak <= dask.system.CPU_COUNT * 4 * X.blocks[0].nbytes + SLACK


@pytest.mark.parametrize("X", [SOME[:, :40], SOME[:, :40] / 7, SOME / 7], ids=["u1", "f8", "wide"])
def test_updates_leave_no_memory_behind(X):
    def growth():
        rows = X[:500]
        for n in (300, 1000):
            before = status("VmRSS")
            for _ in range(n):
                accumulate(rows, Y[:500])
        return status("VmRSS") - before

    assert in_a_fork(growth) < 1 << 20
