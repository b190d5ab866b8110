"""Handwritten digits: IDX files, the format of MNIST, and the digits included in scikit-learn.

An IDX file has a big-endian header with type and shape, and then the values.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import os
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError
from streamgda.runtime.parameters import as_integer

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_NDIM = 64  # NumPy's
_PIECE = 1 << 20
_GZIP = b"\x1f\x8b"
_GZIP_RATIO = 1032  # deflate codes a run of at most 258 bytes with two codes of at least one bit

_MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

Bytes = IO[bytes] | gzip.GzipFile


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[Bytes, int]]:
    """Provide a file, decompressed if its content is gzip, and the most bytes that it can hold.

    Raises
    ------
    SourceNotFoundError
        If the path does not exist.
    SourceError
        If it is not a regular file, or if a gzip file is damaged or truncated, when the reader
        reaches that place.
    """
    if not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    if not path.is_file():
        raise SourceError(f"{path} is not a regular file")
    size = path.stat().st_size
    try:
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == _GZIP:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked, size * _GZIP_RATIO
            else:
                yield raw, size
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{path} is a damaged gzip file: {error}") from error


class IdxFile:
    """IDX file, plain or gzip, that is read sequentially in blocks of rows.

    The constructor reads only the header. The file is open only while blocks are read.

    Parameters
    ----------
    path : path
        Path of the file. Gzip is recognised by the content, not by the name.

    Attributes
    ----------
    path : pathlib.Path
        Path of the file.
    shape : tuple of int
        Shape of the array, of at least one dimension. Rows are indexed by the first.
    dtype : numpy.dtype
        uint8, int8, int16, int32, float32 or float64, in native byte order.

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    SourceError
        If it is not an IDX file, or its size does not match its header.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "labels-idx1-ubyte"
    >>> _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 8, 9]))
    >>> labels = IdxFile(path)
    >>> labels.shape, labels.dtype
    ((3,), dtype('uint8'))
    >>> [block.tolist() for block in labels.blocks(2)]
    [[7, 8], [9]]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with _opened(self.path) as (file, most):
            self.shape, self._stored = self._header(file)
            expected = file.tell() + math.prod(self.shape) * self._stored.itemsize
        self.dtype = self._stored.newbyteorder("=")
        if expected > most:
            raise SourceError(
                f"{self.path} is truncated: its header needs {expected} bytes (shape {self.shape}, "
                f"{self.dtype}), but a file of its size holds at most {most}"
            )

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Read the file in blocks, from the first row to the last.

        Parameters
        ----------
        rows : int
            Rows per block; the last block may have fewer.

        Yields
        ------
        ndarray of shape (at most rows, ...)
            The next rows.

        Raises
        ------
        InvalidParameterError
            If rows is less than 1.
        SourceError
            If the file is too short or too long, or is a damaged gzip file.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from streamgda.datasets import IdxFile
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels-idx1-ubyte")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 2, 1]))
        ...     print([block.tolist() for block in IdxFile(path).blocks(2)])
        [[7, 2], [1]]
        """
        rows = as_integer("rows", rows, "an integer >= 1", 1)
        with _opened(self.path) as (file, _):
            self._header(file)
            for start in range(0, max(1, self.shape[0]), rows):
                block = self._values(file, min(rows, self.shape[0] - start))
                if start + rows >= self.shape[0] and file.read(1):  # checks gzip's checksum, too
                    raise SourceError(
                        f"{self.path} is longer than its header says (shape {self.shape}, "
                        f"{self.dtype})"
                    )
                if len(block):
                    yield block

    def read(self) -> np.ndarray:
        """Read the whole file.

        Returns
        -------
        ndarray of shape `shape` and type `dtype`
            All rows.

        Raises
        ------
        SourceError
            As for `blocks`.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from streamgda.datasets import IdxFile
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "labels-idx1-ubyte")
        ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3]) + bytes([7, 2, 1]))
        ...     IdxFile(path).read()
        array([7, 2, 1], dtype=uint8)
        """
        blocks = list(self.blocks(max(1, self.shape[0])))
        return blocks[0] if blocks else np.empty(self.shape, self.dtype)

    def _header(self, file: Bytes) -> tuple[tuple[int, ...], np.dtype]:
        magic = bytes(self._bytes(file, 4))
        zeros, code, ndim = magic[:2], magic[2], magic[3]
        if zeros != b"\0\0" or code not in _TYPES or not 1 <= ndim <= _MAX_NDIM:
            raise SourceError(
                f"{self.path} is not an IDX file: it starts with {magic.hex(' ')}, expected 00 00, "
                f"a type ({', '.join(f'{code:02x}' for code in _TYPES)}) and a number of "
                f"dimensions (01 to {_MAX_NDIM:x})"
            )
        stored = np.dtype(_TYPES[code])
        shape = struct.unpack(f">{ndim}I", self._bytes(file, 4 * ndim))
        # NumPy refuses such shapes even if another dimension is zero.
        if math.prod(max(1, n) for n in shape) * stored.itemsize > sys.maxsize:
            raise SourceError(f"{self.path} has an impossible shape in its header: {shape}")
        return shape, stored

    def _values(self, file: Bytes, rows: int) -> np.ndarray:
        shape = (rows, *self.shape[1:])
        data = self._bytes(file, math.prod(shape) * self._stored.itemsize)
        values = np.frombuffer(data, self._stored).reshape(shape)
        if not self._stored.isnative:
            values.byteswap(inplace=True)
        return values.view(self.dtype)

    def _bytes(self, file: Bytes, count: int) -> bytearray:
        """Read `count` bytes; memory grows with the bytes read, not with what the header claims."""
        data = bytearray()
        while len(data) < count:
            piece = file.read(min(_PIECE, count - len(data)))
            if not piece:
                raise SourceError(
                    f"{self.path} is truncated: expected {count} more bytes, found {len(data)}"
                )
            data += piece
        return data


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an IDX file, plain or gzip.

    Parameters
    ----------
    path : path
        Path of the file. Gzip is recognised by the content, not by the name.

    Returns
    -------
    ndarray
        Array of the shape in the file, of type uint8, int8, int16, int32, float32 or float64, in
        native byte order.

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    SourceError
        If it is not an IDX file, or its size does not match its header.

    See Also
    --------
    IdxFile : Read such a file in blocks of rows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "heights.idx"
    >>> _ = path.write_bytes(bytes([0, 0, 0x0B, 1, 0, 0, 0, 2]) + bytes([1, 0, 255, 255]))
    >>> read_idx(path)
    array([256,  -1], dtype=int16)
    """
    return IdxFile(path).read()


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
