"""Validation of rows and weights, before they are added to sums or scored."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from streamgda.errors import InvalidDataError, SparseDataError
from streamgda.rows.blocks import blocks
from streamgda.rows.containers import as_array
from streamgda.rows.dtypes import row_type
from streamgda.rows.masked import REMEDY, unmasked
from streamgda.rows.sparse import CompressedRows, SparseRows


def as_matrix(X: Any, first_row: int = 0, sparse: bool = False) -> Any:
    """Return rows as a two-dimensional array of real numbers, without copying such an array.

    Parameters
    ----------
    X : array-like, shape (n_rows, n_features)
    first_row : int
        Number of the first row in a larger array, from which errors count.
    sparse : bool
        Return sparse matrices and arrays as `CompressedRows`; otherwise they are refused.

    Raises
    ------
    InvalidDataError
        For sparse matrices, objects that are not numbers, complex numbers and other shapes, and
        for masked values.
    """
    X = as_maskable_matrix(X, sparse)
    return X if type(X) in (np.ndarray, CompressedRows) else unmasked(X, "X", first_row)


def as_maskable_matrix(X: Any, sparse: bool = False) -> Any:
    """Return rows as `as_matrix` does; as a masked array if, and only if, values are masked."""
    if type(X) is not np.ndarray:
        if SparseRows.accepts(X):
            if not sparse:
                refuse_sparse(X)
            return X if type(X) is CompressedRows else CompressedRows.of(X)
        X = as_array(X, "X")
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
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1), images: X.reshape(len(X), -1))"
        )
    return X


def refuse_sparse(X: Any) -> NoReturn:
    """Raise `SparseDataError` for rows that need covariances between features."""
    raise SparseDataError(
        f"X is a sparse {getattr(X, 'format', 'csr')} matrix; dense rows are needed (covariances "
        f"between features fill in the zeros): pass row blocks of X.toarray(), or use GaussianNB, "
        f"BernoulliNB or covariance_type='diag'"
    )


def as_weights(sample_weight: Any, n_rows: int, first_row: int = 0) -> np.ndarray:
    """Return weights as float64, shape (n_rows,), finite and not negative.

    Raises
    ------
    InvalidDataError
        For any other weights; it counts rows from `first_row`.
    """
    weights = sample_weight
    if type(weights) is not np.ndarray:
        weights = unmasked(as_array(weights, "sample_weight"), "sample_weight", first_row)
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
        row = first_row + int(bad[0])
        raise InvalidDataError(
            f"sample_weight[{row}] is {weights[bad[0]]}; weights are finite and >= 0",
            *("sample_weight", row),
        )
    with np.errstate(over="ignore"):
        if not np.isfinite(weights.sum()):
            raise InvalidDataError("sample_weight sums to infinity; scale the weights down")
    return weights


def all_finite(values: np.ndarray) -> bool:
    """Return True if all floating-point values are finite."""
    # The sum, which takes less time and no memory, leaves a doubt if it is not finite.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum())) or bool(np.isfinite(values).all())


def refuse_not_finite(X: Any, first_row: int = 0, numbers: np.ndarray | None = None) -> None:
    """Raise an error that names the first value of `X` that is NaN or infinite.

    Rows are numbered from `first_row`, with the offsets in `numbers` if given.

    Raises
    ------
    InvalidDataError
        Always: if all values are finite, their sums overflow.
    """
    if type(X) is CompressedRows:
        bad_rows = np.flatnonzero(X.rows_with(~np.isfinite(X.values)))[:1]
        if bad_rows.size:
            numbers = bad_rows if numbers is None else numbers[bad_rows]
        X = np.array([X.row(r) for r in bad_rows]).reshape(bad_rows.size, X.n_features)
    for rows, block in blocks(X, row_type(X.dtype).dtype):
        bad = np.argwhere(~np.isfinite(block))
        if bad.size:
            r, j = bad[0]
            name = "NaN" if np.isnan(block[r, j]) else "infinity"
            row = int(rows.start + r if numbers is None else numbers[rows.start + r]) + first_row
            raise InvalidDataError(
                f"Input X contains {name}: row {row}, column {j} is {block[r, j]}. Every value "
                f"must be finite; {REMEDY}",
                *("X", row, int(j)),
            )
    raise InvalidDataError(
        "Input X contains values whose sums or squares overflow float64 (infinity or a value too "
        "large for dtype('float64')); scale the data down, or the weights"
    )
