"""From moments to regularised covariances, and to the factors that scoring needs."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import linalg

from streamgda import lapack, threads
from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.kernels.triangles import clear_upper
from streamgda.moments import ClassMoments
from streamgda.moments.centred import CentredSums
from streamgda.moments.spread import diagonals, symmetric, total_variance
from streamgda.moments.structure import Structure, structure_of
from streamgda.shrinkage import LEDOIT_WOLF, RULES, check_rule, shrinkage_of

_SMALL = 1 << 18  # values of all covariances together


@dataclass(frozen=True)
class Regularisation:
    r"""How covariances are estimated from scatters, in the order of the attributes.

    Attributes
    ----------
    ddof : int
        Taken off the count of each class.
    pooling : float in [0, 1]
        Friedman's :math:`\lambda`: :math:`((1-\lambda) S_k + \lambda S_w) / ((1-\lambda) n_k +
        \lambda n)` (Regularized discriminant analysis, JASA 1989).
    shrinkage : float in [0, 1], {"ledoit_wolf", "auto", "oas"} or None
        :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`; see `streamgda.shrinkage` for the
        amounts that the data give.
    reg_param : float in [0, 1]
        :math:`(1-r) \Sigma + r I`.
    var_smoothing : float >= 0
        This fraction of the largest variance of a feature over all rows is added to every
        variance.
    tol : float >= 0
        A covariance is singular where, scaled to unit variances, it has an eigenvalue of no
        more than ``tol ** 2`` (as scikit-learn's LDA holds ``tol`` against singular values).
    """

    ddof: int = 0
    pooling: float = 0.0
    shrinkage: float | str | None = None
    reg_param: float = 0.0
    var_smoothing: float = 0.0
    tol: float = 1e-4

    def __post_init__(self) -> None:
        for name, high in (("pooling", 1), ("reg_param", 1), ("var_smoothing", math.inf)):
            _check_number(name, getattr(self, name), high)
        if self.shrinkage is not None and not self.shrinkage_rule:
            _check_number("shrinkage", self.shrinkage, 1, ", or one of " + ", ".join(RULES))
        _check_number("tol", self.tol, math.inf)
        _check_number("ddof", self.ddof, math.inf)

    @property
    def shrinkage_rule(self) -> str | None:
        """By which rule the data give the amount of shrinkage, if they do."""
        return RULES.get(self.shrinkage) if isinstance(self.shrinkage, str) else None

    def needs(self, covariance_type: str) -> dict[str, Any]:
        """What of `ClassMoments` such covariances are estimated from: its parameters.

        Raises
        ------
        InvalidParameterError
            Where the shrinkage is not one of such covariances.
        """
        structure, rule = structure_of(covariance_type), self.shrinkage_rule
        if rule:
            check_rule(rule, structure, self.pooling)
        norms = rule == LEDOIT_WOLF
        return {"covariance_type": "full" if norms else covariance_type, "norms": norms}


def _check_number(name: str, value: Any, high: float, other: str = "") -> None:
    number = isinstance(value, (float, int, Real)) and not isinstance(value, bool)
    number = number and math.isfinite(value)
    if not number or not 0 <= value <= high:
        limits = f"between 0 and {high}" if math.isfinite(high) else ">= 0"
        raise InvalidParameterError(f"{name}={value!r}; expected a number {limits}{other}")


@dataclass(frozen=True)
class Covariances:
    """Regularised covariances of the features that vary.

    Attributes
    ----------
    structure : Structure
    classes : ndarray, shape (n_classes,)
    count : ndarray, shape (n_classes,)
    features : ndarray of int, shape (d,)
        Numbers of the features that are not constant over all rows.
    values : ndarray of float64, shape (groups, d, d), or (groups, d) of variances
        NaN for classes without rows.
    epsilon : float
        What ``var_smoothing`` added to the variances.
    shrinkage : ndarray, shape (groups,)
        The amount of shrinkage of each covariance.
    """

    structure: Structure
    classes: np.ndarray
    count: np.ndarray
    features: np.ndarray
    values: np.ndarray
    epsilon: float
    shrinkage: np.ndarray


def estimate(
    moments: ClassMoments,
    covariance_type: str,
    how: Regularisation,
    *,
    drop_constant: bool = True,
) -> Covariances:
    """Estimate covariances from moments.

    Parameters
    ----------
    moments : ClassMoments
        That determine `covariance_type`.
    covariance_type : str
        What is modelled.
    how : Regularisation
    drop_constant : bool
        Leave out the features that are constant over all rows.

    Raises
    ------
    MergeError
        Where the moments do not determine the covariance type.
    InvalidDataError
        Where all features are constant, or the moments lack the norms that the shrinkage needs.
    InvalidParameterError
        Where the shrinkage is not one of such covariances.
    """
    structure = structure_of(covariance_type)
    how.needs(covariance_type)
    held = moments
    if moments.covariance_type != covariance_type:
        moments = moments.reduce(covariance_type)
    sums = moments.centred()
    pooled = sums.scatter.sum(axis=0) if how.pooling and structure.per_class else None
    variance = total_variance(sums)
    epsilon = float(how.var_smoothing * variance.max())
    varying = np.flatnonzero(~constant_features(sums))
    features = varying if drop_constant else np.arange(sums.n_features)
    if not features.size:
        raise InvalidDataError(
            f"all {sums.n_features} features are constant over all rows; nothing tells the "
            f"classes apart"
        )
    # Shrinkage is towards the mean of all variances, those of zero too, as in scikit-learn.
    averaged = max(1, varying.size) if structure.isotropic else sums.n_features
    rows = sums.count > 0
    everyone = float((sums.count[rows] - how.ddof).sum())
    shape = structure.scatter_shape(sums.count.size, features.size)
    values = np.empty(shape)
    if structure.per_class:
        values[~rows] = np.nan
    if how.shrinkage_rule:
        amounts = shrinkage_of(held, how.shrinkage_rule, per_class=structure.per_class)
    else:
        amounts = np.full(shape[0], float(how.shrinkage or 0))

    def fill(g: int) -> None:
        n = float(sums.count[g] - how.ddof) if structure.per_class else everyone
        scatter, weight = sums.scatter[g], n
        if pooled is not None:
            scatter = (1 - how.pooling) * scatter + how.pooling * pooled
            weight = (1 - how.pooling) * n + how.pooling * everyone
        covariance = _select(scatter, features)
        covariance /= weight if weight > 0 else np.inf
        values[g] = _regularise(covariance, structure, how, amounts[g], epsilon, averaged)

    present = np.flatnonzero(rows) if structure.per_class else [0]
    with _threads_for(values):
        threads.run(fill, ((int(g),) for g in present))
    return Covariances(structure, moments.classes, sums.count, features, values, epsilon, amounts)


def _threads_for(values: np.ndarray) -> AbstractContextManager[None]:
    """One for small matrices, which are done before another has woken up."""
    return threads.limit(1) if values.size < _SMALL else nullcontext()


def constant_features(sums: CentredSums) -> np.ndarray:
    """Which features have one value in all rows, bool, shape (n_features,)."""
    rows = sums.count > 0
    spread = diagonals(sums.scatter).sum(axis=0)
    mean, low = sums.mean[rows], sums.mean_low[rows]
    return (spread == 0) & (mean == mean[0]).all(axis=0) & (low == low[0]).all(axis=0)


def _diagonal(scatter: np.ndarray) -> np.ndarray:
    return scatter.diagonal() if scatter.ndim == 2 else scatter


def _select(scatter: np.ndarray, features: np.ndarray) -> np.ndarray:
    if scatter.ndim == 1:
        return scatter[features]
    return symmetric(scatter[features][:, features])


def _regularise(
    covariance: np.ndarray,
    structure: Structure,
    how: Regularisation,
    shrinkage: float,
    epsilon: float,
    averaged: int,
) -> np.ndarray:
    variance = _diagonal(covariance).sum() / averaged
    if structure.isotropic:
        covariance = np.full_like(covariance, variance)
    diagonal = 0.0
    if shrinkage:
        diagonal = shrinkage * variance
        covariance = (1 - shrinkage) * covariance
    if how.reg_param:
        diagonal = (1 - how.reg_param) * diagonal + how.reg_param
        covariance = (1 - how.reg_param) * covariance
    if covariance.ndim == 1:
        return covariance + (diagonal + epsilon)
    covariance[np.diag_indices_from(covariance)] += diagonal + epsilon
    return covariance


def factorise(covariances: Covariances, tol: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Invert covariances, or refuse.

    Parameters
    ----------
    covariances : Covariances
    tol : float
        See `Regularisation`.

    Returns
    -------
    roots : ndarray, shape (groups, d, d) or (groups, d)
        Lower triangular :math:`W = L^{-1}` of the Cholesky factor :math:`\Sigma = L L^T`, so that
        :math:`(x-m)^T \Sigma^{-1} (x-m) = |W (x-m)|^2`; or one over the variances. For a class
        without rows, of the unit matrix.
    log_determinants : ndarray, shape (groups,)

    Raises
    ------
    SingularCovarianceError
        That names all classes whose covariance is singular, their ranks, and what mends it.
    """
    values = covariances.values
    matrix = covariances.structure.matrix
    roots = np.empty_like(values)
    log_determinants = np.zeros(values.shape[0])

    def invert(g: int) -> int | None:
        """Write the root and the log determinant; return the rank where it is not full."""
        value = values[g]
        if covariances.structure.per_class and not covariances.count[g]:
            roots[g] = np.eye(value.shape[0]) if matrix else 1.0
        elif matrix:
            root = _inverse_root(value, tol)
            if isinstance(root, int):
                return root
            log_determinants[g] = -2 * np.log(root.diagonal()).sum()
            roots[g] = root
        elif (value > 0).all():
            log_determinants[g] = np.log(value).sum()
            roots[g] = 1 / value
        else:
            return int((value > 0).sum())
        return None

    # Several matrices at a time with one thread each are faster than one at a time with all.
    with _threads_for(values), threads.serial_blas() if len(values) > 1 else nullcontext():
        ranks = threads.run(invert, ((g,) for g in range(len(values))))
    singular = {g: rank for g, rank in enumerate(ranks) if rank is not None}
    if singular:
        raise SingularCovarianceError(_describe(covariances, singular))
    return roots, log_determinants


def _inverse_root(covariance: np.ndarray, tol: float) -> np.ndarray | int:
    """The inverse of the lower Cholesky factor, or the rank where the matrix is singular."""
    scale = np.sqrt(np.maximum(covariance.diagonal(), 0))
    scale[scale == 0] = 1
    root = _scaled(covariance, scale)
    norm = float(np.abs(root).sum(axis=0).max())
    failed = not lapack.cholesky(root)
    # |A^-1| in the 2-norm is at most that in the 1-norm, of which LAPACK gives an estimate;
    # eigenvalues are only computed where it leaves a doubt.
    if failed or lapack.reciprocal_condition(root, norm) * norm <= 10 * tol**2:
        d = covariance.shape[0]
        eigenvalues = linalg.eigvalsh(_scaled(covariance, scale), check_finite=False)
        rank = int((eigenvalues > max(tol**2, d * np.finfo(float).eps)).sum())
        if failed or rank < d:
            return min(rank, d - 1)
    lapack.invert_lower(root)
    clear_upper(root)
    root /= scale
    return root


def _scaled(covariance: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The correlation matrix."""
    correlation = covariance / scale[:, None]
    correlation /= scale
    return correlation


def _describe(covariances: Covariances, singular: dict[int, int]) -> str:
    d = covariances.features.size
    structure = covariances.structure
    if not structure.per_class:
        what = f"the pooled covariance is singular: rank {next(iter(singular.values()))} of {d}"
    else:
        named = [
            f"class {covariances.classes[g]!s} (rank {rank} of {d}, {covariances.count[g]:g} "
            f"{'row' if covariances.count[g] == 1 else 'rows'})"
            for g, rank in list(singular.items())[:10]
        ]
        more = f" and {len(singular) - 10} more" if len(singular) > 10 else ""
        what = (
            f"the covariance of {len(singular)} of {covariances.classes.size} classes is "
            f"singular: {', '.join(named)}{more}"
        )
    simpler = {"full": "'tied' or 'diag'", "tied": "'tied_diag'"}.get(
        structure.name, "'tied_diag' or 'tied_spherical'"
    )
    return (
        f"{what}. Regularise (reg_param, shrinkage, pooling or var_smoothing above 0), use "
        f"covariance_type={simpler}, leave out features that depend on others, or give more rows"
    )
