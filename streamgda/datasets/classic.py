"""Well-known data sets: MNIST from its files, and the digits included in scikit-learn."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from streamgda.datasets.idx import read_idx
from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError

_MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


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
        If files are missing; the message names them.
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
    folder = Path(folder)
    found = [_plain_or_gzip(folder / name) for name in _MNIST]
    missing = [name for name, path in zip(_MNIST, found, strict=True) if path is None]
    if missing:
        raise SourceNotFoundError(f"{folder} lacks {', '.join(missing)} (each may also end in .gz)")
    images, labels, test_images, test_labels = [path for path in found if path is not None]
    return *_images_and_labels(images, labels), *_images_and_labels(test_images, test_labels)


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
    >>> X, y = load_digits()
    >>> X.shape, X.dtype, int(X.max())
    ((1797, 64), dtype('uint8'), 16)
    >>> y[:10]
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    from sklearn import datasets  # noqa: PLC0415

    X, y = datasets.load_digits(return_X_y=True)
    return X.astype(np.uint8), y.astype(np.int64)


def _plain_or_gzip(path: Path) -> Path | None:
    candidates = (path, path.with_name(f"{path.name}.gz"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _images_and_labels(images: Path, labels: Path) -> tuple[np.ndarray, np.ndarray]:
    X, y = read_idx(images), read_idx(labels)
    for path, array, ndim in ((images, X, 3), (labels, y, 1)):
        if array.ndim != ndim or array.dtype != np.uint8:
            raise SourceError(
                f"{path} holds {array.dtype} of shape {array.shape}, expected uint8 in {ndim} "
                "dimensions"
            )
    if len(X) != len(y):
        raise InvalidDataError(f"{images} holds {len(X)} images, {labels} holds {len(y)} labels")
    return X.reshape(len(X), X.shape[1] * X.shape[2]), y
