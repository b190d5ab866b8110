"""Regularisation of standardised features: it does not depend on their units."""

import naive
import numpy as np
import pytest
from samples import blobs

import streamgda
from streamgda import ClassMoments, GaussianDiscriminantAnalysis
from streamgda.errors import ConstantFeatureWarning, InvalidParameterError

EVERY_TYPE = pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
HOW = {"shrinkage": 0.3, "reg_param": 0.2, "var_smoothing": 0.1}
UNITS = 2.0 ** np.array([0, 20, -7, 3])


def rows():
    X, y = blobs(90, 4)
    return X * np.array([1, 5, 0.3, 2]), y


def standardised(covariance_type="full", **params):
    return GaussianDiscriminantAnalysis(covariance_type, standardize=True, **params)


@EVERY_TYPE
@pytest.mark.parametrize("how", [{}, HOW, {**HOW, "ddof": 1}, {"pooling": 0.4, "shrinkage": 0.1}])
def test_covariances_are_those_of_the_oracle(covariance_type, how):
    X, y = rows()
    found = standardised(covariance_type, **how).fit(X, y).covariance_
    expected = naive.regularised_covariances(X, y, covariance_type, standardize=True, **how)
    if not naive.is_matrix(covariance_type):
        expected = np.array([np.diag(S) for S in expected])
    if naive.is_tied(covariance_type):
        expected = expected[0]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@EVERY_TYPE
@pytest.mark.parametrize("how", [HOW, {"pooling": 0.4, "reg_param": 0.1}])
def test_units_change_no_label_and_only_the_jacobian_of_densities(covariance_type, how):
    X, y = rows()
    one = standardised(covariance_type, **how).fit(X, y)
    other = standardised(covariance_type, **how).fit(X * UNITS, y)
    np.testing.assert_array_equal(other.predict(X * UNITS), one.predict(X))
    np.testing.assert_allclose(
        other.score_samples(X * UNITS), one.score_samples(X) - np.log(UNITS).sum(), rtol=1e-12
    )
    np.testing.assert_allclose(other.predict_proba(X * UNITS), one.predict_proba(X), rtol=1e-10)
    plain = GaussianDiscriminantAnalysis(covariance_type, **how)
    assert (plain.fit(X, y).predict(X) != plain.fit(X * UNITS, y).predict(X * UNITS)).any()


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_oracle_shrinkage_is_that_of_standardised_rows(covariance_type):
    X, y = rows()
    within = naive.moments(X, y).scatter.sum(axis=0)
    scaled = X / np.sqrt(np.diag(within) / len(X))
    found = standardised(covariance_type, shrinkage="oas").fit(X, y)
    expected = GaussianDiscriminantAnalysis(covariance_type, shrinkage="oas").fit(scaled, y)
    np.testing.assert_allclose(found.shrinkage_, expected.shrinkage_, rtol=1e-12)
    np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(scaled), rtol=1e-9)


def test_features_that_vary_only_between_classes_keep_the_independence_of_units():
    X, y = rows()
    X = np.column_stack([X, y, np.ones(len(y))])
    units = np.append(UNITS, [2.0**30, 4.0])
    with pytest.warns(ConstantFeatureWarning):
        one = standardised(**HOW).fit(X, y)
    with pytest.warns(ConstantFeatureWarning):
        other = standardised(**HOW).fit(X * units, y)
    np.testing.assert_allclose(other.predict_proba(X * units), one.predict_proba(X), rtol=1e-10)


def test_the_moments_suffice(tmp_path):
    X, y = rows()
    moments = ClassMoments("full").update(X, y)
    made = GaussianDiscriminantAnalysis.from_moments(moments, standardize=True, **HOW)
    fitted = standardised(**HOW).fit(X[:40], y[:40]).partial_fit(X[40:], y[40:])
    np.testing.assert_allclose(made.covariance_, fitted.covariance_, rtol=1e-12)
    made.save(tmp_path / "model.zip")
    loaded = streamgda.load(tmp_path / "model.zip")
    assert loaded.standardize is True
    np.testing.assert_array_equal(loaded.predict_proba(X), made.predict_proba(X))


def test_anything_but_a_flag_is_refused():
    with pytest.raises(InvalidParameterError, match="standardize='yes'; expected True or False"):
        GaussianDiscriminantAnalysis(standardize="yes").fit(*rows())
