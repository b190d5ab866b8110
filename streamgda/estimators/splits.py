"""Splits into training and test sets, from the `cv` of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any, NoReturn

import numpy as np

from streamgda.engine.splits import Splits, fold_splits, given_splits, hashed_splits
from streamgda.errors import InvalidParameterError
from streamgda.rows import as_source
from streamgda.rows.labels import as_maskable_labels
from streamgda.rows.sources import RowSource
from streamgda.runtime.parameters import as_integer, shown

Splitting = Callable[[RowSource, RowSource], Splits]  # of the rows and the labels
_EXPECTED = (
    "an integer >= 2, a splitter as in sklearn.model_selection, the fold of each row, or pairs "
    "(train, test) of numbers of rows"
)


class RowsElsewhere:
    """Stand-in for rows that are not in memory: splitters of scikit-learn need only their number.

    Parameters
    ----------
    shape : tuple of int
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidParameterError(
            "cv is a splitter that looks at the rows, which are not in memory; give rows in "
            "memory, an integer, or pairs (train, test) of numbers of rows"
        )

    __getitem__ = __array__


def splitting(cv: Any, seed: int, groups: Any) -> Splitting:
    """Return a function that splits rows; see `GaussianDiscriminantCV`.

    Raises
    ------
    InvalidParameterError
        If `cv` is something else, or does not use groups that are given.
    """
    if hasattr(cv, "split") and not isinstance(cv, str | bytes | type):
        return lambda rows, labels: _split(cv, rows, labels, groups)
    if groups is not None:
        raise InvalidParameterError(
            f"groups were given, but cv={shown(cv)}; give a splitter that uses them, such as "
            f"sklearn.model_selection.GroupKFold"
        )
    if _is_column(cv):
        return lambda rows, _: fold_splits(_folds(cv, rows.n_rows))
    if isinstance(cv, Iterable) and not isinstance(cv, str | bytes):
        return lambda rows, _: given_splits(cv, rows.n_rows)
    n_folds = as_integer("cv", cv, _EXPECTED, 2, (1 << 128) - 1)

    def hashed(rows: RowSource, _: RowSource) -> Splits:
        if n_folds > rows.n_rows:
            raise InvalidParameterError(
                f"cv={shown(n_folds)}; X has {rows.n_rows} rows (n_samples={rows.n_rows}), fewer "
                f"than folds: give more rows, or a smaller cv"
            )
        return hashed_splits(n_folds, seed)

    return hashed


def _is_column(cv: Any) -> bool:
    """Return True for one entry for each row, and False for pairs (train, test)."""
    if hasattr(cv, "dtype") and hasattr(cv, "shape"):
        return len(cv.shape) == 1 and (np.dtype(cv.dtype) != object or _all_integers(cv))
    return isinstance(cv, list | tuple) and _all_integers(cv)


def _all_integers(entries: Any) -> bool:
    return len(entries) > 0 and all(isinstance(entry, Integral) for entry in entries)


def _folds(cv: Any, n_rows: int) -> np.ndarray:
    """Return the fold of each row, which is -1 or greater."""
    folds = np.asarray(as_source(cv, "cv").whole())
    if folds.dtype == object:
        folds = folds.astype(np.int64)
    if folds.dtype.kind not in "iu":
        raise InvalidParameterError(
            f"cv has entries of type {folds.dtype}; expected the fold of each row as an integer. "
            f"For groups of another type, pass cv=LeaveOneGroupOut() and fit(X, y, groups=...)"
        )
    if len(folds) != n_rows:
        raise InvalidParameterError(
            f"cv has the folds of {len(folds)} rows, but X has {n_rows} rows; give one integer for "
            f"each, or pairs (train, test) of numbers of rows"
        )
    if (folds < -1).any():
        raise InvalidParameterError(
            f"cv has fold {folds.min()}; expected integers >= 0, or -1 for rows that are never "
            f"held out"
        )
    return folds


def _known_folds(splitter: Any, n_rows: int, groups: Any) -> np.ndarray | None:
    """Return the folds that a splitter of scikit-learn has by definition; None if by its code."""
    from sklearn.model_selection import LeaveOneGroupOut, PredefinedSplit  # noqa: PLC0415

    folds = None
    if type(splitter) is PredefinedSplit:
        folds = np.asarray(splitter.test_fold)
    elif type(splitter) is LeaveOneGroupOut and groups is not None and groups.ndim == 1:
        names, folds = np.unique(groups, return_inverse=True)
        if names.size < 2:  # which the splitter refuses
            return None
    return folds if folds is not None and len(folds) == n_rows else None


def _split(splitter: Any, rows: RowSource, labels: RowSource, groups: Any) -> Splits:
    held = rows.in_memory or isinstance(rows.values, np.ndarray)
    X = rows.values if held else RowsElsewhere(rows.shape)
    try:
        groups = None if groups is None else np.asarray(as_source(groups, "groups").whole())
        folds = _known_folds(splitter, rows.n_rows, groups)
        if folds is not None:
            return fold_splits(folds)
        y = np.asarray(as_maskable_labels(labels.whole()))  # any label in place of missing ones
        return given_splits(splitter.split(X, y, groups), rows.n_rows)
    except InvalidParameterError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"cv={shown(splitter)} cannot split {rows.n_rows} rows: {error}"
        ) from error
