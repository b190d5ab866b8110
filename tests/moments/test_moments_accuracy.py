"""Accuracy of moments against the exact values."""

from itertools import pairwise

import naive
import numpy as np
import pytest
from grids import pairs
from moment_checks import EVERY_PATH, TYPES, assert_moments, sample, take_path, variances, watch

from streamgda.errors import InvalidDataError
from streamgda.kernels.products import LEAST_ROWS
from streamgda.moments import ClassMoments
from streamgda.moments import centred as sums_module


@pytest.fixture(scope="module")
def far_away():
    """Rows of unit variance at an offset of 1e8, and their exact moments."""
    rng = np.random.default_rng(8)
    y = rng.integers(0, 3, 300)
    X = 1e8 + rng.normal(size=(300, 3)) + 2 * y[:, None]
    return X, y, {t: naive.rounded(naive.exact_covariance(X, y, t)) for t in TYPES}


def assert_accurate(moments, expected, rtol=1e-12):
    got = moments.covariance()
    scale = np.abs(expected)
    if moments.covariance_type in ("full", "tied"):  # a covariance, relative to its variances
        deviations = np.sqrt(expected.diagonal(axis1=-2, axis2=-1))
        scale = deviations[..., :, None] * deviations[..., None, :]
    assert (np.abs(got - expected) / scale).max() < rtol


@pytest.mark.parametrize("chunk", [300, 100, 7, 1])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_large_offset(far_away, covariance_type, chunk):
    X, y, expected = far_away
    starts = range(0, 300, chunk)
    parts = [
        ClassMoments(covariance_type).update(X[i : i + chunk], y[i : i + chunk]) for i in starts
    ]
    streamed = ClassMoments(covariance_type)
    for i in starts:
        streamed.update(X[i : i + chunk], y[i : i + chunk])
    assert_accurate(streamed, expected[covariance_type])
    while len(parts) > 1:  # as a tree
        parts = [sum(parts[i + 1 : i + 2], parts[i]) for i in range(0, len(parts), 2)]
    assert_accurate(parts[0], expected[covariance_type])


@EVERY_PATH
def test_large_offset_on_all_paths(far_away, path, monkeypatch):
    X, y, expected = far_away
    take_path(path, monkeypatch)
    assert_accurate(ClassMoments().update(X, y), expected["full"])
    half = ClassMoments().update(X, y, np.full(300, 0.3)) + ClassMoments().update(X, y) * 0.7
    assert_accurate(half, expected["full"])


def test_large_offset_after_subtraction(far_away):
    X, y, expected = far_away
    rng = np.random.default_rng(9)
    more = 1e8 + rng.normal(size=(300, 3))
    both = ClassMoments().update(more, y).update(X, y)
    assert_accurate(both - ClassMoments().update(more, y), expected["full"])


def test_classes_far_from_each_other():
    """Distances between classes must not leak into the scatter within them."""
    X, y = sample(500, 3)
    far = X + 1e9 * y[:, None]
    expected = naive.rounded(naive.exact_covariance(far, y, "tied"))
    assert_accurate(ClassMoments("tied").update(far, y), expected)


@pairs("weighted, value, covariance_type", [False, True], [0.1, 1e8 + 0.3, -7.7e-9, 1e100], TYPES)
def test_constant_features_have_no_scatter_at_all(covariance_type, value, weighted):
    X, y = sample(300, 4)
    X[:, 1] = value
    weights = np.random.default_rng(10).gamma(1, size=300) if weighted else None
    cuts = [0, 1, 2, 50, 117, 300]
    moments, merged = ClassMoments(covariance_type), ClassMoments(covariance_type)
    for a, b in pairwise(cuts):
        part = X[a:b], y[a:b], None if weights is None else weights[a:b]
        moments.update(*part)
        merged += ClassMoments(covariance_type).update(*part)
    taken = merged - ClassMoments(covariance_type).update(*part)
    for m in (moments, merged, taken, merged * 0.3, ClassMoments(covariance_type).update(X, y)):
        assert not variances(m.centred().scatter)[:, 1].any()
        assert (m.means[:, 1] == value).all()
        if covariance_type in ("full", "tied"):
            assert not m.covariance()[..., 1, :].any()


def test_float32_of_small_states_is_summed_in_float64():
    rng = np.random.default_rng(11)
    X = (1000 + rng.normal(size=(5000, 3))).astype(np.float32)
    y = np.zeros(5000, int)
    assert_moments(ClassMoments().update(X, y), X, y)


def scatter_of(moments):
    """Whole matrices, by group."""
    lower = np.tril(moments.centred().scatter)
    return lower + np.swapaxes(np.tril(lower, -1), 1, 2)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [0, 1e4])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_float32_of_large_states_has_a_bound(covariance_type, offset, weighted, monkeypatch):
    """(LEAST_ROWS + 4) / 2^24 of the summed magnitudes, element by element, at any offset."""
    take_path("large", monkeypatch)
    taken = watch(monkeypatch)
    rng = np.random.default_rng(13)
    y = rng.integers(0, 3, 3000)
    X = rng.normal(size=(3000, 40)) @ rng.normal(size=(40, 40)) * 10.0 ** rng.uniform(-3, 0, 40)
    X = (X / 5 + offset + y[:, None]).astype(np.float32)
    weights = rng.gamma(1, size=3000) if weighted else np.ones(3000)
    expected = naive.moments(X, y, weights)
    bound = np.zeros((3, 40, 40))
    for k in range(3):
        distance = np.abs(X[y == k] - expected.means[k])
        bound[k] = (weights[y == k, None] * distance).T @ distance
    share = (LEAST_ROWS + 4) * 2.0**-24
    bound *= share
    S = expected.scatter
    if covariance_type == "tied":
        S, bound = S.sum(axis=0, keepdims=True), bound.sum(axis=0, keepdims=True)
    for cuts in ([0, 3000], [0, 1, 700, 3000]):
        moments = ClassMoments(covariance_type)
        for a, b in pairwise(cuts):
            moments.update(X[a:b], y[a:b], weights[a:b] if weighted else None)
        error = np.abs(scatter_of(moments) - S)
        assert (error <= bound).all()
        scale = np.sqrt(variances(S)[:, :, None] * variances(S)[:, None])
        assert (bound <= share * scale * (1 + 1e-9)).all()
        assert 1e-9 < (error / scale).max() < 1e-5  # float32 it was, and better than that
        assert (np.linalg.eigvalsh(moments.covariance()) > 0).all()
    assert "float32" in taken["types"]  # distances of means are multiplied in float64


SCALES = {
    "tiny": 1e-25,
    "small": 1e-20,
    "large": 1e15,
    "huge": 1e25,
    "all": [1e-25, 1, 1e-20, 1e15, 1e25],
    "one too small": [1, 1e-20, 1, 1, 1],
}


@pairs("d, scales, covariance_type", [3, 20, 40], SCALES, ["full", "tied"])
def test_float32_beyond_its_range_is_multiplied_in_float64(covariance_type, scales, d, monkeypatch):
    """Whole blocks of 256 rows, so that none is small enough for float32."""
    monkeypatch.setattr(sums_module, "_SMALL_STATE", 0)
    monkeypatch.setattr(sums_module, "_SMALL_WORK", 0)
    rng = np.random.default_rng(14)
    y = rng.permutation(np.repeat(np.arange(3), 2 * LEAST_ROWS))
    X = rng.normal(size=(y.size, d))
    X[:, 1:] += X[:, :1]
    X = (X * np.resize(SCALES[scales], d)).astype(np.float32)
    expected = naive.covariance(X, y, covariance_type)
    assert_accurate(ClassMoments(covariance_type).update(X, y), expected)
    weights = rng.gamma(1, size=y.size)
    expected = naive.covariance(X, y, covariance_type, weights)
    streamed = ClassMoments(covariance_type).update(X[:700], y[:700], weights[:700])
    streamed.update(X[700:], y[700:], weights[700:])
    rtol = 1e-6 if scales == "large" else 1e-12  # of which fewer rows are not too large
    assert_accurate(streamed, expected, rtol)


@pytest.mark.parametrize("weight", [1e-200, 1e-100, 1e-60, 1e60, 1e100, 1e150])
def test_float32_of_any_weight(weight, monkeypatch):
    """Roots of weights beyond the range of float32 must not turn rows into zeros or infinities."""
    take_path("large", monkeypatch)
    X, y = sample(300, 30, dtype="float32")
    moments = ClassMoments().update(X, y, np.full(300, weight))
    assert_accurate(moments, naive.covariance(X, y))


@pytest.mark.parametrize("d", [3, 20])
def test_weights_are_refused_only_if_sums_overflow(d):
    X, y = sample(300, d)
    assert_accurate(ClassMoments().update(X, y, np.full(300, 1e140)), naive.covariance(X, y))
    with pytest.raises(InvalidDataError, match=r"squares overflow float64.*or the weights"):
        ClassMoments().update(X * 1e60, y, np.full(300, 1e200))
    with pytest.raises(InvalidDataError, match=r"overflow float64.*or the weights"):
        ClassMoments().update(X, y, np.full(300, 1e160))  # whose squares overflow


def test_a_large_state_of_float32_beyond_its_range():
    """Without any constants changed: 300 classes of few features."""
    X, y = sample(3000, 20, 300)
    for scale in (1e-25, 1e25):
        rows = (X * scale).astype(np.float32)
        moments = ClassMoments().update(rows, y)
        assert moments.nbytes > sums_module._SMALL_STATE
        assert_moments(moments, rows, y)
