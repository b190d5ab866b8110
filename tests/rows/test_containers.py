"""Every kind of rows in every use, against the same rows as an array.

A new container is one line in `CONTAINERS`.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
import zarr
from dask import delayed
from moment_checks import assert_close
from scipy import sparse
from sklearn.utils import gen_batches

from streamgda import GaussianNB, GroupedMoments, accumulate, open_store
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.source import as_source

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
GROUPS = np.array(["east", "north", "south"])[RNG.integers(0, 3, N)]
GAPS = X.copy()
GAPS[[3, 50, 119], [0, 2, 1]] = np.nan


class Torch:
    """A tensor of PyTorch on a device, with a gradient, perhaps of bfloat16."""

    def __init__(self, values, steps=("grad", "device"), narrow=False):
        self.values, self.steps, self.narrow = values, set(steps), narrow
        self.shape = values.shape
        self.dtype = "torch.bfloat16" if narrow else f"torch.{values.dtype}"

    def detach(self):
        return Torch(self.values, self.steps - {"grad"}, self.narrow)

    def cpu(self):
        return Torch(self.values, self.steps - {"device"}, self.narrow)

    def float(self):
        return Torch(np.asarray(self.values, np.float32), self.steps)

    def numpy(self):
        if self.steps:
            raise RuntimeError(f"use Tensor.detach() and Tensor.cpu(): {self.steps}")
        if self.narrow:
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values

    def __array__(self, dtype=None, copy=None):
        return self.numpy()

    def __len__(self):
        return len(self.values)


def eager(values):
    """An eager tensor of TensorFlow."""
    return SimpleNamespace(numpy=lambda: values)


class Cuda:
    """An array of CuPy, which numpy may not convert by itself."""

    __dlpack__ = None

    def __init__(self, values):
        self.values = values

    def get(self):
        return self.values

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Implicit conversion to a NumPy array is not allowed")


class Exchanged:
    """An array of any library that exchanges data by DLPack only."""

    def __init__(self, values):
        self.values = values

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


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


def of_polars(values, _):
    if values.ndim == 1:
        return pl.Series(values.tolist())
    return pl.DataFrame(values, schema=list(NAMES), nan_to_null=True)


def of_arrow(values, _):
    if values.ndim == 1:
        return pa.chunked_array([values[:9].tolist(), [], values[9:].tolist()])
    return pa.table(dict(zip(NAMES, values.T, strict=True)))


def lazily(values, _):
    """An array of dask whose blocks split the features, and end within those of the labels."""
    return da.from_array(values, chunks=(17, 2) if values.ndim == 2 else 11)


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
    """How rows, labels or weights are made of an array and a folder; what rows have and may be."""

    make: Callable[[np.ndarray, Path], Any]
    named: bool = False  # Features have names.
    lazy: bool = False  # Predictions are lazy.
    empty: bool = True  # There may be no rows.


CONTAINERS = {
    "array": Container(lambda values, _: values),
    "list": Container(lambda values, _: values.tolist()),
    "objects": Container(lambda values, _: values.astype(object)),
    "Fortran": Container(lambda values, _: np.asfortranarray(values)),
    "strided": Container(lambda values, _: np.repeat(values, 2, axis=0)[::2]),
    "masked": Container(masked),
    "tensor": Container(lambda values, _: Torch(values) if values.dtype.kind != "U" else values),
    "memmap": Container(memmap, empty=False),
    "pandas": Container(lambda values, _: frame(values), named=True),
    "nullable": Container(lambda values, _: frame(values).convert_dtypes(), named=True),
    "polars": Container(of_polars, named=True),
    "arrow": Container(of_arrow, named=True),
    "parquet": Container(parquet, named=True, empty=False),
    "zarr": Container(stored),
    "HDF5": Container(hdf5),
    "dask": Container(lazily, lazy=True),
    "dask blocks": Container(lambda values, _: da.from_array(values, 17), lazy=True),
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


class Use:
    """What is done with rows; each method is a case of `test_every_use_of_every_container`."""

    def __init__(self, kind, path):
        self.container, self.path = CONTAINERS[kind], path

    def made(self, *arrays):
        return [self.container.make(array, self.path) for array in arrays]

    def fit(self):
        rows, y, weights = self.made(X, Y, WEIGHTS)
        found, expected = GaussianNB().fit(rows, y), GaussianNB().fit(X, Y)
        assert_close(found.moments_, expected.moments_)
        found, expected = GaussianNB().fit(rows, y, weights), GaussianNB().fit(X, Y, WEIGHTS)
        assert_close(found.moments_, expected.moments_)

    def groups(self):
        rows, y, groups, weights = self.made(X, TEXTS, GROUPS, WEIGHTS)
        options = {"groups": groups, "sample_weight": weights, "covariance_type": "diag"}
        found = accumulate(rows, y, **options)
        expected = GroupedMoments("diag").update(X, TEXTS, GROUPS, WEIGHTS)
        assert list(found) == list(expected)
        assert found.feature_names == (NAMES if self.container.named else None)
        for group in expected:
            assert_close(found[group], expected[group])

    def checkpoint(self):
        rows, y = self.made(X, Y)
        for _ in range(2):  # The second pass finds all rows in the file.
            kept = {"checkpoint": self.path / "kept", "checkpoint_every": 0}
            found = accumulate(rows, y, covariance_type="diag", **kept)
            assert_close(found, accumulate(X, Y, covariance_type="diag"))

    def partial_fit(self):
        rows, y = self.made(X, Y)
        found = GaussianNB().partial_fit(rows, y, classes=[0, 1, 2]).partial_fit(rows, y)
        assert_close(found.moments_, GaussianNB().fit(np.vstack([X, X]), np.append(Y, Y)).moments_)

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
        assert_close(found, expected)

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
        assert_close(found, accumulate(X, TEXTS, sample_weight=WEIGHTS, covariance_type="diag"))


USES = [name for name in vars(Use) if not name.startswith("_") and name != "made"]


@pytest.mark.parametrize("use", USES)
@EVERY
def test_every_use_of_every_container(kind, use, tmp_path):
    getattr(Use(kind, tmp_path), use)()


LABELS = {
    "list": TEXTS.tolist,
    "objects": lambda: TEXTS.astype(object),
    "StringDType": lambda: TEXTS.astype(np.dtypes.StringDType()),
    "categories": lambda: pd.Series(TEXTS, np.arange(N)[::-1], dtype="category"),
    "polars categories": lambda: pl.Series(TEXTS.tolist(), dtype=pl.Categorical),
    "arrow dictionary": lambda: pa.array(TEXTS.tolist()).dictionary_encode(),
    "column of a frame": lambda: pd.DataFrame({"y": TEXTS}),
    "zarr": lambda: stored(TEXTS, Path()),
    "dask": lambda: lazily(TEXTS, Path()),
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
    assert_close(accumulate(rows, y, covariance_type="diag", sample_weight=WEIGHTS), expected)
    assert GaussianNB().fit(rows, y).score(rows, y) == GaussianNB().fit(X, TEXTS).score(X, TEXTS)


PLACES = {
    "array": "X",
    "zarr": ": chunk (1, 1)",
    "dask": "X: block 1",
    "DataArray": "X: (row=17)",
    "parquet": ".parquet, column 'c'",
}


@pytest.mark.parametrize("kind", PLACES)
def test_the_place_of_a_value(kind, tmp_path):
    assert as_source(CONTAINERS[kind].make(X, tmp_path)).place(17, 2).endswith(PLACES[kind])


def test_changes_of_a_private_memory_map_are_kept(tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = np.load(tmp_path / "X.npy", mmap_mode="c")
    rows[5] = 7
    expected = accumulate(np.array(rows), Y)
    assert_close(accumulate(rows, Y), expected)


PARTS = list(gen_batches(N, 35))


@pytest.mark.parametrize("kind", [np.asarray, Torch, eager, Cuda, Exchanged, np.ndarray.tolist])
def test_tensors_and_images(kind):
    batches = ([kind(X[part]), kind(Y[part]), kind(WEIGHTS[part])] for part in PARTS)
    assert_close(accumulate(batches), accumulate(X, Y, sample_weight=WEIGHTS))
    images = RNG.integers(0, 255, (N, 2, 3, 3), np.uint8)
    expected = accumulate(images.reshape(N, -1), Y)
    assert_close(accumulate((kind(images[part]), Y[part]) for part in PARTS), expected)
    named = ({"image": kind(images[part]), "label": Y[part]} for part in PARTS)
    assert_close(accumulate(named, columns=("image", "label")), expected)


def test_bfloat16_is_read_as_float32():
    narrow = X.astype(np.float16).astype(np.float64)
    assert_close(
        accumulate([(Torch(narrow, narrow=True), Torch(Y))]),
        accumulate(narrow.astype(np.float32), Y),
    )


def table(kind, part):
    columns = {name: X[part, j] for j, name in enumerate("abc")}
    return kind(columns | {"label": Y[part], "weight": WEIGHTS[part], "text": ["x"] * len(Y[part])})


@pytest.mark.parametrize(
    "kind", [dict, pd.DataFrame, pl.DataFrame, pa.table, pa.RecordBatch.from_pydict]
)
def test_columns_by_name(kind):
    names = (list("abc"), "label", "weight")
    batches = (table(kind, part) for part in PARTS)
    found = accumulate(batches, columns=names)
    assert_close(found, accumulate(X, Y, sample_weight=WEIGHTS))
    one = accumulate([table(kind, slice(None))], columns=("b", "label"))
    assert_close(one, accumulate(X[:, 1:2], Y))
    assert found.feature_names == tuple("abc")
    assert one.feature_names is None


def test_columns_of_delayed_batches():
    parts = [delayed(table, pure=True)(dict, part) for part in PARTS]
    found = accumulate(parts, columns=(list("abc"), "label", "weight"))
    assert_close(found, accumulate(X, Y, sample_weight=WEIGHTS))
    assert found.feature_names == tuple("abc")
    with pytest.raises(
        InvalidDataError, match=r"partition \d has no column .e.; its columns are a,"
    ):
        accumulate(parts, columns=("e", "label"))
    tensors = [delayed((Torch(X[part]), Torch(Y[part]))) for part in PARTS]
    assert_close(accumulate(tensors), accumulate(X, Y))


class Sparse(Torch):
    def detach(self):
        raise TypeError("can't convert Sparse layout tensor to numpy")


NAMED, PAIR = {"image": X, "label": Y}, {"columns": ("image", "label")}
RECORDS = [{"a": 1.0, "label": 0}, {"a": 2.0, "label": 1}]
WRONG = [
    (X, {}, r"y is missing.*accumulate\(X, y\), or an iterable"),
    (3, {}, r"X is a int; .* an iterable of \(X, y\) batches"),
    ([(X, Y), [X, Y, Y, Y]], {}, r"batch 1 is a list; expected a tuple \(X, y\)"),
    ([(X, Y), (X, Y[:-1])], {}, f"batch 1: X has {N} rows but y has {N - 1}"),
    ([(X, Y), (X, Y), (X[:, :2], Y)], {}, "batch 2: .*2 features, but .* 3 features"),
    ([(X, Y)], {"sample_weight": WEIGHTS}, "batches hold their own weights"),
    ([(X, Y), (Sparse(X), Y)], {}, "^batch 1: a Sparse cannot be conv"),
    ([NAMED], {}, "batch 0 is a dict; .* columns are image, la"),
    ([(X, Y)], PAIR, "batch 0 is a tuple, .* leave out columns"),
    (NAMED, PAIR, r"X is a dict of image, label; .* such as \[X\]$"),
    ([{"a": X[:, 0], "b": X[1:, 1], "y": Y}], {"columns": (["a", "b"], "y")}, "different .* 'b'"),
    ([RECORDS], {}, "batch 0 is a list of dicts.*columns="),
]


@pytest.mark.parametrize(("given", "options", "message"), WRONG)
def test_wrong_batches(given, options, message):
    with pytest.raises(InvalidDataError, match=message):
        accumulate(given, **options)


def test_records_and_images_are_named_with_what_helps():
    with pytest.raises(InvalidDataError, match=r"X is a list of dicts.*pandas.DataFrame\(X\)"):
        GaussianNB().fit(RECORDS, [0, 1])
    with pytest.raises(InvalidDataError, match=r"images: X\.reshape\(len\(X\), -1\)"):
        accumulate(np.zeros((3, 2, 2)), Y[:3])


@pytest.mark.parametrize(
    "columns", ["label", ("image",), ("a", "b", "c", "d"), ("a", 1), ([], "b"), ([1], "b"), 3]
)
def test_columns_that_are_no_names_raise(columns):
    with pytest.raises(InvalidParameterError, match=r"columns=.*expected columns=\('image', 'la"):
        accumulate([{"a": X, "b": Y}], columns=columns)
