"""Rows that count: valid ones, with a label, and with a weight above zero."""

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moment_checks import assert_close
from samples import blobs
from scipy import sparse

from streamgda import (
    ClassMoments,
    GaussianNB,
    PairwiseMoments,
    SlidingWindow,
    accumulate,
)
from streamgda.errors import InvalidDataError, InvalidParameterError

NODATA = -9999
RNG = np.random.default_rng(5)
CLEAN, TRUTH = blobs(n_features=3)
X, y = CLEAN.copy(), TRUTH.astype(float)
X[RNG.random(len(X)) < 0.1, 1] = np.nan
X[RNG.random(len(X)) < 0.1] = NODATA
X[7, 2] = np.inf
y[RNG.random(len(X)) < 0.1] = np.nan
COUNTING = {"on_invalid": "skip", "nodata": NODATA, "unlabelled": [0]}
GOOD, SKIPPED = naive.rows_that_count(X, y.tolist(), nodata=NODATA, unlabelled=[0])


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_rows_that_count_are_those_of_a_plain_loop(data):
    n, d = data.draw(st.integers(1, 12)), 2
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "i4", "i2"])))
    floats = [2.5, np.nan, np.inf] if dtype.kind == "f" else []
    values = st.sampled_from([0, 1, -3, NODATA, *floats])
    rows = np.array(data.draw(st.lists(values, min_size=n * d, max_size=n * d)), dtype)
    rows = rows.reshape(n, d)
    labels = data.draw(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=n, max_size=n))
    weights = data.draw(st.none() | st.lists(st.integers(0, 2), min_size=n, max_size=n))
    nodata = data.draw(st.sampled_from([None, NODATA, 0]))
    unlabelled = data.draw(st.sampled_from([None, ["b"], ["a", "c"]]))
    numbers, skipped = naive.rows_that_count(rows, labels, weights, nodata, unlabelled)
    options = {"on_invalid": "skip", "nodata": nodata, "unlabelled": unlabelled}
    given_rows = sparse.csr_array(rows) if data.draw(st.booleans()) else rows
    kind = "diag" if given_rows is not rows else "full"
    found = accumulate(given_rows, labels, sample_weight=weights, covariance_type=kind, **options)
    assert found.n_skipped == skipped
    kept = [labels[i] for i in numbers]
    if not kept:
        assert found.n_features is None
        return
    weights = None if weights is None else np.array(weights)[numbers]
    expected = ClassMoments(kind).update(rows[numbers], kept, weights)
    assert_close(found, expected, 1e-5 if dtype == "f4" else 1e-10)
    assert found.exact == expected.exact


def test_classes_of_rows_that_do_not_count_are_none():
    rows, labels = np.array([[1.0], [2.0], [np.nan]]), ["a", "b", "c"]
    found = accumulate(rows, labels, sample_weight=[1, 0, 1], on_invalid="skip")
    assert found.classes.tolist() == ["a"]
    assert accumulate(rows[:2], labels[:2], unlabelled="b").classes.tolist() == ["a"]
    # Classes that were there before stay, also without further rows.
    again = GaussianNB().fit([[1.0], [2.0], [5.0]], ["a", "b", "c"])
    again.partial_fit(rows, labels, on_invalid="skip")
    assert again.class_count_.tolist() == [2, 2, 1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"unlabelled": 0.5}, "unlabelled=0.5: Unknown label type"),
        ({"unlabelled": [0, "a"]}, "unlabelled="),
        ({"unlabelled": "a"}, "unlabelled=.*compared with labels of dtype int64"),
        ({"on_invalid": "fill"}, "on_invalid='fill'; expected 'raise' or 'skip'"),
        ({"nodata": "none"}, "nodata='none'; expected one number"),
        ({"nodata": 1j}, "nodata="),
    ],
)
def test_other_keywords_are_errors_and_change_nothing(options, match):
    fitted = GaussianNB().fit(CLEAN, TRUTH)
    before = fitted.class_count_.tolist()
    for learn in (fitted.fit, fitted.partial_fit, fitted.forget, accumulate):
        with pytest.raises(InvalidParameterError, match=match):
            learn(CLEAN, TRUTH, **options)
    assert fitted.class_count_.tolist() == before


NULLS = np.array([1, None, 2], object)


@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (NULLS, r"sample_weight\[1\] is nan"),
        (np.ma.array([1, 2, 1], mask=[0, 1, 0]), "sample_weight is a masked array"),
    ],
)
def test_wrong_weights(weights, match):
    rows, labels = np.arange(3.0)[:, None], [0, 1, 0]
    with pytest.raises(InvalidDataError, match=match):
        accumulate(rows, labels, sample_weight=weights)
    assert accumulate(rows, labels, sample_weight=2).class_count.tolist() == [4, 2]
    if weights is NULLS:
        for kept in (weights, pd.Series([1, None, 2], dtype="Int64")):
            found = accumulate(rows, labels, sample_weight=kept, on_invalid="skip")
            assert (found.class_count.tolist(), found.n_skipped) == ([3.0], 1)


def test_an_invalid_row_is_named():
    rows = np.array([[1.0, 2.0], [3.0, NODATA], [np.nan, 1.0]])
    with pytest.raises(InvalidDataError, match=r"contains nodata: row 1, column 1 is -9999"):
        accumulate(rows, [0, 0, 0], nodata=NODATA)
    # Rows that do not count are no error, and do not change the numbers of the others.
    with pytest.raises(InvalidDataError, match=r"NaN: row 2, column 0 is nan"):
        accumulate(rows, [0, 1, 0], nodata=NODATA, unlabelled=1)
    assert accumulate(rows, [0, 1, 1], nodata=NODATA, unlabelled=1).class_count.tolist() == [1]
    single = np.array([[0.1], [1.0]], np.float32)
    assert accumulate(single, [0, 0], nodata=0.1, on_invalid="skip").n_skipped == 1


def test_empty_batches_and_windows_are_no_rows():
    nothing = CLEAN[:0], TRUTH[:0]
    whole = ClassMoments().update(CLEAN, TRUTH)
    assert_close(accumulate([nothing, (CLEAN, TRUTH), nothing]), whole)
    assert_close(ClassMoments().update(*nothing).update(CLEAN, TRUTH).update(CLEAN[:0], []), whole)
    pairs = PairwiseMoments().update(*nothing).update(CLEAN, TRUTH).update(*nothing)
    assert pairs.class_count.tolist() == whole.class_count.tolist()
    window = SlidingWindow(2).update(CLEAN, TRUTH).update(*nothing)
    assert_close(window.moments, whole)
    assert window.update(*nothing).moments.n_features is None  # The window has no rows.
    with pytest.raises(InvalidDataError, match=r"every row|no rows"):
        GaussianNB().fit(CLEAN, TRUTH, unlabelled=[0, 1, 2])


def test_the_count_goes_where_the_rows_go():
    found = accumulate(X, y, **COUNTING)
    assert (found + found).n_skipped == 2 * SKIPPED
    assert (found + found - found).n_skipped == SKIPPED
    assert ClassMoments.from_bytes(found.to_bytes()).n_skipped == SKIPPED
    assert found.copy().n_skipped == SKIPPED
