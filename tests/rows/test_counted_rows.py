"""Which rows are learnt: unlabelled, masked and invalid ones are not, in any container."""

from functools import partial

import dask.array as da
import naive
import numpy as np
import pandas as pd
import pytest
import stops
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import KINDS, blobs, held, snapshot
from sklearn.base import clone
from sklearn.covariance import LedoitWolf
from states import bits

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    QuadraticDiscriminantAnalysis,
    SlidingWindow,
    accumulate,
)
from streamgda.engine import plan
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows import as_source
from streamgda.rows.invalid_rows import RowRule
from streamgda.storage.saved import restore, state_of

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
}
EVERY = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)


def same(found, expected, rtol=1e-8):
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-12)
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-10)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=rtol, atol=1e-10)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_rows_that_count_are_those_of_a_plain_loop(data):
    n, d = data.draw(st.integers(1, 12)), 2
    dtype = np.dtype(data.draw(st.sampled_from(["f8", "f4", "i4", "i2"])))
    floats = [2.5, np.nan, np.inf] if dtype.kind == "f" else []
    values = st.sampled_from([0, 1, -3, NODATA, *floats])
    rows = np.array(data.draw(st.lists(values, min_size=n * d, max_size=n * d)), dtype)
    rows = rows.reshape(n, d)
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
    same(found, expected, rtol=1e-5 if dtype == "f4" else 1e-8)
    assert found.exact == expected.exact


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


@pytest.mark.parametrize("kind", KINDS)
def test_one_weight_of_all_rows(kind):
    found = accumulate(held(CLEAN, kind), held(TRUTH, kind), sample_weight=2)
    same(found, accumulate(CLEAN, TRUTH, sample_weight=np.full(len(TRUTH), 2.0)))


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


# --- masked values ------------------------------------------------------------------------------

ROW, COLUMN = 250, 1
MASK = np.zeros(CLEAN.shape, bool)
MASK[[ROW, ROW, ROW + 5], [COLUMN, 2, 0]] = True
COMPLETE = ~MASK.any(axis=1)
MASKED = np.ma.MaskedArray(np.where(MASK, 1e9, CLEAN), MASK)
OF_BYTES = np.ma.MaskedArray((CLEAN * 10).astype(np.int8), MASK)
NOTHING_MASKED = np.ma.MaskedArray(CLEAN, np.zeros(CLEAN.shape, bool))
SEARCH = GaussianDiscriminantCV(param_grid={"covariance_type": ["diag"]})
IN_DASK = pytest.mark.parametrize("in_dask", [False, True], ids=["numpy", "dask"])


def lazily(array, in_dask):
    return da.from_array(array, chunks=(64, 3)[: array.ndim]) if in_dask else array


def to_the_bit(a, b):
    """Return whether two moments are the same to the bit, but for the rows left out."""
    (about_a, arrays_a), (about_b, arrays_b) = state_of(a), state_of(b)
    equal = (np.array_equal(arrays_a[name], arrays_b[name]) for name in arrays_a)
    return about_a | {"n_skipped": 0} == about_b | {"n_skipped": 0} and all(equal)


@pytest.mark.parametrize("name", ["LDA", "GaussianNB", "BernoulliNB", "threshold", "search"])
@IN_DASK
def test_fit_and_partial_fit_refuse_masked_values(name, in_dask):
    match = rf"row {ROW}, column {COLUMN} of X is masked, which means missing.*leave such rows out"
    estimator, labels = clone(ESTIMATORS.get(name, SEARCH)), TRUTH > 0
    for method in ("fit", "partial_fit"):
        if hasattr(estimator, method):
            before = snapshot(estimator)
            with pytest.raises(InvalidDataError, match=match):
                getattr(estimator, method)(lazily(MASKED, in_dask), labels)
            assert snapshot(estimator) == before


@IN_DASK
@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "transform"])
def test_scoring_refuses_masked_values(in_dask, method):
    score = getattr(LinearDiscriminantAnalysis().fit(CLEAN, TRUTH), method)
    with pytest.raises(InvalidDataError, match=rf"row {ROW}, column {COLUMN} of X is masked"):
        np.asarray(score(lazily(MASKED, in_dask)))
    np.testing.assert_array_equal(score(lazily(NOTHING_MASKED, in_dask)), score(CLEAN))


@IN_DASK
def test_masked_integers_keep_their_exact_sums(in_dask):
    found = accumulate(lazily(OF_BYTES, in_dask), TRUTH, on_invalid="skip")
    assert found.exact
    assert to_the_bit(found, accumulate(OF_BYTES.data[COMPLETE], TRUTH[COMPLETE]))
    with pytest.raises(InvalidDataError, match=f"row {ROW}, column {COLUMN} of X is masked"):
        accumulate(lazily(OF_BYTES, in_dask), TRUTH)


@IN_DASK
@pytest.mark.parametrize("rows", [MASKED, OF_BYTES], ids=["float", "int8"])
def test_pairwise_moments_count_masked_values_as_missing(in_dask, rows):
    with_nan = np.where(MASK, np.nan, rows.data)
    expected = PairwiseMoments().update(with_nan, TRUTH)
    assert to_the_bit(PairwiseMoments().update(lazily(rows, in_dask), TRUTH), expected)
    found = accumulate(lazily(rows, in_dask), TRUTH, on_invalid="pairwise")
    np.testing.assert_array_equal(found.pair_count, expected.pair_count)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)


@IN_DASK
@pytest.mark.parametrize("what", ["y", "sample_weight"])
@pytest.mark.parametrize(
    "take",
    [
        lambda *labelled: GaussianNB().fit(*labelled),
        lambda X, y, w: GaussianNB().partial_fit(X, y, sample_weight=w),
        lambda X, y, w: GaussianNB().partial_fit(X, y, sample_weight=w, half_life=30),
        lambda X, y, w: GaussianNB().fit(X, np.asarray(y)).score(X, y, w),
        lambda *labelled: clone(SEARCH).fit(*labelled),
        lambda *labelled: ClassMoments().update(*labelled),
        lambda *labelled: PairwiseMoments().update(*labelled),
        lambda X, y, w: accumulate(X, y, sample_weight=w),
    ],
)
def test_masked_labels_and_weights_are_refused(in_dask, what, take):
    given = {"y": TRUTH > 0, "sample_weight": np.ones(300)}
    given[what] = lazily(np.ma.MaskedArray(given[what], np.arange(300) == 7), in_dask)
    with pytest.raises(InvalidDataError, match=rf"{what}\[7\] is masked, which means missing"):
        take(lazily(CLEAN, in_dask), *given.values())


def test_nothing_is_copied_if_nothing_is_masked():
    assert to_the_bit(accumulate(NOTHING_MASKED, TRUTH), accumulate(CLEAN, TRUTH))
    bytes_ = np.ma.MaskedArray(OF_BYTES.data)  # without a mask
    assert to_the_bit(
        ClassMoments().update(bytes_, TRUTH), ClassMoments().update(OF_BYTES.data, TRUTH)
    )
    assert np.shares_memory(as_source(NOTHING_MASKED).whole(), CLEAN)


def test_a_checkpoint_is_of_the_mask_too(tmp_path):
    where = {"on_invalid": "skip", "checkpoint": tmp_path / "moments.zip"}
    accumulate(MASKED, TRUTH, **where)
    assert accumulate(MASKED, TRUTH, **where).n_skipped == 2
    other = MASKED.copy()
    other.mask[0, 0] = True
    with pytest.raises(ValueError, match="was started with other rows"):
        accumulate(other, TRUTH, **where)


# --- rows that hold nodata ----------------------------------------------------------------------


def with_nodata(dtype):
    """Rows of that type, some with `NODATA` or (floats) NaN, and a mask of the valid ones."""
    rows = np.round(10 * stops.X).astype(dtype)
    bad = [0, 31, 32, 60, *range(90, 120), 299]  # a whole slab among them
    rows[bad, np.arange(len(bad)) % 4] = NODATA
    if np.dtype(dtype).kind == "f":
        rows[31, 2], rows[60, 0] = np.nan, np.inf
    return rows, np.delete(np.arange(stops.N_ROWS), bad)


def test_nodata_is_an_error_where_it_is_not_skipped():
    rows, _ = with_nodata(np.int16)
    with pytest.raises(InvalidDataError, match=r"row 0 holds NaN, infinity or nodata=-9999"):
        accumulate(rows, stops.Y, nodata=NODATA)
    weights = np.ones(stops.N_ROWS)
    weights[0] = 0  # a row that does not exist
    with pytest.raises(InvalidDataError, match=r"row 31 holds"):
        accumulate(rows, stops.Y, nodata=NODATA, sample_weight=weights)
    skipped = accumulate(rows, stops.Y, nodata=NODATA, sample_weight=weights, on_invalid="skip")
    assert (
        skipped.n_skipped
        == accumulate(rows, stops.Y, nodata=NODATA, on_invalid="skip").n_skipped - 1
    )


@pytest.mark.parametrize("nodata", [-9999, 1e300, 300, float("nan"), np.float64(0.5)])
def test_nodata_that_the_type_cannot_hold(nodata):
    rows = np.arange(12, dtype=np.uint8).reshape(6, 2)
    for dtype in (np.uint8, np.float32):
        found = accumulate(rows.astype(dtype), [0, 1] * 3, on_invalid="skip", nodata=nodata)
        assert found.n_skipped == 0
    rows = np.array([[0.1], [0.2], [0.3]], np.float32)  # nodata is compared in their type
    assert accumulate(rows, [0, 0, 0], on_invalid="skip", nodata=0.1).n_skipped == 1


@pytest.mark.parametrize("n_features", [1, 7, 64, 65, 200])
@pytest.mark.parametrize("order", ["C", "F"])
def test_invalid_rows_are_found_at_any_width(n_features, order):
    random = np.random.default_rng(0)
    rows = np.asarray(random.normal(size=(500, n_features)), order=order)
    rows[random.random(rows.shape) < 0.3 / n_features] = np.nan
    rows[random.random(rows.shape) < 0.3 / n_features] = NODATA
    bad = (np.isnan(rows) | (rows == NODATA)).any(axis=1)
    assert 100 < bad.sum() < 400
    found = RowRule("skip", NODATA).rows(rows)
    np.testing.assert_array_equal(found, np.flatnonzero(bad))


def test_nothing_is_left():
    rows = np.full((100, 3), np.nan)
    found = accumulate(rows, np.zeros(100), on_invalid="skip")
    assert (found.n_skipped, found.n_features) == (100, None)
    added = found + accumulate(np.zeros((2, 3)), [0, 1])
    assert added.n_skipped == 100
    assert "100 invalid rows left out" in repr(added)


def test_the_count_goes_where_the_rows_go(tmp_path):
    rows, good = with_nodata(np.int16)
    skip = partial(accumulate, on_invalid="skip", nodata=NODATA)
    whole = skip(rows, stops.Y)
    first, second = skip(rows[:100], stops.Y[:100]), skip(rows[100:], stops.Y[100:])
    assert (first + second).n_skipped == whole.n_skipped == stops.N_ROWS - good.size
    assert (whole - first).n_skipped == second.n_skipped
    for derived in (
        whole.copy(),
        whole.reduce("diag"),
        whole.select_features([0, 1]),
        whole * 0.5,
        restore(ClassMoments, *state_of(whole)),
    ):
        assert derived.n_skipped == whole.n_skipped
    whole.save(tmp_path / "moments")
    assert ClassMoments.load(tmp_path / "moments").n_skipped == whole.n_skipped
    attributes, arrays = state_of(whole)
    del attributes["n_skipped"]  # as in older files
    assert restore(ClassMoments, attributes, arrays).n_skipped == 0
    assert whole.update(rows[good[:5]], stops.Y[good[:5]]).n_skipped == stops.N_ROWS - good.size


def test_a_failing_slab_is_not_counted_in_part(tmp_path):
    rows, _ = with_nodata(np.float64)
    path = tmp_path / "kept"
    labels = stops.Y.astype(float)
    labels[100] = 0.5  # in a slab all of whose rows are invalid
    with pytest.raises(InvalidDataError):
        accumulate(rows, labels, on_invalid="skip", nodata=NODATA, checkpoint=path)
    found = accumulate(rows, stops.Y * 1.0, on_invalid="skip", nodata=NODATA, checkpoint=path)
    assert bits(found) == bits(accumulate(rows, stops.Y * 1.0, on_invalid="skip", nodata=NODATA))


def test_skipping_takes_memory_for_a_copy():
    assert (
        stops.least_memory(stops.Rows(), on_invalid="skip")
        == stops.least_memory(stops.Rows()) + stops.SLAB * 32
    )
