"""Tables of text: one reader for `open_store`, `convert` and every command."""

from __future__ import annotations

import numpy as np
import pytest
import zarr
from dataset_files import X, Y, check, write_csv
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamgda import accumulate, open_store
from streamgda.datasets import convert
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError

pytest.importorskip("pyarrow")

NAN = np.nan
NAMES = ("id", "a", "b", "c", "kind")
ROWS = ((7, 1, 2, 3, "x"), (9, 4, 5, 6, "y"), (8, 7, 8, 9, "x"))
KINDS = ["x", "y", "x"]


def table(path, **options):
    """Rows and labels as lists, which `convert` and `open_store` read alike."""
    group = convert(path, zarr.storage.MemoryStore(), **options)
    found = group["X"][:].tolist(), group["y"][:].tolist() if "y" in group else None
    if not {"drop", "labels", "dtype", "format", "missing_labels"} & {*options}:
        text = {k: v for k, v in options.items() if k not in ("label", "features")}
        label, columns = options.get("label", -1), options.get("features")
        rows, labels = open_store(path, label=label, features=columns, **text)
        np.testing.assert_array_equal(rows[:], found[0])
        assert labels[:].tolist() == found[1]
        assert rows.feature_names == (
            group["X"].attrs.get("feature_names") and (*group["X"].attrs["feature_names"],)
        )
    return found


def written(tmp_path, text, name="rows.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# --- dialects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["r.csv", "r.TSV", "r.txt", "r.data", "r.csv.gz", "r.tsv.gz"])
def test_names_of_tables(tmp_path, name):
    path = write_csv(tmp_path / name, [NAMES, *ROWS], "\t" if "tsv" in name.lower() else ",")
    assert table(path) == ([list(row[:-1]) for row in ROWS], KINDS)


@pytest.mark.parametrize("name", ["rows", "rows.parquet", "a.npy", "train.idx"])
def test_format_of_any_other_name(tmp_path, name):
    path = write_csv(tmp_path / name, [NAMES, *ROWS])
    assert table(path, format="csv") == ([list(row[:-1]) for row in ROWS], KINDS)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("1;2.5;3\n4;5;6\n", {}),
        ("1|2.5|3\n4|5|6\n", {}),
        ("1\t2.5\t3\n4\t5\t6\n", {}),
        ("1, 2.5, 3\n4, 5, 6\n", {}),
        ("\n1,2.5,3\r\n\r\n4,5,6", {}),
        ("1:2.5:3\n4:5:6\n", {"delimiter": ":"}),
        ("1;2,5;3\n4;5,0;6\n", {"decimal": ","}),
        ("1;2,5;3,0\n4;5;6\n", {"decimal": ",", "delimiter": ";"}),
        ('"a,b,c";"d, e";kind\n1;2.5;3\n4;5;6\n', {}),
        ('"a;b;c"\t"d;e"\tkind\n1\t2.5\t3\n4\t5\t6\n', {}),
        ("# made today\n1,2.5,3\n# half-way\n4,5,6\n", {"comment": "#"}),
        ("\ufeff1,2.5,3\n4,5,6\n", {}),
        ("a,b,kind\n1,2.5,3\n4,5,6\n".encode("utf-16"), {"encoding": "utf-16"}),
    ],
)
def test_dialects(tmp_path, text, options):
    assert table(written(tmp_path, text), **options) == ([[1, 2.5], [4, 5]], [3, 6])


@pytest.mark.parametrize(
    ("labels", "kinds"),
    [
        (["1.5", "2"], ["1.5", "2"]),
        (["1,5", "2"], [1.5, 2.0]),
        (["1.000", "2,5"], ["1.000", "2,5"]),
    ],
)
def test_labels_have_the_decimal_mark_of_the_text(tmp_path, labels, kinds):
    path = written(tmp_path, f"a;kind\n1,5;{labels[0]}\n2;{labels[1]}\n")
    assert table(path, decimal=",", delimiter=";") == ([[1.5], [2]], kinds)


def test_spaces_and_quotation_marks(tmp_path):
    path = written(tmp_path, '"a", b,"the kind"\n1, 2,"no, ""wasp"""\n 3 ,4,  ant \n')
    assert table(path, label="the kind") == ([[1, 2], [3, 4]], ['no, "wasp"', "ant"])


def test_other_encodings_are_named(tmp_path):
    path = written(tmp_path, "a,kind\n1,é\n2,x\n".encode("latin-1"))
    with pytest.raises(SourceError, match="is not UTF-8; encoding= names another one"):
        table(path)
    assert table(path, encoding="latin-1") == ([[1], [2]], ["é", "x"])
    late = b"a,kind\n" + b"1,x\n" * 50_000 + b"2,\xe9\n"
    with pytest.raises(SourceError, match=r"line \d+ is not UTF-8"):
        table(written(tmp_path, late))


# --- header, columns and labels -----------------------------------------------------------------


def test_a_first_line_of_names(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, 2, "x")])
    assert table(path) == table(path, header=True) == ([[1, 2]], ["x"])
    bare = write_csv(tmp_path / "bare.csv", [(1, 2, "x"), (3, 4, "y")])
    assert table(bare) == table(bare, header=False) == ([[1, 2], [3, 4]], ["x", "y"])
    assert table(bare, header=True) == ([[3, 4]], ["y"])
    with pytest.raises(SourceError, match=r"no column .y. of labels, but 0, 1, 2 .its first line"):
        open_store(bare)


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({"drop": "id"}, [1, 2, 3]),
        ({"drop": ["b", -5]}, [1, 3]),
        ({"drop": [slice(1, 3)]}, [0, 3]),
        ({"features": ["a", "c"]}, [1, 3]),
        ({"features": ["c", 1]}, [3, 1]),
        ({"features": slice(1, None)}, [1, 2, 3]),
        ({"features": [slice(0, 3), 2]}, [0, 1, 2]),
        ({"features": slice(0, 4), "drop": "a"}, [0, 2, 3]),
        ({"features": np.arange(1, 3)}, [1, 2]),
    ],
)
def test_chosen_columns(tmp_path, options, features):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    found = convert(path, zarr.storage.MemoryStore(), **options)
    assert found["X"][:].tolist() == [[row[f] for f in features] for row in ROWS]
    assert found["X"].attrs["feature_names"] == [NAMES[f] for f in features]
    assert found["y"][:].tolist() == KINDS


def test_the_label_is_the_last_column_that_is_left(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    assert table(path, drop="kind") == ([[7, 1, 2], [9, 4, 5], [8, 7, 8]], [3, 6, 9])
    assert table(path, drop="kind", labels=KINDS)[0] == [list(row[:-1]) for row in ROWS]
    assert table(path, label="a", features=["b"]) == ([[2], [5], [8]], [1, 4, 7])


@pytest.mark.parametrize("first", ["", "Unnamed: 0"])
def test_an_index_that_pandas_wrote_is_no_feature_in_silence(tmp_path, first):
    path = write_csv(tmp_path / "rows.csv", [(first, "a", "kind"), (0, 5, "x"), (1, 6, "y")])
    with pytest.raises(SourceError, match=r"a column without a name.*features=.*drop="):
        table(path)
    assert table(path, features=["a"]) == ([[5], [6]], ["x", "y"])
    assert table(path, drop=0) == ([[5], [6]], ["x", "y"])
    assert table(path, features=[0, 1]) == ([[0, 5], [1, 6]], ["x", "y"])


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["10", "-2", "0"], [10, -2, 0]),
        (["1", "01", "001"], ["1", "01", "001"]),
        (["1.5", "01.5", "0"], ["1.5", "01.5", "0"]),
        (["-0.5", "+0", ".5"], [-0.5, 0.0, 0.5]),
        (["1", "2.5", "1e3"], [1.0, 2.5, 1000.0]),
        (["1", "2.5", "x"], ["1", "2.5", "x"]),
        (["1000", "1e3", " 1000 "], [1000.0] * 3),
        (["1", "2", "1_0"], ["1", "2", "1_0"]),
        (["1", "2", "0x1"], ["1", "2", "0x1"]),
        (["1", "2", "inf"], ["1", "2", "inf"]),
        (["true", "False", "TRUE"], [True, False, True]),
        (["2020-01-02", "2020-01-03", "x"], ["2020-01-02", "2020-01-03", "x"]),
        (["0", "9223372036854775808", "9223372036854775809"], [0, 2**63, 2**63 + 1]),
        (["0", "-1", "9223372036854775808"], ["0", "-1", "9223372036854775808"]),
        (
            ["0", "9007199254740993.0", "9007199254740992"],
            ["0", "9007199254740993.0", "9007199254740992"],
        ),
    ],
)
def test_kinds_of_labels_are_those_of_all_rows(tmp_path, texts, values):
    path = write_csv(tmp_path / "rows.csv", [("a", "kind"), *((0.5, text) for text in texts)])
    found = table(path)[1]
    assert found == values
    assert [*map(type, found)] == [*map(type, values)]
    head, *last = path.read_text().splitlines(keepends=True)
    path.write_text(head + last[0] * 300_000 + "".join(last))  # more than a block
    assert open_store(path, label="kind")[1][-3:].tolist() == values


@pytest.mark.parametrize("second", [[("a", "kind"), (2, "x")], [("kind", "a"), ("x", 2)]])
def test_labels_of_several_files(tmp_path, second):
    write_csv(tmp_path / "1.csv", [("a", "kind"), (1, 7)])
    write_csv(tmp_path / "2.csv", second)
    rows, labels = open_store(tmp_path, label="kind")
    assert (rows[:].tolist(), labels[:].tolist()) == ([[1], [2]], ["7", "x"])


@pytest.mark.parametrize("empty", ["", "\n\n", "a,kind", "a,kind\n\n", "kind,b,a\r\n"])
def test_files_of_a_folder_may_be_empty(tmp_path, empty):
    for number, text in enumerate([empty, "a,kind\n1,7\n", empty, "a,kind\n2,8\n", empty]):
        (tmp_path / f"{number}.csv").write_text(text)
    rows, labels = open_store(tmp_path, label="kind")
    assert (rows[:].tolist(), labels[:].tolist()) == ([[1], [2]], [7, 8])
    for number in (1, 3):
        (tmp_path / f"{number}.csv").write_text(empty)
    with pytest.raises(SourceError, match="has no rows: all of its files are empty"):
        open_store(tmp_path, label="kind")
    with pytest.raises(SourceError, match=r"has no rows: it is empty|has a header but no rows"):
        open_store(tmp_path / "0.csv", label="kind")


@pytest.mark.parametrize(
    ("first", "second", "labels"),
    [
        ("7", "7.0", [7.0, 7.0]),
        ("1.5", "-3", [1.5, -3.0]),
        ("7", "18446744073709551615", [7, 2**64 - 1]),
        ("-7", "18446744073709551615", ["-7", "18446744073709551615"]),
        ("7", "true", ["7", "true"]),
        ("NA", "true", [None, True]),
    ],
)
def test_labels_of_several_files_have_one_type(tmp_path, first, second, labels):
    for texts in ((first, second), (second, first)):
        for number, text in enumerate(texts):
            write_csv(tmp_path / f"{number}.csv", [("a", "kind"), (1, text)])
        found = open_store(tmp_path, label="kind")[1][:].tolist()
        labels = labels if texts[0] == first else labels[::-1]
        assert [*map(repr, found)] == [*map(repr, labels)]


# --- missing values -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "NA", "nan", "NaN", "null", "None", "n/a", "<NA>", " NA "])
def test_missing_features_are_nan(tmp_path, text):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, text, "x"), (text, 4, "y")])
    check(convert(path, tmp_path / "out"), np.array([[1, NAN], [NAN, 4]]), ["x", "y"])


def test_more_markers(tmp_path):
    rows = [("a", "b", "kind"), (1, "?", "x"), (-9999, 4, "-9999"), ("-9999.0", "NA", "?")]
    path = write_csv(tmp_path / "rows.csv", rows)
    for markers in (["?", -9999], ["?", "-9999"], ("?", -9999.0)):
        group = convert(path, zarr.storage.MemoryStore(), na_values=markers, missing_labels="keep")
        check(
            group,
            np.array([[1, NAN], [NAN, 4], [NAN, NAN]]),
            ["x", "" if "-9999" in map(str, markers) else "-9999", ""],
        )
    with pytest.raises(InvalidDataError, match="column 'b' holds string; features are numbers"):
        table(path, na_values="?", keep_default_na=False)


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        (["7", "", "8"], np.array([7, NAN, 8])),
        (["7", "8.5", "NA"], np.array([7, 8.5, NAN])),
        (["", "ant", "NA"], ["", "ant", ""]),
    ],
)
def test_missing_labels_are_kept_if_asked(tmp_path, texts, labels):
    rows = [("a", "kind"), *((n, text) for n, text in enumerate(texts))]
    path = write_csv(tmp_path / "rows.csv", rows)
    group = convert(path, tmp_path / "out", missing_labels="keep")
    np.testing.assert_array_equal(group["y"][:], labels)
    assert dict(group["y"].attrs) == ({"missing_label": ""} if isinstance(labels, list) else {})
    with pytest.raises(SourceError, match=r"the label of row \d is missing; missing_labels='keep'"):
        convert(path, tmp_path / "other")
    if "8.5" in texts:
        return
    for rows, y in ((group["X"], group["y"]), open_store(path, label="kind")):
        moments = accumulate(rows, y, covariance_type="diag", on_invalid="skip")
        assert moments.n_skipped == sum(text in ("", "NA") for text in texts)


# --- types --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        ("uint8", ["0", "255", " 7 ", "7.0", "2e2"]),
        ("int64", ["9007199254740993", "-9223372036854775808"]),
        ("uint64", ["18446744073709551615"]),
        ("float32", ["0.1", "nan", "-inf", "3.4e38"]),
        ("bool", ["0", "1", "1.0"]),
    ],
)
def test_values_are_read_as_the_type(tmp_path, dtype, texts):
    path = write_csv(tmp_path / "rows.csv", [[text] for text in texts])
    X = convert(path, tmp_path / "out", dtype=dtype, labels=False, header=False)["X"]
    assert X.dtype == dtype
    exact = [int(t) if t.strip("+-").isdigit() else float(t) for t in texts]
    np.testing.assert_array_equal(X[:, 0], np.array(exact).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "text"),
    [("uint8", "256"), ("uint8", "0.5"), ("int16", "1e5"), ("float32", "1e39"), ("bool", "2")],
)
def test_values_that_do_not_fit_are_refused(tmp_path, dtype, text):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, 1, "x"), (1, text, "y")])
    with pytest.raises(InvalidDataError, match=f"in row 1, that are not {dtype} without loss"):
        convert(path, tmp_path / "out", dtype=dtype)
    assert list(tmp_path.iterdir()) == [path]


@given(
    values=hnp.arrays(float, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6)),
    data=st.data(),
)
@settings(max_examples=25)
def test_round_trip(tmp_path, values, data):
    text = st.text(
        st.characters(codec="utf-8", exclude_characters="\0\n\r\x85\u2028\u2029"), min_size=1
    )
    text = text.filter(lambda t: t == t.strip() and t[0] not in '\ufeff"' and '"' not in t)
    names = [f"k {data.draw(text)}" for _ in values]
    column = data.draw(st.integers(0, values.shape[1]))
    rows = [
        [*row[:column], name, *row[column:]]
        for row, name in zip(values.tolist(), names, strict=True)
    ]
    path = write_csv(tmp_path / "data.csv", rows)
    found = table(path, label=column, header=False, missing_labels="raise")
    np.testing.assert_array_equal(found[0], values)
    assert found[1] == [" ".join(name.split(" ")) for name in names]


def test_a_line_ends_only_where_a_line_feed_or_a_carriage_return_is(tmp_path):
    """Python's own `splitlines` also ends lines at some control characters."""
    for ending in ("\n", "\r\n", "\r"):
        path = written(tmp_path, ending.join(["a\x1eb,kind\x0b", "1,x\x1cy", "2,z\u2028z"]))
        assert table(path) == ([[1], [2]], ["x\x1cy", "z\u2028z"])


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b,c\n1,2,x\n1,2,3,x\n", {}, "line 3: 4 fields, the first line has 3"),
        ("1,2,x\n\n\n1,x\n", {}, "line 4: 2 fields, the first line has 3"),
        ("# 1\n1,2,x\n# 2\n1,x\n", {"comment": "#"}, "line 4: 2 fields, the first line has 3"),
        (
            "a,b,c\n" + "1,2,x\n" * 200_000 + "1,two,x\n",
            {},
            "line 200002: column 'b' is not a number: 'two'",
        ),
        ('1,2,x\n1,2,"x\n1,2,x\n', {}, "line 2: a quotation mark is opened and not closed"),
        ('1,2,x\n1,2,"x\ny"\n1,2,x\n', {}, "line 2: a quotation mark is closed in another line"),
        ("a,a\n1,x\n", {}, "several columns named a; rename them"),
        ("a,b\n1,x\n", {"label": "c"}, "no column 'c' of labels, but a, b"),
        ("a,b\n", {}, "a header but no rows"),
        ("", {}, "has no rows: it is empty"),
    ],
)
def test_errors_name_the_line(tmp_path, text, options, message):
    path = written(tmp_path, text)
    with pytest.raises(SourceError, match=message) as caught:
        convert(path, tmp_path / "out", **options)
    assert str(path) in str(caught.value)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"drop": "d"}, SourceError, "no column 'd' for drop; it has id, a, b, c, kind"),
        ({"drop": 5}, InvalidParameterError, "drop=5; expected names or numbers of the 5 columns"),
        ({"drop": [True, False]}, InvalidParameterError, "expected names or numbers of the 5 col"),
        ({"features": 1.5}, InvalidParameterError, "features=1.5; expected names or numbers"),
        ({"drop": "kind", "label": 4}, InvalidParameterError, "among the columns to drop"),
        ({"drop": slice(0, 4)}, InvalidParameterError, "features are none at all"),
        ({"label": 0.5}, InvalidParameterError, "label=0.5; expected names or numbers"),
        ({"format": "xls"}, InvalidParameterError, "format='xls'; expected 'csv'"),
        ({"delimiter": '"'}, InvalidParameterError, "delimiter='\"'; expected a character"),
        ({"encoding": "latin-99"}, InvalidParameterError, "encoding='latin-99'; expected the name"),
        ({"na_values": [None]}, InvalidParameterError, r"na_values=.*; expected texts or numbers"),
        ({"missing_labels": "skip"}, InvalidParameterError, "expected 'raise' or 'keep'"),
        ({"labels": KINDS, "label": 0}, InvalidParameterError, "expected one of them"),
        ({"column": 2}, TypeError, "unexpected keyword argument 'column'"),
    ],
)
def test_unusable_options(tmp_path, options, error, match):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    with pytest.raises(error, match=match):
        convert(path, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == [path]


def test_options_of_tables_are_refused_elsewhere(tmp_path):
    for options in ({"features": [0]}, {"drop": 0}, {"encoding": "utf-8"}):
        with pytest.raises(InvalidParameterError, match=f"{next(iter(options))} given; expected"):
            convert(np.eye(2), zarr.storage.MemoryStore(), **options)
    group = zarr.create_group(tmp_path / "rows.zarr")
    group["X"], group["y"] = X, Y
    with pytest.raises(InvalidParameterError, match="decimal=',' does not apply to"):
        open_store(tmp_path / "rows.zarr", decimal=",")


@pytest.mark.parametrize("name", ["a.h5", "a.nc", "a.h5ad", "a.mat", "a.jsonl", "a.npz", "a.xlsx"])
def test_files_of_other_kinds_are_named(tmp_path, name):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(SourceError, match=rf"{name} is .*: pass "):
        open_store(tmp_path / name)
