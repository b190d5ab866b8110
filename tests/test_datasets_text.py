"""Tables of text: missing values, and two readers that agree on every file."""

import gzip
import random
import sys

import numpy as np
import pyarrow
import pytest
import zarr
from allocations import assert_peak_below
from dataset_files import check, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st

from streamgda import accumulate
from streamgda.datasets import arrowtext, convert, csvtable, textrows
from streamgda.datasets.csvtable import csv_table
from streamgda.datasets.tables import Revised
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError

NAN = np.nan
MARKERS = ["", "NA", "N/A", "nan", "NaN", "null", "NULL", "None", "n/a", "<NA>", "#N/A", " NA "]


@pytest.fixture(params=["pyarrow", "python"])
def reader(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return request.param


def converted(path, **options):
    return convert(path, zarr.storage.MemoryStore(), **options)


# --- missing values ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", MARKERS)
def test_missing_features_are_nan(tmp_path, reader, text):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, text, "x"), (text, 4, "y")])
    check(converted(path), np.array([[1, NAN], [NAN, 4]]), ["x", "y"])
    with pytest.raises(SourceError, match=f"line 2: field 2 does not fit int16: '{text.lstrip()}'"):
        converted(path, dtype="int16")


def test_more_markers(tmp_path, reader):
    rows = [("a", "b", "kind"), (1, "?", "x"), (-9999, 4, "-9999"), ("-9999.0", "NA", "?")]
    path = write_csv(tmp_path / "rows.csv", rows)
    with pytest.raises(SourceError, match=r"line 2: field 2 is not a number: '\?'"):
        converted(path)
    for markers in (["?", -9999], ["?", "-9999"], ("?", -9999.0)):
        group = converted(path, na_values=markers, missing_labels="keep")
        check(group, np.array([[1, NAN], [NAN, 4], [NAN, NAN]]), ["x", "", ""])
    with pytest.raises(SourceError, match="line 4: field 2 is not a number: 'NA'"):
        converted(path, na_values=["?", -9999], keep_default_na=False, missing_labels="keep")
    with pytest.raises(SourceError, match="line 3: field 1 does not fit int32: '-9999'"):
        converted(path, na_values=-9999, columns="a", dtype="int32", labels=False)
    with pytest.raises(InvalidParameterError, match=r"na_values=.*; expected texts or numbers"):
        converted(path, na_values=[None])


def test_markers_can_be_labels(tmp_path, reader):
    path = write_csv(tmp_path / "rows.csv", [(1, "NA"), (2, "None"), (3, "ZA")])
    with pytest.raises(SourceError, match="line 1: the label is missing: 'NA'; missing_labels="):
        converted(path)
    assert converted(path, keep_default_na=False)["y"][:].tolist() == ["NA", "None", "ZA"]


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["7", "", "8"], np.array([7, NAN, 8])),
        (["7", "8.5", "NA"], np.array([7, 8.5, NAN])),
        (["", "ant", "NA"], ["", "ant", ""]),
        (["", ""], np.array([NAN, NAN])),
    ],
)
def test_missing_labels_are_kept_if_asked(tmp_path, reader, texts, labels):
    rows = [(n, text) for n, text in enumerate(texts)]
    path = write_csv(tmp_path / "rows.csv", rows)
    group = converted(path, missing_labels="keep")
    np.testing.assert_array_equal(group["y"][:], labels)
    strings = isinstance(labels, list)
    assert dict(group["y"].attrs) == ({"missing_label": ""} if strings else {})
    with pytest.raises(SourceError, match=f"line {texts.index('') + 1 if '' in texts else 3}: the"):
        converted(path)
    with pytest.raises(InvalidParameterError, match="missing_labels='skip'; expected 'raise' or"):
        converted(path, missing_labels="skip")


@pytest.mark.parametrize("texts", [["7", "", "8", "7", "8"], ["ant", "NA", "bee", "bee", "ant"]])
def test_learning_skips_rows_whose_label_is_missing(tmp_path, texts):
    path = write_csv(tmp_path / "rows.csv", [(n, n**2, text) for n, text in enumerate(texts)])
    group = converted(path, missing_labels="keep")
    with pytest.raises(InvalidDataError, match=r"y\[1\] is (nan|None)"):
        accumulate(group["X"], group["y"], covariance_type="diag")
    moments = accumulate(group["X"], group["y"], covariance_type="diag", on_invalid="skip")
    assert moments.n_skipped == 1
    assert moments.classes.tolist() == ([7, 8] if texts[0] == "7" else ["ant", "bee"])
    assert moments.class_count.tolist() == [2, 2]


def test_names_of_the_features(tmp_path, reader):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, 2, 3), (4, 5, 6)])
    for options, names in [
        ({}, ["a", "b"]),
        ({"labels": False}, ["a", "b", "kind"]),
        ({"columns": ["b", "a"]}, ["b", "a"]),
        ({"label_column": 0, "drop": "b"}, ["kind"]),
    ]:
        assert converted(path, **options)["X"].attrs["feature_names"] == names
    path = write_csv(tmp_path / "bare.csv", [(1, 2, 3), (4, 5, 6)])
    assert "feature_names" not in converted(path)["X"].attrs
    assert "feature_names" not in converted(path, header=False)["X"].attrs


def test_first_lines_without_numbers(tmp_path, reader):
    path = write_csv(tmp_path / "rows.csv", [("NA", "null", "x"), (1, 2, "y")])
    check(converted(path), np.array([[NAN, NAN], [1, 2]]), ["x", "y"])


# --- rows that differ from the first ------------------------------------------------------------


@pytest.mark.parametrize("chunk_rows", [70, 1000])
@pytest.mark.parametrize("late", ["2.5", "x", ""])
def test_labels_of_another_type_after_many(tmp_path, reader, late, chunk_rows):
    labels = ["01"] * 300 + [late] + ["2"] * 40
    path = write_csv(tmp_path / "rows.csv", [(n, text) for n, text in enumerate(labels)])
    group = converted(path, missing_labels="keep", chunk_rows=chunk_rows)
    expected = labels if late == "x" else [float(text or "nan") for text in labels]
    np.testing.assert_array_equal(group["y"][:], expected)
    assert group["X"][:, 0].tolist() == list(range(341))


def test_a_first_column_that_numbers_only_the_first_rows(tmp_path, reader):
    rows = [(n, n / 2, "x") for n in range(300)]
    path = write_csv(tmp_path / "rows.csv", [("", "a", "kind"), *rows])
    with pytest.warns(UserWarning, match="numbers the rows from 0: it is left out"):
        assert converted(path)["X"].shape == (300, 1)
    path = write_csv(tmp_path / "rows.csv", [("", "a", "kind"), *rows, (7, 1, "x")])
    with pytest.warns(UserWarning, match="does not number the rows: it is kept"):
        group = converted(path, drop="kind", labels=np.arange(301))
    assert group["X"].shape == (301, 2)
    assert group["X"].attrs["feature_names"] == ["", "a"]


def test_other_numbers_of_rows(tmp_path, reader):
    path = write_csv(tmp_path / "rows.csv", [(1, 2), (3, 4), (5, 6)])
    check(converted(path, n_rows=3, labels=[7, 8, 9]), np.arange(1, 7.0).reshape(3, 2), [7, 8, 9])
    for labels in ([7, 8], [7, 8, 9, 10], []):
        with pytest.raises(InvalidDataError, match=f"3.* rows, but {len(labels)} labels"):
            converted(path, labels=np.array(labels, int))
    for n_rows in (2, 4):
        with pytest.raises(InvalidDataError, match=f"expected {n_rows} rows, but .* 3"):
            converted(path, n_rows=n_rows)


# --- two readers --------------------------------------------------------------------------------


def outcome(path, **options):
    """The table or its error, and whether Python read any of the rows."""
    by_python = []

    class Watched(textrows.TextRows):
        def parts(self, *arguments):
            by_python.append(True)
            return super().parts(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csvtable, "TextRows", Watched)
        try:
            table = csv_table(path, **options)
            while True:
                try:
                    blocks = list(table.blocks(3))
                    break
                except Revised as revised:
                    table = revised.table
            arrays = [np.concatenate(parts) for parts in zip(*blocks, strict=True)]
        except (SourceError, InvalidParameterError) as error:
            return f"{type(error)}: {error}", by_python
    values = [(a.dtype, a.tolist() if a.dtype.kind == "T" else a.tobytes()) for a in arrays]
    return (table.feature_names, table.note, values), by_python


def by_both(path, **options):
    """Outcome of reading with pyarrow, which is the same without it."""
    found, by_python = outcome(path, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert outcome(path, **options)[0] == found, (path.read_bytes(), options)
    return found, by_python


NUMBERS = ["1", "0.25", "-3e2", "7", " 3", '"5"', "", "NA", "nan", "NAN", "-9999", "+4", ".5", "5."]
NUMBERS += ["0.1234567890123456789", "123456789012345678", "1e-320", "1e999", "inf", "x", "1_0"]
TEXTS = ["a", "b", "1", "2.5", "", "NA", " z", '"q,r"', '"x\ny"', '"l""m"', '"a"b', 'a"b', '"', "é"]
TEXTS += ["nan(7)", "0x1", '" z"', ' "a"', "1_0", "٣", "\ufeff", "a\tb", "\0"]
OPTIONS = st.fixed_dictionaries(
    {"labelled": st.booleans()},
    optional={
        "header": st.booleans(),
        "missing_labels": st.sampled_from(["raise", "keep"]),
        "na_values": st.sampled_from(["?", -9999, ["a", "?"]]),
        "keep_default_na": st.booleans(),
        "dtype": st.sampled_from(["float32", "int8", "uint64", "bool"]).map(np.dtype),
        "columns": st.integers(-2, 1).map(lambda column: [column]),
    },
)


@given(seed=st.integers(0, 2**32), block=st.sampled_from([16, 40, 1 << 20]), options=OPTIONS)
@settings(max_examples=150)
def test_both_readers_agree(tmp_path, monkeypatch, seed, block, options):
    monkeypatch.setattr(arrowtext, "_BLOCK", block)
    monkeypatch.setattr(arrowtext, "_ROWS", 1)
    chosen = random.Random(seed)  # hypothesis would be slow to draw so many fields
    width, common = chosen.randint(1, 3), chosen.choice([1, 8, 40])

    def row():
        fields = [chosen.choice(NUMBERS[:4] * common + NUMBERS) for _ in range(width)]
        fields.append(chosen.choice(TEXTS[:4] * common + TEXTS))
        return fields[chosen.random() < 0.02 :]

    header = [["a", "b", "c", "d"][: width + 1]] if chosen.random() < 0.4 else []
    end = chosen.choice(["\n", "\r\n", "\r", "\n\n"])
    rows = header + [row() for _ in range(chosen.randint(0, 9))]
    content = end.join(map(",".join, rows)) + chosen.choice(["", end])
    path = tmp_path / "rows.csv"
    bom = chosen.choice([b"", b"", b"\xef\xbb\xbf"])
    path.write_bytes(bom + content.encode() + chosen.choice([b"", b"", b"", b"\xff", b'"']))
    by_both(path, **options)


def test_plain_tables_are_read_by_pyarrow(tmp_path):
    text = 'a,b,"the kind"\n1.5,,ant\n"2",NA,bee\n+3,  -4,"no,""wasp"""\n'
    for name, content in [
        ("a.csv", text.encode()),
        ("b.csv.gz", gzip.compress(text.encode())),
        ("c.tsv", text.replace(",", "\t").replace("\n", "\r\n").encode("utf-8-sig")),
        ("d.csv", b",a,k\n0,1,x\n1,2,y\n"),
        ("e.csv", b"1, 2, x\n3, 4, y\n"),
    ]:
        (tmp_path / name).write_bytes(content)
        for options in ({}, {"dtype": np.dtype("f4")}):
            (_, _, values), by_python = by_both(tmp_path / name, labelled=True, **options)
            assert not by_python
            assert len(values) == 2
    (tmp_path / "spaces.txt").write_text("1  2  x\n3  4  y\n")
    assert by_both(tmp_path / "spaces.txt", labelled=True)[1]


def test_python_reads_on_from_where_pyarrow_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(arrowtext, "_BLOCK", 64)
    rows = [(n, n / 2, "x") for n in range(200)]
    rows[150] = ("1٣", 0, "x")  # a digit three, which Python reads
    path = write_csv(tmp_path / "rows.csv", rows)
    _, by_python = by_both(path, labelled=True)
    assert by_python == [True]
    rows[160] = (0, "four", "x")
    path = write_csv(tmp_path / "rows.csv", rows)
    assert "line 161: field 2 is not a number: 'four'" in by_both(path, labelled=True)[0]


# --- progress and memory ------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_progress_from_the_start(tmp_path, reader, monkeypatch, suffix):
    monkeypatch.setattr(arrowtext, "_BLOCK", 2048)
    monkeypatch.setattr(textrows, "_FIELDS", 500)
    values = np.random.default_rng(0).normal(size=(4000, 5)).round(4)
    path = write_csv(tmp_path / f"rows.{suffix}", values.tolist())
    reports = []
    converted(path, chunk_rows=200, progress=lambda *report: reports.append(report))
    done, totals = zip(*reports, strict=True)
    assert done == tuple(range(200, 4001, 200))
    assert totals[-1] == pytest.approx(4000, rel=0.01)
    if suffix == "csv":  # of a small file that is compressed, much is read at once
        assert 2000 < np.median(totals[4:]) < 6000


def test_memory_is_bounded(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(arrowtext, "_BLOCK", 1 << 14)
    monkeypatch.setattr(textrows, "_FIELDS", 1 << 12)
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"0.123456,0.5,1,2,3,4,5,6,kind\n" * 16_000))
    n_bytes = 16_000 * 8 * 8  # of the rows
    by_arrow, before = [], pyarrow.total_allocated_bytes()

    def progress(*_):
        by_arrow.append(pyarrow.total_allocated_bytes() - before)

    def converting():
        convert(path, tmp_path / "out", chunk_rows=500, progress=progress, overwrite=True)

    assert_peak_below(0.8 * n_bytes, converting)
    assert max(by_arrow) < 0.2 * n_bytes
