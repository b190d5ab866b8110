"""Likelihood of rows under a model, told by the moments of the rows alone."""

from __future__ import annotations

import numpy as np

from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.moments.variances import diagonals, symmetric
from streamgda.rows.labels import find


def joint_log_likelihood(model: GaussianModel, moments: ClassMoments) -> tuple[float, float]:
    r"""Sum of :math:`\ln p(x_i, y_i)` over rows, and their number, without a look at them.

    Of the rows of class k there are n, with mean m' and scatter S':

    .. math:: n \ln \pi_k - \frac n2 (d \ln 2\pi + \ln|\Sigma_k|)
              - \frac12 \mathrm{tr}\, \Sigma_k^{-1} (S' + n (m' - m_k)(m' - m_k)^T)

    Parameters
    ----------
    model : GaussianModel
    moments : ClassMoments
        Of rows that the model may not have seen: ``"full"`` moments, or ``"diag"`` ones where its
        covariances are diagonal. Rows of classes that the model does not know are left out.

    Returns
    -------
    total, weight : float
    """
    sums = moments.centred()
    codes = find(moments.classes, model.classes)
    codes[codes >= 0] = np.where(np.isnan(model.means[codes[codes >= 0], 0]), -1, codes[codes >= 0])
    known = np.flatnonzero((codes >= 0) & (sums.count > 0))
    features, structure = model.features, model.structure
    log_two_pi = features.size * np.log(2 * np.pi)
    total = weight = 0.0
    pooled = np.zeros((features.size,) * (2 if structure.matrix else 1))
    for k in known:
        c, n = codes[k], float(sums.count[k])
        g = c if structure.per_class else 0
        gap = ((sums.mean[k] - model.means[c]) + sums.mean_low[k])[features]
        if structure.matrix:
            spread = symmetric(sums.scatter[k])[np.ix_(features, features)]
            squares = n * float(np.square(model.roots[g] @ gap).sum())
        else:
            spread = diagonals(sums.scatter[k : k + 1])[0, features]
            squares = n * float(model.roots[g] @ np.square(gap))
        if structure.per_class:
            squares += _trace(model.roots[g], spread)
        else:
            pooled += spread
        constant = model.log_priors[c] - 0.5 * (log_two_pi + model.log_determinants[g])
        total += n * float(constant) - 0.5 * squares
        weight += n
    if not structure.per_class:
        total -= 0.5 * _trace(model.roots[0], pooled)
    return total, weight


def _trace(root: np.ndarray, spread: np.ndarray) -> float:
    """The trace of the inverse covariance times a scatter, or of both as diagonals."""
    if root.ndim == 1:
        return float(root @ spread)
    return float(np.vdot(root @ spread, root))
