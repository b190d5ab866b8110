"""Which rows are learnt: unlabelled and invalid ones are not, at every door."""

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import KINDS, blobs, held
from sklearn.base import clone
from sklearn.covariance import LedoitWolf

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
    ThresholdClassifier,
    accumulate,
)
from streamgda.engine import plan
from streamgda.errors import InvalidDataError, InvalidParameterError

NODATA = -9999
RNG = np.random.default_rng(5)
CLEAN, TRUTH = blobs(n_features=3)
X, y = CLEAN.copy(), TRUTH.astype(float)
X[RNG.random(len(X)) < 0.1, 1] = np.nan
X[RNG.random(len(X)) < 0.1] = NODATA
X[7, 2] = np.inf
y[RNG.random(len(X)) < 0.1] = np.nan
WEIGHTS = RNG.integers(0, 3, len(X)).astype(float)
COUNTING = {"on_invalid": "skip", "nodata": NODATA, "unlabelled": [0]}
GOOD, SKIPPED = naive.rows_that_count(X, y.tolist(), nodata=NODATA, unlabelled=[0])
ESTIMATORS = {
    "LDA": LinearDiscriminantAnalysis(),
    "two passes": QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    "covariance_estimator": LinearDiscriminantAnalysis(
        solver="eigen", covariance_estimator=LedoitWolf()
    ),
    "norms": GaussianDiscriminantAnalysis(shrinkage="oas"),
    "GaussianNB": GaussianNB(),
    "BernoulliNB": BernoulliNB(),
    "threshold": ThresholdClassifier(),
}
EVERY = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)


def same(found, expected):
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-10)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-8, atol=1e-10)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_rows_that_count_are_those_of_a_plain_loop(data):
    n, d = data.draw(st.integers(1, 12)), 2
    values = st.sampled_from([0.0, 1.0, 2.5, -3.0, np.nan, np.inf, float(NODATA)])
    rows = np.array(data.draw(st.lists(values, min_size=n * d, max_size=n * d))).reshape(n, d)
    if data.draw(st.booleans()):
        rows = np.ma.array(rows, mask=np.reshape(data.draw(
            st.lists(st.booleans(), min_size=n * d, max_size=n * d)), (n, d)))  # fmt: skip
    labels = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=n, max_size=n))
    weights = data.draw(st.none() | st.lists(st.integers(0, 2), min_size=n, max_size=n))
    nodata = data.draw(st.sampled_from([None, NODATA, 0]))
    unlabelled = data.draw(st.sampled_from([None, ["b"], ["a", "c"]]))
    numbers, skipped = naive.rows_that_count(rows, labels, weights, nodata, unlabelled)
    options = {"on_invalid": "skip", "nodata": nodata, "unlabelled": unlabelled}
    found = accumulate(rows, labels, sample_weight=weights, **options)
    assert found.n_skipped == skipped
    kept = [labels[i] for i in numbers]
    if not kept:
        assert found.n_features is None
        return
    expected = ClassMoments().update(
        np.ma.getdata(rows)[numbers], kept, None if weights is None else np.array(weights)[numbers]
    )
    same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_all_containers_leave_out_the_same_rows(kind, weights):
    numbers, skipped = naive.rows_that_count(X, y.tolist(), weights, NODATA, [0])
    found = accumulate(held(X, kind), held(y, kind), sample_weight=weights, **COUNTING)
    assert found.n_skipped == skipped
    kept = None if weights is None else weights[numbers]
    same(found, accumulate(X[numbers], y[numbers], sample_weight=kept))
    cuts = [slice(start, start + 70) for start in range(0, len(X), 70)]
    batches = [(X[c], y[c], *([] if weights is None else [weights[c]])) for c in cuts]
    same(accumulate(iter(batches), **COUNTING), found)


@EVERY
def test_estimators_learn_the_rows_that_count(estimator):
    found = estimator.fit(X, y, **COUNTING).predict(CLEAN), estimator.moments_
    expected = estimator.fit(X[GOOD], y[GOOD]).predict(CLEAN), estimator.moments_
    np.testing.assert_array_equal(found[0], expected[0])
    same(found[1], expected[1])
    assert found[1].n_skipped == SKIPPED


@pytest.mark.parametrize("name", ["LDA", "GaussianNB", "BernoulliNB"])
def test_streams_learn_and_forget_the_rows_that_count(name):
    stream = clone(ESTIMATORS[name]).partial_fit(X[:100], y[:100], classes=[1, 2], **COUNTING)
    stream.partial_fit(X[100:], y[100:], **COUNTING)
    same(stream.moments_, type(stream)().fit(X[GOOD], y[GOOD]).moments_)
    stream.forget(X[:100], y[:100], **COUNTING)
    later = [number for number in GOOD if number >= 100]
    same(stream.moments_, type(stream)().fit(X[later], y[later]).moments_)


@EVERY
def test_values_of_unlabelled_rows_are_not_looked_at(estimator):
    rows = np.where((TRUTH == 0)[:, None], np.nan, CLEAN)
    counts = estimator.fit(rows, TRUTH, unlabelled=0).moments_.class_count
    assert counts.tolist() == np.bincount(TRUTH)[1:].tolist()
    assert estimator.moments_.n_skipped == 0
    rows[np.argmax(TRUTH == 2)] = np.nan
    with pytest.raises(ValueError, match=r"NaN|masked"):
        estimator.fit(rows, TRUTH, unlabelled=0)


MISSING = {
    "None": ["a", None, "b"],
    "NaN among texts": np.array(["a", np.nan, "b"], object),
    "NaN": [0.0, np.nan, 1.0],
    "NA": pd.array(["a", pd.NA, "b"], dtype="string"),
    "integers and NA": pd.Series([0, None, 1], dtype="Int64"),
    "NaT": np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"),
    "masked": np.ma.array([0, 5, 1], mask=[0, 1, 0]),
}


@pytest.mark.parametrize("labels", MISSING.values(), ids=MISSING)
def test_missing_labels_are_skipped_or_named(labels):
    rows = np.array([[0.0], [5.0], [1.0]])
    doors = {
        "update": lambda **options: ClassMoments().update(rows, labels),
        "accumulate": lambda **options: accumulate(rows, labels, **options),
        "batches": lambda **options: accumulate([(rows, labels)], **options),
        "pairwise": lambda **options: PairwiseMoments().update(rows, labels),
        "fit": lambda **options: GaussianNB().fit(rows, labels, **options),
    }
    for name, learn in doors.items():
        with pytest.raises(InvalidDataError, match=r"y\[1\] is .*on_invalid='skip'"):
            learn()
        if name in ("accumulate", "batches", "fit"):
            found = learn(on_invalid="skip")
            moments = getattr(found, "moments_", found)
            assert (moments.n_skipped, moments.class_count.tolist()) == (1, [1, 1])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unlabelled": 0.5}, "unlabelled=0.5: Unknown label type"),
        ({"unlabelled": [0, "a"]}, "unlabelled="),
        ({"on_invalid": "fill"}, "on_invalid='fill'; expected 'raise' or 'skip'"),
        ({"nodata": "none"}, "nodata='none'; expected one number"),
        ({"features": "band"}, "features='band' names the dimension of a DataArray"),
    ],
)
def test_other_keywords_are_refused_and_change_nothing(options, match):
    fitted = GaussianNB().fit(CLEAN, TRUTH)
    before = fitted.class_count_.tolist()
    for learn in (fitted.fit, fitted.partial_fit, fitted.forget, accumulate):
        with pytest.raises(InvalidParameterError, match=match):
            learn(CLEAN, TRUTH, **options)
    assert fitted.class_count_.tolist() == before


def test_empty_batches_and_windows_are_no_rows():
    nothing = CLEAN[:0], TRUTH[:0]
    whole = ClassMoments().update(CLEAN, TRUTH)
    same(accumulate([nothing, (CLEAN, TRUTH), nothing]), whole)
    same(ClassMoments().update(*nothing).update(CLEAN, TRUTH).update(CLEAN[:0], []), whole)
    with pytest.raises(InvalidDataError, match="4 features"):
        whole.update(np.empty((0, 4)), [])
    pairs = PairwiseMoments().update(*nothing).update(CLEAN, TRUTH).update(*nothing)
    assert pairs.class_count.tolist() == whole.class_count.tolist()
    window = SlidingWindow(2).update(CLEAN, TRUTH).update(*nothing)
    assert len(window) == 2
    same(window.moments, whole)
    assert window.update(*nothing).moments.n_features is None  # a window without rows
    rows = da.concatenate([da.from_array(CLEAN, chunks=100)] * 2)
    empty = rows[da.from_array(np.arange(600) < 250, chunks=100)]  # whose last blocks are empty
    labels = da.from_array(np.tile(TRUTH, 2), chunks=100)[
        da.from_array(np.arange(600) < 250, chunks=100)
    ]
    same(accumulate(empty, labels), ClassMoments().update(CLEAN[:250], TRUTH[:250]))
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        GaussianNB().partial_fit(*nothing)
