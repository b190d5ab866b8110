"""Output of a conversion: a group that appears at its path only when it is complete."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamgda.errors import InvalidParameterError, SourceError, SourceNotFoundError
from streamgda.runtime.parameters import as_flag
from streamgda.storage.opening import (
    as_target,
    contents,
    local_path,
    locate,
    open_node,
    open_zarr,
    opened_node,
    stranger,
    writing,
)
from streamgda.storage.replacing import exists, replacing

if TYPE_CHECKING:
    import zarr


@contextlib.contextmanager
def created(store: Any, overwrite: bool, sources: Iterable[Any]) -> Iterator[zarr.Group]:
    """Create an empty group to be filled; at a local path it appears once it is complete.

    Parameters
    ----------
    store : path, zarr store or zarr group
    overwrite : bool
        Replace existing zarr nodes.
    sources : iterable
        Sources that will be read meanwhile; they must not be in a store that is written in place.

    Raises
    ------
    InvalidParameterError
        If `store` has contents and `overwrite` is not set, or they must not be replaced.
    """
    import zarr  # noqa: PLC0415

    overwrite = as_flag("overwrite", overwrite)
    path = _local_path(store)
    if path is None:
        with writing(store):
            _check_store(store, overwrite, sources)
            group = zarr.create_group(as_target(store, "store"), overwrite=overwrite)
        yield group
        return
    from streamgda.storage.writing import new_group  # noqa: PLC0415  (it needs zarr)

    _check_path(path, overwrite)
    with replacing(path) as partial:
        # Zip files are packed at the end, because an array that grows rewrites its metadata, and
        # the members of a zip file cannot be written twice.
        zipped = path.suffix == ".zip"
        folder = partial.with_name(f"{partial.name}.folder") if zipped else partial
        with new_group(folder) as group:
            yield group
        if zipped:
            _pack(folder, partial)
        _check_path(path, overwrite)  # another process may have written meanwhile


def reopened(store: Any) -> zarr.Group:
    """Open the group that `created` wrote, for reading."""
    return open_node(_local_path(store) or store)


def _local_path(store: Any) -> Path | None:
    import zarr  # noqa: PLC0415

    if isinstance(store, str | os.PathLike):
        path = local_path(store)
        return None if path is None else path.resolve()
    inner = store.path if isinstance(store, zarr.Group) else ""
    root = store.store if isinstance(store, zarr.Group) else store
    return Path(root.root, inner).resolve() if isinstance(root, zarr.storage.LocalStore) else None


def _check_path(path: Path, overwrite: bool) -> None:
    if not exists(path):
        return
    zipped = path.suffix == ".zip"
    if path.is_dir() and not zipped and not any(path.iterdir()):
        return
    other = path.name if path.is_dir() == zipped else _other_contents(path)
    if other is not None:
        raise InvalidParameterError(
            f"{path} exists and is not replaced, because it holds what no conversion writes: "
            f"{other}. Choose another path"
        )
    if not overwrite:
        raise InvalidParameterError(f"{path} exists: overwrite=True would replace it")


def _check_store(store: Any, overwrite: bool, sources: Iterable[Any]) -> None:
    try:
        existing = open_zarr(store)
    except FileNotFoundError:
        existing = None
    if existing is not None and not overwrite:
        raise InvalidParameterError(f"{store} holds a zarr node: overwrite=True would replace it")
    other = _other_contents(store)
    if other is not None:
        raise InvalidParameterError(
            f"{store} is not replaced, because it holds what no conversion writes: {other}. "
            f"Choose another one"
        )
    if existing is None:
        return
    for source in sources:
        if _same_store(_store(source), existing.store):
            raise InvalidParameterError(
                f"{source} is in the store that would be overwritten; write to another one"
            )


def _other_contents(store: Any) -> str | None:
    """Return the name of something in a store that no conversion writes, if there is any."""
    import zarr  # noqa: PLC0415

    arrays: tuple[str, ...] | None = None
    with contextlib.suppress(SourceError, SourceNotFoundError), opened_node(store) as node:
        arrays = ("X", "y") if isinstance(node, zarr.Group) else None
    return next(contents(store), None) if arrays is None else stranger(store, arrays)


def _store(source: Any) -> Any:
    import zarr  # noqa: PLC0415

    located = isinstance(source, str) and "://" in source
    return locate(source)[0] if located or isinstance(source, zarr.Array | zarr.Group) else source


def _same_store(one: Any, other: Any) -> bool:
    """Return True if two stores are the same place, no matter which of them is read-only."""
    if type(one) is not type(other):
        return False
    try:
        return bool(one.with_read_only(True) == other.with_read_only(True))
    except (AttributeError, NotImplementedError):
        return True  # they may be


def _pack(folder: Path, file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for member in sorted(folder.rglob("*")):
            if member.is_file():
                packed.write(member, member.relative_to(folder).as_posix())
