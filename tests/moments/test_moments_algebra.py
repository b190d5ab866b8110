"""Moments are added, subtracted and decayed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moment_checks import (
    TYPES,
    assert_close,
    assert_moments,
    batches,
    largest,
    of,
    sample,
    snapshot,
    variances,
)

from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.storage.saved import state_of


def together(parts):
    X, y, weights = zip(*parts, strict=True)
    return np.vstack(X), np.concatenate(y), None if weights[0] is None else np.concatenate(weights)


@given(batches(), st.randoms())
def test_any_split_and_any_order(drawn, random):
    covariance_type, parts = drawn
    whole = of(covariance_type, together(parts))
    assert_close(of(covariance_type, *parts), whole)
    trees = [of(covariance_type, part) for part in parts] + [ClassMoments(covariance_type)]
    while len(trees) > 1:  # merge any two, until one is left
        random.shuffle(trees)
        trees.append(trees.pop() + trees.pop())
    assert_close(trees[0], whole)
    if whole.class_count.any():
        assert_moments(trees[0], *together(parts), rtol=1e-8)


@pytest.mark.parametrize("covariance_type", ["full", "tied_diag"])
def test_a_heavy_far_part_costs_no_digits_whichever_side_it_is_added_to(covariance_type):
    """Anchoring the mean at the lighter part would lose the ratio of the counts, here 200."""
    random = np.random.default_rng(0)
    light, heavy = random.normal(size=(40, 3)), 1e6 + random.normal(size=(8000, 3))
    a, b = (of(covariance_type, (X, np.zeros(len(X), int), None)) for X in (light, heavy))
    for both in (a + b, b + a):
        sums = (both - b).centred()
        for j, column in enumerate(light.T):
            mean = sum(map(Fraction, column)) / 40
            error = Fraction(sums.mean[0, j]) + Fraction(sums.mean_low[0, j]) - mean
            assert abs(error) < 4 * 1e6 * 2.0**-53


@given(batches(2))
def test_added_rows_can_be_subtracted(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    both = a + b
    assert (both - b - a).classes.size == 0
    for left, expected in ((both - b, a), (both - a, b)):
        assert left.classes.tolist() == expected.classes.tolist()
        if left.classes.size:
            was, is_, whole = expected.centred(), left.centred(), both.centred()
            offset = largest(both.means)
            np.testing.assert_allclose(is_.count, was.count, rtol=1e-9)
            np.testing.assert_allclose(is_.mean, was.mean, rtol=1e-9, atol=1e-9 * offset)
            # The remainder of a large scatter is as accurate as the scatter was.
            rounding = 1e-12 * largest(whole.scatter) + 1e-14 * offset**2
            np.testing.assert_allclose(is_.scatter, was.scatter, rtol=1e-9, atol=rounding)
            assert variances(is_.scatter).min() >= 0


@pytest.mark.parametrize("covariance_type", TYPES)
def test_no_rounding_is_left_of_classes_that_were_all_subtracted(covariance_type):
    X, y = sample()
    a = ClassMoments(covariance_type).update(X[:90], y[:90])
    b = ClassMoments(covariance_type).update(X[90:] * 7.1, y[90:])
    left = a + b - a - b
    assert left.classes.size == 0
    assert not state_of(left)[1]["scatter"].any()


@pytest.mark.parametrize("covariance_type", TYPES)
def test_variances_that_are_left_are_never_negative(covariance_type):
    rng = np.random.default_rng(12)
    for _ in range(50):
        X = rng.normal(size=(9, 3)) + 10
        b = ClassMoments(covariance_type).update(X[1:], np.zeros(8))
        one_row = ClassMoments(covariance_type).update(X, np.zeros(9)) - b
        assert variances(one_row.centred().scatter).min() >= 0


@given(batches(3))
def test_operands_do_not_change(drawn):
    covariance_type, parts = drawn
    a, b = of(covariance_type, parts[0]), of(covariance_type, *parts[1:])
    before = snapshot(a), snapshot(b)
    both = a + b
    _ = both - b
    _ = a * 0.5
    both.update(np.ones((3, both.n_features or 1)), [0, 1, 2])
    both += a
    both += both
    assert (snapshot(a), snapshot(b)) == before


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_empty_plus_empty(covariance_type, dtype):
    nothing = ClassMoments(covariance_type)
    both = nothing + ClassMoments(covariance_type)
    assert both.classes.size == both.class_count.size == both.nbytes == 0
    assert both.n_features is None
    assert both.means.shape == (0, 0)
    assert (nothing - nothing).classes.size == 0
    assert (nothing * 2).n_features is None
    # Emptied: no classes, but a width.
    X, y = sample(5, dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    emptied = moments - moments
    assert emptied.n_features == 5
    assert (emptied + emptied).classes.size == 0
    assert (emptied + nothing).classes.size == (nothing + emptied).classes.size == 0
    assert (nothing - emptied).classes.size == (emptied - nothing).classes.size == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_empty_plus_full(covariance_type, dtype):
    X, y = sample(20, dtype=dtype)
    full = ClassMoments(covariance_type).update(X, y)
    for empty in (ClassMoments(covariance_type), full - full):
        assert snapshot(empty + full) == snapshot(full)
        assert snapshot(full + empty) == snapshot(full)
        assert snapshot(full - empty) == snapshot(full)
        assert snapshot(empty.copy().update(X, y)) == snapshot(full)
    assert_close(full * 0 + full, full)
    assert_close(full + full * 0, full)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("labels", [("a", "a"), ("a", "b")])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_one_row_plus_one_row(covariance_type, labels, dtype):
    X = np.array([[1, 2, 7], [4, 2, 3]], dtype)
    a, b = (ClassMoments(covariance_type).update(X[i : i + 1], [labels[i]]) for i in (0, 1))
    assert not a.covariance().any()
    assert np.isnan(a.covariance(ddof=1)).all()
    assert_moments(a + b, X, np.array(labels))
    assert_moments(a.copy().update(X[1:], [labels[1]]), X, np.array(labels))
    assert_close((a + b) - b, a)


def test_three_batches_of_one_row_each():
    X, y = sample(12)
    parts = [ClassMoments().update(X[i : i + 1], y[i : i + 1]) for i in range(12)]
    assert_moments(sum(parts[1:], parts[0]), X, y)


def test_in_place_addition():
    X, y = sample()
    moments = total = ClassMoments().update(X[:50], y[:50])
    total += ClassMoments().update(X[50:], y[50:])
    assert total is moments
    assert_moments(total, X, y)
    total += total
    assert_moments(total, np.vstack([X, X]), np.append(y, y))


def test_classes_that_only_one_side_has():
    X, y = sample(300, n_classes=6)
    low, high = y <= 3, y >= 2  # classes 2 and 3 on both sides
    a, b = ClassMoments().update(X[low], y[low]), ClassMoments().update(X[high], y[high])
    rows = np.vstack([X[low], X[high]])
    labels = np.append(y[low], y[high])
    assert_moments(a + b, rows, labels)
    assert_moments(b + a, rows, labels)
    left = (a + b) - b
    assert left.classes.tolist() == [0, 1, 2, 3]  # 4 and 5 are gone
    assert_close(left, a)


def test_subtracting_part_of_one_class():
    X, y = sample()
    some = np.flatnonzero(y == 1)[:10]
    left = ClassMoments().update(X, y) - ClassMoments().update(X[some], y[some])
    assert_moments(left, np.delete(X, some, 0), np.delete(y, some))


def test_sliding_window():
    X, y = sample(2000)
    window = ClassMoments()
    parts = [ClassMoments().update(X[i : i + 50], y[i : i + 50]) for i in range(0, 2000, 50)]
    for i, part in enumerate(parts):
        window += part
        if i >= 10:
            window = window - parts[i - 10]
    assert_moments(window, X[-500:], y[-500:], rtol=1e-11)


# --- decay ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_decay(covariance_type, dtype):
    X, y = sample(dtype=dtype)
    moments = ClassMoments(covariance_type).update(X, y)
    before = snapshot(moments)
    for gamma in (0.25, 1, 3, np.float32(0.5), np.float64(0.1)):
        for decayed in (moments * gamma, gamma * moments):
            assert_moments(decayed, X, y, np.full(200, float(gamma)))
    assert snapshot(moments) == before
    fresh, labels = sample(seed=1, dtype=dtype)
    weights = np.repeat([0.5, 1], 200)
    faded = (moments * 0.5).update(fresh, labels)
    assert_moments(faded, np.vstack([X, fresh]), np.append(y, labels), weights)


def test_decay_to_nothing():
    X, y = sample()
    nothing = ClassMoments().update(X, y) * 0
    assert nothing.classes.tolist() == [0, 1, 2]
    assert not nothing.class_count.any()
    assert np.isnan(nothing.means).all()
    with pytest.raises(InvalidDataError, match="hold no rows"):
        nothing.covariance()
    assert_moments(nothing.update(X + 5, y), X + 5, y)
