"""Choices by folds: in a stream, in groups and of merged moments they are those of `fit`."""

import pickle

import naive
import numpy as np
import pytest
from samples import held
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GroupKFold

from streamgda import GaussianDiscriminantCV, RandomFeatures, Ridge, RidgeClassifier, Standardize
from streamgda.engine.folds import fold_of

X, Y = load_diabetes(return_X_y=True)
BOTH = np.column_stack([Y, X[:, 0] + np.random.default_rng(0).normal(size=len(Y))])
IRIS, KINDS = load_iris(return_X_y=True)
TEXTS = np.array(["b", "c", "a"])[KINDS]
ALPHAS = [1e-3, 1e-2, 0.1, 1.0, 10.0]
SEARCH = GaussianDiscriminantCV(
    {"covariance_type": ["full", "tied"], "shrinkage": [0.1, "oas"]},
    scoring="joint_log_likelihood",
    random_state=4,
)
BEHIND = [RandomFeatures(6, "fourier"), Standardize()]
# An estimator, rows, targets or labels, and the targets whose squared errors are compared, if any.
CHOICES = {
    "ridge": (Ridge(alphas=ALPHAS, cv=4), X, Y, Y),
    "targets": (Ridge(alphas=ALPHAS, random_state=3), X, BOTH, BOTH),
    "classes": (
        RidgeClassifier(alphas=ALPHAS, cv=3),
        *(IRIS, TEXTS, 2.0 * (KINDS[:, None] == [2, 0, 1]) - 1),
    ),
    "two classes": (RidgeClassifier(alphas=ALPHAS), IRIS, KINDS > 0, 2.0 * (KINDS > 0) - 1),
    "search": (SEARCH, IRIS, TEXTS, None),
    "search behind maps": (clone(SEARCH).set_params(feature_map=BEHIND), IRIS, TEXTS, None),
}
EVERY_CHOICE = pytest.mark.parametrize("name", CHOICES)


def assert_same_choice(found, expected, rows, rtol=1e-9):
    for name, column in expected.cv_results_.items():
        if name != "params":
            np.testing.assert_allclose(found.cv_results_[name], column, rtol=rtol, err_msg=name)
    method = "predict" if isinstance(found, Ridge) else "decision_function"
    wanted = getattr(expected, method)(rows)
    atol = rtol * np.abs(wanted).max()
    np.testing.assert_allclose(getattr(found, method)(rows), wanted, rtol=0, atol=atol)


def assert_scores(found, rows, codes, folds, weights):
    """Compare with fits to the rows of each training set, if squared errors are the scores."""
    if codes is not None:
        scores = naive.penalty_scores(rows, codes, ALPHAS, folds, weights).mean(axis=1)
        np.testing.assert_allclose(found.cv_results_["mean_test_score"], scores, rtol=1e-9)


def streamed(estimator, rows, y, kind="numpy", **beside):
    """The estimator after some batches; between them it is saved and pickled."""
    for at in np.split(np.arange(len(y)), [30, 31, 90]):
        own = {name: values[at] for name, values in beside.items()}
        estimator.partial_fit(held(rows[at], kind), held(y[at], kind), **own)
        estimator = pickle.loads(pickle.dumps(type(estimator).from_bytes(estimator.to_bytes())))
    return estimator


@EVERY_CHOICE
@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_chooses_as_fit_does(name, kind, weighted):
    estimator, rows, y, codes = CHOICES[name]
    weights = np.random.default_rng(1).uniform(0.1, 2, len(y))
    beside = {"sample_weight": weights} if weighted else {}
    whole = clone(estimator).fit(rows, y, **beside)
    assert_same_choice(streamed(clone(estimator), rows, y, kind, **beside), whole, rows)
    folds = fold_of(0, len(y), estimator.cv, estimator.random_state or 0)
    assert_scores(whole, rows, codes, folds, weights if weighted else np.ones(len(y)))


@EVERY_CHOICE
def test_groups_are_folds(name):
    estimator, rows, y, codes = CHOICES[name]
    groups = np.random.default_rng(2).choice(["x", "y", "z", "zz"], len(y))
    whole = clone(estimator).fit(rows, y, groups=groups)
    assert_scores(whole, rows, codes, groups, np.ones(len(y)))
    cuts = np.split(np.arange(len(y)), [50, 90])
    parts = [clone(estimator).partial_fit(rows[at], y[at], groups=groups[at]) for at in cuts]
    params, d = estimator.get_params(), rows.shape[1]
    params |= {"target": [*range(d, d + y[0].size)]} if isinstance(estimator, Ridge) else {}
    merged = type(estimator).from_moments(sum(part.moments_ for part in parts), **params)
    more = clone(estimator).partial_fit(rows, y, groups=groups)
    more.partial_fit(2 * rows, y, groups=groups).forget(2 * rows, y, groups=groups)
    for found in (streamed(clone(estimator), rows, y, groups=groups), merged, more):
        assert_same_choice(found, whole, rows, 1e-7)


def test_penalties_count_at_once():
    ridge = Ridge(alphas=ALPHAS, cv=4).partial_fit(X, Y)
    for alphas in ([1.0, 2.0], [0.3]):
        assert_same_choice(ridge.set_params(alphas=alphas), Ridge(alphas=alphas, cv=4).fit(X, Y), X)
    np.testing.assert_allclose(ridge.set_params(alphas=None).coef_, Ridge(1.0).fit(X, Y).coef_)
    assert not hasattr(ridge, "cv_results_")


@EVERY_CHOICE
def test_invalid_rows_have_numbers_and_old_rows_fade(name):
    estimator, rows, y, _ = CHOICES[name]
    holes = np.where(np.arange(len(y))[:, None] == 33, np.nan, rows)
    whole = clone(estimator).fit(holes, y, on_invalid="skip")
    batches = clone(estimator).partial_fit(holes[:40], y[:40], on_invalid="skip")
    assert_same_choice(batches.partial_fit(holes[40:], y[40:]), whole, rows)
    fading = clone(estimator)
    for at in np.split(np.arange(len(y)), [70]):
        fading.partial_fit(rows[at], y[at], half_life=100)
    by_age = 0.5 ** (np.arange(len(y))[::-1] / 100)
    assert_same_choice(fading, clone(estimator).fit(rows, y, by_age), rows, 1e-7)


GROUPS = np.arange(len(Y)) % 5


def test_groups_whose_rows_have_faded_are_not_held_out():
    ridge = Ridge(alphas=ALPHAS).partial_fit(X, Y, groups=GROUPS)
    ridge.partial_fit(X[:1], Y[:1], groups=[9], half_life=1e-3)
    ridge.partial_fit(X, Y, groups=GROUPS + 5)
    expected = Ridge(alphas=ALPHAS).partial_fit(X, Y, groups=GROUPS)
    assert_same_choice(ridge, expected.partial_fit(X[:1], Y[:1], groups=[4]), X)


BY_GROUP = Ridge(alphas=ALPHAS).partial_fit(X, Y, groups=GROUPS)
BY_NUMBER = Ridge(alphas=ALPHAS).partial_fit(X, Y)


@pytest.mark.parametrize(
    ("estimator", "call", "message"),
    [
        (BY_GROUP, lambda e: e.partial_fit(X, Y), "pass groups= again"),
        (BY_NUMBER, lambda e: e.partial_fit(X, Y, groups=GROUPS), "from the first call on"),
        (BY_NUMBER, lambda e: e.forget(X[:9], Y[:9]), "pass groups= to partial_fit"),
        (BY_NUMBER, lambda e: e.forget(X[:9], Y[:9], groups=GROUPS[:9]), "pass groups="),
        (BY_GROUP, lambda e: e.forget(X[:9], Y[:9]), "the same ones to forget"),
        (BY_GROUP, lambda e: e.partial_fit(X, Y, groups=GROUPS[:-1]), "442 rows but there are 441"),
        (BY_GROUP, lambda e: e.partial_fit(X, Y, groups=GROUPS / 2), "continuous"),
        (BY_GROUP, lambda e: e.partial_fit(X, Y, groups=GROUPS.astype(str)), "do not mix"),
        (BY_GROUP, lambda e: e.partial_fit(X, BOTH, groups=GROUPS), "2 targets"),
        (BY_GROUP, lambda e: e.forget(X, Y, groups=GROUPS + 1), "only rows that were added"),
        (BY_NUMBER, lambda e: clone(e).set_params(cv=GroupKFold(2)).partial_fit(X, Y), "all rows"),
        (BY_NUMBER, lambda e: clone(e).partial_fit(X[:1], Y[:1]).coef_, "rows of two folds"),
        (Ridge().fit(X, Y), lambda e: clone(e).partial_fit(X, Y, groups=GROUPS), "no alphas"),
    ],
)
def test_wrong_calls_leave_folds_as_they_were(estimator, call, message):
    before = estimator.to_bytes()
    with pytest.raises(ValueError, match=message):
        call(estimator)
    assert estimator.to_bytes() == before
