"""Arrays in memory, and whatever numpy converts to an array."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.masked import as_slab, is_masked
from streamgda.rows.sources import RowSource


@dataclass(frozen=True)
class ArrayRows(RowSource):
    """Rows of an array in memory."""

    in_memory = True
    checked_at_once = True
    sliced_as_views = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked."""
        return True

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Convert `X` to an array; raise `InvalidDataError` for a scalar."""
        X = X if type(X) is np.memmap else as_slab(X, name)
        if not X.ndim:
            raise InvalidDataError(f"{name} has no rows: it is {type(X.item()).__name__}")
        return cls(X, X.shape, X.dtype, name)

    @property
    def copied_bytes(self) -> float:
        """Bytes of the array, infinity if they are in a memory map or masked."""
        return float(self.values.nbytes) if is_plain(self.values) else math.inf


@dataclass(frozen=True)
class MaskedRows(ArrayRows):
    """Rows of an array in memory, some values of which are masked."""

    in_memory = False
    checked_at_once = False  # a conversion as a whole would lose the mask

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept masked arrays, unless nothing is masked."""
        return is_masked(X)


def is_plain(X: Any) -> bool:
    """Return whether `X` is exactly a numpy array whose values are in memory."""
    return type(X) is np.ndarray and not isinstance(X.base, np.memmap)
