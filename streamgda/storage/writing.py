"""New zarr groups at local paths, to which nothing is written any more once they are left."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zarr
from zarr.storage import LocalStore, WrapperStore, ZipStore


@contextlib.contextmanager
def new_group(path: Path, *, zipped: bool = False, **options: Any) -> Iterator[zarr.Group]:
    """Create a group to be filled in a directory or a zip file.

    After an interrupt, threads of zarr finish what they write, and begin nothing else.

    Parameters
    ----------
    path : Path
        Nothing exists there.
    zipped : bool
        Write a zip file instead of a directory.
    **options
        Of ``zarr.create_group``.
    """
    inner = ZipStore(path, mode="w") if zipped else LocalStore(path)
    store = _Ending(inner)
    try:
        yield zarr.create_group(store, **options)
    except BaseException:
        store.end()
        with contextlib.suppress(Exception):  # the first error says more
            inner.close()
        raise
    store.end()
    inner.close()


class _Ending(WrapperStore[Any]):
    """A store that ends: afterwards, nothing is being written, and writing fails."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._idle = threading.Condition()
        self._writing = 0
        self._ended = False

    async def set(self, key: str, value: Any) -> None:
        """Write a value."""
        with self._idle:
            if self._ended:
                raise RuntimeError(f"{self} has ended")
            self._writing += 1
        try:
            await super().set(key, value)
        finally:
            with self._idle:
                self._writing -= 1
                self._idle.notify_all()

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Write a value unless there is one."""
        if not await self.exists(key):
            await self.set(key, value)

    def end(self) -> None:
        """Wait for what is being written, and refuse everything else."""
        with self._idle:
            self._ended = True
            self._idle.wait_for(lambda: not self._writing)
