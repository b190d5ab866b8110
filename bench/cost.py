"""Estimate the cost of a fit on a cluster: ``python -m bench.cost [--save] [--readme]``.

The rates of one worker are measured. The time and traffic of many workers follow from them, from
the parts into which `streamgda.engine.dask` cuts the rows, and from the depth of the merge tree.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import streamgda
from bench import data, report
from streamgda.datasets import convert
from streamgda.engine.dask.parts import part_bytes
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime import threads
from streamgda.runtime.memory import readable

HERE = Path(__file__).resolve().parent
SAVED = HERE / "cost.json"
PAGE = HERE.parent / "docs" / "guide" / "clusters.md"
ROWS, FEATURES, CLASSES = 10**9, 784, 10
WORKERS = (1, 10, 100, 1000)
REPEATS = 5


@dataclass(frozen=True)
class Rates:
    """Rates of one worker with one thread, and of the connection between two workers.

    Attributes
    ----------
    rows : float
        Rows per second: read from zarr, decoded and added to full moments.
    merge : float
        Seconds to merge two states.
    bandwidth : float
        Bytes per second of a state sent from one worker to another over loopback.
    """

    rows: float
    merge: float
    bandwidth: float


@dataclass(frozen=True)
class Cost:
    """Cost of one fit.

    Attributes
    ----------
    parts : int
        Number of parts into which the rows are cut.
    reading, merging, moving : float
        Seconds on the busiest worker.
    last : float
        Seconds after the last part: one path through the merge tree, and the result to the client.
    moved : float
        Bytes sent between machines: moments, never rows.
    """

    parts: int
    reading: float
    merging: float
    moving: float
    last: float
    moved: float

    @property
    def seconds(self) -> float:
        """Total time."""
        return self.reading + self.merging + self.moving + self.last


def cost(rates: Rates, workers: int, rows: int = ROWS) -> Cost:
    """Return the cost of a fit to uint8 rows on a number of workers."""
    state = structure_of("full").state_bytes(CLASSES, FEATURES)
    part_rows = part_bytes(rows * FEATURES, state) / FEATURES
    parts = math.ceil(rows / part_rows)
    each = math.ceil(parts / workers)  # on the busiest worker
    moves = state / rates.bandwidth
    elsewhere = 1 - 1 / workers  # probability that a pair is on two workers
    return Cost(
        parts,
        each * part_rows / rates.rows,
        (each - 1) * rates.merge,
        (each - 1) * elsewhere * moves,
        math.ceil(math.log2(workers)) * (rates.merge + moves) + moves,
        (parts - 1) * elsewhere * state + state,
    )


# --- measuring ----------------------------------------------------------------------------------


def measured() -> Rates:
    """Measure the rates of this machine."""
    _, X, y, _, _ = data.mnist(False)
    with tempfile.TemporaryDirectory() as folder, threads.limit(1):
        convert(X, Path(folder) / "rows.zarr", labels=y)
        rows, labels = streamgda.open_store(Path(folder) / "rows.zarr")
        taken = _fastest(lambda: streamgda.accumulate(rows, labels))
        state = streamgda.accumulate(rows, labels)
        merged = _fastest(lambda: state + state)
    return Rates(len(X) / taken, merged, state.nbytes / _moved(state))


def _fastest(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _moved(state: streamgda.ClassMoments) -> float:
    """Return the seconds to send a state from one worker to another, with serialization."""
    from distributed import Client, LocalCluster, wait

    def fetched(value: Any) -> float:
        held = client.scatter(value, workers=[here], direct=False)

        def fetch() -> float:
            fresh = client.submit(copy, held, workers=[here], pure=False)
            wait(fresh)
            start = time.perf_counter()
            wait(client.submit(id, fresh, workers=[there], pure=False))
            return time.perf_counter() - start

        return min(fetch() for _ in range(REPEATS + 1))

    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        here, there = client.scheduler_info()["workers"]
        return fetched(state) - fetched(None)


# --- showing ------------------------------------------------------------------------------------


def table(rates: Rates) -> str:
    """Return the cost for each number of workers as Markdown."""
    head = (
        "workers",
        "seconds",
        "reading",
        "merging",
        "sending",
        "last merges",
        "moments sent",
    )
    lines = []
    for workers in WORKERS:
        found = cost(rates, workers)
        parts = (found.seconds, found.reading, found.merging, found.moving, found.last)
        seconds = (report.quantity(part, "s") if part else "0 s" for part in parts)
        lines.append((f"{workers:,}", *seconds, readable(found.moved)))
    return report.Table(head, lines).markdown()


def caption(rates: Rates) -> str:
    """Return the measured rates that the table is computed from."""
    found = cost(rates, 1)
    return (
        f"Measured on one thread: {rates.rows:,.0f} rows per second read from zarr, decoded and "
        f"added, {report.quantity(rates.merge, 's')} to merge two moments of "
        f"{readable(found.moved)}, and "
        f"{readable(rates.bandwidth)} per second from one worker to another over loopback. "
        f"The rows, {readable(ROWS * FEATURES)} before compression, are cut into {found.parts:,} "
        f"parts, each of which is read once. The table does not include the bandwidth limit of "
        f"the store or the time of the scheduler."
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cost", description=__doc__)
    parser.add_argument(
        "--save", action="store_true", help=f"measure, and write bench/{SAVED.name}"
    )
    parser.add_argument(
        "--readme", action="store_true", help=f"update {PAGE.name} from saved rates"
    )
    options = parser.parse_args()
    if options.save or not options.readme:
        warnings.simplefilter("ignore")  # constant pixels
        rates = measured()
        if options.save:
            SAVED.write_text(json.dumps(asdict(rates), indent=1) + "\n")
    else:
        rates = Rates(**json.loads(SAVED.read_text()))
    text = f"{table(rates)}\n\n{caption(rates)}"
    print(text)
    if options.readme:
        PAGE.write_text(report.between(PAGE.read_text(), "cost", text))


if __name__ == "__main__":
    main()
