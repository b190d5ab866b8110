"""Scores of sparse rows: sums over the entries that are stored."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.kernels.sparse import sparse_scores
from streamgda.rows.sparse import CompressedRows

_FAR = 16.0  # squared distance of a centre from zero, in units of its variance


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
    centres : ndarray, shape (n_classes, n_features), optional
        Centres m; zero by default.
    second : ndarray, shape (n_classes, n_features), optional
        Coefficients A; zero by default.
    one : ndarray, shape (n_classes, n_features), optional
        Coefficients B; zero by default, but not both.
    far : ndarray of bool, shape (n_classes, n_features), optional
        Features to be centred; none by default.
    """

    def __init__(
        self,
        centres: np.ndarray | None,
        second: np.ndarray | None = None,
        one: np.ndarray | None = None,
        far: np.ndarray | None = None,
    ) -> None:
        given: Any = one if second is None else second
        zeros = np.broadcast_to(0.0, given.shape)
        m, a, b = (zeros if values is None else values for values in (centres, second, one))
        self._slots = np.empty(0, np.int32)
        where = np.empty((2, 0), np.intp)
        if far is not None and far.any():
            where = np.array(np.nonzero(far))
            of_any = np.flatnonzero(far.any(axis=0))
            self._slots = np.full(given.shape[1], -1, np.int32)
            self._slots[of_any] = np.arange(of_any.size)
        classes, features = where
        starts = np.searchsorted(classes, np.arange(given.shape[0] + 1))
        positions = self._slots[features].astype(np.intp)
        self._far = starts, positions, *(array[classes, features] for array in (m, a, b))
        if far is not None and where.size:
            a, b = np.where(far, 0.0, a), np.where(far, 0.0, b)
        self._quadratic = np.empty((0, 0)) if second is None else np.ascontiguousarray(a.T)
        self._linear = np.ascontiguousarray((b if second is None else b - 2 * a * m).T)
        centred = centres is not None
        self._base = ((a * m - b) * m).sum(axis=1) if centred else np.zeros(given.shape[0])

    def scores(self, X: CompressedRows, scale: float, offsets: np.ndarray) -> np.ndarray:
        """Return ``offsets[k] + scale * sum``, class by class: shape (n_classes, n_rows)."""
        out = np.empty((offsets.size, len(X)))
        tables = self._quadratic, self._linear, self._base, self._far, self._slots
        sparse_scores(*X.arrays, *tables, scale, offsets, out)
        return out


class SparseScores:
    """Distances and linear functions of sparse rows, with a variance for each feature.

    Parameters
    ----------
    roots : ndarray, shape (groups, d)
        One over the variances.
    features : ndarray of int, shape (d,)
        Features in the density.
    n_features : int
        Width of the rows.
    """

    def __init__(self, roots: np.ndarray, features: np.ndarray, n_features: int) -> None:
        self._roots, self._features, self._n_features = roots, features, n_features
        # By the identity of an array, which is kept, so that no other gets it.
        self._terms: dict[int, tuple[np.ndarray, SparseTerms]] = {}

    def distances(
        self, X: CompressedRows, centres: np.ndarray, scale: float, offsets: np.ndarray
    ) -> np.ndarray:
        """Return squared distances to centres, scaled, plus an offset for each.

        Tables are kept for each array of centres, shape (n_centres, d).
        """
        terms = self._of(centres, centres, self._roots, None)
        return terms.scores(X, scale, offsets)

    def products(
        self, X: CompressedRows, centre: np.ndarray, coefficients: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """Return the products of rows less a centre and coefficients, plus an offset for each.

        Tables are kept for each array of coefficients, shape (n_functions, d).
        """
        terms = self._of(coefficients, centre, None, coefficients)
        return terms.scores(X, 1.0, offsets)

    def _of(
        self,
        key: np.ndarray,
        centres: np.ndarray,
        second: np.ndarray | None,
        one: np.ndarray | None,
    ) -> SparseTerms:
        if id(key) not in self._terms:
            far = self._roots * centres**2 > _FAR
            wide: list[Any] = [
                None if values is None else self._among_all(np.broadcast_to(values, key.shape))
                for values in (centres, second, one, far)
            ]
            self._terms[id(key)] = key, SparseTerms(*wide)
        return self._terms[id(key)][1]

    def _among_all(self, values: np.ndarray) -> np.ndarray:
        """Return values of the features in the density, with zeros for all others."""
        wide = np.zeros((len(values), self._n_features), values.dtype)
        wide[:, self._features] = values
        return wide
