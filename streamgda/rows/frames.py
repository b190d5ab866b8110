"""Data frames and series in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.rows.names import as_names
from streamgda.rows.sources import RowSource


@dataclass(frozen=True)
class FrameRows(RowSource):
    """Rows of a data frame, converted to arrays slab by slab."""

    in_memory = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept objects that are indexed by position, as in pandas."""
        return hasattr(X, "iloc")

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows; columns may have different types."""
        return cls(X, tuple(X.shape), None, name)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return np.asarray(self.values.iloc[start:stop])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns, if all are strings."""
        return as_names(getattr(self.values, "columns", ()))
