"""Batches as other libraries make them: tensors, dicts, tables, datasets and images.

The stand-ins have the protocols of PyTorch, TensorFlow, CuPy and Hugging Face's datasets, which
are too heavy for the tests.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask import delayed
from samples import blobs
from sklearn.utils import gen_batches

from streamgda import GaussianNB, accumulate
from streamgda.errors import InvalidDataError, InvalidParameterError

X, y = blobs()
WEIGHTS = 1.0 + np.arange(len(y)) % 2
PARTS = list(gen_batches(len(y), 70))


class Torch:
    """A tensor of PyTorch on a device, with a gradient, perhaps of bfloat16."""

    def __init__(self, values, steps=("grad", "device"), narrow=False):
        self.values, self.steps, self.narrow = values, set(steps), narrow
        self.shape = values.shape
        self.dtype = "torch.bfloat16" if narrow else f"torch.{values.dtype}"

    def without(self, step):
        return Torch(self.values, self.steps - {step}, self.narrow)

    def detach(self):
        return self.without("grad")

    def cpu(self):
        return self.without("device")

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


class Eager:
    """An eager tensor of TensorFlow."""

    def __init__(self, values):
        self.values = values

    def numpy(self):
        return self.values


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


def assert_same(moments, expected):
    np.testing.assert_array_equal(moments.classes, expected.classes)
    np.testing.assert_array_equal(moments.class_count, expected.class_count)
    np.testing.assert_allclose(moments.means, expected.means, rtol=1e-12)
    np.testing.assert_allclose(moments.covariance(), expected.covariance(), rtol=1e-9)


EVERY_TENSOR = pytest.mark.parametrize("kind", [Torch, Eager, Cuda, Exchanged])


@EVERY_TENSOR
def test_tensors(kind):
    batches = ([kind(X[part]), kind(y[part]), kind(WEIGHTS[part])] for part in PARTS)
    assert_same(accumulate(batches), accumulate(X, y, sample_weight=WEIGHTS))


def test_bfloat16_is_read_as_float32():
    narrow = X.astype(np.float16).astype(np.float64)
    batches = [(Torch(narrow, narrow=True), Torch(y))]
    assert_same(accumulate(batches), accumulate(narrow.astype(np.float32), y))


def test_tensors_that_no_array_can_hold_are_refused():
    class Sparse(Torch):
        def detach(self):
            raise TypeError("can't convert Sparse layout tensor to numpy")

    with pytest.raises(InvalidDataError, match=r"^batch 1: a Sparse cannot be conv"):
        accumulate([(X, y), (Sparse(X), y)])


@pytest.mark.parametrize("kind", [np.asarray, Torch, Eager, np.ndarray.tolist])
def test_images_are_flattened(kind):
    images = np.random.default_rng(0).integers(0, 255, (300, 2, 3, 3), np.uint8)
    expected = accumulate(images.reshape(300, -1), y)
    found = accumulate((kind(images[part]), y[part]) for part in PARTS)
    assert_same(found, expected)
    named = ({"image": kind(images[part]), "label": y[part]} for part in PARTS)
    assert_same(accumulate(named, columns=("image", "label")), expected)
    with pytest.raises(InvalidDataError, match=r"images: X\.reshape\(len\(X\), -1\)"):
        accumulate(images, y)


def table(kind, part):
    columns = {name: X[part, j] for j, name in enumerate("abcd")}
    return kind(columns | {"label": y[part], "weight": WEIGHTS[part], "text": ["x"] * len(y[part])})


TABLES = [dict, pd.DataFrame, pl.DataFrame, pa.table, pa.RecordBatch.from_pydict]


@pytest.mark.parametrize("kind", TABLES)
def test_columns_by_name(kind):
    names = (list("abcd"), "label", "weight")
    batches = (table(kind, part) for part in PARTS)
    found = accumulate(batches, columns=names)
    assert_same(found, accumulate(X, y, sample_weight=WEIGHTS))
    one = accumulate([table(kind, slice(None))], columns=("b", "label"))
    assert_same(one, accumulate(X[:, 1:2], y))
    assert found.feature_names == tuple("abcd")
    assert one.feature_names is None


def test_columns_of_delayed_batches():
    parts = [delayed(table, pure=True)(dict, part) for part in PARTS]
    found = accumulate(parts, columns=(list("abcd"), "label", "weight"))
    assert_same(found, accumulate(X, y, sample_weight=WEIGHTS))
    assert found.feature_names == tuple("abcd")
    with pytest.raises(
        InvalidDataError, match=r"partition \d has no column .e.; its columns are a,"
    ):
        accumulate(parts, columns=("e", "label"))
    tensors = [delayed((Torch(X[part]), Torch(y[part]))) for part in PARTS]
    assert_same(accumulate(tensors), accumulate(X, y))


@pytest.mark.parametrize(
    "columns", ["label", ("image",), ("a", "b", "c", "d"), ("a", 1), ([], "b"), ([1], "b"), 3]
)
def test_columns_that_are_no_names_are_refused(columns):
    with pytest.raises(InvalidParameterError, match=r"columns=.*expected columns=\('image', 'la"):
        accumulate([{"a": X, "b": y}], columns=columns)


def test_batches_without_names_are_refused():
    named = {"image": X, "label": y}
    with pytest.raises(InvalidDataError, match=r"batch 0 is a dict; .* columns are image, la"):
        accumulate([named])
    with pytest.raises(InvalidDataError, match=r"batch 0 is a tuple, .* leave out columns"):
        accumulate([(X, y)], columns=("image", "label"))
    with pytest.raises(InvalidDataError, match=r"X is a dict of image, label; .* such as \[X\]$"):
        accumulate(named, columns=("image", "label"))
    with pytest.raises(
        InvalidDataError, match=r"batch 0 has columns of different .* 'b' of \(299,\)"
    ):
        accumulate([{"a": X[:, 0], "b": X[1:, 1], "y": y}], columns=(["a", "b"], "y"))


def test_records_are_named_with_what_helps():
    records = [{"a": 1.0, "label": 0}, {"a": 2.0, "label": 1}]
    with pytest.raises(InvalidDataError, match=r"X is a list of dicts.*pandas.DataFrame\(X\)"):
        GaussianNB().fit(records, [0, 1])
    with pytest.raises(InvalidDataError, match=r"batch 0 is a list of dicts.*columns="):
        accumulate([records])
    assert accumulate([pd.DataFrame(records)], columns=(["a"], "label")).class_count.tolist() == [
        1,
        1,
    ]
