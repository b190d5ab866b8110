"""Learning in pieces: any chunking gives the same model, and classes may appear at any time."""

import pickle

import numpy as np
import pandas as pd
import pytest
from grids import in_turn
from hypothesis import given
from hypothesis import strategies as st
from samples import (
    ESTIMATORS,
    EVERY_ESTIMATOR,
    EVERY_GAUSSIAN,
    GAUSSIANS,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)
from sklearn import discriminant_analysis, naive_bayes

import streamgda
from streamgda import GaussianDiscriminantAnalysis, GaussianNB, accumulate
from streamgda.errors import InvalidDataError, InvalidParameterError


@EVERY_ESTIMATOR
@given(
    cuts=st.sets(st.integers(1, 149)),
    seed=st.integers(0, 5),
    dtype=st.sampled_from([np.float64, np.float32, np.uint8]),
    offset=st.sampled_from([0.0, 1e4]),
    order=st.sampled_from(["shuffled", "by class"]),
)
def test_any_chunking_gives_the_same_model(name, cuts, seed, dtype, offset, order):
    X, y = blobs(150, 3, seed=seed)
    X = bytes_of(X) if dtype == np.uint8 else (X + offset).astype(dtype)
    if order == "by class":
        X, y = X[np.argsort(y)], np.sort(y)
    whole = make(name).fit(X, y)
    pieces = make(name)
    for rows in np.split(np.arange(150), sorted(cuts)):
        pieces.partial_fit(X[rows], y[rows])
    # Intercepts are differences of numbers that grow with the offset's square.
    assert_equal_to_rounding(pieces, whole, X, 1e-12 if not offset else 1e-11)
    if dtype == np.uint8:
        assert_same_bits(results(pieces, X), results(whole, X))


@EVERY_ESTIMATOR
def test_labels_may_become_longer_strings(name):
    X, y = blobs()
    labels = np.array(["a", "bcd", "much longer"])[y]
    order = np.argsort(y, kind="stable")
    estimator = make(name)
    for rows in np.array_split(order, 3):
        estimator.partial_fit(X[rows], np.array(labels[rows].tolist()))
    assert_equal_to_rounding(estimator, make(name).fit(X, labels), X)


@EVERY_ESTIMATOR
def test_declared_classes_without_rows(name):
    X, y = blobs()
    estimator = make(name).partial_fit(X, y, classes=[9, 0, 2, 1])
    assert estimator.classes_.tolist() == [0, 1, 2, 9]
    assert estimator.class_count_[3] == 0
    without = make(name).fit(X, y)
    np.testing.assert_array_equal(estimator.predict(X), without.predict(X))
    proba = estimator.predict_proba(X)
    assert not proba[:, 3].any()
    np.testing.assert_array_equal(proba[:, :3], without.predict_proba(X))
    assert (estimator.predict_log_proba(X)[:, 3] == -np.inf).all()
    assert 9 not in estimator.sample(500, random_state=0)[1]
    with pytest.raises(InvalidParameterError, match="cannot sample class 9"):
        estimator.sample(y=9)
    if name == "LDA":
        np.testing.assert_array_equal(estimator.transform(X), without.transform(X))


@EVERY_ESTIMATOR
@pytest.mark.parametrize("text", [False, True])
def test_declared_classes_bind(name, text, tmp_path):
    X, y = blobs()
    y = np.array(["ant", "bee", "cat"])[y] if text else y
    first, second, third = np.unique(y)
    some = y != third
    estimator = make(name).partial_fit(X[some], y[some], classes=[second, first])
    estimator.save(tmp_path / "file")
    for bound in (
        estimator,
        streamgda.load(tmp_path / "file"),
        pickle.loads(pickle.dumps(estimator)),
    ):
        before = results(bound, X)
        for labels, options in ((y, {}), (y[~some], {}), (y, {"sample_weight": np.ones(len(y))})):
            rows = X if len(labels) == len(X) else X[~some]
            with pytest.raises(InvalidDataError, match=f"is {third}, which is not one of the cla"):
                bound.partial_fit(rows, labels, **options)
        for others in ([first, second, third], [first], ["other"], [7]):
            with pytest.raises(InvalidParameterError, match="not the same as on the last call"):
                bound.partial_fit(X[some], y[some], classes=others)
        assert_same_bits(results(bound, X), before)
        bound.partial_fit(X[some][:9], y[some][:9], classes=[first, second])
        bound.partial_fit(X[some][9:], y[some][9:])
    assert estimator.fit(X, y).classes_.size == 3
    with pytest.raises(InvalidParameterError, match="of which rows were learnt"):
        estimator.partial_fit(X, y, classes=[first, second])
    estimator.partial_fit(X[some], y[some], classes=[first, second, third])
    assert_equal_to_rounding(
        estimator, make(name).fit(np.vstack([X, X[some]]), np.append(y, y[some])), X
    )


@EVERY_ESTIMATOR
def test_few_rows_change_the_model(name):
    X, y = blobs(90, 3)
    used, unused = make(name).partial_fit(X[:80], y[:80]), make(name).partial_fit(X[:80], y[:80])
    for i in range(80, 90):
        used.predict(X)
        used.partial_fit(X[i : i + 1], y[i : i + 1])
        unused.partial_fit(X[i : i + 1], y[i : i + 1])
    assert_same_bits(results(used, X), results(unused, X))
    one = results(used, X)
    with pytest.raises(InvalidDataError):
        used.partial_fit(np.full((1, 3), np.nan), y[:1])
    assert_same_bits(results(used, X), one)


def test_few_rows_are_warned_of_like_others():
    X, y = blobs(60, 3)
    names = [f"x{j}" for j in range(X.shape[1])]
    nb = GaussianNB().partial_fit(pd.DataFrame(X, columns=names), y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        nb.partial_fit(X[:1], y[:1])
    assert nb.class_count_.sum() == 61


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_a_few_rows_that_are_not_finite_are_refused_as_a_whole(bad):
    X, y = blobs(60, 3)
    nb = GaussianNB().fit(X, y)
    held, changes = [nb.class_count_, nb.theta_.tobytes(), nb.var_.tobytes()], nb.moments_.changes
    X[2, 1] = bad
    with pytest.raises(InvalidDataError, match=r"row 2, column 1|overflow"):
        nb.partial_fit(X[:4], y[:4])
    now = [nb.class_count_, nb.theta_.tobytes(), nb.var_.tobytes()]
    assert np.array_equal(held[0], now[0])
    assert held[1:] == now[1:]
    assert nb.moments_.changes == changes


# --- one class only, at the start of a stream sorted by class or in all rows ----------------------

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


@in_turn("name, classes", ESTIMATORS, [None, [0, 1, 2]])
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


@pytest.mark.parametrize("kind", [GaussianNB, streamgda.QuadraticDiscriminantAnalysis])
def test_a_model_stays_as_it_is_while_rows_are_added(kind):
    """That includes the rounding errors of means, which count for rows as far from zero as here."""
    far = X + 1e8
    estimator = kind().partial_fit(far[:60], Y[:60])
    model = estimator.model_
    assert model.means_low is not None
    scores, errors = model.joint_log_likelihood(far), model.means_low.copy()
    for row in range(60, 70):
        estimator.partial_fit(far[row : row + 1], Y[row : row + 1])
    np.testing.assert_array_equal(model.means_low, errors)
    np.testing.assert_array_equal(model.joint_log_likelihood(far), scores)


@EVERY_GAUSSIAN
@given(
    actions=st.lists(
        st.sampled_from(["row", "rows", "weight", "fade", "forget", "class"]),
        min_size=1,
        max_size=9,
    ),
    seed=st.integers(0, 9),
)
def test_the_model_of_a_stream_is_that_of_its_moments(name, actions, seed):
    """To the bit, whatever came; and its p-values are those of the rows so far, also later."""
    rng, (X, y) = np.random.default_rng(seed), blobs(90, 3)
    stream = make(name).partial_fit(X[:60], y[:60])
    kept = []
    for action in actions:
        at = rng.integers(60, 90, 1 if action in ("row", "forget") else 5)
        if action == "weight":
            stream.partial_fit(X[at], y[at], sample_weight=rng.uniform(0.5, 2, 5))
        elif action == "fade":
            stream.partial_fit(X[at], y[at], half_life=20)
        elif action == "forget":
            stream.partial_fit(X[at], y[at]).forget(X[at], y[at])
        elif action == "class":
            stream.partial_fit(X[:30], np.full(30, 7))
        else:
            stream.partial_fit(X[at], y[at])
        fresh = type(stream).from_moments(stream.moments_, **stream.get_params())
        fresh._beside = stream._beside
        fresh.refit()
        for method in ("predict", "predict_proba"):
            found = getattr(stream, method)(X[60:])
            np.testing.assert_array_equal(found, getattr(fresh, method)(X[60:]))
        kept.append((stream.model_, fresh.p_values(X[60:])))
    for model, p_values in kept:
        np.testing.assert_array_equal(model.p_values(X[60:]), p_values)


def test_a_model_of_no_rows_is_refused():
    nb = GaussianNB().fit(X, Y).retire([0, 1, 2])
    with pytest.raises(InvalidDataError, match="no class has rows"):
        nb.predict(X)


@EVERY_ESTIMATOR
def test_moments_accumulated_apart_are_those_of_fit(name, tmp_path):
    estimator, rows = make(name), bytes_of(X)
    options = {"max_memory": "1GB", "checkpoint": tmp_path / "kept"}
    moments = estimator.accumulate(rows, Y, **options)
    assert not hasattr(estimator, "n_features_in_")
    whole = make(name).fit(rows, Y)
    made = type(estimator).from_moments(moments, **estimator.get_params())
    assert_same_bits(results(made, rows), results(whole, rows))
    half = estimator.accumulate(rows[:50], Y[:50], progress=lambda *_: None)
    both = estimator.accumulate(rows[50:], Y[50:], into=half)
    made = type(estimator).from_moments(both, **estimator.get_params())
    assert_same_bits(results(made, rows), results(whole, rows))
    assert half.class_count.sum() == 50


def test_moments_that_an_estimator_cannot_have_are_refused_before_the_pass():
    never = iter(())
    with pytest.raises(InvalidParameterError, match="priors has shape"):
        GaussianNB(priors=[0.5, 0.5]).accumulate(X, Y, progress=never.__next__)
    shrunk = GaussianDiscriminantAnalysis(shrinkage="auto")
    with pytest.raises(InvalidParameterError, match="auto"):
        shrunk.accumulate(X, Y, into=accumulate(X, Y))
    made = GaussianDiscriminantAnalysis.from_moments(shrunk.accumulate(X, Y), shrinkage="auto")
    np.testing.assert_allclose(made.covariance_, shrunk.fit(X, Y).covariance_)
