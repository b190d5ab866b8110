"""Masked arrays: a masked value is missing, whatever it is a value of."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.codes import CodedLabels
from streamgda.rows.tensors import as_numpy

REMEDY = (
    "leave such rows out or fill them in (on_invalid='skip' when learning, on_invalid='fill' when "
    "predicting)"
)
_MEANING = {
    "X": f"every value is needed; {REMEDY}",
    "y": "every row needs a label; leave such rows out, as on_invalid='skip' does",
    "sample_weight": "every row needs a weight; give rows that do not count the weight zero",
}
_LABELS = "every one is needed; leave out those that are masked"


def is_masked(values: Any) -> bool:
    """Return whether this is a masked array of which some values are masked."""
    masked = isinstance(values, np.ma.MaskedArray) and values.dtype.names is None
    return masked and bool(np.ma.getmask(values).any())


def as_slab(values: Any, name: str = "X") -> np.ndarray:
    """Return values as an array, which is a masked one only if some of them are masked.

    Collections of dask are evaluated; as an argument of `numpy.asarray` they would lose the mask.
    Tensors are copied from their device.

    Raises
    ------
    InvalidDataError
        If numpy cannot convert them.
    """
    if hasattr(values, "__dask_graph__"):
        values = values.compute()
    if is_masked(values) or type(values) is CodedLabels:
        return values
    try:
        return np.asarray(as_numpy(values))
    except ValueError as error:
        raise InvalidDataError(f"{name} cannot be converted to an array: {error}") from None


def unmasked(values: np.ndarray, name: str, first_row: int = 0) -> np.ndarray:
    """Return an array none of whose values are masked.

    Raises
    ------
    InvalidDataError
        For the first masked value; it counts rows from `first_row`.
    """
    if not is_masked(values):
        return values
    if not values.ndim:
        raise InvalidDataError(f"{name} is masked, which means missing")
    at, *columns = (int(i) for i in np.argwhere(np.ma.getmask(values))[0])
    row, column = first_row + at, columns[0] if columns else None
    where = f"{name}[{row}]" if column is None else f"row {row}, column {column} of {name}"
    raise InvalidDataError(
        f"{where} is masked, which means missing; {_MEANING.get(name, _LABELS)}",
        *(name, row, column),
    )
