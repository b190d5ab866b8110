"""Learning in pieces: any chunking gives the same model, and classes may appear at any time."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import (
    EVERY_ESTIMATOR,
    assert_equal_to_rounding,
    assert_same_bits,
    blobs,
    bytes_of,
    make,
    results,
)

import streamgda
from streamgda import ClassMoments, GaussianDiscriminantAnalysis, GaussianNB
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import exact


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
def test_fit_forgets_and_partial_fit_does_not(name):
    X, y = blobs()
    more, labels = blobs(seed=1)
    fresh = results(make(name).fit(more, labels), X)
    assert_same_bits(results(make(name).fit(X[:, :2], y).fit(more, labels), X), fresh)
    both = make(name).fit(X, y).partial_fit(more, labels)
    expected = make(name).fit(np.vstack([X, more]), np.append(y, labels))
    assert_equal_to_rounding(both, expected, X)


@EVERY_ESTIMATOR
@pytest.mark.parametrize("declared", [None, [0, 1, 2, 3]])
def test_new_classes_may_appear_at_any_time(name, declared):
    X, y = blobs(400, n_classes=4)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    estimator = make(name)
    for rows in np.array_split(np.arange(400), 4):
        estimator.partial_fit(X[rows], y[rows], classes=declared)
    assert_equal_to_rounding(estimator, make(name).fit(X, y), X)


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
def test_one_class_is_enough_to_start(name):
    X, y = blobs()
    estimator = make(name).partial_fit(X[y == 1], y[y == 1])
    assert estimator.classes_.tolist() == [1]
    assert (estimator.predict(X) == 1).all()
    estimator.partial_fit(X[y != 1], y[y != 1])
    assert_equal_to_rounding(estimator, make(name).fit(X, y), X)


def test_partial_fit_with_another_covariance_type():
    X, y = blobs()
    gda = GaussianDiscriminantAnalysis("full").fit(X, y).set_params(covariance_type="diag")
    # Moments of the full type hold the diagonal ones, but rows cannot be added to both.
    np.testing.assert_allclose(
        gda.predict_proba(X),
        GaussianDiscriminantAnalysis("full").fit(X, y).predict_proba(X),
    )
    with pytest.raises(InvalidParameterError, match=r"covariance_type='diag'.*kept for 'full'"):
        gda.partial_fit(X, y)


def test_classes_named_in_every_call_do_not_copy_the_moments():
    X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 3
    named, plain = GaussianNB(), GaussianNB()
    held = []
    for start in range(0, 60, 20):
        rows = slice(start, start + 20)
        held.append(named.partial_fit(X[rows], y[rows], classes=[0, 1, 2]).moments_)
        plain.partial_fit(X[rows], y[rows])
    assert all(moments is held[0] for moments in held)
    np.testing.assert_array_equal(named.var_, plain.var_)


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


def python_calls(function):
    """Return the number of Python functions that a call of a function enters.

    It is called three times: the collector of garbage, or another thread, may add to one of them.
    """
    numbers, profile = [], sys.getprofile()
    for _ in range(3):
        calls = []
        sys.setprofile(
            lambda frame, event, _, c=calls: c.append(frame) if event == "call" else None
        )
        try:
            function()
        finally:
            sys.setprofile(profile)
        numbers.append(len(calls))
    return min(numbers)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
@EVERY_ESTIMATOR
def test_few_rows_go_to_the_kernel_at_once(name, dtype):
    """Arrays with nothing to convert take few calls, whatever the options of other rows need."""
    X, y = blobs(60, 3)
    X = bytes_of(X) if dtype == np.uint8 else X
    classes = np.arange(3)
    estimator = make(name).partial_fit(X, y, classes).partial_fit(X[:1], y[:1], classes)
    before = estimator.class_count_.sum()
    most = 36 if name == "BernoulliNB" else 28  # which binarises, too
    assert python_calls(lambda: estimator.partial_fit(X[:1], y[:1], classes)) <= most
    assert estimator.class_count_.sum() == before + 3


@EVERY_ESTIMATOR
def test_few_rows_are_scored_at_once(name):
    X, y = blobs(60, 3)
    estimator = make(name).fit(X, y)
    expected = estimator.predict(X[:1])
    # After other tests in the same process, BernoulliNB enters 318 functions in place of 57.
    most = 350 if name == "BernoulliNB" else 90
    assert python_calls(lambda: estimator.predict(X[:1])) <= most
    np.testing.assert_array_equal(estimator.predict(X[:1]), expected)


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


def test_few_rows_stay_exact_as_long_as_their_sums_fit(monkeypatch):
    monkeypatch.setattr(exact, "_EXACT_ROWS", 12)
    X, y = bytes_of(blobs(12)[0]), np.arange(12) % 3
    moments = ClassMoments("diag")
    found = [moments.update(X[i : i + 1], y[i : i + 1]).exact for i in range(12)]
    assert found == [True] * 11 + [False]
    np.testing.assert_allclose(moments.means, ClassMoments("diag").update(X, y).means)


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
