"""Every kind of rows in every use, against the same rows as an array.

A new container is one line in `CONTAINERS`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from scipy import sparse
from sklearn.linear_model import Ridge as SklearnRidge

from streamgda import PCA, GaussianNB, Ridge, accumulate, open_store
from streamgda.errors import InvalidDataError
from streamgda.rows.source import as_array, as_source

pa = pytest.importorskip("pyarrow")
dd = pytest.importorskip("dask.dataframe")
xr = pytest.importorskip("xarray")
import pyarrow.parquet as pq  # noqa: E402

N, NAMES = 120, ("a", "b", "c")
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, N)
X = RNG.normal(size=(N, 3)) + Y[:, None]
TEXTS = np.array(["ant", "bee", "cat"])[Y]
WEIGHTS = RNG.integers(0, 3, N) / 2
GAPS = X.copy()
GAPS[[3, 50, 119], [0, 2, 1]] = np.nan


class Tensor:
    """A tensor of PyTorch with a gradient, on a device."""

    dtype = "torch.float64"

    def __init__(self, values, steps=0):
        self.values, self.steps, self.shape = values, steps, values.shape

    def detach(self):
        return Tensor(self.values, self.steps + 1)

    cpu = detach

    def numpy(self):
        assert self.steps == 2
        return self.values

    def __len__(self):
        return len(self.values)


def masked(values, _):
    return np.ma.array(values, mask=values != values)  # noqa: PLR0124  (NaN)


def memmap(values, path):
    name = path / f"{uuid.uuid4()}.npy"
    np.save(name, values)
    return np.load(name, mmap_mode="r")


def stored(values, path):
    """An array of zarr in chunks that end within those of the labels."""
    dtype = str if values.dtype.kind == "U" else values.dtype
    shape: Any = (13, 2) if values.ndim == 2 else (9,)
    array = zarr.create_array({}, shape=values.shape, chunks=shape, dtype=dtype)
    array[:] = values
    return array


def hdf5(values, path):
    """A data set of HDF5 without chunks; its texts have no length."""
    file = h5py.File(path / f"{uuid.uuid4()}.h5", "w")
    return values if values.dtype.kind == "U" else file.create_dataset("values", data=values)


def frame(values):
    return pd.DataFrame(values, columns=list(NAMES)) if values.ndim == 2 else pd.Series(values)


def nullable(values, _):
    return frame(values).convert_dtypes()


def of_polars(values, _):
    if values.ndim == 1:
        return pl.Series(values.tolist())
    return pl.DataFrame(values, schema=list(NAMES), nan_to_null=True)


def of_arrow(values, _):
    if values.ndim == 1:
        return pa.chunked_array([values[:9].tolist(), [], values[9:].tolist()])
    return pa.table(dict(zip(NAMES, values.T, strict=True)))


def dask_array(values, _):
    return da.from_array(values, chunks=(17, 2) if values.ndim == 2 else 11)


def dask_blocks(values, _):
    return da.from_array(values, chunks=(17, 3) if values.ndim == 2 else 17)


def dask_frame(values, _):
    return dd.from_pandas(frame(values), npartitions=5)


def parquet(values, path):
    """Rows of a file with row groups of seven; labels and weights are in memory."""
    if values.ndim == 1:
        return values
    table = pa.table(dict(zip(NAMES, values.T, strict=True)))
    name = path / f"{uuid.uuid4()}.parquet"
    pq.write_table(table, name, row_group_size=7)
    return open_store(name, y=None)[0]


class Container(NamedTuple):
    """A kind of rows.

    Attributes
    ----------
    make : callable
        Called with an array and a folder; returns the container of its rows, labels or weights.
    named : bool
        The features have names.
    lazy : bool
        Predictions are lazy.
    empty : bool
        There may be no rows.
    """

    make: Callable[[np.ndarray, Path], Any]
    named: bool = False
    lazy: bool = False
    empty: bool = True


CONTAINERS = {
    "array": Container(lambda values, _: values),
    "list": Container(lambda values, _: values.tolist()),
    "objects": Container(lambda values, _: values.astype(object)),
    "Fortran": Container(lambda values, _: np.asfortranarray(values)),
    "strided": Container(lambda values, _: np.repeat(values, 2, axis=0)[::2]),
    "masked": Container(masked),
    "tensor": Container(lambda values, _: Tensor(values) if values.dtype.kind != "U" else values),
    "memmap": Container(memmap, empty=False),
    "pandas": Container(lambda values, _: frame(values), named=True),
    "nullable": Container(nullable, named=True),
    "polars": Container(of_polars, named=True),
    "arrow": Container(of_arrow, named=True),
    "parquet": Container(parquet, named=True, empty=False),
    "zarr": Container(stored),
    "HDF5": Container(hdf5),
    "dask": Container(dask_array, lazy=True),
    "dask blocks": Container(dask_blocks, lazy=True),
    "dask frame": Container(dask_frame, named=True, lazy=True, empty=False),
    "DataArray": Container(
        lambda values, _: xr.DataArray(values, dims=("row", "band")[: values.ndim])
    ),
    "sparse": Container(lambda values, _: sparse.csr_array(values) if values.ndim == 2 else values),
    "sparse columns": Container(
        lambda values, _: sparse.csc_matrix(values) if values.ndim == 2 else values
    ),
}
EVERY = pytest.mark.parametrize("kind", CONTAINERS)


@pytest.fixture(autouse=True)
def _several_parts(slabs_of):
    slabs_of(200)


def in_memory(scores):
    return np.asarray(scores.compute() if hasattr(scores, "compute") else scores)


def same(found, expected):
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_allclose(found.class_count, expected.class_count, rtol=1e-14)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-10)
    assert found.n_skipped == expected.n_skipped


class Use:
    """What is done with rows; each method is a case of `test_every_use_of_every_container`."""

    def __init__(self, kind, path):
        self.container, self.path = CONTAINERS[kind], path

    def made(self, *arrays):
        return [self.container.make(array, self.path) for array in arrays]

    def accumulate(self):
        rows, y = self.made(X, Y)
        same(accumulate(rows, y, covariance_type="diag"), accumulate(X, Y, covariance_type="diag"))

    def fit(self):
        rows, y, weights = self.made(X, Y, WEIGHTS)
        found, expected = GaussianNB().fit(rows, y), GaussianNB().fit(X, Y)
        same(found.moments_, expected.moments_)
        found, expected = GaussianNB().fit(rows, y, weights), GaussianNB().fit(X, Y, WEIGHTS)
        same(found.moments_, expected.moments_)

    def checkpoint(self):
        rows, y = self.made(X, Y)
        for _ in range(2):  # The second pass finds all rows in the file.
            kept = {"checkpoint": self.path / "kept", "checkpoint_every": 0}
            found = accumulate(rows, y, covariance_type="diag", **kept)
            same(found, accumulate(X, Y, covariance_type="diag"))

    def texts(self):
        rows, y = self.made(X, TEXTS)
        same(GaussianNB().fit(rows, y).moments_, GaussianNB().fit(X, TEXTS).moments_)

    def partial_fit(self):
        rows, y = self.made(X, Y)
        found = GaussianNB().partial_fit(rows, y, classes=[0, 1, 2]).partial_fit(rows, y)
        same(found.moments_, GaussianNB().fit(np.vstack([X, X]), np.append(Y, Y)).moments_)

    def predict(self):
        rows, y = self.made(X, Y)
        fitted, expected = GaussianNB().fit(rows, y), GaussianNB().fit(X, Y)
        labels = fitted.predict(rows)
        graph = getattr(labels, "__dask_graph__", lambda: None)
        assert (graph() is not None) == self.container.lazy
        np.testing.assert_array_equal(in_memory(labels), expected.predict(X))
        found, wanted = fitted.predict_proba(rows), expected.predict_proba(X)
        np.testing.assert_allclose(in_memory(found), wanted, rtol=1e-9, atol=1e-12)
        assert fitted.score(rows, y) == expected.score(X, Y)

    def skip(self):
        rows, y = self.made(GAPS, Y)
        with pytest.raises(InvalidDataError, match=r"row \d+, column|row 3 holds"):
            accumulate(rows, y, covariance_type="diag")
        options: Any = {"covariance_type": "diag", "on_invalid": "skip", "unlabelled": 2}
        kept = np.isfinite(GAPS).all(axis=1) & (Y != 2)
        found = accumulate(rows, y, **options)
        assert found.n_skipped == (~np.isfinite(GAPS).all(axis=1) & (Y != 2)).sum()
        expected = accumulate(X[kept], Y[kept], covariance_type="diag")
        expected._n_skipped = found.n_skipped
        same(found, expected)

    def fill(self):
        rows, y = self.made(GAPS, Y)
        fitted = GaussianNB().fit(self.made(X)[0], y)
        expected = np.where(np.isfinite(GAPS).all(axis=1), GaussianNB().fit(X, Y).predict(X), -1)
        found = fitted.predict(rows, on_invalid="fill", fill=-1)
        np.testing.assert_array_equal(in_memory(found), expected)

    def names(self):
        rows, y = self.made(X, Y)
        moments = accumulate(rows, y, covariance_type="diag")
        assert moments.feature_names == (NAMES if self.container.named else None)
        fitted = GaussianNB().fit(rows, y)
        names = getattr(fitted, "feature_names_in_", None)
        assert (names is not None) == self.container.named
        if self.container.named:
            with pytest.warns(UserWarning, match="does not have valid feature names"):
                fitted.predict(X)

    def one_row(self):
        rows, y = self.made(X[:1], Y[:1])
        moments = accumulate(rows, y, covariance_type="diag")
        assert moments.class_count.tolist() == [1]
        np.testing.assert_array_equal(moments.means, X[:1])

    def no_rows(self):
        if not self.container.empty:
            return
        rows, y = self.made(X[:0], Y[:0])
        if isinstance(rows, list):
            rows = np.empty((0, 3)).tolist()
        with pytest.raises(ValueError, match=r"0 sample|0 rows|Expected 2D"):
            GaussianNB().fit(rows, y)

    def wrong_width(self):
        rows = self.made(X)[0]
        fitted = GaussianNB().fit(X[:, :2], Y)
        with (
            pytest.raises(ValueError, match="X has 3 features"),
            pytest.warns(match="names") if (self.container.named) else pytest.MonkeyPatch.context(),
        ):
            fitted.predict(rows)

    def wrong_length(self):
        rows, y = self.made(X, Y[:-1])
        with pytest.raises(ValueError, match=r"inconsistent numbers of samples|blocks|lengths"):
            accumulate(rows, y, covariance_type="diag")

    def batches(self):
        parts = [slice(0, 50), slice(50, 51), slice(51, N)]
        if self.container.lazy:
            return
        batches = [tuple(self.made(X[part], TEXTS[part], WEIGHTS[part])) for part in parts]
        found = accumulate(iter(batches), covariance_type="diag")
        assert found.feature_names == (NAMES if self.container.named else None)
        same(found, accumulate(X, TEXTS, sample_weight=WEIGHTS, covariance_type="diag"))

    def heads(self):
        """Ridge and PCA, which take dense slabs of sparse rows."""
        rows, y = self.made(X, WEIGHTS)
        ridge, expected = Ridge().fit(rows, y), SklearnRidge().fit(X, WEIGHTS)
        np.testing.assert_allclose(ridge.coef_, expected.coef_, rtol=1e-9)
        found, wanted = PCA(2).fit(rows), PCA(2).fit(X)
        np.testing.assert_allclose(found.components_, wanted.components_, rtol=1e-9)
        found, wanted = in_memory(found.transform(rows)), wanted.transform(X)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


USES = [name for name in vars(Use) if not name.startswith("_") and name != "made"]


@pytest.mark.parametrize("use", USES)
@EVERY
def test_every_use_of_every_container(kind, use, tmp_path):
    getattr(Use(kind, tmp_path), use)()


@EVERY
def test_all_rows_as_an_array(kind, tmp_path):
    found = as_array(CONTAINERS[kind].make(X, tmp_path))
    np.testing.assert_array_equal(found if kind[:6] != "sparse" else found.toarray(), X)


LABELS = {
    "list": TEXTS.tolist,
    "objects": lambda: TEXTS.astype(object),
    "StringDType": lambda: TEXTS.astype(np.dtypes.StringDType()),
    "categories": lambda: pd.Series(TEXTS, np.arange(N)[::-1], dtype="category"),
    "polars categories": lambda: pl.Series(TEXTS.tolist(), dtype=pl.Categorical),
    "arrow dictionary": lambda: pa.array(TEXTS.tolist()).dictionary_encode(),
    "column of a frame": lambda: pd.DataFrame({"y": TEXTS}),
    "zarr": lambda: stored(TEXTS, Path()),
    "dask": lambda: dask_array(TEXTS, Path()),
    "dask series": lambda: dask_frame(TEXTS, Path()),
}


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("kind", ["array", "pandas", "zarr", "dask", "parquet", "sparse"])
def test_rows_and_labels_of_different_kinds(kind, labels, tmp_path):
    rows, y = CONTAINERS[kind].make(X, tmp_path), LABELS[labels]()
    expected = accumulate(X, TEXTS, covariance_type="diag", sample_weight=WEIGHTS)
    if labels == "dask series" and kind in ("zarr", "dask"):
        with pytest.raises(InvalidDataError, match="sizes"):
            accumulate(rows, y, covariance_type="diag")
        return
    same(accumulate(rows, y, covariance_type="diag", sample_weight=WEIGHTS), expected)
    assert GaussianNB().fit(rows, y).score(rows, y) == GaussianNB().fit(X, TEXTS).score(X, TEXTS)


def test_pages_of_a_memory_map_are_dropped(tmp_path):
    """Those of a private map hold its changes."""
    for mode in ("r", "c"):
        np.save(tmp_path / "X.npy", X)
        rows = np.load(tmp_path / "X.npy", mmap_mode=mode)
        if mode == "c":
            rows[5] = 7
        source = as_source(rows)
        expected = np.array(rows)
        found = [source.read(start, start + 10) for start in range(0, N, 10)]
        np.testing.assert_array_equal(np.vstack(found), expected)
