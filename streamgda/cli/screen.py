"""Output: tables and JSON on stdout, notes on stderr; colours and rules in terminals only."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

# Wide enough that nothing is cut or wrapped in a pipe.
_PIPE_WIDTH = 1 << 16


def note(text: str) -> None:
    """Write one line to stderr."""
    print(f"streamgda: {' '.join(text.split())}", file=sys.stderr)


def message_of(error: BaseException) -> str:
    """Return the message of an error and its notes, as sentences."""
    message = str(error)
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    parts = [message or type(error).__name__, *getattr(error, "__notes__", ())]
    return ". ".join(part.removesuffix(".") for part in parts)


@contextlib.contextmanager
def notes_on_interrupt() -> Iterator[None]:
    """Show the notes of a KeyboardInterrupt, which say what was saved and how to resume."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for text in getattr(interrupt, "__notes__", ()):
            note(f"interrupted. {text}")
        raise


@contextlib.contextmanager
def live(every: float, *, panel: bool = True) -> Iterator[Callable[..., None]]:
    """Show figures on stderr from time to time: in a panel in a terminal, and as lines elsewhere.

    Parameters
    ----------
    every : float
        Seconds between two lines; a panel is refreshed each second, or more often.
    panel : bool
        False for lines in a terminal, too.

    Yields
    ------
    callable
        To be called as often as possible with a function that returns the figures, a dict of str.
        It is called if it is time to show them, or with ``now=True``.
    """
    from rich.console import Console  # noqa: PLC0415  (see the note in `options`)
    from rich.live import Live  # noqa: PLC0415

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with contextlib.ExitStack() as stack:
        show = _show_line
        if panel and console.is_terminal:
            every = min(every, 1.0)
            shown = stack.enter_context(Live(console=console, auto_refresh=False))
            show = lambda figures: shown.update(_panel(figures), refresh=True)  # noqa: E731
        last = time.monotonic()

        def report(figures: Callable[[], dict[str, str]], *, now: bool = False) -> None:
            nonlocal last
            if now or time.monotonic() - last >= every:
                show(figures())
                last = time.monotonic()

        yield report


def _show_line(figures: dict[str, str]) -> None:
    note(", ".join(f"{name}: {value}" for name, value in figures.items()))


def _panel(figures: dict[str, str]) -> Any:
    from rich import box  # noqa: PLC0415
    from rich.panel import Panel  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(name, value)
    return Panel(table, title="streamgda stream", box=box.ROUNDED, expand=False)


def say(text: str = "") -> None:
    """Write text to stdout."""
    _console().print(text, soft_wrap=True)


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: bool = True
) -> None:
    """Write a table to stdout.

    Parameters
    ----------
    columns : sequence of str
        Headings. If all are empty, there is no header.
    rows : iterable of sequences
        Cells.
    right : bool
        Right-align all columns but the first.
    """
    from rich import box  # noqa: PLC0415  (see the note in `options`)
    from rich.table import Table  # noqa: PLC0415

    console = _console()
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        show_header=any(columns),
        pad_edge=False,
        header_style="bold",
    )
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if right and number else "left")
    for row in rows:
        table.add_row(*map(str, row))
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def number(value: float) -> str:
    """Format a count or a sum of weights with thousands separators."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def rate(n_rows: int, seconds: float) -> str:
    """Format the number of rows per second."""
    return f"{n_rows / seconds:,.0f} rows a second"


def show_json(value: Any) -> None:
    """Write one JSON object to stdout."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def _console() -> Any:
    from rich.console import Console  # noqa: PLC0415

    # Labels and paths may contain what rich would take for markup.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
