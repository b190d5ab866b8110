"""Searches over splits across groups, by any score: against scikit-learn's `GridSearchCV`."""

import pickle

import numpy as np
import pandas as pd
import pytest
from samples import blobs, held
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB

from streamgda import GaussianDiscriminantAnalysis, GaussianDiscriminantCV, load
from streamgda.engine.folds import FoldedRows
from streamgda.engine.journal import CheckpointContents
from streamgda.errors import (
    CheckpointError,
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
)

GRID = [
    {"covariance_type": ["full", "tied"], "shrinkage": [0.1, "oas"]},
    {"covariance_type": ["diag"], "var_smoothing": [0.01]},
]
N = 240
X, Y = blobs(N, 3)
GROUPS = np.random.default_rng(0).integers(0, 12, N)
SPLITTERS = {
    "KFold": KFold(4),
    "shuffled": KFold(4, shuffle=True, random_state=1),
    "StratifiedKFold": StratifiedKFold(4),
    "shuffled and stratified": StratifiedKFold(4, shuffle=True, random_state=1),
    "GroupKFold": GroupKFold(4),
    "shuffled groups": GroupKFold(4, shuffle=True, random_state=1),
    "StratifiedGroupKFold": StratifiedGroupKFold(3),
    "shuffled and stratified groups": StratifiedGroupKFold(3, shuffle=True, random_state=1),
    "LeaveOneGroupOut": LeaveOneGroupOut(),
    "PredefinedSplit": PredefinedSplit(np.arange(N) % 4 - 1),
}


def sureness(estimator, rows, labels):
    """A score of the caller's own."""
    return estimator.predict_proba(rows).max(axis=1).mean() - (labels == 0).mean()


NAMES = ["accuracy", "neg_log_loss", "balanced_accuracy", "f1_macro", "roc_auc_ovr"]
SCORES = {name: name for name in NAMES} | {
    "own": sureness,
    "made": make_scorer(f1_score, average="weighted"),
}


def searches(cv, y=Y, groups=None, **options):
    """Return both searches, fitted."""
    ours = GaussianDiscriminantCV(GRID, cv=cv, **options).fit(X, y, groups=groups)
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), GRID, cv=cv, **options)
    return ours, theirs.fit(X, y, groups=groups)


def assert_same_results(found, expected):
    assert found.keys() >= expected.keys()
    assert found["params"] == expected["params"]
    for name, column in expected.items():
        if name.startswith("param_"):
            assert found[name].dtype == column.dtype
            assert found[name].mask.tolist() == column.mask.tolist()
            assert found[name].tolist() == column.tolist()
        elif "test_" in name:
            np.testing.assert_allclose(found[name], column, rtol=1e-9, err_msg=name)
            assert found[name].dtype == column.dtype


@pytest.mark.parametrize("name", SPLITTERS)
def test_scores_of_any_kind_are_those_of_scikit_learn(name):
    groups = GROUPS if "roup" in name else None
    ours, theirs = searches(SPLITTERS[name], groups=groups, scoring=SCORES, refit="f1_macro")
    assert_same_results(ours.cv_results_, theirs.cv_results_)
    assert ours.best_index_ == theirs.best_index_
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-12)
    assert ours.n_splits_ == theirs.n_splits_
    assert ours.multimetric_ is theirs.multimetric_ is True
    assert ours.scorer_.keys() == theirs.scorer_.keys()
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scoring", ["neg_log_loss", ["neg_log_loss", "f1_macro"]])
def test_the_log_loss_of_impossible_rows_is_that_of_scikit_learn(scoring, dtype):
    """Probabilities of exactly 0 and 1 are clipped; one row in the wrong place is not infinite."""
    rows = np.where(Y[:, None] == 2, 50 * X, X).astype(dtype)
    rows[:9] *= 40
    assert (GaussianDiscriminantAnalysis().fit(rows[9:], Y[9:]).predict_proba(rows) == 0).any()
    refit = "f1_macro" if "f1_macro" in scoring else True
    options = {"scoring": scoring, "cv": KFold(4), "refit": refit}
    ours = GaussianDiscriminantCV(GRID, **options).fit(rows, Y)
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), GRID, **options).fit(rows, Y)
    assert_same_results(ours.cv_results_, theirs.cv_results_)
    rows, scores = rows.astype(float), {"cv": KFold(4), "scoring": "neg_log_loss"}
    grid = {"covariance_type": ["diag"], "var_smoothing": [1e-9]}
    expected = cross_val_score(GaussianNB(), rows, Y, **scores).mean()
    found = GaussianDiscriminantCV(grid, **scores).fit(rows, Y).best_score_
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_likelihood_of_labels_that_are_no_classes_is_refused():
    search = GaussianDiscriminantCV(GRID, cv=3, scoring="joint_log_likelihood").fit(X, Y)
    with pytest.raises(InvalidDataError, match=r"y\[2\] is 7, which is not one of the classes"):
        search.scorer_(search.best_estimator_, X[:3], [0, 1, 7])


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "roc_auc_ovr", sureness, None])
def test_a_single_score(scoring):
    names = np.array(["x", "yy", "zzz"])[Y]
    ours, theirs = searches(StratifiedKFold(3), names, scoring=scoring)
    assert_same_results(ours.cv_results_, theirs.cv_results_)
    assert ours.multimetric_ is theirs.multimetric_ is False
    assert ours.scorer_(ours, X, names) == pytest.approx(theirs.scorer_(theirs, X, names))
    assert set(ours.predict(X)) <= set(names)


def test_results_are_a_table():
    search = GaussianDiscriminantCV(GRID, cv=3, scoring=["f1_macro", "accuracy"], refit="accuracy")
    results = search.fit(X, Y).cv_results_
    table = pd.DataFrame(results)
    assert len(table) == 5
    assert not any(name.endswith("_score") and "test" in name for name in table)
    assert table["rank_test_f1_macro"].min() == 1
    for name in ("fit_time", "score_time"):
        assert (table[f"mean_{name}"] > 0).all()
        assert (table[f"std_{name}"] >= 0).all()
    assert search.refit_time_ > 0


def test_times_of_scores_that_are_computed_here():
    results = GaussianDiscriminantCV(GRID, cv=3).fit(X, Y).cv_results_
    assert (results["mean_fit_time"] > 0).all()
    assert (results["mean_score_time"] > 0).all()
    results = GaussianDiscriminantCV(GRID, cv=3, scoring="joint_log_likelihood").fit(X, Y)
    assert (results.cv_results_["mean_score_time"] == 0).all()


# --- the choice -------------------------------------------------------------------------------


def worst(results):
    return int(results["mean_test_accuracy"].argmin())


@pytest.mark.parametrize("scoring", ["accuracy", ["accuracy", "f1_macro"]])
def test_a_function_may_choose(scoring):
    search = GaussianDiscriminantCV(GRID, cv=3, scoring=scoring, refit=worst).fit(X, Y)
    assert search.best_index_ == worst(search.cv_results_)
    assert search.best_estimator_.get_params().items() >= search.best_params_.items()
    assert not hasattr(search, "best_score_")


def test_without_a_refit_there_is_only_the_table():
    search = GaussianDiscriminantCV(GRID, cv=3, scoring="f1_macro").fit(X, Y)
    best = search.best_index_
    search.set_params(refit=False).fit(X, Y)
    assert (search.best_index_, search.best_params_) == (best, search.cv_results_["params"][best])
    assert search.best_score_ == search.cv_results_["mean_test_score"][best]
    assert not hasattr(search, "best_estimator_")
    assert not hasattr(search, "refit_time_")
    with pytest.raises(NotFittedError, match="fitted with refit=False"):
        search.predict(X)
    several = search.set_params(scoring=["accuracy", "f1_macro"]).fit(X, Y)
    for name in ("best_index_", "best_params_", "best_score_"):
        assert not hasattr(several, name)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"scoring": ["accuracy", "f1_macro"]}, "refit=True; expected the score that decides, one"),
        ({"scoring": ["accuracy"], "refit": "f1"}, "refit='f1'; expected the score that decides"),
        ({"refit": "f1_macro"}, "refit='f1_macro'; expected True, False, or a function"),
        ({"refit": 3}, "refit=3; expected True, False, or a function"),
        ({"refit": lambda _: 5}, "the result of refit=5; expected the number of one of 5"),
        ({"scoring": []}, r"scoring=\[\]; expected at least one score"),
        ({"scoring": ["accuracy", "accuracy"]}, "expected different names of scores"),
        ({"scoring": [sureness]}, "or a dict of functions"),
        ({"scoring": {1: "accuracy"}}, "expected a dict of names to scores"),
        ({"scoring": {"a": "f0"}}, "scoring='f0'; expected one of"),
        ({"scoring": 5}, "scoring=5; expected one of"),
        ({"scoring": lambda e, X, y: {"a": 1.0}}, "scoring returned {'a': 1.0} for 'score'"),
    ],
)
def test_unusable_scores(options, match):
    search = GaussianDiscriminantCV(GRID, cv=3, **options)
    before = dict(vars(search))
    with pytest.raises(InvalidParameterError, match=match):
        search.fit(X, Y)
    assert vars(search) == before


def test_a_function_that_fails_leaves_nan():
    def cautious(estimator, rows, labels):
        if len(rows) == N // 2 - 10:
            raise ZeroDivisionError("too few\nrows")
        return estimator.score(rows, labels)

    folds = (np.arange(N) >= N // 2 - 10).astype(int)
    search = GaussianDiscriminantCV(GRID, cv=folds, scoring=cautious)
    with pytest.warns(FitFailedWarning, match="scoring=.*cautious.* failed in some split"):
        search.fit(X, Y)
    assert np.isnan(search.cv_results_["split0_test_score"]).all()
    alone = search.cv_results_["split1_test_score"]
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], alone)
    with pytest.raises(InvalidParameterError, match="failed for all candidates: ZeroDivision"):
        search.set_params(scoring=lambda *_: 1 / 0).fit(X, Y)


# --- rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["zarr", "dask", "memmap"])
def test_rows_that_are_not_in_memory(kind):
    options = {"cv": GroupKFold(4), "scoring": {"f": "f1_macro", "own": sureness}, "refit": "f"}
    expected = GaussianDiscriminantCV(GRID, **options).fit(X, Y, groups=GROUPS).cv_results_
    rows, labels = held(X, kind, rows=37), held(Y, kind, rows=37)
    found = GaussianDiscriminantCV(GRID, **options).fit(rows, labels, groups=GROUPS).cv_results_
    for name in ("mean_test_f", "split3_test_own", "mean_test_joint_log_likelihood"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-12)


def test_test_sets_are_collected_within_the_memory(monkeypatch):
    read, passes = FoldedRows.read, []
    monkeypatch.setattr(FoldedRows, "read", lambda *args: passes.append(args[-1]) or read(*args))
    search = GaussianDiscriminantCV(GRID, cv=KFold(6), scoring="f1_macro")
    expected = search.fit(X, Y).cv_results_["mean_test_score"]
    assert passes == ["accumulating", "scoring"]
    fold_bytes = N // 6 * (3 * 8 + 24)
    for n_sets, n_passes in ((6, 1), (4, 2), (1, 6)):
        passes.clear()
        monkeypatch.setattr(FoldedRows, "held_bytes", lambda *_: 0)
        monkeypatch.setattr(FoldedRows, "plan", lambda rows, state: whole(rows))
        search.max_memory = 4 * n_sets * fold_bytes
        found = search.fit(X, Y).cv_results_["mean_test_score"]
        np.testing.assert_array_equal(found, expected)
        assert passes == ["accumulating"] + ["scoring"] * n_passes
    search.max_memory = 4 * fold_bytes - 4
    with pytest.raises(MemoryBudgetError, match=r"f1_macro.* needs the 40 rows of a test set"):
        search.fit(X, Y)


def whole(rows):
    from streamgda.rows.sources import Slabs

    return Slabs(rows.rows.n_rows)


def test_weights_count_in_scores_that_take_them():
    weights = np.random.default_rng(1).integers(0, 3, N).astype(float)
    folds = np.arange(N) % 3
    scores = {"f": "f1_macro", "accuracy": "accuracy", "own": sureness}
    search = GaussianDiscriminantCV({"ddof": [0]}, cv=folds, scoring=scores, refit="f")
    results = search.fit(X, Y, weights).cv_results_
    for f in range(3):
        train, test = folds != f, (folds == f) & (weights > 0)
        gda = GaussianDiscriminantAnalysis().fit(X[train], Y[train], weights[train])
        rows, labels, w = X[test], Y[test], weights[test]
        expected = {
            "f": f1_score(labels, gda.predict(rows), average="macro", sample_weight=w),
            "accuracy": gda.score(rows, labels, w),
            "own": sureness(gda, rows, labels),
        }
        for name, score in expected.items():
            assert results[f"split{f}_test_{name}"][0] == pytest.approx(score, rel=1e-12)


def test_a_sample_of_the_rows_is_scored():
    sizes = []

    def counted(estimator, rows, labels):
        sizes.append(len(rows))
        return estimator.score(rows, labels)

    options = {"cv": 4, "score_sample": 0.25}
    grid = {"ddof": [0]}
    found = GaussianDiscriminantCV(grid, scoring=counted, **options).fit(X, Y).cv_results_
    expected = GaussianDiscriminantCV(grid, **options).fit(X, Y).cv_results_
    assert sum(sizes) == pytest.approx(N / 4, abs=4)
    np.testing.assert_allclose(found["mean_test_score"], expected["mean_test_score"], rtol=1e-12)


# --- interruption and files -------------------------------------------------------------------

CALLS: list[int] = []
STOP_AT: list[int] = []


def stopping(estimator, rows, labels):
    if len(CALLS) in STOP_AT:
        raise KeyboardInterrupt
    CALLS.append(len(rows))
    return estimator.score(rows, labels)


@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_search_that_was_stopped_goes_on_with_the_next_split(at, tmp_path):
    path, scores = tmp_path / "kept", {"own": stopping, "f": "f1_macro", "accuracy": "accuracy"}
    search = GaussianDiscriminantCV(GRID, cv=4, scoring=scores, refit="own")
    expected = search.fit(X, Y).cv_results_
    CALLS.clear()
    STOP_AT.append(at)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, Y, checkpoint=path, checkpoint_every=0)
    STOP_AT.clear()
    found = search.fit(X, Y, checkpoint=path).cv_results_
    assert len(CALLS) == 20 + at % 5  # of the split that was interrupted, once more
    for name, column in expected.items():
        if "test_" in name:
            np.testing.assert_array_equal(found[name], column)


def test_a_damaged_checkpoint_is_reported(tmp_path):
    path = tmp_path / "kept"
    search = GaussianDiscriminantCV(GRID, cv=4, scoring="f1_macro").fit(X, Y, checkpoint=path)
    contents = CheckpointContents.load(path)
    contents.done = 10**6
    path.unlink()
    contents.save(tmp_path / "kept.zip")
    (tmp_path / "kept.zip").rename(path)
    with pytest.raises(CheckpointError, match="is damaged: 1000000 rows in slabs"):
        search.fit(X, Y, checkpoint=path)


def test_searches_by_names_are_saved_and_others_pickled(tmp_path):
    scores = ["f1_macro", "accuracy", "roc_auc_ovr"]
    search = GaussianDiscriminantCV(GRID, cv=3, scoring=scores, refit="roc_auc_ovr").fit(X, Y)
    search.save(tmp_path / "search.zip")
    for loaded in (load(tmp_path / "search.zip"), pickle.loads(pickle.dumps(search))):
        assert loaded.cv_results_.keys() == search.cv_results_.keys()
        for name, column in search.cv_results_.items():
            np.testing.assert_array_equal(loaded.cv_results_[name], column)
        for name in ("best_score_", "n_splits_", "multimetric_", "refit_time_"):
            assert getattr(loaded, name) == getattr(search, name)
        assert loaded.scorer_.keys() == search.scorer_.keys()
    own = GaussianDiscriminantCV(GRID, cv=3, scoring=sureness).fit(X, Y)
    assert pickle.loads(pickle.dumps(own)).best_score_ == own.best_score_
    with pytest.raises(InvalidParameterError, match="functions as scoring or refit cannot be"):
        own.save(tmp_path / "own.zip")
    named = search.set_params(scoring={"f/1": "f1_macro"}, refit="f/1").fit(X, Y)
    with pytest.raises(InvalidParameterError, match="name with a slash"):
        named.save(tmp_path / "named.zip")
