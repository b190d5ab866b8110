r"""Ridge regression from moments: :math:`\min_W \|Y - X W\|^2 + \alpha \|W\|^2`.

X and Y are centred. All of it follows from the scatter of rows and targets side by side, about
their means: :math:`(S_{xx} + \alpha I)\, W = S_{xy}`. Offsets of the rows cost no digits. A fit
through the origin adds products of means to both sides, which are kept apart from the scatter, as
those of rows far from zero are too large to be added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg

from streamgda.models.discriminants import LinearScores
from streamgda.models.model import copied
from streamgda.moments import ClassMoments, held_sums
from streamgda.moments.centred import check_underflow
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


@dataclass(frozen=True)
class Penalised:
    r"""Coefficients by the penalised scatter :math:`A + \alpha I` of some features.

    It is scaled to unit diagonal and factorised by Cholesky, so that units of the features make no
    difference. If it is singular to rounding, the Moore-Penrose inverse takes the place of the
    inverse: the solution of the smallest norm.

    In a fit through the origin, n m m' is to be added to it, with the mean m, and the coefficients
    v of centred rows become :math:`v + g\, (\bar y - m^T v)` by the formula of Sherman and
    Morrison. Here g are the coefficients of a target that is one everywhere, :math:`n u / (1 + n
    m^T u)` with :math:`u = (A + \alpha I)^{-1} m`. If a part :math:`m_0` of the mean lies along
    directions in which rows do not vary, they are :math:`m_0 / |m_0|^2`.

    Attributes
    ----------
    scatter : ndarray, shape (d, d)
    alpha : float
    weight : float
    mean : ndarray, shape (d,)
        That of the features in a fit through the origin; otherwise zero.
    """

    scatter: np.ndarray
    alpha: float
    weight: float
    mean: np.ndarray

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
    def _singular(self) -> tuple[np.ndarray, np.ndarray]:
        """A root R of the Moore-Penrose inverse R R' of a singular matrix, and the mean beside it.

        R has a column for each direction in which rows vary; the second is the part of the mean
        along all others, zero if that is a rounding error.
        """
        values, vectors = linalg.eigh(self._scaled, driver="evd")  # the others are less exact
        error = 4 * len(values) * _EPS * max(values[-1], 1.0)
        kept = values > error
        root = self._scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
        null, _ = np.linalg.qr(self._scale[:, None] * vectors[:, ~kept])
        constant = self.constant
        mean = np.where(constant, 0.0, self.mean)
        scaled = self._scale * mean
        along = vectors[:, ~kept].T @ scaled
        error /= values[kept].min(initial=np.inf)  # of the directions, but constant features
        known = np.abs(along).max(initial=0.0) > error * np.abs(scaled).max()
        beside = null @ (null.T @ mean) if known else 0.0
        return root - null @ (null.T @ root), np.where(constant, self.mean, beside)

    @property
    def constant(self) -> np.ndarray:
        """True for features that do not vary, shape (d,)."""
        return self.scatter.diagonal() + self.alpha == 0

    @property
    def rank(self) -> int:
        """Directions of the features that vary, or differ from zero in a fit through the origin."""
        if self._factor is not None:
            return len(self.scatter)
        root, beside = self._singular
        return root.shape[1] + bool(beside.any())

    @cached_property
    def _along(self) -> tuple[np.ndarray, float, float]:
        """The coefficients g divided by the mean h that they predict, h, and 1 - h."""
        apart = self._factor is None and self._singular[1].any()
        mean, known = (self._singular[1], self.alpha) if apart else (self.mean, 1.0)
        size = np.abs(mean).max() or 1.0
        mean = mean / size  # squares of means may overflow
        u = mean if apart else self._refined(mean[:, None])[:, 0]
        predicted = size * (mean @ u)
        if not predicted > 0:
            return np.zeros(mean.size), 0.0, 1.0
        with np.errstate(over="ignore", divide="ignore"):  # of 1 - h to h
            ratio = np.float64(known) / (self.weight * size) / predicted
            return np.asarray(u / predicted), float(1 / (1 + ratio)), float(1 / (1 + 1 / ratio))

    @property
    def of_ones(self) -> np.ndarray:
        """Coefficients g of a target that is one everywhere, shape (d,)."""
        along, share, _ = self._along
        return share * along

    @cached_property
    def inverse(self) -> np.ndarray:
        """The matrix by which products about means are multiplied to give coefficients."""
        inverse = self._solved(np.eye(len(self.scatter)))
        inverse -= np.outer(self.of_ones, self.mean @ inverse)
        return inverse

    def _solved(self, B: np.ndarray) -> np.ndarray:
        """Return the product of the inverse with a matrix."""
        if self._factor is None:
            root = self._singular[0]
            return np.asarray(root @ (root.T @ B))
        scale = self._scale[:, None]
        return np.asarray(scale * linalg.cho_solve((self._factor, True), scale * B))

    def _refined(self, B: np.ndarray) -> np.ndarray:
        found = self._solved(B)
        return found + self._solved(B - self.scatter @ found - self.alpha * found)

    def solve(self, products: np.ndarray, means: np.ndarray) -> np.ndarray:
        """Return the coefficients of targets, refined once, shape (d, n_targets).

        Parameters
        ----------
        products : ndarray, shape (d, n_targets)
            Those of features and targets about their means.
        means : ndarray, shape (n_targets,)
            Means of the targets in a fit through the origin; otherwise zero.
        """
        found, (along, share, rest) = self._refined(products), self._along
        predicted = share * means + rest * (self.mean @ found)
        for _ in range(2):  # the second time, for what rounding has left of the mean
            found = found + np.outer(along, predicted - self.mean @ found)
        return found


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
    def penalised(self) -> list[Penalised]:
        """The penalised scatter of each target."""
        d, scatter = self.columns.n_features, self.columns.scatter
        check_underflow(scatter.diagonal()[:d] + self.alphas.min(), scatter[:d])
        known = self.columns.weight, self._gaps[:d]
        by_alpha = {a: Penalised(scatter[:d, :d], a, *known) for a in {*self.alphas.tolist()}}
        return [by_alpha[alpha] for alpha in self.alphas.tolist()]

    @property
    def _gaps(self) -> np.ndarray:
        """Means about the centre, shape (n_columns,)."""
        return np.asarray((self.columns.mean - self.centre).astype(np.float64))

    @cached_property
    def weights(self) -> np.ndarray:
        """Coefficients, shape (n_features, n_targets)."""
        d = self.columns.n_features
        B, means = self.columns.scatter[:d, d:], self._gaps[d:]
        if len({*self.alphas.tolist()}) == 1:
            return self.penalised[0].solve(B, means)
        each = enumerate(self.penalised)
        return np.concatenate([p.solve(B[:, [t]], means[[t]]) for t, p in each], axis=1)

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
        """Features that do not vary at all about the centre, whose coefficients are zero."""
        p = self.penalised[0]
        return int((p.constant & (p.mean == 0)).sum())

    @cached_property
    def residual_variances(self) -> np.ndarray:
        r"""Sums of squared residuals by the degrees of freedom that the fit leaves; each target's.

        The fit takes :math:`\mathrm{tr}\,(A + \alpha I)^{-1} A`, and one for the intercept; one
        through the origin the same with A + n m m' in place of A.
        """
        each = [(p.inverse * p.scatter).sum() + p.mean @ p.of_ones for p in self.penalised]
        taken = np.array(each) + self.intercept
        left = self.columns.weight - taken
        error = self.squared_errors(self.columns)
        return np.where(left > 0, error / np.where(left > 0, left, 1.0), np.nan)

    @cached_property
    def standard_errors(self) -> np.ndarray:
        r"""Standard errors of the coefficients, shape (n_features, n_targets).

        The covariance is :math:`\sigma^2 (A + \alpha I)^{-1} A (A + \alpha I)^{-1}`; that of a fit
        through the origin has A + n m m' in place of A.
        """
        squares = [((p.inverse @ p.scatter) * p.inverse).sum(axis=1) for p in self.penalised]
        errors = np.sqrt(np.maximum(np.transpose(squares), 0) * self.residual_variances)
        of_ones = np.transpose([p.of_ones for p in self.penalised])
        return np.hypot(errors, of_ones * np.sqrt(self.residual_variances / self.columns.weight))


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
