"""Requests to a remote store: chunks that are requested before they are read, many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar

from streamgda.errors import ReadError

Result = TypeVar("Result")

AT_ONCE = 256  # requests at a time, unless zarr's configuration says otherwise
_ZARRS_OWN = 10  # its default, which is for the disk


class RequestError(ReadError):
    """A chunk that cannot be read.

    Attributes
    ----------
    key : str
        Its key in the store.
    reason : str
        Type and message of the last error.
    """

    def __init__(self, message: str = "", key: str = "", reason: str = "") -> None:
        super().__init__(message, key, reason)
        self.key, self.reason = self.args[1:]

    def __str__(self) -> str:
        return str(self.args[0])


class Requests:
    """Chunks that are requested before they are read: many at a time, in the order of reading.

    zarr itself reads few at a time. What one call has requested beyond what it reads is there for
    the next one. Copies and pickles have requested nothing.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._slots: asyncio.Semaphore | None = None
        self._ended = False

    def __reduce__(self) -> tuple[type[Requests], tuple[()]]:
        return Requests, ()

    def read(self, store: Any, keys: Iterable[str], read: Callable[[], Result]) -> Result:
        """Request chunks, and return the result of a call that reads the first ones of them.

        What was requested before and is not among them is dropped. After a failure, nothing more
        is requested for this call.
        """
        from zarr.core.sync import sync  # noqa: PLC0415

        outer = _current.set(self)
        try:
            sync(self._start(store, dict.fromkeys(keys)))
            return read()
        except BaseException:
            self.end()
            raise
        finally:
            _current.reset(outer)

    async def _start(self, store: Any, keys: dict[str, None]) -> None:
        import zarr  # noqa: PLC0415

        if self._slots is None:
            given = zarr.config.get("async.concurrency")
            self._slots = asyncio.Semaphore(AT_ONCE if given == _ZARRS_OWN else given)
        self._ended = False
        for key in self._tasks.keys() - keys:
            self._tasks.pop(key).cancel()
        for key in keys:
            if key not in self._tasks:
                self._tasks[key] = asyncio.create_task(self._in_turn(store, key))
                self._tasks[key].add_done_callback(_seen)

    async def _in_turn(self, store: Any, key: str) -> Any:
        from zarr.core.buffer import default_buffer_prototype  # noqa: PLC0415

        assert self._slots is not None
        async with self._slots:
            return await store.request(key, default_buffer_prototype())

    async def value_of(self, store: Any, key: str, prototype: Any) -> Any:
        """Return the value of a key that may have been requested."""
        if self._ended:
            raise asyncio.CancelledError
        task = self._tasks.pop(key, None)
        return await (store.request(key, prototype) if task is None else task)

    def end(self) -> None:
        """Cancel what was requested and not read."""
        self._ended = True
        if self._tasks:
            from zarr.core.sync import sync  # noqa: PLC0415

            sync(self._cancel())

    async def _cancel(self) -> None:
        while self._tasks:
            self._tasks.popitem()[1].cancel()


def _seen(task: asyncio.Task[Any]) -> None:
    """Look at the error of a request that is not read, which asyncio would log otherwise."""
    if not task.cancelled():
        task.exception()


# A context variable, because tasks of zarr get that of the thread that reads.
_current: ContextVar[Requests | None] = ContextVar("requests", default=None)


def current() -> Requests | None:
    """Return the requests of the read that this task of zarr belongs to."""
    return _current.get()
