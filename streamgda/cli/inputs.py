"""A saved estimator together with the rows of a store."""

from __future__ import annotations

from typing import Any

from streamgda.cli.options import MissingChunks
from streamgda.errors import InvalidDataError


def open_both(
    model: str, store: str, x: str, y: str | None, missing: MissingChunks
) -> tuple[Any, Any, Any]:
    """Return an estimator, rows and labels (None if `y` is None).

    Raises
    ------
    SourceNotFoundError, SourceError, FormatError
        If either cannot be opened, or the rows or labels are scores that are not complete.
    InvalidDataError
        If the rows do not have the features that the estimator expects.
    """
    from streamgda import load, open_store  # noqa: PLC0415  (see the note in `options`)
    from streamgda.engine.outputs import refuse_half_written  # noqa: PLC0415
    from streamgda.estimators.validation import names_in  # noqa: PLC0415
    from streamgda.rows import names_of  # noqa: PLC0415
    from streamgda.rows.names import join_names  # noqa: PLC0415

    estimator = load(model)
    X, labels = open_store(store, x, y, missing=missing.value)
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise InvalidDataError(
            f"{store}: {x!r} has shape {X.shape}; {model} expects rows of "
            f"{estimator.n_features_in_} features"
        )
    join_names(names_in(estimator), names_of(X), model, InvalidDataError)
    for name, array in ((x, X), (y, labels)):
        refuse_half_written(array, f"{store}: {name!r}")
    return estimator, X, labels
