r"""Separability of subsets of features, one feature more or less at a time.

For a covariance matrix S and a subset F of the features, a *swept* matrix A holds what depends on F
(Goodnight, A tutorial on the SWEEP operator, 1979): :math:`-S_{FF}^{-1}` in the rows and columns of
F, :math:`S_{FF}^{-1} S_{FR}` beside it, and the covariance of the others given F. To add a feature
or to remove it is the same change of rank one, about its diagonal entry, and these entries give the
gain of each feature.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from streamgda.models.covariance import Covariances
from streamgda.models.separability import Measure, Terms


class Subset(Protocol):
    """A subset of the features, with the terms of a measure for all pairs of classes."""

    def terms(self) -> Terms:
        """Return the terms after each feature is added, or removed if it is in: (d, n_pairs)."""

    def share(self) -> np.ndarray:
        """Return the least shares of the features' variances that do not depend on the subset."""

    def toggle(self, k: int) -> None:
        """Add a feature, or remove it."""


def subset_of(covariances: Covariances, means: np.ndarray, measure: Measure) -> Subset:
    """Return the empty subset of the features that vary, for classes with rows."""
    seen = np.flatnonzero(covariances.count > 0)
    structure, values = covariances.structure, covariances.values
    values = values[seen] if structure.per_class else values
    means = means[np.ix_(seen, covariances.features)]
    scale = np.sqrt(structure.diagonal(values).mean(axis=0))  # units make no difference
    means = means / scale
    if not structure.matrix:
        return _Independent(values / scale**2, means, measure)
    values = values / (scale * scale[:, None])
    if structure.per_class and not measure.by_overlap:
        return _Divergences(values, means)
    return _Overlaps(values, means, measure)


def subset_bytes(covariances: Covariances, measure: Measure) -> int:
    """Return the bytes that a subset needs, besides the covariances."""
    d, structure = covariances.features.size, covariances.structure
    k = int((covariances.count > 0).sum())
    n_pairs = k * (k - 1) // 2
    n_matrices = 1
    if structure.per_class:
        n_matrices = k + n_pairs * (1 if measure.by_overlap else 2)
    return 8 * d * (n_matrices * (d if structure.matrix else 0) + 8 * n_pairs)


class _Independent:
    """Features without covariances, whose terms are sums over the features."""

    def __init__(self, variances: np.ndarray, means: np.ndarray, measure: Measure) -> None:
        first, second = np.triu_indices(len(means), 1)
        variances = np.broadcast_to(variances, means.shape)
        v, w, squares = variances[first], variances[second], (means[first] - means[second]) ** 2
        if measure.by_overlap:
            terms = 2 * squares / (v + w), np.log1p((v - w) ** 2 / (4 * v * w)) / 2
        else:
            terms = _divergence(v, w, squares), _divergence(w, v, squares)
        self._each = tuple(np.ascontiguousarray(term.T) for term in terms)
        self._sign = np.ones((means.shape[1], 1))
        self._sums = tuple(np.zeros(len(first)) for _ in terms)

    def terms(self) -> Terms:
        there, back = (
            np.maximum(held + self._sign * each, 0)
            for held, each in zip(self._sums, self._each, strict=True)
        )
        return there, back

    def share(self) -> np.ndarray:
        return np.ones(len(self._sign))

    def toggle(self, k: int) -> None:
        for held, each in zip(self._sums, self._each, strict=True):
            np.add(held, self._sign[k] * each[k], out=held)
        self._sign[k] *= -1


def _divergence(v: np.ndarray, w: np.ndarray, squares: np.ndarray) -> np.ndarray:
    excess = (v - w) / w
    return (excess - np.log1p(excess) + squares / w) / 2


class Swept:
    """Swept matrices and their log-determinants."""

    def __init__(self, matrices: np.ndarray) -> None:
        self.matrices = matrices
        self.logs = np.zeros((len(matrices), 1))
        self._variances = self.pivots().copy()

    def pivots(self) -> np.ndarray:
        """Return the diagonals, shape (n_matrices, d): positive for features not in the subset."""
        return np.einsum("gii->gi", self.matrices)

    def share(self) -> np.ndarray:
        """See `Subset.share`."""
        return np.asarray((self.pivots() / self._variances).min(axis=0))

    def toggled_logs(self) -> np.ndarray:
        """Return the log-determinants after each feature is toggled, shape (n_matrices, d)."""
        return self.logs + np.log(np.abs(self.pivots()))

    def move(
        self,
        scatters: np.ndarray,
        changes: np.ndarray,
        k: int,
        of: np.ndarray | None = None,
    ) -> None:
        """Bring scatters into the coordinates of matrices after feature k was toggled.

        Parameters
        ----------
        scatters : ndarray, shape (n, d, d)
            Scatters in the coordinates before.
        changes : ndarray, shape (n_matrices, d)
            Result of `toggle`.
        k : int
            Feature.
        of : ndarray of int, shape (n,), optional
            Matrices of the scatters; by default each has its own.
        """
        for scatter, j in zip(scatters, range(len(scatters)) if of is None else of, strict=True):
            change, row = changes[j], scatter[k].copy()
            half = row + change * (scatter[k, k] / 2)
            sides = np.stack([change, half], axis=1), np.stack([half, change])
            np.add(scatter, sides[0] @ sides[1], out=scatter)

    def toggle(self, k: int) -> np.ndarray:
        """Add or remove a feature; return by which multiples of its vector the others change."""
        changes = np.empty(self.matrices.shape[:2])
        self.logs[:, 0] += np.log(np.abs(self.matrices[:, k, k]))
        for matrix, change in zip(self.matrices, changes, strict=True):
            row, pivot = matrix[k].copy(), matrix[k, k]
            change[:] = -row / pivot
            change[k] = 1 / abs(pivot) - 1
            np.add(matrix, np.outer(change, row), out=matrix)
            row /= abs(pivot)
            row[k] = -1 / pivot
            matrix[k] = matrix[:, k] = row
        return changes


class _Overlaps:
    """Terms of the Bhattacharyya distances, or of any measure for a pooled covariance."""

    def __init__(self, covariances: np.ndarray, means: np.ndarray, measure: Measure) -> None:
        first, second = np.triu_indices(len(means), 1)
        self._gaps = means[first] - means[second]
        self._distance = np.zeros((len(first), 1))
        self._halves = not measure.by_overlap  # each divergence is half the squared distance
        self._first, self._second, self._host = first, second, first * 0
        if len(covariances) > 1:
            self._host = len(means) + np.arange(len(first))
            between = (covariances[first] + covariances[second]) / 2
            covariances = np.concatenate([covariances, between])
        else:
            self._first = self._second = self._host
        self._swept = Swept(covariances)
        self.share = self._swept.share

    def terms(self) -> Terms:
        logs = self._swept.toggled_logs()
        logs = logs[self._host] - (logs[self._first] + logs[self._second]) / 2
        distance = self._distance + self._gaps**2 / self._swept.pivots()[self._host]
        distance = np.maximum(distance.T, 0)
        if self._halves:
            return distance / 2, distance / 2
        return distance, np.maximum(logs.T, 0)

    def toggle(self, k: int) -> None:
        gap = self._gaps[:, k].copy()
        self._distance[:, 0] += gap**2 / self._swept.matrices[self._host, k, k]
        self._gaps += self._swept.toggle(k)[self._host] * gap[:, None]


class _Divergences:
    r"""Kullback-Leibler divergences of separate covariances.

    That from class i to j has the trace of :math:`\Sigma_j^{-1}` times the second moments of class
    i about the mean of class j. These moments are kept in the coordinates of the swept matrix of
    class j.
    """

    def __init__(self, covariances: np.ndarray, means: np.ndarray) -> None:
        first, second = np.triu_indices(len(means), 1)
        self._from, self._to = np.concatenate([[first, second], [second, first]], axis=1)
        gaps = means[self._from] - means[self._to]
        self._about = covariances[self._from] + gaps[:, :, None] * gaps[:, None, :]
        self._trace = np.zeros((len(gaps), 1))
        self._size, self._step = 0, np.ones(means.shape[1], np.int64)
        self._swept = Swept(covariances)
        self.share = self._swept.share

    def terms(self) -> Terms:
        logs, squares = self._swept.toggled_logs(), np.einsum("pii->pi", self._about)
        trace = self._trace + squares / self._swept.pivots()[self._to] - (self._size + self._step)
        divergence = np.maximum(trace + logs[self._to] - logs[self._from], 0).T / 2
        there, back = np.split(divergence, 2, axis=1)
        return there, back

    def toggle(self, k: int) -> None:
        squares = self._about[:, k, k]
        self._trace[:, 0] += squares / self._swept.matrices[self._to, k, k]
        self._size += self._step[k]
        self._step[k] *= -1
        self._swept.move(self._about, self._swept.toggle(k), k, self._to)
