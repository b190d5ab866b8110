"""Arrays and attributes as a versioned zarr group: directory, zip file or any zarr store.

What is written is numbers and JSON; nothing is ever executed on reading. The room knows the
format only: what the arrays mean is known by whoever writes and reads them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import FormatError, SourceError, SourceNotFoundError

if TYPE_CHECKING:
    import zarr

FORMAT = "streamgda"
VERSION = 1


def write(
    store: Any, kind: str, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a group of that kind; what stands there is replaced.

    Parameters
    ----------
    store : path, zarr store or zarr group
        A path that ends in ``.zip`` becomes a zip file, any other a directory.
    kind : str
        What the group holds; `read` asks for it.
    attributes : dict
        Values that JSON can hold.
    arrays : dict of str to ndarray
        Names may hold slashes: then they lie in groups within.

    Raises
    ------
    SourceError
        Where the path is a directory of other things, which replacing would delete.
    """
    arrays = {
        name: np.asarray(array, array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }
    description = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "attributes": dict(attributes),
        "arrays": {name: [list(a.shape), a.dtype.str, _checksum(a)] for name, a in arrays.items()},
    }
    with _created(store, {FORMAT: description}) as group:
        for name, array in arrays.items():
            group.create_array(
                name, data=array, chunks=_chunks(array), config={"write_empty_chunks": True}
            )


def read(store: Any, kind: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a group of that kind.

    Returns
    -------
    attributes : dict
    arrays : dict of str to ndarray

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    FormatError
        Where what is there is something else, of an unknown version, or damaged.
    """
    with _opened(store) as group:
        head = _description(group, kind)
        arrays = {name: _array(group, name, spec) for name, spec in head["arrays"].items()}
        return dict(head["attributes"]), arrays


def kind_of(store: Any) -> str:
    """The kind of a saved group, as `write` was given it."""
    with _opened(store) as group:
        return str(_description(group, None)["kind"])


def _description(group: zarr.Group, kind: str | None) -> dict[str, Any]:
    head = group.attrs.get(FORMAT)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FormatError(f"{group.store_path} is a zarr group, but not one that streamgda saved")
    if head.get("version") != VERSION:
        raise FormatError(
            f"{group.store_path} has format version {head.get('version')!r}; this streamgda reads "
            f"version {VERSION}. Update streamgda, or save again with the version that wrote it"
        )
    if kind is not None and head.get("kind") != kind:
        raise FormatError(f"{group.store_path} holds {head.get('kind')!r}, expected {kind!r}")
    if not isinstance(head.get("arrays"), dict) or not isinstance(head.get("attributes"), dict):
        raise FormatError(f"{group.store_path} is damaged: its description is incomplete")
    return head


def _array(group: zarr.Group, name: str, spec: list[Any]) -> np.ndarray:
    try:
        shape, dtype, crc = spec
        node: Any = group[name]
        if list(node.shape) != shape or np.dtype(node.dtype).str != dtype:
            raise FormatError(
                f"{name!r} has shape {node.shape} and dtype {node.dtype}, expected "
                f"{tuple(shape)} and {dtype}"
            )
        array = np.asarray(node[...], order="C")
        if _checksum(array) != crc:
            raise FormatError(f"{name!r} does not match its checksum")
    except Exception as error:  # a damaged chunk can fail in any codec, each in its own way
        raise FormatError(f"{group.store_path} is damaged: {error!r}") from error
    return array


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.data if array.size else b"")


def _chunks(array: np.ndarray) -> tuple[int, ...]:
    """Whole matrices in chunks of a few MiB, cut along the first axis."""
    if not array.ndim:
        return ()
    row = max(1, array[:1].nbytes)
    rows = min(max(1, (1 << 23) // row), max(1, array.shape[0]))
    return (rows, *(max(1, n) for n in array.shape[1:]))


@contextlib.contextmanager
def _created(store: Any, attributes: dict[str, Any]) -> Iterator[zarr.Group]:
    """An empty group; at a path, it takes the place of what is there once it is complete."""
    import zarr  # noqa: PLC0415

    path = _as_path(store)
    if path is None:
        yield zarr.create_group(_as_store(store), attributes=attributes, overwrite=True)
        return
    zipped = path.suffix == ".zip"
    path = path.resolve()
    _check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        if zipped:
            with zarr.storage.ZipStore(partial, mode="w") as archive:
                yield zarr.create_group(archive, attributes=attributes)
        else:
            yield zarr.create_group(partial, attributes=attributes)
        if path.exists() and (path.is_dir() or partial.is_dir()):  # not replaced in one step
            old = partial.with_suffix(".old")
            path.replace(old)
            partial.replace(path)
            _remove(old)
        else:
            partial.replace(path)
    finally:
        _remove(partial)


def _check_replaceable(path: Path) -> None:
    """Refuse to put anything in the place of what streamgda did not save."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    try:
        with _opened(path) as group:
            ours = FORMAT in group.attrs
    except FormatError:
        ours = False
    if not ours:
        raise SourceError(
            f"{path} holds something else than what streamgda saved, which saving would delete: "
            f"choose a path of its own, or remove it first"
        )


@contextlib.contextmanager
def _opened(store: Any) -> Iterator[zarr.Group]:
    import zarr  # noqa: PLC0415

    path = _as_path(store)
    if path is not None and not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    with contextlib.ExitStack() as stack:
        try:
            if path is not None and path.is_file():  # a zip file, under whatever name
                opened = zarr.storage.ZipStore(path, mode="r")
                stack.callback(_close, opened)
            else:
                opened = _as_store(store)
            group = zarr.open_group(opened, mode="r")
        except Exception as error:  # what is wrong depends on the store and its codecs
            raise FormatError(f"{store} is not a zarr group that can be read: {error!r}") from error
        yield group


def _as_path(store: Any) -> Path | None:
    """The local path that is meant, if one is."""
    return Path(store) if isinstance(store, str | Path) and "://" not in str(store) else None


def _as_store(store: Any) -> Any:
    import zarr  # noqa: PLC0415

    return store.store_path if isinstance(store, zarr.Group) else store


def _close(archive: Any) -> None:
    with contextlib.suppress(AttributeError):  # what zarr raises where opening has failed
        archive.close()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pack_labels(labels: np.ndarray) -> dict[str, Any]:
    """Class labels as JSON: their data type and their values."""
    dtype = labels.dtype
    values = labels.view(np.int64) if dtype.kind in "mM" else labels
    if dtype.kind == "S":
        return {"dtype": dtype.str, "values": [label.hex() for label in labels.tolist()]}
    return {"dtype": dtype.str, "values": values.tolist()}


def unpack_labels(packed: Mapping[str, Any]) -> np.ndarray:
    """Class labels, sorted, from `pack_labels`.

    Raises
    ------
    FormatError
        For anything else.
    """
    try:
        labels = _unpacked(np.dtype(packed["dtype"]), packed["values"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"saved labels are damaged: {error!r}") from None
    if labels.ndim != 1 or not (labels[:-1] < labels[1:]).all():
        raise FormatError(f"saved labels are damaged: {labels.tolist()} are not sorted")
    return labels


def _unpacked(dtype: np.dtype, values: list[Any]) -> np.ndarray:
    if dtype.kind in "mM":
        return np.array(values, np.int64).view(dtype)
    if dtype.kind == "S":
        return np.array([bytes.fromhex(value) for value in values], dtype)
    if dtype.kind not in "biufU":
        raise TypeError(f"dtype {dtype}")
    return np.array(values, dtype)
