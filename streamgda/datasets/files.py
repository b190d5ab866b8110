"""Files that are there or not, and compressed or not."""

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
# Deflate spends at least one bit on each run of at most 258 bytes, and two codes make a run.
_GZIP_RATIO = 1032


def existing_file(path: str | os.PathLike[str]) -> Path:
    """The path, if a regular file is there.

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    SourceError
        Where something else is there, such as a directory.
    """
    path = Path(path)
    if not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    if not path.is_file():
        raise SourceError(f"{path} is not a regular file")
    return path


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[Bytes]:
    """The bytes of a file; those of a gzip file (known by its content) decompressed.

    Raises
    ------
    SourceError
        Where a gzip file is damaged or truncated, as soon as reading comes upon it.
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
    """How many bytes `open_binary` can give at most, judged by the size of the file."""
    with path.open("rb") as raw:
        ratio = _GZIP_RATIO if raw.peek(2)[:2] == _GZIP else 1
    return path.stat().st_size * ratio
