"""Cholesky factors of covariance matrices, with their ranks."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.linalg.lapack import dpstrf

from streamgda.kernels.triangles import clear_upper
from streamgda.runtime import lapack


def inverse_roots(covariances: np.ndarray, tol: float, out: np.ndarray) -> list[int]:
    """Write the inverses of the lower Cholesky factors; return the ranks.

    Where a rank is not full, what is written has no meaning.

    Parameters
    ----------
    covariances : ndarray, shape (groups, d, d)
    tol : float
        A covariance is singular if, scaled to unit variances, it has an eigenvalue of at most
        ``tol ** 2``.
    out : ndarray, shape (groups, d, d)
    """
    scale = _deviations(covariances)
    _correlations(covariances, scale, out)
    ranks = []
    for covariance, deviations, root in zip(covariances, scale, out, strict=True):
        ranks.append(_factorise(covariance, deviations, tol, root))
        if ranks[-1] == len(root):
            lapack.invert_lower(root)
            clear_upper(root)
    out /= scale[:, None, :]
    return ranks


def _factorise(
    covariance: np.ndarray, deviations: np.ndarray, tol: float, correlation: np.ndarray
) -> int:
    """Replace a correlation matrix by its Cholesky factor; return its rank."""
    d = len(deviations)
    norm = lapack.norm(correlation)
    failed = not lapack.cholesky(correlation)
    # |A^-1| in the 2-norm is at most that in the 1-norm, of which LAPACK gives an estimate;
    # eigenvalues are only computed where it leaves a doubt.
    if not failed and lapack.reciprocal_condition(correlation, norm) * norm > 10 * tol**2:
        return d
    scaled = _correlations(covariance[None], deviations[None], np.empty((1, d, d)))[0]
    if not np.isfinite(scaled).all():  # beyond float64
        return 0
    rank = int((linalg.eigvalsh(scaled, check_finite=False) > _limit(tol, d)).sum())
    return min(rank, d - 1) if failed else rank


def truncated_root(covariance: np.ndarray, tol: float, metric: str) -> np.ndarray:
    r"""Return a lower triangular root W of a pseudo-inverse, :math:`W^T W`, of a covariance.

    Directions are dropped if their variance is at most ``tol ** 2`` when all features are scaled
    to unit variances. The rows of W that belong to them come first, and are zero.

    Parameters
    ----------
    covariance : ndarray, shape (d, d)
    tol : float
    metric : {"scaled", "features"}
        The dropped directions are principal axes of the scaled features, or as many of the
        features themselves, which gives the Moore-Penrose inverse.
    """
    d = len(covariance)
    deviations = _deviations(covariance[None])[0]
    scaled = _correlations(covariance[None], deviations[None], np.empty((1, d, d)))[0]
    values, axes = linalg.eigh(scaled, check_finite=False)
    rank = int((values > _limit(tol, d)).sum())
    if metric == "features" and rank < d:
        values, axes = linalg.eigh(covariance, check_finite=False)
        deviations = np.ones(d)
    root = np.zeros((d, d))
    if rank:
        kept = (axes / deviations[:, None]).T[d - rank :] / np.sqrt(values[d - rank :, None])
        # With the order of its columns reversed, R of a QR decomposition becomes L.
        triangle = linalg.qr(kept[:, ::-1], mode="r", check_finite=False)[0]
        root[d - rank :] = triangle[::-1, ::-1]
        root[root.diagonal() < 0] *= -1
    return root


def _limit(tol: float, d: int) -> float:
    """Return the largest eigenvalue of a correlation matrix that counts as zero."""
    return max(tol**2, d * float(np.finfo(float).eps))


def _deviations(covariances: np.ndarray) -> np.ndarray:
    """Return the standard deviations of the features, one instead of zero."""
    deviations = np.sqrt(np.maximum(np.einsum("gii->gi", covariances), 0))
    return np.where(deviations > 0, deviations, 1.0)


def _correlations(covariances: np.ndarray, scale: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Write covariances scaled to unit variances."""
    np.divide(covariances, scale[:, :, None], out=out)
    out /= scale[:, None, :]
    return out


def pivoted_root(covariance: np.ndarray) -> np.ndarray:
    """Return L with L L' = covariance, by Cholesky's method with pivots, which ends at the rank."""
    scale = np.sqrt(covariance.diagonal())
    divisor = np.where(scale > 0, scale, 1.0)
    factor, pivots, rank, _ = dpstrf(covariance / divisor[:, None] / divisor, lower=1)
    root = np.empty_like(factor)
    root[pivots - 1] = np.tril(factor)
    root[:, rank:] = 0
    return np.ascontiguousarray(root * scale[:, None])
