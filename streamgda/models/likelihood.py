"""Likelihood of rows under a model, computed from the moments of the rows."""

from __future__ import annotations

import numpy as np

from streamgda.models.gaussian import GaussianModel
from streamgda.moments import ClassMoments
from streamgda.rows.labels import find


def joint_log_likelihood(model: GaussianModel, moments: ClassMoments) -> tuple[float, float]:
    r"""Return the sum of :math:`\ln p(x_i, y_i)` over rows, and their number.

    The rows themselves are not needed. The n rows of class k, with mean m' and scatter S', add

    .. math:: n \ln \pi_k - \frac n2 (d \ln 2\pi + \ln|\Sigma_k|)
              - \frac12 \mathrm{tr}\, \Sigma_k^{-1} (S' + n (m' - m_k)(m' - m_k)^T)

    Parameters
    ----------
    model : GaussianModel
    moments : ClassMoments
        Moments of rows that the model may not have seen: ``"full"``, or ``"diag"`` if the
        covariances of the model are diagonal. Rows of classes that the model does not know are
        left out.

    Returns
    -------
    total, weight : float
    """
    sums, structure, features = moments.centred(), model.structure, model.features
    codes = find(moments.classes, model.classes)
    known = np.flatnonzero((codes >= 0) & (sums.count > 0) & ~np.isnan(model.means[codes, 0]))
    groups = structure.groups(model.classes.size)[codes[known]]
    log_two_pi = model.rank * np.log(2 * np.pi)
    total = weight = 0.0
    whole = structure.matrix
    part = np.empty((1, *structure.shape(features.size)))
    for g in np.unique(groups):
        root, scatter, squares = model.roots[g], np.zeros(part.shape[1:]), 0.0
        for k in known[groups == g]:
            c, n = codes[k], float(sums.count[k])
            low = 0.0 if model.means_low is None else model.means_low[c]
            gap = ((sums.mean[k] - model.means[c]) + (sums.mean_low[k] - low))[features]
            held = structure.of_kind(sums.structure, sums.packed[k : k + 1])
            structure.select_varying(held, features, part)
            scatter += part[0]
            squares += n * float(np.square(root @ gap).sum() if whole else root @ gap**2)
            constant = model.log_priors[c] - 0.5 * (log_two_pi + model.log_determinants[g])
            total += n * float(constant)
            weight += n
        total -= 0.5 * (squares + float(np.vdot(root @ scatter, root) if whole else root @ scatter))
    return total, weight
