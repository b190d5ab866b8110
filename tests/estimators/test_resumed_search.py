"""Searches resume from a checkpoint with the same bits, and may score a sample of the rows."""

import numpy as np
import pytest
from samples import blobs

from streamgda import GaussianDiscriminantCV
from streamgda.engine import fold_journal, plan
from streamgda.engine.samples import TestSamples
from streamgda.engine.splits import fold_of, given_splits, hashed_splits
from streamgda.errors import CheckpointError, InvalidDataError, InvalidParameterError
from streamgda.estimators import candidates
from streamgda.rows import labels

GRID = [{"covariance_type": ["full"], "reg_param": [0.1, 0.2]}, {"covariance_type": ["tied"]}]
N = 600


@pytest.fixture
def rows(monkeypatch):
    """Rows in slabs of 100."""
    monkeypatch.setattr(plan, "_SLAB_BYTES", 100 * 32)
    monkeypatch.setattr(plan, "_FEWEST_ROWS", 1)
    return blobs(N, 4)


def scores(search):
    return {k: v.tolist() for k, v in search.cv_results_.items() if "test_" in k}


class StopError(Exception):
    """An error from outside."""


@pytest.mark.parametrize("at", [2, 5, 6, 7, 10, 12, 15])
def test_a_search_that_was_stopped_resumes_with_the_same_bits(rows, at, tmp_path, monkeypatch):
    """In the pass that accumulates, or one of two that score."""
    X, y = rows
    monkeypatch.setattr(candidates, "passes", lambda *_: [2, 1])
    expected = GaussianDiscriminantCV(GRID, cv=3).fit(X, y)
    journal = fold_journal.FoldJournal
    adding, done = journal.adding, []

    def counted(self, rows_done, *seen):
        if len(done) == at:
            raise StopError
        done.append(rows_done)
        return adding(self, rows_done, *seen)

    search = GaussianDiscriminantCV(GRID, cv=3)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "adding", counted)
        with pytest.raises(StopError) as stopped:
            search.fit(X, y, checkpoint=tmp_path / "kept", checkpoint_every=0)
    assert stopped.value.__notes__[0].count(f"{done[-1]:,} rows, counted in each pass") == 1
    assert not hasattr(search, "best_estimator_")
    resumed = []
    monkeypatch.setattr(
        journal, "adding", lambda self, n, *seen: resumed.append(n) or adding(self, n, *seen)
    )
    search.fit(X, y, checkpoint=tmp_path / "kept")
    assert len(done) + len(resumed) == 18
    assert scores(search) == scores(expected)
    assert search.best_params_ == expected.best_params_
    resumed.clear()
    assert scores(search.fit(X, y, checkpoint=tmp_path / "kept")) == scores(expected)
    assert resumed == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"cv": 4}, "splits: 3 folds"),
        ({"random_state": 1}, "splits: 3 folds of seed 0"),
        ({"param_grid": GRID[:1]}, "candidates"),
        ({"score_sample": 50}, "score_sample: None"),
        ({"y": 1}, "labels or weights"),
        ({"X": 1}, "other rows"),
    ],
)
def test_checkpoints_of_other_searches_are_refused(rows, changed, message, tmp_path):
    X, y = rows
    path = tmp_path / "kept"
    GaussianDiscriminantCV(GRID, cv=3).fit(X, y, checkpoint=path)
    params = {"param_grid": GRID, "cv": 3} | changed
    X = X + params.pop("X", 0)
    y = np.roll(y, params.pop("y", 0))
    with pytest.raises(CheckpointError, match=message):
        GaussianDiscriminantCV(**params).fit(X, y, checkpoint=path)


def test_an_invalid_row_leaves_no_part_of_its_slab_in_the_checkpoint(rows, tmp_path):
    X, y = rows
    expected = GaussianDiscriminantCV(GRID, cv=3).fit(X, y)
    bad = X.copy()
    bad[399] = np.nan
    path = tmp_path / "kept"
    with pytest.raises(InvalidDataError, match="row 399"):
        GaussianDiscriminantCV(GRID, cv=3).fit(bad, y, checkpoint=path, checkpoint_every=0)
    found = GaussianDiscriminantCV(GRID, cv=3).fit(X, y, checkpoint=path)
    assert scores(found) == scores(expected)


def test_labels_are_hashed_once_for_each_pass(monkeypatch):
    """They were encoded again for each candidate and fold."""
    X, y = blobs(4000, 4)
    distinct, calls = labels.distinct, []
    monkeypatch.setattr(labels, "distinct", lambda y: calls.append(y.size) or distinct(y))
    GaussianDiscriminantCV(GRID).fit(X, np.array(["a", "b", "c"])[y])
    assert len(calls) <= 3  # to count the classes, to accumulate and to score


# --- samples ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 0.1, 10_000, 1.0])
def test_samples_have_their_share_of_each_fold(size, monkeypatch):
    monkeypatch.setattr("streamgda.engine.samples._ROWS", 170)
    splits = hashed_splits(4, 3)
    sample = TestSamples(splits, 1000, size, 3)
    of = fold_of(0, 1000, 4, 3)
    share = size if isinstance(size, float) else min(1, size / 1000)
    for s in range(4):
        rows = np.flatnonzero(of == s)
        drawn = sample.drawn(s, 0, rows)
        assert drawn.size == np.ceil(rows.size * share)
        later = sample.drawn(s, 300, rows[rows >= 300] - 300) + 300
        assert later.tolist() == drawn[drawn >= 300].tolist()
        assert TestSamples(splits, 1000, size, 3).drawn(s, 0, rows).tolist() == drawn.tolist()
        if share < 1:
            assert TestSamples(splits, 1000, size, 4).drawn(s, 0, rows).tolist() != drawn.tolist()


def test_samples_of_given_splits():
    rows = np.arange(300)
    splits = given_splits([(rows[:100], rows[100:]), (rows[50:], rows[:50])], 300)
    sample = TestSamples(splits, 300, 25, 0)
    sizes = [
        sample.drawn(s, 0, np.concatenate([splits.parts(0, 300)[p] for p in test])).size
        for s, test in enumerate(splits.tests)
    ]
    assert sizes == [20, 5]


def test_scores_of_a_sample_are_those_of_its_rows():
    X, y = blobs(2000, 4)
    whole = GaussianDiscriminantCV(GRID, cv=3).fit(X, y)
    every = GaussianDiscriminantCV(GRID, cv=3, score_sample=1.0).fit(X, y)
    assert scores(every) == scores(whole)
    few = GaussianDiscriminantCV(GRID, cv=3, score_sample=90).fit(X, y)
    sample, of = TestSamples(hashed_splits(3, 0), 2000, 90, 0), fold_of(0, 2000, 3, 0)
    for s in range(3):
        rows = sample.drawn(s, 0, np.flatnonzero(of == s))
        best = type(whole.best_estimator_)(**few.cv_results_["params"][0])
        best.fit(X[of != s], y[of != s])
        assert few.cv_results_[f"split{s}_test_accuracy"][0] == best.score(X[rows], y[rows])
    name = "mean_test_joint_log_likelihood"
    assert few.cv_results_[name].tolist() == whole.cv_results_[name].tolist()


@pytest.mark.parametrize("size", [0, -1, 0.0, 1.5, "many", np.nan, True + 0.5])
def test_samples_that_make_no_sense_are_refused(size):
    X, y = blobs(60, 2)
    with pytest.raises(InvalidParameterError, match="score_sample="):
        GaussianDiscriminantCV(GRID, score_sample=size).fit(X, y)
