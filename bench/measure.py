"""Timing in turn: every repeat runs ours and each peer, so that drift of the machine cancels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np


@dataclass
class Row:
    """One line of the table: a piece of work, ours against a peer.

    `ratio` is the median over repeats of the peer's time divided by ours: above 1, we are faster.
    """

    suite: str
    work: str
    peer: str
    ours: float
    theirs: float
    ratio: float
    spread: tuple[float, float]
    limit: str = ""
    near: float | None = None
    note: str = ""
    extra: dict[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def seconds(call: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def in_turn(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time all calls once a repeat, after one call each that is not counted."""
    for call in calls.values():
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(seconds(call))
    return times


def compare(
    suite: str,
    work: str,
    ours: Callable[[], object],
    peers: dict[str, Callable[[], object]],
    repeats: int,
    limit: tuple[str, Callable[[], object], float] | None = None,
) -> list[Row]:
    """Rows of ours against each peer.

    Parameters
    ----------
    limit : (str, callable, float), optional
        What bounds this work on this machine, a call that does a known amount of it, and how
        many times that amount our work needs at least.
    """
    calls = {"ours": ours, **peers}
    if limit is not None:
        calls["limit"] = limit[1]
    times = in_turn(calls, repeats)
    mine = statistics.median(times["ours"])
    near = None
    if limit is not None:
        near = limit[2] * statistics.median(times["limit"]) / mine
    rows = []
    for name in peers:
        ratios = np.array(times[name]) / np.array(times["ours"])
        rows.append(
            Row(
                suite,
                work,
                name,
                mine,
                statistics.median(times[name]),
                float(np.median(ratios)),
                (float(ratios.min()), float(ratios.max())),
                limit[0] if limit else "",
                near,
            )
        )
    return rows
