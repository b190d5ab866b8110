"""The format of saved objects: named arrays and a JSON head in an npz file.

Reading executes nothing, and takes memory in proportion to the bytes of the file: no member is
compressed, and an array is never larger than its member. docs/recipes/saving.md describes the
format. This module knows nothing of what the arrays mean.
"""

from __future__ import annotations

import json
import math
import operator
import sys
import zipfile
from collections.abc import Mapping
from functools import reduce
from typing import Any, BinaryIO

import numpy as np

from streamgda.errors import FormatError, InvalidParameterError

VERSION = 1
HEAD = "streamgda.json"  # The first member has this name.

State = dict[str, Any]  # Arrays, values that JSON can hold, and states of parts, by name.

MOST_ROWS = 1 << 53  # Beyond, counts of rows are not exact in float64.

_MOST = sys.float_info.max
_WORD = 8  # The longest floats of labels have so many bytes.
_LOCAL_HEADER = 30  # So many bytes are before the name of the first member.


def write(file: BinaryIO, kind: str, state: Mapping[str, Any]) -> None:
    """Write a state.

    Parameters
    ----------
    file : binary file
        An empty file that can be read and written at any place.
    kind : str
        Name of the class of the saved object.
    state : dict
        Arrays of numbers or flags, values that JSON can hold, and dicts of these.

    Raises
    ------
    InvalidParameterError
        If JSON cannot hold the values. Nothing is written.
    """
    arrays: dict[str, np.ndarray] = {}
    attributes = _without_arrays(state, "", arrays)
    listed = {name: {"dtype": a.dtype.str, "shape": a.shape} for name, a in arrays.items()}
    head = {"version": VERSION, "kind": kind, "attributes": attributes, "arrays": listed}
    try:
        text = json.dumps(head, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidParameterError(f"this cannot be saved as JSON: {error}") from None
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(HEAD), text)
        for name, array in arrays.items():
            about = zipfile.ZipInfo(f"{name}.npy")  # It has no time: equal objects, equal bytes.
            about.file_size = array.nbytes
            with archive.open(about, "w") as member:
                np.lib.format.write_array(member, array, (1, 0), allow_pickle=False)


def _without_arrays(state: Mapping[str, Any], path: str, arrays: dict[str, np.ndarray]) -> State:
    """Return a state without its arrays, which are added to `arrays` by their paths."""
    rest = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[path + name] = np.asarray(value, value.dtype.newbyteorder("<"), order="C")
        elif isinstance(value, dict):
            rest[name] = _without_arrays(value, f"{path}{name}/", arrays)
        else:
            rest[name] = value
    return rest


def read(file: BinaryIO) -> tuple[str, State]:
    """Return the kind and the state that `write` wrote; arrays are new, in native byte order.

    Raises
    ------
    FormatError
        If the file is another one, or of another version.
    Exception
        Of any kind, if it is damaged. Each member has a checksum.
    """
    if not is_saved(file):
        raise FormatError("it is not a file that streamgda saved")
    size = file.seek(0, 2)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if any(m.compress_type for m in members) or sum(m.compress_size for m in members) > size:
            raise ValueError("it has members that are compressed, or longer than the file")
        head = json.loads(archive.read(HEAD))
        if head["version"] != VERSION:
            raise FormatError(
                f"it has version {head['version']!r:.100} of the format; this streamgda reads "
                f"version {VERSION}: update streamgda"
            )
        state, listed = head["attributes"], head["arrays"]
        if [member.filename for member in members] != [HEAD, *(f"{name}.npy" for name in listed)]:
            raise ValueError("it does not have the arrays that its head lists")
        for name, about in listed.items():
            *parts, own = name.split("/")
            part = reduce(operator.getitem, parts, state)
            part[own] = _array(archive.read(f"{name}.npy"), **about)
    return head["kind"], state


def is_saved(file: BinaryIO) -> bool:
    """Return True if a file that is open at its start begins as those that `write` writes."""
    start = file.read(_LOCAL_HEADER + len(HEAD))
    return start.startswith(b"PK\3\4") and start[_LOCAL_HEADER:] == HEAD.encode()


def _array(member: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    """Return the array at the end of a member, after the header of the npy format."""
    stored = np.dtype(dtype)
    if stored.kind not in "biuf":
        raise ValueError(f"an array has the data type {stored}")
    start = len(member) - math.prod(shape) * stored.itemsize
    values = np.frombuffer(member, stored, offset=start).reshape(shape)
    return values.astype(stored.newbyteorder("="))


# --- labels as JSON -----------------------------------------------------------------------


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
    Exception
        Of any kind, if the contents are damaged.
    """
    dtype, values = np.dtype(packed["dtype"]), packed["values"]
    stored = {"M": np.dtype(np.int64), "U": np.dtype("U")}.get(dtype.kind, dtype)
    labels = np.array(values, stored)
    labels = labels.view(dtype) if dtype.kind == "M" else labels
    sound = labels.ndim == 1 and dtype.kind in "biufMU" and (labels[:-1] < labels[1:]).all()
    if dtype.kind == "f":
        sound = sound and dtype.itemsize <= _WORD and (labels % 1 == 0).all()
    if not sound or (dtype.kind == "M" and np.isnat(labels).any()):
        raise ValueError(f"{values!r:.400} are not the sorted labels of classes")
    return labels


# --- checks of contents, shared by all kinds of saved objects ---------------------------------


def check_array(
    name: str, array: np.ndarray, shape: tuple[int, ...], dtype: str, least: float = -_MOST
) -> None:
    """Raise ValueError unless an array has this shape and type, and finite values.

    Parameters
    ----------
    name : str
        Name of the array in errors.
    array : ndarray
    shape : tuple of int
    dtype : str
        Data type without its byte order.
    least : float
        Lower limit of the values.
    """
    if array.shape != shape or array.dtype.str[1:] != dtype:
        raise ValueError(
            f"its arrays do not fit each other: {name} has shape {array.shape} and dtype "
            f"{array.dtype}, expected {shape} and {dtype}"
        )
    if array.size and not (least <= array.min() and array.max() <= _MOST):  # NaN is neither.
        raise ValueError(f"{name} holds impossible values, from {array.min()} to {array.max()}")


def check_whole(name: str, value: Any, least: int, most: int = MOST_ROWS) -> int:
    """Return a whole number; raise ValueError unless it is one from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} is {value!r:.100}, expected a whole number of at least {least}")
    return value
