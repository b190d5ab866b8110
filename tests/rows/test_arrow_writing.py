"""Labels and scores written to Parquet, Arrow and text files, beside keys."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

from streamgda import GaussianNB, LinearDiscriminantAnalysis, accumulate, engine, open_store
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MissingLibraryError,
    SourceError,
)

pa = pytest.importorskip("pyarrow")
import pyarrow.csv as pc  # noqa: E402
import pyarrow.feather as pf  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402

# Rows of files have names, those of arrays have none.
pytestmark = pytest.mark.filterwarnings("ignore:X .*feature names")

N = 300
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, 3))
Y = np.array(["oak", "elm", "ash"])[np.arange(N) % 3]
IDS = [f"plot {number}" for number in range(N)]
TIMES = [None, *(datetime.datetime(2020, 1, 1) + datetime.timedelta(n) for n in range(1, N))]
TABLE = pa.table(
    {"id": IDS, "a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "day": TIMES, "y": Y, "count": range(N)}
)
READERS: dict[str, Any] = {
    "p.parquet": pq.read_table,
    "p.csv": pc.read_csv,
    "p.csv.gz": pc.read_csv,
    "p.tsv": lambda path: pc.read_csv(path, parse_options=pc.ParseOptions(delimiter="\t")),
    "p.arrow": pf.read_table,
}


@pytest.fixture(scope="module")
def model() -> GaussianNB:
    return GaussianNB().fit(X, Y)


@pytest.fixture
def rows(tmp_path: Path) -> Any:
    pq.write_table(TABLE, tmp_path / "rows.parquet", row_group_size=70)
    return open_store(tmp_path / "rows.parquet", y=None, features=["a", "b", "c"])[0]


@pytest.mark.parametrize("name", READERS)
def test_labels_beside_keys(
    tmp_path: Path, model: GaussianNB, rows: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgda.engine.plan._SLAB_BYTES", 24 * 100)
    monkeypatch.setattr("streamgda.rows.table_files.GROUP_ROWS", 120)
    path = tmp_path / name
    assert model.predict(rows, out=path, keys=["id", "day", "count"]) == path
    found = READERS[name](path)
    assert found.column_names == ["id", "day", "count", "label"]
    assert found["label"].to_pylist() == model.predict(X).tolist()
    assert found["id"].to_pylist() == IDS
    assert found["count"].to_pylist() == list(range(N))
    assert found["day"].null_count == 1
    assert found["day"][5].as_py() == TIMES[5]
    assert {entry.name for entry in tmp_path.iterdir()} == {"rows.parquet", name}


@pytest.mark.parametrize(
    ("method", "columns"),
    [
        ("predict_proba", ["proba_ash", "proba_elm", "proba_oak"]),
        ("predict_log_proba", ["log_proba_ash", "log_proba_elm", "log_proba_oak"]),
        ("predict_joint_log_proba", [f"joint_log_proba_{name}" for name in ("ash", "elm", "oak")]),
        ("score_samples", ["log_density"]),
    ],
)
def test_scores_have_the_names_of_classes(
    tmp_path: Path, model: GaussianNB, rows: Any, method: str, columns: list[str]
) -> None:
    getattr(model, method)(rows, out=tmp_path / "p.parquet", keys="id")
    found = pq.read_table(tmp_path / "p.parquet")
    assert found.column_names == ["id", *columns]
    values = np.column_stack([found[name] for name in columns])
    np.testing.assert_array_equal(values, getattr(model, method)(X).reshape(N, -1))


def test_scores_of_discriminants(tmp_path: Path) -> None:
    two = LinearDiscriminantAnalysis().fit(X, np.arange(N) % 2)
    two.decision_function(X, out=tmp_path / "p.csv")
    assert pc.read_csv(tmp_path / "p.csv").column_names == ["decision"]
    three = LinearDiscriminantAnalysis().fit(X, Y)
    three.transform(X, out=tmp_path / "t.csv")
    found = pc.read_csv(tmp_path / "t.csv")
    assert found.column_names == ["component_0", "component_1"]
    np.testing.assert_allclose(found["component_1"], three.transform(X)[:, 1], rtol=1e-12)


def test_scores_of_arrays_and_dask_arrays(tmp_path: Path, model: GaussianNB) -> None:
    for name, source in (("p", X), ("d", da.from_array(X, chunks=(90, 3)))):
        model.predict(source, out=str(tmp_path / f"{name}.parquet"))
        found = pq.read_table(tmp_path / f"{name}.parquet")
        assert found["label"].to_pylist() == model.predict(X).tolist()
        with pytest.raises(InvalidParameterError, match=r"keys=\('id',\) names columns of the tab"):
            model.predict(source, out=tmp_path / "other.parquet", keys="id")


def test_filled_rows(tmp_path: Path, model: GaussianNB) -> None:
    holes = X.copy()
    holes[7, 1] = np.nan
    model.predict(holes, out=tmp_path / "p.csv", on_invalid="fill", fill="unknown")
    found = pc.read_csv(tmp_path / "p.csv")["label"].to_pylist()
    assert found[7] == "unknown"
    assert found[:7] == model.predict(X[:7]).tolist()


def test_a_run_that_is_stopped_leaves_the_old_table(
    tmp_path: Path, model: GaussianNB, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamgda.engine.plan._SLAB_BYTES", 24 * 50)
    path = tmp_path / "p.csv"
    path.write_text("old")
    (tmp_path / "rows.parquet").write_bytes((tmp_path / "rows.parquet").read_bytes()[:5000])
    with pytest.raises(OSError, match=r"rows.parquet"):
        engine.score(lambda block, _: block[:, 0], rows, path, overwrite=True)
    assert path.read_text() == "old"
    assert {entry.name for entry in tmp_path.iterdir()} == {"rows.parquet", "p.csv"}


def test_wrong_destinations(
    tmp_path: Path, model: GaussianNB, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match=r"rows.parquet exists already"):
        model.predict(rows, out=tmp_path / "rows.parquet")
    with pytest.raises(InvalidParameterError, match=r"rows.parquet is among the files of the"):
        engine.score(lambda X, _: X[:, 0], rows, tmp_path / "rows.parquet", overwrite=True)
    with pytest.raises(
        InvalidParameterError, match=r"no column 'z' for keys, but id, a, b, c, day"
    ):
        model.predict(rows, out=tmp_path / "p.parquet", keys=["id", "z"])
    with pytest.raises(InvalidParameterError, match=r"the columns id, id, label, a row for each"):
        model.predict(rows, out=tmp_path / "p.parquet", keys=["id", "id"])
    for out in (None, tmp_path / "p.zarr"):
        with pytest.raises(
            InvalidParameterError, match=r"keys=\('id',\) are columns of a table, a"
        ):
            model.predict(rows, out=out, keys="id")
    monkeypatch.setitem(sys.modules, "pyarrow.dataset", None)
    with pytest.raises(MissingLibraryError, match=r'p.parquet need pyarrow, .* "streamgda\[arrow'):
        model.predict(X, out=tmp_path / "p.parquet")
    assert [entry.name for entry in tmp_path.iterdir()] == ["rows.parquet"]


def test_tables_go_from_file_to_file(tmp_path: Path, model: GaussianNB, rows: Any) -> None:
    model.predict_proba(rows, out=tmp_path / "p.parquet", keys="y")
    scores, y = open_store(tmp_path / "p.parquet")
    assert scores.feature_names == ("proba_ash", "proba_elm", "proba_oak")
    assert accumulate(scores, y).class_count.tolist() == [100, 100, 100]


@pytest.mark.parametrize("name", READERS)
def test_keys_of_texts_are_copied_as_they_are(tmp_path: Path, model: GaussianNB, name: str) -> None:
    texts = ["007", "7", "12345678901234567890123", "1.50", "TRUE", "2024-05-01 10:00", "é,x"]
    (tmp_path / "rows").mkdir()
    for part in range(2):  # the first rows of the second file have another type
        lines = [f'"{text}",{x[0]},{x[1]},{x[2]}' for text, x in zip(texts[part:], X, strict=False)]
        (tmp_path / "rows" / f"{part}.csv").write_text("\n".join(["id,a,b,c", *lines]))
    rows = open_store(tmp_path / "rows", y=None, features=["a", "b", "c"])[0]
    model.predict(rows, out=tmp_path / name, keys="id")
    if name in ("p.parquet", "p.arrow"):
        found = READERS[name](tmp_path / name)
    else:
        options = pc.ConvertOptions(column_types={"id": pa.string()})
        delimiter = pc.ParseOptions(delimiter="\t" if name == "p.tsv" else ",")
        found = pc.read_csv(tmp_path / name, None, delimiter, options)
    assert found["id"].to_pylist() == [*texts, *texts[1:]]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.large_string(), pa.string(), pa.large_string()),
        (pa.null(), pa.int8(), pa.int8()),
        (pa.int64(), pa.string(), None),
    ],
)
def test_keys_of_files_with_other_types(
    tmp_path: Path, model: GaussianNB, first: Any, second: Any, kind: Any
) -> None:
    for part, own in enumerate((first, second)):
        keys = pa.array([None] * 9 if own == pa.null() else [*map(str, range(9))]).cast(own)
        columns = {"id": keys, **{name: X[:9, n] for n, name in enumerate("abc")}}
        (tmp_path / "rows").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / "rows" / f"{part}.parquet", row_group_size=4)
    rows = open_store(tmp_path / "rows", y=None, features=["a", "b", "c"])[0]
    out = tmp_path / "p.arrow"
    with pytest.raises(InvalidParameterError, match=r"p.arrow is among the files of the rows"):
        model.predict(rows, out=tmp_path / "rows" / "p.arrow")
    if kind is None:
        with pytest.raises(InvalidDataError, match="column 'id' holds int64 and string; keys of"):
            model.predict(rows, out=out, keys="id")
        return
    model.predict(rows, out=out, keys="id")
    assert READERS["p.arrow"](out)["id"].type == kind
