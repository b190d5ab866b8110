"""Vectors packed for the scoring kernels, and products of rows with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamgda.kernels import scoring
from streamgda.kernels.tiles import ROWS, panel_width
from streamgda.rows.dtypes import row_type

_FLOAT64 = np.dtype(np.float64)


class PackedVectors(dict[np.dtype, np.ndarray]):
    """Vectors packed for `multiply_tile`, once for each data type that is asked for.

    Parameters
    ----------
    vectors : ndarray, shape (n_vectors, d) or (groups, n_vectors, d)

    Notes
    -----
    The packed arrays have the shape ([groups,] n_strips, d, ROWS): a strip is `ROWS` vectors side
    by side, and the last is filled up with zeros.
    """

    def __init__(self, vectors: np.ndarray) -> None:
        super().__init__()
        self.vectors = vectors
        self.n_vectors = vectors.shape[-2]

    def __missing__(self, dtype: np.dtype) -> np.ndarray:
        *groups, n, d = self.vectors.shape
        strips = np.zeros((*groups, -(-n // ROWS), d, ROWS), dtype)
        with np.errstate(over="ignore"):
            for a in range(min(ROWS, n)):
                rows = self.vectors[..., a::ROWS, :]
                strips[..., : rows.shape[-2], :, a] = rows
        self[dtype] = strips
        return strips


def packed_rows(X: np.ndarray, features: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return panels of some features of rows, as the scoring kernels read them."""
    width = panel_width(dtype)
    panels = np.empty((-(-X.shape[0] // width), features.size, width), dtype)
    scoring.pack_panels(X, features, panels)
    return panels


def multiply(
    kernel: Callable[..., None],
    X: np.ndarray,
    features: np.ndarray,
    centre: np.ndarray,
    vectors: PackedVectors,
    scale: float,
    offsets: np.ndarray,
) -> np.ndarray:
    """Call a scoring kernel that multiplies rows with vectors; return its scores.

    float32 rows are multiplied in float32, and again in float64 where that overflows.

    Parameters
    ----------
    kernel : callable
        `matrix_distances` or `linear_scores`.
    X : ndarray, shape (n_rows, n_features)
    features : ndarray of int, shape (d,)
        Features that take part.
    centre, vectors, scale, offsets
        Arguments of the kernel.

    Returns
    -------
    ndarray of float64, shape (n_scores, n_rows)
    """
    dtype = row_type(X.dtype).floating
    out = np.empty((offsets.size, X.shape[0]))
    kernel(packed_rows(X, features, dtype), centre, vectors[dtype], scale, offsets, out)
    if dtype != _FLOAT64 and not scoring.all_finite(out):
        beyond = ~np.isfinite(out[np.isfinite(offsets)]).all(axis=0)
        rows = X[beyond].astype(_FLOAT64)
        out[:, beyond] = multiply(kernel, rows, features, centre, vectors, scale, offsets)
    return out
