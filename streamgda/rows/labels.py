"""Class labels: whole numbers, booleans, texts or dates, which are coded once, where rows enter."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, NoReturn

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels.sums import encode_labels
from streamgda.rows.source import as_array
from streamgda.runtime.parameters import shown

NONE = np.empty(0, np.int64)  # These are no classes.
_TABLE = 1 << 20  # Integers of at most this range are looked up in a table.
_EXACT = 1 << 53  # float64 holds all whole numbers up to it.
_DATES = (datetime.date, np.datetime64)
# Types of objects that can be labels together.
_KINDS: Any = (str, (bool, int, float, np.bool_, np.integer, np.floating), _DATES)
_OF_NO_CLASS = {"U": "", "M": np.datetime64("NaT", "s")}


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """Labels of rows by their codes.

    Attributes
    ----------
    codes : ndarray of int, shape (n_rows,)
        Number of each row's label in `values`; -1 if the label is missing.
    values : ndarray, sorted
        Different labels; some may occur in no row.
    """

    codes: np.ndarray
    values: np.ndarray

    ndim = 1

    def __len__(self) -> int:
        return self.codes.size

    def __getitem__(self, rows: Any) -> CodedLabels:
        """Return the labels of some rows."""
        return CodedLabels(self.codes[rows], self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the labels as an array, in which missing ones are None."""
        values = self.values
        if self.missing.any():
            values = np.array([*self.values.tolist(), None], object)
        return np.asarray(values[self.codes], dtype)

    @property
    def shape(self) -> tuple[int]:
        """Shape of an array of the labels."""
        return self.codes.shape

    @property
    def dtype(self) -> np.dtype:
        """Data type of the labels."""
        return self.values.dtype

    @property
    def missing(self) -> np.ndarray:
        """A boolean array that is True for missing labels."""
        return self.codes < 0

    def used(self, known: np.ndarray = NONE) -> CodedLabels:
        """Return the labels without the values that occur in no row, except those of `known`."""
        if self.values is known or not self.values.size:
            return self
        kept = np.bincount(self.codes[self.codes >= 0], minlength=self.values.size) > 0
        kept |= find(self.values, known) >= 0
        if kept.all():
            return self
        numbers = np.append(np.cumsum(kept) - 1, -1)  # A missing label has the last one.
        return CodedLabels(numbers[self.codes], self.values[kept])


def code(y: Any, known: np.ndarray = NONE, what: str = "y", first_row: int = 0) -> CodedLabels:
    """Return labels by their codes among sorted classes.

    A label is missing if it is None, NaN, NaT or the NA of pandas.

    Parameters
    ----------
    y : array-like of labels, or CodedLabels, shape (n_rows,)
    known : ndarray, sorted
        Classes so far. They are the `values` themselves if all labels are among them.
    what : str
        Name of the labels in errors.
    first_row : int
        Number of the first label in a larger array, from which errors count.

    Raises
    ------
    InvalidDataError
        For labels of other kinds, or of several kinds, and for another number of axes.

    Examples
    --------
    >>> coded = code(["bee", "ant", None, "bee"])
    >>> coded.codes, coded.values
    (array([ 1,  0, -1,  1]), array(['ant', 'bee'], dtype='<U3'))
    """
    labels = y if type(y) in (np.ndarray, CodedLabels) else as_array(y, what)
    if labels.ndim != 1:
        raise InvalidDataError(
            f"{what} has shape {labels.shape}, expected one label a row, in a list or an array of "
            f"shape (n_rows,)"
        )
    if isinstance(labels, CodedLabels):
        labels = labels.used()
    else:
        codes = find(labels, known)
        if known.size and codes.min(initial=0) >= 0:
            return CodedLabels(codes, known)
        labels = _distinct(labels, what, first_row)
    values = join_labels(known, labels.values)
    if values.size == known.size:
        values = known
    return CodedLabels(np.append(find(labels.values, values), -1)[labels.codes], values)


@lru_cache(16)
def _table_of(classes: bytes, dtype: np.dtype) -> tuple[int, np.ndarray] | None:
    """Return the least class, and a table: entry i is the number of the class that is i above.

    It is None if the classes, which are sorted, are too far apart.
    """
    values = _as_whole(np.frombuffer(classes, dtype))
    if values is None or (low := int(values[0])) + _TABLE <= int(values[-1]):
        return None
    table = np.full(int(values[-1]) - low + 1, -1)
    table[values - low] = np.arange(values.size)
    return low, table


def _as_whole(labels: np.ndarray) -> np.ndarray | None:
    """Return numbers as int64 if that holds all of them exactly; None otherwise."""
    dtype = labels.dtype
    if not labels.size or dtype.kind not in "biuf" or dtype == np.uint64 or dtype.itemsize > 8:
        return None
    with np.errstate(invalid="ignore"):
        whole = labels.astype(np.int64, copy=False)
    return None if dtype.kind == "f" and not _is_whole(labels).all() else whole


def _is_whole(numbers: np.ndarray) -> np.ndarray:
    """Return a boolean array that is True for whole numbers that float64 holds exactly."""
    numbers = numbers.astype(np.result_type(numbers, np.float32), copy=False)
    return (np.abs(numbers) <= _EXACT) & (numbers == np.floor(numbers))


def _distinct(labels: np.ndarray, what: str, first_row: int) -> CodedLabels:
    """Return labels by their codes among those that occur."""
    whole = _as_whole(labels)
    if whole is not None and (low := int(whole.min())) + _TABLE > int(whole.max()):
        values = (np.flatnonzero(np.bincount(whole - low)) + low).astype(labels.dtype)
        return CodedLabels(find(labels, values), values)
    if labels.dtype.kind in "OT":  # zarr reads texts of variable width as T.
        numbers: defaultdict[Any, int] = defaultdict(count().__next__)
        try:
            codes = np.fromiter(map(numbers.__getitem__, labels.tolist()), np.intp, labels.size)
        except TypeError as error:
            raise InvalidDataError(
                f"{what}: {error}; class labels are whole numbers, booleans, texts or dates"
            ) from None
        found = np.fromiter(numbers, object, len(numbers))
    else:
        found = np.unique(labels)
        codes = np.searchsorted(found, labels)  # It is faster than the inverse of `np.unique`.
    present = np.array([not _is_missing(value) for value in found], bool)

    def fail(number: int, why: str) -> NoReturn:
        row = int((codes == np.flatnonzero(present)[number]).argmax())
        raise InvalidDataError(
            f"Unknown label type: {why}: {what}[{first_row + row}] is "
            f"{shown(labels[row : row + 1].tolist()[0])}. Class labels are whole numbers, "
            f"booleans, texts or dates without time zones, all of one kind (maybe you are trying "
            f"to fit a classifier on a regression target)",
            *(what, first_row + row),
        )

    values, at = np.unique(_in_one_type(found[present], fail), return_inverse=True)
    of_value = np.full(present.size, -1)
    of_value[present] = at
    return CodedLabels(of_value[codes], values)


def _in_one_type(found: np.ndarray, fail: Callable[[int, str], NoReturn]) -> np.ndarray:
    """Return different labels as an array of one kind; call `fail` for the first other one."""
    if not found.size:
        return NONE
    if found.dtype.kind == "O":
        kind = next((kind for kind in _KINDS if isinstance(found[0], kind)), ())
        for number, value in enumerate(found):
            if not isinstance(value, kind):
                fail(number, "labels of several kinds" if kind else _why(value))
            if getattr(value, "tzinfo", None) is not None:
                fail(number, "a time with a zone (convert times to UTC)")
        objects, found = found, np.array(found.tolist(), "M8" if kind is _DATES else None)
        for number, (held, value) in enumerate(zip(found.tolist(), objects, strict=True)):
            if held != value and not isinstance(value, np.datetime64):
                fail(number, "no array holds these labels exactly")
    if found.dtype.kind == "f":
        other = np.flatnonzero(~_is_whole(found))
        if other.size:
            fail(int(other[0]), "continuous")
        return found.astype(np.float64) if found.dtype.itemsize > 8 else found
    if found.dtype.kind not in "biuUM":
        fail(0, _why(found[0]))
    return found


def _why(label: Any) -> str:
    if isinstance(label, complex | np.complexfloating):
        return "Complex data not supported"
    return "bytes (decode them with astype(str))" if isinstance(label, bytes) else "other objects"


def _is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, NaT or the NA of pandas."""
    if label is None or type(label).__name__ == "NAType":
        return True
    return isinstance(label, (float, np.floating, *_DATES)) and label != label  # noqa: PLR0124


def check_not_missing(labels: CodedLabels, what: str = "y", first_row: int = 0) -> None:
    """Raise `InvalidDataError` that names the first missing label, if there is one."""
    missing = np.flatnonzero(labels.codes < 0)
    if missing.size:
        row = first_row + int(missing[0])
        remedy = "on_invalid='skip' leaves such rows out and counts them"
        raise InvalidDataError(
            f"{what}[{row}] is missing, and every label is needed (input contains NaN or other "
            f"missing labels); {remedy if what == 'y' else 'leave it out'}",
            *(what, row),
        )


def as_labels(y: Any, what: str = "y", first_row: int = 0) -> np.ndarray:
    """Return labels as an array of one kind; raise the errors of `code`, also for missing ones."""
    if type(y) is np.ndarray and y.dtype.kind in "biu" and y.ndim == 1:
        return y
    coded = code(y, NONE, what, first_row)
    check_not_missing(coded, what, first_row)
    return np.asarray(coded)


def as_objects(labels: np.ndarray) -> list[Any]:
    """Return labels as objects of Python, or of NumPy if they are dates that Python does not have.

    Examples
    --------
    >>> as_objects(np.array(["2024-05-01"], "M8[D]")), as_objects(np.array(["2024"], "M8[ns]"))
    ([datetime.date(2024, 5, 1)], [np.datetime64('2024-01-01T00:00:00.000000000')])
    """
    objects: list[Any] = labels.tolist()
    numbers = labels.dtype.kind == "M" and int in map(type, objects)  # Nanoseconds become integers.
    return [*labels] if numbers else objects


# --- sets of labels -------------------------------------------------------------------------------


def family(dtype: np.dtype) -> str:
    """Return the kind of labels of a type: all numbers are of one."""
    return "n" if dtype.kind in "biuf" else dtype.kind


def join_labels(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sorted union of two sorted sets of labels.

    Raises
    ------
    InvalidDataError
        If the labels are of kinds that do not mix, such as numbers and texts, or no type holds all.
    """
    if not a.size or not b.size:
        return a if a.size else b
    if family(a.dtype) != family(b.dtype):
        raise InvalidDataError(
            f"labels of dtype {b.dtype} (such as {b[0]!r}) do not mix with classes of dtype "
            f"{a.dtype} (such as {a[0]!r}); give all labels in one kind"
        )
    dtype = np.result_type(a, b)
    # Mixing uint64 with int64 gives floats.
    if dtype.kind == "f" and a.dtype.kind in "iu" and b.dtype.kind in "iu":
        dtype = np.dtype(np.int64)
    joined = [each.astype(dtype) for each in (a, b)]
    pairs = [*zip(joined, (a, b), strict=True)]
    if not all(np.array_equal(x, y) and np.array_equal(x.astype(y.dtype), y) for x, y in pairs):
        raise InvalidDataError(
            f"labels of dtype {a.dtype} and {b.dtype} have no common type: {dtype} does not hold "
            f"all of them; give all labels in one type"
        )
    return np.union1d(*joined)


def find(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the number of each label among the sorted `classes`, -1 if it is not included."""
    if isinstance(labels, CodedLabels):
        return np.append(find(labels.values, classes), -1)[labels.codes]
    if not classes.size or not labels.size or family(classes.dtype) != family(labels.dtype):
        return np.full(labels.shape, -1)
    whole = _as_whole(labels)
    table = None if whole is None else _table_of(classes.tobytes(), classes.dtype)
    if table is not None:
        codes = np.empty(labels.size, np.int64)
        if encode_labels(np.ascontiguousarray(whole), *table, codes):
            return codes
    codes = np.searchsorted(classes, labels)
    codes[codes == classes.size] = 0
    return np.where(classes[codes] == labels, codes, -1)


def check_expected(
    labels: CodedLabels,
    expected: np.ndarray,
    first_row: int = 0,
    numbers: np.ndarray | None = None,
) -> None:
    """Raise `InvalidDataError` for the first label that is not expected.

    Parameters
    ----------
    labels : CodedLabels
    expected : ndarray, sorted
    first_row : int
        Number of the first row in a larger array, from which errors count.
    numbers : ndarray of int, optional
        Row numbers of the labels, relative to `first_row`; by default consecutive.
    """
    other = find(labels, expected) < 0
    if not other.any():
        return
    at = int(other.argmax())
    row = first_row + (at if numbers is None else int(numbers[at]))
    raise InvalidDataError(
        f"y[{row}] is {labels.values[labels.codes[at]]!s}, which is not one of the classes "
        f"expected: {expected.tolist()!s:.500}",
        *("y", row),
    )


def with_label(
    labels: np.ndarray, name: str, label: Any, classes: np.ndarray | None = None
) -> np.ndarray:
    """Return labels, and last one of rows that get no class, in the type that holds all of them.

    Parameters
    ----------
    labels : ndarray
        Classes, and other labels.
    name : str
        Name of the parameter in errors.
    label : label or None
        None stands for -1, an empty text or NaT, by the type of the labels.
    classes : ndarray, optional
        Labels of which it is none, by default all.

    Raises
    ------
    InvalidParameterError
        If it is a class, or of another kind than the classes.

    Examples
    --------
    >>> with_label(np.array(["ant", "bee"]), "fill", "unknown")
    array(['ant', 'bee', 'unknown'], dtype='<U7')
    """
    if label is None:
        label = _OF_NO_CLASS.get(labels.dtype.kind, -1)
    if labels.dtype.kind == "M" and _is_missing(label):  # No row has this label.
        return np.append(labels, np.array("NaT", labels.dtype))
    try:
        own = as_labels([label], name)
        if own.dtype.kind == "i":
            own = own.astype(np.min_scalar_type(own[0]))
        dtype = join_labels(labels, own).dtype
    except InvalidDataError as error:
        raise InvalidParameterError(f"{name}={shown(label)}: {error}; pass {name}") from None
    if find(own, labels if classes is None else classes)[0] >= 0:
        raise InvalidParameterError(
            f"{name}={shown(label)} is a class; rows without a class need another label: pass "
            f"{name}"
        )
    return np.append(labels.astype(dtype), own.astype(dtype))
