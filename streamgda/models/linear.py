"""`LinearModel`: Gaussians with one covariance, by the conventions of a solver of LDA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda import storage
from streamgda.errors import InvalidParameterError, UnsupportedError, as_attribute_error
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    average,
    estimate,
    factorise,
)
from streamgda.models.discriminants import discriminant_directions
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import Model
from streamgda.models.shrinkage import AUTO, fourth_of_scaled, ledoit_wolf, shrinkage_of
from streamgda.moments import ClassMoments
from streamgda.moments.centred import class_variance, total_scatter
from streamgda.moments.covariance_types import structure_of
from streamgda.moments.fourth import TOTAL
from streamgda.moments.roots import LinearFunctions
from streamgda.rows.arrays import as_kernel_rows
from streamgda.rows.invalid_rows import all_finite, refuse_not_finite
from streamgda.rows.names import saved_names
from streamgda.storage.format import check_number
from streamgda.storage.saved import State

SOLVERS = ("svd", "lsqr", "eigen")


@dataclass(frozen=True)
class LinearModel(GaussianModel):
    r"""Gaussians with one covariance, scored as a solver of scikit-learn's LDA does.

    All solvers find the same posteriors. With ``"svd"`` the discriminants are linear functions
    about `xbar`, of the coordinates along the discriminant directions; those along which the class
    means differ too little are left out. With the others the discriminants are

    .. math:: m_k^T \Sigma^{-1} x - m_k^T \Sigma^{-1} m_k / 2 + \ln \pi_k

    which differs by a term that all classes of a row share.

    Parameters
    ----------
    solver : {"svd", "lsqr", "eigen"}
        Solver.
    tol : float
        Discriminant directions are left out if their singular value is at most this fraction of
        the largest; see `streamgda.models.discriminants.discriminant_directions`.
    """

    solver: str = "svd"
    tol: float = 1e-4

    @cached_property
    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Discriminant directions, and the between-class variance along each of all."""
        return discriminant_directions(self, self.tol)

    @cached_property
    def drops_directions(self) -> bool:
        """True if class means differ so little along a direction that it is left out."""
        if self.solver != "svd" or self.priors.size <= 2:
            return False
        most = min((self.priors > 0).sum() - 1, self.rank)
        return bool(self.directions[0].shape[1] < most)

    def _solved(self, gaps: np.ndarray) -> np.ndarray:
        if self.drops_directions:
            within = self.directions[0][self.features]
            return np.asarray(gaps @ within @ within.T)
        return super()._solved(gaps)

    @cached_property
    def discriminants(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (K, d) and intercepts (K,) about `xbar` of the solver's discriminants."""
        return super().discriminants if self.solver == "svd" else self._linear_about(-self._centre)

    def _state(self) -> State:
        attributes, arrays = super()._state()
        own = {"solver": self.solver, "tol": self.tol}
        usual = {"solver": "svd", "tol": 1e-4}  # files without them mean these
        return attributes | {k: v for k, v in own.items() if v != usual[k]}, arrays

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        model = super()._from_state(attributes, arrays)
        solver, tol = attributes.get("solver", "svd"), attributes.get("tol", 1e-4)
        if solver not in SOLVERS or model.structure.per_class:
            raise ValueError(f"its solver {solver!r:.50} or its structure is not one of LDA")
        return replace(model, solver=solver, tol=check_number("tol", tol))


@dataclass(frozen=True)
class LinearScores(Model):
    """Linear discriminants of the classes, and nothing else: no densities.

    Parameters
    ----------
    classes : ndarray, shape (n_classes,)
    coefficients : ndarray of float64, shape (n_classes, n_features)
    intercepts : ndarray of float64, shape (n_classes,)
    feature_names : tuple of str, optional
    """

    _kind = "linear scores"

    classes: np.ndarray
    coefficients: np.ndarray
    intercepts: np.ndarray
    feature_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, classes: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> Self:
        """Return the discriminants of coefficients in scikit-learn's shapes.

        Parameters
        ----------
        classes : ndarray, shape (n_classes,)
        coef : ndarray, shape (n_classes, n_features), or (1, n_features) for two classes
        intercept : ndarray, shape (n_classes,), or (1,) for two classes

        Raises
        ------
        InvalidParameterError
            For other shapes, and numbers that are not finite.
        """
        if classes.size == 2 and len(coef) == 1:
            coef = np.concatenate([np.zeros_like(coef), coef])
            intercept = np.append(0.0, intercept)
        if coef.ndim != 2 or (len(coef), *intercept.shape) != (classes.size, classes.size):
            raise InvalidParameterError(
                f"coef has shape {coef.shape} and intercept {intercept.shape}; expected those of "
                f"coef_ and intercept_ for {classes.size} classes"
            )
        if not coef.size or not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise InvalidParameterError("coef and intercept have to be finite numbers")
        return cls(classes, coef, intercept)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise as_attribute_error(
            UnsupportedError(
                f"coef and intercept determine no {name}; from_parameters takes means, covariance "
                f"and priors, too"
            )
        )

    @property
    def packed_bytes(self) -> int:
        """Bytes that scoring packs of the model, at most."""
        return self.coefficients.nbytes

    @cached_property
    def n_features(self) -> int:
        """Width of the rows that are scored."""
        return int(self.coefficients.shape[1])

    @property
    def about_zero(self) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients and intercepts; those of the second class less the first, of two."""
        return _of_two(self.coefficients, self.intercepts)

    @cached_property
    def _functions(self) -> LinearFunctions:
        return LinearFunctions(self.coefficients, self.intercepts, np.arange(self.n_features))

    def _read(self, X: Any, first_row: int) -> np.ndarray:
        rows = as_kernel_rows(X, np.dtype(np.float64))
        if not all_finite(rows):
            refuse_not_finite(rows, first_row)
        return rows

    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        return self._functions(X)

    def _joint(self, X: np.ndarray) -> np.ndarray:
        return self.log_densities  # which raises an error

    def _state(self) -> State:
        attributes = {"classes": storage.pack_labels(self.classes), **saved_names(None)}
        return attributes, {"coefficients": self.coefficients, "intercepts": self.intercepts}

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        classes = storage.unpack_labels(attributes["classes"])
        return cls.of(classes, arrays["coefficients"], arrays["intercepts"])


def about_zero(
    model: GaussianModel, coefficients: np.ndarray, intercepts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return discriminants about `xbar` as linear functions of the rows themselves.

    Parameters
    ----------
    model : GaussianModel
    coefficients : ndarray, shape (n_classes, d)
    intercepts : ndarray, shape (n_classes,)

    Returns
    -------
    coefficients : ndarray, shape (n_classes, n_features); or (1, n_features) for two classes
        The second class less the first one, if there are two.
    intercepts : ndarray, shape (n_classes,), or (1,)
    """
    every = np.zeros((model.classes.size, model.n_features))
    every[:, model.features] = coefficients
    intercepts = intercepts - every @ model.xbar
    return _of_two(every, intercepts)


def _of_two(coefficients: np.ndarray, intercepts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return linear functions; the second less the first, if there are two."""
    if len(intercepts) == 2:
        return np.diff(coefficients, axis=0), np.diff(intercepts)
    return coefficients, intercepts


# --- covariances of the solvers ---------------------------------------------------------------


def estimate_pooled(
    moments: ClassMoments, how: Regularisation, priors: np.ndarray | None, **options: Any
) -> Covariances:
    r"""Estimate one covariance for all classes: :math:`\sum_k \pi_k \Sigma_k`.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"``, or ``"tied"`` without priors.
    how : Regularisation
    priors : ndarray, shape (n_classes,), optional
        Weights of the class covariances; by default the classes' shares of the rows.
    **options
        Options of `estimate`.
    """
    if priors is None or how.shrinkage == AUTO:
        return estimate(moments, "tied", how, priors=priors, **options)
    if how.shrinkage_rule:
        amounts = shrinkage_of(moments, how.shrinkage_rule, structure_of("tied"))
        how = replace(how, shrinkage=float(amounts[0]))
    return average(estimate(moments, "full", how, **options), priors)


def total_covariance(moments: ClassMoments, how: Regularisation, amount: float) -> np.ndarray:
    """Return the covariance of all rows about their common mean, shrunk, shape (d, d).

    Parameters
    ----------
    moments : ClassMoments
    how : Regularisation
    amount : float
        Amount of shrinkage; ``"auto"`` has one of all rows instead, from a second pass over them.
    """
    sums = moments.centred()
    n = float(sums.count.sum())
    covariance = total_scatter(sums) / n
    variances = np.ones(len(covariance))
    if how.shrinkage == AUTO:
        variances = class_variance(sums, total=True)[0]
        scaled = covariance / np.sqrt(np.outer(variances, variances))
        effective = sums.effective_count(lambda counts: counts.sum(axis=0, keepdims=True))
        fourth = float(fourth_of_scaled(moments, TOTAL, AUTO).sum())
        amount = ledoit_wolf(scaled, float(effective[0]), fourth / n)
    mean = (covariance.diagonal() / variances).mean()
    return np.asarray((1 - amount) * covariance + amount * mean * np.diag(variances))


def eigen_directions(
    within: Covariances, total: np.ndarray, how: Regularisation
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return discriminant directions as solver ``"eigen"`` does, with their eigenvalues.

    They solve :math:`(\Sigma_t - \Sigma) w = \lambda \Sigma w`, and come by falling
    :math:`\lambda`.

    Parameters
    ----------
    within : Covariances
        Pooled covariance.
    total : ndarray, shape (n_features, n_features)
        Covariance of all rows about their common mean.
    how : Regularisation

    Returns
    -------
    scalings : ndarray, shape (n_features, d)
        Columns along which the variance within classes is one.
    values : ndarray, shape (d,)
    """
    features = within.features
    root = factorise(within, how)[0][0]
    between = total[np.ix_(features, features)] - within.values[0]
    values, vectors = linalg.eigh(root @ between @ root.T)
    scalings = np.zeros((len(total), features.size))
    scalings[features] = root.T @ vectors[:, ::-1]
    return scalings, values[::-1]
