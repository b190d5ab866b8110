"""Regularised covariances estimated from moments, and the factors that scoring needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError, SingularCovarianceError
from streamgda.models.model import check_priors
from streamgda.models.shrinkage import (
    AUTO,
    RULES,
    check_rule,
    scaling_of,
    shrinkage_of,
)
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import Structure, structure_of
from streamgda.moments.sums import (
    Sums,
    class_variance,
    constant_features,
    pooled_variance,
    total_variance,
)
from streamgda.runtime import lapack, threads
from streamgda.runtime.parameters import as_flag, as_number, refuse

_SHRINKAGE = "a number between 0 and 1, or one of " + ", ".join(RULES)
_ASYMMETRY = 1e-6  # of covariances that are given, relative to standard deviations
_PART = 1 << 18  # values of the covariances that are treated at a time


@dataclass(frozen=True)
class Regularisation:
    r"""Parameters that regularise covariances, applied in the order of the attributes.

    Attributes
    ----------
    ddof : int
        Subtracted from the count of each class.
    pooling : float in [0, 1]
        Friedman's :math:`\lambda`: :math:`((1-\lambda) S_k + \lambda S_w) / ((1-\lambda) n_k +
        \lambda n)` (Regularized discriminant analysis, JASA 1989).
    shrinkage : float in [0, 1], {"auto", "oas"} or None
        :math:`(1-a) \Sigma + a\,\mathrm{tr}(\Sigma)/d\,I`; a name stands for a rule that
        computes the amount from the data, see `shrinkage_of`. ``"auto"`` shrinks the covariance
        of each class, with its features scaled to unit variance; a pooled covariance is then the
        average of these, weighted with the priors.
    reg_param : float in [0, 1]
        :math:`(1-r) \Sigma + r I`.
    var_smoothing : float >= 0
        Fraction of the largest variance of a feature over all rows that is added to every
        variance.
    tol : float >= 0
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2`` (scikit-learn's LDA compares ``tol`` with singular values).
    standardize : bool
        Regularise the covariances of features that are scaled by their pooled standard deviations
        (see `pooled_variance`), and scale the result back.
    singular : {"refuse", "scaled", "features"}
        Treatment of a singular pooled covariance: an error, or the directions without variance
        are dropped; see `streamgda.moments.roots.invert`.
    advice : str
        Remedies that the error for a singular covariance names; by default all parameters here.
    largest_variance : float, optional
        The variance that `var_smoothing` is a fraction of; by default that of the moments.
    """

    ddof: int = 0
    pooling: float = 0.0
    shrinkage: float | str | None = None
    reg_param: float = 0.0
    var_smoothing: float = 0.0
    tol: float = 1e-4
    standardize: bool = False
    singular: str = "refuse"
    advice: str = ""
    largest_variance: float | None = None

    def __post_init__(self) -> None:
        for name in ("pooling", "reg_param"):
            as_number(name, getattr(self, name), "a number between 0 and 1", 0, 1)
        if self.shrinkage is not None and not self.shrinkage_rule:
            as_number("shrinkage", self.shrinkage, _SHRINKAGE, 0, 1)
        for name in ("var_smoothing", "tol", "ddof"):
            as_number(name, getattr(self, name), "a number >= 0", 0)
        as_flag("standardize", self.standardize)

    @property
    def shrinkage_rule(self) -> str | None:
        """Rule that computes the amount of shrinkage from the data; None if it is a number."""
        known = isinstance(self.shrinkage, str) and self.shrinkage in RULES
        return str(self.shrinkage) if known else None

    def needs(self, covariance_type: str) -> dict[str, Any]:
        """Return the parameters of the `ClassMoments` that such covariances are estimated from.

        Raises
        ------
        InvalidParameterError
            If the shrinkage does not apply to such covariances.
        """
        structure, rule = structure_of(covariance_type), self.shrinkage_rule
        if rule:
            check_rule(rule, structure, self.pooling)
        return {"covariance_type": "full" if rule == AUTO else covariance_type}

    @property
    def scalings(self) -> tuple[str, ...]:
        """Scalings of the rows that a second pass reads; see `streamgda.moments.fourth`."""
        rule = self.shrinkage_rule
        scaling = scaling_of(rule) if rule else None
        return (scaling,) if scaling else ()


class Precision(NamedTuple):
    """Precision of estimated means and covariances, which the distances of rows depend on.

    Attributes
    ----------
    rows : ndarray, shape (n_classes,)
        Rows of each class, or their effective number.
    degrees : ndarray, shape (groups,)
        Degrees of freedom of each covariance. Those of a mean of covariances are Satterthwaite's;
        what is added to regularise counts as known, and what it is shrunk towards as estimated.
    bias : ndarray, shape (groups,)
        The covariance divided by one without bias.
    """

    rows: np.ndarray
    degrees: np.ndarray
    bias: np.ndarray

    def of_classes(self, structure: Structure) -> tuple[np.ndarray, np.ndarray]:
        """Return degrees of freedom, and the factors that make squared distances unbiased.

        With such a factor, the squared distance of a fresh row is Hotelling's :math:`T^2`.
        """
        degrees, bias = self.degrees, self.bias
        if not structure.per_class:
            groups = structure.groups(self.rows.size)
            degrees, bias = degrees[groups], bias[groups]
        return degrees, bias * (self.rows / (self.rows + 1))


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
        Amount that ``var_smoothing`` added to the variances, those of scaled features if they
        were standardised.
    shrinkage : ndarray, shape (groups,), or (n_classes,) if class covariances are averaged
        The amount of shrinkage of each covariance.
    means_low : ndarray, shape (n_classes, n_features)
        Rounding errors of the class means; see `Sums`.
    precision : callable or None
        Computes the `Precision`, as predictions need none; None if nothing is known of the
        estimator.
    """

    structure: Structure
    classes: np.ndarray
    count: np.ndarray
    features: np.ndarray
    values: np.ndarray
    epsilon: float
    shrinkage: np.ndarray
    means_low: np.ndarray
    precision: Callable[[], Precision] | None = None


def estimate(
    moments: ClassMoments,
    covariance_type: str,
    how: Regularisation,
    *,
    priors: Any = None,
    drop_constant: bool = True,
) -> Covariances:
    """Estimate covariances from moments.

    Parameters
    ----------
    moments : ClassMoments
        Moments that determine `covariance_type`.
    covariance_type : str
        Covariance type to estimate.
    how : Regularisation
    priors : array-like, shape (n_classes,), optional
        Weights of class covariances that are averaged; by default the classes' shares of the rows.
    drop_constant : bool
        Leave out the features that are constant over all rows.

    Returns
    -------
    Covariances

    Raises
    ------
    MergeError
        If the moments do not determine the covariance type.
    InvalidDataError
        If all features are constant.
    InvalidParameterError
        If the shrinkage does not apply to such covariances.
    """
    structure = structure_of(covariance_type)
    how.needs(covariance_type)
    if how.shrinkage == AUTO and not structure.per_class:
        return _averaged(moments, structure, how, priors, drop_constant)
    held = moments
    if moments.covariance_type != covariance_type:
        moments = moments.reduce(covariance_type)
    kept = held_sums(moments)
    n_groups = len(kept.packed)
    mixed = how.pooling > 0 and n_groups > 1
    kept = kept.centred() if mixed else kept
    sums = kept.without_products()
    varying = np.flatnonzero(~constant_features(sums))
    features = varying if drop_constant else np.arange(sums.n_features)
    if not features.size:
        raise InvalidDataError(
            f"all {sums.n_features} features are constant over all rows, {sums.count.sum():g} "
            f"sample(s); they do not distinguish the classes"
        )
    unit, epsilon = _unit(sums, how)
    target = class_variance(sums) if how.shrinkage == AUTO else unit[None]
    amounts = _amounts(held, structure, how, target)
    shrinks = structure.one_variance or np.count_nonzero(amounts) > 0
    unit = unit.take(features)
    if shrinks:
        target = target[:, features]
    weights = _weights(sums, how, mixed)
    n_averaged = structure.n_averaged(varying.size, sums.n_features)
    values = np.empty((n_groups, *structure.shape(features.size)))
    if mixed:
        pooled = np.empty_like(values[:1])
        whole = kept.packed.sum(axis=0, keepdims=True)
        structure.select_varying(whole, features, pooled)

    def fill(some: slice) -> None:
        covariances = values[some]
        kept.select_scatter(some, features, covariances)
        if mixed:
            covariances *= 1 - how.pooling
            covariances += how.pooling * pooled
        covariances /= _each(weights[some], covariances)
        if shrinks:
            towards = target if len(target) == 1 else target[some]
            _shrink(covariances, structure, amounts[some], towards, n_averaged)
        _regularise(covariances, structure, how, epsilon, unit)

    threads.run(fill, _parts(values))
    rows = structure.group_sums(sums.count)
    if np.count_nonzero(rows) < rows.size:
        values[rows == 0] = np.nan
    added = (how.reg_param + epsilon) * unit if how.reg_param or epsilon else None
    own = partial(_own_share, added, structure.diagonal(values).copy())
    rows = sums.effective_count(lambda each: each)
    part = how.pooling if mixed else 0.0
    noise = _noise(structure, how, amounts, features.size, n_groups // len(target))
    precision = partial(_precision, structure, rows, sums.count.copy(), part, weights, own, noise)
    found = features, values, epsilon, amounts, sums.mean_low, precision
    return Covariances(structure, moments.classes, sums.count, *found)


def _noise(
    structure: Structure, how: Regularisation, amounts: np.ndarray, d: int, n_common: int
) -> np.ndarray | float:
    r"""Return what shrinking leaves of the variances of estimates of d features.

    Variances are shrunk towards the mean of d of them, or in scaled features towards those of
    `n_common` groups, which are estimated from the same rows. Rows have a mean squared distance of
    :math:`\mathrm{E}\, \mathrm{tr}\, S^{-1}`, to which d variances add 2 / nu, and a matrix of
    Wishart's distribution (d + 1) / nu.
    """
    if structure.one_variance:
        return 1.0
    kept = (1 - amounts) ** 2
    scaled = how.standardize or how.shrinkage == AUTO
    others = (n_common if scaled else d) * ((d + 1) / 2 if structure.matrix else 1)
    return np.asarray(kept + (1 - kept) / others)


def _precision(
    structure: Structure,
    rows: np.ndarray,
    count: np.ndarray,
    part: float,
    weights: np.ndarray,
    own: Callable[[], np.ndarray],
    noise: np.ndarray | float,
) -> Precision:
    """Return the precision of scatters that were divided by weights, pooled in `part`, and shrunk.

    `own` returns the share of the covariances to which nothing was added, `noise` is what
    shrinking leaves of their variances.
    """
    degrees = np.maximum(rows - 1, 0.0)
    expected = structure.group_sums(count * (degrees / np.maximum(rows, 1)))
    degrees = structure.group_sums(degrees)
    if part:
        whole = degrees.sum()
        squares = (1 - part**2) * degrees + part**2 * whole
        degrees = ((1 - part) * degrees + part * whole) ** 2 / np.where(squares > 0, squares, 1.0)
        expected = (1 - part) * expected + part * expected.sum()
    return _with_known(Precision(rows, degrees / noise, expected / weights), own())


def _with_known(precision: Precision, own: np.ndarray) -> Precision:
    """Return the precision of covariances of which a share `own` is kept, beside what is known."""
    known = np.full(own.size, np.inf)
    degrees = np.divide(precision.degrees, own * own, out=known, where=own > 0)
    return Precision(precision.rows, degrees, 1 - own * (1 - precision.bias))


def _own_share(added: np.ndarray | None, variances: np.ndarray) -> np.ndarray:
    """Return the share of regularised covariances that was not added."""
    if added is None:
        return np.ones(len(variances))
    shares = np.minimum(added / np.where(variances > 0, variances, np.inf), 1)
    own: np.ndarray = 1 - shares.sum(axis=1) / shares.shape[1]
    return own


def _weights(sums: Sums, how: Regularisation, mixed: bool) -> np.ndarray:
    """Return the divisors of the groups' scatters, infinite for groups without rows."""
    weights = sums.structure.group_weights(sums.count, how.ddof)
    if mixed:
        weights = (1 - how.pooling) * weights + how.pooling * weights.sum()
    weights[weights <= 0] = np.inf
    return weights


def _parts(values: np.ndarray) -> list[tuple[slice]]:
    """Return the covariances that a thread treats at a time: several small ones, or a large one."""
    step = max(1, _PART // values[0].size)
    return [(slice(start, start + step),) for start in range(0, len(values), step)]


def _each(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return a number for each covariance in a shape that broadcasts with all of them."""
    return numbers.reshape(-1, *[1] * (values.ndim - 1))


def _unit(sums: Sums, how: Regularisation) -> tuple[np.ndarray, float]:
    """Return the variance of each feature that counts as one, and what smoothing adds, in units.

    With these variances in place of the matrix I of the formulas, features that are standardised
    do not have to be scaled, nor the result scaled back.
    """
    unit = pooled_variance(sums) if how.standardize else np.ones(sums.n_features)
    if not how.var_smoothing:
        return unit, 0.0
    largest = how.largest_variance
    if largest is None:
        largest = (total_variance(sums) / unit).max()
    return unit, float(how.var_smoothing * largest)


def _amounts(
    moments: ClassMoments, structure: Structure, how: Regularisation, target: np.ndarray
) -> np.ndarray:
    """Return the amount of shrinkage of each covariance."""
    rule = how.shrinkage_rule
    if rule is None:
        return np.full(structure.n_groups(moments._classes.size), float(how.shrinkage or 0))
    unit = target if how.standardize or rule == AUTO else None
    return shrinkage_of(moments, rule, structure, unit, next(iter(how.scalings), None))


def _shrink(
    covariances: np.ndarray,
    structure: Structure,
    amounts: np.ndarray,
    target: np.ndarray,
    n_averaged: int,
) -> None:
    """Shrink covariances in place, each by its amount, towards multiples of variances `target`.

    In units of these, the multiples are the means of `n_averaged` variances.
    """
    variances = structure.diagonal(covariances)
    sphere = (variances / target).sum(axis=1, keepdims=True) / n_averaged * target
    structure.constrain(covariances, sphere)
    if amounts.any():
        covariances *= _each(1 - amounts, covariances)
        variances += amounts[:, None] * sphere


def _regularise(
    covariances: np.ndarray,
    structure: Structure,
    how: Regularisation,
    epsilon: float,
    unit: np.ndarray,
) -> None:
    """Regularise covariances in place after they were shrunk."""
    variances = structure.diagonal(covariances)
    if how.reg_param:
        covariances *= 1 - how.reg_param
        variances += how.reg_param * unit
    if epsilon:
        variances += epsilon * unit


def _averaged(
    moments: ClassMoments,
    structure: Structure,
    how: Regularisation,
    priors: Any,
    drop_constant: bool,
) -> Covariances:
    """Return the average of class covariances that are shrunk one by one, for a pooled one."""
    alone = replace(how, pooling=0.0, reg_param=0.0, var_smoothing=0.0)
    each = estimate(moments, moments.covariance_type, alone, drop_constant=drop_constant)
    pooled = average(each, check_priors(priors, moments.classes, moments.class_count))
    unit, epsilon = _unit(held_sums(moments).centred(), how)
    unit = unit[each.features]
    _regularise(pooled.values, structure, how, epsilon, unit)
    added = (how.reg_param + epsilon) * unit
    own = _own_share(added, structure.diagonal(pooled.values))
    found = pooled.precision
    precision = None if found is None else lambda: _with_known(found(), own)
    return replace(pooled, epsilon=epsilon, precision=precision)


def estimate_total(moments: ClassMoments, covariance_type: str, how: Regularisation) -> Covariances:
    """Estimate one covariance of all rows about their common mean, regularised as of one class.

    Parameters
    ----------
    moments : ClassMoments
        Moments that determine `covariance_type`.
    covariance_type : str
        Determines the kind of the covariance.
    how : Regularisation
        Where a rule for the shrinkage needs sums of rows that were scaled class by class, the
        amount is the mean of those of the classes' covariances, weighted with their rows. With
        ``"auto"``, features are scaled to unit variance over all rows.

    Returns
    -------
    Covariances
    """
    together = moments.relabel(dict.fromkeys(moments.classes, moments.classes[0]))
    if not how.scalings:
        return estimate(together, covariance_type, how)
    auto, sums = how.shrinkage == AUTO, held_sums(moments).centred()
    structure = structure_of("full" if auto else covariance_type)
    target = class_variance(sums) if auto else _unit(sums, how)[0][None]
    amounts = _amounts(moments, structure, how, target)
    amount = float(np.average(amounts, weights=structure.group_sums(sums.count)))
    alone = replace(how, shrinkage=amount, standardize=True, reg_param=0.0, var_smoothing=0.0)
    total = estimate(together, covariance_type, alone)
    unit, epsilon = _unit(held_sums(together).centred(), how)
    _regularise(total.values, total.structure, how, epsilon, unit[total.features])
    return replace(total, epsilon=epsilon)


def given_covariances(
    structure: Structure, classes: np.ndarray, means: np.ndarray, values: np.ndarray
) -> Covariances:
    """Return covariances of all features from published numbers.

    Parameters
    ----------
    structure : Structure
    classes : ndarray, shape (n_classes,)
    means : ndarray, shape (n_classes, n_features)
        NaN for a class without rows.
    values : ndarray
        Covariances in the shape that users see.

    Raises
    ------
    InvalidParameterError
        For other shapes, numbers that are not finite, and matrices that are not symmetric or have
        negative variances.
    """
    k = classes.size
    if means.shape[:1] != (k,) or means.ndim != 2 or not means.size:
        raise InvalidParameterError(
            f"means have shape {means.shape}; expected one row for each of the {k} classes"
        )
    d = means.shape[1]
    shape = structure.n_groups(k), *structure.shape(d)
    shown = structure.ungroup(np.empty(shape))
    if values.shape == structure.ungroup(structure.shown(np.empty(shape))).shape != shown.shape:
        values = np.repeat(values[..., None], d, axis=-1)
    if values.shape != shown.shape:
        raise InvalidParameterError(
            f"covariances have shape {values.shape}; expected {shown.shape} for {k} classes, {d} "
            f"features and covariance_type={structure.name!r}"
        )
    values = values.reshape(shape).copy()
    count = (~np.isnan(means).all(axis=1)).astype(np.int64)
    with_rows = values[structure.group_sums(count) > 0]
    if not np.isfinite(means[count > 0]).all() or not np.isfinite(with_rows).all():
        raise InvalidParameterError("means and covariances have to be finite numbers")
    variances = structure.diagonal(with_rows)
    if structure.matrix:
        scale = np.sqrt(np.abs(variances[:, :, None] * variances[:, None]))
        gaps = np.abs(with_rows - with_rows.swapaxes(1, 2))
        if (gaps > _ASYMMETRY * (scale + np.abs(with_rows))).any():
            raise InvalidParameterError("covariances have to be symmetric matrices")
    if (variances < 0).any():
        raise InvalidParameterError("covariances have negative variances")
    features = np.arange(d)
    none = np.zeros(len(values))
    return Covariances(
        structure, classes, count, features, values, 0.0, none, np.zeros(means.shape)
    )


def without_features(covariances: Covariances, constant: np.ndarray | None) -> Covariances:
    """Return covariances of all features but the constant ones: by default, without variance."""
    structure, values = covariances.structure, covariances.values
    d, seen = covariances.features.size, structure.group_sums(covariances.count) > 0
    if constant is None:
        left_out = (structure.diagonal(values)[seen] == 0).all(axis=0)
    else:
        left_out = np.isin(np.arange(d), constant)
        if left_out.sum() != constant.size:
            raise refuse("constant_features", constant.tolist(), f"numbers from 0 to {d - 1}, once")
    features = np.flatnonzero(~left_out)
    if not features.size:
        raise InvalidDataError(
            f"all {d} features are constant; they do not distinguish the classes"
        )
    axes = (features, features) if structure.matrix else (features,)
    values = values[np.ix_(np.arange(len(values)), *axes)]
    return replace(covariances, features=features, values=values)


def average(each: Covariances, priors: np.ndarray) -> Covariances:
    """Return the mean of class covariances, weighted with the priors, as a pooled covariance."""
    seen = priors > 0
    values, of_each = np.tensordot(priors[seen], each.values[seen], axes=1), each.precision

    def precision() -> Precision:
        assert of_each is not None
        rows, degrees, bias = of_each()
        parts = priors[seen] * bias[seen]
        squares = (parts**2 / np.maximum(degrees[seen], 1e-300)).sum(keepdims=True)
        bias = parts.sum(keepdims=True)
        with np.errstate(divide="ignore"):  # covariances that are known have infinite degrees
            return Precision(rows, bias**2 / squares, bias)

    known = None if of_each is None else precision
    return replace(each, structure=structure_of("tied"), values=values[None], precision=known)


def factorise(
    covariances: Covariances, how: Regularisation, *, overwrite: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the roots of the inverse covariances, and the log-determinants.

    Parameters
    ----------
    covariances : Covariances
    how : Regularisation
        Determines which covariances are singular, and whether these are refused.
    overwrite : bool
        Replace the covariances by the roots.

    Returns
    -------
    roots : ndarray, shape (groups, d, d) or (groups, d)
        Lower triangular :math:`W = L^{-1}` of the Cholesky factor :math:`\Sigma = L L^T`, so that
        :math:`(x-m)^T \Sigma^{-1} (x-m) = |W (x-m)|^2`; or one over the variances. For a class
        without rows, the root of the unit matrix. If directions are dropped, :math:`W^T W` is a
        pseudo-inverse.
    log_determinants : ndarray, shape (groups,)
        Those of the covariances in the directions that are kept.

    Raises
    ------
    SingularCovarianceError
        If covariances are singular. It names their classes and ranks, and how to regularise them.
    """
    structure = covariances.structure
    roots = covariances.values if overwrite else covariances.values.copy()
    count = structure.group_sums(covariances.count)
    d = covariances.features.size
    if np.count_nonzero(count) < count.size:  # the unit matrix is as large as a covariance
        roots[count == 0] = np.eye(d) if structure.matrix else 1.0
    log_determinants = np.zeros(len(roots))
    kept = "refuse" if structure.per_class else how.singular
    parts = _parts(roots)

    def invert(some: slice) -> list[int]:
        return structure.invert(roots[some], how.tol, kept, log_determinants[some])

    # Several matrices at a time with one thread each are faster than one at a time with all.
    several = structure.matrix and len(parts) > 1
    run = threads.run_serial_blas if several else threads.run
    ranks = list(chain(*threads.call_blas(d * structure.matrix, run, invert, parts)))
    least = d if kept == "refuse" else 1
    singular = {g: rank for g, rank in enumerate(ranks) if rank < least}
    if singular:
        classes = covariances.classes[list(singular)].tolist() if structure.per_class else ()
        raise SingularCovarianceError(_describe(covariances, singular, how.advice), classes)
    return roots, log_determinants


def root_beside(root: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the root of the inverse of a covariance, in the directions of another root.

    It is found in coordinates whitened by that root, which is the largest class's. There the
    covariance of all rows has no small eigenvalues, however far the classes are apart.
    """
    white = np.ascontiguousarray(root @ covariance @ root.T)
    dropped = ~root.any(axis=1)
    white[dropped, dropped] = 1.0
    if not np.isfinite(white).all() or not lapack.cholesky(white):
        raise SingularCovarianceError(
            "the covariance of all rows is singular to rounding: classes are too far apart "
            "for their own covariances. Regularise (reg_param or shrinkage above 0), or use a "
            "covariance_type without covariances between features"
        )
    lapack.invert_lower(white)
    return np.asarray(np.tril(white) @ root)


def _describe(covariances: Covariances, singular: dict[int, int], advice: str) -> str:
    """Return the message for covariances that are singular: their groups and ranks."""
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
    alone = [g for g in singular if structure.per_class and covariances.count[g] == 1]
    if alone:
        what += f"; y has only 1 sample in class {covariances.classes[alone[0]]!s}"
    if 0 in singular.values() and len(alone) < len(singular):
        what += ". Values that differ by less than 1e-154, whose squares underflow, count as equal"
    if not advice:
        simpler = " or ".join(map(repr, structure.simpler))
        use = f", use covariance_type={simpler}" if simpler else ""
        advice = f"Regularise (reg_param, shrinkage, pooling or var_smoothing above 0){use}"
    others = "leave out features that depend on others, or give more rows of each class"
    return f"{what}. {advice}, {others}"
