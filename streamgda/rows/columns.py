"""Columns of data frames as arrays, converted slab by slab; nulls are missing values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrow_types import as_label_array, as_matrix
from streamgda.rows.codes import CodedLabels, coded, first_rows, joined
from streamgda.runtime import threads

Frame = Any  # a data frame or series in memory, as narwhals wraps it
CountNulls = Callable[[Sequence[int]], Sequence[int]]  # of the columns with these numbers

_PART = 1 << 19  # labels that a thread converts at a time
_FLOAT = np.dtype(np.float64)
_OBJECT = np.dtype(object)
# Types whose numpy types are those of entries; unknown ones are such as sparse series of pandas.
_CONVERTED = (nw.Boolean, nw.Date, nw.Datetime, nw.Duration, nw.Unknown)
_REMEDY = (
    "convert them to numbers (one-hot encode categories, cast decimals to floats) or drop them"
)


@dataclass(frozen=True)
class FeatureColumns:
    """Conversion of columns of numbers to rows of their common type.

    Integers and booleans with nulls become float64 with NaN, as in pandas. The type of other
    columns is kept: rows of bytes stay bytes.

    Attributes
    ----------
    dtype : numpy.dtype
        Common type of the columns, by numpy's rules.
    groups : tuple of (tuple of int, callable)
        Numbers of the columns that are converted together, and a function that does so.
    """

    dtype: np.dtype
    groups: tuple[tuple[tuple[int, ...], Callable[[Frame], np.ndarray]], ...]

    @classmethod
    def of(cls, head: Frame, name: str, count_nulls: CountNulls) -> Self:
        """Return the conversion of frames with the columns of `head`.

        Raises
        ------
        InvalidDataError
            For columns that are not numbers.
        """
        types = _types(head, name)
        nullable = [
            j for j, (dtype, has_nulls) in enumerate(types) if has_nulls and dtype.kind in "biu"
        ]
        counts = zip(nullable, count_nulls(nullable) if nullable else (), strict=True)
        with_nulls = {j for j, n in counts if n}
        groups: dict[Any, list[int]] = {}
        for j, (dtype, _) in enumerate(types):
            groups.setdefault("nulls" if j in with_nulls else dtype, []).append(j)
        common = {_FLOAT if key in ("nulls", _OBJECT) else key for key in groups}
        dtype = np.result_type(*common) if common else _FLOAT
        if head.implementation.is_pandas_like() and _OBJECT not in groups:
            some = any(has_nulls for _, has_nulls in types)
            function = partial(_by_pandas, dtype=dtype, has_nulls=some)
            return cls(dtype, ((tuple(range(len(types))), function),))
        functions = {"nulls": _without_nulls, _OBJECT: _from_objects}
        return cls(
            dtype,
            tuple((tuple(js), functions.get(key, _as_they_are)) for key, js in groups.items()),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return (sum(len(columns) for columns, _ in self.groups),)

    def convert(self, frame: Frame) -> np.ndarray:
        """Return the rows of a frame as a C-contiguous array."""
        if len(self.groups) == 1:
            return np.ascontiguousarray(self.groups[0][1](frame), self.dtype)
        rows = np.empty((len(frame), *self.shape), self.dtype)
        for columns, converted in self.groups:
            rows[:, columns] = converted(frame[:, [*columns]])
        return rows


@dataclass(frozen=True)
class SingleColumn:
    """Conversion of a column of labels or weights to a one-dimensional array.

    Labels without a type of numpy, and integers and booleans with nulls, become objects, or labels
    by their codes, as those of categories are. The label of null is None, unless it is an object.

    Attributes
    ----------
    dtype : numpy.dtype
    """

    dtype: np.dtype

    shape = ()  # of an entry

    @classmethod
    def of(cls, head: Frame, name: str, count_nulls: CountNulls) -> Self:
        """Return the conversion of series, or of frames with the only column of `head`."""
        column = _only_column(head)
        kind = column.dtype
        if not (kind.is_numeric() or kind in _CONVERTED):
            return cls(_OBJECT)
        dtype = _converted_type(column)
        return cls(_OBJECT if dtype.kind in "biu" and any(count_nulls([0])) else dtype)

    def convert(self, frame: Frame) -> Any:
        """Return the entries of a series, or of the only column of a frame."""
        column = _only_column(frame)
        if self.dtype != object:
            return np.asarray(column.to_numpy(), self.dtype)
        categories = column.dtype in (nw.Categorical, nw.Enum)
        if not categories and _holds_objects(column):
            native = column.to_native()
            texts = hasattr(native.dtype, "storage")  # whose nulls are pandas.NA
            return native.to_numpy(object, na_value=None) if texts else np.asarray(native, object)
        arrow = _as_arrow(column)
        if arrow is not None:
            return as_label_array(arrow)
        if categories:
            return _as_codes(column)
        starts = range(0, max(1, len(column)), _PART)
        return joined(threads.run(_as_codes, ((column[i : i + _PART],) for i in starts)))


@dataclass(frozen=True)
class ListColumn:
    """Conversion of a column whose entries are rows, such as embeddings.

    Attributes
    ----------
    dtype : numpy.dtype
    width : int
        Values in each entry: as many as in the first.
    """

    dtype: np.dtype
    width: int

    @classmethod
    def of(cls, head: Frame) -> Self | None:
        """Return the conversion; None unless the only column holds lists or arrays."""
        if not isinstance(head, nw.Series) and len(head.columns) != 1:
            return None
        column = _only_column(head)
        if column.dtype not in (nw.List, nw.Array, nw.Object) or not len(column):
            return None
        first = next(iter(column.head(1).to_list()), None)
        if not isinstance(first, list | tuple | np.ndarray) or not np.size(first):
            return None
        row = as_stacked(column.head(1).to_numpy())
        return cls(row.dtype, row.shape[1]) if row.dtype.kind in "biuf" else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return (self.width,)

    def convert(self, frame: Frame) -> np.ndarray:
        """Return the rows of a series, or of the only column of a frame."""
        column = _only_column(frame)
        arrow = _as_arrow(column, lists=True)
        if arrow is not None:
            return as_matrix([arrow], self.dtype, self.width)
        return as_stacked(column.to_numpy(), self.width).astype(self.dtype, copy=False)


def as_stacked(values: np.ndarray, width: int | None = None) -> np.ndarray:
    """Return entries that are rows as a matrix; other arrays as they are.

    Raises
    ------
    InvalidDataError
        If one has another number of values than the first, or than `width`.
    """
    if values.dtype != object or values.ndim != 1 or not len(values):
        return values
    if not isinstance(values[0], list | tuple | np.ndarray):
        return values
    sizes = [np.size(value) if value is not None else -1 for value in values]
    width = sizes[0] if width is None else width
    other = next((row for row, size in enumerate(sizes) if size != width), None)
    if other is not None:
        found = "nothing" if sizes[other] < 0 else f"{sizes[other]} values"
        raise InvalidDataError(f"row {other} of a block holds {found}; expected {width} a row")
    return np.stack([np.asarray(value).ravel() for value in values])


def _only_column(frame: Frame) -> nw.Series[Any]:
    if isinstance(frame, nw.Series):
        return frame
    column: nw.Series[Any] = frame.get_column(frame.columns[0])
    return column


def _holds_objects(column: nw.Series[Any]) -> bool:
    """Return whether the column is an array of Python objects."""
    if not column.implementation.is_pandas_like():
        return False
    dtype = column.to_native().dtype
    return getattr(dtype, "kind", "") == "O" and getattr(dtype, "storage", "python") == "python"


def _as_codes(column: nw.Series[Any]) -> CodedLabels | np.ndarray:
    """Return labels by their codes, which the library of the column knows or finds."""
    native: Any = column.to_native()
    if column.implementation.is_pandas_like():
        if hasattr(native, "cat"):
            codes, words = native.cat.codes.to_numpy(), native.cat.categories
        else:
            codes, words = native.factorize()
        return coded(codes, words.tolist())
    if column.implementation.is_polars() and column.dtype in (nw.Categorical, nw.Enum, nw.String):
        return _codes_of_polars(native)
    return np.fromiter(column.to_list(), object, len(column))


def _as_arrow(column: nw.Series[Any], lists: bool = False) -> Any:
    """Return a column, or texts or lists of others, as pyarrow has them; None for the rest."""
    native: Any = column.to_native()
    library, pyarrow = column.implementation, nw.dependencies.get_pyarrow()
    if library.is_pyarrow():
        return native
    if pyarrow is None or column.dtype not in ((nw.List, nw.Array) if lists else (nw.String,)):
        return None
    if library.is_polars():
        import polars as pl  # noqa: PLC0415

        return native.to_arrow(compat_level=pl.CompatLevel.newest())
    return pyarrow.array(native) if library.is_pandas() else None


def _codes_of_polars(column: Any) -> CodedLabels:
    import polars as pl  # noqa: PLC0415

    categories = column.cast(pl.Categorical) if column.dtype == pl.String else column
    numbers = categories.to_physical()
    if column.null_count():
        numbers = numbers.cast(pl.Int64).fill_null(-1)
    rows, codes = first_rows(numbers.to_numpy())
    return coded(codes, column.gather(rows).to_list())


def _types(head: Frame, name: str) -> list[tuple[np.dtype, bool]]:
    """Return the type of each column, object for objects that may be numbers.

    Beside it is False if the column is an array of numpy, which has no nulls but NaN.
    """
    native = head.to_native()
    dtypes = [*native.dtypes] if hasattr(native, "dtypes") else native.schema.types
    seen: dict[Any, tuple[np.dtype, nw.dtypes.DType]] = {}
    types, others = [], []
    for j, dtype in enumerate(dtypes):
        plain = isinstance(dtype, np.dtype)
        key = j if plain and dtype.kind == "O" else dtype  # objects are of any kind
        known = seen.get(key)
        if known is None:
            known = seen[key] = _type_of(head, j)
        found, kind = known
        if found.kind not in "biuf" and kind != nw.Object:
            others.append(f"{head.columns[j]!r} ({found if found.kind == 'c' else kind})")
        types.append((found, not plain))
    if others:
        complex_too = any(dtype.kind == "c" for dtype, _ in types)
        raise InvalidDataError(
            f"{'Complex data not supported: ' if complex_too else ''}{name} has columns that are "
            f"not real numbers: {', '.join(others):.500}; {_REMEDY}"
        )
    return types


def _type_of(head: Frame, j: int) -> tuple[np.dtype, nw.dtypes.DType]:
    """Return the types of a column to numpy and to narwhals; the first is void if unusable."""
    column = head.get_column(head.columns[j])
    kind = column.dtype
    if kind.is_integer() or kind.is_float():
        return np.dtype(str(kind).lower()), kind
    if kind == nw.Boolean:
        return np.dtype(bool), kind
    if kind in (nw.Object, nw.Unknown, nw.Categorical):  # such as sparse columns of pandas
        return _converted_type(column), kind
    return np.dtype("V"), kind


def _converted_type(column: nw.Series[Any]) -> np.dtype:
    """Return the type to which a column is converted if it has no nulls."""
    dtype: np.dtype = column[:0].to_numpy().dtype
    return dtype


def _by_pandas(frame: Frame, dtype: np.dtype, has_nulls: bool) -> np.ndarray:
    options = {"na_value": np.nan} if has_nulls and dtype.kind == "f" else {}
    rows: np.ndarray = frame.to_native().to_numpy(dtype=dtype, **options)
    return rows


def _as_they_are(frame: Frame) -> np.ndarray:
    rows: np.ndarray = frame.to_numpy()
    return rows


def _without_nulls(frame: Frame) -> np.ndarray:
    return _as_they_are(frame.select(nw.all().cast(nw.Float64)))


def _from_objects(frame: Frame) -> np.ndarray:
    rows = np.empty((len(frame), len(frame.columns)))
    for j, column in enumerate(frame.columns):
        series = frame.get_column(column)
        values = np.array(series.to_numpy(), object)
        values[series.is_null().to_numpy()] = np.nan
        try:
            rows[:, j] = values
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(
                f"X holds objects that are not numbers, in column {column!r}: {error}; {_REMEDY}"
            ) from None
    return rows
