"""Fitted attributes and answers follow from what was learnt, and from nothing set since."""

from copy import copy

import numpy as np
import pandas as pd
import pytest
from samples import EVERY_ESTIMATOR, METHODS, assert_same_bits, blobs, make
from sklearn.base import clone

import streamgda
from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
)
from streamgda.errors import InvalidDataError, InvalidParameterError

X, Y = blobs(120)
NEW = {
    "alpha": 7.0,
    "binarize": 1.0,
    "class_prior": [0.6, 0.2, 0.2],
    "covariance_type": "tied_spherical",
    "ddof": 2,
    "fit_prior": False,
    "force_alpha": False,
    "n_components": 1,
    "pooling": 0.7,
    "priors": [0.6, 0.2, 0.2],
    "reg_param": 0.4,
    "shrinkage": 0.3,
    "solver": "eigen",
    "store_covariance": True,
    "tol": 1e-3,
    "var_smoothing": 0.5,
}


def state_of(estimator):
    """Return the public fitted attributes, answers and samples."""
    names = [name for name in dir(estimator) if name.endswith("_") and name[0] != "_"]
    found = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
    held = {name: value for name, value in found.items() if name not in ("model_", "moments_")}
    methods = [name for name in [*METHODS, "transform"] if hasattr(estimator, name)]
    answers = {name: getattr(estimator, name)(X) for name in methods}
    return held | answers | {"sample": estimator.sample(5, random_state=0)[0]}


def assert_same_state(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        values = value if isinstance(value, list) else [value]
        others = found[name] if isinstance(value, list) else [found[name]]
        for one, other in zip(values, others, strict=True):
            assert_same_bits({name: np.asarray(other)}, {name: np.asarray(one)})


def changed(estimator):
    """Return the estimator with other values of its parameters."""
    return estimator.set_params(**{k: NEW[k] for k in estimator.get_params() if k in NEW})


@pytest.mark.parametrize("first", [True, False], ids=["unused", "used"])
@EVERY_ESTIMATOR
def test_set_params_changes_nothing_until_the_next_fit(name, first):
    expected = state_of(make(name).fit(X, Y))
    fitted = make(name).fit(X, Y)
    if not first:
        state_of(fitted)
    changed(fitted)
    assert_same_state(state_of(fitted), expected)
    fitted.fit(X, Y)
    assert_same_state(state_of(fitted), state_of(clone(fitted).fit(X, Y)))


@EVERY_ESTIMATOR
def test_every_way_of_learning_uses_the_present_parameters(name):
    def learnt(estimator, change=lambda estimator: estimator):
        estimator.partial_fit(X[:80], Y[:80])
        estimator.predict(X)
        change(estimator).partial_fit(X[80:], Y[80:])
        return estimator

    new = changed(make(name)).get_params()
    kept = {k: v for k, v in new.items() if k not in ("covariance_type", "binarize")}
    if name == "LDA":  # priors weight covariances of classes, which are not kept without them
        del kept["priors"]
    found = learnt(make(name), lambda estimator: estimator.set_params(**kept))
    expected = learnt(make(name).set_params(**kept))
    assert_same_state(state_of(found), state_of(expected))
    found = learnt(make(name)).set_params(**kept).forget(X[80:], Y[80:])
    expected.forget(X[80:], Y[80:])
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))


def test_learning_that_fails_leaves_the_settings():
    nb = GaussianNB().partial_fit(X, Y)
    before = state_of(nb)
    nb.set_params(var_smoothing=0.5)
    with pytest.raises(InvalidDataError):
        nb.partial_fit(np.full((1, 4), np.nan), [0])
    with pytest.raises(InvalidDataError):
        nb.fit(np.full((1, 4), np.nan), [0])
    assert_same_state(state_of(nb), before)
    with pytest.raises(InvalidParameterError, match="var_smoothing"):
        nb.set_params(var_smoothing=-1).forget(X[:3], Y[:3])
    assert_same_state(state_of(nb), before)


def test_retiring_a_class_after_another_covariance_type_is_refused():
    gda = GaussianDiscriminantAnalysis("diag").fit(X, Y).set_params(covariance_type="full")
    with pytest.raises(InvalidParameterError, match="covariance_type='full'"):
        gda.retire([0])
    assert gda.predict_proba(X).shape == (120, 3)


@pytest.mark.parametrize("as_given", [np.array, list])
@pytest.mark.parametrize("kind", [QuadraticDiscriminantAnalysis, GaussianNB, BernoulliNB])
def test_priors_are_copied(kind, as_given):
    name = "class_prior" if kind is BernoulliNB else "priors"
    priors = as_given([0.2, 0.3, 0.5])
    expected = kind(**{name: [0.2, 0.3, 0.5]}).fit(X, Y).predict_proba(X)
    fitted = kind(**{name: priors}).partial_fit(X, Y)
    priors[0], priors[2] = 0.5, 0.2
    np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    fitted.model_.priors, fitted.partial_fit(X[:1], Y[:1])  # the present priors
    np.testing.assert_array_equal(fitted.model_.priors, [0.5, 0.3, 0.2])


@EVERY_ESTIMATOR
@pytest.mark.parametrize("used", [True, False])
def test_saving_keeps_both_the_fitted_and_the_present_parameters(name, used, tmp_path):
    fitted = make(name).partial_fit(X, Y)
    expected = state_of(clone(fitted).fit(X, Y))
    if used:
        fitted.predict(X)
    changed(fitted).save(tmp_path / "file")
    loaded = streamgda.load(tmp_path / "file")
    assert loaded.get_params() == fitted.get_params()
    assert_same_state(state_of(loaded), expected)
    assert_same_state(state_of(loaded.fit(X, Y)), state_of(clone(fitted).fit(X, Y)))


def test_saving_refuses_parameters_that_no_estimator_could_have(tmp_path):
    nb = GaussianNB().fit(X, Y).set_params(var_smoothing=-1.0)
    with pytest.raises(InvalidParameterError, match="var_smoothing"):
        nb.save(tmp_path / "file")


@EVERY_ESTIMATOR
def test_a_copy_learns_alone(name):
    estimator = make(name).fit(X, Y)
    before, copied = state_of(estimator), copy(estimator)
    copied.partial_fit(X + 3, Y)
    assert_same_state(state_of(estimator), before)
    assert copied.class_count_.sum() == 2 * estimator.class_count_.sum()


@EVERY_ESTIMATOR
def test_the_model_is_that_of_the_moments_after_these_were_changed(name):
    estimator = make(name).fit(X[:60], Y[:60])
    estimator.predict(X)  # computes a model
    moments = estimator.moments_
    moments += make(name).fit(X[60:], Y[60:]).moments_
    expected = type(estimator).from_moments(estimator.moments_, **estimator.get_params())
    loaded = type(estimator).from_bytes(estimator.to_bytes())
    for found in (estimator, loaded):
        np.testing.assert_array_equal(found.predict_log_proba(X), expected.predict_log_proba(X))


@pytest.mark.parametrize(
    ("estimator", "y"),
    [
        (GaussianNB(), Y),
        (BernoulliNB(), Y),
        (QuadraticDiscriminantAnalysis(), Y),
        (GaussianDiscriminantAnalysis("tied", feature_map=streamgda.RandomFeatures(4)), Y),
        (streamgda.RidgeClassifier(class_weight="balanced"), Y),
        (streamgda.Ridge(), X[:, 0]),
        (streamgda.Ridge(feature_map=streamgda.RandomFeatures(4)), X[:, :2]),
    ],
    ids=lambda case: type(case).__name__,
)
def test_estimators_whose_rows_had_no_weight_go_on_from_files(estimator, y):
    rows, weights = pd.DataFrame(X, columns=[*"abcd"]), np.zeros(len(X))
    fitted = clone(estimator).partial_fit(rows, y, sample_weight=weights)
    again = type(estimator).from_bytes(fitted.to_bytes())
    assert again.n_features_in_ == 4
    with pytest.raises(ValueError, match="feature names should match"):
        again.partial_fit(rows[[*"dcba"]], y)
    for each in (fitted, again):
        each.partial_fit(rows, y)
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))
    assert type(estimator).from_bytes(again.to_bytes()).feature_names_in_.tolist() == [*"abcd"]
