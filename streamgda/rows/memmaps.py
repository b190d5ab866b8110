"""Memory maps: files whose pages are read on access."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.rows.arrays import ArrayRows


@dataclass(frozen=True)
class MemmapRows(ArrayRows):
    """Rows of a memory map, or of an array that is a view of one."""

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept arrays whose memory is a memory map."""
        return isinstance(X, np.ndarray) and isinstance(_owner(X), mmap.mmap)

    def release(self) -> None:
        """Drop the pages from this process; they stay in the cache of the operating system."""
        memory = _owner(self.values)
        if not _is_private(self.values) and hasattr(mmap, "MADV_DONTNEED"):
            memory.madvise(mmap.MADV_DONTNEED)


def _owner(X: Any) -> Any:
    """Return the object that owns the memory of an array."""
    while isinstance(X, np.ndarray):
        X = X.base
    return X


def _is_private(X: Any) -> bool:
    """Return whether changes to the memory map are in its pages only and would be lost."""
    while isinstance(X, np.ndarray):
        if getattr(X, "mode", "r") == "c":
            return True
        X = X.base
    return False
