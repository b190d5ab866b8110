"""The command line predicts, and reports the accuracy."""

import json
import re

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr
from commands import NAMES, interrupt_at, rows
from sklearn.metrics import classification_report, confusion_matrix, log_loss

import streamgda
from streamgda.cli.files import label_like
from streamgda.datasets import convert


@pytest.mark.parametrize(
    ("option", "method"),
    [
        ((), "predict"),
        (("--proba",), "predict_proba"),
        (("--log-proba",), "predict_log_proba"),
        (("--density",), "score_samples"),
    ],
)
def test_written_labels_are_those_predicted_in_memory(done, data, tmp_path, option, method):
    out = tmp_path / "out.zarr"
    done("predict", data / "rows.zarr", "--model", data / "qda.zip", "--out", out, *option)
    written = zarr.open_array(out, mode="r")
    estimator = streamgda.load(data / "qda.zip")
    np.testing.assert_array_equal(written[:], getattr(estimator, method)(rows()[0]))
    assert [path.name for path in out.parent.iterdir()] == ["out.zarr"]
    described = json.loads(done("info", out, "--json"))
    assert (described["kind"], described["method"]) == ("predictions", method)
    assert described["columns"] == (NAMES.tolist() if written.ndim == 2 else None)


@pytest.mark.parametrize(
    ("out", "store", "options"),
    [
        ("out.zarr", "rows.zarr", {"fill": "cloud"}),
        ("out.parquet", "rows.zarr", {"reject": 0.2}),
        ("out.zarr", "rows.zarr", {"reject": 0.2, "reject_label": "no", "fill": "no, and longer"}),
        ("out.parquet", "numbers.zarr", {"reject": 0.2, "reject_label": 70_000, "fill": -70_000}),
        ("out.zarr", "numbers.zarr", {}),
        ("out.zarr", "numbers.zarr", {"on_missing": "marginal"}),
        ("out.parquet", "numbers.zarr", {"fill": 0.5, "density": True}),
    ],
)
def test_invalid_and_rejected_rows_are_those_of_the_estimator(
    command, done, data, tmp_path, store, options, out
):
    X, y = rows()[0], streamgda.open_store(data / store)[1][:]
    estimator = streamgda.QuadraticDiscriminantAnalysis().fit(X, y)
    estimator.save(tmp_path / "m.zip")
    X[3, 1], X[70:130] = np.nan, -9999
    convert(X, tmp_path / "holes.zarr", labels=y, chunk_rows=50)
    predict = "predict", tmp_path / "holes.zarr", "--model", tmp_path / "m.zip", "--nodata=-9999"
    assert command(*predict, "--out", tmp_path / out).code == 1
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    given = ["--density" if value is True else f"{name}={value}" for name, value in given.items()]
    done(*predict, *given, "--on-invalid", "fill", "--out", tmp_path / out)
    score = estimator.score_samples if "density" in options else estimator.predict
    keywords = {name: value for name, value in options.items() if name != "density"}
    expected = score(X, on_invalid="fill", nodata=-9999, **keywords)
    assert (expected == expected[70]).sum() >= 60
    path = tmp_path / out
    written = zarr.open_array(path)[:] if out == "out.zarr" else pq.read_table(path)[0]
    assert np.asarray(written).tolist() == expected.tolist()
    for wrong in (["--fill", "none"], ["--reject", "0.2"]):
        refused = command(*predict, "--proba", *wrong, "--out", tmp_path / "other")
        assert refused.code == 2
    assert command(*predict, "--reject-label=-7", "--out", tmp_path / "other").code == 2


def test_interrupted_scoring_names_its_output_and_resumes(
    command, done, data, tmp_path, monkeypatch
):
    out = tmp_path / "labels.zarr"
    predict = "predict", data / "rows.zarr", "--model", data / "qda.zip", "--out", out
    with monkeypatch.context() as patch:
        patch.setattr("streamgda.engine.plan._SLAB_BYTES", 50 * 24)
        interrupt_at(patch, 150)
        ended = command(*predict)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err.startswith("streamgda: interrupted. ")
    kept = re.search(r"(\S+) keeps what was done, the scores of the first (\d+) rows", ended.err)
    assert kept
    assert kept[1] == f"{out}"
    half = json.loads(done("info", out, "--json"))
    assert (half["kind"], half["rows"]) == ("predictions, half-written", int(kept[2]))
    assert "(resumed)" in done(*predict)
    assert [path.name for path in tmp_path.iterdir()] == ["labels.zarr"]
    labels = zarr.open_array(out, mode="r")
    np.testing.assert_array_equal(labels[:], streamgda.load(data / "qda.zip").predict(rows()[0]))


def test_half_written_scores_are_of_one_model(command, data, tmp_path, monkeypatch):
    out, other = tmp_path / "out.zarr", tmp_path / "nb.npz"
    streamgda.GaussianNB().fit(*rows()).save(other)
    with monkeypatch.context() as patch:
        patch.setattr("streamgda.engine.plan._SLAB_BYTES", 50 * 24)
        interrupt_at(patch, 100)
        assert (
            command("predict", data / "rows.zarr", "--model", data / "qda.zip", "--out", out).code
            == 130
        )
    refused = command("predict", data / "rows.zarr", "--model", other, "--out", out)
    assert refused.code == 1
    assert "out.zarr was started with model: checksum" in refused.err
    mixed = zarr.create_group(tmp_path / "mixed.zarr")
    mixed.create_array("X", data=rows()[0])
    out.rename(tmp_path / "mixed.zarr" / "y")
    refused = command("evaluate", tmp_path / "mixed.zarr", "--model", other)
    assert refused.code == 1
    assert "'y' holds scores that are half-written: 100 of 240 rows" in refused.err


def test_predict_replaces_nothing(command, done, data, tmp_path):
    X, y = rows()
    store, out = tmp_path / "rows.zarr", tmp_path / "out.zarr"
    convert(X, store, labels=y)
    done("predict", store, "--model", data / "qda.zip", "--out", out)
    for occupied in (out, store, store / "X", tmp_path):
        ended = command("predict", store, "--model", data / "qda.zip", "--out", occupied, "--proba")
        assert ended.code == 1
        assert "exists already" in ended.err
    assert zarr.open_array(out, mode="r").shape == (240,)
    np.testing.assert_array_equal(streamgda.open_store(store)[0][:], X)


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_agrees_with_scikit_learn(done, data, monkeypatch):
    monkeypatch.setattr("streamgda.engine.plan._SLAB_BYTES", 100 * 24)
    X, y = rows()
    estimator = streamgda.load(data / "qda.zip")
    predicted = estimator.predict(X)
    result = json.loads(done("evaluate", data / "rows.zarr", "--model", data / "qda.zip", "--json"))
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


def test_evaluate_prints_tables_with_labels_as_they_are(done, data):
    out = done("evaluate", data / "rows.zarr", "--model", data / "qda.zip")
    X, y = rows()
    counts = confusion_matrix(y, streamgda.load(data / "qda.zip").predict(X))
    *_, last = out.splitlines()
    assert last.startswith("spam & [bold]beans")
    assert [int(n.replace(".", "0")) for n in last.split()[3:]] == counts[2].tolist()
    assert max(map(len, out.splitlines())) < 100


def test_rows_of_labels_that_the_model_does_not_know_are_wrong(done, data, tmp_path):
    X, y = rows()
    known = y != NAMES[1]
    estimator = streamgda.GaussianNB().fit(X[known], y[known])
    estimator.save(tmp_path / "nb.zip")
    result = json.loads(
        done("evaluate", data / "rows.zarr", "--model", tmp_path / "nb.zip", "--json")
    )
    assert result["accuracy"] == pytest.approx(estimator.score(X, y))
    assert result["log_loss"] is None
    assert result["confusion_matrix"] == confusion_matrix(y, estimator.predict(X)).tolist()
    ham = result["classes"][1]
    assert (ham["recall"], ham["precision"]) == (0, None)
    table = done("evaluate", data / "rows.zarr", "--model", tmp_path / "nb.zip")
    assert ["log-loss", "inf"] in [line.split() for line in table.splitlines()]


def test_of_many_classes_the_worst_confusions_are_shown(done, tmp_path):
    y = np.repeat(np.arange(30), 10)
    X = y[:, None] + np.random.default_rng(0).normal(scale=0.1, size=(300, 2))
    X[y == 7] += 1  # taken for 8
    convert(X, tmp_path / "rows.zarr", labels=y)
    clean = X - (y == 7)[:, None]
    streamgda.GaussianNB().fit(clean, y).save(tmp_path / "nb.zip")
    out = done("evaluate", tmp_path / "rows.zarr", "--model", tmp_path / "nb.zip")
    assert "true \\ predicted" not in out
    heading, worst = out.splitlines()[-2:]
    assert heading.split() == ["true", "predicted", "rows"]
    assert worst.split() == ["7", "8", "10"]


def test_labels_of_the_command_line_are_read_as_those_of_the_classes():
    for text, classes, expected in (
        ("True", [False, True], True),
        ("2020-05-01", np.array(["2019"], "M8[Y]"), np.datetime64("2020-05-01")),
        ("5", np.array([1], "m8[s]"), np.timedelta64(5, "s")),
        ("9007199254740993", [1], 2**53 + 1),
        ("ant", [b"bee"], b"ant"),
    ):
        found = label_like(text, np.asarray(classes).dtype, "--fill")
        assert (found, type(found)) == (expected, type(expected))
