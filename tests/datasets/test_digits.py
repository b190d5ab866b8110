"""MNIST's files and scikit-learn's digits."""

import gzip

import numpy as np
import pytest

from streamgda.datasets import load_digits, load_mnist
from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError

X = np.random.default_rng(0).integers(0, 256, (7, 4, 3), np.uint8)
Y = np.arange(7, dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.tobytes()


@pytest.fixture(params=[False, True], ids=["plain", "gzip"])
def folder(request, tmp_path):
    for part, images, labels in (("train", X, Y), ("t10k", X[:2], Y[:2])):
        for name, array in (("images-idx3", images), ("labels-idx1", labels)):
            path = tmp_path / f"{part}-{name}-ubyte{'.gz' * request.param}"
            data = idx_bytes(array)
            path.write_bytes(gzip.compress(data) if request.param else data)
    return tmp_path


def test_four_files(folder):
    X_train, y_train, X_test, y_test = load_mnist(str(folder))
    np.testing.assert_array_equal(X_train, X.reshape(7, 12))
    np.testing.assert_array_equal(y_train, Y)
    np.testing.assert_array_equal(X_test, X.reshape(7, 12)[:2])
    np.testing.assert_array_equal(y_test, Y[:2])
    assert {array.dtype for array in (X_train, y_train)} == {np.dtype(np.uint8)}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "holds 0 bytes"),
        (lambda data: data[:3], "expected an IDX file"),
        (lambda data: data[:-1], "as long as its header says"),
        (lambda data: data + b"\0", "as long as its header says"),
        (lambda data: data[:2] + b"\x0d" + data[3:], r"00 00 0d 03 on; expected .* 00 00 08 03"),
        (lambda data: data[:4] + b"\xff" * 4 + data[8:], "as long as its header says"),
    ],
)
def test_damaged_files(folder, damage, message):
    path = next(iter(folder.glob("train-images*")))
    packed = path.suffix == ".gz"
    data = damage(idx_bytes(X))
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(SourceError, match=f"train-images-idx3-ubyte holds .*{message}|{message}"):
        load_mnist(folder)


def test_missing_damaged_and_other_files(folder):
    image = next(iter(folder.glob("t10k-images*")))
    labels = next(iter(folder.glob("t10k-labels*")))
    data = image.read_bytes()
    labels.write_bytes(next(iter(folder.glob("train-labels*"))).read_bytes())
    with pytest.raises(InvalidDataError, match="2 images and 7 labels in its files of t10k"):
        load_mnist(folder)
    if image.suffix == ".gz":
        image.write_bytes(data[:-9])
        with pytest.raises(SourceError, match=r"ubyte.gz is damaged"):
            load_mnist(folder)
    image.unlink()
    with pytest.raises(SourceNotFoundError, match=r"t10k-images-idx3-ubyte does not exist"):
        load_mnist(folder)


def test_digits():
    X, y = load_digits()
    assert (X.shape, X.dtype, X.max()) == ((1797, 64), np.uint8, 16)
    assert (y.dtype, np.unique(y).tolist()) == (np.int64, [*range(10)])
