"""Rows with their targets as further columns, so that one pass sums the moments of both."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.counting import as_matrix
from streamgda.rows.source import RowSource, beside, check_lengths
from streamgda.runtime.parameters import shown


def target_columns(y: Any) -> np.ndarray:
    """Return targets as columns of float64, shape (n_rows, n_targets).

    Raises
    ------
    InvalidDataError
        For targets that are not real numbers.
    """
    y = np.asarray(y)
    try:
        if y.dtype.kind not in "biufO":
            raise TypeError(f"its dtype is {y.dtype}")
        columns = math.prod(y.shape[1:])  # Without rows, -1 would be ambiguous.
        return y.reshape(len(y), columns).astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        kind = "Complex data not supported" if y.dtype.kind == "c" else "y holds no real numbers"
        raise InvalidDataError(
            f"{kind}, but {shown(y.ravel()[:1].tolist()[0])}: {error}. Targets are numbers; labels "
            f"are learned by classifiers, such as RidgeClassifier"
        ) from None


def side_by_side(X: Any, y: Any) -> np.ndarray:
    """Return rows and their targets as one array of float64."""
    X, y = as_matrix(X), target_columns(y)
    out = np.empty((len(X), X.shape[1] + y.shape[1]))
    out[:, : X.shape[1]], out[:, X.shape[1] :] = X, y
    return out


@dataclass(frozen=True)
class RowsWithTargets(RowSource):
    """Rows and their targets side by side, in float64.

    Attributes
    ----------
    values : object
        The container of the rows.
    X, y : RowSource
        Rows, and targets of one or two dimensions.
    """

    X: Any = field(default=None, repr=False, compare=False)
    y: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def beside(cls, X: RowSource, y: RowSource) -> Self:
        """Return a source of rows and targets of the same length."""
        shape = X.n_rows, X.shape[1] + math.prod(y.shape[1:])
        about = np.dtype(np.float64), X.name, X.chunk_rows, X.columns
        return cls(X.values, shape, *about, X=X, y=y)

    def read(self, start: int, stop: int) -> Any:
        """Return rows beside their targets."""
        return side_by_side(self.X.read(start, stop), self.y.read(start, stop))

    @property
    def copied_bytes(self) -> float:
        """Bytes of rows and targets as an array, if this process holds them."""
        return float(self.n_rows * self.row_bytes) if math.isfinite(self.X.copied_bytes) else np.inf

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        read = self.X.reading_bytes(n_rows) + self.y.reading_bytes(n_rows)
        return int(read + 2 * n_rows * self.row_bytes)

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the array and the chunk or block that hold a value."""
        of_target = column is not None and column >= self.X.shape[1]
        return str(self.y.place(row) if of_target else self.X.place(row, column))


def targets_of(X: RowSource, y: Any) -> RowSource:
    """Return a source of targets in the order of the rows.

    Raises
    ------
    InvalidDataError
        For targets of another number than the rows, that are not columns, or not numbers.
    """
    y = beside(X, y, "y")
    if len(y.shape) not in (1, 2) or not math.prod(y.shape[1:]):
        raise InvalidDataError(
            f"y has shape {y.shape}; expected a column of targets, (n_rows,), or several, "
            f"(n_rows, n_targets)"
        )
    if not (math.isnan(X.n_rows) or math.isnan(y.n_rows)):
        check_lengths(X, replace(y, shape=y.shape[:1], name="targets"))
    if y.in_memory:
        target_columns(y.read(0, 1))
    return y
