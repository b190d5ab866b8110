"""Data frames: types of columns, nulls, names, columns of lists, and what cannot be rows."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest

from streamgda import GaussianNB, accumulate
from streamgda.errors import InvalidDataError
from streamgda.rows.source import as_source

pa = pytest.importorskip("pyarrow")
FRAMES = {
    "pandas": pd.DataFrame,
    "nullable": lambda columns: pd.DataFrame(columns).convert_dtypes(),
    "pandas of Arrow": lambda columns: pd.DataFrame(columns).convert_dtypes(
        dtype_backend="pyarrow"
    ),
    "polars": pl.DataFrame,
    "arrow": pa.table,
}
EVERY = pytest.mark.parametrize("kind", FRAMES)


def read(frame, start=0, stop=None):
    source = as_source(frame)
    rows = source.read(start, source.n_rows if stop is None else stop)
    assert rows.dtype == source.dtype
    assert rows.flags.c_contiguous
    return rows


@EVERY
@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": [1, 2, 3], "b": [4, 5, 6]}, "i8"),
        ({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]}, "f8"),
        ({"a": [True, False, True], "b": [0.5, 1.5, 2.5]}, "f8"),
        ({"a": [1, None, 3], "b": [4, 5, 6]}, "f8"),
        ({"a": [True, None, False], "b": [4, 5, 6]}, "f8"),
        ({"a": [0.5, None, 1.5], "b": [None, 5.5, 6.5]}, "f8"),
    ],
)
def test_columns_of_numbers(kind, columns, dtype):
    if kind == "pandas" and columns["a"] == [True, None, False]:
        columns = {name: np.array(values, object) for name, values in columns.items()}
    expected = np.column_stack([np.array(values, float) for values in columns.values()])
    frame = FRAMES[kind](columns)
    found = read(frame)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype
    np.testing.assert_array_equal(read(frame, 1, 2), expected[1:2])
    kept = np.isfinite(expected).all(axis=1)
    moments = accumulate(frame, [0, 1, 0], on_invalid="skip", covariance_type="diag")
    assert moments.class_count.sum() == kept.sum()
    assert moments.feature_names == ("a", "b")


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
def test_exact_and_single_columns_keep_their_type(dtype):
    X = np.arange(12).reshape(4, 3).astype(dtype)
    for frame in (pd.DataFrame(X), pl.DataFrame(X), pa.table([*X.T], [*"abc"])):
        assert read(frame).dtype == dtype
        np.testing.assert_array_equal(read(frame), X)
    mixed = pd.DataFrame({"a": X[:, 0], "b": X[:, 1].astype("i8")})
    assert read(mixed).dtype == np.result_type(np.dtype(dtype), np.int64)


@EVERY
@pytest.mark.parametrize("values", [["x", "y"], [datetime.date(2024, 1, 1)] * 2, [b"x", b"y"]])
def test_columns_that_are_not_numbers_are_named(kind, values):
    frame = FRAMES[kind]({"a": [1.0, 2.0], "b": values})
    with pytest.raises(InvalidDataError, match=r"not real numbers: 'b' |not numbers, in col"):
        accumulate(frame, [0, 1])
    labels = frame.iloc[:, 1] if hasattr(frame, "iloc") else frame["b"]
    if values[0] != b"x":
        rows = frame[["a"]] if not isinstance(frame, pa.Table) else frame.select(["a"])
        assert accumulate(rows, labels).feature_names == ("a",)


UNUSABLE = [
    (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "several columns with the same name"),
    (pd.DataFrame({"a": [1j, 2j]}), "Complex data not supported.*'a'"),
    (pl.LazyFrame({"a": [1.0]}), "has no rows: it is LazyFrame|2D array"),
    (pd.DataFrame({"a": np.array([1, "x"], object), "b": [1, 2]}), "not numbers, in column 'a'"),
    (pl.Series([[1.0, 2.0], [5.0]]), "row 1 holds 1 values; expected 2 a row"),
    (pd.Series([[1.0, 2.0], None]), "row 1 holds 0 values"),
]


@pytest.mark.parametrize(("frame", "message"), UNUSABLE)
def test_other_frames_that_cannot_be_used(frame, message):
    with pytest.raises(InvalidDataError, match=message):
        accumulate(frame, [0, 1])


def test_frames_without_names_and_of_decimals():
    with pytest.raises(InvalidDataError, match="columns some of whose names are strings"):
        GaussianNB().fit(pd.DataFrame({"a": [1.0, 2.0], 1: [1.0, 3.0]}), [0, 1])
    assert accumulate(pd.DataFrame(np.eye(2)), [0, 1]).feature_names is None
    decimals = pd.DataFrame({"a": [Decimal(1), Decimal(2)], "b": [1, 2]})
    np.testing.assert_array_equal(read(decimals), [[1, 1], [2, 2]])


EMBEDDINGS = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([*EMBEDDINGS]),
        pd.DataFrame({"embedding": EMBEDDINGS.tolist()}),
        pl.DataFrame({"embedding": EMBEDDINGS.tolist()}),
        pl.Series(EMBEDDINGS, dtype=pl.Array(pl.Float64, 3)),
        pa.table({"embedding": EMBEDDINGS.tolist()}),
    ],
    ids=["series", "pandas", "polars", "array", "arrow"],
)
def test_a_column_of_lists_holds_rows(column):
    np.testing.assert_array_equal(read(column), EMBEDDINGS)
    np.testing.assert_array_equal(read(column, 2, 3), EMBEDDINGS[2:3])
    moments = accumulate(column, [0, 1, 0, 1])
    assert moments.feature_names is None
    np.testing.assert_array_equal(moments.means, [[3, 4, 5], [6, 7, 8]])
