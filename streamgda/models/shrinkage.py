"""Amounts of shrinkage that are computed from the moments."""

from __future__ import annotations

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.moments import ClassMoments
from streamgda.moments.structures import Structure
from streamgda.moments.triangles import symmetric

LEDOIT_WOLF, OAS = "ledoit_wolf", "oas"
RULES = {"auto": LEDOIT_WOLF, LEDOIT_WOLF: LEDOIT_WOLF, OAS: OAS}


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


def shrinkage_of(
    moments: ClassMoments, rule: str, structure: Structure, unit: np.ndarray | None = None
) -> np.ndarray:
    r"""Return the amount of shrinkage of each class's covariance, or of the pooled one.

    The amounts are those of `sklearn.covariance.ledoit_wolf` and `sklearn.covariance.oas` for the
    rows of the class, or for the rows of all classes, each less its class mean.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"``, or for the pooled covariance ``"tied"``; with norms for Ledoit and Wolf's.
    rule : {"ledoit_wolf", "auto", "oas"}
    structure : Structure
        Structure of the covariances that are shrunk.
    unit : ndarray, shape (n_features,), optional
        Variances of the features that count as one, for the amounts of scaled rows.

    Returns
    -------
    ndarray, shape (n_classes,), or (1,) if pooled
        Zero for classes without rows.

    Raises
    ------
    InvalidDataError
        If norms are needed and not kept.
    """
    sums = moments.centred()
    count = sums.count.astype(np.float64)
    fourth = moments.fourth if RULES[rule] == LEDOIT_WOLF else np.zeros(count.size)
    count, fourth = structure.group_sums(count), structure.group_sums(fourth)
    scatter = structure.reduced(sums.structure, sums.scatter)
    amounts = np.zeros(count.size)
    scale = np.ones(sums.n_features) if unit is None else np.sqrt(unit)
    if sums.n_features > 1:
        for g in np.flatnonzero(count > 0):
            covariance = symmetric(scatter[g]) / count[g] / np.outer(scale, scale)
            if RULES[rule] == LEDOIT_WOLF:
                amounts[g] = _ledoit_wolf(covariance, count[g], fourth[g] / count[g])
            else:
                amounts[g] = _oas(covariance, count[g])
    return amounts


def _ledoit_wolf(covariance: np.ndarray, n: float, fourth: float) -> float:
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
