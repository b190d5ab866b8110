"""A saved estimator, and rows for it that fit, slab by slab."""

from __future__ import annotations

from typing import Any

from streamgda.cli.options import MissingChunks
from streamgda.errors import InvalidDataError


def open_both(
    model: str, store: str, x: str, y: str | None, missing: MissingChunks
) -> tuple[Any, Any, Any]:
    """The estimator, its rows and their labels (None where `y` is None).

    Raises
    ------
    SourceNotFoundError, SourceError, FormatError
        Where either cannot be opened, or the rows or labels are scores that are half-written.
    InvalidDataError
        Where the rows are not those of the estimator.
    """
    from streamgda import load, open_store  # noqa: PLC0415  (see the note in `options`)
    from streamgda.engine.outputs import refuse_half_written  # noqa: PLC0415

    estimator = load(model)
    X, labels = open_store(store, x, y, missing=missing.value)
    if X.ndim != 2 or X.shape[1] != estimator.n_features_in_:
        raise InvalidDataError(
            f"{store}: {x!r} has shape {X.shape}; {model} expects rows of "
            f"{estimator.n_features_in_} features"
        )
    for name, array in ((x, X), (y, labels)):
        refuse_half_written(array, f"{store}: {name!r}")
    return estimator, X, labels
