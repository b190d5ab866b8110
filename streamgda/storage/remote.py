"""Remote stores: requests that are retried, and many at a time before their values are read."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from time import monotonic as clock
from typing import Any, TypeVar

import zarr
from zarr.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore, ZipStore

from streamgda.errors import ReadError, StreamGDAError, WriteError, cause_of
from streamgda.runtime.retry import brief, is_of_network, is_temporary, pauses
from streamgda.storage.opening import innermost, local_path, locate

Result = TypeVar("Result")

FIRST = 64  # most requests at a time before any has been answered
MOST = 512  # requests at a time: each has a connection
_FIRST_BYTES = 1 << 25  # of the chunks that these requests are for
_LONGER = 2  # times the shortest request: such a one has waited for others on the link
_ZARRS_OWN = 10  # requests at a time of zarr's configuration, which is for the disk

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_LOCAL = (LocalStore, MemoryStore, ZipStore)

# A context variable, because tasks of zarr get that of the thread that reads.
_current: ContextVar[Requests | None] = ContextVar("requests", default=None)


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
        while self._waiting and len(self._tasks) < 2 * self._at_once:
            key = self._waiting.popitem(last=False)[0]
            answer = self._in_turn(store, key, default_buffer_prototype())
            self._tasks[key] = asyncio.create_task(answer)
            # asyncio would log the error of a request that is not read, unless it is looked at.
            self._tasks[key].add_done_callback(lambda task: task.cancelled() or task.exception())

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
            sync(self._cancel())

    async def _cancel(self) -> None:
        self._waiting.clear()
        while self._tasks:
            self._tasks.popitem()[1].cancel()


# --- stores ---------------------------------------------------------------------------------------


class Remote(WrapperStore[Any]):
    """A remote store whose requests for chunks, and for writing, are retried one by one.

    Parameters
    ----------
    store : zarr store
    retry_for : float, optional
        Seconds for which a failed request is retried.
    """

    def __init__(self, store: Any, retry_for: float | None = None) -> None:
        super().__init__(store)
        self._retry_for = retry_for

    def _with_store(self, store: Any) -> Remote:
        return type(self)(store, self._retry_for)

    def __str__(self) -> str:
        return str(self._store)

    def __repr__(self) -> str:
        return repr(self._store)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the value of a key, which may have been requested already.

        Metadata are not requested again here: who opens an array does it.

        Raises
        ------
        RequestError
            If a chunk cannot be read.
        """
        asked = _current.get()
        if key.rpartition("/")[2] in METADATA:
            return await self._store.get(key, prototype, byte_range)
        if asked is not None and byte_range is None:
            return await asked.value_of(self, key, prototype)
        return await self.request(key, prototype, byte_range)

    async def request(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Request the value of a key, again after failures that may pass."""
        return await self._retried(
            key, partial(self._store.get, key, prototype, byte_range), self._not_read
        )

    async def set(self, key: str, value: Any) -> None:
        """Write a value, again after failures that may pass.

        Raises
        ------
        WriteError
            If it cannot be written.
        """
        await self._retried(key, partial(self._store.set, key, value), self._not_written)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a value unless there is one."""
        write = partial(self._store.set_if_not_exists, key, value)
        await self._retried(key, write, self._not_written)

    async def _retried(
        self,
        key: str,
        call: Callable[[], Awaitable[Any]],
        failed: Callable[[str, Exception], StreamGDAError],
    ) -> Any:
        waits = pauses(self._retry_for)
        while True:
            try:
                return await call()
            except Exception as error:
                pause = next(waits, None) if is_temporary(error) else None
                if pause is None:
                    if isinstance(error, StreamGDAError) or not is_of_network(error):
                        raise
                    raise failed(key, error) from cause_of(error)
            await asyncio.sleep(pause)

    def _not_read(self, key: str, error: Exception) -> RequestError:
        reason = brief(error)
        return RequestError(f"{self}/{key} cannot be read: {reason}", key, reason)

    def _not_written(self, key: str, error: Exception) -> WriteError:
        return not_written(f"{self}/{key}", error)


def not_written(where: object, error: Exception) -> WriteError:
    """Return the error for a remote store that cannot be written, with a remedy."""
    passes = is_temporary(error)
    advice = (
        "run this again when the store answers"
        if passes
        else "check the address, that the credentials have not expired, and that they may write"
    )
    return WriteError(f"{where} cannot be written: {brief(error)}; {advice}")


def is_remote(store: Any) -> bool:
    """Return whether a store, or a place in one, is elsewhere: not on local disks nor in memory."""
    if isinstance(store, str):
        return local_path(store) is None
    kind = zarr.abc.store.Store
    found = innermost(store if isinstance(store, kind) else getattr(store, "store", None))
    return isinstance(found, kind) and not isinstance(found, _LOCAL)


def by_zarrs() -> bool:
    """Return whether zarrs reads arrays, which knows the stores of zarr itself only."""
    return "zarrs" in zarr.config.get("codec_pipeline.path")


def retried(store: Any, retry_for: float | None = None) -> Any:
    """Return a remote store, or a place in one, with requests that are retried; others as given.

    A URL is one that will be written to.
    """
    if isinstance(store, str) and is_remote(store):
        store = locate(store, read_only=False)[0]
    if isinstance(store, StorePath):
        return StorePath(retried(store.store, retry_for), store.path)
    if not is_remote(store) or isinstance(store, Remote) or by_zarrs():
        return store
    return Remote(store, retry_for)
