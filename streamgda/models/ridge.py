r"""Ridge regression from moments: :math:`\min_W \|Y - X W\|^2 + \alpha \|W\|^2`.

X and Y are centred. All of it follows from the scatter of features and targets side by side, about
their means: :math:`(S_{xx} + \alpha I)\, W = S_{xy}`. Offsets of the rows cost no digits. A fit
through the origin adds products of means to both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidParameterError
from streamgda.models.covariance import Summary
from streamgda.models.scoring import ClassModel
from streamgda.moments import ClassMoments
from streamgda.runtime import threads

_EPS = np.finfo(np.float64).eps


class Columns(NamedTuple):
    """Weight, mean and scatter of features and, in the last columns, of targets.

    Attributes
    ----------
    weight : float
    origin, offset : ndarray, shape (n_columns,)
        Their sum is the mean.
    scatter : ndarray, shape (n_columns, n_columns)
        Sums of products about the mean.
    n_features : int
    """

    weight: float
    origin: np.ndarray
    offset: np.ndarray
    scatter: np.ndarray
    n_features: int

    @classmethod
    def of(cls, moments: ClassMoments, n_targets: int) -> Self:
        """Return the columns that moments of features and targets hold, all classes together."""
        held = Summary.of(moments._in_one_class())
        n_features = held.origin.size - n_targets
        return cls(held.count[0], held.origin, held.offsets[0], held.scatter[0], n_features)

    @classmethod
    def of_classes(cls, moments: ClassMoments, factors: np.ndarray | None = None) -> Self:
        """Return the columns of features and of a target for each class: 1 for its rows, else -1.

        Of two classes, the only target is that of the second.

        Parameters
        ----------
        moments : ClassMoments
            Moments of rows and their classes.
        factors : ndarray, shape (n_classes,), optional
            Factors of the weights of the classes, for moments with a scatter for each.
        """
        held = Summary.of(moments)
        count, scatter = held.count, held.scatter
        if factors is not None:
            count, scatter = count * factors, scatter * factors[:, None, None]
        weight = count.sum()
        mean = count @ held.offsets / weight
        offsets = (held.offsets - mean).T * count  # It is zero for classes without rows.
        targets = slice(1, None) if count.size == 2 else slice(None)
        within = scatter.sum(axis=0) + offsets @ (held.offsets - mean)
        beside = 2 * offsets[:, targets]
        codes = (4 * (np.diag(count) - np.outer(count, count) / weight))[targets, targets]
        shares = (2 * count / weight - 1)[targets]
        return cls(
            float(weight),
            np.append(held.origin, np.zeros(shares.size)),
            np.append(mean, shares),
            np.block([[within, beside], [beside.T, codes]]),
            mean.size,
        )


@dataclass(frozen=True, eq=False)
class RidgeModel(ClassModel):
    """Linear functions of rows: predictions of targets, or scores of classes.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
        Labels, or the indices of the targets.
    n_features : int
    origin : ndarray, shape (n_features,)
        Subtracted from rows, so that their offset costs no digits.
    coefficients : ndarray, shape (n_classes, n_features)
    values : ndarray, shape (n_classes,)
        Values at the origin.
    n_dropped : int
        Directions of features that vary, but not beyond rounding.
    alpha : float or array-like
        The penalty.
    scores : ndarray, shape (n_penalties, n_splits); optional
        Scores of the penalties among which it was chosen.
    """

    classes: np.ndarray
    n_features: int
    origin: np.ndarray
    coefficients: np.ndarray
    values: np.ndarray
    n_dropped: int
    alpha: Any = 0.0
    scores: np.ndarray | None = None

    @classmethod
    def fit(
        cls, columns: Columns, alpha: Any, intercept: bool, classes: np.ndarray | None = None
    ) -> Self:
        """Return the regression with a penalty, or with one for each target.

        Parameters
        ----------
        columns : Columns
        alpha : float or array-like, shape (n_targets,)
        intercept : bool
            Otherwise the fit goes through the origin.
        classes : ndarray, optional
            Labels of classes, of which the targets are codes.
        """
        d, S, mean = columns.n_features, columns.scatter, columns.origin + columns.offset
        n_targets = len(S) - d
        if np.ndim(alpha) and np.size(alpha) != n_targets:
            raise InvalidParameterError(
                f"alpha has {np.size(alpha)} penalties for {n_targets} targets (Number of targets "
                f"and number of penalties do not correspond); give one, or one for each target"
            )
        if not intercept:
            S = S + columns.weight * np.outer(mean, mean)
        alphas, n_dropped = np.broadcast_to(np.asarray(alpha, np.float64), (n_targets,)), 0
        W, values, origin = np.empty((d, n_targets)), np.zeros(n_targets), np.zeros(d)
        for each in np.unique(alphas):
            at = np.flatnonzero(alphas == each)
            found = threads.call_blas(d, _solve, S[:d, :d], S[:d, d + at], float(each))
            W[:, at], n_dropped = found[0], max(n_dropped, found[1])
        if intercept:
            origin = columns.origin[:d]
            values = mean[d:] - columns.offset[:d] @ W
        W = np.ascontiguousarray(W.T)
        if classes is None:
            classes = np.arange(n_targets)
        elif classes.size == 2:  # The score of the first class is zero.
            W, values = np.vstack([np.zeros(d), W]), np.append(0.0, values)
        return cls(classes, d, origin, W, values, n_dropped, alpha)

    @property
    def intercepts(self) -> np.ndarray:
        """Values for a row of zeros, as scikit-learn has them."""
        return np.asarray(self.values - self.coefficients @ self.origin)

    def squared_errors(self, columns: Columns) -> np.ndarray:
        r"""Return the sums of the squared errors of each target, from the moments of rows.

        For rows z of features and targets, with mean m and scatter S, and :math:`v = (-w, 1)`, the
        sum of the squares of :math:`v^T z - c` is :math:`v^T S v + n (v^T m - c)^2`.
        """
        t = columns.scatter.shape[0] - columns.n_features
        W = self.coefficients[-t:]
        residual = np.vstack([-W.T, np.eye(t)])
        within = (residual * (columns.scatter @ residual)).sum(axis=0)
        origin = columns.origin - np.append(self.origin, np.zeros(t))
        offset = (origin + columns.offset) @ residual - self.values[-t:]
        return np.asarray(np.maximum(within, 0) + columns.weight * offset**2)

    def _joint(self, X: Any) -> np.ndarray:
        return np.asarray(self.coefficients @ (X - self.origin).T + self.values[:, None])

    def target(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the values of the last function, shape (n_rows,)."""

        def finish(scores: np.ndarray, out: np.ndarray) -> None:
            out[...] = scores[-1]

        return self._answer(X, first_row, self._joint, finish)


def _solve(A: np.ndarray, B: np.ndarray, alpha: float) -> tuple[np.ndarray, int]:
    r"""Return the solution of :math:`(A + \alpha I) W = B`, refined once, and its defect of rank.

    Features that do not vary are left out. The matrix of the others is scaled to unit diagonal and
    factorised by Cholesky, so that units of the features make no difference. If it is singular to
    rounding, the solution has the smallest norm.
    """
    W, diagonal = np.zeros(B.shape), A.diagonal() + alpha
    kept = np.flatnonzero(diagonal > 0)
    if not kept.size:
        return W, 0
    A, B, scale = A[np.ix_(kept, kept)], B[kept], np.sqrt(diagonal[kept])[:, None]
    scaled = A / scale / scale.T
    np.fill_diagonal(scaled, 1.0)
    factor, failed = linalg.lapack.dpotrf(scaled, lower=1)
    if not failed:
        rcond, failed = linalg.lapack.dpocon(factor, linalg.norm(scaled, 1), uplo="L")
        failed = failed or rcond <= kept.size * _EPS
    if failed:
        whole = A + alpha * np.eye(kept.size)
        W[kept], _, rank, _ = linalg.lstsq(whole, B, cond=4 * kept.size * _EPS)
        return W, kept.size - int(rank)
    found = linalg.cho_solve((factor, True), B / scale) / scale
    rest = B - A @ found - alpha * found
    W[kept] = found + linalg.cho_solve((factor, True), rest / scale) / scale
    return W, 0
