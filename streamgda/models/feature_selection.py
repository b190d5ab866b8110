r"""Selection of features from moments alone: subsets in which classes are easy to separate.

For a covariance matrix S and a subset F of the features, a *swept* matrix A holds what depends on F
(Goodnight, A tutorial on the SWEEP operator, 1979): :math:`-S_{FF}^{-1}` in the rows and columns of
F, :math:`S_{FF}^{-1} S_{FR}` beside it, and the covariance of the others given F. To add a feature
or to remove it is the same change of rank one, about its diagonal entry, and these entries give the
gain of each feature.

For the held-out likelihood, the rows of class k in fold f have the scatter :math:`H_{kf}` about the
mean of the class in the other folds, whose covariance is :math:`\Sigma_{kf}`. Up to constants, the
log-likelihood of the n rows in a subset F of the features is

.. math:: -\frac12 (n \ln|\Sigma_{FF}| + \mathrm{tr}\, \Sigma_{FF}^{-1} H_{FF})

Likelihoods of different features have different units. That of one Gaussian of all rows,
regardless of class, has the same ones, and is subtracted: what is left is how much better the
classes predict the features of new rows than no classes do. It does not depend on the scales of
features, and a feature that does not help makes it smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from operator import add
from typing import Any, NoReturn

import numpy as np

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
)
from streamgda.models.covariance import Covariances, Regularisation, estimate, estimate_total
from streamgda.models.model import check_classes
from streamgda.models.separability import Measure, Terms, measure_of
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import structure_of
from streamgda.rows.labels import find
from streamgda.runtime.display import frame_of
from streamgda.runtime.memory import allowed_bytes, readable
from streamgda.runtime.parameters import as_integer, check_type, refuse
from streamgda.storage.saved import synchronized

OVER: dict[str, Callable[..., Any]] = {"least": np.min, "mean": np.mean}
DIRECTIONS = ("forward", "backward")
HELD_OUT = "held_out_likelihood"
_HELD_OUT = Measure(False, lambda ratio, _: ratio)

Combine = Callable[[np.ndarray, np.ndarray], Terms]  # of traces and log-determinants


@synchronized
def select_features(
    moments: ClassMoments | Sequence[ClassMoments] | Mapping[Any, ClassMoments],
    n: int,
    criterion: str = "jeffries_matusita",
    *,
    over: str = "least",
    direction: str = "forward",
    covariance_type: str | None = None,
    ddof: int = 0,
    pooling: float = 0.0,
    shrinkage: float | str | None = None,
    reg_param: float = 0.0,
    var_smoothing: float = 0.0,
    tol: float = 1e-4,
    as_frame: bool = False,
) -> Any:
    """Select features in which the classes are easy to separate, from moments alone.

    Parameters
    ----------
    moments : ClassMoments; or a sequence or mapping of them
        Moments of at least two classes; those of folds for ``"held_out_likelihood"``.
    n : int
        Number of features to select.
    criterion : str
        Measure of `separability`, or ``"held_out_likelihood"``: the mean log-density of a row given
        its class, less that regardless of class, by Gaussians of the other folds.
    over : {"least", "mean"}
        Maximise the least separability of all pairs of classes, or their mean.
    direction : {"forward", "backward"}
        Add the best feature, or remove the worst of all.
    covariance_type, ddof, pooling, shrinkage, reg_param, var_smoothing, tol : optional
        Covariances of all features, whose rows and columns are those of a subset; see
        `GaussianDiscriminantAnalysis`. Their type is by default that of the moments.
    as_frame : bool
        Return a pandas data frame instead: names of the features (or else their numbers) as index,
        and the columns ``feature`` and ``value``.

    Returns
    -------
    features : ndarray of int64, shape (n,)
        Numbers of the features, in the order in which forward selection among them takes them.
    values : ndarray of float64, shape (n,)
        The criterion for the first feature, the first two, and so on.

    Raises
    ------
    InvalidParameterError
        For parameters out of range, or more features than vary.
    SingularCovarianceError
        If fewer than `n` features are linearly independent.
    MemoryBudgetError
        If the covariances of all pairs of classes need too much memory.

    Notes
    -----
    Measures that end at 2 hardly distinguish subsets that separate all classes well; prefer
    ``"bhattacharyya"`` then. A step takes time in proportion to ``n_classes**2 * n_features**2``;
    a forward search has `n`, a backward one about ``2 * n_features``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, select_features
    >>> features, values = select_features(accumulate(*load_iris(return_X_y=True)), 2)
    >>> features, values.round(2)
    (array([3, 2]), array([1.35, 1.53]))
    """
    held_out = isinstance(criterion, str) and criterion == HELD_OUT
    if not held_out:
        check_type("moments", moments, ClassMoments, "ClassMoments")
    measure = _HELD_OUT if held_out else measure_of(criterion, "criterion")
    for name, value, known in (("over", over, OVER), ("direction", direction, DIRECTIONS)):
        if not isinstance(value, str) or value not in known:
            raise refuse(name, value, f"one of {', '.join(known)}")
    how = Regularisation(ddof, pooling, shrinkage, reg_param, var_smoothing, tol)
    if held_out:
        features, subset = _subset_of_folds(moments, covariance_type, how)
    else:
        given: Any = moments
        features, subset = _subset_of_pairs(given, covariance_type, how, measure)
    n = as_integer("n", n, f"1 to {features.size}, those that vary", 1, features.size)

    def criteria(subset: Any) -> np.ndarray:
        """Return the criterion after each feature is added, or removed if it is in."""
        with np.errstate(all="ignore"):  # of features that depend on others, which are not added
            there, back = subset.terms()
            values = measure.value(there, back)
            if not measure.symmetric:
                values = np.hstack([values, measure.value(back, there)])
            return np.asarray(OVER[over](values, axis=1))

    left = [*range(features.size)]
    if direction == "backward":
        left = _best_left(deepcopy(subset), left, n, criteria, tol)
    chosen, values = _best_added(subset, left, n, criteria, tol)
    if not as_frame:
        return features[chosen], np.array(values)
    names = None if held_out else moments.feature_names  # type: ignore[union-attr]
    index = features[chosen].tolist() if names is None else [names[k] for k in features[chosen]]
    return frame_of({"feature": features[chosen], "value": values}, index, ["feature", "value"])


def _best_left(
    subset: _Subset, left: list[int], n: int, criteria: Callable[..., Any], tol: float
) -> list[int]:
    """Return the `n` features that are left after the worst of all have been removed in turn."""
    for k in left:
        if not subset.share()[k] > tol**2:
            _refuse_singular(k)
        subset.toggle(k)
    while len(left) > n:
        k = left.pop(int(criteria(subset)[left].argmax()))
        subset.toggle(k)
    return left


def _best_added(
    subset: _Subset, among: list[int], n: int, criteria: Callable[..., Any], tol: float
) -> tuple[list[int], list[float]]:
    """Return features that are added in turn, the best that depends on no others, and criteria."""
    chosen: list[int] = []
    values: list[float] = []
    while len(chosen) < n:
        share = subset.share()
        possible = np.isin(np.arange(share.size), among) & (share > tol**2)
        possible[chosen] = False
        if not possible.any():
            _refuse_singular(len(chosen))
        criterion = np.where(possible, criteria(subset), -np.inf)
        k = int(criterion.argmax())
        subset.toggle(k)
        chosen.append(k)
        values.append(float(criterion[k]))
    return chosen, values


def _refuse_singular(n: int) -> NoReturn:
    raise SingularCovarianceError(
        f"the covariance of {n + 1} features is singular: beside the {n} that were selected, no "
        f"other varies in each class and does not depend on them. Select fewer, or regularise "
        f"(reg_param, shrinkage or var_smoothing above 0)"
    )


def _check_memory(needed: int) -> None:
    allowed = allowed_bytes(None)
    if needed > allowed:
        raise MemoryBudgetError(
            f"the covariances of all pairs of classes, or of folds, need {readable(needed)}, and "
            f"{readable(allowed)} are available; use covariance_type='tied' or 'diag'"
        )


# --- pairs of classes -----------------------------------------------------------------------------


def _subset_of_pairs(
    moments: ClassMoments, covariance_type: str | None, how: Regularisation, measure: Measure
) -> tuple[np.ndarray, _Subset]:
    """Return the features that vary, and the empty subset of them, for pairs of classes."""
    check_classes(moments.classes, moments.class_count, least=2)
    kind = moments.covariance_type if covariance_type is None else covariance_type
    found = estimate(moments, kind, how)
    structure, features, seen = found.structure, found.features, np.flatnonzero(found.count > 0)
    first, second = np.triu_indices(seen.size, 1)
    n_held = 1
    if structure.per_class:
        n_held = seen.size + first.size * (1 if measure.by_overlap else 2)
    d, matrix = features.size, structure.matrix
    _check_memory(8 * d * (n_held * (d if matrix else 1) + 8 * first.size))
    sums = held_sums(moments).without_products()
    origin = sums.mean[sums.count > 0][0]
    means = ((sums.mean - origin) + sums.mean_low)[np.ix_(seen, features)]  # no digits are lost
    values = found.values[seen] if structure.per_class else found.values
    scale = np.sqrt(structure.diagonal(values).mean(axis=0))  # units make no difference
    scale[scale == 0] = 1.0  # constant within the classes
    means = means / scale
    values = values / (scale * scale[:, None] if matrix else scale**2)
    if structure.per_class and not measure.by_overlap:
        start, end = np.concatenate([[first, second], [second, first]], axis=1)
        gaps = means[start] - means[end]
        squares = gaps[:, :, None] * gaps[:, None, :] if matrix else gaps**2

        def divergences(traces: np.ndarray, logs: np.ndarray) -> Terms:
            there, back = np.split(np.maximum(traces + logs[end] - logs[start], 0).T / 2, 2, axis=1)
            return there, back

        # tr(S_j^-1 S_i) less the number of features is the trace of a difference.
        about = values[start] - values[end] + squares
        return features, _Subset(values, about, end, divergences)
    gaps, hosts = means[first] - means[second], np.zeros(first.size, np.int64)
    if structure.per_class:
        values = np.concatenate([(values[first] + values[second]) / 2, values])
        hosts = np.arange(first.size)

    def overlaps(distances: np.ndarray, logs: np.ndarray) -> Terms:
        distances = np.maximum(distances, 0).T
        if not measure.by_overlap:  # each divergence is half the squared distance
            return distances / 2, distances / 2
        if not structure.per_class:
            return distances, np.zeros_like(distances)
        between, own = np.split(logs, [first.size])
        return distances, np.maximum(between - (own[first] + own[second]) / 2, 0).T

    return features, _Subset(values, gaps if matrix else gaps**2, hosts, overlaps)


# --- folds ----------------------------------------------------------------------------------------


def _subset_of_folds(
    moments: Any, covariance_type: str | None, how: Regularisation
) -> tuple[np.ndarray, _Subset]:
    """Return what `_subset_of_pairs` returns, for the held-out likelihood of folds."""
    given = moments.values() if isinstance(moments, Mapping) else moments
    folds: list[ClassMoments] = list(given) if isinstance(given, Iterable) else []
    if len(folds) < 2:
        raise InvalidParameterError(
            f"criterion={HELD_OUT!r} compares folds of the rows, and moments is "
            f"{type(moments).__name__} with {len(folds)} of them; give a list of the moments of "
            f"each fold, or another criterion"
        )
    for fold in folds:
        check_type("a fold of moments", fold, ClassMoments, "ClassMoments")
    kind = folds[0].covariance_type if covariance_type is None else covariance_type
    n_classes = max(fold.classes.size for fold in folds) + 1
    state = structure_of(kind).model_bytes(n_classes, folds[0].n_features or 0)
    _check_memory(4 * len(folds) * state)
    trained = []
    for f in range(len(folds)):
        train = reduce(add, [*folds[:f], *folds[f + 1 :]])
        check_classes(train.classes, train.class_count, least=2)
        trained.append((train, estimate(train, kind, how), estimate_total(train, kind, how)))
    features = reduce(np.intersect1d, [one.features for _, *both in trained for one in both])
    if not features.size:
        raise InvalidDataError("no feature varies in all folds but one, whichever that is")
    parts = [_fold(held, *fitted, features) for held, fitted in zip(folds, trained, strict=True)]
    covariances, scatters, weights = map(np.concatenate, zip(*parts, strict=True))
    if not weights.any():
        raise InvalidDataError("no fold has rows of classes that other folds have")
    weights = weights[:, None]

    def ratios(traces: np.ndarray, logs: np.ndarray) -> Terms:
        each = weights * logs + np.sign(weights) * traces
        values = -0.5 * each.sum(axis=0)[:, None] / np.maximum(weights, 0).sum()
        return values, values

    return features, _Subset(covariances, scatters, np.arange(len(scatters)), ratios)


def _fold(
    held: ClassMoments,
    train: ClassMoments,
    of_classes: Covariances,
    of_all: Covariances,
    features: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return covariances of other folds, scatters of the fold `held`, and the weights of its rows.

    Groups of classes come first, and then all rows, whose weight is negative, as their likelihood
    is subtracted. Features are in units of their deviations.
    """
    structure, sums = of_classes.structure, held_sums(held).centred()
    at, counts = find(held.classes, train.classes), train.class_count
    pooled = not sums.structure.per_class
    if pooled and (at < 0).any():
        raise InvalidDataError(
            f"a fold has rows of class {held.classes[at < 0][0]!s}, which no other fold has, and "
            f"its scatter is pooled with that of other classes; use 'full' or 'diag' moments"
        )
    known = np.flatnonzero((at >= 0) & (sums.count > 0) & (counts[at] > 0))
    middle = (counts[counts > 0] / counts.sum()) @ train.means[counts > 0]
    shape, n_groups = structure.shape(features.size), len(of_classes.values)
    own = np.empty((len(sums.packed), *shape))
    structure.select_varying(structure.of_kind(sums.structure, sums.packed), features, own)
    scatters, weights = np.zeros((n_groups + 1, *shape)), np.zeros(n_groups + 1)
    for k in known:
        n, mean = float(sums.count[k]), sums.mean[k] + sums.mean_low[k]
        scatter = own[sums.structure.group(int(k))] if not pooled or k == known[0] else 0.0
        group = structure.group(int(at[k]))
        for g, centre, sign in ((group, train.means[at[k]], 1), (n_groups, middle, -1)):
            gap = (mean - centre)[features]
            scatters[g] += scatter + n * (np.outer(gap, gap) if structure.matrix else gap**2)
            weights[g] += sign * n
    covariances = np.empty((n_groups + 1, *shape))
    for found, out in ((of_classes, covariances[:-1]), (of_all, covariances[-1:])):
        at = np.searchsorted(found.features, features)
        out[...] = found.values[:, at[:, None], at] if structure.matrix else found.values[:, at]
    used = weights != 0
    scale = np.sqrt(structure.diagonal(covariances[-1:])[0])
    unit = scale[:, None] * scale if structure.matrix else scale**2
    return covariances[used] / unit, scatters[used] / unit, weights[used]


# --- subsets --------------------------------------------------------------------------------------


class _Subset:
    """A subset of the features of some covariances, as swept matrices and log-determinants.

    Terms combine traces of inverse covariances times scatters with the log-determinants. The
    scatters, shape (n, d, d), or the vectors that they are products of, shape (n, d), are kept in
    the coordinates of the matrices of their hosts. Of variances, shape (n_matrices, d), scatters
    are sums of squares, shape (n, d).
    """

    def __init__(
        self, covariances: np.ndarray, scatters: np.ndarray, hosts: np.ndarray, combine: Combine
    ) -> None:
        self._matrices, self._logs = covariances, np.zeros((len(covariances), 1))
        self._variances = np.where(self._pivots() > 0, self._pivots(), 1.0)
        self._scatters, self._hosts, self._combine = scatters, hosts, combine
        self._traces = np.zeros((len(scatters), 1))

    def _pivots(self) -> np.ndarray:
        """Return the diagonals, shape (n_matrices, d): positive for features not in the subset."""
        return self._matrices if self._matrices.ndim == 2 else np.einsum("gii->gi", self._matrices)

    def _squares(self) -> np.ndarray:
        """Return the diagonals of the scatters, shape (n, d)."""
        if self._scatters.ndim == 3:
            return np.einsum("pii->pi", self._scatters)
        return self._scatters if self._matrices.ndim == 2 else self._scatters**2

    def terms(self) -> Terms:
        """Return the terms of a measure after each feature is added, or removed if it is in."""
        pivots = self._pivots()
        traces = self._traces + self._squares() / pivots[self._hosts]
        return self._combine(traces, self._logs + np.log(np.abs(pivots)))

    def share(self) -> np.ndarray:
        """Return the least shares of the features' variances that do not depend on the subset."""
        return np.asarray((self._pivots() / self._variances).min(axis=0))

    def toggle(self, k: int) -> None:
        """Add a feature, or remove it if it is in."""
        pivots = self._pivots()[:, [k]].copy()
        self._traces += self._squares()[:, [k]] / pivots[self._hosts]
        self._logs += np.log(np.abs(pivots))
        if self._matrices.ndim == 2:
            self._matrices[:, [k]] = -1 / pivots
            self._scatters[:, [k]] /= pivots[self._hosts] ** 2
            return
        changes = np.empty(self._matrices.shape[:2])
        for matrix, change in zip(self._matrices, changes, strict=True):
            row, pivot = matrix[k].copy(), matrix[k, k]
            change[:] = -row / pivot
            change[k] = 1 / abs(pivot) - 1
            np.add(matrix, np.outer(change, row), out=matrix)
            row /= abs(pivot)
            row[k] = -1 / pivot
            matrix[k] = matrix[:, k] = row
        if self._scatters.ndim == 2:
            self._scatters += changes[self._hosts] * self._scatters[:, [k]]
            return
        for scatter, host in zip(self._scatters, self._hosts, strict=True):
            change, row = changes[host], scatter[k].copy()
            half = row + change * (scatter[k, k] / 2)
            sides = np.stack([change, half], axis=1), np.stack([half, change])
            np.add(scatter, sides[0] @ sides[1], out=scatter)
