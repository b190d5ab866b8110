"""The format of saved objects: named arrays and a JSON head in an npz file.

Reading executes nothing, and takes no more memory than the file has bytes: no member is compressed,
and every size is compared with what is there before memory is taken. docs/recipes/saving.md
describes the format. This module knows nothing of what the arrays mean.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from streamgda.errors import FormatError, InvalidParameterError
from streamgda.runtime.parameters import shown

FORMAT = "streamgda"
VERSION = 1
HEAD = "streamgda.json"  # The first member has this name.

Contents = tuple[str, dict[str, Any], dict[str, np.ndarray]]  # kind, attributes (JSON), arrays

MOST_ROWS = 1 << 53  # that a count can have: beyond, counts of rows are not exact in float64
_ROUNDING = 1e-6  # by which sums of squares may fall below zero, relative to the largest of them

NUMBERS = "biuf"  # kinds of the data types that are saved as arrays
# What labels of each kind of data type are in JSON.
_JSON_TYPES: dict[str, type] = {"b": bool, "f": float, "U": str} | dict.fromkeys("iuM", int)
_WORD = 8  # The longest floats of labels have so many bytes.

_LOCAL_HEADER = 30  # bytes before the name of the first member
_CHECKSUM = 8  # So many hexadecimal digits end the file.
_BLOCK = 1 << 20  # The checksum is computed by so many bytes at a time.
_UNIX = 3  # All files name this system, so that equal objects have equal bytes.


def write(
    file: BinaryIO, kind: str, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write arrays and attributes.

    Parameters
    ----------
    file : binary file
        An empty file that can be read and written at any place.
    kind : str
        Kind of the saved object.
    attributes : dict
        Values that JSON can hold.
    arrays : dict of str to ndarray
        Arrays of numbers or flags. Names may contain slashes.

    Raises
    ------
    InvalidParameterError
        If JSON cannot hold the attributes. Nothing is written.
    """
    stored = {n: np.asarray(a, a.dtype.newbyteorder("<"), order="C") for n, a in arrays.items()}
    head = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind,
        "attributes": dict(attributes),
        "arrays": {n: {"dtype": a.dtype.str, "shape": a.shape} for n, a in stored.items()},
    }
    try:
        text = json.dumps(head, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"this cannot be saved as JSON: {error}") from None
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_member(HEAD, len(text)), text)
        for name, array in stored.items():
            with archive.open(_member(f"{name}.npy", array.nbytes), "w") as member:
                np.lib.format.write_array(member, array, (1, 0), allow_pickle=False)
        archive.comment = b"0" * _CHECKSUM
    checksum = _checksum(file)
    file.seek(-_CHECKSUM, 2)
    file.write(checksum)


def read(file: BinaryIO) -> Contents:
    """Read what `write` wrote.

    Returns
    -------
    kind : str
    attributes : dict
    arrays : dict of str to ndarray
        New arrays, in the byte order of this machine.

    Raises
    ------
    FormatError
        If the file holds anything else, has an unknown version, or is damaged. The message does
        not name the file.
    """
    if not is_saved(file):
        raise FormatError("it is not a file that streamgda saved")
    checksum, found = _checksum(file), file.read()
    if checksum != found:
        raise FormatError("it is damaged or incomplete: it does not have its own checksum")
    size = file.tell()
    try:
        with zipfile.ZipFile(file) as archive:
            return _read(archive, size)
    except (FormatError, MemoryError):
        raise
    except Exception as error:  # zipfile and NumPy raise almost any kind for invented contents
        raise FormatError(f"it is damaged: {error!r:.500}") from None


def is_saved(file: BinaryIO) -> bool:
    """Return True if a file that is open at its start begins as those that `write` writes."""
    start = file.read(_LOCAL_HEADER + len(HEAD))
    return start.startswith(b"PK\3\4") and start[_LOCAL_HEADER:] == HEAD.encode()


def _read(archive: zipfile.ZipFile, size: int) -> Contents:
    members = archive.infolist()
    packed = any(m.compress_type or m.file_size != m.compress_size for m in members)
    if packed or sum(member.file_size for member in members) > size:
        raise FormatError("it has members that are compressed, or longer than the file")
    head = json.loads(archive.read(HEAD))
    json.dumps(head, allow_nan=False)  # NaN and infinity, which Python reads, are not JSON.
    if head["format"] != FORMAT:
        raise FormatError("it is not a file that streamgda saved")
    if head["version"] != VERSION:
        raise FormatError(
            f"it has version {head['version']!r:.100} of the format; this streamgda reads version "
            f"{VERSION}: update streamgda"
        )
    kind, attributes, listed = head["kind"], head["attributes"], head["arrays"]
    if [member.filename for member in members] != [HEAD, *(f"{name}.npy" for name in listed)]:
        raise FormatError("it does not have the arrays that its head lists")
    if type(kind) is not str or type(attributes) is not dict:
        raise FormatError("its head is incomplete")
    arrays = {name: _array(archive, name, **listed[name]) for name in listed}
    return kind, attributes, arrays


def _array(archive: zipfile.ZipFile, name: str, dtype: str, shape: list[int]) -> np.ndarray:
    """Return an array, which has to be in its member as the head says."""
    stored, info = np.dtype(dtype), archive.getinfo(f"{name}.npy")
    with archive.open(info) as member:
        np.lib.format.read_magic(member)
        header = np.lib.format.read_array_header_1_0(member)
        n_bytes = info.file_size - member.tell()
        if (
            stored.kind not in NUMBERS
            or header != (tuple(shape), False, stored)
            or math.prod(shape) * stored.itemsize != n_bytes
        ):
            raise ValueError(f"{name} has {n_bytes} bytes and the header {header!r:.200}")
        array = np.empty(shape, stored)
        into: Any = member
        into.readinto(array.reshape(-1).view(np.uint8))
    return array.astype(stored.newbyteorder("="), copy=False)


def _member(name: str, size: int) -> zipfile.ZipInfo:
    """Return a member that is not compressed and has no time."""
    member = zipfile.ZipInfo(name)
    member.create_system, member.file_size = _UNIX, size
    return member


def _checksum(file: BinaryIO) -> bytes:
    """Return the CRC-32 of all bytes but the last digits, where the file is left."""
    left = file.seek(0, 2) - _CHECKSUM
    file.seek(0)
    checksum = 0
    while left > 0:
        block = file.read(min(left, _BLOCK))
        checksum, left = zlib.crc32(block, checksum), left - len(block)
    return f"{checksum:0{_CHECKSUM}x}".encode()


def check_offset(offset: Any) -> None:
    """Raise `InvalidParameterError` unless JSON can hold an offset, and gives it back."""
    try:
        same = json.loads(json.dumps(offset, allow_nan=False)) == offset
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        raise InvalidParameterError(
            f"offset={shown(offset)} cannot be saved: give a value that JSON holds and gives back, "
            f"such as a number, a string, or a dict of them"
        )


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
    """Return class labels as JSON: their values, and their type, for texts the narrowest one."""
    if labels.dtype.kind == "U":
        labels = np.array(labels.tolist(), "U") if labels.size else labels.astype("U1")
    values = labels.view(np.int64) if labels.dtype.kind == "M" else labels
    return {"dtype": labels.dtype.str, "values": values.tolist()}


def unpack_labels(packed: Mapping[str, Any]) -> np.ndarray:
    """Return the sorted class labels that `pack_labels` packed.

    Raises
    ------
    FormatError
        If the contents are damaged.
    """
    try:
        dtype, values = np.dtype(str(packed["dtype"])), packed["values"]
        if type(values) is not list or not {*map(type, values)} <= {_JSON_TYPES[dtype.kind]}:
            raise TypeError(f"{values!r:.100} as values of {dtype}")
        stored = {"M": np.dtype(np.int64), "U": np.dtype("U")}.get(dtype.kind, dtype)
        labels = np.array(values, stored)
        labels = labels.view(dtype) if dtype.kind == "M" else labels
        valid = (labels[:-1] < labels[1:]).all() and (labels == labels).all()  # noqa: PLR0124
        if dtype.kind == "f":
            valid = valid and dtype.itemsize <= _WORD and (labels % 1 == 0).all()
        if labels.dtype != dtype or not valid:
            raise ValueError(f"{values!r:.400} are not the sorted labels of classes")
        return labels
    except Exception as error:  # NumPy raises almost any kind for invented data types
        raise FormatError(f"saved labels are damaged: {error!r:.500}") from None


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
