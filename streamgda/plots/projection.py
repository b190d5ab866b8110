"""Projections of rows and of Gaussians on directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier, covariances_of
from streamgda.rows import names_of
from streamgda.rows.names import feature_numbers, join_names
from streamgda.rows.validity import as_matrix
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, refuse


@dataclass(frozen=True)
class Directions:
    """Directions that rows are projected on, by inner products.

    Attributes
    ----------
    vectors : ndarray, shape (n, n_features)
        Linearly independent directions.
    names : tuple of str
        Labels of the axes.
    feature_names : tuple of str or None
        Names of the features of the rows.
    """

    vectors: np.ndarray
    names: tuple[str, ...]
    feature_names: tuple[str, ...] | None

    @classmethod
    def of(
        cls,
        estimator: GaussianClassifier,
        features: Sequence[int | str] | None,
        vectors: Any,
        default: Sequence[int],
    ) -> Directions:
        """Return the directions of the given features or vectors.

        Raises
        ------
        InvalidParameterError
            If both are given, their number differs from that of the default, a feature does not
            exist, or vectors have another width or are linearly dependent.
        """
        check_gaussian(estimator)
        n, width = len(default), estimator.n_features_in_
        held = estimator.moments_.feature_names
        if features is not None and vectors is not None:
            raise InvalidParameterError("features and directions were given; expected one of them")
        if vectors is None:
            expected = f"{n} different indices from 0 to {width - 1}"
            chosen = default if features is None else features
            chosen = feature_numbers(chosen, held, width, "features")
            given = np.atleast_1d(np.asarray(chosen, object))
            numbers = [as_integer("features", f, expected, 0, width - 1) for f in given]
            if len(set(numbers)) != n or len(numbers) != n:
                raise refuse("features", numbers, expected)
            names = tuple(f"feature {f}" if held is None else held[f] for f in numbers)
            return cls(np.eye(width)[numbers], names, held)
        vectors = as_numbers("directions", vectors, f"{n} of {width} finite numbers")
        if vectors.shape != (n, width) or not np.isfinite(vectors).all():
            raise InvalidParameterError(
                f"directions of shape {vectors.shape}; expected {n} of {width} finite numbers"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not lengths.all() or np.linalg.matrix_rank(vectors / lengths) < n:
            raise InvalidParameterError(
                "directions are zero or linearly dependent; expected independent directions"
            )
        names = ("direction",) if n == 1 else tuple(f"direction {i}" for i in range(1, n + 1))
        return cls(vectors, names, held)

    def project(self, rows: Any) -> np.ndarray:
        """Return the inner products of rows with the directions, shape (n_rows, n)."""
        join_names(self.feature_names, names_of(rows), "the estimator", InvalidDataError)
        rows = as_matrix(rows)
        if rows.shape[1] != self.vectors.shape[1]:
            raise InvalidDataError(
                f"X has {rows.shape[1]} features, but the estimator is expecting "
                f"{self.vectors.shape[1]} features"
            )
        return rows @ self.vectors.T

    def lift(self, points: np.ndarray, at: np.ndarray) -> np.ndarray:
        """Return the rows that project to the points and differ from `at` in the span only."""
        return at + (points - at @ self.vectors.T) @ np.linalg.pinv(self.vectors).T

    def covariances(self, estimator: GaussianClassifier) -> np.ndarray:
        """Return the covariance of each class's projected rows, shape (n_classes, n, n)."""
        D, values = self.vectors, covariance_values(estimator)
        if values.ndim < 3:  # variances, one per feature or one for all
            values = np.broadcast_to(values.T, (D.shape[1], values.shape[0])).T
            projected = (D * values[:, None, :]) @ D.T
        else:
            projected = D @ values @ D.T
        return np.broadcast_to(projected, (estimator.classes_.size, *projected.shape[1:]))


@dataclass(frozen=True)
class ProjectedClasses:
    """Projections of the classes that have rows.

    Attributes
    ----------
    seen : ndarray of bool, shape (n_classes,)
        True for the estimator's classes that have rows.
    labels : ndarray, shape (n,)
        Labels of these classes.
    priors : ndarray, shape (n,)
        Prior probabilities.
    means : ndarray, shape (n, n_directions)
        Projected class means.
    covariances : ndarray, shape (n, n_directions, n_directions)
        Projected covariances.
    """

    seen: np.ndarray
    labels: np.ndarray
    priors: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    @classmethod
    def of(cls, estimator: GaussianClassifier, directions: Directions) -> ProjectedClasses:
        """Return the projected classes of an estimator."""
        moments = estimator.moments_
        seen = moments.class_count > 0
        return cls(
            seen,
            moments.classes[seen],
            estimator.model_.priors[seen],
            directions.project(moments.means[seen]),
            directions.covariances(estimator)[seen],
        )


def check_gaussian(estimator: Any) -> None:
    """Raise `TypeError` or `NotFittedError` unless this is a fitted estimator with covariances."""
    check_type("estimator", estimator, GaussianClassifier, "a Gaussian estimator of this package")
    check_is_fitted(estimator, "moments_")


def covariance_values(estimator: GaussianClassifier) -> np.ndarray:
    """Return the regularised covariances or variances, one entry for each class or for all."""
    check_gaussian(estimator)
    return covariances_of(estimator).values
