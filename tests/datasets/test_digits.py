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


@pytest.fixture(params=["", ".gz"], ids=["plain", "gzip"])
def files(request, tmp_path):
    """A function that writes a file, with other bytes on demand."""

    def write(name, array, damage=bytes):
        data = damage(idx_bytes(array))
        path = tmp_path / f"{name}-ubyte{request.param}"
        path.write_bytes(gzip.compress(data) if request.param else data)
        return path

    for part, n in (("train", 7), ("t10k", 2)):
        write(f"{part}-images-idx3", X[:n])
        write(f"{part}-labels-idx1", Y[:n])
    return write


def test_four_files(files, tmp_path):
    found = load_mnist(str(tmp_path))
    for array, wanted in zip(
        found, (X.reshape(7, 12), Y, X[:2].reshape(2, 12), Y[:2]), strict=True
    ):
        np.testing.assert_array_equal(array, wanted, strict=True)


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
def test_damaged_files(files, tmp_path, damage, message):
    files("train-images-idx3", X, damage)
    with pytest.raises(SourceError, match=f"train-images-idx3-ubyte holds .*{message}|{message}"):
        load_mnist(tmp_path)


def test_missing_and_other_files(files, tmp_path):
    files("t10k-labels-idx1", Y)
    with pytest.raises(InvalidDataError, match="2 images and 7 labels in its files of t10k"):
        load_mnist(tmp_path)
    images = files("t10k-images-idx3", X[:2])
    if images.suffix == ".gz":
        images.write_bytes(images.read_bytes()[:-9])
        with pytest.raises(SourceError, match=r"ubyte.gz is damaged"):
            load_mnist(tmp_path)
    images.unlink()
    with pytest.raises(SourceNotFoundError, match=r"t10k-images-idx3-ubyte does not exist"):
        load_mnist(tmp_path)


def test_digits():
    X, y = load_digits()
    assert (X.shape, X.dtype, X.max()) == ((1797, 64), np.uint8, 16)
    assert (y.dtype, np.unique(y).tolist()) == (np.int64, [*range(10)])
