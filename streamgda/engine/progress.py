"""Progress of a pass over rows: a bar, lines in a log, calls of a function, or nothing.

The first use of a kernel compiles it. That time does not count for rates and the time left.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from streamgda.runtime.compilation import compilations
from streamgda.runtime.memory import readable
from streamgda.runtime.parameters import as_flag

Progress = bool | Callable[[int, int | None], None]

_COMPILING = "compiling (once)"
_LINE_EVERY = 10.0  # seconds between two lines in a log, at least


@contextlib.contextmanager
def reporter(
    progress: Progress, total: int | None, what: str, *, first: int = 0, row_bytes: int = 0
) -> Iterator[Callable[..., None]]:
    """Provide a function to call with the number of rows done so far.

    It takes another total as second argument, for a number of rows that is estimated on the way.

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
    row_bytes : int
        Bytes of a row, if they are known.
    """
    if callable(progress) and not isinstance(progress, type):
        yield lambda done, total=total: progress(done, total)
        return
    if not as_flag("progress", progress):
        yield lambda done, total=None: None
        return
    started = time.monotonic() - compilations.seconds()

    def figures(done: int, total: int | None) -> str:
        seconds = time.monotonic() - compilations.seconds() - started
        return _figures(done, total, first, row_bytes, seconds)

    shown = _bar if sys.stderr.isatty() else _lines
    with shown(total, what, first, figures) as report:
        yield report


def _figures(done: int, total: int | None, first: int, row_bytes: int, seconds: float) -> str:
    """Return rows and bytes per second, time left and memory, as far as they are known."""
    rate = (done - first) / max(seconds, 1e-9)
    parts = [f"{rate:,.0f} rows/s"]
    if row_bytes:
        parts.append(f"{readable(rate * row_bytes)}/s")
    if total is not None and rate:
        left = datetime.timedelta(seconds=round((total - done) / rate))
        parts.append(f"{left} left")
    resident = psutil.Process().memory_info().rss
    return ", ".join([*parts, f"{readable(resident)} in memory"])


@contextlib.contextmanager
def _bar(
    total: int | None, what: str, first: int, figures: Callable[[int, int | None], str]
) -> Iterator[Callable[..., None]]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        Task,
        TextColumn,
    )
    from rich.table import Column  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    class Figures(TextColumn):
        def render(self, task: Task) -> Text:
            return Text(_COMPILING) if compilations.nested else super().render(task)

    whole = Column(no_wrap=True)  # in a narrow terminal only the figures take two lines
    columns = (
        TextColumn("{task.description}", table_column=whole),
        BarColumn(bar_width=10, table_column=whole),
        MofNCompleteColumn(table_column=whole),
        TextColumn("rows", table_column=whole),
        Figures("{task.fields[figures]}", table_column=Column()),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total, completed=first, figures="")
        yield lambda done, total=total: bar.update(
            task, completed=done, total=total, figures=figures(done, total)
        )


@contextlib.contextmanager
def _lines(
    total: int | None, what: str, first: int, figures: Callable[[int, int | None], str]
) -> Iterator[Callable[..., None]]:
    """Print lines for a log, the first one after a while: quick work prints none."""
    shown = time.monotonic()

    def report(done: int = first, total: int | None = total) -> None:
        nonlocal shown
        if time.monotonic() - shown < _LINE_EVERY:
            return
        shown = time.monotonic()
        rows = f"{done:,} rows"
        if total is not None:
            rows = f"{done:,} of {total:,} rows ({100 * done // max(1, total)} %)"
        text = _COMPILING if compilations.nested else f"{rows}, {figures(done, total)}"
        print(f"streamgda: {what}: {text}", file=sys.stderr, flush=True)

    compilations.listeners.append(report)
    try:
        yield report
    finally:
        compilations.listeners.remove(report)
