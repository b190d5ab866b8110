"""Estimators that were saved, by the name that they were saved under."""

from __future__ import annotations

from typing import Any

from streamgda import estimators, storage
from streamgda.errors import FormatError
from streamgda.estimators.base import MomentClassifier


def load(store: Any) -> MomentClassifier:
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
    name = attributes.get("estimator")
    if name not in estimators.__all__:
        raise FormatError(f"{store} holds an estimator {name!r}, which is not known here")
    try:
        params = attributes["params"]
        if not all(map(_is_plain, params.values())):
            raise TypeError("parameters are numbers, texts and lists of numbers")
        estimator: MomentClassifier = getattr(estimators, name)(**params)
        return estimator._restore(attributes, arrays)
    except FormatError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError(f"{store} is damaged: {error!s:.500}") from None


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(entry, int | float) for entry in value)
    return value is None or isinstance(value, bool | int | float | str)
