"""Diagonal covariances: the variances of the features, ``"diag"`` and ``"tied_diag"``."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.kernels import scoring
from streamgda.kernels.accumulate import add_centred_squares
from streamgda.kernels.integer_scatter import add_integer_squares
from streamgda.kernels.rounding import centre_squares
from streamgda.kernels.sparse import add_sparse_centred, add_sparse_exact
from streamgda.kernels.sums import add_squares
from streamgda.moments.parallel import add_in_parts
from streamgda.moments.structures.base import Structure
from streamgda.moments.structures.packing import NO_LABELS, NO_SCORES
from streamgda.rows.arrays import byte_rows
from streamgda.rows.sparse import CompressedRows


class Diagonal(Structure):
    """One variance for each feature; its root is one over the variance."""

    kind = "diag"
    sources = frozenset({"full", "diag"})

    # --- the scatter of a group ---------------------------------------------------------------

    def shape(self, n_features: int) -> tuple[int, ...]:
        return (n_features,)

    def group_size(self, n_features: int) -> int:
        return n_features

    def diagonal(self, values: np.ndarray) -> np.ndarray:
        return values

    def of_kind(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        return held.diagonal(scatter)

    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return scatter / weight[:, None]

    def pack(self, values: np.ndarray) -> np.ndarray:
        return values

    def unpack(self, values: np.ndarray) -> np.ndarray:
        return values

    def select_features(self, scatter: np.ndarray, index: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(scatter[:, index])

    # --- adding rows --------------------------------------------------------------------------

    def add_centred(
        self,
        X: Any,
        codes: np.ndarray,
        weights: np.ndarray,
        block_rows: int,
        limit: float,
        count: np.ndarray,
        squares: np.ndarray,
        mean: np.ndarray,
        mean_low: np.ndarray,
        scatter: np.ndarray,
    ) -> bool:
        finite: bool
        state = limit, count, squares, mean, mean_low
        if type(X) is CompressedRows:
            finite = add_sparse_centred(*X.arrays, codes, weights, *state, scatter)
        else:
            finite = add_centred_squares(X, codes, weights, block_rows, *state, scatter)
        return finite

    def add_exact(
        self,
        X: Any,
        codes: np.ndarray,
        origin: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        if type(X) is CompressedRows:
            entries = X.astype(np.int32).arrays
            add_sparse_exact(*entries, codes, origin, count, total, scatter)
        else:
            rows, form = byte_rows(X, origin)
            add_integer_squares(rows, codes, *form, count, total, scatter)

    def add_many_exact(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        origin: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        rows, form = byte_rows(X, origin)
        add_in_parts(add_integer_squares, (rows, codes), form, count, total, scatter)

    def add_rows(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        centre_low: np.ndarray,
        panel_dtype: Any,
        scatter: np.ndarray,
    ) -> None:
        shared = centre, centre_low, self.groups(len(centre))
        add_in_parts(add_squares, (X, codes, weights), shared, scatter)

    def move_origin(
        self, scatter: np.ndarray, step: int, total: np.ndarray, count: np.ndarray
    ) -> np.ndarray:
        return scatter + step * (2 * total) + count[:, None] * step**2

    def centre_exact(self, *sums: np.ndarray, out: np.ndarray) -> None:
        *by_class, square, features = sums
        centre_squares(*by_class, np.ascontiguousarray(square[:, features]), out)

    # --- covariances and their roots ----------------------------------------------------------

    def select_varying(self, scatter: np.ndarray, features: np.ndarray, out: np.ndarray) -> None:
        out[...] = scatter[:, features]

    def unit(self, n_features: int) -> Any:
        return 1.0

    def invert(
        self, covariances: np.ndarray, tol: float, singular: str, log_determinants: np.ndarray
    ) -> list[int]:
        positive = covariances > 0
        log_determinants[...] = np.log(np.where(positive, covariances, 1.0)).sum(axis=1)
        np.divide(1, covariances, out=covariances, where=positive)
        ranks: list[int] = positive.sum(axis=1).tolist()
        return ranks

    def log_determinants(self, roots: np.ndarray) -> np.ndarray:
        return np.asarray(-np.log(roots).sum(axis=1))

    def solve(self, root: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return vectors * root

    def inverse(self, root: np.ndarray) -> np.ndarray:
        return np.diag(root)

    def whitening(self, root: np.ndarray) -> np.ndarray:
        return np.diag(np.sqrt(root))

    def variances_along(self, root: np.ndarray, directions: np.ndarray) -> np.ndarray:
        return np.asarray(directions**2 @ (1 / root))

    def squared_length(self, root: np.ndarray, vector: np.ndarray) -> float:
        return float(root @ np.square(vector))

    def trace(self, root: np.ndarray, scatter: np.ndarray) -> float:
        return float(root @ scatter)

    def sampling_root(self, covariance: np.ndarray) -> np.ndarray:
        return np.sqrt(covariance)

    def colour(self, root: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return noise * root

    # --- scores -------------------------------------------------------------------------------
    # In float64 whatever the rows are: for so little work, float32 would save nothing.

    def pack_roots(self, roots: np.ndarray) -> Any:
        return np.require(roots, requirements="W")  # for a read-only one, kernels compile again

    def scores(
        self,
        packed: Any,
        X: np.ndarray,
        features: np.ndarray,
        centres: np.ndarray,
        scale: float,
        offsets: np.ndarray,
        margin: float = np.inf,
    ) -> np.ndarray:
        out = np.empty((offsets.size, X.shape[0]))
        scoring.diagonal_scores(X, features, centres, packed, scale, offsets, out, NO_LABELS)
        return out

    def closest(self, *arguments: Any, out: np.ndarray) -> None:
        packed, X, features, centres, scale, offsets = arguments
        scoring.diagonal_scores(X, features, centres, packed, scale, offsets, NO_SCORES, out)
