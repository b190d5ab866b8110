"""Sums over the rows that have both features of a pair, for `PairwiseMoments`."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg


def means_of_existing(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the means of the existing values, zero where there are none, shape (d,)."""
    exists = ~np.isnan(X)
    n = weights @ exists
    with np.errstate(over="ignore"):
        return np.asarray(weights @ np.where(exists, X, 0.0) / np.where(n > 0, n, 1.0))


def centred_pair_sums(
    X: np.ndarray, weights: np.ndarray, origin: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Return the weight of a class's rows, and the weights, means and products of its pairs.

    The means are relative to the origin. The rows are overwritten.
    """
    exists = ~np.isnan(X)
    with np.errstate(over="ignore", invalid="ignore"):
        X -= origin
        shift = means_of_existing(X, weights)
        X -= shift
        X[~exists] = 0
        M = exists.astype(np.float64)
        pairs = (weights[:, None] * M).T @ M
        weighted = weights[:, None] * X
        sums, products = weighted.T @ M, weighted.T @ X
        means = sums / np.where(pairs > 0, pairs, 1.0)
        products -= means * sums.T
        np.fill_diagonal(products, np.maximum(products.diagonal(), 0))  # of equal values
        means += shift[:, None]
    return weights.sum(), pairs, means, products


def merge_pairs(mine: Any, theirs: Any) -> None:
    """Add the second part's pairs, means and products to the first's, in place."""
    (n, mean, products), (m, other_mean, other_products) = mine, theirs
    share = m / np.where(n + m > 0, n + m, 1.0)
    gap = other_mean - mean
    with np.errstate(over="ignore", invalid="ignore"):
        products += other_products + gap * gap.T * (n * share)
        mean += gap * share
    n += m


def positive_definite(covariance: np.ndarray, least: float) -> np.ndarray:
    """Return a positive definite covariance with the same variances."""
    deviations = np.sqrt(np.maximum(covariance.diagonal(), 0))  # of constant features, rounded
    scale = np.where(deviations > 0, deviations, 1.0)
    correlation = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)  # of constant features too
    values, vectors = linalg.eigh(correlation)
    if values[0] >= least:
        return covariance
    raised = (vectors * np.maximum(values, max(least, -values[0]))) @ vectors.T
    unit = np.sqrt(raised.diagonal())
    return raised / np.outer(unit, unit) * np.outer(deviations, deviations)
