"""Rows in parts, of which training and test sets are sums: accumulated side by side in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from streamgda.engine.plan import count_classes, plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import reading
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, add_rows
from streamgda.moments.structures import structure_of
from streamgda.rows import as_sources
from streamgda.rows.rules import CHECK_SUMS, RowRule, rows_to_count
from streamgda.rows.sources import RowSource, check_rows, placing
from streamgda.rows.validity import as_maskable_matrix
from streamgda.runtime.parameters import refuse, shown

_ROWS_OF_AN_ATOM = 30  # adding the moments of two atoms takes as long as adding some rows


def fold_of(first: int, last: int, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each of the rows ``first:last``: a hash of its number (SplitMix64).

    Examples
    --------
    >>> fold_of(0, 10, 5, 0)
    array([4, 3, 0, 4, 1, 0, 3, 2, 3, 1])
    >>> fold_of(4, 10, 5, 0)
    array([1, 0, 3, 2, 3, 1])
    """
    # Seeds start far from each other in the sequence of all hashes.
    start = (int(seed) + 1) * 0xD1342543DE82EF95 % 2**64
    x = (np.arange(first, last, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(n_folds)).astype(np.int64)


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
    """

    parts: Callable[[int, int], list[np.ndarray]]
    trains: list[list[int]]
    tests: list[list[int]]
    everything: list[int]
    n_parts: int


def hashed_splits(n_folds: int, seed: int) -> Splits:
    """Return splits of which each holds one fold out.

    The fold of a row depends on its number only, not on how rows are stored or read.
    """

    def parts(first: int, last: int) -> list[np.ndarray]:
        folds = fold_of(first, last, n_folds, seed)
        return [np.flatnonzero(folds == f) for f in range(n_folds)]

    every = list(range(n_folds))
    trains = [[f for f in every if f != left_out] for left_out in every]
    return Splits(parts, trains, [[f] for f in every], every, n_folds)


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
    if n_atoms > n_sets + 1 or n_atoms * _ROWS_OF_AN_ATOM > n_rows:

        def parts(first: int, last: int) -> list[np.ndarray]:
            rows = np.arange(last - first)
            return [*(np.repeat(rows, counts[first:last]) for counts in sets), rows]

        alone = [[p] for p in range(n_sets)]
        return Splits(parts, alone[::2], alone[1::2], [n_sets], n_sets + 1)

    def atomic(first: int, last: int) -> list[np.ndarray]:
        return [np.flatnonzero(atoms[first:last] == a) for a in range(n_atoms)]

    sums = [np.repeat(np.arange(n_atoms), counts[firsts]).tolist() for counts in sets]
    return Splits(atomic, sums[::2], sums[1::2], list(range(n_atoms)), n_atoms)


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

    def state_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of a part."""
        structure = structure_of(covariance_type)
        with placing(*self._sources):
            n_classes = count_classes(self.companions[0], self.rule)
        return structure.state_bytes(n_classes, self.rows.shape[1])

    def held_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of all parts, and of sums and rows of them."""
        return (self.splits.n_parts + 5) * self.state_bytes(covariance_type)

    def read(self, state: int, what: str) -> Iterator[tuple[slice, list[Any], list[np.ndarray]]]:
        """Yield the range of each slab; its rows, labels and weights; and the rows of each part.

        Parameters
        ----------
        state : int
            Bytes that are held meanwhile.
        what : str
            Description of the work, shown with the progress.
        """
        plan = plan_rows(self.rows, self.allowed, state, beside=self.companions, copies=1)
        with reading(plan, *self._sources, what=what, progress=self.progress) as slabs:
            for start, arrays in slabs:
                stop = start + len(arrays[0])
                yield slice(start, stop), arrays, self.splits.parts(start, stop)

    def accumulate(self, covariance_type: str, norms: bool) -> list[ClassMoments]:
        """Return the moments of each part, from one pass.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MemoryBudgetError
            If the moments of all parts exceed the budget.
        """
        summed = [ClassMoments(covariance_type, norms=norms) for _ in range(self.splits.n_parts)]
        state = self.held_bytes(covariance_type)
        for slab, arrays, parts in self.read(state, "accumulating"):
            try:
                for moments, part in zip(summed, parts, strict=True):
                    if part.size:
                        add_rows(moments, *(array[part] for array in arrays), rule=self.rule)
            except InvalidDataError:
                # The rows of the whole slab again: that error names a row by its number.
                X, y, *weights = (source.read(slab.start, slab.stop) for source in self._sources)
                with placing(*self._sources):
                    weight = weights[0] if weights else None
                    one = ClassMoments("diag")
                    add_rows(one, X, y, weight, first_row=slab.start, rule=self.rule)
                raise
        return summed

    def counted(
        self, X: Any, y: Any, weights: np.ndarray | None
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return rows that count, their labels and their weights, which are empty without any."""
        labels = self.rule.as_labels(y)
        return rows_to_count(as_maskable_matrix(X), labels, weights, self.rule)[:3]

    @property
    def _sources(self) -> list[RowSource]:
        return [self.rows, *self.companions]


def added(moments: list[ClassMoments], parts: list[int]) -> ClassMoments:
    """Return the moments of the rows of some parts: added, so that nothing cancels."""
    if not parts:
        return ClassMoments(moments[0].covariance_type, norms=moments[0].norms)
    return reduce(add, [moments[part] for part in parts])
