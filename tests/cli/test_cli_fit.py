"""The command line fits models, adds to moments, and selects models."""

import json
import shutil

import naive
import numpy as np
import pytest
import zarr
from commands import NAMES, interrupt_at, rows

import streamgda
from streamgda.datasets import convert

ESTIMATORS = {
    "qda": streamgda.QuadraticDiscriminantAnalysis,
    "lda": streamgda.LinearDiscriminantAnalysis,
    "gnb": streamgda.GaussianNB,
    "gda": streamgda.GaussianDiscriminantAnalysis,
    "bnb": streamgda.BernoulliNB,
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("qda", {"solver": "eigen", "shrinkage": 0.1, "tol": 1e-3}),
        ("qda", {"solver": "eigen", "shrinkage": "auto"}),
        ("lda", {"solver": "lsqr", "shrinkage": "ledoit_wolf"}),
        ("lda", {"solver": "eigen", "priors": [0.5, 0.25, 0.25]}),
        ("gda", {"shrinkage": "oas", "covariance_type": "tied"}),
        ("lda", {"priors": [0.5, 0.25, 0.25]}),
        ("gnb", {"var_smoothing": 0.5}),
        ("gnb", {"var_smoothing": 0.0}),
        (
            "gda",
            {"covariance_type": "diag", "pooling": 0.5, "reg_param": 0.1, "ddof": 1},
        ),
        ("gda", {"shrinkage": "oas", "reg_param": 0.1, "standardize": True}),
        ("bnb", {"alpha": 0.5, "binarize": 0.25}),
    ],
)
def test_fit_is_the_estimators_fit(done, data, tmp_path, kind, options):
    arguments = [
        f"--{name.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, list) else v}"
        for name, v in options.items()
        if v is not True
    ]
    arguments += [f"--{name}" for name, v in options.items() if v is True]
    done("fit", data / "rows.zarr", "--out", tmp_path / "m", "--kind", kind, *arguments)
    X, y = rows()
    saved, expected = streamgda.load(tmp_path / "m"), ESTIMATORS[kind](**options).fit(X, y)
    assert saved.get_params() == expected.get_params()
    np.testing.assert_allclose(saved.predict_proba(X), expected.predict_proba(X), rtol=1e-9)


def test_shrinkage_chooses_a_solver_that_takes_it(command, done, data, tmp_path):
    fit = "fit", data / "rows.zarr", "--out", tmp_path / "m", "--shrinkage=0.1"
    for kind in ("qda", "lda"):
        done(*fit, "--kind", kind, "--overwrite")
        assert streamgda.load(tmp_path / "m").solver == "eigen"
    ended = command(*fit, "--kind", "lda", "--solver=svd", "--overwrite")
    assert ended.code == 1
    assert "shrinkage not supported with 'svd' solver" in ended.err
    ended = command(*fit, "--kind", "qda", "--reg-param=0.1", "--overwrite")
    assert ended.code == 2
    assert "qda takes --shrinkage or --reg-param" in ended.err


@pytest.mark.parametrize(
    ("kind", "option", "taken"),
    [
        ("qda", "--pooling=0.5", "--solver, --shrinkage, --reg-param, --priors, --tol"),
        ("qda", "--covariance-type=diag", "--solver, --shrinkage"),
        ("lda", "--reg-param=0.5", "--solver, --shrinkage, --priors, --tol"),
        ("gnb", "--tol=0.5", "--var-smoothing, --priors"),
        ("gnb", "--ddof=1", "--var-smoothing, --priors"),
        ("bnb", "--tol=1", "--alpha, --binarize"),
    ],
)
def test_options_that_a_kind_does_not_have_are_wrong_usage(
    command, data, tmp_path, kind, option, taken
):
    model = tmp_path / "m.zip"
    ended = command("fit", data / "rows.zarr", "--out", model, "--kind", kind, option)
    assert (ended.code, ended.out) == (2, "")
    assert option.split("=", maxsplit=1)[0] in ended.err
    assert taken in " ".join(ended.err.replace("│", " ").split())
    assert not model.exists()


def test_fit_takes_weights(command, done, data, tmp_path):
    X, names = rows()
    y = np.unique(names, return_inverse=True)[1]
    weight = np.random.default_rng(0).uniform(0, 2, len(y))
    store = zarr.open_group(tmp_path / "rows.zarr")
    for name, array in (("X", X), ("y", y), ("w", weight)):
        store.create_array(name, data=array)
    arguments = ("fit", tmp_path / "rows.zarr", "--out", tmp_path / "m", "--kind", "gnb")
    done(*arguments, "--weights", "w")
    expected = streamgda.GaussianNB().fit(X, y, weight)
    np.testing.assert_allclose(streamgda.load(tmp_path / "m").var_, expected.var_, rtol=1e-9)
    assert "no array 'v'" in command(*arguments, "--weights", "v", "--overwrite").err


def test_moments_make_other_models_without_reading(done, data, tmp_path):
    kept, model = tmp_path / "moments.zip", tmp_path / "m.zip"
    done("fit", data / "rows.zarr", "--out", model, "--moments-out", kept)
    out = done("fit", "--moments-in", kept, "--out", model, "--kind", "lda", "--overwrite")
    assert "rows x" not in out
    X, y = rows()
    expected = streamgda.LinearDiscriminantAnalysis().fit(X, y)
    np.testing.assert_allclose(streamgda.load(model).coef_, expected.coef_, rtol=1e-9)


def test_invalid_rows_are_left_out_and_counted(command, done, tmp_path):
    X, y = rows()
    X[3, 1], X[77, 0], X[200] = np.nan, -9999, -9999
    convert(X, tmp_path / "rows.zarr", labels=y, chunk_rows=50)
    fit = "fit", tmp_path / "rows.zarr", "--out", tmp_path / "m", "--kind", "gnb"
    ended = command(*fit)
    assert ended.code == 1
    assert "Input X contains NaN: row 3, column 1" in ended.err
    ended = command(*fit, "--nodata=-9999")
    assert "row 3 holds NaN, infinity or --nodata -9999.0" in ended.err
    kept = tmp_path / "kept"
    assert not (tmp_path / "m").exists()
    out = done(*fit, "--on-invalid", "skip", "--nodata=-9999", "--checkpoint", kept)
    assert "left out 3 rows" in out
    assert json.loads(done("info", kept, "--json"))["skipped"] == 3
    good = np.delete(np.arange(240), [3, 77, 200])
    expected = streamgda.GaussianNB().fit(X[good], y[good])
    np.testing.assert_allclose(streamgda.load(tmp_path / "m").theta_, expected.theta_, rtol=1e-12)
    qda = streamgda.QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")
    skipping = "--on-invalid", "skip", "--nodata=-9999", "--overwrite"
    done(*fit[:-1], "qda", "--shrinkage=auto", *skipping)
    amounts = streamgda.load(tmp_path / "m").shrinkage_
    np.testing.assert_allclose(amounts, qda.fit(X[good], y[good]).shrinkage_, rtol=1e-12)
    assert (
        "was started with nodata: -9999.0"
        in command(*fit, "--on-invalid", "skip", "--checkpoint", kept, "--overwrite").err
    )


@pytest.mark.parametrize("kind", ["gnb", "bnb"])
def test_unlabelled_rows_and_rows_without_labels_are_left_out(command, done, tmp_path, kind):
    X, names = rows()
    y = np.unique(names, return_inverse=True)[1]
    X[y == 0], X[y.argmax()] = np.nan, -9999
    labels = np.where(np.arange(y.size) % 40 == 7, np.nan, y)
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    group.create_array("X", data=X, chunks=(50, X.shape[1]))
    group.create_array("y", data=labels, chunks=(50,))
    fit = "fit", tmp_path / "rows.zarr", "--out", tmp_path / "m", "--kind", kind
    options = "--unlabelled", "0", "--nodata=-9999", "--on-invalid", "skip"
    out = done(*fit, *options)
    good, n_skipped = naive.rows_that_count(X, labels.tolist(), None, -9999, [0])
    assert f"left out {n_skipped} rows" in out
    expected = ESTIMATORS[kind]().fit(X[good], y[good])
    assert streamgda.load(tmp_path / "m").class_count_.tolist() == expected.class_count_.tolist()
    ended = command(*fit, *options[2:], "--unlabelled", "none", "--overwrite")
    assert "'none' is not a number" in ended.err
    evaluated = json.loads(
        done("evaluate", tmp_path / "rows.zarr", "--model", tmp_path / "m", "--json", *options)
    )
    accuracy = expected.score(X[good], y[good])
    assert (evaluated["rows"], evaluated["accuracy"]) == (len(good), pytest.approx(accuracy))
    if kind == "gnb":
        done("select", tmp_path / "rows.zarr", "--out", tmp_path / "best", *options,
             "--scoring=joint_log_likelihood", "--grid=covariance_type=diag")  # fmt: skip
        chosen = streamgda.load(tmp_path / "best").moments_
        assert (chosen.class_count.sum(), chosen.n_skipped) == (len(good), n_skipped)


def test_an_interrupted_fit_names_its_checkpoint_and_resumes(
    command, done, data, tmp_path, monkeypatch
):
    kept, model = tmp_path / "kept", tmp_path / "nb.zip"
    fit = "fit", data / "rows.zarr", "--out", model, "--kind", "gnb", "--checkpoint"
    assert command(*fit, model).code == 2  # it would be written to twice
    with monkeypatch.context() as patch:
        patch.setattr("streamgda.engine.plan._SLAB_BYTES", 50 * 24)
        interrupt_at(patch, 150)
        ended = command(*fit, kept)
    assert (ended.code, ended.out) == (130, "")
    assert f"interrupted. The checkpoint {kept} keeps what was done, the first 150" in ended.err
    assert not model.exists()
    described = json.loads(done("info", kept, "--json"))
    assert (described["kind"], described["done"]) == ("checkpoint", 150)
    assert "resumed from the checkpoint" in done(*fit, kept)
    expected = streamgda.GaussianNB().fit(*rows())
    np.testing.assert_allclose(streamgda.load(model).theta_, expected.theta_, rtol=1e-12)


def test_rows_are_added_to_moments(done, data, tmp_path):
    (X, y), (more, more_y) = rows(), rows(90, seed=1)
    convert(more, tmp_path / "more.zarr", labels=more_y)
    kept, model = tmp_path / "moments", tmp_path / "m"
    streamgda.accumulate(X, y).save(kept)
    out = done(
        *("fit", tmp_path / "more.zarr", "--moments-in", kept, "--out", model),
        *("--kind", "gnb", "--moments-out", kept),
    )
    assert "read 90 rows" in out
    assert "of 330 rows" in out
    assert streamgda.ClassMoments.load(kept).class_count.sum() == 330
    expected = streamgda.GaussianNB().fit(np.vstack([X, more]), np.append(y, more_y))
    np.testing.assert_allclose(streamgda.load(model).theta_, expected.theta_)


def test_moments_are_kept_where_the_model_cannot_be_made(command, tmp_path):
    X, y = rows()
    convert(np.column_stack([X, X[:, 0]]), tmp_path / "rows.zarr", labels=y)
    kept, model = tmp_path / "moments.zip", tmp_path / "m.zip"
    ended = command("fit", tmp_path / "rows.zarr", "--out", model, "--moments-out", kept)
    assert ended.code == 1
    assert ended.err.startswith("streamgda: the covariance of 3 of 3 classes is singular")
    assert not model.exists()
    assert command("fit", "--moments-in", kept, "--out", model, "--kind", "gnb").code == 0
    model.unlink()
    same = kept.parent / ".." / kept.parent.name / kept.name
    add = "fit", tmp_path / "rows.zarr", "--moments-in", same, "--moments-out", kept, "--out", model
    assert command(*add, "--overwrite").code == 1  # as here, or they would be added twice
    assert command(*add, "--overwrite", "--kind", "gnb").code == 0
    assert streamgda.ClassMoments.load(kept).class_count.sum() == 480


@pytest.mark.parametrize(
    ("kind", "priors", "problem"),
    [
        ("gnb", "0.5,0.5", "priors has shape (2,); expected one for each of the 3 classes"),
        ("gnb", "0.5,0.25,0.5", "The sum of the priors should be 1; got 1.25"),
        ("lda", "0.5,-0.5,1", "priors must be non-negative"),
    ],
)
def test_wrong_priors_are_found_before_the_pass(command, tmp_path, kind, priors, problem):
    X, y = rows()
    convert(X, tmp_path / "rows.zarr", labels=y)
    shutil.rmtree(tmp_path / "rows.zarr/X/c")  # its rows cannot be read
    arguments = ("--kind", kind, "--priors", priors)
    ended = command("fit", tmp_path / "rows.zarr", "--out", tmp_path / "m.zip", *arguments)
    assert ended.code == 1
    assert problem in ended.err


def test_a_model_is_replaced_only_if_that_is_wanted(command, data, tmp_path):
    model = tmp_path / "m.zip"
    for fit in (["fit", "--kind", "gnb"], ["select", "--grid", "reg_param=0.1", "--cv", "2"]):
        arguments = [fit[0], data / "rows.zarr", *fit[1:], "--out", model]
        model.unlink(missing_ok=True)
        assert command(*arguments).code == 0
        before = model.read_bytes()
        ended = command(*arguments)
        assert (ended.code, ended.out) == (1, "")
        assert f"{model} exists; --overwrite replaces it" in " ".join(ended.err.split())
        assert model.read_bytes() == before
        assert command(*arguments, "--overwrite").code == 0


@pytest.mark.parametrize("option", ["--out", "--moments-out"])
def test_where_nothing_can_be_saved_is_found_before_the_pass(command, data, tmp_path, option):
    (tmp_path / "note").write_text("")
    other = () if option == "--out" else ("--out", tmp_path / "m.zip")
    for place, problem in (
        (tmp_path / "note" / "m", "note"),
        (f"file://{tmp_path}/m", "a slash"),
        (data / "rows.zarr", "rows.zarr is a directory"),
    ):
        ended = command("fit", data / "rows.zarr", option, place, *other)
        assert ended.code == 1
        assert problem in ended.err
        assert "rows a second" not in ended.out + ended.err


def test_arrays_of_other_names(done, tmp_path):
    X, y = rows()
    group = zarr.create_group(tmp_path / "rows.zarr")
    group.create_array("measured", data=X)
    group.create_array("kind", data=np.searchsorted(NAMES, y))
    model = tmp_path / "m.zip"
    names = ("--x", "measured", "--labels", "kind")
    done("fit", tmp_path / "rows.zarr", "--out", model, *names)
    out = done("evaluate", tmp_path / "rows.zarr", "--model", model, *names)
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(X, y).score(X, y)
    assert f"accuracy           {expected:.4f}" in out


# --- select --------------------------------------------------------------------------------------


def test_select_saves_the_best_of_what_it_shows(done, data, tmp_path):
    X, y = rows()
    shown = done("select", data / "rows.zarr", "--out", tmp_path / "m.zip", "--cv=3", "--seed=7")
    search = streamgda.GaussianDiscriminantCV(cv=3, random_state=7).fit(X, y)
    lines = shown.splitlines()
    assert lines[0].split() == [
        *("rank", "covariance_type", "pooling", "reg_param", "shrinkage", "standardize"),
        *("var_smoothing", "accuracy", "+-"),
    ]
    assert lines[1].split()[:2] == ["1", search.best_params_["covariance_type"]]
    assert f"{search.best_score_:.5g}" in lines[1].split()
    assert lines[21] == f"and {len(search.cv_results_['params']) - 20} more"
    saved = streamgda.load(tmp_path / "m.zip")
    assert saved.get_params() == search.best_estimator_.get_params()
    np.testing.assert_allclose(saved.predict_proba(X), search.predict_proba(X), rtol=1e-9)


def test_select_of_a_grid_for_programs(done, data, tmp_path):
    grid = ["--grid", "covariance-type=full,diag", "--grid", "shrinkage=none,0,0.5"]
    options = ["--scoring=joint_log_likelihood", "--json", *grid]
    shown = json.loads(done("select", data / "rows.zarr", "--out", tmp_path / "m", *options))
    params = {"covariance_type": ["full", "diag"], "shrinkage": [None, 0, 0.5]}
    search = streamgda.GaussianDiscriminantCV(params, scoring="joint_log_likelihood").fit(*rows())
    assert shown["scoring"] == "joint_log_likelihood"
    assert shown["best"]["params"] == search.best_params_
    assert shown["best"]["score"] == pytest.approx(search.best_score_)
    scores = [row["score"] for row in shown["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 6
    assert [row["rank"] for row in shown["candidates"]][-1] in (5, 6)


def test_select_scores_a_sample(done, data, tmp_path):
    options = ["--grid", "reg_param=0.1,0.2", "--cv=2", "--json", "--sample=40"]
    shown = json.loads(done("select", data / "rows.zarr", "--out", tmp_path / "a", *options))
    search = streamgda.GaussianDiscriminantCV({"reg_param": [0.1, 0.2]}, cv=2, score_sample=40)
    assert shown["best"]["score"] == pytest.approx(search.fit(*rows()).best_score_)


@pytest.mark.filterwarnings("default:.*score nan")
def test_select_says_which_candidates_are_singular(command, tmp_path):
    X, y = rows()
    convert(np.column_stack([X, X[:, 0]]), tmp_path / "rows.zarr", labels=y)
    arguments = ["select", tmp_path / "rows.zarr", "--out", tmp_path / "m"]
    shown = command(*arguments, "--grid", "reg_param=0,0.1")
    assert shown.out.splitlines()[2].split() == ["2", "0", "singular"]
    assert "1 of 2 candidates score nan in some split" in shown.err
    again = command(*arguments, "--grid", "reg_param=0,0.1", "--json", "--overwrite")
    told = json.loads(again.out)
    assert told["candidates"][1]["score"] is None
