"""Suite `workers`: fits of dask collections beside dask's own sum; two workers beside one."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np

import streamgda
from bench import data
from bench.measure import OURS, Plan, Row, Target, in_turn, of_its_time, rows_of
from streamgda.engine.dask.parts import part_bytes
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime import threads

SUM = "dask's sum"
OF_SUM = 1.2
COSTLY = 0.1  # seconds to evaluate a block
BLOCKS, BLOCK_ROWS, WIDTH = 64, 1 << 10, 64  # 33 MB
MANY = 30_000
EFFICIENCY = 0.9
BLOCKS_OF_A_PART = 16
Shape = tuple[int, int, str]  # features, classes, type
SHAPES: tuple[tuple[Shape, int, int], ...] = (  # number of parts, bytes of each if not as usual
    ((784, 10, "uint8"), 8, 0),
    ((2048, 10, "float32"), 4, 128 * 10**6),
    ((64, 1000, "float32"), 8, 0),
    ((64, 5000, "float32"), 4, 0),
)


def run(plan: Plan) -> Iterator[Row]:
    with dask.config.set(scheduler="threads", num_workers=8):
        yield from beside_sum(plan, "8 threads")
    with workers(2, 4) as client, client.as_current():
        yield from beside_sum(plan, "2 workers of 4 threads")
    for blocks in ("blocks", "blocks in random order"):
        yield from preparation(plan, blocks)
    with workers(2) as two, workers(1) as one:
        for shape, n_parts, part in SHAPES[:1] if plan.quick else SHAPES:
            yield from two_beside_one(plan, two, one, shape, n_parts, part)


def workers(n: int, n_threads: int = 1) -> Any:
    """Return a client of worker processes; closing it closes the cluster."""
    from distributed import Client

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Client(
            n_workers=n, threads_per_worker=n_threads, processes=True, dashboard_address=":0"
        )


def beside_sum(plan: Plan, where: str) -> Iterator[Row]:
    """Compare fits of variances with sums over the rows, of costly and of cheap blocks."""
    for seconds, kind, block_rows in (
        (COSTLY, f"costly blocks ({COSTLY:g} s)", BLOCK_ROWS),
        (0, "cheap blocks", BLOCK_ROWS),
        (0, "cheap blocks", 16 * BLOCK_ROWS),
    ):
        n_rows = BLOCKS * (plan.rows(block_rows) if seconds else block_rows)
        rows = da.ones((n_rows, WIDTH), chunks=(n_rows // BLOCKS, WIDTH))
        rows = rows.map_blocks(_after, seconds, dtype=rows.dtype, meta=np.empty((0, WIDTH)))
        calls = {OURS: _fit(rows), SUM: rows.sum(axis=0).compute}
        times, missing = in_turn(calls, plan.repeats)
        yield from rows_of(
            f"{BLOCKS} {kind}, {rows.nbytes / 1e6:,.0f} MB, {where}, variances",
            (None, ""),
            times,
            missing,
            targets={SUM: of_its_time(OF_SUM)} if seconds else None,
        )


def _after(block: np.ndarray, seconds: float) -> np.ndarray:
    time.sleep(seconds)
    return block + 1


def _fit(rows: da.Array) -> Callable[[], object]:
    labels = np.arange(rows.shape[0], dtype=np.uint8) % 10
    return lambda: streamgda.accumulate(rows, labels, covariance_type="diag")


def preparation(plan: Plan, blocks: str) -> Iterator[Row]:
    """Compare the time and memory until the first of many blocks is evaluated."""
    n = plan.rows(MANY)
    rows = da.ones((n * 8, 4), chunks=(8, 4))
    if blocks != "blocks":
        rows = rows.blocks[np.random.default_rng(0).permutation(n)]

    def until_first(fit: Callable[[da.Array], object], measure: Callable[[], float]) -> float:
        found: list[float] = []

        def note(block: np.ndarray) -> np.ndarray:
            if not found:
                found.append(measure())
            raise _Begun

        noted = rows.map_blocks(note, dtype=rows.dtype, meta=np.empty((0, 4)))
        before = measure()
        with contextlib.suppress(_Begun), dask.config.set(scheduler="synchronous"):
            fit(noted)
        return found[0] - before

    def memory(fit: Callable[[da.Array], object]) -> float:
        tracemalloc.start()
        try:
            return until_first(fit, lambda: tracemalloc.get_traced_memory()[1] / 1e6)
        finally:
            tracemalloc.stop()

    fits = {OURS: lambda rows: _fit(rows)(), SUM: lambda rows: rows.sum(axis=0).compute()}
    what = f"{n:,} {blocks}: until the first is evaluated"
    for fit in fits.values():
        until_first(fit, time.perf_counter)
    times = {name: [until_first(fit, time.perf_counter)] for name, fit in fits.items()}
    yield from rows_of(what, (None, ""), times)
    most = {name: [memory(fit)] for name, fit in fits.items()}
    yield from rows_of(f"{what}, peak memory", (None, ""), most, unit="MB")


class _Begun(Exception):  # noqa: N818  (it is no error)
    """The first block is evaluated."""


def two_beside_one(
    plan: Plan, two: Any, one: Any, shape: Shape, n_parts: int, part: int
) -> Iterator[Row]:
    """Compare two workers of one thread with one; workers make the rows, block by block."""
    state = structure_of("full").state_bytes(shape[1], shape[0])
    n_features, n_classes, dtype = shape
    row_bytes = n_features * np.dtype(dtype).itemsize
    part = part or part_bytes(0, state)
    block_rows = plan.rows(part // BLOCKS_OF_A_PART // row_bytes)
    n_blocks = n_parts * BLOCKS_OF_A_PART
    labels = np.tile(data.rows(block_rows, *shape)[1].astype(np.uint16), n_blocks)
    rows = da.zeros((labels.size, n_features), dtype, chunks=(block_rows, n_features))
    rows = rows.map_blocks(_made, shape, dtype=dtype, meta=np.empty((0, n_features), dtype))

    def fit(client: Any) -> None:
        with client.as_current(), dask.config.set({"streamgda.part-bytes": part}):
            streamgda.accumulate(rows, labels)

    def alone(client: Any) -> None:
        held = [*client.scheduler_info()["workers"]]
        each = n_blocks // len(held)
        tasks = [
            client.submit(_summed, shape, block_rows, each, workers=[worker], pure=False)
            for worker in held
        ]
        client.gather(tasks)

    what = f"{labels.size:,} x {n_features:,} {dtype}, {n_classes:,} classes"
    for work, run, target in (
        (f"{n_parts} parts of {part / 1e6:,.0f} MB, full moments, two workers", fit, True),
        ("one part for each of two workers, nothing sent or merged", alone, False),
    ):
        calls = {OURS: lambda run=run: run(two), "one worker": lambda run=run: run(one)}
        times, missing = in_turn(calls, min(plan.repeats, 3))
        efficient = Target(2 * EFFICIENCY, f"efficiency >= {EFFICIENCY:g}")
        targets = {"": efficient} if target else None
        yield from rows_of(f"{what}, {work}", (None, ""), times, missing, targets)


def _summed(shape: Shape, block_rows: int, n_blocks: int) -> None:
    """Add as many equal blocks to one state: what a processor can do at best beside another."""
    X, labels = data.rows(block_rows, *shape)
    labels, moments = labels.astype(np.uint16), streamgda.ClassMoments()
    with threads.limit(1):
        for _ in range(n_blocks):
            moments.update(X, labels)


def _made(block: np.ndarray, shape: Shape) -> np.ndarray:
    return data.rows(len(block), *shape)[0]
