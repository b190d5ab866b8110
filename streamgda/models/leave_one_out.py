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
from typing import Any, Self

import numpy as np
from scipy import linalg

from streamgda.errors import UnsupportedError
from streamgda.kernels import leave_one_out as kernels
from streamgda.kernels import scoring
from streamgda.kernels.leave_one_out import LEAST
from streamgda.kernels.scoring import PANEL_FEATURES
from streamgda.models.covariance import Regularisation
from streamgda.models.gaussian import GaussianModel
from streamgda.models.model import log_posterior, posterior, tempered
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.adding import in_class_order
from streamgda.moments.roots import Distances, LinearFunctions, MatrixDistances, among, rank_limit
from streamgda.moments.sums import total_variance
from streamgda.rows.counting import all_finite
from streamgda.runtime import lapack, threads

ROUNDING = 1e-13  # largest change of a distance, as a share of it, that rounding exceeds
_TERMS = 2  # of a series, which take less time than the sum of all
_LEAST_WEIGHT = 1e-4  # share of a weight whose loss adds rounding errors to the means
_LEAST_SINGLE = 1e-3  # as kernels.LEAST, for products in float32
_HUGE = 1e300


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
    alone : ndarray of bool, shape (n_classes,)
        Classes that may hold nearly all of the variance of a feature.
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
    alone: np.ndarray = field(kw_only=True)
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
        sums["alone"] = np.ones(count.size, bool)
        if held.structure.per_class:
            within = held.packed[:, features]
            others = within.sum(axis=0) - within
            sums["alone"] = ~(others > _LEAST_SINGLE * squares).all(axis=1)
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
        influential: np.ndarray | None = None,
        temperature: float = 1.0,
    ) -> np.ndarray:
        """Return what the model without the row says of each row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows of the fit.
        first_row : int
            Number of the first row in a larger array.
        answer : {"posterior", "log_posterior", "right"}
            The probability of each class, or its logarithm; or one for rows that are classified
            correctly and zero for others.
        codes : ndarray of int
            Classes of the rows of that larger array.
        weights : ndarray of float64, optional
            Their weights; zero for rows that stay.
        refitted, refits : ndarray, shapes (n,) and (n, n_classes); optional
            Numbers of rows whose log-probabilities are known already, sorted, and these.
        influential : ndarray of bool, optional
            Gets True, in place of False, for rows of that larger array whose removal has to be a
            refit.
        temperature : float
            Temperature of the probabilities that are returned.

        Returns
        -------
        ndarray, shape (n_rows, n_classes) or (n_rows,)
            The answers; NaN for rows whose removal has to be a refit.
        """
        n, k = X.shape[0], self.classes.size
        some = slice(first_row, first_row + n)
        finish, out = {
            "posterior": (posterior, np.empty((n, k))),
            "log_posterior": (log_posterior, np.empty((n, k))),
            "right": (scoring.largest, np.empty(n, np.int64)),
        }[answer]

        def write(rows: np.ndarray, out: np.ndarray, codes: np.ndarray, *of_rows: Any) -> bool:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                scores, own = self._scores(rows, codes, *of_rows)
            finite = all_finite(own)
            finish(tempered(scores, temperature), out)
            return finite and rows.shape[1] == self.features.size

        own = codes[some].astype(np.int64)
        influential = np.zeros(n, bool) if influential is None else influential[some]
        removed = () if weights is None else (weights[some],)
        of_rows, unused = (own, influential, *removed), self._relative_scores
        self._score(X, unused, finish, first_row, out, *of_rows, write=write)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + n]))
            known = np.empty_like(out, shape=(some.stop - some.start, *out.shape[1:]))
            finish(tempered(refits[some].T.copy(), temperature), known)
            out[refitted[some] - first_row] = known
        if answer == "right":
            out = np.asarray(out == own, np.float64)
        if removed:
            influential &= removed[0] > 0
        out[influential] = np.nan
        return out

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _scores(
        self, X: np.ndarray, codes: np.ndarray, influential: np.ndarray, *weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return joint log-likelihoods, up to a term that classes share, and those of a class.

        True is written to `influential` for rows whose removal leaves nothing but rounding errors
        of something, and whose scores have no meaning.
        """
        pooled = not self.structure.per_class
        means = None if pooled or self.means_low is not None else self._from_means
        if not (pooled or isinstance(means, MatrixDistances)):
            scores = self._relative_scores(X)  # first, as it loads rows before they are needed
        growth, at = self._growth(X, codes, *weights), np.arange(len(X))
        if weights:
            table = self._table(codes, weights[0], X.dtype)
        else:
            table, at = self._of_classes(X.dtype == np.float32), codes
        changes = growth
        if self._uses_traces:
            squares = self._own_squares(X, codes, np.ones_like(self._class_means))[0]
            changes = growth - table[6].take(at) * squares
            influential |= ~(squares <= table[7].take(at))
        if self._regularised or self.structure.one_variance:
            self._find_alone(X, codes, influential, *weights)
        if pooled:
            scores = self._pooled(X, codes, at, table, changes, influential)
            return scores, scores[0]
        wide, known = self.structure.matrix and self.features.size > PANEL_FEATURES, None
        if self._by_factors and not wide and not self.how.var_smoothing:
            known = scores.reshape(-1).take(codes * len(X) + np.arange(len(X)))
        own = self._own_scores(X, codes, at, table, changes, influential, known)
        if isinstance(means, MatrixDistances):
            # Those far below the largest, which may be the own, are upper bounds.
            scores = means.others(X, -0.5, self._offsets, codes, own)
        if self.how.var_smoothing:
            self._add_growth(scores, X, growth)
        kernels.put_own(own, codes, scores)
        return scores, own

    def _own_scores(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        at: np.ndarray,
        table: np.ndarray,
        growth: np.ndarray,
        influential: np.ndarray,
        known: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the scores of rows for their own classes, by covariances without the rows.

        Those with the rows may be `known`, and give these, where a row only adds a factor.
        """
        own, d, n_classes = np.empty(len(X)), self.features.size, self.classes.size
        constant = not (self._uses_traces or self.how.var_smoothing)
        if known is not None:
            alphas = self._alphas(codes, at, table, growth, influential)
            squares = (2 * self._offsets).take(codes) - 2 * known
            squares /= alphas
            logs = d * np.log(alphas)
        elif not self.structure.matrix:
            given = self._class_means, self._lows, self._root_of_classes, self._offsets
            ordered = *among(X, self._read_features), *in_class_order(codes, n_classes)
            kernels.own_variances(*ordered, at, *given, table, growth, own, influential)
            return own
        elif at is codes and constant and self.means_low is None:
            distances, of_classes = self._without_one
            squares, logs = distances.own(X, codes), of_classes.take(codes)
        else:
            squares, logs = np.empty((2, len(X)))
            order, starts = in_class_order(codes, n_classes)
            for k in np.flatnonzero(np.diff(starts)).tolist():
                rows = order[starts[k] : starts[k + 1]]
                columns = self._coordinates[k](X if rows.size == len(X) else X.take(rows, axis=0))
                ridges = self.axes[self.structure.group(k)][1]
                kernels.white_squares(columns, rows, at, table, growth, ridges, squares, logs)
        kernels.own_by_factors(codes, at, table, squares, logs, self._offsets, own, influential)
        return own

    def _add_growth(self, scores: np.ndarray, X: np.ndarray, growth: np.ndarray) -> None:
        """Add what scores change by if smoothing adds more to all variances."""
        shares = growth * self._largest_precisions.max()
        rows = np.flatnonzero(np.abs(shares) > ROUNDING)
        for power in range(1, _TERMS + 1):
            if not rows.size:
                return
            distances, offsets = self._terms(power)
            terms = distances.scores(X.take(rows, axis=0), 1.0, offsets)
            terms *= -0.5 * (-shares.take(rows)) ** power
            kernels.add_columns(terms, rows, scores)
            rows = rows[np.abs(shares.take(rows)) > ROUNDING ** (1 / (power + 1))]
        # The others would need more terms.
        n, table = rows.size, np.array([[1.0], [0], [0], [1], [0], [np.inf]])
        given = np.zeros(n, np.int64), table, growth[rows], np.zeros(n, bool)
        some = X.take(rows, axis=0)
        for k in range(self.classes.size if n else 0):
            scores[k, rows] = self._own_scores(some, np.full(n, k), *given)

    @cached_property
    def _powers(self) -> dict[int, tuple[Distances, np.ndarray]]:
        return {}

    def _terms(self, power: int) -> tuple[Distances, np.ndarray]:
        r"""Return distances, and what they are added to, of a term of a series.

        With :math:`D = C + g I`, :math:`\delta^T D^{-1} \delta + \ln |D|` is the same of C, and the
        sum of :math:`(-g)^p (\delta^T C^{-p-1} \delta - \mathrm{tr}\, C^{-p} / p)` over the powers
        p from one. Here, g is a share of the least variance.
        """
        if power not in self._powers:
            roots, traces = np.empty_like(self.roots), np.empty(len(self.roots))
            for g, (axes, ridges) in enumerate(self.axes):
                shares = (ridges / self._largest_precisions.max()) ** power
                own = self.roots[g] * shares
                roots[g] = _triangular(axes, shares) if self.structure.matrix else own
                traces[g] = shares.sum()
            squares = self.structure.packed(roots, self._read_features, self._class_means)
            self._powers[power] = squares, -traces / power
        return self._powers[power]

    @cached_property
    def _without_one(self) -> tuple[MatrixDistances, np.ndarray]:
        """Distances by D, of rows of weight one, and what it adds to log-determinants."""
        roots, logs = np.empty_like(self.roots), np.empty(len(self.roots))
        changes = zip(*self._of_classes(False)[:2], strict=True)
        for g, ((axes, ridges), (alpha, beta)) in enumerate(zip(self.axes, changes, strict=True)):
            variances = alpha + beta * ridges
            # Without any other row there are none, and the row is influential.
            variances[~((variances > LEAST) & (variances < np.inf))] = 1.0
            roots[g], logs[g] = _triangular(axes, 1 / variances), np.log(variances).sum()
        return MatrixDistances(roots, self._read_features, self._class_means), logs

    def _pooled(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        at: np.ndarray,
        table: np.ndarray,
        growth: np.ndarray,
        influential: np.ndarray,
    ) -> np.ndarray:
        """Return the scores by a pooled covariance without the row.

        Its determinant is the same for all classes.
        """
        changes = codes, at, table
        if self._by_factors:
            # A row is multiplied by the root once, for its distance to `xbar`.
            scores, [shared] = self._relative_scores(X), self._shared_scores(X)
            alphas = self._alphas(*changes, growth, influential)
            given = alphas, self._gaps, self._offsets, self.log_priors
            kernels.removed_products(shared, *changes, *given, scores, influential)
            return scores
        [(scales, ridges)], centre, matrix = self.axes, self._centre, self.structure.matrix
        columns = self._coordinates[0](X) if matrix else self._used(X).T
        if matrix:
            centre, scales = np.zeros_like(centre), np.ones_like(centre)
        scores = np.empty((self.classes.size, len(X)))
        coordinates = columns, centre, scales
        means = self._white_means, ridges, matrix, self.log_priors
        kernels.pooled_scores(*coordinates, *changes, growth, *means, scores, influential)
        return scores

    def _alphas(
        self,
        codes: np.ndarray,
        at: np.ndarray,
        table: np.ndarray,
        growth: np.ndarray,
        influential: np.ndarray,
    ) -> np.ndarray:
        """Return the factors of covariances, the growth of a single variance included."""
        alphas = table[0].take(at)
        if self.structure.one_variance:
            alphas += growth * self._root_of_classes[:, 0].take(codes)
            influential |= ~(alphas > LEAST)
        return np.asarray(alphas)

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
        """White coordinates about the class means, or about `xbar` if pooled."""
        points = [*zip(self._class_means, self._lows, strict=True)]
        if not self.structure.per_class:
            points = [(self._centre, np.zeros(self.features.size))]
        return [
            LinearFunctions(own, -(own @ low), self._read_features, centre)
            for (own, _), (centre, low) in zip(self.axes, points, strict=True)
        ]

    def _used(self, X: np.ndarray) -> np.ndarray:
        """Return rows without features that are not in the density."""
        return X if self.features.size == X.shape[1] else X.take(self.features, axis=1)

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
    def _root_of_classes(self) -> np.ndarray:
        """Precisions of the features of each class."""
        roots = self.roots[self.structure.groups(self.classes.size)]
        return np.require(roots, requirements="W")

    @cached_property
    def _inverse_correlations(self) -> np.ndarray:
        """Largest eigenvalues of the inverse correlation matrices, shape (groups,)."""

        def of_group(root: np.ndarray) -> float:
            triangle, last = root.copy(), (len(root) - 1,) * 2
            lapack.invert_lower(triangle)
            scaled = root * np.sqrt(np.einsum("ij,ij->i", triangle, triangle))
            return float(linalg.eigvalsh(scaled @ scaled.T, subset_by_index=last)[0])

        return np.array(threads.run_serial_blas(of_group, ((root,) for root in self.roots)))

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

    def _growth(self, X: np.ndarray, codes: np.ndarray, *weights: np.ndarray) -> np.ndarray:
        """Return what smoothing adds to the variances without the rows, less what it adds now."""
        growth = np.zeros(len(X))
        if self.how.var_smoothing:
            total, mean, squares = self._smoothed
            w = weights[0] if weights and self.unweighted is None else np.empty(0)
            smoothing = self.how.var_smoothing, self._smoothing
            given = mean, squares, np.argsort(-squares), total, w, *smoothing
            kernels.smoothing_growth(X, self._read_features, *given, growth)
        return growth

    def _own_squares(
        self, X: np.ndarray, codes: np.ndarray, precisions: np.ndarray, *points: np.ndarray
    ) -> np.ndarray:
        """Return the sum and the largest of the squares of rows less points, times precisions.

        The points are the means of the classes by default.
        """
        out = np.empty((2, len(X)))
        points = points or (self._class_means, self._lows)
        kernels.own_squares(self._used(X), codes, *points, precisions, *out)
        return out

    @cached_property
    def _tables(self) -> dict[bool, np.ndarray]:
        return {}

    def _of_classes(self, single: bool) -> np.ndarray:
        """Return the table of rows of weight one, one of each class."""
        if single not in self._tables:
            k, kind = self.classes.size, np.dtype(np.float32 if single else np.float64)
            self._tables[single] = self._table(np.arange(k), np.ones(k), kind)
        return self._tables[single]

    def _table(self, codes: np.ndarray, weights: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return what the removal of rows changes, given their classes and weights, shape (8, n).

        They are alpha, beta and gamma; the squared distance to the own mean without the row, as a
        multiple of that with it; what is added to the logarithm of the own prior; and the limit of
        the distance, by D, beyond which a row is influential. Beta lacks what smoothing adds, and
        what the trace of the scatter loses: times the squared length of the row less its mean,
        that is next; last, the limit of that square. A single variance loses it from alpha, in
        units of the variance.
        """
        how, structure, d = self.how, self.structure, self.features.size
        groups = structure.groups(self.classes.size)[codes]
        share = 1.0 if structure.one_variance else float(how.shrinkage or 0)
        with np.errstate(all="ignore"):
            total, before, traces = self.count[codes], self._divisors[groups], self.traces[groups]
            left, after = total - weights, before - weights
            lost = total * weights / left  # of the scatter, times a square
            safe = (left > _LEAST_WEIGHT * total) & (after > _LEAST_WEIGHT * before)
            variances, ridges = self._ridge_of(traces, after)
            average = structure.n_averaged(d, self.n_features)
            of_trace = (1 - how.reg_param) * share * lost / (after * average)
            stretch = np.square(total / left)
            gain = np.log(left / total) if self.prior_kind == "counted" else np.zeros(codes.size)
            limit = np.where(safe, np.inf, -1.0)
            if structure.one_variance:  # which is what changes
                alpha = (1 - how.reg_param) * variances + how.reg_param + self._smoothing
                alpha *= self.roots[groups, 0]
                beta = gamma = np.zeros(codes.size)
            else:
                gamma = (1 - how.reg_param) * (1 - share) * lost / after
                alpha = before / after
                beta = ridges + self._smoothing - alpha * self._ridges[groups]
            if structure.matrix:
                kept = alpha + np.minimum(beta, 0.0) * self._largest_precisions[groups]
                least = 2 * rank_limit(how.tol, d) * self._inverse_correlations[groups]
                least = np.maximum(_LEAST_SINGLE if dtype == np.float32 else LEAST, least)
                limit = np.where(safe & (kept > LEAST), (1 - least) / gamma, -1.0)
                limit = np.minimum(limit, self._limit_of_directions(codes, weights, gamma))
            limit[weights == 0] = np.inf
            most = (1 - LEAST) * traces / lost
        return np.stack([alpha, beta, gamma, stretch, gain, limit, of_trace, most])

    def _find_alone(
        self, X: np.ndarray, codes: np.ndarray, influential: np.ndarray, *weights: np.ndarray
    ) -> None:
        """Find features that are constant without a row, or nearly so, in all classes.

        Without regularisation, the covariance of the row's own class tells.
        """
        rows: Any = []
        if self.alone.any():
            rows = slice(None) if self.alone.all() else np.flatnonzero(self.alone[codes])
        if (own := codes[rows]).size:
            total, point = self.count.sum(), (self.mean[None], np.zeros((1, self.mean.size)))
            zeros, w = np.zeros_like(own), weights[0][rows] if weights else 1.0
            largest = self._own_squares(X[rows], zeros, 1 / self.squares[None], *point)[1]
            with np.errstate(divide="ignore", invalid="ignore"):
                influential[rows] |= ~(1 - total * w / (total - w) * largest > LEAST)

    def _limit_of_directions(
        self, codes: np.ndarray, weights: np.ndarray, gamma: np.ndarray
    ) -> np.ndarray:
        """Return the distances of rows without which LDA keeps its discriminant directions.

        By the inequalities of Weyl: a class mean moves by a share of the way to the row, and the
        covariance loses no more than the share `rest` in any direction.
        """
        largest, smallest = self.separations
        if not largest:
            return np.full(codes.size, np.inf)
        total, tol = self.count[codes], self.how.tol
        left = (total - weights) / total
        step = weights / (total - weights) * np.sqrt(self.priors[codes] * left)
        limits = np.full(codes.size, -1.0)
        for rest in (0.25, 0.05, 0.01, 1e-3, 1e-5):
            root = np.sqrt(rest)
            most = (np.sqrt(left) * smallest * root - 2 * tol * largest) / (root + 2 * tol)
            most = np.where(most > 0, np.square(most / step), -1.0)
            limits = np.maximum(limits, np.minimum(most, (1 - rest) / gamma))
        return limits


def _triangular(axes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the lower triangular root W of the matrix ``axes.T @ diag(weights) @ axes``, W' W."""
    rows = np.sqrt(weights)[:, None] * axes
    return np.asarray(linalg.qr(rows[:, ::-1], mode="r", check_finite=False)[0][::-1, ::-1])


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
