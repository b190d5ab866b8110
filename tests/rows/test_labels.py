"""Class labels of all kinds: those accepted, those refused, and their codes."""

import datetime
import decimal
import enum

import dask
import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgda import GaussianNB, accumulate
from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.rows import arrays as arrays_module
from streamgda.rows import labels as labels_module
from streamgda.rows.arrays import CodedLabels, concatenated, distinct
from streamgda.rows.arrow import as_label_array
from streamgda.rows.labels import (
    as_labels,
    coded_labels,
    encode,
    find,
    join_labels,
)

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
NONE = np.empty(0, np.int64)


def check_encoding(y, classes=NONE):
    """Check that codes point at the labels, and that classes are the sorted labels."""
    y = as_labels(y)
    codes, found = encode(y, classes)
    assert codes.dtype == np.int64
    assert codes.min() >= 0
    assert found[codes].tolist() == y.tolist()
    assert found.tolist() == sorted({*classes.tolist(), *y.tolist()})
    return found


# --- kinds of labels --------------------------------------------------------------------------


BIG = 2**62
TEXTS = ["b", "ab", "", "ä", "b"]
Tree = enum.Enum("Tree", {"OAK": "oak", "ELM": "elm"}, type=str)
DATES = [datetime.date(2021, 3, 1), datetime.date(2020, 1, 1)]
NOON = datetime.datetime(2021, 3, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
KINDS = {
    "negative": (np.array([-5, 3, -128, 3], np.int8), "i1"),
    "big-endian": (np.array([300, 2, 300], ">i4"), ">i4"),
    "far apart": ([0, 10**12, -(10**15), 0], "i8"),
    # Neighbours that float64 cannot tell apart.
    "large": ([BIG, BIG + 1, -BIG, 0], "i8"),
    "unsigned": (np.array([2**64 - 1, 2**64 - 2, 0], np.uint64), "u8"),
    "beyond 63 bits": ([2**63, 2**63 + 1, 1], "u8"),
    "beyond 63 bits, objects": (np.array([2**63, 2**63 + 1, 1], object), "u8"),
    "beyond 53 bits": ([2.0**53, 2**53 + 1], "i8"),
    "list of texts": (TEXTS, "<U2"),
    "texts": (np.array(TEXTS, "<U9"), "<U9"),
    "objects": (np.array(TEXTS, object), "<U2"),
    "StringDType": (np.array(TEXTS, np.dtypes.StringDType()), "<U2"),
    "StringDType, nan": (np.array(TEXTS, np.dtypes.StringDType(na_object=np.nan)), "<U2"),
    "bytes": ([b"b", b"ab"], "S2"),
    "bytes, objects": (np.array([b"b", b"ab"], object), "S2"),
    "members": ([Tree.OAK, Tree.ELM, Tree.OAK], "<U3"),
    "members, objects": (np.array([Tree.OAK, "fir"], object), "<U3"),
    "members, categories": (pd.Categorical([Tree.OAK, Tree.ELM]), "<U3"),
    "booleans": ([True, False, True], "?"),
    "booleans, objects": (np.array([True, False, True], object), "?"),
    "years": (np.array(["2021", "2020", "2021"], "M8[Y]"), "M8[Y]"),
    "dates": (np.array(["2021", "2020", "2021"], "M8[ns]"), "M8[ns]"),
    "dates, objects": (DATES, "M8[D]"),
    "dates of Arrow": (pd.Series(DATES, dtype=pd.ArrowDtype(pa.date32())), "M8[D]"),
    "dates of several units": (np.array([np.datetime64("2021"), DATES[1]], object), "M8[D]"),
    "times of pandas": ([pd.Timestamp("2021"), pd.Timestamp("2021") + pd.Timedelta(1)], "M8[ns]"),
    "durations, objects": ([datetime.timedelta(2), datetime.timedelta(1)], "m8[us]"),
    "durations of several units": (
        np.array([np.timedelta64(3, "D"), np.timedelta64(1, "h")], object),
        "m8[h]",
    ),
    "durations": (np.array([3, 1, 3], "m8[s]"), "m8[s]"),
    "halves": (np.array([2.0, -1.0, 2.0, 1024.0], np.float16), "f2"),
    "singles": (np.array([2.0, -1.0, 2.0, 1024.0], np.float32), "f4"),
    "long doubles": (np.array([2.0, -1.0, 2.0, 1024.0], np.longdouble), "f8"),  # can be saved
    "long doubles beyond 53 bits": (np.array([2**53, 2**53 + 1, -1], np.longdouble), "i8"),
    "mixed numbers": (np.array([1, 2.0, np.float32(3)], object), "f8"),
    "mixed integers": (np.array([np.int8(1), np.uint64(7)], object), "f8"),
    "series": (pd.Series(["b", "a", "b"]), "<U1"),
    "categories": (pd.Series(["b", "a", "b"], dtype="category"), "<U1"),
    "nullable": (pd.Series([2, 1, 2], dtype="Int64"), "i8"),
    "128 bits": (pl.Series([2, 1, 2], dtype=pl.Int128), "i8"),
    "nullable booleans": (pd.Series([True, False], dtype="boolean"), "?"),
    "nullable texts": (pd.Series(["b", "a", "b"], dtype="string"), "<U1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind):
    y, dtype = KINDS[kind]
    assert check_encoding(y).dtype == dtype


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, table, monkeypatch):
    if not table:
        monkeypatch.setattr(labels_module, "_TABLE", 1)
    y = np.array([3, 1, 3, 100, 0], dtype)
    assert check_encoding(y).dtype == dtype
    assert check_encoding(y[:1]).tolist() == [3]
    assert check_encoding(y, np.array([1, 2, 50])).tolist() == [0, 1, 2, 3, 50, 100]
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    top = check_encoding(np.array([high, high - 1, high], dtype))
    assert top.dtype == dtype
    bottom = np.array([low, low + 2], dtype)
    assert check_encoding(bottom, top).tolist() == [low, low + 2, high - 1, high]


@pytest.mark.parametrize("low", [0, -3, 7])
@pytest.mark.parametrize("part", [1 << 18, 100])
def test_consecutive_integers(low, part, monkeypatch):
    """Labels from zero on are their own codes, even those that may not be written to."""
    monkeypatch.setattr(labels_module, "_PART", part)
    y = low + np.random.default_rng(0).integers(0, 5, 3000)
    held = y.copy()
    assert check_encoding(y).tolist() == [low + i for i in range(5)]
    y.flags.writeable = False
    codes, classes = encode(y, NONE)
    assert codes.flags.writeable
    assert check_encoding(np.append(y, low + 5), classes).size == 6
    assert check_encoding(np.append(y, low - 1), classes).size == 6
    assert (y == held).all()


def test_numbers_are_joined_without_rounding():
    unsigned = as_labels(np.array([2**60, 2**60 + 1, 5], np.uint64))
    joined = check_encoding(unsigned, np.array([5, 7, 2**60 + 1]))
    assert (joined.tolist(), joined.dtype) == ([5, 7, 2**60, 2**60 + 1], np.int64)
    huge = np.array([0, 2**64 - 1], np.uint64)
    assert join_labels(np.array([1, 2]), huge).tolist() == [0, 1, 2, 2**64 - 1]
    with pytest.raises(InvalidDataError, match=r"from -1 to 18446744073709551615 .*no common type"):
        join_labels(np.array([-1, 2]), huge)
    longer = np.longdouble(2**63) + np.array([1, -(2**63) - 1])
    for y in ([2**63 + 1, -1], [2**64 + 1, 1], [10**400, 1], longer):
        with pytest.raises(InvalidDataError, match="y holds numbers that have no common 64-bit"):
            as_labels(y)
    large = np.array([2**53, 2**53 + 1])
    assert join_labels(np.array([1.0, 2.0]), large).tolist() == [1, 2, 2**53, 2**53 + 1]
    assert find(large, np.array([2.0**53])).tolist() == [0, -1]
    with pytest.raises(InvalidDataError, match="no common type"):
        join_labels(np.array([1e20]), large)
    assert check_encoding([0, 2], np.array([False, True])).tolist() == [0, 1, 2]
    assert check_encoding([True, False], np.array([0, 1, 2])).dtype == np.int64


def test_dates_of_different_units_are_the_same_dates():
    days = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    codes, classes = encode(days[::-1].astype("M8[ns]"), days)
    assert codes.tolist() == [1, 0]
    assert classes is days


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan], r"y\[1\] is nan"),
        ([np.inf, 1.0], r"y\[0\] is inf"),
        ([1.0, 2.0, 0.5], r"continuous. y\[2\] is 0.5; class labels are whole numbers"),
        (np.array([1.0, 2.5], np.float16), r"continuous. y\[1\] is 2.5"),
        (np.array([1, 2.5], object), r"continuous"),
        (["a", 1], r"objects of type int, str, y\[1\] the first that does not fit; class labels"),
        (np.array(["a", 1], object), r"objects of type int, str"),
        (np.array(["a", None], object), r"y\[1\] is None, and every label is needed"),
        (np.array(["a", np.nan], object), r"y\[1\] is nan, and every label is needed"),
        (np.array(["a", b"a"], object), r"objects of type bytes, str"),
        (np.array([1, (2, 3)], object), r"objects of type int, tuple"),
        (np.array([{}, {}], object), r"objects of type dict"),
        (np.array([None, None]), r"y\[0\] is None, and every label is needed"),
        (
            np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan)),
            r"y\[1\] is nan, and every label is needed",
        ),
        ([[1], [2]], r"y has shape \(2, 1\), expected one label a row: shape \(n_rows,\)"),
        (np.array(["a"]).reshape(1, 1), r"y has shape \(1, 1\)"),
        (3, r"y has shape \(\)"),
        ("abc", r"y has shape \(\)"),
        ([1j, 2], r"y has dtype complex128; class labels are whole numbers"),
        (np.array(["2020", "NaT"], "M8[D]"), r"y\[1\] is NaT"),
        (np.array(["NaT"], "m8[s]"), r"y\[0\] is NaT"),
        (np.zeros(2, "i4,i4"), r"y has dtype"),
        (pd.Series(["b", None]), r"is .+, and every label is needed"),
        (pd.Series([1, None], dtype="Int64"), r"is .+, and every label is needed"),
        (np.array([DATES[0], pd.NaT], object), r"y\[1\] is NaT"),
        (pa.array([datetime.time(1)] * 2), r"labels are time64\[us\]; class labels of one kind"),
        (pa.array([{"a": 1}]), r"labels are struct<a: int64>; class labels of one kind"),
        (
            np.array([np.datetime64("0001", "s"), np.datetime64("2021", "ns")], object),
            "no common type",
        ),
        (np.array([DATES[0], decimal.Decimal("NaN")], object), r"y\[1\] is NaN"),
        ([NOON, NOON, DATES[0]], r"with a time zone and dates without one, y\[2\] the first"),
        ([NOON.replace(tzinfo=None), NOON], r"y\[1\] the first that differs"),
        ([pd.Timestamp("2021"), NOON], r"y\[1\] the first that differs"),
    ],
)
def test_refused(y, message):
    with pytest.raises(InvalidDataError, match=message):
        as_labels(y)


def test_dates_with_a_time_zone_are_those_of_utc():
    expected = np.array(["2021-03-01T10", "2021-03-01T12"], "M8[us]")
    noons = [NOON, NOON.replace(tzinfo=datetime.UTC)]
    for dates in (noons, [*map(pd.Timestamp, noons)], pd.Series(noons, dtype=object)):
        found = as_labels(dates)
        np.testing.assert_array_equal(found, expected)
    for dates in (pd.Series(noons[:1]), pl.Series(noons[:1])):
        np.testing.assert_array_equal(as_labels(dates), expected[:1])


def test_delayed_objects_are_refused():
    rows, labels = np.ones((4, 2)), np.arange(4)
    for X, y, name in ((dask.delayed(rows), labels, "X"), (rows, dask.delayed(labels), "y")):
        with pytest.raises(
            InvalidDataError, match=rf"{name} is an object of .*from_delayed\({name}"
        ):
            GaussianNB().fit(X, y)
    with pytest.raises(InvalidDataError, match=r"batch 0: . is an object of dask"):
        accumulate([(dask.delayed(rows), dask.delayed(labels))])
    with pytest.raises(InvalidDataError, match=r"X has shape \(\)"):
        GaussianNB().fit(da.from_array(np.array(3.0)), labels)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (["a"], [1]),
        ([1], ["a"]),
        ([1], [b"a"]),
        (["a"], [b"a"]),
        ([True], ["a"]),
        (np.array(["2020"], "M8[D]"), [2020]),
        (np.array(["2020"], "M8[D]"), np.array([3], "m8[D]")),
    ],
)
def test_kinds_do_not_mix_from_batch_to_batch(first, then):
    classes = encode(as_labels(first), NONE)[1]
    with pytest.raises(InvalidDataError, match=r"labels of dtype .* do not mix with classes of"):
        encode(as_labels(then), classes)
    with pytest.raises(InvalidDataError, match="do not mix"):
        join_labels(classes, as_labels(then))


# --- batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (np.array(["abc", "b"]), np.array(["abc", "abcdefghi"])),
        (np.array([100, 5], np.int8), np.array([100, 1000], np.int16)),
    ],
)
def test_types_grow_wider(narrow, wide):
    rows = np.ones((2, 1))
    moments = (
        ClassMoments().update(rows, narrow).update(rows, wide).update(rows, narrow[:1].repeat(2))
    )
    assert moments.classes.dtype == wide.dtype
    counts = {narrow[0]: 4, narrow[1]: 1, wide[1]: 1}
    assert dict(zip(moments.classes, moments.class_count, strict=True)) == counts
    assert moments.classes.tolist() == sorted(moments.classes.tolist())


def test_find():
    classes = np.array([2, 4, 6])
    assert find(np.array([6, 3, 2, 9, -1]), classes).tolist() == [2, -1, 0, -1, -1]
    assert find(np.array(["6"]), classes).tolist() == [-1]
    assert find(np.array([6]), NONE).tolist() == [-1]
    assert find(NONE, np.array(["a"])).tolist() == []
    codes, classes = encode(NONE, np.array(["a"]))
    assert (codes.size, classes.tolist()) == (0, ["a"])


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool", "float64"])
def test_codes_of_many_labels_are_found_in_memory_of_their_own(dtype):
    y = (np.arange(3000) % 7).astype(dtype)
    for classes in (np.arange(7), np.array([0, 2, 5]), np.arange(-2.0, 9), np.array([1, 10**12])):
        numbers = {label: number for number, label in enumerate(classes.tolist())}
        codes = find(y, classes)
        assert codes.tolist() == [numbers.get(label, -1) for label in y.tolist()]
        assert not np.shares_memory(codes, y)


WORDS = st.lists(st.text("ab", max_size=3), min_size=1, max_size=9)
NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), min_size=1, max_size=9)


@given(st.lists(WORDS, max_size=4) | st.lists(NUMBERS, max_size=4))
def test_any_batches_give_the_sorted_union(batches):
    classes = NONE
    for batch in batches:
        classes = check_encoding(batch, classes)
    assert classes.tolist() == sorted({label for batch in batches for label in batch})


# --- many labels ------------------------------------------------------------------------------

WORDS_OF = {
    "U": lambda words, k: words[k],
    "S": lambda words, k: np.char.encode(words, "utf8")[k],
    "objects": lambda words, k: words.astype(object)[k],
    "other objects": lambda words, k: np.array(words[k].tolist(), object),
    "StringDType": lambda words, k: words[k].astype(np.dtypes.StringDType()),
    "list": lambda words, k: words[k].tolist(),
    "integers": lambda words, k: k * 3 - 2,
    "far integers": lambda words, k: k * 10**12,
    "bytes": lambda words, k: k.astype(np.int8) - 2,
    "uint64": lambda words, k: k.astype(np.uint64) + 2**63,
    "booleans": lambda words, k: k > 1,
    "floats": lambda words, k: k.astype(np.float32) - 2,
    "half floats": lambda words, k: k.astype(np.float16),
    "dates": lambda words, k: k.astype("M8[D]").astype("M8[s]"),
    "durations": lambda words, k: k.astype("m8[s]"),
    "numbers as objects": lambda words, k: (k * 10.0).astype(object),
    "big-endian": lambda words, k: words.astype(">U9")[k],
}


@pytest.mark.parametrize("known", [0, 2, 7])
@pytest.mark.parametrize("kind", WORDS_OF)
def test_many_labels_of_every_kind(kind, known, monkeypatch):
    """Equal to numpy's own codes, in one part or several, with classes before or without."""
    monkeypatch.setattr(arrays_module, "_NUMBERED", 700)
    monkeypatch.setattr(labels_module, "_PART", 700)
    words = np.array(["b", "", "ab", "ä", "a long name of a class", "bb", "c"])
    k = np.minimum(np.random.default_rng(0).integers(0, 500, 2000), 6)
    k[:5], k[1500:1508] = 6, [*range(6), 0, 0]
    y = WORDS_OF[kind](words, k)
    found, expected = np.unique(np.asarray(y), return_inverse=True)
    codes, classes = encode(coded_labels(y), as_labels(found)[:known])
    assert codes.dtype == np.int64
    assert classes.tolist() == as_labels(found).tolist()
    assert codes.tolist() == expected.tolist()
    assert find(coded_labels(y), classes[1:]).tolist() == (expected - 1).tolist()
    assert as_labels(y).tolist() == np.asarray(coded_labels(y)).tolist()


def test_zeros_of_both_signs_are_one_label():
    y = np.tile([0.0, -0.0, 1.0], 400)
    codes, classes = encode(coded_labels(y), NONE)
    assert classes.tolist() == [0.0, 1.0]
    assert codes[:3].tolist() == [0, 0, 1]


@pytest.mark.parametrize("other", [None, np.nan, 3, b"a", 1.5, datetime.date(2020, 1, 1)])
def test_a_label_that_does_not_fit_is_named_among_many(other):
    y = np.array(["a", "b"] * 400, object)
    y[701] = other
    with pytest.raises(InvalidDataError, match=r"y\[1701\]"):
        coded_labels(y, "y", 1000)
    with pytest.raises(InvalidDataError, match=r"y\[701\]"):
        ClassMoments("diag").update(np.zeros((800, 1)), y)


def test_missing_labels_among_many_are_masked():
    y = np.array(["a", "b"] * 400, object)
    y[[3, 700]] = None, np.nan
    labels = coded_labels(y, maskable=True)
    assert np.flatnonzero(np.ma.getmaskarray(labels)).tolist() == [3, 700]
    assert labels[~labels.mask].tolist() == y[~labels.mask].tolist()
    assert coded_labels(np.full(800, None), maskable=True).mask.all()


def test_categories_in_no_row_are_no_classes():
    values = np.array([1, "a", None, "b"], object)
    labels = coded_labels(CodedLabels(values, np.array([3, 1, 3], np.int8)))
    codes, classes = encode(labels, NONE)
    assert (codes.tolist(), classes.tolist()) == ([1, 0, 1], ["a", "b"])
    for code in (0, 2):
        with pytest.raises(InvalidDataError, match=r"y\[1\]"):
            coded_labels(CodedLabels(values, np.array([3, code])))
    valid = CodedLabels(np.array(["a", "b", "c"]), np.array([2, 2]))
    assert encode(valid, NONE)[1].tolist() == ["c"]


def test_coded_labels_are_like_an_array():
    labels = CodedLabels(np.array(["b", "a"]), np.array([0, 1, 1]))
    assert (labels.shape, labels.size, len(labels), labels.dtype) == ((3,), 3, 3, "<U1")
    assert (labels[0], labels[1:].tolist(), [*labels]) == ("b", ["a", "a"], ["b", "a", "a"])
    both = concatenated([labels, labels[:1]])
    assert (type(both), both.tolist()) == (CodedLabels, ["b", "a", "a", "b"])
    assert concatenated([labels, np.array(["c"])]).tolist() == ["b", "a", "a", "c"]
    assert distinct(np.empty(0, "U3")).tolist() == []
    copy = labels.copy()
    copy.codes[:] = 0
    assert labels.tolist() == ["b", "a", "a"]


@pytest.mark.parametrize("size", range(1, 26))
def test_entries_of_any_width_differ_in_any_byte(size, monkeypatch):
    monkeypatch.setattr(arrays_module, "_NUMBERED", 64)
    different = np.eye(size, dtype=np.uint8)[:, ::-1].copy().view(f"S{size}").ravel()
    order = np.random.default_rng(0).integers(0, size, 200)
    found = distinct(different[order])
    assert np.array_equal(found.values[found.codes], different[order])
    assert found.values[: np.unique(order[:64]).size].tolist() == [
        *dict.fromkeys(different[order[:64]].tolist())
    ]


@pytest.mark.parametrize("kind", ["string", "large_string", "binary", "large_binary"])
@pytest.mark.parametrize("part", [7, 100, 1 << 17])
def test_texts_of_arrow(part, kind, monkeypatch):
    """Of all lengths, from the first byte of their memory on, or within it; some end with NUL."""
    monkeypatch.setattr(arrays_module, "_NUMBERED", part)
    texts = ["ab" * n + end for n in range(12) for end in ("", "b", "\0", "a\0")]
    k = np.random.default_rng(0).integers(0, len(texts), 1000)
    k[:200] //= 4  # others appear after the first parts
    for column in (pa.array([texts[i] for i in k]), pa.array(["", "b"] * 5)):
        for some in (column, column[3:], column[:0]):
            labels = as_label_array(some.cast(getattr(pa, kind)()))
            assert labels.tolist() == some.cast(getattr(pa, kind)()).to_pylist()
            if part > len(some):
                assert len({*labels.values.tolist()}) == labels.values.size


@pytest.mark.parametrize("kind", ["U", "objects"])
def test_values_of_the_first_part_occur_once(kind, monkeypatch):
    monkeypatch.setattr(arrays_module, "_NUMBERED", 100)
    words = np.array(["b", "ab", "long name", "c", "d"])
    k = np.random.default_rng(0).integers(0, 3, 1000)
    k[:3], k[[350, 950]], k[951] = [2, 0, 1], 3, 4  # new ones are found in each part
    found = distinct((words if kind == "U" else words.astype(object))[k])
    assert found.values.tolist() == [*words[[2, 0, 1, 3, 3, 4]]]
    assert found.tolist() == words[k].tolist()


@pytest.mark.parametrize("text", [str, np.str_, lambda word: word.encode()])
def test_many_texts_in_a_list_are_coded_as_in_an_array(text):
    words = [f"{k} words" for k in np.random.default_rng(0).integers(0, 3, 1200)]  # no two the same
    y = [text(word) for word in words]
    labels = coded_labels(y)
    assert type(labels) is CodedLabels
    assert labels.values.size == 3
    assert labels.tolist() == y
    X = np.arange(1200.0)[:, None]
    fitted = [GaussianNB().fit(X, labels) for labels in (y, tuple(y), np.array(y))]
    assert [model.theta_.tolist() for model in fitted] == [fitted[2].theta_.tolist()] * 3
    assert [model.classes_.dtype for model in fitted] == [fitted[2].classes_.dtype] * 3
    assert accumulate(X, y).class_count.tolist() == fitted[2].class_count_.tolist()


def test_a_label_that_is_missing_or_no_text_is_named_among_many_in_a_list():
    y = [f"{n % 3} words" for n in range(1200)]
    for other, message in ((None, "is None"), (3, "objects of type int, str"), ([], "list, str")):
        y[1100] = other
        with pytest.raises(InvalidDataError, match=rf"y\[1100\].*{message}|{message}.*y\[1100\]"):
            coded_labels(y)
    y[1100] = None
    fitted = GaussianNB().fit(np.arange(1200.0)[:, None], y, on_invalid="skip")
    assert (fitted.classes_.size, fitted.moments_.n_skipped) == (3, 1)
