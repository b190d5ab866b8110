"""Rows that are cheap to read in order only: scans of files, and frames that are computed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamgda.errors import ReadError, StreamGDAError, cause_of
from streamgda.rows.codes import concatenated
from streamgda.rows.sources import RowSource
from streamgda.runtime.retry import brief, with_retries

Blocks = Iterator[np.ndarray]


class Cursor:
    """An open iterator over blocks of rows, and the last block that it yielded.

    Copies and pickles are cursors that have not been opened.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def __reduce__(self) -> tuple[type[Cursor], tuple[()]]:
        return Cursor, ()

    def _forget(self) -> None:
        self._blocks: Blocks | None = None
        self._block: Any = ()
        self._first = 0  # number of the first row of the block

    @property
    def _stop(self) -> int:
        return self._first + len(self._block)

    def read(
        self, start: int, stop: int, origin: int, restart: Callable[[int], Blocks]
    ) -> list[np.ndarray]:
        """Return rows ``start:stop`` in parts; fewer if the rows end before.

        Parameters
        ----------
        start, stop : int
        origin : int
            First row that has to be read to get at row `start`.
        restart : callable
            Called with the origin; returns an iterator over the blocks from this row on. It is
            called unless the row is in the last block, or rows that follow lead to it.
        """
        with self._lock:
            try:
                if self._blocks is None or start < self._first or origin > self._stop:
                    self._close()
                    self._blocks, self._first = restart(origin), origin
                return list(self._parts(self._blocks, start, stop))
            except BaseException:
                self._close()
                raise

    def _parts(self, blocks: Blocks, start: int, stop: int) -> Iterator[np.ndarray]:
        while True:
            if start < self._stop:
                yield self._block[start - self._first : stop - self._first]
            start = max(start, self._stop)
            if start >= stop:
                return
            self._first, self._block = self._stop, ()  # not held while the next one is read
            block = next(blocks, None)
            if block is None:
                return
            self._block = block

    def close(self) -> None:
        """Close the iterator, unless a thread reads from it."""
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        close = getattr(self._blocks, "close", None)  # of a generator
        self._forget()
        if close is not None:
            close()


@dataclass(frozen=True)
class ForwardRows(RowSource):
    """Base of adapters for rows that are read forwards, block by block.

    A subclass implements `_blocks`. Reading resumes where the last read ended, and starts again
    at the `_origin` of any other row, except for rows of the last block. Rows are read again after
    temporary failures. `close` closes the iterator.

    Sources made by `map` and `window`, copies and pickles have separate iterators.
    """

    _cursor: Cursor = field(default_factory=Cursor, init=False, repr=False, compare=False)

    def _blocks(self, start: int) -> Blocks:
        """Return an iterator over consecutive blocks of rows, of any length, from a row on."""
        raise NotImplementedError

    def _origin(self, row: int) -> int:
        """Return the first row that has to be read to get at a row, such as that of its file."""
        return row

    def _slice(self, start: int, stop: int) -> np.ndarray:
        origin = self._origin(start) if start < stop else start
        try:
            parts = with_retries(lambda: self._cursor.read(start, stop, origin, self._blocks))
        except (MemoryError, StreamGDAError):
            raise
        except Exception as error:  # each library has its own exceptions
            raise ReadError(
                f"{self.title}: rows {start} to {stop - 1} cannot be read: {brief(error)}"
            ) from cause_of(error)
        n_rows = sum(map(len, parts))
        if n_rows < stop - start:
            raise ReadError(
                f"{self.title} ends after {start + n_rows} rows; at least {stop} were expected: "
                f"it changed while it was read"
            )
        return self._joined(parts)

    def _joined(self, parts: list[Any]) -> Any:
        if not parts:
            return np.empty((0, *self.shape[1:]), self.dtype)
        return concatenated(parts)

    def whole(self) -> np.ndarray:
        """Return all rows."""
        try:
            return super().whole()
        finally:
            self.close()

    def close(self) -> None:
        """Close the iterator over blocks; the next read opens another one."""
        self._cursor.close()

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        # The last block is held, too, and parts of a slab are copied into it.
        return self.row_bytes * (3 * n_rows + self.unit)
