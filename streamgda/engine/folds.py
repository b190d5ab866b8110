"""Rows in parts, of which training and test sets are sums: accumulated side by side in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import checksum, describe
from streamgda.engine.fold_journal import FoldJournal
from streamgda.engine.plan import count_classes, plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import reading
from streamgda.engine.requests import Accumulation
from streamgda.engine.resuming import resume
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, add_rows
from streamgda.moments.structures import structure_of
from streamgda.rows import as_sources
from streamgda.rows.codes import CodedLabels
from streamgda.rows.labels import encode, find
from streamgda.rows.rules import CHECK_SUMS, RowRule, rows_to_count
from streamgda.rows.slabs import Slabs
from streamgda.rows.sources import RowSource, check_rows, placing
from streamgda.rows.validity import as_maskable_matrix
from streamgda.runtime.parameters import refuse, shown

_ROWS_OF_AN_ATOM = 30  # adding the moments of two atoms takes as long as adding some rows


def hashes(first: int, last: int, seed: int) -> np.ndarray:
    """Return hashes of the numbers of the rows ``first:last`` (SplitMix64), as uint64."""
    # Seeds start far from each other in the sequence of all hashes.
    start = (int(seed) + 1) * 0xD1342543DE82EF95 % 2**64
    x = (np.arange(first, last, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold_of(first: int, last: int, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each of the rows ``first:last``: a hash of its number.

    Examples
    --------
    >>> fold_of(0, 10, 5, 0)
    array([4, 3, 0, 4, 1, 0, 3, 2, 3, 1])
    >>> fold_of(4, 10, 5, 0)
    array([1, 0, 3, 2, 3, 1])
    """
    return (hashes(first, last, seed) % np.uint64(n_folds)).astype(np.int64)


@dataclass(frozen=True)
class Splits:
    """Splits of rows into training and test sets, each of them a sum of parts of the rows.

    Attributes
    ----------
    parts : callable
        ``parts(first, last)`` returns for each part the rows of ``first:last`` that are in it, as
        numbers from zero. A row may be in several parts, and in a part several times.
    trains, tests : list of list of int
        Numbers of the parts that sum to the training and to the test set of each split.
    everything : list of int
        Numbers of the parts that sum to all rows.
    n_parts : int
        Number of parts.
    description : str
        What identifies the splits.
    """

    parts: Callable[[int, int], list[np.ndarray]]
    trains: list[list[int]]
    tests: list[list[int]]
    everything: list[int]
    n_parts: int
    description: str


def hashed_splits(n_folds: int, seed: int) -> Splits:
    """Return splits of which each holds one fold out.

    The fold of a row depends on its number only, not on how rows are stored or read.
    """

    def parts(first: int, last: int) -> list[np.ndarray]:
        folds = fold_of(first, last, n_folds, seed)
        return [np.flatnonzero(folds == f) for f in range(n_folds)]

    every = list(range(n_folds))
    trains = [[f for f in every if f != left_out] for left_out in every]
    described = f"{n_folds} folds of seed {seed}"
    return Splits(parts, trains, [[f] for f in every], every, n_folds, described)


def given_splits(pairs: Iterable[tuple[Any, Any]], n_rows: int) -> Splits:
    """Return splits that are given as rows of the training and of the test set.

    Rows that are in the same sets of all splits make a part: for splits that hold each row out
    once, these are the folds. If there are more such parts than sets, or they have few rows, the
    sets and all rows are the parts, and a row is added to each that it is in.

    Parameters
    ----------
    pairs : iterable of (array-like, array-like)
        Numbers of rows, or masks.
    n_rows : int

    Raises
    ------
    InvalidParameterError
        If there are no such pairs, or no such rows.
    """
    sets = [_counts(rows, n_rows) for pair in pairs for rows in _pair(pair)]
    if not sets:
        raise InvalidParameterError("cv has no splits; give at least one pair (train, test)")
    atoms = np.zeros(n_rows, np.int64)
    for counts in sets:
        atoms = np.unique(atoms * (int(counts.max()) + 1) + counts, return_inverse=True)[1]
    _, firsts = np.unique(atoms, return_index=True)
    n_sets, n_atoms = len(sets), firsts.size
    described = f"{n_sets} sets of checksum {checksum(np.concatenate(sets)):08x}"
    if n_atoms > n_sets + 1 or n_atoms * _ROWS_OF_AN_ATOM > n_rows:

        def parts(first: int, last: int) -> list[np.ndarray]:
            rows = np.arange(last - first)
            return [*(np.repeat(rows, counts[first:last]) for counts in sets), rows]

        alone = [[p] for p in range(n_sets)]
        return Splits(parts, alone[::2], alone[1::2], [n_sets], n_sets + 1, described)

    def atomic(first: int, last: int) -> list[np.ndarray]:
        return [np.flatnonzero(atoms[first:last] == a) for a in range(n_atoms)]

    sums = [np.repeat(np.arange(n_atoms), counts[firsts]).tolist() for counts in sets]
    return Splits(atomic, sums[::2], sums[1::2], list(range(n_atoms)), n_atoms, described)


def _pair(split: Any) -> tuple[Any, Any]:
    try:
        train, test = split
    except (TypeError, ValueError):
        raise refuse("cv", split, "pairs (train, test) of numbers of rows") from None
    return train, test


def _counts(rows: Any, n_rows: int) -> np.ndarray:
    """Return how often each row is in a set."""
    chosen = np.asarray(rows)
    try:
        numbers = np.arange(n_rows)[chosen if chosen.size else []]
        counts = np.bincount(numbers, minlength=n_rows)
    except (IndexError, ValueError):
        raise InvalidParameterError(
            f"cv has a set of {shown(rows)}; expected a list of numbers of rows, less than "
            f"{n_rows}, or a mask of {n_rows} rows"
        ) from None
    return counts.astype(np.min_scalar_type(int(counts.max(initial=0))))


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
        return (self.splits.n_parts + 5) * self.state_bytes(covariance_type)

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
        norms: bool,
        scores: tuple[int, ...],
        **description: str,
    ) -> FoldJournal:
        """Return the journal of a search, with what its file holds.

        Parameters
        ----------
        path, every
            See `Journal`; without a path, nothing is written.
        covariance_type, norms
            Those of the moments of the parts.
        scores : tuple of int
            Shape of the sums of scores.
        **description
            What else a run that resumes must share.
        """
        asked = Accumulation(covariance_type, norms, self.rule)
        rows = {source.name: describe(source) for source in self._sources}
        description |= {"splits": self.splits.description, "on_invalid": self.rule.action}
        parts = [ClassMoments(covariance_type, norms=norms) for _ in range(self.splits.n_parts)]
        return FoldJournal(path, every, asked.description(**rows) | description, parts, scores)

    def accumulate(
        self, covariance_type: str, norms: bool, journal: FoldJournal | None = None
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
            journal = self.journal(None, 0.0, covariance_type, norms, ())
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
                            add_rows(moments, *rows, rule=self.rule)
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
            add_rows(ClassMoments("diag"), X, y, weight, first_row=start, rule=self.rule)

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


def added(moments: list[ClassMoments], parts: list[int]) -> ClassMoments:
    """Return the moments of the rows of some parts: added, so that nothing cancels."""
    if not parts:
        return ClassMoments(moments[0].covariance_type, norms=moments[0].norms)
    return reduce(add, [moments[part] for part in parts])
