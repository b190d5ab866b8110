"""Suite `cluster`: rates of the model in `bench.cost`, and passes on this machine beside it.

Times are those of processors, so that workers, client and scheduler may share the machine. A worker
measures its own rates: workers give memory back at once, so that moments, which are made for each
part and each merge, cost several times what they cost elsewhere.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import psutil
from distributed import wait

import streamgda
from bench import cost, data
from bench.measure import Plan, Row
from bench.workers import workers
from streamgda.datasets import convert
from streamgda.engine.dask.parts import PartMoments, merge
from streamgda.runtime import threads

PARTS = 1000  # the states of as many workers
ROWS = 100  # of each part
BYTES_ADDED = 32 * 10**6
REPEATS = 3
WORK = cost.WORKLOADS[0]


def run(plan: Plan) -> Iterator[Row]:
    n_parts = 20 if plan.quick else PARTS
    with workers(2) as client:
        rates = measured(plan, client, n_parts // 4)
        for work, value, unit in cost.rows_of(rates):
            yield Row(work, "", value, unit=unit)
        yield from simulated(client, rates, n_parts)


def measured(plan: Plan, client: Any, n_parts: int) -> cost.Rates:
    """Return the rates of this machine."""

    def there(function: Callable[..., float], *arguments: Any) -> float:
        worker = [*client.scheduler_info()["workers"]][:1]
        taken = client.submit(function, *arguments, workers=worker, pure=False).result()
        return float(taken)

    works = (WORK,) if plan.quick else cost.WORKLOADS
    add = {work.name: there(added, work, plan) for work in works}
    X, labels = rows_of_a_part()
    state = streamgda.accumulate(X, labels)
    make, merged = there(making, X, labels), there(merging, X, labels)
    sent = moving(client, state)
    tasks(client, 10)
    each = [spent / (2 * n_parts - 1) for spent in tasks(client, n_parts)]
    return cost.Rates(add, *(state.nbytes / taken for taken in (make, merged, sent)), *each)


def simulated(client: Any, rates: cost.Rates, n_parts: int) -> Iterator[Row]:
    """Fit many parts on two workers; return what was measured beside what the model predicts."""
    tasks(client, 10)
    n_tasks = 2 * n_parts - 1
    start, scheduled, held = tasks(client, n_parts)
    what = f"{n_tasks:,} tasks that do nothing"
    yield beside(f"{what}: two workers", start, n_tasks * rates.start, "s")
    yield beside(f"{what}: the scheduler", scheduled, n_tasks * rates.task, "s")
    yield beside(f"{what}: its memory", held / 1e6, n_tasks * rates.held / 1e6, "MB")
    yield merged_on_two_workers(client, rates, n_parts)


def beside(work: str, measured: float, predicted: float, unit: str) -> Row:
    """Return a row of what was measured beside what the model predicts."""
    ratio = predicted / measured
    return Row(work, cost.MODEL, measured, predicted, ratio, (ratio, ratio), unit=unit)


def rows_of_a_part() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of which no two parts are merged to what they were."""
    random = np.random.default_rng()
    X = random.integers(0, 256, (ROWS, WORK.features), WORK.dtype)
    return X, (np.arange(ROWS) % WORK.classes).astype(np.uint8)


# --- rates of a worker ----------------------------------------------------------------------------


def added(work: cost.Workload, plan: Plan) -> float:
    """Return bytes per second of rows that one thread reads, decodes and adds.

    It is the rate between a quarter of the rows and all of them, without what is done once, such
    as making empty moments.
    """
    n_rows = plan.rows(BYTES_ADDED // (4 * work.features))
    X, y = data.rows(n_rows, work.features, work.classes, "float32")
    if work == WORK:
        _, X, y, _, _ = data.mnist(plan.quick)
    taken = []
    for n in (len(X) // 4, len(X)):
        with tempfile.TemporaryDirectory() as folder:
            convert(X[:n], Path(folder) / "rows.zarr", labels=y[:n])
            rows = streamgda.open_store(Path(folder) / "rows.zarr")
            fit = partial(streamgda.accumulate, *rows, covariance_type=work.kind)
            taken.append(_usual(fit))
    return float((X.nbytes - X[: len(X) // 4].nbytes) / (taken[1] - taken[0]))


def making(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the seconds to make the moments of a part."""
    return _usual(lambda: streamgda.accumulate(X, labels))


def merging(X: np.ndarray, labels: np.ndarray) -> float:
    """Return the seconds to merge two parts."""
    part = PartMoments(streamgda.accumulate(X, labels))
    return _usual(lambda: merge(part, part))


def _usual(call: Callable[[], object]) -> float:
    """Return the median seconds of a call on one thread, and not of the first."""
    taken = []
    with threads.limit(1):
        for _ in range(REPEATS):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
    return statistics.median(taken[1:])


# --- rates between workers, and of the scheduler --------------------------------------------------


def spent(client: Any) -> float:
    """Return the processor seconds of all workers since they were started."""
    return float(sum(client.run(time.process_time).values()))


def moving(client: Any, state: streamgda.ClassMoments) -> float:
    """Return the seconds to send a state from one worker to another, with serialization."""
    here, there = client.scheduler_info()["workers"]

    def fetched(value: Any) -> float:
        held = client.scatter(value, workers=[here], direct=False)
        taken = []
        for _ in range(2 * REPEATS):
            fresh = client.submit(copy, held, workers=[here], pure=False)
            wait(fresh)
            before = spent(client)
            wait(client.submit(id, fresh, workers=[there], pure=False))
            taken.append(spent(client) - before)
        return statistics.median(taken)

    return fetched(state) - fetched(None)


def tasks(client: Any, n_parts: int) -> tuple[float, float, float]:
    """Fit parts of one row each on two workers.

    Returns
    -------
    start, scheduled : float
        Seconds of the workers, and of the scheduler's thread.
    held : float
        Bytes that the process of client and scheduler needed.
    """
    process, ended, seen = psutil.Process(), threading.Event(), []

    def watch() -> None:
        while not ended.wait(0.02):
            seen.append(process.memory_info().rss)

    async def scheduled() -> float:
        return time.thread_time()

    watching = threading.Thread(target=watch)
    rows, labels = da.ones((n_parts, 2), chunks=(1, 2)), np.zeros(n_parts, np.uint8)
    before, held, start = client.sync(scheduled), process.memory_info().rss, spent(client)
    watching.start()
    with dask.config.set({"streamgda.part-bytes": 1}):
        streamgda.accumulate(rows, labels, covariance_type="diag")
    taken = spent(client) - start, client.sync(scheduled) - before
    ended.set()
    watching.join()
    return *taken, max(seen, default=held) - held


def merged_on_two_workers(client: Any, rates: cost.Rates, n_parts: int) -> Row:
    """Merge the states of many workers on two of them, which share this machine with the client."""

    def part(_: np.ndarray) -> np.ndarray:
        return rows_of_a_part()[0]

    rows = da.zeros((n_parts * ROWS, WORK.features), np.uint8, chunks=(ROWS, WORK.features))
    rows = rows.map_blocks(part, dtype=np.uint8, meta=np.empty((0, WORK.features), np.uint8))
    labels = np.tile(rows_of_a_part()[1], n_parts)
    with dask.config.set({"streamgda.part-bytes": ROWS * WORK.features}):
        predicted = cost.cost(rates, WORK, cost.Cluster(2, 1, rates.send), rows.nbytes)
        start = spent(client)
        streamgda.accumulate(rows, labels)
        taken = spent(client) - start
    what = f"states of {n_parts:,} workers, {WORK.name}, merged on two"
    busy = predicted.adding + predicted.merging + predicted.sending  # of each
    return beside(what, taken, 2 * busy, "s")
