"""Selection of features from moments alone: subsets in which classes are easy to separate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError, MemoryBudgetError, SingularCovarianceError
from streamgda.models.covariance import Regularisation, estimate, factorise
from streamgda.models.held_out_subsets import held_out_folds, held_out_subset
from streamgda.models.model import check_classes
from streamgda.models.separability import Measure, measure_of
from streamgda.models.subsets import Subset, subset_bytes, subset_of
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.runtime.memory import allowed_bytes, readable
from streamgda.runtime.parameters import as_integer, check_type, refuse

OVER: dict[str, Callable[..., Any]] = {"least": np.min, "mean": np.mean}
DIRECTIONS = ("forward", "backward", "floating")
HELD_OUT = "held_out_likelihood"
_HELD_OUT = Measure(False, lambda ratio, _: ratio)
_ROUNDING = 1e-9  # relative gain of a criterion that may be rounding


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
) -> tuple[np.ndarray, np.ndarray]:
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
    direction : {"forward", "backward", "floating"}
        Add the best feature; remove the worst of all; or, after each addition, remove features
        again as long as that finds a better subset of its size.
    covariance_type, ddof, pooling, shrinkage, reg_param, var_smoothing, tol : optional
        Covariances of all features, whose rows and columns are those of a subset; see
        `GaussianDiscriminantAnalysis`. Their type is by default that of the moments.

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
        If there are not so many features that do not depend on each other.
    MemoryBudgetError
        If the covariances of all pairs of classes need too much memory.

    Notes
    -----
    Measures that end at 2 hardly distinguish subsets that separate all classes well; prefer
    ``"bhattacharyya"`` then. A step takes time in proportion to ``n_classes**2 * n_features**2``;
    a forward search has `n`, a backward one about ``2 * n_features``. The floating search is that
    of Pudil, Novovicova and Kittler (1994).

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
    subset_from = _subset_of_folds if held_out else _subset_of_pairs
    make, features = subset_from(moments, measure, covariance_type, how, direction == "backward")
    n = as_integer("n", n, f"1 to {features.size}, those that vary", 1, features.size)
    search = _Search(make, features.size, measure, over, how)
    return features[search.find(n, direction)], np.array(search.values)


def _subset_of_pairs(
    moments: Any,
    measure: Measure,
    covariance_type: str | None,
    how: Regularisation,
    whole: bool,
) -> tuple[Callable[[], Subset], np.ndarray]:
    """Return a function that makes the empty subset, for all pairs of classes, and the features.

    With `whole`, the covariances of all features must have inverses.
    """
    check_classes(moments.classes, moments.class_count, least=2)
    found = estimate(moments, covariance_type or moments.covariance_type, how)
    _check_memory(subset_bytes(found, measure))
    if whole:
        factorise(found, replace(how, singular="refuse"))
    sums = moments._held_sums().without_products()
    seen = sums.count > 0
    gaps = (sums.mean - sums.mean[seen][0]) + sums.mean_low  # they keep digits that means lose
    means = np.where(seen[:, None], gaps, np.nan)
    return partial(subset_of, found, means, measure), found.features


def _subset_of_folds(
    moments: Any,
    measure: Measure,
    covariance_type: str | None,
    how: Regularisation,
    whole: bool,
) -> tuple[Callable[[], Subset], np.ndarray]:
    """Return what `_subset_of_pairs` returns, for the moments of folds."""
    folds = _folds_of(moments)
    kind = covariance_type or folds[0].covariance_type
    n_classes = max(fold.classes.size for fold in folds) + 1
    state = structure_of(kind).state_bytes(n_classes, folds[0].n_features or 0)
    _check_memory(4 * len(folds) * state)
    joined, features = held_out_folds(folds, kind, how, whole)
    return partial(held_out_subset, joined), features


def _folds_of(moments: Any) -> list[ClassMoments]:
    """Return the moments of the folds."""
    given = moments.values() if isinstance(moments, Mapping) else moments
    folds = list(given) if isinstance(given, Iterable) else []
    if len(folds) < 2:
        raise InvalidParameterError(
            f"criterion={HELD_OUT!r} compares folds of the rows, and moments is "
            f"{type(moments).__name__} with {len(folds)} of them; give a list of the moments of "
            f"each fold, or another criterion"
        )
    for fold in folds:
        check_type("a fold of moments", fold, ClassMoments, "ClassMoments")
    return folds


def _check_memory(needed: int) -> None:
    allowed = allowed_bytes(None)
    if needed > allowed:
        raise MemoryBudgetError(
            f"the covariances of all pairs of classes, or of folds, need {readable(needed)}, and "
            f"{readable(allowed)} are available; use covariance_type='tied' or 'diag'"
        )


class _Search:
    """A search for the best subset of features.

    Attributes
    ----------
    chosen : list of int
        Features of the present subset, in the order in which they were added.
    values : list of float
        Values of the criterion after each addition.
    """

    def __init__(
        self,
        make: Callable[[], Subset],
        n_features: int,
        measure: Measure,
        over: str,
        how: Regularisation,
    ) -> None:
        self._make, self._n_features = make, n_features
        self._measure, self._mean, self._how = measure, OVER[over], how
        self._clear()

    def _clear(self) -> None:
        self._subset = self._make()
        self.chosen: list[int] = []
        self.values: list[float] = []

    def find(self, n: int, direction: str) -> list[int]:
        """Return `n` features, in the order in which forward selection among them takes them."""
        if direction == "backward":
            self._remove_down_to(n)
        else:
            self._add_up_to(n, floating=direction == "floating")
        if direction != "forward":
            among = self.chosen
            self._clear()
            self._add_up_to(n, among=among)
        return self.chosen

    def _criterion(self) -> np.ndarray:
        """Return the criterion after each feature is added, or removed if it is in."""
        with np.errstate(all="ignore"):  # of features that depend on others, which are not added
            there, back = self._subset.terms()
            values = self._measure.value(there, back)
            if not self._measure.symmetric:
                values = np.hstack([values, self._measure.value(back, there)])
            return np.asarray(self._mean(values, axis=1))

    def _add_up_to(self, n: int, among: list[int] | None = None, floating: bool = False) -> None:
        best = np.full(n + 1, -np.inf)  # criterion of the best subset of each size
        found: list[int] = []
        while len(self.chosen) < n:
            self._add(among)
            size = len(self.chosen)
            if self.values[-1] > best[size]:
                best[size] = self.values[-1]
                found = self.chosen.copy() if size == n else found
            while floating and len(self.chosen) > 2:
                criterion = self._criterion()[self.chosen]
                k = int(criterion.argmax())
                size = len(self.chosen) - 1
                if not criterion[k] > best[size] + _ROUNDING * abs(best[size]):
                    break
                best[size] = criterion[k]
                self._subset.toggle(self.chosen.pop(k))
        self.chosen = found

    def _add(self, among: list[int] | None) -> None:
        """Add the best feature that does not depend on those in the subset."""
        possible = self._subset.share() > self._how.tol**2
        possible[self.chosen] = False
        if among is not None:
            others = np.ones(possible.size, bool)
            others[among] = False
            possible &= ~others
        if not possible.any():
            raise SingularCovarianceError(
                f"the covariance of {len(self.chosen) + 1} features is singular: the "
                f"{len(self.chosen)} that were selected determine the others. Select fewer, or "
                f"regularise (reg_param, shrinkage or var_smoothing above 0)"
            )
        criterion = np.where(possible, self._criterion(), -np.inf)
        k = int(criterion.argmax())
        self._subset.toggle(k)
        self.chosen.append(k)
        self.values.append(float(criterion[k]))

    def _remove_down_to(self, n: int) -> None:
        self.chosen = list(range(self._n_features))
        for k in self.chosen:
            self._subset.toggle(k)
        while len(self.chosen) > n:
            criterion = self._criterion()[self.chosen]
            self._subset.toggle(self.chosen.pop(int(criterion.argmax())))
