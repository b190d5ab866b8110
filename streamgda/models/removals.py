"""Removal of single rows from a fit: their weights, and the scores of rows without themselves."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.kernels import scoring
from streamgda.models.model import Finish, Model, by_chunks, check_width, checked_names, posterior
from streamgda.rows.invalid_rows import as_matrix

ROUNDING = 1e-12  # share of a weight that is no more than rounding


@dataclass(frozen=True)
class Removal:
    """The removal of each of some rows: one entry a row.

    Attributes
    ----------
    codes : ndarray of int64
        Classes of the rows.
    count, left : ndarray
        Weights of these classes with and without the row; one if nothing is left.
    weights : ndarray
    empties : ndarray of bool
        True where nothing is left.
    unit : bool
        True if all weights are one.
    """

    codes: np.ndarray
    count: np.ndarray
    left: np.ndarray
    weights: np.ndarray
    empties: np.ndarray
    unit: bool = False

    @property
    def factor(self) -> np.ndarray:
        """Factor b of the products that the scatter loses."""
        return self.count * self.weights / self.left

    @property
    def stretch(self) -> np.ndarray:
        """Squared distance to the own mean without the row, as a multiple of that with it."""
        return np.square(self.count / self.left)


class LeaveOneOutModel(Model):
    """Base of models that score each row of their fit by the model without that row.

    Attributes
    ----------
    count : ndarray of float64, shape (n_classes,)
        Weights of the classes.
    prior_kind : {"counted", "equal", "given"}
        Priors are the shares of the classes, or equal for all that have rows, or given: a class
        that loses its only row then keeps its prior, but has no density.
    """

    count: np.ndarray
    prior_kind: str
    refits = False  # True if some rows need a refit; see `leave_one_out_influential`

    # --- scores of arrays -----------------------------------------------------------------------

    def leave_one_out_posterior(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        refitted: np.ndarray | None = None,
        refits: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the probability of each class by the model without the row.

        Parameters
        ----------
        X : array-like, shape (n_rows, n_features)
            Rows of the fit.
        first_row : int
            Number of the first row in a larger array.
        codes : ndarray of int
            Classes of the rows of that larger array.
        weights : ndarray of float64, optional
            Their weights.
        refitted, refits : ndarray, shapes (n,) and (n, n_classes); optional
            Numbers of rows whose probabilities are known already, sorted, and these.

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities.
        """
        out = np.empty((len(X), self.classes.size))
        self._score_without(X, first_row, codes, weights, posterior, out)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + len(out)]))
            out[refitted[some] - first_row] = refits[some]
        return out

    def leave_one_out_right(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
        refitted: np.ndarray | None = None,
        refits: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one for rows that the model without them classifies correctly, zero for others.

        Parameters
        ----------
        X, first_row, codes, weights, refitted, refits : see `leave_one_out_posterior`
            Rows of the fit, their classes and weights, and known probabilities.

        Returns
        -------
        ndarray of float64, shape (n_rows,)
            Ones and zeros.
        """

        def compare(scores: np.ndarray, out: np.ndarray) -> None:
            found = np.empty(out.size, np.int64)
            scoring.largest(scores[:-1], found)
            out[...] = found == scores[-1]

        def scores_and_codes(X: Any, removal: Removal, first: int) -> np.ndarray:
            return np.vstack([self._scores(X, removal, first), removal.codes])

        out = np.empty(len(X))
        self._score_without(X, first_row, codes, weights, compare, out, scores_and_codes)
        if refitted is not None and refits is not None:
            some = slice(*np.searchsorted(refitted, [first_row, first_row + len(out)]))
            right = refits[some].argmax(axis=1) == codes[refitted[some]]
            out[refitted[some] - first_row] = right
        return out

    def leave_one_out_influential(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one for rows whose removal has to be a refit, zero for others.

        Parameters
        ----------
        X, first_row, codes, weights : see `leave_one_out_posterior`
            Rows of the fit, their classes and weights.

        Returns
        -------
        ndarray of float64, shape (n_rows,)
            Ones and zeros.
        """
        out = np.empty(len(X))
        return self._score_without(
            X,
            first_row,
            codes,
            weights,
            lambda found, part: np.copyto(part, found),
            out,
            lambda rows, removal, first: self._influential(rows, removal),
        )

    def _score_without(
        self,
        X: Any,
        first_row: int,
        codes: np.ndarray,
        weights: np.ndarray | None,
        finish: Finish,
        out: np.ndarray,
        function: Callable[[Any, Removal, int], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Score rows chunk by chunk, on all threads, into `out`, by default by `_scores`."""
        function = function or self._scores
        X = as_matrix(checked_names(X, self.feature_names), first_row, self._takes_sparse)
        check_width(X, self.n_features)

        def scores_of(rows: np.ndarray, first: int) -> np.ndarray:
            part = slice(first, first + len(rows))
            removal = self._removal(codes[part], None if weights is None else weights[part])
            return function(self._read(rows, first), removal, first)

        return by_chunks(scores_of, finish, X, self.classes.size, out, first_row, self._by_blas)

    # --- scores of a chunk of rows ------------------------------------------------------------

    @abstractmethod
    def _scores(self, X: Any, removal: Removal, first: int) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""

    def _influential(self, X: Any, removal: Removal) -> np.ndarray:
        """Return True for rows whose removal rounding errors prevent, so that they need a refit."""
        return np.zeros(len(X), bool)

    def _removal(self, codes: np.ndarray, weights: np.ndarray | None) -> Removal:
        codes = codes.astype(np.int64)
        count, unit = self.count[codes], weights is None
        weights = np.ones(codes.size) if weights is None else weights
        left = count - weights
        empties = (left <= ROUNDING * count) & (weights > 0)
        return Removal(codes, count, np.where(empties, 1.0, left), weights, empties, unit)

    def _prior_changes(self, removal: Removal) -> np.ndarray:
        """Return what the logarithms of the own classes' priors gain, beside the other classes."""
        gains = np.zeros(removal.codes.size)
        if self.prior_kind == "counted":
            np.log(removal.left / removal.count, out=gains)
        gains[removal.empties] = -np.inf
        return gains
