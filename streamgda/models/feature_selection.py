"""Selection of features from moments alone: subsets in which classes are easy to separate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from streamgda.errors import MemoryBudgetError, SingularCovarianceError
from streamgda.models.base import check_classes
from streamgda.models.covariance import Covariances, Regularisation, estimate, factorise
from streamgda.models.separability import Measure, measure_of
from streamgda.models.subsets import subset_bytes, subset_of
from streamgda.moments import ClassMoments
from streamgda.runtime.memory import allowed_bytes, readable
from streamgda.runtime.parameters import as_integer, check_type, refuse

OVER: dict[str, Callable[..., Any]] = {"least": np.min, "mean": np.mean}
DIRECTIONS = ("forward", "backward", "floating")
_ROUNDING = 1e-9  # relative gain of a criterion that may be rounding


def select_features(
    moments: ClassMoments,
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
    moments : ClassMoments
        Moments of at least two classes.
    n : int
        Number of features to select.
    criterion : str
        Measure of `separability`.
    over : {"least", "mean"}
        Maximise the least separability of all pairs of classes, or their mean.
    direction : {"forward", "backward", "floating"}
        Add the best feature to none at first; remove the worst of all; or, after each addition,
        remove features again as long as that finds a better subset of its size.
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
    of Pudil, Novovicova and Kittler (Floating search methods in feature selection, 1994).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamgda import accumulate, select_features
    >>> features, values = select_features(accumulate(*load_iris(return_X_y=True)), 2)
    >>> features, values.round(2)
    (array([3, 2]), array([1.35, 1.53]))
    """
    check_type("moments", moments, ClassMoments, "ClassMoments")
    measure = measure_of(criterion, "criterion")
    if not isinstance(over, str) or over not in OVER:
        raise refuse("over", over, f"one of {', '.join(OVER)}")
    if not isinstance(direction, str) or direction not in DIRECTIONS:
        raise refuse("direction", direction, f"one of {', '.join(DIRECTIONS)}")
    how = Regularisation(ddof, pooling, shrinkage, reg_param, var_smoothing, tol)
    check_classes(moments.classes, moments.class_count, least=2)
    held = moments.covariance_type
    found = estimate(moments, held if covariance_type is None else covariance_type, how)
    most = found.features.size
    n = as_integer("n", n, f"1 to {most}, the number of features that vary", 1, most)
    search = _Search(found, moments.means, measure, over, how)
    chosen = search.find(n, direction)
    return found.features[chosen], np.array(search.values)


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
        covariances: Covariances,
        means: np.ndarray,
        measure: Measure,
        over: str,
        how: Regularisation,
    ) -> None:
        needed, allowed = subset_bytes(covariances, measure), allowed_bytes(None)
        if needed > allowed:
            raise MemoryBudgetError(
                f"the covariances of all pairs of classes need {readable(needed)}, and "
                f"{readable(allowed)} are available; use covariance_type='tied' or 'diag'"
            )
        self._given = covariances, means, measure
        self._measure, self._mean, self._how = measure, OVER[over], how
        self._clear()

    def _clear(self) -> None:
        self._subset = subset_of(*self._given)
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
        covariances = self._given[0]
        factorise(covariances, replace(self._how, singular="refuse"))  # refuses singular ones
        self.chosen = list(range(covariances.features.size))
        for k in self.chosen:
            self._subset.toggle(k)
        while len(self.chosen) > n:
            criterion = self._criterion()[self.chosen]
            self._subset.toggle(self.chosen.pop(int(criterion.argmax())))
