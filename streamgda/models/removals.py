"""Removal of single rows from a fit: their weights, and the scores of rows without themselves."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels import scoring
from streamgda.kernels.leave_one_out import LEAST
from streamgda.models.base import Model
from streamgda.models.scores import Finish, by_chunks, check_width, checked_names, posterior
from streamgda.rows.validity import as_matrix


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
        """Factor b of the products that the scatter loses; zero where nothing is left."""
        return np.where(self.empties, 0.0, self.count * self.weights / self.left)

    @property
    def stretch(self) -> np.ndarray:
        """Squared distance to the own mean without the row, as a multiple of that with it."""
        return np.where(self.empties, 1.0, self.count / self.left) ** 2


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

    # --- scores of arrays -----------------------------------------------------------------------

    def leave_one_out_posterior(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
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

        Returns
        -------
        ndarray, shape (n_rows, n_classes)
            Probabilities.

        Raises
        ------
        SingularCovarianceError
            If a covariance is singular without a row.
        """
        out = np.empty((len(X), self.classes.size))
        return self._score_without(X, first_row, codes, weights, posterior, out)

    def leave_one_out_right(
        self,
        X: Any,
        first_row: int = 0,
        *,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return one for rows that the model without them classifies correctly, zero for others.

        Parameters
        ----------
        X, first_row, codes, weights : see `leave_one_out_posterior`
            Rows of the fit, their classes and weights.

        Returns
        -------
        ndarray of float64, shape (n_rows,)
            Ones and zeros.

        Raises
        ------
        SingularCovarianceError
            If a covariance is singular without a row.
        """

        def compare(scores: np.ndarray, out: np.ndarray) -> None:
            found = np.empty(out.size, np.int64)
            scoring.largest(scores[:-1], found)
            out[...] = found == scores[-1]

        return self._score_without(
            X, first_row, codes, weights, compare, np.empty(len(X)), beside=True
        )

    def emptied(self, codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        """Return True for rows without which their class has none.

        Parameters
        ----------
        codes : ndarray of int
            Classes of the rows.
        weights : ndarray of float64, optional
            Their weights.

        Returns
        -------
        ndarray of bool, shape (n_rows,)
            True for rows that are the only ones of their class.
        """
        return self._removal(codes, weights).empties

    def _score_without(
        self,
        X: Any,
        first_row: int,
        codes: np.ndarray,
        weights: np.ndarray | None,
        finish: Finish,
        out: np.ndarray,
        beside: bool = False,
    ) -> np.ndarray:
        """Score rows chunk by chunk, on all threads, into `out`; `beside` adds the classes."""
        X = as_matrix(checked_names(X, self.feature_names), first_row, self._takes_sparse)
        check_width(X, self.n_features)

        def scores_of(rows: np.ndarray, first: int) -> np.ndarray:
            part = slice(first, first + len(rows))
            removal = self._removal(codes[part], None if weights is None else weights[part])
            if self.prior_kind == "given":
                self._refuse_emptied(removal, first)
            scores = self._scores(self._read(rows, first), removal, first)
            return np.vstack([scores, removal.codes]) if beside else scores

        return by_chunks(scores_of, finish, X, self.classes.size, out, first_row, self._by_blas)

    # --- scores of a chunk of rows ------------------------------------------------------------

    @abstractmethod
    def _scores(self, X: Any, removal: Removal, first: int) -> np.ndarray:
        """Return joint log-likelihoods, up to a term that all classes of a row share."""

    def _removal(self, codes: np.ndarray, weights: np.ndarray | None) -> Removal:
        codes = codes.astype(np.int64)
        count, unit = self.count[codes], weights is None
        weights = np.ones(codes.size) if weights is None else weights
        left = count - weights
        empties = left <= LEAST * count
        return Removal(codes, count, np.where(empties, 1.0, left), weights, empties, unit)

    def _prior_changes(self, removal: Removal) -> np.ndarray:
        """Return what the logarithms of the own classes' priors gain, beside the other classes."""
        gains = np.zeros(removal.codes.size)
        if self.prior_kind == "counted":
            np.log(removal.left / removal.count, out=gains)
        gains[removal.empties] = -np.inf
        return gains

    def _refuse_emptied(self, removal: Removal, first: int) -> None:
        """Raise `InvalidDataError` for the only row of a class with a fixed prior."""
        if removal.empties.any():
            at = int(removal.empties.argmax())
            raise InvalidDataError(
                f"row {first + at} is the only one of class "
                f"{self.classes[removal.codes[at]]!s}, which has a fixed prior and no rows "
                f"without it. Leave out the class, or its prior"
            )
