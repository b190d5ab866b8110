"""Masked values are missing, in rows, labels and weights, in every container and at every door."""

import dask.array as da
import numpy as np
import pytest
from samples import blobs, snapshot

from streamgda import (
    BernoulliNB,
    ClassMoments,
    GaussianDiscriminantCV,
    GaussianNB,
    LinearDiscriminantAnalysis,
    PairwiseMoments,
    ThresholdClassifier,
    accumulate,
)
from streamgda.engine import plan
from streamgda.errors import InvalidDataError
from streamgda.storage.saved import state_of

X, y = blobs()
ROW, COLUMN = 250, 2
MASK = np.zeros(X.shape, bool)
MASK[[ROW, ROW, ROW + 5], [COLUMN, 3, 0]] = True
COMPLETE = ~MASK.any(axis=1)
MASKED = np.ma.MaskedArray(np.where(MASK, 1e9, X), MASK)
OF_BYTES = np.ma.MaskedArray((X * 10).astype(np.int8), MASK)
NOTHING_MASKED = np.ma.MaskedArray(X, np.zeros(X.shape, bool))
SEARCH = {"param_grid": {"covariance_type": ["diag"]}}
EVERY = pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        LinearDiscriminantAnalysis(),
        BernoulliNB(),
        ThresholdClassifier(),
        GaussianDiscriminantCV(**SEARCH),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
IN_DASK = pytest.mark.parametrize("in_dask", [False, True], ids=["numpy", "dask"])


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 1)


def held(array, in_dask):
    return da.from_array(array, chunks=(64, 3)[: array.ndim]) if in_dask else array


def same(a, b):
    """Return whether two moments are the same to the bit, but for the rows left out."""
    (about_a, arrays_a), (about_b, arrays_b) = state_of(a), state_of(b)
    equal = (np.array_equal(arrays_a[name], arrays_b[name]) for name in arrays_a)
    return about_a | {"n_skipped": 0} == about_b | {"n_skipped": 0} and all(equal)


@EVERY
@IN_DASK
def test_fit_and_partial_fit_refuse_masked_values(estimator, in_dask):
    match = rf"row {ROW}, column {COLUMN} of X is masked, which means missing.*leave such rows out"
    labels = y > 0
    for method in ("fit", "partial_fit"):
        if hasattr(estimator, method):
            before = snapshot(estimator)
            with pytest.raises(InvalidDataError, match=match):
                getattr(estimator, method)(held(MASKED, in_dask), labels)
            assert snapshot(estimator) == before


@IN_DASK
@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "transform"])
def test_scoring_refuses_masked_values(in_dask, method):
    score = getattr(LinearDiscriminantAnalysis().fit(X, y), method)
    with pytest.raises(InvalidDataError, match=rf"row {ROW}, column {COLUMN} of X is masked"):
        np.asarray(score(held(MASKED, in_dask)))
    np.testing.assert_array_equal(score(held(NOTHING_MASKED, in_dask)), score(X))


@IN_DASK
def test_masked_integers_keep_their_exact_sums(in_dask):
    found = accumulate(held(OF_BYTES, in_dask), y, on_invalid="skip")
    assert found.exact
    assert same(found, accumulate(OF_BYTES.data[COMPLETE], y[COMPLETE]))
    with pytest.raises(InvalidDataError, match=f"row {ROW}, column {COLUMN} of X is masked"):
        accumulate(held(OF_BYTES, in_dask), y)


@IN_DASK
@pytest.mark.parametrize("rows", [MASKED, OF_BYTES], ids=["float", "int8"])
def test_pairwise_moments_count_masked_values_as_missing(in_dask, rows):
    with_nan = np.where(MASK, np.nan, rows.data)
    expected = PairwiseMoments().update(with_nan, y)
    assert same(PairwiseMoments().update(held(rows, in_dask), y), expected)
    found = accumulate(held(rows, in_dask), y, on_invalid="pairwise")
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
        lambda *labelled: ThresholdClassifier().fit(*labelled),
        lambda *labelled: GaussianDiscriminantCV(**SEARCH).fit(*labelled),
        lambda *labelled: ClassMoments().update(*labelled),
        lambda *labelled: PairwiseMoments().update(*labelled),
        lambda X, y, w: accumulate(X, y, sample_weight=w),
    ],
)
def test_masked_labels_and_weights_are_refused(in_dask, what, take):
    given = {"y": y > 0, "sample_weight": np.ones(300)}
    given[what] = held(np.ma.MaskedArray(given[what], np.arange(300) == 7), in_dask)
    with pytest.raises(InvalidDataError, match=rf"{what}\[7\] is masked, which means missing"):
        take(held(X, in_dask), *given.values())


def test_nothing_is_copied_if_nothing_is_masked():
    assert same(accumulate(NOTHING_MASKED, y), accumulate(X, y))
    bytes_ = np.ma.MaskedArray(OF_BYTES.data)  # without a mask
    assert same(ClassMoments().update(bytes_, y), ClassMoments().update(OF_BYTES.data, y))
    assert np.shares_memory(plan.as_source(NOTHING_MASKED).whole(), X)


def test_a_checkpoint_is_of_the_mask_too(tmp_path):
    where = {"on_invalid": "skip", "checkpoint": tmp_path / "moments.zip"}
    accumulate(MASKED, y, **where)
    assert accumulate(MASKED, y, **where).n_skipped == 2
    other = MASKED.copy()
    other.mask[0, 0] = True
    with pytest.raises(ValueError, match="was started with other rows"):
        accumulate(other, y, **where)
