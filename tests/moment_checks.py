"""Helpers for tests of moments: rows of every size and type, and checks."""

import naive
import numpy as np
import pytest
from hypothesis import strategies as st
from samples import bits

from streamgda import ClassMoments

TYPES = naive.COVARIANCE_TYPES
DTYPES = ["uint8", "int8", "uint16", "int16", "int32", "int64", "bool"]
DTYPES += ["float16", "float32", "float64", ">f8", ">u2", ">f4", "longdouble"]
# Rows, features and classes: by their sizes, moments choose how to add rows.
SIZES = {
    "few": (200, 5, 3),
    "few wide": (300, 130, 3),
    "segments": (30_000, 5, 3),
    "by class": (1500, 130, 3),
    "many classes": (4000, 40, 165),
    "in place": (800, 200, 40),
}


def sample(n=200, d=5, n_classes=3, seed=0, dtype="float64"):
    """Rows of classes with different means and spreads, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    y[:n_classes] = np.arange(n_classes)[:n]
    X = rng.normal(size=(n, d)) * (1 + y[:, None]) + rng.normal(size=(n_classes, d))[y] * 3
    X[:, 1:] += X[:, :1] / 2
    kind = np.dtype(dtype).kind
    if kind == "b":
        X = X > 0
    elif kind in "iu":
        X = np.clip(np.round(20 * X) + (100 if kind == "u" else 0), *limits(dtype))
    return X.astype(dtype), y


def limits(dtype):
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def largest(array):
    """The largest magnitude among the values that are not NaN."""
    return np.abs(array)[~np.isnan(array)].max(initial=0)


def matrices(covariances, covariance_type, d, n_classes=3):
    """Covariances as one matrix per class, (n_classes, d, d), from the shape of their type."""
    tied = naive.is_tied(covariance_type)
    values = np.asarray(covariances)[None] if tied else np.asarray(covariances)
    if covariance_type.endswith("spherical"):
        values = values[:, None] * np.ones(d)
    if not naive.is_matrix(covariance_type):
        values = np.array([np.diag(row) for row in values])
    return np.broadcast_to(values, (n_classes, d, d))


def some_moments(covariance_type="full", dtype="float64", labels=(3, -1, 3, 7)):
    """Moments to save."""
    X = np.random.default_rng(0).integers(0, 100, (4, 3)).astype(dtype)
    return ClassMoments(covariance_type).update(X / 7 if dtype == "float64" else X, labels)


def assert_same(a, b):
    """Check that the states are equal to the bit."""
    assert bits(a) == bits(b)
    assert a.classes.dtype == b.classes.dtype
    assert (a.classes == b.classes).all()


def fails(error, message, function, *operands):
    """Check that a call raises that error, and changes none of its operands."""
    before = [bits(operand) for operand in operands]
    with pytest.raises(error, match=message):
        function(*operands)
    assert [bits(operand) for operand in operands] == before


def assert_moments(moments, X, y, weights=None, rtol=1e-12):
    """Check that they are those of the rows, within the accuracy of float64."""
    expected = naive.moments(X, y, weights)
    assert moments.classes.tolist() == expected.classes.tolist()
    np.testing.assert_allclose(moments.class_count, expected.count, rtol=1e-14)
    spread = np.abs(np.asarray(X, np.float64)).max() + 1e-300
    np.testing.assert_allclose(moments.means, expected.means, rtol=1e-14, atol=1e-14 * spread)
    for ddof in (0, 1):
        covariance = naive.covariance(X, y, moments.covariance_type, weights, ddof)
        got = moments.covariance(ddof)
        assert got.shape == covariance.shape
        rounding = rtol * largest(covariance) + 1e-30 * spread**2
        np.testing.assert_allclose(got, covariance, rtol=rtol, atol=rounding)


def assert_close(a, b, rtol=1e-10):
    """Check that both hold the same moments, within the accuracy of float64."""
    assert a.covariance_type == b.covariance_type
    assert a.classes.tolist() == b.classes.tolist()
    np.testing.assert_allclose(a.class_count, b.class_count, rtol=rtol)
    if a.n_features is None or not a.class_count.any():
        return
    scale = largest(a.means)
    np.testing.assert_allclose(a.means, b.means, rtol=rtol, atol=rtol * scale)
    scale = largest(a.covariance()) + 1e-14 * scale**2
    np.testing.assert_allclose(a.covariance(), b.covariance(), rtol=rtol, atol=rtol * scale)


# --- rows and moments that hypothesis draws ---------------------------------------------------


@st.composite
def batches(draw, max_batches=6):
    """A covariance type, and batches of rows, labels and maybe weights: some empty, some equal."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 40))
    d = draw(st.integers(1, 5))
    offset = draw(st.sampled_from([0.0, 1.0, 1e4]))
    X = rng.normal(size=(n, d)) * draw(st.sampled_from([1.0, 1e-3, 1e3])) + offset
    y = rng.integers(0, draw(st.integers(1, 4)), n)
    heavy = draw(st.sampled_from([None, 1.0, 3e100, 1e-100]))
    weights = None if heavy is None else heavy * rng.gamma(1, size=n) * (rng.random(n) < 0.9)
    owner = rng.integers(0, draw(st.integers(1, max_batches)), n)
    some = [
        (X[owner == b], y[owner == b], None if weights is None else weights[owner == b])
        for b in np.unique(owner)
    ]
    return draw(st.sampled_from(TYPES)), some


def of(covariance_type, *parts):
    moments = ClassMoments(covariance_type)
    for X, y, weights in parts:
        moments.update(X, y, weights)
    return moments


def together(parts):
    X, y, weights = zip(*parts, strict=True)
    return np.vstack(X), np.concatenate(y), None if weights[0] is None else np.concatenate(weights)
