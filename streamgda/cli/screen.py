"""What is shown: tables and JSON on stdout, notes on stderr; colour and lines in terminals only."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

# In a pipe nothing is cut or wrapped, however wide it is.
_PIPE_WIDTH = 1 << 16


def note(text: str) -> None:
    """Write one line to stderr."""
    print(f"streamgda: {' '.join(text.split())}", file=sys.stderr)


def in_words(error: BaseException) -> str:
    """What an error says, and what was noted with it."""
    said = str(error)
    if isinstance(error, OSError) and error.strerror:
        said = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    parts = [said or type(error).__name__, *getattr(error, "__notes__", ())]
    return ". ".join(part.removesuffix(".") for part in parts)


@contextlib.contextmanager
def saying_what_is_kept() -> Iterator[None]:
    """Say, where the user interrupts, what is kept of the work and how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        for text in getattr(interrupt, "__notes__", ()):
            note(f"interrupted. {text}")
        raise


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
        Headings; all empty for none.
    rows : iterable of sequences
        Cells.
    right : bool
        Whether all columns but the first are numbers, which stand on the right.
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
    """A count, or a weight, with its thousands apart."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def show_json(value: Any) -> None:
    """Write one JSON object to stdout."""
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def _console() -> Any:
    from rich.console import Console  # noqa: PLC0415

    # Labels and paths are shown as they are: nothing in them is markup.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
