"""Requests to a remote store: chunks that are requested before they are read, many at a time."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from time import monotonic as clock
from typing import Any, TypeVar

from streamgda.errors import ReadError

Result = TypeVar("Result")

FIRST = 64  # most requests at a time before any has been answered
MOST = 512  # requests at a time: each has a connection
_FIRST_BYTES = 1 << 25  # of the chunks that these requests are for
_LONGER = 2  # times the shortest request: such a one has waited for others on the link
_ZARRS_OWN = 10  # requests at a time of zarr's configuration, which is for the disk


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

    Their number follows from the time that requests take. As long as some take less than twice that
    of the shortest, the link is not full: each of them adds one to the number, which doubles it in
    the time of one request, until about bandwidth times latency, in bytes, is under way. As many
    chunks again may wait to be read. A number that the user gives zarr's configuration stays.

    zarr itself reads few at a time. What one call has requested beyond what it reads is there for
    the next one. Copies and pickles have requested nothing.

    Parameters
    ----------
    chunk_bytes : int
        Bytes of a chunk, of which a few large ones are enough to begin with.
    """

    def __init__(self, chunk_bytes: int = 1) -> None:
        self._at_once = max(2, min(FIRST, _FIRST_BYTES // max(1, chunk_bytes)))
        self._most = MOST
        self._shortest = math.inf  # seconds
        self._slots: asyncio.Semaphore | None = None
        self._tasks: dict[str, asyncio.Task[Any]] = {}  # of chunks requested and not read
        self._waiting: OrderedDict[str, None] = OrderedDict()  # chunks to be requested, in order
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
            sync(self._start(store, OrderedDict.fromkeys(keys)))
            return read()
        except BaseException:
            self.end()
            raise
        finally:
            _current.reset(outer)

    async def _start(self, store: Any, keys: OrderedDict[str, None]) -> None:
        import zarr  # noqa: PLC0415

        if self._slots is None:
            given = zarr.config.get("async.concurrency")
            if given != _ZARRS_OWN:
                self._at_once = self._most = given
            self._slots = asyncio.Semaphore(self._at_once)
        self._ended = False
        for key in self._tasks.keys() - keys:
            self._tasks.pop(key).cancel()
        for key in self._tasks:
            del keys[key]
        self._waiting = keys
        self._request_more(store)

    def _request_more(self, store: Any) -> None:
        from zarr.core.buffer import default_buffer_prototype  # noqa: PLC0415

        while self._waiting and len(self._tasks) < 2 * self._at_once:
            key = self._waiting.popitem(last=False)[0]
            answer = self._in_turn(store, key, default_buffer_prototype())
            self._tasks[key] = asyncio.create_task(answer)
            self._tasks[key].add_done_callback(_seen)

    async def _in_turn(self, store: Any, key: str, prototype: Any) -> Any:
        assert self._slots is not None
        async with self._slots:
            start = clock()
            value = await store.request(key, prototype)
            self._learn(clock() - start)
            return value

    def _learn(self, seconds: float) -> None:
        """Make one more request at a time if this one took little longer than the shortest."""
        assert self._slots is not None
        self._shortest = min(self._shortest, seconds)
        short = seconds < _LONGER * self._shortest
        if short and self._slots.locked() and self._at_once < self._most:
            self._at_once += 1
            self._slots.release()

    async def value_of(self, store: Any, key: str, prototype: Any) -> Any:
        """Return the value of a key that may have been requested."""
        if self._ended:
            raise asyncio.CancelledError
        self._waiting.pop(key, None)
        task = self._tasks.pop(key, None)
        self._request_more(store)
        return await (self._in_turn(store, key, prototype) if task is None else task)

    def end(self) -> None:
        """Cancel what was requested and not read."""
        self._ended = True
        if self._tasks:
            from zarr.core.sync import sync  # noqa: PLC0415

            sync(self._cancel())

    async def _cancel(self) -> None:
        self._waiting.clear()
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
