"""Adapters of rows that numpy or scipy hold, and values of any container as one array."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import sparse

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import as_slab, is_plain
from streamgda.rows.dask import DaskRows, refuse_delayed
from streamgda.rows.sources import RowSource
from streamgda.rows.sparse import CompressedRows
from streamgda.rows.tables import FrameRows, LazyFrameRows
from streamgda.rows.zarr import StoredRows


@dataclass(frozen=True)
class ArrayRows(RowSource):
    """Rows of an array in memory, or of a memory map; some of its values may be masked."""

    in_memory = True
    sliced_as_views = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked.

        Raises
        ------
        InvalidDataError
            For an AnnData object, which numpy would convert element by element.
        """
        if type(X).__module__.partition(".")[0] == "anndata" and hasattr(X, "obs"):
            raise InvalidDataError(
                "an AnnData object holds rows in its X and labels in a column of its obs; pass "
                "them: fit(adata.X, adata.obs['cell_type'])"
            )
        return True

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Convert `X` to an array; raise `InvalidDataError` for a scalar."""
        X = X if type(X) is np.memmap else as_slab(X, name)
        if not X.ndim:
            found, advice = type(X.item()).__name__, "; open files first: X, y = open_store(path)"
            raise InvalidDataError(
                f"{name} has no rows: it is {found}{advice if found == 'str' else ''}"
            )
        return cls(X, X.shape, X.dtype, name)

    @property
    def copied_bytes(self) -> float:
        """Bytes of the array, infinity if they are in a memory map or masked."""
        return float(self.values.nbytes) if is_plain(self.values) else math.inf

    def release(self) -> None:
        """Drop the pages of a memory map from this process; the operating system caches them.

        Changes to a private map are in its pages only, and stay.
        """
        memory, private = self.values, False
        while isinstance(memory, np.ndarray):
            private = private or getattr(memory, "mode", "r") == "c"
            memory = memory.base
        if isinstance(memory, mmap.mmap) and not private and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)


# --- sparse matrices ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SparseRows(RowSource):
    """Rows of a sparse matrix or array, read as `CompressedRows`."""

    in_memory = True
    sliced_as_views = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept what scipy calls sparse, and rows that have been converted."""
        return sparse.issparse(X) or isinstance(X, CompressedRows)

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, converted to `CompressedRows`."""
        rows = X if isinstance(X, CompressedRows) else CompressedRows.of(X)
        return cls(rows, rows.shape, rows.dtype, name)

    @property
    def row_elements(self) -> int:
        """Entries of a row that are stored, on average."""
        return int(self.values.row_elements)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, on average."""
        return -(-self.values.nbytes // max(1, len(self.values)))

    @property
    def copied_bytes(self) -> float:
        """Bytes of the arrays that hold the rows."""
        return float(self.values.nbytes)

    def _slice(self, start: int, stop: int) -> Any:
        return self.values[start:stop]


@dataclass(frozen=True)
class BackedSparseRows(RowSource):
    """Rows of a sparse matrix in a file, as anndata opens it, read in slabs as `CompressedRows`."""

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept matrices with a format that can be read into memory."""
        backed = callable(getattr(X, "to_memory", None))
        return backed and getattr(X, "format", None) in ("csr", "csc")

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows; raise `InvalidDataError` if they are stored by columns."""
        if X.format == "csc":
            raise InvalidDataError(
                f"{name} is a sparse matrix in a file that is stored by columns, so that no rows "
                f"can be read from it; pass {name}.to_memory(), or store it by rows (csr)"
            )
        return cls(X, tuple(X.shape), np.dtype(X.dtype), name)

    def _slice(self, start: int, stop: int) -> Any:
        return CompressedRows.of(self.values[start:stop])


# --- any container --------------------------------------------------------------------------------


def as_array(values: Any, name: str) -> np.ndarray:
    """Return all values of a container as an array; masked only if some of them are.

    Raises
    ------
    InvalidDataError
        If numpy cannot convert them.
    ReadError
        If a store cannot be read; the message names the array by this name, chunk and rows.
    """
    if isinstance(values, RowSource):
        return values.whole()
    if not isinstance(values, np.ndarray | list | tuple):
        refuse_delayed(values, name)
        for adapter in (DaskRows, StoredRows, FrameRows, LazyFrameRows):
            if adapter.accepts(values):
                return adapter.of(values, name).whole()
        ArrayRows.accepts(values)  # refuses what no array can be made of
    return as_slab(values, name)
