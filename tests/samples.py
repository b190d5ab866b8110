"""Rows, estimators and checks that several test files use."""

import tracemalloc

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import sklearn
import zarr
from packaging.version import Version
from sklearn.base import clone

from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)


def blobs(
    n_rows: int = 300, n_features: int = 4, n_classes: int = 3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Correlated Gaussian classes of different sizes, places and shapes; labels 0, 1, ..."""
    rng = np.random.default_rng(seed)
    share = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    y = rng.choice(n_classes, n_rows, p=share)
    y[:n_classes] = np.arange(n_classes)
    X = np.empty((n_rows, n_features))
    for k in range(n_classes):
        mix = rng.normal(size=(n_features, n_features)) / np.sqrt(n_features) + np.eye(n_features)
        rows = y == k
        X[rows] = 2 * rng.normal(size=n_features) + rng.normal(size=(rows.sum(), n_features)) @ mix
    return X, y


def bytes_of(X: np.ndarray) -> np.ndarray:
    """The rows as uint8, spread over most of its range."""
    low, high = X.min(), X.max()
    return np.round(250 * (X - low) / (high - low)).astype(np.uint8)


ESTIMATORS = {
    **{name: GaussianDiscriminantAnalysis(name) for name in naive.COVARIANCE_TYPES},
    "regularised": GaussianDiscriminantAnalysis(
        shrinkage=0.1, pooling=0.2, reg_param=0.05, var_smoothing=1e-3, ddof=1
    ),
    "QDA": QuadraticDiscriminantAnalysis(),
    "LDA": LinearDiscriminantAnalysis(),
    "GaussianNB": GaussianNB(),
    "BernoulliNB": BernoulliNB(),
    "mixture": MixtureDiscriminantAnalysis(1),  # One component has all rows.
}
EVERY_ESTIMATOR = pytest.mark.parametrize("name", ESTIMATORS)
GAUSSIANS = [name for name in ESTIMATORS if name != "BernoulliNB"]
EVERY_GAUSSIAN = pytest.mark.parametrize("name", GAUSSIANS)
METHODS = [
    "predict",
    "predict_proba",
    "predict_log_proba",
    "predict_joint_log_proba",
    "decision_function",
    "score_samples",
    "mahalanobis",
    "p_values",
    "transform",
]
PARAMETERS = [
    "class_count_",
    "priors_",
    "class_prior_",
    "means_",
    "theta_",
    "covariance_",
    "var_",
    "epsilon_",
    "feature_count_",
    "feature_log_prob_",
    "class_log_prior_",
    "xbar_",
    "coef_",
    "intercept_",
    "explained_variance_ratio_",
]


def make(name):
    """Return an unfitted estimator of that name."""
    return clone(ESTIMATORS[name])


def results(estimator, X):
    """The results of all scoring methods of the estimator."""
    return {m: getattr(estimator, m)(X) for m in METHODS if hasattr(estimator, m)}


def assert_same_bits(a, b):
    assert a.keys() == b.keys()
    for method in a:
        np.testing.assert_array_equal(a[method], b[method], err_msg=method, strict=True)


def assert_equal_to_rounding(found, expected, X, rtol=1e-12):
    """Parameters within `rtol` of their scale, and the same labels."""
    for name in PARAMETERS:
        if hasattr(expected, name):
            value = np.asarray(getattr(expected, name))
            scale = np.nanmax(np.abs(value))
            np.testing.assert_allclose(
                getattr(found, name), value, rtol=0, atol=rtol * scale, err_msg=name
            )
    np.testing.assert_array_equal(found.classes_, expected.classes_, strict=True)
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def assert_close(a, b, rtol=1e-10):
    """Check that they agree within `rtol` of the largest entry."""
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), strict=True)


def state_of(saved, state=None, path=""):
    """The values of the state of an object as nested dicts, and its arrays by their paths."""
    values, arrays = {}, {}
    for name, value in (saved._state() if state is None else state).items():
        if isinstance(value, dict):
            values[name], within = state_of(saved, value, f"{path}{name}/")
            arrays |= within
        elif isinstance(value, np.ndarray):
            arrays[path + name] = value
        else:
            values[name] = value
    return values, arrays


def bits(saved):
    """Values and arrays of a saved object, as text and bytes that no later change can reach."""
    values, arrays = state_of(saved)
    return repr(values), {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}


def snapshot(estimator):
    """The whole state of the estimator, to show changes; what follows from it may be computed."""
    computed = ("_lock", "_derived", "_models")
    state = {name: value for name, value in vars(estimator).items() if name not in computed}
    held = {name: (id(value), repr(value)) for name, value in state.items()}
    return held | {"state": bits(estimator.moments_) if "moments_" in held else None}


def fails(error, match, estimator, method, *arguments, **keywords):
    """Check that the call raises that error, and leaves the estimator unchanged."""

    def call():
        result = getattr(estimator, method)(*arguments, **keywords)
        return result.compute() if hasattr(result, "compute") else result

    before = snapshot(estimator)
    with pytest.raises(error, match=match):
        call()
    assert snapshot(estimator) == before


def assert_peak_below(limit, call, attempts=3):
    """Call a function; fail if Python and NumPy hold as much memory as `limit` meanwhile.

    What other threads and first imports allocate counts as well, so it may take some attempts.
    """
    peaks = []
    while not peaks or (peaks[-1] >= limit and len(peaks) < attempts):
        tracemalloc.start()
        try:
            call()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[-1] < limit, f"peaks of {peaks} bytes"


# Before 1.9, scikit-learn's LDA by svd divides by n - K and its QDA by n - 1.
DIVIDES_BY_N = Version(sklearn.__version__) >= Version("1.9")
NEEDS_1_9 = pytest.mark.skipif(not DIVIDES_BY_N, reason="scikit-learn divides by n from 1.9 on")

KINDS = ["numpy", "frame", "zarr", "dask"]


def held(array, kind, rows=64):
    """Return the array as that kind of container, in chunks of the given number of rows."""
    if kind == "frame":
        return pd.DataFrame(array) if array.ndim == 2 else pd.Series(array)
    if kind == "zarr":
        dtype = str if array.dtype.kind == "U" else array.dtype
        chunks = min(rows, max(1, len(array))), *array.shape[1:]
        stored = zarr.create_array({}, shape=array.shape, chunks=chunks, dtype=dtype)
        stored[...] = array
        return stored
    if kind == "dask":
        return da.from_array(array, chunks=(rows, *array.shape[1:]))
    return array
