"""Class labels: whole numbers, booleans, texts or dates, which are coded once, where rows enter."""

from __future__ import annotations

import datetime
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels.sums import encode_labels
from streamgda.rows.source import as_array
from streamgda.runtime.parameters import refuse, shown

NONE = np.empty(0, np.int64)  # no classes
WORD = 8  # bytes of int64 and float64
_SOME = 1 << 12  # labels that often include all classes
_TABLE = 1 << 20  # largest range of integers that are looked up in a table
_EXACT = 1 << 53  # to which float64 holds all whole numbers
_NUMBERS = (bool, int, float, np.bool_, np.integer, np.floating)
_DATES = (datetime.date, np.datetime64)
_ONE_LABEL = (str, *_NUMBERS, *_DATES)
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
        numbers = np.append(np.cumsum(kept) - 1, -1)  # a missing label has the last one
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
    y = y if type(y) in (np.ndarray, CodedLabels) else _as_labels(y, what)
    if not isinstance(y, CodedLabels):
        labels = _as_vector(y, what)
        codes = _looked_up(labels, known)
        y = _distinct(labels, what, first_row) if codes is None else CodedLabels(codes, known)
    if y.codes.dtype != np.int64:  # kept in a byte or two
        y = CodedLabels(y.codes.astype(np.int64), y.values)
    if y.values is known:
        return y
    y = y.used()  # categories in no row are no classes
    values = join_labels(known, y.values)
    if values.size == known.size:
        values = known
    if values.size == y.values.size and np.array_equal(values, y.values):
        return CodedLabels(y.codes, values)
    return CodedLabels(np.append(find(y.values, values), -1)[y.codes], values)


def _as_labels(y: Any, what: str) -> Any:
    """Return labels of any container as an array, or by their codes."""
    labels = as_array(y, what)
    if hasattr(y, "dtype") or type(labels) is not np.ndarray:
        return labels
    # Beside texts, the numbers of a list become texts, and large ones of two signs become floats.
    kind = labels.dtype.kind
    large = kind == "f" and labels.size and np.abs(labels).max() >= _EXACT
    return np.asarray(y, object) if kind in "US" or large else labels


def _as_vector(labels: np.ndarray, what: str) -> np.ndarray:
    """Return labels; raise `InvalidDataError` unless they have one axis."""
    if labels.ndim == 1:
        return labels
    if not labels.ndim and what in ("classes", "labels"):
        given = shown(labels.item())
        raise InvalidDataError(f"{what}={given}; expected a list of labels, such as [{given}]")
    raise InvalidDataError(
        f"{what} has shape {labels.shape}, expected one label a row: shape (n_rows,)"
    )


def _looked_up(labels: np.ndarray, known: np.ndarray) -> np.ndarray | None:
    """Return the codes of labels that are known; None if one is not, and for objects."""
    if not labels.size or not known.size or family(labels.dtype) != family(known.dtype):
        return None
    whole, classes = _as_whole(labels), _as_whole(known)
    if whole is not None and classes is not None:
        table = integer_table(classes)
        if table is not None:
            return look_up(whole, *table)
    codes = _search(labels, known)
    return None if (codes < 0).any() else codes


def _search(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the number of each label among sorted ones, -1 if it is not included."""
    codes = np.searchsorted(known, labels)
    codes[codes == known.size] = 0
    return np.where(known[codes] == labels, codes, -1)


def _distinct(labels: np.ndarray, what: str, first_row: int) -> CodedLabels:
    """Return labels by their codes among those that occur."""
    whole = _as_whole(labels)
    if whole is not None:
        some = np.unique(whole[:: max(1, labels.size // _SOME)])  # most often all classes
        codes = _looked_up(whole, some)
        if codes is not None:
            return CodedLabels(codes, some.astype(labels.dtype))
    if labels.dtype.kind in "OT":  # T: texts of variable width, as zarr reads them
        numbers: defaultdict[Any, int] = defaultdict(count().__next__)
        try:
            codes = np.fromiter(map(numbers.__getitem__, labels.tolist()), np.intp, labels.size)
        except TypeError as error:
            raise InvalidDataError(
                f"{what}: {error}; class labels are whole numbers, booleans, texts or dates"
            ) from None
        found: Any = [*numbers]
    else:
        found = np.unique(labels)
        codes = np.searchsorted(found, labels)  # sooner than the inverse of `np.unique`
    present = np.array([not _is_missing(value) for value in found], bool)
    if labels.dtype.kind in "OT":
        found = [value for value, there in zip(found, present, strict=True) if there]
    else:
        found = found[present]
    try:
        values, at = np.unique(_checked(found), return_inverse=True)
    except _OtherKindError as error:
        number = int(np.flatnonzero(present)[error.number])
        row = int((codes == number).argmax())
        found = shown(labels[row : row + 1].tolist()[0])
        raise InvalidDataError(
            f"{error.message}: {what}[{first_row + row}] is {found}. Class labels are whole "
            f"numbers, booleans, texts or dates, all of one kind{error.remedy}",
            *(what, first_row + row),
        ) from None
    of_value = np.full(present.size, -1)
    of_value[present] = at
    return CodedLabels(of_value[codes], values)


def _as_whole(labels: np.ndarray) -> np.ndarray | None:
    """Return numbers as int64 if that holds all of them exactly; None otherwise."""
    if not labels.size or labels.dtype.kind not in "biuf" or labels.dtype == np.uint64:
        return None
    if labels.dtype.kind != "f":
        return labels.astype(np.int64, copy=False)
    if labels.dtype.itemsize > WORD:
        return None
    labels = labels.astype(np.float64, copy=False)
    with np.errstate(invalid="ignore"):
        whole = labels.astype(np.int64)
    return whole if (whole == labels).all() and np.abs(labels).max() <= _EXACT else None


class _OtherKindError(Exception):
    """A label of another kind, given by its number among different ones."""

    def __init__(self, number: int, message: str = "Unknown label type", remedy: str = "") -> None:
        super().__init__()
        self.number, self.message, self.remedy = number, message, remedy


def _checked(found: Any) -> np.ndarray:
    """Return different labels as an array of one kind."""
    values = found if isinstance(found, np.ndarray) else _of_objects(found)
    kind = values.dtype.kind
    if kind == "f":
        numbers = np.abs(values, dtype=np.float64)
        other = np.flatnonzero(~((numbers == np.floor(numbers)) & (numbers <= _EXACT)))
        if other.size:
            raise _OtherKindError(
                int(other[0]),
                "Unknown label type: continuous",
                " (maybe you are trying to fit a classifier on a regression target)",
            )
        return values.astype(np.float64) if values.dtype.itemsize > 8 else values
    if kind == "c":
        raise _OtherKindError(0, "Complex data not supported")
    if kind not in "biuUM":
        raise _OtherKindError(0, remedy="; decode bytes with astype(str)" * (kind == "S"))
    return values


def _of_objects(found: list[Any]) -> np.ndarray:
    """Return objects as an array that holds all of them exactly."""
    if not found:
        return NONE
    for kind, dtype in ((str, None), (_NUMBERS, None), (_DATES, "M8")):
        if not isinstance(found[0], kind):
            continue
        other = [number for number, value in enumerate(found) if not isinstance(value, kind)]
        zoned = [n for n, value in enumerate(found) if getattr(value, "tzinfo", None) is not None]
        if other:
            raise _OtherKindError(other[0], "Unknown label type: labels of several kinds")
        if zoned:
            raise _OtherKindError(zoned[0], remedy="; convert dates to UTC, without a time zone")
        values = np.array(found, dtype)
        changed = [n for n, (a, b) in enumerate(zip(values.tolist(), found, strict=True)) if a != b]
        if changed and not isinstance(found[changed[0]], np.datetime64):
            raise _OtherKindError(changed[0], "No array holds these labels exactly")
        return values
    raise _OtherKindError(0, remedy="; decode bytes with astype(str)" * isinstance(found[0], bytes))


def _is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, NaT or the NA of pandas."""
    if label is None or type(label).__name__ == "NAType":
        return True
    return isinstance(label, (float, np.floating, *_DATES)) and label != label  # noqa: PLR0124


def refuse_missing(labels: CodedLabels, what: str = "y", first_row: int = 0) -> None:
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
    refuse_missing(coded, what, first_row)
    return np.asarray(coded)


def sorted_labels(classes: Any) -> np.ndarray:
    """Return a copy of the labels of classes; refuse any but different ones, in rising order."""
    labels = as_labels(classes, "classes")
    if not labels.size or not np.array_equal(labels, np.unique(labels)):
        raise refuse("classes", labels.tolist(), "each label once, sorted as in classes_")
    return labels.copy()


def as_objects(labels: np.ndarray) -> list[Any]:
    """Return labels as objects of Python, or of NumPy if they are dates that Python does not have.

    Examples
    --------
    >>> as_objects(np.array(["2024-05-01"], "M8[D]")), as_objects(np.array(["2024"], "M8[ns]"))
    ([datetime.date(2024, 5, 1)], [np.datetime64('2024-01-01T00:00:00.000000000')])
    """
    objects: list[Any] = labels.tolist()
    numbers = labels.dtype.kind == "M" and int in map(type, objects)  # as those of nanoseconds
    return [*labels] if numbers else objects


# --- sets of labels -------------------------------------------------------------------------------


def join_labels(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sorted union of two sorted sets of labels.

    Raises
    ------
    InvalidDataError
        If the labels are of kinds that do not mix, such as numbers and texts.
    """
    if not b.size:
        return a
    if not a.size:
        return b
    if family(a.dtype) != family(b.dtype):
        raise InvalidDataError(
            f"labels of dtype {b.dtype} (such as {b[0]!r}) do not mix with classes of dtype "
            f"{a.dtype} (such as {a[0]!r}); give all labels in one kind"
        )
    return np.union1d(*in_one_type(a, b))


def in_one_type(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two sets of labels of one family in a type that holds all of them exactly."""
    dtype = np.result_type(a, b)
    if dtype.kind == "f" and "f" not in (a.dtype.kind, b.dtype.kind):  # of uint64 and others
        low, high = min(int(x[0]) for x in (a, b)), max(int(x[-1]) for x in (a, b))
        limits = {kind: np.iinfo(kind) for kind in (np.int64, np.uint64)}
        fits = (kind for kind, its in limits.items() if its.min <= low and high <= its.max)
        dtype = np.dtype(next(fits, dtype))
    joined = a.astype(dtype), b.astype(dtype)
    for one, other in zip((a, b), joined, strict=True):
        large = dtype.kind == "f" and one.size and max(map(abs, map(int, one))) > _EXACT
        if large or not np.array_equal(other.astype(one.dtype), one):
            raise InvalidDataError(
                f"labels of dtype {a.dtype} and {b.dtype} have no common type: {dtype} does not "
                f"hold all of them; give all labels in one type"
            )
    return joined


def family(dtype: np.dtype) -> str:
    """Return the kind of labels of a type: all numbers are of one."""
    return "n" if dtype.kind in "biuf" else dtype.kind


def find(labels: Any, classes: np.ndarray) -> np.ndarray:
    """Return the number of each label among the sorted `classes`, -1 if it is not included."""
    if isinstance(labels, CodedLabels):
        return np.append(find(labels.values, classes), -1)[labels.codes]
    if not classes.size or not labels.size or family(classes.dtype) != family(labels.dtype):
        return np.full(labels.shape, -1)
    codes = _looked_up(labels, classes)
    return _search(labels, classes) if codes is None else codes


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
    other = find(labels.values, expected) < 0
    if not other.any() or not len(labels) or not other[labels.codes].any():
        return
    at = int(other[labels.codes].argmax())
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
    if not isinstance(label, _ONE_LABEL):
        raise refuse(name, label, "one label of the kind of the classes")
    if labels.dtype.kind == "M" and _is_missing(label):  # no label that rows could have
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


def label_of_none(classes: np.ndarray) -> Any:
    """Return a label of the kind of the classes that is none of them.

    Examples
    --------
    >>> label_of_none(np.array([-1, 0, 2])), label_of_none(np.array(["ant", "bee"]))
    (1, '0')
    """
    if classes.dtype.kind == "M":
        return None  # NaT is no class
    labels = np.arange(classes.size + 1)
    labels = labels.astype("U") if classes.dtype.kind == "U" else labels
    return labels[find(labels, classes) < 0][0].item()


# --- integers in a table --------------------------------------------------------------------------


def integer_table(classes: np.ndarray) -> tuple[int, np.ndarray] | None:
    """Return the arguments of `look_up` after the labels; None unless integers are looked up."""
    if not classes.size or classes.dtype.kind not in "biu":
        return None
    return _table_of(classes.tobytes(), classes.dtype)


@lru_cache(16)
def _table_of(classes: bytes, dtype: np.dtype) -> tuple[int, np.ndarray] | None:
    """Return the least class, and a table: entry i is the number of the class that is i above.

    It is None if the classes, which are sorted, are too far apart.
    """
    values = np.frombuffer(classes, dtype)
    low, high = int(values[0]), int(values[-1])
    if high - low >= _TABLE or high > np.iinfo(np.int64).max:
        return None
    table = np.full(high - low + 1, -1)
    table[values.astype(np.int64) - low] = np.arange(values.size)
    return low, table


def look_up(labels: np.ndarray, low: int, table: np.ndarray) -> np.ndarray | None:
    """Return the int64 entries of a table, in which that of label `low` is the first.

    It is None if the table lacks a label, or holds a negative number for it.
    """
    codes = np.empty(labels.size, np.int64)
    found = encode_labels(np.ascontiguousarray(labels, np.int64), low, table, codes)
    return codes if found else None
