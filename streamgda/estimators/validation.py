"""Checks of rows and labels as scikit-learn makes them, for containers of every kind."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import column_or_1d, validate_data

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows import Rows, adapter_of, as_source
from streamgda.rows.arrays import as_numpy, is_masked, unmasked
from streamgda.rows.codes import CodedLabels
from streamgda.rows.in_memory import SparseRows
from streamgda.rows.invalid_rows import refuse_sparse
from streamgda.rows.labels import as_maskable_labels, by_codes, refuse_missing
from streamgda.rows.names import Names
from streamgda.rows.sources import RowSource

_SHOWN = 5  # names in a message, as in scikit-learn's


def validate_rows(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Return rows whose width and feature names fit the estimator.

    Parameters
    ----------
    estimator : estimator
    X : array-like, sparse matrix, zarr.Array, dask collection or data frame
    reset : bool
        Whether the estimator gets width and names from these rows.

    Returns
    -------
    ndarray, sparse matrix or RowSource
        An array or a matrix if the rows are in memory.

    Raises
    ------
    InvalidDataError, ValueError, TypeError
        For rows that the estimator cannot use. Their values are checked when they are read.
    """
    if type(X) is np.ndarray and not reset and _fit_already(estimator, X):
        return X
    X = as_numpy(X)
    if adapter_of(X).checked_at_once:
        return _validate(estimator, X, reset=reset)
    return _validate_header(estimator, as_source(X), reset)


def validate_labelled(estimator: Any, rows: Rows, *, reset: bool) -> Rows:
    """Return rows and labels that fit the estimator and each other; see `validate_rows`.

    Labels are a masked array if some are missing and their rule skips such rows.
    """
    X, y, rule = rows.X, rows.y, rows.rule
    ready = _fit_already(estimator, X, reset)
    if ready and type(y) is np.ndarray and y.shape == X.shape[:1]:
        if reset:
            estimator.n_features_in_ = X.shape[1]
            estimator.__dict__.pop("feature_names_in_", None)
        return rows
    if y is None:
        raise InvalidParameterError(
            f"y is missing: {type(estimator).__name__} requires y to be passed, but the target y "
            f"is None; give one label for each row"
        )
    X, y = as_numpy(X), as_numpy(y)
    if isinstance(y, list | tuple):
        y = by_codes(y)
    if not adapter_of(X).checked_at_once:
        of_labels = adapter_of(y)
        if of_labels.checked_at_once and np.shape(y)[1:] == (1,):  # a raster is laid out later
            y = column_or_1d(y, warn=True)
        elif of_labels.in_memory and not of_labels.checked_at_once:  # recognised once, here
            y = y if isinstance(y, RowSource) else of_labels.of(y, "y")
        return replace(rows, X=_validate_header(estimator, as_source(X), reset), y=y)
    if not adapter_of(y).checked_at_once and not is_masked(y):
        labels = as_source(y, "y").whole()
        return validate_labelled(estimator, replace(rows, X=X, y=labels), reset=reset)
    if type(y) is CodedLabels:  # they are checked where rows are summed
        return replace(rows, X=_validate(estimator, X, y.codes, reset=reset)[0], y=y)
    missing = None
    if (rule.action == "skip" or rule.gaps) and np.asarray(y).ndim == 1:
        labels = as_maskable_labels(y)
        if is_masked(labels):
            y, missing = np.asarray(labels), np.ma.getmaskarray(labels)
    else:
        y = unmasked(y, "y")
    # Values are checked where they are summed: values that are not finite make such sums.
    try:
        X, y = _validate(estimator, X, y, reset=reset)
    except (TypeError, ValueError):
        if missing is None:
            refuse_missing(np.asarray(y))  # its error names the row and the remedy
        raise
    return replace(rows, X=X, y=y if missing is None else np.ma.array(y, mask=missing))


def _validate(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """Return rows, and labels, that scikit-learn's validation accepts; refuse other sparse ones."""
    accepted = {"dtype": "numeric", "ensure_all_finite": False}
    if SparseRows.accepts(X):
        if not get_tags(estimator).input_tags.sparse:
            refuse_sparse(X)
        accepted["accept_sparse"] = "csr"
    try:
        return validate_data(estimator, X, *y, reset=reset, **accepted)
    except OverflowError as error:
        raise InvalidDataError(f"X holds integers that no float can hold: {error}") from None


def _validate_header(estimator: Any, rows: RowSource, reset: bool) -> RowSource:
    if len(rows.shape) != 2:
        raise InvalidDataError(f"X has shape {rows.shape}; expected a 2D array of rows x features")
    _check_names(estimator, rows.feature_names, reset)
    width = int(rows.shape[1])
    if reset:
        estimator.n_features_in_ = width
    elif width != estimator.n_features_in_:
        raise InvalidDataError(
            f"X has {width} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return rows


def _check_names(estimator: Any, names: Names | None, reset: bool) -> None:
    """Check names of features as scikit-learn does, which knows those of frames only."""
    if reset:
        estimator.__dict__.pop("feature_names_in_", None)
        if names is not None:
            estimator.feature_names_in_ = np.array(names, object)
        return
    held, kind = names_in(estimator), type(estimator).__name__
    if names is None and held is not None:
        _warn(f"X does not have valid feature names, but {kind} was fitted with feature names")
    elif names is not None and held is None:
        _warn(f"X has feature names, but {kind} was fitted without feature names")
    elif names != held and names is not None and held is not None:
        message = "The feature names should match those that were passed during fit.\n"
        message += _bulleted("unseen at fit time", set(names) - set(held))
        message += _bulleted("seen at fit time, yet now missing", set(held) - set(names))
        if set(names) == set(held):
            message += "Feature names must be in the same order as they were in fit.\n"
        raise InvalidDataError(message)


def _bulleted(heading: str, names: set[str]) -> str:
    lines = [f"- {name}\n" for name in sorted(names)[:_SHOWN]]
    more = "- ...\n" if len(names) > _SHOWN else ""
    return f"Feature names {heading}:\n{''.join(lines)}{more}" if names else ""


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=calls_within() + 1)


def names_in(estimator: Any) -> Names | None:
    """Return the names of the features that an estimator was fitted with."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(map(str, names))


def _fit_already(estimator: Any, X: Any, reset: bool = False) -> bool:
    """Return whether this is an array of numbers with nothing left to convert or to warn of."""
    if type(X) not in (np.ndarray, np.memmap) or X.dtype.kind not in "iuf":
        return False
    fits = reset or (
        X.shape[1:] == (estimator.n_features_in_,) and "feature_names_in_" not in vars(estimator)
    )
    return fits and X.ndim == 2 and X.size > 0


def calls_within() -> int:
    """Return how many functions of the package have called the caller, which is counted too."""
    frame, n = inspect.currentframe(), -1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("streamgda."):
        frame, n = frame.f_back, n + 1
    return n
