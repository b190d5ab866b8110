"""What every classifier promises: labels of any type, classes that come, parameters, samples."""

import inspect
import pickle
from copy import deepcopy

import numpy as np
import pytest
from samples import (
    EVERY_ESTIMATOR,
    EVERY_GAUSSIAN,
    KINDS,
    PARAMETERS,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    fails,
    held,
    make,
    results,
)
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from streamgda import (
    BernoulliNB,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    SingularCovarianceError,
    SingularCovarianceWarning,
    UnsupportedError,
)

X, Y = blobs(360)
FRESH, _ = blobs(50, seed=1)
LABELS = {
    "int": Y,
    "text": np.array(["ant", "bee", "cat"])[Y],
    "bool": Y > 0,
    "date": np.array(["2020-01-01", "2020-06-01", "2021-01-01"], "M8[D]")[Y],
}


def batches(estimator, rows=X, labels=Y, step=53, **options):
    for start in range(0, len(rows), step):
        estimator.partial_fit(rows[start : start + step], labels[start : start + step], **options)
    return estimator


# --- the same model from the same rows --------------------------------------------------------


@EVERY_ESTIMATOR
@pytest.mark.parametrize("labels", LABELS)
def test_batches_and_merges(name, labels):
    y = LABELS[labels]
    fitted = make(name).fit(X, y)
    assert_equal_to_rounding(batches(make(name), X, y), fitted, FRESH)
    assert_equal_to_rounding(batches(make(name), X, y, classes=np.unique(y)), fitted, FRESH)
    first, second = make(name).fit(X[:200], y[:200]), make(name).partial_fit(X[200:], y[200:])
    moments = first.moments_ + second.moments_
    again = type(fitted).from_moments(moments, **fitted.get_params())
    assert_equal_to_rounding(again, fitted, FRESH)
    assert fitted.score(X, y) == pytest.approx((fitted.predict(X) == y).mean())


@EVERY_ESTIMATOR
def test_whole_numbers_have_the_same_bits_in_any_batches(name):
    rows = bytes_of(X)
    fitted = make(name).fit(rows, Y)
    order = np.random.default_rng(0).permutation(len(rows))
    found = batches(make(name), rows[order], Y[order], 1)
    assert_same_bits(results(found, rows), results(fitted, rows))
    found.partial_fit(rows[:40], Y[:40]).forget(rows[:40], Y[:40])
    assert_same_bits(results(found, rows), results(fitted, rows))


# --- classes ----------------------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_declared_classes_bind_and_have_probability_zero_without_rows(name):
    estimator = make(name).partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    assert estimator.classes_.tolist() == [0, 1, 2]
    assert (estimator.predict_proba(X)[:, 2] == 0).all()
    assert (estimator.predict_log_proba(X)[:, 2] == -np.inf).all()
    with pytest.raises(InvalidParameterError, match="cannot sample class 2"):
        estimator.sample(3, y=2)
    fails(InvalidDataError, "9", estimator, "partial_fit", X[:1], [9])
    fails(InvalidParameterError, "not the same", estimator, "partial_fit", X, Y, [0, 1])
    for copy in (type(estimator).from_bytes(estimator.to_bytes()), deepcopy(estimator)):
        assert_same_bits(results(copy, X), results(estimator, X))
        fails(InvalidDataError, "9", copy, "partial_fit", X[:1], [9])
    late = make(name).partial_fit(X, Y)
    fails(InvalidParameterError, "lacks", late, "partial_fit", X, Y, [0, 1])
    assert_equal_to_rounding(estimator.partial_fit(X[Y == 2], Y[Y == 2]), late, FRESH)


@EVERY_GAUSSIAN
def test_a_row_of_a_new_class_does_not_stop_a_stream(name):
    pooled = name.startswith("tied") or name in ("LDA", "regularised", "GaussianNB")
    stream = make(name).fit(X, Y).partial_fit(X[:1] + 9, [7])
    if pooled:
        assert np.isfinite(stream.predict_log_proba(X)).all()
        return
    with pytest.warns(SingularCovarianceWarning, match=r"class 7 \(rank 0 of 4, 1 row\)"):
        proba = stream.predict_proba(X)
    assert (proba[:, 3] == 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    scores = stream.predict_joint_log_proba(X)  # A second warning would be an error.
    assert (scores[:, 3] == -np.inf).all()
    assert np.isnan(stream.mahalanobis(X)[:, 3]).all()
    assert np.isnan(stream.p_values(X)[:, 3]).all()
    with pytest.raises(SingularCovarianceError, match="class 7") as caught:
        type(stream).from_moments(stream.moments_, **stream.get_params())
    assert list(caught.value.classes) == [7]
    with pytest.raises(SingularCovarianceError, match="class 7"):
        make(name).fit(np.vstack([X, X[:1]]), np.append(Y, 7))
    with pytest.warns(SingularCovarianceWarning):
        assert 7 not in type(stream).from_bytes(stream.to_bytes()).predict(X)
    if "reg_param" in stream.get_params():
        assert (stream.set_params(reg_param=0.5).predict_proba(X[:1] + 9)[:, 3] > 0.1).all()
    alone = make(name).partial_fit(X[:1], [0]).partial_fit(X[1:2], [1])
    with pytest.raises(SingularCovarianceError, match="2 of 2 classes"):
        alone.predict(X)


# --- parameters -------------------------------------------------------------------------------


def test_parameters_count_at_once():
    qda = QuadraticDiscriminantAnalysis().fit(X, Y)
    sharp = qda.predict_proba(X)
    flat = qda.set_params(temperature=50).predict_proba(X)
    assert (flat.max(axis=1) < sharp.max(axis=1)).all()
    qda.set_params(temperature=1.0, reg_param=0.3, priors=[0.2, 0.3, 0.5])
    expected = QuadraticDiscriminantAnalysis(reg_param=0.3, priors=[0.2, 0.3, 0.5]).fit(X, Y)
    assert_same_bits(results(qda, X), results(expected, X))
    assert not np.allclose(sharp, qda.predict_proba(X))
    gda = GaussianDiscriminantAnalysis().fit(X, Y).set_params(covariance_type="tied")
    other = GaussianDiscriminantAnalysis("tied").fit(X, Y)
    np.testing.assert_allclose(gda.predict_proba(X), other.predict_proba(X), atol=1e-12)
    np.testing.assert_allclose(gda.partial_fit(X, Y).covariance_, other.covariance_, rtol=1e-12)
    with pytest.raises(MergeError, match="do not hold what 'full' needs"):
        other.set_params(covariance_type="full").predict(X)
    with pytest.raises(MergeError, match="do not hold what 'full' needs"):
        QuadraticDiscriminantAnalysis.from_moments(other.moments_)
    nb = GaussianNB().fit(X, Y)
    before, nb.var_smoothing = nb.predict_proba(X), 0.5
    assert not np.array_equal(nb.predict_proba(X), before)
    expected = GaussianNB().fit(X, Y).set_params(var_smoothing=0.5)
    assert np.array_equal(nb.predict_proba(X), expected.predict_proba(X))


@EVERY_ESTIMATOR
def test_temperatures_make_labels_of_other_rows_most_probable(name):
    fitted, weights = make(name).fit(X[::4], Y[::4]), np.arange(len(X)) % 3
    joint = fitted.predict_joint_log_proba(X)

    def loss(temperature):
        logs = log_softmax(joint / temperature, axis=1)
        return -weights @ logs[np.arange(len(X)), Y]

    for kind in KINDS:
        fitted.calibrate(held(X, kind), held(Y, kind), held(weights, kind))
        best = fitted.temperature
        assert loss(best) <= min(loss(best * 0.999), loss(best * 1.001))
    proba = softmax(joint / best, axis=1)
    np.testing.assert_allclose(fitted.predict_proba(X), proba, atol=1e-12)
    for labels, message in ((Y + 1, "is 3, which is not one of the classes"), (Y[1:], "359")):
        with pytest.raises(ValueError, match=message):
            fitted.calibrate(X, labels)
    assert fitted.temperature == best


@pytest.mark.parametrize(
    ("estimator", "params"),
    [
        (GaussianNB(), {"var_smoothing": -1}),
        (GaussianNB(), {"priors": [0.5, 0.5, 0.5]}),
        (QuadraticDiscriminantAnalysis(), {"reg_param": 2}),
        (LinearDiscriminantAnalysis(), {"n_components": 3}),
        (LinearDiscriminantAnalysis(), {"solver": "qr"}),
        (GaussianNB(), {"var_smoothing": "much"}),
        (BernoulliNB(), {"alpha": -1}),
        (BernoulliNB(), {"class_prior": [0.5, 0.5]}),
        (GaussianDiscriminantAnalysis(), {"covariance_type": "round"}),
        (GaussianDiscriminantAnalysis(), {"shrinkage": "ledoit_wolf"}),
        (GaussianDiscriminantAnalysis(), {"temperature": 0}),
        (GaussianDiscriminantAnalysis(), {"ddof": "1"}),
        (GaussianDiscriminantAnalysis(), {"pooling": 1.1}),
        (GaussianDiscriminantAnalysis(), {"shrinkage": True}),
    ],
    ids=str,
)
def test_parameters_out_of_range_change_nothing(estimator, params):
    (name,) = params
    fitted = clone(estimator).fit(X, Y)
    moments = fitted.moments_.to_bytes()
    fitted.set_params(**params)
    for call in (lambda: fitted.fit(X, Y), lambda: fitted.predict_proba(X)):
        with pytest.raises(InvalidParameterError, match=name):
            call()
    with pytest.raises(InvalidParameterError, match=name):
        clone(fitted).fit(X, Y)
    assert fitted.moments_.to_bytes() == moments
    assert fitted._repr_html_()
    assert inspect.getmembers(fitted)
    assert not hasattr(fitted, "model_")


# --- errors -----------------------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_errors_leave_the_estimator_unchanged(name):
    fitted, holes = make(name).fit(X, Y), np.where(X > 1, np.nan, X)
    for method in ("fit", "partial_fit", "forget"):
        fails(InvalidDataError, "NaN", fitted, method, holes, Y)
        fails(ValueError, "inconsistent|rows", fitted, method, X, Y[:-1])
        wrong = {"sample_weight": [1, -1]}
        fails(InvalidDataError, "weights are finite", fitted, method, X[:2], Y[:2], **wrong)
        fails(InvalidDataError, "infinity", fitted, method, np.where(X > 1, np.inf, X), Y + 1)
        fails(ValueError, "continuous", fitted, method, X, Y + 0.5)
    for method in ("partial_fit", "forget"):
        fails(ValueError, "2 features", fitted, method, X[:, :2], Y)
        fails(ValueError, "do not mix|only rows", fitted, method, X, Y.astype(str))
    fails(InvalidDataError, "every sample_weight is zero", fitted, "fit", X, Y, 0 * Y)
    fails(MergeError, "only rows that were", fitted, "forget", np.vstack([X, X]), np.tile(Y, 2))
    fails(MergeError, "subtracting 3 rows of class 9", fitted, "forget", X[:3], [9, 9, 9])
    fails(InvalidDataError, "NaN", fitted, "predict", holes)
    fails(TypeError, "unexpected keyword argument 'colour'", fitted, "fit", X, Y, colour="red")
    fails(TypeError, "unexpected keyword argument 'colour'", fitted, "predict", X, colour="red")
    for method in ("predict", "predict_proba", "score_samples", "forget"):
        with pytest.raises(NotFittedError):
            getattr(make(name), method)(X)
    for attribute in ("classes_", "model_", *PARAMETERS):
        assert not hasattr(make(name), attribute)
    with pytest.raises(TypeError, match=r"expected (Class|Mixture)Moments"):
        type(fitted).from_moments(fitted)
    with pytest.raises(InvalidDataError, match="no row is left"):
        type(fitted).from_moments(type(fitted.moments_)(fitted.moments_.covariance_type))


def test_the_model_follows_moments_that_are_changed_elsewhere():
    nb = GaussianNB().fit(X[:200], Y[:200])
    nb.predict(X)
    nb.moments_.update(X[200:], Y[200:])
    np.testing.assert_allclose(nb.predict_proba(X), GaussianNB().fit(X, Y).predict_proba(X))
    moments = accumulate(X, Y)
    alone = QuadraticDiscriminantAnalysis.from_moments(moments)
    before = alone.predict_proba(X)
    moments.update(X[:50] + 5, Y[:50])
    assert np.array_equal(alone.predict_proba(X), before)


@EVERY_ESTIMATOR
def test_unlabelled_rows_and_accuracy(name):
    marked, weights = np.where(Y == 2, -1, Y), np.arange(len(X))
    two = make(name).fit(X, marked, unlabelled=-1)
    assert_equal_to_rounding(two, make(name).fit(X[Y < 2], Y[Y < 2]), FRESH)
    fitted = make(name).fit(X, Y)
    expected = pytest.approx(np.average(fitted.predict(X) == Y, weights=weights))
    for kind in KINDS:
        assert fitted.score(held(X, kind), held(Y, kind), held(weights, kind)) == expected


# --- what needs all rows at once --------------------------------------------------------------


def auto(kind):
    if kind is LinearDiscriminantAnalysis:
        return kind("lsqr", shrinkage="auto")
    if kind is QuadraticDiscriminantAnalysis:
        return kind(solver="eigen", shrinkage="auto")
    return kind("tied", shrinkage="auto")


@pytest.mark.parametrize(
    "kind",
    [LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis, GaussianDiscriminantAnalysis],
)
def test_auto_shrinkage_keeps_what_it_found_until_rows_change(kind):
    fitted = auto(kind).fit(X, Y)
    amounts, proba = fitted.shrinkage_, fitted.predict_proba(X)
    assert amounts.shape == (3,)
    for kind_of_rows in ("zarr", "dask"):
        again = auto(kind).fit(held(X, kind_of_rows), held(Y, kind_of_rows))
        np.testing.assert_allclose(again.shrinkage_, amounts, rtol=1e-12)
    loaded = type(fitted).from_bytes(fitted.to_bytes())
    assert np.array_equal(loaded.predict_proba(X), proba)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), proba)
    assert np.array_equal(fitted.set_params(temperature=1.0).predict_proba(X), proba)
    with pytest.raises(InvalidParameterError, match="partial_fit"):
        fitted.partial_fit(X, Y)
    with pytest.raises(InvalidParameterError, match="needs all rows at once"):
        auto(kind).partial_fit(X, Y)
    with pytest.raises(UnsupportedError, match="call fit"):
        kind.from_moments(fitted.moments_, **fitted.get_params())
    fitted.shrinkage = 0.1
    assert fitted.shrinkage_[0] == 0.1
    assert np.array_equal(fitted.predict_proba(X), clone(fitted).fit(X, Y).predict_proba(X))
    fitted.partial_fit(X, Y)
    with pytest.raises(UnsupportedError, match="call fit"):
        fitted.set_params(shrinkage="auto").predict(X)


# --- samples ----------------------------------------------------------------------------------


@EVERY_ESTIMATOR
def test_samples(name):
    labels = LABELS["text"]
    fitted = make(name).fit(X, labels)
    drawn, drawn_labels = fitted.sample(30_000, random_state=0)
    again, _ = fitted.sample(30_000, random_state=0)
    assert np.array_equal(drawn, again)
    assert drawn.shape == (30_000, 4)
    share = (drawn_labels[:, None] == fitted.classes_).mean(axis=0)
    np.testing.assert_allclose(share, [(labels == k).mean() for k in fitted.classes_], atol=0.02)
    # Fitted to its own samples, it is nearly the same model.
    agree = make(name).fit(drawn, drawn_labels).predict(X) == fitted.predict(X)
    assert agree.mean() > 0.97


def test_samples_of_given_classes():
    fitted = GaussianNB().fit(X, Y)
    assert fitted.sample(3, y=2)[1].tolist() == [2, 2, 2]
    assert fitted.sample(3, y=[2, 0, 1])[1].tolist() == [2, 0, 1]
    assert fitted.sample()[0].shape == (1, 4)
    with pytest.raises(InvalidParameterError, match="2 labels for 3 samples"):
        fitted.sample(3, y=[0, 1])
    with pytest.raises(InvalidParameterError, match="n_samples=0; expected at least 1"):
        fitted.sample(0)
