"""`load`: saved estimators of any class."""

from __future__ import annotations

from typing import Any, overload

from streamgda.estimators.saving import Kind, SavedEstimator


@overload
def load(store: Any) -> Any: ...


@overload
def load(store: Any, kind: type[Kind]) -> Kind: ...


def load(store: Any, kind: type[SavedEstimator] | None = None) -> Any:
    """Load an estimator that `save` wrote.

    Parameters
    ----------
    store : path, zarr store or zarr group
        The store that `save` wrote to.
    kind : class, optional
        Class of estimators that is expected, or a base of it; by default any.

    Returns
    -------
    estimator
        A fitted estimator of the class that was saved. It gives bit for bit the same scores, and
        `partial_fit` continues from the same rows.

    Raises
    ------
    SourceNotFoundError
        If the store does not exist.
    FormatError
        If the store does not hold a saved estimator of that kind, has an unknown format version, or
        is damaged.

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
    return (kind or SavedEstimator).load(store)
