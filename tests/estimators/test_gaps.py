"""Distances to given classes; rows with gaps are scored by the features that they have."""

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import EVERY_GAUSSIAN, blobs, make
from scipy.special import log_softmax, logsumexp, softmax

from streamgda import BernoulliNB, LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from streamgda.errors import InvalidDataError, InvalidParameterError, UnsupportedError

X, Y = blobs(90, 5)
HOLES = np.where(np.random.default_rng(1).random(X.shape) < 0.3, np.nan, X)
HOLES[np.isnan(HOLES).all(axis=1), 0] = 0.0


@EVERY_GAUSSIAN
def test_answers_are_those_of_the_marginal_gaussians(name):
    estimator = make(name).fit(X, Y)
    means = getattr(estimator, "means_", getattr(estimator, "theta_", None))
    S = estimator._all_covariances().values
    S = S if S.ndim == 3 else np.array([np.diag(row) for row in S])
    priors = getattr(estimator, "priors_", getattr(estimator, "class_prior_", None))
    given = means, np.broadcast_to(S, (3, 5, 5)), priors
    joint = np.array([naive.marginal_joint(x, *given) for x in HOLES])
    close = {"rtol": 1e-9, "atol": 1e-9}
    for method, expected in (
        ("predict_joint_log_proba", joint),
        ("predict_log_proba", log_softmax(joint, axis=1)),
        ("score_samples", logsumexp(joint, axis=1)),
        ("predict", estimator.classes_[joint.argmax(axis=1)]),
    ):
        found = getattr(estimator, method)(HOLES, on_missing="marginal")
        np.testing.assert_allclose(found, expected, err_msg=method, **close)
    found = estimator.mahalanobis(HOLES, on_missing="marginal")
    assert np.isfinite(found).all()
    p_values = estimator.p_values(HOLES, on_missing="marginal")
    assert ((p_values >= 0) & (p_values <= 1)).all()


@pytest.mark.parametrize("name", ["QDA", "LDA", "GaussianNB"])
def test_models_of_some_features_have_their_moments(name):
    estimator = make(name).fit(X, Y)
    alone = type(estimator).from_moments(estimator.moments_.select_features([1, 4]))
    rows = np.full_like(X, np.nan)
    rows[:, [1, 4]] = X[:, [1, 4]]
    for method in ("predict_proba", "decision_function", "mahalanobis", "p_values"):
        smoothed = name == "GaussianNB" and method == "p_values"  # There, another variance smooths.
        if hasattr(estimator, method) and not smoothed:
            found = getattr(estimator, method)(rows, on_missing="marginal")
            np.testing.assert_allclose(found, getattr(alone, method)(X[:, [1, 4]]), rtol=1e-6)


def test_probabilities_of_zeros_and_ones_skip_gaps():
    nb = BernoulliNB().fit(X > 0, Y)
    rows = np.where(np.isnan(HOLES), np.nan, HOLES > 0)
    joint = nb.class_log_prior_ + np.nansum(
        np.where(rows[:, None] > 0, nb.feature_log_prob_, np.log1p(-np.exp(nb.feature_log_prob_)))
        * np.where(np.isnan(rows), np.nan, 1.0)[:, None],
        axis=2,
    )
    found = nb.predict_log_proba(rows, on_missing="marginal")
    np.testing.assert_allclose(found, log_softmax(joint, axis=1), rtol=1e-9, atol=1e-9)


def test_rows_lie_anywhere_and_results_go_anywhere(tmp_path):
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    codes, options = np.where(np.isnan(HOLES), -9, HOLES), {"on_missing": "marginal", "nodata": -9}
    expected = qda.predict_proba(HOLES, on_missing="marginal")
    containers = (
        zarr.create_array({}, data=codes, chunks=(7, 5)),
        da.from_array(codes, chunks=(7, 5)),
        pd.DataFrame(codes),
        np.ma.masked_invalid(HOLES),
        codes.tolist(),
    )
    for i, rows in enumerate(containers):
        found = qda.predict_proba(rows, **options)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
        out = qda.predict_proba(rows, out=tmp_path / f"{i}.zarr", **options)
        np.testing.assert_allclose(out[:], expected, rtol=1e-12)


@EVERY_GAUSSIAN
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_distances_are_those_to_the_given_classes(name, offset):
    labels = np.array(["ash", "elm", "oak"])[Y]
    estimator = make(name).fit(X + offset, labels)
    expected = estimator.mahalanobis(X + offset)[np.arange(90), Y]
    np.testing.assert_allclose(estimator.mahalanobis(X + offset, labels), expected, rtol=1e-9)
    with pytest.raises(InvalidDataError, match=r"y\[3\] is fir, which is not one of the classes"):
        estimator.mahalanobis(X, np.where(np.arange(90) == 3, "fir", labels))
    with pytest.raises(ValueError, match="89"):
        estimator.mahalanobis(X, labels[:-1])


def test_temperatures_complete_rows_and_rejection_are_as_without_gaps():
    qda = QuadraticDiscriminantAnalysis(temperature=3.0).fit(X, Y)
    joint = qda.predict_joint_log_proba(HOLES, on_missing="marginal")
    found = qda.predict_proba(HOLES, on_missing="marginal")
    np.testing.assert_allclose(found, softmax(joint / 3, axis=1), rtol=1e-9)
    whole = qda.predict_proba(X, on_missing="marginal")
    np.testing.assert_allclose(whole, qda.predict_proba(X), rtol=1e-12)
    labels = qda.predict(HOLES + 50, reject=0.01, on_missing="marginal")
    assert (labels == -1).all()


def test_constant_features_tell_nothing():
    with pytest.warns(UserWarning, match="1 of 6 features are constant"):
        qda = QuadraticDiscriminantAnalysis().fit(np.insert(X, 2, 7.0, axis=1), Y)
    gaps = np.insert(HOLES, 2, 7.0, axis=1)
    expected = qda.predict_proba(gaps, on_missing="marginal")
    gaps[:, 2] = np.nan
    np.testing.assert_allclose(qda.predict_proba(gaps, on_missing="marginal"), expected)
    gaps[:, [0, 1, 3, 4, 5]], gaps[:, 2] = np.nan, 7.0
    with pytest.raises(InvalidDataError, match="row 0 of X has infinity, or no feature"):
        qda.predict(gaps, on_missing="marginal")


def test_rows_without_features_and_infinity_are_invalid():
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    rows = HOLES[:6].copy()
    rows[2] = np.nan
    rows[4, 1] = np.inf
    with pytest.raises(InvalidDataError, match="row 2 of X has infinity, or no feature"):
        qda.predict(rows, on_missing="marginal")
    with pytest.raises(InvalidDataError, match="row 3 of X has infinity"):
        qda.predict(np.delete(rows, 2, 0), on_missing="marginal")
    found = qda.predict(rows, on_missing="marginal", on_invalid="fill", fill=-5)
    np.testing.assert_array_equal(np.flatnonzero(found == -5), [2, 4])
    every = qda.predict_proba(rows[[2, 2]], on_missing="marginal", on_invalid="fill")
    assert every.shape == (2, 3)
    assert np.isnan(every).all()


def test_what_has_no_marginal_says_so():
    rows, lda = np.hstack([X, X[:, :1]]), LinearDiscriminantAnalysis()
    with pytest.warns(UserWarning, match="direction"):
        lda.fit(rows, Y)
    gaps = rows[:1].copy()
    gaps[0, 0] = np.nan
    with pytest.raises(UnsupportedError, match="depend on others are dropped"):
        lda.predict(gaps, on_missing="marginal")
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    with pytest.raises(InvalidParameterError, match=r"on_missing='guess'; expected 'raise' or"):
        qda.predict(HOLES, on_missing="guess")
