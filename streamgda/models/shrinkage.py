"""Amounts of shrinkage that are computed from the moments."""

from __future__ import annotations

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import Structure, symmetric
from streamgda.moments.fourth import CLASS

AUTO, OAS = "auto", "oas"
RULES = AUTO, OAS

TWO_PASSES = (
    "scales rows by standard deviations that are known when all of them have been read, and must "
    "read them again, as `fit` does for arrays, stores and dask collections. For rows that are "
    "read once (partial_fit, from_moments, iterables), use 'oas' or a number"
)


def check_rule(rule: str, structure: Structure, pooling: float) -> None:
    """Raise `InvalidParameterError` if a rule does not apply to such covariances."""
    if not structure.matrix:
        raise InvalidParameterError(
            f"shrinkage={rule!r} is computed from covariances between features, which "
            f"covariance_type={structure.name!r} does not have; use 'full' or 'tied', or a number"
        )
    if pooling and structure.per_class:
        raise InvalidParameterError(
            f"shrinkage={rule!r} is that of a class's own covariance, and pooling={pooling} mixes "
            f"it with the others'; use one of them, or a number for shrinkage"
        )


def scaling_of(rule: str) -> str | None:
    """Return the scaling whose fourth powers a rule needs, from a second pass over the rows."""
    return CLASS if rule == AUTO else None


def shrinkage_of(
    moments: ClassMoments,
    rule: str,
    structure: Structure,
    unit: np.ndarray | None = None,
    scaling: str | None = None,
) -> np.ndarray:
    r"""Return the amount of shrinkage of each class's covariance, or of the pooled one.

    The amounts are those of `sklearn.covariance.ledoit_wolf` and `sklearn.covariance.oas` for the
    rows of the class, or for the rows of all classes, each less its class mean. If rows are
    weighted, their number in the formulas is the effective one of `Sums.effective_count`.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"``, or for the pooled covariance ``"tied"``.
    rule : {"auto", "oas"}
    structure : Structure
        Structure of the covariances that are shrunk.
    unit : ndarray, shape (groups or 1, n_features), optional
        Variances of the features that count as one, for the amounts of scaled rows.
    scaling : str, optional
        The name of that scaling, if fourth powers of scaled rows are needed.

    Returns
    -------
    ndarray, shape (n_classes,), or (1,) if pooled
        Zero for classes without rows.

    Raises
    ------
    InvalidDataError
        If fourth powers underflow.
    InvalidParameterError
        If fourth powers of scaled rows are needed and not known.
    """
    sums = held_sums(moments).centred()
    count = sums.count.astype(np.float64)
    fourth = np.zeros(count.size)
    if scaling:
        fourth = fourth_of_scaled(moments, scaling, rule)
    effective = sums.effective_count(structure.group_sums)
    count, fourth = structure.group_sums(count), structure.group_sums(fourth)
    scatter = structure.reduced(sums.structure, sums.packed)
    amounts = np.zeros(count.size)
    scales = np.sqrt(np.ones((1, 1)) if unit is None else unit)
    scales = np.broadcast_to(scales, (count.size, sums.n_features))
    if sums.n_features > 1:
        for g in np.flatnonzero(count > 0):
            covariance = symmetric(scatter[g]) / count[g]
            if unit is not None:
                covariance /= np.outer(scales[g], scales[g])
            exponent = np.frexp(covariance.diagonal().max())[1]  # squares may not underflow
            covariance = np.ldexp(covariance, -exponent)
            if rule == OAS:
                amounts[g] = _oas(covariance, effective[g])
                continue
            if 2 * exponent < np.finfo(np.float64).minexp:
                raise InvalidDataError(
                    f"shrinkage={rule!r} needs fourth powers of the rows, which underflow float64, "
                    f"as values differ by less than about 1e-77; scale the data up"
                )
            mean = float(np.ldexp(fourth[g] / count[g], -2 * exponent))
            amounts[g] = ledoit_wolf(covariance, effective[g], mean)
    return amounts


def fourth_of_scaled(moments: ClassMoments, scaling: str, rule: str) -> np.ndarray:
    """Return sums of fourth powers of scaled rows, which a second pass over the rows yields."""
    fourth = moments._scaled_fourth().get(scaling)
    if fourth is None:
        raise InvalidParameterError(f"shrinkage={rule!r} {TWO_PASSES}")
    return fourth


def ledoit_wolf(covariance: np.ndarray, n: float, fourth: float) -> float:
    """Return Ledoit and Wolf's amount (JMVA 2004): share of noise in the dispersion."""
    d = covariance.shape[0]
    squares = float(np.vdot(covariance, covariance))
    spread = squares - covariance.trace() ** 2 / d
    noise = (fourth - squares) / n
    return float(np.clip(noise / spread, 0, 1)) if spread > 0 else 0.0


def _oas(covariance: np.ndarray, n: float) -> float:
    """Return the amount of Chen, Wiesel, Eldar and Hero (IEEE TSP 2010, eq. 23, less its 2/d)."""
    d = covariance.shape[0]
    squares, square = float(np.vdot(covariance, covariance)), float(covariance.trace() ** 2)
    spread = (n + 1) * (squares - square / d)
    return min(1.0, (squares + square) / spread) if spread > 0 else 1.0
