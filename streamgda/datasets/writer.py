"""Output of a conversion: a group that appears at its path only when it is complete."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgda.errors import InvalidParameterError

if TYPE_CHECKING:
    import zarr

_NODE_FILES = ("zarr.json", ".zgroup", ".zarray")


@contextlib.contextmanager
def created(store: Any, overwrite: bool, sources: Iterable[Any]) -> Iterator[zarr.Group]:
    """An empty group to be filled; on a local path, it is moved there if all went well.

    Parameters
    ----------
    store : path, zarr store or zarr group
    overwrite : bool
        Whether to replace what is there.
    sources : iterable
        What will be read meanwhile, which must not lie in a store that is written in place.

    Raises
    ------
    InvalidParameterError
        Where something is at `store` and `overwrite` is not set, or it must not be replaced.
    """
    import zarr  # noqa: PLC0415

    path = _local_path(store)
    if path is None:
        _check_store(store, overwrite, sources)
        yield zarr.create_group(_location(store), overwrite=overwrite)
        return
    _check_path(path, overwrite)
    path.parent.mkdir(parents=True, exist_ok=True)
    stem = f"{path.name}.{uuid.uuid4().hex[:8]}"
    partial, packed, replaced = (
        path.with_name(f"{stem}.{what}") for what in ("partial", "packed", "replaced")
    )
    try:
        yield zarr.create_group(partial)
        if path.suffix == ".zip":
            # Packed at the end, because an array that grows rewrites its metadata, and the
            # members of a zip file cannot be written twice.
            _pack(partial, packed)
            packed.replace(path)
        else:
            if path.exists():
                path.rename(replaced)
            partial.rename(path)
            shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        packed.unlink(missing_ok=True)


def reopened(store: Any) -> zarr.Group:
    """The group that `created` made there, open for reading."""
    import zarr  # noqa: PLC0415

    path = _local_path(store)
    if path is None:
        return zarr.open_group(_location(store), mode="r")
    zipped = path.suffix == ".zip"
    return zarr.open_group(zarr.storage.ZipStore(path, mode="r") if zipped else path, mode="r")


def _local_path(store: Any) -> Path | None:
    import zarr  # noqa: PLC0415

    if isinstance(store, str | os.PathLike):
        return None if "://" in str(store) else Path(store).resolve()
    inner = store.path if isinstance(store, zarr.Group) else ""
    root = store.store if isinstance(store, zarr.Group) else store
    return Path(root.root, inner).resolve() if isinstance(root, zarr.storage.LocalStore) else None


def _location(store: Any) -> Any:
    import zarr  # noqa: PLC0415

    return store.store_path if isinstance(store, zarr.Group) else store


def _check_path(path: Path, overwrite: bool) -> None:
    if not path.exists():
        return
    if path.suffix == ".zip":
        ours, free = path.is_file(), False
    else:
        ours = any((path / name).is_file() for name in _NODE_FILES)
        free = path.is_dir() and not any(path.iterdir())
    if not (ours or free):
        raise InvalidParameterError(f"{path} exists and is not zarr: it will not be replaced")
    if not (overwrite or free):
        raise InvalidParameterError(f"{path} exists: overwrite=True would replace it")


def _check_store(store: Any, overwrite: bool, sources: Iterable[Any]) -> None:
    import zarr  # noqa: PLC0415

    try:
        existing = zarr.open(_location(store), mode="r")
    except FileNotFoundError:
        return
    if not overwrite:
        raise InvalidParameterError(f"{store} holds a zarr node: overwrite=True would replace it")
    for source in sources:
        if _same_store(_store(source), existing.store):
            raise InvalidParameterError(
                f"{source} lies in the store that is to be overwritten; write to another one"
            )


def _store(source: Any) -> Any:
    import zarr  # noqa: PLC0415

    if isinstance(source, str) and "://" in source:
        source = zarr.open(source, mode="r")
    return source.store if isinstance(source, zarr.Array | zarr.Group) else source


def _same_store(one: Any, other: Any) -> bool:
    """Whether two stores are the same place, whichever of them may be written to."""
    if type(one) is not type(other):
        return False
    try:
        return bool(one.with_read_only(True) == other.with_read_only(True))
    except (AttributeError, NotImplementedError):
        return True  # for all that can be known


def _pack(folder: Path, file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for member in sorted(folder.rglob("*")):
            if member.is_file():
                packed.write(member, member.relative_to(folder).as_posix())
