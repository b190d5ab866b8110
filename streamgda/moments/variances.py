"""Scatter and variance of all rows together, from the scatter within classes and their means."""

from __future__ import annotations

import numpy as np

from streamgda.kernels.triangles import mirror
from streamgda.moments.centred import CentredSums


def symmetric(lower: np.ndarray) -> np.ndarray:
    """Matrices whose lower triangles are given, shape (..., d, d)."""
    full = np.array(lower, order="C")
    for matrix in full.reshape(-1, *full.shape[-2:]):
        mirror(matrix)
    return full


def diagonals(scatter: np.ndarray) -> np.ndarray:
    """Sums of squares, shape (groups, d), of matrices or of what is diagonal already."""
    return scatter.diagonal(axis1=1, axis2=2) if scatter.ndim == 3 else scatter


def total_scatter(sums: CentredSums) -> np.ndarray:
    """Scatter of all rows about their common mean, shape (d, d), of moments with matrices."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    return symmetric(sums.scatter.sum(axis=0)) + (gaps.T * count) @ gaps


def total_variance(sums: CentredSums) -> np.ndarray:
    """Variance of all rows about their common mean, shape (d,)."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    scatter: np.ndarray = diagonals(sums.scatter).sum(axis=0) + count @ gaps**2
    return scatter / sums.count.sum()


def between_means(sums: CentredSums) -> np.ndarray:
    """Means of the classes with rows, less the mean of all rows."""
    rows = sums.count > 0
    weight = sums.count[rows] / sums.count.sum()
    mean, low = sums.mean[rows], sums.mean_low[rows]
    gaps = (mean - mean[0]) + (low - low[0])
    return gaps - weight @ gaps
