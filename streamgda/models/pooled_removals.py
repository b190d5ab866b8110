"""Scores by pooled covariances without single rows."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from streamgda.kernels.leave_one_out import pick, place, pooled_from_scores, pooled_squares
from streamgda.models.gaussian import gaps_to
from streamgda.models.removals import Removal
from streamgda.models.row_removals import RowRemovals
from streamgda.moments.structures.packing import Rounded, linear_scores

_NO_PRODUCTS = np.empty((0, 0))


class PooledRemovals(RowRemovals):
    """Base of `GaussianLeaveOneOut`: a removed row changes the distances to all means.

    The determinant is the same for all classes, and left out of the scores.
    """

    def _pooled(self, X: np.ndarray, removal: Removal, growth: np.ndarray) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""
        structure = self.structure
        if structure.kind == "spherical":
            scores, own = self._by_sphere(X, removal, growth)
        elif structure.matrix and self._plain:
            scores, own = self._from_linear(X, removal, growth)
        else:
            scores, own = self._from_columns(X, removal, growth)
        own *= -0.5 * removal.stretch
        own += self.log_priors[removal.codes] + self._prior_changes(removal)
        place(own, removal.codes, scores)
        return scores

    def _by_sphere(
        self, X: np.ndarray, removal: Removal, growth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores by one variance, and squared distances to the own means."""
        scores = self._to_means(X) / self.roots[0, 0]
        own = np.empty(len(X))
        pick(scores, removal.codes, own)
        variances = self._sphere(removal, own, growth)
        scores *= -0.5 / variances
        scores += self.log_priors[:, None]
        return scores, own / variances

    def _from_linear(
        self, X: np.ndarray, removal: Removal, growth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores, and squared distances to the own means, from linear scores."""
        d, codes = self.features.size, removal.codes
        linear = self._products(X, self._packed_coefficients, self._own_terms)
        at_zero = np.arange(d), np.zeros((1, d)), 1.0, np.zeros(1)
        centred = self._centred(X, codes)
        own = self.structure.scores(self._packed_roots, centred, *at_zero)[0]
        alpha, _, gamma = self._changes(removal, growth)
        rest = 1 - gamma * own / alpha
        shrink, downdate = 1 / alpha, gamma / rest
        picked = np.empty(len(X))
        pick(linear, codes, picked)
        terms = linear, picked, codes, own, self._gaps, shrink, downdate
        pooled_from_scores(*terms, self.log_priors, linear)
        return linear, own * shrink / rest

    @cached_property
    def _own_terms(self) -> np.ndarray:
        """Constant terms of the linear scores, without priors."""
        gaps = gaps_to(self, self.xbar)
        return np.asarray(-0.5 * (gaps * self.linear[0]).sum(axis=1))

    @cached_property
    def _gaps(self) -> np.ndarray:
        """Squared distances between the class means."""
        white = self._white(self.roots[0])[1]
        return np.array([np.square(white - mean).sum(axis=1) for mean in white])

    def _white(self, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return a point between the class means, and these about it in other coordinates."""
        middle = self._class_means.mean(axis=0)
        return middle, np.ascontiguousarray((self._class_means - middle) @ axes.T)

    def _from_columns(
        self, X: np.ndarray, removal: Removal, growth: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return scores, and squared distances to the own means, in diagonal coordinates."""
        d, codes = self.features.size, removal.codes
        alpha, beta, gamma = self._changes(removal, growth, self._squares_to_own(X, codes))
        scores, products, inner = np.empty((self.classes.size, len(X))), _NO_PRODUCTS, gamma
        centres, precisions, ridges = self._class_means, self._precisions[0], self._precisions[0]
        if self.structure.matrix:
            axes, ridges = self.axes[0]
            middle, centres = self._white(axes)
            columns = linear_scores(X, self._read_features, middle, Rounded(axes), np.zeros(d))
            products, inner, precisions = np.empty_like(scores), np.zeros(len(X)), np.ones(d)
        else:
            columns = np.ascontiguousarray(X[:, self.features].T, np.float64)
        terms: Any = columns, codes, centres, precisions, ridges, alpha, beta, inner
        pooled_squares(*terms, scores, products)
        own = np.empty(len(X))
        pick(scores, codes, own)
        rest = 1 - (gamma - inner) * own
        if self.structure.matrix:
            np.square(products, out=products)
            products *= gamma / rest
            scores += products
        scores *= -0.5
        scores += self.log_priors[:, None]
        return scores, own / rest
