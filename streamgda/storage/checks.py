"""Checks of the contents of saved files, shared by all kinds of saved objects.

They raise ValueError, OverflowError or TypeError, which `streamgda.storage.saved.restore` reports
as damage.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

MOST_METADATA = 1 << 28  # bytes of a zarr.json, or of the table of contents of a zip file
MOST_ROWS = 1 << 53  # that a count can have: beyond, counts of rows are not exact in float64
_ROUNDING = 1e-6  # by which sums of squares may fall below zero, relative to the largest of them


def check_array(
    name: str,
    array: np.ndarray,
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
    array : ndarray
    shape : tuple of int
    dtype : str
        Data type without its byte order.
    least, most : float
        Limits of the values.
    """
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


def check_names(arrays: Mapping[str, Any], names: Collection[str]) -> None:
    """Raise ValueError unless there are arrays of these names and no others."""
    if arrays.keys() != {*names}:
        raise ValueError(f"it holds the arrays {sorted(arrays)}, expected {sorted(names)}")


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
