"""Estimators that were saved, by the name that they were saved under."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamgda import estimators, storage
from streamgda.errors import FormatError
from streamgda.estimators.base import MomentClassifier, checked_params, part


def load(store: Any) -> Any:
    """Load an estimator that `save` wrote.

    Parameters
    ----------
    store : path, zarr store or zarr group

    Returns
    -------
    estimator
        Of the class that was saved, fitted: it scores bit for bit as it did, and goes on
        learning with `partial_fit`.

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    FormatError
        Where what is there is not a saved estimator, of an unknown version, or damaged.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from streamgda import GaussianNB, load
    >>> nb = GaussianNB().fit([[0.0], [1.0], [5.0], [7.0]], ["a", "a", "b", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     nb.save(Path(folder) / "nb.zip")
    ...     load(Path(folder) / "nb.zip").predict([[2.0], [6.0]])
    array(['a', 'b'], dtype='<U1')
    """
    attributes, arrays = storage.read(store, "estimator")
    try:
        return _restored(attributes, arrays)
    except FormatError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{store} is damaged: {error!s:.500}") from None


def _class_of(attributes: Mapping[str, Any], base: type = object) -> Any:
    name = attributes["estimator"]
    kind = getattr(estimators, name) if name in estimators.__all__ else None
    if kind is None or not hasattr(kind, "from_state") or not issubclass(kind, base):
        raise FormatError(f"what was saved is an estimator {name!r}, which is not known here")
    return kind


def _restored(attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    kind = _class_of(attributes)
    if kind is not estimators.ThresholdClassifier:
        return kind.from_state(attributes, arrays)
    # It holds an estimator of another kind, and perhaps one to be fitted anew.
    inner = attributes["fitted"]
    fitted = _class_of(inner, MomentClassifier).from_state(inner, part(arrays, "fitted"))
    given = attributes["params"]["estimator"]
    if given is not None:
        given = _class_of(given, MomentClassifier)(**checked_params(given["params"]))
    return kind.from_state(attributes, arrays, given, fitted)
