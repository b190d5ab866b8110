"""The command line: in separate processes if that matters; files and their content."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import NAMES, PROGRAM, rows
from dataset_files import write_idx

import streamgda
from streamgda.cli import main
from streamgda.cli.app import app
from streamgda.datasets import convert

# --- in processes of their own --------------------------------------------------------------------


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
            "--out",
            model,
            "--kind",
            "gnb",
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


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("fit --kind g", ["gnb", "gda"]),
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


# --- words ----------------------------------------------------------------------------------------


def test_the_examples_of_every_help_page_run_as_they_stand(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    lines = [f"{k},{a},{b},{i % 9}" for i, ((a, b, _), k) in enumerate(zip(X, y, strict=True))]
    Path("flowers.csv").write_text("\n".join(["kind,length,width,field", *lines]))
    write_idx(Path("train-images.idx"), X.astype("u1").reshape(240, 3, 1))
    write_idx(Path("train-labels.idx"), np.searchsorted(NAMES, y).astype("u1"))
    pages = {c.callback.__name__: c.epilog.split("\n") for c in app.registered_commands}
    assert len(pages) == 7
    for name, page in pages.items():
        examples = [line for line in page if line.startswith("streamgda ")]
        assert len(examples) == 2
        for example in examples:
            assert example.startswith(f"streamgda {name}")
            if name != "demo":
                ended = command(*example.split()[1:])
                assert (ended.code, ended.err) == (0, ""), example


def test_deprecated_spellings_work_with_a_warning(command, data, tmp_path):
    X, y = rows()
    convert(X, tmp_path / "t.zarr", labels=y, names=("X", "y"))
    steps = [
        ("fit", data / "rows.zarr", "--model", "m.zip", "--y=y", "--kind", "nb"),
        ("evaluate", "m.zip", data / "rows.zarr"),
        ("predict", "m.zip", data / "rows.zarr", "--out", "labels.zarr"),
        ("convert", data / "rows.zarr", "copy.zarr"),
    ]
    with contextlib.chdir(tmp_path):
        told = [command(*step) for step in steps]
        assert [ended.code for ended in told] == [0] * 4
        assert (
            "--model is deprecated, and will be removed in streamgda 0.4: use --out" in told[0].err
        )
        assert "--kind nb is deprecated" in told[0].err
        assert f"use {data / 'rows.zarr'} --model m.zip" in told[1].err
        assert all(
            ended.err.count("deprecated") == n for ended, n in zip(told, (3, 1, 1, 1), strict=True)
        )
        assert type(streamgda.load("m.zip")) is streamgda.GaussianNB
        assert command("predict", "m.zip", "--out", "x").code == 2
        assert (
            command("predict", "m.zip", data / "rows.zarr", "--model", "m.zip", "--out", "x").code
            == 2
        )
    with (
        pytest.warns(FutureWarning, match="label_column is deprecated.*use label"),
        pytest.raises(streamgda.errors.InvalidParameterError, match="label given"),
    ):
        convert(X, tmp_path / "other.zarr", label_column=0)


def test_every_command_prints_its_figures_as_json(command, data, tmp_path):
    store = data / "rows.zarr"
    for words, told in [
        (("convert", store, "--out", tmp_path / "c.zarr"), {"kind": "zarr group", "labels": "y"}),
        (("fit", store, "--out", tmp_path / "m"), {"rows": 240, "read.rows": 240}),
        (("predict", store, "--model", data / "qda.zip", "--out", tmp_path / "p"), {"rows": 240}),
    ]:
        ended = command(*words, "--json")
        found = json.loads(ended.out)
        found |= {f"read.{name}": value for name, value in found.get("read", {}).items()}
        assert {name: found[name] for name in told} == told
        assert found["seconds" if "read" not in found else "read.seconds"] > 0
        if words[0] == "predict":
            labels = streamgda.load(data / "qda.zip").predict(rows()[0])
            expected = dict(zip(*np.unique(labels, return_counts=True), strict=True))
            assert {row["label"]: row["rows"] for row in found["predicted"]} == expected


# --- convert --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("default:.*the first column has no name")
def test_convert_takes_the_options_of_tables(command, done, tmp_path):
    source = tmp_path / "rows"
    source.write_text("id;a;b;c;kind\n0;1;2;3;5\n1;3;4;5;6\n")
    options = ["--format", "csv", "--labels", "-1", "--dtype", "uint8"]
    options += ["--chunk-rows", "1"]
    cases = [
        (["--features", "2:4", "--delimiter", ";", "--header"], [[2, 3], [4, 5]]),
        (["--features", "c,1"], [[3, 1], [5, 3]]),
        (["--drop", "0,c", "--drop", "-3"], [[1], [3]]),
        ([], [[0, 1, 2, 3], [1, 3, 4, 5]]),
    ]
    for number, (more, expected) in enumerate(cases):
        store = tmp_path / f"{number}.zarr"
        assert not command("convert", source, "--out", store, *options, *more).err
        X, y = streamgda.open_store(store)
        assert (X.dtype, X.chunks[0]) == (np.uint8, 1)
        assert X[:].tolist() == expected
        assert y[:].tolist() == [5, 6]
    source.write_text(source.read_text().replace("id", "").replace(".", ","))
    store = tmp_path / "t.zarr"
    refused = command("convert", source, "--out", store, *options)
    assert "a column without a name" in refused.err
    assert (
        command("convert", source, "--out", store, *options, "--drop", "0", "--decimal", ",").code
        == 0
    )


def test_convert_takes_missing_values_and_tables_without_labels(command, done, tmp_path):
    source, store = tmp_path / "t.csv", tmp_path / "t.zarr"
    source.write_text("a,b,kind\n1,?,x\n-9999,4,\n")
    assert command("convert", source, "--out", store, "--na", "?").err.endswith(
        "the label of row 1 is missing; --missing-labels keep keeps such rows\n"
    )
    done(
        "convert", source, "--out", store, "--na", "?", "--na", "-9999", "--missing-labels", "keep"
    )
    X, y = streamgda.open_store(store)
    np.testing.assert_array_equal(X[:], [[1, np.nan], [np.nan, 4]])
    assert y[:].tolist() == ["x", ""]
    source.write_text("a,b\n1,2\n3,4\n")
    store = tmp_path / "unlabelled.zarr"
    done("convert", source, "--out", store, "--no-labels")
    X, y = streamgda.open_store(store, y=None)
    assert X[:].tolist() == [[1, 2], [3, 4]]
    store = tmp_path / "other.zarr"
    refused = command("convert", source, "--out", store, "--no-labels", "--labels", source)
    assert refused.code == 2
    assert command("convert", source, "--out", store, "--no-default-na").code == 0


def test_convert_of_two_files_replaces_nothing(command, done, tmp_path):
    np.save(tmp_path / "X.npy", np.arange(6).reshape(3, 2))
    np.save(tmp_path / "y.npy", [1, 0, 1])
    store = tmp_path / "new" / "t.zarr"
    arguments = ("convert", tmp_path / "X.npy", "--out", store, "--labels", tmp_path / "y.npy")
    done(*arguments)
    np.save(tmp_path / "y.npy", [2, 2, 2])
    refused = command(*arguments)
    assert refused.code == 1
    assert "exists; name another path" in refused.err
    assert streamgda.open_store(store)[1][:].tolist() == [1, 0, 1]


# --- info -----------------------------------------------------------------------------------------


SAVED = {
    "moments": streamgda.accumulate,
    "pairwise moments": lambda X, y: streamgda.PairwiseMoments().update(X, y),
    "sliding window": lambda X, y: streamgda.SlidingWindow(3).update(X, y),
    "moments of groups": lambda X, y: streamgda.accumulate(X, y, groups=np.arange(240) // 200),
    "drift monitor": lambda X, y: streamgda.DriftMonitor(streamgda.accumulate(X, y), window=90),
    "estimator": lambda X, y: streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, y),
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
