"""Labels of any type and width, and those of rejected and invalid rows, come back whole."""

import csv
import tempfile
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import rioxarray  # noqa: F401  (adds `rio` to arrays)
import xarray as xr
from grids import THOROUGH
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import held

from streamgda import (
    DriftMonitor,
    GaussianDiscriminantCV,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
    RidgeClassifier,
    accumulate,
)
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.labels import join_labels, with_label

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*Zarr V3 specification"),  # of bytes
    pytest.mark.filterwarnings("ignore:Use `@` matmul:PendingDeprecationWarning"),  # of affine
]

CODES = np.arange(60) % 3
X = np.random.default_rng(0).normal(size=(60, 2)) + 9 * CODES[:, None]
ROWS = X.copy()
REJECTED, INVALID = 9, 4
ROWS[REJECTED], ROWS[INVALID] = 500, np.nan
GRID = {"y": np.arange(6.0)[::-1], "x": np.arange(10.0)}
SCENE = xr.DataArray(ROWS.reshape(6, 10, 2), GRID, ("y", "x", "band")).rio.write_crs(32632)

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
DATES = [f"M8[{unit}]" for unit in ("Y", "D", "h", "s", "ns")]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=9)
BYTES = st.text(st.characters(codec="ascii", exclude_characters="\0\r"), max_size=9)
DAYS = st.integers(-25_000, 47_000)  # from 1900 to 2098


def some_date(day, unit):
    return np.datetime64(day, "D").astype(unit)


@st.composite
def labels(draw):
    """Return labels of the rows in some container, those of the classes, and two others or None."""
    kind = draw(st.sampled_from([*INTEGERS, *DATES, "?", "f2", "f8", "U", "O", "T", "cat", "S"]))
    if kind in INTEGERS:
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        value = st.one_of(st.integers(low, high), st.integers(max(low, -9), min(high, 300)))
    elif kind in DATES:
        value = st.builds(some_date, DAYS, st.just(kind))
    elif kind in ("f2", "f8"):
        value = st.integers(-2000, 2000).map(float)
    else:
        value = BYTES.map(str.encode) if kind == "S" else TEXTS
    classes = draw(st.lists(value, min_size=3, max_size=3, unique=True))
    if kind == "?":
        classes, value = [False, True, True], st.integers(2, 999)
    elif kind in INTEGERS:
        value = st.one_of(value, st.integers(-40_000, 70_000))
    elif kind in DATES:
        value = st.builds(some_date, DAYS, st.sampled_from(DATES))
    other = st.none() | value.filter(lambda label: label not in classes)
    beside = draw(st.tuples(other, other))
    y = np.array(classes, object if kind in ("O", "T", "cat") else kind)[CODES]
    if kind == "T":
        y = y.astype(np.dtypes.StringDType())
    return pd.Categorical(y) if kind == "cat" else y, classes, beside


def plain(values, like):
    """Return labels as a list of objects of Python; dates as nanoseconds."""
    if isinstance(like, np.datetime64):
        return np.asarray(values, "M8[ns]").astype(np.int64).tolist()
    return np.asarray(values).astype(object).tolist()


def read_csv(path, like):
    """Return the labels in a file, as objects of that kind."""
    with open(path, newline="", encoding="utf-8") as file:
        texts = [row[0] if row else "" for row in csv.reader(file)][1:]
    if isinstance(like, np.datetime64):
        return [np.datetime64(text or "NaT", "ns") for text in texts]
    if isinstance(like, bytes):
        return [text.encode() for text in texts]
    kind = int if isinstance(like, bool) else type(like)  # there are labels beside the two
    return [kind(text) for text in texts]


def everywhere(model, options, dtype, like, folder):
    """Yield the predictions as every kind of result, and the name of it."""
    lazy = da.from_array(ROWS, chunks=(25, 2))
    yield "frame", model.predict(pd.DataFrame(ROWS), **options)
    yield "dask", model.predict(lazy, **options).compute()
    yield "array", model.predict(held(ROWS, "zarr"), out=np.empty(60, dtype), **options)
    yield "zarr", model.predict(ROWS, out=folder / "a", **options)[:]
    yield "zarr of dask", model.predict(lazy, out=folder / "b", **options)[:]
    yield "saved", type(model).from_bytes(model.to_bytes()).predict(ROWS, **options)
    yield "csv", read_csv(model.predict(ROWS, out=folder / "c.csv", **options), like)
    path = model.predict(ROWS, out=folder / "c.parquet", **options)
    yield "parquet", pq.read_table(path)["label"].to_numpy()
    yield "xarray", np.ravel(model.predict(SCENE, features="band", **options))


@settings(max_examples=25 if THOROUGH else 3, deadline=None)
@given(labels())
def test_labels_come_back_whole_from_every_kind_of_result(drawn):
    y, classes, (rejected, invalid) = drawn
    like = classes[0]
    options = {"reject": 1e-9, "reject_label": rejected, "on_invalid": "fill", "fill": invalid}
    model = QuadraticDiscriminantAnalysis().fit(X, y)
    expected = [classes[code] for code in CODES]
    assert plain(model.predict(X), like) == plain(expected, like)
    none = {str: "", bytes: b"", np.datetime64: np.datetime64("NaT", "D")}.get(type(like), -1)
    expected[REJECTED] = none if rejected is None else rejected
    expected[INVALID] = none if invalid is None else invalid
    if none in classes and None in (rejected, invalid):
        with pytest.raises(InvalidParameterError, match="is a class; rows without a class need"):
            model.predict(ROWS, **options)
        return
    numbers = [label for label in (*expected, none) if isinstance(label, int)] or [0]
    if max(numbers) >= 1 << 63 and min(numbers) < 0:
        return  # no type of 64 bits holds both
    found = model.predict(ROWS, **options)
    expected = plain(expected, like)
    assert plain(found, like) == expected
    with tempfile.TemporaryDirectory() as folder:
        for name, values in everywhere(model, options, found.dtype, like, Path(folder)):
            assert plain(values, like) == expected, name
    del options["reject"], options["reject_label"]
    expected[REJECTED] = plain(model.predict(ROWS[[REJECTED]]), like)[0]
    search = GaussianDiscriminantCV({"reg_param": [0.0]}, cv=2).fit(X, y)
    assert plain(search.predict(ROWS, **options), like) == expected


def test_labels_beside_the_classes_are_of_their_kind_and_none_of_them():
    dates = np.array(["2000-01-01"], "M8[ns]")
    for classes, label, message in (
        (np.array([1, 2]), "1", "fill='1': labels of dtype <U1 .* do not mix"),
        (np.array(["1"]), 1, "fill=1: labels of dtype .* do not mix"),
        (np.array([-1, 1]), None, "fill=-1 is a class; .* pass fill"),
        (np.array([1, 2**64 - 1], np.uint64), None, "from -1 to 18446744073709551615 .* pass fill"),
        (dates, np.datetime64("3000"), r"M8\[ns\]|datetime64\[ns\] does not hold all of them"),
        (np.array(["ab"]), "a\0", "do not keep NUL at their end"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            with_label(classes, "fill", label)
    with pytest.raises(InvalidDataError, match="have no common type"):
        join_labels(dates, np.array(["300000"], "M8[Y]"))
    with pytest.raises(InvalidDataError, match="do not keep NUL"):
        accumulate(X[:2], [b"a\0", b"a"])


@pytest.mark.parametrize(
    ("y", "unlabelled"),
    [
        (CODES, "0"),
        (CODES.astype(str), 0),
        (CODES.astype("S1"), "0"),
        (CODES.astype("u1"), -1),
        (CODES.astype("i1"), [0, 255]),
        (CODES > 0, 2),
        (CODES.astype("M8[D]"), 0),
        (pd.Categorical(CODES.astype(str)), 0),
    ],
)
def test_unlabelled_that_labels_cannot_be_is_an_error(y, unlabelled):
    for fit in (
        GaussianNB().fit,
        QuadraticDiscriminantAnalysis().fit,
        GaussianDiscriminantCV({"reg_param": [0.1]}).fit,
        accumulate,
        lambda *given, **options: accumulate(*given, groups=CODES, **options),
    ):
        with pytest.raises(InvalidParameterError, match=r"unlabelled=.* is compared with"):
            fit(X, y, unlabelled=unlabelled)


def test_blocks_without_any_label_have_no_type():
    y = np.array(["ant", "bee", None] * 20, object)
    y[:30] = None
    options = {"unlabelled": "bee", "on_invalid": "skip"}
    rows, chunked = da.from_array(X, chunks=(10, 2)), da.from_array(y, chunks=10)
    for moments in (accumulate(X, y, **options), accumulate(rows, chunked, **options)):
        assert (moments.classes.tolist(), moments.class_count.tolist()) == (["ant"], [10])


@pytest.mark.parametrize("unit", ["D", "us", "ns"])
def test_dates_that_a_call_returns_are_taken_by_others(unit):
    days = np.array(["2024-05-01", "2024-06-02", "2025-05-03"], "M8[D]").astype(f"M8[{unit}]")
    y = days[CODES]
    grouped = accumulate(X, y, groups=y)
    for day, moments in grouped.items():
        assert moments.class_count.sum() == 20
        assert grouped.without(day).class_count.sum() == 40
    assert [*grouped.roll_up(lambda day: str(day)[:4])] == ["2024", "2025"]
    assert grouped.roll_up({days[0]: days[2]}).groups.tolist() == days[1:].tolist()
    monitor = DriftMonitor(grouped.total(), window=60, least_rows=5, calibration=0)
    (report,) = DriftMonitor.from_bytes(monitor.to_bytes()).update(X, y)
    assert np.array([*report.classes], days.dtype).tolist() == days.tolist()
    assert report.classes[[*grouped][1]].n_rows == 20


@pytest.mark.parametrize("unit", ["D", "us", "ns"])
def test_weights_of_dates_are_those_of_the_classes(unit):
    days = np.array(["2024-05-01", "2024-06-02"], "M8[D]").astype(f"M8[{unit}]")
    rows, codes = np.random.default_rng(1).normal(size=(60, 2)), np.arange(60) % 2
    expected = RidgeClassifier(class_weight={1: 9.0}).fit(rows, codes).decision_function(rows)
    for label in (days[1], days[1].astype("M8[D]").item(), days[1].astype("M8[h]")):
        found = RidgeClassifier(class_weight={label: 9.0}).fit(rows, days[codes])
        np.testing.assert_array_equal(found.decision_function(rows), expected)
