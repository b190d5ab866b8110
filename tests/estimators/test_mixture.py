"""Mixture discriminants: components of classes, whose rows are found in the pass.

What every classifier promises is in `test_conformance.py` and `test_heads.py`, with one component.
"""

import pickle
from copy import deepcopy

import dask.array as da
import naive
import numpy as np
import pytest
from samples import assert_same_bits, blobs, fails, held, results
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.mixture import GaussianMixture

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    MixtureDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    RandomFeatures,
    load,
)
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MergeError,
    SingularCovarianceError,
    SingularCovarianceWarning,
    UnsupportedError,
)

X, Y = blobs(900, seed=3)
X = X + 4 * np.random.default_rng(0).integers(0, 2, (900, 1))  # Each class has two parts.
FRESH, _ = blobs(60, seed=4)
TEXTS = np.array(["ant", "bee", "cat"])[Y]
WAYS = {  # Regularisation by covariance type.
    "full": {"pooling": 0.2, "reg_param": 0.01},
    "diag": {"pooling": 0.5},
    "spherical": {"pooling": 0.0},
    "tied": {"pooling": 0.0, "shrinkage": 0.05},
    "tied_diag": {"pooling": 0.0},
}


def nearest(estimator, rows, labels):
    """The component of each row within its class: that of the nearest centre."""
    parts = np.empty(len(rows), int)
    for k, label in enumerate(estimator.classes_):
        centres = estimator.moments_.partition.parts[k].centres
        own = labels == label
        parts[own] = ((rows[own][:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    return parts


def assert_equal(found, expected, rtol=1e-10):
    for method, answers in results(expected, FRESH).items():
        own = getattr(found, method)(FRESH)
        if answers.dtype.kind == "f":
            scale = rtol * np.abs(answers).max()
            np.testing.assert_allclose(own, answers, rtol=0, atol=scale, err_msg=method)
        else:
            assert np.array_equal(own, answers)


# --- the model --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("offset", [0, 1e6])
@pytest.mark.parametrize("n_iter", [0, 2])
def test_densities_are_those_of_the_formulas(kind, offset, n_iter):
    given = WAYS[kind]
    rows, fresh = X + offset, FRESH + offset
    start = MixtureDiscriminantAnalysis(4, kind, **given).fit(rows, TEXTS)
    parts = nearest(start, rows, TEXTS)
    for _ in range(n_iter):  # Rows go to the component of the largest joint score of their class.
        scores = naive.class_mixtures(rows, Y, parts, rows, kind, **given)
        parts = np.array([scores[k][i].argmax() for i, k in enumerate(Y)])
    found = MixtureDiscriminantAnalysis(4, kind, n_iter=n_iter, **given).fit(rows, TEXTS)
    assert found.component_classes_.tolist() == [*np.repeat(["ant", "bee", "cat"], 4)]
    counts = [np.bincount(parts[k == Y]) for k in range(3)]
    np.testing.assert_allclose(found.weights_, np.hstack([n / n.sum() for n in counts]))
    joint = naive.class_mixtures(rows, Y, parts, fresh, kind, **given)
    expected = np.stack([naive.log_density(each) for each in joint], axis=1)
    scale = 1e-10 if not offset else 1e-8
    np.testing.assert_allclose(found.predict_joint_log_proba(fresh), expected, rtol=scale)
    np.testing.assert_allclose(found.score_samples(fresh), naive.log_density(expected), rtol=scale)
    log_proba = naive.log_posterior(expected)
    np.testing.assert_allclose(found.predict_log_proba(fresh), log_proba, rtol=0, atol=1e3 * scale)
    assert np.array_equal(found.predict(fresh), found.classes_[expected.argmax(axis=1)])


def test_parts_of_classes_are_found():
    rows, labels = make_moons(4000, noise=0.15, random_state=0)
    qda = QuadraticDiscriminantAnalysis().fit(rows[:2000], labels[:2000])
    mda = MixtureDiscriminantAnalysis(8).fit(rows[:2000], labels[:2000])
    assert mda.score(rows[2000:], labels[2000:]) > 0.985
    assert qda.score(rows[2000:], labels[2000:]) < 0.9
    one = MixtureDiscriminantAnalysis(1, reg_param=0.1).fit(X, Y)
    many = GaussianDiscriminantAnalysis(reg_param=0.1).fit(X, Y)
    np.testing.assert_allclose(one.p_values(X), many.p_values(X), atol=1e-12)
    np.testing.assert_allclose(one.predict_proba(X), many.predict_proba(X), atol=1e-12)


def test_rows_without_labels_are_a_mixture():
    train, test = X[:600], X[600:]
    found = MixtureDiscriminantAnalysis(3, n_iter=5, pooling=0.0).fit(train)
    assert found.classes_.tolist() == [0]
    soft = GaussianMixture(3, random_state=0).fit(train).score(test)
    assert found.score_samples(test).mean() > soft - 0.02 * X.shape[1]
    drawn = found.sample(20_000, random_state=0)[0]
    np.testing.assert_allclose(drawn.mean(axis=0), train.mean(axis=0), atol=0.1)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(train.T), rtol=0.1, atol=0.1)
    batches = MixtureDiscriminantAnalysis(3)
    for start in range(0, 600, 100):
        batches.partial_fit(train[start : start + 100])
    assert batches.class_count_.tolist() == [600]


def test_answers_of_samples_and_of_outliers():
    found = MixtureDiscriminantAnalysis(2, pooling=0.0).fit(X, TEXTS)
    drawn, labels = found.sample(30_000, random_state=0)
    again = MixtureDiscriminantAnalysis(2, pooling=0.0).fit(drawn, labels)
    assert (again.predict(X) == found.predict(X)).mean() > 0.97
    share = (found.predict(drawn, reject=0.05, reject_label="none") == "none").mean()
    assert 0.02 < share < 0.06
    assert (found.predict(FRESH + 99, reject=0.05, reject_label="none") == "none").all()
    own = found.mahalanobis(X, TEXTS)
    assert np.array_equal(own, found.mahalanobis(X)[np.arange(len(X)), Y])
    gaps = X.copy()
    gaps[::3, 1] = np.nan
    marginal = found.predict_joint_log_proba(gaps, on_missing="marginal")
    some = MixtureDiscriminantAnalysis(2, pooling=0.0)
    assert np.array_equal(marginal[1::3], found.predict_joint_log_proba(X[1::3]))
    assert (marginal[::3] > found.predict_joint_log_proba(X[::3]) - 1e3).all()
    odds = clone(some).fit(X[Y < 2], Y[Y < 2])
    both = odds.predict_joint_log_proba(FRESH)
    np.testing.assert_allclose(odds.decision_function(FRESH), both[:, 1] - both[:, 0], atol=1e-9)
    with pytest.raises(UnsupportedError, match="no formula for mixtures"):
        found.leave_one_out_score(X, TEXTS)
    with pytest.raises(UnsupportedError, match="scikit-learn has no Mixture"):
        found.to_sklearn()


# --- rows of all kinds ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["frame", "zarr", "dask", "sparse", "float32"])
@pytest.mark.parametrize("feature_map", [None, RandomFeatures(6)])
def test_rows_of_all_kinds(kind, feature_map, tmp_path):
    made = MixtureDiscriminantAnalysis(3, n_iter=1, reg_param=0.01, feature_map=feature_map)
    if kind == "sparse":
        found = made.fit(sparse.csr_array(X), Y)
    elif kind == "float32":
        found = made.fit(X.astype(np.float32), Y)
    else:
        found = made.fit(held(X, kind), held(Y, kind))
    again = clone(made).fit(X, Y)  # Chunks give a sample of other places.
    assert found.class_count_.tolist() == again.class_count_.tolist()
    assert found.score_samples(X).mean() == pytest.approx(again.score_samples(X).mean(), abs=0.2)
    rows = found.moments_._emptied().update(X, Y)
    np.testing.assert_allclose(rows.counts, found.moments_.counts, atol=2)
    written = found.predict_proba(held(X, "zarr"), out=str(tmp_path / "out.zarr"))
    assert np.array_equal(written[:], found.predict_proba(X))
    assert np.array_equal(found.predict(da.from_array(X, chunks=100)).compute(), found.predict(X))


def test_classes_are_found_wherever_they_are():
    n = 60_000
    rows, labels = np.random.default_rng(0).normal(size=(n, 2)), np.sort(np.arange(n) % 7)
    labels[-40:] = 9  # Class 9 is rare.
    made = MixtureDiscriminantAnalysis(4, pooling=0.5)
    for kind in ("numpy", "zarr", "dask"):
        found = clone(made).fit(held(rows, kind, 5000), held(labels, kind, 5000))
        assert np.bincount(found.component_classes_).tolist() == [4] * 7 + [0, 0, 4]
        assert found.weights_[:28].min() > 0.05
    by_dask = made.fit(da.from_array(rows, chunks=5000), labels)
    assert_same_bits(results(by_dask, rows[:50]), results(found, rows[:50]))


def test_rows_that_do_not_count():
    bad, weights = X.copy(), np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    bad[::5, 2] = np.nan
    good = np.arange(len(X)) % 5 > 0
    start = MixtureDiscriminantAnalysis(2).fit(X, Y)
    for options in ({}, {"sample_weight": weights}):
        own = {name: value[good] for name, value in options.items()}
        skipped = deepcopy(start).partial_fit(bad, Y, on_invalid="skip", **options)
        assert_equal(skipped, deepcopy(start).partial_fit(X[good], Y[good], **own))
    marked = np.where(Y == 2, -1, Y)
    found = MixtureDiscriminantAnalysis(2).fit(bad, marked, on_invalid="skip", unlabelled=-1)
    assert found.classes_.tolist() == [0, 1]
    assert found.class_count_.tolist() == np.bincount(Y[good])[:2].tolist()


# --- streams and merging ----------------------------------------------------------------------


def test_streams_merges_and_forgotten_rows():
    start = MixtureDiscriminantAnalysis(3, n_iter=1).partial_fit(X[:300], TEXTS[:300])
    first = start.moments_.copy()
    stream = deepcopy(start)
    for at in range(300, 900, 37):
        stream.partial_fit(X[at : at + 37], TEXTS[at : at + 37])
        stream = pickle.loads(pickle.dumps(stream))
    whole = deepcopy(start).partial_fit(X[300:], TEXTS[300:])
    assert_equal(stream, whole)
    one = deepcopy(start).partial_fit(X[300:500], TEXTS[300:500])
    other = type(start).from_bytes(start.to_bytes()).partial_fit(X[500:], TEXTS[500:])
    merged = one.moments_ + other.moments_ - first
    assert_equal(type(start).from_moments(merged, **start.get_params()), whole)
    assert_equal(deepcopy(whole).forget(X[300:], TEXTS[300:]), start, 1e-8)
    half = deepcopy(start).partial_fit(X[300:], TEXTS[300:], half_life=50)
    assert half.class_count_.sum() == pytest.approx(50 / np.log(2), rel=0.1)
    stranger = MixtureDiscriminantAnalysis(3, random_state=6).fit(X, TEXTS)
    for call in (lambda: merged + stranger.moments_, lambda: merged - stranger.moments_):
        with pytest.raises(MergeError, match="other centres"):
            call()


def test_classes_that_come_later_get_centres():
    late = MixtureDiscriminantAnalysis(2, n_iter=2).partial_fit(X[Y < 2], Y[Y < 2])
    before = late.predict_joint_log_proba(FRESH)
    late.partial_fit(X[Y == 2], Y[Y == 2]).partial_fit(X[:1], Y[:1])
    assert late.component_classes_.tolist() == [0, 0, 1, 1, 2, 2]
    own = MixtureDiscriminantAnalysis(2, n_iter=2).fit(X[Y == 2], Y[Y == 2])
    np.testing.assert_allclose(late.means_[4:], own.means_)
    assert before.shape == (60, 2)
    with pytest.raises(InvalidDataError, match="class 7 has no centres"):
        late.moments_.update(X[:3], [0, 1, 7])
    declared = MixtureDiscriminantAnalysis(2).partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 2])
    assert (declared.predict_proba(FRESH)[:, 2] == 0).all()
    assert declared.partial_fit(X, Y).weights_.size == 6


def test_saved_estimators_continue(tmp_path):
    found = MixtureDiscriminantAnalysis(3, "diag", n_iter=1).fit(X, TEXTS)
    found.save(tmp_path / "model.npz")
    found.moments_.save(tmp_path / "moments.npz")
    again = load(tmp_path / "model.npz")
    assert_same_bits(results(again, FRESH), results(found, FRESH))
    moments = load(tmp_path / "moments.npz")
    assert moments.to_bytes() == found.moments_.to_bytes()
    moments.update(X, TEXTS)
    again.partial_fit(X, TEXTS)
    assert again.moments_.to_bytes() == moments.to_bytes()
    total = found.moments_.total()
    expected = ClassMoments("diag").update(X, TEXTS)
    np.testing.assert_allclose(total.covariance(), expected.covariance(), rtol=1e-12)


# --- few rows, and bad calls ------------------------------------------------------------------


def test_components_without_a_covariance_are_left_out():
    rows = np.vstack([X, X[:1] + 50])
    labels = np.append(Y, 0)
    with pytest.warns(SingularCovarianceWarning, match=r"1 of 9 components .* 1 rows"):
        found = MixtureDiscriminantAnalysis(3, pooling=0.0).fit(rows, labels)
    assert np.isfinite(found.predict_log_proba(FRESH)).all()
    np.testing.assert_allclose(np.exp(found.predict_log_proba(FRESH)).sum(axis=1), 1)
    pooled = MixtureDiscriminantAnalysis(3, pooling=0.1).fit(rows, labels)
    assert (pooled.predict(X[:1] + 50) == 0).all()
    with pytest.raises(SingularCovarianceError, match="class 9"):
        MixtureDiscriminantAnalysis(3).fit(rows, np.append(Y, 9))
    few = MixtureDiscriminantAnalysis(20, reg_param=0.1).fit(X[:15], Y[:15])
    assert few.weights_.size == 15
    constant = np.column_stack([X, np.ones(len(X))])
    with pytest.warns(UserWarning, match="constant"):
        wide = MixtureDiscriminantAnalysis(3, n_iter=1).fit(constant, Y)
    narrow = MixtureDiscriminantAnalysis(3, n_iter=1).fit(X, Y)
    np.testing.assert_allclose(wide.predict_proba(constant), narrow.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_components", 0),
        ("n_components", 2.5),
        ("n_iter", -1),
        ("pooling", 2),
        ("shrinkage", "auto"),
        ("random_state", None),
        ("covariance_type", "round"),
        ("priors", [0.5, 0.5]),
    ],
)
def test_bad_parameters_change_nothing(name, value):
    with pytest.raises(InvalidParameterError, match=name):
        MixtureDiscriminantAnalysis(**{"n_components": 2} | {name: value}).fit(X, Y)
    fitted = MixtureDiscriminantAnalysis(2).fit(X, Y).set_params(**{name: value})
    fails(InvalidParameterError, name, fitted, "fit", X, Y)


def test_bad_rows_change_nothing():
    fitted = MixtureDiscriminantAnalysis(2).fit(X, Y)
    bad = X.copy()
    bad[700, 1] = np.inf
    for method in ("fit", "partial_fit"):
        fails(InvalidDataError, "row 700, column 1", fitted, method, bad, Y)
        fails(InvalidDataError, "row 700, column 1", fitted, method, bad, Y + 1)
        fails(InvalidDataError, "overflow", fitted, method, X * 1e300, Y)
        fails(ValueError, "rows", fitted, method, X, Y[:-1])
    fails(InvalidDataError, "do not mix", fitted, "partial_fit", X, TEXTS)
    fails(ValueError, "2 features", fitted, "partial_fit", X[:, :2], Y)
    fails(ValueError, "2 features", fitted, "partial_fit", X[:, :2], Y + 3)
