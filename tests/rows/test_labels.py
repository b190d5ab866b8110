"""Class labels of all kinds: those accepted, those refused, and their codes."""

import datetime
import decimal
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamgda import GaussianNB, accumulate
from streamgda.engine.fingerprints import checksum
from streamgda.errors import InvalidDataError
from streamgda.moments import ClassMoments
from streamgda.rows import codes as codes_module
from streamgda.rows.codes import CodedLabels, concatenated, distinct
from streamgda.rows.labels import (
    as_labels,
    as_maskable_labels,
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


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype, table, monkeypatch):
    if not table:
        monkeypatch.setattr(codes_module, "_TABLE", 1)
    y = np.array([3, 1, 3, 100, 0], dtype)
    assert check_encoding(y).dtype == dtype
    assert check_encoding(y[:1]).tolist() == [3]
    assert check_encoding(y, np.array([1, 2, 50])).tolist() == [0, 1, 2, 3, 50, 100]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_both_ends_of_their_range(dtype):
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    assert check_encoding(np.array([high, low, high], dtype)).tolist() == [low, high]
    top = check_encoding(np.array([high, high - 1, high], dtype))
    assert top.tolist() == [high - 1, high]
    assert top.dtype == dtype
    bottom = np.array([low, low + 2], dtype)
    assert check_encoding(bottom, top).tolist() == [low, low + 2, high - 1, high]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_negative_integers(dtype):
    assert check_encoding(np.array([-5, 3, -128, 3], dtype)).tolist() == [-128, -5, 3]


@pytest.mark.parametrize("low", [0, -3, 7])
@pytest.mark.parametrize("part", [1 << 18, 100])
def test_consecutive_integers(low, part, monkeypatch):
    """Labels from zero on are their own codes, even those that may not be written to."""
    monkeypatch.setattr(codes_module, "_PART", part)
    y = low + np.random.default_rng(0).integers(0, 5, 3000)
    held = y.copy()
    assert check_encoding(y).tolist() == [low + i for i in range(5)]
    y.flags.writeable = False
    codes, classes = encode(y, NONE)
    assert codes.flags.writeable
    assert check_encoding(np.append(y, low + 5), classes).size == 6
    assert check_encoding(np.append(y, low - 1), classes).size == 6
    assert (y == held).all()


def test_integers_far_apart():
    assert check_encoding([0, 10**12, -(10**15), 0]).tolist() == [-(10**15), 0, 10**12]
    # Neighbours that float64 cannot tell apart.
    big = 2**62
    assert check_encoding([big, big + 1, -big, 0]).tolist() == [-big, 0, big, big + 1]
    unsigned = np.array([2**64 - 1, 2**64 - 2, 0], np.uint64)
    assert check_encoding(unsigned).tolist() == [0, 2**64 - 2, 2**64 - 1]


def test_signed_and_unsigned_integers_are_joined_without_rounding():
    signed = as_labels(np.array([2**60 + 1, 5, 7]))
    unsigned = as_labels(np.array([2**60, 2**60 + 1, 5], np.uint64))
    concatenated = check_encoding(unsigned, np.unique(signed))
    assert concatenated.tolist() == [5, 7, 2**60, 2**60 + 1]
    assert concatenated.dtype == np.int64
    huge = np.array([2**64 - 1, 0], np.uint64)
    assert join_labels(np.array([1, 2]), np.sort(huge)).tolist() == [0, 1, 2, 2**64 - 1]
    with pytest.raises(InvalidDataError, match=r"from -1 to 18446744073709551615 .*no common type"):
        join_labels(np.array([-1, 2]), np.sort(huge))


def test_integers_beyond_63_bits_are_not_merged():
    big = 2**63
    for y in ([big, big + 1, 1], np.array([big, big + 1, 1], object)):
        assert check_encoding(y).tolist() == [1, big, big + 1]
        assert as_labels(y).dtype == np.uint64
    assert check_encoding([2.0**53, 2**53 + 1]).tolist() == [2**53, 2**53 + 1]
    for y in ([big + 1, -1], [2**64 + 1, 1], [10**400, 1]):
        with pytest.raises(InvalidDataError, match="y holds numbers that have no common 64-bit"):
            as_labels(y)


def test_large_integers_and_floats_are_joined_without_rounding():
    large = np.array([2**53, 2**53 + 1])
    assert join_labels(np.array([1.0, 2.0]), large).tolist() == [1, 2, 2**53, 2**53 + 1]
    assert find(large, np.array([2.0**53])).tolist() == [0, -1]
    with pytest.raises(InvalidDataError, match="no common type"):
        join_labels(np.array([1e20]), large)


def test_big_endian_integers():
    assert check_encoding(np.array([300, 2, 300], ">i4")).tolist() == [2, 300]


@pytest.mark.parametrize(
    "y",
    [
        ["b", "ab", "", "ä", "b"],
        np.array(["b", "ab", "", "ä", "b"]),
        np.array(["b", "ab", "", "ä", "b"], "<U9"),
        np.array(["b", "ab", "", "ä", "b"], object),
        np.array(["b", "ab", "", "ä", "b"], np.dtypes.StringDType()),
        np.array(["b", "ab", "", "ä", "b"], np.dtypes.StringDType(na_object=np.nan)),
    ],
    ids=["list", "U", "U9", "object", "StringDType", "StringDType-nan"],
)
def test_strings(y):
    classes = check_encoding(y)
    assert classes.tolist() == ["", "ab", "b", "ä"]
    assert classes.dtype.kind == "U"


@pytest.mark.parametrize(
    "y", [[b"b", b"ab"], np.array([b"b", b"ab"], object), np.array([b"b", b"ab"])]
)
def test_bytes(y):
    assert check_encoding(y).tolist() == [b"ab", b"b"]


@pytest.mark.parametrize("y", [[True, False, True], np.array([True, False, True], object)])
def test_booleans(y):
    classes = check_encoding(y)
    assert classes.dtype == bool
    assert classes.tolist() == [False, True]


def test_booleans_count_as_numbers():
    assert check_encoding([0, 2], np.array([False, True])).tolist() == [0, 1, 2]
    assert check_encoding([True, False], np.array([0, 1, 2])).dtype == np.int64


@pytest.mark.parametrize("unit", ["Y", "D", "s", "ns"])
def test_dates(unit):
    y = np.array(["2021", "2020", "2021"], f"M8[{unit}]")
    assert check_encoding(y).dtype == y.dtype


def test_dates_as_objects():
    y = [datetime.date(2021, 3, 1), datetime.date(2020, 1, 1)]
    assert (check_encoding(y) == np.array(["2020-01-01", "2021-03-01"], "M8[D]")).all()


def test_dates_of_different_units_are_the_same_dates():
    days = np.array(["2020-01-01", "2020-01-02"], "M8[D]")
    codes, classes = encode(days[::-1].astype("M8[ns]"), days)
    assert codes.tolist() == [1, 0]
    assert classes is days


def test_durations():
    y = np.array([3, 1, 3], "m8[s]")
    assert check_encoding(y).dtype == y.dtype


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
def test_whole_floats(dtype):
    classes = check_encoding(np.array([2.0, -1.0, 2.0, 1024.0], dtype))
    assert classes.tolist() == [-1, 2, 1024]
    assert classes.dtype.itemsize <= 8  # what can be saved


@pytest.mark.parametrize("y", [[1, 2.0, np.float32(3)], [True, 5], [np.int8(1), np.uint64(7)]])
def test_numbers_of_mixed_types_as_objects(y):
    assert check_encoding(np.array(y, object)).tolist() == sorted(y)


def test_pandas_series():
    pd = pytest.importorskip("pandas")
    assert check_encoding(pd.Series(["b", "a", "b"])).tolist() == ["a", "b"]
    assert check_encoding(pd.Series(["b", "a", "b"], dtype="category")).tolist() == ["a", "b"]
    assert check_encoding(pd.Series([2, 1, 2], dtype="Int64")).tolist() == [1, 2]
    for missing in (pd.Series(["b", None]), pd.Series([1, None], dtype="Int64")):
        with pytest.raises(InvalidDataError, match=r"is .+, and every label is needed"):
            as_labels(missing)


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
    ],
)
def test_refused(y, message):
    with pytest.raises(InvalidDataError, match=message):
        as_labels(y)


def test_the_argument_is_named():
    with pytest.raises(InvalidDataError, match=r"new labels\[0\] is nan"):
        as_labels([np.nan], "new labels")


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


def test_no_labels():
    codes, classes = encode(NONE, np.array(["a"]))
    assert codes.size == 0
    assert classes.tolist() == ["a"]


def test_known_labels_leave_the_classes_alone():
    for classes, y in [
        (np.array([1, 5, 9]), np.array([9, 1], np.int8)),
        (np.array([0, 2**40]), np.array([2**40, 0])),
        (np.array(["a", "bb"]), np.array(["bb"])),
    ]:
        assert encode(y, classes)[1] is classes


def test_new_labels_in_later_batches():
    rows = np.arange(6.0).reshape(3, 2)
    moments = (
        ClassMoments().update(rows, [5, 7, 5]).update(rows, [6, 7, -1]).update(rows, [5, 5, 9])
    )
    assert moments.classes.tolist() == [-1, 5, 6, 7, 9]
    assert moments.class_count.tolist() == [1, 4, 1, 2, 1]
    assert moments.means[3].tolist() == [2.0, 3.0]


def test_strings_grow_wider():
    rows = np.ones((2, 1))
    moments = ClassMoments().update(rows, np.array(["abc", "b"], "<U3"))
    assert moments.classes.dtype == "<U3"
    moments.update(rows, np.array(["abc", "abcdefghi"], "<U9"))
    assert moments.classes.dtype == "<U9"
    assert moments.classes.tolist() == ["abc", "abcdefghi", "b"]
    assert moments.class_count.tolist() == [2, 1, 1]
    moments.update(rows, np.array(["b", "b"], "<U1"))
    assert moments.class_count.tolist() == [2, 1, 3]


def test_integers_grow_wider():
    rows = np.ones((2, 1))
    moments = ClassMoments().update(rows, np.array([100, 5], np.int8))
    moments.update(rows, np.array([100, 1000], np.int16))
    assert moments.classes.dtype == np.int16
    assert moments.classes.tolist() == [5, 100, 1000]


def test_find():
    classes = np.array([2, 4, 6])
    assert find(np.array([6, 3, 2, 9, -1]), classes).tolist() == [2, -1, 0, -1, -1]
    assert find(np.array(["6"]), classes).tolist() == [-1]
    assert find(np.array([6]), NONE).tolist() == [-1]
    assert find(NONE, np.array(["a"])).tolist() == []


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
    monkeypatch.setattr(codes_module, "_PART", 700)
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
    labels = as_maskable_labels(y)
    assert np.flatnonzero(np.ma.getmaskarray(labels)).tolist() == [3, 700]
    assert labels[~labels.mask].tolist() == y[~labels.mask].tolist()
    assert as_maskable_labels(np.full(800, None)).mask.all()


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


def test_labels_by_codes_have_the_fingerprint_of_the_array():
    for values in (np.array(["b", None], object), np.array([3, 1], object), np.array(["b", "ä"])):
        labels = CodedLabels(values, np.array([1, 0, 0]))
        assert checksum(labels) == checksum(np.asarray(labels))
        assert checksum(labels[1:], checksum(labels[:1])) == checksum(labels)
    text = "".join(f"{value}\0" for value in ["b", "c", "b"])
    assert checksum(np.array(["b", "c", "b"])) == zlib.crc32(text.encode())


@pytest.mark.parametrize("size", range(1, 26))
def test_entries_of_any_width_differ_in_any_byte(size, monkeypatch):
    monkeypatch.setattr(codes_module, "_PART", 64)
    different = np.eye(size, dtype=np.uint8)[:, ::-1].copy().view(f"S{size}").ravel()
    order = np.random.default_rng(0).integers(0, size, 200)
    found = distinct(different[order])
    assert np.array_equal(found.values[found.codes], different[order])
    assert found.values[: np.unique(order[:64]).size].tolist() == [
        *dict.fromkeys(different[order[:64]].tolist())
    ]


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


def test_missing_dates_and_decimals_among_objects_are_missing():
    for missing in (pd.NaT, decimal.Decimal("NaN")):
        with pytest.raises(InvalidDataError, match=r"y\[1\] is Na"):
            as_labels(np.array([datetime.date(2020, 1, 1), missing], object))


def test_labels_by_codes_are_copied_as_arrays_are():
    labels = coded_labels(np.array(["ant", "bee"] * 400))
    assert type(labels) is CodedLabels
    part = labels[1::200]
    copy = part.copy()
    copy.codes[:] = copy.codes[0]
    assert part.tolist() == ["bee"] * 4
    assert np.concatenate([part, part.copy()]).tolist() == ["bee"] * 8
