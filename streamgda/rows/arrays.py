"""Rows of arrays in memory and of memory maps, and of all that NumPy can convert to an array."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.labels import CodedLabels
from streamgda.rows.source import RowSource, as_slab


@dataclass(frozen=True)
class ArrayRows(RowSource):
    """Rows of an array in memory, or of a memory map."""

    in_memory: bool = True
    read_as_views: bool = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked."""
        return True

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Convert `X` to an array; raise `InvalidDataError` for a scalar."""
        X = X if isinstance(X, CodedLabels) else as_slab(X, name)
        if not X.ndim:
            raise InvalidDataError(f"{name} has no rows: it is {type(X.item()).__name__}")
        return cls(X, X.shape, X.dtype, name)

    def read(self, start: int, stop: int) -> Any:
        """Return a view of the rows, after the pages of a memory map have been dropped."""
        _drop_pages(self.values)
        rows = self.values[start:stop]
        return rows if isinstance(rows, CodedLabels) else np.asarray(rows)


def _drop_pages(values: Any) -> None:
    """Drop the pages of a memory map from this process; the operating system caches them.

    Changes to a private map are in its pages only, and stay.
    """
    mode = ""
    while isinstance(values, np.ndarray):
        mode, values = getattr(values, "mode", mode), values.base
    if isinstance(values, mmap.mmap) and mode != "c" and hasattr(mmap, "MADV_DONTNEED"):
        values.madvise(mmap.MADV_DONTNEED)
