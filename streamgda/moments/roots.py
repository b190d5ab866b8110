"""Roots of inverse covariances, with their ranks, and scores of rows by them.

Scores are class by class: shape (n_classes, n_rows).
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from streamgda.kernels import scoring
from streamgda.kernels.linear import PADDED, linear_scores
from streamgda.kernels.scoring import FLOAT64_FEATURES
from streamgda.kernels.sparse import sparse_scores
from streamgda.kernels.sums import remove_directions
from streamgda.rows.arrays import row_type
from streamgda.rows.counting import all_finite
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import lapack

_FLOAT64 = np.dtype(np.float64)
LEAST_VARIANCE = np.finfo(np.float64).tiny  # with all its digits, and a finite inverse
_FAR = 16.0  # squared distance of a centre from zero, in units of its variance
_LINE = 64  # bytes of a cache line
_SPARED = 2  # features of which one counts: the others are packed with it

# Handed to kernels that write one of several arrays, in place of the others.
NO_SCORES, NO_LABELS = np.empty((0, 0)), np.empty(0, np.int64)

# As `scoring.panel_scores` takes it: labels, scores row by row, and if these become posteriors.
Answers = tuple[np.ndarray, np.ndarray, bool]


# --- roots of matrices ------------------------------------------------------------------------


def invert(covariances: np.ndarray, tol: float, singular: str) -> list[int]:
    r"""Replace covariances by the inverses of their lower Cholesky factors; return the ranks.

    Parameters
    ----------
    covariances : ndarray, shape (groups, d, d)
        The whole matrices.
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``, or of no more than rounding errors.
    singular : {"refuse", "scaled", "features"}
        What is written for a singular covariance: nothing that has a meaning; or a lower triangular
        root W of a pseudo-inverse, :math:`W^T W`. The directions that it drops are principal axes
        of the scaled features, or as many of the features themselves, which gives the Moore-Penrose
        inverse. The rows of W that belong to them come first, and are zero.
    """
    d = covariances.shape[-1]
    scales, limit = deviations(covariances), rank_limit(tol, d)
    covariances /= scales[:, :, None]
    covariances /= scales[:, None]
    variances = covariances.diagonal(0, 1, 2).copy()
    positive = np.array([lapack.cholesky(covariance) for covariance in covariances])
    for g in np.flatnonzero(positive).tolist():
        lapack.invert_lower(covariances[g])
    # The square of the 2-norm of the inverse W is at most the sum of its squares, and more so with
    # those of the correlations beside it; eigenvalues are only computed where that leaves a doubt.
    regular = np.einsum("gij,gij->g", covariances, covariances) * limit < 1
    ranks = [d] * len(covariances)
    for g in np.flatnonzero(~(positive & regular)).tolist():
        ranks[g] = _truncate(
            covariances[g], scales[g], variances[g], limit, int(not positive[g]), singular
        )
    _clear_upper(covariances)
    covariances /= scales[:, None]
    return ranks


def _truncate(
    covariance: np.ndarray,
    scale: np.ndarray,
    variances: np.ndarray,
    limit: float,
    least: int,
    singular: str,
) -> int:
    """Replace a scaled covariance by a root, if it is singular; return the rank.

    Its lower triangle was inverted, or destroyed. The root is not to be scaled.
    """
    correlation = np.triu(covariance, 1)
    correlation += correlation.T
    np.fill_diagonal(correlation, variances)
    if not np.isfinite(correlation).all():  # beyond float64
        return 0
    if least and singular != "refuse":
        kept = _low_rank_root(correlation, scale, limit, singular)
        if kept is not None:
            covariance[...], scale[...] = 0.0, 1.0
            covariance[len(scale) - len(kept) :] = kept
            return len(kept)
    axes = _axes_below(limit, correlation, least)
    while axes.size:
        rank = len(covariance) - axes.shape[1]
        if not rank or singular == "refuse":
            return rank
        root = _truncated_root(correlation, scale, axes, singular)
        if root is not None:
            covariance[...], scale[...] = root, 1.0
            return rank
        limit *= 2  # so close to rounding errors that there is no Cholesky factor
        axes = _axes_below(limit, correlation)
    return len(covariance)


def _low_rank_root(
    correlation: np.ndarray, scale: np.ndarray, limit: float, metric: str
) -> np.ndarray | None:
    """Return the rows of a root that are not zero, from a factor with few columns; None if many.

    It takes time in proportion to the square of the rank, such as the number of rows of wide data.
    Parameters are those of `invert`, and a singular correlation matrix.
    """
    factor, pivots, rank, _ = linalg.lapack.dpstrf(correlation, lower=1)
    d = len(correlation)
    if not 0 < rank <= d // 2:  # the largest for which this takes less time
        return None
    columns = np.zeros((d, rank))
    columns[pivots - 1] = np.tril(factor[:, :rank])
    values, axes = linalg.eigh(columns.T @ columns)
    kept = np.count_nonzero(values > limit)
    if metric == "features":
        columns, scale = columns * scale[:, None], np.ones(d)
        values, axes = linalg.eigh(columns.T @ columns)
    root = (columns @ (axes[:, rank - kept :] / values[rank - kept :])).T
    # Rotated, so that the last columns are a lower triangle.
    turned, upper = linalg.qr(root[:, : d - kept - 1 : -1])
    root = np.concatenate([(turned.T @ root[:, : d - kept])[::-1], upper[::-1, ::-1]], axis=1)
    root /= scale
    root[root[:, d - kept :].diagonal() < 0] *= -1
    return root


def _clear_upper(matrices: np.ndarray) -> None:
    """Set the elements above the diagonals to zero."""
    for i in range(matrices.shape[-1] - 1):
        matrices[..., i, i + 1 :] = 0.0


def _axes_below(limit: float, matrix: np.ndarray, least: int = 0) -> np.ndarray:
    """Return the principal axes of variances up to a limit, and at least so many, as columns."""
    below = -np.inf, limit
    axes: np.ndarray = linalg.eigh(matrix, subset_by_value=below, check_finite=False)[1]
    return axes if axes.shape[1] >= least else _first_axes(least, matrix)


def _first_axes(n: int, matrix: np.ndarray) -> np.ndarray:
    """Return the principal axes of the least variances as columns."""
    return linalg.eigh(matrix, subset_by_index=(0, n - 1), check_finite=False)[1]


def _truncated_root(
    correlation: np.ndarray, scale: np.ndarray, axes: np.ndarray, metric: str
) -> np.ndarray | None:
    """Return a root of a pseudo-inverse without some axes; None if rounding prevents it.

    The axes are given a variance, so that the matrix has an inverse, and then removed from its
    root. Parameters are those of `invert`, and the dropped axes of the correlation matrix.
    """
    matrix = correlation
    if metric == "features":
        matrix = correlation * scale * scale[:, None]
        axes, scale = _first_axes(axes.shape[1], matrix), np.ones(len(scale))
    root = matrix + matrix.trace() / len(scale) * (axes @ axes.T)
    if not lapack.cholesky(root):
        return None
    _clear_upper(root)
    images = root.T @ axes
    images /= np.linalg.norm(images, axis=0)
    lapack.invert_lower(root)
    remove_directions(root, images)
    root[:, correlation.diagonal() == 0] = 0.0  # their means may be far apart
    root /= scale
    root[root.diagonal() < 0] *= -1
    return np.asarray(root[np.argsort(root.any(axis=1), kind="stable")])


def log_determinant(kept: np.ndarray) -> float:
    """Return the log-determinant of a covariance from the rows of its root that are not zero."""
    n_dropped = kept.shape[1] - len(kept)
    first, triangle = kept[:, :n_dropped], kept[:, n_dropped:]
    if triangle.diagonal().all():
        # It is that of the triangle, and of I + M M' with a column of M for each dropped direction.
        others = linalg.solve_triangular(triangle, first, lower=True, check_finite=False)
        if np.isfinite(others).all():
            logs = np.log(np.abs(triangle.diagonal()))
            logs_beside = np.log(np.hypot(1, linalg.svdvals(others)))
            return float(-2 * (logs.sum() + logs_beside.sum()))
    return float(-2 * np.log(linalg.svdvals(kept)).sum())


def marginal(root: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the root for some of the features, from a root of full rank."""
    upper = linalg.qr(_covariance_root(root)[at].T, mode="r", check_finite=False)[0][: at.size]
    upper[upper.diagonal() < 0] *= -1
    lower = np.ascontiguousarray(upper.T)
    lapack.invert_lower(lower)
    return lower


def regression(root: np.ndarray, at: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the coefficients of other features given some, from a root of full rank."""
    factor = _covariance_root(root)
    axes, upper = linalg.qr(factor[at].T, mode="economic", check_finite=False)
    along = axes.T @ factor[others].T
    return np.asarray(linalg.solve_triangular(upper, along, check_finite=False).T)


def _covariance_root(root: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of the covariance."""
    factor = root.copy()
    lapack.invert_lower(factor)
    return factor


def sampling_root(covariance: np.ndarray) -> np.ndarray:
    """Return a symmetric L with L L' = covariance, which may be singular."""
    # Unlike triangular roots, the symmetric one of the correlations is continuous where they
    # are singular, too. Variances that may be rounding errors become zero, without a step.
    scale = deviations(covariance)
    correlation = covariance / scale[:, None] / scale
    np.fill_diagonal(correlation, correlation.diagonal() > 0)
    variances, axes = linalg.eigh(correlation, overwrite_a=True, check_finite=False)
    rounding = 16 * len(scale) * np.finfo(np.float64).eps
    lengths = np.sqrt(np.maximum(variances - rounding, 0))
    root = (axes * lengths) @ axes.T
    root *= np.sqrt(np.maximum(covariance.diagonal(), 0))[:, None]
    return root


def rank_limit(tol: float, d: int) -> float:
    """Return the largest eigenvalue of a correlation matrix that counts as zero."""
    return max(tol**2, d * float(np.finfo(float).eps))


def deviations(covariances: np.ndarray) -> np.ndarray:
    """Return the standard deviations of the features, one where variances lose digits or are 0."""
    variances = covariances.diagonal(0, -2, -1)
    return np.sqrt(np.where(variances >= LEAST_VARIANCE, variances, 1.0))


def rank(root: np.ndarray) -> int:
    """Return the number of directions that a root keeps."""
    return int(root.any(axis=1).sum()) if root.ndim == 2 else root.size


def valid_roots(roots: np.ndarray) -> bool:
    """Return True if roots have the form that `Structure.invert` gives them."""
    diagonals = roots if roots.ndim == 2 else np.einsum("gii->gi", roots)
    if (diagonals > 0).all():
        return True
    if roots.ndim == 2 or len(roots) > 1 or not (kept := rank(roots[0])):
        return False
    return kept == int(np.linalg.matrix_rank(roots[0][-kept:]))


# --- scores of rows ---------------------------------------------------------------------------


def writable(values: np.ndarray) -> np.ndarray:
    """Return an array as kernels read it: for a read-only one, of a memory map, they compile again.

    NumPy's function takes longer to look.
    """
    flags = values.flags
    if flags.c_contiguous and flags.writeable:
        return values
    return np.require(values, requirements=("C", "W"))


def zeros_in_lines(shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
    """Return zeros that start at a cache line."""
    size = shape[0] * shape[1] * dtype.itemsize
    memory = np.zeros(size + _LINE, np.uint8)
    start = -memory.ctypes.data % _LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def halves(values: np.ndarray, dtype: Any, low: Any = 0.0) -> np.ndarray:
    """Return numbers of float64, and what is to be added to them, as sums of two of a data type."""
    out = np.empty((2, *values.shape), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        out[0] = values
        out[1] = (values - out[0]) + low
    return out


class Rounded(dict[np.dtype, np.ndarray]):
    """An array, rounded to each data type that is asked for.

    Parameters
    ----------
    values : ndarray of float64
    """

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.whole = writable(values)

    def __missing__(self, dtype: np.dtype) -> np.ndarray:
        rounded = self.whole
        if dtype != rounded.dtype:
            with np.errstate(over="ignore"):
                rounded = rounded.astype(dtype)
        self[dtype] = rounded
        return rounded


def in_row_type(
    scores_of: Callable[[np.ndarray, np.dtype], np.ndarray], X: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """Score rows in float64, or in float32 as far as that does not overflow.

    Parameters
    ----------
    scores_of : callable
        Called as ``scores_of(rows, dtype)``; returns scores class by class.
    X : ndarray, shape (n_rows, n_features)
    offsets : ndarray, shape (n_scores,)
        Scores with an infinite offset may be infinite.
    """
    dtype = row_type(X.dtype).floating
    out = scores_of(X, dtype)
    if dtype != _FLOAT64 and not all_finite(out):
        beyond = ~np.isfinite(out[np.isfinite(offsets)]).all(axis=0)
        if beyond.any():
            out[:, beyond] = scores_of(X[beyond].astype(_FLOAT64), _FLOAT64)
    return out


def among(X: np.ndarray, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return rows, without the other features if these are most of them, and those that count."""
    if X.shape[1] <= _SPARED * features.size:
        return X, features
    return X.take(features, axis=1), np.arange(features.size)


class SparseTerms:
    r"""Sums of :math:`t_j (A_{kj} t_j + B_{kj})` over the features, with :math:`t = x - m_k`.

    Multiplied out, the terms of entries that are not stored are a constant for each class, and a
    row takes time for its stored entries only. If a centre is far from its feature's zero, in
    terms of the standard deviation, that would cancel; such features are centred instead. There
    are few: more than 94 % of the rows of a class (of all classes, with pooled variances) have an
    entry in a feature whose mean is more than four standard deviations from zero. The rounding
    error of a squared distance D is thus a small multiple of :math:`2^{-53} (D + 32 n)`, for n
    stored entries.

    Parameters
    ----------
    features : ndarray of int, shape (d,)
        Features that take part.
    n_features : int
        Width of the rows.
    centres : ndarray, shape (d,) or (n_classes, d)
        Centres m.
    second, one : ndarray, shape (1, d) or (n_classes, d); or None
        Coefficients A and B; zero if None, but not both.
    precisions : ndarray, shape (1,), (d,), (1, d) or (n_classes, d)
        One over the variances.
    """

    def __init__(
        self,
        features: np.ndarray,
        n_features: int,
        centres: np.ndarray,
        second: np.ndarray | None,
        one: np.ndarray | None,
        precisions: np.ndarray,
    ) -> None:
        shape = centres.shape if one is None else one.shape
        far, m = precisions * centres**2 > _FAR, np.broadcast_to(centres, shape)
        a, b = (
            np.broadcast_to(0.0 if values is None else values, shape) for values in (second, one)
        )
        self._slots, classes, at = np.empty(0, np.int32), *np.empty((2, 0), np.intp)
        if far.any():
            far = np.broadcast_to(far, shape)
            classes, at = np.nonzero(far)
            of_any = np.unique(features[at])
            self._slots = np.full(n_features, -1, np.int32)
            self._slots[of_any] = np.arange(of_any.size)
        starts = np.searchsorted(classes, np.arange(shape[0] + 1))
        positions = self._slots[features[at]].astype(np.intp)
        self._far = starts, positions, *(array[classes, at] for array in (m, a, b))
        if at.size:
            a, b = np.where(far, 0.0, a), np.where(far, 0.0, b)

        def by_feature(values: np.ndarray) -> np.ndarray:
            if features.size == n_features:
                return np.ascontiguousarray(values.T)
            wide = np.zeros((n_features, shape[0]))
            wide[features] = values.T
            return wide

        self._quadratic = np.empty((0, 0)) if second is None else by_feature(a)
        self._linear = by_feature(b if second is None else b - 2 * a * m)
        self._base = -(b @ centres) if second is None else ((a * m - b) * m).sum(axis=1)

    def scores(self, X: CompressedRows, scale: float, offsets: np.ndarray) -> np.ndarray:
        """Return ``offsets[k] + scale * sum``, class by class: shape (n_classes, n_rows)."""
        out = np.empty((offsets.size, len(X)))
        tables = self._quadratic, self._linear, self._base, self._far, self._slots
        sparse_scores(*X.arrays, *tables, scale, offsets, out)
        return out


class LinearFunctions:
    """Linear functions of rows, each with a vector and an offset.

    Parameters
    ----------
    vectors : ndarray, shape (n_functions, d)
    offsets : ndarray, shape (n_functions,)
    features : ndarray of int, shape (d,)
        Features that take part.
    centre : ndarray, shape (d,), optional
        Subtracted from the rows; zero by default.
    precisions : ndarray, shape (d,) or (n_functions, d), optional
        One over the variances of the features, by which sparse rows are centred where the centre
        is far from zero.
    """

    def __init__(
        self,
        vectors: np.ndarray,
        offsets: np.ndarray,
        features: np.ndarray,
        centre: np.ndarray | None = None,
        precisions: np.ndarray | None = None,
    ) -> None:
        self._vectors, self._offsets, self._features = writable(vectors), offsets, features
        self._centre = np.zeros(features.size) if centre is None else centre
        self._precisions = np.zeros(1) if precisions is None else precisions
        self._sparse: SparseTerms | None = None
        self._packed: dict[np.dtype, np.ndarray] = {}

    def __call__(self, X: Any) -> Any:
        """Return the functions of rows, shape (n_functions, n_rows)."""
        if type(X) is CompressedRows:
            if self._sparse is None:
                terms = self._centre, None, self._vectors, self._precisions
                self._sparse = SparseTerms(self._features, X.shape[1], *terms)
            return self._sparse.scores(X, 1.0, self._offsets)
        return in_row_type(self._scores, X, self._offsets)

    def write(self, X: Any, out: Answers, temperature: float = 1.0) -> bool | None:
        """Write what follows from the functions; return None if they have to be held.

        The result is True if their values show that those of the rows are finite.
        """
        if type(X) is not np.ndarray or not self._offsets.size:
            return None
        dtype = row_type(X.dtype).floating
        finite = self._compute(X, dtype, 1 / temperature, (NO_SCORES, *out))
        if not finite and dtype != _FLOAT64:
            return None  # beyond float32
        return finite and X.shape[1] <= self._features.size * _SPARED

    def _scores(self, X: np.ndarray, dtype: np.dtype) -> np.ndarray:
        out = np.empty((self._offsets.size, len(X)))
        if out.size:  # for no scores, the kernels would write rows
            self._compute(X, dtype, 1.0, (out, NO_LABELS, NO_SCORES, False))
        return out

    def _compute(self, X: np.ndarray, dtype: np.dtype, scale: float, out: tuple[Any, ...]) -> bool:
        """Write what follows from the functions; return True if all of them are finite."""
        offsets = self._offsets if scale == 1.0 else scale * self._offsets
        X, features = among(X, self._features)
        if features.size <= FLOAT64_FEATURES:
            dtype = _FLOAT64
        packed = self._packed.get(dtype)
        if packed is None:
            packed = self._packed[dtype] = self._in_columns(X.shape[1], features, dtype)
        return linear_scores(X, packed[:2], packed[2:], scale, offsets, *out)

    def _in_columns(self, n_columns: int, features: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the centre in two parts, and the vectors, with zeros for all other columns."""
        width = -(-max(1, n_columns) // PADDED) * PADDED
        packed = zeros_in_lines((2 + len(self._vectors), width), dtype)
        packed[:2, features] = halves(self._centre, dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            packed[2:, features] = self._vectors
        return packed


class Distances(ABC):
    """Squared Mahalanobis distances of rows to centres.

    Parameters
    ----------
    roots : ndarray, shape (groups, d, d) or (groups, d)
        Roots of the inverse covariances: one for each centre, or one for all.
    features : ndarray of int, shape (d,)
        Features that take part.
    centres : ndarray, shape (n_centres, d)
    """

    def __init__(self, roots: np.ndarray, features: np.ndarray, centres: np.ndarray) -> None:
        self._roots = writable(roots)
        self._features, self._centres = features, centres

    @abstractmethod
    def scores(self, X: Any, scale: float, offsets: np.ndarray, margin: float = np.inf) -> Any:
        """Return ``offsets[k] + scale * (squared distance to centre k)``.

        Scores that are more than `margin` below the largest of their row need only be upper bounds
        with that property; then `scale` is negative.
        """

    def write(self, X: Any, scale: float, offsets: np.ndarray, out: Answers) -> bool | None:
        """Write what follows from the `scores`, as `LinearFunctions.write` does."""
        return None


class DirectDistances(Distances):
    """Distances by matrices of few features, by a kernel that holds scores of few rows."""

    _most_in_float64 = FLOAT64_FEATURES  # features of float32 rows that are multiplied in float64

    def __init__(self, roots: np.ndarray, features: np.ndarray, centres: np.ndarray) -> None:
        super().__init__(roots, features, centres)
        self._given: dict[np.dtype, tuple[np.ndarray, np.ndarray]] = {}

    def scores(
        self, X: Any, scale: float, offsets: np.ndarray, margin: float = np.inf
    ) -> np.ndarray:
        def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
            out = np.empty((offsets.size, len(rows)))
            self._compute(rows, dtype, scale, offsets, (out, NO_LABELS, NO_SCORES, False))
            return out

        if self._floating(X) == _FLOAT64:
            return scores_of(X, _FLOAT64)
        return in_row_type(scores_of, X, offsets)

    def write(self, X: Any, scale: float, offsets: np.ndarray, out: Answers) -> bool | None:
        if type(X) is not np.ndarray:
            return None
        dtype = self._floating(X)
        finite = self._compute(X, dtype, scale, offsets, (NO_SCORES, *out))
        if not finite and dtype != _FLOAT64:
            return None  # beyond float32
        return finite and X.shape[1] == self._features.size

    def _floating(self, X: np.ndarray) -> np.dtype:
        """Return the type in which rows are multiplied."""
        narrow = self._features.size <= self._most_in_float64
        return _FLOAT64 if narrow else row_type(X.dtype).floating

    def _compute(
        self, X: Any, dtype: np.dtype, scale: float, offsets: np.ndarray, out: tuple[Any, ...]
    ) -> bool:
        given = self._given.get(dtype)
        if given is None:
            given = self._given[dtype] = self._in_type(dtype)
        return scoring.panel_scores(*among(X, self._features), *given, scale, offsets, *out)

    def _in_type(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Return the centres and the roots as the kernel takes them."""
        with np.errstate(over="ignore"):
            return halves(self._centres, dtype), self._roots.astype(dtype, copy=False)


class DiagonalDistances(DirectDistances):
    """Distances by variances, in float64 whatever the rows are.

    For so little work, float32 would save nothing.
    """

    _most_in_float64 = sys.maxsize
    _sparse: SparseTerms | None = None

    def _in_type(self, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        return self._centres, self._roots

    def scores(
        self, X: Any, scale: float, offsets: np.ndarray, margin: float = np.inf
    ) -> np.ndarray:
        if type(X) is not CompressedRows:
            return super().scores(X, scale, offsets, margin)
        if self._sparse is None:
            terms = self._centres, self._roots, None, self._roots
            self._sparse = SparseTerms(self._features, X.shape[1], *terms)
        return self._sparse.scores(X, scale, offsets)


class PooledDistances(Distances):
    """Distances by one matrix, by which rows are multiplied once for all centres."""

    @cached_property
    def _white(self) -> tuple[LinearFunctions, DiagonalDistances]:
        """Rows less the mean of the centres in white coordinates, and distances there."""
        root, middle, d = self._roots[0], self._centres.mean(axis=0), self._features.size
        white = LinearFunctions(root, np.zeros(d), self._features, middle)
        centres = (self._centres - middle) @ root.T
        return white, DiagonalDistances(np.ones((1, d)), np.arange(d), centres)

    def scores(
        self, X: Any, scale: float, offsets: np.ndarray, margin: float = np.inf
    ) -> np.ndarray:
        white, distances = self._white
        return distances.scores(white(X).T.copy(), scale, offsets)


class MatrixDistances(Distances):
    r"""Distances by lower triangular roots W of inverse covariances, :math:`W^T W`.

    A feature that is constant within a class has no covariances, so that the root of the class has
    zeros in its row and column, but for the diagonal. Such features come last, and a matrix is
    only kept of the others, which are coupled.

    Attributes
    ----------
    n_coupled : ndarray of int, shape (groups,)
        Number of the coupled features.
    """

    def __init__(self, roots: np.ndarray, features: np.ndarray, centres: np.ndarray) -> None:
        super().__init__(roots, features, centres)
        used = roots != 0
        entries = np.count_nonzero(used, axis=1) + np.count_nonzero(used, axis=2)
        coupled = entries > 2 * np.einsum("gii->gi", used)
        order = np.argsort(~coupled, axis=1, kind="stable")
        self.n_coupled = np.count_nonzero(coupled, axis=1)
        starts = np.append(0, np.cumsum(self.n_coupled))
        weights = np.take_along_axis(np.einsum("gii->gi", roots), order, axis=1)
        self._kept = self.n_coupled, weights, starts
        packed = roots.reshape(-1, roots.shape[-1])
        if not coupled.all():
            packed = np.zeros((starts[-1], self.n_coupled.max()))
            for root, own, m, at in zip(roots, coupled, self.n_coupled, starts, strict=False):
                packed[at : at + m, :m] = root[np.ix_(own, own)]
        self._triangles = Rounded(packed)
        self._order = order
        self._ordered = np.take_along_axis(centres, np.broadcast_to(order, centres.shape), axis=1)
        self._parts: dict[tuple[int, np.dtype], np.ndarray] = {}

    def scores(
        self, X: Any, scale: float, offsets: np.ndarray, margin: float = np.inf
    ) -> np.ndarray:
        def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
            guesses = np.zeros(len(rows), np.int64)
            if margin < np.inf:
                self._nearest.write(rows, (guesses, NO_SCORES, False))
            best, both = np.full(len(rows), -np.inf), (False, True)
            return self._compute(rows, dtype, scale, offsets, margin, guesses, best, both)

        return in_row_type(scores_of, X, offsets)

    def own(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the squared distances of rows to the centres of their codes, in float64."""
        terms = np.inf, codes, np.full(len(X), -np.inf), (False,)
        out = self._compute(X, _FLOAT64, 1.0, np.zeros(len(self._centres)), *terms)
        return out[codes, np.arange(len(X))]

    def others(
        self, X: np.ndarray, scale: float, offsets: np.ndarray, codes: np.ndarray, own: np.ndarray
    ) -> np.ndarray:
        """Return scores for all centres but those of the rows' codes, whose scores are given.

        Those so far below the largest that their probability is zero are bounds, as of `scores`.
        """

        def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
            if len(rows) < len(X):  # those that are beyond float32
                return self.scores(rows, scale, offsets)
            terms = scoring.FAR, codes, own.copy(), (True,)
            out = self._compute(rows, dtype, scale, offsets, *terms)
            out[codes, np.arange(len(X))] = own
            return out

        return in_row_type(scores_of, X, offsets)

    def _compute(
        self,
        rows: np.ndarray,
        dtype: np.dtype,
        scale: float,
        offsets: np.ndarray,
        margin: float,
        guesses: np.ndarray,
        best: np.ndarray,
        turns: tuple[bool, ...],
    ) -> np.ndarray:
        """Return scores for the guesses, if `turns` has False, and for all other centres."""
        rows, features = among(rows, self._features)
        out, columns = np.empty((offsets.size, len(rows))), features[self._order]
        given = columns, self._ordered, self._in_columns(rows.shape[1], features, dtype)
        for others in turns:
            scoring.matrix_scores(
                rows, *given, *self._kept, self._triangles[dtype], scale, offsets, guesses, others,
                margin, best, out,
            )  # fmt: skip
        return out

    def _in_columns(self, n_columns: int, features: np.ndarray, dtype: np.dtype) -> np.ndarray:
        """Return the centres in two parts, with zeros for all other columns and more."""
        parts = self._parts.get((n_columns, dtype))
        if parts is None:
            parts = np.zeros((len(self._centres), 2, n_columns + PADDED), dtype)
            parts[..., features] = halves(self._centres, dtype).transpose(1, 0, 2)
            self._parts[n_columns, dtype] = parts
        return parts

    @cached_property
    def _nearest(self) -> LinearFunctions:
        """Functions whose largest is that of the closest centre, with one variance for all."""
        # Harmonic means over the groups of inverse variances, given the other features.
        with np.errstate(divide="ignore", invalid="ignore"):
            variances = 1 / np.einsum("gij,gij->gj", self._roots, self._roots)
            precisions = 1 / variances.mean(axis=0)
        middle = self._centres.mean(axis=0)
        gaps = self._centres - middle
        vectors = gaps * precisions
        offsets = -0.5 * (gaps * vectors).sum(axis=1)
        return LinearFunctions(vectors, offsets, self._features, middle)
