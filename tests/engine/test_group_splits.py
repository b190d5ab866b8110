"""Splits across groups: moments of each training set, and the number of sums that they take."""

import naive
import numpy as np
import pytest
from samples import blobs, bytes_of, held
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, PredefinedSplit

from streamgda import ClassMoments, GaussianDiscriminantCV
from streamgda.engine import splits
from streamgda.engine.folds import FoldedRows
from streamgda.engine.splits import added, fold_splits, given_splits

X, Y = blobs(1200, 3)
SITES = np.random.default_rng(0).permutation(1200) % 300
GRID = {"covariance_type": ["tied", "diag"]}


def moments_of(folds, rows=X):
    of_parts = FoldedRows(rows, Y, None, lambda *_: folds, 1 << 30)
    return of_parts.accumulate("full", fourth_moments=False)


@pytest.mark.parametrize("never", [0, 7])
def test_training_sets_are_all_other_rows(never):
    folds = np.where(np.arange(1200) < never, -1, SITES % 11)
    found = fold_splits(folds)
    trains = list(found.training_moments(moments_of(found)))
    assert len(trains) == len(found.trains) == 11
    for fold, train in enumerate(trains):
        rows = folds != fold
        expected = naive.moments(X[rows], Y[rows])
        assert train.class_count.tolist() == expected.count.tolist()
        S = expected.scatter / expected.count[:, None, None]
        np.testing.assert_allclose(train.covariance(), S, rtol=1e-12, atol=1e-14)


def test_integers_are_exact_whichever_fold_is_left_out():
    found = fold_splits(SITES % 13)
    parts = moments_of(found, bytes_of(X))
    total = added(parts, found.everything)
    for part, train in zip(parts, found.training_moments(parts), strict=True):
        np.testing.assert_array_equal(train.covariance(), (total - part).covariance())
        np.testing.assert_array_equal(train.means, (total - part).means)


def test_values_far_from_zero_lose_nothing():
    far = X + 1e7
    found = fold_splits(SITES % 40)
    for fold, train in enumerate(found.training_moments(moments_of(found, far))):
        rows = fold != SITES % 40
        expected = ClassMoments().update(far[rows], Y[rows])
        np.testing.assert_allclose(train.covariance(), expected.covariance(), rtol=1e-9, atol=1e-9)


def test_three_hundred_groups_take_two_passes_and_few_sums(monkeypatch):
    read, passes, sums = FoldedRows.read, [], []
    monkeypatch.setattr(FoldedRows, "read", lambda *args: passes.append(args[-1]) or read(*args))
    plus = splits.add
    monkeypatch.setattr(splits, "add", lambda a, b: sums.append(1) or plus(a, b))
    search = GaussianDiscriminantCV(GRID, cv=LeaveOneGroupOut()).fit(X, Y, groups=SITES)
    assert search.n_splits_ == 300
    assert passes == ["accumulating", "scoring"]
    assert 300 < len(sums) <= 300 * 9 + 300  # 300 * log2(300), and the sum of all


@pytest.mark.parametrize("kind", ["zarr", "dask", "memmap"])
def test_groups_may_be_held_as_the_rows_are(kind):
    search = GaussianDiscriminantCV(GRID, cv=LeaveOneGroupOut())
    groups = SITES % 9
    expected = search.fit(X, Y, groups=groups).cv_results_["mean_test_score"]
    given = (held(array, kind, rows=170) for array in (X, Y, groups))
    found = search.fit(next(given), next(given), groups=next(given)).cv_results_
    np.testing.assert_allclose(found["mean_test_score"], expected, rtol=1e-12)


@pytest.mark.parametrize("make", [list, np.asarray, lambda f: held(f, "zarr")])
def test_an_array_of_folds_is_a_predefined_split(make):
    folds = np.where(SITES < 5, -1, SITES % 4 * 10)
    found = GaussianDiscriminantCV(GRID, cv=make(folds)).fit(X, Y).cv_results_
    splitter = GaussianDiscriminantCV(GRID, cv=PredefinedSplit(folds)).fit(X, Y).cv_results_
    pairs = GaussianDiscriminantCV(GRID, cv=list(PredefinedSplit(folds).split())).fit(X, Y)
    for s in range(4):
        for other in (splitter, pairs.cv_results_):
            np.testing.assert_array_equal(
                found[f"split{s}_test_score"], other[f"split{s}_test_score"]
            )


def test_splitters_that_hold_each_row_out_once_are_folds():
    found = given_splits(GroupKFold(50).split(X, Y, SITES), len(X))
    assert (found.n_parts, len(found.trains)) == (50, 50)
    assert found.trains[3] == [part for part in range(50) if part != 3]
    rows = np.sort(np.concatenate(found.test_rows(100, 900)))
    np.testing.assert_array_equal(rows, np.arange(800))
