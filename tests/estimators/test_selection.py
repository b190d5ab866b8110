"""Model selection: the scores of scikit-learn's search on the same splits, in any container."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from grids import in_turn
from samples import assert_same_bits, blobs, bytes_of, held, results
from scipy import sparse
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
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from streamgda import GaussianDiscriminantAnalysis, GaussianDiscriminantCV
from streamgda.errors import (
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
    UnsupportedError,
)

GRID = [
    {"covariance_type": ["full", "tied"], "shrinkage": [0.01, "oas"]},
    {"covariance_type": ["diag", "spherical", "tied_diag"], "var_smoothing": [0.0, 0.1]},
    {"pooling": [0.2], "reg_param": [0.1], "ddof": [1], "temperature": [3.0]},
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


# --- against scikit-learn's search ----------------------------------------------------------------


def likelihood(estimator, rows, labels):
    joint = estimator.predict_joint_log_proba(rows)
    return joint[np.arange(len(labels)), np.searchsorted(estimator.classes_, labels)].mean()


def assert_alike(cv, scoring, rows=X, labels=Y, grid=FEW, groups=None):
    """Compare with a search of scikit-learn, which fits each candidate to each training set."""
    ours = GaussianDiscriminantCV(grid, cv=cv, scoring=scoring).fit(rows, labels, groups=groups)
    scorer = likelihood if scoring == "joint_log_likelihood" else scoring
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), grid, cv=cv, scoring=scorer)
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
    return ours


@EVERY_SCORING
def test_every_candidate_has_the_scores_of_fits_to_each_split(scoring):
    assert_alike(StratifiedKFold(4), scoring, *blobs(300, 4), GRID)


@in_turn("name, scoring", SPLITTERS, SCORINGS)
def test_every_splitter_of_scikit_learn_is_taken(name, scoring):
    names = np.array(["x", "yy", "zzz"])[Y]
    groups = GROUPS if "roup" in name else None
    assert_alike(SPLITTERS[name], scoring, labels=names, groups=groups)


def test_single_rows_and_splits_of_one_s_own_are_held_out():
    class ByRows:
        def split(self, X, y=None, groups=None):
            chosen = np.asarray(X)[:, 0] % 1 < 0.7
            yield chosen, ~chosen

    assert_alike(LeaveOneOut(), "accuracy", X[:40], Y[:40])
    assert_alike([*ByRows().split(X)], "accuracy")
    for cv in (ByRows(), ByRows().split(X)):
        assert GaussianDiscriminantCV(FEW, cv=cv).fit(X, Y).n_splits_ == 1
    folds = np.arange(N) % 4
    found = GaussianDiscriminantCV(FEW, cv=held(folds, "zarr")).fit(X, Y)
    assert found.best_score_ == assert_alike(PredefinedSplit(folds), "accuracy").best_score_
    with pytest.raises(InvalidParameterError, match="does not split 240 rows"):
        GaussianDiscriminantCV(FEW, cv=ByRows()).fit(held(X, "zarr"), held(Y, "zarr"))


def test_the_log_loss_of_impossible_rows_is_that_of_scikit_learn():
    """Probabilities of exactly 0 and 1 are clipped; one row in the wrong place is not infinite."""
    rows = np.where(Y[:, None] == 2, 50 * X, X)
    rows[:9] *= 40
    assert (GaussianDiscriminantAnalysis().fit(rows[9:], Y[9:]).predict_proba(rows) == 0).any()
    assert_alike(KFold(4), "neg_log_loss", rows)


@in_turn("scoring, dtype", SCORINGS, ["u1", "f4", "f8"])
def test_weights_count_in_fits_and_scores(scoring, dtype):
    weights, folds = np.random.default_rng(0).integers(0, 4, N).astype(dtype), np.arange(N) % 3
    search = GaussianDiscriminantCV({"reg_param": [0.1]}, cv=folds, scoring=scoring)
    search.fit(np.where(weights[:, None] == 0, np.nan, X), Y, weights)
    for f in range(3):
        gda = GaussianDiscriminantAnalysis(reg_param=0.1)
        gda.fit(X[folds != f], Y[folds != f], weights[folds != f])
        rows, labels, w = X[folds == f], Y[folds == f], weights[folds == f]
        at = np.arange(len(labels)), labels
        expected = {
            "accuracy": gda.score(rows, labels, w),
            "neg_log_loss": np.average(gda.predict_log_proba(rows)[at], weights=w),
            "joint_log_likelihood": np.average(gda.predict_joint_log_proba(rows)[at], weights=w),
        }[scoring]
        assert search.cv_results_[f"split{f}_test_score"][0] == pytest.approx(expected, rel=1e-10)


# --- wherever rows are ----------------------------------------------------------------------------


@in_turn(
    "kind, name",
    ["numpy", "frame", "zarr", "dask", "sparse", "zarr", "dask"],
    ["KFold", "StratifiedKFold", "StratifiedKFold", "StratifiedKFold", "LeaveOneGroupOut"],
)
def test_every_container_has_the_same_scores(kind, name):
    rows, groups = bytes_of(X), GROUPS if "Group" in name else None
    grid = {"covariance_type": ["full", "tied_diag"], "shrinkage": [0.1]}
    search = GaussianDiscriminantCV(grid, cv=SPLITTERS[name], scoring="neg_log_loss")
    whole, found = clone(search).fit(rows, Y, groups=groups), clone(search)
    given = sparse.csr_array(rows) if kind == "sparse" else held(rows, kind, rows=37)
    found.fit(
        given, held(Y, kind, rows=37), groups=None if groups is None else held(groups, kind, 37)
    )
    if kind == "frame":
        found.best_estimator_.__dict__.pop("feature_names_in_", None)
    for score in (f"split{f}_test_{each}" for f in range(whole.n_splits_) for each in SCORINGS):
        np.testing.assert_allclose(found.cv_results_[score], whole.cv_results_[score], rtol=1e-14)
    assert_same_bits(results(found.best_estimator_, rows), results(whole.best_estimator_, rows))


def test_chunks_of_unknown_size():
    some = held(np.arange(N) % 3 > 0, "dask")
    lazy = GaussianDiscriminantCV(FEW, cv=3).fit(held(X, "dask")[some], held(Y, "dask")[some])
    known = GaussianDiscriminantCV(FEW, cv=3).fit(X[some.compute()], Y[some.compute()])
    assert lazy.best_score_ == known.best_score_


def test_max_memory():
    rows, y = blobs(200, 300, 2)
    stored = held(rows, "zarr"), held(y, "zarr")
    search = GaussianDiscriminantCV({"shrinkage": [0.1, 0.3]}, cv=2)
    expected = search.fit(rows, y).cv_results_["mean_test_score"]
    found = search.fit(*stored, max_memory="150MB").cv_results_["mean_test_score"]
    np.testing.assert_allclose(found, expected)
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 10\.0 MB"):
        search.fit(*stored, max_memory="10MB")
    many = GaussianDiscriminantCV({"shrinkage": np.linspace(0.1, 0.9, 40)}, cv=2)
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 150\.0 MB"):
        many.fit(*stored, max_memory="150MB")  # The models of all candidates do not fit.


# --- the choice -----------------------------------------------------------------------------------


def test_the_best_candidate_is_fitted_to_all_rows():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    search = GaussianDiscriminantCV({"shrinkage": [0.1, "oas"]})
    for unfitted in (search, clone(search)):
        with pytest.raises(NotFittedError):
            unfitted.predict(X)
    search.fit(frame, pd.Series(Y))
    assert search.best_params_ == search.cv_results_["params"][search.best_index_]
    assert search.best_score_ == search.cv_results_["mean_test_score"].max()
    fitted = GaussianDiscriminantAnalysis(**search.best_params_).fit(frame, Y)
    assert search.best_estimator_.moments_.class_count.sum() == N
    for other in (search, pickle.loads(pickle.dumps(search))):
        for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            expected = getattr(fitted, method)(frame)
            np.testing.assert_allclose(getattr(other, method)(frame), expected, atol=1e-12)
        assert other.classes_.tolist() == [0, 1, 2]
        assert other.score(frame, Y) == fitted.score(frame, Y)
    assert search.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names should match"):
        search.predict(frame[["b", "a", "c"]])
    assert not hasattr(search.fit(X, Y), "feature_names_in_")


def test_the_first_of_equal_candidates_is_best_and_priors_are_candidates_too():
    grid = {"reg_param": [0.3, 0.2], "ddof": [0, 0]}
    search = GaussianDiscriminantCV(grid).fit(X * 1e-9, Y)
    assert len(set(search.cv_results_["mean_test_score"])) == 1
    assert search.best_index_ == 0
    grid = {"priors": [None, [0.0, 0.5, 0.5], [0.1, 0.4, 0.5]], "reg_param": [0.01]}
    search = GaussianDiscriminantCV(grid, scoring="joint_log_likelihood").fit(X, Y)
    assert search.cv_results_["mean_test_score"][1] == -np.inf
    assert search.best_params_["priors"] is None
    # Of equally accurate ones, the default takes the one of least log loss.
    rows, y = load_iris(return_X_y=True)
    search = GaussianDiscriminantCV().fit(rows[:, 2:], y)
    equal = search.cv_results_["rank_test_accuracy"] == 1
    assert equal.sum() > 1
    losses = search.cv_results_["mean_test_neg_log_loss"]
    assert losses[search.best_index_] == losses[equal].max()


def test_scores_that_need_rows_are_those_of_fit():
    search = GaussianDiscriminantCV(FEW).fit(X, Y)
    before = search.to_bytes()
    for call in (search.partial_fit, clone(search).partial_fit, search.forget):
        with pytest.raises(InvalidParameterError, match="scoring='joint_log_likelihood'"):
            call(X, Y)
    assert search.to_bytes() == before
    loaded = GaussianDiscriminantCV.from_bytes(before)
    np.testing.assert_array_equal(loaded.predict_proba(X), search.predict_proba(X))
    losses = loaded.set_params(scoring="neg_log_loss").cv_results_["mean_test_score"]
    np.testing.assert_array_equal(losses, search.cv_results_["mean_test_neg_log_loss"])
    with pytest.raises(UnsupportedError, match="call fit"):
        loaded.set_params(param_grid=GRID).predict(X)
    loaded.set_params(scoring="joint_log_likelihood").partial_fit(X[:9], Y[:9])
    assert loaded.n_splits_ == 5


# --- what cannot be scored ------------------------------------------------------------------------


@EVERY_SCORING
def test_singular_candidates_have_no_score(scoring):
    rows = np.column_stack([X, X[:, 0]])
    search = GaussianDiscriminantCV({"reg_param": [0.0, 0.1]}, scoring=scoring)
    with pytest.warns(FitFailedWarning, match="1 of 2 candidates score nan in.*0.0}.*rank 3 of 4"):
        search.fit(rows, Y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    assert search.best_params_ == {"reg_param": 0.1}
    before, other = search.best_score_, {"reg_param": [0.0]}
    with pytest.raises(SingularCovarianceError, match="rank 3 of 4"):
        search.set_params(param_grid=other).fit(rows, Y)
    if scoring == SCORINGS[-1]:  # It follows from the moments for any grid.
        assert search.set_params(param_grid={"reg_param": [0.1]}).best_score_ == before


@EVERY_SCORING
def test_a_class_that_is_in_one_fold_alone_is_wrong_or_left_out(scoring):
    folds = np.arange(N) % 5
    rare = np.flatnonzero(folds == 2)[:3]
    grid, y, weights = {"reg_param": [0.1, 0.3]}, Y.copy(), np.ones(N)
    y[rare], weights[rare] = 9, 0
    found = GaussianDiscriminantCV(grid, cv=folds, scoring=scoring).fit(X, y)
    assert found.classes_.tolist() == [0, 1, 2, 9]
    if scoring == "accuracy":
        gda, splits = GaussianDiscriminantAnalysis(), {"cv": PredefinedSplit(folds)}
        with warnings.catch_warnings(action="ignore"):  # Some labels are never predicted.
            expected = GridSearchCV(gda, grid, scoring=scoring, **splits).fit(X, y)
    else:  # These rows count as missing.
        search = GaussianDiscriminantCV(grid, cv=folds, scoring=scoring)
        expected = search.fit(X, Y, weights)
    mine, wanted = (each.cv_results_["split2_test_score"] for each in (found, expected))
    np.testing.assert_allclose(mine, wanted, rtol=1e-10)


def test_candidates_that_fail_in_a_split_do_not_end_the_search():
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
    table = np.array([search.cv_results_[f"split{f}_test_score"] for f in range(5)])
    assert search.n_splits_ == 5
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], table.mean(axis=0))


NAN = np.where(np.arange(N)[:, None] == 217, np.nan, X)


@pytest.mark.parametrize(
    ("given", "params", "groups", "match"),
    [
        (([[0.0], [1.0]], [0, 1]), {"cv": 2}, None, "1 sample"),
        ((X, np.zeros(N, int)), {}, None, "classes has to be greater than one"),
        ((X, Y[:-1]), {}, None, "inconsistent numbers of samples"),
        ((X, Y, np.ones(N - 1)), {}, None, f"{N} rows but there are {N - 1} weights"),
        ((X, Y, np.zeros(N)), {}, None, "every sample_weight is zero"),
        ((NAN, Y), {}, None, "row 217"),
        ((held(X, "zarr"), held(Y[:9], "zarr")), {}, None, "240 rows but there are 9 labels"),
        *(
            ((X, Y), params, groups, match)
            for params, groups, match in [
                ({"cv": [(np.arange(N), [])]}, None, "1 fold has rows"),
                ({"cv": 1}, None, "cv=1; expected an integer from 2"),
                ({"cv": 241}, None, "cv=241; expected at most the number of rows .n_samples=240"),
                ({"cv": "5"}, None, "cv='5' does not split 240 rows"),
                ({"cv": None}, None, "cv=None; expected an integer .*, a splitter"),
                ({"cv": []}, None, "there are no splits"),
                ({"cv": np.array([0, 1])}, None, "needs a partition"),
                ({"cv": np.arange(N) / 2}, None, "Cannot cast"),
                ({"cv": [([0], [N])]}, None, "index 240 is out of bounds"),
                ({"cv": [([0], [1])]}, None, "needs a partition. GridSearchCV"),
                ({"cv": ShuffleSplit(3)}, None, "needs a partition"),
                ({"cv": StratifiedKFold(200)}, None, "n_splits=200 cannot be"),
                ({"cv": LeaveOneGroupOut()}, None, "'groups' parameter should not be None"),
                ({"cv": LeaveOneGroupOut()}, np.zeros(N), "fewer than 2 unique"),
                ({"cv": GroupKFold(3)}, GROUPS[:9], f"{N} rows but there are 9 groups"),
                ({"cv": np.arange(N) % 3}, GROUPS, "groups were given, and cv="),
                ({"random_state": -1}, None, "random_state=-1; expected an integer >= 0"),
                ({"scoring": "f1"}, None, "scoring='f1'; expected one of .*GridSearchCV"),
                ({"scoring": ["accuracy"]}, None, "; expected one of accuracy, neg_log_loss"),
                ({"verbose": "loud"}, None, "verbose='loud'"),
                ({"param_grid": {"kernel": ["rbf"]}}, None, "'kernel'; expected a dict"),
                ({"param_grid": {"shrinkage": 0.1}}, None, "lists of values"),
                ({"param_grid": {"shrinkage": [2]}}, None, "shrinkage=2; expected a number"),
                ({"param_grid": {"shrinkage": ["auto"]}}, None, "needs all rows at once"),
                ({"param_grid": []}, None, "param_grid is empty"),
            ]
        ),
    ],
)
def test_rows_and_parameters_that_cannot_be_used(given, params, groups, match):
    search = GaussianDiscriminantCV(**{"param_grid": FEW} | params)
    before = dict(vars(search))
    with pytest.raises(ValueError, match=match):
        search.fit(*given, groups=groups)
    assert {k: v for k, v in vars(search).items() if k != "_lock"} == before
