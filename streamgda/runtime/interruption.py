"""Changes that Ctrl-C leaves neither half made nor running.

Most changes are built aside and then assigned at once. What changes in place takes a lock of a
library or writes a file defers interrupts until it is complete.
"""

from __future__ import annotations

import signal
import threading
from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Result = TypeVar("Result")


class Lock(RLock):  # type: ignore[misc]  # it can be subclassed
    """A reentrant lock that is left out of copies and pickles: they get another one."""

    def __reduce__(self) -> Any:
        return type(self), ()


class _Deferring:
    """A handler of SIGINT that remembers the signal for another handler."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler
        self.arrived: tuple[Any, ...] | None = None

    def __call__(self, *arrived: Any) -> None:
        self.arrived = arrived


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Enter a context in which SIGINT waits: its handler is called on leaving, if it arrived.

    Only the main thread handles signals, so that other threads need nothing of it.

    Examples
    --------
    >>> import signal
    >>> done = []
    >>> try:
    ...     with deferred_interrupts():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all of it")
    ... except KeyboardInterrupt:
    ...     print(done)
    ['all of it']
    """
    handler: Any = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or isinstance(handler, _Deferring):
        yield
        return
    deferring = _Deferring(handler)
    try:
        signal.signal(signal.SIGINT, deferring)
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if deferring.arrived is not None:
            handler(*deferring.arrived)


def uninterrupted(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function within `deferred_interrupts`."""
    with deferred_interrupts():
        return function(*arguments)
