"""Directions that rows are seen along, and what Gaussians look like along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.moments.structure import structure_of


@dataclass(frozen=True)
class Directions:
    """What rows are projected on, by inner products.

    Attributes
    ----------
    vectors : ndarray, shape (n, n_features)
        Linearly independent.
    names : tuple of str
        What the axes are called.
    """

    vectors: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        estimator: GaussianClassifier,
        features: Sequence[int] | None,
        vectors: Any,
        default: Sequence[int],
    ) -> Directions:
        """Those that were asked for: axes of features, or any vectors.

        Raises
        ------
        InvalidParameterError
            For both, for another number of them than by default, for features that the estimator
            does not have, and for vectors that are of another width or depend on each other.
        """
        n, width = len(default), estimator.n_features_in_
        if features is not None and vectors is not None:
            raise InvalidParameterError("features and directions were given; expected one of them")
        if vectors is None:
            numbers = [int(f) for f in (default if features is None else features)]
            good = len(set(numbers)) == len(numbers) == n and all(0 <= f < width for f in numbers)
            if not good:
                raise InvalidParameterError(
                    f"features={numbers}; expected {n} different of 0 to {width - 1}"
                )
            return cls(np.eye(width)[numbers], tuple(_name(estimator, f) for f in numbers))
        vectors = np.asarray(vectors, np.float64)
        if vectors.shape != (n, width) or not np.isfinite(vectors).all():
            raise InvalidParameterError(
                f"directions have shape {vectors.shape}; expected {n} of {width} finite numbers"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not lengths.all() or np.linalg.matrix_rank(vectors / lengths) < n:
            raise InvalidParameterError("directions depend on each other, or are zero")
        names = ("direction",) if n == 1 else tuple(f"direction {i}" for i in range(1, n + 1))
        return cls(vectors, names)

    def project(self, rows: np.ndarray) -> np.ndarray:
        """Inner products of rows with the directions, shape (n_rows, n)."""
        return rows @ self.vectors.T

    def lift(self, points: np.ndarray, at: np.ndarray) -> np.ndarray:
        """The rows that are projected to the points and differ from `at` along the directions."""
        return at + (points - self.project(at)) @ np.linalg.pinv(self.vectors).T

    def covariances(self, estimator: GaussianClassifier) -> np.ndarray:
        """Of each class's projected rows, shape (n_classes, n, n)."""
        D, values = self.vectors, covariance_values(estimator)
        if values.ndim < 3:  # variances, of each feature or the same of all
            values = np.broadcast_to(values.T, (D.shape[1], values.shape[0])).T
            projected = (D * values[:, None, :]) @ D.T
        else:
            projected = D @ values @ D.T
        return np.broadcast_to(projected, (estimator.classes_.size, *projected.shape[1:]))


def covariance_values(estimator: GaussianClassifier) -> np.ndarray:
    """Regularised covariances, or variances: one for each class, or a single one.

    Raises
    ------
    InvalidParameterError
        For an estimator that has none.
    """
    if not isinstance(estimator, GaussianClassifier):
        raise InvalidParameterError(
            f"{type(estimator).__name__} has no covariances to show; expected a Gaussian estimator "
            f"of this package"
        )
    values = getattr(estimator, "covariance_", None)
    values = np.asarray(estimator.var_ if values is None else values)
    return values if structure_of(estimator.moments_.covariance_type).per_class else values[None]


def _name(estimator: GaussianClassifier, number: int) -> str:
    names = getattr(estimator, "feature_names_in_", None)
    return f"feature {number}" if names is None else str(names[number])
