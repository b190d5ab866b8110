"""Signals that end a stream after the row at hand."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """The first signal that asked to stop; None as long as there is none."""

    signal: int | None = None

    def __call__(self) -> bool:
        """Return True once there was a signal."""
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """The exit code that a shell expects."""
        return 0 if self.signal is None else 128 + self.signal


@contextlib.contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Record Ctrl-C or a termination instead of raising an exception; a second one is not held."""
    stop = Stop()

    def record(number: int, _: FrameType | None) -> None:
        stop.signal = number
        restore()

    def restore() -> None:
        for each, handler in before.items():
            signal.signal(each, handler)

    before = {each: signal.signal(each, record) for each in _SIGNALS}
    try:
        yield stop
    finally:
        restore()
