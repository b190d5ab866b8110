"""Rows of arrays in memory and of memory maps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import as_slab, is_plain
from streamgda.rows.labels import CodedLabels
from streamgda.rows.sources import RowSource, refuse_delayed, refuse_records


@dataclass(frozen=True)
class ArrayRows(RowSource):
    """Rows of an array in memory, or of a memory map; some of its values may be masked."""

    in_memory = True
    sliced_as_views = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked."""
        return True

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Convert `X` to an array; raise `InvalidDataError` for a scalar and for records."""
        refuse_delayed(X, name)
        refuse_records(X, name)
        X = X if isinstance(X, CodedLabels) else as_slab(X, name)
        if not X.ndim:
            found, advice = type(X.item()).__name__, "; open files first: X, y = open_store(path)"
            raise InvalidDataError(
                f"{name} has no rows: it is {found}{advice if found == 'str' else ''}"
            )
        return cls(X, X.shape, X.dtype, name)

    def _slice(self, start: int, stop: int) -> Any:
        rows = self.values[start:stop]
        return rows if isinstance(rows, CodedLabels) else np.asarray(rows)

    @property
    def copied_bytes(self) -> float:
        """Bytes of the array, infinity if they are in a memory map."""
        return float(self.values.nbytes) if is_plain(self.values) else math.inf
