"""Changes that Ctrl-C leaves neither half made nor running.

Most changes are built aside and then assigned at once. What changes in place takes a lock of a
library or writes a file defers interrupts until it is complete.
"""

from __future__ import annotations

import signal
import threading
from _thread import RLock
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Lock(RLock):  # type: ignore[misc]  # It can be subclassed.
    """A reentrant lock that is left out of copies and pickles: they get another one."""

    def __reduce__(self) -> Any:
        return type(self), ()


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
    if not callable(handler):
        yield
        return
    arrived: list[tuple[Any, ...]] = []
    try:
        signal.signal(signal.SIGINT, lambda *given: arrived.append(given))
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if arrived:
            handler(*arrived[0])
