"""Remote stores: zarr stores whose requests are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import zarr
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore, ZipStore

from streamgda.errors import StreamGDAError, WriteError, cause_of
from streamgda.runtime.retry import brief, is_of_network, is_temporary, pauses
from streamgda.storage.opening import innermost, local_path, locate
from streamgda.storage.requests import RequestError, current

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_LOCAL = (LocalStore, MemoryStore, ZipStore)


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
        asked = current()
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


# --- stores ---------------------------------------------------------------------------------------


def is_remote(store: Any) -> bool:
    """Return whether a zarr store is neither on this machine's disks nor in memory."""
    store = innermost(store)
    return isinstance(store, zarr.abc.store.Store) and not isinstance(store, _LOCAL)


def by_zarrs() -> bool:
    """Return whether zarrs reads arrays, which knows the stores of zarr itself only."""
    return "zarrs" in zarr.config.get("codec_pipeline.path")


def retried(store: Any, retry_for: float | None = None) -> Any:
    """Return a remote store, or a place in one, with requests that are retried; others as given.

    A URL is one that will be written to.
    """
    if isinstance(store, str) and local_path(store) is None:
        store = locate(store, read_only=False)[0]
    if isinstance(store, StorePath):
        return StorePath(retried(store.store, retry_for), store.path)
    if not is_remote(store) or isinstance(store, Remote):
        return store
    if by_zarrs():
        return store
    return Remote(store, retry_for)
