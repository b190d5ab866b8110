"""One class only, at the start of a stream sorted by class or in all rows."""

import numpy as np
import pytest
from samples import EVERY_ESTIMATOR, GAUSSIANS, blobs, make
from sklearn import discriminant_analysis, naive_bayes

import streamgda
from streamgda import GaussianNB, accumulate
from streamgda.errors import InvalidDataError

X, Y = blobs(90)
ONE = np.full(90, "only")
LENIENT = ["LDA", "GaussianNB", "BernoulliNB"]
REFERENCES = {
    "LDA": discriminant_analysis.LinearDiscriminantAnalysis(),
    "GaussianNB": naive_bayes.GaussianNB(),
    "BernoulliNB": naive_bayes.BernoulliNB(),
}


@pytest.mark.parametrize("name", LENIENT)
def test_one_class_is_fitted_as_in_scikit_learn(name):
    ours, theirs = make(name).fit(X, ONE), REFERENCES[name].fit(X, ONE)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X), strict=True)
    np.testing.assert_array_equal(ours.predict_proba(X), np.ones((90, 1)))
    np.testing.assert_array_equal(ours.predict_log_proba(X), np.zeros((90, 1)))
    assert ours.score(X, ONE) == 1
    if name != "LDA":  # whose predict_proba fails there
        joint = theirs.predict_joint_log_proba(X)
        np.testing.assert_allclose(ours.predict_joint_log_proba(X), joint, rtol=1e-12)
        return
    np.testing.assert_array_equal(ours.decision_function(X), theirs.decision_function(X))
    for attribute in ("coef_", "intercept_", "scalings_", "explained_variance_ratio_"):
        expected = np.nan_to_num(getattr(theirs, attribute))
        np.testing.assert_array_equal(getattr(ours, attribute), expected, strict=True)
    assert ours.transform(X).shape == (90, 0)


@pytest.mark.parametrize("name", [name for name in GAUSSIANS if name not in LENIENT])
def test_discriminant_analysis_refuses_one_class(name):
    match = r"number of classes has to be greater than one; got 1 class \(only\)"
    with pytest.raises(InvalidDataError, match=match):
        make(name).fit(X, ONE)
    with pytest.raises(InvalidDataError, match=match):
        type(make(name)).from_moments(accumulate(X, ONE))


@pytest.mark.parametrize("classes", [None, [0, 1, 2]], ids=["new labels", "declared"])
@EVERY_ESTIMATOR
def test_rows_sorted_by_class_are_predicted_after_the_first(name, classes, tmp_path):
    order = np.argsort(Y, kind="stable")
    batches = np.split(order, np.searchsorted(Y[order], [1, 2]))
    estimator = make(name)
    for k, rows in enumerate(batches):
        estimator.partial_fit(X[rows], Y[rows], classes=classes)
        assert set(estimator.predict(X)) <= set(range(k + 1))
        proba = estimator.predict_proba(X)
        assert proba.shape == (90, 3 if classes else k + 1)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert np.isfinite(estimator.score_samples(X)).all()
        assert estimator.sample(3, random_state=0)[0].shape == (3, 4)
        estimator.save(tmp_path / "file")
        loaded = streamgda.load(tmp_path / "file")
        np.testing.assert_array_equal(loaded.predict_proba(X), proba)
    expected = make(name).fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(estimator.predict_proba(X), expected, rtol=1e-7, atol=1e-10)


@EVERY_ESTIMATOR
def test_class_counts_are_floats(name):
    estimator = make(name).fit(X, Y)
    assert estimator.class_count_.dtype == np.float64
    np.testing.assert_array_equal(estimator.class_count_, np.bincount(Y))
    with pytest.raises(ValueError, match="read-only"):
        estimator.class_count_[:] = 0


def test_a_model_of_no_rows_is_refused():
    nb = GaussianNB().fit(X, Y).retire([0, 1, 2])
    with pytest.raises(InvalidDataError, match="no class has rows"):
        nb.predict(X)
