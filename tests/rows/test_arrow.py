"""Parquet, Arrow and text files, and folders of them, as rows and labels."""

from __future__ import annotations

import datetime
import decimal
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamgda import GaussianNB, QuadraticDiscriminantAnalysis, accumulate, open_store
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
TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})


def uneven(path: Path, table: Any = TABLE) -> Path:
    """Write a file with row groups of uneven sizes, one of them empty."""
    with pq.ParquetWriter(path, table.schema) as writer:
        for start, stop in ((0, 1), (1, 400), (400, 400), (400, 417), (417, len(table))):
            writer.write_table(table[start:stop])
    return path


def text(path: Path, table: Any = TABLE) -> Path:
    pc.write_csv(table, path)
    return path


def batches(path: Path, table: Any = TABLE) -> Path:
    pf.write_feather(table, path, chunksize=300)
    return path


def packed(path: Path) -> Path:
    with pa.CompressedOutputStream(str(path), "gzip") as out:
        pc.write_csv(TABLE, out)
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    uneven(path / "1.parquet", TABLE[:600])
    uneven(path / "2.parquet", TABLE[600:])
    (path / "_SUCCESS").touch()
    (path / "notes.txt").touch()
    return path


FILES: dict[str, Callable[[Path], Path]] = {
    "rows.parquet": uneven,
    "rows.csv": text,
    "rows.csv.gz": packed,
    "rows.feather": batches,
    "rows": folder,
}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return FILES[request.param](tmp_path / request.param)


def test_rows_of_every_format_are_read_anywhere(path: Path) -> None:
    rows, y = open_store(path)
    assert (rows.shape, y.shape, len(rows), rows.ndim) == ((N, 3), (N,), N, 2)
    assert rows.feature_names == ("a", "b", "c")
    assert y.feature_names is None
    assert repr(rows) == (
        f"TableRows({str(path)!r}, shape=(1000, 3), dtype=float64, columns=[a, b, c])"
    )
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(y[:], Y)
    for part in (slice(0, 1), slice(700, 905), slice(905, 999), slice(3, 4), slice(90, 30), -2):
        np.testing.assert_array_equal(rows[part], X[part])
        np.testing.assert_array_equal(y[part], Y[part])
    np.testing.assert_array_equal(rows[10:500:7], X[10:500:7])
    for other in (N, slice(None, None, -1), [1, 2]):
        with pytest.raises(IndexError, match="has 1000 rows, which are read by slices"):
            rows[other]
    again = pickle.loads(pickle.dumps(rows))
    np.testing.assert_array_equal(again[410:], X[410:])


def test_moments_and_predictions_are_those_of_arrays(path: Path) -> None:
    rows, y = open_store(path)
    found, expected = accumulate(rows, y), accumulate(X, Y)
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())
    model = QuadraticDiscriminantAnalysis().fit(rows, y)
    plain = QuadraticDiscriminantAnalysis().fit(X, Y)
    np.testing.assert_array_equal(model.predict_proba(rows), plain.predict_proba(X))
    assert model.score(rows, y) == plain.score(X, Y)


def test_columns_by_name(tmp_path: Path) -> None:
    path = uneven(tmp_path / "rows.parquet", TABLE.append_column("name", pa.array(NAMES)))
    rows, y = open_store(path, label="name", features=["c", "a"])
    np.testing.assert_array_equal(rows[:], X[:, [2, 0]])
    assert rows.feature_names == ("c", "a")
    assert y[:3].tolist() == NAMES[:3].tolist()
    rows, y = open_store(path, y=None, features="b")
    assert (rows.shape, y) == ((N, 1), None)
    assert open_store(path, y="name", features="b")[1][0] == NAMES[0]


def test_columns_of_partitions(tmp_path: Path) -> None:
    table = TABLE.append_column("name", pa.array(NAMES)).append_column("year", pa.array(Y + 2000))
    ds.write_dataset(
        table.drop_columns("y"),
        tmp_path / "parts",
        format="parquet",
        partitioning=["name", "year"],
        partitioning_flavor="hive",
    )
    rows, y = open_store(tmp_path / "parts", label="name")
    assert rows.fields == ("a", "b", "c", "year")
    order = np.argsort(NAMES, kind="stable")
    np.testing.assert_array_equal(rows[:], np.c_[X, Y + 2000][order])
    np.testing.assert_array_equal(y[:], NAMES[order])
    assert accumulate(rows, y, covariance_type="diag").classes.tolist() == ["ash", "elm", "oak"]


@pytest.mark.parametrize(
    ("texts", "values"),
    [(["01", "02"], [1, 2]), (["01", "1"], ["01", "1"]), (["1", "b"], ["1", "b"])],
)
def test_partitions_keep_different_values_apart(
    tmp_path: Path, texts: list[str], values: list[Any]
) -> None:
    for text in texts:
        (tmp_path / f"y={text}").mkdir()
        pq.write_table(pa.table({"a": [1.0]}), tmp_path / f"y={text}" / "rows.parquet")
    assert open_store(tmp_path)[1][:].tolist() == values


NUMBERS = {
    "bytes": (pa.array([1, 2, 255], pa.uint8()), np.uint8, [1, 2, 255]),
    "booleans": (pa.array([True, False, True]), np.uint8, [1, 0, 1]),
    "singles": (pa.array([0.5, None, 2], pa.float32()), np.float32, [0.5, np.nan, 2]),
    "halves": (pa.array(np.array([0.5, 1, 2], np.float16)), np.float16, [0.5, 1, 2]),
    "decimals": (pa.array([decimal.Decimal("1.25"), None, 3]), np.float64, [1.25, np.nan, 3]),
    "nothing": (pa.nulls(3), np.float64, [np.nan] * 3),
    "categories": (pa.array([7, 9, 7], pa.int16()).dictionary_encode(), np.int16, [7, 9, 7]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers(tmp_path: Path, kind: str) -> None:
    column, dtype, values = NUMBERS[kind]
    path = batches(tmp_path / "rows.arrow", pa.table({"a": column}))
    rows, _ = open_store(path, y=None)
    assert rows.dtype == rows[:].dtype == dtype
    np.testing.assert_array_equal(rows[:][:, 0], np.array(values, dtype))


def test_the_common_type_of_columns(tmp_path: Path) -> None:
    table = pa.table({"a": pa.array([1, 2], pa.uint8()), "b": pa.array([3, None], pa.int16())})
    rows, _ = open_store(uneven(tmp_path / "rows.parquet", table), y=None)
    assert rows.dtype == np.int16
    assert rows[:].mask.tolist() == [[False, False], [False, True]]  # integers have no NaN
    table = table.append_column("c", pa.array([0.5, 1.5]))
    rows, _ = open_store(uneven(tmp_path / "rows.parquet", table), y=None)
    np.testing.assert_array_equal(rows[:], [[1, 3, 0.5], [2, np.nan, 1.5]])


def test_missing_values_are_those_of_arrays(tmp_path: Path) -> None:
    counts = RANDOM.integers(0, 9, (N, 2)).astype(np.int16)
    holes = RANDOM.random((N, 2)) < 0.1
    columns = [pa.array(c, mask=h) for c, h in zip(counts.T, holes.T, strict=True)]
    path = uneven(tmp_path / "rows.parquet", pa.table([*columns, Y], ["a", "b", "y"]))
    rows, y = open_store(path)
    with pytest.raises(InvalidDataError, match=r"X: .*rows.parquet: row group \d, column '[ab]'"):
        accumulate(rows, y)
    found = accumulate(rows, y, on_invalid="skip")
    kept = ~holes.any(1)
    np.testing.assert_array_equal(found.means, accumulate(counts[kept], Y[kept]).means)
    pairs = accumulate(rows, y, on_invalid="pairwise")
    plain = accumulate(np.where(holes, np.nan, counts), Y, on_invalid="pairwise")
    np.testing.assert_allclose(pairs.means, plain.means)


LABELS = {
    "text": (["b", "a", "b"], ["b", "a", "b"]),
    "categories": (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
    "missing text": (["b", None, "a"], ["b", None, "a"]),
    "missing categories": (pa.array(["b", None, "a"]).dictionary_encode(), ["b", None, "a"]),
    "bytes": ([b"b", b"a", b"b"], [b"b", b"a", b"b"]),
    "integers": (pa.array([3, 1, 3], pa.int8()), [3, 1, 3]),
    "missing integers": ([2**60 + 1, None, 3], [2**60 + 1, None, 3]),
    "booleans": ([True, False, True], [True, False, True]),
    "missing booleans": ([True, None, False], [True, None, False]),
    "numbers": ([1.0, 2.0, 1.0], [1.0, 2.0, 1.0]),
    "dates": ([datetime.date(2020, 1, 2)] * 3, [datetime.date(2020, 1, 2)] * 3),
    "times": ([datetime.datetime(2020, 1, 2, 3)] * 3, [datetime.datetime(2020, 1, 2, 3)] * 3),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels(tmp_path: Path, kind: str) -> None:
    column, expected = LABELS[kind]
    table = pa.table({"a": [1.0, 2.0, 3.0], "y": column})
    _, y = open_store(uneven(tmp_path / "rows.parquet", table))
    assert y[:].tolist() == expected
    assert y[:1].tolist() == expected[:1]


def test_files_with_other_columns_and_types(tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    uneven(parts / "1.parquet", pa.table({"a": pa.array([1, 2], pa.uint8()), "b": [1, 2]}))
    uneven(parts / "2.parquet", pa.table({"b": [3, 4], "a": pa.array([0.5, 2], pa.float32())}))
    rows, y = open_store(parts, label="b")
    np.testing.assert_array_equal(rows[:], np.array([[1], [2], [0.5], [2]], np.float32))
    assert (rows.dtype, y[:].tolist()) == (np.float32, [1, 2, 3, 4])
    uneven(parts / "3.parquet", pa.table({"a": ["x"], "b": ["y"]}))
    with pytest.raises(InvalidDataError, match=r"column 'a' holds uint8 and float and string; fea"):
        open_store(parts, label="b")
    uneven(parts / "3.parquet", pa.table({"a": [2], "b": ["y"]}))
    with pytest.raises(InvalidDataError, match=r"column 'b' holds int64 and string; class labels"):
        open_store(parts, label="b")
    uneven(parts / "3.parquet", pa.table({"b": [2]}))
    with pytest.raises(SourceError, match=r"3.parquet has no column 'a'; it has b"):
        open_store(parts, label="b")
    text(parts / "4.csv")
    with pytest.raises(SourceError, match=r"files of several formats, such as .*1.parquet and .*4"):
        open_store(parts)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"label": "z"}, SourceError, "no column 'z' of labels, but a, b, c, y; name it with lab"),
        ({"y": "z"}, SourceError, "no column 'z' of labels, .* or pass y=None if the rows have no"),
        (
            {"features": ["a", "z"]},
            SourceError,
            "rows.parquet has no column 'z' for features; it has a, b",
        ),
        ({"features": ["a", "y"]}, InvalidParameterError, "features are a, y, labels 'y'"),
        ({"features": []}, InvalidParameterError, "features are none at all"),
        ({"features": ["a", "a"]}, InvalidParameterError, "features are a, a, .*different names"),
        ({"X": "rows"}, InvalidParameterError, "X='rows' names an array of zarr"),
        ({"storage_options": {}}, InvalidParameterError, "is on this machine"),
    ],
)
def test_wrong_options(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    path = uneven(tmp_path / "rows.parquet")
    with pytest.raises(error, match=message):
        open_store(path, **options)


def test_files_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceNotFoundError, match=r"nowhere.parquet does not exist"):
        open_store(tmp_path / "nowhere.parquet")
    (tmp_path / "rows.parquet").write_bytes(b"not a table")
    with pytest.raises(SourceError, match=r"rows.parquet cannot be opened: ArrowInvalid: "):
        open_store(tmp_path / "rows.parquet")
    pf.write_feather(TABLE, tmp_path / "rows.feather")
    good = (tmp_path / "rows.feather").read_bytes()
    (tmp_path / "rows.feather").write_bytes(good[:-40] + bytes(20) + good[-20:])
    with pytest.raises(SourceError, match=r"rows.feather cannot be opened: OSError: "):
        open_store(tmp_path / "rows.feather")
    (tmp_path / "empty.parquet").mkdir()
    with pytest.raises(SourceError, match=r"empty.parquet is a folder without tables"):
        open_store(tmp_path / "empty.parquet")
    named = pa.table({"a": [1], "b": [[1]], "c": ["x"], "y": [{"z": 1}]})
    path = uneven(tmp_path / "rows.parquet", named)
    with pytest.raises(InvalidDataError, match=r"'y' holds struct<.*; features are numbers: leave"):
        open_store(path, label="c")
    with pytest.raises(InvalidDataError, match=r"'b' holds a list for each row, all of its feat"):
        open_store(path, label="c", features=["a", "b"])
    with pytest.raises(InvalidDataError, match=r"'c' holds string; .* name it as the labels"):
        open_store(path, features=["a", "c"])
    with pytest.raises(InvalidDataError, match=r"'y' holds struct<.*; class labels of one kind"):
        open_store(path, features="a")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "streamgda\[arrow\]"$'):
        open_store(path)


def test_files_that_are_damaged_or_change(tmp_path: Path) -> None:
    path = uneven(tmp_path / "rows.parquet")
    rows, y = open_store(path)
    good = path.read_bytes()
    at = pq.ParquetFile(path).metadata.row_group(3).column(1).data_page_offset
    path.write_bytes(good[:at] + b"\xff" * 40 + good[at + 40 :])
    np.testing.assert_array_equal(rows[:400], X[:400])
    with pytest.raises(ReadError, match=r"rows.parquet: row group 3 cannot be read: OSError"):
        accumulate(rows, y)
    pq.write_table(TABLE[:900], path)
    with pytest.raises(ReadError, match=r"row group 0 has 900 rows; 1 were expected: it changed"):
        rows[:]
    pq.write_table(TABLE[:1], path)
    with pytest.raises(ReadError, match=r"row group 1 has 0 rows; 399 were expected: it changed"):
        rows[:]
    path = tmp_path / "rows.feather"
    letters = pa.table({"a": X[:300, 0], "y": [*"abc"] * 100})
    pf.write_feather(letters, path, compression="uncompressed")
    places = [np.arange(start, start + 8, dtype="<i4").tobytes() for start in (64, 1 << 30)]
    path.write_bytes(path.read_bytes().replace(*places))  # of letters, far beyond them
    with pytest.raises(ReadError, match=r"record batch 0 cannot be read: ArrowInvalid: .*Offset"):
        open_store(path, label="y")[1][:]
    path = text(tmp_path / "rows.csv")
    rows, y = open_store(path)
    path.write_text(path.read_text() + "1,2,oops,4\n")
    with pytest.raises(ReadError, match=r"rows.csv: line 1002: column 'c' is not a number: 'oops'"):
        accumulate(rows, y)


def test_a_pass_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamgda.engine.plan._SLAB_BYTES", 24 * 130)
    rows, y = open_store(uneven(tmp_path / "rows.parquet"))
    expected = accumulate(rows, y)
    seen = []

    def stop(done: int, total: int | None) -> None:
        seen.append(done)
        if done > 600 and len(seen) < 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accumulate(rows, y, checkpoint=tmp_path / "check", checkpoint_every=0, progress=stop)
    again, labels = open_store(tmp_path / "rows.parquet")
    found = accumulate(again, labels, checkpoint=tmp_path / "check", checkpoint_every=0)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())


def test_rows_are_read_within_a_budget(tmp_path: Path) -> None:
    n = 40_000
    table = pa.table({f"f{i}": RANDOM.random(n) for i in range(10)} | {"y": np.arange(n) % 2})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=n)
    rows, y = open_store(tmp_path / "rows.parquet")
    with pytest.raises(MemoryBudgetError, match="max_memory allows 2"):
        accumulate(rows, y, max_memory="2MB")
    found = accumulate(rows, y, max_memory="80MB")
    np.testing.assert_allclose(found.means, accumulate(rows[:], y[:]).means)


def test_zarr_in_a_folder_stays_zarr(tmp_path: Path) -> None:
    import zarr

    group = zarr.create_group(tmp_path / "rows")
    group["X"], group["y"] = X, Y
    uneven(tmp_path / "rows" / "notes.parquet")
    np.testing.assert_array_equal(open_store(tmp_path / "rows")[0][:], X)
    with pytest.raises(InvalidParameterError, match=r"label='y' does not apply to .*, which is op"):
        open_store(tmp_path / "rows", label="y")


def test_weights_and_naive_bayes(tmp_path: Path) -> None:
    weights = RANDOM.random(N)
    path = uneven(tmp_path / "rows.parquet", TABLE.append_column("w", pa.array(weights)))
    rows, y = open_store(path, features=["a", "b", "c"])
    column = open_store(path, label="w")[1]
    found = GaussianNB().fit(rows, y, sample_weight=column)
    expected = GaussianNB().fit(X, Y, sample_weight=weights)
    np.testing.assert_array_equal(found.var_, expected.var_)
    pq.write_table(TABLE.append_column("w", pa.array(-weights)), path)
    column = open_store(path, label="w")[1]
    with pytest.raises(InvalidDataError, match=r"sample_weight: .*row group 0: sample_weight\[0\]"):
        accumulate(rows[:], Y, sample_weight=column)


def test_remote_files(tmp_path: Path) -> None:
    uneven(tmp_path / "rows.parquet")
    rows, y = open_store(f"file://{tmp_path}/rows.parquet")
    np.testing.assert_array_equal(rows[:], X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y))[:], Y)


# --- columns of lists ---------------------------------------------------------------------------

LISTS = {
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(X.astype("f4").ravel()), 3),
    "any": pa.array(X.astype("f4").tolist(), pa.list_(pa.float32())),
    "large": pa.array(X.astype("f4").tolist(), pa.large_list(pa.float32())),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("name", ["rows.parquet", "rows.feather", "stream.arrow", "saved"])
def test_embeddings_are_rows(tmp_path: Path, kind: str, name: str) -> None:
    table = pa.table({"id": np.arange(N), "embedding": LISTS[kind], "label": NAMES})
    path = tmp_path / name
    if name == "rows.parquet":
        uneven(path, table)
    elif name == "rows.feather":
        batches(path, table)
    else:  # as datasets.save_to_disk writes them
        path.mkdir() if name == "saved" else None
        parts = [path / f"data-0000{i}-of-00002.arrow" for i in (0, 1)]
        parts = parts if name == "saved" else [path]
        for part, rows in zip(
            parts, (table[:300], table[300:]) if name == "saved" else (table,), strict=True
        ):
            with pa.ipc.new_stream(part, table.schema) as stream:
                stream.write_table(rows)
        (path / "state.json").write_text("{}") if name == "saved" else None
    rows, y = open_store(path, label="label", features="embedding")
    assert (rows.shape, rows.dtype, rows.feature_names) == ((N, 3), np.float32, None)
    np.testing.assert_array_equal(rows[:], X.astype("f4"))
    np.testing.assert_array_equal(rows[310:330], X[310:330].astype("f4"))
    found = accumulate(rows, y)
    np.testing.assert_array_equal(found.means, accumulate(X.astype("f4"), NAMES).means)
    with pytest.raises(InvalidDataError, match="'embedding' holds a list for each row"):
        open_store(path, label="label")


def test_embeddings_of_frames_and_batches() -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = accumulate(X, NAMES).means
    table = pa.table({"embedding": pa.array(X.tolist()), "label": NAMES})
    frames = [
        pd.DataFrame({"embedding": [*X]}),
        pl.DataFrame({"embedding": X}),
        pl.DataFrame({"embedding": X.tolist()}),
        pl.DataFrame({"embedding": X})["embedding"],
        pd.Series([*X]),
        table.select(["embedding"]),
    ]
    for frame in frames:
        np.testing.assert_array_equal(accumulate(frame, NAMES).means, expected)
        assert accumulate(frame, NAMES).feature_names is None
    names = ("embedding", "label")
    for batch in (table, pl.from_arrow(table), {"embedding": X.tolist(), "label": NAMES}):
        np.testing.assert_allclose(accumulate([batch], columns=names).means, expected)
    uneven_lists = pd.DataFrame({"embedding": [np.ones(3), np.ones(2)]})
    with pytest.raises(InvalidDataError, match="row 1 of a block holds 2 values; expected 3"):
        accumulate(uneven_lists, ["a", "b"])


# --- what files say beside their columns ----------------------------------------------------------


def test_an_index_of_pandas_is_no_feature(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": X[:, 0], "y": Y}, index=RANDOM.permutation(N))
    frame.to_parquet(tmp_path / "rows.parquet")
    rows, _ = open_store(tmp_path / "rows.parquet")
    assert rows.fields == ("a",)
    rows, _ = open_store(tmp_path / "rows.parquet", features=["a", "__index_level_0__"])
    np.testing.assert_array_equal(rows[:][:, 1], frame.index)


def test_checksums_of_pages_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(TABLE, path, write_page_checksum=True, compression="none", use_dictionary=False)
    rows, _ = open_store(path)
    at = pq.ParquetFile(path).metadata.row_group(0).column(1).data_page_offset + 400
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ReadError, match="CRC checksum"):
        rows[:]


WIDE = {
    "beyond float64": (pa.array([2**53, 2**53 + 1, 2**53 + 2]), None),
    "beyond int64": (pa.array([2**63, 2**63 + 1, 2**63 + 2], pa.uint64()), None),
    "decimals": (pa.array([decimal.Decimal(2**60 + i) for i in range(3)]), None),
    "fractions": (
        pa.array([decimal.Decimal("0.1"), decimal.Decimal("0.2"), decimal.Decimal("0.3")]),
        None,
    ),
    "mixed files": (pa.array([-1, 2**62]), pa.array([2**63 + 1], pa.uint64())),
}


@pytest.mark.parametrize("kind", WIDE)
def test_labels_stay_distinct(tmp_path: Path, kind: str) -> None:
    first, second = WIDE[kind]
    pq.write_table(
        pa.table({"a": np.arange(float(len(first))), "y": first}), tmp_path / "1.parquet"
    )
    if second is not None:
        pq.write_table(pa.table({"a": [9.0], "y": second}), tmp_path / "2.parquet")
    rows, y = open_store(tmp_path)
    if kind == "mixed files":
        with pytest.raises(InvalidDataError, match="no common 64-bit type"):
            accumulate(rows, y, covariance_type="diag")
        return
    assert accumulate(rows, y, covariance_type="diag").classes.size == 3
    expected = [*first.to_pylist(), *([] if second is None else second.to_pylist())]
    assert [str(label) for label in y[:].tolist()] == [*map(str, expected)]


def test_plans_follow_from_what_files_say_of_their_columns(tmp_path):
    """Compressed batches are held beside their rows, others are not; pages of narrow columns."""
    n = 100_000
    columns = {f"x{number}": np.random.default_rng(number).random(n) for number in range(20)}
    table = pa.table(columns | {"y": np.arange(n) % 3})
    planned = {}
    for how in ("lz4", "uncompressed"):
        path = tmp_path / f"{how}.feather"
        pa.feather.write_feather(table, path, how, chunksize=n)
        rows = open_store(path)[0]
        planned[how] = rows.reading_bytes(100) - rows.values.fixed
    labels = 8 * n  # stored with the rows, unless they are decoded column by column
    assert planned["lz4"] - planned["uncompressed"] == 20 * 8 * n - labels
    pq.write_table(table, tmp_path / "wide.parquet", row_group_size=n)
    narrow = table.cast(pa.schema([(name, "float32") for name in columns] + [("y", "int64")]))
    pq.write_table(narrow, tmp_path / "narrow.parquet", row_group_size=n)
    wide, narrow = (open_store(tmp_path / f"{name}.parquet")[0] for name in ("wide", "narrow"))
    assert 20 * 8 * n < wide.reading_bytes(100)
    assert narrow.reading_bytes(100) < 0.7 * wide.reading_bytes(100)


def test_labels_hold_no_other_columns(tmp_path):
    """Batches that are not compressed are stored together, and a view would hold all of them."""
    columns: dict[str, Any] = {f"x{n}": np.arange(20_000) * 0.5 for n in range(20)}
    path = tmp_path / "raw.feather"
    table = pa.table(columns | {"y": np.arange(20_000) % 3})
    pf.write_feather(table, path, "uncompressed", chunksize=2000)
    del table
    _, y = open_store(path)
    before = pa.total_allocated_bytes()
    labels = y.read(0, 20_000)
    y.close()
    assert pa.total_allocated_bytes() - before < 2 * labels.nbytes
    assert (labels == np.arange(20_000) % 3).all()
