"""Projections of rows and of Gaussians on directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.rows import names_of
from streamgda.rows.invalid_rows import as_matrix
from streamgda.rows.names import feature_numbers, join_names
from streamgda.runtime.parameters import as_integer, as_numbers, check_type, refuse

_SINGULAR = 1e-8  # of the largest variance: such directions do not vary


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
        if features is None and vectors is None and width > n > 1:
            plane = discriminant_plane(estimator)
            if plane is not None:
                return cls(*plane, held)
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

    def log_posterior(self, points: np.ndarray) -> np.ndarray:
        r"""Return the log-posterior of the projected model, shape (n_points, n).

        Class k has the density :math:`N(z; D m_k, D \Sigma_k D^T)`. Directions along which no
        class varies are left out.
        """
        weights = self.priors / self.priors.sum()
        within = np.tensordot(weights, self.covariances, axes=1)
        scales = np.sqrt(within.diagonal())
        scales = np.where(scales > 0, scales, np.inf)  # directions may have very different units
        variances, axes = np.linalg.eigh(within / np.outer(scales, scales))
        axes = axes[:, variances > _SINGULAR * variances[-1]] / scales[:, None]
        joint = np.empty((len(points), len(self.means)))
        with np.errstate(divide="ignore"):  # a prior may be zero
            constants = np.log(weights)
        for k, (mean, covariance) in enumerate(zip(self.means, self.covariances, strict=True)):
            root = np.linalg.cholesky(axes.T @ covariance @ axes)
            gaps = linalg.solve_triangular(root, axes.T @ (points - mean).T, lower=True)
            joint[:, k] = constants[k] - 0.5 * (gaps**2).sum(axis=0) - np.log(root.diagonal()).sum()
        joint -= logsumexp(joint, axis=1, keepdims=True)
        return joint

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


def discriminant_plane(
    estimator: GaussianClassifier,
) -> tuple[np.ndarray, tuple[str, ...]] | None:
    r"""Return the two directions that separate the classes best, and their names.

    They are Fisher's: the largest :math:`w^T B w / w^T W w`, with the mean W of the estimator's
    covariances. Of two classes there is one, and beside it is the principal axis of W,
    less its part along the first (so that the two are uncorrelated within classes).

    Returns
    -------
    tuple or None
        None if fewer than two directions vary.
    """
    seen = estimator.class_count_ > 0
    priors = estimator.model_.priors[seen]
    values = covariance_values(estimator)
    own = values[seen] if len(values) == seen.size else values
    within = np.average(own, axis=0, weights=priors if len(own) == seen.sum() else None)
    width = estimator.n_features_in_
    if within.ndim < 2:
        within = np.diag(np.broadcast_to(within, width))
    scales = np.sqrt(within.diagonal())
    varying = np.flatnonzero(scales > 0)
    if varying.size < 2:
        return None
    within, scales = within[np.ix_(varying, varying)], scales[varying]
    variances, axes = np.linalg.eigh(within / np.outer(scales, scales))
    kept = variances > _SINGULAR * variances[-1]
    root = axes[:, kept] / np.sqrt(variances[kept]) / scales[:, None]  # root.T W root = I
    means = estimator.moments_.means[seen][:, varying]
    white = np.sqrt(priors)[:, None] * ((means - priors @ means) @ root)
    _, strengths, found = np.linalg.svd(white, full_matrices=False)
    chosen = list(found[strengths > 1e-4 * strengths[0]][:2])
    names = [f"Fisher's direction {i}" for i in range(1, len(chosen) + 1)]
    for axis in np.linalg.eigh(within)[1].T[::-1][: 4 - 2 * len(chosen)]:
        rest = root.T @ (within @ axis)
        for other in chosen:
            rest = rest - (rest @ other) * other
        if len(chosen) < 2 and np.linalg.norm(rest) > 1e-6 * np.linalg.norm(root.T @ within @ axis):
            chosen.append(rest / np.linalg.norm(rest))
            names.append("principal axis within classes")
    if len(chosen) < 2:
        return None
    vectors = np.zeros((2, width))
    found = np.array(chosen) @ root.T
    largest = np.abs(found * scales).argmax(axis=1)  # it is positive, whatever LAPACK returns
    vectors[:, varying] = found * np.sign(found[[0, 1], largest])[:, None]
    return vectors, tuple(names)


def check_gaussian(estimator: Any) -> None:
    """Raise `TypeError` or `NotFittedError` unless this is a fitted estimator with covariances."""
    check_type("estimator", estimator, GaussianClassifier, "a Gaussian estimator of this package")
    check_is_fitted(estimator)


def covariance_values(estimator: GaussianClassifier) -> np.ndarray:
    """Return the regularised covariances or variances, one entry for each class or for all."""
    check_gaussian(estimator)
    return estimator._covariances.values
