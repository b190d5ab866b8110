"""Model selection: against scikit-learn's search on the same splits, in any container."""

import pickle

import naive
import numpy as np
import pandas as pd
import pytest
from samples import KINDS, assert_same_bits, blobs, bytes_of, held, results
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    GaussianDiscriminantCV,
    accumulate,
)
from streamgda.engine import plan
from streamgda.engine.folds import FoldedRows
from streamgda.engine.splits import added, fold_of, hashed_splits
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    SingularCovarianceError,
)
from streamgda.models.likelihood import joint_log_likelihood

GRID = [
    {"covariance_type": ["full", "tied"], "shrinkage": [0.01, "ledoit_wolf", "oas"]},
    {"covariance_type": ["diag", "spherical", "tied_diag"], "var_smoothing": [0.0, 0.1]},
    {"pooling": [0.2], "reg_param": [0.1], "ddof": [1]},
]
SCORINGS = ["accuracy", "neg_log_loss", "joint_log_likelihood"]


# --- scikit-learn's own checks ----------------------------------------------------------------


@parametrize_with_checks(
    [
        GaussianDiscriminantCV({"var_smoothing": [1e-3, 0.1]}),
        GaussianDiscriminantCV({"reg_param": [0.1]}, scoring="joint_log_likelihood"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- folds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_folds", [2, 5, 10])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
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


@pytest.mark.parametrize("kind", KINDS)
def test_folds_are_the_moments_of_their_rows(kind):
    X, y = blobs(400, 3)
    rows = FoldedRows(held(X, kind), held(y, kind), None, lambda *_: hashed_splits(3, 7), 1 << 30)
    folds = rows.accumulate("full", fourth_moments=True)
    others = [added(folds, parts) for parts in rows.splits.trains]
    of = fold_of(0, 400, 3, 7)
    for f in range(3):
        for moments, part in ((folds[f], of == f), (others[f], of != f)):
            expected = naive.moments(X[part], y[part])
            assert moments.class_count.tolist() == expected.count.tolist()
            S = expected.scatter / expected.count[:, None, None]
            np.testing.assert_allclose(moments.covariance(), S, rtol=1e-12, atol=1e-14)


# --- the likelihood of moments ----------------------------------------------------------------


@pytest.mark.parametrize("covariance_type", naive.COVARIANCE_TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_joint_log_likelihood_is_that_of_the_rows(covariance_type, weighted):
    X, y = blobs(200, 4, 4)
    X += 1e3
    others, labels = blobs(150, 4, 4, seed=1)
    others += 1e3
    others[:, 2] = X[:, 2] = 5.0  # constant: not in the density
    others[:3, 2] = 6.0  # but for a few that the model has not seen
    weights = np.random.default_rng(0).uniform(0.1, 2, 150) if weighted else None
    seen = y != 1  # a class that the model does not know
    how = {"var_smoothing": 0.01, "priors": [0.5, 0.3, 0.2]}
    gda = GaussianDiscriminantAnalysis(covariance_type, **how)
    with pytest.warns(UserWarning, match="constant"):
        gda.fit(X[seen], y[seen])
    held_types = ["full"] if naive.is_matrix(covariance_type) else ["full", "diag"]
    known = labels != 1
    w = (np.ones(150) if weights is None else weights)[known]
    columns = np.searchsorted([0, 2, 3], labels[known])
    joint = gda.predict_joint_log_proba(others[known])[np.arange(known.sum()), columns]
    for kind in held_types:
        moments = ClassMoments(kind).update(others, labels, weights)
        total, weight = joint_log_likelihood(gda.model_, moments)
        assert weight == pytest.approx(w.sum(), rel=1e-12)
        assert total == pytest.approx(w @ joint, rel=1e-11)


def test_joint_log_likelihood_of_nothing_known():
    X, y = blobs(60, 3)
    model = GaussianDiscriminantAnalysis().fit(X, y).model_
    assert joint_log_likelihood(model, ClassMoments().update(X, y + 5)) == (0, 0)


# --- against scikit-learn's search ------------------------------------------------------------


def assert_found_alike(ours, theirs, rtol):
    assert ours.best_params_ == theirs.best_params_
    assert ours.best_index_ == theirs.best_index_
    assert ours.best_score_ == pytest.approx(theirs.best_score_, rel=rtol)
    assert ours.n_splits_ == theirs.n_splits_
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name in theirs.cv_results_:
        if name.startswith("param_"):
            assert ours.cv_results_[name].tolist() == theirs.cv_results_[name].tolist()
        elif name.endswith("test_score"):
            np.testing.assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], rtol=rtol)


def own_class_likelihood(estimator, X, y):
    joint = estimator.predict_joint_log_proba(X)
    return joint[np.arange(len(y)), np.searchsorted(estimator.classes_, y)].mean()


@pytest.mark.parametrize("scoring", SCORINGS)
def test_scores_are_those_of_fitting_each_candidate_to_each_split(scoring):
    X, y = blobs(300, 4)
    ours = GaussianDiscriminantCV(GRID, cv=4, scoring=scoring, random_state=3).fit(X, y)
    splits = PredefinedSplit(fold_of(0, 300, 4, 3))
    scorer = own_class_likelihood if scoring == "joint_log_likelihood" else scoring
    theirs = GridSearchCV(GaussianDiscriminantAnalysis(), GRID, cv=splits, scoring=scorer)
    assert_found_alike(ours, theirs.fit(X, y), rtol=1e-9)
    best = theirs.best_estimator_
    np.testing.assert_allclose(ours.predict_proba(X), best.predict_proba(X), atol=1e-9)
    assert ours.score(X, y) == best.score(X, y)


def test_other_scores_of_the_same_pass_are_in_the_table_too():
    X, y = blobs(300, 4)
    found = [GaussianDiscriminantCV(GRID, scoring=s).fit(X, y).cv_results_ for s in SCORINGS]
    for name in SCORINGS:
        tables = [f for f in found if f"mean_test_{name}" in f]
        assert len(tables) == (3 if name == "joint_log_likelihood" else 2)
        alone = found[SCORINGS.index(name)]
        for table in tables:
            for column in ("mean", "std", "rank", "split2"):
                kept = table[f"{column}_test_{name}"]
                np.testing.assert_array_equal(kept, alone[f"{column}_test_score"])


@pytest.mark.parametrize("scoring", SCORINGS)
def test_weights(scoring):
    X, y = blobs(200, 3)
    weights = np.random.default_rng(0).integers(1, 4, 200).astype(float)
    search = GaussianDiscriminantCV({"reg_param": [0.1]}, cv=3, scoring=scoring)
    search.fit(X, y, weights)
    of = fold_of(0, 200, 3, 0)
    for f in range(3):
        gda = GaussianDiscriminantAnalysis(reg_param=0.1)
        gda.fit(X[of != f], y[of != f], weights[of != f])
        rows, labels, w = X[of == f], y[of == f], weights[of == f]
        at = np.arange(len(labels)), labels
        expected = {
            "accuracy": gda.score(rows, labels, w),
            "neg_log_loss": np.average(gda.predict_log_proba(rows)[at], weights=w),
            "joint_log_likelihood": np.average(gda.predict_joint_log_proba(rows)[at], weights=w),
        }[scoring]
        assert search.cv_results_[f"split{f}_test_score"][0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dtype", [bool, "u1", "i1", "f4"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_any_type_are_summed_in_float64(dtype, kind):
    X, y = blobs(200, 3)
    weights = np.full(200, 100).astype(dtype)
    search = GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=3)
    expected = search.fit(X, y).best_score_
    found = search.fit(held(X, kind), held(y, kind), held(weights, kind)).best_score_
    assert found == pytest.approx(expected, rel=1e-12)


def test_rows_of_weight_zero_may_hold_anything():
    X, y = blobs(200, 3)
    search = GaussianDiscriminantCV({"covariance_type": ["diag"]}, cv=3)
    weights = (np.arange(200) != 7) * 1.0
    expected = search.fit(X, y, weights).best_score_
    X[7] = np.nan
    assert search.fit(X, y, weights).best_score_ == expected


# --- wherever rows are ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scoring", SCORINGS)
def test_every_kind_of_array_gives_the_same_bits(kind, scoring):
    X, y = blobs(300, 4)
    X = bytes_of(X)
    grid = {"covariance_type": ["full", "tied_diag"], "shrinkage": [0.1]}
    whole = GaussianDiscriminantCV(grid, scoring=scoring).fit(X, y)
    found = GaussianDiscriminantCV(grid, scoring=scoring)
    found.fit(held(X, kind, rows=37), held(y, kind, rows=37))
    if kind == "frame":
        found.best_estimator_.__dict__.pop("feature_names_in_", None)
    for f in range(5):
        name = f"split{f}_test_score"
        a, b = found.cv_results_[name], whole.cv_results_[name]
        np.testing.assert_allclose(a, b, rtol=1e-14)
    assert_same_bits(results(found.best_estimator_, X), results(whole.best_estimator_, X))


def test_the_best_is_that_of_all_rows():
    X, y = blobs(300, 4)
    search = GaussianDiscriminantCV({"shrinkage": [0.1, "ledoit_wolf"]}).fit(X, y)
    fitted = GaussianDiscriminantAnalysis(**search.best_params_).fit(X, y)
    np.testing.assert_allclose(search.predict_proba(X), fitted.predict_proba(X), atol=1e-12)
    assert search.best_estimator_.moments_.class_count.sum() == 300
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        expected = getattr(search.best_estimator_, method)(X)
        np.testing.assert_array_equal(getattr(search, method)(X), expected)
    assert search.classes_.tolist() == [0, 1, 2]


def test_less_memory_takes_more_passes_and_finds_the_same(monkeypatch):
    X, y = blobs(200, 100)
    full, diag = {"shrinkage": [0.1, 0.3, 0.5]}, {"covariance_type": ["diag"], "ddof": [0, 1]}
    read, passes = FoldedRows.read, []
    monkeypatch.setattr(FoldedRows, "read", lambda *args: passes.append(args[-1]) or read(*args))
    whole = GaussianDiscriminantCV([full, diag], cv=2).fit(X, y)
    assert passes == ["accumulating", "scoring"]
    state = ClassMoments().update(X, y).nbytes
    for models, expected in ((0, 4), (1, 3), (2, 2), (3, 1)):
        passes.clear()
        # Moments of the folds, and memory for the candidates' matrices for each class and fold.
        allowed = int(2 * state * (7 + (models + 0.5) * 4))
        monkeypatch.setattr(plan, "_SCRATCH_BYTES", 0)
        monkeypatch.setattr(plan, "scratch_bytes", lambda n_features: 0)
        found = GaussianDiscriminantCV([full, diag], cv=2, max_memory=allowed).fit(X, y)
        assert passes == ["accumulating"] + ["scoring"] * expected, models
        for name, column in whole.cv_results_.items():
            if "test" in name:
                np.testing.assert_array_equal(found.cv_results_[name], column)


def test_likelihoods_take_one_pass(monkeypatch):
    X, y = blobs(300, 4)
    read, passes = FoldedRows.read, []
    monkeypatch.setattr(FoldedRows, "read", lambda *args: passes.append(args[-1]) or read(*args))
    GaussianDiscriminantCV(GRID, scoring="joint_log_likelihood").fit(X, y)
    assert passes == ["accumulating"]


def test_max_memory():
    X, y = blobs(200, 300, 2)
    stored = held(X, "zarr"), held(y, "zarr")
    grid = {"shrinkage": [0.1, 0.3]}
    whole = GaussianDiscriminantCV(grid, cv=2).fit(X, y)
    found = GaussianDiscriminantCV(grid, cv=2, max_memory="150MB").fit(*stored)
    assert found.best_params_ == whole.best_params_
    with pytest.raises(MemoryBudgetError, match=r"max_memory allows 10\.0 MB"):
        GaussianDiscriminantCV(grid, cv=2, max_memory="10MB").fit(*stored)


def test_data_frames():
    X, y = blobs(200, 3)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    search = GaussianDiscriminantCV({"reg_param": [0.1]}).fit(frame, pd.Series(y))
    assert search.feature_names_in_.tolist() == ["a", "b", "c"]
    assert search.predict(frame).tolist() == search.best_estimator_.predict(frame).tolist()
    with pytest.raises(ValueError, match="feature names should match"):
        search.predict(frame[["b", "a", "c"]])
    assert not hasattr(search.fit(X, y), "feature_names_in_")


def test_labels_of_other_kinds():
    X, y = blobs(200, 3)
    names = np.array(["x", "yy", "zzz"])[y]
    search = GaussianDiscriminantCV({"reg_param": [0.1]}).fit(X, names.tolist())
    plain = GaussianDiscriminantCV({"reg_param": [0.1]}).fit(X, y)
    assert search.best_score_ == plain.best_score_
    assert set(search.predict(X)) == {"x", "yy", "zzz"}


def test_cloned_and_pickled():
    X, y = blobs(200, 3)
    search = GaussianDiscriminantCV({"reg_param": [0.1, 0.2]}, cv=3).fit(X, y)
    again = clone(search)
    assert again.get_params() == search.get_params()
    with pytest.raises(NotFittedError):
        again.predict(X)
    restored = pickle.loads(pickle.dumps(search))
    assert restored.best_params_ == search.best_params_
    np.testing.assert_array_equal(restored.predict_proba(X), search.predict_proba(X))


def test_default_grid():
    X, y = blobs(300, 4)
    search = GaussianDiscriminantCV().fit(X, y)
    assert len(search.cv_results_["params"]) == 37
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()


# --- what cannot be scored --------------------------------------------------------------------


@pytest.mark.parametrize("scoring", SCORINGS)
def test_singular_candidates_have_no_score(scoring):
    X, y = blobs(200, 3)
    X = np.column_stack([X, X[:, 0]])
    grid = {"reg_param": [0.0, 0.1]}
    search = GaussianDiscriminantCV(grid, scoring=scoring)
    with pytest.warns(FitFailedWarning, match="1 of 2 candidates score nan in.*0.0}.*rank 3 of 4"):
        search.fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [True, False]
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    assert search.best_params_ == {"reg_param": 0.1}
    before = search.cv_results_
    with pytest.raises(SingularCovarianceError, match="rank 3 of 4"):
        search.set_params(param_grid={"reg_param": [0.0]}).fit(X, y)
    assert search.cv_results_ is before


@pytest.mark.parametrize("scoring", SCORINGS)
def test_a_class_that_is_in_one_fold_alone_is_left_out(scoring):
    X, y = blobs(200, 3)
    rare = np.flatnonzero(fold_of(0, 200, 5, 0) == 2)[:3]
    grid = {"reg_param": [0.1, 0.3]}
    rest = np.ones(200)
    rest[rare] = 0  # as if missing
    expected = GaussianDiscriminantCV(grid, scoring=scoring).fit(X, y, rest)
    y = y.copy()
    y[rare] = 9
    found = GaussianDiscriminantCV(grid, scoring=scoring).fit(X, y)
    assert found.classes_.tolist() == [0, 1, 2, 9]
    mine = found.cv_results_["split2_test_score"]
    np.testing.assert_allclose(mine, expected.cv_results_["split2_test_score"], rtol=1e-10)


def test_splits_without_rows_are_left_out():
    X, y = blobs(12, 2)[0], np.arange(12) % 2
    search = GaussianDiscriminantCV({"reg_param": [0.5, 0.9]}, cv=12).fit(X, y)
    used = np.unique(fold_of(0, 12, 12, 0))
    table = np.array([search.cv_results_[f"split{f}_test_score"] for f in range(12)])
    assert np.flatnonzero(~np.isnan(table[:, 0])).tolist() == used.tolist()
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], np.nanmean(table, axis=0))


def test_too_little_to_hold_anything_out():
    with pytest.raises(InvalidDataError, match="no row can be held out of 2 folds"):
        GaussianDiscriminantCV({"reg_param": [0.5]}, cv=2).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidDataError, match="greater than one; got 1 class"):
        GaussianDiscriminantCV().fit(blobs(20, 2)[0], np.zeros(20, int))


@pytest.mark.parametrize("kind", ["numpy", "zarr"])
def test_an_error_names_the_row_by_its_own_number(kind):
    X, y = blobs(300, 3)
    X[217, 1] = np.nan
    with pytest.raises(InvalidDataError, match="row 217, column 1 is nan"):
        GaussianDiscriminantCV().fit(held(X, kind), held(y, kind))


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"cv": 1}, "cv=1; expected an integer >= 2"),
        ({"cv": True}, "cv=True; expected"),
        ({"cv": "5"}, "cv='5'; expected"),
        ({"random_state": -1}, "random_state=-1; expected an integer >= 0"),
        ({"random_state": None}, "random_state=None; expected"),
        ({"scoring": "f9"}, "scoring='f9'; expected one of accuracy, neg_log_loss"),
        ({"scoring": "f1"}, "scoring='f1' failed for all candidates: ValueError: Target is multi"),
        ({"param_grid": {"kernel": ["rbf"]}}, "is not parameters of GaussianDiscriminantAnalysis"),
        ({"param_grid": {"shrinkage": 0.1}}, "lists of values"),
        ({"param_grid": {"shrinkage": [2]}}, "shrinkage=2; expected a number between 0 and 1"),
        ({"param_grid": {"covariance_type": ["round"]}}, "'round' is not known"),
        (
            {"param_grid": [{"covariance_type": ["diag"], "shrinkage": ["auto"]}]},
            "'full' or 'tied'",
        ),
        ({"param_grid": []}, "param_grid is empty"),
        ({"max_memory": -1}, "max_memory=-1"),
        ({"cv": 301}, "cv=301; X has 300 rows"),
        ({"cv": 10**36}, "cv=1000.*; X has 300 rows"),
    ],
)
def test_unusable_parameters(params, match):
    search = GaussianDiscriminantCV(**params)
    before = dict(vars(search))
    with pytest.raises(InvalidParameterError, match=match):
        search.fit(*blobs())
    assert vars(search) == before


def test_shapes_that_do_not_fit():
    X, y = blobs(100, 3)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GaussianDiscriminantCV().fit(X, y[:-1])
    with pytest.raises(InvalidDataError, match="100 rows but there are 99 weights"):
        GaussianDiscriminantCV().fit(X, y, np.ones(99))
    unknown = held(X, "dask")[held(X[:, 0] < 9, "dask")]
    with pytest.raises(InvalidDataError, match="chunks of unknown size"):
        GaussianDiscriminantCV().fit(unknown, held(y, "dask"))


def test_the_first_of_equal_candidates_is_best():
    X, y = blobs(200, 3)
    grid = {"reg_param": [0.3, 0.2], "ddof": [0, 0]}
    search = GaussianDiscriminantCV(grid).fit(X * 1e-9, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 1
    assert search.best_index_ == 0


def test_priors_are_candidates_too():
    X, y = blobs(300, 3)
    grid = {"priors": [None, [0.0, 0.5, 0.5], [0.1, 0.4, 0.5]], "reg_param": [0.01]}
    search = GaussianDiscriminantCV(grid, scoring="joint_log_likelihood").fit(X, y)
    assert search.cv_results_["mean_test_score"][1] == -np.inf
    assert search.best_params_["priors"] is None
    accuracies = GaussianDiscriminantCV(grid).fit(X, y).cv_results_["mean_test_score"]
    assert accuracies[1] < accuracies[0]
    assert accumulate(X, y).class_count.sum() == 300
