"""The command line over Parquet and text files."""

import json
from pathlib import Path

import numpy as np
import pytest

from streamgda import ClassMoments, GaussianNB, accumulate, load

pa = pytest.importorskip("pyarrow")
import pyarrow.csv as pc  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

N = 200
RANDOM = np.random.default_rng(0)
Y = np.arange(N) % 2
X = RANDOM.normal(size=(N, 2)) + 3 * Y[:, None]
NAMES = np.array(["elm", "oak"])[Y]
TABLE = pa.table({"id": np.arange(N), "a": X[:, 0], "kind": NAMES, "b": X[:, 1]})


@pytest.fixture(params=["rows.parquet", "rows.csv"])
def store(request, tmp_path):
    path = tmp_path / request.param
    (pq.write_table if path.suffix == ".parquet" else pc.write_csv)(TABLE, path)
    return path


def test_names_of_columns_may_hold_commas(tmp_path, store, command):
    path = store.with_stem("commas")
    renamed = TABLE.rename_columns(["id", "a,b", "kind", "b"])
    (pq.write_table if path.suffix == ".parquet" else pc.write_csv)(renamed, path)
    fit = "fit", path, "--kind", "gnb", "--labels", "kind"
    assert command(*fit, "--out", tmp_path / "m", "--features", '"a,b", b').code == 0
    assert load(tmp_path / "m").feature_names_in_.tolist() == ["a,b", "b"]
    assert command(*fit, "--out", tmp_path / "n", "--drop", 'id,"a,b"').code == 0
    assert load(tmp_path / "n").feature_names_in_.tolist() == ["b"]
    ended = command(*fit, "--out", tmp_path / "o", "--features", "a\nb")
    assert (ended.code, "put double quotes around" in ended.err) == (2, True)


def test_every_command_takes_tables(tmp_path, store, command):
    model, out = tmp_path / "model", tmp_path / "p.csv"
    columns = ("--labels", "kind", "--features", "a", "--features", "b")
    assert command("fit", store, "--kind", "gnb", "--out", model, *columns).code == 0
    fitted = load(model)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(fitted.theta_, GaussianNB().fit(X, NAMES).theta_)

    # The model names its columns.
    keys = "--keys", "id", "--keys", "kind"
    code, said, _ = command("predict", store, "--model", model, "--out", out, *keys)
    assert code == 0
    assert "predict of 200 rows: a table written to " in said
    found = pc.read_csv(out)
    assert found.column_names == ["id", "kind", "label"]
    assert found["label"].to_pylist() == GaussianNB().fit(X, NAMES).predict(X).tolist()
    assert command("predict", store, "--model", model, "--out", out).code == 1
    out = tmp_path / "proba.csv"
    assert command("predict", store, "--model", model, "--out", out, "--proba").code == 0
    assert pc.read_csv(out).column_names == ["proba_elm", "proba_oak"]
    assert command("predict", store, "--model", model, "--out", tmp_path / "p.zarr").code == 0

    code, said, _ = command("evaluate", store, "--model", model, "--labels", "kind", "--json")
    assert json.loads(said)["rows"] == N
    code, said, _ = command("info", store, "--json")
    assert json.loads(said)["fields"] == [
        "id (int64)",
        "a (double)",
        "kind (string)",
        "b (double)",
    ]
    assert "kind (string)" in command("info", store).out
    best = ("--out", tmp_path / "best", "--cv", "2", "--grid", "covariance_type=diag")
    assert command("select", store, *columns, *best).code == 0


def test_weights_are_no_feature(tmp_path, command):
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE.drop_columns("id").append_column("w", pa.array(X[:, 0] ** 2)), path)
    model = tmp_path / "model"
    ended = command(
        "fit", path, "--kind", "gnb", "--out", model, "--labels", "kind", "--weights", "w"
    )
    assert ended.code == 0
    expected = GaussianNB().fit(X, NAMES, sample_weight=X[:, 0] ** 2)
    np.testing.assert_array_equal(load(model).theta_, expected.theta_)


def test_every_command_takes_the_options_of_tables(tmp_path, command):
    path, model = tmp_path / "rows.raw", tmp_path / "model"
    lines = [
        f"{i};{a:.9f};{name};{b:.9f}" for i, (a, b), name in zip(range(N), X, NAMES, strict=True)
    ]
    path.write_text("\n".join(["id;a;kind;b", *lines, "-;?;oak;1"]).replace(".", ","))
    read = ("--format", "csv", "--delimiter", ";", "--decimal", ",", "--na", "?", "--drop", "id")
    rules = ("--labels", "kind", "--on-invalid", "skip")
    ended = command("fit", path, "--kind", "gnb", "--out", model, *read, *rules)
    assert "left out 1 rows" in ended.out, ended.err
    expected = GaussianNB().fit(X.round(9), NAMES)
    np.testing.assert_allclose(load(model).theta_, expected.theta_)
    told = json.loads(command("evaluate", path, "--model", model, *read, *rules, "--json").out)
    assert told["accuracy"] == pytest.approx(expected.score(X, NAMES))
    best = ("--out", tmp_path / "best", "--cv", "2", "--grid", "covariance_type=diag")
    assert command("select", path, *read, *rules, *best).code == 0
    out = ("--out", tmp_path / "p.csv", "--on-invalid", "fill")
    assert (
        command("predict", path, "--model", model, *read, *out).code == 0
    )  # the model names its columns
    assert pc.read_csv(tmp_path / "p.csv")["label"].to_pylist()[-1] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fit", "--out", "m"), "no column 'y' of labels, but id, a, kind, b; name it with"),
        (("fit", "--out", "m", "--labels", "a"), "column 'kind' holds string; features are num"),
        (("fit", "--out", "m", "--labels", "kind", "--features", "a,c"), "has no column 'c'"),
        (("fit", "--out", "m", "--x", "rows"), "X='rows' names an array of zarr"),
    ],
)
def test_wrong_columns(tmp_path, store, command, arguments, message):
    name, *options = arguments
    code, _, err = command(name, store, *options)
    assert code == 1
    (line,) = [line for line in err.splitlines() if line.startswith("streamgda: ")]
    assert message in line


def test_counts_of_predictions_are_those_of_texts_and_tables(tmp_path, command):
    names = np.array(["1", "NA", "x"])  # which no reader may take for a number or a gap
    y = names[np.sort(np.arange(N) % 3)]
    X = np.random.default_rng(0).normal(size=(N, 2)) + 9 * (np.arange(N) * 3 // N)[:, None]
    GaussianNB().fit(X, y).save(tmp_path / "m")
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": np.arange(N), "a": X[:, 0], "b": X[:, 1]}), rows)
    labels = GaussianNB().fit(X, y).predict(X)
    expected = dict(zip(*np.unique(labels, return_counts=True), strict=True))
    for out in ("p.tsv", "p.csv", "p.parquet", "p.arrow", "p.zarr"):
        keys = () if out == "p.zarr" else ("--keys", "id")
        predict = ("predict", rows, "--model", tmp_path / "m", "--features", "a,b", "--json")
        ended = command(*predict, "--out", tmp_path / out, *keys)
        assert ended.code == 0, ended.err
        found = json.loads(ended.out)["predicted"]
        assert {row["label"]: row["rows"] for row in found} == expected


def test_columns_of_tables_have_names_or_numbers(command, done, tmp_path, monkeypatch):
    """The columns of labels, weights, features and those left out, whatever the command."""
    monkeypatch.chdir(tmp_path)
    columns = [X[:, 0], X[:, 1], X[:, 0] * X[:, 1], np.arange(1, N + 1), Y]
    lines = [",".join(map(str, line)) for line in zip(*columns, strict=True)]
    Path("unnamed.csv").write_text("\n".join(lines))
    # Names that are numbers come first: 0 is the third column.
    Path("named.csv").write_text("\n".join(["1,2,0,w,kind", *lines]))
    expected = accumulate(np.transpose(columns[:3]), Y, sample_weight=columns[3])
    for options in (
        ("unnamed.csv", "--labels", "4", "--weights", "3"),
        ("unnamed.csv", "--labels=-1", "--weights=-2"),
        ("unnamed.csv", "--labels", "4", "--weights", "3", "--features", "0:2,2"),
        ("unnamed.csv", "--labels", "4", "--weights", "3", "--features", "0,1,2"),
        ("named.csv", "--header", "--labels", "kind", "--weights", "3"),
        ("named.csv", "--header", "--labels", "-1", "--weights", "w", "--features", "1,2,0"),
    ):
        done("fit", *options, "--out", "m.zip", "--moments-out", "moments.zip", "--overwrite")
        found = ClassMoments.load("moments.zip")
        np.testing.assert_allclose(found.means, expected.means)
        assert found.class_count.tolist() == expected.class_count.tolist()
        Path("moments.zip").unlink()
    refused = command("fit", "named.csv", "--labels", "9", "--header", "--out", "n.zip")
    assert "--labels 9; expected names or numbers of the 5 columns" in refused.err
    Path("letters.csv").write_text("\n".join(["a,b,c,w,kind", *lines]))
    done("fit", "letters.csv", "--drop", "w", "--labels", "kind", "--out", "n.zip")
    refused = command("predict", "unnamed.csv", "--model", "n.zip", "--out", "p.csv")
    assert "no names: give their numbers, or --header" in refused.err
    done("predict", "unnamed.csv", "--model", "n.zip", "--features", "0:3", "--out", "p.csv")


def test_errors_of_commands_speak_the_language_of_the_shell(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n")
    Path("index.csv").write_text(",a,kind\n0,2,x\n1,4,y\n")
    for words, message in [
        ("fit t.csv --out m.zip", "no column 'y' of labels, but a, b, kind; name it with --labels"),
        ("fit index.csv --labels kind --out m.zip", "--drop 0 leaves it out"),
        ("predict t.csv --model t.csv --out p.csv", "--model names what `streamgda fit`"),
        ("predict t.csv --model m.zip --out p.csv", "m.zip does not exist"),
        ("predict t.csv --model m.zip --out p.xlsx", "streamgda: --out p.xlsx ends in .xlsx"),
    ]:
        ended = command(*words.split())
        assert ended.code == 1
        assert message in ended.err
        assert "=" not in ended.err
    assert "former" not in command("predict", "--help").out


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_stand_beside_labels(tmp_path, store, command, name):
    path, model, out = store.with_stem("labelled"), tmp_path / "model", tmp_path / name
    table = TABLE.rename_columns(["id", "a", "label", "b"])
    (pq.write_table if path.suffix == ".parquet" else pc.write_csv)(table, path)
    options = "--labels", "label", "--features", "a,b"
    assert command("fit", path, "--kind", "gnb", "--out", model, *options).code == 0
    predict = "predict", path, "--model", model, "--out", out, "--keys", "label", "--json"
    code, said, _ = command(*predict)
    found = (pc.read_csv if name == "p.csv" else pq.read_table)(out)
    predicted = GaussianNB().fit(X, NAMES).predict(X)
    assert found.to_pydict() == {"label": [*NAMES], "predicted_label": [*predicted]}
    counts = {each["label"]: each["rows"] for each in json.loads(said)["predicted"]}
    assert (code, counts) == (0, {name: int((predicted == name).sum()) for name in counts})


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_that_are_booleans_are_counted(tmp_path, command, name):
    pc.write_csv(TABLE.set_column(2, "kind", pa.array(NAMES == "oak")), tmp_path / "rows.csv")
    fit = "fit", tmp_path / "rows.csv", "--kind", "gnb", "--out", tmp_path / "model"
    assert command(*fit, "--labels", "kind", "--features", "a,b").code == 0
    predict = "predict", tmp_path / "rows.csv", "--model", tmp_path / "model", "--json"
    code, said, err = command(*predict, "--out", tmp_path / name)
    predicted = GaussianNB().fit(X, NAMES == "oak").predict(X).tolist()
    expected = {label: predicted.count(label) for label in (True, False)}
    assert (code, err) == (0, "")
    assert {each["label"]: each["rows"] for each in json.loads(said)["predicted"]} == expected
