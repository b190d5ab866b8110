"""Tables in memory: data frames and series of every library that narwhals knows, and Arrow's.

Neither pyarrow nor any library of frames is imported before a table of its kind is passed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, Self

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from streamgda.errors import InvalidDataError, brief
from streamgda.rows.arrays import coded, concatenated, of_columns
from streamgda.rows.names import as_names
from streamgda.rows.sources import Blocks, ForwardRows, RowSource

_BATCH_BYTES = 1 << 22  # of rows that polars computes at a time
_FLOAT = np.dtype(np.float64)
_OBJECT = np.dtype(object)
_REMEDY = (
    "convert them to numbers (one-hot encode categories, cast decimals to floats) or drop them"
)

Frame = Any  # a data frame or series in memory, as narwhals wraps it


class Conversion(NamedTuple):
    """Conversion of frames to rows, or of a column to labels or weights.

    Attributes
    ----------
    function : callable
        Called with a frame or series; returns the array.
    dtype : numpy.dtype
    shape : tuple of int
        Shape of a row.
    lists : bool
        True if the entries of a column are rows, such as embeddings.
    """

    function: Callable[[Frame], Any]
    dtype: np.dtype
    shape: tuple[int, ...] = ()
    lists: bool = False

    @classmethod
    def of(cls, head: Frame, name: str, count_nulls: Callable[[str], int]) -> Self:
        """Return the conversion of frames or series with the columns of `head`.

        Parameters
        ----------
        head : narwhals.DataFrame or narwhals.Series
        name : str
            "X" for rows.
        count_nulls : callable
            Called with the name of a column.

        Raises
        ------
        InvalidDataError
            For columns of rows that are not numbers.
        """
        series = isinstance(head, nw.Series)
        single = series or len(head.columns) == 1
        row = _first_list(_only_column(head)) if single and name == "X" else None
        if row is not None:
            function = partial(_rows_of_lists, dtype=row.dtype, width=row.size)
            return cls(function, row.dtype, row.shape, True)
        if series or (single and name != "X"):
            dtype = _label_type(_only_column(head), count_nulls)
            return cls(partial(_labels, dtype=dtype), dtype)
        types = _types(head, name, count_nulls)
        dtype = np.result_type(*types) if types else _FLOAT
        pandas = head.implementation.is_pandas_like()
        function = partial(_of_pandas if pandas else rows_of, dtype=dtype)
        return cls(function, dtype, (len(head.columns),))


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of a data frame, or labels or weights of a series, converted slab by slab.

    Attributes
    ----------
    frame : narwhals.DataFrame or narwhals.Series
        The frame or series.
    conversion : Conversion
    """

    in_memory = True

    frame: Any = field(default=None, repr=False, compare=False)
    conversion: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept frames, series, Arrow arrays and arrays of pandas, unless numpy holds them."""
        if isinstance(X, np.ndarray | list | tuple) or _is_array_in_disguise(X):
            return False
        return (
            nw.dependencies.is_into_dataframe(X)
            or nw.dependencies.is_into_series(X)
            or _wrapped(X) is not X
        )

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
        series = isinstance(frame, nw.Series)

        def count_nulls(column: str) -> int:
            return int((frame if series else frame.get_column(column)).null_count())

        conversion = Conversion.of(frame, name, count_nulls)
        shape = (len(frame), *conversion.shape)
        return cls(X, shape, conversion.dtype, name, frame=frame, conversion=conversion)

    def _slice(self, start: int, stop: int) -> Any:
        part = self.frame if stop - start == len(self.frame) else self.frame[start:stop]
        return self.conversion.function(part)

    @property
    def copied_bytes(self) -> float:
        """Bytes of the rows as an array."""
        return float(self.n_rows * self.row_bytes)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if all are strings; an error if some are, as in scikit-learn."""
        named = len(self.shape) == 2 and not self.conversion.lists
        columns = self.frame.columns if named else ()
        names = as_names(columns)
        if names is None and any(isinstance(column, str) for column in columns):
            raise InvalidDataError(
                f"{self.name} has columns some of whose names are strings; rename them all to "
                f"strings, for example: {self.name}.columns = {self.name}.columns.astype(str)"
            )
        return names


@dataclass(frozen=True)
class LazyFrameRows(ForwardRows):
    """Rows of a LazyFrame of polars, which computes them in batches.

    Attributes
    ----------
    names : tuple of str
    conversion : Conversion
    """

    names: tuple[str, ...] = ()
    conversion: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept LazyFrames of polars."""
        return bool(nw.dependencies.is_polars_lazyframe(X))

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, which are counted by a query; so are nulls of integers.

        Raises
        ------
        InvalidDataError
            For columns of rows that are not numbers.
        """
        if not hasattr(X, "collect_batches"):
            raise InvalidDataError(
                f"{name} is a LazyFrame, and this version of polars cannot compute it in batches; "
                f"install polars 1.34 or later, or pass {name}.collect()"
            )
        import polars as pl  # noqa: PLC0415

        schema = X.collect_schema()
        head = nw.from_native(pl.DataFrame(schema=schema), eager_only=True)
        counts = cache(lambda: _counts(X))
        conversion = Conversion.of(head, name, lambda column: counts()[f"nulls of {column}"])
        shape = (counts()["rows"], *conversion.shape)
        names = tuple(schema)
        return cls(X, shape, conversion.dtype, name, names=names, conversion=conversion)

    def _blocks(self, start: int) -> Blocks:
        n_rows = max(1, _BATCH_BYTES // max(1, self.row_bytes))
        lazy = self.values.slice(start)
        for batch in lazy.collect_batches(chunk_size=n_rows, engine="streaming"):
            yield self.conversion.function(nw.from_native(batch, eager_only=True))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.names if len(self.shape) == 2 else None


def _counts(X: Any) -> dict[str, int]:
    """Return the number of rows of a LazyFrame, and of nulls in its integers and booleans."""
    import polars as pl  # noqa: PLC0415
    from polars import selectors  # noqa: PLC0415

    integers = selectors.integer() | selectors.boolean()
    query = X.select(pl.len().alias("rows"), integers.null_count().name.prefix("nulls of "))
    return query.collect(engine="streaming").row(0, named=True)


def _is_array_in_disguise(X: Any) -> bool:
    """Return whether this is a series around an array of numpy, which is read without a copy."""
    dtype = getattr(X, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind != "O"


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


# --- columns of frames ----------------------------------------------------------------------------


def _types(head: Frame, name: str, count_nulls: Callable[[str], int]) -> list[np.dtype]:
    """Return the numpy type of each column of numbers.

    That of integers and booleans with nulls is float64, as in pandas, and so is that of objects.
    """
    native = head.to_native()
    dtypes = [*native.dtypes] if hasattr(native, "dtypes") else native.schema.types
    seen: dict[Any, tuple[np.dtype, Any]] = {}
    types, others = [], []
    for column, dtype in zip(head.columns, dtypes, strict=True):
        plain = isinstance(dtype, np.dtype)
        if plain and dtype.kind in "biuf":
            types.append(dtype)
            continue
        key = column if plain and dtype.kind == "O" else dtype  # objects are of any kind
        if key not in seen:
            series = head.get_column(column)
            seen[key] = _held_as(series), series.dtype
        found, kind = seen[key]
        if found == _OBJECT and kind == nw.Object:
            found = _FLOAT
        elif found.kind not in "biuf":
            others.append(f"{column!r} ({found if found.kind == 'c' else kind})")
        elif not plain and found.kind in "biu" and count_nulls(column):
            found = _FLOAT
        types.append(found)
    if others:
        complex_too = any(dtype.kind == "c" for dtype in types)
        raise InvalidDataError(
            f"{'Complex data not supported: ' if complex_too else ''}{name} has columns that are "
            f"not real numbers: {', '.join(others):.500}; {_REMEDY}"
        )
    return types


def _held_as(column: nw.Series[Any]) -> np.dtype:
    """Return the type in which numpy holds a column; object if it does not, or not in one axis."""
    if column.dtype in (nw.Struct, nw.Int128, nw.UInt128):
        return _OBJECT
    dtype: np.dtype = column[:0].to_numpy().dtype
    return dtype


def _of_pandas(frame: Frame, dtype: np.dtype) -> Any:
    """Return columns of pandas as rows; missing values in columns of any type are NaN in floats."""
    native = frame.to_native()
    kinds = native.dtypes.items()
    objects = [name for name, kind in kinds if kind == _OBJECT]
    plain = all(isinstance(kind, np.dtype) for _, kind in kinds)
    options = {} if plain or dtype.kind != "f" else {"na_value": np.nan}  # pandas looks for them
    try:
        if objects:
            native = native.where(native.notna(), np.nan)
        rows = np.asarray(native.to_numpy(dtype=dtype, **options), dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_numbers(objects, error) from None
    return np.ascontiguousarray(rows)


def _not_numbers(columns: list[Any], error: Exception) -> InvalidDataError:
    names = ", ".join(map(repr, columns))
    return InvalidDataError(
        f"X holds objects that are not numbers, in column {names:.500}: {error}; {_REMEDY}"
    )


def rows_of(frame: Frame, dtype: np.dtype) -> Any:
    """Return columns of other libraries as rows of a type."""
    if frame.implementation.is_pyarrow():
        from streamgda.rows.arrow import feature_matrix  # noqa: PLC0415  (it needs pyarrow)

        batches = frame.to_native().to_batches()
        return concatenated([feature_matrix(b.columns, dtype, b.num_columns) for b in batches])
    found = {column.name: column.to_numpy() for column in frame.iter_columns()}
    objects = [column for column, values in found.items() if values.dtype == _OBJECT]
    try:
        found |= {column: found[column].astype(dtype) for column in objects}
    except (TypeError, ValueError, OverflowError) as error:
        raise _not_numbers(objects, error) from None
    return of_columns([*found.values()], dtype)


def _label_type(column: nw.Series[Any], count_nulls: Callable[[str], int]) -> np.dtype:
    """Return the type of labels or weights in a column; object for those that numpy lacks.

    Those are texts and categories, and integers and booleans with nulls.
    """
    kind = column.dtype
    if not (kind.is_numeric() or kind.is_temporal() or kind in (nw.Boolean, nw.Unknown)):
        return _OBJECT
    if kind == nw.Date and column.implementation.is_pandas():  # to which dates are objects
        return _OBJECT
    dtype = _held_as(column)
    return _OBJECT if dtype.kind in "biu" and count_nulls(column.name) else dtype


def _labels(frame: Frame, dtype: np.dtype) -> Any:
    """Return the entries of a series, or of the only column of a frame.

    Those of type object are by their codes, if Arrow encodes them. The label of null is None,
    unless it is an object.
    """
    column = _only_column(frame)
    if dtype != _OBJECT:
        return np.asarray(column.to_numpy(), dtype)
    native: Any = column.to_native()
    pandas = column.implementation.is_pandas_like()
    if pandas and hasattr(native, "cat"):
        return coded(native.cat.codes.to_numpy(), native.cat.categories.tolist())
    arrow = _as_arrow(column)
    if arrow is not None:
        from streamgda.rows.arrow import as_label_array  # noqa: PLC0415  (it needs pyarrow)

        return as_label_array(arrow)
    if not pandas:
        return np.fromiter(column.to_list(), object, len(column))
    nulls = {} if isinstance(native.dtype, np.dtype) else {"na_value": None}
    return native.to_numpy(object, **nulls)


def _first_list(column: nw.Series[Any]) -> np.ndarray | None:
    """Return the first entry of a column whose entries are rows; None for other columns."""
    if column.dtype not in (nw.List, nw.Array, nw.Object) or not len(column):
        return None
    first = column.head(1).to_list()[0]
    if not isinstance(first, list | tuple | np.ndarray) or not np.size(first):
        return None
    row = as_stacked(column.head(1).to_numpy())[0]
    return row if row.dtype.kind in "biuf" else None


def _rows_of_lists(frame: Frame, dtype: np.dtype, width: int) -> np.ndarray:
    """Return the rows that are the entries of a series, or of the only column of a frame."""
    column = _only_column(frame)
    arrow = _as_arrow(column)
    if arrow is not None:
        from streamgda.rows.arrow import feature_matrix  # noqa: PLC0415  (it needs pyarrow)

        return feature_matrix([arrow], dtype, width)
    return as_stacked(column.to_numpy(), width).astype(dtype, copy=False)


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
    series = isinstance(frame, nw.Series)  # a name may be a number, which would be that of a row
    return frame if series else frame.get_column(frame.columns[0])


def _as_arrow(column: nw.Series[Any]) -> Any:
    """Return a column of Arrow, and texts, categories, dates or lists of others; None for the rest.

    None, too, for texts that pandas holds as objects, and without pyarrow.
    """
    native: Any = column.to_native()
    library, pyarrow = column.implementation, nw.dependencies.get_pyarrow()
    if library.is_pyarrow():
        return native
    if pyarrow is None or column.dtype not in (
        nw.String,
        nw.Categorical,
        nw.Enum,
        nw.Date,
        nw.List,
        nw.Array,
    ):
        return None
    if library.is_polars():
        import polars as pl  # noqa: PLC0415

        return native.to_arrow(compat_level=pl.CompatLevel.newest())
    of_arrow = library.is_pandas() and getattr(native.dtype, "storage", "pyarrow") == "pyarrow"
    return pyarrow.array(native) if of_arrow and not isinstance(native.dtype, np.dtype) else None
