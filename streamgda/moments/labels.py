"""Class labels of any sortable kind, and the codes that the kernels work with."""

from __future__ import annotations

import numpy as np

from streamgda.errors import InvalidDataError

# Integer labels are looked up in a table where they span no more than this.
_TABLE = 1 << 20


def as_labels(y: object, what: str = "y") -> np.ndarray:
    """Labels as a one-dimensional array of a sortable kind, without NaN.

    Raises
    ------
    InvalidDataError
        For labels that are missing, mixed, continuous, complex or not one-dimensional.
    """
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise InvalidDataError(
            f"{what} has shape {labels.shape}, expected one label a row: shape (n_rows,)"
        )
    kind = labels.dtype.kind
    if kind == "O":
        labels = _from_objects(labels, what)
    elif kind == "T":  # numpy's variable-width strings, as zarr reads them
        labels = labels.astype(np.str_)
    elif kind == "f":
        bad = np.flatnonzero(labels != np.floor(labels))  # finds NaN too, and lets infinity pass
        bad = bad if bad.size else np.flatnonzero(np.isinf(labels))
        if bad.size:
            raise InvalidDataError(
                f"Unknown label type: continuous. {what}[{bad[0]}] is {labels[bad[0]]}; class "
                f"labels are whole numbers, strings, booleans or dates (maybe you are trying to "
                f"fit a classifier on a regression target; or input contains NaN)"
            )
    elif kind in "mM":
        if np.isnat(labels).any():
            raise InvalidDataError(f"{what}[{np.flatnonzero(np.isnat(labels))[0]}] is NaT")
    elif kind not in "biuUS":
        raise InvalidDataError(
            f"{what} has dtype {labels.dtype}; class labels are whole numbers, strings, booleans "
            f"or dates"
        )
    return labels


def _from_objects(labels: np.ndarray, what: str) -> np.ndarray:
    kinds = {type(label) for label in labels}
    if all(issubclass(kind, str) for kind in kinds):
        return labels.astype(np.str_)
    try:
        plain = np.array(labels.tolist())
    except ValueError:
        plain = labels
    numbers = all(issubclass(kind, int | float | np.number | np.bool_) for kind in kinds)
    if plain.dtype.kind in "biuf" and numbers:
        return as_labels(plain, what)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise InvalidDataError(
        f"Unknown label type: {what} holds objects of type {names}; class labels of one kind are "
        f"expected: whole numbers, strings, booleans or dates"
    )


def join_labels(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sorted union of two sorted sets of labels.

    Raises
    ------
    InvalidDataError
        Where the labels are of kinds that do not mix, such as numbers and strings.
    """
    if not b.size:
        return a
    if not a.size:
        return b
    if _family(a) != _family(b):
        raise InvalidDataError(
            f"labels of dtype {b.dtype} (such as {b[0]!r}) do not mix with classes of dtype "
            f"{a.dtype} (such as {a[0]!r}); give all labels in one kind"
        )
    return np.union1d(a, b)


def _family(labels: np.ndarray) -> str:
    return "n" if labels.dtype.kind in "biuf" else labels.dtype.kind


def encode(y: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes of the labels, and the classes that they number: `classes` and all others seen.

    Returns
    -------
    codes : ndarray of int64, shape (n_rows,)
    classes : ndarray, sorted
    """
    if not y.size:
        return np.empty(0, np.int64), classes
    if y.dtype.kind in "iu":
        low, high = int(y.min()), int(y.max())
        if high - low < _TABLE:
            return _encode_integers(y, low, high, classes)
    if classes.size and _family(classes) == _family(y):
        codes = np.searchsorted(classes, y)
        codes[codes == classes.size] = 0
        unknown = classes[codes] != y
        if not unknown.any():
            return codes, classes
        joined = join_labels(classes, np.unique(y[unknown]))
    else:
        joined = join_labels(classes, np.unique(y))
    return np.searchsorted(joined, y), joined


def _encode_integers(
    y: np.ndarray, low: int, high: int, classes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    codes = np.subtract(y, low, dtype=np.int64, casting="unsafe")
    offsets = np.flatnonzero(np.bincount(codes, minlength=high - low + 1))
    values = (offsets + low).astype(y.dtype)
    if not (classes.size and _family(classes) == "n" and np.isin(values, classes).all()):
        classes = join_labels(classes, values)
    table = np.zeros(high - low + 1, np.int64)
    table[offsets] = np.searchsorted(classes, values)
    return table[codes], classes
