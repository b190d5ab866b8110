"""Rows: one adapter for each kind of container, slabs, labels, and checks of their values.

A new container takes one file with a subclass of `RowSource`, and one line in `ADAPTERS`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import ArrayRows
from streamgda.rows.batches import Batches, Partitions
from streamgda.rows.counting import CHECK_SUMS, LEARNING, RowRule, Slab, is_plain, row_rule
from streamgda.rows.dask import DaskRows
from streamgda.rows.frames import FrameRows
from streamgda.rows.source import (
    ADAPTERS,
    RowSource,
    adapter_of,
    as_numpy,
    as_slab,
    as_source,
    beside,
    check_rows,
    refuse_others,
)
from streamgda.rows.sparse import SparseRows
from streamgda.rows.xarray import ArrayLabelledRows, DaskLabelledRows, along, is_labelled
from streamgda.rows.zarr import StoredRows
from streamgda.runtime import threads
from streamgda.runtime.parameters import refuse

_PLANNED_BYTES = 1 << 30  # Smaller arrays in memory are summed at once.
_COPIED_BYTES = 1 << 26  # Other rows in memory are summed at once if they are smaller.

# Adapters are asked in this order, and recognise libraries without importing them.
ADAPTERS[:] = (
    StoredRows,
    FrameRows,
    DaskLabelledRows,
    ArrayLabelledRows,
    DaskRows,
    SparseRows,
    ArrayRows,
)
FIELDS = ("X", "y", "groups", "weight")  # `Rows` and `Slab` have these fields.
Wanted = Callable[[int, Any], bool]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with the labels, groups and weights that belong to them, recognised once.

    Attributes
    ----------
    X : ndarray, array-like in memory, or RowSource
    y, groups, weight : array-like, RowSource or None
        In sources, each has the order of the rows.
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
            y=beside(X, self.y, "y"),
            groups=beside(X, self.groups, "groups"),
            weight=beside(X, weight, "sample_weight"),
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
        """The rows, if they are given, and what is beside them."""
        return self.beside if self.X is None else [self.X, *self.beside]

    @property
    def at_once(self) -> Any:
        """The rows in memory, if they are processed at once, without a plan; otherwise None."""
        X = self.X
        if is_plain(X):
            return X if X.nbytes <= _PLANNED_BYTES else None
        X = SparseRows.of(X, "X") if SparseRows.accepts(X) else X
        if not isinstance(X, RowSource) or not 0 < X.copied_bytes <= _COPIED_BYTES:
            return None
        return X.whole()

    def dense(self) -> Self:
        """Return the rows such that slabs of sparse ones are dense."""
        X = SparseRows.of(self.X, "X") if SparseRows.accepts(self.X) else self.X
        return replace(self, X=replace(X, dense=True)) if isinstance(X, SparseRows) else self

    @property
    def executor(self) -> str:
        """The executor of a pass over the sources: this process, or dask."""
        return "dask" if any(s.executor == "dask" for s in self.sources) else "process"

    def each(self, function: Callable[[Any], Any]) -> Self:
        """Return what a function makes of the rows and of what is beside them."""
        fields = {name: getattr(self, name) for name in FIELDS}
        made = {name: function(value) for name, value in fields.items() if value is not None}
        return replace(self, **made)

    def read(self, start: int, stop: int, wanted: Wanted | None = None) -> Slab:
        """Return rows ``start:stop``; without any if they are not `wanted`, see `slabs`."""
        stop = min(stop, self.sources[0].n_rows)
        y, groups, weight = (
            None if source is None else source.read(start, stop)
            for source in (self.y, self.groups, self.weight)
        )
        if wanted is not None and not wanted(start, y):
            stop = start
        X = None if self.X is None else self.X.mapped(start, stop)
        return Slab(X, y, groups, weight, start)

    def slabs(self, n_rows: int, first: int = 0, wanted: Wanted | None = None) -> Generator[Slab]:
        """Yield slabs of `n_rows`, one of which is read ahead.

        Parameters
        ----------
        n_rows : int
            Rows of a slab: whole chunks or shards, if there are any.
        first : int
            First row of the first slab.
        wanted : callable, optional
            Called with the number of the first row of a slab and its labels; if it returns False,
            no rows are read.
        """
        starts = range(first, self.sources[0].n_rows, n_rows)
        calls = ((start, start + n_rows, wanted) for start in starts)
        # Dask reads ahead itself.
        if self.executor == "dask" or all(source.read_as_views for source in self.sources):
            yield from (self.read(*call) for call in calls)
        elif starts:
            with contextlib.closing(threads.one_ahead(self.read, calls)) as slabs:
                yield from slabs


def _recognised(values: Any, name: str) -> Any:
    """Return rows of arrays as they are, those of other containers as a source.

    What is beside the rows becomes an array or a source if it is in memory. Otherwise it is as
    given, until it is laid out in the order of the rows; so is a weight of all rows.
    """
    if values is None or type(values) is np.ndarray:
        return values
    refuse_others(values, name)
    if isinstance(values, list | tuple | RowSource):
        return values
    if isinstance(values, np.ndarray):
        return as_slab(values, name)
    if name != "X" and (np.isscalar(values) or hasattr(values, "chunks") or is_labelled(values)):
        return values
    adapter = adapter_of(values, name)
    if adapter in (ArrayRows, SparseRows):
        return as_numpy(values) if name == "X" else as_slab(values, name)
    return adapter.of(values, name) if name == "X" or adapter.in_memory else values


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
        raise refuse("features", features, "None: batches are arrays of rows x features")
    batches = (Partitions if Partitions.accepts(X) else Batches)(X, columns)
    if sample_weight is not None:
        raise InvalidDataError(
            "sample_weight belongs to rows and labels; batches hold their own weights: "
            "(X, y, weight)"
        )
    return batches
