r"""Rows with gaps, scored by the distributions of the features that each row has.

The features that a row lacks are integrated out, which is exact and imputes nothing: the marginal
of a Gaussian has the means and covariances of the observed features, and the marginal of
independent features their factors. Rows are grouped by the pattern of their gaps, and each pattern
needs the model of its features once.

With :math:`\Sigma = L L^T` and the rows :math:`L_o`, :math:`L_m` of the observed and the missing
features, :math:`L_o^T = Q R` yields the factor R of :math:`\Sigma_{oo} = R^T R`, and the means of
the missing features given the others,

.. math:: E[x_m | x_o, k] = m_{km} + \Sigma_{mo} \Sigma_{oo}^{-1} (x_o - m_{ko}), \quad
          \Sigma_{mo} \Sigma_{oo}^{-1} = L_m Q R^{-T}

Source: R. J. A. Little and D. B. Rubin: Statistical analysis with missing data, Wiley, 2002,
section 11.2.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from streamgda.errors import InvalidDataError, UnsupportedError
from streamgda.rows.counting import RowRule, as_matrix
from streamgda.runtime import threads

CACHE_BYTES = 1 << 26  # of models that are kept for the patterns of further rows

# Methods of models that have an answer for rows with gaps.
METHODS = (
    "predict",
    "posterior",
    "log_posterior",
    "joint_log_likelihood",
    "relative_scores",
    "log_odds",
    "log_density",
    "mahalanobis",
    "own_log_density",
    "own_mahalanobis",
    "filled",
)


@dataclass(frozen=True)
class Marginals:
    """A method of a model as a function of rows with gaps, of which none is invalid.

    Attributes
    ----------
    model : Model
        Model of all features, with a method ``marginal``.
    method : str
        One of `METHODS`.
    options : dict
        Keywords of the method.
    rule : GapRule
        Determines the gaps.
    """

    model: Any
    method: str
    options: Mapping[str, Any]
    rule: GapRule
    _held: OrderedDict[bytes, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnsupportedError(
                "on_missing='marginal' is for predictions, probabilities, densities and distances "
                "to classes; reject needs p-values, for which rows have no gaps"
            )

        if self.model.feature_map is not None:
            raise UnsupportedError(
                "on_missing='marginal' is of the Gaussian of the features as they are, and a "
                "feature_map lifts whole rows; give rows without gaps, or leave out the map"
            )

    def __reduce__(self) -> Any:
        return type(self), (self.model, self.method, self.options, self.rule)

    def __call__(self, X: Any, first_row: int = 0, **of_rows: np.ndarray) -> np.ndarray:
        """Return the results of all rows."""
        gaps, values = self.rule.missing(X), X
        patterns, numbers = np.unique(np.packbits(gaps, axis=1), axis=0, return_inverse=True)
        out: Any = self._of(values[:0], np.zeros(gaps.shape[1], bool), of_rows, slice(0))
        out = np.empty((len(values), *out.shape[1:]), out.dtype)
        for i, pattern in enumerate(patterns):
            rows = np.flatnonzero(numbers.ravel() == i)
            missing = np.unpackbits(pattern, count=gaps.shape[1]).astype(bool)
            out[rows] = self._of(values[rows], missing, of_rows, rows)
        return out

    def _of(
        self, rows: np.ndarray, missing: np.ndarray, of_rows: Mapping[str, np.ndarray], at: Any
    ) -> np.ndarray:
        """Return the results of rows that all lack the same features."""
        observed = np.flatnonzero(~missing)
        given, model = rows[:, observed], self._model_of(missing, observed)
        if self.method == "filled":
            return filled(self.model, given, observed, model.posterior(given))
        beside = {name: values[at] for name, values in of_rows.items()}
        return getattr(model, self.method)(given, **self.options, **beside)

    def _model_of(self, missing: np.ndarray, observed: np.ndarray) -> Any:
        """Return the model of the observed features, which is kept if there is room."""
        if observed.size == self.model.n_features:
            return self.model
        pattern = missing.tobytes()
        with self._lock:
            model = self._held.get(pattern)
            if model is None:
                model = self._held[pattern] = threads.call_blas(
                    self.model.n_features, self.model.marginal, observed
                )
            self._held.move_to_end(pattern)
            while sum(held.packed_bytes for held in self._held.values()) > CACHE_BYTES:
                self._held.popitem(last=False)
        return model


def filled(model: Any, rows: np.ndarray, observed: np.ndarray, posterior: np.ndarray) -> np.ndarray:
    """Return rows of some features with the means of the others given these.

    Parameters
    ----------
    model : GaussianModel
    rows : ndarray, shape (n_rows, n_observed)
        Rows of the observed features.
    observed : ndarray of int
        Numbers of these features, in order.
    posterior : ndarray, shape (n_rows, n_classes)
        Posteriors of the rows, by the marginal model.

    Returns
    -------
    ndarray, shape (n_rows, n_features)
    """
    missing = np.setdiff1d(np.arange(model.n_features), observed)
    given, wanted = (np.flatnonzero(np.isin(model.features, at)) for at in (observed, missing))
    at, others = model.features[given], model.features[wanted]
    out = np.empty((len(rows), model.n_features))
    out[:, observed] = rows
    means = np.where(np.isnan(model.means), model.xbar, model.means)
    out[:, missing] = posterior @ means[:, missing]
    regressions = [model.structure.regression(root, given, wanted) for root in model.roots]
    for k, group in enumerate(model.structure.groups(len(means))):
        shifts = (out[:, at] - means[k, at]) @ regressions[group].T
        out[:, others] += posterior[:, k, None] * shifts
    return out


@dataclass(frozen=True, eq=False)
class GapRule(RowRule):
    """Rule for rows that may lack features: NaN and `nodata` are gaps.

    A row is invalid if it holds infinity, or none of the features that are used.

    Attributes
    ----------
    used : ndarray of int
        Numbers of these features.
    """

    used: Any = None

    def missing(self, X: np.ndarray) -> np.ndarray:
        """Return a boolean array that is True for the gaps."""
        return super().missing(X) | np.isnan(X)

    def rows(self, X: Any) -> np.ndarray:
        """Return the numbers of the invalid rows, in order."""
        gaps = self.missing(X)
        return np.flatnonzero(np.isinf(X).any(axis=1) | gaps[:, self.used].all(axis=1))

    def refuse(self, X: Any, at: int, row: int) -> NoReturn:
        """Raise `InvalidDataError` for the invalid row ``X[at]``, naming its number `row`."""
        infinite = np.isinf(X[at])
        if infinite.any():
            column = int(infinite.argmax())
            raise InvalidDataError(
                f"Input X contains infinity: row {row}, column {column}; gaps are NaN or nodata",
                *("X", row, column),
            )
        raise InvalidDataError(
            f"row {row} of X has no feature that the model uses; on_invalid='fill' gives such rows "
            f"a result of your own",
            *("X", row),
        )


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
    of_rows : dict of str to ndarray
        Keywords of the function with an entry for each row of the whole array.
    """

    function: Callable[..., np.ndarray]
    rule: RowRule
    value: np.ndarray
    of_rows: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of all rows."""
        X = as_matrix(X, first_row, sparse=not isinstance(self.rule, GapRule))
        given = {name: v[first_row : first_row + X.shape[0]] for name, v in self.of_rows.items()}
        bad = self.rule.rows(X)
        if bad.size and self.rule.action == "raise":
            self.rule.refuse(X, int(bad[0]), first_row + int(bad[0]))
        if not bad.size:
            return self.function(X, first_row, **given).astype(self.value.dtype, copy=False)
        valid = np.ones(X.shape[0], bool)
        valid[bad] = False
        rows, given = X[np.flatnonzero(valid)], {name: v[valid] for name, v in given.items()}
        try:
            scores = self.function(rows, 0, **given).astype(self.value.dtype, copy=False)
        except InvalidDataError as error:
            if error.row is None:
                raise
            row = first_row + int(np.flatnonzero(valid)[error.row])
            raise InvalidDataError(
                str(error).replace(f"row {error.row}", f"row {row}"), error.array, row, error.column
            ) from None
        result = np.full((valid.size, *scores.shape[1:]), self.value, self.value.dtype)
        result[valid] = scores
        return result
