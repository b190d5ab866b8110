"""Types of results as users see them; mypy checks this file, which is not run."""

from typing import Any, assert_type

import numpy as np

from streamgda import (
    ClassMoments,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    load,
    open_store,
)


def predictions(
    lda: LinearDiscriminantAnalysis, nb: GaussianNB, search: GaussianDiscriminantCV
) -> None:
    """Arrays in memory give arrays; other containers, and `out`, give anything."""
    X = np.zeros((2, 3))
    assert_type(lda.predict(X), np.ndarray)
    assert_type(nb.predict(X, reject=0.1), np.ndarray)
    assert_type(search.predict(X), np.ndarray)
    assert_type(lda.predict(X, out="classes"), Any)
    assert_type(lda.predict([[0.0, 1.0, 2.0]]), Any)


def stores() -> None:
    """Without labels, there are none."""
    assert_type(open_store("rows.zarr"), tuple[Any, Any])
    assert_type(open_store("rows.zarr", y=None), tuple[Any, None])
    assert_type(open_store("rows.zarr", "X", None), tuple[Any, None])


def saved() -> None:
    """An estimator is of the kind that is expected."""
    assert_type(load("model.zip"), Any)
    assert_type(load("model.zip", GaussianNB), GaussianNB)
    assert_type(ClassMoments.from_bytes(b""), ClassMoments)


def sums(parts: list[ClassMoments]) -> None:
    """A sum of moments is moments; without any, it is what the sum starts from."""
    assert_type(sum(parts, ClassMoments()), ClassMoments)
