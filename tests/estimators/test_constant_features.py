"""Constant features and float32 rows, beside scikit-learn."""

import warnings

import numpy as np
import pytest
from samples import blobs
from sklearn import discriminant_analysis, naive_bayes

import streamgda
from streamgda.errors import SingularCovarianceError

pytestmark = pytest.mark.filterwarnings("ignore:.*constant:streamgda.errors.ConstantFeatureWarning")
SETTINGS = [
    ("QuadraticDiscriminantAnalysis", {"reg_param": 0.1}),
    ("QuadraticDiscriminantAnalysis", {"reg_param": 0.9}),
    ("LinearDiscriminantAnalysis", {}),
    ("LinearDiscriminantAnalysis", {"solver": "lsqr", "shrinkage": 0.1}),
    ("LinearDiscriminantAnalysis", {"solver": "lsqr", "shrinkage": "auto"}),
    ("LinearDiscriminantAnalysis", {"solver": "eigen", "shrinkage": 0.4}),
    ("LinearDiscriminantAnalysis", {"solver": "eigen", "shrinkage": "auto"}),
    ("GaussianNB", {}),
    ("GaussianNB", {"var_smoothing": 0.1}),
]


def rows():
    X, y = blobs(150, 3)
    return np.column_stack([X[:, 0], np.full(150, 3.0), X[:, 1:], np.zeros(150)]), y


def fitted(name, X, y, **params):
    """The estimator of scikit-learn, and ours with those of its parameters that ours has."""
    module = naive_bayes if name == "GaussianNB" else discriminant_analysis
    ours = getattr(streamgda, name)
    known = {key: value for key, value in params.items() if key in ours().get_params()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(module, name)(**params).fit(X, y), ours(**known).fit(X, y)


@pytest.mark.parametrize(("name", "params"), SETTINGS)
def test_labels_are_those_of_scikit_learn(name, params):
    X, y = rows()
    theirs, ours = fitted(name, X, y, **params)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("shrinkage", ["auto", 0.3])
def test_shrinkage_gives_them_a_variance_in_scikit_learn_only(shrinkage):
    X, y = rows()
    theirs, ours = fitted(
        *("QuadraticDiscriminantAnalysis", X, y),
        solver="eigen",
        shrinkage=shrinkage,
        store_covariance=True,
    )
    assert ours.constant_features_.tolist() == [1, 4]
    variances = ours.covariance_[:, [1, 4], [1, 4]]
    assert (variances > 0).all()
    expected = ours.decision_function(X) - 0.5 * np.log(variances).sum(axis=1)
    np.testing.assert_allclose(theirs.decision_function(X), expected, rtol=1e-9, atol=1e-9)


def test_float32_rows_are_refused_with_the_advice_to_cast():
    X, y = blobs(200, 3)
    X = np.column_stack([X, X[:, 0]]).astype(np.float32)
    with pytest.raises(SingularCovarianceError, match=r"as float64, X.astype\(float\)"):
        streamgda.QuadraticDiscriminantAnalysis().fit(X, y)
    with pytest.raises(SingularCovarianceError) as caught:
        streamgda.QuadraticDiscriminantAnalysis().fit(X.astype(float), y)
    assert "float32" not in str(caught.value)
