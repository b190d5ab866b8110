"""8- and 16-bit integers: bit for bit the same in any order, and rounded once."""

from fractions import Fraction

import naive
import numpy as np
import pytest
from grids import in_turn, pairs
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import PATHS, take_path
from states import bits

from streamgda.moments import ClassMoments
from streamgda.moments import sums as sums_module

TYPES = naive.COVARIANCE_TYPES
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


# --- Python's integers agree ------------------------------------------------------------------


@given(
    st.sampled_from(TYPES),
    st.sampled_from(DTYPES),
    st.integers(1, 30),
    st.integers(1, 4),
    st.integers(0, 2**32),
)
def test_python_integers_agree_on_any_rows(covariance_type, dtype, n, d, seed):
    X, y = sample(n, d, dtype, seed=seed)
    assert_exact(ClassMoments(covariance_type).update(X, y), X, y)


EXTREMES = ["min", "max", "both", "one zero"]


@pairs("path, dtype, end", ["in a call", "wide by class"], DTYPES, EXTREMES)
def test_full_panels_of_extreme_values(dtype, end, path, monkeypatch):
    """The largest sums that int32 must add exactly, in narrow and wide panels."""
    take_path(path, monkeypatch)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    X = np.full((1601, 2), low if end == "min" else high, dtype)
    if end == "both":
        X[::2, 0], X[1::3, 1] = low, low
    elif end == "one zero":
        X[-1] = 0
    y = np.zeros(1601, int)
    wide = np.ascontiguousarray(X.repeat(20, axis=1))
    moments, many = ClassMoments().update(X, y), ClassMoments().update(wide, y)
    assert_exact(moments, X, y)
    assert held(many.select_features([0, 39])) == held(moments)
    covariance = moments.covariance()
    assert (many.covariance() == covariance.repeat(20, axis=1).repeat(20, axis=2)).all()
    if end in ("min", "max"):
        assert not covariance.any()


def test_small_covariances_of_many_rows():
    """The last fraction must not swamp the remaining integers."""
    X = np.zeros((1000, 2), np.int8)
    X[:-1, 0] = 1
    X[-1] = 0, 1
    y = np.zeros(1000, int)
    assert_exact(ClassMoments().update(X, y), X, y)
    X[0] = 1, 1  # two ones: the products nearly cancel
    assert_exact(ClassMoments().update(X, y), X, y)


@pytest.mark.parametrize(("scale", "exact"), [(20, True), (28, True), (29, False), (40, False)])
def test_billions_of_rows(scale, exact):
    """Repeated doubling: exact up to the limit, and accurate beyond it."""
    X, y = sample(7, 3, "uint8", n_classes=1)
    moments = ClassMoments().update(X, y)
    for _ in range(scale):
        moments += moments
    assert moments.exact == exact
    S = np.array(naive.exact_moments(X, y).scatter[0], object) * 2**scale
    got = moments.centred().scatter[0]
    lower = np.tril_indices(3)
    np.testing.assert_allclose(got[lower], naive.rounded(S)[lower], rtol=1e-13)
    np.testing.assert_allclose(moments.means[0], X.astype(float).mean(axis=0), rtol=1e-14)


# --- order does not matter --------------------------------------------------------------------


@st.composite
def parts(draw):
    """Integer rows, cut into batches of random rows in random order."""
    X, y = sample(
        draw(st.integers(1, 60)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from(DTYPES)),
        draw(st.integers(1, 4)),
        draw(st.integers(0, 2**32)),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    order = rng.permutation(len(X))
    cuts = np.sort(rng.integers(0, len(X) + 1, draw(st.integers(0, 6))))
    pieces = [(X[rows], y[rows]) for rows in np.split(order, cuts) if rows.size]
    return draw(st.sampled_from(TYPES)), X, y, pieces


@given(parts(), st.randoms())
def test_same_bits_however_rows_are_chunked_ordered_and_merged(drawn, random):
    covariance_type, X, y, pieces = drawn
    whole = ClassMoments(covariance_type).update(X, y)
    streamed = ClassMoments(covariance_type)
    for piece in pieces:
        streamed.update(*piece)
    trees = [ClassMoments(covariance_type).update(*piece) for piece in pieces]
    trees.append(ClassMoments(covariance_type))
    while len(trees) > 1:
        random.shuffle(trees)
        trees.append(trees.pop() + trees.pop())
    for moments in (streamed, trees[0]):
        assert moments.exact
        assert bits(moments) == bits(whole)


@in_turn("path, dtype", PATHS, DTYPES)
def test_same_bits_on_all_paths_and_threads(dtype, path, use_threads, monkeypatch):
    X, y = sample(3003, 37, dtype)
    X[:, ::7] = 0
    expected = {t: held(ClassMoments(t).update(X, y)) for t in TYPES}
    take_path(path, monkeypatch)
    for n in (1, 2, 7):
        use_threads(n)
        for covariance_type in TYPES:
            assert held(ClassMoments(covariance_type).update(X, y)) == expected[covariance_type]


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


@given(
    st.lists(st.tuples(st.sampled_from(DTYPES), st.integers(1, 9)), min_size=2, max_size=4),
    st.sampled_from(TYPES),
    st.integers(0, 2**32),
)
def test_any_mixture_adds_and_subtracts_to_the_bit(batches, covariance_type, seed):
    data = [sample(n, 2, dtype, seed=seed + i) for i, (dtype, n) in enumerate(batches)]
    parts = [ClassMoments(covariance_type).update(*batch) for batch in data]
    total = sum(parts[1:], parts[0])
    assert_exact(
        total, np.vstack([X.astype(int) for X, _ in data]), np.concatenate([y for _, y in data])
    )
    back = total
    for part in reversed(parts[1:]):
        back = back - part
    assert held(back) == held(parts[0])


def to_be_centred(name):
    X, y = sample(50, 3, "uint8", seed=1)
    return {
        "weights": (X, y, np.full(50, 0.5)),
        "weights of one": (X, y, np.ones(50)),
        "float64": (X / 3, y, None),
        "whole floats": (X.astype(np.float32), y, None),
    }[name]


@pytest.mark.parametrize("name", ["weights", "weights of one", "float64", "whole floats"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_integers_and_others_become_centred(covariance_type, name):
    X, y = sample(60, 3, "uint8")
    other = to_be_centred(name)
    weights = np.append(np.ones(60), np.ones(50) if other[2] is None else other[2])
    rows, labels = np.vstack([X, other[0]]).astype(float), np.append(y, other[1])
    exact, centred = (ClassMoments(covariance_type) for _ in range(2))
    exact.update(X, y)
    centred.update(*other)
    before = held(exact)
    expected = naive.covariance(rows, labels, covariance_type, weights)
    added = exact + centred
    assert held(exact) == before
    expected_left = naive.covariance(X, y, covariance_type)
    for left in (added - centred, exact * 1):
        assert not left.exact
        np.testing.assert_allclose(left.covariance(), expected_left, rtol=1e-9, atol=1e-9)
    for moments in (added, centred + exact, centred.copy().update(X, y), exact.update(*other)):
        assert not moments.exact
        np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(moments.class_count.sum(), weights.sum())


# --- overflow ---------------------------------------------------------------------------------


@pairs("rows_before, limit, covariance_type", [0, 10, 40], ["_EXACT_LIMIT", "_EXACT_ROWS"], TYPES)
def test_no_room_left_becomes_centred(covariance_type, limit, rows_before, monkeypatch):
    """The limit admits 45 rows; further rows are summed in float64, and just as accurate."""
    monkeypatch.setattr(sums_module, limit, 45 * 255**2 if limit == "_EXACT_LIMIT" else 46)
    X, y = sample(100, 3, "uint8")
    expected = naive.covariance(X, y, covariance_type)

    def check(moments, exact):
        assert moments.exact == exact
        if len(X) == moments.class_count.sum():
            np.testing.assert_allclose(moments.covariance(), expected, rtol=1e-12)

    moments = ClassMoments(covariance_type)
    if rows_before:
        check(moments.update(X[:rows_before], y[:rows_before]), exact=True)
    check(moments.update(X[rows_before:], y[rows_before:]), exact=False)

    parts = [
        ClassMoments(covariance_type).update(X[i : i + 20], y[i : i + 20])
        for i in range(0, 100, 20)
    ]
    assert all(part.exact for part in parts)
    total = parts[0] + parts[1]
    assert total.exact
    total = total + parts[2]
    assert not total.exact
    check(total + parts[3] + parts[4], exact=False)
