"""How much covariances are to be shrunk, told by the moments themselves."""

from __future__ import annotations

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.moments import ClassMoments
from streamgda.moments.structure import Structure
from streamgda.moments.variances import symmetric

LEDOIT_WOLF, OAS = "ledoit_wolf", "oas"
RULES = {"auto": LEDOIT_WOLF, LEDOIT_WOLF: LEDOIT_WOLF, OAS: OAS}


def check_rule(rule: str, structure: Structure, pooling: float) -> None:
    """Raise `InvalidParameterError` where a rule says nothing of such covariances."""
    if not structure.matrix:
        raise InvalidParameterError(
            f"shrinkage={rule!r} is found from covariances between features, which "
            f"covariance_type={structure.name!r} has not; use 'full' or 'tied', or a number"
        )
    if pooling and structure.per_class:
        raise InvalidParameterError(
            f"shrinkage={rule!r} is that of a class's own covariance, and pooling={pooling} mixes "
            f"it with the others'; use one of them, or a number for shrinkage"
        )


def shrinkage_of(moments: ClassMoments, rule: str, *, per_class: bool) -> np.ndarray:
    r"""The amount of shrinkage of each class's covariance, or of the pooled one.

    Those of `sklearn.covariance.ledoit_wolf` and `sklearn.covariance.oas` for the rows of the
    class, or for the rows of all classes, each less its class mean.

    Parameters
    ----------
    moments : ClassMoments
        ``"full"``, or for the pooled covariance ``"tied"``; for Ledoit and Wolf's with norms.
    rule : {"ledoit_wolf", "auto", "oas"}
    per_class : bool

    Returns
    -------
    ndarray, shape (n_classes,), or (1,) where pooled
        Zero for classes without rows.

    Raises
    ------
    InvalidDataError
        Where norms are needed and not held.
    """
    sums = moments.centred()
    count, scatter = sums.count.astype(np.float64), sums.scatter
    fourth = moments.fourth if RULES[rule] == LEDOIT_WOLF else np.zeros(count.size)
    if not per_class:
        count, fourth = count.sum(keepdims=True), fourth.sum(keepdims=True)
        scatter = scatter.sum(axis=0, keepdims=True)
    amounts = np.zeros(count.size)
    if sums.n_features > 1:
        for g in np.flatnonzero(count > 0):
            covariance = symmetric(scatter[g]) / count[g]
            if RULES[rule] == LEDOIT_WOLF:
                amounts[g] = _ledoit_wolf(covariance, count[g], fourth[g] / count[g])
            else:
                amounts[g] = _oas(covariance, count[g])
    return amounts


def _ledoit_wolf(covariance: np.ndarray, n: float, fourth: float) -> float:
    """Ledoit and Wolf (JMVA 2004): the share of the spread about a sphere that is noise."""
    d = covariance.shape[0]
    squares = float(np.vdot(covariance, covariance))
    spread = squares - covariance.trace() ** 2 / d
    noise = (fourth - squares) / n
    return float(np.clip(noise / spread, 0, 1)) if spread > 0 else 0.0


def _oas(covariance: np.ndarray, n: float) -> float:
    """Chen, Wiesel, Eldar and Hero (IEEE TSP 2010), eq. 23 without its terms 2/d."""
    d = covariance.shape[0]
    squares, square = float(np.vdot(covariance, covariance)), float(covariance.trace() ** 2)
    spread = (n + 1) * (squares - square / d)
    return min(1.0, (squares + square) / spread) if spread > 0 else 1.0
