"""Streams that change: forgetting, sliding windows, unlearning, classes that come and go."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from grids import in_turn
from hypothesis import given
from hypothesis import strategies as st
from samples import (
    EVERY_ESTIMATOR,
    KINDS,
    assert_equal_to_rounding,
    blobs,
    bytes_of,
    fails,
    held,
    make,
    state_of,
)

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
)
from streamgda.errors import InvalidDataError, InvalidParameterError, MergeError


def assert_same_moments(found, expected, rtol=0.0):
    """The same attributes and arrays: to the bit, or to rounding."""
    assert found.classes.tolist() == expected.classes.tolist()
    (attributes, arrays), (others, expected_arrays) = state_of(found), state_of(expected)
    assert attributes == others
    if rtol:  # The mean is one sum of many.
        for state in (arrays, expected_arrays):
            if "origin" in state:
                state["mean"] = state.pop("origin") + state.pop("offset")
    for name, array in expected_arrays.items():
        scale = np.abs(array).max()
        np.testing.assert_allclose(arrays[name], array, rtol=0, atol=rtol * scale)


# --- forgetting -------------------------------------------------------------------------------


@EVERY_ESTIMATOR
@given(
    cuts=st.sets(st.integers(1, 149), max_size=5),
    half_life=st.sampled_from([15, 20, 150.0, 1e6]),
    weighted=st.booleans(),
    kind=st.sampled_from(KINDS),
)
def test_forgetting_in_any_chunks_is_weighting_by_age(
    name, cuts, half_life, weighted, kind, slabs_of
):
    slabs_of(1)
    X, y = blobs(150, 3)
    weights = np.random.default_rng(0).uniform(0, 2, 150) if weighted else np.ones(150)
    forgetting = make(name)
    for part in np.split(np.arange(150), sorted(cuts)):
        weight = held(weights[part], kind) if weighted else None
        rows, labels = (
            (X[part], y[part]) if kind == "frame" else (held(X[part], kind), held(y[part], kind))
        )
        forgetting.partial_fit(rows, labels, None, weight, half_life=half_life)
    by_age = weights * 0.5 ** (np.arange(149, -1, -1) / half_life)
    expected = make(name).fit(X, y, by_age)
    if name == "GaussianNB":  # Smoothing follows the weights of rows.
        expected = GaussianNB.from_moments(expected.moments_)
    assert_equal_to_rounding(forgetting, expected, X, 1e-10)


def test_a_class_that_is_forgotten_becomes_one_without_rows():
    X, y = blobs(900, 3)
    gone, rest = y == 0, y > 0
    model = QuadraticDiscriminantAnalysis().partial_fit(X[gone], y[gone])
    without = QuadraticDiscriminantAnalysis().fit(X[rest], y[rest])
    counts = []
    for _ in range(60):  # Weights pass all magnitudes of float64.
        model.partial_fit(X[rest], y[rest], half_life=40)
        assert np.isfinite(model.predict_proba(X)).all()
        counts.append(model.class_count_[0])
    assert 0 < counts[0] < 1
    assert counts[-1] == 0
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.predict_proba(X)[:, 0] == 0).all()
    assert (model.predict(X) == without.predict(X)).mean() > 0.95
    model.partial_fit(X[gone], y[gone], half_life=40)
    assert (model.predict(X[gone]) == 0).mean() > 0.8


@pytest.mark.parametrize("half_life", [0, -1.0, np.nan, np.inf, "ten", True])
def test_half_lives_that_are_none(half_life):
    X, y = blobs()
    model = GaussianNB().fit(X, y)
    message = "expected a number of rows above 0"
    fails(InvalidParameterError, message, model, "partial_fit", X, y, half_life=half_life)


# --- sliding windows --------------------------------------------------------------------------


@in_turn(
    "covariance_type, n_blocks, dtype",
    ["full", "tied", "diag"],
    [1, 2, 3, 7],
    [np.float64, np.uint8, np.uint8, np.float64, np.float64],
)
def test_a_window_holds_the_last_blocks_and_slides_on_when_it_was_saved(
    n_blocks, covariance_type, dtype, tmp_path
):
    X, y = blobs(330, 3)
    X = bytes_of(X) if dtype == np.uint8 else X
    window = SlidingWindow(n_blocks, covariance_type)
    starts = np.append(0, np.cumsum(np.arange(1, 25)))  # Blocks have 1, 2, ... rows.
    for i, (start, stop) in enumerate(pairwise(starts)):
        window.save(tmp_path / "window.npz")
        loaded = SlidingWindow.load(tmp_path / "window.npz")
        window.update(X[start:stop], y[start:stop])
        assert_same_moments(loaded.update(X[start:stop], y[start:stop]).moments, window.moments)
        assert repr(loaded) == repr(window)
        assert len(window) == min(i + 1, n_blocks)
        rows = slice(starts[max(0, i + 1 - n_blocks)], stop)
        expected = ClassMoments(covariance_type).update(X[rows], y[rows])
        assert_same_moments(window.moments, expected, 0 if dtype == np.uint8 else 1e-12)
        assert window.moments.exact or dtype == np.float64


def test_rows_that_leave_a_window_leave_no_trace():
    X, y = blobs()
    window, clean = SlidingWindow(3), SlidingWindow(3)
    for block in np.array_split(np.arange(300), 6):
        window.update(X[block], y[block])
    window.update(X * 1e12, y + 5)  # Subtracting this would leave rounding errors.
    for block in np.array_split(np.arange(300), 3):
        window.update(X[block], y[block])
        clean.update(X[block], y[block])
    assert window.moments.classes.tolist() == [0, 1, 2]
    assert_same_moments(window.moments, clean.moments, 1e-13)


def test_a_window_stays_as_it_was_where_a_block_does_not_fit():
    X, y = blobs(60, 3)
    window = SlidingWindow(2, "diag").update(X[:20], y[:20]).update(X[20:40], y[20:40])
    before = window.moments
    with pytest.raises(InvalidDataError, match="NaN"):
        window.update(np.full((3, 3), np.nan), [0, 1, 2])
    with pytest.raises(MergeError, match="3 features and of 2 features"):
        window.update(X[:, :2], y)
    with pytest.raises(MergeError, match="do not combine"):
        window.append(ClassMoments("full").update(X, y))
    with pytest.raises(InvalidDataError, match="do not mix"):
        window.update(X, y.astype(str))
    assert len(window) == 2
    assert_same_moments(window.moments, before)
    window.moments.update(X, y)  # The moments are a copy.
    assert_same_moments(window.moments, before)
    for n_blocks in (0, -1, 2.0, True, "2"):
        with pytest.raises(InvalidParameterError, match="whole number above 0"):
            SlidingWindow(n_blocks)


# --- unlearning -------------------------------------------------------------------------------


def test_weighted_rows_that_have_faded_are_forgotten_by_the_weights_that_they_have_by_now():
    """Smoothing of GaussianNB follows rows without weights only while these are known."""
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    weights = 1.0 + y
    nb = GaussianNB().partial_fit(X[:20], y[:20], sample_weight=weights[:20])
    nb.partial_fit(X[20:30], y[20:30], half_life=10)
    nb.partial_fit(X[30:], y[30:], sample_weight=weights[30:])
    nb.forget(X[:20], y[:20], sample_weight=weights[:20] / 2)
    late = GaussianNB().partial_fit(X[20:30], y[20:30], half_life=10)
    late.partial_fit(X[30:], y[30:], sample_weight=weights[30:])
    assert_same_moments(nb.moments_, late.moments_, 1e-9)
    assert nb.epsilon_ == pytest.approx(late.epsilon_)


# --- classes that come while rows are scored --------------------------------------------------

SOME = [GaussianNB, BernoulliNB, QuadraticDiscriminantAnalysis, LinearDiscriminantAnalysis]


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.__name__)
def test_labels_belong_to_the_scores_while_classes_come(kind):
    """Each new label is sorted before all others, and so changes the number of every class."""
    rng, done = np.random.default_rng(0), threading.Event()
    rows = {label: rng.normal([code & 1, code >> 1 & 1, code >> 2 & 1], 0.01, (20, 3)) - 0.5
            for code, label in enumerate("hgfedcba")}  # fmt: skip
    model = kind().partial_fit(np.vstack([rows["h"], rows["g"]]), ["h"] * 20 + ["g"] * 20)

    def predict():
        while not done.is_set():
            assert (model.predict(rows["h"]) == "h").all()
            probabilities = model.predict_proba(rows["h"])
            assert (probabilities.argmax(axis=1) == probabilities.shape[1] - 1).all()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            predicting = [pool.submit(predict) for _ in range(2)]
            for label in "fedcba":
                for _ in range(5):
                    model.partial_fit(rows[label], [label] * 20)
            done.set()
            for each in predicting:
                each.result(60)
    finally:
        done.set()
        sys.setswitchinterval(interval)


def test_a_parameter_that_is_set_while_the_model_is_computed_counts():
    class Priors(list):
        def __array__(self, dtype=None, copy=None):
            qda.shrinkage = 0.5  # Another thread may do this.
            return np.array([*self], dtype)

    X, y = blobs(100, 3)
    qda = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.0).fit(X, y)
    qda.priors = Priors([0.2, 0.3, 0.5])
    qda.predict(X)
    expected = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.5, priors=[0.2, 0.3, 0.5])
    np.testing.assert_array_equal(qda.predict_proba(X), expected.fit(X, y).predict_proba(X))
