"""Rows with gaps: `on_missing="marginal"` and `impute` against the formulas for each row."""

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import GAUSSIANS, blobs, make
from scipy.special import log_softmax, logsumexp, softmax

from streamgda import BernoulliNB, LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from streamgda.errors import InvalidDataError, InvalidParameterError, UnsupportedError
from streamgda.models import marginals

X, Y = blobs(200, 5, seed=3)
HOLES = X[:60].copy()
HOLES[np.random.default_rng(0).random(HOLES.shape) < 0.4] = np.nan
HOLES = HOLES[~np.isnan(HOLES).all(axis=1)]


def whole_covariances(estimator):
    """The covariance matrix of each class, whatever the covariance type."""
    model = estimator.model_
    matrix = model.structure.matrix
    values = [np.linalg.inv(root.T @ root) if matrix else np.diag(1 / root) for root in model.roots]
    return np.array([values[g] for g in model.structure.groups(len(model.classes))])


@pytest.mark.parametrize("name", GAUSSIANS)
def test_answers_are_those_of_the_marginal_gaussians(name):
    estimator = make(name).fit(X, Y)
    given = estimator.model_.means, whole_covariances(estimator), estimator.model_.priors
    joint = np.array([naive.marginal_joint(x, *given) for x in HOLES])
    close = {"rtol": 1e-9, "atol": 1e-9}
    found = estimator.predict_joint_log_proba(HOLES, on_missing="marginal")
    np.testing.assert_allclose(found, joint, **close)
    found = estimator.predict_proba(HOLES, on_missing="marginal")
    np.testing.assert_allclose(found, softmax(joint, axis=1), **close)
    found = estimator.score_samples(HOLES, on_missing="marginal")
    np.testing.assert_allclose(found, logsumexp(joint, axis=1), **close)
    labels = estimator.classes_[joint.argmax(axis=1)]
    np.testing.assert_array_equal(estimator.predict(HOLES, on_missing="marginal"), labels)
    found = estimator.mahalanobis(HOLES, on_missing="marginal")
    assert found.shape == joint.shape
    assert (found >= 0).all()
    imputed = np.array([naive.imputed(x, *given) for x in HOLES])
    np.testing.assert_allclose(estimator.impute(HOLES), imputed, **close)


@pytest.mark.parametrize("name", ["QDA", "LDA", "GaussianNB"])
def test_models_of_some_features_have_their_moments(name):
    estimator = make(name).fit(X, Y)
    alone = type(estimator).from_moments(estimator.moments_.select_features([1, 4]))
    rows = np.full_like(X, np.nan)
    rows[:, [1, 4]] = X[:, [1, 4]]
    for method in ("predict_proba", "decision_function", "mahalanobis"):
        if hasattr(estimator, method):
            found = getattr(estimator, method)(rows, on_missing="marginal")
            np.testing.assert_allclose(found, getattr(alone, method)(X[:, [1, 4]]), rtol=1e-7)


def test_probabilities_of_zeros_and_ones_skip_gaps():
    ones = X > 0
    nb = BernoulliNB().fit(ones, Y)
    rows = np.where(np.isnan(HOLES), np.nan, HOLES > 0)
    joint = nb.class_log_prior_ + np.nansum(
        np.where(rows[:, None] > 0, nb.feature_log_prob_, np.log1p(-np.exp(nb.feature_log_prob_)))
        * np.where(np.isnan(rows), np.nan, 1.0)[:, None],
        axis=2,
    )
    found = nb.predict_log_proba(rows, on_missing="marginal")
    np.testing.assert_allclose(found, log_softmax(joint, axis=1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("container", ["zarr", "dask", "frame", "masked", "integers"])
def test_rows_lie_anywhere_and_results_go_anywhere(container, tmp_path):
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    rows, options = HOLES, {}
    if container == "integers":
        rows = np.where(np.isnan(HOLES), -999, np.round(100 * HOLES)).astype(np.int16)
        qda, options = QuadraticDiscriminantAnalysis().fit(100 * X, Y), {"nodata": -999}
    filled = np.where(rows == options.get("nodata"), np.nan, rows)
    expected = qda.predict_proba(filled, on_missing="marginal")
    held = {
        "zarr": lambda: zarr.create_array({}, data=rows, chunks=(7, 5)),
        "dask": lambda: da.from_array(rows, chunks=(7, 5)),
        "frame": lambda: pd.DataFrame(rows),
        "masked": lambda: np.ma.masked_invalid(rows),
        "integers": lambda: rows,
    }[container]()
    found = qda.predict_proba(held, on_missing="marginal", **options)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12)
    if container in ("zarr", "integers"):
        out = qda.predict_proba(held, out=tmp_path / "p.zarr", on_missing="marginal", **options)
        np.testing.assert_allclose(out[:], expected, rtol=1e-12)


def test_temperatures_and_complete_rows_are_as_without_gaps():
    qda = QuadraticDiscriminantAnalysis(temperature=3.0).fit(X, Y)
    plain = qda.predict_proba(X)
    np.testing.assert_array_equal(qda.predict_proba(X, on_missing="marginal"), plain)
    np.testing.assert_array_equal(qda.impute(X), X)
    joint = qda.predict_joint_log_proba(HOLES, on_missing="marginal")
    found = qda.predict_proba(HOLES, on_missing="marginal")
    np.testing.assert_allclose(found, softmax(joint / 3.0, axis=1), rtol=1e-9)


def test_models_that_do_not_fit_the_cache_are_computed_again(monkeypatch):
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    expected = qda.predict_proba(HOLES, on_missing="marginal")
    monkeypatch.setattr(marginals, "CACHE_BYTES", 0)
    np.testing.assert_array_equal(qda.predict_proba(HOLES, on_missing="marginal"), expected)


def test_constant_features_are_imputed_by_their_value_and_tell_nothing():
    rows = np.hstack([X, np.full((len(X), 1), 7.0)])
    with pytest.warns(UserWarning, match="constant"):
        qda = QuadraticDiscriminantAnalysis().fit(rows, Y)
    gaps = rows[:1].copy()
    gaps[0, 5] = np.nan
    np.testing.assert_array_equal(qda.impute(gaps), rows[:1])
    gaps[0, 5], gaps[0, :5] = 7.0, np.nan
    with pytest.raises(InvalidDataError, match=r"row 0 of X has no feature that the model uses"):
        qda.predict(gaps, on_missing="marginal")


def test_rows_without_features_and_infinity_are_invalid():
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    rows = HOLES[:6].copy()
    rows[2] = np.nan
    rows[4, 1] = np.inf
    with pytest.raises(InvalidDataError, match="row 2 of X has no feature"):
        qda.predict(rows, on_missing="marginal")
    with pytest.raises(InvalidDataError, match="infinity: row 4, column 1"):
        qda.predict(np.delete(np.insert(rows, 2, rows[0], 0), 3, 0), on_missing="marginal")
    found = qda.predict(rows, on_missing="marginal", on_invalid="fill", fill=-5)
    np.testing.assert_array_equal(np.flatnonzero(found == -5), [2, 4])
    assert np.isnan(qda.impute(rows, on_invalid="fill")[[2, 4]]).all()
    every = qda.predict_proba(rows[[2, 2]], on_missing="marginal", on_invalid="fill")
    assert every.shape == (2, 3)
    assert np.isnan(every).all()


def test_what_has_no_marginal_says_so():
    rows = np.hstack([X, X[:, :1]])
    lda = LinearDiscriminantAnalysis()
    with pytest.warns(UserWarning, match="direction"):
        lda.fit(rows, Y)
    gaps = rows[:1].copy()
    gaps[0, 0] = np.nan
    with pytest.raises(UnsupportedError, match=r"leaves out 1 direction.*shrinkage"):
        lda.predict(gaps, on_missing="marginal")
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    with pytest.raises(InvalidParameterError, match=r"on_missing='guess'; expected 'raise' or"):
        qda.predict(HOLES, on_missing="guess")
    with pytest.raises(UnsupportedError, match="reject needs p-values"):
        qda.predict(HOLES, reject=0.1, on_missing="marginal")
    with pytest.raises(TypeError, match="unexpected keyword argument 'on_missing'"):
        qda.p_values(HOLES, on_missing="marginal")
