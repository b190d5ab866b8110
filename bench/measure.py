"""Timing in turn: every repeat runs ours and each peer, so that drift of the machine cancels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

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
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


HEAD = ("work", "ours", "against", "theirs", "ratio", "least to most")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    unit = row["note"] or "s"
    low, high = row["spread"]
    return (
        row["work"],
        f"{row['ours']:.3g} {unit}",
        row["peer"],
        f"{row['theirs']:.3g} {unit}",
        f"**{row['ratio']:.2g}**",
        f"{low:.2g} to {high:.2g}",
    )


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
) -> list[Row]:
    """Rows of ours against each peer."""
    times = in_turn({"ours": ours, **peers}, repeats)
    mine = statistics.median(times["ours"])
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
            )
        )
    return rows
