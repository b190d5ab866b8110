"""Outputs that cannot hold the results: refused before anything is computed or written."""

import re

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from samples import KINDS, blobs, held, refuses

from streamgda import GaussianNB, LinearDiscriminantAnalysis
from streamgda.errors import InvalidDataError, InvalidParameterError

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def fitted():
    return LinearDiscriminantAnalysis().fit(*blobs())


def test_out_that_does_not_fit(fitted):
    X, _ = blobs()
    match = r"out has shape \(9,\) and dtype int64, expected shape \(300,\)"
    for kind in ("numpy", "zarr"):
        refuses(InvalidDataError, match, fitted, "predict", X, out=held(np.arange(9), kind))
    match = r"dtype int64, expected .* a dtype that holds float64"
    out = np.empty((300, 3), np.int64)
    refuses(InvalidDataError, match, fitted, "predict_proba", X, out=out)
    match = r"out has shape \(300, 3\) and dtype int64, expected shape \(300,\)"
    refuses(InvalidDataError, match, fitted, "predict", held(X, "dask"), out=out)


@pytest.mark.parametrize("kind", KINDS)
def test_out_that_is_no_array_of_numpy_or_in_a_store(fitted, kind):
    X, y = blobs()
    for out in (
        pd.Series(y),
        pd.Index(y),
        pd.Categorical(y),
        pd.arrays.SparseArray(y),
        da.from_array(y, chunks=100),
        np.float64(1),
        y.tolist(),
    ):
        match = f"out is of type {type(out).__name__}; expected an array of numpy or zarr, or a"
        refuses(TypeError, match, fitted, "predict", held(X, kind), out=out)
    out = da.zeros((300, 3), chunks=(100, 1))
    refuses(TypeError, "out is of type Array", fitted, "predict_proba", held(X, kind), out=out)


def test_keys_that_are_no_names(fitted, tmp_path):
    X, y = blobs()
    for keys in (pd.Series(y), pd.DataFrame({"id": y}), 3, [1], np.array(["id", "day"])):
        for out in (None, tmp_path / "labels.csv"):
            match = "keys=.* expected names of columns of X, such as keys='id'"
            refuses(InvalidParameterError, match, fitted, "predict", X, out=out, keys=keys)
    assert not (tmp_path / "labels.csv").exists()


def test_missing_dates_fit_every_type_of_dates():
    """NaT, which differs from itself, is held by an array of dates."""
    X, y = blobs()
    fitted = GaussianNB().fit(X, np.array(["2020", "2021", "2022"], "M8[D]")[y])
    X[3] = np.nan
    expected = fitted.predict(X, on_invalid="fill")
    out = np.empty(300, "M8[s]")
    assert fitted.predict(X, out=out, on_invalid="fill") is out
    np.testing.assert_array_equal(out, expected)
    assert np.isnat(out[3])


def outputs(shape, dtype):
    out = np.empty(shape, dtype)
    # Strings of fixed width have no specification in zarr v3.
    return [out] if out.dtype.kind in "US" else [out, zarr.create_array({}, data=out)]


@EVERY_KIND
@pytest.mark.parametrize(
    ("labels", "dtype", "lost"),
    [
        ([0, 200, 400], "i1", "200"),
        ([0, 200, 400], "u1", "400"),
        ([0, 200, 400], "U2", "200"),
        ([0, 2**53 + 1, 2], "f8", "9007199254740993"),
        (["setosa", "b", "c"], "U2", "setosa"),
        ([b"setosa", b"b", b"c"], "S2", "b'setosa'"),
        (["a", "b", "c"], "i8", "a"),
    ],
)
def test_outputs_that_cannot_hold_every_class(kind, labels, dtype, lost):
    X, y = blobs()
    fitted = GaussianNB().fit(X, np.array(labels)[y])
    for out in outputs(300, dtype):
        kept = np.array(out[...])
        match = re.escape(f"dtype {out.dtype}, expected shape (300,) and a dtype that holds ")
        match += f".* labels such as {re.escape(lost)}"
        refuses(InvalidDataError, match, fitted, "predict", held(X, kind), out=out)
        np.testing.assert_array_equal(out[...], kept)


@EVERY_KIND
def test_outputs_that_hold_every_class(kind):
    X, y = blobs()
    fitted = GaussianNB().fit(X, np.array([0, 100, 200])[y])
    expected = fitted.predict(X)
    for dtype in ("u1", "i2", "f4"):
        for out in outputs(300, dtype):
            np.testing.assert_array_equal(fitted.predict(held(X, kind), out=out)[...], expected)


def test_rejected_rows_need_an_output_that_holds_their_label(fitted):
    X, _ = blobs()
    options = {"reject": 0.1, "reject_label": 300}
    for out in outputs(300, "u1"):
        fitted.predict(X, out=out)
        refuses(InvalidDataError, "labels such as 300", fitted, "predict", X, out=out, **options)


@EVERY_KIND
def test_outputs_that_cannot_hold_probabilities(fitted, kind):
    X, _ = blobs()
    for dtype in ("i8", "U9", "M8[s]"):
        match = r"expected shape \(300, 3\) and a dtype that holds float64"
        out = np.empty((300, 3), dtype)
        refuses(InvalidDataError, match, fitted, "predict_proba", held(X, kind), out=out)
    out = fitted.predict_proba(held(X, kind), out=np.empty((300, 3), "f4"))
    np.testing.assert_allclose(out, fitted.predict_proba(X), atol=1e-7)


def test_outputs_that_are_read_only(fitted, tmp_path):
    X, _ = blobs()
    zarr.create_array(tmp_path / "out", shape=300, dtype="i8")
    for out in (np.broadcast_to(0, 300), zarr.open_array(tmp_path / "out", mode="r")):
        refuses(InvalidDataError, "out is read-only", fitted, "predict", X, out=out)
