"""Rows in parts, of which training and test sets are sums: accumulated side by side in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import describe
from streamgda.engine.fold_journal import FoldJournal
from streamgda.engine.plan import count_classes, plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import reading
from streamgda.engine.requests import Accumulation
from streamgda.engine.resuming import resume
from streamgda.engine.splits import Splits
from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.rows import as_sources
from streamgda.rows.codes import CodedLabels
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule, as_maskable_matrix, rows_to_count
from streamgda.rows.labels import encode, find
from streamgda.rows.sources import RowSource, Slabs, check_rows, placing


class FoldedRows:
    """Rows, labels and weights in the parts of splits.

    Parameters
    ----------
    X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
        Shape (n_rows, n_features).
    y, sample_weight : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
    split : callable
        Returns the `Splits` of the sources of rows and labels.
    allowed : int
        Bytes for rows in flight and moments.
    progress : bool or callable
        See `streamgda.accumulate`.
    rule : RowRule
        Which rows count.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other, or chunks of unknown size.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        split: Callable[[RowSource, RowSource], Splits],
        allowed: int,
        progress: Progress = False,
        rule: RowRule = CHECK_SUMS,
    ) -> None:
        self.rows, *self.companions = as_sources(X, y, sample_weight)
        check_rows(self.rows, *self.companions)
        self.rule = rule
        self.splits = split(self.rows, self.companions[0])
        self.allowed = allowed
        self.progress = progress

    @cached_property
    def n_classes(self) -> int:
        """Number of different labels of rows that may count; all of them are read."""
        with placing(*self._sources):
            return count_classes(self.companions[0], self.rule)

    def state_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of a part."""
        return structure_of(covariance_type).state_bytes(self.n_classes, self.rows.shape[1])

    def held_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of all parts, and of sums and rows of them."""
        n_parts = self.splits.n_parts
        sums = max(5, 3 + n_parts.bit_length())  # one for each halving of the parts
        return (n_parts + sums) * self.state_bytes(covariance_type)

    def plan(self, state: int) -> Slabs:
        """Cut the rows into slabs; `state` bytes are held meanwhile."""
        return plan_rows(self.rows, self.allowed, state, beside=self.companions, copies=1)

    def read(self, plan: Slabs, first: int, what: str) -> Iterator[tuple[int, list[Any]]]:
        """Yield the first row of each slab, from `first` on, and its rows, labels and weights.

        Parameters
        ----------
        plan : Slabs
        first : int
            First row.
        what : str
            Description of the work, shown with the progress.
        """
        options: Any = {"what": what, "progress": self.progress, "first": first}
        with reading(plan, *self._sources, **options) as slabs:
            yield from slabs

    def journal(
        self,
        path: Any,
        every: float,
        covariance_type: str,
        fourth_moments: bool,
        scores: tuple[int, ...],
        **description: str,
    ) -> FoldJournal:
        """Return the journal of a search, with what its file holds.

        Parameters
        ----------
        path, every
            See `Journal`; without a path, nothing is written.
        covariance_type, fourth_moments
            Those of the moments of the parts.
        scores : tuple of int
            Shape of the sums of scores.
        **description
            What else a run that resumes must share.
        """
        asked = Accumulation(covariance_type, fourth_moments, self.rule)
        rows = {source.name: describe(source) for source in self._sources}
        description |= {"splits": self.splits.description, "on_invalid": self.rule.action}
        parts = [
            ClassMoments(covariance_type, fourth_moments=fourth_moments)
            for _ in range(self.splits.n_parts)
        ]
        return FoldJournal(path, every, asked.description(**rows) | description, parts, scores)

    def accumulate(
        self, covariance_type: str, fourth_moments: bool, journal: FoldJournal | None = None
    ) -> list[ClassMoments]:
        """Return the moments of each part, from one pass, or from those in the journal on.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MemoryBudgetError
            If the moments of all parts exceed the budget.
        """
        if journal is None:
            journal = self.journal(None, 0.0, covariance_type, fourth_moments, ())
        plan = resume(journal, self.plan(self.held_bytes(covariance_type)), *self._sources)
        first = min(journal.done, self.rows.n_rows)
        classes = np.empty(0, np.int64)
        for start, (X, y, *weights) in self.read(plan, first, "accumulating"):
            stop = start + len(X)
            with journal.adding(stop, start, X, [y, *weights]):
                try:
                    labels, classes = self._encoded(y, classes, start)
                    parts = self.splits.parts(start, stop)
                    for moments, part in zip(journal.parts, parts, strict=True):
                        if part.size:
                            rows = (array[part] for array in (X, labels, *weights))
                            moments._update(*rows, rule=self.rule)
                except InvalidDataError:
                    self._find_invalid(start, stop)
                    raise
        return journal.parts

    def _encoded(self, y: Any, classes: np.ndarray, first_row: int) -> tuple[Any, np.ndarray]:
        """Return labels by codes that all parts share, and the classes; missing ones masked."""
        labels = self.rule.as_labels(y, first_row)
        if isinstance(labels, np.ma.MaskedArray):
            return labels, classes
        codes, classes = encode(labels, classes)
        return CodedLabels(classes, codes), classes

    def _find_invalid(self, start: int, stop: int) -> None:
        """Add the rows of a slab to other moments, for an error that names a row by its number."""
        X, y, *weights = (source.read(start, stop) for source in self._sources)
        with placing(*self._sources):
            weight = weights[0] if weights else None
            ClassMoments("diag")._update(X, y, weight, first_row=start, rule=self.rule)

    def scored(
        self, plan: Slabs, first: int, classes: np.ndarray
    ) -> Iterator[tuple[int, Any, np.ndarray, np.ndarray]]:
        """Yield the first row of each slab, its rows, their codes among `classes`, and weights.

        The code of rows that do not count is -1.
        """
        for start, (values, y, *given) in self.read(plan, first, "scoring"):
            X, labels = as_maskable_matrix(values), self.rule.as_labels(y, start)
            sample_weight = given[0] if given else None
            counted = rows_to_count(X, labels, sample_weight, self.rule, start)
            rows: Any = slice(None) if counted[3] is None else counted[3]
            codes, weights = np.full(len(X), -1), np.ones(len(X))
            codes[rows] = find(counted[1], classes)
            weights[rows] = counted[2] if counted[2].size else 1.0
            yield start, np.asarray(X), codes, weights

    @property
    def _sources(self) -> list[RowSource]:
        return [self.rows, *self.companions]
