r"""Ridge regression from moments: :math:`\min_W \|Y - X W\|^2 + \alpha \|W\|^2`.

X and Y are centred. All of it follows from the scatter of rows and targets side by side, about
their means: :math:`(S_{xx} + \alpha I)\, W = S_{xy}`. Offsets of the rows cost no digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg

from streamgda.errors import InvalidDataError
from streamgda.models.discriminants import LinearScores
from streamgda.models.model import copied
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.covariance_types import symmetric
from streamgda.runtime import threads
from streamgda.storage.format import check_array

_EPS = np.finfo(np.float64).eps


class Columns(NamedTuple):
    """Weight, mean and scatter of features and, in the last columns, of targets.

    Attributes
    ----------
    weight : float
    mean : ndarray of longdouble, shape (n_columns,)
    scatter : ndarray, shape (n_columns, n_columns)
        Sums of products about the mean.
    n_features : int
    """

    weight: float
    mean: np.ndarray
    scatter: np.ndarray
    n_features: int

    @classmethod
    def of(cls, moments: ClassMoments, n_features: int) -> Self:
        """Return the columns that moments of features and targets hold, all classes together."""
        sums = held_sums(moments._in_one_class()).centred()
        mean = sums.mean[0].astype(np.longdouble) + sums.mean_low[0]
        return cls(float(sums.count[0]), mean, symmetric(sums.packed[0]), n_features)

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
        sums = held_sums(moments).centred()
        count, scatter = sums.count.astype(np.float64), sums.packed
        if factors is not None:
            count, scatter = count * factors, scatter * factors[:, None]
        weight = count.sum()
        present = np.flatnonzero(count)
        means = sums.mean.astype(np.longdouble) + sums.mean_low
        gaps = np.where(count[:, None] > 0, means - means[present[0]], 0)
        centre = (count / weight) @ gaps
        gaps = (gaps - centre).astype(np.float64)
        targets = slice(1, None) if count.size == 2 else slice(None)
        of_pair = 2 * (gaps.T * count)[:, targets]
        of_targets = (4 * (np.diag(count) - np.outer(count, count) / weight))[targets, targets]
        within = symmetric(scatter.sum(axis=0)) + (gaps.T * count) @ gaps
        return cls(
            float(weight),
            np.append(means[present[0]] + centre, (2 * count / weight - 1)[targets]),
            np.block([[within, of_pair], [of_pair.T, of_targets]]),
            gaps.shape[1],
        )

    def about(self, centre: np.ndarray) -> np.ndarray:
        """Return the sums of products about another point."""
        gap = (self.mean - centre).astype(np.float64)
        return np.asarray(self.scatter + self.weight * np.outer(gap, gap))


@dataclass(frozen=True)
class Penalised:
    r"""The matrix :math:`A + \alpha I`, and its inverse, of the scatter A of some features.

    It is scaled to unit diagonal and factorised by Cholesky, so that units of the features make no
    difference. If it is singular to rounding, the Moore-Penrose inverse takes the place of the
    inverse: the solution of the smallest norm.
    """

    scatter: np.ndarray
    alpha: float

    @cached_property
    def _scale(self) -> np.ndarray:
        square = self.scatter.diagonal() + self.alpha
        return 1 / np.sqrt(np.where(square > 0, square, 1.0))

    @cached_property
    def _scaled(self) -> np.ndarray:
        scaled = self.scatter * np.outer(self._scale, self._scale)
        return scaled + np.diag(self.alpha * self._scale**2)

    @cached_property
    def _factor(self) -> np.ndarray | None:
        """The triangular factor; None if the matrix is singular to rounding."""
        scaled = self._scaled
        try:
            factor = threads.call_blas(len(scaled), partial(linalg.cholesky, lower=True), scaled)
        except linalg.LinAlgError:
            return None
        reciprocal, _ = linalg.lapack.dpocon(factor, linalg.norm(scaled, 1), uplo="L")
        return factor if reciprocal > len(scaled) * _EPS else None

    @cached_property
    def _inverse_root(self) -> np.ndarray:
        """A root R of the Moore-Penrose inverse R R', with a column for each direction."""
        values, vectors = linalg.eigh(self._scaled)
        kept = values > len(values) * _EPS * max(values[-1], 1.0)
        root = self._scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
        null, _ = np.linalg.qr(self._scale[:, None] * vectors[:, ~kept])
        return np.asarray(root - null @ (null.T @ root))

    @property
    def rank(self) -> int:
        """Directions of the features that vary."""
        return len(self.scatter) if self._factor is not None else self._inverse_root.shape[1]

    @cached_property
    def inverse(self) -> np.ndarray:
        """The inverse, or the Moore-Penrose inverse."""
        if self._factor is None:
            return np.asarray(self._inverse_root @ self._inverse_root.T)
        return self._solved(np.eye(len(self.scatter)))

    def _solved(self, B: np.ndarray) -> np.ndarray:
        if self._factor is None:
            return np.asarray(self._inverse_root @ (self._inverse_root.T @ B))
        scale = self._scale[:, None]
        return np.asarray(scale * linalg.cho_solve((self._factor, True), scale * B))

    def solve(self, B: np.ndarray) -> np.ndarray:
        """Return the product of the inverse with a matrix, refined once."""
        found = self._solved(B)
        return found + self._solved(B - self.scatter @ found - self.alpha * found)


@dataclass(frozen=True)
class Fit:
    """Ridge regression of targets on features, from their moments.

    Attributes
    ----------
    columns : Columns
    alphas : ndarray, shape (n_targets,)
    intercept : bool
        Rows and targets are centred; otherwise the fit goes through the origin.
    """

    columns: Columns
    alphas: np.ndarray
    intercept: bool = True

    @property
    def centre(self) -> np.ndarray:
        """Point that is subtracted from features and targets, longdouble, shape (n_columns,)."""
        return self.columns.mean * self.intercept

    @cached_property
    def _products(self) -> np.ndarray:
        d = self.columns.n_features
        products = self.columns.about(self.centre)
        # By the inequality of Cauchy and Schwarz, a feature without squares has no products.
        squares = products.diagonal()[:d] + self.alphas.min()
        lost = (squares < np.finfo(np.float64).tiny) & products[:d].any(axis=1)
        if lost.any():
            raise InvalidDataError(
                f"the squares of feature {lost.argmax()} underflow float64, as its values differ "
                f"by less than about 1e-154; scale the data up, or the weights"
            )
        return products

    @cached_property
    def penalised(self) -> list[Penalised]:
        """The penalised scatter of each target."""
        d = self.columns.n_features
        by_alpha = {a: Penalised(self._products[:d, :d], a) for a in {*self.alphas.tolist()}}
        return [by_alpha[alpha] for alpha in self.alphas.tolist()]

    @cached_property
    def weights(self) -> np.ndarray:
        """Coefficients, shape (n_features, n_targets)."""
        d = self.columns.n_features
        B = self._products[:d, d:]
        if len({*self.alphas.tolist()}) == 1:
            return self.penalised[0].solve(B)
        solved = [p.solve(b[:, None]) for p, b in zip(self.penalised, B.T, strict=True)]
        return np.concatenate(solved, axis=1)

    def squared_errors(self, columns: Columns) -> np.ndarray:
        r"""Return the sums of the squared errors of rows of each target, from their moments.

        For rows z of features and targets, with mean m' and scatter S', and :math:`v = (-w, 1)` the
        residual is :math:`v^T (z - m)`, m the centre of the fit, and the sum of its squares
        :math:`v^T S' v + n (v^T (m' - m))^2`.
        """
        residual = np.concatenate([-self.weights, np.eye(len(self.alphas))])
        within = (residual * (columns.scatter @ residual)).sum(axis=0)
        gap = (columns.mean - self.centre).astype(np.float64) @ residual
        return np.maximum(within, 0) + columns.weight * gap**2

    def r2(self, columns: Columns) -> np.ndarray:
        """Return the coefficient of determination of each target, as `sklearn.metrics.r2_score`."""
        error, total = self.squared_errors(columns), columns.scatter.diagonal()[self.n_features :]
        without = np.where(error > 0, 0.0, 1.0)  # targets that do not vary
        return np.where(total > 0, 1 - error / np.where(total > 0, total, 1.0), without)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.columns.n_features

    @property
    def rank(self) -> int:
        """Directions of the features that vary, the fewest of any penalty."""
        return min(p.rank for p in self.penalised)

    @property
    def n_constant(self) -> int:
        """Features that do not vary at all, whose coefficients are zero."""
        p = self.penalised[0]
        return int((p.scatter.diagonal() + p.alpha == 0).sum())

    @cached_property
    def residual_variances(self) -> np.ndarray:
        r"""Sums of squared residuals by the degrees of freedom that the fit leaves; each target's.

        The fit takes :math:`\mathrm{tr}\,(A + \alpha I)^{-1} A`, and one for the intercept.
        """
        A = self._products[: self.n_features, : self.n_features]
        taken = np.array([(p.inverse * A).sum() for p in self.penalised]) + self.intercept
        left = self.columns.weight - taken
        error = self.squared_errors(self.columns)
        return np.where(left > 0, error / np.where(left > 0, left, 1.0), np.nan)

    @cached_property
    def standard_errors(self) -> np.ndarray:
        r"""Standard errors of the coefficients, shape (n_features, n_targets).

        The covariance is :math:`\sigma^2 (A + \alpha I)^{-1} A (A + \alpha I)^{-1}`.
        """
        A = self._products[: self.n_features, : self.n_features]
        squares = [((p.inverse @ A) * p.inverse).sum(axis=1) for p in self.penalised]
        return np.sqrt(np.maximum(np.transpose(squares), 0) * self.residual_variances)


@dataclass(frozen=True)
class RidgeModel(LinearScores):
    """Linear functions about a centre: predictions of targets, or scores of classes.

    Parameters
    ----------
    classes, coefficients, intercepts, feature_names : see `LinearScores`
        There is a function for each target, or for each class; the intercepts are the values at
        the centre.
    centre : ndarray of float64, shape (n_features,)
        Point that is subtracted from rows, so that their offset costs no digits.
    """

    _kind = "ridge"

    centre: Any = None

    @classmethod
    def of_fit(cls, fit: Fit, classes: np.ndarray, names: Any, scores: bool) -> Self:
        """Return the functions of a fit; of two classes, that of the first is zero."""
        centre, d = fit.centre.astype(np.float64), fit.n_features
        low = (fit.centre[:d] - centre[:d]).astype(np.float64)
        values = fit.centre[d:].astype(np.float64) - low @ fit.weights
        coefficients = np.ascontiguousarray(fit.weights.T)
        if scores and classes.size == 2:
            coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
            values = np.append(0.0, values)
        return cls(classes, coefficients, values, names, centre[:d])

    @property
    def at_zero(self) -> np.ndarray:
        """Values at the origin: the intercepts of scikit-learn."""
        about = self.coefficients.astype(np.longdouble) @ self.centre
        return np.asarray((self.intercepts - about).astype(np.float64))

    def _relative_scores(self, X: np.ndarray, margin: float = np.inf) -> np.ndarray:
        return np.asarray(self.coefficients @ (X - self.centre).T + self.intercepts[:, None])

    def targets(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return predictions of the targets, shape (n_rows, n_targets)."""
        columns = len(self.coefficients)
        return self._score(X, self._relative_scores, copied, first_row, columns=columns)

    def target(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return predictions of the only target, shape (n_rows,)."""
        return self.targets(X, first_row)[:, 0]

    def _check(self) -> None:
        n_classes = self.classes.size  # one, where the functions are of targets
        self._check_functions(n_classes if n_classes > 1 else len(self.coefficients))
        check_array("centre", self.centre, (self.n_features,), "f8")
