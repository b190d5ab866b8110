"""Folds: the number of the fold in which each row is held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce
from numbers import Integral
from operator import iadd
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv

from streamgda.errors import InvalidParameterError
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.rows import Rows
from streamgda.rows.labels import code
from streamgda.rows.source import RowSource, as_source
from streamgda.runtime.parameters import as_integer, shown

_MOST_FOLDS, _LARGEST_SEED = 1 << 16, (1 << 128) - 1
NEVER = -1  # Rows of this fold are never held out, as in scikit-learn's `PredefinedSplit`.


def hashes(first: int, last: int, seed: int) -> np.ndarray:
    """Return hashes of the numbers ``first:last`` (SplitMix64), as uint64."""
    # Seeds start far from each other in the sequence of all hashes.
    start = (int(seed) + 1) * 0xD1342543DE82EF95 % 2**64
    x = (np.arange(first, last, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold_of(first: int, last: int, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each of the rows ``first:last``, from their numbers.

    Each `n_folds` consecutive rows are in different folds, in the order of their hashes. Folds
    therefore have the same size, and those of rows sorted by class the same shares of each class.

    Examples
    --------
    >>> fold_of(0, 10, 5, 0)
    array([3, 4, 2, 0, 1, 3, 1, 0, 2, 4])
    >>> fold_of(4, 8, 5, 0)
    array([1, 3, 1, 0])
    """
    start, stop = first // n_folds * n_folds, -(-last // n_folds) * n_folds
    folds = hashes(start, stop, seed).reshape(-1, n_folds).argsort(axis=1)
    return folds.ravel()[first - start : last - start]


class HashedFolds(RowSource):
    """The fold of each row, from a function of the indices of rows."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the folds of rows ``start:stop``."""
        return np.asarray(self.values(start, stop))


def with_folds(cv: Any, seed: Any, rows: Rows, first: int = 0) -> Rows:
    """Return rows whose groups are the folds in which they are held out.

    Parameters
    ----------
    cv : int, splitter, array of int or iterable of (train, test)
        See `GaussianDiscriminantCV`.
    seed : int or None
        Seed of the folds, if `cv` is an integer.
    rows : Rows
        Sources that this process reads. With an integer `cv`, groups that they have are the folds;
        otherwise labels and groups are for splitters.
    first : int
        Number of the first row, if `cv` is an integer.

    Raises
    ------
    InvalidParameterError
        For anything else, splits that do not partition the rows, and groups that are not used.
    """
    n_rows = rows.X.shape[0]
    if cv is None or isinstance(cv, Integral):
        expected = "an integer from 2, a splitter as in sklearn.model_selection, the fold of each "
        n_folds = as_integer("cv", cv, f"{expected}row, or pairs (train, test)", 2, _MOST_FOLDS)
        if rows.groups is not None:
            return rows
        seed = as_integer("random_state", seed or 0, "an integer >= 0", 0, _LARGEST_SEED)
        values = partial(_folds_from, first, n_folds, seed)
        hashed = HashedFolds(values, (n_rows,), np.dtype(np.int64), "groups")
        return replace(rows, groups=hashed)
    if rows.groups is not None and not hasattr(cv, "split"):
        raise InvalidParameterError(
            f"groups were given, and cv={shown(cv)} does not use them; give an integer, with which "
            f"each group is a fold, or a splitter such as sklearn.model_selection.GroupKFold()"
        )
    try:
        return replace(rows, groups=as_source(_folds_of_splits(cv, rows), "groups"))
    except (TypeError, ValueError, IndexError) as error:
        raise InvalidParameterError(
            f"cv={shown(cv)} does not split {n_rows} rows: {error}"
        ) from error


def _folds_from(first: int, n_folds: int, seed: int, start: int, stop: int) -> np.ndarray:
    return fold_of(first + start, first + stop, n_folds, seed)


def each_split(moments: GroupedMoments) -> Iterator[tuple[ClassMoments, ClassMoments]]:
    """Yield all other rows and those of a group, for each group that is held out, in their order.

    The moments of all other rows are shared, and must not be modified.
    """
    rest = ClassMoments(moments.covariance_type, feature_map=moments._lifting)
    rest = moments.get(NEVER, rest)
    counts = zip(moments, moments.counts.sum(axis=1), strict=True)  # Rows may have faded.
    yield from _each_of(moments, [g for g, n in counts if g != NEVER and n], rest)


def _each_of(moments: GroupedMoments, groups: list[Any], rest: ClassMoments) -> Iterator[Any]:
    """Yield the other groups and the rest, and its own rows, for each of some groups.

    Each half of the groups needs the sum of the other, and its own halves likewise. Nothing is
    subtracted, so that nothing cancels, and one sum is held for each level.
    """
    middle = len(groups) // 2
    if not middle:
        yield from ((rest, moments[group]) for group in groups)
        return
    halves = groups[:middle], groups[middle:]
    for own, others in (halves, halves[::-1]):
        held = reduce(iadd, (moments[group] for group in others), rest.copy())
        yield from _each_of(moments, own, held)


def _labels(rows: Rows) -> np.ndarray:
    """Return labels of rows, zeros if they have none; missing ones become any label."""
    if rows.y is None:
        return np.zeros(rows.X.n_rows, int)
    labels = code(rows.y.whole())
    return labels.values[labels.codes] if labels.values.size else labels.codes


def _folds_of_splits(cv: Any, rows: Rows) -> np.ndarray:
    """Return the fold of each row in the splits of `cv`."""
    X, groups = rows.X, rows.groups
    if hasattr(cv, "shape"):
        cv = PredefinedSplit(np.asarray(as_source(cv, "cv").whole()).astype(int, casting="safe"))
    folds, numbers, n_folds = np.full(X.n_rows, NEVER), np.arange(X.n_rows), 0
    in_memory = X.in_memory or isinstance(X.values, np.ndarray)
    seen = X.values if in_memory else numbers  # Splitters of scikit-learn need the number of rows.
    given = None if groups is None else groups.whole()
    for train, test in check_cv(cv).split(seen, _labels(rows), given):
        times = np.bincount(np.append(numbers[train], numbers[test]), minlength=X.n_rows)
        if (times != 1).any() or (folds[test] >= 0).any():
            raise ValueError(
                "a row is held out more than once, or is in neither or both sets of a split, and "
                "one pass needs a partition. GridSearchCV of scikit-learn takes any splits"
            )
        folds[test], n_folds = n_folds, n_folds + 1
    if not n_folds:
        raise ValueError("there are no splits")
    return folds
