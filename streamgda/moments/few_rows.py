"""A few rows at a time: updates in which Python takes longer than the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.rows.codes import look_up
from streamgda.rows.labels import integer_table


class FewRows:
    """Update of sums by a few rows, with all that depends on sums and classes prepared.

    Attributes
    ----------
    sums : CentredSums or ExactSums
        Sums to which rows are added in place.
    changes : int
        Number of changes of the moments that this is valid for.
    """

    __slots__ = ("_dtypes", "_left", "_most", "_table", "_width", "changes", "sums")

    def __init__(self, sums: Any, classes: np.ndarray, changes: int) -> None:
        self.sums = sums
        self.changes = changes
        self._width = sums.n_features
        self._most = sums.most_at_once
        self._dtypes, self._left = sums.taken_at_once()
        self._table: Any = integer_table(classes)
        if self._table is None:
            self._most = 0

    def codes(self, X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """Return the class of each row of a matrix; None unless `add` takes rows and labels."""
        n_rows, width = X.shape
        if (
            not 0 < n_rows <= self._most
            or width != self._width
            or y.shape != (n_rows,)
            or X.dtype not in self._dtypes
            or n_rows > self._left
        ):
            return None
        return look_up(y, *self._table)

    def add(self, X: np.ndarray, codes: np.ndarray) -> None:
        """Add rows in a single kernel call; raise `NotFinite`, with nothing changed, for others."""
        self.sums.add_at_once(X, codes)
        self._left -= len(codes)
        self.changes += 1
