"""Linear functions and roots as the scoring kernels read them, and scores of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamgda.kernels import scoring
from streamgda.kernels.narrow_distances import FLOAT64_FEATURES
from streamgda.rows.arrays import row_type
from streamgda.rows.invalid_rows import all_finite

_FLOAT64 = np.dtype(np.float64)

# Handed to kernels that write either scores or labels, in place of the others.
NO_SCORES, NO_LABELS = np.empty((0, 0)), np.empty(0, np.int64)


class Rounded(dict[np.dtype, np.ndarray]):
    """An array, rounded to each data type that is asked for.

    Parameters
    ----------
    values : ndarray of float64
    """

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.whole: np.ndarray = np.require(values, requirements=("C", "W"))

    def __missing__(self, dtype: np.dtype) -> np.ndarray:
        with np.errstate(over="ignore"):
            self[dtype] = rounded = self.whole.astype(dtype, copy=False)
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


def linear_scores(
    X: np.ndarray, features: np.ndarray, centre: np.ndarray, vectors: Rounded, offsets: np.ndarray
) -> np.ndarray:
    """Return linear functions of rows, class by class: shape (n_functions, n_rows).

    Parameters
    ----------
    X : ndarray, shape (n_rows, n_features)
    features : ndarray of int, shape (d,)
        Features that take part.
    centre : ndarray, shape (d,)
        Subtracted from the rows.
    vectors : Rounded, shape (n_functions, d)
    offsets : ndarray, shape (n_functions,)
    """

    def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
        n_rows, d = scoring.rows_at_a_time(len(rows), features.size), features.size
        scratch = np.empty((n_rows, d), dtype), np.empty((n_rows, offsets.size), dtype)
        out = np.empty((offsets.size, len(rows)))
        scoring.linear_scores(rows, features, centre, vectors[dtype], offsets, *scratch, out)
        return out

    if features.size <= FLOAT64_FEATURES and row_type(X.dtype).floating != _FLOAT64:
        X = X.astype(_FLOAT64)
    return in_row_type(scores_of, X, offsets)


class PackedRoots:
    r"""Lower triangular roots W of inverse covariances, :math:`W^T W`, packed for scoring.

    A feature that is constant within a class has no covariances, so that the root of the class has
    zeros in its row and column, but for the diagonal. Such features come last, and a matrix is
    only kept of the others, which are coupled.

    Parameters
    ----------
    roots : ndarray, shape (groups, d, d)

    Attributes
    ----------
    n_coupled : ndarray of int, shape (groups,)
        Number of the coupled features.
    """

    def __init__(self, roots: np.ndarray) -> None:
        used = roots != 0
        entries = np.count_nonzero(used, axis=1) + np.count_nonzero(used, axis=2)
        coupled = entries > 2 * np.einsum("gii->gi", used)
        self._order = np.argsort(~coupled, axis=1, kind="stable")
        self.n_coupled = np.count_nonzero(coupled, axis=1)
        self._weights = np.take_along_axis(np.einsum("gii->gi", roots), self._order, axis=1)
        self._starts = np.append(0, np.cumsum(self.n_coupled))
        self._triangles = Rounded(self._packed(roots, coupled))
        self._roots = roots
        self._layout: tuple[np.ndarray, ...] = (np.empty(0),)
        self._nearest: tuple[np.ndarray, Rounded, np.ndarray] | None = None
        self._pooled: tuple[np.ndarray, np.ndarray, Rounded, np.ndarray] | None = None

    def _packed(self, roots: np.ndarray, coupled: np.ndarray) -> np.ndarray:
        """Return the rows and columns of the coupled features, root below root."""
        if coupled.all():
            return roots.reshape(-1, roots.shape[-1])
        packed = np.zeros((self._starts[-1], self.n_coupled.max()))
        for root, own, m, start in zip(roots, coupled, self.n_coupled, self._starts, strict=False):
            packed[start : start + m, :m] = root[np.ix_(own, own)]
        return packed

    def scores(
        self,
        X: np.ndarray,
        features: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
        margin: float,
    ) -> np.ndarray:
        """Return scores as `Structure.scores` does."""
        if len(self._roots) < len(centres):
            return self._scores_of_pooled(X, features, centres, scale, offsets)
        prunes = margin < np.inf and features.size > scoring.BLOCK

        def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
            guesses = np.zeros(len(rows), np.int64)
            if prunes:
                guesses = self._guess(rows, features, centres, dtype)
            out, _, turn = self._turns(rows, dtype, features, centres, scale, offsets, guesses)
            turn(False, margin)
            turn(True, margin)
            return out

        return in_row_type(scores_of, X, offsets)

    def _turns(
        self,
        X: np.ndarray,
        dtype: np.dtype,
        features: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
        guesses: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, Callable[[bool, float], None]]:
        """Return empty scores, the largest one of each row, and a function that fills them.

        Called with False, it scores the guesses of the rows, and with True all other classes.
        """
        n_rows, most = len(X), scoring.rows_at_a_time(len(X), features.size)
        widest = self._triangles.whole.shape[1]
        numbers, best = np.empty(n_rows + 1, np.int64), np.full(n_rows, -np.inf)
        scratch = (
            np.empty(most),
            np.empty((most, widest), dtype),
            np.empty((most, min(scoring.BLOCK, widest)), dtype),
        )
        out = np.empty((offsets.size, n_rows))

        def turn(others: bool, margin: float) -> None:
            scoring.matrix_scores(
                X, *self._ordered(features, centres), self.n_coupled, self._weights,
                self._starts, self._triangles[dtype], scale, offsets, guesses, others, margin,
                numbers, best, *scratch, out,
            )  # fmt: skip

        return out, best, turn

    def _scores_of_pooled(
        self,
        X: np.ndarray,
        features: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
    ) -> np.ndarray:
        """Return scores by one root, by which rows are multiplied once for all centres."""
        d, pooled = features.size, self._pooled
        if pooled is None or pooled[0] is not centres:
            root, middle = self._roots[0], centres.mean(axis=0)
            white = (centres - middle) @ root.T
            self._pooled = pooled = centres, middle, Rounded(root), white
        _, middle, root_rows, white = pooled
        rows = linear_scores(X, features, middle, root_rows, np.zeros(d)).T.copy()
        out = np.empty((len(centres), len(X)))
        own = np.arange(d), white, np.ones((1, d)), scale, offsets
        scoring.diagonal_scores(rows, *own, out, NO_LABELS)
        return out

    def _ordered(self, features: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return columns of rows in order, ends of runs of adjacent ones, and centres in order."""
        if self._layout[0] is not centres:
            columns, d = features[self._order], features.size
            ends = np.full(columns.shape, d)
            ends[:, :-1][np.diff(columns, axis=1) != 1] = 0
            ends = np.where(ends, ends, np.arange(1, d + 1))
            ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
            order = np.broadcast_to(self._order, centres.shape)
            ordered = np.take_along_axis(centres, order, axis=1)
            numbers = (np.array(n, np.uint64, order="C") for n in (columns, ends))
            self._layout = centres, *numbers, ordered
        return self._layout[1:]

    def _guess(
        self, X: np.ndarray, features: np.ndarray, centres: np.ndarray, dtype: np.dtype
    ) -> np.ndarray:
        """Return the closest centre of each row, with one variance of each feature for all."""
        nearest = self._nearest
        if nearest is None or nearest[0] is not centres:
            # Harmonic means over the groups of inverse variances, given the other features.
            with np.errstate(divide="ignore", invalid="ignore"):
                variances = 1 / np.einsum("gij,gij->gj", self._roots, self._roots)
                precisions = 1 / variances.mean(axis=0)
            middle = centres.mean(axis=0)
            vectors = np.zeros((X.shape[1], len(centres)))
            vectors[features] = (centres - middle).T * precisions[:, None]
            offsets = -0.5 * np.einsum("kj,jk->k", centres + middle, vectors[features])
            self._nearest = nearest = centres, Rounded(vectors), offsets
        _, rounded, offsets = nearest
        with np.errstate(over="ignore", invalid="ignore"):
            return (X.astype(dtype, copy=False) @ rounded[dtype] + offsets).argmax(axis=1)
