"""`Filled`: scores of rows of which some are invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.rules import RowRule
from streamgda.rows.sparse import CompressedRows
from streamgda.rows.validity import as_maskable_matrix


@dataclass(frozen=True)
class Filled:
    """A function of rows whose invalid rows get a fill value, or are an error.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)`` with valid rows; returns an array with one entry
        for each row. It raises `InvalidDataError` for rows with NaN or infinity.
    rule : RowRule
        Which rows are invalid. If its action is ``"raise"``, they are an error.
    value : ndarray, shape ()
        The fill value, in the type of the result.
    """

    function: Callable[..., np.ndarray]
    rule: RowRule
    value: np.ndarray

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of all rows."""
        X = as_maskable_matrix(X, sparse=True)
        if self.rule.needs_search(X):
            return self._filled(X, first_row)
        try:  # the function finds invalid rows itself, while it reads them
            return self._in_type(self.function(X, first_row))
        except InvalidDataError:
            if self.rule.action == "fill" and self.rule.rows(X).size:
                return self._filled(X, first_row)
            raise

    def _filled(self, X: Any, first_row: int) -> np.ndarray:
        invalid = self.rule.rows(X)
        if not invalid.size:
            return self._in_type(self.function(X, first_row))
        if self.rule.action == "raise":
            self.rule.refuse(X, int(invalid[0]), first_row + int(invalid[0]))
        valid = np.ones(X.shape[0], bool)
        valid[invalid] = False
        if isinstance(X, CompressedRows):  # some of which share their entries with all others
            result = self._in_type(self.function(X.without(~valid)))
            result[invalid] = self.value
            return result
        try:
            scores = self.function(np.asarray(X[valid]))
        except InvalidDataError:  # of another kind: the same among all rows names it by its number
            self.function(np.where(valid[:, None], np.ma.getdata(X), X.dtype.type(0)), first_row)
            raise
        result = np.full((valid.size, *scores.shape[1:]), self.value, self.value.dtype)
        result[valid] = scores
        return result

    def _in_type(self, scores: np.ndarray) -> np.ndarray:
        return scores.astype(self.value.dtype, copy=False)
