"""Tables of text with any name and separator, and choices of their columns and types."""

import io
import warnings

import numpy as np
import pandas as pd
import pytest
import zarr
from dataset_files import write_csv

from streamgda.datasets import convert
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError

NAMES = ("id", "a", "b", "c", "kind")
ROWS = ((7, 1, 2, 3, "x"), (9, 4, 5, 6, "y"), (8, 7, 8, 9, "x"))
KINDS = ["x", "y", "x"]


def arrays(path, **options):
    group = convert(path, zarr.storage.MemoryStore(), **options)
    return group["X"][:].tolist(), group["y"][:].tolist() if "y" in group else None


# --- names and separators ---------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt", "data", "dat", "trn", "tst", "test"])
@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_names_of_tables(tmp_path, suffix, zipped):
    delimiter = "\t" if suffix == "tsv" else ","
    path = write_csv(tmp_path / f"rows.{suffix.upper()}{zipped}", [NAMES, *ROWS], delimiter)
    assert arrays(path) == ([list(row[:-1]) for row in ROWS], KINDS)


@pytest.mark.parametrize("name", ["rows", "rows.parquet", "a.npy", "train.idx"])
def test_format_of_any_other_name(tmp_path, name):
    path = write_csv(tmp_path / name, [NAMES, *ROWS])
    assert arrays(path, format="csv") == ([list(row[:-1]) for row in ROWS], KINDS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.trn", "1 2.5 3\n4 5 6\n"),
        ("rows.data", "   1   2.5    3  \r\n\n   4\t 5    6\t\r\n"),
        ("rows.txt", "1\t2.5\t3\n4\t5\t6\n"),
        ("rows.csv", "1;2.5;3\n4;5;6\n"),
        ("rows.csv", '"a b";"b";"kind"\n1;2.5;3\n4;5;6\n'),
        ("rows.csv", "1\t2.5\t3\n4\t5\t6\n"),
        ("rows.tst", "a b kind\n1 2.5 3\n4 5 6\n"),
        ("rows.data", "1, 2.5, 3\n4, 5, 6\n"),
    ],
)
def test_the_separator_is_in_the_first_line(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert arrays(tmp_path / name) == ([[1, 2.5], [4, 5]], [3, 6])


def test_labels_between_quotes_keep_their_spaces(tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("1  2 \"New   York\"\n3 4   'x'\n")
    assert arrays(path) == ([[1, 2], [3, 4]], ["New   York", "'x'"])


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt"])
def test_one_column(tmp_path, name):
    (tmp_path / name).write_text("length\n1.5\n2.5\n")
    assert arrays(tmp_path / name, labels=False) == ([[1.5], [2.5]], None)


def test_a_csv_file_is_never_separated_by_spaces(tmp_path):
    (tmp_path / "rows.csv").write_text("sepal length\n1.5\n2.5\n")
    assert arrays(tmp_path / "rows.csv", labels=False) == ([[1.5], [2.5]], None)


@pytest.mark.parametrize("name", ["rows.trn", "rows.txt", "rows.data"])
def test_ragged_lines_are_refused(tmp_path, name):
    (tmp_path / name).write_text("1 2 3\n\n4 5\n")
    with pytest.raises(SourceError, match="line 3: 2 fields, the first line has 3"):
        arrays(tmp_path / name)


# --- columns ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({"drop": "id"}, [1, 2, 3]),
        ({"drop": 0}, [1, 2, 3]),
        ({"drop": ["b", -5]}, [1, 3]),
        ({"drop": [slice(1, 3)]}, [0, 3]),
        ({"columns": ["a", "c"]}, [1, 3]),
        ({"columns": ["c", 1]}, [3, 1]),
        ({"columns": slice(1, None)}, [1, 2, 3]),
        ({"columns": [slice(0, 3), 2]}, [0, 1, 2]),
        ({"columns": slice(0, 4), "drop": "a"}, [0, 2, 3]),
        ({"columns": slice(0, 4), "label_column": "kind"}, [0, 1, 2, 3]),
        ({"columns": np.arange(1, 3)}, [1, 2]),
    ],
)
def test_chosen_columns(tmp_path, options, features):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    assert arrays(path, **options) == ([[row[f] for f in features] for row in ROWS], KINDS)


def test_the_label_is_the_last_column_that_is_left(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    assert arrays(path, drop="kind") == ([[7, 1, 2], [9, 4, 5], [8, 7, 8]], [3, 6, 9])
    assert arrays(path, drop="kind", labels=KINDS)[0] == [list(row[:-1]) for row in ROWS]


def test_text_in_columns_that_are_left_out(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [("no", 1, "?", "x"), ("none", 2, "?", "y")])
    assert arrays(path, drop=[0, 2]) == ([[1], [2]], ["x", "y"])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"drop": "d"}, SourceError, "0 columns named 'd'; its first line is id, a, b, c, kind"),
        ({"drop": 5}, InvalidParameterError, "one of 5 columns, not 5"),
        ({"drop": [True, False]}, InvalidParameterError, "one of 5 columns, not True"),
        ({"drop": slice(5, 9)}, InvalidParameterError, "selects none of the 5 columns"),
        ({"drop": slice("a", "b")}, InvalidParameterError, "expected a slice of integers"),
        ({"columns": 1.5}, InvalidParameterError, "columns=1.5; expected names, indices"),
        ({"drop": "kind", "label_column": 4}, InvalidParameterError, "among the columns to drop"),
        ({"columns": "kind"}, SourceError, "no columns of features: columns='kind', drop=None"),
        ({"drop": slice(0, 4)}, SourceError, "no columns of features"),
        ({"format": "xls"}, InvalidParameterError, "format='xls'; expected 'csv'"),
        ({"keep_index": 2}, InvalidParameterError, "keep_index=2; expected True or False"),
        ({"delimiter": '"'}, InvalidParameterError, "delimiter must be one character"),
        ({"column": 2}, TypeError, "unexpected keyword argument 'column'"),
    ],
)
def test_unusable_choices(tmp_path, options, error, match):
    path = write_csv(tmp_path / "rows.csv", [NAMES, *ROWS])
    with pytest.raises(error, match=match):
        convert(path, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == [path]


def test_options_of_text_are_refused_elsewhere():
    for options in ({"columns": [0]}, {"drop": 0}, {"keep_index": True}, {"format": "csv"}):
        with pytest.raises(InvalidParameterError, match=f"{next(iter(options))} given; expected"):
            convert(np.eye(2), zarr.storage.MemoryStore(), **options)


# --- an index without a name ------------------------------------------------------------------


def frame_file(path, index):
    frame = pd.DataFrame({"a": [1.0, 2, 3], "kind": KINDS}, index=index)
    text = io.StringIO()
    frame.to_csv(text)
    path.write_text(text.getvalue())
    return path


@pytest.mark.parametrize("start", [0, 1])
def test_an_unnamed_index_is_left_out(tmp_path, start):
    path = frame_file(tmp_path / "rows.csv", range(start, start + 3))
    with pytest.warns(UserWarning, match=f"numbers the rows from {start}: it is left out"):
        assert arrays(path) == ([[1], [2], [3]], KINDS)
    kept = [[start, 1], [start + 1, 2], [start + 2, 3]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert arrays(path, keep_index=True) == (kept, KINDS)
        assert arrays(path, columns=[0, 1]) == (kept, KINDS)
        assert arrays(path, drop=0) == ([[1], [2], [3]], KINDS)
        assert arrays(path, drop=[1, 2], labels=False, keep_index=True)[0] == [k[:1] for k in kept]


def test_an_unnamed_column_of_other_numbers_is_kept(tmp_path):
    path = frame_file(tmp_path / "rows.csv", [0, 2, 1])
    with pytest.warns(UserWarning, match="does not number the rows: it is kept; drop=0"):
        assert arrays(path) == ([[0, 1], [2, 2], [1, 3]], KINDS)


def test_a_named_column_of_row_numbers_is_a_feature(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [("n", "a", "kind"), (0, 5, "x"), (1, 6, "y")])
    assert arrays(path) == ([[0, 5], [1, 6]], ["x", "y"])
    assert arrays(path, header=True, drop="a") == ([[0], [1]], ["x", "y"])


def test_nothing_but_an_index(tmp_path):
    path = write_csv(tmp_path / "rows.csv", [("", "kind"), (0, "x"), (1, "y")])
    with pytest.raises(SourceError, match="no columns of features beside the numbers"):
        arrays(path)


# --- types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "texts"),
    [
        ("uint8", ["0", "255", " 7 ", "7.0", "2e2"]),
        ("int16", ["-32768", "32767", "+5", "-0.0"]),
        ("int64", ["9007199254740993", "-9223372036854775808"]),
        ("uint64", ["18446744073709551615"]),
        ("float32", ["0.1", "nan", "-inf", "3.4e38"]),
        ("float64", ["0.1", "1e308"]),
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
    [
        ("uint8", "256"),
        ("uint8", "-1"),
        ("uint8", "0.5"),
        ("uint8", "nan"),
        ("int16", "1e5"),
        ("int64", "9223372036854775808"),
        ("int64", "inf"),
        ("float32", "1e39"),
        ("float16", "70000"),
        ("bool", "2"),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path, dtype, text):
    path = write_csv(tmp_path / "rows.csv", [("a", "b", "kind"), (1, 1, "x"), (1, text, "y")])
    with pytest.raises(SourceError, match=f"line 3: field 2 does not fit {dtype}: '{text}'"):
        convert(path, tmp_path / "out", dtype=dtype)
    assert list(tmp_path.iterdir()) == [path]


def test_other_casts_name_the_rows(tmp_path):
    with pytest.raises(InvalidDataError, match=r"rows 0 to 1 .*\(float64\).* int8"):
        convert(np.full((2, 1), 200.0), tmp_path / "out", dtype="int8")
