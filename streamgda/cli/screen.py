"""Output: tables and JSON on stdout, notes on stderr; colours and rules in terminals only."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from streamgda.errors import printable

# Wide enough that nothing is cut or wrapped in a pipe.
_PIPE_WIDTH = 1 << 16


def note(text: str) -> None:
    """Write one line to stderr."""
    print(f"streamgda: {printable(' '.join(text.split()))}", file=sys.stderr)


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


def say(text: str = "") -> None:
    """Write text to stdout."""
    _console().print(printable(text), soft_wrap=True)


def show_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: bool = True,
    most: int | None = None,
) -> None:
    """Write a table to stdout.

    Parameters
    ----------
    columns : sequence of str
        Headings. If all are empty, there is no header.
    rows : sequence of sequences
        Cells.
    right : bool
        Right-align all columns but the first.
    most : int, optional
        Number of rows that are shown; a line says how many more there are.
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
    for row in rows[:most]:
        table.add_row(*map(str, row))
    if console.is_terminal:
        console.print(table)
    else:
        with console.capture() as captured:
            console.print(table)
        print(*(line.rstrip() for line in captured.get().splitlines()), sep="\n")
    if most is not None and len(rows) > most:
        say(f"and {len(rows) - most:,} more")


def number(value: float) -> str:
    """Format a count or a sum of weights with thousands separators."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"


def rate(n_rows: int, seconds: float) -> str:
    """Format the number of rows per second."""
    return f"{n_rows / seconds:,.0f} rows a second"


def finite(value: Any) -> Any:
    """Return the value for JSON: None for a number that is not finite."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def show_json(figures: dict[str, Any]) -> None:
    """Write one JSON object to stdout."""
    value = {k: printable(v) if isinstance(v, str | Path) else v for k, v in figures.items()}
    print(json.dumps(value, indent=2, allow_nan=False, default=str))


def _console() -> Any:
    from rich.console import Console  # noqa: PLC0415

    # Labels and paths may contain what rich would take for markup.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
