"""Rows of a window of a stream, some of which may have no labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from streamgda.engine.plan import plan_rows
from streamgda.engine.reading import in_process, reading
from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.rows import Rows, as_source, named_rows
from streamgda.rows.arrays import is_masked
from streamgda.rows.invalid_rows import all_finite, as_matrix, as_weights, refuse_not_finite
from streamgda.rows.labels import as_maskable_labels, in_one_type, join_labels
from streamgda.rows.names import join_names
from streamgda.rows.sources import check_lengths
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime.memory import allowed_bytes


class WindowRows(NamedTuple):
    """Rows with their labels, as far as these are known, and their weights.

    Attributes
    ----------
    X : ndarray, shape (n, d)
    y : ndarray, shape (n,)
        Labels; any where they are not known.
    known : ndarray of bool, shape (n,)
        Rows with labels.
    weights : ndarray of float64, shape (n,)
        Positive.
    """

    X: np.ndarray
    y: np.ndarray
    known: np.ndarray
    weights: np.ndarray

    @classmethod
    def empty(cls, n_rows: int, n_features: int, dtype: np.dtype) -> Self:
        """Return room for rows, in float64, and for labels of a type."""
        X, weights = np.empty((n_rows, n_features)), np.empty(n_rows)
        return cls(X, np.zeros(n_rows, dtype), np.zeros(n_rows, bool), weights)

    @staticmethod
    def bytes_of(n_rows: int, n_features: int) -> int:
        """Return the bytes of so many rows, at least."""
        return n_rows * (8 * n_features + 17)

    def part(self, rows: Any) -> WindowRows:
        """Return some of the rows."""
        return WindowRows(*(array[rows] for array in self))

    def put(self, start: int, rows: WindowRows) -> WindowRows:
        """Write rows from row `start` on; return these, with wider labels if necessary."""
        y, added = in_one_type(self.y, rows.y)
        stop, wide = start + len(rows.X), np.promote_types(y.dtype, added.dtype)
        held = self if wide == self.y.dtype else self._replace(y=y.astype(wide))
        for room, values in zip(held, rows._replace(y=added), strict=True):
            room[start:stop] = values
        return held

    def moments(self, covariance_type: str, *, as_one: bool = False) -> ClassMoments:
        """Return the moments of the rows with labels, or of all rows as one class."""
        rows = self if as_one or self.known.all() else self.part(self.known)
        labels = np.zeros(len(rows.X), np.int64) if as_one else rows.y
        weights = None if (rows.weights == 1).all() else rows.weights
        return ClassMoments(covariance_type).update(rows.X, labels, weights)


def as_known(y: Any, n_rows: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as an array, and which of them are known; no `y` has none that are.

    Errors count labels from `start`.

    Raises
    ------
    InvalidDataError
        For labels of the wrong number or kind.
    """
    if y is None:
        return np.zeros(n_rows, np.int64), np.zeros(n_rows, bool)
    labels = as_maskable_labels(y, "y", start)
    if labels.shape != (n_rows,):
        raise InvalidDataError(
            f"X has {n_rows} rows but y has shape {labels.shape}; give one label a row"
        )
    known = ~np.ma.getmaskarray(labels) if is_masked(labels) else np.ones(n_rows, bool)
    return np.asarray(labels), known


def read_rows(
    X: Any, y: Any, sample_weight: Any, fitting: ClassMoments, classes: np.ndarray
) -> Iterator[WindowRows]:
    """Yield rows from any container, slab by slab.

    Parameters
    ----------
    X, y, sample_weight
        As for `streamgda.DriftMonitor.update`.
    fitting : ClassMoments
        Moments of rows with the same features.
    classes : ndarray
        Labels of the same kind.

    Raises
    ------
    InvalidDataError
        For rows that cannot be used.
    """
    if type(X) is np.ndarray:
        yield _checked(X, y, sample_weight, fitting, classes, 0)
        return
    rows, names = named_rows(X)
    join_names(fitting.feature_names, names, "the reference", InvalidDataError)
    source = as_source(rows)
    if y is None:
        check_lengths(source)  # rows of an unknown number have no labels that could be made up
        y = np.ma.masked_all(source.n_rows, np.int64)
    read = in_process(Rows(source, y, weight=sample_weight), at_once=True)
    with reading(read, plan_rows(read.X, allowed_bytes(None), beside=read.beside)) as slabs:
        for slab in slabs:
            yield _checked(slab.X, slab.y, slab.weight, fitting, classes, slab.first_row)


def _checked(
    X: Any, y: Any, sample_weight: Any, fitting: ClassMoments, classes: np.ndarray, start: int
) -> WindowRows:
    """Return rows in memory, of which the first has the number `start`; refuse invalid ones."""
    X = as_matrix(X, start, sparse=True)
    if type(X) is CompressedRows:
        X = np.array([X.row(r) for r in range(len(X))])
    n = len(X)
    if X.shape[1] != fitting.n_features:
        raise InvalidDataError(
            f"X has {X.shape[1]} features, but the reference has {fitting.n_features} features"
        )
    if not all_finite(X):
        refuse_not_finite(X, start)
    labels, known = as_known(y, n, start)
    if known.any():
        join_labels(classes, labels[known][:1])  # refuses labels of another kind
    else:
        labels = np.zeros(n, classes.dtype)
    if sample_weight is None:
        return WindowRows(X, labels, known, np.ones(n))
    weights = as_weights(sample_weight, n, start)
    return WindowRows(X, labels, known, weights).part(weights > 0)
