"""Rows of a file of text, as pyarrow reads them: fast, and the same as `TextRows` yields.

pyarrow reads some files in another way than Python, or not at all. Everything that may differ
raises `UnlikePythonError`: then `TextRows` reads on, and names the line that cannot be read.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import Any

import numpy as np

from streamgda.datasets.files import Bytes
from streamgda.datasets.textfiles import SPACES, TextFile
from streamgda.datasets.textrows import Part, TextRows
from streamgda.errors import SourceError

_BLOCK = 1 << 20  # bytes that are parsed at a time
_ROWS = 16  # that a block holds at least
_EXACT = 1 << 53  # to which float64 holds all integers
# The fields of a last row, which shows that no quotation mark is open: an integer that float64
# holds exactly, so that it fits every column.
_END = "4917370524611584"


class UnlikePythonError(Exception):
    """The rest of the file must be read by Python."""


def arrow_parts(rows: TextRows) -> Generator[Part]:
    """Yield all rows in blocks of the size of the file's blocks.

    Raises
    ------
    UnlikePythonError
        If pyarrow is not installed, or may read the next rows in another way than `TextRows`.
    """
    file = rows.file
    try:
        import pyarrow as pa  # noqa: PLC0415
        from pyarrow import csv  # noqa: PLC0415
    except ImportError:
        raise UnlikePythonError from None
    if file.delimiter == SPACES or not file.delimiter.isascii():
        raise UnlikePythonError
    start, next_row = file.offset(rows.header), file.offset(rows.header + 1)
    names = [str(column) for column in range(rows.width)]
    text = [] if rows.label is None else [rows.label]
    text += [] if rows.index is None else [0]
    types = {names[column]: pa.float64() for column in rows.features}
    types |= {names[column]: pa.dictionary(pa.int32(), pa.string()) for column in text}
    with file.open() as raw:
        source = _Source(raw, file, start, file.delimiter.join([_END] * rows.width))
        try:
            with csv.open_csv(
                source,
                csv.ReadOptions(
                    column_names=names, block_size=max(_BLOCK, _ROWS * (next_row - start))
                ),
                csv.ParseOptions(delimiter=file.delimiter, newlines_in_values=True),
                csv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=_nulls(rows)
                ),
            ) as batches:
                yield from _parts(rows, batches, source)
        except (pa.ArrowException, SourceError, ValueError, OSError, EOFError, zlib.error) as error:
            raise UnlikePythonError from error


def _nulls(rows: TextRows) -> list[str]:
    """Return the fields of features that are NaN; pyarrow compares all of a field."""
    texts = {*rows.missing.texts, "nan", "-nan", "NaN", "-NaN", "Nan", "NAN"}
    return [*texts, *(f" {text}" for text in texts)]


def _parts(rows: TextRows, batches: Iterable[Any], source: _Source) -> Iterator[Part]:
    done, width = 0, len(rows.features)
    for batch in _without_end(batches):
        X = np.empty((batch.num_rows, width))
        features, texts = batch.columns[:width], batch.columns[width:]
        for column, values in zip(X.T, features, strict=True):
            column[:] = values.to_numpy(zero_copy_only=False)
        if np.isnan(X).sum() != sum(values.null_count for values in features):
            raise UnlikePythonError  # nan(7) is a number to pyarrow
        found = [_distinct(column, source) for column in texts]
        if rows.index is not None:
            _check_index(*found.pop(), rows.index + done)
        labels, codes = found.pop() if found else ([], None)
        if not rows.keep_unlabelled and any(label in rows.missing for label in labels):
            raise UnlikePythonError
        rows.file.fraction = source.share()
        yield _cast(rows.missing.clear(X), rows.dtype), labels, codes
        done += len(X)


def _without_end(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield all rows but the last, which must be that of `_Source`."""
    held = None
    for batch in batches:
        if batch.num_rows:
            if held is not None:
                yield held
            held = batch
    if held is None or any(str(column[-1]) not in (_END, f"{_END}.0") for column in held.columns):
        raise UnlikePythonError
    yield held.slice(0, held.num_rows - 1)


def _distinct(column: Any, source: _Source) -> tuple[list[str], np.ndarray]:
    """Return distinct texts, and the number of each row's text among these."""
    texts = column.dictionary.to_pylist()
    if any(text.startswith(" ") for text in texts):
        if source.quoted:  # spaces are skipped before quotation marks, and kept between them
            raise UnlikePythonError
        texts = [text.lstrip(" ") for text in texts]
    return texts, column.indices.to_numpy()


def _check_index(texts: list[str], codes: np.ndarray, start: int) -> None:
    if any(texts[code] != str(start + n) for n, code in enumerate(codes.tolist())):
        raise UnlikePythonError


def _cast(X: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the values in the type of the features."""
    if dtype == X.dtype:
        return X
    if dtype.kind == "f":
        with np.errstate(over="raise"), contextlib.suppress(FloatingPointError):
            return X.astype(dtype)
    else:
        with np.errstate(invalid="ignore"):
            values = X.astype(dtype)
        if (values == X).all() and (dtype.itemsize < 8 or (np.abs(X) < _EXACT).all()):
            return values
    raise UnlikePythonError


class _Source(io.RawIOBase):
    """Bytes of a file without its header, and with a last row.

    Parameters
    ----------
    raw : Bytes
        Opened file.
    file : TextFile
    start : int
        Number of the first byte after the header.
    end : str
        The last row.

    Attributes
    ----------
    quoted : bool
        True once quotation marks were read.
    """

    def __init__(self, raw: Bytes, file: TextFile, start: int, end: str) -> None:
        self._raw, self._file = raw, file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        # pyarrow takes off a byte order mark, if it is given one.
        self._first, self._end = b"\n", f"\n{end}\n".encode()
        self._last_byte = raw.read(start)[-1:]
        self._shares: deque[float] = deque()
        self.quoted = False

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; raise ValueError for those that Python reads in another way."""
        block = self._raw.read(size - len(self._first))
        if not block:
            self._decoder.decode(b"", final=True)
            block, self._end = self._end, b""
            return block
        if not block.isascii() or self._decoder.getstate()[0]:
            self._decoder.decode(block)
        if b'"' in block:
            self.quoted = True
            if b' "' in self._last_byte + block:
                raise ValueError("spaces before quotation marks")
        self._last_byte = block[-1:]
        self._shares.append(self._file.share(self._raw))
        block, self._first = self._first + block, b""
        return block

    def share(self) -> float:
        """Return the share of the file that the next block reaches to."""
        return self._shares.popleft() if self._shares else self._file.fraction
