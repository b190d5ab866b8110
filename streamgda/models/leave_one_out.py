r"""Posteriors of the rows of a fit, each by the model without that row, from one scoring pass.

Without a row x of weight w, its class of weight n has the mean :math:`m - w (x-m) / (n-w)` and the
scatter :math:`S - b\,\delta\delta^T`, where :math:`\delta = x - m` and :math:`b = n w / (n-w)`. The
covariance of the class, or the pooled one, was :math:`C`, and becomes

.. math:: C' = \alpha C + \beta I - \gamma\,\delta\delta^T

where :math:`\alpha` is the ratio of the divisors with and without the row, :math:`\gamma` is b
times what scatters are multiplied by, and :math:`\beta` is what the multiple of I grows by: it is
zero without regularisation. With :math:`D = \alpha C + \beta I`, the formula of Sherman and
Morrison and the lemma of the determinant give

.. math:: u^T C'^{-1} u = u^T D^{-1} u
          + \frac{\gamma (u^T D^{-1} \delta)^2}{1 - \gamma\,\delta^T D^{-1} \delta}, \quad
          |C'| = |D| (1 - \gamma\,\delta^T D^{-1} \delta)

For matrices, D is diagonal in the coordinates :math:`V^T W (x - m)`, where W is the root of
:math:`C^{-1}` and V holds the eigenvectors of :math:`W W^T`: its eigenvalues are :math:`\alpha +
\beta \pi_j`, with the eigenvalues :math:`\pi` of that matrix. Variances are changed one by one, in
the coordinates :math:`(x - m) / \sigma`.

The formulas are for rows that leave enough of their class and of each variance. The others, the
influential ones, need a fit to all rows but theirs; scores of rows here are without these.

Sources: B. D. Ripley, Pattern Recognition and Neural Networks, 1996, section 3.2, and ``lda`` and
``qda`` with ``CV=TRUE`` in the package MASS of R; J. Sherman and W. J. Morrison, Annals of
Mathematical Statistics 21, 1950.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg

from streamgda.errors import UnsupportedError
from streamgda.kernels import leave_one_out as kernels
from streamgda.kernels import scoring
from streamgda.kernels.leave_one_out import LEAST
from streamgda.kernels.scoring import PANEL_FEATURES
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import copied, length, log_posterior, posterior, tempered
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.centred import total_variance
from streamgda.moments.roots import LinearFunctions, MatrixDistances, rank_limit
from streamgda.rows.arrays import row_type
from streamgda.runtime import lapack, threads

ROUNDING = 1e-13  # largest change of a distance, as a share of it, that rounding exceeds
_LEAST_WEIGHT = 1e-4  # share of a weight whose loss adds rounding errors to the means
_LEAST_SINGLE = 1e-3  # as kernels.LEAST, for products in float32
_HUGE = 1e300


class Removal(NamedTuple):
    """The removal of each of some rows: one entry a row.

    Attributes
    ----------
    codes, groups : ndarray of int64
        Classes of the rows, and the numbers of their covariances.
    total : ndarray
        Weights of these classes with the row.
    weights : ndarray
        Weights of the rows, zero for those that stay.
    """

    codes: np.ndarray
    groups: np.ndarray
    total: np.ndarray
    weights: np.ndarray

    @property
    def left(self) -> np.ndarray:
        """Weights of the classes without the rows."""
        return self.total - self.weights

    @property
    def factor(self) -> np.ndarray:
        """Factor b of the products that the scatter loses."""
        return self.total * self.weights / self.left

    @property
    def stretch(self) -> np.ndarray:
        """Squared distance to the own mean without the row, as a multiple of that with it."""
        return np.square(self.total / self.left)


@dataclass(frozen=True)
class GaussianLeaveOneOut(GaussianModel):
    """A Gaussian model with what is needed of its moments to score each row without it.

    Parameters
    ----------
    how : Regularisation
        Regularisation of its covariances, with no rule for the shrinkage and no pooling.
    count : ndarray of float64, shape (n_classes,)
        Weights of the classes.
    traces : ndarray, shape (groups,)
        Traces of the scatters.
    mean, squares : ndarray, shape (d,)
        Mean of all rows, and sums of the squares about it, of the features in the density.
    prior_kind : {"counted", "given"}
        Priors are the shares of the classes, or given.
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
            See the attributes.

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
        scatter = held.packed[:, features]
        if structure.per_class < held.structure.per_class:
            scatter = scatter.sum(axis=0, keepdims=True)
        count = held.count.astype(np.float64)
        mean = (count / count.sum()) @ held.mean[:, features]
        squares = total_variance(held)[features] * count.sum()
        own = {f.name: getattr(model, f.name) for f in fields(GaussianModel)}
        sums = {"count": count, "traces": scatter.sum(axis=1), "mean": mean, "squares": squares}
        return cls(**own, **sums, how=how, prior_kind=prior_kind, separations=separations)

    # --- scores of arrays ---------------------------------------------------------------------

    def leave_one_out(
        self,
        X: Any,
        first_row: int = 0,
        *,
        answer: str,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        refitted: np.ndarray | None = None,
        refits: np.ndarray | None = None,
        temperature: float = 1.0,
    ) -> np.ndarray:
        """Return what the model without the row says of each row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows of the fit.
        first_row : int
            Number of the first row in a larger array.
        answer : {"posterior", "log_posterior", "right", "influential"}
            The probability of each class, or its logarithm; one for rows that are classified
            correctly and zero for others; or one for rows whose removal has to be a refit and zero
            for others.
        codes : ndarray of int
            Classes of the rows of that larger array.
        weights : ndarray of float64, optional
            Their weights; zero for rows that stay.
        refitted, refits : ndarray, shapes (n,) and (n, n_classes); optional
            Numbers of rows whose log-probabilities are known already, sorted, and these.
        temperature : float
            Temperature of the probabilities that are returned.

        Returns
        -------
        ndarray, shape (n_rows, n_classes) or (n_rows,)
            The answers.
        """
        n, k = length(X), self.classes.size
        function, finish, out = {
            "posterior": (self._scores, posterior, np.empty((n, k))),
            "log_posterior": (self._scores, log_posterior, np.empty((n, k))),
            "right": (self._scores, scoring.largest, np.empty(n, np.int64)),
            "influential": (self._influential, copied, np.empty(n)),
        }[answer]

        def scores_of(rows: np.ndarray, own: np.ndarray, removed: np.ndarray) -> np.ndarray:
            groups = own if self.structure.per_class else np.zeros_like(own)
            removal = Removal(own, groups, self.count[own], removed)
            return tempered(function(rows, removal), temperature)

        own = codes[first_row : first_row + n].astype(np.int64)
        removed = np.ones(n) if weights is None else weights[first_row : first_row + n]
        self._score(X, scores_of, finish, out, first_row, own, removed)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + n]))
            known = np.empty_like(out, shape=(some.stop - some.start, *out.shape[1:]))
            finish(tempered(refits[some].T.copy(), temperature), known)
            out[refitted[some] - first_row] = known
        if answer == "right":
            return np.asarray(out == own, np.float64)
        return out

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _scores(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""
        changes, codes, each = self._changes(X, removal), removal.codes, np.arange(len(X))
        counted = self.prior_kind == "counted"
        gains = np.log(removal.left / removal.total) if counted else np.zeros(len(X))
        if self.structure.per_class:
            scores, distances, logs = self._by_classes(X, codes, changes)
            own = self._offsets[codes] + gains - 0.5 * (logs + removal.stretch * distances)
            if scores is None:
                scores = self._other_scores(X, codes, changes[3], own)
            scores[codes, each] = own
        else:
            scores = self._pooled(X, codes, changes)
            own = removal.stretch * scores[codes, each]
            scores *= -0.5
            scores += self.log_priors[:, None]
            scores[codes, each] = self.log_priors[codes] + gains - 0.5 * own
        return scores

    def _by_classes(
        self, X: np.ndarray, codes: np.ndarray, changes: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """Return scores if they are computed anyway, own distances, and log-determinants.

        The distances are those to the means with the row, by covariances without it, and the
        logarithms those of determinants without it, less those with it.
        """
        alpha, _, gamma, growth = changes
        matrix, d = self.structure.matrix, self.features.size
        narrow = not matrix or d <= PANEL_FEATURES
        if self._by_factors and narrow and not growth.any():
            scores = self._relative_scores(X)
            own = 2 * (self._offsets[codes] - scores[codes, np.arange(len(X))]) / alpha
            logs = d * np.log(alpha)
            if matrix:
                rest = 1 - gamma * own
                own, logs = own / rest, logs + np.log(rest)
            return scores, own, logs
        own, logs = self._own_distances(X, codes, changes)
        return None, own, logs - np.log1p(gamma * own) if matrix else logs

    def _own_distances(
        self, X: np.ndarray, codes: np.ndarray, changes: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return squared distances to the means of classes, by covariances without the row.

        The others are log-determinants less the model's, without the last factor of matrices.
        """
        distances, logs = np.empty((2, len(X)))
        if not self.structure.matrix:
            own = codes, self._class_means, self._lows, self._correlated[0], changes
            kernels.own_variances(X, self._read_features, *own, distances, logs)
            return distances, logs
        for k in np.unique(codes):
            rows, group = np.flatnonzero(codes == k), self.structure.group(k)
            columns = self._coordinates[k](X if rows.size == len(X) else X[rows])
            found, products, own_logs = np.empty((3, 1, rows.size))
            centre, ridges = np.zeros((1, self.features.size)), self.axes[group][1]
            terms = np.zeros(rows.size, np.int64), centre, ridges, *changes.take(rows, axis=1)[:3]
            kernels.removed_squares(columns, *terms, found, products, own_logs[0])
            distances[rows], logs[rows] = found[0], own_logs[0]
        return distances, logs

    def _other_scores(
        self, X: np.ndarray, codes: np.ndarray, growth: np.ndarray, own: np.ndarray
    ) -> np.ndarray:
        """Return scores with all rows in the classes, but for what smoothing adds to variances.

        Those far below the largest, which may be the `own`, are upper bounds.
        """
        moved = np.flatnonzero(np.abs(growth) * self._largest_precisions.max() > ROUNDING)
        if moved.size == len(X):
            scores = np.empty((self.classes.size, len(X)))
        elif isinstance(self._from_means, MatrixDistances) and self.means_low is None:
            scores = self._from_means.others(X, -0.5, self._offsets, codes, own)
        else:
            scores = self._relative_scores(X)
        zeros, rows = np.zeros(moved.size), X[moved]
        changes = np.stack([zeros + 1, growth[moved], zeros, zeros])
        for k in range(self.classes.size if moved.size else 0):
            distances, logs = self._own_distances(rows, np.full(moved.size, k), changes)
            scores[k, moved] = self._offsets[k] - 0.5 * (logs + distances)
        return scores

    def _pooled(self, X: np.ndarray, codes: np.ndarray, changes: np.ndarray) -> np.ndarray:
        """Return squared distances to all means by a pooled covariance without the row.

        Its determinant is the same for all classes.
        """
        alpha, _, gamma, _ = changes
        if self.structure.one_variance:
            return self._to_means(X) / alpha
        if self._by_factors:
            # A row is multiplied by the root once, for its distance to `xbar`.
            scores = self._joint(X)
            kernels.removed_products(codes, alpha, gamma, self._gaps, self._offsets, scores)
            return scores
        scores = np.empty((self.classes.size, len(X)))
        products = np.empty_like(scores) if self.structure.matrix else scores[:0]
        terms = codes, self._white_means, self.axes[0][1], *changes[:3]
        if self.structure.matrix:
            columns = self._coordinates[-1](X)
        else:
            columns = np.ascontiguousarray(X[:, self.features].T, np.float64)
            columns -= self._centre[:, None]
            columns *= self.axes[0][0][:, None]
        kernels.removed_squares(columns, *terms, scores, products, np.empty(0))
        return scores

    @cached_property
    def _white_means(self) -> np.ndarray:
        """Class means less `xbar`, in the coordinates of a pooled covariance."""
        gaps, axes = self._mean_gaps, self.axes[0][0]
        return np.ascontiguousarray(gaps @ axes.T if self.structure.matrix else gaps * axes)

    @cached_property
    def _gaps(self) -> np.ndarray:
        """Squared distances between the class means, shape (n_classes, n_classes)."""
        return np.array([np.square(self._white_means - m).sum(axis=1) for m in self._white_means])

    @cached_property
    def _lows(self) -> np.ndarray:
        """Rounding errors of the class means, of the features in the density."""
        low = self.means_low
        return np.zeros_like(self._class_means) if low is None else self._varying(low)

    # --- coordinates --------------------------------------------------------------------------

    @cached_property
    def _coordinates(self) -> list[LinearFunctions]:
        """White coordinates about the class means; the last are those about `xbar`, if pooled."""
        points = [*zip(self._class_means, self._lows, strict=True)]
        if not self.structure.per_class:
            points.append((self._centre, np.zeros(self.features.size)))
        axes = [self.axes[self.structure.group(k)][0] for k in range(len(points))]
        return [
            LinearFunctions(own, -(own @ low), self._read_features, centre)
            for own, (centre, low) in zip(axes, points, strict=True)
        ]

    @cached_property
    def axes(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Axes of white coordinates in which I is diagonal too, and the diagonals, by group.

        The axes of variances are one over the deviations.
        """
        if not self.structure.matrix:
            return [(np.sqrt(root), np.require(root, requirements="W")) for root in self.roots]
        if not self._regularised:
            return [(root, np.zeros(len(root))) for root in self.roots]

        def axes_of(root: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ridges, vectors = linalg.eigh(root @ root.T)
            return vectors.T @ root, ridges

        return threads.run_serial_blas(axes_of, ((root,) for root in self.roots))

    @cached_property
    def _largest_precisions(self) -> np.ndarray:
        """Largest eigenvalues of the inverse covariances, or of zero, shape (groups,)."""
        return np.array([ridges.max() for _, ridges in self.axes])

    @cached_property
    def _correlated(self) -> tuple[np.ndarray, np.ndarray]:
        """Precisions of the classes' features, and factors of sums that bound distances by them.

        The factors are the largest eigenvalues of the inverse correlation matrices.
        """
        groups = self.structure.groups(self.classes.size)
        if not self.structure.matrix:
            return self.roots[groups], np.ones(groups.size)

        def of_group(root: np.ndarray) -> tuple[np.ndarray, float]:
            triangle, last = root.copy(), (len(root) - 1,) * 2
            lapack.invert_lower(triangle)
            variances = np.einsum("ij,ij->i", triangle, triangle)
            scaled = root * np.sqrt(variances)
            largest = linalg.eigvalsh(scaled @ scaled.T, subset_by_index=last)
            return 1 / variances, float(largest[0])

        found = threads.run_serial_blas(of_group, ((root,) for root in self.roots))
        precisions, largest = zip(*found, strict=True)
        return np.array(precisions)[groups], np.array(largest)[groups]

    # --- changes of covariances ---------------------------------------------------------------

    @property
    def _regularised(self) -> bool:
        how = self.how
        return bool(how.shrinkage or how.reg_param or how.var_smoothing)

    @property
    def _by_factors(self) -> bool:
        """True if distances change by a factor, but for the product that a matrix loses."""
        structure = self.structure
        return structure.one_variance or (structure.matrix and not self._regularised)

    @property
    def _uses_traces(self) -> bool:
        return self.structure.one_variance or bool(self.how.shrinkage)

    @cached_property
    def _divisors(self) -> np.ndarray:
        """Divisors of the scatters; a huge one where `ddof` leaves none, as the fit divides."""
        divisors = self.structure.group_weights(self.count, self.how.ddof)
        return np.where(divisors > 0, divisors, _HUGE)

    @property
    def _smoothed(self) -> tuple[float, np.ndarray, np.ndarray]:
        """Number, mean and sums of squares of the rows that smoothing follows."""
        return self.unweighted or (self.count.sum(), self.mean, self.squares)

    @cached_property
    def _smoothing(self) -> float:
        """Value that `var_smoothing` adds to the variances of the model."""
        total, _, squares = self._smoothed
        return float(self.how.var_smoothing * squares.max() / total)

    def _ridge_of(self, traces: np.ndarray, divisors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean variances before they are regularised, and multiples of I in covariances.

        What smoothing adds is left out.
        """
        how = self.how
        average = self.structure.n_averaged(self.features.size, self.n_features)
        variances = np.asarray(traces / divisors / average)
        shrunk = (1 - how.reg_param) * float(how.shrinkage or 0) * variances
        return variances, shrunk + how.reg_param

    @cached_property
    def _ridges(self) -> np.ndarray:
        """Multiples of I in the covariances of the groups."""
        return self._ridge_of(self.traces, self._divisors)[1] + self._smoothing

    def _growth(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return what smoothing adds to the variances without the rows, less what it adds now."""
        growth = np.zeros(len(X))
        if self.how.var_smoothing:
            total, mean, squares = self._smoothed
            w = removal.weights if self.unweighted is None else np.ones(len(X))
            order = np.argsort(-squares)
            given = mean, squares, order, total * w / (total - w), total - w
            kernels.largest_without(X, self._read_features, *given, growth)
            growth *= self.how.var_smoothing
            growth -= self._smoothing
        return growth

    def _own_squares(
        self, X: np.ndarray, codes: np.ndarray, precisions: np.ndarray, *points: np.ndarray
    ) -> np.ndarray:
        """Return the sum and the largest of the squares of rows less points, times precisions.

        The points are the means of the classes by default.
        """
        out = np.empty((2, len(X)))
        points = points or (self._class_means, self._lows)
        kernels.own_squares(X, self._read_features, codes, *points, precisions, *out)
        return out

    def _lost_traces(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return what the traces of scatters lose."""
        ones = np.ones_like(self._class_means)
        return removal.factor * self._own_squares(X, removal.codes, ones)[0]

    def _changes(
        self, X: np.ndarray, removal: Removal, lost_traces: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the changes of the own covariances of rows by their removal, shape (4, n_rows).

        They are alpha, beta and gamma, and what smoothing adds to all variances, less what it adds
        now.
        """
        how, growth, groups = self.how, self._growth(X, removal), removal.groups
        before, none = self._divisors[groups], np.zeros(len(X))
        after, lost = before - removal.weights, none
        if self._uses_traces:
            lost = self._lost_traces(X, removal) if lost_traces is None else lost_traces
        variances, ridges = self._ridge_of(np.maximum(self.traces[groups] - lost, 0.0), after)
        if self.structure.one_variance:  # which is what changes
            alpha = (1 - how.reg_param) * variances + how.reg_param + self._smoothing + growth
            return np.stack([alpha * self.roots[groups, 0], none, none, growth])
        alpha, share = before / after, (1 - how.reg_param) * (1 - float(how.shrinkage or 0))
        beta = ridges + self._smoothing + growth - alpha * self._ridges[groups]
        return np.stack([alpha, beta, share * removal.factor / after, growth])

    # --- rows that need a refit ---------------------------------------------------------------

    def _influential(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return True for rows whose removal leaves nothing but rounding errors of something."""
        groups, weights, zeros = removal.groups, removal.weights, np.zeros(len(X), np.int64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            safe = removal.left > _LEAST_WEIGHT * removal.total
            safe &= self._divisors[groups] - weights > _LEAST_WEIGHT * self._divisors[groups]
            if self.structure.one_variance or self._regularised:
                # Features that are constant without a row, or nearly so, in all classes. Otherwise
                # the covariance of the row's own class tells.
                total, point = self.count.sum(), (self.mean[None], np.zeros((1, self.mean.size)))
                largest = self._own_squares(X, zeros, 1 / self.squares[None], *point)[1]
                safe &= 1 - total * weights / (total - weights) * largest > LEAST
            lost = None
            if self._uses_traces:
                lost, traces = self._lost_traces(X, removal), self.traces[groups]
                safe &= (lost == 0) | (traces - lost > LEAST * traces)
            changes = self._changes(X, removal, lost)
            if self.structure.one_variance:
                safe &= changes[0] > LEAST
            else:
                safe &= self._keeps_variance(X, removal, changes, safe)
        return np.asarray(~safe & (weights > 0))

    def _keeps_variance(
        self, X: np.ndarray, removal: Removal, changes: np.ndarray, safe: np.ndarray
    ) -> np.ndarray:
        """Return True for rows without which a covariance keeps its rank, by more than rounding.

        The least eigenvalue of a correlation matrix falls by no smaller ratio than the determinant.
        Distances are computed for the rows whose upper bounds leave a doubt.
        """
        alpha, beta, gamma, _ = changes
        precisions, factors = self._correlated
        squares, largest = self._own_squares(X, removal.codes, precisions)
        # The matrix alpha C + beta I is at least `kept` times C.
        kept = alpha + np.minimum(beta, 0.0) * self._largest_precisions[removal.groups]
        if not self.structure.matrix:
            return np.asarray(kept - gamma * largest > LEAST)
        single = row_type(X.dtype).floating != np.float64
        least = 2 * rank_limit(self.how.tol, self.features.size) * factors[removal.codes]
        least = np.maximum(_LEAST_SINGLE if single else LEAST, least)

        def keeps(distances: np.ndarray, some: np.ndarray) -> np.ndarray:
            rest = 1 - gamma[some] * distances
            own = Removal(*(values[some] for values in removal))
            found = (rest > least[some]) & (kept[some] > LEAST)
            return np.asarray(found & ~self._may_drop(own, distances, rest))

        found = keeps(squares * factors[removal.codes] / kept, np.arange(len(X)))
        at = np.flatnonzero(~found & safe & (removal.weights > 0))
        without = changes.take(at, axis=1)
        without[2] = 0.0  # distances by D
        found[at] = keeps(self._own_distances(X[at], removal.codes[at], without)[0], at)
        return found

    def _may_drop(self, removal: Removal, distances: np.ndarray, rest: np.ndarray) -> Any:
        """Return True for rows without which LDA may drop another discriminant direction.

        By the inequalities of Weyl: a class mean moves by a share of the way to the row, and the
        covariance loses no more than the share `rest` in any direction.
        """
        largest, smallest = self.separations
        if not largest:
            return np.zeros(len(rest), bool)
        left = removal.left / removal.total
        share = self.priors[removal.codes] * left
        step = removal.weights / removal.left * np.sqrt(share * distances)
        kept = np.sqrt(left) * smallest - step
        return ~(kept * np.sqrt(rest) > 2 * self.how.tol * (largest + step))


def _check(model: GaussianModel, how: Regularisation) -> None:
    """Raise `UnsupportedError` for covariances that a row changes in more than one direction."""
    structure = model.structure
    regularised = how.shrinkage or how.reg_param or how.var_smoothing
    problem = ""
    if how.shrinkage_rule:
        problem = f"shrinkage={how.shrinkage!r} is computed from all rows; give the amount found"
    elif how.pooling and structure.per_class:
        problem = f"pooling={how.pooling:g} mixes the covariances; leave it out"
    elif how.standardize and (regularised or structure.one_variance):
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
