"""From moments to regularised covariances, and to the factors that scoring needs."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.kernels.triangles import clear_upper, select_features
from streamgda.models.shrinkage import LEDOIT_WOLF, RULES, check_rule, shrinkage_of
from streamgda.moments import ClassMoments
from streamgda.moments.centred import CentredSums
from streamgda.moments.structure import Structure, structure_of
from streamgda.moments.variances import diagonals, total_variance
from streamgda.runtime import lapack, threads

_PART = 1 << 18  # values of the covariances that are treated at a time


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
    if type(value) is float and 0 <= value <= high and value < math.inf:
        return  # as it is at every call of a stream
    number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
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
    if how.shrinkage_rule:
        amounts = shrinkage_of(held, how.shrinkage_rule, per_class=structure.per_class)
    else:
        amounts = np.full(shape[0], float(how.shrinkage or 0))
    weights = sums.count - float(how.ddof) if structure.per_class else np.array([everyone])
    if pooled is not None:
        weights = (1 - how.pooling) * weights + how.pooling * everyone
    weights = np.where(weights > 0, weights, np.inf)

    def fill(some: slice) -> None:
        scatter, covariances = sums.scatter[some], values[some]
        if pooled is not None:
            scatter = (1 - how.pooling) * scatter + how.pooling * pooled
        if structure.matrix:
            select_features(scatter, features, covariances)
        else:
            covariances[...] = scatter[:, features]
        covariances /= _each(weights[some], covariances)
        _regularise(covariances, structure, how, amounts[some], epsilon, averaged)

    threads.run(fill, _parts(values))
    if structure.per_class:
        values[~rows] = np.nan
    return Covariances(structure, moments.classes, sums.count, features, values, epsilon, amounts)


def _parts(values: np.ndarray) -> list[tuple[slice]]:
    """Covariances that a thread treats at a time: several small ones, or a large one."""
    step = max(1, _PART // values[0].size)
    return [(slice(start, start + step),) for start in range(0, len(values), step)]


def _each(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A number for each covariance, in the dimensions of all of them."""
    return numbers.reshape(-1, *[1] * (values.ndim - 1))


def constant_features(sums: CentredSums) -> np.ndarray:
    """Which features have one value in all rows, bool, shape (n_features,)."""
    rows = sums.count > 0
    spread = diagonals(sums.scatter).sum(axis=0)
    mean, low = sums.mean[rows], sums.mean_low[rows]
    return (spread == 0) & (mean == mean[0]).all(axis=0) & (low == low[0]).all(axis=0)


def _variances(covariances: np.ndarray) -> np.ndarray:
    """Their diagonals, shape (groups, d), to be read and to be written."""
    return np.einsum("gii->gi", covariances) if covariances.ndim == 3 else covariances


def _regularise(
    covariances: np.ndarray,
    structure: Structure,
    how: Regularisation,
    shrinkage: np.ndarray,
    epsilon: float,
    averaged: int,
) -> None:
    """Regularise covariances in place, each with its amount of shrinkage."""
    variances = _variances(covariances)
    mean = variances.sum(axis=1) / averaged
    if structure.isotropic:
        covariances[...] = mean[:, None]
    diagonal = shrinkage * mean
    if shrinkage.any():
        covariances *= _each(1 - shrinkage, covariances)
    if how.reg_param:
        diagonal = (1 - how.reg_param) * diagonal + how.reg_param
        covariances *= 1 - how.reg_param
    variances += (diagonal + epsilon)[:, None]


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
    values, per_class = covariances.values, covariances.structure.per_class
    matrix = covariances.structure.matrix
    roots = np.empty_like(values)
    log_determinants = np.zeros(values.shape[0])

    def invert(some: slice) -> list[int]:
        """Write roots and log determinants; return the ranks."""
        value, root = values[some], roots[some]
        if per_class and not covariances.count[some].all():
            unit = np.eye(value.shape[1]) if matrix else 1.0
            value = np.where(_each(covariances.count[some] > 0, value), value, unit)
        if matrix:
            ranks = _inverse_roots(value, tol, root)
            if min(ranks) == value.shape[1]:
                log_determinants[some] = -2 * np.log(_variances(root)).sum(axis=1)
            return ranks
        positive = value > 0
        np.divide(1, value, out=root, where=positive)
        log_determinants[some] = np.log(np.where(positive, value, 1.0)).sum(axis=1)
        return positive.sum(axis=1).tolist()

    # Several matrices at a time with one thread each are faster than one at a time with all.
    with threads.serial_blas() if len(values) > 1 else nullcontext():
        ranks = list(chain(*threads.run(invert, _parts(values))))
    singular = {g: rank for g, rank in enumerate(ranks) if rank < values.shape[-1]}
    if singular:
        raise SingularCovarianceError(_describe(covariances, singular))
    return roots, log_determinants


def _inverse_roots(covariances: np.ndarray, tol: float, out: np.ndarray) -> list[int]:
    """Write the inverses of the lower Cholesky factors; return the ranks.

    Where a rank is not full, what is written means nothing.
    """
    scale = np.sqrt(np.maximum(_variances(covariances), 0))
    scale[scale == 0] = 1
    _correlations(covariances, scale, out)
    ranks = []
    for covariance, own_scale, root in zip(covariances, scale, out, strict=True):
        ranks.append(_rank(covariance, own_scale, tol, root))
        if ranks[-1] == len(root):
            lapack.invert_lower(root)
            clear_upper(root)
    out /= scale[:, None, :]
    return ranks


def _rank(covariance: np.ndarray, scale: np.ndarray, tol: float, correlation: np.ndarray) -> int:
    """The rank of a correlation matrix, which is replaced by its Cholesky factor."""
    d = len(scale)
    norm = lapack.norm(correlation)
    failed = not lapack.cholesky(correlation)
    # |A^-1| in the 2-norm is at most that in the 1-norm, of which LAPACK gives an estimate;
    # eigenvalues are only computed where it leaves a doubt.
    if not failed and lapack.reciprocal_condition(correlation, norm) * norm > 10 * tol**2:
        return d
    scaled = _correlations(covariance[None], scale[None], np.empty((1, d, d)))[0]
    eigenvalues = linalg.eigvalsh(scaled, check_finite=False)
    rank = int((eigenvalues > max(tol**2, d * np.finfo(float).eps)).sum())
    return min(rank, d - 1) if failed else rank


def _correlations(covariances: np.ndarray, scale: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write covariances scaled to unit variances."""
    np.divide(covariances, scale[:, :, None], out=out)
    out /= scale[:, None, :]
    return out


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
