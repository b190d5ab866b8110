"""Labels: kinds, codes, missing ones, sets of them, and errors."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st

from streamgda import ClassMoments, GaussianNB, accumulate
from streamgda.errors import InvalidDataError
from streamgda.rows.labels import as_labels, code

DAYS = np.array(["2024-05-02", "2024-05-01", "2024-05-02"], "M8[D]")
NOON = datetime.datetime(2024, 5, 1, 12)
KINDS = {  # Labels as given, and the sorted classes.
    "integers": ([3, -1, 3], np.array([-1, 3])),
    "bytes": (np.array([250, 3], "u1"), np.array([3, 250], "u1")),
    "big-endian": (np.array([7, 2], ">i4"), np.array([2, 7], ">i4")),
    "integers far apart": ([2**40, -(2**40)], np.array([-(2**40), 2**40])),
    "beyond int64": (
        np.array([2**63 + 3, 2**63 + 1], "u8"),
        np.array([2**63 + 1, 2**63 + 3], "u8"),
    ),
    "booleans": ([True, False], np.array([False, True])),
    "whole floats": ([2.0, 1.0], np.array([1.0, 2.0])),
    "half floats": (np.array([2.0, 1.0], "f2"), np.array([1.0, 2.0], "f2")),
    "long doubles": (np.array([2.0, 1.0], np.longdouble), np.array([1.0, 2.0])),
    "large floats": ([1e15, -1e15], np.array([-1e15, 1e15])),
    "texts": (["b", "a", "b"], np.array(["a", "b"])),
    "texts of objects": (np.array(["bee", "a"], object), np.array(["a", "bee"])),
    "StringDType": (np.array(["bee", "a"], np.dtypes.StringDType()), np.array(["a", "bee"])),
    "integers of objects": (np.array([2, 1], object), np.array([1, 2])),
    "numbers of objects": (np.array([2, 1.0, True], object), np.array([1.0, 2.0])),
    "dates": (DAYS, np.unique(DAYS)),
    "dates of objects": ([datetime.date(2024, 5, 2), datetime.date(2024, 5, 1)], np.unique(DAYS)),
    "times of objects": ([NOON, NOON], np.array([NOON], "M8[us]")),
    "times of pandas": (pd.Series([pd.Timestamp(NOON)] * 2), np.array([NOON], "M8[ns]")),
    "categories": (pd.Categorical(["b", "a", "b"], ["c", "b", "a"]), np.array(["a", "b"])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind):
    y, classes = KINDS[kind]
    coded = code(y)
    np.testing.assert_array_equal(coded.values, classes)
    assert coded.values.dtype.kind == classes.dtype.kind
    assert coded.codes[0] == {"integers": 1, "categories": 1}.get(kind, len(classes) - 1)
    np.testing.assert_array_equal(np.asarray(coded), coded.values[coded.codes])
    known = code(y, coded.values)
    assert known.values is coded.values
    np.testing.assert_array_equal(known.codes, coded.codes)
    np.testing.assert_array_equal(code(coded, coded.values).codes, coded.codes)
    np.testing.assert_array_equal(as_labels(y), np.asarray(coded))


MISSING = {
    "None": ["a", None, "b"],
    "NaN among texts": np.array(["a", np.nan, "b"], object),
    "NaN": [0.0, np.nan, 1.0],
    "NA": pd.array(["a", pd.NA, "b"], dtype="string"),
    "integers and NA": pd.Series([0, None, 1], dtype="Int64"),
    "categories": pd.Categorical(["a", None, "b"], ["b", "a", "z"]),
    "NaT": np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"),
    "Arrow": pa.array(["a", None, "b"]),
    "Arrow dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
    "polars": pl.Series(["a", None, "b"]),
    "polars Enum": pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a", "z"])),
    "pandas": pd.Series(["a", None, "b"], index=[9, 8, 7]),
    "polars dates": pl.Series([NOON.date(), None, NOON.date() + datetime.timedelta(1)]),
    "NaT of pandas": pd.Series(pd.to_datetime(["2020-01-01", None, "2020-01-02"])),
}


@pytest.mark.parametrize("y", MISSING.values(), ids=MISSING)
def test_missing_labels(y):
    assert code(y).missing.tolist() == [False, True, False]
    X = np.array([[0.0], [5.0], [1.0]])
    for learn in (accumulate, GaussianNB().fit, ClassMoments().update):
        with pytest.raises(InvalidDataError, match=r"y\[1\] is missing.*on_invalid='skip'"):
            learn(X, y)
    found = accumulate(X, y, on_invalid="skip")
    assert (found.class_count.tolist(), found.means.tolist()) == ([1, 1], [[0], [1]])
    assert found.classes.tolist() == np.sort(found.classes).tolist()
    assert code([None, np.nan]).values.size == 0


WRONG = {
    "kinds": ([1, "a"], r"labels of several kinds: y\[1\] is 'a'"),
    "kinds of objects": (np.array(["a", "a", 1], object), r"several kinds: y\[2\] is 1"),
    "continuous": ([1.0, 2.5], r"Unknown label type: continuous: y\[1\] is 2.5"),
    "infinite": ([1.0, np.inf], r"continuous: y\[1\] is inf"),
    "floats beyond 2^53": ([1.0, 2.0**60], r"continuous: y\[1\] is"),
    "signs beyond int64": ([2**63, -1], "y"),
    "complex": ([1j], r"Complex data not supported: y\[0\] is 1j"),
    "bytes": ([b"a"], r"bytes \(decode them with astype\(str\)\): y\[0\] is b'a'"),
    "arrays of bytes": (np.array([b"a"]), r"astype\(str\).*: y\[0\] is b'a'"),
    "durations": (DAYS - DAYS[0], "Unknown label type"),
    "time zones": ([NOON.replace(tzinfo=datetime.UTC)], "convert times to UTC"),
    "NUL": (["a\0"], r"no array holds these labels exactly: y\[0\] is 'a\\x00'"),
    "dicts": ([{}], "unhashable"),
    "two axes": ([[1], [2]], r"y has shape \(2, 1\), expected one label a row"),
    "masked": (np.ma.array([1, 2], mask=[0, 1]), r"y is a masked array.*filled"),
    "delayed": (delayed([1, 2]), "dask.delayed"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name):
    y, message = WRONG[name]
    with pytest.raises(InvalidDataError, match=message):
        code(y)
    with pytest.raises(InvalidDataError):
        accumulate(np.ones((2 if name == "delayed" else len(y), 1)), y)


@given(st.lists(st.lists(st.integers(-5, 300), max_size=30), max_size=5), st.sampled_from("ifUO"))
def test_any_batches_give_the_sorted_union(batches, kind):
    moments, every = ClassMoments("diag"), []
    dtype = {"i": "i8", "f": "f8"}.get(kind, "U")
    for batch in batches:
        y = np.array(batch, np.int64).astype(dtype)
        moments.update(np.ones((len(y), 1)), y.astype(object) if kind == "O" else y)
        every += y.tolist()
    assert list(moments.classes if every else []) == sorted(set(every))
    assert list(moments.class_count if every else []) == [every.count(k) for k in sorted({*every})]


SETS = [
    ([1, 2], [2.0, 3.0], [1.0, 2.0, 3.0]),
    ([0], [1 << 40], [0, 1 << 40]),  # These are too far apart for a table.
    (["a"], ["bee"], ["a", "bee"]),
    (DAYS[:1], np.array(["2024-05-01T12"], "M8[h]"), [NOON, NOON + datetime.timedelta(0.5)]),
    ([1], ["a"], None),
    ([2**62 + 1], [0.0], None),
    (np.array([2**63], "u8"), [-1], None),
    (DAYS[:1], [1], None),
]


@pytest.mark.parametrize(("first", "second", "classes"), SETS)
def test_labels_of_several_kinds(first, second, classes):
    moments, other = (ClassMoments("diag").update(np.ones((len(y), 1)), y) for y in (first, second))
    if classes is None:
        with pytest.raises(ValueError, match=r"do not mix|have no common type"):
            moments + other
        with pytest.raises(InvalidDataError, match=r"do not mix|have no common type"):
            moments.update([[1.0]], second)
        return
    assert np.array_equal(
        (moments + other).classes, np.array(classes, (moments + other).classes.dtype)
    )
