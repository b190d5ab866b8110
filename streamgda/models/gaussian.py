"""`Gaussians`: classes with Gaussian densities, which score rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import special

from streamgda.errors import UnsupportedError
from streamgda.kernels.panels import diagonal_scores, largest, triangle_scores
from streamgda.models.covariance import Summary, inverse_roots
from streamgda.models.scoring import ClassModel, copied
from streamgda.rows.counting import kernel_type
from streamgda.rows.labels import find
from streamgda.runtime import threads

_LOG_2PI = np.log(2 * np.pi)
_FLOAT64_FEATURES = 12  # So few are multiplied in float64, whatever the rows are.


@dataclass(frozen=True, eq=False)
class Gaussians(ClassModel):
    """Gaussian densities of classes, with their priors.

    Classes that are not in `alive`, as they have no rows or no invertible covariance, have scores
    of -inf, and distances of NaN.

    Attributes
    ----------
    classes, priors, count : ndarray, shape (n_classes,)
        Labels, prior probabilities, and rows or their weights.
    n_features : int
        Width of the rows.
    features : ndarray of int, shape (d,)
        Features of the densities.
    origin : ndarray, shape (d,)
        Subtracted from rows first, so that nothing is lost far from zero.
    centres : ndarray, shape (n_classes, d)
        Class means less the origin.
    alive : ndarray of int
        Indices of the classes that have a density.
    roots : ndarray, shape (n_alive or 1, r, d), or (n_alive or 1, d)
        W with W'W the inverse covariance, lower triangular if there is one for each class; or one
        over the variances.
    log_determinants : ndarray, shape (n_alive or 1,)
    degrees, unbiased : ndarray, shape (n_classes,)
        Degrees of freedom of the covariances, and the factors that make Hotelling's T2 of squared
        distances.
    ranks : ndarray of int
        Ranks of the covariances, also of those without an inverse.
    one_variance : bool
        The variances of a class are one.
    """

    classes: np.ndarray
    priors: np.ndarray
    count: np.ndarray
    n_features: int
    features: np.ndarray
    origin: np.ndarray
    centres: np.ndarray
    alive: np.ndarray
    roots: np.ndarray
    log_determinants: np.ndarray
    degrees: np.ndarray
    unbiased: np.ndarray
    ranks: np.ndarray
    one_variance: bool

    @property
    def takes_sparse(self) -> bool:  # type: ignore[override]
        """True for variances, by which sparse rows are scored as they are."""
        return self.roots.ndim == 2

    @property
    def rank(self) -> int:
        """Number of directions of the densities."""
        return self.roots.shape[1]

    # --- scores of a block of rows ------------------------------------------------------------

    @cached_property
    def _constants(self) -> np.ndarray:
        """Scores at the centres, of the classes that are alive."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.priors[self.alive])
        return np.asarray(logs - 0.5 * (self.log_determinants + self.rank * _LOG_2PI))

    @cached_property
    def _centres(self) -> np.ndarray:
        return np.ascontiguousarray(self.centres[self.alive])

    def _among_all(self, scores: np.ndarray, fill: float) -> np.ndarray:
        """Return scores of the classes that are alive among those of all."""
        if self.alive.size == self.classes.size:
            return scores
        every = np.full((self.classes.size, scores.shape[1]), fill)
        every[self.alive] = scores
        return every

    def _floating(self, X: np.ndarray) -> Any:
        few = self.features.size <= _FLOAT64_FEATURES or self.roots.ndim == 2
        return np.float32 if not few and kernel_type(X.dtype) == np.float32 else np.float64

    def _scores(self, X: Any, scale: float, constants: np.ndarray) -> np.ndarray:
        """Return ``constants[k] + scale * squared distance`` of the classes that are alive."""
        if not isinstance(X, np.ndarray):
            return self._sparse_scores(X, scale, constants)
        out = np.empty((constants.size, len(X)))
        if self.roots.ndim == 2:
            given = self.features, self.origin, self._centres, self.roots
            diagonal_scores(X, *given, scale, constants, out)
            return out
        if self.is_linear:
            # In coordinates in which the shared covariance is the unit, distances are Euclidean.
            root, dtype, d = self.roots[0], self._floating(X), self.rank
            white = self._centred(X, dtype) @ root.T.astype(dtype, copy=False)
            white = np.ascontiguousarray(white, np.float64)
            centres = np.ascontiguousarray(self._centres @ root.T)
            given = np.arange(d), np.zeros(d), centres, np.ones((1, d))
            diagonal_scores(white, *given, scale, constants, out)
            return out
        dtype = self._floating(X)
        given = (
            self.features,
            self.origin,
            self._centres,
            self.roots if dtype == np.float64 else self._float32_roots,
        )
        triangle_scores(X, *given, scale, constants, out)
        if dtype != np.float64 and not np.isfinite(out[np.isfinite(constants)]).all():
            given = self.features, self.origin, self._centres, self.roots
            triangle_scores(X, *given, scale, constants, out)
        return out

    @cached_property
    def _float32_roots(self) -> np.ndarray:
        with np.errstate(over="ignore"):
            return self.roots.astype(np.float32)

    def _centred(self, X: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """Return the features of the densities, less the origin."""
        some = X if self.features.size == X.shape[1] else X[:, self.features]
        return (some - self.origin).astype(dtype, copy=False)

    def _sparse_scores(self, X: Any, scale: float, constants: np.ndarray) -> np.ndarray:
        """Return `_scores` of sparse rows, with the squares multiplied out."""
        k = constants.size
        precisions, linear = np.zeros((2, k, self.n_features))
        means = self._centres + self.origin
        precisions[:, self.features] = self.roots
        linear[:, self.features] = self.roots * means
        squares = X.power(2) @ precisions.T - 2 * (X @ linear.T)
        zeros = (np.broadcast_to(self.roots, means.shape) * means**2).sum(axis=1)
        return np.ascontiguousarray((constants + scale * (squares + zeros)).T)

    def _joint(self, X: Any) -> np.ndarray:
        return self._among_all(self._scores(X, -0.5, self._constants), -np.inf)

    def _relative(self, X: Any) -> np.ndarray:
        if not self.is_linear:
            return self._joint(X)
        weights, intercepts = self._linear
        dtype = self._floating(X)
        scores = weights.astype(dtype, copy=False) @ self._centred(X, dtype).T
        return self._among_all(scores + intercepts[:, None], -np.inf)

    def _distances(self, X: Any) -> np.ndarray:
        return self._among_all(self._scores(X, 1.0, np.zeros(self.alive.size)), np.nan)

    @cached_property
    def _linear(self) -> tuple[np.ndarray, np.ndarray]:
        return self.linear_functions(np.zeros(self.features.size))

    def linear_functions(self, about: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights, shape (n_alive, d), and intercepts of the scores of rows less the origin.

        They belong to a shared covariance, and leave out what is the same for all classes, for
        which a point less the origin counts as zero.
        """
        root, white = self.roots[0], (self._centres - about) @ self.roots[0].T
        weights = white @ root
        with np.errstate(divide="ignore"):
            logs = np.log(self.priors[self.alive])
        return weights, logs - 0.5 * (white**2).sum(axis=1) - weights @ about

    def coefficients(self, centred: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return weights of all features, and intercepts at zero; of two classes, of the log-odds.

        They belong to a shared covariance, and leave out what is the same for all classes; see
        `linear_functions` and `zero`.
        """
        own, at_origin = self.linear_functions(self.zero(centred))
        weights = np.zeros((self.classes.size, self.n_features))
        intercepts = np.full(self.classes.size, -np.inf)
        weights[np.ix_(self.alive, self.features)] = own
        intercepts[self.alive] = at_origin - own @ self.origin
        if self.classes.size == 2:
            return weights[1:] - weights[:1], intercepts[1:] - intercepts[:1]
        return weights, intercepts

    def directions(self, tol: float) -> tuple[np.ndarray, np.ndarray]:
        """Return directions that separate the class means, and the variance between along each.

        They are columns, shape (n_features, rank), by falling variance, along which the shared
        covariance is the unit matrix; those of singular values of at most `tol` times the largest
        are dropped.
        """
        root, seen = self.roots[0], self.alive
        gaps = (self.centres - self.priors @ self.centres)[seen]
        white = np.sqrt(self.priors[seen])[:, None] * (gaps @ root.T)
        _, singular, axes = np.linalg.svd(white, full_matrices=False)
        rank = int(np.count_nonzero(singular > tol * singular.max(initial=0.0)))
        scalings = np.zeros((self.n_features, rank))
        scalings[self.features] = root.T @ axes[:rank].T
        return scalings, singular**2

    # --- answers ------------------------------------------------------------------------------

    @property
    def is_linear(self) -> bool:
        """True if differences of scores are linear functions of rows, by a shared matrix."""
        return self.roots.ndim == 3 and len(self.roots) == 1

    def zero(self, centred: bool) -> np.ndarray:
        """Return the point less the origin that counts as zero: the mean of the means, or zero."""
        return self.priors @ self.centres if centred else -self.origin

    def discriminants(self, X: Any, first_row: int = 0, centred: bool = True) -> np.ndarray:
        """Return the scores but for what is the same for all classes, shape (n_rows, n_classes)."""
        functions = self.linear_functions(self.zero(centred)) if self.is_linear else None

        def scores_of(block: Any) -> np.ndarray:
            if functions is None:
                return self._joint(block) + 0.5 * self.rank * _LOG_2PI
            scores = functions[0] @ self._centred(block).T + functions[1][:, None]
            return self._among_all(scores, -np.inf)

        return self._answer(X, first_row, scores_of, copied, self.classes.size)

    def distances(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return squared Mahalanobis distances, shape (n_rows, n_classes)."""
        return self._answer(X, first_row, self._distances, copied, self.classes.size)

    def own_distances(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the squared distance of each row to the mean of the class with its code."""
        out = np.full(len(X), np.nan)
        order = np.argsort(codes, kind="stable")
        starts: Any = np.searchsorted(codes[order], self.alive, "left")
        ends: Any = np.searchsorted(codes[order], self.alive, "right")
        for place in np.flatnonzero(starts < ends).tolist():
            at = order[starts[place] : ends[place]]
            t = self._centred(X[at]) - self._centres[place]
            root = self.roots[min(place, len(self.roots) - 1)]
            out[at] = ((t @ root.T) ** 2).sum(axis=1) if root.ndim == 2 else t**2 @ root
        return out

    def p_values(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the share of each class that is further from its mean, (n_rows, n_classes)."""

        def finish(distances: np.ndarray, out: np.ndarray) -> None:
            out[...] = self._tail(distances, np.arange(self.classes.size)[:, None]).T

        return self._answer(X, first_row, self._distances, finish, self.classes.size)

    def _tail(self, distances: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return p-values of squared distances to the classes of these numbers.

        Of rows that the model has not seen, T2 of matrices is Hotelling's, and that of variances is
        a sum of F(1, nu), whose first two moments are those of a gamma variable.
        """
        d, nu, T2 = self.rank, self.degrees[codes], distances * self.unbiased[codes]
        if self.roots.ndim == 3:
            nu = np.maximum(nu, d)
            return special.fdtrc(d, nu - d + 1, T2 * (nu - d + 1) / (nu * d))
        if self.one_variance:
            return special.fdtrc(d, np.maximum(nu, 1) * d, T2 / d)
        nu = np.maximum(nu, 5.0)
        mean, variance = d * nu / (nu - 2), 2 * d * nu**2 * (nu - 1) / ((nu - 2) ** 2 * (nu - 4))
        return special.gammaincc(mean**2 / variance, np.maximum(T2, 0) * mean / variance)

    def predict_or_reject(
        self, X: Any, first_row: int = 0, *, reject: float, labels: np.ndarray
    ) -> np.ndarray:
        """Return labels: the last for rows whose p-value for their class is below `reject`."""

        def finish(distances: np.ndarray, out: np.ndarray) -> None:
            scores = np.full(distances.shape, -np.inf)
            scores[self.alive] = self._constants[:, None] - 0.5 * distances[self.alive]
            codes = np.empty(out.size, np.int64)
            largest(scores, codes)
            own = distances[codes, np.arange(out.size)]
            codes[~(self._tail(own, codes) >= reject)] = self.classes.size
            labels.take(codes, out=out, mode="clip")

        return self._answer(X, first_row, self._distances, finish, dtype=labels.dtype)

    def transform(
        self, X: Any, first_row: int = 0, *, directions: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """Return ``(x - origin) @ directions - offsets``, for directions of shape (d, n)."""

        def scores_of(block: np.ndarray) -> np.ndarray:
            return (self._centred(block) @ directions - offsets).T

        return self._answer(X, first_row, scores_of, copied, offsets.size)

    def joint_log_likelihood(self, summary: Summary) -> tuple[float, float]:
        r"""Return the sum of ln p(x, y) over rows, and their weight, from the moments of the rows.

        The n rows of class k, with mean m' and scatter S', add

        .. math:: n \ln \pi_k - \frac n2 (d \ln 2\pi + \ln|\Sigma_k|)
                  - \frac12 \mathrm{tr}\, \Sigma_k^{-1} (S' + n (m' - m_k)(m' - m_k)^T)

        Rows of classes that have no density are left out.
        """
        total, weight, at = 0.0, 0.0, self.features
        shift, codes = summary.origin[at] - self.origin, find(summary.classes, self.classes)
        for place, k in enumerate(self.alive):
            for own in np.flatnonzero((codes == k) & (summary.count > 0)):
                n, root = summary.count[own], self.roots[min(place, len(self.roots) - 1)]
                gap, S = shift + summary.offsets[own, at] - self.centres[k], summary.scatter[own]
                if root.ndim == 2:
                    squares = n * ((root @ gap) ** 2).sum()
                    squares += np.vdot(root @ S[np.ix_(at, at)], root)
                else:
                    S = S.diagonal() if S.ndim == 2 else S
                    squares = root @ (S[at] + n * gap**2)
                total += n * self._constants[place] - 0.5 * squares
                weight += n
        return float(total), float(weight)

    # --- rows with gaps -----------------------------------------------------------------------

    def marginal(self, observed: np.ndarray) -> Self:
        """Return the model of rows of which only some features count, given by their indices."""
        at = np.flatnonzero(np.isin(self.features, observed))
        if self.roots.ndim == 2:
            covariances = 1 / self.roots[:, at]
        else:
            factors = self._factors[:, at]
            covariances = factors @ factors.swapaxes(1, 2)
        roots = inverse_roots(covariances, 0.0)
        return replace(
            self,
            features=self.features[at],
            origin=self.origin[at],
            centres=np.ascontiguousarray(self.centres[:, at]),
            roots=roots.values,
            log_determinants=roots.log_determinants,
        )

    @cached_property
    def _factors(self) -> np.ndarray:
        """Matrices L with LL' the covariances."""
        if self.rank < self.features.size:
            raise UnsupportedError(
                "on_missing='marginal' needs covariances with an inverse, and directions of "
                "features that depend on others are dropped; leave out such features"
            )
        return threads.call_blas(self.rank, np.linalg.inv, self.roots)
