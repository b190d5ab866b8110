"""Splits of rows into training and test sets, as sums of parts, and the moments of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from streamgda.engine.fingerprints import checksum
from streamgda.errors import InvalidParameterError
from streamgda.moments import ClassMoments
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


class AllButOne(Sequence[list[int]]):
    """Training sets of splits of which each holds one part out: all other parts.

    Parameters
    ----------
    n_splits : int
        Number of splits, whose test sets are the first parts.
    n_parts : int
        Number of parts; those after the test sets are in all training sets.
    """

    def __init__(self, n_splits: int, n_parts: int) -> None:
        self.n_splits, self.n_parts = n_splits, n_parts

    def __len__(self) -> int:
        return self.n_splits

    def __getitem__(self, split: Any) -> Any:
        left_out = range(self.n_splits)[split]
        return [part for part in range(self.n_parts) if part != left_out]

    def moments(self, parts: list[ClassMoments]) -> Iterator[ClassMoments]:
        """Yield the moments of each training set, from about n_splits * log2(n_splits) sums."""
        always = added(parts, list(range(self.n_splits, self.n_parts)))
        return _others(parts[: self.n_splits], always)


def _others(moments: list[ClassMoments], rest: ClassMoments) -> Iterator[ClassMoments]:
    """Yield, for each of some moments, the sum of `rest` and the others.

    Each half needs the sum of the other, and its own halves likewise. Nothing is subtracted, so
    that nothing cancels, and one sum is held for each level.
    """
    middle = len(moments) // 2
    if not middle:
        yield rest
        return
    halves = moments[:middle], moments[middle:]
    for half, other in (halves, halves[::-1]):
        yield from _others(half, reduce(add, other, rest))


@dataclass(frozen=True)
class Splits:
    """Splits of rows into training and test sets, each of them a sum of parts of the rows.

    Attributes
    ----------
    parts : callable
        ``parts(first, last)`` returns for each part the rows of ``first:last`` that are in it, as
        numbers from zero. A row may be in several parts, and in a part several times.
    trains, tests : sequence of list of int
        Numbers of the parts that sum to the training and to the test set of each split.
    everything : list of int
        Numbers of the parts that sum to all rows.
    n_parts : int
        Number of parts.
    description : str
        What identifies the splits.
    """

    parts: Callable[[int, int], list[np.ndarray]]
    trains: Sequence[list[int]]
    tests: list[list[int]]
    everything: list[int]
    n_parts: int
    description: str

    def training_moments(self, parts: list[ClassMoments]) -> Iterator[ClassMoments]:
        """Yield the moments of each training set, from those of the parts."""
        if isinstance(self.trains, AllButOne):
            return self.trains.moments(parts)
        return (added(parts, train) for train in self.trains)

    def test_rows(self, first: int, last: int) -> list[np.ndarray]:
        """Return for each test set the rows of ``first:last`` in it, as numbers from zero."""
        parts = self.parts(first, last)
        return [
            np.concatenate([parts[part] for part in test] or [np.empty(0, np.intp)])
            for test in self.tests
        ]


def hashed_splits(n_folds: int, seed: int) -> Splits:
    """Return splits of which each holds one fold out.

    The fold of a row depends on its number only, not on how rows are stored or read.
    """
    described = f"{n_folds} folds of seed {seed}"
    return _held_out_once(
        lambda first, last: fold_of(first, last, n_folds, seed), n_folds, n_folds, described
    )


def fold_splits(folds: np.ndarray) -> Splits:
    """Return splits of which each holds one fold out.

    Parameters
    ----------
    folds : ndarray of int, shape (n_rows,)
        Fold of each row, and -1 for rows that are in all training sets.

    Raises
    ------
    InvalidParameterError
        If no row is in a fold.
    """
    numbers = np.unique(folds[folds != -1])
    if not numbers.size:
        raise InvalidParameterError(
            f"cv has no folds: all of its {folds.size} entries are -1, for rows that are never "
            f"held out; give at least two folds"
        )
    codes = np.searchsorted(numbers, folds)
    codes[folds == -1] = numbers.size
    return _splits_of_codes(codes, numbers.size)


def _splits_of_codes(codes: np.ndarray, n_splits: int) -> Splits:
    """Return splits of rows with the number of their test set; `n_splits` for those of none."""
    codes = codes.astype(np.min_scalar_type(n_splits))
    n_parts = n_splits + bool((codes == n_splits).any())
    described = f"{n_splits} folds of checksum {checksum(codes):08x}"
    return _held_out_once(lambda first, last: codes[first:last], n_splits, n_parts, described)


def _held_out_once(
    part_of: Callable[[int, int], np.ndarray], n_splits: int, n_parts: int, description: str
) -> Splits:
    """Return splits that hold the first parts out, from the part of each row."""
    tests = [[part] for part in range(n_splits)]
    return Splits(
        lambda first, last: rows_of_each(part_of(first, last), n_parts),
        *(AllButOne(n_splits, n_parts), tests, list(range(n_parts)), n_parts, description),
    )


def rows_of_each(codes: np.ndarray, n_codes: int) -> list[np.ndarray]:
    """Return the rows of each code, in order."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=n_codes))
    return np.split(order, ends[:-1])


def given_splits(pairs: Iterable[tuple[Any, Any]], n_rows: int) -> Splits:
    """Return splits that are given as rows of the training and of the test set.

    If each row is held out once at most, and otherwise learnt from, the test sets are the parts.
    Otherwise rows that are in the same sets of all splits make a part. If there are more such parts
    than sets, or they have few rows, the sets and all rows are the parts, and a row is added to
    each that it is in.

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
    counted = (tuple(_counts(rows, n_rows) for rows in _pair(pair)) for pair in pairs)
    folds, n_folds, sets = np.full(n_rows, -1, np.int32), 0, []
    for train, test in counted:
        held_out = test > 0
        if (folds[held_out] >= 0).any() or (train + test.astype(np.int64) != 1).any():
            sets = [rows for f in range(n_folds) for rows in (folds != f, folds == f)]
            sets += [train, test]
            break
        folds[held_out] = n_folds
        n_folds += 1
    if not sets and not n_folds:
        raise InvalidParameterError("cv has no splits; give at least one pair (train, test)")
    if not sets:
        folds[folds < 0] = n_folds
        return _splits_of_codes(folds, n_folds)
    sets += [rows for pair in counted for rows in pair]
    return _splits_of_sets([rows.astype(np.uint8) if rows.dtype == bool else rows for rows in sets])


def _splits_of_sets(sets: list[np.ndarray]) -> Splits:
    """Return splits of training and test sets, in turn, each as how often it has each row."""
    n_rows = sets[0].size
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
        return rows_of_each(atoms[first:last], n_atoms)

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


def added(moments: list[ClassMoments], parts: list[int]) -> ClassMoments:
    """Return the moments of the rows of some parts: added, so that nothing cancels."""
    if not parts:
        return ClassMoments(moments[0].covariance_type, fourth_moments=moments[0].fourth_moments)
    return reduce(add, [moments[part] for part in parts])
