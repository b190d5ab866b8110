"""Folds: the number of the fold in which each row is held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.rows import Rows, beside
from streamgda.rows.labels import code
from streamgda.rows.source import RowSource
from streamgda.runtime.parameters import as_integer, refuse, shown

_EXPECTED = (
    "an integer >= 2, a splitter as in sklearn.model_selection, the fold of each row, or pairs "
    "(train, test) of numbers of rows"
)


_MANY_ROWS = 1000  # from which on classes are about equal in folds that do not look at labels


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


class Folds(NamedTuple):
    """The fold of each row.

    Attributes
    ----------
    n_folds : int
    of : callable
        ``of(first, last)`` returns the folds of the rows ``first:last``; `n_folds` for rows that
        are never held out.
    """

    n_folds: int
    of: Callable[[int, int], np.ndarray]

    def beside(self, rows: Rows) -> Rows:
        """Return rows with their folds as groups, which are computed where rows are read."""
        numbers = FoldNumbers(self.of, (rows.X.n_rows,), np.dtype(np.int64), "groups")
        return replace(rows, groups=numbers)


class FoldNumbers(RowSource):
    """The fold of each row, from a function of the numbers of rows."""

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.values(start, stop))


def as_folds(cv: Any, seed: int, groups: Any, rows: RowSource, labels: RowSource) -> Folds:
    """Return the folds that the `cv` of a search stands for; see `GaussianDiscriminantCV`.

    Raises
    ------
    InvalidParameterError
        For anything else, splits that hold a row out twice, and groups that are not used.
    """
    n_rows = rows.n_rows
    if hasattr(cv, "split") and not isinstance(cv, str | bytes | type):
        codes, n_folds = _folds_of_splitter(cv, groups, rows, labels)
    elif groups is not None:
        raise InvalidParameterError(
            f"groups were given, but cv={shown(cv)}; give a splitter that uses them, such as "
            f"sklearn.model_selection.GroupKFold"
        )
    elif len(getattr(cv, "shape", ())) == 1 or (
        isinstance(cv, list | tuple) and cv and all(isinstance(fold, Integral) for fold in cv)
    ):
        codes, n_folds = _given_folds(np.asarray(beside(rows, cv, "cv").whole()), n_rows)
    elif (
        isinstance(cv, Iterable)
        and not isinstance(cv, str | bytes)
        and getattr(cv, "shape", None) != ()
    ):
        codes, n_folds = _folds_of_pairs(cv, cv, n_rows)
    else:
        n_folds = as_integer("cv", cv, _EXPECTED, 2, (1 << 128) - 1)
        if n_folds > n_rows:
            raise InvalidParameterError(
                f"cv={shown(n_folds)}, and X has only {n_rows} rows (n_samples={n_rows}); give "
                f"more rows, or a smaller cv"
            )
        if n_rows >= _MANY_ROWS:
            return Folds(n_folds, lambda first, last: fold_of(first, last, n_folds, seed))
        codes = _stratified(labels, n_folds, seed)
    codes = codes.astype(np.min_scalar_type(n_folds))
    return Folds(n_folds, lambda first, last: codes[first:last])


def _stratified(labels: RowSource, n_folds: int, seed: int) -> np.ndarray:
    """Return folds with equal shares of each class, whose rows take turns in the order of hashes.

    Examples
    --------
    >>> from streamgda.rows import as_source
    >>> _stratified(as_source(np.array([0, 0, 0, 0, 1, 1])), 2, 0)
    array([0, 1, 1, 0, 1, 0])
    """
    codes = code(labels.whole()).codes
    order = np.lexsort((hashes(0, codes.size, seed), codes))
    folds = np.empty(codes.size, np.int64)
    folds[order] = np.arange(codes.size) % n_folds
    return folds


def _given_folds(folds: np.ndarray, n_rows: int) -> tuple[np.ndarray, int]:
    """Return the codes of given folds, and their number; -1 stands for none."""
    numbers = np.unique(folds[folds != -1]) if folds.dtype.kind in "iu" else np.empty(0)
    if len(folds) != n_rows or not numbers.size or numbers[0] < 0:
        expected = (
            f"the fold of each of {n_rows} rows, as integers >= 0, or -1 for rows that are never "
            f"held out; for groups of another type, cv=LeaveOneGroupOut() and fit(X, y, groups=...)"
        )
        raise refuse("cv", folds, expected)
    return np.where(folds == -1, numbers.size, np.searchsorted(numbers, folds)), numbers.size


def _folds_of_splitter(
    cv: Any, groups: Any, rows: RowSource, labels: RowSource
) -> tuple[np.ndarray, int]:
    """Return the folds of a splitter; those of scikit-learn need no rows, but their number."""
    from sklearn.model_selection import LeaveOneGroupOut, PredefinedSplit  # noqa: PLC0415

    n_rows = rows.n_rows
    if type(cv) is PredefinedSplit:
        return _given_folds(np.asarray(cv.test_fold), n_rows)
    held = rows.in_memory or isinstance(rows.values, np.ndarray)
    try:
        groups = None if groups is None else np.asarray(beside(rows, groups, "groups").whole())
        if type(cv) is LeaveOneGroupOut and np.shape(groups) == (n_rows,):
            names, codes = np.unique(groups, return_inverse=True)
            if names.size > 1:  # without a mask of all rows for each group
                return codes, names.size
        coded = code(labels.whole())
        y = coded.values[coded.codes]  # missing labels become any label
        return _folds_of_pairs(
            cv.split(rows.values if held else range(n_rows), y, groups), cv, n_rows
        )
    except InvalidParameterError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        seen = "" if held else "; it cannot look at rows that are not in memory"
        raise InvalidParameterError(
            f"cv={shown(cv)} cannot split {n_rows} rows{seen}: {error}"
        ) from error


def _folds_of_pairs(pairs: Iterable[Any], cv: Any, n_rows: int) -> tuple[np.ndarray, int]:
    """Return the folds of pairs of a training and a test set, as numbers of rows or masks."""
    folds, numbers, n_folds = np.full(n_rows, -1), np.arange(n_rows), 0
    for pair in pairs:
        try:
            train, test = (numbers[np.asarray(part) if len(part) else []] for part in pair)
            times = np.bincount(np.concatenate([train, test]), minlength=n_rows)
        except (TypeError, ValueError, IndexError):
            expected = f"pairs (train, test) of numbers of rows, less than {n_rows}, or of masks"
            raise refuse("cv", pair, expected) from None
        if (times != 1).any() or (folds[test] >= 0).any():
            raise InvalidParameterError(
                f"cv={shown(cv)} holds rows out more than once, or has rows in neither or both "
                f"sets of a split, and a search from one pass needs a partition. A search of "
                f"scikit-learn takes any splits: GridSearchCV(estimator, param_grid, cv=cv)"
            )
        folds[test] = n_folds
        n_folds += 1
    if not n_folds:
        raise InvalidParameterError("cv has no splits; give at least one pair (train, test)")
    return np.where(folds < 0, n_folds, folds), n_folds
