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
\beta \pi_j`, with the eigenvalues :math:`\pi` of that matrix. Variances are changed one by one.

Sources: B. D. Ripley, Pattern Recognition and Neural Networks, 1996, section 3.2, and ``lda`` and
``qda`` with ``CV=TRUE`` in the package MASS of R; J. Sherman and W. J. Morrison, Annals of
Mathematical Statistics 21, 1950.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamgda.kernels import leave_one_out as kernels
from streamgda.kernels import scoring
from streamgda.kernels.narrow_distances import MAX_FEATURES
from streamgda.models.pooled_removals import PooledRemovals
from streamgda.models.removals import Removal
from streamgda.moments.structures.packing import NO_LABELS, Rounded, linear_scores

# Largest changes of a distance, as shares of it, that rounding exceeds, and whose squares it does.
ROUNDING, _FIRST_ORDER = 1e-13, 1e-8


@dataclass(frozen=True)
class GaussianLeaveOneOut(PooledRemovals):
    """A Gaussian model, each of whose rows is scored without it; see `RowRemovals`."""

    # --- scores of a chunk of rows ------------------------------------------------------------

    def _scores(self, X: np.ndarray, removal: Removal, first: int) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""
        growth = self._growth(X, removal)
        if not self.structure.per_class:
            return self._pooled(X, removal, growth)
        if self.structure.kind == "spherical":
            return self._spherical(X, removal, growth)
        if self.structure.matrix and self._plain:
            return self._of_matrices(X, removal, growth)
        return self._ridged(X, removal, growth)

    @cached_property
    def _offsets(self) -> np.ndarray:
        """Scores of the classes at their means."""
        return np.asarray(self._constants + self.log_priors)

    @property
    def _wide(self) -> bool:
        return self.structure.matrix and self.features.size > MAX_FEATURES

    def _own_offsets(self, removal: Removal) -> np.ndarray:
        """Return the scores of the own classes at their means, with priors without the row."""
        return np.asarray(self._offsets[removal.codes] + self._prior_changes(removal))

    def _downdated(
        self,
        removal: Removal,
        distances: np.ndarray,
        logs: np.ndarray,
        gamma: np.ndarray,
    ) -> np.ndarray:
        """Return the scores of rows for their own classes, whose covariances lose the row."""
        rest = 1 - gamma * distances
        scores = logs + np.log(rest) + removal.stretch * distances / rest
        return np.asarray(self._own_offsets(removal) - 0.5 * scores)

    def _of_matrices(self, X: np.ndarray, removal: Removal, growth: np.ndarray) -> np.ndarray:
        """Return scores by matrices without regularisation."""

        def own_of(scores: np.ndarray) -> np.ndarray:
            alpha, _, gamma = self._changes(removal, growth)
            distances = 2 * (self._offsets[removal.codes] - scores) / alpha
            logs = self.features.size * np.log(alpha)
            return self._downdated(removal, distances, logs, gamma)

        if self._wide:
            return self._beside(X, removal.codes, own_of)
        scores, own = self._relative_scores(X), np.empty(len(X))
        kernels.pick(scores, removal.codes, own)
        kernels.place(own_of(own), removal.codes, scores)
        return scores

    def _ridged(self, X: np.ndarray, removal: Removal, growth: np.ndarray) -> np.ndarray:
        """Return scores by regularised matrices or by variances."""
        codes = removal.codes
        alpha, beta, gamma = self._changes(removal, growth, self._squares_to_own(X, codes))
        distances, logs, factors = np.empty((3, len(X)))
        own: Any = X, self._read_features, codes, self._class_means
        sums = np.empty(self.features.size), distances, logs, factors
        if self._wide:
            for k in np.unique(codes):
                rows = np.flatnonzero(codes == k)
                found = self._varied(X[rows], k, alpha[rows], beta[rows])
                distances[rows], logs[rows] = found
        elif self.structure.matrix:
            kernels.own_matrix_squares(*own, *self._packed_axes, alpha, beta, *sums)
            logs += np.log(factors)
        else:
            kernels.own_diagonal_squares(*own, self._precisions, alpha, beta, gamma, *sums)
            logs += np.log(np.abs(factors))
            gamma = np.zeros(len(X))
        replaced = self._downdated(removal, distances, logs, gamma)
        change = self._relative_change(growth)
        if change > _FIRST_ORDER or (change > ROUNDING and self.structure.matrix):
            scores = np.empty((self.classes.size, len(X)))
            for k in range(self.classes.size):
                distances, logs = self._varied(X, k, np.ones(len(X)), growth)
                scores[k] = self._offsets[k] - 0.5 * (logs + distances)
        elif self._wide:
            return self._beside(X, codes, replaced)
        else:
            scores = self._relative_scores(X)
            moved = np.flatnonzero(np.abs(growth) * self._largest_precision > ROUNDING)
            if moved.size:
                scores[:, moved] += self._first_order(X[moved]) * growth[moved]
        kernels.place(replaced, codes, scores)
        return scores

    def _first_order(self, X: np.ndarray) -> np.ndarray:
        """Return the derivatives of scores by variances with respect to what is added to these."""
        roots = self._precisions
        out = np.empty((self.classes.size, len(X)))
        terms = self._class_means, np.square(roots), 0.5, -0.5 * roots.sum(axis=1)
        scoring.diagonal_scores(X, self._read_features, *terms, out, NO_LABELS)
        return out

    def _varied(
        self, X: np.ndarray, k: int, alpha: np.ndarray, beta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return squared distances to class k, and log-determinants less that of the model."""
        d = self.features.size
        centre, features = self._class_means[k], self._read_features
        if self.structure.matrix:
            axes, ridges = self.axes[k]
            columns = linear_scores(X, features, centre, Rounded(axes), np.zeros(d))
            centre, precisions = np.zeros(d), np.ones(d)
        else:
            columns = np.ascontiguousarray(X[:, features].T, np.float64)
            precisions = ridges = self._precisions[k]
        distances, logs = np.empty((2, len(X)))
        terms = columns, centre, precisions, ridges, alpha, beta
        kernels.varied_squares(*terms, distances, logs)
        return distances, logs

    def _beside(self, X: np.ndarray, codes: np.ndarray, own: Any) -> np.ndarray:
        """Return scores with those of the own classes, of which the others may fall short."""
        scored = X, self._read_features, self._centres, -0.5, self._offsets, scoring.FAR
        scores: np.ndarray = self._packed_roots.scores_beside(*scored, codes, own)
        return scores

    def _spherical(self, X: np.ndarray, removal: Removal, growth: np.ndarray) -> np.ndarray:
        """Return scores by one variance of each class."""
        codes, own = removal.codes, np.empty(len(X))
        d, before = self.features.size, 1 / self.roots[:, :1]
        squares = self._to_means(X) * before
        kernels.pick(squares, codes, own)
        after = self._sphere(removal, own, growth)
        if growth.any():
            variances = before + growth
            scores = d * np.log(variances / before) + squares / variances
        else:
            scores = squares / before
        scores *= -0.5
        scores += self._offsets[:, None]
        logs = d * np.log(after / before[codes, 0])
        distances = removal.stretch * own / after
        kernels.place(self._own_offsets(removal) - 0.5 * (logs + distances), codes, scores)
        return scores
