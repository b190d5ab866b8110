"""8- and 16-bit integers: bit for bit the same in any order, and rounded once."""

from fractions import Fraction

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import SIZES, TYPES
from samples import bits

from streamgda import ClassMoments

DTYPES = ["uint8", "int8", "uint16", "int16"]


def sample(n, d, dtype, n_classes=3, seed=0):
    """Rows from the whole range of the type, including both ends."""
    rng = np.random.default_rng(seed)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = rng.integers(low, high, (n, d), endpoint=True).astype(dtype)
    X[rng.random((n, d)) < 0.1] = low
    X[rng.random((n, d)) < 0.1] = high
    return X, rng.integers(0, n_classes, n)


def held(moments):
    """The sums themselves, to the bit."""
    assert moments.exact
    return bits(moments)[1]


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
        for rows in zip(sums.origin.tolist(), sums.offset.tolist(), strict=True)
    ]
    error = np.array(mean) - np.array(expected.means)
    assert max(abs(e) for e in error.ravel()) < 1e-15  # Both parts together are exact.
    scatter = np.array(expected.scatter, object)
    pooled = naive.is_tied(moments.covariance_type)
    if pooled:
        scatter = scatter.sum(axis=0, keepdims=True)
    if naive.is_matrix(moments.covariance_type):
        i, j = np.tril_indices(X.shape[1])
    else:
        i = j = np.arange(X.shape[1])
    got = sums.scatter[:, i, j] if sums.scatter.ndim == 3 else sums.scatter
    if pooled:  # Sums of fractions are rounded like 1.
        for value, fraction in zip(got.ravel(), scatter[:, i, j].ravel(), strict=True):
            unit = float(np.spacing(max(abs(value), len(expected.classes) / 2)))
            assert abs(Fraction(value) - fraction) <= Fraction(unit)
    else:
        assert naive.ulps(got, scatter[:, i, j]) <= 1


# --- Python's integers agree ------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(1, 30)), min_size=1, max_size=5),
    st.sampled_from(TYPES),
    st.integers(1, 4),
    st.integers(0, 2**32),
    st.randoms(),
)
def test_any_mixture_adds_in_any_order_and_subtracts_to_the_bit(batches, kind, d, seed, random):
    data = [sample(n, d, dtype, seed=seed + i) for i, (dtype, n) in enumerate(batches)]
    parts = [ClassMoments(kind).update(*batch) for batch in data]
    total, streamed, trees = sum(parts[1:], parts[0]), ClassMoments(kind), list(parts)
    rows = np.vstack([X.astype(int) for X, _ in data]), np.concatenate([y for _, y in data])
    assert_exact(total, *rows)
    while len(trees) > 1:
        random.shuffle(trees)
        trees.append(trees.pop() + trees.pop())
    for batch in random.sample(data, len(data)):
        streamed.update(*batch)
    assert held(trees[0]) == held(streamed) == held(total)
    for part in reversed(parts[1:]):
        total = total - part
    assert held(total) == held(parts[0])


EXTREMES = ["min", "max", "both", "one zero"]


@pytest.mark.parametrize("end", EXTREMES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_full_panels_of_extreme_values(dtype, end):
    """The largest sums that int32 must add exactly, in narrow rows and in tiles of wide ones."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = np.full((1601, 2), low if end == "min" else high, dtype)
    if end == "both":
        X[::2, 0], X[1::3, 1] = low, low
    elif end == "one zero":
        X[-1] = 0
    y = np.zeros(1601, int)
    wide = np.ascontiguousarray(X.repeat(70, axis=1))
    moments, many = ClassMoments().update(X, y), ClassMoments().update(wide, y)
    assert_exact(moments, X, y)
    assert held(many.select_features([0, 139])) == held(moments)
    covariance = moments.covariance()
    assert (many.covariance() == covariance.repeat(70, axis=1).repeat(70, axis=2)).all()
    assert covariance.any() == (end in ("both", "one zero"))


@pytest.mark.parametrize(("scale", "exact"), [(20, True), (28, True), (29, False), (40, False)])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_billions_of_rows(covariance_type, scale, exact):
    """Repeated doubling, and a batch more: exact up to the limit, and accurate beyond it."""
    X, y = sample(7, 3, "uint8", n_classes=1)
    moments = ClassMoments(covariance_type).update(X, y)
    for _ in range(scale):
        moments += moments
    assert moments.exact == exact
    expected = naive.covariance(X, y, covariance_type)
    np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-13)
    np.testing.assert_allclose(moments.means[0], X.astype(float).mean(axis=0), rtol=1e-14)
    count = moments.class_count[0]
    assert (moments.update(X, y).class_count == count + 7).all()
    np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-13)


# --- order does not matter --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_same_bits_as_of_batches_on_all_threads(dtype, size, use_threads):
    n, d, n_classes = SIZES[size]
    X, y = sample(min(n, 4000), d, dtype, n_classes)
    X[:, ::7] = 0
    for covariance_type in ("full", "tied", "tied_diag"):
        expected = ClassMoments(covariance_type)
        for start in range(0, len(y), 500):
            expected.update(X[start : start + 500], y[start : start + 500])
        for n_threads in (1, 7):
            use_threads(n_threads)
            assert held(ClassMoments(covariance_type).update(X, y)) == held(expected)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_views_stay_exact(covariance_type):
    X, y = sample(200, 4, "uint8", 4)
    y[:4] = range(4)
    moments = ClassMoments().update(X, y)
    reduced = moments.reduce(covariance_type)
    assert_exact(reduced, X, y)
    assert held(reduced) == held(ClassMoments(covariance_type).update(X, y))
    chosen = reduced.select_features([2, 0])
    assert held(chosen) == held(ClassMoments(covariance_type).update(X[:, [2, 0]], y))
    assert_exact(reduced.relabel({0: 7}), X, np.where(y == 0, 7, y))
    named = reduced.relabel({0: "b", 1: "a", 2: "d", 3: "c"})
    assert_exact(named, X, np.array(["b", "a", "d", "c"])[y])
    if not naive.is_tied(covariance_type):
        kept = y != 1
        fewer = reduced.select_classes([0, 2, 3])
        assert held(fewer) == held(ClassMoments(covariance_type).update(X[kept], y[kept]))


# --- mixtures ---------------------------------------------------------------------------------


OTHERS = {
    "weights": lambda X: (X, np.full(50, 0.5)),
    "weights of one": lambda X: (X, np.ones(50)),
    "float64": lambda X: (X / 3, None),
    "whole floats": lambda X: (X.astype(np.float32), None),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_integers_and_others_become_centred(covariance_type, name):
    X, y = sample(60, 3, "uint8")
    Z, labels = sample(50, 3, "uint8", seed=1)
    Z, w = OTHERS[name](Z)
    weights = np.append(np.ones(60), np.ones(50) if w is None else w)
    exact = ClassMoments(covariance_type).update(X, y)
    centred = ClassMoments(covariance_type).update(Z, labels, w)
    before = held(exact)
    every = np.vstack([X, Z]).astype(float), np.append(y, labels)
    expected = naive.covariance(*every, covariance_type, weights)
    added = exact + centred
    assert held(exact) == before
    expected_left = naive.covariance(X, y, covariance_type)
    for left in (added - centred, exact * 1):
        assert not left.exact
        np.testing.assert_allclose(left.covariance(), expected_left, rtol=1e-9, atol=1e-9)
    streams = centred.copy().update(X, y), exact.update(Z, labels, w)
    for moments in (added, *streams):
        assert not moments.exact
        np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(moments.class_count.sum(), weights.sum())
