"""Class labels of any sortable kind, and the codes by which the kernels know them."""

from __future__ import annotations

import contextlib
import datetime
import decimal
from functools import lru_cache, reduce
from numbers import Number
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.kernels.sums import all_within, encode_labels
from streamgda.rows.arrays import (
    CodedLabels,
    coded_texts,
    distinct,
    is_masked,
    unmasked,
)
from streamgda.rows.in_memory import as_array
from streamgda.runtime import threads
from streamgda.runtime.parameters import refuse, shown

_TABLE = 1 << 20  # largest range of integers that are looked up in a table
_PART = 1 << 18  # labels that a thread looks up at a time
_INT64 = np.dtype(np.int64)
_MOST = np.iinfo(np.int64).max
_EXACT = 1 << 53  # to which float64 holds all integers
_SOME, _MORE = 1 << 10, 1 << 13  # labels that often include all of dozens, or hundreds, of classes
_PLACES = np.random.default_rng(0).random(_MORE)  # of these: labels may repeat in a period
_FEW = 1 << 9  # labels for which it is not worth finding the distinct ones first
_ONE_LABEL = (str, bytes, Number, np.generic, datetime.date, datetime.timedelta)
_OF_OBJECTS: Any = (  # types of objects, and those of arrays that hold them
    (str, "U"),
    (bytes, "S"),
    ((datetime.date, np.datetime64), np.datetime64),
    ((datetime.timedelta, np.timedelta64), np.timedelta64),
)
_OF_NO_CLASS = {"U": "", "S": b"", "M": np.datetime64("NaT", "s"), "m": np.timedelta64("NaT", "s")}

Labels = Any  # an array, or CodedLabels


def as_labels(y: object, what: str = "y", first_row: int = 0) -> np.ndarray:
    """Return labels as an array; see `coded_labels`."""
    return np.asarray(coded_labels(y, what, first_row))


def sorted_labels(classes: object) -> np.ndarray:
    """Return a copy of the labels of classes; refuse any but different ones, in rising order."""
    labels = as_labels(classes, "classes")
    if not labels.size or not np.array_equal(labels, np.unique(labels)):
        raise refuse("classes", labels.tolist(), "each label once, sorted as in classes_")
    return labels.copy()


def coded_labels(
    y: object, what: str = "y", first_row: int = 0, *, maskable: bool = False
) -> Labels:
    """Return labels of a sortable kind; by their codes if there are many that are not integers.

    Parameters
    ----------
    y : array-like
    what : str
        Name of the labels in errors.
    first_row : int
        Number of the first label in a larger array, from which errors count.
    maskable : bool
        Return a masked array if some are missing: masked, None, NaN, NaT or the NA of pandas.

    Returns
    -------
    ndarray or CodedLabels, shape (n_rows,)

    Raises
    ------
    InvalidDataError
        For labels that are missing, mixed, continuous, complex or not one-dimensional.
    """
    if type(y) is np.ndarray and y.dtype.kind in "biu" and y.ndim == 1:
        return y  # as most labels are
    labels = read_labels(y, what)
    if maskable and labels.ndim == 1:
        coded = type(labels) is CodedLabels
        missing = are_missing(labels.values)[labels.codes] if coded else are_missing(labels)
        if missing.all() and missing.size:
            return np.ma.array(np.zeros(labels.shape, np.int64), mask=missing)
        if missing.any():  # the first label stands for those that are missing
            rows = np.where(missing, missing.argmin(), np.arange(missing.size))
            present = coded_labels(without_mask(labels)[rows], what, first_row)
            return np.ma.array(np.asarray(present), mask=missing)
    if type(labels) is not CodedLabels:
        return _checked(unmasked(labels, what, first_row), what, first_row)
    with contextlib.suppress(InvalidDataError):
        return CodedLabels(_checked(labels.values, what), labels.codes)
    # Its error names a row. There is none if `values` that occur in no row are invalid.
    return _checked(np.asarray(labels), what, first_row)


def _checked(labels: np.ndarray, what: str, first_row: int = 0) -> np.ndarray:
    """Return labels in a type that can be sorted; raise the errors of `coded_labels`."""
    if labels.ndim != 1:
        if not labels.ndim and what in ("classes", "labels"):
            given = shown(labels.item())
            raise InvalidDataError(f"{what}={given}; expected a list of labels, such as [{given}]")
        raise InvalidDataError(
            f"{what} has shape {labels.shape}, expected one label a row: shape (n_rows,)"
        )
    kind = labels.dtype.kind
    if kind in "OT":  # T: numpy's variable-width strings, as zarr reads them
        return _from_objects(labels.astype(object, copy=False), what, first_row)
    if kind == "f":
        bad = np.flatnonzero(labels != np.floor(labels))  # finds NaN too, and lets infinity pass
        bad = bad if bad.size else np.flatnonzero(np.isinf(labels))
        if bad.size:
            refuse_missing(labels, what, first_row)
            row = first_row + int(bad[0])
            raise InvalidDataError(
                f"Unknown label type: continuous. {what}[{row}] is {labels[bad[0]]}; class labels "
                f"are whole numbers, strings, booleans or dates (maybe you are trying to fit a "
                f"classifier on a regression target)",
                *(what, row),
            )
        if labels.dtype.itemsize > 8:  # long doubles, which cannot be saved
            exact = labels.astype(np.float64)
            return exact if (exact == labels).all() else _from_numbers(labels.astype(object), what)
        return labels
    if kind in "mM":
        refuse_missing(labels, what, first_row)
    elif kind not in "biuUS":
        raise InvalidDataError(
            f"{what} has dtype {labels.dtype}; class labels are whole numbers, strings, booleans "
            f"or dates"
        )
    return labels


def as_objects(labels: np.ndarray) -> list[Any]:
    """Return labels as objects of Python, or of NumPy if they are dates that Python does not have.

    Examples
    --------
    >>> as_objects(np.array(["2024-05-01"], "M8[D]")), as_objects(np.array(["2024"], "M8[ns]"))
    ([datetime.date(2024, 5, 1)], [np.datetime64('2024-01-01T00:00:00.000000000')])
    """
    objects: list[Any] = labels.tolist()
    numbers = labels.dtype.kind in "mM" and int in map(type, objects)  # as those of nanoseconds
    return [*labels] if numbers else objects


def without_mask(labels: Labels) -> Labels:
    """Return labels as they are, but for the mask of a masked array."""
    return labels if type(labels) is CodedLabels else np.asarray(labels)


def read_labels(y: Any, what: str) -> Any:
    """Return labels as an array, masked if some are, or by their codes.

    Many labels of all kinds but integers have codes.
    """
    labels = y
    if isinstance(y, list | tuple) and y and isinstance(y[0], str | bytes):
        coded = coded_texts(y) if len(y) > _FEW else None
        labels = coded or np.asarray(y, object)  # others among them do not become strings
    elif type(y) is not np.ndarray:
        labels = as_array(y, what)
        if not hasattr(y, "dtype") and type(labels) is np.ndarray and _may_have_changed(labels):
            labels = np.asarray(y, object)
    plain = type(labels) is not CodedLabels and not is_masked(labels)
    if not plain or labels.ndim != 1 or labels.size <= _FEW or labels.dtype.kind not in "OTUSfmM":
        return labels
    coded = distinct(labels)
    if labels.dtype.kind in "OT" and coded.values.size > _FEW:
        texts = coded_texts(coded.values.tolist())
        return coded if texts is None else CodedLabels(texts.values, texts.codes[coded.codes])
    return coded


def refuse_missing(labels: np.ndarray, what: str = "y", first_row: int = 0) -> None:
    """Raise `InvalidDataError` that names the first missing label, if there is one."""
    missing = np.argwhere(are_missing(labels))
    if missing.size:
        row = first_row + int(missing[0, 0])
        remedy = "on_invalid='skip' leaves such rows out and counts them"
        raise InvalidDataError(
            f"{what}[{row}] is {labels[tuple(missing[0])]}, and every label is needed (input "
            f"contains NaN or other missing labels); {remedy if what == 'y' else 'leave it out'}",
            *(what, row),
        )


def are_missing(labels: np.ndarray) -> np.ndarray:
    """Return a boolean array that is True for labels that are missing."""
    masked = np.ma.getmaskarray(labels)
    values = np.ma.getdata(labels)
    if values.dtype.kind == "f":
        return masked | np.isnan(values)
    if values.dtype.kind in "mM":
        return masked | np.isnat(values)
    if values.dtype.kind not in "OT":
        return masked
    found = [_is_missing(value) for value in values.astype(object, copy=False).ravel()]
    return masked | np.array(found, bool).reshape(values.shape)


def _is_missing(label: object) -> bool:
    """Return whether a label is None, NaN, NaT or the NA of pandas."""
    if label is None or type(label).__name__ == "NAType":
        return True
    comparable = isinstance(label, float | np.generic | datetime.date | decimal.Decimal)
    return comparable and label != label  # noqa: PLR0124


def _may_have_changed(labels: np.ndarray) -> bool:
    """Return whether these may be other labels than those of the list they were converted from.

    Beside strings, numbers become strings; large integers of two signs become floats.
    """
    return labels.dtype.kind in "US" or (
        labels.dtype.kind == "f" and bool((np.abs(labels, dtype=np.float64) >= _EXACT).any())
    )


def _from_objects(labels: np.ndarray, what: str, first_row: int) -> np.ndarray:
    kinds = {type(label) for label in labels}
    for base, dtype in _OF_OBJECTS:
        if all(issubclass(kind, base) for kind in kinds):
            if base is str and kinds != {str}:  # members of an Enum, of which numpy takes the names
                labels = np.array([str.__str__(label) for label in labels], object)
            if dtype in (np.datetime64, np.timedelta64):
                refuse_missing(labels, what, first_row)  # NaT of pandas is a date
                zoned = [_has_zone(label) for label in labels]
                if len({*zoned}) > 1:
                    row = first_row + zoned.index(not zoned[0])
                    raise InvalidDataError(
                        f"{what} holds dates with a time zone and dates without one, {what}[{row}] "
                        f"the first that differs; give all of them a zone, or none",
                        *(what, row),
                    )
                return _in_common_unit([dtype(_without_zone(label)) for label in labels])
            if cut := [label for label in labels if label[-1:] in ("\0", b"\0")]:
                raise InvalidDataError(
                    f"{what} holds {shown(cut[0])}, and arrays of texts do not keep NUL at their "
                    f"end; relabel them"
                )
            return labels.astype(dtype)
    if all(issubclass(kind, int | float | np.integer | np.floating | np.bool_) for kind in kinds):
        return _checked(_from_numbers(labels, what), what, first_row)
    refuse_missing(labels, what, first_row)
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    others = (n for n, label in enumerate(labels) if type(label) is not type(labels[0]))
    row = first_row + next(others, 0)
    raise InvalidDataError(
        f"Unknown label type: {what} holds objects of type {names}, {what}[{row}] the first that "
        f"does not fit; class labels of one kind are expected: whole numbers, strings, booleans or "
        f"dates",
        *(what, row),
    )


def _has_zone(label: Any) -> bool:
    return getattr(label, "tzinfo", None) is not None


def _without_zone(label: Any) -> Any:
    """Return a date or duration as NumPy takes it: one with a time zone in UTC."""
    if hasattr(label, "asm8"):  # of pandas, to nanoseconds
        return label.asm8
    return label.astimezone(datetime.UTC).replace(tzinfo=None) if _has_zone(label) else label


def _in_common_unit(dates: list[Any]) -> np.ndarray:
    """Return dates, or durations, in a unit that holds all of them exactly."""
    parts = [np.array([d for d in dates if d.dtype == unit]) for unit in {d.dtype for d in dates}]
    common = reduce(lambda a, b: np.append(*_in_one_unit(a, b)), parts)
    return np.array(dates, common.dtype)


def _from_numbers(labels: np.ndarray, what: str) -> np.ndarray:
    """Return numbers in a type that holds all of them exactly."""
    plain = np.array(labels.tolist())
    if plain.dtype.kind in "biu" or (plain.dtype.kind == "f" and not _may_have_changed(plain)):
        return plain
    for dtype in (np.int64, np.uint64, np.float64):
        with contextlib.suppress(OverflowError, ValueError):
            exact = labels.astype(dtype)
            if (exact.astype(object) == labels).all():
                return exact
    raise InvalidDataError(
        f"{what} holds numbers that have no common 64-bit type, from {shown(labels.min())} to "
        f"{shown(labels.max())}; relabel them"
    )


def check_expected(
    y: np.ndarray,
    codes: np.ndarray,
    classes: np.ndarray,
    expected: np.ndarray,
    first_row: int = 0,
    numbers: np.ndarray | None = None,
) -> None:
    """Raise `InvalidDataError` for the first label that is not expected.

    Parameters
    ----------
    y, codes, classes : ndarray
        Arguments and results of `encode`.
    expected : ndarray, sorted
    first_row : int
        Number of the first row in a larger array, from which errors count.
    numbers : ndarray of int, optional
        Row numbers of the labels, relative to `first_row`; by default consecutive.
    """
    other = find(classes, expected) < 0
    if not other.any():
        return
    at = int(other[codes].argmax())
    row = first_row + (at if numbers is None else int(numbers[at]))
    raise InvalidDataError(
        f"y[{row}] is {y[at]!s}, which is not one of the classes expected: "
        f"{expected.tolist()!s:.500}",
        *("y", row),
    )


def expected_codes(
    y: Labels, expected: np.ndarray, first_row: int = 0, numbers: np.ndarray | None = None
) -> np.ndarray:
    """Return the codes of labels that are expected; see `check_expected`."""
    codes, classes = encode(y, expected)
    check_expected(y, codes, classes, expected, first_row, numbers)
    return codes


def join_labels(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sorted union of two sorted sets of labels.

    Raises
    ------
    InvalidDataError
        If the labels are of kinds that do not mix, such as numbers and strings.
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
    if labels.dtype.kind in "mM" and _is_missing(label):  # no label that rows could have
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
    if classes.dtype.kind in "mM":
        return None  # NaT is no class
    labels = np.arange(classes.size + 1)
    labels = labels.astype(classes.dtype.kind) if classes.dtype.kind in "US" else labels
    return labels[find(labels, classes) < 0][0].item()


def check_comparable(unlabelled: np.ndarray, labels: Labels) -> None:
    """Raise `InvalidParameterError` for labels of rows that do not count that no row can have.

    There has to be at least one of the `labels` of rows.
    """
    dtype, found = labels.dtype, family(unlabelled.dtype) == family(labels.dtype)
    if found and dtype.kind in "biu":
        low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        found = bool(((unlabelled >= low) & (unlabelled <= high)).all())
    if not found:
        raise InvalidParameterError(
            f"unlabelled={shown(unlabelled.tolist())} is compared with labels of dtype {dtype}, "
            f"such as y[0]={labels[0]!r}, which never have such values; give labels of their kind"
        )


def find(labels: Labels, classes: np.ndarray) -> np.ndarray:
    """Return the number of each label among the sorted `classes`, -1 if it is not included."""
    if type(labels) is not CodedLabels and labels.size > _FEW:
        integers = labels.dtype.kind in "biu" and labels.dtype != np.uint64
        if integers and (table := integer_table(classes)) is not None:
            codes = look_up(labels, *table)
            if codes is not None:
                return codes.copy() if codes is labels else codes
        labels = distinct(labels)
    if type(labels) is CodedLabels:
        return _search(labels.values, classes)[labels.codes]
    return _search(labels, classes)


def _search(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    if not classes.size or family(classes.dtype) != family(labels.dtype):
        return np.full(labels.shape, -1)
    classes, labels = in_one_type(classes, labels)
    codes = np.searchsorted(classes, labels)
    codes[codes == classes.size] = 0
    return np.where(classes[codes] == labels, codes, -1)


def in_one_type(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both in one type: 64-bit integers if float64 does not hold all of them."""
    if a.dtype.kind in "mM" and a.dtype != b.dtype:
        return _in_one_unit(a, b)
    if a.dtype.kind == b.dtype.kind or np.result_type(a, b).kind != "f":
        return a, b
    low = min(int(x.min()) for x in (a, b) if x.size)
    high = max(int(x.max()) for x in (a, b) if x.size)
    if "f" in (a.dtype.kind, b.dtype.kind) and max(-low, high) <= _EXACT:
        return a, b
    for dtype in (np.int64, np.uint64):
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return a.astype(dtype), b.astype(dtype)
    raise InvalidDataError(
        f"labels from {low} to {high} have no common type; relabel one set of them"
    )


def _in_one_unit(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return dates, or durations, in the finer unit, in which early and late ones overflow."""
    dtype = np.result_type(a, b)
    joined = a.astype(dtype), b.astype(dtype)
    for one, other in zip((a, b), joined, strict=True):
        if not np.array_equal(other.astype(one.dtype), one, equal_nan=True):
            raise InvalidDataError(
                f"labels of dtype {a.dtype} and {b.dtype} have no common type: {dtype} does not "
                f"hold all of them; give all labels in one unit"
            )
    return joined


def family(dtype: np.dtype) -> str:
    """Return the kind of labels of a type: all numbers are of one."""
    return "n" if dtype.kind in "biuf" else dtype.kind


def encode(y: Labels, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes of labels, and the classes that these number.

    Returns
    -------
    codes : ndarray of int64, shape (n_rows,)
        They may be `y` itself, and must not be modified.
    classes : ndarray, sorted
        `classes`, and all other labels.
    """
    codes, classes = coded_classes(y, classes)
    return read_codes(codes), classes


def coded_classes(y: Labels, classes: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return the codes of labels, and the classes that these number, as `encode` does.

    The codes may be `CodedLabels`, of which `read_codes` reads some at a time: to look them up as
    they are used takes less time and memory than an array of all of them.
    """
    if not y.size:
        return np.empty(0, np.int64), classes
    if type(y) is not CodedLabels:
        if y.dtype.kind in "biu" and y.dtype != np.uint64:
            # In most cases all labels are classes already, or are among some of them.
            for known in (classes,) if classes.size else (_of_some(y, n) for n in (_SOME, _MORE)):
                table = integer_table(known)
                codes = None if table is None else look_up(y, *table)
                if codes is not None:
                    return codes, known
        if y.size <= _FEW:
            codes = _search(y, classes)
            unknown = codes < 0
            if unknown.any():
                classes = join_labels(classes, np.unique(y[unknown]))
                codes = _search(y, classes)
            return codes, classes
        y = distinct(y)
    known = classes if classes.size else _of_some(y, _SOME)
    at = _search(y.values, known)
    if at.min() >= 0:
        return CodedLabels(at, y.codes), known
    codes = look_up(y.codes, 0, at)  # the other values may be in no row
    if codes is not None:
        return codes, known
    occurs = np.zeros(y.values.size, bool)
    occurs[y.codes] = True
    known = join_labels(classes, np.unique(y.values[occurs]))
    return CodedLabels(_search(y.values, known), y.codes), known


def read_codes(codes: Any) -> np.ndarray:
    """Return codes of `coded_classes`, or some of them, as an array of int64."""
    if type(codes) is not CodedLabels:
        return np.asarray(codes)
    found = look_up(codes.codes, 0, codes.values)
    assert found is not None
    return found


def _of_some(y: Labels, n: int) -> np.ndarray:
    """Return the different ones of `n` labels, or of all if there are few more."""
    return np.unique(y if y.size <= 2 * n else y[(_PLACES[:n] * y.size).astype(np.intp)])


def integer_table(classes: np.ndarray) -> tuple[int, np.ndarray, bool] | None:
    """Return the arguments of `look_up` after the labels; None unless integers are looked up."""
    if not classes.size or classes.dtype.kind not in "biu":
        return None
    low, table = _table_of(classes.tobytes(), classes.dtype)
    return None if table is None else (low, table, table.size == classes.size)


@lru_cache(16)
def _table_of(classes: bytes, dtype: np.dtype) -> tuple[int, np.ndarray | None]:
    """Return the least class, and a table: entry i is the number of the class that is i above.

    The table is None if the classes, which are sorted, are too far apart.
    """
    values = np.frombuffer(classes, dtype)
    low, high = int(values[0]), int(values[-1])
    if high - low >= _TABLE or high > _MOST:
        return low, None
    table = np.full(high - low + 1, -1)
    table[values.astype(np.int64) - low] = np.arange(values.size)
    return low, table


def look_up(
    labels: np.ndarray, low: int, table: np.ndarray, consecutive: bool = False
) -> np.ndarray | None:
    """Return the int64 entries of a table, in which that of label `low` is the first.

    It is None if the table lacks a label, or holds a negative number for it. With `consecutive`,
    the table subtracts `low`; the result may then be `labels` itself, and must not be modified.
    """
    plain = labels.dtype == _INT64 and labels.flags.carray
    at_once = plain and consecutive and low == 0
    if at_once and labels.size <= _PART:
        return labels if all_within(labels, 0, table.size) else None
    codes = labels if at_once else np.empty(labels.size, np.int64)

    def part(start: int) -> bool:
        rows = slice(start, start + _PART)
        if not plain:
            codes[rows] = labels[rows]
        given = labels[rows] if plain else codes[rows]
        if not consecutive:
            return bool(encode_labels(given, low, table, codes[rows]))
        found = bool(all_within(given, low, table.size))
        if not at_once and found:
            np.subtract(given, low, out=codes[rows])
        return found

    starts = ((start,) for start in range(0, labels.size, _PART))
    found = part(0) if labels.size <= _PART else all(threads.run(part, starts))
    return codes if found else None
