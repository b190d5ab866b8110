"""Splitters and given splits: the scores of scikit-learn's search on the same splits."""

import numpy as np
import pytest
from samples import blobs, held
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TimeSeriesSplit,
)

from streamgda import GaussianDiscriminantAnalysis, GaussianDiscriminantCV
from streamgda.engine import splits as engine_splits
from streamgda.engine.folds import FoldedRows
from streamgda.engine.splits import given_splits
from streamgda.errors import InvalidDataError, InvalidParameterError

GRID = [{"covariance_type": ["full", "tied"], "shrinkage": [0.1]}, {"covariance_type": ["diag"]}]
SCORINGS = ["accuracy", "neg_log_loss", "joint_log_likelihood"]
N = 240
X, Y = blobs(N, 3)
GROUPS = np.random.default_rng(0).integers(0, 12, N)
SPLITTERS = {
    "KFold": KFold(4),
    "shuffled": KFold(4, shuffle=True, random_state=1),
    "StratifiedKFold": StratifiedKFold(4),
    "shuffled and stratified": StratifiedKFold(4, shuffle=True, random_state=1),
    "RepeatedKFold": RepeatedKFold(n_splits=2, n_repeats=2, random_state=0),
    "ShuffleSplit": ShuffleSplit(6, test_size=0.2, random_state=0),
    "few rows": ShuffleSplit(3, test_size=0.1, train_size=0.5, random_state=0),
    "TimeSeriesSplit": TimeSeriesSplit(4),
    "GroupKFold": GroupKFold(4),
    "PredefinedSplit": PredefinedSplit(np.arange(N) % 4 - 1),
}


def likelihood(estimator, X, y):
    joint = estimator.predict_joint_log_proba(X)
    return joint[np.arange(len(y)), np.searchsorted(estimator.classes_, y)].mean()


def assert_alike(cv, X=X, y=Y, groups=None, scoring="accuracy"):
    ours = GaussianDiscriminantCV(GRID, cv=cv, scoring=scoring).fit(X, y, groups=groups)
    scorer = likelihood if scoring == "joint_log_likelihood" else scoring
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), GRID, cv=cv, scoring=scorer)
    theirs.fit(X, y, groups=groups)
    assert ours.n_splits_ == theirs.n_splits_
    assert ours.best_index_ == theirs.best_index_
    assert ours.best_params_ == theirs.best_params_
    for name, column in theirs.cv_results_.items():
        if name.endswith("test_score"):
            np.testing.assert_allclose(ours.cv_results_[name], column, rtol=1e-9, err_msg=name)
    expected = theirs.best_estimator_.predict_proba(X)
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-9)


@pytest.mark.parametrize("name", SPLITTERS)
@pytest.mark.parametrize("scoring", SCORINGS)
def test_scores_of_splitters(name, scoring):
    groups = GROUPS if name == "GroupKFold" else None
    assert_alike(SPLITTERS[name], groups=groups, scoring=scoring)


def test_leave_one_out():
    assert_alike(LeaveOneOut(), X[:40], Y[:40])


def overlapping(kind):
    rows = np.arange(N)
    pairs = [(rows[rows % 3 > 0], rows[:150]), (rows[:200], rows[100:130]), (rows, rows[-60:])]
    if kind == "masks":
        return [(np.isin(rows, train), np.isin(rows, test)) for train, test in pairs]
    if kind == "lists":
        return [[train.tolist(), (test - N).tolist()] for train, test in pairs]
    if kind == "repeated":
        return [
            (np.r_[train, train[::5]], np.r_[test, test[:9], test[:9]]) for train, test in pairs
        ]
    return pairs


@pytest.mark.parametrize("kind", ["arrays", "masks", "lists", "repeated"])
@pytest.mark.parametrize("rows_of_an_atom", [0, 10**6])
def test_given_splits_may_overlap_and_repeat(kind, rows_of_an_atom, monkeypatch):
    monkeypatch.setattr(engine_splits, "_ROWS_OF_AN_ATOM", rows_of_an_atom)
    assert_alike(overlapping(kind))


def test_a_generator_of_splits():
    found = GaussianDiscriminantCV(GRID, cv=(pair for pair in overlapping("arrays"))).fit(X, Y)
    expected = GaussianDiscriminantCV(GRID, cv=overlapping("arrays")).fit(X, Y)
    assert found.best_score_ == expected.best_score_


@pytest.mark.parametrize("kind", ["zarr", "dask", "memmap"])
@pytest.mark.parametrize("name", ["StratifiedKFold", "ShuffleSplit", "GroupKFold"])
def test_rows_that_are_not_in_memory(kind, name):
    groups = GROUPS if name == "GroupKFold" else None
    search = GaussianDiscriminantCV(GRID, cv=SPLITTERS[name])
    expected = search.fit(X, Y, groups=groups).cv_results_
    found = search.fit(held(X, kind, rows=37), held(Y, kind, rows=37), groups=groups).cv_results_
    for split in range(search.n_splits_):
        score = f"split{split}_test_score"
        np.testing.assert_allclose(found[score], expected[score], rtol=1e-12)


@pytest.mark.parametrize(
    ("cv", "n_parts"),
    [
        (KFold(4), 4),
        (PredefinedSplit(np.arange(N) % 4 - 1), 4),
        (TimeSeriesSplit(4), 5),
        (LeaveOneOut(), N),
        (ShuffleSplit(9, random_state=0), 19),
    ],
)
def test_folds_are_summed_once_and_many_sets_one_by_one(cv, n_parts):
    splits = given_splits(cv.split(X, Y), N)
    later = [part + 17 for part in splits.parts(17, N)]
    assert splits.n_parts == len(splits.parts(0, N)) == n_parts
    for (train, test), trains, tests in zip(
        cv.split(X, Y), splits.trains, splits.tests, strict=True
    ):
        for rows, parts in ((train, trains), (test, tests)):
            found = np.concatenate([later[part] for part in parts])
            assert sorted(found) == sorted(rows[rows >= 17])
    everything = np.concatenate([splits.parts(0, N)[part] for part in splits.everything])
    assert sorted(everything) == list(range(N))


def test_one_pass_and_one_of_scores(monkeypatch):
    read, passes = FoldedRows.read, []
    monkeypatch.setattr(FoldedRows, "read", lambda *args: passes.append(args[-1]) or read(*args))
    GaussianDiscriminantCV(GRID, cv=SPLITTERS["ShuffleSplit"]).fit(X, Y)
    assert passes == ["accumulating", "scoring"]


class ByRows:
    """A splitter that looks at the rows."""

    def split(self, X, y=None, groups=None):
        chosen = np.asarray(X)[:, 0] % 1 < 0.7
        yield chosen, ~chosen


def test_a_splitter_that_looks_at_the_rows():
    assert_alike(list(ByRows().split(X)))
    assert GaussianDiscriminantCV(GRID, cv=ByRows()).fit(X, Y).n_splits_ == 1
    for kind in ("zarr", "dask"):
        with pytest.raises(InvalidParameterError, match="looks at the rows, which are not in"):
            GaussianDiscriminantCV(GRID, cv=ByRows()).fit(held(X, kind), held(Y, kind))


@pytest.mark.parametrize(
    ("cv", "groups", "match"),
    [
        ("5", None, "cv='5'; expected an integer >= 2, a splitter"),
        (None, None, "cv=None; expected an integer >= 2, a splitter"),
        (KFold, None, "expected an integer >= 2, a splitter"),
        ([], None, "cv has no splits"),
        ([0, 1], None, f"cv has the folds of 2 rows, but X has {N} rows"),
        (np.full(N, -1), None, f"cv has no folds: all of its {N} entries are -1"),
        (np.arange(N) % 3 - 2, None, "cv has fold -2; expected integers >= 0, or -1"),
        (np.arange(N) % 3 / 2, None, "cv has entries of type float64; .* cv=LeaveOneGroupOut"),
        (LeaveOneGroupOut(), None, "The 'groups' parameter should not be None"),
        (LeaveOneGroupOut(), np.zeros(N), "cannot split 240 rows: .*fewer than 2 unique groups"),
        (np.arange(N) % 3, GROUPS, "groups were given, but cv="),
        ([([0], [N])], None, f"less than {N}, or a mask of {N} rows"),
        ([([True, False], [3])], None, f"a mask of {N} rows"),
        ([([0.5], [3])], None, "expected a list of numbers of rows"),
        ([([[0]], [3])], None, "expected a list of numbers of rows"),
        (GroupKFold(3), None, "cannot split 240 rows: The 'groups' parameter should not be None"),
        (GroupKFold(3), GROUPS[:9], "cannot split 240 rows: .*inconsistent numbers of samples"),
        (StratifiedKFold(200), None, "cannot split 240 rows: n_splits=200 cannot be greater"),
        (5, GROUPS, "groups were given, but cv=5"),
    ],
)
def test_unusable_splits(cv, groups, match):
    search = GaussianDiscriminantCV(GRID, cv=cv)
    before = dict(vars(search))
    with pytest.raises(InvalidParameterError, match=match) as caught:
        search.fit(X, Y, groups=groups)
    assert "\n" not in str(caught.value)
    assert vars(search) == before


def test_no_rows_to_compare():
    rows = np.arange(N)
    with pytest.raises(InvalidDataError, match="no row can be held out of 1 folds"):
        GaussianDiscriminantCV(GRID, cv=[(rows, [])]).fit(X, Y)
