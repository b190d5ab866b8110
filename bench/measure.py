"""Timing in turn: every repeat runs ours and each peer, so that drift of the machine cancels."""

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
FEWEST = 3  # repeats of what is slow
PATIENCE = 10.0  # seconds after which a piece of work is slow


@dataclass(frozen=True)
class Plan:
    """How a run measures: how often, on how much, and against which limits."""

    repeats: int
    quick: bool
    limits: Limits

    def rows(self, n: int) -> int:
        """That many rows, or few where the benchmarks are only tried out."""
        return min(n, 1000) if self.quick else n


@dataclass(frozen=True)
class Target:
    """The least ratio that is asked for, in the words that ask for it, and why it is not reached.

    `why` is shown only where the ratio is less.
    """

    ratio: float
    text: str
    why: str = ""


def faster(times: float, why: str = "") -> Target:
    """At least so many times as fast as the peer."""
    return Target(times, f">= {times:g}x", why)


def of_its_time(share: float, why: str = "") -> Target:
    """At most that share of the peer's time."""
    return Target(1 / share, f"<= {share:g} of its time", why)


@dataclass
class Row:
    """One line of the table: a piece of work, ours against a peer.

    `ratio` is the median over repeats of the peer's time divided by ours: above 1, we are faster.
    `limit` is what `ours` could be at the least, and `bound` what it is the limit of. Where there
    is no figure, `missing` says why.
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
    headline: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def seconds(call: Call) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(calls: dict[str, Call], repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Times of all calls, called once a repeat; and what went wrong in those that cannot be timed.

    Each is called once before, uncounted: caches are filled then, and what is missing is found.
    Where that takes long, the peers' is counted, for a cold start makes little of what is slow;
    ours, which may have had to compile, is called again.
    """
    times: dict[str, list[float]] = {}
    missing: dict[str, str] = {}
    start = time.perf_counter()
    for name, call in calls.items():
        try:
            times[name] = [seconds(call)]
        except Exception as error:  # a peer may be missing or broken in any way
            missing[name] = reason(error)
    done = 1
    if time.perf_counter() - start < PATIENCE:
        start, done = time.perf_counter(), 0
        times = {name: [] for name in times}
    elif OURS in times:
        times[OURS] = [seconds(calls[OURS])]
    while done < repeats and (done < FEWEST or time.perf_counter() - start < PATIENCE):
        for name, taken in times.items():
            taken.append(seconds(calls[name]))
        done += 1
    return times, missing


def reason(error: Exception) -> str:
    """What went wrong, in a line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def compare(
    plan: Plan,
    title: str,
    work: Work,
    ours: Call,
    peers: dict[str, Call],
    targets: dict[str, Target] | None = None,
    headline: bool = False,
) -> list[Row]:
    """Rows of ours against each peer.

    A target is for the fastest of the peers whose names begin with its key. With `headline`, rows
    with a target stand in the README.
    """
    times, missing = in_turn({OURS: ours, **peers}, plan.repeats)
    return rows_of(title, plan.limits.of(work), times, missing, targets, headline)


def rows_of(
    title: str,
    limit: tuple[float | None, str],
    times: dict[str, list[float]],
    missing: dict[str, str] | None = None,
    targets: dict[str, Target] | None = None,
    headline: bool = False,
    unit: str = "s",
) -> list[Row]:
    """Rows from what was measured, ours and the peers', repeat by repeat."""
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
        row.target, row.headline = target.text, headline
        if row.ratio is not None:
            row.reached = row.ratio >= target.ratio
            row.why = "" if row.reached else target.why
    return list(rows.values())
