"""Rows of sparse matrices: only the entries that are stored, or dense slabs of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import issparse

from streamgda.errors import InvalidDataError
from streamgda.rows.source import RowSource, refuse_type

_MOST_FEATURES = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class CompressedRows:
    """Rows whose entries are zero except for those that are stored.

    They have the attributes of an array of rows that a pass over rows uses. Slices share the
    entries.

    Attributes
    ----------
    values : ndarray, shape (n_stored,)
        Entries that are stored, each at most once; zeros may be among them.
    columns : ndarray of int32, shape (n_stored,)
        Their columns.
    first, last : ndarray of int64, shape (n_rows,)
        The entries of row r are ``values[first[r]:last[r]]``.
    n_features : int
    """

    values: np.ndarray
    columns: np.ndarray
    first: np.ndarray
    last: np.ndarray
    n_features: int

    ndim = 2

    def __len__(self) -> int:
        return self.first.size

    def __getitem__(self, rows: slice | np.ndarray) -> CompressedRows:
        first, last = self.first[rows], self.last[rows]
        if isinstance(rows, slice) and first.size:
            start, stop = first[0], last[-1]
            some = self.values[start:stop], self.columns[start:stop]
            return CompressedRows(*some, first - start, last - start, self.n_features)
        sizes = last - first
        stops = np.cumsum(sizes)
        entries = np.arange(sizes.sum()) + np.repeat(first - stops + sizes, sizes)
        some = self.values[entries], self.columns[entries]
        return CompressedRows(*some, stops - sizes, stops, self.n_features)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return len(self), self.n_features

    @property
    def dtype(self) -> np.dtype:
        """Data type of the values."""
        return self.values.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that hold the rows."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Values, columns, and the first and one past the last entry of each row."""
        return self.values, self.columns, self.first, self.last

    @property
    def row_elements(self) -> int:
        """Entries of a row that are stored, on average."""
        return -(-self.values.size // max(1, len(self)))

    def with_values(self, values: np.ndarray) -> CompressedRows:
        """Return rows with other values in the same places."""
        return replace(self, values=values)

    def astype(self, dtype: Any) -> CompressedRows:
        """Return the rows with values of a data type; without a copy if they have it."""
        return self.with_values(np.ascontiguousarray(self.values, dtype))

    def rows_with(self, hit: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for rows with an entry for which `hit` is True."""
        before = np.concatenate([[0], np.cumsum(hit)])
        return np.asarray(before[self.last] > before[self.first])

    def without(self, rows: np.ndarray) -> CompressedRows:
        """Return the rows with zeros in those for which `rows`, a boolean array, is True."""
        of_entries = np.repeat(rows, self.last - self.first)
        return self.with_values(np.where(of_entries, 0, self.values))

    def row(self, number: int) -> np.ndarray:
        """Return one row with its zeros, shape (n_features,)."""
        return np.asarray(self[number : number + 1].toarray()[0])

    def toarray(self) -> np.ndarray:
        """Return the rows with their zeros, shape (n_rows, n_features)."""
        dense = np.zeros(self.shape, self.dtype)
        dense[np.repeat(np.arange(len(self)), self.last - self.first), self.columns] = self.values
        return dense

    @classmethod
    def of(cls, X: Any) -> Self:
        """Return the rows of a sparse matrix or array.

        Raises
        ------
        InvalidDataError
            For another number of dimensions, objects, complex numbers, and indices out of bounds.
        """
        if X.ndim != 2:
            raise InvalidDataError(f"X has shape {X.shape}; expected a 2D array of rows x features")
        if X.dtype.kind not in "biuf":
            refuse_type(X.dtype)
        if X.shape[1] > _MOST_FEATURES:
            raise InvalidDataError(f"X has {X.shape[1]} features; at most 2**31 - 1 are possible")
        try:
            if hasattr(X, "check_format"):
                X.check_format(full_check=True)
            rows = X.tocsr()
        except ValueError as error:
            raise InvalidDataError(f"X is not a valid {X.format} matrix: {error}") from None
        if not rows.has_canonical_format:
            rows = rows.copy() if rows is X else rows
            rows.sum_duplicates()
        values = rows.data.view(np.uint8) if rows.dtype.kind == "b" else rows.data
        bounds = rows.indptr.astype(np.int64)
        columns = np.ascontiguousarray(rows.indices, np.int32)
        return cls(values, columns, bounds[:-1], bounds[1:], rows.shape[1])


@dataclass(frozen=True)
class SparseRows(RowSource):
    """Rows of a sparse matrix or array, read as `CompressedRows`."""

    in_memory = read_as_views = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept what scipy calls sparse, and rows that have been converted."""
        return issparse(X) or isinstance(X, CompressedRows)

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, converted to `CompressedRows`."""
        rows = X if isinstance(X, CompressedRows) else CompressedRows.of(X)
        return cls(rows, rows.shape, rows.dtype, name)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, on average."""
        return -(-self.values.nbytes // max(1, len(self.values)))

    def read(self, start: int, stop: int) -> CompressedRows:
        """Return rows as `CompressedRows`."""
        return self.values[start:stop]
