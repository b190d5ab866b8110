"""Folds: the number of the fold in which each row is held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit, check_cv

from streamgda.errors import InvalidParameterError
from streamgda.moments import ClassMoments, GroupedMoments
from streamgda.moments.grouped import each_held_out
from streamgda.rows import Rows
from streamgda.rows.labels import code
from streamgda.rows.source import RowSource, as_source
from streamgda.runtime.parameters import as_integer, shown

_MANY_ROWS = 1000  # Folds of so many rows have about equal classes without a look at labels.


def hashes(first: int, last: int, seed: int) -> np.ndarray:
    """Return hashes of the indices of the rows ``first:last`` (SplitMix64), as uint64."""
    # Seeds start far from each other in the sequence of all hashes.
    start = (int(seed) + 1) * 0xD1342543DE82EF95 % 2**64
    x = (np.arange(first, last, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fold_of(first: int, last: int, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each of the rows ``first:last``: a hash of its index.

    Examples
    --------
    >>> fold_of(0, 10, 5, 0)
    array([4, 3, 0, 4, 1, 0, 3, 2, 3, 1])
    >>> fold_of(4, 10, 5, 0)
    array([1, 0, 3, 2, 3, 1])
    """
    return (hashes(first, last, seed) % np.uint64(n_folds)).astype(np.int64)


class HashedFolds(RowSource):
    """The fold of each row, from a function of the indices of rows."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return the folds of rows ``start:stop``."""
        return np.asarray(self.values(start, stop))


def with_folds(cv: Any, seed: int, rows: Rows) -> tuple[Rows, int]:
    """Return rows with their folds as groups, and the number of folds.

    Parameters
    ----------
    cv : int, splitter, array of int or iterable of (train, test)
        See `GaussianDiscriminantCV`.
    seed : int
        Seed of the folds, if `cv` is an integer.
    rows : Rows
        Sources that this process reads. Their labels and groups, if any, are for splitters.

    Returns
    -------
    rows : Rows
        The group of a row is its fold, or `n_folds` if it is never held out.
    n_folds : int

    Raises
    ------
    InvalidParameterError
        For anything else, splits that do not partition the rows, and groups that are not used.
    """
    n_rows = rows.X.n_rows
    if rows.groups is not None and not hasattr(cv, "split"):
        raise InvalidParameterError(
            f"groups were given, and cv={shown(cv)} does not use them; give a splitter that does, "
            f"such as sklearn.model_selection.GroupKFold()"
        )
    if cv is None or isinstance(cv, Integral):
        expected = f"an integer from 2 to the number of rows (n_samples={n_rows}), a splitter as "
        expected += "in sklearn.model_selection, the fold of each row, or pairs (train, test)"
        n_folds = as_integer("cv", cv, expected, 2, n_rows)
        if n_rows >= _MANY_ROWS:
            of = partial(fold_of, n_folds=n_folds, seed=seed)
            hashed = HashedFolds(of, (n_rows,), np.dtype(np.int64), "groups")
            return replace(rows, groups=hashed), n_folds
        folds = np.empty(n_rows, np.int64)  # Rows of a class take turns in the order of hashes.
        order = np.lexsort((hashes(0, n_rows, seed), _labels(rows)))
        folds[order] = np.arange(n_rows) % n_folds
    else:
        try:
            folds, n_folds = _folds_of_splits(cv, rows)
        except (TypeError, ValueError, IndexError) as error:
            raise InvalidParameterError(
                f"cv={shown(cv)} does not split {n_rows} rows: {error}"
            ) from error
    return replace(rows, groups=as_source(folds, "groups")), n_folds


def each_split(
    moments: GroupedMoments, never: Any = None
) -> Iterator[tuple[Any, ClassMoments, ClassMoments]]:
    """Yield each group but the one that is never held out, all other rows, and those of the group.

    The moments of all other rows are shared, and must not be modified.
    """
    parts = {group: moments[group] for group in moments if group != never}
    rest = ClassMoments(moments.covariance_type, feature_map=moments._lifting)
    held_out = each_held_out(parts, moments.get(never, rest))
    return ((group, others, parts[group]) for group, others in held_out)


def _labels(rows: Rows) -> np.ndarray:
    """Return labels of rows, zeros if they have none; missing ones become any label."""
    if rows.y is None:
        return np.zeros(rows.X.n_rows, int)
    labels = code(rows.y.whole())
    return labels.values[labels.codes] if labels.values.size else labels.codes


def _folds_of_splits(cv: Any, rows: Rows) -> tuple[np.ndarray, int]:
    """Return the fold of each row in the splits of `cv`, and the number of folds."""
    X, groups = rows.X, rows.groups
    if hasattr(cv, "shape"):
        cv = PredefinedSplit(np.asarray(as_source(cv, "cv").whole()).astype(int, casting="safe"))
    folds, numbers, n_folds = np.full(X.n_rows, -1), np.arange(X.n_rows), 0
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
    return np.where(folds < 0, n_folds, folds), n_folds
