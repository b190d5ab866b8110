"""The format of saved objects: arrays and JSON attributes as a versioned zarr group.

A group holds numbers and JSON, in a directory, a zip file or any zarr store. Reading it never
executes anything, and takes memory in proportion to the bytes that are there, because arrays are
not compressed. They are small all the same: integers are written in four bytes where all values of
an array fit. This module knows nothing of what the arrays mean.

The description of the object, an attribute of the group, holds checksums of all arrays and of
itself, and every array has the description's checksum as an attribute. So a file or a zip member
that was taken from another saved object does not fit the others, even where all numbers are equal.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

from streamgda.errors import FormatError, InvalidParameterError, SourceError, cause_of
from streamgda.runtime.parameters import shown
from streamgda.storage import opening

FORMAT = "streamgda"
VERSION = 4
_READABLE = (VERSION,)

MOST_METADATA = 1 << 28  # bytes of a zarr.json, or of the table of contents of a zip file
MOST_ROWS = 1 << 53  # that a count can have: beyond, counts of rows are not exact in float64
_ROUNDING = 1e-6  # by which sums of squares may fall below zero, relative to the largest of them

NUMBERS = "biuf"  # kinds of the data types that are saved as arrays
# What labels of each kind of data type are in JSON.
_JSON_TYPES: dict[str, type] = {"b": bool, "f": float} | dict.fromkeys("iumM", int)
_JSON_TYPES |= dict.fromkeys("US", str)
_PADDED_BYTES = 1 << 20  # most bytes of text labels that are padded to a greater width

_CHUNK_BYTES = 1 << 23
_FEW_PARTS = 16
_BINDING = "streamgda_checksum"  # the attribute of arrays
_COMPARED = (  # entries of an array's metadata
    *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
    *("codecs", "storage_transformers", "attributes"),
)
_INT64 = np.dtype(np.int64)
_NARROW = (np.dtype(np.uint32), np.dtype(np.int32))  # stored types of int64 arrays that fit


def write(
    store: Any, kind: str, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a group of a kind, replacing the saved group that is there.

    Parameters
    ----------
    store : path, zarr store or zarr group
        A path that ends in ``.zip`` becomes a zip file, any other path a directory.
    kind : str
        Kind of the saved object, which `read` expects.
    attributes : dict
        Values that JSON can hold.
    arrays : dict of str to ndarray
        Names may contain slashes: these arrays are written to groups within the group.

    Raises
    ------
    SourceError
        If the store holds anything else, which replacing would delete.
    InvalidParameterError
        If the attributes are longer than any that `read` accepts.
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
    # zarr writes it with line breaks and spaces. A few more bytes surround it.
    size = len(json.dumps({"attributes": {FORMAT: description}}, indent=2))
    if size > MOST_METADATA - (1 << 10):
        raise InvalidParameterError(
            f"labels, names and offset take {size} bytes as JSON; at most {MOST_METADATA} bytes "
            f"can be read again"
        )
    opening.undisturbed(store, _fill, store, description, written)


def _fill(store: Any, description: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write the group of this description."""
    from streamgda.storage.guards import replaced_group  # noqa: PLC0415  (it needs zarr)

    check = partial(_check_replaceable, store)
    new = replaced_group(store, check, attributes={FORMAT: description})
    with opening.writing(store), new as group:
        for name, array in arrays.items():
            binding = {_BINDING: description["checksum"]}
            layout = _layout(array.shape, array.dtype)
            # A copy, as stores in memory keep what they are given.
            group.create_array(name, attributes=binding, **layout)[...] = array.copy()


def check_offset(offset: Any) -> None:
    """Raise `InvalidParameterError` unless JSON can hold an offset, and gives it back."""
    try:
        json.dumps(offset, allow_nan=False)
        _check_keys(offset)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(
            f"offset={shown(offset)} cannot be kept: {error}. Give a value that JSON can hold, "
            f"such as a number, a string, or a dict of them"
        ) from None


def _check_keys(value: Any) -> None:
    """Raise TypeError for keys of dicts that JSON would turn into strings."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"the key {shown(key)} is not a string")
    if isinstance(value, Mapping | list | tuple):
        for entry in value.values() if isinstance(value, Mapping) else value:
            _check_keys(entry)


@opening.reread_if_replaced
def read(store: Any, kind: str | None = None) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Read a group of a kind, or of any.

    Parameters
    ----------
    store : path, zarr store or zarr group
    kind : str, optional

    Returns
    -------
    kind : str
    attributes : dict
    arrays : dict of str to ndarray

    Raises
    ------
    SourceNotFoundError
        If the store does not exist.
    FormatError
        If the store holds anything else, has an unknown version, or is damaged.
    """
    with _opened(store) as (group, attributes):
        head, checksum = _description(group, attributes, kind)
        try:
            binding = {} if head["version"] == 3 else {_BINDING: checksum}
            arrays = {n: _array(group, n, binding, *spec) for n, spec in head["arrays"].items()}
        except Exception as error:  # a store may raise any kind, and so may impossible numbers
            raise FormatError(f"{group} is damaged: {error!r}") from cause_of(error)
        return str(head["kind"]), dict(head["attributes"]), arrays


@opening.reread_if_replaced
def kind_of(store: Any) -> str:
    """Return the kind of a saved group; errors as of `read`."""
    with _opened(store) as (group, attributes):
        return str(_description(group, attributes, None)[0]["kind"])


def checksum_of(description: Mapping[str, Any]) -> int:
    """Return the checksum of a description that does not include its checksum yet."""
    return zlib.crc32(json.dumps(description, sort_keys=True).encode())


# --- reading ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(store: Any) -> Iterator[tuple[Any, Any]]:
    """Open a group to read bytes, without zarr; provide it with its attributes."""
    from streamgda.storage.guards import Guarded  # noqa: PLC0415  (it needs zarr)

    found, inside = opening.locate(store)
    try:
        try:
            group = Guarded(found, inside)
            attributes = group.metadata().get("attributes")
        except Exception as error:  # the kind depends on the store
            message = f"{store} is not a zarr group that can be read: {error!r}"
            raise FormatError(message) from cause_of(error)
        yield group, attributes
    finally:
        opening.close(store, found)


def _description(group: Any, attributes: Any, kind: str | None) -> tuple[dict[str, Any], int]:
    """Return the description of a group and its checksum, after checking all but the arrays."""
    head = attributes.get(FORMAT) if isinstance(attributes, dict) else None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FormatError(f"{group} is a zarr group, but not one that streamgda saved")
    if type(head.get("version")) is not int or head["version"] not in _READABLE:
        raise FormatError(
            f"{group} has format version {head.get('version')!r}; this streamgda reads "
            f"version {', '.join(map(str, _READABLE))}. Update streamgda"
        )
    checksum = head.pop("checksum", None)
    try:
        intact = type(checksum) is int and checksum == checksum_of(head)
    except RecursionError:
        intact = False
    if not intact:
        raise FormatError(f"{group} is damaged: its description has another checksum")
    if kind is not None and head.get("kind") != kind:
        raise FormatError(f"{group} holds {head.get('kind')!r}, expected {kind!r}")
    parts = {"kind": str, "arrays": dict, "attributes": dict}
    if not all(isinstance(head.get(name), part) for name, part in parts.items()):
        raise FormatError(f"{group} is damaged: its description is incomplete")
    return head, checksum


def _array(
    group: Any,
    name: str,
    attributes: dict[str, Any],
    shape: Any,
    dtype_name: Any,
    crc: Any,
    meant: Any,
) -> np.ndarray:
    """Return an array whose metadata must be what `write` writes.

    It is created from its bytes, every chunk in its full length.
    """
    if len(name) > 100 or not re.fullmatch(r"[\w-]+(/[\w-]+)*", name):
        raise ValueError(f"{name!r} is not a name of an array")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"{name!r} has shape {shape!r}")
    dtype = np.dtype(str(dtype_name))
    narrow = dtype in _NARROW and meant == _INT64.str
    if dtype.str != dtype_name or dtype.kind not in NUMBERS or not (narrow or dtype.str == meant):
        raise ValueError(f"{name!r} has dtype {dtype_name!r} for {meant!r}")
    found = group.metadata(name)
    expected = _metadata(tuple(shape), dtype) | {"attributes": attributes}
    for key in _COMPARED:
        if found.get(key) != expected.get(key):
            raise FormatError(
                f"{name} has {key} {found.get(key)!r:.200}, expected {expected.get(key)}"
            )
    chunk_shape = expected["chunk_grid"]["configuration"]["chunk_shape"]
    n_bytes, data = math.prod(chunk_shape) * dtype.itemsize, bytearray()
    n_chunks = -(-shape[0] // chunk_shape[0]) if shape else 1
    for number in range(n_chunks if math.prod(shape) else 0):
        place = [str(number), *["0"] * len(shape)][: len(shape)]
        data += group.chunk("/".join([name, "c", *place]), n_bytes)
    del data[math.prod(shape) * dtype.itemsize :]
    array: np.ndarray = np.ndarray(tuple(shape), dtype, data)
    if _checksum(array) != crc:
        raise ValueError(f"{name!r} does not match its checksum")
    return array.astype(_INT64 if narrow else dtype.newbyteorder("="), copy=False)


@lru_cache
def _metadata(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """Return zarr's metadata of an array that `write` has written, as JSON holds it."""
    import zarr  # noqa: PLC0415

    array = zarr.create_array(zarr.storage.MemoryStore(), **_layout(shape, dtype))
    return json.loads(json.dumps(array.metadata.to_dict()))


# --- writing ----------------------------------------------------------------------------------


def _check_replaceable(store: Any, _: Any) -> None:
    """Raise SourceError if the store holds anything that streamgda did not save."""

    def arrays_of(node: Any) -> list[str] | None:
        if FORMAT not in node.attrs:  # an empty group of the caller's store may be filled
            return None if opening.local_path(store) is not None else []
        head = node.attrs[FORMAT]
        return [*map(str, head.get("arrays") or ())] if isinstance(head, dict) else []

    other = opening.stranger(store, arrays_of)
    if other is not None:
        raise SourceError(
            f"{store} holds something else than a saved object of streamgda, and saving would "
            f"delete it ({other}): choose another path, or remove it first"
        )


def _narrowed(array: np.ndarray) -> np.ndarray:
    """Return integers in four bytes each, if all of them fit."""
    if array.dtype == _INT64 and array.size:
        low, high = array.min(), array.max()
        for dtype in _NARROW:
            if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
                return array.astype(dtype)
    return array


def _checksum(array: np.ndarray) -> int:
    return zlib.crc32(array.data if array.size else b"")


def _layout(shape: tuple[int, ...], dtype: np.dtype) -> dict[str, Any]:
    """Return the layout of an array: uncompressed, in equal chunks along the first axis."""
    chunks: tuple[int, ...] = ()
    if shape:
        row = max(1, math.prod(shape[1:]) * dtype.itemsize)
        least = max(1, -(-shape[0] // max(1, _CHUNK_BYTES // row)))
        # The last chunk is written in full too, which matters if there are few.
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


# --- triangles of matrices, and labels as JSON ------------------------------------------------


def pack_triangles(matrices: np.ndarray) -> np.ndarray:
    """Return the lower triangles of matrices, row by row: shape (groups, d (d + 1) / 2).

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
    """Return the matrices that `pack_triangles` packed, with zeros above their diagonals.

    Raises
    ------
    ValueError
        If the length is not that of a triangle.
    """
    groups, size = packed.shape
    d = math.isqrt(2 * size)
    if d * (d + 1) // 2 != size:
        raise ValueError(f"{size} numbers do not fill a triangle of a matrix")
    matrices = np.zeros((groups, d, d), packed.dtype)
    for i in range(d if groups else 0):  # without groups, no bytes vouch for the size
        matrices[:, i, : i + 1] = packed[:, i * (i + 1) // 2 :][:, : i + 1]
    return matrices


def pack_labels(labels: np.ndarray) -> dict[str, Any]:
    """Return class labels as JSON: their data type and their values."""
    if labels.dtype.kind in "US" and labels.nbytes > _PADDED_BYTES:
        labels = np.array(labels.tolist(), labels.dtype.kind)  # as narrow as possible
    dtype = labels.dtype
    values = labels.view(np.int64) if dtype.kind in "mM" else labels
    if dtype.kind == "S":
        return {"dtype": dtype.str, "values": [label.hex() for label in labels.tolist()]}
    return {"dtype": dtype.str, "values": values.tolist()}


def unpack_labels(packed: Mapping[str, Any]) -> np.ndarray:
    """Return the sorted class labels that `pack_labels` packed.

    Raises
    ------
    FormatError
        If the contents are damaged.
    """
    try:
        labels = _unpacked(np.dtype(str(packed["dtype"])), packed["values"])
        valid = labels.ndim == 1 and bool((labels[:-1] < labels[1:]).all())
        if labels.dtype.kind in "fmM":
            valid = valid and bool(np.isfinite(labels).all())
        if labels.dtype.kind == "f":
            valid = valid and bool((labels == np.floor(labels)).all())
        if not valid:
            raise ValueError(f"{labels.tolist()!r:.400} are not the sorted labels of classes")
        return labels
    except Exception as error:  # NumPy raises almost any kind for invented data types
        raise FormatError(f"saved labels are damaged: {error!r:.500}") from None


def _unpacked(dtype: np.dtype, values: list[Any]) -> np.ndarray:
    kind = _JSON_TYPES.get(dtype.kind)
    if kind is None or not isinstance(values, list) or not {*map(type, values)} <= {kind}:
        raise TypeError(f"{values!r:.100} as values of {dtype}")
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
    if dtype.itemsize > 8:
        raise TypeError(f"dtype {dtype}")
    return np.array(values, dtype)


# --- checks of contents, shared by all kinds of saved objects ---------------------------------
#
# They raise ValueError, OverflowError or TypeError, which `restore` reports as damage.


def check_array(
    name: str,
    array: np.ndarray | None,
    shape: tuple[int, ...],
    dtype: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
) -> None:
    """Raise ValueError unless an array has this shape and type, and finite values.

    Parameters
    ----------
    name : str
        Name of the array in errors.
    array : ndarray or None
        None, where a file lacks an array, raises KeyError.
    shape : tuple of int
    dtype : str
        Data type without its byte order.
    least, most : float
        Limits of the values.
    """
    if array is None:
        raise KeyError(name)
    if array.shape != shape or array.dtype.str[1:] != dtype:
        raise ValueError(
            f"its arrays do not fit each other: {name} has shape {array.shape} and dtype "
            f"{array.dtype}, expected {shape} and {dtype}"
        )
    if array.size:
        low, high = array.min(), array.max()  # NaN if there is any
        if not (-math.inf < low and high < math.inf and least <= low and high <= most):
            raise ValueError(f"{name} holds impossible values, from {low} to {high}")


def check_count(count: np.ndarray, n_classes: int, dtype: str) -> None:
    """Raise ValueError unless these are the numbers of rows of classes, or their weights."""
    check_array("count", count, (n_classes,), dtype, least=0)
    total = count.sum(dtype=np.float64)
    if not total <= (MOST_ROWS if dtype == "i8" else np.finfo(np.float64).max):
        raise ValueError(f"the counts of the classes sum to {total:g}")


def check_squares(name: str, squares: np.ndarray) -> None:
    """Raise ValueError if sums of squares are negative by more than rounding."""
    if squares.size and squares.min() < -_ROUNDING * abs(squares.max()):
        raise ValueError(f"{name} has the negative sum of squares {squares.min():g}")


def check_whole(name: str, value: Any, least: int, most: int = MOST_ROWS) -> int:
    """Return a whole number; raise ValueError unless it is one from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.100}, expected a whole number of at least {least}")
    return value


def check_number(name: str, value: Any) -> Any:
    """Return a number as it is; raise an error unless it is finite and fits in float64."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r:.100}, expected a finite number")
    return value


def check_flag(name: str, value: Any) -> bool:
    """Return True or False; raise ValueError for anything else."""
    if type(value) is not bool:
        raise ValueError(f"{name} is {value!r:.100}, expected true or false")
    return value


def check_texts(name: str, values: Any, n: int) -> list[str]:
    """Return a list of strings; raise ValueError unless it is one of length `n`."""
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"{name} are {values!r:.100}, expected a list of {n} strings")
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} are not all strings")
    return values
