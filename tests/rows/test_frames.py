"""Data frames of every library: the same bits as the array of the same data, slab by slab."""

from __future__ import annotations

import datetime
import decimal
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamgda import (
    ClassMoments,
    GaussianDiscriminantCV,
    GaussianNB,
    QuadraticDiscriminantAnalysis,
    accumulate,
    open_store,
)
from streamgda.errors import InvalidDataError
from streamgda.rows import as_source, tables
from streamgda.rows.arrays import CodedLabels

N, D = 90, 3
NAMES = ["length", "width", "height"]
LABELS = np.array(["fir", "oak", "yew"])[np.arange(N) % 3]


def rows(dtype: Any = np.float64) -> np.ndarray:
    values = (
        np.random.default_rng(4).normal(size=(N, D)) * 20 + 100 + 30 * (np.arange(N) % 3)[:, None]
    )
    return values.clip(0, 255).astype(dtype)


X = rows()


def arrow(X: np.ndarray) -> pa.Table:
    return pa.table(dict(zip(NAMES, X.T.copy(), strict=True)))


FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "pandas, nullable": lambda X: pd.DataFrame(X, columns=NAMES).convert_dtypes(),
    "pandas, arrow": lambda X: arrow(X).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "polars, lazy": lambda X: pl.LazyFrame(X, schema=NAMES),
    "arrow": arrow,
    "arrow, batch": lambda X: arrow(X).to_batches()[0],
}
LAZY = "polars, lazy"
every_frame = pytest.mark.parametrize("kind", FRAMES)


SERIES = {
    "pandas": pd.Series,
    "pandas, object": lambda y: pd.Series(y, dtype=object),
    "pandas, nullable": lambda y: pd.Series(y).convert_dtypes(),
    "pandas, arrow": lambda y: pd.Series(y).convert_dtypes(dtype_backend="pyarrow"),
    "pandas, category": lambda y: pd.Series(y).astype("category"),
    "pandas, categorical": pd.Categorical,
    "pandas, column": lambda y: pd.DataFrame({"y": y}),
    "pandas, column without a name": lambda y: pd.Series(y).to_frame(),
    "polars": pl.Series,
    "polars, column": lambda y: pl.DataFrame({"y": y}),
    "polars, lazy": lambda y: pl.LazyFrame({"y": y}),
    "arrow, chunked": lambda y: pa.chunked_array([y[:40], y[40:]]),
    "arrow, array": pa.array,
    "arrow, dictionary": lambda y: pa.array(y).dictionary_encode(),
    "arrow, column": lambda y: pa.table({"y": y}),
}
CATEGORIES = {
    "categorical": lambda y: pl.Series(y, dtype=pl.Categorical),
    "enum": lambda y: pl.Series(y, dtype=pl.Enum(["yew", "oak", "fir"])),
}


def same(found: ClassMoments, expected: ClassMoments) -> None:
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.class_count, expected.class_count)
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())


@every_frame
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "int64", "bool"])
def test_moments_are_those_of_the_array(kind: str, dtype: str) -> None:
    values = rows(dtype) if dtype != "bool" else rows() > 128
    source = as_source(FRAMES[kind](values))
    assert (source.shape, source.dtype, source.feature_names) == ((N, D), dtype, (*NAMES,))
    read = pickle.loads(pickle.dumps(source)).read(7, 30)
    np.testing.assert_array_equal(read, values[7:30])
    assert read.dtype == dtype
    assert read.flags.c_contiguous
    same(accumulate(source, LABELS), accumulate(values, LABELS))


@every_frame
@pytest.mark.parametrize("estimator", [GaussianNB(), QuadraticDiscriminantAnalysis()])
def test_estimators_give_the_same_bits(kind: str, estimator: Any) -> None:
    frame, y = FRAMES[kind](X), pl.Series(LABELS)
    expected = estimator.fit(X, LABELS)
    predictions = {
        m: getattr(expected, m)(X) for m in ("predict", "predict_proba", "score_samples")
    }
    accuracy = expected.score(X, LABELS)
    fitted = estimator.fit(frame, y)
    assert fitted.feature_names_in_.tolist() == NAMES
    for method, values in predictions.items():
        found = getattr(fitted, method)(frame)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, values)
    assert fitted.score(frame, y) == accuracy
    weight = np.arange(N) % 4
    weighted = type(estimator)().fit(frame, y, sample_weight=pa.array(weight))
    same(weighted.moments_, type(estimator)().fit(X, LABELS, sample_weight=weight).moments_)
    wrong = FRAMES[kind](X[:, [1, 0, 2]])
    renamed = getattr(wrong, "rename", None)
    if kind in ("polars", LAZY):
        with pytest.raises(ValueError, match="feature names should match"):
            fitted.predict(renamed({"length": "width", "width": "length"}))


@pytest.mark.parametrize("kind", SERIES)
@pytest.mark.parametrize("labels", ["strings", "integers", "dates"])
def test_labels_of_every_kind(kind: str, labels: str) -> None:
    days = np.array(["2020-02-29", "2021-01-01", "2019-01-01"], "M8[D]")
    y = {"strings": LABELS, "integers": np.arange(N) % 3 + 2**53 + 1}.get(labels)
    if y is None:
        y = days.astype("M8[us]" if kind.startswith("pandas") else "M8[D]")[np.arange(N) % 3]
    expected, found = accumulate(X, y), accumulate(X, SERIES[kind](y))
    assert [str(label) for label in found.classes] == [
        str(label) for label in expected.classes.astype(found.classes.dtype)
    ]
    np.testing.assert_array_equal(found.means, expected.means)
    same(ClassMoments().update(X, SERIES[kind](y)), found)
    fitted = GaussianNB().fit(FRAMES["polars"](X), SERIES[kind](y))
    same(fitted.moments_, GaussianNB().fit(X, y).moments_)
    assert GaussianNB().fit(X, y).score(X, SERIES[kind](y)) == GaussianNB().fit(X, y).score(X, y)


@pytest.mark.parametrize("kind", CATEGORIES)
def test_categories_become_their_values(kind: str) -> None:
    labels = CATEGORIES[kind](LABELS)
    assert type(as_source(labels, "y").whole()) is CodedLabels  # not an object for each row
    same(accumulate(X, labels), accumulate(X, LABELS))


@pytest.mark.parametrize("kind", ["pandas, nullable", "pandas, arrow", "polars", "arrow, array"])
@pytest.mark.parametrize("values", [[3, None, 5], ["a", None, "b"], [True, None, False]])
def test_null_labels_are_none(kind: str, values: list[Any]) -> None:
    series = SERIES[kind](
        values if kind.startswith(("polars", "arrow")) else np.array(values, object)
    )
    source = as_source(series, "y")
    assert source.dtype == object
    assert source.whole().tolist() == values
    assert all(type(v) in (int, str, bool, type(None)) for v in source.whole())
    with pytest.raises(InvalidDataError, match=r"y\["):
        accumulate(X[:3], series)


def test_nulls_in_dates_and_floats_keep_their_form() -> None:
    day, time = datetime.date(1960, 1, 2), datetime.datetime(2020, 1, 1)
    for values, dtype in (([day, None], "M8[D]"), ([time, None], "M8[us]")):
        for series in (pl.Series(values), pa.array(values)):
            source = as_source(series, "y")
            assert source.dtype == dtype
            assert source.whole().tolist() == values
    assert np.isnan(as_source(pl.Series([1.0, None]), "y").whole()).tolist() == [False, True]


NULLS = {
    "a": [1, None, 3, 4, 5, 6],
    "b": [0.5, 1.5, None, 2.5, 1.0, 3.0],
    "c": [True, False, True, None, False, True],
    "d": [7, 8, 9, 9, 8, 8],
}
WITH_NULLS = {
    "pandas, nullable": pd.DataFrame(
        {
            k: pd.array(v, dtype=t)
            for (k, v), t in zip(
                NULLS.items(), ["Int8", "Float32", "boolean", "UInt16"], strict=True
            )
        }
    ),
    "pandas, arrow": pa.table(NULLS).to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, objects": pd.DataFrame(NULLS).astype({"a": object, "c": object}),
    "polars": pl.DataFrame(NULLS),
    "polars, lazy": pl.LazyFrame(NULLS),
    "arrow": pa.table(NULLS),
}


@pytest.mark.parametrize("kind", WITH_NULLS)
def test_nulls_are_missing_values(kind: str) -> None:
    frame, y = WITH_NULLS[kind], np.array([0, 0, 0, 0, 1, 1])
    values = np.array([[*row] for row in zip(*NULLS.values(), strict=True)], float)
    source = as_source(frame)
    assert source.dtype == np.float64
    np.testing.assert_array_equal(source.read(0, 6), values)
    np.testing.assert_array_equal(source.read(4, 6), values[4:])
    same(accumulate(frame, y, on_invalid="skip"), accumulate(values, y, on_invalid="skip"))
    with pytest.raises(InvalidDataError, match="NaN: row 1, column 0"):
        accumulate(frame, y)


def test_columns_of_several_types_have_the_common_type_of_numpy() -> None:
    columns = {
        "a": np.arange(6, dtype=np.int8),
        "b": np.linspace(0, 1, 6, dtype=np.float32),
        "c": np.arange(6) % 2 == 0,
    }
    expected = np.column_stack([v.astype(np.float32) for v in columns.values()])
    for frame in (
        pd.DataFrame(columns),
        pl.DataFrame(columns),
        pl.LazyFrame(columns),
        pa.table(columns),
    ):
        source = as_source(frame)
        assert source.dtype == np.float32
        np.testing.assert_array_equal(source.read(1, 5), expected[1:5])
        assert source.read(1, 5).dtype == np.float32
    assert as_source(pl.DataFrame(columns).select("a", "c")).dtype == np.int8
    nullable = pd.DataFrame(columns).convert_dtypes()
    assert as_source(nullable[["a", "c"]]).dtype == np.int8


REFUSED = {
    "strings": (pd.DataFrame({"a": [1.0], "kind": ["x"]}), r"'kind' \(String\)"),
    "categories": (pl.DataFrame({"kind": pl.Series(["x"], dtype=pl.Categorical)}), r"'kind' \(Cat"),
    "decimals": (pa.table({"price": [decimal.Decimal("1.5")]}), r"'price' \(Decimal"),
    "dates": (pl.LazyFrame({"day": [datetime.date(2020, 1, 1)]}), r"'day' \(Date\)"),
    "structs": (pl.DataFrame({"a": [{"b": 1.0, "c": 2.0}]}), r"'a' \(Struct"),
    "structs, lazy": (pl.LazyFrame({"a": [{"b": 1.0}], "z": [1]}), r"'a' \(Struct"),
    "integers of 128 bits": (pl.DataFrame({"a": pl.Series([1], dtype=pl.Int128)}), r"'a' \(Int128"),
    "complex": (
        pd.DataFrame({"z": [1j]}),
        r"Complex data not supported: X has.*'z' \(complex128\)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_columns_that_are_not_numbers_are_named_with_a_remedy(what: str) -> None:
    frame, pattern = REFUSED[what]
    for use in (accumulate, GaussianNB().fit, ClassMoments().update):
        with pytest.raises(InvalidDataError, match=pattern + ".*one-hot encode.*drop them"):
            use(frame, [0])


def test_other_frames_that_cannot_be_used() -> None:
    with pytest.raises(InvalidDataError, match="several columns with the same name"):
        accumulate(pd.DataFrame(X[:, :2], columns=["a", "a"]), LABELS)
    for frame in (
        pd.DataFrame({"a": [1, object()]}),
        pl.DataFrame({"a": pl.Series([1, object()], dtype=pl.Object)}),
    ):
        with pytest.raises(InvalidDataError, match="objects that are not numbers, in column 'a'"):
            accumulate(frame, [0, 1])
    with pytest.raises(InvalidDataError, match="some of whose names are strings"):
        GaussianNB().fit(pd.DataFrame(X[:, :2], columns=["a", 1]), LABELS)
    for kind, frame in FRAMES.items():
        with pytest.raises(InvalidDataError, match="y is missing"):
            accumulate(frame(X))
        with pytest.raises(InvalidDataError, match="inconsistent numbers of samples"):
            GaussianNB().fit(frame(X), LABELS[:-1])
        fitted = GaussianNB().fit(X, LABELS)
        with (
            pytest.warns(UserWarning, match="fitted without feature names"),
            pytest.raises(ValueError, match=r"2 features.*expecting 3 features|X has 2 features"),
        ):
            fitted.predict(_narrow(kind))


def _narrow(kind: str) -> Any:
    frame = FRAMES["polars" if kind.startswith("arrow") else kind](X)
    return (
        frame.select("length", "width")
        if kind.startswith(("polars", "arrow"))
        else frame[NAMES[:2]]
    )


def test_sparse_categorical_and_object_columns_of_numbers() -> None:
    frame = pd.DataFrame(
        {
            "sparse": pd.arrays.SparseArray([0.0, 0.0, 1.5]),
            "category": pd.Categorical([5, 6, 5]),
            "object": pd.Series([1, 2.5, pd.NA], dtype=object),
        }
    )
    source = as_source(frame)
    np.testing.assert_array_equal(source.whole(), [[0, 5, 1], [0, 6, 2.5], [1.5, 5, np.nan]])
    objects = pl.DataFrame({"a": pl.Series([1, 2.5, None], dtype=pl.Object), "b": [1, 2, 3]})
    np.testing.assert_array_equal(as_source(objects).whole(), [[1, 1], [2.5, 2], [np.nan, 3]])


@pytest.mark.parametrize(
    "wrap",
    [
        list,
        pa.array,
        pl.Series,
        partial(np.array, dtype=object),
        partial(pd.array, dtype="Int64"),
        partial(pd.Series, dtype="int64[pyarrow]"),
    ],
)
def test_integer_weights_with_nulls(wrap: Any) -> None:
    X, y, weights = np.arange(12.0).reshape(6, 2) ** 2, [0, 1] * 3, [1, None, 2, 3, 0, 2]
    expected = accumulate(X, y, sample_weight=[1, 0, 2, 3, 0, 2])
    found = accumulate(X, y, sample_weight=wrap(weights), on_invalid="skip")
    same(found, expected)
    assert found.n_skipped == 1
    fitted = GaussianNB().fit(X, y, sample_weight=wrap(weights), on_invalid="skip")
    np.testing.assert_array_equal(fitted.class_count_, expected.class_count)
    with pytest.raises(InvalidDataError, match=r"sample_weight\[1\] is nan; weights are finite"):
        accumulate(X, y, sample_weight=wrap(weights))
    with pytest.raises(InvalidDataError, match=r"sample_weight has dtype .*; numbers are expected"):
        accumulate(X, y, sample_weight=["a", None, "b", "b", "c", "c"])
    with pytest.raises(InvalidDataError, match=r"numbers are expected \(cast decimals"):
        accumulate(X, y, sample_weight=pl.Series([decimal.Decimal("0.5")] * 6))


def test_sparse_labels_and_weights_of_pandas() -> None:
    """They are those of the same entries in an array."""
    X, y = np.arange(12.0).reshape(6, 2) ** 2, np.array([0, 1, 0, 1, 0, 0])
    weights = np.array([1.0, 0, 2, 3, 0, 0])
    expected = accumulate(X, y, sample_weight=weights)
    for wrap in (pd.arrays.SparseArray, lambda v: pd.Series(pd.arrays.SparseArray(v))):
        found = accumulate(X, wrap(y), sample_weight=wrap(weights))
        assert found.to_bytes() == expected.to_bytes()


def test_frames_are_never_converted_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 200_000
    wide = np.arange(4 * n, dtype=np.uint8).reshape(n, 4)
    y = np.arange(n) % 2
    sizes = []
    of = tables.Conversion.of

    def counting(*arguments: Any) -> tables.Conversion:
        conversion = of(*arguments)

        def convert(frame: Any) -> np.ndarray:
            converted: np.ndarray = conversion.function(frame)
            sizes.append(converted.nbytes)
            return converted

        return conversion._replace(function=convert)

    expected = accumulate(wide, y)
    fitted = GaussianNB().fit(wide, y)
    predicted = fitted.predict(wide)
    monkeypatch.setattr(tables.Conversion, "of", counting)
    monkeypatch.setattr("streamgda.rows._COPIED_BYTES", 1 << 10)
    monkeypatch.setattr("streamgda.engine.plan._SLAB_BYTES", 1 << 20)
    monkeypatch.setattr("streamgda.rows.tables._BATCH_BYTES", 1 << 18)
    halves = [pl.DataFrame(wide[: n // 2]), pl.DataFrame(wide[n // 2 :])]
    chunked = pl.concat(halves, rechunk=False)
    for frame in (pd.DataFrame(wide).astype("UInt8"), chunked, pl.LazyFrame(wide)):
        sizes.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_array_equal(fitted.predict(frame), predicted)
            same(GaussianNB().fit(frame, y).moments_, fitted.moments_)
        same(accumulate(frame, y, max_memory="8MB"), expected)
        assert len(sizes) >= 6
        assert max(sizes) <= wide.nbytes // 2


def test_batches_windows_and_searches_of_frames() -> None:
    frame, y = pl.DataFrame(X, schema=NAMES), pl.Series(LABELS)
    parts = [slice(0, 40), slice(40, 90)]
    expected = accumulate([(X[p], LABELS[p]) for p in parts])
    same(accumulate([(frame[p], y[p]) for p in parts]), expected)
    same(accumulate([(frame[p].to_arrow(), y[p].to_arrow()) for p in parts]), expected)
    done: list[Any] = []
    accumulate([(frame, y)], progress=lambda *counts: done.append(counts[0]))
    assert done[-1] == N
    kept = (
        GaussianNB()
        .fit(frame, y)
        .partial_fit(frame, y, half_life=30, sample_weight=pl.Series(np.ones(N)))
    )
    assert kept.class_count_.sum() < 2 * N
    lazy = frame.lazy()
    search = GaussianDiscriminantCV({"reg_param": [0.1]}, cv=3)
    search.fit(lazy, lazy.select(pl.Series("kind", LABELS)))
    assert search.predict(frame).tolist() == search.predict(frame.lazy()).tolist()


def test_lazy_frames_are_scanned_once_and_counted_by_a_query(tmp_path: Any) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame(X, schema=NAMES).with_columns(pl.Series("y", LABELS)).write_parquet(
        path, row_group_size=20
    )
    lazy = pl.scan_parquet(path)
    same(accumulate(lazy.select(NAMES), lazy.select("y")), accumulate(X, LABELS))
    filtered = lazy.filter(pl.col("length") > 120)
    kept = X[:, 0] > 120
    same(
        accumulate(filtered.select(NAMES), filtered.select("y")), accumulate(X[kept], LABELS[kept])
    )


def test_missing_values_and_labels_of_frames_are_skipped_and_filled() -> None:
    y = LABELS.astype(object)
    y[4] = None
    values = X.copy()
    values[7, 1] = np.nan
    kept = ~np.isin(np.arange(N), [4, 7])
    expected = GaussianNB().fit(X[kept], LABELS[kept])
    for frame in (pl.DataFrame(values, nan_to_null=True), pl.LazyFrame(values, nan_to_null=True)):
        for labels in (pl.Series(y.tolist()), pd.Series(y, dtype="category"), pa.array(y)):
            found = GaussianNB().fit(frame, labels, on_invalid="skip")
            np.testing.assert_array_equal(found.class_count_, expected.class_count_)
            np.testing.assert_allclose(found.theta_, expected.theta_)
        predicted = found.predict(frame, on_invalid="fill", fill="?")
        assert (predicted == "?").nonzero()[0].tolist() == [7]


TEXTS = {
    "short": ["b", "", "ab", "b\0", "ä" * 6, "b", "0123456789ab"],
    "long": ["b", "", "ab", "0123456789abc", "ä" * 7, "0123456789abd"],
    "null": ["b", None, "ab", "0123456789ab"],
    "bytes": [b"b", b"", b"\xff", b"0123456789ab"],
}


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize("texts", TEXTS)
@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "polars", "pandas"])
def test_texts_of_any_length_keep_their_values(kind: str, texts: str, chunks: int) -> None:
    values: list[Any] = TEXTS[texts]
    if kind.endswith("string") or kind == "string_view":
        name = kind.replace("string", "binary") if texts == "bytes" else kind
        series: Any = pa.chunked_array([pa.array(values, getattr(pa, name)())] * chunks)
    elif kind == "polars":
        series = pl.concat([pl.Series(values)] * chunks, rechunk=False)
    else:
        series = pd.Series(values * chunks, dtype=object if texts == "bytes" else "str")
    assert as_source(series, "y").whole().tolist() == values * chunks
    assert as_source(series, "y").read(1, 4).tolist() == (values * 2)[1:4]


@pytest.mark.parametrize("width", [2, 20])
def test_bytes_of_one_width_are_labels(width: int, tmp_path: Path) -> None:
    values = [b"b" * width, b"a" * width, None, b"b" * width]
    column = pa.array(values, pa.binary(width))
    for labels in (column, pa.chunked_array([column]), column.dictionary_encode()):
        assert as_source(labels, "y").whole().tolist() == values
    pq.write_table(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": column}), tmp_path / "rows.parquet")
    assert open_store(tmp_path / "rows.parquet", label="y")[1][:].tolist() == values


@pytest.mark.parametrize("texts", ["short", "long", "null"])
def test_texts_of_polars_need_no_pyarrow(texts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables.nw.dependencies, "get_pyarrow", lambda: None)
    assert as_source(pl.Series(TEXTS[texts]), "y").whole().tolist() == TEXTS[texts]
