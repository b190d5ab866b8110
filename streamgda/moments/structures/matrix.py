"""Covariance matrices, ``"full"`` and ``"tied"``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg

from streamgda import storage
from streamgda.kernels import narrow_distances, narrow_products, scoring
from streamgda.kernels.accumulate import add_centred
from streamgda.kernels.accumulate_narrow import (
    EXACT_NARROW_ROWS,
    add_centred_narrow,
    add_exact_narrow,
)
from streamgda.kernels.products import empty_rows
from streamgda.kernels.rounding import centre_scatter
from streamgda.kernels.triangles import copy_symmetric, mirror
from streamgda.moments.layouts import symmetric
from streamgda.moments.parallel import add_integers, add_scatter, triangle_ranges
from streamgda.moments.structures import cholesky
from streamgda.moments.structures.base import Structure
from streamgda.moments.structures.packing import (
    NO_LABELS,
    NO_SCORES,
    PackedRoots,
    Rounded,
    in_row_type,
)
from streamgda.rows.arrays import byte_rows, row_type
from streamgda.runtime import threads

_FLOAT64 = np.dtype(np.float64)
# Rows of each class that pay for sums apart from the scatters, in a near cache; twice as many if
# these take more than a few bytes.
_FEW_ROWS, _FEW_BYTES, _MOST_BYTES = 4, 1 << 20, 8 << 20


class Matrix(Structure):
    """A covariance for each pair of features.

    Scatters are lower triangles, covariances whole matrices. The root is the inverse of the lower
    Cholesky factor. That of a pseudo-inverse of rank r is lower triangular too; it starts with
    d - r rows of zeros.
    """

    kind = "full"
    sources = frozenset({"full"})
    matrix = True

    # --- the scatter of a group ---------------------------------------------------------------

    def shape(self, n_features: int) -> tuple[int, ...]:
        return n_features, n_features

    def group_size(self, n_features: int) -> int:
        return n_features**2

    def diagonal(self, values: np.ndarray) -> np.ndarray:
        return np.einsum("gii->gi", values)

    def of_kind(self, held: Structure, scatter: np.ndarray) -> np.ndarray:
        return scatter

    def covariance(self, scatter: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return symmetric(scatter) / weight[:, None, None]

    def pack(self, values: np.ndarray) -> np.ndarray:
        return storage.pack_triangles(values)

    def unpack(self, values: np.ndarray) -> np.ndarray:
        return storage.unpack_triangles(values)

    def select_features(self, scatter: np.ndarray, index: np.ndarray) -> np.ndarray:
        # C-contiguous, or every kernel would be compiled again for such an array.
        return np.ascontiguousarray(np.tril(symmetric(scatter)[:, index[:, None], index]))

    def project(self, scatter: np.ndarray, components: np.ndarray) -> np.ndarray:
        return np.tril(components @ symmetric(scatter) @ components.T)

    # --- adding rows --------------------------------------------------------------------------

    def add_centred(
        self,
        X: np.ndarray,
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
        n_rows, d = X.shape
        state = X, codes, weights, block_rows, limit, count, squares, mean, mean_low
        finite: bool
        narrow = d <= narrow_products.MAX_FEATURES and n_rows >= _FEW_ROWS * count.size
        held = _narrow_bytes(d, count.size, len(scatter)) if narrow else 0
        if held > _FEW_BYTES:
            narrow = held <= _MOST_BYTES and n_rows >= 2 * _FEW_ROWS * count.size
        if narrow:
            finite = add_centred_narrow(*state, scatter)
        else:
            finite = add_centred(*state, empty_rows(n_rows, d, count.size), scatter)
        return finite

    def add_exact(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        origin: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        n_rows, d = X.shape
        # Products of bytes are faster than those of float64 if there are enough of them.
        most = narrow_products.MAX_FEATURES // (2 if X.dtype.itemsize == 1 else 1)
        narrow = d <= most and count.size < n_rows <= EXACT_NARROW_ROWS
        if narrow and _narrow_bytes(d, count.size, len(scatter)) <= _MOST_BYTES:
            add_exact_narrow(X, codes, origin, count, total, scatter)
        else:
            rows, form = byte_rows(X, origin)
            add_integers(rows, codes, form, count, total, scatter, 1)

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
        add_integers(rows, codes, form, count, total, scatter, threads.n_threads())

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
        add_scatter(X, codes, weights, centre, centre_low, panel_dtype, scatter)

    def move_origin(
        self, scatter: np.ndarray, step: int, total: np.ndarray, count: np.ndarray
    ) -> np.ndarray:
        cross = total[:, :, None] + total[:, None, :]
        return scatter + step * cross + count[:, None, None] * step**2

    def centre_exact(self, *sums: np.ndarray, out: np.ndarray) -> None:
        ranges = triangle_ranges(out.shape[-1], threads.n_threads())
        threads.run(lambda first, last: centre_scatter(*sums, first, last, out), ranges)

    def complete(self, values: np.ndarray) -> None:
        mirror(values)

    # --- covariances and their roots ----------------------------------------------------------

    def select_varying(self, scatter: np.ndarray, features: np.ndarray, out: np.ndarray) -> None:
        copy_symmetric(scatter, features, out)

    def unit(self, n_features: int) -> Any:
        return np.eye(n_features)

    def invert(
        self, covariances: np.ndarray, tol: float, singular: str, log_determinants: np.ndarray
    ) -> list[int]:
        ranks = [cholesky.invert(covariance, tol, singular) for covariance in covariances]
        d = covariances.shape[-1]
        if all(rank == d or (rank and singular != "refuse") for rank in ranks):
            log_determinants[...] = self.log_determinants(covariances)
        return ranks

    def log_determinants(self, roots: np.ndarray) -> np.ndarray:
        if (self.diagonal(roots) > 0).all():
            return np.asarray(-2 * np.log(self.diagonal(roots)).sum(axis=1))
        return np.array([cholesky.log_determinant(self.whitening(root)) for root in roots])

    def rank(self, root: np.ndarray) -> int:
        return int(root.any(axis=1).sum())

    def valid_roots(self, roots: np.ndarray) -> bool:
        if super().valid_roots(roots):
            return True
        rank = self.rank(roots[0])
        kept = self.whitening(roots[0])
        return len(roots) == 1 and 0 < rank == np.linalg.matrix_rank(kept)

    def solve(self, root: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        return np.asarray((vectors @ root.T) @ root)

    def inverse(self, root: np.ndarray) -> np.ndarray:
        return np.asarray(root.T @ root)

    def whitening(self, root: np.ndarray) -> np.ndarray:
        return root[len(root) - self.rank(root) :]

    def variances_along(self, root: np.ndarray, directions: np.ndarray) -> np.ndarray:
        # The covariance is the inverse of W' W, so that w' S w is the square of W^-T w.
        solved = linalg.solve_triangular(root, directions.T, lower=True, trans="T")
        return np.asarray((solved**2).sum(axis=0))

    def squared_length(self, root: np.ndarray, vector: np.ndarray) -> float:
        return float(np.square(root @ vector).sum())

    def trace(self, root: np.ndarray, scatter: np.ndarray) -> float:
        return float(np.vdot(root @ scatter, root))

    def sampling_root(self, covariance: np.ndarray) -> np.ndarray:
        # Unlike triangular roots, the symmetric one of the correlations is continuous where they
        # are singular, too. Variances that may be rounding errors become zero, without a step.
        scale = cholesky.deviations(covariance)
        correlation = covariance / scale[:, None] / scale
        np.fill_diagonal(correlation, correlation.diagonal() > 0)
        variances, axes = linalg.eigh(correlation, overwrite_a=True, check_finite=False)
        rounding = 16 * len(scale) * np.finfo(np.float64).eps
        lengths = np.sqrt(np.maximum(variances - rounding, 0))
        root = (axes * lengths) @ axes.T
        root *= np.sqrt(np.maximum(covariance.diagonal(), 0))[:, None]
        return root

    def colour(self, root: np.ndarray, noise: np.ndarray) -> np.ndarray:
        return np.asarray(noise @ root.T)

    # --- scores -------------------------------------------------------------------------------

    def pack_roots(self, roots: np.ndarray) -> Any:
        if roots.shape[-1] > narrow_distances.MAX_FEATURES:
            return PackedRoots(roots)
        return Rounded(roots)

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
        if isinstance(packed, PackedRoots):
            return packed.scores(X, features, centres, scale, offsets, margin)

        def scores_of(rows: np.ndarray, dtype: np.dtype) -> np.ndarray:
            out = np.empty((offsets.size, rows.shape[0]))
            narrow = features, centres, packed[dtype], scale, offsets
            scoring.narrow_matrix_scores(rows, *narrow, out, NO_LABELS)
            return out

        if _floating(X, features) == _FLOAT64:
            return scores_of(X, _FLOAT64)
        return in_row_type(scores_of, X, offsets)

    def closest(self, *arguments: Any, out: np.ndarray) -> None:
        packed, X, features, *others = arguments
        if isinstance(packed, PackedRoots) or _floating(X, features) != _FLOAT64:
            super().closest(*arguments, out=out)
        else:
            centres, scale, offsets = others
            narrow = features, centres, packed[_FLOAT64], scale, offsets
            scoring.narrow_matrix_scores(X, *narrow, NO_SCORES, out)


def _narrow_bytes(n_features: int, n_classes: int, n_groups: int) -> int:
    """Return the bytes of the products and rows that are held while narrow rows are added.

    The products are written, read and added to the scatters once for each block.
    """
    return 8 * n_features * (n_groups * n_features + narrow_products.LEAST_BUCKET_ROWS * n_classes)


def _floating(X: np.ndarray, features: np.ndarray) -> np.dtype:
    """Return the type in which rows are multiplied."""
    if features.size <= narrow_distances.FLOAT64_FEATURES:
        return _FLOAT64
    return row_type(X.dtype).floating
