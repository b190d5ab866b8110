"""Rows of sparse matrices: only the entries that are stored, as arrays of scipy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array, issparse

from streamgda.errors import InvalidDataError
from streamgda.rows.source import RowSource, raise_for_type


class CheckedRows(csr_array):
    """Sparse rows of numbers whose indices are within bounds, each at most once in a row."""


def as_csr(X: Any) -> CheckedRows:
    """Return a sparse matrix or array by rows, with each entry stored once; booleans as bytes.

    Raises
    ------
    InvalidDataError
        For another number of dimensions, objects, complex numbers, and indices out of bounds.
    """
    if type(X) is CheckedRows:
        return X
    if X.ndim != 2:
        raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
    if X.dtype.kind not in "biuf":
        raise_for_type(X.dtype)
    try:
        if hasattr(X, "check_format"):
            X.check_format(full_check=True)
        rows = CheckedRows(X)
    except ValueError as error:
        raise InvalidDataError(f"X is not a valid {X.format} matrix: {error}") from None
    if not rows.has_canonical_format:
        rows = rows.copy()  # What was given does not change.
        rows.sum_duplicates()
    return with_values(rows, rows.data.view(np.uint8)) if rows.dtype.kind == "b" else rows


def with_values(X: CheckedRows, values: np.ndarray) -> CheckedRows:
    """Return sparse rows with other values in the same places."""
    return CheckedRows((values, X.indices, X.indptr), X.shape)


def rows_with(X: CheckedRows, hit: np.ndarray) -> np.ndarray:
    """Return a boolean array that is True for rows with an entry for which `hit` is True."""
    return np.diff(np.append(0, np.cumsum(hit))[X.indptr]) > 0


@dataclass(frozen=True)
class SparseRows(RowSource):
    """Rows of a sparse matrix or array, which stay sparse."""

    in_memory: bool = True
    read_as_views: bool = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept what scipy calls sparse."""
        return bool(issparse(X))

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows as `as_csr` returns them."""
        rows = as_csr(X)
        return cls(rows, rows.shape, rows.dtype, name)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, on average."""
        X = self.values
        n_bytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
        return -(-n_bytes // max(1, self.n_rows))

    def read(self, start: int, stop: int) -> CheckedRows:
        """Return rows, which are sparse."""
        return self.values[start:stop]
