"""Every command, over tables and zarr: what it writes is what Python computes, and says so."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import zarr
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss
from stops import slabs_of

import streamgda
from streamgda.cli.app import EXAMPLES
from streamgda.datasets import convert
from streamgda.rows.zarr import StoredRows

pa = pytest.importorskip("pyarrow")
import pyarrow.csv as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

NAMES = np.array(["eggs", "ham", "spam & [bold]beans"])
CENTRES = np.array([[0.0, 0, 0], [3, 1, 0], [0, 3, 2]])
RANDOM = np.random.default_rng(0)
CODES = RANDOM.integers(0, 3, 240)
X, Y = CENTRES[CODES] + RANDOM.normal(size=(240, 3)), NAMES[CODES]
COLUMNS = ["length", "width", "height"]
FRAME = pd.DataFrame(X, columns=COLUMNS)
TABLE = pa.table({"id": range(240), **dict(zip(COLUMNS, X.T, strict=True)), "kind": Y})


@pytest.fixture(params=["rows.parquet", "rows.csv", "rows.zarr"])
def store(request, tmp_path):
    """Return the words that name rows and labels, of a table or of zarr."""
    path = tmp_path / request.param
    if path.suffix == ".zarr":
        convert(FRAME, Y, path, chunk_rows=50)
        return (path,)
    (pq.write_table if path.suffix == ".parquet" else pc.write_csv)(TABLE, path)
    return path, "--label", "kind"


@pytest.fixture
def done(command):
    """Return the output of a command, which must succeed and write nothing to stderr."""

    def run(*arguments):
        ended = command(*arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    return run


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A folder with rows in a store of several chunks, and models of them."""
    folder = tmp_path_factory.mktemp("data")
    convert(X, Y, folder / "rows.zarr", chunk_rows=50)
    convert(X, np.searchsorted(NAMES, Y), folder / "numbers.zarr", chunk_rows=50)
    convert(X, None, folder / "unlabelled.zarr")
    convert(X[:, :2], Y, folder / "narrow.zarr")
    streamgda.QuadraticDiscriminantAnalysis().fit(X, Y).save(folder / "qda.zip")
    streamgda.PCA(2).fit(X).save(folder / "pca.zip")
    streamgda.SlidingWindow(2).update(X, Y).save(folder / "window.npz")
    streamgda.Ridge().fit(X, X[:, 0]).save(folder / "ridge.npz")
    (folder / "truncated.zip").write_bytes((folder / "qda.zip").read_bytes()[:500])
    (folder / "table.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n")
    (folder / "empty.csv").write_text("a,b,kind\n")
    (folder / "text.txt").write_text("hello")
    return folder


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.npz"
    streamgda.QuadraticDiscriminantAnalysis().fit(FRAME, Y).save(path)
    return path


def test_examples_of_help_run_as_they_stand(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pc.write_csv(TABLE, "flowers.csv")
    assert len(EXAMPLES) == 7
    for run, example in EXAMPLES.items():
        ended = command(*example.split()[1:])
        assert (ended.code, ended.err) == (0, ""), example
        page = command(run.__name__, "--help").out
        assert example in " ".join(page.split())
        assert len(page.splitlines()) <= 40
        assert max(map(len, page.splitlines())) <= 80
    for line in ("info demo/model.npz", "evaluate demo/test --model demo/model.npz"):
        assert command(*line.split()).code == 0


def test_the_module_is_a_program_and_completes_words():
    words = {"COMP_WORDS": "streamgda fit --kind l", "COMP_CWORD": "3"}
    completed = {**os.environ, **words, "_STREAMGDA_COMPLETE": "complete_bash"}
    for more, environment, expected in (
        (["--version"], os.environ, f"streamgda {streamgda.__version__}"),
        ([], completed, "lda"),
    ):
        program = [sys.executable, "-m", "streamgda"]
        found = subprocess.check_output([*program, *more], env=environment)
        assert found.decode().strip() == expected


KINDS = [
    ("qda", "QuadraticDiscriminantAnalysis", {"reg_param": 0.1}),
    ("qda", "QuadraticDiscriminantAnalysis", {"solver": "eigen", "shrinkage": "auto"}),
    ("lda", "LinearDiscriminantAnalysis", {}),
    ("lda", "LinearDiscriminantAnalysis", {"solver": "eigen", "priors": [0.5, 0.25, 0.25]}),
    ("gnb", "GaussianNB", {"var_smoothing": 0.5}),
    ("gda", "GaussianDiscriminantAnalysis", {"covariance_type": "diag", "pooling": 0.5}),
    ("gda", "GaussianDiscriminantAnalysis", {"shrinkage": "oas", "covariance_type": "tied"}),
    ("bnb", "BernoulliNB", {"alpha": 0.5, "binarize": 0.25}),
]


@pytest.mark.parametrize(("kind", "name", "params"), KINDS)
def test_fit_is_the_estimators_fit(done, data, tmp_path, kind, name, params):
    given = [
        f"--set={key.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, list) else v}"
        for key, v in params.items()
    ]
    done("fit", data / "rows.zarr", "--out", tmp_path / "m", "--kind", kind, *given)
    saved, expected = streamgda.load(tmp_path / "m"), getattr(streamgda, name)(**params).fit(X, Y)
    assert saved.get_params() == expected.get_params()
    np.testing.assert_allclose(saved.predict_proba(X), expected.predict_proba(X), rtol=1e-9)


def test_fit_reads_every_store(done, store, tmp_path):
    chosen = ("--features", "length,width", "--features", "height") if len(store) > 1 else ()
    told = json.loads(done("fit", *store, *chosen, "--out", tmp_path / "m", "--json"))
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(X, Y)
    saved = streamgda.load(tmp_path / "m")
    np.testing.assert_array_equal(saved.means_, expected.means_)
    assert (told["rows"], told["features"]) == (240, 3)
    assert list(getattr(saved, "feature_names_in_", COLUMNS)) == COLUMNS
    shown = done("fit", *store, *chosen, "--out", tmp_path / "n")
    assert "QuadraticDiscriminantAnalysis" in shown
    assert "[bold]beans" in shown


def test_columns_of_weights_groups_and_names_with_commas(done, tmp_path):
    weights, path, out = X[:, 0] ** 2, tmp_path / "rows.csv", tmp_path / "m"
    table = TABLE.rename_columns(["id", "a,b", "c", "d", "kind"])
    table = table.append_column("w", pa.array(weights)).append_column("site", table["id"])
    pc.write_csv(table, path)
    words = path, "--label", "kind", "--features", '"a,b", c, d'
    done("fit", *words, "--weights", "w", "--kind", "gnb", "--out", out)
    expected = streamgda.GaussianNB().fit(X, Y, sample_weight=weights)
    np.testing.assert_allclose(streamgda.load(out).theta_, expected.theta_, rtol=1e-12)
    done("predict", path, "--model", out, "--out", tmp_path / "p.csv")
    grid = "--grid", "reg_param=0.1", "--groups", "site", "--cv", "3"
    done("select", path, "--label", "kind", "--drop", "id,w", *grid, "--out", out)
    assert streamgda.load(out).feature_names_in_.tolist() == ["a,b", "c", "d"]


def test_invalid_and_unlabelled_rows_are_left_out(command, done, tmp_path):
    holes, labels = X.copy(), np.searchsorted(NAMES, Y)
    holes[3, 1], holes[77, 0] = np.nan, np.inf
    convert(holes, labels, tmp_path / "rows.zarr")
    fit = "fit", tmp_path / "rows.zarr", "--out", tmp_path / "m", "--kind", "gnb"
    assert "Input X contains NaN: row 3, column 1" in command(*fit).err
    assert not (tmp_path / "m").exists()
    rules = "--on-invalid", "skip", "--unlabelled", "0"
    told = json.loads(done(*fit, *rules, "--json"))
    good = np.isfinite(holes).all(1) & (labels != 0)
    assert told["skipped"] == (~np.isfinite(holes).all(1) & (labels != 0)).sum()
    expected = streamgda.GaussianNB().fit(X[good], labels[good])
    saved = streamgda.load(tmp_path / "m")
    np.testing.assert_allclose(saved.theta_, expected.theta_, rtol=1e-12)
    told = json.loads(
        done("evaluate", tmp_path / "rows.zarr", "--model", tmp_path / "m", *rules, "--json")
    )
    assert (told["rows"], told["accuracy"]) == (good.sum(), expected.score(X[good], labels[good]))


def test_rows_are_added_to_moments(done, data, tmp_path):
    more, more_y = X[:90] + 1, Y[90:180]
    convert(more, more_y, tmp_path / "more.zarr")
    kept = tmp_path / "moments.npz"
    done("fit", data / "rows.zarr", "--out", tmp_path / "a")
    streamgda.load(tmp_path / "a").moments_.save(kept)
    for held in (kept, tmp_path / "a"):
        done("fit", tmp_path / "more.zarr", "--add-to", held, "--out", tmp_path / "b")
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(np.r_[X, more], np.r_[Y, more_y])
    np.testing.assert_allclose(streamgda.load(tmp_path / "b").means_, expected.means_)
    done("fit", "--add-to", tmp_path / "b", "--kind", "gnb", "--out", tmp_path / "c")
    assert streamgda.load(tmp_path / "c").class_count_.sum() == 330


def test_interrupted_commands_resume_or_leave_nothing(command, done, data, tmp_path, monkeypatch):
    read = StoredRows.read

    def interrupted(source, start, stop):
        if start == 150 and len(source.shape) == 2:
            raise KeyboardInterrupt
        return read(source, start, stop)

    fit = "fit", data / "rows.zarr", "--kind", "gnb", "--checkpoint", tmp_path / "kept"
    predict = "predict", data / "rows.zarr", "--model", data / "qda.zip"
    with monkeypatch.context() as patch, slabs_of(50 * 24):
        patch.setattr("streamgda.engine.outputs._EVERY", 0.0)
        patch.setattr(StoredRows, "read", interrupted)
        for words, out in ((fit, "m"), (predict, "p.zarr"), (predict, "p.csv")):
            assert command(*words, "--out", tmp_path / out).code == 130
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "p.zarr"}
    assert "half-written" in done("info", tmp_path / "p.zarr")
    done(*fit, "--out", tmp_path / "m")
    done(*predict, "--out", tmp_path / "p.zarr")
    found, expected = streamgda.load(tmp_path / "m"), streamgda.GaussianNB().fit(X, Y)
    np.testing.assert_allclose(found.theta_, expected.theta_, rtol=1e-12)
    expected = streamgda.load(data / "qda.zip").predict(X).tolist()
    assert zarr.open_array(tmp_path / "p.zarr")[:].tolist() == expected


METHODS = {
    "label": ("predict", ["label"]),
    "proba": ("predict_proba", [f"proba_{name}" for name in NAMES]),
    "log-proba": ("predict_log_proba", [f"log_proba_{name}" for name in NAMES]),
    "density": ("score_samples", ["log_density"]),
}


@pytest.mark.parametrize("what", METHODS)
def test_predictions_are_those_of_the_estimator(done, store, model, tmp_path, what):
    method, columns = METHODS[what]
    expected = getattr(streamgda.load(model), method)(FRAME)
    predict = "predict", store[0], "--model", model, "--write", what
    told = json.loads(done(*predict, "--out", tmp_path / "p.zarr", "--json"))
    assert told["rows"] == 240
    assert zarr.open_array(tmp_path / "p.zarr")[:].tolist() == expected.tolist()
    done(*predict, "--out", tmp_path / "p.parquet")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == columns
    assert np.squeeze(np.transpose([*found.columns])).tolist() == expected.tolist()
    told = json.loads(done("info", tmp_path / "p.zarr", "--json"))
    assert (told["kind"], told["rows"]) == ("predictions", 240)


def test_keys_rejected_and_invalid_rows(done, tmp_path):
    estimator = streamgda.QuadraticDiscriminantAnalysis().fit(FRAME, Y)
    estimator.save(tmp_path / "m")
    holes = FRAME.copy()
    holes.iloc[7, 1] = np.nan
    table = pa.table({**holes, "kind": Y, "id": range(240)})
    pq.write_table(table, tmp_path / "rows.parquet")
    predict = "predict", tmp_path / "rows.parquet", "--model", tmp_path / "m"
    words = "--keys", "id,kind", "--reject", "0.2"
    fill = "--on-invalid", "fill", "--fill", "cloud"
    done(*predict, *words, *fill, "--out", tmp_path / "p.csv")
    found = pc.read_csv(tmp_path / "p.csv")
    assert found.column_names == ["id", "kind", "label"]
    expected = estimator.predict(holes, reject=0.2, on_invalid="fill", fill="cloud")
    assert [x or "" for x in found["label"].to_pylist()] == expected.tolist()
    assert found["kind"].to_pylist() == Y.tolist()
    done(*predict, "--on-missing", "marginal", "--out", tmp_path / "q.zarr")
    expected = estimator.predict(holes, on_missing="marginal")
    assert zarr.open_array(tmp_path / "q.zarr")[:].tolist() == expected.tolist()


def test_evaluate_reports_what_scikit_learn_does(done, store, model, tmp_path):
    estimator = streamgda.load(model)
    evaluate = "evaluate", *store, "--model", model
    told, predicted = json.loads(done(*evaluate, "--json")), estimator.predict(FRAME)
    assert told["accuracy"] == estimator.score(FRAME, Y)
    assert told["log_loss"] == pytest.approx(log_loss(Y, estimator.predict_proba(FRAME)))
    assert told["balanced_accuracy"] == balanced_accuracy_score(Y, predicted)
    counts = [[row[name] for name in NAMES] for row in told["confusion_matrix"]]
    assert counts == confusion_matrix(Y, predicted).tolist()
    assert [each["support"] for each in told["classes"]] == [(name == Y).sum() for name in NAMES]
    shown = done(*evaluate)
    assert "spam & [bold]beans" in shown
    assert f"{told['accuracy']:.4g}" in shown
    estimator.fit(FRAME[Y != "ham"], Y[Y != "ham"]).save(model)
    told = json.loads(done(*evaluate, "--json"))
    assert told["log_loss"] is None
    assert [each["recall"] for each in told["classes"] if each["label"] == "ham"] == [0]


def test_select_saves_the_best_of_what_it_shows(done, store, tmp_path):
    grid = "--grid", "covariance-type=full,diag", "--grid", "reg-param=0,0.5"
    chosen = ("--features", "length,width,height") if len(store) > 1 else ()
    words = (*store, *chosen, *grid, "--cv", "3", "--seed", "7", "--scoring", "neg_log_loss")
    told = json.loads(done("select", *words, "--out", tmp_path / "m", "--json"))
    search = streamgda.GaussianDiscriminantCV(
        {"covariance_type": ["full", "diag"], "reg_param": [0, 0.5]},
        cv=3,
        random_state=7,
        scoring="neg_log_loss",
    ).fit(X, Y)
    assert told["best"]["params"] == search.best_params_
    assert told["best"]["score"] == pytest.approx(search.best_score_)
    scores = [each["neg_log_loss"] for each in told["candidates"]]
    assert (len(scores), scores) == (4, sorted(scores, reverse=True))
    saved = streamgda.load(tmp_path / "m")
    np.testing.assert_allclose(saved.means_, search.best_estimator_.means_)
    shown = done("select", *words, "--out", tmp_path / "n").splitlines()
    assert any(line.split()[:2] == ["rank", "covariance_type"] for line in shown)


def test_convert_writes_zarr(done, store, tmp_path):
    chosen = ("--drop", "id") if len(store) > 1 else ()
    done("convert", *store, *chosen, "--out", tmp_path / "out.zarr", "--chunk-rows", "60")
    found, y = streamgda.open_store(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found[:], X)
    assert (y[:].tolist(), found.chunks) == (Y.tolist(), (60, 3))
    words = ("--drop", "id,kind") if len(store) > 1 else ()
    done("convert", store[0], *words, "--no-labels", "--out", tmp_path / "rows")
    assert streamgda.open_store(tmp_path / "rows", y=None)[0].shape == (240, 3)


@pytest.mark.parametrize(
    "saved",
    [
        streamgda.accumulate(X, Y),
        streamgda.SlidingWindow(3).update(X, Y),
        streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, Y),
    ],
)
def test_info_describes_saved_objects(done, tmp_path, saved):
    saved.save(tmp_path / "it")
    told, shown = json.loads(done("info", tmp_path / "it", "--json")), done("info", tmp_path / "it")
    assert (told["kind"], told["features"], told["rows"]) == (type(saved).__name__, 3, 240)
    for name in NAMES:
        assert {"label": name, "rows": int((name == Y).sum())} in told["classes"]
        assert str((name == Y).sum()) in shown


def test_info_describes_rows(done, store, data):
    shown = done("info", store[0])
    for told in ("length", "240") if len(store) > 1 else ("240 x 3 of float64", "240 of text"):
        assert told in shown
    assert "240 x 3 of float64" in done("info", data / "rows.zarr" / "X")


FITS = [("--kind", "bnb"), ("--set", "solver=eigen", "--set", "shrinkage=auto"), ()]


@pytest.mark.parametrize("words", FITS)
def test_long_work_shows_progress(command, data, tmp_path, monkeypatch, words):
    rows, model = data / "rows.zarr", tmp_path / "m"
    for name, *more in (("fit", *words, "--out", model), ("evaluate", "--model", model)):
        monkeypatch.setattr("streamgda.engine.reading._LINE_EVERY", 0)
        ended = command(name, rows, *more)
        assert (ended.code, "ing: 240 rows" in ended.err) == (0, True)


def test_demo_measures_what_it_prints(done, tmp_path):
    told = json.loads(done("demo", "--out", tmp_path / "demo", "--json"))
    accuracy = {each["model"]: each["accuracy"] for each in told["models"]}
    assert 0.95 < accuracy["QDA"] <= 1
    assert 0.85 < accuracy["GaussianNB"] < accuracy["LDA"] < accuracy["QDA"]
    test = streamgda.open_store(tmp_path / "demo" / "test")
    assert streamgda.load(tmp_path / "demo" / "model.npz").score(*test) == accuracy["QDA"]
    shown = done("demo")
    assert f"{accuracy['QDA']:.4g}" in shown
    assert max(map(len, shown.splitlines())) <= 80


ERRORS = [
    ("fit nowhere.zarr --out m", "nowhere.zarr does not exist"),
    ("fit {unlabelled} --out m", "lacks labels: it has no array 'y'"),
    ("fit {rows} --out m --max-memory 1MB", "--max-memory allows 1.0 MB"),
    ("fit {rows} --out m --set reg-param=2", "reg_param=2"),
    ("fit --add-to {window} --out m", "window.npz holds SlidingWindow; expected an estim"),
    ("fit {rows} --out {table}", "is not a file that streamgda saved"),
    ("fit {table} --out m", "name its column of labels by --label NAME; it has a, b, kind"),
    ("fit {table} --label a --out m", "kind (string)"),
    ("fit {table} --label z --out m", "table.csv has no column 'z'; it has a, b, kind"),
    ("select {rows} --out m --grid shrinkage=much", "streamgda: shrinkage=much; expected a"),
    ("evaluate {empty} --label kind --model {qda}", "empty.csv has no rows; give at least one"),
    ("fit {rows} --out m --checkpoint {qda}", "is not a checkpoint of a pass"),
    ("fit {rows} --out m --features a", "--features NAME goes with tables, and"),
    (
        "fit {table} --label kind --out m --weights w",
        "table.csv has no column 'w'; it has a, b, kind",
    ),
    (
        "predict {rows} --model {ridge} --write proba --out o",
        "holds Ridge, which has no predict_proba",
    ),
    ("evaluate {rows} --model {ridge}", "has no predict_proba: name another model"),
    ("predict {rows} --model {qda} --out o --keys a", "--keys a are columns of"),
    ("convert {text} --out o", "text.txt is neither zarr nor a table"),
    ("predict {rows} --model {truncated} --out o", "truncated.zip"),
    ("predict {rows} --model {table} --out o", "not a file that streamgda saved"),
    ("predict {narrow} --model {qda} --out o", "3 features"),
    ("predict {rows} --model {qda} --out o.xlsx", "--out o.xlsx ends in .xlsx"),
    ("predict {rows} --model {qda} --out {table}", "exists already"),
    ("predict {rows} --model {pca} --out o", "holds PCA, which has no predict"),
    ("info nowhere", "nowhere does not exist"),
    ("convert {rows} --out {numbers}", "exists already"),
    ("demo --out {data}", "exists"),
    ("fit rows.zarr", "--out"),
    ("fit --out m", "DATA"),
    ("fit {rows} --out m --kind svm", "--kind"),
    ("fit {rows} --out m --set reg_param", "NAME=VALUE"),
    ("fit {rows} --out m --set colour=red", "reg_param"),
    ("fit {rows} --out m --kind bnb --checkpoint c", "bnb and shrinkage=auto need all rows"),
    ("fit {numbers} --out m --unlabelled none", "is not a label"),
    ("predict {rows} --out o", "--model"),
    ("select {rows} --out m --scoring f1", "--scoring"),
    ("convert {rows} --out o --chunk-rows 0", "--chunk-rows"),
    ("select {rows} --out m --grid colour=red", "colour; expected covariance_type"),
    ("select {rows} --out m --grid reg", "--grid: reg; expected NAME=VALUE"),
    ("select {rows} --out m --cv 1", "--cv"),
    ("predict {rows} --model m --out o --write density --reject 0.1", "--write label"),
    ("elect", "elect"),
    ("│", " "),
]


@pytest.mark.parametrize(("words", "message"), ERRORS)
def test_errors_name_their_cause_and_leave_nothing(
    command, data, tmp_path, monkeypatch, words, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")  # Messages stay on one line.
    before = sorted(data.rglob("*"))
    names = {path.stem: str(path) for path in data.iterdir()}
    ended = command(*words.format(data=data, **names).split())
    usage = ended.err.startswith("Usage: ")
    assert (ended.code, ended.out) == (2 if usage else 1, "")
    assert message in " ".join(ended.err.replace("│", " ").split())
    assert usage or (ended.err.startswith("streamgda: ") and ended.err.count("\n") == 1)
    assert not list(tmp_path.iterdir())
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "out of memory"),
        (PermissionError(13, "Permission denied", "rows.zarr"), "Permission denied: 'rows.zarr'"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ConnectionError(), "ConnectionError"),
        (
            OSError("s3://k:secret@bucket: Access Denied"),
            "s3://***@bucket: Access Denied. Set AWS_",
        ),
    ],
)
def test_errors_of_the_system_are_explained(command, monkeypatch, error, line):
    def fail(path):
        raise error

    monkeypatch.setattr("streamgda.cli.data._description", fail)
    ended = command("info", "rows.zarr")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"streamgda: {line}")
    assert ended.err.count("\n") == 1


def test_warnings_are_one_line(command, tmp_path):
    constant = X.copy()
    constant[:, 1] = 7
    convert(constant, Y, tmp_path / "rows.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = command("fit", tmp_path / "rows.zarr", "--out", tmp_path / "m")
    assert ended.code == 0
    assert ended.err.startswith("streamgda: warning: 1 of 3 features are constant")
    assert ended.err.count("\n") == 1
