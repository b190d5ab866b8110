"""Moments to save, and comparisons of loaded states."""

import numpy as np

from streamgda.moments import ClassMoments
from streamgda.storage.saved import state_of


def some_moments(covariance_type="full", dtype="float64", labels=(3, -1, 3, 7)):
    X = np.random.default_rng(0).integers(0, 100, (4, 3)).astype(dtype)
    if dtype == "float64":
        X /= 7
    return ClassMoments(covariance_type).update(X, labels)


def assert_same(a, b):
    """Check that the states are equal to the bit."""
    (attributes, arrays), (others, other_arrays) = state_of(a), state_of(b)
    assert attributes == others
    assert a.classes.dtype == b.classes.dtype
    assert (a.classes == b.classes).all()
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        assert array.dtype == other_arrays[name].dtype
        assert array.shape == other_arrays[name].shape
        assert array.tobytes() == other_arrays[name].tobytes()


def left_overs(folder):
    return [p.name for p in folder.rglob("*") if "partial" in p.name or "old" in p.name]
