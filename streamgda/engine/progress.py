"""Progress of a pass over rows: a bar, lines in a log, calls of a function, or nothing."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time
from collections.abc import Callable, Iterator

from streamgda.runtime.memory import readable
from streamgda.runtime.parameters import as_flag

Progress = bool | Callable[[int, int | None], None]

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
    started = time.monotonic()

    def figures(done: int, total: int | None) -> str:
        """Return rows and bytes a second and the time left, as far as they are known."""
        rate = (done - first) / max(time.monotonic() - started, 1e-9)
        parts = [f"{rate:,.0f} rows/s"]
        if row_bytes:
            parts.append(f"{readable(rate * row_bytes)}/s")
        if total is not None and rate:
            parts.append(f"{datetime.timedelta(seconds=round((total - done) / rate))} left")
        return ", ".join(parts)

    shown = _bar if sys.stderr.isatty() else _lines
    with shown(total, what, first, figures) as report:
        yield report


@contextlib.contextmanager
def _bar(
    total: int | None, what: str, first: int, figures: Callable[[int, int | None], str]
) -> Iterator[Callable[..., None]]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=10),
        MofNCompleteColumn(),
        TextColumn("rows, {task.fields[figures]}"),
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

    def report(done: int, total: int | None = total) -> None:
        nonlocal shown
        if time.monotonic() - shown < _LINE_EVERY:
            return
        shown = time.monotonic()
        of = "" if total is None else f" of {total:,}"
        share = "" if total is None else f" ({100 * done // max(1, total)} %)"
        line = f"streamgda: {what}: {done:,}{of} rows{share}, {figures(done, total)}"
        print(line, file=sys.stderr, flush=True)

    yield report
