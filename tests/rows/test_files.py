"""Tables in files: every format is read as the same rows, and predictions are written as tables."""

import contextlib
import datetime
import pickle
import sys

import numpy as np
import pytest

from streamgda import GaussianNB, accumulate, open_store
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MemoryBudgetError,
    MissingLibraryError,
    ReadError,
    SourceError,
    SourceNotFoundError,
)

pa = pytest.importorskip("pyarrow")
import pyarrow.csv as pc  # noqa: E402
import pyarrow.dataset as ds  # noqa: E402
import pyarrow.feather as pf  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

# Rows of files have names, those of arrays have none.
pytestmark = pytest.mark.filterwarnings("ignore:X .*feature names")

N = 1000
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 3))
Y = RANDOM.integers(0, 3, N)
NAMES = np.array(["oak", "elm", "ash"])[Y]
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y, "name": NAMES})
ABC = ["a", "b", "c"]


def parquet(path, table=TABLE):
    """Write row groups of uneven sizes, one of them empty."""
    with pq.ParquetWriter(path, table.schema) as writer:
        for start, stop in ((0, 1), (1, 400), (400, 400), (400, 417), (417, N)):
            if start <= len(table):
                writer.write_table(table[start:stop])
    return path


def text(path, table=TABLE):
    packing = "gzip" if path.suffix == ".gz" else None
    with pa.output_stream(str(path), compression=packing) as out:
        tabs = pc.WriteOptions(delimiter="\t" if ".tsv" in path.name else ",")
        pc.write_csv(table, out, tabs)
    return path


def feather(path, table=TABLE):
    pf.write_feather(table, path, chunksize=300)
    return path


def folder(path):
    path.mkdir()
    parquet(path / "1.parquet", TABLE[:600])
    parquet(path / "2.parquet", TABLE[600:])
    (path / "_SUCCESS").touch()
    (path / "notes.txt").touch()
    return path


FILES = {
    "rows.parquet": parquet,
    "rows.csv": text,
    "rows.tsv": text,
    "rows.csv.gz": text,
    "rows.feather": feather,
    "rows": folder,
}


@pytest.fixture(params=FILES)
def path(request, tmp_path):
    return FILES[request.param](tmp_path / request.param)


def test_rows_of_every_format_are_read_anywhere(path):
    rows, y = open_store(path, label="y", features=ABC)
    assert (rows.shape, y.shape, len(rows), rows.ndim) == ((N, 3), (N,), N, 2)
    assert (rows.dtype, y.dtype) == (np.float64, np.int64)
    assert (rows.feature_names, y.feature_names) == (("a", "b", "c"), None)
    assert repr(rows) == f"TableRows({str(path)!r}, shape=(1000, 3), columns=[a, b, c])"
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(y[:], Y)
    for part in (slice(0, 1), slice(700, 905), slice(905, 999), slice(3, 4), slice(90, 30), -2):
        np.testing.assert_array_equal(rows[part], X[part])
        np.testing.assert_array_equal(y[part], Y[part])
    np.testing.assert_array_equal(rows[10:500:7], X[10:500:7])
    _ = rows[3:9]  # The file stays open.
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows))[410:], X[410:])


def test_columns_by_name(tmp_path):
    path = parquet(tmp_path / "rows.parquet")
    rows, y = open_store(path, label="name", features=["c", "a"])
    np.testing.assert_array_equal(rows[:], X[:, [2, 0]])
    assert accumulate(rows, y).feature_names == ("c", "a")
    assert y[:3].tolist() == NAMES[:3].tolist()
    rows, y = open_store(path, y=None, features="b")
    assert (rows.shape, y) == ((N, 1), None)
    rows, _ = open_store(path, label="y", drop=["a", "name"])
    assert rows.fields == ("b", "c")


@pytest.mark.parametrize("name", ["rows.parquet", "rows.feather", "rows.csv"])
def test_an_index_of_pandas_is_no_feature(tmp_path, name):
    pd = pytest.importorskip("pandas")
    frame, path = pd.DataFrame({"a": X[:, 0], "y": Y}, index=RANDOM.permutation(N)), tmp_path / name
    if name == "rows.csv":
        frame.to_csv(path)
    else:
        (parquet if name == "rows.parquet" else feather)(path, pa.Table.from_pandas(frame))
    assert open_store(path, label="y")[0].fields == ("a",)
    index = "" if name == "rows.csv" else "__index_level_0__"
    rows, _ = open_store(path, label="y", features=["a", index])
    np.testing.assert_array_equal(rows[:][:, 1], frame.index)


def test_partitions_are_columns(tmp_path):
    table = TABLE.append_column("year", pa.array(Y + 2000))
    parts = {"partitioning": ["name", "year"], "partitioning_flavor": "hive"}
    ds.write_dataset(table, tmp_path / "parts", format="parquet", **parts)
    rows, y = open_store(tmp_path / "parts", label="name", drop="y")
    assert rows.fields == ("a", "b", "c", "year")
    order = np.argsort(NAMES, kind="stable")
    np.testing.assert_array_equal(rows[:], np.c_[X, Y + 2000][order])
    np.testing.assert_array_equal(y[:], NAMES[order])
    np.testing.assert_array_equal(rows[700:], np.c_[X, Y + 2000][order][700:])


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3)],
    ids=str,
)
@pytest.mark.parametrize("write", [parquet, feather])
def test_a_column_of_lists_is_all_features(tmp_path, kind, write):
    column = pa.array(X.astype("f4").tolist(), kind)
    table = pa.table({"embedding": column, "name": NAMES, "id": range(N)})
    path = write(tmp_path / f"rows.{write.__name__}", table)
    rows, y = open_store(path, label="name", drop="id")
    assert (rows.shape, rows.feature_names) == ((N, 3), None)
    np.testing.assert_array_equal(rows[:], X.astype("f4"))
    assert y[:].tolist() == NAMES.tolist()
    with pytest.raises(InvalidDataError, match="A column of lists is all features"):
        open_store(path, label="name")


@pytest.mark.parametrize(("row", "n_values"), [([1.0], 1), (None, 0)])
def test_lists_of_other_lengths_are_an_error(tmp_path, row, n_values):
    table = pa.table({"a": [[1.0, 2.0], [3.0, 4.0], row]})
    rows, _ = open_store(feather(tmp_path / "rows.feather", table), y=None)
    with pytest.raises(InvalidDataError, match=f"row 2 has {n_values} values"):
        rows[:]


NUMBERS = {
    "bytes": ([1, 2, 255], pa.uint8(), np.uint8),
    "booleans": ([True, False, True], pa.bool_(), np.uint8),
    "singles": ([0.5, None, 2], pa.float32(), np.float32),
    "integers and nulls": ([2**40, None, 3], pa.int64(), np.float64),
    "bytes and nulls": ([1, None, 3], pa.uint8(), np.float64),
    "booleans and nulls": ([True, None, False], pa.bool_(), np.float64),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers(tmp_path, kind):
    values, kind_of_arrow, dtype = NUMBERS[kind]
    table = pa.table({"a": pa.array(values, kind_of_arrow), "b": np.zeros(3, dtype)})
    expected = np.array([values, [0] * 3], float).T
    rows, _ = open_store(parquet(tmp_path / "rows.parquet", table), y=None)
    assert rows.dtype == rows[:].dtype == dtype
    np.testing.assert_array_equal(rows[:], expected)
    for path in (feather(tmp_path / "rows.feather", table), text(tmp_path / "rows.csv", table)):
        np.testing.assert_array_equal(open_store(path, y=None)[0][:], expected)
        if None in values:
            with pytest.raises(InvalidDataError, match=rf"X: .*{path.name}, column 'a'"):
                accumulate(open_store(path, y=None)[0], [0, 1, 0])


def test_text_may_begin_with_integers(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,y\n" + "1,,0\n" * 300_000 + "1.5,2.5,1\n,NA,1\n")
    rows, y = open_store(path, label="y")
    np.testing.assert_array_equal(rows[-2:], [[1.5, 2.5], [np.nan, np.nan]])
    assert (len(rows), y[-2:].tolist()) == (300_002, [1, 1])


def test_files_of_other_types_have_a_common_one(tmp_path):
    parquet(tmp_path / "1.parquet", pa.table({"a": pa.array([1, 2], pa.uint8()), "b": [1, 2]}))
    parquet(tmp_path / "2.parquet", pa.table({"b": [3, 4], "a": pa.array([0.5, 2], "f4")}))
    rows, y = open_store(tmp_path, label="b")
    np.testing.assert_array_equal(rows[:], np.array([[1], [2], [0.5], [2]], np.float32))
    assert (rows.dtype, y[:].tolist()) == (np.float32, [1, 2, 3, 4])


LABELS = {
    "missing text": (["b", None, "a"], ["b", None, "a"]),
    "missing categories": (pa.array(["b", None, "a"]).dictionary_encode(), ["b", None, "a"]),
    "missing integers": ([2**60 + 1, None, 3], [2**60 + 1, None, 3]),
    "wide integers": (pa.array([2**63, 2**63 + 1, 1], pa.uint64()), [2**63, 2**63 + 1, 1]),
    "missing booleans": ([True, None, False], [True, None, False]),
    "numbers": ([1.0, 2.0, 1.0], [1.0, 2.0, 1.0]),
    "dates": ([datetime.date(2020, 1, 2)] * 3, [datetime.date(2020, 1, 2)] * 3),
    "times": ([datetime.datetime(2020, 1, 2, 3)] * 3, [datetime.datetime(2020, 1, 2, 3)] * 3),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("write", [parquet, feather])
def test_labels(tmp_path, kind, write):
    column, expected = LABELS[kind]
    table = pa.table({"a": [1.0, 2.0, 3.0], "y": column})
    rows, y = open_store(write(tmp_path / f"rows.{write.__name__}", table), label="y")
    assert y[:].tolist() == expected
    assert y[:1].tolist() == expected[:1]
    known = [label for label in expected if label is not None]
    found = accumulate(rows, y, covariance_type="diag", on_invalid="skip")
    assert found.classes.size == len({*known})
    assert found.n_skipped == 3 - len(known)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["10", "-2", "0"], [10, -2, 0]),
        (["1", "", "2"], [1, None, 2]),
        (["1.5", "2", "0"], [1.5, 2.0, 0.0]),
        (["ant", "NA", ""], ["ant", None, None]),
        (["true", "false", "true"], [True, False, True]),
        (['"a, ""b"""', "c", "d"], ['a, "b"', "c", "d"]),
    ],
)
def test_labels_of_text(tmp_path, texts, labels):
    (tmp_path / "rows.csv").write_text("\n".join(["a,y", *(f"1,{each}" for each in texts), ""]))
    assert open_store(tmp_path / "rows.csv", label="y")[1][:].tolist() == labels


def test_options_of_pyarrow_read_other_dialects(tmp_path):
    path = tmp_path / "rows.data"
    path.write_text("1,5;?;01\n2;3,5;1\n")
    form = ds.CsvFileFormat(
        pc.ParseOptions(delimiter=";"),
        convert_options=pc.ConvertOptions(
            decimal_point=",", null_values=["?"], column_types={"y": pa.string()}
        ),
        read_options=pc.ReadOptions(column_names=["a", "b", "y"]),
    )
    rows, y = open_store(path, label="y", format=form)
    np.testing.assert_array_equal(rows[:], [[1.5, np.nan], [2, 3.5]])
    assert y[:].tolist() == ["01", "1"]
    parquet(path)
    assert open_store(path, label="y", drop="name", format="parquet")[0].shape == (N, 3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, InvalidParameterError, "label=.* it has a, b, c, y, name"),
        ({"label": "z"}, InvalidParameterError, "has no column 'z'; it has a,"),
        ({"label": "y", "features": "z"}, InvalidParameterError, "has no column 'z'; it has a,"),
        ({"label": "y", "drop": "z"}, InvalidParameterError, "has no column 'z'; it has a,"),
        ({"label": "y", "features": ["a", "y"]}, InvalidParameterError, "columns than that of lab"),
        ({"label": "y", "features": []}, InvalidParameterError, "expected other columns"),
        ({"label": "y"}, InvalidDataError, r"not numbers: name \(string\); name the features"),
        ({"label": "y", "format": "xls"}, SourceError, "'xls' is not supported|xls"),
    ],
)
def test_wrong_options(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        open_store(parquet(tmp_path / "rows.parquet"), **options)


def test_files_that_cannot_be_opened(tmp_path, monkeypatch):
    for name in ("bad.parquet", "bad.feather"):
        (tmp_path / name).write_bytes(b"not a table")
    (tmp_path / "empty.parquet").mkdir()
    feather(tmp_path / "twice.feather", pa.table([[1.0], [2.0], [0]], ["a", "a", "y"]))
    parquet(tmp_path / "rows.parquet")
    for name, message in (
        ("nowhere.parquet", "does not exist"),
        ("bad.parquet", "cannot be opened: ArrowInvalid: "),
        ("bad.feather", "cannot be opened: ArrowInvalid: "),
        ("empty.parquet", "is a folder without"),
        ("twice.feather", "cannot be opened: .*duplicate field n"),
    ):
        with pytest.raises((SourceError, SourceNotFoundError), match=f"{name} {message}"):
            open_store(tmp_path / name, label="y")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "streamgda\[arrow\]"$'):
        open_store(tmp_path / "rows.parquet", label="y")


def test_files_that_are_damaged_or_change(tmp_path):
    path = tmp_path / "rows.parquet"
    options = {"write_page_checksum": True, "compression": "none", "use_dictionary": False}
    pq.write_table(TABLE, path, **options)
    rows, y = open_store(path, label="y", features=ABC)
    good, at = path.read_bytes(), pq.ParquetFile(path).metadata.row_group(0).column(1)
    for n, cause in ((40, "OSError"), (1, "OSError: .*CRC checksum")):
        at_page = at.data_page_offset + (400 if n == 1 else 0)
        path.write_bytes(good[:at_page] + b"\xff" * n + good[at_page + n :])
        where = rf"X \(.*rows.parquet\): rows .* cannot be read: {cause}"
        with pytest.raises(ReadError, match=where):
            accumulate(rows, y)
    path = text(tmp_path / "rows.csv")
    rows, _ = open_store(path, label="y", features=ABC)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:900]))
    with pytest.raises(ReadError, match=r"fewer rows than when it was opened"):
        rows[:]
    path.write_text("a,y\n1,2\noops,3\n")
    with pytest.raises(InvalidDataError, match=r"not numbers: a \(string\)"):
        open_store(path, label="y")
    path.write_text("a,y\n" + "1,2\n" * 500_000 + "oops,3\n")
    with pytest.raises(ReadError, match=r"rows .* cannot be read: ArrowInvalid: .*'oops'"):
        open_store(path, label="y")[0][:]


def test_the_budget_holds_two_of_the_largest_row_groups(tmp_path):
    n, path = 400_000, tmp_path / "rows.parquet"
    table = pa.table({name: np.zeros(n) for name in "abcdefgh"} | {"y": np.arange(n) % 2})
    for group, error in ((10_000, contextlib.nullcontext()), (n, pytest.raises(MemoryBudgetError))):
        pq.write_table(table, path, row_group_size=group)
        rows, y = open_store(path, label="y")
        with error:
            accumulate(rows, y, covariance_type="diag", max_memory="100MB")


@pytest.fixture(scope="module")
def model():
    return GaussianNB().fit(X, NAMES)


@pytest.mark.parametrize(("name", "read"), [("p.parquet", pq.read_table), ("p.csv", pc.read_csv)])
def test_labels_beside_keys(tmp_path, model, path, name, read):
    rows, _ = open_store(path, y=None, features=ABC)
    assert model.predict(rows, out=tmp_path / name, keys=["name", "y"]) == tmp_path / name
    found = read(tmp_path / name)
    assert found.column_names == ["name", "y", "label"]
    assert found["label"].to_pylist() == model.predict(X).tolist()
    assert found["name"].to_pylist() == NAMES.tolist()
    assert [int(key) for key in found["y"].to_pylist()] == Y.tolist()
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, name}


def test_keys_of_texts_are_copied_as_they_are(tmp_path, model):
    texts = ["007", "7", "12345678901234567890123", "1.50", "TRUE", "2024-05-01 10:00", "é,x"]
    lines = [f'"{text}",{x[0]},{x[1]},{x[2]}' for text, x in zip(texts, X, strict=False)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,a,b,c", *lines]))
    rows, _ = open_store(tmp_path / "rows.csv", y=None, features=ABC)
    model.predict(rows, out=tmp_path / "p.parquet", keys="label")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == ["label", "predicted_label"]
    assert found["label"].to_pylist() == texts


def test_wrong_destinations(tmp_path, model, monkeypatch):
    rows, _ = open_store(parquet(tmp_path / "rows.parquet"), y=None, features=ABC)
    for given, out, keys, message in (
        (rows, "rows.parquet", None, "rows.parquet exists already"),
        (rows, "p.parquet", "z", "has no column 'z'; it has"),
        (rows, "p.parquet", ["y", "y"], "different columns"),
        (rows, "p.zarr", "y", "keys=y are copied to a table, and out=.*p.zarr"),
        (X, "p.parquet", "y", "keys=y are columns of the table"),
        (rows, "p.feather", None, "ends in .feather; expected .parquet or .csv"),
    ):
        with pytest.raises((InvalidParameterError, SourceError), match=message):
            model.predict(given, out=tmp_path / out, keys=keys)
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(MissingLibraryError, match=r'p.parquet need pyarrow, .* "streamgda\[arrow'):
        model.predict(X, out=tmp_path / "p.parquet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_run_that_is_stopped_leaves_nothing(tmp_path, model):
    path = parquet(tmp_path / "rows.parquet")
    rows, _ = open_store(path, y=None, features=ABC)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(OSError, match=r"rows.parquet"):
        model.predict(rows, out=tmp_path / "p.csv")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]
