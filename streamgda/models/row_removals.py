"""Covariances without single rows: by which factors, ridges and products they change."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import SingularCovarianceError, UnsupportedError
from streamgda.kernels.leave_one_out import LEAST, centre_rows, largest_without
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel
from streamgda.models.removals import LeaveOneOutModel, Removal
from streamgda.moments import ClassMoments
from streamgda.moments.class_state import held_sums
from streamgda.moments.variances import total_variance
from streamgda.rows.dtypes import row_type
from streamgda.runtime import threads


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
    unweighted: tuple[float, np.ndarray, np.ndarray] | None = field(default=None, kw_only=True)

    @classmethod
    def without_rows(
        cls, model: GaussianModel, moments: ClassMoments, how: Regularisation, prior_kind: str
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
        prior_kind : str
            See `LeaveOneOutModel`.

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
        ridge = how.shrinkage or how.reg_param or how.var_smoothing
        own_ridge = how.shrinkage and structure.per_class
        if not ridge or own_ridge or structure.kind == "spherical":
            _refuse_single_values(held.mean[:, features], scatter.sum(axis=0), count, features)
        own = {f.name: getattr(model, f.name) for f in fields(GaussianModel)}
        sums = {"count": count, "traces": scatter.sum(axis=1), "mean": mean, "squares": squares}
        return cls(**own, **sums, how=how, prior_kind=prior_kind)

    # --- derived attributes -------------------------------------------------------------------

    @cached_property
    def _divisors(self) -> np.ndarray:
        return self.structure.group_weights(self.count, self.how.ddof)

    @cached_property
    def _variances(self) -> np.ndarray:
        """Mean variances of the groups, before they are regularised."""
        average = self.structure.n_averaged(self.features.size, self.n_features)
        weights = np.where(self._divisors > 0, self._divisors, np.inf)
        return np.asarray(self.traces / weights / average)

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
        return self._ridge_of(self._variances) + self._smoothing

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

        def axes_of(root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ridges, vectors = linalg.eigh(root @ root.T)
            return vectors.T @ root, ridges

        return threads.run_serial_blas(axes_of, ((root,) for root in self.roots))

    @cached_property
    def _packed_axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The `axes` of all groups, those of a group as columns, and their ridges."""
        return np.array([axes.T for axes, _ in self.axes]), np.array([r for _, r in self.axes])

    @cached_property
    def _precisions(self) -> np.ndarray:
        """Roots that kernels may read: a read-only array would be compiled for again."""
        return np.require(self.roots, requirements=("C", "W"))

    @cached_property
    def _order(self) -> np.ndarray:
        """Features by falling variance over all rows."""
        return np.argsort(-self._smoothed[2])

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
        single = self._removal(classes, np.where(self.count > 0, 1.0, 0.0))
        return self._changes(single, np.zeros(classes.size))

    def _squares_to_own(self, X: np.ndarray, codes: np.ndarray) -> Any:
        """Return the squared lengths of rows less their class means, if there is shrinkage."""
        if not self.how.shrinkage:
            return 0.0
        centred = self._centred(X, codes)
        return np.einsum("rj,rj->r", centred, centred)

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
        # A class without rows also stops counting for `ddof`.
        lost = np.where(removal.empties, removal.count - how.ddof, removal.weights)
        after = before - lost
        usable = (after > LEAST * before) & (before > 0)
        after = np.where(usable, after, np.inf)
        alpha = np.where(usable, before, 0.0) / after
        share = (1 - how.reg_param) * (1 - float(how.shrinkage or 0))
        average = structure.n_averaged(self.features.size, self.n_features)
        traces = np.maximum(self.traces[groups] - removal.factor * squares, 0.0)
        ridges = self._ridge_of(traces / after / average) + self._smoothing + growth
        return alpha, ridges - alpha * self._ridges[groups], share * removal.factor / after

    def _rest(
        self,
        removal: Removal,
        distances: np.ndarray,
        gamma: np.ndarray,
        first: int,
        rows: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the ratio of the determinants without and with the rows; refuse zero."""
        rest = 1 - gamma * distances
        singular = ~(rest > max(self.how.tol**2, LEAST)) & ~removal.empties
        if singular.any():
            at = int(singular.argmax())
            label = self.classes[removal.codes[at]]
            row = first + (at if rows is None else int(rows[at]))
            pooled = "" if self.structure.per_class else ", pooled with the others,"
            raise SingularCovarianceError(
                f"without row {row}, the covariance of its class {label!s}{pooled} is singular. "
                f"{self.how.advice or 'Regularise (reg_param or shrinkage above 0)'}, leave out "
                f"features that depend on others, or give more rows of each class",
                [label],
            )
        return np.where(removal.empties, 1.0, rest)

    def _sphere(
        self, removal: Removal, squares: np.ndarray, growth: np.ndarray, first: int
    ) -> np.ndarray:
        """Return the variances of the own groups without the rows."""
        how, structure = self.how, self.structure
        groups = removal.codes if structure.per_class else np.zeros(removal.codes.size, np.int64)
        lost = np.where(removal.empties, removal.count - how.ddof, removal.weights)
        after = self._divisors[groups] - lost
        d = self.features.size
        traces = self.traces[groups] - removal.factor * squares
        usable = (traces > LEAST * self.traces[groups]) & (after > 0)
        within = np.where(usable, traces, 0.0) / np.where(usable, after, 1.0) / d
        variances = (1 - how.reg_param) * within + how.reg_param + self._smoothing + growth
        self._rest(removal, np.where(variances > 0, 0.0, 1.0), np.ones(len(variances)), first)
        return np.where(removal.empties & (variances <= 0), 1.0, variances)


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


def _refuse_single_values(
    means: np.ndarray, scatter: np.ndarray, count: np.ndarray, features: np.ndarray
) -> None:
    """Raise an error for a feature that has one value in all rows but one.

    Without that row it is constant, and left out of the density, which changes traces.
    """
    seen = count > 0
    means, count = means[seen], count[seen]
    usual = [np.median(means, axis=0)] if len(means) != 2 else list(means)
    for value in usual:
        differs = means != value
        k = differs.argmax(axis=0)
        steps = np.square(means[k, np.arange(value.size)] - value)
        expected = steps * count[k] * (count[k] - 1)
        single = (differs.sum(axis=0) == 1) & np.isclose(scatter, expected, rtol=1e-6, atol=0)
        if single.any():
            raise UnsupportedError(
                f"feature {features[single][0]} has one value in all rows but one, and is left out "
                f"of the density without that row; leave it out"
            )
