"""Numba's compilations: whether one is in progress, and the time that they took."""

from __future__ import annotations

import time
from collections.abc import Callable

from numba.core.event import Event, Listener, register


class Compilations(Listener):
    """Measures compilations, which a lock of Numba keeps one after another; parts are nested.

    Attributes
    ----------
    nested : int
        Compilations in progress, each of them a part of the one before.
    listeners : list of callable
        Functions that are called, on any thread, whenever a compilation starts.
    """

    def __init__(self) -> None:
        self.nested = 0
        self.listeners: list[Callable[[], None]] = []
        self._started = self._seconds = 0.0

    def on_start(self, event: Event) -> None:
        """Start the clock."""
        if not self.nested:
            self._started = time.monotonic()
        self.nested += 1
        for listener in list(self.listeners):
            listener()

    def on_end(self, event: Event) -> None:
        """Stop the clock."""
        self._seconds, self.nested = self.seconds(), self.nested - 1
        self._started = time.monotonic()

    def seconds(self) -> float:
        """Return the seconds so far."""
        return self._seconds + (time.monotonic() - self._started if self.nested else 0.0)


compilations = Compilations()
register("numba:compile", compilations)
