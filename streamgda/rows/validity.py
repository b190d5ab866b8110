"""Validation of rows and weights, before they are added to sums or scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from streamgda.errors import InvalidDataError, SparseDataError
from streamgda.kernels.scoring import all_finite
from streamgda.rows.blocks import NO_WEIGHTS, as_rows, blocks
from streamgda.rows.containers import as_array
from streamgda.rows.dtypes import row_type
from streamgda.rows.masked import is_masked, unmasked
from streamgda.rows.sparse import CompressedRows, SparseRows
from streamgda.runtime.parameters import as_numbers, refuse

_WIDE = 64  # features


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
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1))"
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


@dataclass(frozen=True)
class Invalid:
    """Rule for invalid rows: they are an error, are left out, or have missing values.

    A row is invalid if it holds NaN, infinity, a masked value, or `nodata`, the number that marks
    missing measurements in rasters.

    Attributes
    ----------
    action : {"raise", "skip", "pairwise"}
        With ``"pairwise"``, all of these are missing values but infinity, which is an error.
    nodata : int or float, optional

    Raises
    ------
    InvalidParameterError
        For other values.

    Examples
    --------
    >>> Invalid("skip", nodata=-1).rows(np.array([[1, 2], [-1, 2], [3, 4]]))
    array([1])
    >>> Invalid("skip").rows(np.array([[1.0], [np.nan]]))
    array([1])
    """

    action: str = "raise"
    nodata: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.action, str) or self.action not in ("raise", "skip", "pairwise"):
            expected = "'raise' or 'skip', or 'pairwise' for PairwiseMoments"
            raise refuse("on_invalid", self.action, expected)
        if self.nodata is not None:
            expected = "one number of at most 64 bits"
            as_numbers("nodata", self.nodata, expected)
            value = np.asarray(self.nodata)
            if value.ndim or value.dtype.kind not in "iuf":
                raise refuse("nodata", self.nodata, expected)
            # A plain number is compared in the type of the rows: 0.1 equals its float32 value.
            object.__setattr__(self, "nodata", value.item())

    def needs_search(self, X: Any) -> bool:
        """Return True if rows are searched before they are summed; otherwise sums are checked."""
        plain = type(X) in (np.ndarray, CompressedRows)
        return self.action == "skip" or self.nodata is not None or not plain

    def missing(self, X: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for the entries that are masked or `nodata`."""
        masked = np.ma.getmaskarray(X)
        if self.nodata is None:
            return masked
        with np.errstate(over="ignore"):  # beyond float32, which then holds no such value
            return masked | np.equal(np.asarray(X), self.nodata)

    def rows(self, X: Any) -> np.ndarray:
        """Return the numbers of the invalid rows, in order."""
        if type(X) is CompressedRows:
            return np.flatnonzero(self._sparse_rows(X))
        found = [np.empty(0, np.intp)]
        for part, block in blocks(X, row_type(X.dtype).dtype):
            bad = np.zeros(len(block), bool)
            if X.dtype.kind == "f" and not all_finite(block):
                _mark_rows(~np.isfinite(block), bad)
            if self.nodata is not None or is_masked(X):
                _mark_rows(self.missing(X[part]), bad)
            found.append(np.flatnonzero(bad) + part.start)
        return np.concatenate(found)

    def _sparse_rows(self, X: CompressedRows) -> np.ndarray:
        """Return a boolean array that is True for the invalid rows."""
        hit = ~np.isfinite(X.values)
        if self.nodata is None:
            return X.rows_with(hit)
        bad = X.rows_with(hit | self.missing(X.values))
        return bad | (X.last - X.first < X.n_features) if self.nodata == 0 else bad

    def refuse(self, values: np.ndarray, row: int) -> None:
        """Raise `InvalidDataError` for the values of an invalid row, naming its number."""
        unmasked(values[None], "X", row)
        bad = values == self.nodata
        if values.dtype.kind == "f":
            bad = bad | ~np.isfinite(values)
        column = int(bad.argmax())
        raise InvalidDataError(
            f"Input X has an invalid row: row {row} holds NaN, infinity or nodata={self.nodata}, "
            f"first in column {column}. on_invalid='skip' leaves such rows out and counts them",
            *("X", row, column),
        )


def _mark_rows(hit: np.ndarray, rows: np.ndarray) -> None:
    """Mark each row in which any entry is True."""
    d = hit.shape[1]
    if d > _WIDE:
        rows |= hit.any(axis=1)
    else:  # numpy has a large overhead for each row
        rows[np.flatnonzero(hit) // d] = True


CHECK_SUMS = Invalid()  # rows are not searched: a sum that is not finite is an error


def rows_to_count(
    X: Any, sample_weight: Any, invalid: Invalid, first_row: int = 0
) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Separate the rows that count from rows of weight zero and invalid rows.

    Returns
    -------
    weights : ndarray of float64
        Weights of the rows that count; empty without weights.
    numbers : ndarray of int or None
        Numbers of the rows that count; None if all do.
    n_skipped : int
        Rows left out as invalid; rows of weight zero are not included.

    Raises
    ------
    InvalidDataError
        For weights that cannot be used, or an invalid row if that is an error; it counts rows
        from `first_row`.
    """
    n = X.shape[0]
    weights = NO_WEIGHTS if sample_weight is None else as_weights(sample_weight, n, first_row)
    counts = weights > 0 if weights.size else np.ones(n, bool)
    n_skipped = 0
    if invalid.needs_search(X):
        bad = invalid.rows(X)
        bad = bad[counts[bad]]
        if bad.size and invalid.action == "raise":
            first = X.row(bad[0]) if type(X) is CompressedRows else X[bad[0]]
            invalid.refuse(first, first_row + int(bad[0]))
        counts[bad] = False
        n_skipped = bad.size
    numbers = None if counts.all() else np.flatnonzero(counts)
    if weights.size:
        weights = as_rows(weights if numbers is None else weights[numbers], weights.dtype)
    return weights, numbers, n_skipped


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
                f"must be finite; leave such rows out or fill them in",
                *("X", row, int(j)),
            )
    raise InvalidDataError(
        "Input X contains values whose sums or squares overflow float64 (infinity or a value too "
        "large for dtype('float64')); scale the data down, or the weights"
    )
