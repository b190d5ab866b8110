"""Files of text: lines of fields that a delimiter separates."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamgda.datasets.files import Bytes, open_binary, position
from streamgda.errors import InvalidParameterError, SourceError

Line = tuple[int, list[str]]  # its number and its fields

SPACES = " "  # the delimiter that stands for any number of spaces and tabs
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t"}  # others may be separated by spaces too
_LINES = 256  # after which `TextFile.fraction` is updated
_END = "\0"  # a last line, which shows that no quotation mark is open


class TextFile:
    """Text file, UTF-8, plain or gzip.

    Parameters
    ----------
    path : pathlib.Path
    delimiter : str
        One character. A space stands for any number of spaces and tabs.

    Attributes
    ----------
    fraction : float
        Share of the file, from 0 to 1, that holds the rows that were read last.
    """

    def __init__(self, path: Path, delimiter: str) -> None:
        self.path = path
        self.delimiter = delimiter
        self.fraction = 0.0
        self._size = max(1, path.stat().st_size)

    @classmethod
    def of(cls, path: Path, delimiter: str | None) -> TextFile:
        """Return the file; without a delimiter, infer it from the first line."""
        if delimiter is not None:
            return cls(path, as_delimiter(delimiter))
        suffix = Path(path.name.lower().removesuffix(".gz")).suffix
        candidates = [cls(path, each) for each in _SEPARATORS.get(suffix, f",;\t{SPACES}")]
        for file in candidates:
            with contextlib.suppress(SourceError):
                if len(next(iter(file.first(1)), (0, []))[1]) > 1:
                    return file
        return candidates[0]

    def first(self, count: int) -> list[Line]:
        """Return the first lines that are not blank."""
        with contextlib.closing(self.lines()) as lines:
            return list(itertools.islice(lines, count))

    def lines(self, skip: int = 0) -> Generator[Line]:
        """Yield the number and the fields of each line that is not blank, without the first `skip`.

        Raises
        ------
        SourceError
            If the file is not UTF-8, or if it ends between quotation marks.
        """
        ended = False

        def end() -> Iterator[str]:
            nonlocal ended
            ended = True
            yield _END

        with self.open() as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
            lines = single_spaced(text) if self.delimiter == SPACES else text
            reader = self._reader(itertools.chain(lines, end()))
            try:
                for fields in itertools.islice(filter(None, reader), skip, None):
                    if ended:
                        if fields != [_END]:
                            raise csv.Error("unexpected end of data between quotation marks")
                        self.fraction = 1.0
                        return
                    if reader.line_num % _LINES == 0:
                        self.fraction = self.share(raw)
                    yield reader.line_num, fields
            except (csv.Error, UnicodeDecodeError) as error:
                line = reader.line_num - ended
                raise SourceError(f"{self.path}, after line {line}: {error}") from error

    def offset(self, count: int) -> int:
        """Return the number of bytes before the fields after `count` lines that are not blank."""
        size = 0

        def measured(lines: Iterable[str]) -> Iterator[str]:
            nonlocal size
            for line in lines:
                size += len(line.encode())
                yield line

        with self.open() as raw:
            size += 3 * (raw.read(3) == codecs.BOM_UTF8)
        with self.open() as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
            for _ in itertools.islice(filter(None, self._reader(measured(text))), count):
                pass
        return size

    def open(self) -> contextlib.AbstractContextManager[Bytes]:
        """Open the file for reading; decompress it if its content is gzip."""
        return open_binary(self.path)

    def share(self, raw: Bytes) -> float:
        """Return the share of the file that has been read, from 0 to 1."""
        return position(raw) / self._size

    def _reader(self, lines: Iterable[str]) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, skipinitialspace=True)


def as_delimiter(value: Any) -> str:
    """Return a delimiter; raise InvalidParameterError unless it is one character."""
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n\0':
        raise InvalidParameterError(f"delimiter must be one character, not {value!r}")
    return value


def single_spaced(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines whose fields are separated by spaces only, and not surrounded by them."""
    for line in lines:
        yield line.replace("\t", " ").strip() + "\n"
