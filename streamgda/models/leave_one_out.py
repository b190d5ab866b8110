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

The formulas are for rows that leave enough of their class and of each variance. The others are
found by `GaussianLeaveOneOut.leave_one_out_influential`, and need a fit to all rows but theirs;
scores of rows here are without these.

Sources: B. D. Ripley, Pattern Recognition and Neural Networks, 1996, section 3.2, and ``lda`` and
``qda`` with ``CV=TRUE`` in the package MASS of R; J. Sherman and W. J. Morrison, Annals of
Mathematical Statistics 21, 1950.
"""

from __future__ import annotations

from collections.abc import Callable
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
from streamgda.models.gaussian import GaussianModel, gaps_to
from streamgda.models.model import Finish, by_chunks, check_width, checked_names, posterior
from streamgda.moments import ClassMoments
from streamgda.moments.centred import total_variance
from streamgda.moments.roots import LinearFunctions, rank_limit
from streamgda.rows.arrays import row_type
from streamgda.rows.invalid_rows import as_matrix
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

    def where(self, some: np.ndarray) -> Removal:
        """Return the removal of some of the rows; the others stay."""
        return self._replace(weights=np.where(some, self.weights, 0.0))

    def of(self, some: np.ndarray) -> Removal:
        """Return the entries of some rows."""
        return Removal(*(values[some] for values in self))


class Changes(NamedTuple):
    """Changes of the own covariances of some rows: alpha, beta and gamma, one entry a row.

    `growth` is what smoothing adds to all variances, less what it adds now.
    """

    alpha: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    growth: np.ndarray

    def of(self, some: np.ndarray) -> Changes:
        """Return the entries of some rows."""
        return Changes(*(values[some] for values in self))


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
        held = moments._held_sums().without_products()
        scatter = held.scatter[:, features]
        if structure.per_class < held.structure.per_class:
            scatter = scatter.sum(axis=0, keepdims=True)
        count = held.count.astype(np.float64)
        mean = (count / count.sum()) @ held.mean[:, features]
        squares = total_variance(held)[features] * count.sum()
        own = {f.name: getattr(model, f.name) for f in fields(GaussianModel)}
        sums = {"count": count, "traces": scatter.sum(axis=1), "mean": mean, "squares": squares}
        return cls(**own, **sums, how=how, prior_kind=prior_kind, separations=separations)

    # --- scores of arrays ---------------------------------------------------------------------

    def leave_one_out_posterior(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        refitted: np.ndarray | None = None,
        refits: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the probability of each class by the model without the row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows of the fit.
        first_row : int
            Number of the first row in a larger array.
        codes : ndarray of int
            Classes of the rows of that larger array.
        weights : ndarray of float64, optional
            Their weights; zero for rows that stay.
        refitted, refits : ndarray, shapes (n,) and (n, n_classes); optional
            Numbers of rows whose probabilities are known already, sorted, and these.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities.
        """
        out = np.empty((len(X), self.classes.size))
        self._by_removal(X, first_row, codes, weights, self._scores, posterior, out)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + len(out)]))
            out[refitted[some] - first_row] = refits[some]
        return out

    def leave_one_out_right(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        refitted: np.ndarray | None = None,
        refits: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one for rows that the model without them classifies correctly, zero for others.

        Parameters
        ----------
        X, first_row, codes, weights, refitted, refits : see `leave_one_out_posterior`
            Rows of the fit, their classes and weights, and known probabilities.

        Returns
        -------
        ndarray of float64, shape (n_rows,)
            Ones and zeros.
        """
        found = np.empty(len(X), np.int64)
        self._by_removal(X, first_row, codes, weights, self._scores, scoring.largest, found)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + len(found)]))
            found[refitted[some] - first_row] = refits[some].argmax(axis=1)
        return np.asarray(found == codes[first_row : first_row + len(found)], np.float64)

    def leave_one_out_influential(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one for rows whose removal has to be a refit, zero for others.

        Parameters
        ----------
        X, first_row, codes, weights : see `leave_one_out_posterior`
            Rows of the fit, their classes and weights.

        Returns
        -------
        ndarray of float64, shape (n_rows,)
            Ones and zeros.
        """
        out = np.empty(len(X))

        def copy(found: np.ndarray, part: np.ndarray) -> None:
            part[...] = found

        return self._by_removal(X, first_row, codes, weights, self._influential, copy, out)

    def _by_removal(
        self,
        X: Any,
        first_row: int,
        codes: np.ndarray,
        weights: np.ndarray | None,
        function: Callable[[np.ndarray, Removal], np.ndarray],
        finish: Finish,
        out: np.ndarray,
    ) -> np.ndarray:
        """Compute a function of rows and their removal chunk by chunk, on all threads."""
        X = as_matrix(checked_names(X, self.feature_names), first_row)
        check_width(X, self.n_features)

        def of_chunk(rows: np.ndarray, first: int) -> np.ndarray:
            part = slice(first, first + len(rows))
            own = codes[part].astype(np.int64)
            groups = own if self.structure.per_class else np.zeros_like(own)
            removed = np.ones(own.size) if weights is None else weights[part]
            removal = Removal(own, groups, self.count[own], removed)
            return function(self._read(rows, first), removal)

        return by_chunks(of_chunk, finish, X, self.classes.size, out, first_row, by_blas=True)

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _scores(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""
        changes, codes, each = self._changes(X, removal), removal.codes, np.arange(len(X))
        counted = self.prior_kind == "counted"
        gains = np.log(removal.left / removal.total) if counted else np.zeros(len(X))
        if self.structure.per_class:
            if self._own_from_scores:
                scores = self._relative_scores(X)
                distances = 2 * (self._offsets[codes] - scores[codes, each]) / changes.alpha
                logs = self.features.size * np.log(changes.alpha)
            else:
                distances, logs = self._own_distances(X, codes, changes)
            if self.structure.matrix:
                rest = 1 - changes.gamma * distances
                distances /= rest
                logs += np.log(rest)
            losses = 0.5 * (logs + removal.stretch * distances) - gains
            own = self._offsets[codes] - losses
            if not self._own_from_scores:
                scores = self._other_scores(X, changes.growth, losses)
        else:
            scores = self._pooled_distances(X, codes, changes)
            own = self.log_priors[codes] + gains - 0.5 * removal.stretch * scores[codes, each]
            scores *= -0.5
            scores += self.log_priors[:, None]
        scores[codes, each] = own
        return scores

    @property
    def _own_from_scores(self) -> bool:
        """True if own distances change by a factor, and all scores are computed in full anyway."""
        narrow = self.features.size <= PANEL_FEATURES
        return self.structure.matrix and not self._regularised and narrow

    def _own_distances(
        self, X: np.ndarray, codes: np.ndarray, changes: Changes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return squared distances to the means of classes, and log-determinants less the model's.

        The covariances are D for matrices, and C' for variances.
        """
        distances, logs = np.empty((2, len(X)))
        for k in range(self.classes.size):
            rows, group = np.flatnonzero(codes == k), self.structure.group(k)
            if not rows.size:
                continue
            columns = self._coordinates(X, rows, group, self._class_means[k], self._lows[k])
            alpha, beta, gamma, _ = changes.of(rows)
            gamma = np.zeros(rows.size) if self.structure.matrix else gamma
            found = np.empty((2, rows.size))
            kernels.changed_squares(columns, self.axes[group][1], alpha, beta, gamma, *found)
            distances[rows], logs[rows] = found
        return distances, logs

    def _other_scores(self, X: np.ndarray, growth: np.ndarray, losses: np.ndarray) -> np.ndarray:
        """Return scores with all rows in the classes, but for what smoothing adds to variances.

        Those far below the largest are upper bounds, also beside own scores that lose `losses`.
        """
        moved = np.flatnonzero(np.abs(growth) * self._largest_precision > ROUNDING)
        if moved.size < len(X):
            margin = scoring.FAR + float(np.nan_to_num(losses).max(initial=0.0))
            scores = self._relative_scores(X, margin)
        else:
            scores = np.empty((self.classes.size, len(X)))
        zeros, rows = np.zeros(moved.size), X[moved]
        changes = Changes(zeros + 1, growth[moved], zeros, zeros)
        for k in range(self.classes.size if moved.size else 0):
            distances, logs = self._own_distances(rows, np.full(moved.size, k), changes)
            scores[k, moved] = self._offsets[k] - 0.5 * (logs + distances)
        return scores

    def _pooled_distances(self, X: np.ndarray, codes: np.ndarray, changes: Changes) -> np.ndarray:
        """Return squared distances to all means by a pooled covariance without the row.

        Its determinant is the same for all classes.
        """
        rows, none = np.arange(len(X)), np.zeros(self.features.size)
        columns = self._coordinates(X, rows, 0, self._centre, none)
        scores = np.empty((self.classes.size, len(X)))
        products = np.empty_like(scores) if self.structure.matrix else np.empty((0, 0))
        ridges = self.axes[0][1]
        given = columns, codes, self._white_means, ridges, *changes[:3]
        kernels.pooled_squares(*given, scores, products)
        return scores

    @cached_property
    def _white_means(self) -> np.ndarray:
        """Class means less `xbar`, in the coordinates of a pooled covariance."""
        gaps, axes = gaps_to(self, self.xbar), self.axes[0][0]
        return np.ascontiguousarray(gaps @ axes.T if self.structure.matrix else gaps * axes)

    @cached_property
    def _lows(self) -> np.ndarray:
        """Rounding errors of the class means, of the features in the density."""
        low = self.means_low
        return np.zeros_like(self._class_means) if low is None else self._varying(low)

    # --- coordinates --------------------------------------------------------------------------

    def _coordinates(
        self, X: np.ndarray, rows: np.ndarray, group: int, centre: np.ndarray, low: np.ndarray
    ) -> np.ndarray:
        """Return rows less a point and its rounding error, in white coordinates: (d, n_rows)."""
        axes, features = self.axes[group][0], self._read_features
        if self.structure.matrix:
            some = X if rows.size == len(X) else X[rows]  # in order
            return LinearFunctions(axes, -(axes @ low), features, centre)(some)
        columns = np.empty((features.size, rows.size))
        kernels.scaled_columns(X, rows, features, centre, low, axes, columns)
        return columns

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
    def _largest_precision(self) -> float:
        return float(max(ridges.max() for _, ridges in self.axes))

    @cached_property
    def _deviations(self) -> np.ndarray:
        """Standard deviations of the features, shape (groups, d), from the roots of matrices."""
        out = np.empty(self.roots.shape[:2])
        for root, deviations in zip(self.roots, out, strict=True):
            triangle = root.copy()
            lapack.invert_lower(triangle)
            np.sqrt(np.einsum("ij,ij->i", triangle, triangle), out=deviations)
        return out

    @cached_property
    def _largest_correlations(self) -> np.ndarray:
        """Largest eigenvalues of the inverse correlation matrices, shape (groups,)."""

        def largest(root: np.ndarray, deviations: np.ndarray) -> float:
            scaled = root * deviations
            last = (len(root) - 1,) * 2
            return float(linalg.eigvalsh(scaled @ scaled.T, subset_by_index=last)[0])

        pairs = zip(self.roots, self._deviations, strict=True)
        return np.array(threads.run_serial_blas(largest, pairs))

    # --- changes of covariances ---------------------------------------------------------------

    @property
    def _regularised(self) -> bool:
        how = self.how
        return bool(how.shrinkage or how.reg_param or how.var_smoothing)

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

    def _variances(self, traces: np.ndarray, divisors: np.ndarray) -> np.ndarray:
        """Return mean variances, before they are regularised."""
        average = self.structure.n_averaged(self.features.size, self.n_features)
        return np.asarray(traces / divisors / average)

    def _ridge_of(self, variances: np.ndarray) -> np.ndarray:
        """Return the multiples of I in covariances, but for what smoothing adds."""
        how = self.how
        return (1 - how.reg_param) * float(how.shrinkage or 0) * variances + how.reg_param

    @cached_property
    def _ridges(self) -> np.ndarray:
        """Multiples of I in the covariances of the groups."""
        return self._ridge_of(self._variances(self.traces, self._divisors)) + self._smoothing

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

    def _own_squares(self, X: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return sums of the squares of rows less the means of their classes, over scales."""
        out = np.empty(len(X))
        own = codes, self._class_means, self._lows, scales
        kernels.own_squares(X, self._read_features, *own, out)
        return out

    def _changes(self, X: np.ndarray, removal: Removal) -> Changes:
        """Return the changes of the own covariances of rows by their removal."""
        how, growth, groups = self.how, self._growth(X, removal), removal.groups
        before, variances = self._divisors[groups], np.zeros(len(X))
        after = before - removal.weights
        if self._uses_traces:
            squares = self._own_squares(X, removal.codes, np.ones_like(self._class_means))
            traces = np.maximum(self.traces[groups] - removal.factor * squares, 0.0)
            variances = self._variances(traces, after)
        if self.structure.one_variance:  # one variance, which is what changes
            variances = (1 - how.reg_param) * variances + how.reg_param + self._smoothing + growth
            none = np.zeros(len(X))
            return Changes(variances * self.roots[groups, 0], none, none, growth)
        alpha, share = before / after, (1 - how.reg_param) * (1 - float(how.shrinkage or 0))
        ridges = self._ridge_of(variances) + self._smoothing + growth
        beta = ridges - alpha * self._ridges[groups]
        return Changes(alpha, beta, share * removal.factor / after, growth)

    # --- rows that need a refit ---------------------------------------------------------------

    def _influential(self, X: np.ndarray, removal: Removal) -> np.ndarray:
        """Return True for rows whose removal leaves nothing but rounding errors of something."""
        groups, weights = removal.groups, removal.weights
        divisors = self._divisors[groups]
        found = (weights > 0) & (removal.left <= _LEAST_WEIGHT * removal.total)
        found |= divisors - weights <= _LEAST_WEIGHT * divisors
        if self.structure.one_variance or self._regularised:
            # Features that are constant without a row, or nearly so, in all classes. Otherwise the
            # covariance of the row's own class tells.
            total = self.count.sum()
            factor = total * weights / np.maximum(total - weights, LEAST * total)
            all_rows = self.mean[None], np.zeros((1, self.mean.size)), 1 / self.squares[None]
            found |= self._loses_variance(X, np.zeros(len(X), np.int64), all_rows, factor)
        removal = removal.where(~found)
        if self._uses_traces:
            squares = self._own_squares(X, removal.codes, np.ones_like(self._class_means))
            lost_traces, traces = removal.factor * squares, self.traces[groups]
            found |= (lost_traces > 0) & (traces - lost_traces <= LEAST * traces)
            removal = removal.where(~found)
        changes = self._changes(X, removal)
        if self.structure.matrix:
            found |= self._near_singular(X, removal, changes)
        else:
            own = self._class_means, self._lows, self._class_precisions
            alpha, beta, gamma, _ = changes
            found |= self._loses_variance(X, removal.codes, own, gamma, alpha, beta)
        return np.asarray(found)

    def _loses_variance(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        variances: tuple[np.ndarray, np.ndarray, np.ndarray],
        gamma: np.ndarray,
        alpha: np.ndarray | None = None,
        beta: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return True for rows that hold nearly all of a variance of their class.

        `variances` are means, their rounding errors, and precisions. Without alpha and beta, they
        lose no more than the row.
        """
        out = np.empty(len(X), bool)
        alpha = np.ones(len(X)) if alpha is None else alpha
        beta = np.zeros(len(X)) if beta is None else beta
        given = self._read_features, codes, *variances, alpha, beta, gamma
        kernels.loses_variance(X, *given, out)
        return out

    @cached_property
    def _class_precisions(self) -> np.ndarray:
        """One over the variances of the classes, shape (n_classes, d)."""
        return self.roots[self.structure.groups(self.classes.size)]

    def _near_singular(self, X: np.ndarray, removal: Removal, changes: Changes) -> np.ndarray:
        """Return True for rows without which a matrix may have a lower rank, or nearly so.

        The least eigenvalue of a correlation matrix falls by no smaller ratio than the determinant.
        Distances are computed for the rows whose upper bounds leave a doubt.
        """
        groups, precisions = removal.groups, self._largest_correlations[removal.groups]
        single = row_type(X.dtype).floating != np.float64
        least = 2 * rank_limit(self.how.tol, self.features.size) * precisions
        least = np.maximum(_LEAST_SINGLE if single else LEAST, least)

        def doubtful(distances: np.ndarray, some: np.ndarray) -> np.ndarray:
            rest = 1 - changes.gamma[some] * distances
            return ~(rest > least[some]) | self._may_drop(removal.of(some), distances, rest)

        # The matrix alpha C + beta I is at least `kept` times C.
        ridges, (alpha, beta, *_) = self._ridges[groups], changes
        shares = np.divide(beta, ridges, out=np.zeros(len(X)), where=ridges > 0)
        kept = alpha + np.minimum(shares, 0.0)
        unsafe = kept <= LEAST
        scales = self._deviations[self.structure.groups(self.classes.size)]
        bounds = self._own_squares(X, removal.codes, scales) * precisions / np.maximum(kept, LEAST)
        found = (doubtful(bounds, np.arange(len(X))) | unsafe) & (removal.weights > 0)
        at = np.flatnonzero(found)
        distances, _ = self._own_distances(X[at], removal.codes[at], changes.of(at))
        found[at] = doubtful(distances, at) | unsafe[at]
        return found

    def _may_drop(self, removal: Removal, distances: np.ndarray, rest: np.ndarray) -> Any:
        """Return True for rows without which LDA may drop another discriminant direction.

        By the inequalities of Weyl: a class mean moves by a share of the way to the row, and the
        covariance loses no more than the share `rest` in any direction.
        """
        largest, smallest = self.separations
        if not largest:
            return False
        with np.errstate(invalid="ignore"):
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
