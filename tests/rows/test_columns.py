"""Rows by their columns: any part of them, and every way in which moments read them."""

import numpy as np
import pytest

import streamgda
from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import ColumnRows
from streamgda.storage.saved import state_of

pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("d", [1, 3, 6, 20])  # as wide as a tile of a kernel, or not
@pytest.mark.parametrize("dtype", ["f8", "f4", "u1", "i2", "?"])
def test_any_rows_are_those_of_the_array(dtype, d):
    X = np.random.default_rng(0).integers(0, 1 + (dtype != "?") * 99, (700, d)).astype(dtype)
    parts = (X[:100], X[100:101], X[101:])
    rows = ColumnRows.concatenated([ColumnRows.of([*part.T], X.dtype) for part in parts])
    assert (rows.shape, rows.dtype, rows.nbytes, len(rows)) == (X.shape, X.dtype, X.nbytes, 700)
    picked = np.array([699, 0, 100, 99, 100])
    for index in (slice(None), slice(98, 103), slice(101, 700), slice(5, 2), slice(3, None, 50)):
        np.testing.assert_array_equal(np.asarray(rows[index]), X[index])
        np.testing.assert_array_equal(np.asarray(rows[5:][index]), X[5:][index])
    for index in (picked, np.arange(700) % 3 == 0):
        np.testing.assert_array_equal(rows[index], X[index])
    np.testing.assert_array_equal(rows.row(100), X[100])


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied"])
@pytest.mark.parametrize(
    ("n", "d", "n_classes", "dtype"),
    [
        (50, 3, 2, "f8"),
        (40_000, 3, 2, "f4"),
        (60_000, 20, 3, "f8"),  # several blocks of a segment are written one after another
        (3000, 200, 2, "f8"),
        (4000, 40, 700, "f8"),
        (3000, 5, 3, "i8"),
    ],
)
def test_moments_of_a_table_in_chunks_have_the_bits_of_the_array(
    covariance_type, n, d, n_classes, dtype
):
    random = np.random.default_rng(0)
    X, y = random.normal(300, 90, (n, d)).astype(dtype), random.integers(0, n_classes, n)
    cuts = [slice(0, n // 3), slice(n // 3, n // 3 + 1), slice(n // 3 + 1, n)]
    columns = [pa.chunked_array([X[cut, j] for cut in cuts]) for j in range(d)]
    table = pa.table(columns, [f"f{j}" for j in range(d)])
    weights = random.integers(0, 3, n).astype(float)
    runs = {"y": np.sort(y)}
    for options in ({}, {"sample_weight": weights}, {"on_invalid": "skip"}, runs):
        options["covariance_type"] = covariance_type
        found, expected = (
            state_of(streamgda.accumulate(rows, **{"y": y, **options}))[1] for rows in (table, X)
        )
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("covariance_type", ["full", "tied_diag"])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_a_few_rows_are_summed_from_their_columns(covariance_type, dtype, monkeypatch):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(3000, 16)).astype(dtype), random.integers(0, 3, 3000)
    table = pa.table([*X.T], [f"f{j}" for j in range(16)])
    expected = state_of(streamgda.accumulate(X, y, covariance_type=covariance_type))[1]
    monkeypatch.delattr(ColumnRows, "__array__")
    found = state_of(streamgda.accumulate(table, y, covariance_type=covariance_type))[1]
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_covariances_of_a_table_in_many_blocks_are_those_of_numpy():
    random = np.random.default_rng(0)
    X, y = random.normal(300, 90, (60_000, 20)), random.integers(0, 3, 60_000)
    moments = streamgda.accumulate(pa.table([*X.T], [f"f{j}" for j in range(20)]), y)
    for k, covariance in enumerate(moments.covariance(ddof=1)):
        np.testing.assert_allclose(covariance, np.cov(X[y == k].T), rtol=1e-11, atol=1e-9)
        np.testing.assert_allclose(moments.means[k], X[y == k].mean(axis=0), rtol=1e-13)


def test_an_invalid_value_is_named_by_its_row():
    X = np.zeros((20_000, 3))
    X[12_345, 1] = np.nan
    table = pa.table([*X.T], ["a", "b", "c"])
    with pytest.raises(InvalidDataError, match="row 12345, column 1 is nan"):
        streamgda.accumulate(table, np.arange(len(X)) % 2)


@pytest.mark.parametrize("dtype", ["f8", "f4", "u1"])
def test_scores_of_a_table_have_the_bits_of_the_array(dtype, monkeypatch):
    """Threads make arrays of a few rows at a time, and never one of all."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 200, (200_000, 7)).astype(dtype)
    table = pa.table([*X.T], [*"abcdefg"])
    array, named = (streamgda.GaussianNB().fit(rows, X[:, 0] > 100) for rows in (X, table))
    written, sizes = ColumnRows.__array__, []

    def counting(rows, *options):
        sizes.append(len(rows))
        return written(rows, *options)

    monkeypatch.setattr(ColumnRows, "__array__", counting)
    for method in ("predict", "predict_proba", "score_samples"):
        found, expected = getattr(named, method), getattr(array, method)(X)
        np.testing.assert_array_equal(found(table), expected)
        np.testing.assert_array_equal(found(table, max_memory="20MB"), expected)
    assert sum(sizes) == 6 * len(X)
    assert max(sizes) < len(X) // 2
