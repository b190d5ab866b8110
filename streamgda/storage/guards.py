"""Zarr stores that check what they read, that end with what is written, and of zip files in memory.

They guard against foreign data and malicious metadata.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import zarr
from zarr.abc.store import RangeByteRequest
from zarr.buffer import default_buffer_prototype
from zarr.buffer.cpu import Buffer
from zarr.core.sync import sync
from zarr.storage import LocalStore, MemoryStore, StorePath, WrapperStore, ZipStore

from streamgda.errors import FormatError
from streamgda.runtime.interruption import uninterrupted
from streamgda.storage.format import MOST_METADATA
from streamgda.storage.opening import as_target, path_of
from streamgda.storage.replacing import replacing

METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_PROTOTYPE = default_buffer_prototype()
_WIDEST = 1 << 20  # most bytes, or bits, of an element
_UNIX = 3  # the system that all zip files name, so that their bytes are the same on every system
_READ_UNSEEN = 1 << 23  # most bytes that are requested before their number is checked


class _Bounded(WrapperStore):
    """Base of the stores that do not read values that are too long."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._sizes: dict[str, int] | None = None  # of the members of a zip file
        if isinstance(store, ZipStore):
            members = _members(store.path)
            self._check_members(members)
            sync(StorePath.open(store, ""))
            self._sizes = {member.filename: member.file_size for member in members}

    def _check_members(self, members: list[zipfile.ZipInfo]) -> None:
        """Raise FormatError for members of a zip file that are not read."""

    def _size_of_file(self, root: Path, key: str) -> int:
        """Return the size of a file, 0 if there is none; raise FormatError for other things."""
        path = root / key
        if path.exists() and not path.is_file():
            raise FormatError(f"{path} is not a file")
        return path.stat().st_size if path.exists() else 0

    async def _metadata(self, key: str, prototype: Any) -> Any:
        """Return the metadata of a key, or None; raise FormatError if it is too long."""
        return await self._value(key, prototype, MOST_METADATA, unseen=MOST_METADATA)

    async def _value(
        self, key: str, prototype: Any, most: int, *, unseen: int = _READ_UNSEEN
    ) -> Any:
        """Return the value of a key, or None; raise FormatError if it is longer than `most`.

        The size of a file or a member of a zip file is known before it is read. From other stores
        up to `unseen` bytes are requested without asking for it.
        """
        size = None
        if isinstance(self._store, LocalStore):
            size = self._size_of_file(self._store.root, key)
        elif self._sizes is not None:
            size = self._sizes.get(key, 0)
        elif most > unseen:
            size = await self._store.getsize(key)
        value = None
        if size is None or size <= most:
            request = RangeByteRequest(0, most + 1) if size is None else None
            value = await super().get(key, prototype, request)
            size = 0 if value is None else len(value)
        if size > most:
            raise FormatError(f"{key} has {size} bytes, expected at most {most}")
        return value


class Guarded(_Bounded):
    """A group in a store, whose values are read as bytes, none of them longer than expected.

    Saved files may come from an untrusted source. Read by zarr, their metadata could create a
    terabyte of fill values from nothing, name codecs that expand without end, or leave the
    directory through links. Files that are too long are not read at all.

    Parameters
    ----------
    store : zarr store
    inside : str
        Path of the group in the store.

    Raises
    ------
    FormatError
        If a zip file has members that are compressed, repeated, or longer than the file, or too
        many of them.
    """

    def __init__(self, store: Any, inside: str) -> None:
        super().__init__(store)
        self._start = f"{inside}/" if inside else ""

    def __str__(self) -> str:
        return f"{self._store}/{self._start}".rstrip("/")

    def _check_members(self, members: list[zipfile.ZipInfo]) -> None:
        path = self._store.path
        check_stored(members, path.stat().st_size, path)

    def _size_of_file(self, root: Path, key: str) -> int:
        path = root / key
        outside = path.resolve() != root.resolve() / key
        if outside or (path.exists() and not path.is_file()):
            raise FormatError(f"{path} is not a regular file within the directory")
        return super()._size_of_file(root, key)

    def metadata(self, name: str = "") -> dict[str, Any]:
        """Return the metadata of an array in the group, or of the group itself."""
        key = f"{name}/zarr.json".lstrip("/")
        value = sync(self._metadata(self._start + key, _PROTOTYPE))
        if value is None:
            raise FormatError(f"{key} is missing")
        found = json.loads(value.to_bytes())
        if not isinstance(found, dict) or found.get("node_type") != ("array" if name else "group"):
            raise FormatError(f"{key} is not the metadata of {'an array' if name else 'a group'}")
        return found

    def chunk(self, key: str, n_bytes: int) -> bytes:
        """Return a chunk of an array, which must have this length."""
        value = sync(self._value(self._start + key, _PROTOTYPE, n_bytes))
        if value is None:
            raise FormatError(f"chunk {key} is missing")
        if len(value) != n_bytes:
            raise FormatError(f"chunk {key} does not have {n_bytes} bytes")
        return value.to_bytes()


def check_stored(members: list[zipfile.ZipInfo], size: int, name: Any) -> None:
    """Raise FormatError unless all members of a zip file of that size are stored as they are."""
    stored = all(
        member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        for member in members
    )
    n_names = len({member.filename for member in members})
    n_bytes = sum(member.file_size for member in members)
    if not stored or n_names < len(members) or n_bytes > size:
        raise FormatError(f"{name} has members that are compressed, repeated or too long")


class Described(_Bounded):
    """A store of any origin that allows reading its metadata only, if that is harmless.

    One line of metadata can declare elements of a gigabyte each, and zarr allocates a fill value.
    """

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Return the metadata of a key.

        Raises
        ------
        FormatError
            If the key is not metadata or not a file, or if it declares elements that are too wide.
        """
        if key.rpartition("/")[2] not in METADATA:
            raise FormatError(f"{key} is not metadata")
        value = await self._metadata(key, prototype)
        if value is not None:
            _check_elements(json.loads(value.to_bytes()), key)
        return value


def _check_elements(metadata: Any, key: str) -> None:
    """Raise FormatError if any part of the metadata declares a wide data type."""
    if isinstance(metadata, list):
        for entry in metadata:
            _check_elements(entry, key)
    elif isinstance(metadata, dict):
        for name, entry in metadata.items():
            wide = name in ("length_bytes", "length_bits") and isinstance(entry, int | float)
            texts = (
                re.findall(r'"[<>|=]?[A-Za-z](\d+)"', json.dumps(entry)) if name == "dtype" else []
            )
            widths = [*([entry] if wide else []), *map(int, texts)]
            if any(width > _WIDEST for width in widths):
                raise FormatError(f"{key} has elements of type {entry!r:.100}, which are too wide")
            _check_elements(entry, key)


class _BoundedFile(io.FileIO):
    """A file of which no more is read at a time than a table of contents can have."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MOST_METADATA:
            raise FormatError(f"{self.name} has a table of contents of {size} bytes")
        return super().read(size)


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """Return the members of a zip file."""
    with _BoundedFile(path) as file, zipfile.ZipFile(file) as archive:
        return archive.infolist()


# --- writing ----------------------------------------------------------------------------------


@contextlib.contextmanager
def replaced_group(
    store: Any, check: Callable[[Any], object], *, grows: bool = False, **options: Any
) -> Iterator[zarr.Group]:
    """Create a group to be filled; at a local path, it replaces old contents once it is complete.

    Parameters
    ----------
    store : path, zarr store or zarr group
        A path that ends in ``.zip`` becomes a zip file. Stores that are no directories are written
        in place.
    check : callable
        Called with the path or store; raises an error for what must not be replaced.
    grows : bool
        Arrays will be resized, which rewrites their metadata. The members of a zip file cannot be
        written twice: it is packed at the end.
    **options
        Of ``zarr.create_group``.
    """
    target, path = as_target(store, "store"), path_of(store)
    check(path or store)
    if path is None:
        yield zarr.create_group(target, overwrite=True, **options)
        return
    with replacing(path) as partial:
        packed = grows and path.suffix == ".zip"
        folder = partial.with_name(f"{partial.name}.folder") if packed else partial
        zipped = path.suffix == ".zip" and not packed
        with _ending(ZipStore(folder, mode="w") if zipped else LocalStore(folder)) as inner:
            yield zarr.create_group(inner, **options)
        if packed:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
                for member in sorted(m for m in folder.rglob("*") if m.is_file()):
                    archive.write(member, member.relative_to(folder).as_posix())
        check(path)  # another process may have written meanwhile


@contextlib.contextmanager
def _ending(inner: Any) -> Iterator[_Ending]:
    """Write to a store; after an interrupt, threads of zarr finish it, and begin nothing else."""
    store = _Ending(inner)  # an interrupt of `end` might leave it locked, and zarr waiting
    try:
        yield store
    except BaseException:
        uninterrupted(store.end)
        with contextlib.suppress(Exception):  # the first error says more
            inner.close()
        raise
    uninterrupted(store.end)
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


# --- zip files in memory ----------------------------------------------------------------------


def to_zip(members: MutableMapping[str, Any]) -> bytes:
    """Return a zip file of the members of a zarr store, which are removed on the way.

    Members are sorted and have no times: equal members give equal bytes.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in sorted(members):
            entry = zipfile.ZipInfo(name)  # uncompressed, of 1980-01-01
            entry.create_system = _UNIX
            archive.writestr(entry, members.pop(name).to_bytes())
    return file.getvalue()


class ZippedBytes(MemoryStore):
    """A zarr store of the members of a zip file in memory; errors name it as ``data``.

    Parameters
    ----------
    data : bytes-like

    Raises
    ------
    TypeError
        For anything but bytes.
    FormatError
        If this is not a zip file, or its members are damaged, compressed, repeated or too long.
    """

    def __init__(self, data: Any) -> None:
        try:
            size = memoryview(data).nbytes
        except TypeError:
            given = type(data).__name__
            message = f"data is of type {given}; expected bytes (load() reads paths and stores)"
            raise TypeError(message) from None
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                check_stored(archive.infolist(), size, str(self))
                names = archive.namelist()
                members = {name: Buffer.from_bytes(archive.read(name)) for name in names}
        except FormatError:
            raise
        except Exception as error:  # damaged files raise many kinds
            raise FormatError(f"{self} is not a zarr group that can be read: {error!r}") from error
        super().__init__(members, read_only=True)

    def __str__(self) -> str:
        return "data"
