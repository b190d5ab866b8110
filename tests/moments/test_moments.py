"""Class moments of rows of every kind against the naive oracle, and their state."""

import re
from itertools import product

import naive
import numpy as np
import pytest
from grids import cases, pairs
from moment_checks import (
    DTYPES,
    NATIVE,
    TYPES,
    assert_moments,
    assert_same,
    sample,
    take_path,
)
from states import bits

from streamgda import ClassMoments
from streamgda.errors import InvalidParameterError

# --- rows of every kind -----------------------------------------------------------------------


def strided(X):
    spaced = np.zeros((2 * X.shape[0], 3 * X.shape[1]), X.dtype)
    spaced[::2, 1::3] = X
    return spaced[::2, 1::3]


def memory_mapped(X, tmp_path):
    X.tofile(tmp_path / "rows")
    return np.memmap(tmp_path / "rows", X.dtype, "r", shape=X.shape)


LAYOUTS = {
    "C": lambda X, _: np.ascontiguousarray(X),
    "Fortran": lambda X, _: np.asfortranarray(X),
    "strided": lambda X, _: strided(X),
    "reversed": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda X, _: np.broadcast_to(X, X.shape),
    "memmap": memory_mapped,
}


@pairs(
    "path, layout, dtype, covariance_type",
    ["in a call", "wide in windows"],
    LAYOUTS,
    DTYPES,
    TYPES,
)
def test_rows_of_any_kind(covariance_type, dtype, layout, path, tmp_path, monkeypatch):
    take_path(path, monkeypatch)
    X, y = sample(300, 30, dtype=dtype)
    rtol = 1e-6 if dtype in ("float16", "float32", ">f4") else 1e-12
    rows = LAYOUTS[layout](X, tmp_path)
    assert (rows == X).all()
    moments = ClassMoments(covariance_type).update(rows, y)
    assert_moments(moments, X, y, rtol=rtol)
    assert moments.exact == (np.dtype(dtype).kind in "biu" and np.dtype(dtype).itemsize <= 2)
    assert moments.n_features == 30
    assert moments.class_count.dtype == np.int64
    # Twice, to cover the second batch.
    moments.update(rows, y)
    assert_moments(moments, np.vstack([X, X]), np.append(y, y), rtol=rtol)


@cases(
    "weighted, dtype",
    list(product([True, False], ["int64", "float16", "int32", "uint32", "uint64", "uint16"])),
    few=[0, 1],  # kernels are compiled for each of the other types
)
def test_wide_rows_that_kernels_convert_have_the_bits_of_others(dtype, weighted, monkeypatch):
    take_path("wide by class", monkeypatch)
    X, y = sample(300, 30)
    scale = 1 if dtype == "float16" else 2**9 if dtype == "uint16" else 2**24
    X = ((X if dtype[0] in "if" else np.abs(X)) * scale).astype(dtype)
    weights = np.linspace(0.5, 2, len(y)) if weighted else None
    floats = X.astype("f4" if dtype == "float16" else "f8")
    if weighted or dtype != "uint16":  # which has exact sums
        converted = ClassMoments().update(floats, y, weights)
        for layout in (np.ascontiguousarray, np.asfortranarray):
            assert_same(ClassMoments().update(layout(X), y, weights), converted)


@pairs(
    "d, dtype, covariance_type",
    [1, 2, 3, 7, 8, 12, 13, 15, 16, 17, 24, 25, 63, 64, 65],
    NATIVE,
    ["full", "tied", "diag"],
)
def test_any_width(covariance_type, dtype, d, monkeypatch):
    X, y = sample(70, d, dtype=dtype)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)
    take_path("wide by class", monkeypatch)
    rtol = 1e-6 if dtype == "float32" else 1e-12
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y, rtol=rtol)


@pairs(
    "n, dtype, covariance_type",
    [1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1024, 2000],
    ["float64", "uint8"],
    ["full", "tied", "tied_diag"],
)
def test_any_number_of_rows(covariance_type, dtype, n, monkeypatch):
    X, y = sample(n, 6, 4, dtype=dtype)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)
    take_path("wide by class", monkeypatch)
    assert_moments(ClassMoments(covariance_type).update(X, y), X, y)


def test_lists_and_frames():
    pd = pytest.importorskip("pandas")
    X, y = sample(30)
    expected = bits(ClassMoments().update(X, y))
    assert bits(ClassMoments().update(X.tolist(), y.tolist())) == expected
    assert bits(ClassMoments().update(pd.DataFrame(X), pd.Series(y))) == expected
    assert bits(ClassMoments().update(X.astype(object), y)) == expected


# --- weights ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "bool", "float32", "float64", ">f8"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_weights(covariance_type, dtype):
    X, y = sample(dtype=dtype)
    weights = np.random.default_rng(1).gamma(1, size=200)
    weights[::7] = 0
    moments = ClassMoments(covariance_type).update(X, y, weights)
    assert moments.class_count.dtype == np.float64
    assert not moments.exact
    assert_moments(moments, X, y, weights)
    moments.update(X, y)  # and unweighted rows added
    both = np.append(weights, np.ones(200))
    assert_moments(moments, np.vstack([X, X]), np.append(y, y), both)


@pytest.mark.parametrize("dtype", ["float64", "uint8"])
def test_rows_of_weight_zero_are_not_there(dtype):
    X, y = sample(dtype=dtype)
    y[::3] = 99
    weights = np.random.default_rng(3).gamma(1, size=200)
    weights[::3] = 0
    moments = ClassMoments().update(X, y, weights)
    assert 99 not in moments.classes
    kept = weights > 0
    assert bits(moments) == bits(ClassMoments().update(X[kept], y[kept], weights[kept]))
    before = bits(moments)
    moments.update(X, y, np.zeros(200))
    moments.update(X, y, 0)
    assert bits(moments) == before


@pytest.mark.parametrize(
    "weights", [np.full(200, 2, np.int8), np.full(200, True), [0.5] * 200, 3, np.float32(0.25)]
)
def test_weights_of_any_kind(weights):
    X, y = sample()
    moments = ClassMoments().update(X, y, weights)
    assert_moments(moments, X, y, np.broadcast_to(weights, 200))


# --- what is held -----------------------------------------------------------------------------


def test_properties():
    X, y = sample()
    moments = ClassMoments("tied").update(X, y)
    assert moments.nbytes == 8 * (2 * 3 + 2 * 3 * 5 + 15)
    assert repr(moments).startswith("ClassMoments('tied'): 200 rows x 5 features in 3 classes")
    assert repr(ClassMoments()) == "ClassMoments('full'): empty"
    assert "exact" in repr(ClassMoments().update(X.astype(np.uint8), y))
    moments.class_count[:] = 0  # a copy
    assert moments.class_count.sum() == 200
    assert np.array_equal(moments.covariance(), moments.covariance().T)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_ddof(covariance_type):
    X, y = sample(40, n_classes=4)
    y[y == 3] = 2
    y[0] = 3  # a class of one row
    moments = ClassMoments(covariance_type).update(X, y)
    for ddof in (0, 1, 2, 30):
        expected = naive.covariance(X, y, covariance_type, ddof=ddof)
        np.testing.assert_allclose(moments.covariance(ddof), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("covariance_type", ["", "Full", "ledoit", None, 3, ["full"]])
def test_unknown_covariance_type(covariance_type):
    message = rf"covariance_type={re.escape(repr(covariance_type))} is not known; use one of full"
    with pytest.raises(InvalidParameterError, match=message):
        ClassMoments(covariance_type)
    with pytest.raises(InvalidParameterError, match="use one of full, tied, diag"):
        ClassMoments().reduce(covariance_type)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e-260])
def test_rows_of_almost_no_weight_are_ignored(covariance_type, weight):
    """Their squares would be rounded to anything, even below zero."""
    X = np.random.default_rng(9).normal(size=(40, 2))
    weights = np.full(40, weight)
    moments = ClassMoments(covariance_type).update(X[:2], [0, 0], [1.0, 2.0])
    before = moments.to_bytes()
    moments.update(X[:20], np.zeros(20, int), weights[:20]).update(X[20:], [0] * 20, weights[20:])
    assert moments.to_bytes() == before
    assert not ClassMoments(covariance_type).update(X, [0] * 40, weights).classes.size
