"""The slab loop of every pass in this process, and its progress."""

from __future__ import annotations

import contextlib
import contextvars
import datetime
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from streamgda.rows import Rows, side_by_side
from streamgda.rows.counting import Slab
from streamgda.rows.source import as_source, placing
from streamgda.runtime.parameters import as_flag

Progress = bool | Callable[[int, int | None], None]

_LINE_EVERY = 10.0  # At least so many seconds pass between two lines in a log.
always = contextvars.ContextVar("always", default=False)  # The command line shows all progress.


def in_process(rows: Rows) -> Rows:
    """Return sources of rows that this process reads.

    Parameters
    ----------
    rows : Rows
        Chunks of dask collections whose size is unknown are counted.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other.
    """
    rows = rows.opened()
    if rows.executor == "dask":
        from streamgda.engine.dask.collections import aligned  # noqa: PLC0415

        read: Any = {
            field: as_source(
                array.copy().compute_chunk_sizes() if math.isnan(array.shape[0]) else array,
                getattr(rows, field).name,
            )
            for field, array in aligned(rows).items()
        }
        rows = replace(rows, **read)
    return rows.checked()


def with_targets(rows: Rows) -> Rows:
    """Return rows with their targets as further columns, and without labels.

    Parameters
    ----------
    rows : Rows
        Rows whose `y` is a source of targets; see `streamgda.rows.targets_of`.
    """
    X, y = as_source(rows.X), rows.y
    if "dask" in (X.executor, y.executor):
        from streamgda.engine.dask.collections import joined_blocks  # noqa: PLC0415

        return replace(rows, X=as_source(joined_blocks(X, y)), y=None)

    def joined(X: Any, first_row: int) -> np.ndarray:
        return side_by_side(X, y.read(first_row, first_row + X.shape[0]))

    columns = X.shape[1] + math.prod(y.shape[1:])
    return replace(rows, X=X.map(joined, np.float64, columns), y=None)


@contextlib.contextmanager
def reading(
    rows: Rows,
    slab_rows: int,
    what: str = "",
    progress: Progress = False,
    first: int = 0,
) -> Iterator[Iterator[Slab]]:
    """Provide the slabs of rows, one of which is read ahead.

    Progress is reported when the next slab is requested. Errors about a row that are raised
    within the context name the array and the chunk. Pages of memory maps are released after use.

    Parameters
    ----------
    rows : Rows
        Sources.
    slab_rows : int
        Rows of a slab.
    what : str
        Description of the work, shown with the progress.
    progress : bool or callable
        See `reporter`.
    first : int
        First row that is read, the first one of a slab.
    """
    source = rows.sources[0]

    def reported() -> Generator[Slab]:
        for slab in rows.slabs(slab_rows, first):
            yield slab
            report(min(slab.first_row + slab_rows, source.n_rows))

    with (
        placing(*rows.sources),
        reporter(progress, source.n_rows, what, first=first) as report,
        contextlib.closing(reported()) as read,
    ):
        yield read


# --- progress -------------------------------------------------------------------------------------


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
    elif not (as_flag("progress", progress) or always.get()):
        yield lambda done: None
    elif not sys.stderr.isatty():
        yield _lines(total, what, first)
    else:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        columns = "{task.description}", BarColumn(10), MofNCompleteColumn(), TimeRemainingColumn()
        with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total, completed=first)
            yield lambda done: bar.update(task, completed=done)


def _lines(total: int | None, what: str, first: int) -> Callable[[int], None]:
    """Return a function that prints a line every ten seconds: quick work prints none."""
    started = shown = time.monotonic()

    def report(done: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < _LINE_EVERY:
            return
        shown, rate = now, (done - first) / (now - started)
        line = f"streamgda: {what}: {done:,} rows, {rate:,.0f} rows/s"
        if total is not None and rate:
            left = datetime.timedelta(seconds=round((total - done) / rate))
            line += f", {100 * done // total} % of {total:,}, {left} left"
        print(line, file=sys.stderr, flush=True)

    return report
