"""Cholesky factors of covariance matrices, with their ranks."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.linalg.lapack import dlantr

from streamgda.kernels.triangles import clear_upper, remove_directions
from streamgda.runtime import lapack


def invert(covariance: np.ndarray, tol: float, singular: str) -> int:
    r"""Replace a covariance by the inverse of its lower Cholesky factor; return the rank.

    Parameters
    ----------
    covariance : ndarray, shape (d, d)
        The whole matrix.
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``, or of no more than rounding errors.
    singular : {"refuse", "scaled", "features"}
        What is written for a singular covariance: nothing that has a meaning; or a lower triangular
        root W of a pseudo-inverse, :math:`W^T W`. The directions that it drops are principal axes
        of the scaled features, or as many of the features themselves, which gives the Moore-Penrose
        inverse. The rows of W that belong to them come first, and are zero.
    """
    d = len(covariance)
    scale = deviations(covariance)
    covariance /= scale[:, None]
    covariance /= scale
    variances = covariance.diagonal().copy()
    positive, bound = lapack.cholesky(covariance), 0.0
    if positive:
        lapack.invert_lower(covariance)
        # The 2-norm of the inverse W'W is at most |W|_1 |W|_inf; eigenvalues are only computed
        # where that leaves a doubt.
        upper = covariance.T  # as LAPACK reads it, column by column
        bound = 1 / (dlantr("1", upper, uplo="U") * dlantr("I", upper, uplo="U"))
    limit = rank_limit(tol, d)
    if not bound > limit:
        correlation = _symmetric(covariance, variances)
        if not np.isfinite(correlation).all():  # beyond float64
            return 0
        axes = _axes_below(limit, correlation, least=int(not positive))
        while axes.size:
            rank = d - axes.shape[1]
            if not rank or singular == "refuse":
                return rank
            root = _truncated_root(correlation, scale, axes, singular)
            if root is not None:
                covariance[...] = root
                return rank
            limit *= 2  # so close to rounding errors that there is no Cholesky factor
            axes = _axes_below(limit, correlation)
    clear_upper(covariance)
    covariance /= scale
    return d


def _symmetric(upper: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
    """Return a symmetric matrix from its elements above the diagonal, and those on it."""
    matrix = np.triu(upper, 1)
    matrix += matrix.T
    np.fill_diagonal(matrix, diagonal)
    return matrix


def _axes_below(limit: float, matrix: np.ndarray, least: int = 0) -> np.ndarray:
    """Return the principal axes of variances up to a limit, and at least so many, as columns."""
    below = -np.inf, limit
    axes: np.ndarray = linalg.eigh(matrix, subset_by_value=below, check_finite=False)[1]
    return axes if axes.shape[1] >= least else _first_axes(least, matrix)


def _first_axes(n: int, matrix: np.ndarray) -> np.ndarray:
    """Return the principal axes of the least variances as columns."""
    axes: np.ndarray = linalg.eigh(matrix, subset_by_index=(0, n - 1), check_finite=False)[1]
    return axes


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
    clear_upper(root)
    images = root.T @ axes
    images /= np.linalg.norm(images, axis=0)
    lapack.invert_lower(root)
    remove_directions(root, images)
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


def rank_limit(tol: float, d: int) -> float:
    """Return the largest eigenvalue of a correlation matrix that counts as zero."""
    return max(tol**2, d * float(np.finfo(float).eps))


def deviations(covariance: np.ndarray) -> np.ndarray:
    """Return the standard deviations of the features, one instead of zero."""
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0))
    return np.where(deviations > 0, deviations, 1.0)
