"""Scatter and variance of all rows together, from the scatter within classes and their means."""

from __future__ import annotations

import numpy as np

from streamgda.moments.centred import CentredSums
from streamgda.moments.triangles import symmetric

_EPS = np.finfo(np.float64).eps


def total_scatter(sums: CentredSums) -> np.ndarray:
    """Return the scatter of all rows about their common mean, shape (d, d), from matrices."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    return symmetric(sums.scatter.sum(axis=0)) + (gaps.T * count) @ gaps


def total_variance(sums: CentredSums) -> np.ndarray:
    """Return the variances of all rows about their common mean, shape (d,)."""
    gaps, count = between_means(sums), sums.count[sums.count > 0]
    scatter: np.ndarray = _within(sums) + count @ gaps**2
    return scatter / sums.count.sum()


def class_variance(sums: CentredSums, *, total: bool = False) -> np.ndarray:
    """Return the variances of each class, or of all rows; one for features without variance.

    As for scikit-learn's `StandardScaler`, that is a variance below what rounding may leave of
    equal values.

    Parameters
    ----------
    sums : CentredSums
        Sums with a scatter per class, or, for all rows, of any structure.
    total : bool
        The variances of all rows about their mean.

    Returns
    -------
    ndarray, shape (n_classes, d), or (1, d)
    """
    if total:
        count = sums.count.sum(keepdims=True)[:, None]
        variance, mean = total_variance(sums)[None], (sums.count / count) @ sums.mean
    else:
        count = np.where(sums.count > 0, sums.count, 1)[:, None]
        variance, mean = sums.structure.diagonal(sums.scatter) / count, sums.mean
    with np.errstate(over="ignore"):
        bound = count * _EPS * variance + (count * mean * _EPS) ** 2
    return np.where(variance > bound, variance, 1.0)


def pooled_variance(sums: CentredSums) -> np.ndarray:
    """Return the variances within classes, pooled, shape (d,).

    They are positive: a feature that varies only between classes gets its variance over all rows,
    and a constant one gets one.
    """
    within = _within(sums) / sums.count.sum()
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
