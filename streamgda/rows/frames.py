"""Data frames and series of every library that narwhals knows, in memory and lazy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

import narwhals.stable.v2 as nw
import numpy as np
from narwhals.exceptions import DuplicateError

from streamgda.errors import InvalidDataError
from streamgda.rows.columns import CountNulls, FeatureColumns, ListColumn, SingleColumn
from streamgda.rows.forward import Blocks, ForwardRows
from streamgda.rows.names import as_names
from streamgda.rows.sources import RowSource
from streamgda.runtime.retry import brief

_NULLS_OF = "nulls of "
_BATCH_BYTES = 1 << 22  # of rows that polars computes at a time


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of a data frame, or labels or weights of a series, converted slab by slab.

    Attributes
    ----------
    frame : narwhals.DataFrame or narwhals.Series
        The frame or series.
    conversion : FeatureColumns or SingleColumn
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
            frame = nw.from_native(_wrapped(X), eager_only=True, allow_series=True)
        except DuplicateError as error:
            raise InvalidDataError(
                f"{name} has several columns with the same name; rename them: {brief(error)}"
            ) from None
        series = isinstance(frame, nw.Series)
        names = () if series else frame.columns

        def count_nulls(columns: Sequence[int]) -> Sequence[int]:
            if isinstance(frame, nw.Series):
                return [frame.null_count()]
            return [frame.get_column(names[j]).null_count() for j in columns]

        conversion = _conversion(frame, name, series, count_nulls)
        shape = (len(frame), *conversion.shape)
        return cls(X, shape, conversion.dtype, name, frame=frame, conversion=conversion)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        part = self.frame if stop - start == len(self.frame) else self.frame[start:stop]
        rows: np.ndarray = self.conversion.convert(part)
        return rows

    @property
    def copied_bytes(self) -> float:
        """Bytes of the rows as an array."""
        return float(self.n_rows * self.row_bytes)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if all are strings; an error if some are, as in scikit-learn."""
        named = len(self.shape) == 2 and not isinstance(self.conversion, ListColumn)
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
    conversion : FeatureColumns or SingleColumn
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

        def count_nulls(columns: Sequence[int]) -> Sequence[int]:
            return [counts()[_NULLS_OF + head.columns[j]] for j in columns]

        conversion = _conversion(head, name, False, count_nulls)
        shape = (counts()["len"], *conversion.shape)
        names = tuple(schema)
        return cls(X, shape, conversion.dtype, name, names=names, conversion=conversion)

    def _blocks(self, start: int) -> Blocks:
        n_rows = max(1, _BATCH_BYTES // max(1, self.row_bytes))
        lazy = self.values.slice(start)
        for batch in lazy.collect_batches(chunk_size=n_rows, engine="streaming"):
            yield self.conversion.convert(nw.from_native(batch, eager_only=True))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.names if len(self.shape) == 2 else None


def _conversion(head: Any, name: str, series: bool, count_nulls: CountNulls) -> Any:
    """Return the conversion of rows, or of labels or weights in one column."""
    lists = ListColumn.of(head) if name == "X" else None
    if lists is not None:
        return lists
    single = series or (name != "X" and len(head.columns) == 1)
    return (SingleColumn if single else FeatureColumns).of(head, name, count_nulls)


def _counts(X: Any) -> dict[str, int]:
    """Return the number of rows of a LazyFrame, and of nulls in its integers and booleans."""
    import polars as pl  # noqa: PLC0415
    from polars import selectors  # noqa: PLC0415

    integers = selectors.integer() | selectors.boolean()
    query = X.select(pl.len(), integers.null_count().name.prefix(_NULLS_OF))
    counts: dict[str, int] = query.collect(engine="streaming").row(0, named=True)
    return counts


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
