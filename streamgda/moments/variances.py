"""Scatter and variance of all rows together, from the scatter within classes and their means."""

from __future__ import annotations

import numpy as np

from streamgda.moments.centred import CentredSums
from streamgda.moments.triangles import symmetric


def total_scatter(sums: CentredSums) -> np.ndarray:
    """Return the scatter of all rows about their common mean, shape (d, d), from matrices."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    return symmetric(sums.scatter.sum(axis=0)) + (gaps.T * count) @ gaps


def total_variance(sums: CentredSums) -> np.ndarray:
    """Return the variances of all rows about their common mean, shape (d,)."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    scatter: np.ndarray = _within(sums) + count @ gaps**2
    return scatter / sums.count.sum()


def pooled_variance(sums: CentredSums, weight: float) -> np.ndarray:
    """Return the variances within classes, the sums of squares over `weight`, shape (d,).

    They are positive: a feature that varies only between classes gets its variance over all rows,
    and a constant one gets one.
    """
    within = _within(sums) / weight if weight > 0 else np.zeros(sums.n_features)
    variance = np.where(within > 0, within, total_variance(sums))
    return np.where(variance > 0, variance, 1.0)


def constant_features(sums: CentredSums) -> np.ndarray:
    """Return a mask of the features that have one value in all rows, shape (n_features,)."""
    rows = sums.count > 0
    mean, low = sums.mean[rows], sums.mean_low[rows]
    return (_within(sums) == 0) & (mean == mean[0]).all(axis=0) & (low == low[0]).all(axis=0)


def between_means(sums: CentredSums) -> np.ndarray:
    """Return the means of the classes with rows, less the mean of all rows."""
    rows = sums.count > 0
    weight = sums.count[rows] / sums.count.sum()
    mean, low = sums.mean[rows], sums.mean_low[rows]
    gaps = (mean - mean[0]) + (low - low[0])
    return gaps - weight @ gaps


def _within(sums: CentredSums) -> np.ndarray:
    """Return the sums of squares within classes, shape (d,)."""
    return np.asarray(sums.structure.diagonal(sums.scatter).sum(axis=0))
