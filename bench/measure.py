"""Interleaved timing: every repeat runs streamgda and each peer, so that drift cancels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Call = Callable[[], object]

FEWEST = 3  # Slow tasks are repeated so often.
SLOW = 10.0  # A call of so many seconds is slow.
PAUSE = 0.15  # Seconds before a call: OpenBLAS's threads spin for 0.1 after a product.


@dataclass(frozen=True)
class Row:
    """A task that was timed for streamgda and a peer, in seconds or another unit.

    `target` is the ratio that we want; a peer that could not run has an `error` instead of times.
    """

    task: str
    peer: str
    ours: float = float("nan")
    theirs: float = float("nan")
    target: float | None = None
    unit: str = "s"
    error: str = ""

    @property
    def ratio(self) -> float:
        """The peer's figure divided by ours, as printed: above 1, streamgda is better."""
        return three_digits(self.theirs) / three_digits(self.ours)


def three_digits(value: float) -> float:
    """Return a figure as tables print it."""
    return float(f"{value:.3g}")


def compare(
    task: str, ours: Call, peers: dict[str, Call], repeats: int, targets: dict[str, float]
) -> list[Row]:
    """Time streamgda and its peers in turn; return a row of medians for each peer.

    A target is the ratio to reach beside the fastest peer whose name starts with its key.
    """
    times, errors = in_turn({"": ours, **peers}, repeats)
    if "" in errors:
        return [Row(task, peer, error=f"streamgda: {errors['']}") for peer in peers]
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    mine = medians.pop("")
    wanted = {}
    for key, target in targets.items():
        meant = {name: median for name, median in medians.items() if name.startswith(key)}
        if meant:
            wanted[min(meant, key=meant.__getitem__)] = target
    rows = [Row(task, name, mine, theirs, wanted.get(name)) for name, theirs in medians.items()]
    return rows + [Row(task, name, mine, error=error) for name, error in errors.items()]


def in_turn(calls: dict[str, Call], repeats: int) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the times of all calls, one a repeat, and the errors of calls that fail.

    Each call runs once before, uncounted, to compile kernels and to find missing peers.
    """
    times: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # A peer may be missing or broken.
            errors[name] = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        else:
            times[name] = []
    start = time.perf_counter()
    for done in range(repeats):
        if done >= FEWEST and time.perf_counter() - start > SLOW:
            break
        for name, taken in times.items():
            time.sleep(PAUSE)
            begun = time.perf_counter()
            calls[name]()
            taken.append(time.perf_counter() - begun)
    return times, errors
