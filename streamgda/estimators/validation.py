"""Checks of rows and labels as scikit-learn makes them, for containers of every kind."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from streamgda.errors import InvalidDataError
from streamgda.rows import adapter_of, as_source
from streamgda.rows.labels import as_maskable_labels, refuse_missing
from streamgda.rows.masked import is_masked, unmasked
from streamgda.rows.rules import CHECK_SUMS, RowRule
from streamgda.rows.sources import RowSource
from streamgda.rows.sparse import SparseRows
from streamgda.rows.validity import refuse_sparse


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
    if adapter_of(X).in_memory:
        return validate_data(estimator, X, reset=reset, **_accepted(estimator, X))
    return _validate_header(estimator, as_source(X), reset)


def validate_labelled(
    estimator: Any, X: Any, y: Any, *, reset: bool, rule: RowRule = CHECK_SUMS
) -> tuple[Any, Any]:
    """Return rows and labels that fit the estimator and each other; see `validate_rows`.

    Labels are a masked array if some are missing and `rule` skips such rows.
    """
    if _fit_already(estimator, X, y, reset):
        if reset:
            estimator.n_features_in_ = X.shape[1]
            estimator.__dict__.pop("feature_names_in_", None)
        return X, y
    if not adapter_of(X).in_memory:
        return _validate_header(estimator, as_source(X), reset), y
    if not adapter_of(y).in_memory:
        y = as_source(y, "y").whole()
    missing = None
    if rule.action == "skip" and np.ndim(y) == 1:
        labels = as_maskable_labels(y)
        if is_masked(labels):
            y, missing = np.asarray(labels), np.ma.getmaskarray(labels)
    else:
        y = unmasked(y, "y")
    # Values are checked where they are summed: values that are not finite make such sums.
    try:
        rows, y = validate_data(estimator, X, y, reset=reset, **_accepted(estimator, X))
    except ValueError:
        if missing is None and y is not None:
            refuse_missing(np.asarray(y))  # its error names the row and the remedy
        raise
    return rows, y if missing is None else np.ma.array(y, mask=missing)


def _accepted(estimator: Any, X: Any) -> dict[str, Any]:
    """Return which rows scikit-learn's validation accepts; refuse sparse ones that it does not."""
    accepted = {"dtype": "numeric", "ensure_all_finite": False}
    if SparseRows.accepts(X):
        if not get_tags(estimator).input_tags.sparse:
            refuse_sparse(X)
        accepted["accept_sparse"] = "csr"
    return accepted


def _validate_header(estimator: Any, rows: RowSource, reset: bool) -> RowSource:
    if len(rows.shape) != 2:
        raise InvalidDataError(f"X has shape {rows.shape}; expected a 2D array of rows x features")
    validate_data(estimator, rows.header, reset=reset, skip_check_array=True)
    return rows


def _fit_already(estimator: Any, X: Any, y: Any, reset: bool) -> bool:
    """Return whether these are arrays of numbers and of labels with nothing left to convert."""
    return (
        type(X) in (np.ndarray, np.memmap)
        and type(y) is np.ndarray
        and X.dtype.kind in "iuf"
        and X.ndim == 2
        and X.size > 0
        and y.shape == X.shape[:1]
        and (
            reset
            or (
                X.shape[1] == estimator.n_features_in_
                and not hasattr(estimator, "feature_names_in_")
            )
        )
    )


def calls_within() -> int:
    """Return how many functions of the package have called the caller, which is counted too."""
    frame, n = inspect.currentframe(), -1
    while frame is not None and frame.f_globals["__name__"].startswith("streamgda."):
        frame, n = frame.f_back, n + 1
    return n
