"""Rows and labels of a store, and a saved estimator that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streamgda.cli.options import MissingChunks
from streamgda.errors import FormatError, InvalidDataError, InvalidParameterError


def open_rows(
    store: str,
    x: str,
    y: str | None,
    missing: MissingChunks,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    labels: str | None = None,
    all_touched: bool = False,
) -> tuple[Any, Any]:
    """Return rows and labels (None if neither `y` nor `label` names them); see `open_store`.

    Names of features may be separated by commas. Labels may be in a store of their own, `labels`,
    to which then `label` and `all_touched` belong.
    """
    from streamgda import open_store  # noqa: PLC0415  (see the note in `options`)

    names = split_names(features) if isinstance(features, str) else features
    own, column = (y, label) if labels is None else (None, None)
    X, found = open_store(store, x, own, label=column, features=names, missing=missing.value)
    if y is not None and labels is not None:
        found, _ = open_store(labels, y, None, label=label, all_touched=all_touched)
    if y is not None and found is None:
        raise InvalidParameterError(
            f"{store} holds no {y!r} beside the rows: --labels names the file that holds the labels"
        )
    return X, found


def split_names(text: str) -> list[str]:
    """Return names that are separated by commas."""
    return [name.strip() for name in text.split(",")]


def open_both(
    model: str,
    store: str,
    x: str,
    y: str | None,
    missing: MissingChunks,
    label: str | None = None,
    features: str | None = None,
    labels: str | None = None,
    all_touched: bool = False,
) -> tuple[Any, Any, Any]:
    """Return an estimator, rows and labels (None if neither `y` nor `label` names them).

    The columns of a table are by default those that the estimator was fitted with.

    Raises
    ------
    SourceNotFoundError, SourceError, FormatError
        If either cannot be opened, or the rows or labels are scores that are not complete.
    InvalidDataError
        If the rows do not have the features that the estimator expects.
    """
    from streamgda import load  # noqa: PLC0415  (see the note in `options`)
    from streamgda.estimators.validation import names_in  # noqa: PLC0415
    from streamgda.rows import names_of  # noqa: PLC0415
    from streamgda.rows.names import join_names  # noqa: PLC0415
    from streamgda.rows.table_files import is_table  # noqa: PLC0415
    from streamgda.storage.opening import refuse_half_written  # noqa: PLC0415

    estimator = load(model)
    if not hasattr(estimator, "predict"):
        raise FormatError(
            f"{model} holds a {type(estimator).__name__}, which predicts no labels; expected a "
            f"model that `streamgda fit` or a classifier's save() wrote"
        )
    columns = names_in(estimator) if features is None and is_table(store) else features
    X, found = open_rows(store, x, y, missing, label, columns, labels, all_touched)
    if len(X.shape) != 2 or X.shape[1] != estimator.n_features_in_:
        raise InvalidDataError(
            f"{store}: {x!r} has shape {X.shape}; {model} expects rows of "
            f"{estimator.n_features_in_} features"
        )
    join_names(names_in(estimator), names_of(X), model, InvalidDataError)
    for name, array in ((x, X), (y, found)):
        refuse_half_written(array, f"{store}: {name!r}")
    return estimator, X, found
