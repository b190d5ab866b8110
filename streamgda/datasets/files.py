"""Opening of files, plain or gzip."""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streamgda.errors import SourceError, SourceNotFoundError

Bytes = IO[bytes] | gzip.GzipFile

_GZIP = b"\x1f\x8b"
# Deflate codes a run of at most 258 bytes with two codes of at least one bit each.
_GZIP_RATIO = 1032


def existing_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a regular file.

    Raises
    ------
    SourceNotFoundError
        If the path does not exist.
    SourceError
        If it is not a regular file, such as a directory.
    """
    path = Path(path)
    if not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    if not path.is_file():
        raise SourceError(f"{path} is not a regular file")
    return path


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[Bytes]:
    """Open a file for reading; decompress it if its content is gzip.

    Raises
    ------
    SourceError
        If a gzip file is damaged or truncated, when the reader reaches that place.
    """
    try:
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == _GZIP:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SourceError(f"{path} is a damaged gzip file: {error}") from error


def most_bytes(path: Path) -> int:
    """Return an upper bound on the bytes that `open_binary` can yield, from the file size."""
    with path.open("rb") as raw:
        ratio = _GZIP_RATIO if raw.peek(2)[:2] == _GZIP else 1
    return path.stat().st_size * ratio
