"""Progress of a pass: a bar, lines in a log, or the caller's own display."""

import io
import re
import sys
import time

import pytest
from numba.core import event
from samples import blobs

from streamgda import accumulate
from streamgda.engine import plan, progress
from streamgda.runtime.compilation import is_compiling

TOTAL = 1_000_000


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test advances."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def log(capsys):
    def lines():
        return capsys.readouterr().err.splitlines()

    return lines


def test_lines_in_a_log(clock, log):
    with progress.reporter(True, TOTAL, "accumulating", row_bytes=784) as report:
        for second in range(1, 26):
            clock[0] += 1
            report(10_000 * second)
    first, second = log()
    memory = r"[\d.]+ [MG]B in memory"
    assert re.fullmatch(
        r"streamgda: accumulating: 100,000 of 1,000,000 rows \(10 %\), 10,000 rows/s, "
        rf"7\.8 MB/s, 0:01:30 left, {memory}",
        first,
    )
    assert second.startswith("streamgda: accumulating: 200,000 of 1,000,000 rows (20 %)")
    assert not re.search(r"[\r\x1b]", first)


def test_rates_are_of_this_run_alone(clock, log):
    with progress.reporter(True, TOTAL, "scoring", first=500_000) as report:
        clock[0] += 10
        report(600_000)
    (line,) = log()
    assert "600,000 of 1,000,000 rows (60 %), 10,000 rows/s, 0:00:40 left" in line
    assert "B/s" not in line


def test_progress_of_an_unknown_total(clock, log):
    with progress.reporter(True, None, "accumulating") as report:
        clock[0] += 20
        report(5_000)
    (line,) = log()
    assert re.fullmatch(
        r"streamgda: accumulating: 5,000 rows, 250 rows/s, [\d.]+ [MG]B in memory", line
    )


def test_quick_work_reports_no_progress(clock, log):
    with progress.reporter(True, TOTAL, "accumulating") as report:
        clock[0] += 9
        report(TOTAL)
    assert log() == []


def test_silence_and_the_callers_own(clock, log):
    calls = []
    for wanted in (False, lambda *call: calls.append(call)):
        with progress.reporter(wanted, TOTAL, "accumulating", first=3) as report:
            clock[0] += 60
            report(7)
    assert calls == [(7, TOTAL)]
    assert log() == []


@pytest.mark.parametrize("columns", ["60", "200"])
def test_a_bar_with_figures(monkeypatch, clock, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.reporter(True, 240, "accumulating", first=40, row_bytes=1000) as report:
        clock[0] += 10
        report(140)
    shown = " ".join(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", sys.stderr.getvalue()).split())
    for part in ("accumulating", "140/240", "10 rows/s", "10.0 kB/s", "0:00:10 left", "in memory"):
        assert part in shown


def test_compiling_is_said_and_does_not_count(clock, log):
    with progress.reporter(True, TOTAL, "accumulating") as report:
        clock[0] += 9
        with event.trigger_event("numba:compile"):
            clock[0] += 2
            with event.trigger_event("numba:compile"):  # a part of the kernel
                clock[0] += 2
            clock[0] += 2
        clock[0] += 7
        assert not is_compiling()
        report(160_000)
    compiling, line = log()
    assert compiling == "streamgda: accumulating: compiling (once)"
    assert "160,000 of 1,000,000 rows (16 %), 10,000 rows/s, 0:01:24 left" in line


def test_a_bar_says_that_it_compiles(monkeypatch, clock):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.reporter(True, 240, "accumulating") as report:
        with event.trigger_event("numba:compile"):
            clock[0] += 30
            while "compiling (once)" not in sys.stderr.getvalue():  # drawn ten times a second
                time.sleep(0.01)
        clock[0] += 10
        report(100)
    before, _, after = sys.stderr.getvalue().partition("compiling (once)")
    assert "rows/s" not in before
    assert "10 rows/s" in after


def test_a_resumed_pass_begins_where_the_other_stopped(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "_SLAB_BYTES", 100 * 32)
    X, y = blobs(300, 4)
    calls = []

    def stop(*call):
        calls.append(call)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        accumulate(X, y, checkpoint=tmp_path / "kept", progress=stop)
    accumulate(X, y, checkpoint=tmp_path / "kept", progress=stop)
    assert calls == [(100, 300), (200, 300), (300, 300)]
