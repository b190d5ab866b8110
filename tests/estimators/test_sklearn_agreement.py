"""scikit-learn's own estimators, fitted to its own data sets, give the same numbers."""

import os
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from grids import in_turn, pairs
from samples import DIVIDES_BY_N, NEEDS_1_9
from sklearn import datasets, discriminant_analysis, naive_bayes

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

# The digits have three pixels that are always black.
pytestmark = pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")

SETS = ["iris", "wine", "breast_cancer", "digits"]


def load(name):
    return getattr(datasets, f"load_{name}")(return_X_y=True)


def assert_same_predictions(ours, theirs, X, atol=1e-8):
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=0, atol=atol)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X), strict=True)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_, strict=True)


def assert_close(a, b, rtol=1e-9):
    """Check that they agree within `rtol` of the largest entry."""
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), strict=True)


def assert_same_columns(a, b, rtol=1e-8):
    """Check that they are the same up to the sign of each column."""
    assert a.shape == b.shape
    assert_close(a * np.sign((a * b).sum(axis=0)), b, rtol)


def random_priors(n_classes):
    return np.random.default_rng(0).dirichlet(np.full(n_classes, 10.0))


# --- linear discriminant analysis -------------------------------------------------------------

SOLVERS = [("svd", None), ("lsqr", None), ("eigen", None), ("lsqr", 0.1), ("eigen", 0.1)]


@pairs("name, solved, with_priors", SETS, SOLVERS, [False, True])
def test_lda_predictions(name, solved, with_priors):
    (X, y), (solver, shrinkage) = load(name), solved
    if name == "digits" and (solver, shrinkage) == ("eigen", None):
        X = X[:, X.std(axis=0) > 0]  # this solver needs an invertible covariance
    options = {"shrinkage": shrinkage}
    options["priors"] = random_priors(np.unique(y).size) if with_priors else None
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(solver, **options)
    ours = LinearDiscriminantAnalysis(solver, **options)
    if solver == "svd" and not DIVIDES_BY_N:
        ours = GaussianDiscriminantAnalysis("tied", ddof=1, priors=options["priors"])
    # Normal equations of breast cancer cost scikit-learn digits: its coefficients have 10 of them.
    atol = 1e-8 if (name, solver, shrinkage) == ("breast_cancer", "lsqr", None) else 1e-10
    assert_same_predictions(ours.fit(X, y), theirs.fit(X, y), X, atol)


@in_turn("name, n_components", SETS, [None, 1])
def test_lda_transform(name, n_components):
    X, y = load(name)
    ours = LinearDiscriminantAnalysis(n_components=n_components).fit(X, y)
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(n_components=n_components).fit(X, y)
    scale = 1 if DIVIDES_BY_N else np.sqrt(len(y) / (len(y) - len(ours.classes_)))
    assert_same_columns(ours.scalings_, scale * theirs.scalings_)
    assert_same_columns(ours.transform(X), scale * theirs.transform(X))
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    varying = X[:, X.std(axis=0) > 0]
    eigen = discriminant_analysis.LinearDiscriminantAnalysis("eigen", n_components=n_components)
    found = eigen.fit(varying, y).transform(varying)
    assert_same_columns(ours.transform(X), found - found.mean(axis=0))


# --- quadratic discriminant analysis ----------------------------------------------------------


@in_turn(
    "name, reg_param, with_priors", ["iris", "digits", "breast_cancer"], [0, 0.1], [False, True]
)
def test_qda(name, reg_param, with_priors):
    X, y = load(name)
    priors = random_priors(np.unique(y).size) if with_priors else None
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(
        priors=priors, store_covariance=True, tol=1e-12, reg_param=reg_param
    ).fit(X, y)
    ours = QuadraticDiscriminantAnalysis(priors=priors, store_covariance=True, reg_param=reg_param)
    if not DIVIDES_BY_N:
        ours = GaussianDiscriminantAnalysis("full", priors=priors, reg_param=reg_param, ddof=1)
    assert_same_qda(ours.fit(X, y), theirs, X, same_scalings=DIVIDES_BY_N)


@NEEDS_1_9
@in_turn("name, with_priors", ["wine", "digits"], [False, True])
def test_qda_with_shrinkage(name, with_priors):
    X, y = load(name)
    # scikit-learn gives constant features a variance in each class and keeps them in the density,
    # which then prefers some classes for what all rows have in common.
    X = X[:, X.std(axis=0) > 0]
    priors = random_priors(np.unique(y).size) if with_priors else None
    options = {"solver": "eigen", "shrinkage": 0.1, "priors": priors, "store_covariance": True}
    theirs = discriminant_analysis.QuadraticDiscriminantAnalysis(**options, tol=1e-12).fit(X, y)
    assert_same_qda(QuadraticDiscriminantAnalysis(**options).fit(X, y), theirs, X)


def assert_same_qda(ours, theirs, X, same_scalings=True):
    assert_same_predictions(ours, theirs, X)
    assert_close(ours.means_, theirs.means_, 1e-12)
    assert_close(ours.priors_, theirs.priors_, 1e-12)
    assert_close(ours.covariance_, np.array(theirs.covariance_), 1e-12)
    # Constant features of theirs add to the decisions of all classes alike.
    found, expected = ours.predict_log_proba(X), theirs.predict_log_proba(X)
    assert_close(np.maximum(found, -1e3), np.maximum(expected, -1e3), 1e-8)
    if same_scalings:
        assert_close(np.array(ours.scalings_), np.array(theirs.scalings_), 1e-12)
        for rotation, scaling, covariance in zip(
            ours.rotations_, ours.scalings_, ours.covariance_, strict=True
        ):
            assert_close(rotation * scaling @ rotation.T, covariance, 1e-12)


# --- Gaussian naive Bayes ---------------------------------------------------------------------


@in_turn("name, var_smoothing, with_priors", SETS, [1e-9, 1e-3], [False, True, True])
def test_gaussian_nb(name, var_smoothing, with_priors):
    X, y = load(name)
    priors = random_priors(np.unique(y).size) if with_priors else None
    theirs = naive_bayes.GaussianNB(priors=priors, var_smoothing=var_smoothing).fit(X, y)
    ours = GaussianNB(priors=priors, var_smoothing=var_smoothing).fit(X, y)
    assert_same_predictions(ours, theirs, X)
    for attribute in ("theta_", "var_", "class_prior_", "class_count_"):
        np.testing.assert_allclose(
            getattr(ours, attribute), getattr(theirs, attribute), rtol=1e-12, atol=1e-12
        )
    assert ours.epsilon_ == pytest.approx(theirs.epsilon_, rel=1e-12)
    if name != "digits":  # their density includes the constant pixels
        assert_close(ours.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X))


# --- document 002 -----------------------------------------------------------------------------


def test_accuracies_of_document_002():
    folder = os.environ.get("STREAMGDA_MNIST")
    if not folder:
        pytest.skip("its data lie beside the MNIST folder, which STREAMGDA_MNIST names")
    path = Path(folder).parent / "data" / "two-gaussians.csv"
    if not path.exists():
        pytest.skip(f"the document's data are not there: {path.name}")
    data = np.loadtxt(path, delimiter=",", skiprows=1)
    X, y = data[:, :2], data[:, 2].astype(int)
    found = {
        make.__name__: round(make().fit(X, y).score(X, y), 6)
        for make in (QuadraticDiscriminantAnalysis, LinearDiscriminantAnalysis, GaussianNB)
    }
    assert found == {
        "QuadraticDiscriminantAnalysis": 0.784,
        "LinearDiscriminantAnalysis": 0.772,
        "GaussianNB": 0.774,
    }


# --- constant features and float32 rows, beside scikit-learn------------------------------------


def test_labels_in_a_column_are_scored():
    X, y = np.arange(8.0)[:, None], np.array([0, 0, 0, 1, 0, 1, 1, 1])
    ours, theirs = GaussianNB().fit(X, y), naive_bayes.GaussianNB().fit(X, y)
    assert ours.score(X, y[:, None]) == theirs.score(X, y[:, None]) == ours.score(X, y)


@pytest.mark.parametrize("labels", [[-1, 1], ["", "a"], [False, True], range(256)])
def test_rows_that_do_not_count_have_no_class_that_could_be_one(labels):
    labels = np.array(labels, np.uint8 if len(labels) > 2 else None)
    k = np.arange(8 * len(labels)) % len(labels)
    X, y, weight = k[:, None] + np.arange(k.size)[:, None] % 7 / 9, labels[k], k % 3
    theirs = naive_bayes.GaussianNB().fit(X, y).score(X, y, weight)
    ours, X[weight == 0] = GaussianNB().fit(X, y), np.nan
    lazy = da.from_array(X, chunks=(5, 1))
    assert ours.score(X, y, weight) == ours.score(lazy, y, weight) == pytest.approx(theirs)
    assert 0 < ours.score(X, y, on_invalid="skip") <= 1
