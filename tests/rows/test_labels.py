"""Labels: kinds, codes, missing ones, sets of them, and what is refused."""

import datetime

import numpy as np
import pandas as pd
import pytest
from dask import delayed
from hypothesis import given
from hypothesis import strategies as st

from streamgda import ClassMoments, GaussianNB, accumulate
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows import labels
from streamgda.rows.labels import NONE, CodedLabels, as_labels, code, find, join_labels, with_label

DAYS = np.array(["2024-05-02", "2024-05-01", "2024-05-02"], "M8[D]")
NOON = datetime.datetime(2024, 5, 1, 12)
KINDS = {  # what is given, and the sorted classes
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
    "categories": pd.Categorical(["a", None, "b"]),
    "NaT": np.array(["2020-01-01", "NaT", "2020-01-02"], "M8[D]"),
    "NaT of pandas": pd.Series(pd.to_datetime(["2020-01-01", None, "2020-01-02"])),
}


@pytest.mark.parametrize("y", MISSING.values(), ids=MISSING)
def test_missing_labels(y):
    coded = code(y)
    assert coded.missing.tolist() == [False, True, False]
    assert coded.codes.tolist() == [0, -1, 1]
    X = np.array([[0.0], [5.0], [1.0]])
    for learn in (accumulate, GaussianNB().fit, ClassMoments().update):
        with pytest.raises(InvalidDataError, match=r"y\[1\] is missing.*on_invalid='skip'"):
            learn(X, y)
    assert accumulate(X, y, on_invalid="skip").class_count.tolist() == [1, 1]
    assert code([None, np.nan]).values.size == 0


REFUSED = {
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


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    y, message = REFUSED[name]
    with pytest.raises(InvalidDataError, match=message):
        code(y)
    with pytest.raises(InvalidDataError):
        accumulate(np.ones((2 if name == "delayed" else len(y), 1)), y)


def test_errors_count_rows_of_the_larger_array():
    with pytest.raises(InvalidDataError, match=r"groups\[1001\] is 'a'") as error:
        code([1, "a"], NONE, "groups", 1000)
    assert (error.value.array, error.value.row) == ("groups", 1001)


@given(st.lists(st.lists(st.integers(-5, 300), max_size=30), max_size=5), st.sampled_from("ifUO"))
def test_any_batches_give_the_sorted_union(batches, kind):
    known, every, codes = NONE, [], []
    for batch in batches:
        y = np.array(batch, np.int64)
        y = (
            y.astype(str).astype(object)
            if kind == "O"
            else y.astype({"i": "i8", "f": "f8"}.get(kind, "U"))
        )
        coded = code(y, known)
        codes = (
            [find(known, coded.values)[each] for each in codes]
            if coded.values is not known
            else codes
        )
        known = coded.values
        codes.append(coded.codes)
        every += y.tolist()
    assert known.tolist() == sorted(set(every))
    if every:
        assert known[np.concatenate(codes)].tolist() == every


def test_classes_that_are_not_used():
    coded = CodedLabels(np.array([2, -1, 2]), np.array(["a", "b", "c"]))
    assert coded.used().values.tolist() == ["c"]
    assert coded.used().codes.tolist() == [0, -1, 0]
    kept = coded.used(np.array(["a"]))
    assert (kept.values.tolist(), kept.codes.tolist()) == (["a", "c"], [1, -1, 1])
    assert coded.used(coded.values) is coded
    assert len(coded[1:]) == 2


def test_sets_of_labels():
    for a, b, joined in (
        ([1, 2], [2.0, 3.0], [1.0, 2.0, 3.0]),
        (["a"], ["bee"], ["a", "bee"]),
        (DAYS[:1], np.array(["2024-05-01T12"], "M8[h]"), None),
    ):
        found = join_labels(np.array(a), np.array(b))
        assert found.tolist() == (joined or np.unique(np.append(a, b)).tolist())
    for a, b in (([1], ["a"]), ([2**62 + 1], [0.0]), (np.array([2**63], "u8"), [-1]), (DAYS, [1])):
        with pytest.raises(InvalidDataError, match=r"do not mix|have no common type"):
            join_labels(np.array(a), np.array(b))
    with pytest.raises(InvalidDataError, match=r"labels of dtype .* do not mix with classes"):
        GaussianNB().fit([[0.0], [1.0]], [0, 1]).partial_fit([[0.0]], ["a"])
    assert find(np.array([3, 9]), np.array([1, 3])).tolist() == [1, -1]
    assert find(np.array(["a", "z"]), np.array(["a"])).tolist() == [0, -1]
    assert find(np.array([1]), np.array(["1"])).tolist() == [-1]
    far = np.array([0, 1 << 40])  # too far apart for a table
    assert labels.integer_table(far) is None
    assert find(np.array([1 << 40, 5]), far).tolist() == [1, -1]


def test_a_label_of_rows_without_a_class():
    assert with_label(np.array([0, 1]), "fill", None).tolist() == [0, 1, -1]
    assert with_label(np.array(["a"]), "fill", None).tolist() == ["a", ""]
    assert np.isnat(with_label(DAYS, "fill", None)[-1])
    for fill in (0, "none", [1]):
        with pytest.raises(InvalidParameterError, match="fill="):
            with_label(np.array([0, 1]), "fill", fill)
    assert labels.label_of_none(DAYS) is None
    with pytest.raises(InvalidDataError, match="expected one label a row, in a list"):
        as_labels("a", "classes")
