"""Suite `zarr`: fitting from a store and scoring into one, against the separate steps."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import streamgda
from bench import data
from bench.measure import OURS, Call, Plan, Row, in_turn, of_its_time, rows_of
from streamgda.datasets import convert
from streamgda.rows import as_source
from streamgda.runtime import threads

# Allowed time, relative to the sum of the separate steps.
OVERHEAD = 1.05
OF_MEMORY = 1.5  # of scoring rows in memory and writing the scores
# If the steps leave at least this fraction of the cores idle, overlapping them must save time.
IDLE = 0.1
LITTLE_IS_IDLE = (
    "decoding and arithmetic share two cores that reading alone keeps mostly busy; nothing "
    "overlaps reading the first slab and using the last one"
)


def run(plan: Plan) -> Iterator[Row]:
    name, images, digits, _, _ = data.mnist(plan.quick)
    times = 1 if plan.quick else 4
    many = np.tile(images, (times, 1)), np.tile(digits, times)
    yield from of_store(plan, f"{name} x {times}", *many)
    n = plan.rows(4_000_000)
    yield from of_store(plan, f"{n:,} x 16", *data.rows(n, 16, 10, "float32"))
    yield from from_memory(plan)


def of_store(plan: Plan, title: str, X: np.ndarray, y: np.ndarray) -> Iterator[Row]:
    """Yield the rows of one store, which is written once."""
    with tempfile.TemporaryDirectory() as folder:
        convert(X, Path(folder) / "rows.zarr", labels=y)
        stored, labels = streamgda.open_store(Path(folder) / "rows.zarr")
        title = f"{title} {X.dtype} in zarr ({stored.nbytes_stored() / 2**20:.0f} MiB)"
        slab = slab_rows(stored, labels)
        model = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2)
        yield row(
            plan,
            f"{title}, QDA fit",
            lambda: model.fit(stored, labels),
            {
                "reading": lambda: read(slab, stored, labels),
                "fitting in memory": lambda: model.fit(X, y),
            },
        )
        # LDA scores the most rows per second, so that reading and writing matter most.
        linear = streamgda.LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3).fit(X, y)
        predicted = linear.predict(X)
        files = (Path(folder) / f"{number}.zarr" for number in count())
        yield row(
            plan,
            f"{title}, LDA predict into zarr",
            lambda: linear.predict(stored, out=next(files)),
            {
                "reading": lambda: read(slab, stored),
                "scoring in memory": lambda: linear.predict(X),
                "writing": lambda: write(slab, predicted, next(files)),
            },
        )


def from_memory(plan: Plan) -> Iterator[Row]:
    """Compare scores of rows in memory that go to a path with the separate steps."""
    X, y = data.rows(plan.rows(3_000_000), 6, 4, "float64")
    for model, method in (
        (streamgda.LinearDiscriminantAnalysis("lsqr"), "predict"),
        (streamgda.QuadraticDiscriminantAnalysis(), "predict_proba"),
    ):
        score = getattr(model.fit(X, y), method)
        scores = score(X)
        chunks = (2**22 // scores[:1].nbytes, *scores.shape[1:])

        def write(path: Path, scores: Any = scores, chunks: Any = chunks) -> None:
            zarr.create_array(path, data=scores, chunks=chunks)

        with tempfile.TemporaryDirectory() as folder:
            files = (Path(folder) / f"{number}.zarr" for number in count())
            calls = {
                OURS: lambda score=score, files=files: score(X, out=next(files)),
                "scoring in memory": lambda score=score: score(X),
                "writing": lambda write=write, files=files: write(next(files)),
            }
            times, missing = in_turn(calls, plan.repeats)
        ours, *parts = times.values()
        alone = [sum(each) for each in zip(*parts, strict=True)]
        yield from rows_of(
            f"{len(X):,} x 6 float64 in memory, 4 classes, {method} into zarr",
            (None, ""),
            {OURS: ours, "scoring in memory + writing": alone},
            missing,
            targets={"": of_its_time(OF_MEMORY)},
        )


def row(plan: Plan, title: str, ours: Call, parts: dict[str, Call]) -> Row:
    """Compare with the sum of the separate steps; the lower bound keeps all cores busy."""
    times, missing = in_turn({OURS: ours, **parts}, plan.repeats)
    whole = " + ".join(parts)
    if missing:
        return Row(title, whole, missing="; ".join(f"{n}: {why}" for n, why in missing.items()))
    alone = [sum(each) for each in zip(*(times[part] for part in parts), strict=True)]
    wall, busy = time.perf_counter(), time.process_time()
    for part in parts.values():
        part()
    busy, wall = time.process_time() - busy, time.perf_counter() - wall
    cores = threads.n_threads()
    idle = busy < (1 - IDLE) * cores * wall
    (made,) = rows_of(
        title,
        (busy / cores, "all cores busy"),
        {OURS: times[OURS], f"{whole} ({busy / wall:.1f} of {cores} cores busy)": alone},
        targets={"": of_its_time(1.0 if idle else OVERHEAD, LITTLE_IS_IDLE)},
    )
    return made


def slab_rows(X: Any, y: Any) -> int:
    """Return the number of rows that streamgda reads at a time."""
    done: list[int] = []
    streamgda.accumulate(
        X, y, covariance_type="diag", progress=lambda rows, total: done.append(rows)
    )
    return done[0]


def read(slab: int, *arrays: Any) -> None:
    sources = [as_source(array) for array in arrays]
    for start in range(0, arrays[0].shape[0], slab):
        for source in sources:
            source.read(start, start + slab)


def write(slab: int, values: np.ndarray, path: Path) -> None:
    out = zarr.create_array(path, shape=values.shape, chunks=(slab,), dtype=values.dtype)
    for start in range(0, values.size, slab):
        out[start : start + slab] = values[start : start + slab]
