"""Shrinkage: scikit-learn's amounts, weighted rows, and independence of units."""

import copy
import pickle
import warnings

import naive
import numpy as np
import pytest
from grids import in_turn
from samples import KINDS, assert_same_bits, blobs, bytes_of, held, results, snapshot
from scipy.stats import f
from sklearn import datasets, discriminant_analysis
from sklearn.covariance import ledoit_wolf
from sklearn.preprocessing import StandardScaler

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    LinearDiscriminantAnalysis,
    accumulate,
)
from streamgda.engine import accumulate_again
from streamgda.errors import ConstantFeatureWarning, InvalidDataError, InvalidParameterError
from streamgda.rows import Rows
from streamgda.storage.saved import state_of

UNITS = 10.0 ** np.array([0, 3, -3, 1])
TWICE = "must read them again"


def auto(covariance_type="full", **params):
    return GaussianDiscriminantAnalysis(covariance_type, shrinkage="auto", **params)


def theirs(kind, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "full":
            return discriminant_analysis.QuadraticDiscriminantAnalysis(
                solver="eigen", shrinkage="auto", store_covariance=True, tol=0, **params
            )
        return discriminant_analysis.LinearDiscriminantAnalysis(
            solver="lsqr", shrinkage="auto", **params
        )


def amounts_by_scikit_learn(X, y):
    return [ledoit_wolf(StandardScaler().fit_transform(X[y == k]))[1] for k in np.unique(y)]


def scaled_differently():
    X, y = blobs(120, 4)
    return X * UNITS, y


DATA = {
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "few digits": lambda: tuple(a[:300] for a in datasets.load_digits(return_X_y=True)),
    "units": scaled_differently,
}


# --- agreement ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*constant:streamgda.errors.ConstantFeatureWarning")
@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("kind", ["full", "tied"])
def test_covariances_and_amounts_are_those_of_scikit_learn(name, kind):
    X, y = DATA[name]()
    ours, other = auto(kind).fit(X, y), theirs(kind).fit(X, y)
    np.testing.assert_allclose(ours.shrinkage_, amounts_by_scikit_learn(X, y), rtol=1e-9)
    scale = np.sqrt(np.einsum("...ii->...i", np.array(other.covariance_)))
    found = ours.covariance_ / scale[..., :, None] / scale[..., None, :]
    expected = other.covariance_ / scale[..., :, None] / scale[..., None, :]
    np.testing.assert_allclose(found, expected, atol=1e-11)
    if name != "few digits":  # whose constant pixels are in the densities of scikit-learn
        np.testing.assert_array_equal(ours.predict(X), other.predict(X))
        np.testing.assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("priors", [None, [0.5, 0.3, 0.2]])
@pytest.mark.parametrize("weighted", [False, True])
def test_pooled_covariances_are_averages_of_the_oracles(priors, weighted):
    X, y = blobs(120, 3)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y)) if weighted else None
    w = np.ones(len(y)) if weights is None else weights
    each, amounts = zip(*(naive.auto(X[y == k], w[y == k]) for k in range(3)), strict=True)
    shares = priors or [w[y == k].sum() / w.sum() for k in range(3)]
    ours = auto("tied", priors=priors, reg_param=0.1).fit(X, y, weights)
    expected = 0.9 * np.tensordot(shares, np.array(each), 1) + 0.1 * np.eye(3)
    np.testing.assert_allclose(ours.covariance_, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.shrinkage_, amounts, rtol=1e-9)
    whole = auto(priors=priors).fit(X, y, weights)
    np.testing.assert_allclose(whole.covariance_, each, rtol=1e-10, atol=1e-12)


def test_features_that_are_constant_in_a_class_keep_their_units():
    X, y = blobs(60, 4)
    X[y == 1, 2] = 7.0
    ours, other = auto().fit(X, y), theirs("full").fit(X, y)
    np.testing.assert_allclose(ours.covariance_, other.covariance_, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(ours.predict(X), other.predict(X))


# --- wherever rows are ----------------------------------------------------------------------------


@in_turn("kind, weighted", KINDS, [False, True])
def test_every_kind_of_array_gives_the_same(kind, weighted):
    X, y = blobs(150, 4)
    weights = np.arange(len(y)) % 3 + 0.5 if weighted else None
    whole = auto().fit(X, y, weights)
    others = None if weights is None else held(weights, kind)
    found = auto().fit(held(X, kind), held(y, kind), others)
    np.testing.assert_allclose(found.shrinkage_, whole.shrinkage_, rtol=1e-12)
    np.testing.assert_allclose(found.covariance_, whole.covariance_, rtol=1e-12, atol=1e-12)


def test_integers_keep_their_bits():
    X, y = blobs(150, 4)
    X = bytes_of(X)
    found = auto().fit(X, y).moments_
    assert found.exact
    attributes, arrays = state_of(ClassMoments().update(X, y))
    for name, array in arrays.items():
        np.testing.assert_array_equal(state_of(found)[1][name], array, strict=True)
    again = auto().fit(held(X, "zarr"), held(y, "zarr"))
    np.testing.assert_allclose(again.shrinkage_, auto().fit(X, y).shrinkage_, rtol=1e-13)
    assert attributes["reach"] == state_of(found)[0]["reach"]


# --- the amounts stay with the estimator ----------------------------------------------------------


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_saved_pickled_and_copied_estimators_give_the_same(kind, tmp_path):
    X, y = blobs(90, 3)
    fitted = auto(kind).fit(X, y)
    fitted.save(tmp_path / "m.zip")
    loaded = streamgda.load(tmp_path / "m.zip")
    for other in (loaded, pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert_same_bits(results(other, X), results(fitted, X))
        np.testing.assert_array_equal(other.shrinkage_, fitted.shrinkage_)
    made = GaussianDiscriminantAnalysis.from_moments(loaded.moments_, covariance_type=kind)
    assert made.shrinkage_.max() == 0
    again = auto(kind).from_moments(loaded.moments_, covariance_type=kind, shrinkage="auto")
    np.testing.assert_array_equal(again.shrinkage_, fitted.shrinkage_)


# --- refusals -------------------------------------------------------------------------------------


def test_rows_that_are_read_once_are_refused():
    X, y = blobs(60, 3)
    with pytest.raises(InvalidParameterError, match=TWICE):
        auto().partial_fit(X, y)
    with pytest.raises(InvalidParameterError, match=TWICE):
        auto().from_moments(accumulate(X, y), shrinkage="auto")
    with pytest.raises(InvalidParameterError, match=TWICE):
        GaussianDiscriminantCV({"shrinkage": ["auto"]}).fit(X, y)


@pytest.mark.parametrize("method", ["partial_fit", "forget"])
def test_a_fitted_estimator_stays_as_it_was(method):
    X, y = blobs(60, 3)
    fitted = auto().fit(X, y)
    before = snapshot(fitted)
    with pytest.raises(InvalidParameterError, match=TWICE):
        getattr(fitted, method)(X[:9], y[:9])
    assert snapshot(fitted) == before
    assert_same_bits(results(fitted, X), results(auto().fit(X, y), X))
    fitted.set_params(shrinkage=0.1)
    assert getattr(fitted, method)(X[:9], y[:9]).shrinkage_.tolist() == [0.1] * 3


def test_rows_that_changed_between_the_passes_are_refused():
    X, y = blobs(60, 3)
    moments = ClassMoments().update(X, y)
    with pytest.raises(InvalidDataError, match="changed between two passes"):
        accumulate_again(moments, ["class"], Rows(X[1:], y[1:]))
    with pytest.raises(InvalidDataError, match="the label 9 was not there"):
        accumulate_again(moments, ["class"], Rows(X, np.where(y == 1, 9, y)))
    assert not moments._scaled_fourth()


# --- the rules of shrinkage count weighted rows by their effective number: only ratio -------------

EVERY_RULE = pytest.mark.parametrize("rule", ["auto", "oas"])
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


# --- regularisation of standardised features: it does not depend on their units -------------------

EVERY_COVARIANCE_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
HOW = {"shrinkage": 0.3, "reg_param": 0.2, "var_smoothing": 0.1}
POWERS = 2.0 ** np.array([0, 20, -7, 3])


def unlike_rows():
    X, y = blobs(90, 4)
    return X * np.array([1, 5, 0.3, 2]), y


def standardised(covariance_type="full", **params):
    return GaussianDiscriminantAnalysis(covariance_type, standardize=True, **params)


@EVERY_COVARIANCE_TYPE
@pytest.mark.parametrize("how", [{}, HOW, {**HOW, "ddof": 1}, {"pooling": 0.4, "shrinkage": 0.1}])
def test_covariances_are_those_of_the_oracle(covariance_type, how):
    X, y = unlike_rows()
    found = standardised(covariance_type, **how).fit(X, y).covariance_
    expected = naive.regularised_covariances(X, y, covariance_type, standardize=True, **how)
    if not naive.is_matrix(covariance_type):
        expected = np.array([np.diag(S) for S in expected])
    if naive.is_tied(covariance_type):
        expected = expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@EVERY_COVARIANCE_TYPE
@pytest.mark.parametrize("how", [HOW, {"pooling": 0.4, "reg_param": 0.1}])
def test_units_change_no_label_and_only_the_jacobian_of_densities(covariance_type, how):
    X, y = unlike_rows()
    one = standardised(covariance_type, **how).fit(X, y)
    other = standardised(covariance_type, **how).fit(X * POWERS, y)
    np.testing.assert_array_equal(other.predict(X * POWERS), one.predict(X))
    np.testing.assert_allclose(
        other.score_samples(X * POWERS),
        one.score_samples(X) - np.log(POWERS).sum(),
        rtol=1e-12,
    )
    np.testing.assert_allclose(other.predict_proba(X * POWERS), one.predict_proba(X), rtol=1e-10)
    plain = GaussianDiscriminantAnalysis(covariance_type, **how)
    assert (plain.fit(X, y).predict(X) != plain.fit(X * POWERS, y).predict(X * POWERS)).any()


@pytest.mark.parametrize("rule", ["oas"])
@EVERY_TYPE
def test_shrinkage_is_that_of_standardised_rows(covariance_type, rule):
    X, y = unlike_rows()
    within = naive.moments(X, y).scatter.sum(axis=0)
    scaled = X / np.sqrt(np.diag(within) / len(X))
    found = standardised(covariance_type, shrinkage=rule).fit(X, y)
    expected = GaussianDiscriminantAnalysis(covariance_type, shrinkage=rule).fit(scaled, y)
    np.testing.assert_allclose(found.shrinkage_, expected.shrinkage_, rtol=1e-9)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(scaled), rtol=1e-8)


def test_features_that_vary_only_between_classes_keep_the_independence_of_units():
    X, y = unlike_rows()
    X = np.column_stack([X, y, np.ones(len(y))])
    units = np.append(POWERS, [2.0**30, 4.0])
    with pytest.warns(ConstantFeatureWarning):
        one = standardised(**HOW).fit(X, y)
    with pytest.warns(ConstantFeatureWarning):
        other = standardised(**HOW).fit(X * units, y)
    np.testing.assert_allclose(other.predict_proba(X * units), one.predict_proba(X), rtol=1e-10)


@pytest.mark.parametrize("solver", ["lsqr", "eigen"])
def test_covariances_that_are_shrunk_wholly_count_as_estimated(solver):
    """Two symmetric classes of three rows, as in the tests of scikit-learn; no warning comes."""
    X = np.array([[-2, -1], [-1, -1], [-1, -2], [1, 1], [1, 2], [2, 1]])
    lda = LinearDiscriminantAnalysis(solver, "auto").fit(X, [1, 1, 1, 2, 2, 2])
    assert lda.shrinkage_.tolist() == [1, 1]
    n, d, unbiased = 3, 2, 4 / 6
    nu = 4 * (d + 1) / 2  # variances alone are off by less than a matrix of as many rows
    squares = n / (n + 1) * unbiased * lda.mahalanobis(X)
    expected = f.sf(squares * (nu - d + 1) / (nu * d), d, nu - d + 1)
    np.testing.assert_allclose(lda.p_values(X), expected)
