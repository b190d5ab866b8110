"""Packed forms of matrices and labels: triangles of matrices, labels as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamgda.errors import FormatError

NUMBERS = "biuf"  # kinds of the data types that are saved as arrays
# What labels of each kind of data type are in JSON.
_JSON_TYPES: dict[str, type] = {"b": bool, "f": float} | dict.fromkeys("iumM", int)
_JSON_TYPES |= dict.fromkeys("US", str)
_PADDED_BYTES = 1 << 20  # most bytes of text labels that are padded to a greater width


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
    except Exception as error:  # NumPy raises almost any kind for invented data types
        raise FormatError(f"saved labels are damaged: {error!r:.500}") from None
    if not valid:
        raise FormatError(
            f"saved labels are damaged: {labels.tolist()!r:.500} are not the sorted labels of "
            f"classes"
        )
    return labels


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
