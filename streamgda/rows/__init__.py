"""Rows: one adapter for each kind of container, slabs, labels, and checks of their values.

A new container takes one file with a subclass of `RowSource`, and one line in `ADAPTERS`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import ArrayRows
from streamgda.rows.batches import Batches
from streamgda.rows.counting import (
    CHECK_SUMS,
    LEARNING,
    RowRule,
    Slab,
    as_matrix,
    is_plain,
    row_rule,
)
from streamgda.rows.dask import DaskRows
from streamgda.rows.frames import FrameRows
from streamgda.rows.source import (
    ADAPTERS,
    RowSource,
    adapter_of,
    as_slab,
    as_source,
    check_container,
    check_lengths,
    check_rows,
)
from streamgda.rows.sparse import SparseRows
from streamgda.rows.xarray import LabelledRows, along
from streamgda.rows.zarr import StoredRows
from streamgda.runtime import threads
from streamgda.runtime.parameters import shown, unexpected

_PLANNED_BYTES = 1 << 30  # Smaller arrays in memory are summed at once.
_COPIED_BYTES = 1 << 26  # Other rows in memory are summed at once if they are smaller.

# Adapters are asked in this order, and recognise libraries without importing them.
ADAPTERS[:] = (
    StoredRows,
    FrameRows,
    LabelledRows,
    DaskRows,
    SparseRows,
    ArrayRows,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with the labels, groups and weights that belong to them, recognised once.

    Attributes
    ----------
    X : ndarray, array-like in memory, or RowSource
    y, groups, weight : array-like, RowSource or None
        In the order of the rows.
    rule : RowRule
        Which rows count.
    """

    X: Any
    y: Any = None
    groups: Any = None
    weight: Any = None
    rule: RowRule = CHECK_SUMS

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        *,
        features: Any = None,
        nodata: Any = None,
        unlabelled: Any = None,
        on_invalid: Any = "raise",
        actions: tuple[str, ...] = LEARNING,
    ) -> Self:
        """Recognise what a caller passes, once: `X` becomes a source unless it is an array.

        Parameters
        ----------
        X, y, sample_weight, groups
            See `streamgda.accumulate`.
        features : str or int, optional
            See `as_source`.
        nodata, unlabelled, on_invalid, actions
            See `row_rule`.

        Raises
        ------
        InvalidDataError, InvalidParameterError, SourceError
            See `as_source` and `row_rule`.
        """
        X = _recognised(X, "X") if features is None else along(X, features)
        weight = _recognised(sample_weight, "sample_weight")
        rule = row_rule(on_invalid, nodata, unlabelled, actions)
        return cls(X, _recognised(y, "y"), _recognised(groups, "groups"), weight, rule)

    def opened(self) -> Self:
        """Return the rows with a source of each array, in the order of the rows."""
        X, weight = as_source(self.X), self.weight
        if weight is not None and np.isscalar(weight):
            weight = np.broadcast_to(weight, X.n_rows)
        return replace(
            self,
            X=X,
            y=_beside(X, self.y, "y"),
            groups=_beside(X, self.groups, "groups"),
            weight=_beside(X, weight, "sample_weight"),
        )

    def checked(self) -> Self:
        """Return the rows; raise `InvalidDataError` for sources whose shapes do not fit."""
        check_rows(self.X, *self.beside)
        return self

    @property
    def beside(self) -> list[Any]:
        """The labels, groups and weights that are given, in this order."""
        return [values for values in (self.y, self.groups, self.weight) if values is not None]

    @property
    def sources(self) -> list[Any]:
        """The rows and what is beside them."""
        return [self.X, *self.beside]

    @property
    def at_once(self) -> Any:
        """The rows in memory, if they are processed at once, without a plan; otherwise None."""
        X = self.X
        if is_plain(X):
            return X if X.nbytes <= _PLANNED_BYTES else None
        if not isinstance(X, RowSource) or not X.in_memory:
            return None
        return X.whole() if 0 < X.n_rows * X.row_bytes <= _COPIED_BYTES else None

    def dense(self) -> Self:
        """Return the rows such that slabs of sparse ones are dense."""
        X = self.X
        if isinstance(X, SparseRows):
            X = X.map(lambda rows, _: rows.toarray(), X.dtype, X.shape[1])
        return replace(self, X=X)

    @property
    def executor(self) -> str:
        """The executor of a pass over the sources: this process, or dask."""
        return "dask" if any(s.executor == "dask" for s in self.sources) else "process"

    def read(self, start: int, stop: int) -> Slab:
        """Return rows ``start:stop``; `stop` may be beyond the last row."""
        stop = min(stop, self.X.n_rows)
        y, groups, weight = (
            None if source is None else source.read(start, stop)
            for source in (self.y, self.groups, self.weight)
        )
        return Slab(self.X.read(start, stop), y, groups, weight, start)

    def slabs(self, n_rows: int, first: int = 0) -> Generator[Slab]:
        """Yield slabs of `n_rows`, one of which is read ahead.

        Parameters
        ----------
        n_rows : int
            Rows of a slab: whole chunks or shards, if there are any.
        first : int
            First row of the first slab.
        """
        starts = range(first, self.X.n_rows, n_rows)
        calls = ((start, start + n_rows) for start in starts)
        # Dask reads ahead itself.
        if self.executor == "dask" or all(source.read_as_views for source in self.sources):
            yield from (self.read(*call) for call in calls)
        elif starts:
            with contextlib.closing(threads.one_ahead(self.read, calls)) as slabs:
                yield from slabs


def _recognised(values: Any, name: str) -> Any:
    """Return arrays and lists as they are, other containers of rows as a source.

    Labels in a DataArray stay as they are until they are laid out in the order of the rows; so does
    one weight of all rows.
    """
    if values is None or type(values) is np.ndarray:
        return values
    if isinstance(values, RowSource):  # Columns that were opened as labels may be weights.
        return values if values.name == name else replace(values, name=name)
    check_container(values, name)
    if isinstance(values, list | tuple):
        return values
    adapter = adapter_of(values, name)
    if name != "X" and (np.isscalar(values) or adapter is LabelledRows):
        return values
    return as_slab(values, name) if adapter is ArrayRows else adapter.of(values, name)


def _beside(X: RowSource, values: Any, name: str) -> Any:
    """Return a source of labels, groups or weights in the order of the rows; None for None."""
    if values is None:
        return None
    source = as_source(X.laid_out(values, name) if isinstance(X, LabelledRows) else values, name)
    here = source.executor == "dask" and X.executor != "dask" and not X.chunks
    return as_source(source.whole(), name) if here else source  # X is read here, and in no chunks.


def as_batches(
    X: Any, sample_weight: Any = None, *, features: Any = None, columns: Any = None
) -> Batches:
    """Return the batches of `X`, each with its own weights.

    Parameters
    ----------
    X : iterable
        Batches.
    sample_weight, features : None
        Others raise an error.
    columns : tuple, optional
        Names ``(X, y)`` or ``(X, y, weight)`` of the columns of batches that are dicts or tables.

    Raises
    ------
    InvalidDataError
        If `X` holds rows rather than batches, or weights are given besides.
    InvalidParameterError
        For other `columns`, and for `features`.
    """
    if features is not None:
        raise unexpected("features", features, "None: batches are arrays of rows x features")
    batches = Batches(X, columns)
    if sample_weight is not None:
        raise InvalidDataError(
            "sample_weight belongs to rows and labels; batches hold their own weights: "
            "(X, y, weight)"
        )
    return batches


# --- targets -------------------------------------------------------------------------------------


def target_columns(y: Any) -> np.ndarray:
    """Return targets as columns of float64, shape (n_rows, n_targets).

    Raises
    ------
    InvalidDataError
        For targets that are not real numbers.
    """
    y = np.asarray(y)
    try:
        if y.dtype.kind not in "biufO":
            raise TypeError(f"its dtype is {y.dtype}")
        columns = math.prod(y.shape[1:])  # Without rows, -1 would be ambiguous.
        return y.reshape(len(y), columns).astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        kind = "Complex data not supported" if y.dtype.kind == "c" else "y holds no real numbers"
        raise InvalidDataError(
            f"{kind}, but {shown(y.ravel()[:1].tolist()[0])}: {error}. Targets are numbers; labels "
            f"are learned by classifiers, such as RidgeClassifier"
        ) from None


def side_by_side(X: Any, y: Any) -> np.ndarray:
    """Return rows and their targets as one array of float64."""
    return np.column_stack([as_matrix(X), target_columns(y)])


def targets_of(X: RowSource, y: Any) -> RowSource:
    """Return a source of targets in the order of the rows.

    Raises
    ------
    InvalidDataError
        For targets of another number than the rows, that are not columns, or not numbers.
    """
    y = _beside(X, y, "y")
    if len(y.shape) not in (1, 2) or not math.prod(y.shape[1:]):
        raise InvalidDataError(
            f"y has shape {y.shape}; expected a column of targets, (n_rows,), or several, "
            f"(n_rows, n_targets)"
        )
    if not (math.isnan(X.n_rows) or math.isnan(y.n_rows)):
        check_lengths(X, replace(y, shape=y.shape[:1], name="targets"))
    return y
