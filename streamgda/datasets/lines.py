"""Complete lines of standard input, or of a file that may grow, and their place in the stream."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from streamgda.datasets.files import existing_file
from streamgda.errors import CheckpointError, SourceError

STDIN = "-"
_BYTES = 1 << 20  # that are read at a time
_LONGEST = 1 << 26  # bytes of a line
_PAUSE = 0.1  # seconds to wait for more before the caller may do something else
_SELECTS = os.name == "posix"  # elsewhere, only sockets can be waited for


@dataclass(frozen=True)
class Position:
    """A place between two lines of a stream.

    Attributes
    ----------
    size, lines : int
        Bytes and lines before it.
    checksum : int
        Checksum of these bytes.
    """

    size: int = 0
    lines: int = 0
    checksum: int = 0


@dataclass(frozen=True)
class Block:
    """Complete lines of a stream, each with its line break.

    Attributes
    ----------
    data : bytes
    start : Position
    """

    data: bytes
    start: Position

    @cached_property
    def ends(self) -> np.ndarray:
        """Number of bytes up to the end of each line, shape (n_lines,)."""
        return np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n")) + 1

    def after(self, lines: int) -> Position:
        """Return the position after some of the lines."""
        size = int(self.ends[lines - 1]) if lines else 0
        start, part = self.start, memoryview(self.data)[:size]
        return Position(start.size + size, start.lines + lines, zlib.crc32(part, start.checksum))


class LineReader:
    """Reads the lines of a stream in blocks, as soon as they arrive.

    Parameters
    ----------
    file : int
        Descriptor of an open file.
    name : str
        Name of the stream in messages.
    stopped : callable
        Returns True when reading should end early.
    follow : bool
        Wait for more at the end of the file.
    whole : bool
        Leave a last line without a line break to a later reader: it may be half a line. Otherwise,
        it is a line if the stream ends there.

    Attributes
    ----------
    position : Position
        End of the last block.
    """

    def __init__(
        self, file: int, name: str, stopped: Callable[[], bool], *, follow: bool, whole: bool
    ) -> None:
        self.name, self.position = name, Position()
        self._file, self._stopped = file, stopped
        self._follow, self._whole = follow, whole or follow
        self._rest = b""  # read, and in no block yet
        self._size = 0  # bytes read so far
        self._ended = False

    @classmethod
    @contextlib.contextmanager
    def opened(cls, source: str, stopped: Callable[[], bool], **options: bool) -> Iterator[Self]:
        """Open a file, or standard input; parameters as of the class."""
        if source == STDIN:
            _widen(sys.stdin.fileno())
            yield cls(sys.stdin.fileno(), "standard input", stopped, **options)
            return
        with existing_file(Path(source)).open("rb", buffering=0) as file:
            yield cls(file.fileno(), source, stopped, **options)

    @property
    def unfinished(self) -> bool:
        """True if the stream ended with a line that was left."""
        return self._ended and bool(self._rest)

    def first(self) -> bytes:
        """Return the first line without its line break; nothing if there is none."""
        while self._open() and b"\n" not in self._rest:
            self._read()
        line, ended, _ = self._rest.partition(b"\n")
        return line.removesuffix(b"\r") if ended or not self._whole else b""

    def skip(self, to: Position) -> None:
        """Read up to a position of an earlier reader, and check that the bytes are the same.

        Raises
        ------
        CheckpointError
            If this is another stream.
        """
        checksum, left = 0, to.size
        while True:
            part, self._rest = self._rest[:left], self._rest[left:]
            checksum, left = zlib.crc32(part, checksum), left - len(part)
            if not (left and self._open()):
                break
            self._read()
        if self._stopped():
            return
        if left or checksum != to.checksum:
            raise CheckpointError(
                f"{self.name} does not begin with the {to.size} bytes that were read before; give "
                f"the same stream, from its start, or delete the checkpoint to start again"
            )
        self.position = to

    def blocks(self) -> Iterator[Block | None]:
        """Yield all further lines; None whenever there are none for a moment."""
        while not self._stopped():
            if self._ended and self._rest and not self._whole:
                self._rest += b"\n"
            if cut := self._rest.rfind(b"\n") + 1:
                block = Block(self._rest[:cut], self.position)
                self._rest, self.position = self._rest[cut:], block.after(len(block.ends))
                yield block
            elif self._ended:
                return
            elif not self._read():
                yield None

    def _open(self) -> bool:
        return not (self._ended or self._stopped())

    def _read(self) -> bool:
        """Read what there is; return False if there is nothing yet, or no more."""
        if _SELECTS and not select.select([self._file], [], [], _PAUSE)[0]:
            return False
        data = os.read(self._file, _BYTES)
        self._rest += data
        self._size += len(data)
        if data:
            if len(self._rest) > _LONGEST + _BYTES and b"\n" not in self._rest:
                raise SourceError(
                    f"{self.name}, line {self.position.lines + 1}: no line break within "
                    f"{_LONGEST >> 20} MiB; rows must be lines of text"
                )
        elif not self._follow:
            self._ended = True
        elif os.fstat(self._file).st_size < self._size:
            raise SourceError(f"{self.name} was cut to fewer bytes than were read from it")
        else:
            time.sleep(_PAUSE)
        return bool(data)


def _widen(pipe: int) -> None:
    """Let a pipe hold as much as is read at a time, where the system can do so."""
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl  # noqa: PLC0415  (not on Windows)

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _BYTES)
