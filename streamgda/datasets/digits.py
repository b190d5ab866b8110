"""Handwritten digits: MNIST in its own format, and the digits included in scikit-learn."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np

from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError


def load_mnist(
    folder: str | os.PathLike[str],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read MNIST, or a data set with the same four files, such as Fashion-MNIST.

    Parameters
    ----------
    folder : path
        Folder with ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
        ``t10k-images-idx3-ubyte`` and ``t10k-labels-idx1-ubyte``, each with or without ``.gz``.

    Returns
    -------
    X_train : ndarray of shape (60000, 784), uint8
        Training images, one per row.
    y_train : ndarray of shape (60000,), uint8
        Labels of the training images.
    X_test : ndarray of shape (10000, 784), uint8
        Test images, one per row.
    y_test : ndarray of shape (10000,), uint8
        Labels of the test images.

    Raises
    ------
    SourceNotFoundError
        If a file is missing.
    SourceError
        If a file is damaged, or does not hold images or labels of type uint8.
    InvalidDataError
        If the numbers of images and labels differ.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from streamgda.datasets import load_mnist
    >>> with TemporaryDirectory() as folder:
    ...     for part in "train", "t10k":
    ...         images = bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 10, 20, 30, 40])
    ...         _ = Path(folder, f"{part}-images-idx3-ubyte").write_bytes(images)
    ...         labels = bytes([0, 0, 8, 1, 0, 0, 0, 1, 7])
    ...         _ = Path(folder, f"{part}-labels-idx1-ubyte").write_bytes(labels)
    ...     X_train, y_train, X_test, y_test = load_mnist(folder)
    ...     X_train, y_train
    (array([[10, 20, 30, 40]], dtype=uint8), array([7], dtype=uint8))
    """
    found = []
    for part in ("train", "t10k"):
        X = _read(Path(folder, f"{part}-images-idx3-ubyte"), 3)
        y = _read(Path(folder, f"{part}-labels-idx1-ubyte"), 1)
        if len(X) != len(y):
            raise InvalidDataError(
                f"{folder} holds {len(X)} images and {len(y)} labels in its files of {part}"
            )
        found += [X.reshape(len(X), X.shape[1] * X.shape[2]), y]
    X_train, y_train, X_test, y_test = found
    return X_train, y_train, X_test, y_test


def _read(path: Path, ndim: int) -> np.ndarray:
    """Read a file of the format IDX that holds bytes: zeros, type, dimensions, sizes, values."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        data = gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()
    except FileNotFoundError:
        raise SourceNotFoundError(f"{path} does not exist, with or without .gz") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{packed} is damaged: {error}") from error
    start, shape = 4 + 4 * ndim, tuple(np.frombuffer(data[4 : 4 + 4 * ndim], ">u4").tolist())
    if data[:4] != bytes([0, 0, 8, ndim]) or len(data) != start + math.prod(shape):
        raise SourceError(
            f"{path} holds {len(data)} bytes from {data[:4].hex(' ')} on; expected an IDX file of "
            f"bytes in {ndim} dimensions, 00 00 08 {ndim:02x}, as long as its header says"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Load the 8 x 8 handwritten digits included in scikit-learn (UCI, 1998).

    Returns
    -------
    X : ndarray of shape (1797, 64), uint8
        Grey levels from 0 to 16.
    y : ndarray of shape (1797,), int64
        Digits from 0 to 9.

    Examples
    --------
    >>> from streamgda.datasets import load_digits
    >>> X, y = load_digits()
    >>> X.shape, X.dtype, int(X.max())
    ((1797, 64), dtype('uint8'), 16)
    >>> y[:10]
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    from sklearn import datasets  # noqa: PLC0415

    X, y = datasets.load_digits(return_X_y=True)
    return X.astype(np.uint8), y.astype(np.int64)
