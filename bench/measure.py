"""Interleaved timing: every repeat runs streamgda and each peer, so that drift cancels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.limits import Limits, Work

Call = Callable[[], object]
OURS = "ours"
FEWEST = 3  # repeats of slow tasks
SLOW = 10.0  # seconds after which a task counts as slow
PAUSE = 0.15  # seconds before a call: threads of OpenBLAS keep cores busy for 0.1 after a product


@dataclass(frozen=True)
class Plan:
    """Settings of a run: repeats, size, and limits of the machine."""

    repeats: int
    quick: bool
    limits: Limits

    def rows(self, n: int) -> int:
        """Return the number of rows to use: `n`, or few in a quick run."""
        return min(n, 1000) if self.quick else n


@dataclass(frozen=True)
class Target:
    """Target ratio with its description, and the reason if it is not reached."""

    ratio: float
    text: str
    why: str = ""


def faster(times: float, why: str = "") -> Target:
    """Return a target: at least `times` as fast as the peer."""
    return Target(times, f">= {times:g}x", why)


def of_its_time(share: float, why: str = "") -> Target:
    """Return a target: at most `share` of the peer's time."""
    return Target(1 / share, f"<= {share:g} of its time", why)


@dataclass
class Row:
    """Row of a table: one task, timed for streamgda and a peer.

    `ratio` is the median over repeats of the peer's time divided by ours; above 1, streamgda is
    faster. `limit` is a lower bound of `ours`, and `bound` its cause. `missing` is the reason if
    there is no result.
    """

    work: str
    peer: str
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    limit: float | None = None
    bound: str = ""
    target: str = ""
    reached: bool | None = None
    why: str = ""
    unit: str = "s"
    missing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def seconds(call: Call) -> float:
    """Return the wall time of one call, on a machine that is idle before."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(calls: dict[str, Call], repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the times of all calls, one per repeat, and the errors of calls that fail.

    Each call runs once before, without being counted, to fill caches and to find missing peers.
    If that takes long, the peers' first run counts, because a cold start matters little then;
    streamgda, which may have compiled kernels, runs again.
    """
    times: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    start = time.perf_counter()
    for name, call in calls.items():
        try:
            times[name] = [seconds(call)]
        except Exception as error:  # a peer may be missing or broken
            missing[name] = reason(error)
    done = 1
    if time.perf_counter() - start < SLOW:
        start, done = time.perf_counter(), 0
        times = {name: [] for name in times}
    elif OURS in times:
        times[OURS] = [seconds(calls[OURS])]
    while done < repeats and (done < FEWEST or time.perf_counter() - start < SLOW):
        for name, taken in times.items():
            taken.append(seconds(calls[name]))
        done += 1
    return times, missing


def reason(error: Exception) -> str:
    """Return an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def compare(
    plan: Plan,
    title: str,
    work: Work,
    ours: Call,
    peers: dict[str, Call],
    targets: dict[str, Target] | None = None,
) -> list[Row]:
    """Time streamgda and its peers; return one row per peer.

    A target applies to the fastest peer whose name starts with its key.
    """
    times, missing = in_turn({OURS: ours, **peers}, plan.repeats)
    return rows_of(title, plan.limits.of(work), times, missing, targets)


def rows_of(
    title: str,
    limit: tuple[float | None, str],
    times: dict[str, list[float]],
    missing: dict[str, str] | None = None,
    targets: dict[str, Target] | None = None,
    unit: str = "s",
) -> list[Row]:
    """Return one row per peer from the times of each repeat."""
    missing = dict(missing or {})
    rows = {}
    for name in dict.fromkeys([*times, *missing]):
        if name == OURS:
            continue
        row = rows[name] = Row(title, name, limit=limit[0], bound=limit[1], unit=unit)
        if OURS in times:
            row.ours = statistics.median(times[OURS])
        if name in times:
            row.theirs = statistics.median(times[name])
        if OURS in missing or name in missing:
            row.missing = f"ours: {missing[OURS]}" if OURS in missing else missing[name]
            continue
        ratios = np.array(times[name]) / np.array(times[OURS])
        row.ratio = float(np.median(ratios))
        row.spread = (float(ratios.min()), float(ratios.max()))
    for key, target in (targets or {}).items():
        meant = [row for name, row in rows.items() if name.startswith(key)]
        row = min(meant, key=lambda row: np.inf if row.ratio is None else row.ratio)
        row.target = target.text
        if row.ratio is not None:
            row.reached = row.ratio >= target.ratio
            row.why = "" if row.reached else target.why
    return list(rows.values())
