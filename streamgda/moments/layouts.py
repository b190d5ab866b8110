"""Layouts of scatters: lower triangles of matrices, and diagonals."""

from __future__ import annotations

import numpy as np

from streamgda.kernels.sums import mirror


def symmetric(lower: np.ndarray) -> np.ndarray:
    """Return the matrices whose lower triangles are given, shape (..., d, d)."""
    full = np.array(lower, order="C")
    mirror(full.reshape(-1, *full.shape[-2:]))
    return full
