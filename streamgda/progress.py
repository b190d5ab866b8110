"""How far a pass over the rows has come: a bar, the caller's own, or nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = bool | Callable[[int, int | None], None]


@contextlib.contextmanager
def reporter(progress: Progress, total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """A function to call with the rows done so far: a bar, the caller's own, or nothing."""
    if callable(progress):
        yield lambda done: progress(done, total)
    elif not progress or not sys.stderr.isatty():
        yield lambda done: None
    else:
        from rich.console import Console  # noqa: PLC0415
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rows"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
