"""LAPACK routines on C-contiguous float64 matrices, in place, without holding the GIL.

`scipy.linalg.lapack` has them too, but holds the GIL, so that threads would wait for each other.
LAPACK stores matrices by columns: it sees the lower triangle of a C-contiguous matrix as an upper
one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address

_Number = ctypes.POINTER(ctypes.c_int)


def _routine(name: str, *kinds: Any) -> Callable[..., Any]:
    address = get_cython_function_address("scipy.linalg.cython_lapack", name)
    return ctypes.CFUNCTYPE(None, *kinds)(address)


_matrix = ctypes.c_void_p
_dpotrf = _routine("dpotrf", ctypes.c_char_p, _Number, _matrix, _Number, _Number)
_dtrtri = _routine("dtrtri", ctypes.c_char_p, ctypes.c_char_p, _Number, _matrix, _Number, _Number)


def cholesky(matrix: np.ndarray) -> bool:
    """Replace the lower triangle of a symmetric matrix by its Cholesky factor.

    The upper triangle does not change.

    Returns
    -------
    bool
        Whether the matrix is positive definite. If it is not, its lower triangle is destroyed.
    """
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _dpotrf(b"U", n, matrix.ctypes.data, n, info)
    return info.value == 0


def invert_lower(matrix: np.ndarray) -> None:
    """Replace a lower triangle by its inverse; the upper triangle does not change."""
    n, info = ctypes.c_int(len(matrix)), ctypes.c_int()
    _dtrtri(b"U", b"N", n, matrix.ctypes.data, n, info)
