"""A process that does one piece of work after another, each within the memory planned for it.

It prints as JSON the memory that each was allowed, and the most that it took beyond the memory in
use before. The allowance is the least that the plan accepts, so that the test measures the plan. It
is doubled while more classes appear than it has room for.
"""

import ctypes
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from pyarrow import feather

from streamgda import (
    GaussianDiscriminantAnalysis,
    RandomFeatures,
    accumulate,
    engine,
    open_store,
)
from streamgda.errors import MemoryBudgetError
from streamgda.runtime import threads
from streamgda.runtime.memory import as_bytes

warnings.simplefilter("ignore")
D = 200
SLACK = 4 << 20  # of what Python and zarr keep between calls


class Made:
    """Narrow rows and labels that are generated when they are read."""

    def __init__(self, shape: tuple[int, ...], chunk: int) -> None:
        self.shape, self.chunks, self.dtype = shape, (chunk, *shape[1:]), np.dtype(np.uint8)

    def __getitem__(self, rows: slice) -> np.ndarray:
        n = min(rows.stop, self.shape[0]) - rows.start
        values = np.arange(n * (self.shape[1:] or (1,))[0], dtype=np.uint8) // 3
        return (values % 3 if len(self.shape) == 1 else values).reshape(n, *self.shape[1:])


def now(name: str) -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(name))


def peak_above(work: Callable[[], Any]) -> int:
    """Return the peak memory of a piece of work, after freeing that of earlier ones."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = now("VmRSS")
    work()
    return now("VmHWM") - before


def least_allowed(work: Callable[[int], Any]) -> int:
    """Return the least accepted budget, from the message that refuses a single byte, rounded up."""
    try:
        work(1)
    except MemoryBudgetError as refusal:
        number, unit = str(refusal).split()[2:4]
        return int((float(number) + 0.1) * as_bytes(f"1{unit}"))
    raise AssertionError("a byte was enough")


def rows_in(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """Rows in zarr, in chunks of every kind, and in a memory map."""
    random = np.random.default_rng(0)
    n = 60_000
    y = random.integers(0, 3, n)
    X = random.integers(0, 256, (n, D), np.uint8)
    ways: dict[str, dict[str, Any]] = {
        "chunks": {"chunks": (1000, D)},
        "chunks, raw": {"chunks": (1000, D), "compressors": None},
        "large chunks": {"chunks": (20_000, D)},
        "all rows in one": {"chunks": (n, D)},
        "all rows in one, raw": {"chunks": (n, D), "compressors": None},
        "split features": {"chunks": (2000, 30)},
        "shards": {"chunks": (500, D), "shards": (10_000, D)},
        "one shard": {"chunks": (500, D), "shards": (n, D)},
        "one shard, raw": {"chunks": (500, D), "shards": (n, D), "compressors": None},
        "a row a chunk": {"chunks": (1, D)},
    }
    for name, way in ways.items():
        few = 1000 if name == "a row a chunk" else n
        stored = zarr.create_array(folder / name, shape=(few, D), dtype=X.dtype, **way)
        stored[...] = X[:few]
        yield name, stored, y[:few]
    yield from other_rows_in(folder, X, y)
    mapped = np.memmap(folder / "mapped", np.float64, "w+", shape=(2 * n, 40))
    mapped[...] = 1.5
    mapped[::7] = random.normal(size=40)
    mapped.flush()
    del mapped
    y = np.tile(y, 2)
    yield "memory map", np.memmap(folder / "mapped", np.float64, "r", shape=(y.size, 40)), y


TABLES = [
    (dtype, width, n_rows, size, how)
    for dtype, width, n_rows in (("u1", 784, 20_000), ("f8", 100, 40_000), ("f8", 8, 400_000))
    for size in (n_rows // 20, n_rows // 4, n_rows)
    for how in ("parquet", "lz4", "uncompressed")
]


def table_in(folder: Path, dtype: str, width: int, n_rows: int, size: int, how: str) -> Path:
    """Write rows and labels to a Parquet or Feather file, in row groups or batches of a size."""
    random = np.random.default_rng(0)
    X = random.integers(0, 256, (width, n_rows), np.uint8)
    X *= random.integers(0, 2, n_rows, np.uint8)
    columns = {f"x{number}": column.astype(dtype) for number, column in enumerate(X)}
    table = pa.table(columns | {"y": random.integers(0, 3, n_rows)})
    path = folder / f"{dtype}-{width}-{size}.{how}"
    if how == "parquet":
        pq.write_table(table, path, row_group_size=size)
    else:
        path = path.with_suffix(f".{how}.feather")
        feather.write_feather(table, path, how, chunksize=size)
    return path


def peak_of_table(folder: Path, case: tuple[str, int, int, int, str]) -> tuple[str, int, int]:
    """Return a case with its plan and its peak; run in a process of its own.

    What one pass has left to the allocator of pyarrow would hide the peak of another.
    """
    path, (dtype, width, _, size, how) = folder / "name", case
    if (child := os.fork()) == 0:  # so that what is written was never in this process
        few_rows = table_in(folder, dtype, width, 500, 100, how)
        path.write_text(f"{few_rows}\n{table_in(folder, *case)}")
        os._exit(0)
    os.waitpid(child, 0)
    few, many = path.read_text().splitlines()
    accumulate(*open_store(few, label="y"), covariance_type="diag")  # loads what reads such files
    X, y = open_store(many, label="y")

    def work(m: int) -> Any:
        return accumulate(X, y, max_memory=m, covariance_type="diag")

    allowed = least_allowed(work)
    return f"{how}, {width} x {dtype} by {size}", allowed, peak_above(lambda: work(allowed))


def other_rows_in(folder: Path, X: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, Any, Any]]:
    """Rows of another type, and labels in zarr."""
    floats = zarr.create_array(folder / "f4", shape=X.shape, dtype=np.float32, chunks=(5000, D))
    floats[...] = X
    labels = zarr.create_array(folder / "y", data=y, chunks=y.shape)
    yield "floats, labels in one chunk", floats, labels
    texts = zarr.create_array(folder / "text", shape=y.shape, dtype=str, chunks=(1000,))
    texts[...] = np.array(["one", "two", "three"])[y]
    yield "labels are texts", stored_as(folder / "again", X), texts


def stored_as(path: Path, X: np.ndarray) -> Any:
    return zarr.create_array(path, data=X, chunks=(1000, D))


def blocks_in(folder: Path) -> tuple[Any, Any]:
    """Rows and labels as dask arrays; the rows are in zarr."""
    stored = zarr.create_array(
        folder / "blocks", shape=(200_000, 40), dtype="f8", chunks=(5000, 40)
    )
    for start in range(0, 200_000, 5000):
        stored[start : start + 5000] = np.random.default_rng(start).normal(size=(5000, 40))
    return da.from_zarr(stored), da.arange(200_000, chunks=5000) % 3


def main() -> None:
    measured: dict[str, tuple[int, int]] = {}

    def measure(name: str, work: Callable[[int], Any]) -> None:
        allowed = least_allowed(work)
        while name not in measured:
            try:
                measured[name] = allowed + SLACK, peak_above(partial(work, allowed))
            except MemoryBudgetError:  # more classes than were expected appeared
                allowed *= 2

    warm_up = np.random.default_rng(0).integers(0, 256, (5000, D), np.uint8)
    fitted = GaussianDiscriminantAnalysis("tied").fit(warm_up, np.arange(5000) % 3)
    fitted.predict_proba(warm_up)
    diag = {"covariance_type": "diag"}
    for dtype in (np.uint8, np.float32, np.float64):  # compiling takes memory of its own
        for width in (8, D):
            accumulate(warm_up[:, :width].astype(dtype), np.arange(5000) % 3, **diag)
    GaussianDiscriminantAnalysis(reg_param=0.5).fit(warm_up[:3000], np.arange(3000) // 30)
    gc.freeze()  # what was imported, which each measurement and each process would look at again
    folder = Path(sys.argv[1])
    with get_context("fork").Pool(1, maxtasksperchild=1) as processes:
        for name, *found in processes.imap(partial(peak_of_table, folder), TABLES):
            measured[name] = found[0] + SLACK, found[1]
    for name, X, y in rows_in(folder):
        measure(name, lambda m, X=X, y=y: accumulate(X, y, max_memory=m, **diag))
        if name in ("chunks", "shards", "all rows in one"):  # scores of them
            scored = f"scores of {name}"

            model, out = fitted.model_.posterior, folder / scored

            def score(m: int, X: Any = X, model: Any = model, out: Path = out) -> None:
                engine.score(model, X, out, columns=3, max_memory=m)

            measure(scored, score)
            labels = zarr.create_array(folder / f"labels of {name}", data=y, chunks=y.shape)
            share = partial(fitted.score, X, labels)
            measure(f"share of {name}", lambda m, share=share: share(max_memory=m))
    # All lifted rows would be 320 MB.
    mapped: dict[str, Any] = {"covariance_type": "tied", "feature_map": RandomFeatures(1000)}
    behind = GaussianDiscriminantAnalysis("tied", shrinkage=0.1, feature_map=RandomFeatures(1000))
    behind.fit(warm_up, np.arange(5000) % 3).predict(warm_up)
    y = np.arange(80_000) % 3
    X = zarr.create_array(folder / "lifted", data=np.tile(warm_up, (16, 1)), chunks=(y.size, D))
    measure("rows behind a map", lambda m: accumulate(X, y, max_memory=m, **mapped))
    measure("scores behind a map", lambda m: behind.predict(X, max_memory=m))
    gaps = np.where(warm_up < 60, np.nan, warm_up)
    pairs: dict[str, Any] = {"on_invalid": "pairwise"}
    for name, k in (("pairs of two classes", 2), ("pairs of many classes", 30)):
        y = np.arange(5000) % k
        measure(name, lambda m, y=y: accumulate(gaps, y, max_memory=m, **pairs))
    few = np.arange(3000)
    measure("many classes", lambda m: accumulate(warm_up[:3000], few // 30, max_memory=m))

    def fit(m: int) -> None:
        moments = accumulate(warm_up[:3000], few // 30, max_memory=m, for_model=True)
        GaussianDiscriminantAnalysis.from_moments(moments, reg_param=0.5)

    measure("a model of many classes", fit)
    for n_rows in (10**6, 10**7):
        X, y = Made((n_rows, 2), 10**6), Made((n_rows,), 10**6)
        measure(f"{n_rows} rows", lambda m, X=X, y=y: accumulate(X, y, max_memory=m))
    X, y = blocks_in(folder)
    accumulate(X[:5000], y[:5000], **diag)
    # A thread holds a block, its encoded form, its copy in dask, and the previous block.
    allowed = threads.n_threads() * 4 * X.blocks[0].nbytes + SLACK
    measured["dask blocks"] = allowed, peak_above(lambda: accumulate(X, y, **diag))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
