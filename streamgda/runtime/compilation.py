"""Numba's compilations: whether one is in progress, and the time that they took."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from numba.core.event import Event, Listener, register


class _Clock(Listener):
    """Measures compilations, which a lock of Numba keeps one after another; parts are nested."""

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


_clock = _Clock()
register("numba:compile", _clock)


def is_compiling() -> bool:
    """Return True if a function is being compiled."""
    return _clock.nested > 0


def compiled_seconds() -> float:
    """Return the seconds that this process has compiled for."""
    return _clock.seconds()


@contextlib.contextmanager
def at_compilations(listener: Callable[[], None]) -> Iterator[None]:
    """Call a function, on any thread, whenever a compilation starts within the ``with`` block."""
    _clock.listeners.append(listener)
    try:
        yield
    finally:
        _clock.listeners.remove(listener)
