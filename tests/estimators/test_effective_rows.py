"""The rules of shrinkage count weighted rows by their effective number: only ratios matter."""

import naive
import numpy as np
import pytest
from samples import blobs
from scipy import sparse

import streamgda
from streamgda import ClassMoments, GaussianDiscriminantAnalysis, SlidingWindow
from streamgda.models.shrinkage import shrinkage_of
from streamgda.moments.covariance_types import structure_of

EVERY_RULE = pytest.mark.parametrize("rule", ["auto", "ledoit_wolf", "oas"])
EVERY_TYPE = pytest.mark.parametrize("covariance_type", ["full", "tied"])


def rows(n_rows=90):
    X, y = blobs(n_rows, 3)
    return X, y, np.random.default_rng(0).uniform(0.2, 3, n_rows)


def amounts(rule, covariance_type, *data):
    return GaussianDiscriminantAnalysis(covariance_type, shrinkage=rule).fit(*data).shrinkage_


def squares(moments):
    """The sums of the squared weights, as they are known."""
    sums = moments.centred()
    return sums.count**2 / sums.effective_count(lambda values: values)


def expected_squares(y, weights, n_classes=3):
    return np.bincount(y, weights**2, n_classes)


# --- the convention -------------------------------------------------------------------------------


@EVERY_RULE
@EVERY_TYPE
def test_only_ratios_of_weights_matter(rule, covariance_type):
    X, y, weights = rows()
    found = amounts(rule, covariance_type, X, y, weights)
    assert 0 < found.max() < 1
    for factor in (1 / weights.sum(), 2.0, 1e6):  # the first is that of normalised weights
        again = amounts(rule, covariance_type, X, y, weights * factor)
        np.testing.assert_allclose(again, found, rtol=1e-9)


@EVERY_RULE
@EVERY_TYPE
def test_equal_weights_are_none(rule, covariance_type):
    X, y, _ = rows()
    plain = amounts(rule, covariance_type, X, y)
    for weight in (1.0, 1 / len(y), 3.0):
        found = amounts(rule, covariance_type, X, y, np.full(len(y), weight))
        np.testing.assert_allclose(found, plain, rtol=1e-9)


@EVERY_RULE
def test_a_weight_of_two_is_not_a_repeated_row(rule):
    X, y, _ = rows()
    twice = amounts(rule, "full", np.vstack([X, X]), np.append(y, y))
    doubled = amounts(rule, "full", X, y, np.full(len(y), 2.0))
    assert (twice < 0.6 * doubled).all()  # twice as many rows, half as much noise


@pytest.mark.parametrize("rule", ["ledoit_wolf", "oas"])
def test_amounts_are_those_of_the_oracle(rule):
    X, y, weights = rows()
    centred = X - naive.moments(X, y, weights).means[y]
    parts = [y == k for k in range(3)]
    expected = [getattr(naive, rule)(centred[part], weights[part]) for part in parts]
    np.testing.assert_allclose(amounts(rule, "full", X, y, weights), expected, rtol=1e-10)
    pooled = getattr(naive, rule)(centred, weights)
    np.testing.assert_allclose(amounts(rule, "tied", X, y, weights), [pooled], rtol=1e-10)


# --- the squares of the weights in the moments ----------------------------------------------------


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize("n_rows", [5, 90, 3000])
def test_squares_of_all_ways_to_add_rows(covariance_type, n_rows):
    X, y, weights = rows(n_rows)
    moments = ClassMoments(covariance_type).update(X, y, weights)
    np.testing.assert_allclose(squares(moments), expected_squares(y, weights), rtol=1e-12)
    moments.update(X, y).update(X, y, weights)
    expected = 2 * expected_squares(y, weights) + np.bincount(y, minlength=3)
    np.testing.assert_allclose(squares(moments), expected, rtol=1e-12)
    later = ClassMoments(covariance_type).update(X, y).update(X, y, weights)
    expected = expected_squares(y, weights) + np.bincount(y, minlength=3)
    np.testing.assert_allclose(squares(later), expected, rtol=1e-12)


def test_squares_of_wide_and_of_sparse_rows():
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(400, 420)), np.arange(400) % 2, rng.uniform(0.5, 2, 400)
    for moments in (
        ClassMoments("full").update(X, y, weights),  # too large to be copied
        ClassMoments("diag").update(sparse.csr_array(X), y, weights),
    ):
        np.testing.assert_allclose(squares(moments), expected_squares(y, weights, 2), rtol=1e-12)


def test_squares_merge_fade_and_follow_views(tmp_path):
    X, y, weights = rows()
    whole, own = ClassMoments().update(X, y, weights), expected_squares(y, weights)
    counts = np.bincount(y)
    plain = ClassMoments().update(X, y)
    np.testing.assert_allclose(squares(whole + plain), own + counts, rtol=1e-12)
    np.testing.assert_allclose(squares(plain + whole), own + counts, rtol=1e-12)
    np.testing.assert_allclose(squares(whole + plain - whole), counts, rtol=1e-9)
    np.testing.assert_allclose(squares(0.5 * whole), own / 4, rtol=1e-12)
    np.testing.assert_allclose(squares(0.5 * plain + plain), 1.25 * counts, rtol=1e-12)
    whole.save(tmp_path / "m.zip")
    for same in (
        ClassMoments.load(tmp_path / "m.zip"),
        whole.copy(),
        whole.reduce("tied"),
        whole.select_features([0, 2]),
        whole.project(np.eye(3)[:2]),
    ):
        np.testing.assert_allclose(squares(same), own, rtol=1e-12)
    np.testing.assert_allclose(squares(whole.select_classes([0, 2])), own[[0, 2]], rtol=1e-12)
    np.testing.assert_allclose(squares(whole.relabel({2: 0})), [own[0] + own[2], own[1]])
    np.testing.assert_allclose(whole.copy().declare([7]).centred().squares[:3], own)


def test_unweighted_moments_keep_no_squares():
    X, y, weights = rows()
    assert ClassMoments().update(X, y).centred().squares is None
    moments = ClassMoments().update(np.round(X).astype(np.int8), y)
    assert moments.exact
    assert moments.centred().squares is None
    assert (ClassMoments().update(X, y, weights) + moments).centred().squares is not None


def test_fading_rows_count_less_and_less():
    X, y, _ = rows()
    gda = GaussianDiscriminantAnalysis(shrinkage="oas", reg_param=0.1)
    for start in range(0, 90, 10):
        some = slice(start, start + 10)
        gda.partial_fit(X[some], y[some], classes=[0, 1, 2], half_life=20)
    w = 0.5 ** (np.arange(90)[::-1] / 20)
    sums = gda.moments_.centred()
    expected = [naive.effective(w[y == k]) for k in range(3)]
    np.testing.assert_allclose(sums.effective_count(lambda values: values), expected, rtol=1e-9)
    nothing = gda.moments_ * 1e-200
    assert (shrinkage_of(nothing, "oas", structure_of("full")) <= 1).all()


def test_a_refused_update_leaves_the_squares():
    X, y, weights = rows()
    moments = ClassMoments().update(X, y, weights)
    bad = X.copy()
    bad[3, 1] = np.inf
    with pytest.raises(streamgda.errors.InvalidDataError, match="infinity"):
        moments.update(bad, y, weights)
    np.testing.assert_allclose(squares(moments), expected_squares(y, weights), rtol=1e-12)


def test_windows_forget_squares():
    X, y, weights = rows()
    window = SlidingWindow(2)
    for start in (0, 30, 60):
        some = slice(start, start + 30)
        window.append(ClassMoments().update(X[some], y[some], weights[some]))
    expected = expected_squares(y[30:], weights[30:])
    np.testing.assert_allclose(squares(window.moments), expected, rtol=1e-9)
