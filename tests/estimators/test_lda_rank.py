"""LDA of rank-deficient rows: directions are dropped as in scikit-learn."""

import numpy as np
import pytest
from grids import in_turn
from samples import NEEDS_1_9
from sklearn import datasets, discriminant_analysis

from streamgda import LinearDiscriminantAnalysis

# scikit-learn divides by the deviations of its constant pixels.
pytestmark = pytest.mark.filterwarnings("ignore::streamgda.errors.ConstantFeatureWarning")


def doubled():
    X, y = datasets.load_iris(return_X_y=True)
    return np.column_stack([X, 3 * X[:, 0]]), y


def one_hot():
    X, y = datasets.load_iris(return_X_y=True)
    return np.column_stack([X, np.eye(4)[np.random.default_rng(0).integers(0, 4, len(y))]]), y


def few_rows():
    return np.random.default_rng(0).normal(size=(30, 50)), np.arange(30) % 3


def classified(seed=0):
    return datasets.make_classification(random_state=seed)


def digits():
    return datasets.load_digits(return_X_y=True)


def one_scale_each():
    X, y = one_hot()
    return X * np.logspace(-6, 6, X.shape[1]), y


def fewer_rows():
    X = np.random.default_rng(1).normal(size=(20, 90))
    return X * np.logspace(-3, 3, 90), np.arange(20) % 3


SETS = [doubled, one_hot, few_rows, fewer_rows, classified, digits, one_scale_each]


def assert_close(found, expected, rtol=1e-10):
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


@NEEDS_1_9
@pytest.mark.filterwarnings("ignore::UserWarning")
@in_turn("rows, with_priors", SETS, [False, True, True, False])
def test_models_agree_with_scikit_learn(rows, with_priors):
    X, y = rows()
    priors = (
        np.random.default_rng(1).dirichlet(np.full(np.unique(y).size, 9)) if with_priors else None
    )
    theirs = discriminant_analysis.LinearDiscriminantAnalysis(priors=priors).fit(X, y)
    ours = LinearDiscriminantAnalysis(priors=priors).fit(X, y)
    assert_close(ours.decision_function(X), theirs.decision_function(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-10)
    scalings = ours.scalings_
    assert scalings.shape == theirs.scalings_.shape
    assert_close(
        scalings * np.sign((scalings * theirs.scalings_).sum(axis=0)), theirs.scalings_, 1e-9
    )


@pytest.mark.filterwarnings("ignore::streamgda.errors.CollinearityWarning")
@in_turn("rows, solver", [doubled, few_rows, fewer_rows, one_hot], ["svd", "lsqr"])
def test_features_that_are_constant_within_classes_are_left_out_exactly(rows, solver):
    X, y = rows()
    beside = np.insert(X, 1, 1e18 * y, axis=1)  # times in nanoseconds, say
    found, expected = (LinearDiscriminantAnalysis(solver).fit(each, y) for each in (beside, X))
    assert (found.coef_[:, 1] == 0).all()
    assert_close(found.mahalanobis(beside), expected.mahalanobis(X), 1e-9)
    np.testing.assert_allclose(found.predict_proba(beside), expected.predict_proba(X), atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("rows", [doubled, few_rows, one_hot])
def test_the_density_is_that_of_the_directions_that_are_kept(rows):
    X, y = rows()
    lda = LinearDiscriminantAnalysis(store_covariance=True).fit(X, y)
    varying = np.setdiff1d(np.arange(X.shape[1]), lda.constant_features_)
    S = lda.covariance_[np.ix_(varying, varying)]
    scale = np.sqrt(np.where(S.diagonal() > 0, S.diagonal(), 1))
    values, axes = np.linalg.eigh(S / scale / scale[:, None])
    kept = values > max(1e-8, len(S) * np.finfo(float).eps)
    root = (axes[:, kept] / np.sqrt(values[kept])).T / scale
    t = (X[:, None, varying] - lda.means_[:, varying]) @ root.T
    log_det = -2 * np.log(np.linalg.svd(root, compute_uv=False)).sum()
    expected = np.log(lda.priors_) - 0.5 * (
        (t**2).sum(axis=2) + log_det + kept.sum() * np.log(2 * np.pi)
    )
    found = lda.predict_joint_log_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-6)
    again = type(lda).from_bytes(lda.to_bytes())
    np.testing.assert_array_equal(again.predict_joint_log_proba(X), found)
