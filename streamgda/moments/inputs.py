"""Rows and weights as the sums take them, or an error that says what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from streamgda.errors import InvalidDataError


def as_matrix(X: Any) -> np.ndarray:
    """Rows as a two-dimensional array of real numbers; no copy of arrays that are that already.

    Raises
    ------
    InvalidDataError
        For sparse matrices, objects that are not numbers, complex numbers and other shapes.
    """
    if type(X) is not np.ndarray:
        if sparse.issparse(X):
            raise InvalidDataError(
                f"X is a sparse {X.format} matrix; dense rows are needed (Gaussian densities "
                f"centre every value): pass row blocks of X.toarray()"
            )
        X = np.asarray(X)
    if X.dtype.kind == "O":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidDataError(f"X holds objects that are not numbers: {error}") from None
    if X.dtype.kind == "b":
        X = X.view(np.uint8)
    if X.dtype.kind not in "iuf":
        what = "Complex data not supported: X" if X.dtype.kind == "c" else "X"
        raise InvalidDataError(f"{what} has dtype {X.dtype}; real numbers are expected")
    if X.ndim != 2:
        raise InvalidDataError(
            f"X has shape {X.shape}; expected a 2D array of rows x features (one row: "
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1))"
        )
    return X


def as_weights(sample_weight: Any, n_rows: int, first_row: int = 0) -> np.ndarray:
    """Weights as float64, shape (n_rows,), finite and not negative; errors count from `first_row`.

    Raises
    ------
    InvalidDataError
        For any others.
    """
    weights = np.asarray(sample_weight)
    if weights.dtype.kind not in "biuf":
        raise InvalidDataError(f"sample_weight has dtype {weights.dtype}; numbers are expected")
    if weights.ndim == 0:
        weights = np.full(n_rows, weights)
    if weights.shape != (n_rows,):
        raise InvalidDataError(
            f"sample_weight has shape {weights.shape}, expected one weight a row: ({n_rows},)"
        )
    weights = np.ascontiguousarray(weights, np.float64)
    bad = np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))
    if bad.size:
        raise InvalidDataError(
            f"sample_weight[{first_row + bad[0]}] is {weights[bad[0]]}; weights are finite and >= 0"
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise InvalidDataError("sample_weight sums to infinity; scale the weights down")
    return weights
