r"""Held-out likelihood of subsets of features, from the moments of folds.

The rows of class k in fold f have the scatter :math:`H_{kf}` about the mean of the class in the
other folds, whose covariance is :math:`\Sigma_{kf}`. Up to constants, the log-likelihood of the n
rows in a subset F of the features is

.. math:: -\frac12 (n \ln|\Sigma_{FF}| + \mathrm{tr}\, \Sigma_{FF}^{-1} H_{FF})

Likelihoods of different features have different units. That of one Gaussian of all rows,
regardless of class, has the same ones, and is subtracted: what is left is how much better the
classes predict the features of new rows than no classes do. It does not depend on the scales of
features, and a feature that does not help makes it smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.models.covariance import (
    Covariances,
    Regularisation,
    estimate,
    estimate_total,
    factorise,
)
from streamgda.models.model import check_classes
from streamgda.models.subsets import Subset, Swept
from streamgda.moments import ClassMoments
from streamgda.rows.labels import find


class Fold(NamedTuple):
    """Covariances of all folds but one, and scatters of the rows of that fold.

    Attributes
    ----------
    covariances : ndarray, shape (n, d, d), or (n, d) of variances
        Those of groups of classes, and last that of all rows.
    scatters : ndarray, of the same shape
        Scatters about the means of these.
    weights : ndarray, shape (n,)
        Weights of the rows; that of all rows is negative, as its likelihood is subtracted.
    """

    covariances: np.ndarray
    scatters: np.ndarray
    weights: np.ndarray


def held_out_folds(
    folds: Sequence[ClassMoments], covariance_type: str, how: Regularisation, whole: bool
) -> tuple[Fold, np.ndarray]:
    """Return all folds in one, for the features that vary in all training sets, and these.

    Parameters
    ----------
    folds : sequence of ClassMoments
        Moments of the folds, at least two.
    covariance_type : str
        Covariance type to estimate.
    how : Regularisation
        Regularisation of the covariances.
    whole : bool
        Refuse covariances of all features that are singular.

    Returns
    -------
    folds : Fold
        The groups of all folds.
    features : ndarray of int
        Numbers of the features.

    Raises
    ------
    InvalidDataError
        If no feature varies, or no fold has rows of classes that other folds have.
    SingularCovarianceError
        If covariances are singular.
    """
    trained = []
    for f in range(len(folds)):
        train = reduce(add, [*folds[:f], *folds[f + 1 :]])
        check_classes(train.classes, train.class_count, least=2)
        both = estimate(train, covariance_type, how), estimate_total(train, covariance_type, how)
        if whole:
            factorise(both[0], how)
        trained.append((train, *both))
    features = reduce(np.intersect1d, [one.features for _, *both in trained for one in both])
    if not features.size:
        raise InvalidDataError("no feature varies in all folds but one, whichever that is")
    parts = [_fold(held, *fitted, features) for held, fitted in zip(folds, trained, strict=True)]
    joined = Fold(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
    if not joined.weights.any():
        raise InvalidDataError("no fold has rows of classes that other folds have")
    return joined, features


def held_out_subset(folds: Fold) -> Subset:
    """Return the empty subset, whose terms are mean log-likelihood ratios of held-out rows."""
    return _HeldOut(folds) if folds.covariances.ndim > 2 else _IndependentHeldOut(folds)


def _fold(
    held: ClassMoments,
    train: ClassMoments,
    of_classes: Covariances,
    of_all: Covariances,
    features: np.ndarray,
) -> Fold:
    """Return the fold whose moments are `held`, of features in units of their deviations."""
    structure = of_classes.structure
    at = find(held.classes, train.classes)
    counts, sums = train.class_count, held.centred()
    known = np.flatnonzero((at >= 0) & (sums.count > 0))
    known = known[counts[at[known]] > 0]
    n_groups = len(of_classes.values)
    d = features.size
    shape = structure.shape(d)
    if not sums.structure.per_class and (at < 0).any():
        raise InvalidDataError(
            f"a fold has rows of class {held.classes[at < 0][0]!s}, which no other fold has, and "
            f"its scatter is pooled with that of other classes; use 'full' or 'diag' moments"
        )
    scatters, count = np.zeros((n_groups + 1, *shape)), np.zeros(n_groups + 1)
    seen = counts > 0
    middle = (counts[seen] / counts.sum()) @ train.means[seen]
    own = np.empty((1, *shape))
    for k in known:
        n, g = float(sums.count[k]), structure.group(int(at[k]))
        if sums.structure.per_class or k == known[0]:
            own_scatter = sums.scatter[sums.structure.group(int(k))][None]
            structure.select_varying(structure.of_kind(own_scatter), features, own)
        else:
            own[...] = 0.0  # it is pooled, and was added with the first class
        mean = sums.mean[k] + sums.mean_low[k]
        for group, centre in ((g, train.means[at[k]]), (n_groups, middle)):
            gap = (mean - centre)[features]
            scatters[group] += own[0] + n * (np.outer(gap, gap) if structure.matrix else gap**2)
            count[group] += n if group < n_groups else -n
    covariances = np.empty((n_groups + 1, *shape))
    structure.select_varying(
        of_classes.values, np.searchsorted(of_classes.features, features), covariances[:-1]
    )
    structure.select_varying(
        of_all.values, np.searchsorted(of_all.features, features), covariances[-1:]
    )
    used = count != 0
    scale = np.sqrt(structure.diagonal(covariances[-1:])[0])
    unit = scale[:, None] * scale if structure.matrix else scale**2
    return Fold(covariances[used] / unit, scatters[used] / unit, count[used])


class _IndependentHeldOut:
    """Features without covariances, whose terms are sums over the features."""

    def __init__(self, folds: Fold) -> None:
        variances, squares, count = folds
        sign = np.sign(count)[:, None]
        each = count[:, None] * np.log(variances) + sign * squares / variances
        self._each = -0.5 * each.sum(axis=0)[:, None] / np.maximum(count, 0).sum()
        self._sign = np.ones((len(self._each), 1))
        self._sum = 0.0

    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        values = self._sum + self._sign * self._each
        return values, values

    def share(self) -> np.ndarray:
        return np.ones(len(self._sign))

    def toggle(self, k: int) -> None:
        self._sum += float(self._sign[k, 0] * self._each[k, 0])
        self._sign[k] *= -1


class _HeldOut:
    """Likelihoods by matrices; the scatters are kept in the coordinates of swept covariances."""

    def __init__(self, folds: Fold) -> None:
        self._count = folds.weights[:, None]
        self._scatters = folds.scatters.copy()
        self._trace = np.zeros((len(folds.scatters), 1))
        self._swept = Swept(folds.covariances.copy())
        self.share = self._swept.share

    def terms(self) -> tuple[np.ndarray, np.ndarray]:
        squares = np.einsum("gii->gi", self._scatters)
        traces = self._trace + squares / self._swept.pivots()
        each = self._count * self._swept.toggled_logs() + np.sign(self._count) * traces
        total = np.maximum(self._count, 0).sum()
        values = -0.5 * each.sum(axis=0)[:, None] / total
        return values, values

    def toggle(self, k: int) -> None:
        self._trace[:, 0] += self._scatters[:, k, k] / self._swept.matrices[:, k, k]
        self._swept.move(self._scatters, self._swept.toggle(k), k)
