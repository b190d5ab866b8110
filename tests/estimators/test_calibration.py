"""`calibrate`: the temperature of the posteriors, from rows held out or left out one by one."""

import dask.array as da
import naive
import numpy as np
import pytest
import zarr
from samples import ESTIMATORS, EVERY_ESTIMATOR, GAUSSIANS, blobs, held, make
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
    load,
)
from streamgda.errors import InvalidDataError, InvalidParameterError, UnsupportedError

X, Y = blobs(400, seed=1)
# Doubled features make naive posteriors too sure, and the others singular without the noise.
X = np.hstack([X, X + 0.5 * np.random.default_rng(0).normal(size=X.shape)])
LEARNT, HELD = slice(0, 200), slice(200, 400)


def fitted(name):
    return make(name).fit(X[LEARNT], Y[LEARNT])


@EVERY_ESTIMATOR
def test_the_temperature_is_that_of_the_largest_likelihood(name):
    estimator = fitted(name)
    joint, predicted = estimator.predict_joint_log_proba(X), estimator.predict(X)
    weights = np.random.default_rng(0).random(200)
    assert estimator.calibrate(X[HELD], Y[HELD], weights) is estimator
    expected = naive.temperature(joint[HELD], Y[HELD], weights)
    assert estimator.temperature == pytest.approx(expected, rel=1e-5)
    scaled = joint / estimator.temperature
    np.testing.assert_allclose(estimator.predict_proba(X), softmax(scaled, axis=1), atol=1e-12)
    np.testing.assert_allclose(
        estimator.predict_log_proba(X), log_softmax(scaled, axis=1), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_array_equal(estimator.predict(X), predicted)
    np.testing.assert_array_equal(estimator.predict_joint_log_proba(X), joint)


@pytest.mark.parametrize("name", [name for name in GAUSSIANS if name != "regularised"])
def test_rows_of_the_fit_are_left_out_one_by_one(name):
    left_out = fitted(name).leave_one_out_proba(X[LEARNT], Y[LEARNT])
    joint = np.log(np.maximum(left_out, 1e-300))  # without those that are rounded to zero
    estimator = fitted(name).calibrate(X[LEARNT], Y[LEARNT], leave_one_out=True)
    expected = naive.temperature(joint, Y[LEARNT], np.ones(200))
    assert estimator.temperature == pytest.approx(expected, rel=1e-5)
    left_out = estimator.leave_one_out_proba(X[LEARNT], Y[LEARNT])
    np.testing.assert_allclose(left_out, softmax(joint / expected, axis=1), atol=1e-4)


def test_an_influential_row_is_left_out_by_a_refit():
    rows, labels = np.array([[0.0], [0.1], [0.2], [9.0], [5.0], [6.0], [7.5]]), [0] * 4 + [1] * 3
    nb = GaussianNB(temperature=3.0).fit(rows, labels)
    found = nb.leave_one_out_proba(rows, labels)
    for i in range(len(rows)):
        others = np.arange(len(rows)) != i
        alone = clone(nb).fit(rows[others], np.array(labels)[others])
        np.testing.assert_allclose(found[i], alone.predict_proba(rows[i : i + 1])[0], rtol=1e-9)


@pytest.mark.parametrize("container", ["zarr", "dask", "list"])
def test_rows_may_lie_anywhere(container):
    rows = X[HELD].copy()
    rows[7] = np.nan
    labels = np.append(Y[HELD][:-1], 9)
    expected = fitted("QDA").calibrate(np.delete(rows, 7, 0)[:-1], np.delete(labels, 7)[:-1])
    stored = {
        "zarr": lambda: zarr.create_array({}, data=rows, chunks=(33, 8)),
        "dask": lambda: da.from_array(rows, chunks=(33, 8)),
        "list": rows.tolist,
    }[container]()
    found = fitted("QDA").calibrate(stored, labels, on_invalid="skip", unlabelled=9)
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-12)


def test_a_temperature_is_a_parameter_that_is_learnt_with_and_saved(tmp_path):
    estimator = fitted("LDA").calibrate(X[HELD], Y[HELD])
    expected = estimator.predict_proba(X)
    estimator.save(tmp_path / "lda.zip")
    np.testing.assert_array_equal(load(tmp_path / "lda.zip").predict_proba(X), expected)
    again = clone(estimator)
    assert again.temperature == estimator.temperature
    np.testing.assert_array_equal(again.fit(X[LEARNT], Y[LEARNT]).predict_proba(X), expected)
    estimator.partial_fit(X[HELD], Y[HELD])
    again.fit(X, Y)
    np.testing.assert_allclose(estimator.predict_proba(X), again.predict_proba(X), rtol=1e-9)
    with pytest.raises(UnsupportedError, match="temperature"):
        estimator.to_sklearn()


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan, np.inf, "warm", True])
@pytest.mark.parametrize("name", ["BernoulliNB", "GaussianNB", "full"])
def test_temperatures_are_above_zero(name, temperature):
    with pytest.raises(InvalidParameterError, match=r"temperature=.*expected a number above 0"):
        make(name).set_params(temperature=temperature).fit(X, Y)


def test_rows_that_cannot_be_used_leave_the_temperature():
    estimator = fitted("QDA")
    with pytest.raises(InvalidDataError, match="9"):
        estimator.calibrate(X[HELD], np.append(Y[HELD][1:], 9))
    with pytest.raises(InvalidDataError, match="no row is left"):
        estimator.calibrate(X[HELD], Y[HELD], np.zeros(200))
    with pytest.raises(UnsupportedError, match="leave-one-out"):
        fitted("BernoulliNB").calibrate(X[LEARNT], Y[LEARNT], leave_one_out=True)
    assert estimator.temperature == ESTIMATORS["QDA"].temperature == 1.0


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "joint_log_likelihood"])
def test_a_search_calibrates_by_the_rows_that_are_held_out(scoring):
    grid = {"covariance_type": ["full", "diag"], "shrinkage": [0.1]}
    fold = np.arange(400) % 4
    search = GaussianDiscriminantCV(grid, cv=fold, scoring=scoring, calibrate=True).fit(X, Y)
    for params, temperature, loss in zip(
        search.cv_results_["params"],
        search.cv_results_["temperature"],
        search.cv_results_["mean_test_neg_log_loss"],
        strict=True,
    ):
        joint, plain = np.empty((400, 3)), GaussianDiscriminantAnalysis(**params)
        for f in range(4):
            learnt = clone(plain).fit(X[fold != f], Y[fold != f])
            joint[fold == f] = learnt.predict_joint_log_proba(X[fold == f])
        assert temperature == pytest.approx(naive.temperature(joint, Y, np.ones(400)), rel=1e-5)
        expected = naive.tempered_log_likelihood(joint, Y, np.ones(400), temperature)
        assert loss == pytest.approx(expected / 400)
    best = search.best_estimator_
    assert best.temperature == search.cv_results_["temperature"][search.best_index_]
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))


def test_temperatures_may_be_candidates():
    grid = {"covariance_type": ["diag"], "temperature": [1.0, 2.0, 30.0]}
    search = GaussianDiscriminantCV(grid, scoring="neg_log_loss").fit(X, Y)
    assert search.best_params_["temperature"] == 2.0
    assert search.best_estimator_.temperature == 2.0
    with pytest.raises(InvalidParameterError, match=r"calibrate=True"):
        search.set_params(calibrate=True).fit(X, Y)


def test_a_fitted_feature_map_stays_fitted():
    scaler = StandardScaler().fit(X)
    qda = QuadraticDiscriminantAnalysis(feature_map=scaler).fit(X[LEARNT], Y[LEARNT])
    qda.calibrate(X[HELD], Y[HELD])
    assert qda._settings.feature_map is scaler
    assert qda._settings.temperature == qda.temperature != 1.0


def test_scores_of_subclasses_are_tempered():
    class Shifted(GaussianDiscriminantAnalysis):
        def _joint_log_likelihood(self, rows):
            return self.model_.joint_log_likelihood(rows) * 2

    estimator = Shifted("diag").fit(X[LEARNT], Y[LEARNT])
    plain = GaussianDiscriminantAnalysis("diag").fit(X[LEARNT], Y[LEARNT])
    estimator.calibrate(X[HELD], Y[HELD])
    plain.calibrate(X[HELD], Y[HELD])
    assert estimator.temperature == pytest.approx(2 * plain.temperature, rel=1e-4)
    np.testing.assert_allclose(estimator.predict_proba(X), plain.predict_proba(X), atol=1e-4)


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_rows_of_weight_zero_are_not_looked_at(kind):
    """Neither to calibrate nor to score."""
    weights = np.arange(200) % 3.0
    counts = weights > 0
    given = [held(np.where(counts[:, None], X[HELD], np.nan), kind), held(Y[HELD], kind), weights]
    estimator, other = fitted("QDA"), fitted("QDA")
    rows = X[HELD][counts], Y[HELD][counts], weights[counts]
    assert estimator.score(*given) == pytest.approx(other.score(*rows))
    found, expected = estimator.calibrate(*given), other.calibrate(*rows)
    assert found.temperature == pytest.approx(expected.temperature)
