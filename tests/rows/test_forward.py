"""Rows that are read forwards: a cursor that resumes, and starts again at an earlier row."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from streamgda.errors import ReadError
from streamgda.rows.sources import ForwardRows

ROWS = np.arange(26.0).reshape(13, 2)


@dataclass(frozen=True)
class Scan(ForwardRows):
    """Rows of an array in blocks of five, with a record of where each scan started and closed."""

    starts: list[Any] = field(default_factory=list)

    def _blocks(self, start: int) -> Iterator[np.ndarray]:
        self.starts.append(start)
        try:
            for first in range(start, len(self.values), 5):
                yield self.values[first : first + 5]
        finally:
            self.starts.append("closed")


def scan(values: Any = ROWS, name: str = "X", n_rows: int | None = None) -> Scan:
    shape = (len(values) if n_rows is None else n_rows, *values.shape[1:])
    return Scan(values, shape, values.dtype, name)


def test_a_scan_starts_again_at_other_rows_but_not_for_those_of_the_last_block() -> None:
    rows = scan()
    for start, stop in ((0, 1), (0, 4), (2, 7), (6, 6), (5, 9)):
        np.testing.assert_array_equal(rows.read(start, stop), ROWS[start:stop])
    assert rows.starts == [0]
    for start in (12, 3):  # beyond the last block, and before it
        np.testing.assert_array_equal(rows.read(start, start + 1), ROWS[start : start + 1])
    assert rows.starts == [0, "closed", 12, "closed", 3]
    rows.close()
    rows.close()
    assert rows.starts[-1] == "closed"
    np.testing.assert_array_equal(rows.whole(), ROWS)
    assert rows.starts[-2:] == [0, "closed"]


def test_windows_and_mappings_scan_on_their_own() -> None:
    rows = scan()
    window = rows.window(4, 11)
    doubled = rows.map(lambda block, first: block * 2 + first, float, 2)
    np.testing.assert_array_equal(window.read(1, 3), ROWS[5:7])
    np.testing.assert_array_equal(doubled.read(1, 3), ROWS[1:3] * 2 + 1)
    np.testing.assert_array_equal(window.read(3, 20), ROWS[7:11])
    assert rows.starts == [5, 1]


def test_rows_that_end_early_or_fail_are_named() -> None:
    with pytest.raises(ReadError, match="X ends after 13 rows; at least 15 were expected"):
        scan(n_rows=15).read(10, 15)

    failures: list[Exception] = [ValueError("bad\npage")]

    class Failing(Scan):
        def _blocks(self, start: int) -> Iterator[np.ndarray]:
            for block in super()._blocks(start):
                if failures and start == 5:
                    raise failures.pop()
                yield block

    rows = Failing(ROWS, ROWS.shape, ROWS.dtype)
    rows.read(0, 5)
    rows.close()
    with pytest.raises(ReadError, match="X: rows 5 to 7 cannot be read: ValueError: bad page"):
        rows.read(5, 8)
    assert rows.starts == [0, "closed", 5, "closed"]


def test_rows_within_a_file_are_reached_from_its_start() -> None:
    class Files(Scan):
        def _origin(self, row: int) -> int:
            return row - row % 10

    rows = Files(ROWS, ROWS.shape, ROWS.dtype)
    for start, stop in ((3, 4), (8, 9), (11, 13), (7, 8)):
        np.testing.assert_array_equal(rows.read(start, stop), ROWS[start:stop])
    assert rows.starts == [0, "closed", 0]  # the second file follows the first one


def test_masks_of_blocks_are_kept() -> None:
    masked = np.ma.masked_equal(ROWS, 14)
    rows = Scan(masked, ROWS.shape, ROWS.dtype)
    np.testing.assert_array_equal(np.ma.getmaskarray(rows.read(3, 9)), ROWS[3:9] == 14)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_reads_rows_that_a_thread_of_its_parent_is_reading() -> None:
    rows, reading, go_on = np.arange(20.0).reshape(10, 2), threading.Event(), threading.Event()

    @dataclass(frozen=True)
    class Waiting(ForwardRows):
        def _blocks(self, start):
            reading.set()
            if threading.current_thread() is not threading.main_thread():
                go_on.wait(60)
            yield rows[start:]

    source = Waiting(None, rows.shape, rows.dtype)
    thread = threading.Thread(target=source.read, args=(0, 5))
    thread.start()
    reading.wait(60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads
        child = os.fork()
    if not child:
        signal.alarm(60)
        try:
            np.testing.assert_array_equal(source.read(0, 5), rows[:5])
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    thread.join()
