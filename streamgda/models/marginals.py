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
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, UnsupportedError
from streamgda.rows.invalid_rows import RowRule, as_maskable_matrix

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
    "filled",
)


@dataclass(frozen=True)
class Marginals:
    """A method of a model as a function of rows with gaps.

    Gaps are NaN, masked values and the `nodata` of the rule. Rows with infinity, and rows without
    any feature of the density, are invalid.

    Attributes
    ----------
    model : Model
        Model of all features, with a method ``marginal``.
    method : str
        One of `METHODS`.
    columns : int or None
        Width of the result; None if it is one-dimensional.
    options : dict
        Keywords of the method.
    rule : RowRule
        Determines the gaps, and whether invalid rows are an error.
    value : ndarray, shape ()
        Result of invalid rows, in the type of the results.
    """

    model: Any
    method: str
    columns: int | None
    options: Mapping[str, Any]
    rule: RowRule
    value: np.ndarray
    _held: OrderedDict[bytes, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: Any = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UnsupportedError(
                f"on_missing='marginal' is for predictions, probabilities, densities and distances "
                f"to classes, and {self.method} is none of them; give rows without gaps"
            )

        if self.model.feature_map is not None:
            raise UnsupportedError(
                "on_missing='marginal' is of the Gaussian of the features as they are, and a "
                "feature_map lifts whole rows; give rows without gaps, or leave out the map"
            )

    def __reduce__(self) -> Any:
        given = self.model, self.method, self.columns, self.options, self.rule, self.value
        return type(self), given

    def __call__(self, X: Any, first_row: int = 0) -> np.ndarray:
        """Return the results of all rows."""
        X = as_maskable_matrix(X)
        gaps, values = self.rule.missing(X), np.ma.getdata(X)
        gaps, infinite = gaps | np.isnan(values), np.isinf(values) & ~gaps
        empty = gaps[:, self.model._used_features].all(axis=1)
        invalid = empty | infinite.any(axis=1)
        if self.rule.action == "raise" and invalid.any():
            _refuse(infinite, int(invalid.argmax()), first_row)
        shape = (len(values),) if self.columns is None else (len(values), self.columns)
        out = np.full(shape, self.value, self.value.dtype)
        valid = np.flatnonzero(~invalid)
        patterns, numbers = np.unique(np.packbits(gaps[valid], axis=1), axis=0, return_inverse=True)
        for i, pattern in enumerate(patterns):
            rows = valid[numbers.ravel() == i]
            observed = np.flatnonzero(~np.unpackbits(pattern, count=gaps.shape[1]).astype(bool))
            given = values[np.ix_(rows, observed)]
            model = self._model_of(pattern.tobytes(), observed)
            if self.method == "filled":
                out[rows] = filled(self.model, given, observed, model.posterior(given))
            else:
                out[rows] = getattr(model, self.method)(given, **self.options)
        return out

    def _model_of(self, pattern: bytes, observed: np.ndarray) -> Any:
        """Return the model of the observed features, which is kept if there is room."""
        if observed.size == self.model.n_features:
            return self.model
        with self._lock:
            model = self._held.get(pattern)
            if model is None:
                model = self._held[pattern] = self.model.marginal(observed)
            self._held.move_to_end(pattern)
            while sum(held.packed_bytes for held in self._held.values()) > CACHE_BYTES:
                self._held.popitem(last=False)
        return model


def _refuse(infinite: np.ndarray, at: int, first_row: int) -> None:
    """Raise the error for an invalid row."""
    row = first_row + at
    if infinite[at].any():
        column = int(infinite[at].argmax())
        raise InvalidDataError(
            f"Input X contains infinity: row {row}, column {column}; gaps are NaN, masked values "
            f"or nodata",
            *("X", row, column),
        )
    raise InvalidDataError(
        f"row {row} of X has no feature that the model uses; on_invalid='fill' gives such rows a "
        f"result of your own",
        *("X", row),
    )


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
