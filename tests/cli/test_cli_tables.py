"""The command line over Parquet and text files."""

import json

import numpy as np
import pytest

from streamgda import GaussianNB, load

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


def test_every_command_takes_tables(tmp_path, store, command):
    model, out = tmp_path / "model", tmp_path / "p.csv"
    columns = ("--labels", "kind", "--features", "a,b")
    assert command("fit", store, "--kind", "gnb", "--out", model, *columns).code == 0
    fitted = load(model)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(fitted.theta_, GaussianNB().fit(X, NAMES).theta_)

    # The model names its columns.
    code, said, _ = command("predict", store, "--model", model, "--out", out, "--keys", "id,kind")
    assert code == 0
    assert "predict of 200 rows: a table written to " in said
    found = pc.read_csv(out)
    assert found.column_names == ["id", "kind", "label"]
    assert found["label"].to_pylist() == GaussianNB().fit(X, NAMES).predict(X).tolist()
    assert command("predict", store, "--model", model, "--out", out).code == 1
    assert (
        command("predict", store, "--model", model, "--out", out, "--proba", "--overwrite").code
        == 0
    )
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


def test_keys_need_a_table(tmp_path, store, command):
    GaussianNB().fit(X, NAMES).save(tmp_path / "model")
    options = ("--features", "a,b", "--keys", "id", "--out", tmp_path / "p.zarr")
    code, _, err = command("predict", store, "--model", tmp_path / "model", *options)
    assert code == 1
    assert "keys=('id',) are columns of a table, and out is" in err


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
