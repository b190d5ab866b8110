"""The command line: in separate processes if that matters; files and their content."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest
import zarr
from commands import NAMES, PROGRAM, rows

import streamgda
from streamgda.cli import main

# --- in processes of their own --------------------------------------------------------------------


def test_the_way_from_a_table_to_figures(command, tmp_path):
    X, y = rows()
    table, store, model = tmp_path / "t.csv", tmp_path / "t.zarr", tmp_path / "qda.zip"
    lines = ["kind,a,b,c"] + [f"{k},{a},{b},{c}" for (a, b, c), k in zip(X, y, strict=True)]
    table.write_text("\n".join(lines))
    ended = [
        command("convert", table, store, "--label-column", "kind", "--chunk-rows", "100"),
        command("fit", store, "--model", model, "--reg-param", "0.25"),
        command("predict", model, store, "--out", tmp_path / "labels.zarr"),
        command("evaluate", model, store),
        command("info", model, "--json"),
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


def test_warmup_compiles_or_finds_kernels(command):
    ended = command("warmup", "--types", "float64", "--kinds", "gnb")
    assert (ended.code, ended.err) == (0, "streamgda: gnb on float64 (1 of 1)\n")
    assert ended.out.startswith("kernels compiled or found in ")


@pytest.mark.slow
def test_a_bar_is_shown_to_who_is_watching(data, tmp_path):
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


def test_entry_point():
    (script,) = entry_points(group="console_scripts", name="streamgda")
    assert script.load() is main


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("fit --kind n", ["nb"]),
        ("fit --covariance-type t", ["tied", "tied_diag", "tied_spherical"]),
        ("con", ["convert"]),
        ("convert --missing-labels ", ["raise", "keep"]),
    ],
)
def test_shell_completion(monkeypatch, capsys, words, found):
    words = f"streamgda {words}"
    for name, value in [
        ("_STREAMGDA_COMPLETE", "complete_bash"),
        ("COMP_WORDS", words),
        ("COMP_CWORD", str(words.count(" "))),
    ]:
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="0"):
        main([])
    assert capsys.readouterr().out.split() == found


# --- convert --------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["2", "-1", "kind"])
def test_convert_takes_a_column_by_name_or_number(done, tmp_path, column):
    (tmp_path / "t.csv").write_text("a,b,kind\n1,2,5\n3,4,6\n")
    done("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--label-column", column)
    X, y = streamgda.open_store(tmp_path / "t.zarr")
    assert X[:].tolist() == [[1, 2], [3, 4]]
    assert y[:].tolist() == [5, 6]


@pytest.mark.filterwarnings("default:.*the first column has no name")
def test_convert_takes_the_options_of_tables(command, done, tmp_path):
    source, store = tmp_path / "rows", tmp_path / "t.zarr"
    source.write_text("id;a;b;c;kind\n0;1;2;3;5\n1;3;4;5;6\n")
    options = ["--format", "csv", "--label-column", "kind", "--dtype", "uint8", "--overwrite"]
    for more, expected in [
        (["--columns", "2:4", "--delimiter", ";", "--header"], [[2, 3], [4, 5]]),
        (["--columns", "c,1"], [[3, 1], [5, 3]]),
        (["--drop", "0,c", "--drop", "-3"], [[1], [3]]),
        ([], [[0, 1, 2, 3], [1, 3, 4, 5]]),
    ]:
        assert not command("convert", source, store, *options, *more).err
        X, y = streamgda.open_store(store)
        assert X.dtype == np.uint8
        assert X[:].tolist() == expected
        assert y[:].tolist() == [5, 6]
    source.write_text(source.read_text().replace("id", "").replace(".", ","))
    refused = command("convert", source, store, *options)
    assert "a column without a name" in refused.err
    assert command("convert", source, store, *options, "--drop", "0", "--decimal", ",").code == 0


def test_convert_takes_missing_values_and_tables_without_labels(command, done, tmp_path):
    source, store = tmp_path / "t.csv", tmp_path / "t.zarr"
    source.write_text("a,b,kind\n1,?,x\n-9999,4,\n")
    assert command("convert", source, store, "--na", "?").err.endswith(
        "the label of row 1 is missing; missing_labels='keep' keeps such rows\n"
    )
    done("convert", source, store, "--na", "?", "--na", "-9999", "--missing-labels", "keep")
    X, y = streamgda.open_store(store)
    np.testing.assert_array_equal(X[:], [[1, np.nan], [np.nan, 4]])
    assert y[:].tolist() == ["x", ""]
    source.write_text("a,b\n1,2\n3,4\n")
    done("convert", source, store, "--no-labels", "--overwrite")
    X, y = streamgda.open_store(store, y=None)
    assert X[:].tolist() == [[1, 2], [3, 4]]
    refused = command("convert", source, store, "--no-labels", "--labels", source, "--overwrite")
    assert refused.code == 2
    assert command("convert", source, store, "--no-default-na", "--overwrite").code == 0


def test_convert_of_two_files_replaces_only_if_asked(command, done, tmp_path):
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


# --- info -----------------------------------------------------------------------------------------


SAVED = {
    "moments": streamgda.accumulate,
    "pairwise moments": lambda X, y: streamgda.PairwiseMoments().update(X, y),
    "sliding window": lambda X, y: streamgda.SlidingWindow(3).update(X, y),
    "moments of groups": lambda X, y: streamgda.accumulate(X, y, groups=np.arange(240) // 200),
    "drift monitor": lambda X, y: streamgda.DriftMonitor(streamgda.accumulate(X, y), window=90),
    "estimator": lambda X, y: streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, y),
    "selector": lambda X, y: streamgda.SeparabilitySelector(2).fit(X, y),
    "model": lambda X, y: streamgda.GaussianNB().fit(X, y).model_,
    "Bernoulli model": lambda X, y: streamgda.BernoulliNB().fit(X, y).model_,
}
TOLD = {
    "moments": {"covariance_type": "full", "exact": False},
    "sliding window": {"blocks": "1 of 3"},
    "moments of groups": {"rows_by_group": {"0": 200, "1": 40}},
    "drift monitor": {"window": 90, "watched": 0},
    "estimator": {
        "estimator": "QuadraticDiscriminantAnalysis",
        "parameters": {"reg_param": 0.1},
    },
    "selector": {
        "kind": "estimator",
        "estimator": "SeparabilitySelector",
        "parameters": {"n_features_to_select": 2},
    },
    "model": {"covariance_type": "diag", "constant_features": 0},
    "Bernoulli model": {"threshold": 0.0},
}


@pytest.mark.parametrize("kind", SAVED)
def test_info_describes_saved_objects(done, tmp_path, kind):
    X, y = rows()
    SAVED[kind](X, y).save(tmp_path / "it.zip")
    table = done("info", tmp_path / "it.zip")
    assert "│" not in table
    told = json.loads(done("info", tmp_path / "it.zip", "--json"))
    counts = [(y == name).sum() for name in NAMES]
    of_class = dict(zip(NAMES.tolist(), counts, strict=True))
    if "model" in kind:
        of_class = {name: n / 240 for name, n in of_class.items()}
        assert {c["label"]: c["prior"] for c in told["classes"]} == pytest.approx(of_class)
    else:
        assert {c["label"]: c["rows"] for c in told["classes"]} == of_class
        assert told["rows"] == 240
    assert told["bytes_stored"] == (tmp_path / "it.zip").stat().st_size
    expected = {"kind": kind, "features": 3} | TOLD.get(kind, {})
    assert {name: told[name] for name in expected} == expected
    assert all(str(count) in table for count in counts if "model" not in kind)


def test_info_describes_stores(done, data):
    store = json.loads(done("info", data / "rows.zarr", "--json"))
    assert store["labels"] == "y"
    assert [(a["name"], a["shape"], a["chunks"]) for a in store["arrays"]] == [
        ("X", [240, 3], [50, 3]),
        ("y", [240], [50]),
    ]
    assert json.loads(done("info", data / "unlabelled.zarr", "--json"))["labels"] is None
    assert "there is no array 'y'" in done("info", data / "unlabelled.zarr")
    assert json.loads(done("info", data / "rows.zarr" / "X", "--json"))["kind"] == "zarr array"
