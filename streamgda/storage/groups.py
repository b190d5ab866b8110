"""Arrays and attributes as a versioned zarr group: directory, zip file or any zarr store.

What is written is numbers and JSON; nothing is ever executed on reading, and memory is taken in
proportion to the bytes that are there: arrays are not compressed. They are no larger than they must
be all the same: integers are written in four bytes where all of an array fit, and triangles for
matrices (`pack_triangles`) by those who know that their matrices have no more. The room knows the
format only: what the arrays mean is known by whoever writes and reads them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.errors import (
    FormatError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    StreamGDAError,
)
from streamgda.runtime.retry import brief, may_pass

if TYPE_CHECKING:
    import zarr

FORMAT = "streamgda"
VERSION = 3

_CHUNK_BYTES = 1 << 23
_FEW_PARTS = 16
_PADDED_BYTES = 1 << 20  # of text labels that may be wider than they need to be
_NUMBERS = "biuf"  # kinds of the arrays that are written
_INT64 = np.dtype(np.int64)
_NARROW = (np.dtype(np.uint32), np.dtype(np.int32))  # what such integers are written in


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
    dtypes = {name: array.dtype.newbyteorder("=").str for name, array in arrays.items()}
    written = {
        name: _narrowed(np.asarray(a, dtypes[name], order="C")) for name, a in arrays.items()
    }
    description = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "attributes": dict(attributes),
        "arrays": {
            name: [list(a.shape), a.dtype.str, _checksum(a), dtypes[name]]
            for name, a in written.items()
        },
    }
    description["checksum"] = checksum_of(description)
    with _created(store, {FORMAT: description}) as group:
        for name, array in written.items():
            node = group.create_array(name, **_layout(array.shape, array.dtype))
            node[...] = array


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Integers in four bytes each, where that is enough for all of them."""
    if array.dtype == _INT64 and array.size:
        low, high = array.min(), array.max()
        for dtype in _NARROW:
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return array.astype(dtype)
    return array


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
        try:
            arrays = {name: _array(group, name, *spec) for name, spec in head["arrays"].items()}
        except Exception as error:  # whatever a store or a number that is no number may raise
            if may_pass(error):
                raise ReadError(f"{group.store_path} cannot be read: {brief(error)}") from error
            raise FormatError(f"{group.store_path} is damaged: {error!r}") from error
        return dict(head["attributes"]), arrays


def kind_of(store: Any) -> str:
    """The kind of a saved group, as `write` was given it."""
    with _opened(store) as group:
        return str(_description(group, None)["kind"])


@contextlib.contextmanager
def described(store: Any) -> Iterator[zarr.Group | zarr.Array]:
    """What is in anybody's zarr store, by its metadata: chunks cannot be read through it.

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    SourceError
        Where that is not zarr, or nothing that can be described.
    """
    import zarr  # noqa: PLC0415

    from streamgda.storage.guards import Described  # noqa: PLC0415  (it needs zarr)

    with _store_of(store) as find:
        try:
            opened, inside = find()
            yield zarr.open(Described(opened), mode="r", path=inside)
        except FileNotFoundError as error:
            kind = SourceError if _as_path(store) else SourceNotFoundError
            raise kind(f"{store} holds no zarr group or array: {brief(error)}") from error
        except StreamGDAError as error:
            raise SourceError(f"{store} cannot be described: {error}") from None
        except Exception as error:  # what is wrong depends on the store
            raise SourceError(f"{store} cannot be opened as zarr: {brief(error)}") from error


def _description(group: zarr.Group, kind: str | None) -> dict[str, Any]:
    head = group.attrs.get(FORMAT)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FormatError(f"{group.store_path} is a zarr group, but not one that streamgda saved")
    if type(head.get("version")) is not int or head["version"] != VERSION:
        raise FormatError(
            f"{group.store_path} has format version {head.get('version')!r}; this streamgda reads "
            f"version {VERSION}. Update streamgda, or save again with the version that wrote it"
        )
    checksum = head.pop("checksum", None)
    if checksum != checksum_of(head):
        raise FormatError(f"{group.store_path} is damaged: its description has another checksum")
    if kind is not None and head.get("kind") != kind:
        raise FormatError(f"{group.store_path} holds {head.get('kind')!r}, expected {kind!r}")
    if not isinstance(head.get("arrays"), dict) or not isinstance(head.get("attributes"), dict):
        raise FormatError(f"{group.store_path} is damaged: its description is incomplete")
    return head


def _array(
    group: zarr.Group, name: str, shape: Any, dtype_name: Any, crc: Any, meant: Any
) -> np.ndarray:
    if len(name) > 100 or not re.fullmatch(r"[\w-]+(/[\w-]+)*", name):
        raise ValueError(f"no array is called {name!r}")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{name!r} has shape {shape!r}")
    dtype = np.dtype(str(dtype_name))
    narrow = dtype in _NARROW and meant == _INT64.str
    if dtype.str != dtype_name or dtype.kind not in _NUMBERS or not (narrow or dtype.str == meant):
        raise ValueError(f"{name!r} has dtype {dtype_name!r} for {meant!r}")
    guarded: Any = group.store
    guarded.expect(f"{group.path}/{name}".lstrip("/"), _metadata(tuple(shape), dtype))
    array = np.asarray(group[name][...], order="C")
    if _checksum(array) != crc:
        raise ValueError(f"{name!r} does not match its checksum")
    return array.astype(_INT64) if narrow else array


@lru_cache
def _metadata(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """What zarr says of an array that `write` has written, as JSON holds it."""
    import zarr  # noqa: PLC0415

    array = zarr.create_array(zarr.storage.MemoryStore(), **_layout(shape, dtype))
    metadata: dict[str, Any] = json.loads(json.dumps(array.metadata.to_dict()))
    return metadata


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.data if array.size else b"")


def checksum_of(description: Mapping[str, Any]) -> int:
    """The checksum of a description, itself not in it."""
    return zlib.crc32(json.dumps(description, sort_keys=True).encode())


def _layout(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """How an array is stored: as its bytes are, in equal parts of some MiB along the first axis."""
    chunks: tuple[int, ...] = ()
    if shape:
        row = max(1, math.prod(shape[1:]) * dtype.itemsize)
        least = max(1, -(-shape[0] // max(1, _CHUNK_BYTES // row)))
        # The last part is written in full too, which matters where there are few.
        counts = range(least, least + min(least, _FEW_PARTS) + 1)
        parts = min(counts, key=lambda n: n * -(-shape[0] // n))
        chunks = (max(1, -(-shape[0] // parts)), *(max(1, n) for n in shape[1:]))
    return {
        "shape": shape,
        "dtype": dtype,
        "chunks": chunks,
        "compressors": None,
        "config": {"write_empty_chunks": True},
    }


@contextlib.contextmanager
def _created(store: Any, attributes: dict[str, Any]) -> Iterator[zarr.Group]:
    """An empty group; at a path, it takes the place of what is there once it is complete."""
    import zarr  # noqa: PLC0415

    path = _as_path(store)
    if path is None:
        _check_replaceable(store)
        target = store.store_path if isinstance(store, zarr.Group) else store
        yield zarr.create_group(target, attributes=attributes, overwrite=True)
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


def _check_replaceable(store: Any) -> None:
    """Refuse to put anything in the place of what streamgda did not save."""
    path = _as_path(store)
    if path is not None and (not path.exists() or (path.is_dir() and not any(path.iterdir()))):
        return
    try:
        with _opened(store) as group:
            free = FORMAT in group.attrs or (path is None and not [*group.keys()])
    except FormatError:
        free = path is None and not _holds_zarr(*_as_store(store))
    if not free:
        raise SourceError(
            f"{store} holds something else than what streamgda saved, which saving would delete: "
            f"choose a path of its own, or remove it first"
        )


def _holds_zarr(store: Any, path: str) -> bool:
    import zarr  # noqa: PLC0415

    try:
        zarr.open(store, path=path, mode="r")
    except FileNotFoundError:
        return False
    return True


@contextlib.contextmanager
def _opened(store: Any) -> Iterator[zarr.Group]:
    """The group, through a store that shows nothing but what `write` writes."""
    import zarr  # noqa: PLC0415

    from streamgda.storage.guards import Guarded  # noqa: PLC0415  (it needs zarr)

    with _store_of(store) as find:
        try:
            opened, inside = find()
            group = zarr.open_group(
                Guarded(opened), mode="r", path=inside, zarr_format=3, use_consolidated=False
            )
        except Exception as error:  # what is wrong depends on the store and its codecs
            if _as_path(store) is None and may_pass(error):
                raise ReadError(f"{store} cannot be read: {brief(error)}") from error
            raise FormatError(f"{store} is not a zarr group that can be read: {error!r}") from error
        yield group


@contextlib.contextmanager
def _store_of(store: Any) -> Iterator[Callable[[], tuple[Any, str]]]:
    """A function that gives the zarr store and the path in it; what it opens is closed."""
    path = _as_path(store)
    if path is not None and not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    with contextlib.ExitStack() as stack:

        def find() -> tuple[Any, str]:
            opened, inside = _as_store(path or store)
            if path is not None:
                stack.callback(_close, opened)
            return opened, inside

        yield find


def _as_path(store: Any) -> Path | None:
    """The local path that is meant, if one is."""
    return Path(store) if isinstance(store, str | Path) and "://" not in str(store) else None


def _as_store(store: Any) -> tuple[Any, str]:
    """A zarr store to read from, and the path in it."""
    import zarr  # noqa: PLC0415

    if isinstance(store, zarr.Group):
        store = store.store_path
    if isinstance(store, zarr.storage.StorePath):
        return store.store, store.path
    if isinstance(store, Path):
        if store.is_file():  # under whatever name
            return zarr.storage.ZipStore(store, mode="r"), ""
        return zarr.storage.LocalStore(store, read_only=True), ""
    if isinstance(store, str):
        return zarr.storage.FsspecStore.from_url(store, read_only=True), ""
    if isinstance(store, dict):
        return zarr.storage.MemoryStore(store), ""
    return store, ""


def _close(archive: Any) -> None:
    with contextlib.suppress(AttributeError):  # what zarr raises where opening has failed
        archive.close()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def pack_triangles(matrices: np.ndarray) -> np.ndarray:
    """The lower triangles of matrices, row by row: shape (groups, d (d + 1) / 2).

    Parameters
    ----------
    matrices : ndarray, shape (groups, d, d)

    Examples
    --------
    >>> pack_triangles(np.arange(9).reshape(1, 3, 3))
    array([[0, 3, 4, 6, 7, 8]])
    """
    groups, d, _ = matrices.shape
    packed = np.empty((groups, d * (d + 1) // 2), matrices.dtype)
    for i in range(d):
        packed[:, i * (i + 1) // 2 :][:, : i + 1] = matrices[:, i, : i + 1]
    return packed


def unpack_triangles(packed: np.ndarray) -> np.ndarray:
    """Matrices from `pack_triangles`, with zeros above their diagonals.

    Raises
    ------
    ValueError
        Where these are no triangles.
    """
    groups, size = packed.shape
    d = math.isqrt(2 * size)
    if d * (d + 1) // 2 != size:
        raise ValueError(f"{size} numbers are no triangle of a matrix")
    matrices = np.zeros((groups, d, d), packed.dtype)
    for i in range(d):
        matrices[:, i, : i + 1] = packed[:, i * (i + 1) // 2 :][:, : i + 1]
    return matrices


def pack_labels(labels: np.ndarray) -> dict[str, Any]:
    """Class labels as JSON: their data type and their values."""
    if labels.dtype.kind in "US" and labels.nbytes > _PADDED_BYTES:
        labels = np.array(labels.tolist(), labels.dtype.kind)  # no wider than it must be
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
        labels = _unpacked(np.dtype(str(packed["dtype"])), packed["values"])
        valid = labels.ndim == 1 and bool((labels[:-1] < labels[1:]).all())
        if labels.dtype.kind in "fmM":
            valid = valid and bool(np.isfinite(labels).all())
    except Exception as error:  # numpy raises most kinds, of types and values that are made up
        raise FormatError(f"saved labels are damaged: {error!r:.500}") from None
    if not valid:
        raise FormatError(f"saved labels are damaged: {labels.tolist()!r:.500} are not sorted")
    return labels


def _unpacked(dtype: np.dtype, values: list[Any]) -> np.ndarray:
    if not isinstance(values, list):
        raise TypeError(f"values of type {type(values).__name__}")
    if dtype.kind in "US":
        values = values if dtype.kind == "U" else [bytes.fromhex(value) for value in values]
        labels = np.array(values, dtype.kind)
        if labels.itemsize > dtype.itemsize or len(values) * dtype.itemsize > max(
            labels.nbytes, _PADDED_BYTES
        ):
            raise ValueError(f"{dtype} for labels of {labels.dtype}")
        return labels.astype(dtype)
    if dtype.kind in "mM":
        return np.array(values, np.int64).view(dtype)
    if dtype.kind not in _NUMBERS or dtype.itemsize > 8:
        raise TypeError(f"dtype {dtype}")
    return np.array(values, dtype)
