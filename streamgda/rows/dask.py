"""dask arrays, data frames and series; dask itself is not imported here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.rows.names import as_names
from streamgda.rows.source import RowSource, as_slab


@dataclass(frozen=True)
class DaskRows(RowSource):
    """Rows of a dask collection, which dask evaluates."""

    executor: str = "dask"

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept dask arrays, data frames and series, but no delayed objects."""
        kinds = ("rechunk", "to_dask_array")
        return hasattr(X, "__dask_graph__") and any(hasattr(X, kind) for kind in kinds)

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, or of labels or weights in a series or a frame's column.

        The number of rows of a data frame is unknown.
        """
        if not hasattr(X, "chunks"):
            if name != "X" and X.ndim == 2 and X.shape[1] == 1:
                X = X[X.columns[0]]
            return cls(X, (math.nan, *X.shape[1:]), None, name)  # type: ignore[arg-type]
        chunks = () if math.isnan(math.prod(X.shape)) else tuple(map(max, X.chunks))
        return cls(X, tuple(X.shape), X.dtype, name, chunks)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Return some rows; all of them if their number is unknown."""
        return as_slab(self.values if math.isnan(self.n_rows) else self.values[start:stop])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a data frame, if all are strings."""
        return as_names(getattr(self.values, "columns", ()))

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the name, and the block that holds a row."""
        if row is None or not hasattr(self.values, "chunks"):
            return self.name
        block = np.searchsorted(np.cumsum(self.values.chunks[0]), row, "right")
        return f"{self.name}: block {block}"
