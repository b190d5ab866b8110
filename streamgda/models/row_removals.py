"""Covariances without single rows: by which factors, ridges and products they change."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import UnsupportedError
from streamgda.kernels import leave_one_out as kernels
from streamgda.kernels.leave_one_out import LEAST, centre_rows, largest_without
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel
from streamgda.models.removals import LeaveOneOutModel, Removal
from streamgda.moments import ClassMoments
from streamgda.moments.centred import total_variance
from streamgda.moments.class_state import held_sums
from streamgda.moments.structures.cholesky import rank_limit
from streamgda.moments.structures.packing import Rounded, linear_scores
from streamgda.rows.arrays import row_type
from streamgda.runtime import lapack, threads

_LEAST_WEIGHT = 1e-4  # share of a weight whose loss adds rounding errors to the means
_LEAST_SINGLE = 1e-3  # as kernels.LEAST, for products in float32
_HUGE = 1e300


@dataclass(frozen=True)
class RowRemovals(LeaveOneOutModel, GaussianModel):
    """A model with what is needed of its moments to remove single rows from these.

    Parameters
    ----------
    how : Regularisation
        Regularisation of its covariances, with no rule for the shrinkage and no pooling.
    count : ndarray of float64, shape (n_classes,)
    traces : ndarray, shape (groups,)
        Traces of the scatters.
    mean, squares : ndarray, shape (d,)
        Mean of all rows, and sums of the squares about it, of the features in the density.
    prior_kind : str
        See `LeaveOneOutModel`.
    separations : ndarray, shape (2,)
        Largest and smallest singular value of the class means that count for a solver of LDA that
        drops directions; zeros for other models.
    unweighted : tuple of float, ndarray and ndarray, optional
        Number, mean and sums of squares of the rows without their weights, if smoothing follows
        these.
    """

    how: Regularisation = field(kw_only=True)
    count: np.ndarray = field(kw_only=True)
    traces: np.ndarray = field(kw_only=True)
    mean: np.ndarray = field(kw_only=True)
    squares: np.ndarray = field(kw_only=True)
    prior_kind: str = field(kw_only=True)
    separations: np.ndarray = field(kw_only=True)
    unweighted: tuple[float, np.ndarray, np.ndarray] | None = field(default=None, kw_only=True)

    refits = True
    _takes_sparse = False

    @classmethod
    def without_rows(
        cls,
        model: GaussianModel,
        moments: ClassMoments,
        how: Regularisation,
        prior_kind: str,
        separations: np.ndarray,
    ) -> Self:
        """Return the model with what is needed of its moments.

        Parameters
        ----------
        model : GaussianModel
            Model that was estimated from the moments.
        moments : ClassMoments
            Moments of the rows.
        how : Regularisation
            Regularisation of the model.
        prior_kind, separations
            See `LeaveOneOutModel` and the attributes.

        Returns
        -------
        GaussianLeaveOneOut
            The model, ready to score rows.

        Raises
        ------
        UnsupportedError
            For a regularisation that a row changes in more than one direction.
        """
        structure, features = model.structure, model.features
        _check(model, how)
        held = held_sums(moments).without_products()
        scatter = held.scatter[:, features]
        if structure.per_class < held.structure.per_class:
            scatter = scatter.sum(axis=0, keepdims=True)
        count = held.count.astype(np.float64)
        mean = (count / count.sum()) @ held.mean[:, features]
        squares = total_variance(held)[features] * count.sum()
        own = {f.name: getattr(model, f.name) for f in fields(GaussianModel)}
        sums = {"count": count, "traces": scatter.sum(axis=1), "mean": mean, "squares": squares}
        return cls(**own, **sums, how=how, prior_kind=prior_kind, separations=separations)

    # --- derived attributes -------------------------------------------------------------------

    @cached_property
    def _divisors(self) -> np.ndarray:
        """Divisors of the scatters; a huge one where `ddof` leaves none, as the fit divides."""
        divisors = self.structure.group_weights(self.count, self.how.ddof)
        return np.where(divisors > 0, divisors, _HUGE)

    @cached_property
    def _mean_variances(self) -> np.ndarray:
        """Mean variances of the groups, before they are regularised."""
        average = self.structure.n_averaged(self.features.size, self.n_features)
        return np.asarray(self.traces / self._divisors / average)

    @cached_property
    def _smoothing(self) -> float:
        """Value that `var_smoothing` adds to the variances of the model."""
        total, _, squares = self._smoothed
        return float(self.how.var_smoothing * squares.max() / total)

    @property
    def _smoothed(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Number, mean and sums of squares of the rows that smoothing follows."""
        return self.unweighted or (self.count.sum(), self.mean, self.squares)

    @cached_property
    def _ridges(self) -> np.ndarray:
        """Multiples of I in the covariances of the groups."""
        return self._ridge_of(self._mean_variances) + self._smoothing

    def _ridge_of(self, variances: np.ndarray) -> np.ndarray:
        how = self.how
        return (1 - how.reg_param) * float(how.shrinkage or 0) * variances + how.reg_param

    @property
    def _plain(self) -> bool:
        how = self.how
        return not (how.shrinkage or how.reg_param or how.var_smoothing)

    @cached_property
    def axes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Coordinates in which a covariance matrix plus a multiple of I is diagonal, and ridges."""
        if self._plain:
            return [(root, np.zeros(len(root))) for root in self.roots]

        def axes_of(root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ridges, vectors = linalg.eigh(root @ root.T)
            return vectors.T @ root, ridges

        return threads.run_serial_blas(axes_of, ((root,) for root in self.roots))

    @cached_property
    def _packed_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The `axes` of all groups, those of a group as columns, and their ridges."""
        return np.array([axes.T for axes, _ in self.axes]), np.array([r for _, r in self.axes])

    @cached_property
    def _rounded_axes(self) -> list[Rounded]:
        return [Rounded(axes) for axes, _ in self.axes]

    @cached_property
    def _variances(self) -> np.ndarray:
        """Variances of the features, shape (groups, d), from the roots of matrices."""
        out = np.empty(self.roots.shape[:2])
        for root, variances in zip(self.roots, out, strict=True):
            triangle = root.copy()
            lapack.invert_lower(triangle)
            np.einsum("ij,ij->i", triangle, triangle, out=variances)
        return out

    @cached_property
    def _largest_precisions(self) -> np.ndarray:
        """Largest eigenvalues of the inverse correlation matrices, shape (groups,)."""

        def largest(root: np.ndarray, variances: np.ndarray) -> float:
            scaled = root * np.sqrt(variances)
            last = (len(root) - 1,) * 2
            return float(linalg.eigvalsh(scaled @ scaled.T, subset_by_index=last)[0])

        pairs = zip(self.roots, self._variances, strict=True)
        return np.array(threads.run_serial_blas(largest, pairs))

    @cached_property
    def _precisions(self) -> np.ndarray:
        """Roots that kernels may read: a read-only array would be compiled for again."""
        return np.require(self.roots, requirements=("C", "W"))

    @cached_property
    def _order(self) -> np.ndarray:
        """Features by falling variance over all rows."""
        return np.argsort(-self._smoothed[2])

    # --- rows that need a refit ---------------------------------------------------------------

    def _influential(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        structure, codes, weights = self.structure, removal.codes, removal.weights
        groups = codes if structure.per_class else np.zeros(codes.size, np.int64)
        divisors = self._divisors[groups]
        found = removal.empties | (removal.left <= _LEAST_WEIGHT * removal.count)
        found |= divisors - weights <= _LEAST_WEIGHT * divisors
        if structure.kind == "spherical" or not self._plain:
            # Features that are constant without a row, or nearly so, in all classes. Otherwise the
            # covariance of the row's own class tells.
            lost, total = np.empty(len(X), bool), self.count.sum()
            factor = total * weights / np.maximum(total - weights, LEAST * total)
            about = self._read_features, self.mean, self.squares, factor
            kernels.loses_variance(X, *about, lost)
            found |= lost
        squares = self._squares_to_own(X, codes)
        if self._uses_traces:
            traces, lost_traces = self.traces[groups], removal.factor * squares
            found |= (lost_traces > 0) & (traces - lost_traces <= LEAST * traces)
        found &= weights > 0
        if structure.kind == "spherical":
            return np.asarray(found)
        removal = self._removal(codes, np.where(found, 0.0, weights))
        changes = self._changes(removal, self._growth(X, removal), squares)
        if structure.matrix:
            found |= self._near_singular(X, removal, groups, *changes)
        else:
            precisions = np.ascontiguousarray(self._precisions[structure.groups(self.count.size)])
            own = X, self._read_features, codes, self._class_means, precisions
            distances, logs, factors = np.empty((3, len(X)))
            scratch = np.empty(self.features.size)
            kernels.own_diagonal_squares(*own, *changes, scratch, distances, logs, factors)
            found |= np.isnan(distances)
        return np.asarray(found)

    @property
    def _uses_traces(self) -> bool:
        return self.structure.kind == "spherical" or bool(self.how.shrinkage)

    def _near_singular(
        self,
        X: np.ndarray,
        removal: Removal,
        groups: np.ndarray,
        alpha: np.ndarray,
        beta: np.ndarray,
        gamma: np.ndarray,
    ) -> np.ndarray:
        """Return True for rows without which a matrix may have a lower rank, or nearly so.

        The least eigenvalue of a correlation matrix falls by no smaller ratio than the determinant.
        Distances are computed for the rows whose upper bounds leave a doubt.
        """
        d, centred = self.features.size, self._centred(X, removal.codes)
        precisions = self._largest_precisions[groups]
        least = 2 * rank_limit(self.how.tol, d) * precisions
        least = np.maximum(LEAST if centred.dtype == np.float64 else _LEAST_SINGLE, least)

        def doubtful(distances: np.ndarray, some: Any) -> np.ndarray:
            rest = 1 - gamma[some] * distances
            return ~(rest > least[some]) | self._may_drop(removal, distances, rest, some)

        # The matrix alpha C + beta I is at least `kept` times C.
        ridges = self._ridges[groups]
        kept = (beta + alpha * ridges) / np.where(ridges > 0, ridges, 1.0)
        kept = np.where(ridges > 0, np.minimum(alpha, kept), alpha)
        scaled = centred / np.sqrt(self._variances)[groups]
        bounds = np.einsum("rj,rj->r", scaled, scaled, dtype=np.float64) * precisions / kept
        found = doubtful(bounds, slice(None)) & (removal.weights > 0)
        at = np.flatnonzero(found)
        for g in np.unique(groups[at]):
            rows = at[groups[at] == g]
            axes = np.arange(d), np.zeros(d), self._rounded_axes[g], np.zeros(d)
            distances, logs = np.empty((2, rows.size))
            terms = np.zeros(d), np.ones(d), self.axes[g][1], alpha[rows], beta[rows]
            kernels.varied_squares(linear_scores(centred[rows], *axes), *terms, distances, logs)
            found[rows] = doubtful(distances, rows)
        return np.asarray(found)

    def _may_drop(
        self, removal: Removal, distances: np.ndarray, rest: np.ndarray, some: Any
    ) -> Any:
        """Return True for rows without which LDA may drop another discriminant direction.

        By the inequalities of Weyl: a class mean moves by a share of the way to the row, and the
        covariance loses no more than the share `rest` in any direction.
        """
        largest, smallest = self.separations
        if not largest:
            return False
        with np.errstate(invalid="ignore"):
            left = (removal.left / removal.count)[some]
            share = self.priors[removal.codes[some]] * left
            step = (removal.weights / removal.left)[some] * np.sqrt(share * distances)
            kept = np.sqrt(left) * smallest - step
            return ~(kept * np.sqrt(rest) > 2 * self.how.tol * (largest + step))

    # --- removals --------------------------------------------------------------------------------

    def _growth(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return what smoothing adds to the variances without the rows, less what it adds now."""
        growth = np.zeros(len(X))
        if self.how.var_smoothing:
            total, *sums = self._smoothed
            w = removal.weights if self.unweighted is None else np.ones(len(X))
            given = *sums, self._order, total * w / (total - w), total - w
            largest_without(X, self._read_features, *given, growth)
            growth *= self.how.var_smoothing
            growth -= self._smoothing
        return growth

    def _relative_change(self, growth: np.ndarray) -> float:
        """Return by which share, at most, smoothing changes distances to other classes."""
        most = float(np.abs(growth).max(initial=0.0))
        return most * self._largest_precision if most else 0.0

    @cached_property
    def _largest_precision(self) -> float:
        if self.structure.matrix:
            return float(max(ridges.max() for _, ridges in self.axes))
        return float(self.roots.max())

    @cached_property
    def _unit_changes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The `_changes` by one row of weight one of each class."""
        classes = np.arange(self.count.size)
        single = self._removal(classes, np.where(self.count > 1, 1.0, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):  # by classes of no or few rows
            return self._changes(single, np.zeros(classes.size))

    def _squares_to_own(self, X: np.ndarray, codes: np.ndarray) -> Any:
        """Return the squared lengths of rows less their class means, if traces count."""
        if not self._uses_traces:
            return 0.0
        centred = self._centred(X, codes)
        return np.einsum("rj,rj->r", centred, centred, dtype=np.float64)

    def _centred(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return rows less the means of their classes, in the type in which they are multiplied."""
        out = np.empty((len(X), self.features.size), row_type(X.dtype).floating)
        centre_rows(X, self._read_features, codes, self._class_means, out)
        return out

    def _changes(
        self, removal: Removal, growth: np.ndarray, squares: Any = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return alpha, beta and gamma of the covariances without the rows.

        `growth` is what smoothing adds to variances, and `squares` are the squared lengths of the
        rows less the means of their classes, which count if there is shrinkage.
        """
        how, structure, codes = self.how, self.structure, removal.codes
        if removal.unit and not how.shrinkage:
            alpha, beta, gamma = self._unit_changes
            return alpha[codes], beta[codes] + growth, gamma[codes]
        groups = codes if structure.per_class else np.zeros(codes.size, np.int64)
        before = self._divisors[groups]
        after = before - removal.weights
        alpha = before / after
        share = (1 - how.reg_param) * (1 - float(how.shrinkage or 0))
        average = structure.n_averaged(self.features.size, self.n_features)
        traces = np.maximum(self.traces[groups] - removal.factor * squares, 0.0)
        ridges = self._ridge_of(traces / after / average) + self._smoothing + growth
        return alpha, ridges - alpha * self._ridges[groups], share * removal.factor / after

    def _sphere(self, removal: Removal, squares: np.ndarray, growth: np.ndarray) -> np.ndarray:
        """Return the variances of the own groups without the rows."""
        how, structure = self.how, self.structure
        groups = removal.codes if structure.per_class else np.zeros(removal.codes.size, np.int64)
        after = self._divisors[groups] - removal.weights
        traces = self.traces[groups] - removal.factor * squares
        within = traces / after / self.features.size
        return np.asarray((1 - how.reg_param) * within + how.reg_param + self._smoothing + growth)


def _check(model: GaussianModel, how: Regularisation) -> None:
    """Raise `UnsupportedError` for covariances that a row changes in more than one direction."""
    structure = model.structure
    regularised = how.shrinkage or how.reg_param or how.var_smoothing
    problem = ""
    if how.shrinkage_rule:
        problem = f"shrinkage={how.shrinkage!r} is computed from all rows; give the amount found"
    elif how.pooling and structure.per_class:
        problem = f"pooling={how.pooling:g} mixes the covariances; leave it out"
    elif how.standardize and (regularised or structure.kind == "spherical"):
        problem = "standardize=True scales by all rows; standardise the rows first"
    elif model.rank < model.features.size:
        problem = (
            f"the pooled covariance has rank {model.rank} of {model.features.size}, and which "
            f"directions are dropped depends on all rows; leave out features that depend on others"
        )
    if problem:
        raise UnsupportedError(
            f"leave-one-out has no formula for this model: {problem}, or use GaussianDiscriminantCV"
        )
