"""``shrinkage="auto"`` is scikit-learn's: Ledoit and Wolf's of standardised rows, scaled back."""

import copy
import pickle
import warnings

import naive
import numpy as np
import pytest
from samples import KINDS, assert_same_bits, blobs, bytes_of, held, results, snapshot
from sklearn import datasets, discriminant_analysis
from sklearn.covariance import ledoit_wolf
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import StandardScaler

import streamgda
from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    accumulate,
)
from streamgda.engine import accumulate_again
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.models.shrinkage import shrinkage_of
from streamgda.moments import FourthMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.rows import Rows
from streamgda.storage.saved import restore, state_of

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


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_wine_needs_it(kind):
    X, y = datasets.load_wine(return_X_y=True)
    ours = cross_val_score(auto(kind), X, y).mean()
    assert ours == pytest.approx(cross_val_score(theirs(kind), X, y).mean(), abs=1e-9)
    assert ours > 0.96


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


def test_the_pass_over_all_rows_together_is_that_of_scikit_learn():
    X, y = scaled_differently()
    moments = ClassMoments().update(X, y)
    accumulate_again(moments, ["total"], Rows(X, y))
    rows = StandardScaler().fit_transform(X)
    expected = ((rows**2).sum(axis=1) ** 2).sum()
    assert moments._scaled_fourth()["total"].sum() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("kind", ["full", "tied"])
def test_ledoit_and_wolf_of_standardised_features(kind):
    X, y = scaled_differently()
    within = naive.moments(X, y).scatter.sum(axis=0)
    scaled = X / np.sqrt(np.diag(within) / len(X))
    how = {"shrinkage": "ledoit_wolf"}
    found = GaussianDiscriminantAnalysis(kind, standardize=True, **how).fit(X, y)
    expected = GaussianDiscriminantAnalysis(kind, **how).fit(scaled, y)
    np.testing.assert_allclose(found.shrinkage_, expected.shrinkage_, rtol=1e-9)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(scaled), rtol=1e-8)


def test_one_feature_and_classes_of_one_row():
    X, y = blobs(50, 3)
    assert auto().fit(X[:, :1], y).shrinkage_.tolist() == [0, 0, 0]
    moments = ClassMoments().update([[0.0, 1.0], [2.0, 2.0], [3.0, 5.0]], [0, 1, 1])
    accumulate_again(moments, ["class"], Rows([[0.0, 1.0], [2.0, 2.0], [3.0, 5.0]], [0, 1, 1]))
    assert shrinkage_of(moments, "auto", structure_of("full"), scaling="class").tolist() == [0, 0]


# --- wherever rows are ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
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
    assert attributes["origin"] == state_of(found)[0]["origin"]


def test_rows_of_weight_zero_are_left_out():
    X, y = blobs(90, 3)
    weights = np.ones(len(y))
    X[::4] = np.nan
    weights[::4] = 0
    rest = np.arange(len(y)) % 4 > 0
    found, expected = auto().fit(X, y, weights), auto().fit(X[rest], y[rest])
    np.testing.assert_allclose(found.shrinkage_, expected.shrinkage_, rtol=1e-12)


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


def test_classes_can_be_retired():
    X, y = blobs(90, 3, n_classes=4)
    fitted = auto().fit(X, y)
    rest = y != 1
    expected = auto().fit(X[rest], y[rest])
    np.testing.assert_allclose(fitted.retire([1]).shrinkage_, expected.shrinkage_, rtol=1e-12)


def test_sums_of_the_second_pass_are_saved_and_merged():
    X, y = blobs(90, 3)
    moments = ClassMoments().update(X, y)
    whole = FourthMoments.of(moments, ["class", "within"])
    parts = [whole.copy().update(X[s], y[s]) for s in (slice(0, 40), slice(40, None))]
    whole.update(X, y)
    both = restore(FourthMoments, *state_of(parts[0] + parts[1]))
    for name in ("class", "within"):
        np.testing.assert_allclose(both.fourth[name], whole.fourth[name], rtol=1e-13)
    assert both.class_count.tolist() == moments.class_count.tolist()


# --- refusals -------------------------------------------------------------------------------------


def test_rows_that_are_read_once_are_refused():
    X, y = blobs(60, 3)
    with pytest.raises(InvalidParameterError, match=TWICE):
        auto().partial_fit(X, y)
    with pytest.raises(InvalidParameterError, match=TWICE):
        auto().from_moments(accumulate(X, y), shrinkage="auto")
    with pytest.raises(InvalidParameterError, match=TWICE):
        GaussianDiscriminantCV({"shrinkage": ["auto"]}).fit(X, y)
    how = {"shrinkage": "ledoit_wolf", "standardize": True}
    with pytest.raises(InvalidParameterError, match="shrinkage='ledoit_wolf' scales rows by"):
        GaussianDiscriminantAnalysis(**how).partial_fit(X, y)


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


def test_moments_that_changed_know_no_amounts():
    X, y = blobs(60, 3)
    moments = auto().fit(X, y).moments_
    for changed in (moments.copy().update(X[:3], y[:3]), 0.5 * moments, moments + moments):
        assert not changed._scaled_fourth()
    assert "class" in moments.copy()._scaled_fourth()


def test_rows_that_changed_between_the_passes_are_refused():
    X, y = blobs(60, 3)
    moments = ClassMoments().update(X, y)
    with pytest.raises(InvalidDataError, match="changed between two passes"):
        accumulate_again(moments, ["class"], Rows(X[1:], y[1:]))
    with pytest.raises(InvalidDataError, match="the label 9 was not there"):
        accumulate_again(moments, ["class"], Rows(X, np.where(y == 1, 9, y)))
    assert not moments._scaled_fourth()
