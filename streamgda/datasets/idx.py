"""IDX files, the format of MNIST: a big-endian header (type, shape), then the values."""

from __future__ import annotations

import math
import os
import struct
import sys
from collections.abc import Iterator

import numpy as np

from streamgda.datasets.checks import at_least
from streamgda.datasets.files import Bytes, existing_file, most_bytes, open_binary
from streamgda.errors import SourceError

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_NDIM = 64  # NumPy's
_PIECE = 1 << 20


class IdxFile:
    """An IDX file, plain or gzip, that is read from its beginning in blocks of rows.

    Only the header is read at first; the file is open while blocks are read, and only then.

    Parameters
    ----------
    path : path
        Gzip is recognised by the content, not by the name.

    Attributes
    ----------
    path : pathlib.Path
    shape : tuple of int
        At least one dimension; a row is everything at one index of the first.
    dtype : numpy.dtype
        uint8, int8, int16, int32, float32 or float64, in the byte order of the machine.

    Raises
    ------
    SourceNotFoundError
        Where there is no such file.
    SourceError
        Where it is not an IDX file, or holds less or more than its header says.

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
        self.path = existing_file(path)
        with open_binary(self.path) as file:
            self.shape, self._stored = self._header(file)
            due = file.tell() + math.prod(self.shape) * self._stored.itemsize
        self.dtype = self._stored.newbyteorder("=")
        if due > (most := most_bytes(self.path)):
            raise SourceError(
                f"{self.path} is truncated: its header calls for {due} bytes (shape {self.shape}, "
                f"{self.dtype}), and a file of its size holds {most} at most"
            )

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Read the file once, from the first row to the last.

        Parameters
        ----------
        rows : int
            Rows in a block; the last may have fewer.

        Yields
        ------
        ndarray of shape (at most rows, *shape[1:])

        Raises
        ------
        InvalidParameterError
            Where rows is less than 1.
        SourceError
            Where the file ends early, goes on after the last row, or is a damaged gzip file.
        """
        rows = at_least(1, "rows", rows)
        with open_binary(self.path) as file:
            self._header(file)
            for start in range(0, self.shape[0], rows):
                yield self._values(file, min(rows, self.shape[0] - start))
            if file.read(1):
                raise SourceError(
                    f"{self.path} goes on after the last value that its header calls for "
                    f"(shape {self.shape}, {self.dtype})"
                )

    def read(self) -> np.ndarray:
        """Read the whole file, an ndarray of `shape` and `dtype`; raises as `blocks` does."""
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
        # NumPy refuses such shapes even where another dimension is zero.
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
        """That many bytes, in memory that grows with what comes, whatever the header claims."""
        data = bytearray()
        while len(data) < count:
            piece = file.read(min(_PIECE, count - len(data)))
            if not piece:
                raise SourceError(
                    f"{self.path} is truncated: {count} bytes are due, {len(data)} are left"
                )
            data += piece
        return data


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Read an IDX file, plain or gzip.

    Parameters
    ----------
    path : path
        Gzip is recognised by the content, not by the name.

    Returns
    -------
    ndarray
        Of the file's shape; uint8, int8, int16, int32, float32 or float64, in the byte order of
        the machine.

    Raises
    ------
    SourceNotFoundError
        Where there is no such file.
    SourceError
        Where it is not an IDX file, or holds less or more than its header says.

    See Also
    --------
    IdxFile : Reads the same in blocks of rows.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "heights.idx"
    >>> _ = path.write_bytes(bytes([0, 0, 0x0B, 1, 0, 0, 0, 2]) + bytes([1, 0, 255, 255]))
    >>> read_idx(path)
    array([256,  -1], dtype=int16)
    """
    return IdxFile(path).read()
