"""The command line: in processes of its own where that matters, else by its entry point."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from samples import held
from sklearn.metrics import classification_report, confusion_matrix, log_loss

import streamgda
from streamgda.cli import main
from streamgda.cli import screen as cli_screen
from streamgda.cli.learning import Stream
from streamgda.datasets import convert
from streamgda.slabs import Slabs
from streamgda.sources import RowSource

NAMES = np.array(["eggs", "ham", "spam & [bold]beans"])
PROGRAM = "from streamgda.cli import main; main()"


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def child(*arguments: object, program: str = PROGRAM) -> Ended:
    """Run the command line in a process of its own, with pipes."""
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "COLUMNS")}
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command line in this process: the same entry point, a second less to start."""
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(exit_.value.code if isinstance(exit_.value.code, int) else 0, out, err)

    return run


@pytest.fixture
def done(command: Command) -> Callable[..., str]:
    """What a command writes to stdout; it must succeed, and be silent on stderr."""

    def run(*arguments: object) -> str:
        ended = command(*arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    return run


def rows(n: int = 240, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    codes = random.integers(0, 3, n)
    centres = np.array([[0.0, 0, 0], [3, 1, 0], [0, 3, 2]])
    return centres[codes] + random.normal(size=(n, 3)), NAMES[codes]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rows in a store of several chunks, and models of them."""
    folder = tmp_path_factory.mktemp("data")
    X, y = rows()
    convert(X, folder / "rows.zarr", labels=y, chunk_rows=50)
    convert(X, folder / "numbers.zarr", labels=np.searchsorted(NAMES, y), chunk_rows=50)
    convert(X, folder / "unlabelled.zarr")
    convert(X[:, :2], folder / "narrow.zarr", labels=y)
    streamgda.QuadraticDiscriminantAnalysis().fit(X, y).save(folder / "qda.zip")
    (folder / "truncated.zip").write_bytes((folder / "qda.zip").read_bytes()[:500])
    return folder


# --- in processes of their own --------------------------------------------------------------------


def test_the_way_from_a_table_to_figures(tmp_path: Path) -> None:
    X, y = rows()
    table, store, model = tmp_path / "t.csv", tmp_path / "t.zarr", tmp_path / "qda.zip"
    lines = ["kind,a,b,c"] + [f"{k},{a},{b},{c}" for (a, b, c), k in zip(X, y, strict=True)]
    table.write_text("\n".join(lines))
    ended = [
        child("convert", table, store, "--label-column", "kind", "--chunk-rows", "100"),
        child("fit", store, "--model", model, "--reg-param", "0.25"),
        child("predict", model, store, "--out", tmp_path / "labels.zarr"),
        child("evaluate", model, store),
        child("info", model, "--json"),
    ]
    for step in ended:
        assert (step.code, step.err) == (0, "")  # no bars, no warnings
        assert "\x1b" not in step.out
        assert "\r" not in step.out
    expected = streamgda.QuadraticDiscriminantAnalysis(reg_param=0.25).fit(X, y)
    labels = zarr.open_array(tmp_path / "labels.zarr", mode="r")[:]
    np.testing.assert_array_equal(labels, expected.predict(X))
    converted, fitted, predicted, evaluated, described = ended
    assert "(240, 3)" in converted.out
    assert "240 rows x 3 features" in fitted.out
    assert "(240,)" in predicted.out
    assert f"accuracy  {expected.score(X, y):.4f}" in evaluated.out
    assert json.loads(described.out)["parameters"] == {"reg_param": 0.25}


def test_version_costs_no_heavy_import() -> None:
    program = (
        "import sys\nfrom streamgda.cli import main\n"
        "try: main(['--version'])\n"
        "finally: print({'dask', 'matplotlib', 'zarr'} & set(sys.modules))"
    )
    ended = child(program=program)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"streamgda {streamgda.__version__}\nset()\n"


def test_demo_measures_what_it_prints() -> None:
    ended = child("demo")
    assert (ended.code, ended.err) == (0, "")
    assert "\x1b" not in ended.out
    table = {line.split()[0]: line.split() for line in ended.out.splitlines() if line.strip()}
    columns = "smoothing accuracy (validation) accuracy (test) test rows/s"
    assert " ".join(table["model"]) == f"model {columns}"
    accuracies = {name: float(table[name][3]) for name in ("QDA", "LDA", "GaussianNB")}
    assert 0.97 < accuracies["QDA"] <= 1
    assert 0.92 < accuracies["LDA"] < accuracies["QDA"]
    assert 0.85 < accuracies["GaussianNB"] < accuracies["QDA"]
    confusion = np.array([[int(n.replace(".", "0")) for n in table[str(i)][1:]] for i in range(10)])
    assert confusion.sum() == 1797 // 4
    assert confusion.trace() / confusion.sum() == pytest.approx(accuracies["QDA"], abs=5e-5)
    assert "rows a second" in ended.out
    assert "peak memory of this process" in ended.out
    assert "streamgda demo --mnist DIR" in ended.out


def test_interrupted_scoring_says_what_it_keeps_and_goes_on(
    data: Path, tmp_path: Path, done: Callable[..., str]
) -> None:
    program = f"""
import os, signal, time
from streamgda import slabs, sources
slabs._SLAB_BYTES = 50 * 24
signal.signal(signal.SIGINT, signal.default_int_handler)
read = sources.RowSource.read
def interrupted(self, start, stop):
    if start == 150:  # slabs before it have been written
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.5)
    return read(self, start, stop)
sources.RowSource.read = interrupted
{PROGRAM}
"""
    out = tmp_path / "labels.zarr"
    predict = "predict", data / "qda.zip", data / "rows.zarr", "--out", out
    ended = child(*predict, program=program)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.startswith("streamgda: interrupted. ")
    kept = re.search(r"(\S+) keeps what was done, the scores of the first (\d+) rows", ended.err)
    assert kept
    assert kept[1] == f"{out}.partial"
    assert [path.name for path in tmp_path.iterdir()] == ["labels.zarr.partial"]
    half = json.loads(done("info", f"{out}.partial", "--json"))
    assert (half["kind"], half["rows"]) == ("predictions, half-written", int(kept[2]))
    assert "with what was there" in done(*predict)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.zarr"]
    labels = zarr.open_array(out, mode="r")
    np.testing.assert_array_equal(labels[:], streamgda.load(data / "qda.zip").predict(rows()[0]))


def test_a_bar_is_shown_to_who_is_watching(data: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    model = tmp_path / "nb.zip"
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            "fit",
            data / "rows.zarr",
            "--model",
            model,
            "--kind",
            "nb",
        ],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # what Linux says at the end
            break
        if not part:
            break
        seen += part
    os.close(ours)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    assert b"accumulating" in seen
    assert b"240/240" in seen
    assert b"\x1b" not in out


def test_entry_point() -> None:
    (script,) = entry_points(group="console_scripts", name="streamgda")
    assert script.load() is main


# --- convert --------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["2", "-1", "kind"])
def test_convert_takes_a_column_by_name_or_number(
    done: Callable[..., str], tmp_path: Path, column: str
) -> None:
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,5\n3,4,6\n")
    done("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--label-column", column)
    X, y = streamgda.open_store(tmp_path / "t.zarr")
    assert X[:].tolist() == [[1, 2], [3, 4]]
    assert y[:].tolist() == [5, 6]


def test_convert_of_two_files_replaces_only_if_asked(
    command: Command, done: Callable[..., str], tmp_path: Path
) -> None:
    np.save(tmp_path / "X.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "y.npy", [1, 0, 1])
    store = tmp_path / "new" / "t.zip"
    arguments = ("convert", tmp_path / "X.npy", store, "--labels", tmp_path / "y.npy")
    done(*arguments)
    assert streamgda.open_store(store)[1][:].tolist() == [1, 0, 1]
    np.save(tmp_path / "y.npy", [2, 2, 2])
    refused = command(*arguments)
    assert refused.code == 1
    assert "--overwrite replaces it" in refused.err
    done(*arguments, "--overwrite")
    assert streamgda.open_store(store)[1][:].tolist() == [2, 2, 2]


# --- fit ------------------------------------------------------------------------------------------

ESTIMATORS = {
    "qda": streamgda.QuadraticDiscriminantAnalysis,
    "lda": streamgda.LinearDiscriminantAnalysis,
    "nb": streamgda.GaussianNB,
    "gda": streamgda.GaussianDiscriminantAnalysis,
    "bernoulli": streamgda.BernoulliNB,
}


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("qda", {"shrinkage": 0.1, "tol": 1e-3}),
        ("qda", {"shrinkage": "auto"}),
        ("lda", {"shrinkage": "ledoit_wolf"}),
        ("gda", {"shrinkage": "oas", "covariance_type": "tied"}),
        ("lda", {"priors": [0.5, 0.25, 0.25]}),
        ("nb", {"var_smoothing": 0.5}),
        (
            "gda",
            {"covariance_type": "diag", "pooling": 0.5, "reg_param": 0.1, "ddof": 1},
        ),
        ("bernoulli", {"alpha": 0.5, "binarize": 0.25}),
    ],
)
def test_fit_is_the_estimators_fit(
    done: Callable[..., str], data: Path, tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    arguments = [
        f"--{name.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, list) else v}"
        for name, v in options.items()
    ]
    done("fit", data / "rows.zarr", "--model", tmp_path / "m", "--kind", kind, *arguments)
    X, y = rows()
    saved, expected = streamgda.load(tmp_path / "m"), ESTIMATORS[kind](**options).fit(X, y)
    assert saved.get_params() == expected.get_params()
    np.testing.assert_allclose(saved.predict_proba(X), expected.predict_proba(X), rtol=1e-9)


def test_select_saves_the_best_of_what_it_shows(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    X, y = rows()
    shown = done("select", data / "rows.zarr", "--model", tmp_path / "m.zip", "--cv=3", "--seed=7")
    search = streamgda.GaussianDiscriminantCV(cv=3, random_state=7).fit(X, y)
    lines = shown.splitlines()
    assert lines[0].split() == [
        *("rank", "covariance_type", "pooling", "shrinkage", "var_smoothing", "accuracy", "+-")
    ]
    assert lines[1].split()[:2] == ["1", search.best_params_["covariance_type"]]
    assert f"{search.best_score_:.5g}" in lines[1].split()
    assert lines[21] == "and 11 more"
    saved = streamgda.load(tmp_path / "m.zip")
    assert saved.get_params() == search.best_estimator_.get_params()
    np.testing.assert_allclose(saved.predict_proba(X), search.predict_proba(X), rtol=1e-9)


def test_select_of_a_grid_for_programs(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    grid = ["--grid", "covariance-type=full,diag", "--grid", "shrinkage=none,0,0.5"]
    options = ["--scoring=joint_log_likelihood", "--json", *grid]
    shown = json.loads(done("select", data / "rows.zarr", "--model", tmp_path / "m", *options))
    params = {"covariance_type": ["full", "diag"], "shrinkage": [None, 0, 0.5]}
    search = streamgda.GaussianDiscriminantCV(params, scoring="joint_log_likelihood").fit(*rows())
    assert shown["scoring"] == "joint_log_likelihood"
    assert shown["best"]["params"] == search.best_params_
    assert shown["best"]["score"] == pytest.approx(search.best_score_)
    scores = [row["score"] for row in shown["candidates"]]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 6
    assert [row["rank"] for row in shown["candidates"]][-1] in (5, 6)


def test_select_says_which_candidates_are_singular(
    done: Callable[..., str], tmp_path: Path
) -> None:
    X, y = rows()
    convert(np.column_stack([X, X[:, 0]]), tmp_path / "rows.zarr", labels=y)
    arguments = ["select", tmp_path / "rows.zarr", "--model", tmp_path / "m"]
    shown = done(*arguments, "--grid", "reg_param=0,0.1")
    assert shown.splitlines()[2].split() == ["2", "0", "singular"]
    told = json.loads(done(*arguments, "--grid", "reg_param=0,0.1", "--json"))
    assert told["candidates"][1]["score"] is None


@pytest.mark.parametrize(
    ("kind", "option", "taken"),
    [
        ("qda", "--pooling=0.5", "--shrinkage, --reg-param, --priors, --tol"),
        ("qda", "--covariance-type=diag", "--shrinkage"),
        ("lda", "--reg-param=0.5", "--shrinkage, --priors, --tol"),
        ("nb", "--tol=0.5", "--var-smoothing, --priors"),
        ("nb", "--ddof=1", "--var-smoothing, --priors"),
        ("bernoulli", "--tol=1", "--alpha, --binarize"),
    ],
)
def test_options_that_a_kind_does_not_have_are_wrong_usage(
    command: Command, data: Path, tmp_path: Path, kind: str, option: str, taken: str
) -> None:
    model = tmp_path / "m.zip"
    ended = command("fit", data / "rows.zarr", "--model", model, "--kind", kind, option)
    assert (ended.code, ended.out) == (2, "")
    assert option.split("=", maxsplit=1)[0] in ended.err
    assert taken in " ".join(ended.err.replace("│", " ").split())
    assert not model.exists()


def test_fit_takes_weights(
    command: Command, done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    X, names = rows()
    y = np.unique(names, return_inverse=True)[1]
    weight = np.random.default_rng(0).uniform(0, 2, len(y))
    store = zarr.open_group(tmp_path / "rows.zarr")
    for name, array in (("X", X), ("y", y), ("w", weight)):
        store.create_array(name, data=array)
    arguments = ("fit", tmp_path / "rows.zarr", "--model", tmp_path / "m", "--kind", "nb")
    done(*arguments, "--weights", "w")
    expected = streamgda.GaussianNB().fit(X, y, weight)
    np.testing.assert_allclose(streamgda.load(tmp_path / "m").var_, expected.var_, rtol=1e-9)
    assert "no array 'v'" in command(*arguments, "--weights", "v").err


def test_moments_make_other_models_without_reading(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    kept, model = tmp_path / "moments.zip", tmp_path / "m.zip"
    done("fit", data / "rows.zarr", "--model", model, "--moments", kept)
    out = done("fit", "--moments-in", kept, "--model", model, "--kind", "lda")
    assert "rows x" not in out
    X, y = rows()
    expected = streamgda.LinearDiscriminantAnalysis().fit(X, y)
    np.testing.assert_allclose(streamgda.load(model).coef_, expected.coef_, rtol=1e-9)


def test_invalid_rows_are_left_out_and_counted(
    command: Command, done: Callable[..., str], tmp_path: Path
) -> None:
    X, y = rows()
    X[3, 1], X[77, 0], X[200] = np.nan, -9999, -9999
    convert(X, tmp_path / "rows.zarr", labels=y, chunk_rows=50)
    fit = "fit", tmp_path / "rows.zarr", "--model", tmp_path / "m", "--kind", "nb"
    ended = command(*fit)
    assert ended.code == 1
    assert "Input X contains NaN: row 3, column 1" in ended.err
    ended = command(*fit, "--nodata=-9999")
    assert "row 3 holds NaN, infinity or nodata=-9999.0" in ended.err
    kept = tmp_path / "kept"
    out = done(*fit, "--on-invalid", "skip", "--nodata=-9999", "--checkpoint", kept)
    assert "left out 3 rows" in out
    assert json.loads(done("info", kept, "--json"))["skipped"] == 3
    good = np.delete(np.arange(240), [3, 77, 200])
    expected = streamgda.GaussianNB().fit(X[good], y[good])
    np.testing.assert_allclose(streamgda.load(tmp_path / "m").theta_, expected.theta_, rtol=1e-12)
    assert (
        "was begun with nodata: -9999.0"
        in command(*fit, "--on-invalid", "skip", "--checkpoint", kept).err
    )


def test_an_interrupted_fit_says_what_it_keeps_and_goes_on(
    command: Command,
    done: Callable[..., str],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, model = tmp_path / "kept", tmp_path / "nb.zip"
    fit = "fit", data / "rows.zarr", "--model", model, "--kind", "nb", "--checkpoint"
    assert command(*fit, model).code == 2  # it would be written to twice
    with monkeypatch.context() as patch:
        patch.setattr("streamgda.slabs._SLAB_BYTES", 50 * 24)
        interrupt_at(patch, 150)
        ended = command(*fit, kept)
    assert (ended.code, ended.out) == (130, "")
    assert f"interrupted. The checkpoint {kept} keeps what was done, the first 150" in ended.err
    assert not model.exists()
    described = json.loads(done("info", kept, "--json"))
    assert (described["kind"], described["done"]) == ("checkpoint", 150)
    assert "from the checkpoint on" in done(*fit, kept)
    expected = streamgda.GaussianNB().fit(*rows())
    np.testing.assert_allclose(streamgda.load(model).theta_, expected.theta_, rtol=1e-12)


def interrupt_at(patch: pytest.MonkeyPatch, row: int) -> None:
    """Let the reading of rows be interrupted where it comes to that one."""
    read = RowSource.read

    def interrupted(source: RowSource, start: int, stop: int) -> np.ndarray:
        if start == row and len(source.shape) == 2:
            raise KeyboardInterrupt
        return read(source, start, stop)

    patch.setattr(RowSource, "read", interrupted)


def test_half_written_scores_are_replaced_only_if_asked(
    command: Command,
    done: Callable[..., str],
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, other = tmp_path / "out.zarr", tmp_path / "nb.zip"
    streamgda.GaussianNB().fit(*rows()).save(other)
    with monkeypatch.context() as patch:
        patch.setattr("streamgda.slabs._SLAB_BYTES", 50 * 24)
        interrupt_at(patch, 100)
        assert command("predict", data / "qda.zip", data / "rows.zarr", "--out", out).code == 130
    mixed = zarr.create_group(tmp_path / "mixed.zarr")
    mixed.create_array("X", data=rows()[0])
    (tmp_path / "out.zarr.partial").rename(tmp_path / "mixed.zarr" / "y")
    refused = command("evaluate", other, tmp_path / "mixed.zarr")
    assert refused.code == 1
    assert "'y' holds scores that are half-written: 100 of 240 rows" in refused.err
    (tmp_path / "mixed.zarr" / "y").rename(tmp_path / "out.zarr.partial")
    arguments = "predict", other, data / "rows.zarr", "--out", out
    refused = command(*arguments)
    assert refused.code == 1
    assert "out.zarr.partial was begun with model: checksum" in refused.err
    done(*arguments, "--overwrite")
    expected = streamgda.load(other).predict(rows()[0])
    np.testing.assert_array_equal(zarr.open_array(out, mode="r")[:], expected)


def test_rows_are_added_to_moments(done: Callable[..., str], data: Path, tmp_path: Path) -> None:
    (X, y), (more, more_y) = rows(), rows(90, seed=1)
    convert(more, tmp_path / "more.zarr", labels=more_y)
    kept, model = tmp_path / "moments", tmp_path / "m"
    streamgda.accumulate(X, y).save(kept)
    out = done(
        *("fit", tmp_path / "more.zarr", "--moments-in", kept, "--model", model),
        *("--kind", "nb", "--moments", kept),
    )
    assert "read 90 rows" in out
    assert "of 330 rows" in out
    assert streamgda.ClassMoments.load(kept).class_count.sum() == 330
    expected = streamgda.GaussianNB().fit(np.vstack([X, more]), np.append(y, more_y))
    np.testing.assert_allclose(streamgda.load(model).theta_, expected.theta_)


def test_moments_are_kept_where_the_model_cannot_be_made(command: Command, tmp_path: Path) -> None:
    X, y = rows()
    convert(np.column_stack([X, X[:, 0]]), tmp_path / "rows.zarr", labels=y)
    kept, model = tmp_path / "moments.zip", tmp_path / "m.zip"
    ended = command("fit", tmp_path / "rows.zarr", "--model", model, "--moments", kept)
    assert ended.code == 1
    assert ended.err.startswith("streamgda: the covariance of 3 of 3 classes is singular")
    assert not model.exists()
    assert command("fit", "--moments-in", kept, "--model", model, "--kind", "nb").code == 0


def test_priors_are_checked_against_the_classes(
    command: Command, data: Path, tmp_path: Path
) -> None:
    model = tmp_path / "m.zip"
    ended = command("fit", data / "rows.zarr", "--model", model, "--priors", "0.5,0.5")
    assert ended.code == 1
    assert "priors has shape (2,); expected one for each of the 3 classes" in ended.err
    assert not model.exists()


def test_neither_model_nor_moments_replace_rows(command: Command, tmp_path: Path) -> None:
    X, y = rows()
    store = tmp_path / "rows.zarr"
    convert(X, store, labels=y)
    for options in (["--model", store], ["--model", tmp_path / "m", "--moments", store]):
        ended = command("fit", store, *options)
        assert ended.code == 1
        assert "it will not be replaced" in ended.err
        np.testing.assert_array_equal(streamgda.open_store(store)[0][:], X)
    assert command("fit", store, "--model", tmp_path / "m", "--moments", tmp_path / "m").code == 2


def test_arrays_of_other_names(done: Callable[..., str], tmp_path: Path) -> None:
    X, y = rows()
    group = zarr.create_group(tmp_path / "rows.zarr")
    group.create_array("measured", data=X)
    group.create_array("kind", data=np.searchsorted(NAMES, y))
    model = tmp_path / "m.zip"
    names = ("--x", "measured", "--y", "kind")
    done("fit", tmp_path / "rows.zarr", "--model", model, *names)
    out = done("evaluate", model, tmp_path / "rows.zarr", *names)
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(X, y).score(X, y)
    assert f"accuracy  {expected:.4f}" in out


# --- predict --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "method"),
    [
        ((), "predict"),
        (("--proba",), "predict_proba"),
        (("--log-proba",), "predict_log_proba"),
        (("--density",), "score_samples"),
    ],
)
def test_what_is_written_is_what_is_predicted_in_memory(
    done: Callable[..., str], data: Path, tmp_path: Path, option: tuple[str, ...], method: str
) -> None:
    out = tmp_path / "new" / "out.zarr"
    done("predict", data / "qda.zip", data / "rows.zarr", "--out", out, *option)
    written = zarr.open_array(out, mode="r")
    estimator = streamgda.load(data / "qda.zip")
    np.testing.assert_array_equal(written[:], getattr(estimator, method)(rows()[0]))
    assert [path.name for path in out.parent.iterdir()] == ["out.zarr"]
    described = json.loads(done("info", out, "--json"))
    assert (described["kind"], described["method"]) == ("predictions", method)
    assert described["columns"] == (NAMES.tolist() if written.ndim == 2 else None)


@pytest.mark.parametrize(("store", "label"), [("rows.zarr", "none"), ("numbers.zarr", -1)])
def test_predict_rejects_rows(
    command: Command, done: Callable[..., str], data: Path, tmp_path: Path, store: str, label: Any
) -> None:
    X, y = streamgda.open_store(data / store)
    estimator = streamgda.QuadraticDiscriminantAnalysis().fit(X, y)
    estimator.save(tmp_path / "m.zip")
    arguments = ("predict", tmp_path / "m.zip", data / store, "--reject", "0.2")
    done(*arguments, "--reject-label", label, "--out", tmp_path / "out.zarr")
    expected = estimator.predict(X, reject=0.2, reject_label=label)
    assert 0 < (expected == label).sum() < len(expected)
    written = zarr.open_array(tmp_path / "out.zarr", mode="r")[:]
    np.testing.assert_array_equal(written.astype(expected.dtype), expected)
    assert command(*arguments, "--proba", "--out", tmp_path / "other.zarr").code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        "confusion --store rows.zarr",
        "boundary --store rows.zarr --features 2,0",
        "boundary --store rows.zarr --directions fisher",
        "boundary --directions pca",
        "boundary",
        "densities --store rows.zarr --features 2",
        "densities --directions fisher",
        "means --shape 1,3",
        "samples --shape 1,3 --n 2 --seed 1",
        "spectra",
        "spectra --n 2",
        "learning --store rows.zarr",
    ],
)
def test_plot_draws_pictures(
    done: Callable[..., str], data: Path, tmp_path: Path, arguments: str
) -> None:
    pytest.importorskip("matplotlib")
    picture, *options = arguments.split()
    options = [str(data / o) if o.endswith(".zarr") else o for o in options]
    out = tmp_path / "picture.png"
    said = done("plot", picture, data / "qda.zip", "--out", out, *options)
    assert said.startswith(f"{picture} of QuadraticDiscriminantAnalysis: drawn to")
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def curve(done: Callable[..., str], data: Path, tmp_path: Path, monkeypatch: Any) -> Any:
    """Rows seen and accuracies, as `plot learning` draws them."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))

    def draw(model: Path, store: Path, *options: object) -> tuple[np.ndarray, np.ndarray]:
        out = tmp_path / "curve.png"
        said = done("plot", "learning", model, "--store", store, "--out", out, *options)
        assert said.startswith("learning of")
        return figures[-1].axes[0].lines[0].get_data()

    return draw


def test_a_learning_curve_ends_at_the_model_of_all_rows_but_those_held_out(
    data: Path, curve: Any
) -> None:
    X, y = rows()
    seen, accuracy = curve(data / "qda.zip", data / "rows.zarr", "--n", 8)
    held_out = np.arange(len(X)) % 10 == 0
    qda = streamgda.QuadraticDiscriminantAnalysis().fit(X[~held_out], y[~held_out])
    assert seen[-1] == (~held_out).sum()
    assert accuracy[-1] == qda.score(X[held_out], y[held_out])
    assert 4 <= len(seen) <= 20
    assert seen[0] < 40  # the beginning, where it rises, is there


def test_a_learning_curve_is_held_against_the_store_that_is_named(
    data: Path, tmp_path: Path, curve: Any
) -> None:
    X, y = rows(seed=1)
    convert(X, tmp_path / "test.zarr", labels=y)
    model = tmp_path / "nb.zip"
    streamgda.GaussianNB(var_smoothing=0.5).fit(*rows()).save(model)
    seen, accuracy = curve(model, data / "rows.zarr", "--test", tmp_path / "test.zarr")
    assert seen[-1] == 240
    expected = streamgda.GaussianNB(var_smoothing=0.5).fit(*rows())
    assert accuracy[-1] == expected.score(X, y)
    fifty = np.searchsorted(seen, 50)
    n = int(seen[fifty])
    first = streamgda.GaussianNB(var_smoothing=0.5).fit(rows()[0][:n], rows()[1][:n])
    assert accuracy[fifty] == first.score(X, y)


@pytest.mark.parametrize("hold_out", [True, False])
@pytest.mark.parametrize("n", [1, 40])
def test_batches_and_held_out_rows_are_all_rows_once(n: int, hold_out: bool) -> None:
    X = np.arange(523.0)[:, None]
    stored = [held(array, "zarr", 50) for array in (X, X[:, 0].astype(int))]
    estimator = streamgda.GaussianNB().fit(X, X[:, 0] > 100)
    stream = Stream(estimator, *stored, n, hold_out, "100MB")
    stream._slabs = Slabs(100)
    batches = list(stream)
    learned = np.concatenate([labels for _, labels in batches])
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in batches])[:, 0], learned)
    if not hold_out:
        np.testing.assert_array_equal(learned, np.arange(523))
        return
    rows_held, labels_held = stream.held_out()
    np.testing.assert_array_equal(labels_held, np.arange(0, 523, 10))
    np.testing.assert_array_equal(rows_held[:, 0], labels_held)
    np.testing.assert_array_equal(np.sort(np.append(learned, labels_held)), np.arange(523))


def test_a_learning_curve_of_other_rows_is_refused(
    command: Command, data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ("plot", "learning", data / "qda.zip", "--out", tmp_path / "p.png")
    rows_of = ("--store", data / "rows.zarr")
    for options in (("--store", data / "narrow.zarr"), (*rows_of, "--test", data / "narrow.zarr")):
        refused = command(*arguments, *options)
        assert refused.code == 1
        assert "expects rows of 3 features" in refused.err
    refused = command(*arguments, *rows_of, "--max-memory", "1kB")
    assert refused.code == 1
    assert "max_memory" in refused.err
    assert not list(tmp_path.iterdir())


def test_plot_replaces_nothing_unasked(
    command: Command, done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "picture.svg"
    done("plot", "spectra", data / "qda.zip", "--out", out)
    refused = command("plot", "boundary", data / "qda.zip", "--out", out)
    assert refused.code == 1
    assert "--overwrite replaces it" in refused.err
    done("plot", "boundary", data / "qda.zip", "--out", out, "--overwrite")
    unknown = command("plot", "spectra", data / "qda.zip", "--out", tmp_path / "picture.xyz")
    assert unknown.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    square = command("plot", "means", data / "qda.zip", "--out", tmp_path / "means.png")
    assert "does not make an image of 3 features" in square.err


def test_predict_replaces_nothing_but_predictions(
    command: Command, done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    X, y = rows()
    store, out = tmp_path / "rows.zarr", tmp_path / "out.zarr"
    convert(X, store, labels=y)
    done("predict", data / "qda.zip", store, "--out", out)
    refused = command("predict", data / "qda.zip", store, "--out", out, "--proba")
    assert refused.code == 1
    assert "--overwrite replaces it" in refused.err
    assert zarr.open_array(out, mode="r").shape == (240,)
    done("predict", data / "qda.zip", store, "--out", out, "--proba", "--overwrite")
    assert zarr.open_array(out, mode="r").shape == (240, 3)
    for occupied in (store, store / "X", tmp_path):
        ended = command("predict", data / "qda.zip", store, "--out", occupied, "--overwrite")
        assert ended.code == 1
        assert "it will not be replaced" in ended.err
    np.testing.assert_array_equal(streamgda.open_store(store)[0][:], X)


def test_errors_of_single_rows_say_where_these_are(
    command: Command, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = rows()
    X[130, 1] = np.nan
    store, out = tmp_path / "rows.zarr", tmp_path / "out.zarr"
    convert(X, store, labels=y, chunk_rows=50)
    monkeypatch.setattr("streamgda.slabs._SLAB_BYTES", 50 * 24)
    for arguments in (["predict", "--out", out], ["evaluate"]):
        name, *options = arguments
        ended = command(name, data / "qda.zip", store, *options)
        assert ended.code == 1
        assert "Input X contains NaN: row 130, column 1" in ended.err
    assert not out.exists()


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_agrees_with_scikit_learn(
    done: Callable[..., str], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgda.slabs._SLAB_BYTES", 100 * 24)
    monkeypatch.setattr("streamgda.cli.evaluate._SCORES", 70)
    X, y = rows()
    estimator = streamgda.load(data / "qda.zip")
    predicted = estimator.predict(X)
    result = json.loads(done("evaluate", data / "qda.zip", data / "rows.zarr", "--json"))
    assert result["rows"] == 240
    assert result["accuracy"] == pytest.approx(estimator.score(X, y))
    assert result["log_loss"] == pytest.approx(log_loss(y, estimator.predict_proba(X)))
    assert result["confusion_matrix"] == confusion_matrix(y, predicted).tolist()
    report = classification_report(y, predicted, output_dict=True)
    assert [entry["label"] for entry in result["classes"]] == NAMES.tolist()
    for entry in result["classes"]:
        expected = report[entry["label"]]
        assert entry["rows"] == expected["support"]
        for name, theirs in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            assert entry[name] == pytest.approx(expected[theirs])


def test_evaluate_prints_tables_with_labels_as_they_are(
    done: Callable[..., str], data: Path
) -> None:
    out = done("evaluate", data / "qda.zip", data / "rows.zarr")
    X, y = rows()
    counts = confusion_matrix(y, streamgda.load(data / "qda.zip").predict(X))
    *_, last = out.splitlines()
    assert last.startswith("spam & [bold]beans")
    assert [int(n.replace(".", "0")) for n in last.split()[3:]] == counts[2].tolist()
    assert max(map(len, out.splitlines())) < 100


def test_rows_of_labels_that_the_model_does_not_know_are_wrong(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    X, y = rows()
    known = y != NAMES[1]
    estimator = streamgda.GaussianNB().fit(X[known], y[known])
    estimator.save(tmp_path / "nb.zip")
    result = json.loads(done("evaluate", tmp_path / "nb.zip", data / "rows.zarr", "--json"))
    assert result["accuracy"] == pytest.approx(estimator.score(X, y))
    assert result["log_loss"] is None
    assert result["confusion_matrix"] == confusion_matrix(y, estimator.predict(X)).tolist()
    ham = result["classes"][1]
    assert (ham["recall"], ham["precision"]) == (0, None)
    table = done("evaluate", tmp_path / "nb.zip", data / "rows.zarr")
    assert ["log-loss", "inf"] in [line.split() for line in table.splitlines()]


def test_of_many_classes_the_worst_confusions_are_shown(
    done: Callable[..., str], tmp_path: Path
) -> None:
    y = np.repeat(np.arange(30), 10)
    X = y[:, None] + np.random.default_rng(0).normal(scale=0.1, size=(300, 2))
    X[y == 7] += 1  # taken for 8
    convert(X, tmp_path / "rows.zarr", labels=y)
    clean = X - (y == 7)[:, None]
    streamgda.GaussianNB().fit(clean, y).save(tmp_path / "nb.zip")
    out = done("evaluate", tmp_path / "nb.zip", tmp_path / "rows.zarr")
    assert "true \\ predicted" not in out
    heading, worst = out.splitlines()[-2:]
    assert heading.split() == ["true", "predicted", "rows"]
    assert worst.split() == ["7", "8", "10"]


# --- info -----------------------------------------------------------------------------------------


def test_info_tells_saved_things_from_rows(
    done: Callable[..., str], data: Path, tmp_path: Path
) -> None:
    X, y = rows()
    moments = streamgda.accumulate(X, y)
    moments.save(tmp_path / "moments")
    streamgda.load(data / "qda.zip").model_.save(tmp_path / "model.zip")
    counts = [(y == name).sum() for name in NAMES]
    listed = [{"label": n, "rows": int(c)} for n, c in zip(NAMES, counts, strict=True)]

    def described(path: Path) -> dict[str, Any]:
        table = done("info", path)
        assert "│" not in table
        return json.loads(done("info", path, "--json"))

    estimator = described(data / "qda.zip")
    assert estimator["estimator"] == "QuadraticDiscriminantAnalysis"
    assert estimator["classes"] == listed
    assert estimator["bytes"] == moments.nbytes
    assert estimator["bytes_stored"] == (data / "qda.zip").stat().st_size
    held = described(tmp_path / "moments")
    assert (held["kind"], held["covariance_type"], held["features"]) == ("moments", "full", 3)
    assert held["rows"] == 240
    streamgda.PairwiseMoments().update(X, y).save(tmp_path / "pairs")
    pairs = described(tmp_path / "pairs")
    assert (pairs["kind"], pairs["rows"], pairs["classes"]) == ("pairwise moments", 240, listed)
    streamgda.SlidingWindow(3).update(X, y).save(tmp_path / "window")
    window = described(tmp_path / "window")
    assert (window["kind"], window["blocks"], window["rows"]) == ("sliding window", "1 of 3", 240)
    model = described(tmp_path / "model.zip")
    assert [entry["prior"] for entry in model["classes"]] == pytest.approx(np.divide(counts, 240))
    store = described(data / "rows.zarr")
    assert store["labels"] == "y"
    assert [(a["name"], a["shape"], a["chunks"]) for a in store["arrays"]] == [
        ("X", [240, 3], [50, 3]),
        ("y", [240], [50]),
    ]
    assert described(data / "unlabelled.zarr")["labels"] is None
    assert "there is no array 'y'" in done("info", data / "unlabelled.zarr")
    assert described(data / "rows.zarr" / "X")["kind"] == "zarr array"


# --- demo -----------------------------------------------------------------------------------------


def write_mnist(folder: Path) -> None:
    """Four files laid out as MNIST's are: blurred bars, lying or standing."""
    random = np.random.default_rng(0)
    for part, n in (("train", 300), ("t10k", 80)):
        y = random.integers(0, 2, n).astype(np.uint8)
        X = random.integers(0, 60, (n, 5, 5)).astype(np.uint8)
        X[y == 0, 2] += 80
        X[y == 1, :, 2] += 80
        for name, array in ((f"{part}-images-idx3-ubyte", X), (f"{part}-labels-idx1-ubyte", y)):
            head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (folder / f"{name}.gz").write_bytes(gzip.compress(head + array.tobytes()))


def test_demo_of_mnist_keeps_what_can_be_gone_on_with(
    command: Command, done: Callable[..., str], tmp_path: Path
) -> None:
    write_mnist(tmp_path)
    store = tmp_path / "demo.zarr"
    out = done("demo", "--mnist", tmp_path, "--store", store)
    assert "250 train, 50 validation, 80 test rows" in out
    commands = [line.split()[1:] for line in out.splitlines() if line.startswith("  streamgda")]
    evaluated = next(line for line in commands if line[0] == "evaluate")
    assert json.loads(done(*evaluated, "--json"))["accuracy"] > 0.9
    assert json.loads(done("info", store / "model", "--json"))["rows"] == 300
    assert json.loads(done("info", store, "--json"))["groups"] == [
        *("model", "test", "train", "validation")
    ]
    again = command("demo", "--store", store)
    assert (again.code, again.out) == (1, "")
    assert "name another path" in again.err


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("fit nowhere.zarr --model m.zip", "nowhere.zarr does not exist"),
        ("fit {data}/unlabelled.zarr --model m.zip", "lacks labels: it has no array 'y'"),
        ("fit {data}/rows.zarr --model m.zip --max-memory 1MB", "max_memory allows 1.0 MB"),
        ("fit {data}/rows.zarr --model m.zip --max-memory lots", "max_memory='lots'"),
        ("fit {data}/rows.zarr --model m.zip --reg-param 2", "reg_param=2.0"),
        ("fit {data}/rows.zarr --model m.zip --kind gda --covariance-type round", "'round'"),
        ("fit --moments-in {data}/qda.zip --model m.zip", "expected 'moments'"),
        ("fit {data}/rows.zarr --model {file}", "it will not be replaced"),
        (
            "fit {data}/rows.zarr --model m.zip --kind gda --covariance-type diag --shrinkage oas",
            "use 'full' or 'tied'",
        ),
        ("select nowhere.zarr --model m.zip", "nowhere.zarr does not exist"),
        ("select {data}/rows.zarr --model m.zip --max-memory 1MB", "max_memory allows 1.0 MB"),
        ("select {data}/rows.zarr --model m.zip --cv 1", "cv=1"),
        ("select {data}/rows.zarr --model m.zip --grid shrinkage=much", "shrinkage='much'"),
        ("select {data}/rows.zarr --model m.zip --grid colour=red", "is not parameters of"),
        ("select {data}/rows.zarr --model {file}", "it will not be replaced"),
        ("predict {data}/truncated.zip {data}/rows.zarr --out o", "not a zip file"),
        ("predict {data}/rows.zarr {data}/rows.zarr --out o", "not one that streamgda saved"),
        ("predict {data}/qda.zip {data}/narrow.zarr --out o", "expects rows of 3 features"),
        ("predict {data}/qda.zip {data}/rows.zarr --out o --max-memory 1MB", "allows 1.0 MB"),
        ("predict {data}/qda.zip {data}/rows.zarr --out {file}/o", "{file}"),
        ("evaluate {data}/qda.zip {data}/unlabelled.zarr", "lacks labels"),
        ("evaluate {data}/qda.zip {data}/numbers.zarr", "do not mix"),
        ("evaluate {data}/qda.zip {data}/rows.zarr --max-memory 1MB", "allows 1.0 MB"),
        ("info nowhere", "nowhere does not exist"),
        ("info {data}/truncated.zip", "cannot be opened"),
        ("info {file}", "cannot be opened"),
        ("convert nowhere.csv t.zarr", "nowhere.csv does not exist"),
        ("convert {file} t.zarr", "does not tell its format"),
        ("demo --mnist {data}", "lacks train-images"),
    ],
)
def test_failures_are_one_line_and_leave_nothing(
    command: Command,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "some.file").write_text("text")
    ended = command(*(part.format(data=data, file=file) for part in arguments.split()))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("streamgda: ")
    assert ended.err.count("\n") == 1
    assert message.format(file=file) in ended.err
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "arguments",
    [
        "fit --model m.zip",
        "fit rows.zarr",
        "fit rows.zarr --model m.zip --kind svm",
        "fit rows.zarr --model m.zip --kind lda --priors half,half",
        "select rows.zarr",
        "select rows.zarr --model m.zip --scoring f1",
        "select rows.zarr --model m.zip --grid shrinkage",
        "select rows.zarr --model m.zip --grid shrinkage=",
        "predict m.zip rows.zarr --out o --proba --density",
        "predict m.zip rows.zarr --out o.zip",
        "convert rows.csv rows.zarr --chunk-rows 0",
        "evaluate m.zip",
        "plot confusion m.zip --out p.png",
        "plot boundary m.zip --out p.png --features a,b",
        "plot boundary m.zip --out p.png --directions up",
        "plot learning m.zip --out p.png",
        "plot everything m.zip --out p.png",
        "elect",
    ],
)
def test_wrong_usage(command: Command, arguments: str) -> None:
    ended = command(*arguments.split())
    assert (ended.code, ended.out) == (2, "")
    assert "Usage: streamgda" in ended.err


def test_warnings_are_one_line(command: Command, tmp_path: Path) -> None:
    X, y = rows()
    X[:, 1] = 7
    convert(X, tmp_path / "rows.zarr", labels=y)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        ended = command("fit", tmp_path / "rows.zarr", "--model", tmp_path / "m.zip")
    assert ended.code == 0
    assert ended.err.startswith("streamgda: warning: 1 of 3 features are constant")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MemoryError(), "out of memory"),
        (PermissionError(13, "Permission denied", "rows.zarr"), "Permission denied: rows.zarr"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ConnectionError(), "ConnectionError"),
    ],
)
def test_what_the_system_refuses_is_said_in_words(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def fail(path: str) -> None:
        raise error

    monkeypatch.setattr("streamgda.cli.info._describe", fail)
    assert command("info", "rows.zarr") == Ended(1, "", f"streamgda: {line}\n")


def test_our_own_mistakes_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: str) -> None:
        raise KeyError("mistake")

    monkeypatch.setattr("streamgda.cli.info._describe", fail)
    with pytest.raises(KeyError, match="mistake"):
        main(["info", "rows.zarr"])


def test_tables_in_a_pipe_are_not_cut(capfd: pytest.CaptureFixture[str]) -> None:
    cli_screen.show_table(("name", "rows"), [("a" * 300, "1"), ("b", "[red]")])
    _, first, second = capfd.readouterr().out.splitlines()
    assert first.split() == ["a" * 300, "1"]
    assert second.split() == ["b", "[red]"]


def test_tables_in_a_terminal_have_a_rule_under_the_heading(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    cli_screen.show_table(("name", "rows"), [("a", "1")])
    out = capfd.readouterr().out
    assert "─" in out
    assert "\x1b" in out
