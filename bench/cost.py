"""Model of a fit on a cluster: what its machines read, add, merge and send, and its scheduler does.

`bench.cluster` measures the rates of the model, and compares it with passes on this machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bench import report
from streamgda.engine.dask.parts import part_bytes
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime.memory import readable

BYTES = 10**13
MACHINES, THREADS = 100, 8
LINK = 1.25e9  # bytes a second that a machine receives: 10 Gbit/s
MODEL = "the model"
_STATES = 3  # of a task: its own, and two while they are merged
_SLABS = 2 << 25  # bytes of the rows of a task: those that are added, and those read ahead


@dataclass(frozen=True)
class Workload:
    """Rows of one type, and the moments that are made of them."""

    features: int
    dtype: str
    classes: int
    kind: str = "full"

    @property
    def name(self) -> str:
        """Name in the tables."""
        of = f"{self.features:,} {self.dtype}, {self.classes:,} classes"
        return of if self.kind == "full" else f"{of}, {self.kind}"

    @property
    def state(self) -> int:
        """Bytes of the moments."""
        return structure_of(self.kind).state_bytes(self.classes, self.features)


WORKLOADS = (
    Workload(784, "uint8", 10),
    Workload(64, "float32", 1000),
    Workload(2048, "float32", 10),
    Workload(2048, "float32", 1000, "tied"),
    Workload(512, "float32", 1000),
)


@dataclass(frozen=True)
class Rates:
    """Rates of a worker with one thread, of the connection between two, and of the scheduler.

    Attributes
    ----------
    add : dict of str to float
        Bytes of rows per second read from zarr, decoded and added, by names of workloads.
    make : float
        Bytes of a state per second that is made of few rows: what a part costs beside its rows.
    merge : float
        Bytes of a state per second that is merged with another one.
    send : float
        Bytes of a state per second sent from one worker to another over loopback.
    start : float
        Seconds of a worker for a task that does nothing.
    task : float
        Seconds of the scheduler's thread for a task.
    held : float
        Bytes of the process of client and scheduler for a task.
    """

    add: dict[str, float]
    make: float
    merge: float
    send: float
    start: float
    task: float
    held: float


@dataclass(frozen=True)
class Cluster:
    """Machines, the threads of each, and the bytes a second that one receives."""

    machines: int = MACHINES
    threads: int = THREADS
    link: float = LINK

    @property
    def slots(self) -> int:
        """Tasks that run at a time."""
        return self.machines * self.threads


@dataclass(frozen=True)
class Cost:
    """Cost of one fit.

    Attributes
    ----------
    parts : int
        Number of parts into which the rows are cut, each of which is a task.
    reading, sending : float
        Seconds of the link of a machine, for rows and for moments of other machines.
    adding, merging : float
        Seconds of the busiest thread, for rows, and for moments that are made and merged.
    scheduling : float
        Seconds of the scheduler.
    last : float
        Seconds after the last part: one path through the merge tree, and the result to the client.
    memory : float
        Bytes of a machine: moments, and slabs of rows.
    held : float
        Bytes of the scheduler.
    """

    parts: int
    reading: float
    sending: float
    adding: float
    merging: float
    scheduling: float
    last: float
    memory: float
    held: float

    @property
    def limits(self) -> dict[str, float]:
        """Seconds of whatever works at the same time."""
        return {
            "link": self.reading + self.sending,
            "threads": self.adding + self.merging,
            "scheduler": self.scheduling,
        }

    @property
    def seconds(self) -> float:
        """Total time."""
        return max(self.limits.values()) + self.last


def cost(rates: Rates, work: Workload, cluster: Cluster, n_bytes: float = BYTES) -> Cost:
    """Return the cost of a fit to rows of so many bytes."""
    parts = math.ceil(n_bytes / part_bytes(int(n_bytes), work.state))
    each = math.ceil(parts / cluster.slots)  # of the busiest thread
    make, merge = work.state / rates.make, work.state / rates.merge
    move = work.state / min(rates.send, cluster.link)
    elsewhere = 1 - 1 / cluster.machines  # probability that a pair is on two machines
    n_tasks = 2 * parts - 1
    return Cost(
        parts,
        n_bytes / cluster.machines / cluster.link,
        (parts - 1) / cluster.machines * elsewhere * move,
        each * n_bytes / parts / rates.add[work.name],
        each * (make + 2 * rates.start) + (each - 1) * merge,
        n_tasks * rates.task,
        math.ceil(math.log2(min(parts, cluster.slots))) * (merge + move) + move,
        cluster.threads * (_STATES * work.state + _SLABS),
        n_tasks * rates.held,
    )


# --- showing ------------------------------------------------------------------------------------

_ADD, _HELD = "read, decode and add: ", "memory of the scheduler for a task"
_MAKE, _MERGE, _SEND = "make a state of few rows", "merge two states", "send a state"
_START, _TASK = "run an empty task", "schedule a task"


def rows_of(rates: Rates) -> list[tuple[str, float, str]]:
    """Return the rates with what they measure and their units."""
    return [
        *((f"{_ADD}{name}", rate / 1e6, "MB/s") for name, rate in rates.add.items()),
        (_MAKE, rates.make / 1e6, "MB/s"),
        (_MERGE, rates.merge / 1e6, "MB/s"),
        (_SEND, rates.send / 1e6, "MB/s"),
        (_START, rates.start, "s"),
        (_TASK, rates.task, "s"),
        (_HELD, rates.held / 1e3, "kB"),
    ]


def rates_of(rows: report.Rows) -> Rates:
    """Return rates from saved rows."""
    found = {row["work"]: row["ours"] for row in rows}
    add = {name[len(_ADD) :]: 1e6 * rate for name, rate in found.items() if name.startswith(_ADD)}
    make, merge, send = (1e6 * found[name] for name in (_MAKE, _MERGE, _SEND))
    return Rates(add, make, merge, send, found[_START], found[_TASK], 1e3 * found[_HELD])


def table(rates: Rates) -> str:
    """Return the cost of each workload as Markdown, and the rates that it is computed from."""
    head = ("rows", "moments", "parts", "link", "threads", "scheduler", "last merges", "in all")
    lines = []
    for work in WORKLOADS:
        found = cost(rates, work, Cluster())
        most = max(found.limits, key=found.limits.__getitem__)
        limits = (
            f"**{report.quantity(seconds, 's')}**"
            if name == most
            else report.quantity(seconds, "s")
            for name, seconds in found.limits.items()
        )
        lines.append(
            (
                *(work.name, readable(work.state), f"{found.parts:,}", *limits),
                *(report.quantity(seconds, "s") for seconds in (found.last, found.seconds)),
                *(readable(found.memory), readable(found.held)),
            )
        )
    made = report.Table((*head, "memory of a machine", "of the scheduler"), lines).markdown()
    each = ", ".join(f"{rate / 1e6:,.0f} ({name})" for name, rate in rates.add.items())
    return (
        f"{made}\n\nRates of a worker with one thread, measured: MB a second read from zarr, "
        f"decoded and added: {each}; of moments {readable(rates.make)} a second made of few rows, "
        f"{readable(rates.merge)} merged, and {readable(rates.send)} sent to another worker over "
        f"loopback; {report.quantity(rates.start, 's')} of a worker for a task, "
        f"{report.quantity(rates.task, 's')} and {rates.held / 1e3:,.0f} kB of the scheduler. Each "
        f"machine has {THREADS} such threads and receives {readable(LINK)} a second."
    )


def checks(rows: report.Rows) -> str:
    """Return what was measured on this machine beside what the model predicts, as Markdown."""
    lines = [
        (
            row["work"],
            report.quantity(row["ours"], row["unit"]),
            report.quantity(row["theirs"], row["unit"]),
            report.times(row["ours"] / row["theirs"]),
        )
        for row in rows
        if row["peer"] == MODEL
    ]
    head = ("simulated on this machine", "measured", "predicted", "measured / predicted")
    return report.Table(head, lines).markdown()


def tables(saved: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page on clusters, by their marks."""
    suites = report.by_suite(saved)
    made, workers = suites.get("cluster", []), suites.get("workers", [])
    texts = {}
    if made and not any("failed" in row for row in made):
        texts = {"cost": table(rates_of(made)), "simulated": checks(made)}
    if workers:
        texts["workers"] = report.short(workers).markdown()
    return texts
