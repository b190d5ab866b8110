"""IDX files, MNIST and digits."""

import gzip
import os
import struct

import numpy as np
import pytest
from allocations import assert_peak_below
from dataset_files import IDX_CODES, idx_bytes, write_idx
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamgda.datasets import IdxFile, convert, load_digits, load_mnist, read_idx
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
)


def idx_arrays() -> st.SearchStrategy[np.ndarray]:
    shapes = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)

    def of(name: str) -> st.SearchStrategy[np.ndarray]:
        kind = np.dtype(name)
        finite = {"allow_nan": False} if kind.kind == "f" else {}
        return hnp.arrays(kind, shapes, elements=hnp.from_dtype(kind, **finite))

    return st.sampled_from(sorted(IDX_CODES)).flatmap(of)


class TestIdx:
    @given(array=idx_arrays(), zipped=st.booleans(), rows=st.integers(1, 7))
    def test_round_trip(self, tmp_path, array, zipped, rows):
        path = write_idx(tmp_path / "any-name", array, zipped)
        read = read_idx(path)
        assert read.shape == array.shape
        assert read.dtype == array.dtype
        assert read.dtype.isnative
        assert read.flags.writeable
        np.testing.assert_array_equal(read, array)

        file = IdxFile(str(path))
        assert (file.shape, file.dtype) == (array.shape, array.dtype)
        for _ in range(2):  # each iteration starts again
            blocks = list(file.blocks(rows))
            assert all(len(block) == rows for block in blocks[:-1])
            np.testing.assert_array_equal(np.concatenate([array[:0], *blocks]), array)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda b: b"", "truncated"),
            (lambda b: b[:3], "truncated"),
            (lambda b: b[:7], "truncated"),
            (lambda b: b[:-1], "truncated"),
            (lambda b: b + b"\0", "longer than its header"),
            (lambda b: b"\1" + b[1:], "not an IDX file: it starts with 01 00 0b 02"),
            (lambda b: b"\0\0\x0a" + b[3:], "not an IDX file"),
            (lambda b: b[:3] + b"\0" + b[4:], "not an IDX file"),
            (lambda b: b[:3] + b"\xff" + b[4:], "not an IDX file"),
        ],
    )
    @pytest.mark.parametrize("zipped", [False, True])
    def test_damage(self, tmp_path, damage, message, zipped):
        path = tmp_path / "damaged.idx"
        content = damage(idx_bytes(np.arange(6, dtype=np.int16).reshape(3, 2)))
        path.write_bytes(gzip.compress(content) if zipped else content)
        with pytest.raises(SourceError, match=message) as caught:
            read_idx(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda b: b[:-9],  # within the data
            lambda b: b[:-4],  # within the checksum
            lambda b: b[:-8] + b"\1\2\3\4" + b[-4:],  # another checksum
            lambda b: b[:12] + b"\xff\xff" + b[14:],
            lambda b: b + b"more",
        ],
    )
    def test_damaged_gzip(self, tmp_path, damage):
        path = tmp_path / "damaged.idx.gz"
        path.write_bytes(
            damage(gzip.compress(idx_bytes(np.arange(99, dtype=np.int32).reshape(33, 3))))
        )
        for use in (read_idx, lambda path: convert(path, tmp_path / "out")):
            with pytest.raises(SourceError, match="damaged gzip"):
                use(path)

    @pytest.mark.parametrize("zipped", [False, True])
    @pytest.mark.parametrize(
        "shape", [(1 << 31,), (2, 1 << 31), (1 << 31,) * 3, (0, 1 << 31, 1 << 31), (13 << 20,)]
    )
    def test_memory_is_not_allocated_from_the_header_alone(self, tmp_path, shape, zipped):
        path = tmp_path / "huge.idx"
        content = struct.pack(f">BBBB{len(shape)}I", 0, 0, 0x0E, len(shape), *shape)
        content += os.urandom(200_000)  # gzip could hold the last shape in a file of this size
        path.write_bytes(gzip.compress(content) if zipped else content)

        def refused():
            with pytest.raises(SourceError, match=r"truncated|impossible"):
                read_idx(path)

        assert_peak_below(4 << 20, refused)

    def test_wrong_use(self, tmp_path):
        with pytest.raises(SourceNotFoundError, match=r"nothing\.idx does not exist"):
            read_idx(tmp_path / "nothing.idx")
        with pytest.raises(SourceError, match="not a regular file"):
            read_idx(tmp_path)
        file = IdxFile(write_idx(tmp_path / "a.idx", np.zeros(3, np.uint8)))
        with pytest.raises(InvalidParameterError, match="rows=0; expected an integer >= 1"):
            next(file.blocks(0))


MNIST_FILES = [
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
]


class TestMnist:
    def arrays(self):
        rng = np.random.default_rng(0)
        return [
            rng.integers(0, 256, shape, np.uint8) for shape in [(7, 4, 5), (7,), (3, 4, 5), (3,)]
        ]

    def test_four_files(self, tmp_path):
        arrays = self.arrays()
        for name, array, zipped in zip(MNIST_FILES, arrays, [0, 1, 1, 0], strict=True):
            write_idx(tmp_path / (name + ".gz" * zipped), array, bool(zipped))
        loaded = load_mnist(tmp_path)
        for read, array in zip(loaded, arrays, strict=True):
            assert read.dtype == np.uint8
            np.testing.assert_array_equal(read, array.reshape(len(array), -1).squeeze())
        assert loaded[0].shape == (7, 20)
        for name, array in zip(MNIST_FILES, arrays, strict=True):
            (tmp_path / "empty").mkdir(exist_ok=True)
            write_idx(tmp_path / "empty" / name, array[:0])
        empty = load_mnist(tmp_path / "empty")
        assert [array.shape for array in empty] == [(0, 20), (0,), (0, 20), (0,)]
        (tmp_path / "empty" / MNIST_FILES[2]).unlink()
        with pytest.raises(SourceNotFoundError, match=MNIST_FILES[2]):
            load_mnist(tmp_path / "empty")

    @pytest.mark.parametrize(
        ("index", "array", "error", "message"),
        [
            (0, np.zeros((7, 20), np.uint8), SourceError, "3 dimensions"),
            (1, np.zeros(7, np.int32), SourceError, "int32"),
            (3, np.zeros(4, np.uint8), InvalidDataError, "3 images, .* 4 labels"),
        ],
    )
    def test_other_files(self, tmp_path, index, array, error, message):
        arrays = self.arrays()
        arrays[index] = array
        for name, content in zip(MNIST_FILES, arrays, strict=True):
            write_idx(tmp_path / name, content)
        with pytest.raises(error, match=message):
            load_mnist(tmp_path)

    @pytest.mark.mnist
    def test_mnist_itself(self):
        folder = os.environ.get("STREAMGDA_MNIST")
        if not folder:
            pytest.skip("STREAMGDA_MNIST is not set: it names the folder with the four MNIST files")
        X_train, y_train, X_test, y_test = load_mnist(folder)
        assert (X_train.shape, X_test.shape) == ((60000, 784), (10000, 784))
        assert X_train.dtype == X_test.dtype == y_train.dtype == y_test.dtype == np.uint8
        assert np.bincount(y_train).tolist() == [
            5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949
        ]  # fmt: skip
        assert np.bincount(y_test).tolist() == [
            980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009
        ]  # fmt: skip
        # The usual mean and standard deviation for normalising MNIST.
        assert round(float(X_train.mean()) / 255, 4) == 0.1307
        assert round(float(X_train.std()) / 255, 4) == 0.3081


def test_digits():
    from sklearn.datasets import load_digits as original

    X, y = load_digits()
    expected_X, expected_y = original(return_X_y=True)
    assert (X.dtype, y.dtype, X.shape) == (np.uint8, np.int64, (1797, 64))
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)
