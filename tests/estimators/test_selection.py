"""Model selection: against scikit-learn's search on the same splits, in any container."""

import pickle
import warnings

import naive
import numpy as np
import pandas as pd
import pytest
from grids import in_turn
from samples import KINDS, assert_same_bits, blobs, bytes_of, held, results
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    LeaveOneOut,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    GroupedMoments,
    load,
)
from streamgda.engine import plan
from streamgda.engine.folds import as_folds, fold_of
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
)
from streamgda.estimators import selection
from streamgda.models.covariance import Summary
from streamgda.moments.grouped import each_held_out
from streamgda.rows.source import as_source
from streamgda.storage.saved import restore, state_of

GRID = [
    {"covariance_type": ["full", "tied"], "shrinkage": [0.01, "oas"]},
    {"covariance_type": ["diag", "spherical", "tied_diag"], "var_smoothing": [0.0, 0.1]},
    {"pooling": [0.2], "reg_param": [0.1], "ddof": [1]},
]
FEW = [{"covariance_type": ["full", "tied"], "shrinkage": [0.1]}, {"covariance_type": ["diag"]}]
SCORINGS = ["accuracy", "neg_log_loss", "joint_log_likelihood"]
EVERY_SCORING = pytest.mark.parametrize("scoring", SCORINGS)
N = 240
X, Y = blobs(N, 3)
GROUPS = np.random.default_rng(0).integers(0, 12, N)
SPLITTERS = {
    "KFold": KFold(4),
    "shuffled": KFold(4, shuffle=True, random_state=1),
    "StratifiedKFold": StratifiedKFold(4, shuffle=True, random_state=1),
    "GroupKFold": GroupKFold(4),
    "StratifiedGroupKFold": StratifiedGroupKFold(3),
    "LeaveOneGroupOut": LeaveOneGroupOut(),
    "PredefinedSplit": PredefinedSplit(np.arange(N) % 4 - 1),
    "one ShuffleSplit": ShuffleSplit(1, random_state=0),
}


@parametrize_with_checks([GaussianDiscriminantCV({"var_smoothing": [1e-3, 0.1]})])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture
def passes(monkeypatch):
    """The passes over the rows, by what they do."""
    read, found = selection.read_slabs, []
    monkeypatch.setattr(
        selection, "read_slabs", lambda *args, **more: found.append(args[2]) or read(*args, **more)
    )
    return found


# --- folds ------------------------------------------------------------------------------------


@in_turn("n_folds, seed", [2, 5, 10], [0, 1, 2**40])
def test_folds_depend_on_row_numbers_alone(n_folds, seed):
    folds = fold_of(0, 40_000, n_folds, seed)
    assert fold_of(1234, 5678, n_folds, seed).tolist() == folds[1234:5678].tolist()
    share = np.bincount(folds, minlength=n_folds) / folds.size
    np.testing.assert_allclose(share, 1 / n_folds, atol=0.01)
    # Neither neighbours nor rows at any fixed distance are correlated.
    for step in (1, 2, n_folds, 7):
        assert (folds[step:] == folds[:-step]).mean() == pytest.approx(1 / n_folds, abs=0.015)
    other = fold_of(0, 40_000, n_folds, seed + 1)
    assert (folds == other).mean() == pytest.approx(1 / n_folds, abs=0.015)


@pytest.mark.parametrize("n_folds", [2, 3, 11, 40])
@pytest.mark.parametrize("shift", [0, 1e7])
def test_training_sets_are_all_other_rows(n_folds, shift):
    folds, rows = np.arange(N) % n_folds, X + shift  # far from zero, differences would cancel
    moments, never = GroupedMoments().update(rows, Y, folds), ClassMoments()
    for more in (0, 30):
        never.update(rows[:more], Y[:more])
        for fold, train in each_held_out(moments, never):
            used = np.r_[np.flatnonzero(folds != fold), :more]
            expected = naive.moments(rows[used], Y[used])
            assert train.class_count.tolist() == expected.count.tolist()
            S = expected.scatter / expected.count[:, None, None]
            np.testing.assert_allclose(train.covariance(), S, rtol=1e-12, atol=1e-9)


def test_integers_are_exact_whichever_fold_is_left_out():
    moments = GroupedMoments().update(bytes_of(X), Y, np.arange(N) % 13)
    for fold, train in each_held_out(moments, ClassMoments()):
        np.testing.assert_array_equal(train.covariance(), moments.without(fold).covariance())


def test_three_hundred_groups_take_two_passes_and_few_sums(monkeypatch, passes):
    rows, labels = blobs(1200, 3)
    groups, sums, plus = np.random.default_rng(0).permutation(1200) % 300, [], ClassMoments.__iadd__
    monkeypatch.setattr(ClassMoments, "__iadd__", lambda a, b: sums.append(1) or plus(a, b))
    search = GaussianDiscriminantCV({"covariance_type": ["tied", "diag"]}, cv=LeaveOneGroupOut())
    assert search.fit(rows, labels, groups=groups).n_splits_ == 300
    assert passes == ["accumulating", "scoring"]
    assert 300 < len(sums) <= 300 * 9  # about 300 * log2(300)


@in_turn("covariance_type, weighted", naive.COVARIANCE_TYPES, [False, True])
def test_joint_log_likelihood_is_that_of_the_rows(covariance_type, weighted):
    rows, y = blobs(200, 4, 4)
    rows += 1e3
    others, labels = blobs(150, 4, 4, seed=1)
    others += 1e3
    others[:, 2] = rows[:, 2] = 5.0  # constant: not in the density
    others[:3, 2] = 6.0  # but for a few that the model has not seen
    weights = np.random.default_rng(0).uniform(0.1, 2, 150) if weighted else None
    seen = y != 1  # a class that the model does not know
    how = {"var_smoothing": 0.01, "priors": [0.5, 0.3, 0.2]}
    gda = GaussianDiscriminantAnalysis(covariance_type, **how)
    with pytest.warns(UserWarning, match="constant"):
        gda.fit(rows[seen], y[seen])
    held_types = ["full"] if naive.is_matrix(covariance_type) else ["full", "diag"]
    known = labels != 1
    w = (np.ones(150) if weights is None else weights)[known]
    columns = np.searchsorted([0, 2, 3], labels[known])
    joint = gda.predict_joint_log_proba(others[known])[np.arange(known.sum()), columns]
    for kind in held_types:
        moments = ClassMoments(kind).update(others, labels, weights)
        total, weight = gda.model_.joint_log_likelihood(Summary.of(moments))
        assert weight == pytest.approx(w.sum(), rel=1e-12)
        assert total == pytest.approx(w @ joint, rel=1e-11)
        unknown = ClassMoments(kind).update(others, labels + 5)
        assert gda.model_.joint_log_likelihood(Summary.of(unknown)) == (0, 0)


# --- against scikit-learn's search ------------------------------------------------------------


def likelihood(estimator, rows, labels):
    joint = estimator.predict_joint_log_proba(rows)
    return joint[np.arange(len(labels)), np.searchsorted(estimator.classes_, labels)].mean()


def assert_alike(cv, scoring, rows=X, labels=Y, grid=FEW, groups=None, splits=None):
    """Compare with the search of scikit-learn; `splits` are the splits for that one."""
    ours = GaussianDiscriminantCV(grid, cv=cv, scoring=scoring).fit(rows, labels, groups=groups)
    scorer = likelihood if scoring == "joint_log_likelihood" else scoring
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), grid, cv=splits or cv, scoring=scorer)
    theirs.fit(rows, labels, groups=groups)
    for name in ("best_params_", "best_index_", "n_splits_"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=1e-9)
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name, column in theirs.cv_results_.items():
        if "test_" in name:
            found = ours.cv_results_[name]
            np.testing.assert_allclose(found, column, rtol=1e-9, err_msg=name)
            assert found.dtype == column.dtype
    expected = theirs.best_estimator_.predict_proba(rows)
    np.testing.assert_allclose(ours.predict_proba(rows), expected, atol=1e-9)


def stratified(y, n_folds):
    """The folds of fewer than 1,000 rows with these labels."""
    rows = as_source(np.zeros((len(y), 1)))
    return as_folds(n_folds, 0, None, rows, as_source(y, "y")).of(0, len(y))


@EVERY_SCORING
def test_scores_are_those_of_fitting_each_candidate_to_each_split(scoring):
    rows, y = blobs(300, 4)
    splits = PredefinedSplit(stratified(y, 4))
    assert_alike(4, scoring, rows, y, GRID, splits=splits)


@in_turn("name, scoring", SPLITTERS, SCORINGS)
def test_scores_of_splitters(name, scoring):
    names = np.array(["x", "yy", "zzz"])[Y]
    groups = GROUPS if "roup" in name else None
    assert_alike(SPLITTERS[name], scoring, labels=names, groups=groups)
    if name == "KFold" and scoring == "accuracy":
        assert_alike(LeaveOneOut(), scoring, X[:40], Y[:40])


@pytest.mark.parametrize("make", [list, np.asarray, lambda f: held(f, "zarr")])
def test_folds_and_pairs_are_a_predefined_split(make):
    folds = np.where(GROUPS < 2, -1, GROUPS % 4 * 10)
    splitter = PredefinedSplit(folds)
    pairs = [*splitter.split()]
    masks = [(np.isin(np.arange(N), a), np.isin(np.arange(N), b)) for a, b in pairs]
    searches = [
        GaussianDiscriminantCV(FEW, cv=cv).fit(X, Y).cv_results_
        for cv in (splitter, make(folds), pairs, iter(pairs), masks)
    ]
    for other in searches[1:]:
        for s in range(4):
            score = f"split{s}_test_score"
            np.testing.assert_array_equal(other[score], searches[0][score])


def test_the_log_loss_of_impossible_rows_is_that_of_scikit_learn():
    """Probabilities of exactly 0 and 1 are clipped; one row in the wrong place is not infinite."""
    rows = np.where(Y[:, None] == 2, 50 * X, X)
    rows[:9] *= 40
    assert (GaussianDiscriminantAnalysis().fit(rows[9:], Y[9:]).predict_proba(rows) == 0).any()
    assert_alike(KFold(4), "neg_log_loss", rows)
    scores = {"cv": KFold(4), "scoring": "neg_log_loss"}
    grid = {"covariance_type": ["diag"], "var_smoothing": [1e-9]}
    expected = cross_val_score(GaussianNB(), rows, Y, **scores).mean()
    found = GaussianDiscriminantCV(grid, **scores).fit(rows, Y).best_score_
    assert found == pytest.approx(expected, rel=1e-9)


def test_other_scores_of_the_same_pass_are_in_the_table_too():
    found = [GaussianDiscriminantCV(GRID, scoring=s).fit(X, Y).cv_results_ for s in SCORINGS]
    for name, n_tables in zip(SCORINGS, (2, 2, 3), strict=True):
        tables = [f for f in found if f"mean_test_{name}" in f]
        assert len(tables) == n_tables
        for table in tables:
            for column in ("mean", "std", "rank", "split2"):
                expected = found[SCORINGS.index(name)][f"{column}_test_score"]
                found_there = table[f"{column}_test_{name}"]
                np.testing.assert_allclose(found_there, expected, rtol=1e-12)


@in_turn("scoring, dtype", SCORINGS, ["u1", "f4", "f8"])
def test_weights(scoring, dtype):
    weights = np.random.default_rng(0).integers(0, 4, N).astype(dtype)
    search = GaussianDiscriminantCV({"reg_param": [0.1]}, cv=3, scoring=scoring)
    search.fit(np.where(weights[:, None] == 0, np.nan, X), Y, weights)
    of = stratified(Y, 3)
    for f in range(3):
        gda = GaussianDiscriminantAnalysis(reg_param=0.1)
        gda.fit(X[of != f], Y[of != f], weights[of != f])
        rows, labels, w = X[of == f], Y[of == f], weights[of == f]
        at = np.arange(len(labels)), labels
        expected = {
            "accuracy": gda.score(rows, labels, w),
            "neg_log_loss": np.average(gda.predict_log_proba(rows)[at], weights=w),
            "joint_log_likelihood": np.average(gda.predict_joint_log_proba(rows)[at], weights=w),
        }[scoring]
        assert search.cv_results_[f"split{f}_test_score"][0] == pytest.approx(expected, rel=1e-10)


# --- wherever rows are ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_bits(kind):
    rows = bytes_of(X)
    grid = {"covariance_type": ["full", "tied_diag"], "shrinkage": [0.1]}
    whole = GaussianDiscriminantCV(grid, scoring="neg_log_loss").fit(rows, Y)
    found = GaussianDiscriminantCV(grid, scoring="neg_log_loss")
    found.fit(held(rows, kind, rows=37), held(Y, kind, rows=37))
    if kind == "frame":
        found.best_estimator_.__dict__.pop("feature_names_in_", None)
    for name in (f"split{f}_test_{score}" for f in range(5) for score in SCORINGS):
        np.testing.assert_allclose(found.cv_results_[name], whole.cv_results_[name], rtol=1e-14)
    assert_same_bits(results(found.best_estimator_, rows), results(whole.best_estimator_, rows))
    if kind == "dask":  # chunks of unknown size
        some = held(np.arange(N) % 3 > 0, kind)
        lazy = GaussianDiscriminantCV(FEW, cv=3).fit(held(X, kind)[some], held(Y, kind)[some])
        known = GaussianDiscriminantCV(FEW, cv=3).fit(X[some.compute()], Y[some.compute()])
        assert lazy.best_score_ == known.best_score_


@pytest.mark.parametrize("kind", ["zarr", "dask"])
@pytest.mark.parametrize("name", ["StratifiedKFold", "LeaveOneGroupOut"])
def test_splits_of_rows_that_are_not_in_memory(kind, name):
    search, groups = GaussianDiscriminantCV(FEW, cv=SPLITTERS[name]), None
    if "Group" in name:
        groups = GROUPS
    expected = search.fit(X, Y, groups=groups).cv_results_
    rows, labels = held(X, kind, rows=37), held(Y, kind, rows=37)
    groups = None if groups is None else held(groups, kind, rows=37)
    found = search.fit(rows, labels, groups=groups).cv_results_
    for split in range(search.n_splits_):
        score = f"split{split}_test_score"
        np.testing.assert_allclose(found[score], expected[score], rtol=1e-12)


def test_the_best_is_that_of_all_rows():
    search = GaussianDiscriminantCV({"shrinkage": [0.1, "oas"]}).fit(X, Y)
    fitted = GaussianDiscriminantAnalysis(**search.best_params_).fit(X, Y)
    np.testing.assert_allclose(search.predict_proba(X), fitted.predict_proba(X), atol=1e-12)
    assert search.best_estimator_.moments_.class_count.sum() == N
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        expected = getattr(search.best_estimator_, method)(X)
        np.testing.assert_array_equal(getattr(search, method)(X), expected)
    assert search.classes_.tolist() == [0, 1, 2]
    assert search.score(X, Y) == fitted.score(X, Y)


@pytest.mark.parametrize(("models", "expected"), [(0, 4), (1, 3), (2, 2), (3, 1)])
def test_less_memory_takes_more_passes_and_finds_the_same(monkeypatch, passes, models, expected):
    rows, y = blobs(200, 100)
    grid = [{"shrinkage": [0.1, 0.3, 0.5]}, {"covariance_type": ["diag"], "ddof": [0, 1]}]
    whole = GaussianDiscriminantCV(grid, cv=2).fit(rows, y)
    assert passes == ["accumulating", "scoring"]
    passes.clear()
    GaussianDiscriminantCV(grid, cv=2, scoring="joint_log_likelihood").fit(rows, y)
    assert passes == ["accumulating"]
    passes.clear()
    # Moments of the folds, and memory for the candidates' matrices for each class and fold.
    moments = ClassMoments().update(rows, y)
    model = moments._structure.model_bytes(moments.classes.size, 100)
    allowed = int(2 * (8 * moments.nbytes + (models + 0.5) * 4 * model))
    monkeypatch.setattr(plan, "_SCRATCH_BYTES", 0)
    monkeypatch.setattr(plan, "scratch_bytes", lambda n_features: 0)
    found = GaussianDiscriminantCV(grid, cv=2, max_memory=allowed).fit(rows, y)
    assert passes == ["accumulating"] + ["scoring"] * expected
    for name, column in whole.cv_results_.items():
        if "test" in name:
            np.testing.assert_array_equal(found.cv_results_[name], column)


def test_max_memory():
    rows, y = blobs(200, 300, 2)
    stored = held(rows, "zarr"), held(y, "zarr")
    grid = {"shrinkage": [0.1, 0.3]}
    whole = GaussianDiscriminantCV(grid, cv=2).fit(rows, y)
    found = GaussianDiscriminantCV(grid, cv=2, max_memory="150MB").fit(*stored)
    assert found.best_params_ == whole.best_params_
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 10\.0 MB"):
        GaussianDiscriminantCV(grid, cv=2, max_memory="10MB").fit(*stored)


def test_data_frames():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    search = GaussianDiscriminantCV({"reg_param": [0.1]}).fit(frame, pd.Series(Y))
    assert search.feature_names_in_.tolist() == ["a", "b", "c"]
    assert search.predict(frame).tolist() == search.best_estimator_.predict(frame).tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        search.predict(frame[["b", "a", "c"]])
    assert not hasattr(search.fit(X, Y), "feature_names_in_")


def test_cloned_pickled_and_saved(tmp_path):
    search = GaussianDiscriminantCV({"reg_param": [0.1, 0.2]}, cv=3).fit(X, Y)
    again = clone(search)
    assert again.get_params() == search.get_params()
    for use in (lambda: again.predict(X), lambda: again.save(tmp_path / "unfitted")):
        with pytest.raises(NotFittedError):
            use()
    restored = pickle.loads(pickle.dumps(search))
    assert restored.best_params_ == search.best_params_
    search.save(tmp_path / "best.zip")
    loaded = load(tmp_path / "best.zip")
    assert loaded.get_params() == search.best_estimator_.get_params()
    # An earlier version saved whole searches, with the best estimator in them.
    best, arrays = state_of(search)
    saved = {"estimator": "GaussianDiscriminantCV", "best_estimator": best}
    named = {f"best_estimator/{name}": array for name, array in arrays.items()}
    old = restore(GaussianDiscriminantCV, saved, named)
    for estimator in (restored, loaded, old):
        np.testing.assert_array_equal(estimator.predict_proba(X), search.predict_proba(X))


# --- the choice -------------------------------------------------------------------------------


def test_without_a_refit_there_is_only_the_table():
    search = GaussianDiscriminantCV(FEW, cv=3).fit(X, Y)
    table = pd.DataFrame(search.cv_results_)
    assert search.best_estimator_.get_params().items() >= search.best_params_.items()
    search.set_params(refit=False).fit(X, Y)
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    assert search.best_score_ == table["mean_test_score"].max()
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(NotFittedError, match="fitted with refit=False"):
        search.predict(X)


def test_the_first_of_equal_candidates_is_best_and_priors_are_candidates_too():
    grid = {"reg_param": [0.3, 0.2], "ddof": [0, 0]}
    search = GaussianDiscriminantCV(grid).fit(X * 1e-9, Y)
    assert len(set(search.cv_results_["mean_test_score"])) == 1
    assert search.best_index_ == 0
    grid = {"priors": [None, [0.0, 0.5, 0.5], [0.1, 0.4, 0.5]], "reg_param": [0.01]}
    search = GaussianDiscriminantCV(grid, scoring="joint_log_likelihood").fit(X, Y)
    assert search.cv_results_["mean_test_score"][1] == -np.inf
    assert search.best_params_["priors"] is None
    accuracies = GaussianDiscriminantCV(grid).fit(X, Y).cv_results_["mean_test_score"]
    assert accuracies[1] < accuracies[0]


# --- what cannot be scored --------------------------------------------------------------------


@EVERY_SCORING
def test_singular_candidates_have_no_score(scoring):
    rows = np.column_stack([X, X[:, 0]])
    search = GaussianDiscriminantCV({"reg_param": [0.0, 0.1]}, scoring=scoring)
    with pytest.warns(FitFailedWarning, match="1 of 2 candidates score nan in.*0.0}.*rank 3 of 4"):
        search.fit(rows, Y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    assert search.best_params_ == {"reg_param": 0.1}
    before = search.cv_results_
    with pytest.raises(SingularCovarianceError, match="rank 3 of 4"):
        search.set_params(param_grid={"reg_param": [0.0]}).fit(rows, Y)
    assert search.cv_results_ is before


@EVERY_SCORING
def test_a_class_that_is_in_one_fold_alone_is_wrong_or_left_out(scoring):
    folds = np.arange(N) % 5
    rare = np.flatnonzero(folds == 2)[:3]
    grid = {"reg_param": [0.1, 0.3]}
    y = Y.copy()
    y[rare] = 9
    found = GaussianDiscriminantCV(grid, cv=folds, scoring=scoring).fit(X, y)
    assert found.classes_.tolist() == [0, 1, 2, 9]
    if "accuracy" in scoring:
        theirs = GridSearchCV(
            GaussianDiscriminantAnalysis(), grid, cv=PredefinedSplit(folds), scoring=scoring
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of labels that are never predicted
            expected = theirs.fit(X, y).cv_results_
    else:
        weights = np.ones(N)
        weights[rare] = 0  # as if missing
        search = GaussianDiscriminantCV(grid, cv=folds, scoring=scoring)
        expected = search.fit(X, Y, weights).cv_results_
    mine = found.cv_results_["split2_test_score"]
    np.testing.assert_allclose(mine, expected["split2_test_score"], rtol=1e-10)


def test_candidates_that_cannot_be_fitted_to_a_fold_do_not_end_the_search():
    folds = np.arange(N) % 5
    y = np.where((folds == 2) & (np.arange(N) < 15), 9, Y)
    grid = {"priors": [None, [0.2, 0.2, 0.2, 0.4]], "reg_param": [0.1]}
    with pytest.warns(FitFailedWarning, match="1 of 2 candidates score nan"):
        search = GaussianDiscriminantCV(grid, cv=folds).fit(X, y)
    assert search.best_params_["priors"] is None
    assert np.isnan(search.cv_results_["split2_test_score"][1])
    assert not np.isnan(search.cv_results_["split1_test_score"][1])


def test_splits_without_rows_are_left_out():
    rows, y, folds = X[:12], np.arange(12) % 2, np.arange(12) % 6
    search = GaussianDiscriminantCV({"reg_param": [0.5, 0.9]}, cv=folds)
    search.fit(rows, y, (folds != 3).astype(float))
    table = np.array([search.cv_results_[f"split{f}_test_score"] for f in range(6)])
    assert np.flatnonzero(np.isnan(table[:, 0])).tolist() == [3]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], np.nanmean(table, axis=0))


def test_folds_of_few_rows_have_equal_shares_of_each_class():
    y = np.random.default_rng(0).permutation(np.repeat(["a", "b", "c"], [400, 97, 13]))
    for n_folds in (2, 5, 7):
        folds = stratified(y, n_folds)
        for label in "abc":
            counts = np.bincount(folds[y == label], minlength=n_folds)
            assert np.ptp(counts) <= 1
        assert np.ptp(np.bincount(folds)) <= 1
        rows, labels = np.zeros((510, 1)), held(y, "zarr")
        same = as_folds(n_folds, 0, None, as_source(rows), as_source(labels, "y"))
        np.testing.assert_array_equal(same.of(0, 510), folds)
    many = as_folds(5, 1, None, as_source(np.zeros((1000, 1))), as_source(np.zeros(1000), "y"))
    np.testing.assert_array_equal(many.of(0, 1000), fold_of(0, 1000, 5, 1))


def test_too_little_to_hold_anything_out():
    with pytest.raises(InvalidDataError, match="no row can be held out of 2 folds"):
        GaussianDiscriminantCV({"reg_param": [0.5]}, cv=2).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidDataError, match="no row can be held out of 1 folds"):
        GaussianDiscriminantCV(FEW, cv=[(np.arange(N), [])]).fit(X, Y)
    with pytest.raises(InvalidDataError, match="greater than one; got 1 class"):
        GaussianDiscriminantCV().fit(X, np.zeros(N, int))


def test_rows_that_cannot_be_used():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GaussianDiscriminantCV().fit(X, Y[:-1])
    with pytest.raises(InvalidDataError, match=f"{N} rows but there are {N - 1} weights"):
        GaussianDiscriminantCV().fit(X, Y, np.ones(N - 1))
    rows = np.where(np.arange(N)[:, None] == 217, [0, np.nan, 0], X)
    for kind in ("numpy", "zarr"):
        with pytest.raises(InvalidDataError, match="row 217, column 1 is nan"):
            GaussianDiscriminantCV().fit(held(rows, kind), held(Y, kind))


class ByRows:
    """A splitter that looks at the rows."""

    def split(self, X, y=None, groups=None):
        chosen = np.asarray(X)[:, 0] % 1 < 0.7
        yield chosen, ~chosen


def test_a_splitter_that_looks_at_the_rows():
    assert_alike([*ByRows().split(X)], "accuracy")
    assert GaussianDiscriminantCV(FEW, cv=ByRows()).fit(X, Y).n_splits_ == 1
    for kind in ("zarr", "dask"):
        with pytest.raises(InvalidParameterError, match="cannot look at rows that are not in mem"):
            GaussianDiscriminantCV(FEW, cv=ByRows()).fit(held(X, kind), held(Y, kind))


@pytest.mark.parametrize(
    ("params", "groups", "match"),
    [
        ({"cv": 1}, None, "cv=1; expected an integer >= 2"),
        ({"cv": True}, None, "cv=True; expected"),
        ({"cv": "5"}, None, "cv='5'; expected an integer >= 2, a splitter"),
        ({"cv": None}, None, "cv=None; expected an integer >= 2, a splitter"),
        ({"cv": KFold}, None, "expected an integer >= 2, a splitter"),
        ({"cv": N + 1}, None, f"cv={N + 1}, and X has only {N} rows"),
        ({"cv": 10**36}, None, f"cv=1000.*, and X has only {N} rows"),
        ({"cv": []}, None, "cv has no splits"),
        ({"cv": [0, 1]}, None, rf"cv=array\(\[0, 1\]\); expected the fold of each of {N} rows"),
        ({"cv": np.full(N, -1)}, None, r"cv=array\(\[-1, .*; expected the fold of each"),
        ({"cv": np.arange(N) % 3 - 2}, None, "; expected the fold of each .* >= 0, or -1 for"),
        ({"cv": np.arange(N) / 2}, None, "; expected the fold of each .* cv=LeaveOneGroupOut"),
        ({"cv": [([0], [N])]}, None, rf"cv=\(\[0\], \[{N}\]\); expected pairs"),
        ({"cv": [([True, False], [3])]}, None, "expected pairs .* or of masks"),
        ({"cv": [([0.5], [3])]}, None, f"expected pairs .* of numbers of rows, less than {N}"),
        ({"cv": [3, ([0], [1])]}, None, "cv=3; expected pairs"),
        ({"cv": [([0], [1])]}, None, "needs a partition. .*GridSearchCV"),
        ({"cv": RepeatedKFold(n_splits=2)}, None, r"cv=Repeated.* needs a partition"),
        ({"cv": ShuffleSplit(3)}, None, "cv=Shuffle.* needs a partition"),
        ({"cv": TimeSeriesSplit(3)}, None, "cv=TimeSeries.* needs a partition"),
        ({"cv": StratifiedKFold(200)}, None, "cannot split 240 rows: n_splits=200 cannot be great"),
        ({"cv": LeaveOneGroupOut()}, None, "The 'groups' parameter should not be None"),
        ({"cv": LeaveOneGroupOut()}, np.zeros(N), "cannot split 240 rows: .*fewer than 2 unique"),
        ({"cv": GroupKFold(3)}, GROUPS[:9], "cannot split 240 rows: .*inconsistent numbers of"),
        ({"cv": np.arange(N) % 3}, GROUPS, "groups were given, but cv="),
        ({"cv": 5}, GROUPS, "groups were given, but cv=5"),
        ({"random_state": -1}, None, "random_state=-1; expected an integer >= 0"),
        ({"random_state": None}, None, "random_state=None; expected"),
        ({"scoring": "f1"}, None, r"scoring='f1'; expected one of accuracy, .*GridSearchCV\("),
        ({"scoring": ["accuracy"]}, None, "; expected one of accuracy, neg_log_loss"),
        ({"scoring": likelihood}, None, "; expected one of accuracy, neg_log_loss"),
        ({"refit": "accuracy"}, None, "refit='accuracy'"),
        ({"param_grid": {"kernel": ["rbf"]}}, None, "has 'kernel', and the parameters of Gaussian"),
        ({"param_grid": {"shrinkage": 0.1}}, None, "lists of values"),
        ({"param_grid": {"shrinkage": [2]}}, None, "shrinkage=2; expected a number between 0 and"),
        ({"param_grid": {"covariance_type": ["round"]}}, None, "covariance_type='round'"),
        ({"param_grid": {"shrinkage": ["auto"]}}, None, "needs all rows at once"),
        ({"param_grid": []}, None, "param_grid is empty"),
        ({"max_memory": -1}, None, "max_memory=-1"),
    ],
)
def test_unusable_parameters(params, groups, match):
    search = GaussianDiscriminantCV(**params)
    before = dict(vars(search))
    with pytest.raises(InvalidParameterError, match=match) as caught:
        search.fit(X, Y, groups=groups)
    assert "\n" not in str(caught.value)
    assert vars(search) == before


# --- the default grid -------------------------------------------------------------------------


def test_equally_accurate_default_candidates_are_told_apart_by_their_log_loss():
    X, y = load_iris(return_X_y=True)
    search = GaussianDiscriminantCV().fit(X[:, 2:], y)
    results = search.cv_results_
    equal = results["rank_test_accuracy"] == 1
    assert equal.sum() > 1
    losses = results["mean_test_neg_log_loss"]
    assert losses[search.best_index_] == losses[equal].max()
