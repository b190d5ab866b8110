"""Progress of a pass over rows: a bar, lines in a log, calls of a function, or nothing."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator

from streamgda.runtime.parameters import as_flag

Progress = bool | Callable[[int, int | None], None]

_LINE_EVERY = 10.0  # At least so many seconds pass between two lines in a log.


@contextlib.contextmanager
def reporter(
    progress: Progress, total: int | None, what: str, *, first: int = 0
) -> Iterator[Callable[[int], object]]:
    """Provide a function to call with the number of rows done so far.

    Parameters
    ----------
    progress : bool or callable
        True shows a bar if stderr is a terminal, and lines every ten seconds otherwise; a callable
        gets ``(rows_done, rows_total)``; False shows nothing.
    total : int or None
        Number of rows, if it is known.
    what : str
        Description of the work.
    first : int
        Rows that another run has done, which do not count for the rate.
    """
    if callable(progress) and not isinstance(progress, type):
        yield lambda done: progress(done, total)
    elif not as_flag("progress", progress):
        yield lambda done: None
    elif not sys.stderr.isatty():
        yield _Lines(total, what, first).report
    else:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        columns = "{task.description}", BarColumn(10), MofNCompleteColumn(), TimeRemainingColumn()
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total, completed=first)
            yield lambda done: bar.update(task, completed=done)


class _Lines:
    """Lines for a log, the first one after a while: quick work prints none."""

    def __init__(self, total: int | None, what: str, first: int) -> None:
        self.total, self.what, self.first = total, what, first
        self.started = self.shown = time.monotonic()

    def report(self, done: int) -> None:
        """Print a line if ten seconds have passed since the last one."""
        now, total = time.monotonic(), self.total
        if now - self.shown < _LINE_EVERY:
            return
        self.shown = now
        rate = (done - self.first) / (now - self.started)
        line = f"streamgda: {self.what}: {done:,} rows, {rate:,.0f} rows/s"
        if total is not None and rate:
            left = datetime.timedelta(seconds=round((total - done) / rate))
            line += f", {100 * done // total} % of {total:,}, {left} left"
        print(line, file=sys.stderr, flush=True)
