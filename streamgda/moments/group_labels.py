"""Labels of groups: any that classes can have, and none may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import is_masked
from streamgda.rows.labels import Labels, as_labels, as_maskable_labels, encode, find, without_mask
from streamgda.runtime.parameters import shown


def group_labels(groups: Any, first_row: int = 0, what: str = "groups") -> Labels:
    """Return the groups of rows as labels; by their codes if there are many.

    Raises
    ------
    InvalidDataError
        If a group is missing, or for labels that classes cannot have either.
    """
    labels = as_maskable_labels(groups, what, first_row)
    if is_masked(labels):
        row = first_row + int(np.ma.getmaskarray(labels).argmax())
        raise InvalidDataError(
            f"{what}[{row}] is missing (None, NaN or masked), and every row needs a group: give "
            f"rows of unknown origin a group of their own, such as 'unknown', or leave them out",
            *(what, row),
        )
    return labels


def encoded(labels: Labels, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of labels, and the classes; some number for labels that are missing."""
    if is_masked(labels) and labels.mask.all():
        return np.zeros(labels.size, np.int64), classes
    return encode(without_mask(labels), classes)


def number_of(group: object, groups: np.ndarray) -> int:
    """Return the number of a group, -1 if it is none of them."""
    try:
        label = as_labels([group], "group")
    except InvalidDataError:
        return -1
    return int(find(label, groups)[0])


def checked_number(group: object, groups: np.ndarray, error: type[Exception]) -> int:
    """Return the number of a group; raise `error` if it is none of them."""
    number = number_of(group, groups)
    if number < 0:
        raise error(f"{shown(group)} is not among the groups {groups.tolist()!s:.500}")
    return number
