"""Data frames and series of every library that narwhals knows, and arrays of Arrow and pandas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from streamgda.errors import InvalidDataError, brief
from streamgda.rows.labels import CodedLabels, code
from streamgda.rows.names import as_names
from streamgda.rows.source import RowSource

_OBJECT, _FLOAT = np.dtype(object), np.dtype(np.float64)
_REMEDY = (
    "convert them to numbers (one-hot encode categories, cast decimals to floats) or drop them"
)


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of a data frame, or labels or weights of a series, converted slab by slab.

    Attributes
    ----------
    frame : narwhals.DataFrame or narwhals.Series
        The series if its entries are labels or weights, or rows, such as embeddings.
    """

    in_memory: bool = True

    frame: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept frames, series, and arrays of Arrow and pandas."""
        if isinstance(X, np.ndarray | list | tuple):
            return False
        into = nw.dependencies.is_into_dataframe(X) or nw.dependencies.is_into_series(X)
        return into or _wrapped(X) is not X

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, or of labels or weights in a series or a frame's column.

        Raises
        ------
        InvalidDataError
            For columns of rows that are not numbers.
        """
        try:
            frame: Any = nw.from_native(_wrapped(X), eager_only=True, allow_series=True)
        except DuplicateError as error:
            raise InvalidDataError(
                f"{name} has several columns with the same name; rename them: {brief(error)}"
            ) from None
        column = frame if isinstance(frame, nw.Series) else None
        if column is None and len(frame.columns) == 1:
            column = frame.get_column(frame.columns[0])
        if column is not None and name == "X" and (row := _first_row(column)) is not None:
            return cls(X, (len(column), row.size), row.dtype, name, frame=column)
        if column is not None and (name != "X" or isinstance(frame, nw.Series)):
            plain = _is_plain(column) and not column.null_count()
            dtype = column[:0].to_numpy().dtype if plain else _OBJECT
            return cls(X, (len(column),), dtype, name, frame=column)
        dtype = _common_type(frame, name)
        return cls(X, (len(frame), len(frame.columns)), dtype, name, frame=frame)

    def read(self, start: int, stop: int) -> Any:
        """Return rows as an array, labels as one or by their codes."""
        part = self.frame[start:stop]
        if len(self.shape) == 1:
            return _labels(part)
        if isinstance(self.frame, nw.Series):
            return _stacked(part.to_list(), self.shape[1], start).astype(self.dtype, copy=False)
        return _matrix(part, np.dtype(self.dtype))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if all are strings; an error if some are, as in scikit-learn."""
        columns = () if isinstance(self.frame, nw.Series) else self.frame.columns
        names = as_names(columns)
        if names is None and any(isinstance(column, str) for column in columns):
            raise InvalidDataError(
                f"{self.name} has columns some of whose names are strings; rename them all to "
                f"strings, for example: {self.name}.columns = {self.name}.columns.astype(str)"
            )
        return names


def _wrapped(X: Any) -> Any:
    """Return the frame or series with the values of an Arrow or pandas array; others as given."""
    arrow, pandas = nw.dependencies.get_pyarrow(), nw.dependencies.get_pandas()
    if arrow is not None and isinstance(X, arrow.RecordBatch):
        return arrow.Table.from_batches([X])
    if arrow is not None and isinstance(X, arrow.Array):
        return arrow.chunked_array([X])
    if pandas is not None and isinstance(X, pandas.api.extensions.ExtensionArray):
        return pandas.Series(X)
    return X


def _is_plain(column: Any) -> bool:
    """Return whether the entries of a column are numbers, booleans or dates."""
    kind = column.dtype
    return bool(kind.is_numeric() or kind.is_temporal() or kind == nw.Boolean)


def _common_type(frame: Any, name: str) -> np.dtype:
    """Return the type that holds all columns; floats hold integers with nulls, and objects."""
    types, others = [], []
    for column in frame.iter_columns():
        kind = column.dtype
        found = column[:0].to_numpy().dtype
        if kind == nw.Object or (found.kind in "biu" and column.null_count()):
            found = _FLOAT
        elif not (kind.is_numeric() or kind == nw.Boolean) or found.kind not in "biufO":
            others.append(f"{column.name!r} ({found if found.kind == 'c' else kind})")
        types.append(_FLOAT if found == _OBJECT else found)
    if others:
        complex_too = "Complex data not supported: " * any(t.kind == "c" for t in types)
        raise InvalidDataError(
            f"{complex_too}{name} has columns that are not real numbers: "
            f"{', '.join(others):.500}; {_REMEDY}"
        )
    return np.result_type(*types) if types else _FLOAT


def _matrix(frame: Any, dtype: np.dtype) -> np.ndarray:
    """Return columns of numbers as rows of a type, in which missing values are NaN."""
    try:
        if frame.implementation.is_pandas_like():
            options = {"na_value": np.nan} if dtype.kind == "f" else {}
            rows = frame.to_native().to_numpy(dtype=dtype, **options)
        else:
            rows = frame.to_numpy()
        return np.ascontiguousarray(rows, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        objects = [c.name for c in frame.iter_columns() if not c.dtype.is_numeric()]
        raise InvalidDataError(
            f"X holds objects that are not numbers, in column "
            f"{', '.join(map(repr, objects)):.500}: {error}; {_REMEDY}"
        ) from None


def _labels(column: Any) -> Any:
    """Return the entries of a series: categories by their codes, and None for null."""
    native = column.to_native()
    if column.implementation.is_pandas_like() and hasattr(native, "cat"):
        known = code(np.asarray(native.cat.categories))
        return CodedLabels(np.append(known.codes, -1)[native.cat.codes.to_numpy()], known.values)
    if _is_plain(column) and not column.null_count():
        return column.to_numpy()
    return np.fromiter(column.to_list(), object, len(column))


def _first_row(column: Any) -> np.ndarray | None:
    """Return the first entry of a column whose entries are rows; None for other columns."""
    if column.dtype not in (nw.List, nw.Array, nw.Object) or not len(column):
        return None
    first = column.head(1).to_list()[0]
    if not isinstance(first, list | tuple | np.ndarray) or not np.size(first):
        return None
    row = np.ravel(np.asarray(first))
    return row if row.dtype.kind in "biuf" else None


def _stacked(rows: Sequence[Any], width: int, first_row: int) -> np.ndarray:
    """Return entries that are rows as a matrix; raise `InvalidDataError` for another width."""
    for number, row in enumerate(rows, first_row):
        found = 0 if row is None else np.size(row)
        if found != width:
            raise InvalidDataError(
                f"row {number} holds {found} values; expected {width} a row", *("X", number)
            )
    return np.array([np.ravel(np.asarray(row)) for row in rows]).reshape(-1, width)
