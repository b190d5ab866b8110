"""Splits into training and test sets, from the `cv` of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from streamgda.engine.folds import Splits, given_splits, hashed_splits
from streamgda.errors import InvalidParameterError
from streamgda.rows import as_source
from streamgda.rows.labels import as_maskable_labels
from streamgda.rows.sources import RowSource
from streamgda.runtime.parameters import as_integer, shown

Splitting = Callable[[RowSource, RowSource], Splits]  # of the rows and the labels
_EXPECTED = (
    "an integer >= 2, a splitter as in sklearn.model_selection, or pairs (train, test) of numbers "
    "of rows"
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


def _split(splitter: Any, rows: RowSource, labels: RowSource, groups: Any) -> Splits:
    held = rows.in_memory or isinstance(rows.values, np.ndarray)
    X = rows.values if held else RowsElsewhere(rows.shape)
    y = np.asarray(as_maskable_labels(labels.whole()))  # any label in place of missing ones
    try:
        groups = None if groups is None else np.asarray(as_source(groups, "groups").whole())
        return given_splits(splitter.split(X, y, groups), rows.n_rows)
    except InvalidParameterError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidParameterError(
            f"cv={shown(splitter)} cannot split {rows.n_rows} rows: {error}"
        ) from error
