"""Helpers for tests of exact sums: rows of integers, results to the bit, exact comparisons."""

from fractions import Fraction

import naive
import numpy as np

from streamgda.storage.saved import state_of

DTYPES = ["uint8", "int8", "uint16", "int16"]


def sample(n, d, dtype, n_classes=3, seed=0):
    """Rows from the whole range of the type, including both ends."""
    rng = np.random.default_rng(seed)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = rng.integers(low, high, (n, d), endpoint=True).astype(dtype)
    X[rng.random((n, d)) < 0.1] = low
    X[rng.random((n, d)) < 0.1] = high
    return X, rng.integers(0, n_classes, n)


def bits(moments):
    """All results, to the bit."""
    return [
        moments.classes.tolist(),
        moments.class_count.tolist(),
        moments.means.tobytes(),
        *[moments.covariance(ddof).tobytes() for ddof in (0, 1) if moments.class_count.any()],
    ]


def held(moments):
    """The sums themselves, to the bit."""
    assert moments.exact
    arrays = {name: array.tobytes() for name, array in state_of(moments)[1].items()}
    return state_of(moments)[0]["origin"], arrays


def assert_exact(moments, X, y):
    """Means rounded once, to the nearest; scatter within a unit in the last place."""
    assert moments.exact
    assert moments.class_count.dtype == np.int64
    expected = naive.exact_moments(X, y)
    assert moments.classes.tolist() == expected.classes
    assert moments.class_count.tolist() == expected.count
    assert (moments.means == naive.rounded(expected.means)).all()
    sums = moments.centred()
    mean = [
        [Fraction(a) + Fraction(b) for a, b in zip(*rows, strict=True)]
        for rows in zip(sums.mean.tolist(), sums.mean_low.tolist(), strict=True)
    ]
    error = np.array(mean) - np.array(expected.means)
    assert max(abs(e) for e in error.ravel()) < 1e-15  # the two parts together
    scatter = np.array(expected.scatter, object)
    pooled = naive.is_tied(moments.covariance_type)
    if pooled:
        scatter = scatter.sum(axis=0, keepdims=True)
    if naive.is_matrix(moments.covariance_type):
        i, j = np.tril_indices(X.shape[1])
    else:
        i = j = np.arange(X.shape[1])
    got = sums.scatter[:, i, j] if sums.scatter.ndim == 3 else sums.scatter
    if pooled:  # a sum of fractions: rounded as a number of the size of one
        for value, fraction in zip(got.ravel(), scatter[:, i, j].ravel(), strict=True):
            unit = float(np.spacing(max(abs(value), len(expected.classes) / 2)))
            assert abs(Fraction(value) - fraction) <= Fraction(unit)
    else:
        assert naive.ulps(got, scatter[:, i, j]) <= 1
