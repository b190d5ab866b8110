"""Output: tables and JSON on stdout, notes on stderr; colours and rules in terminals only."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from streamgda.errors import printable
from streamgda.runtime.parameters import in_words

_MOST = 30  # At most so many rows of a table are shown.
_PIPE_WIDTH = 1 << 16  # Tables that go to a program are not cut.


def note(text: str) -> None:
    """Write one line to stderr."""
    print(f"streamgda: {printable(' '.join(text.split()))}", file=sys.stderr)


def show(figures: Mapping[str, Any], as_json: bool = False) -> None:
    """Write figures to stdout: one JSON object, or names with values and tables for people."""
    if as_json:
        print(printable(json.dumps(_finite(figures), indent=2, allow_nan=False, default=str)))
        return
    tables = [v for v in figures.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    lines: list[tuple[str, Any]] = []
    for name, value in figures.items():
        inner = value.items() if isinstance(value, Mapping) else [(name, value)]
        lines += [(n.replace("_", " "), v) for n, v in inner if v not in (None, "", [], {}, ())]
    show_table(("", ""), [(name, value) for name, value in lines if value not in tables])
    for rows in tables:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        show_table(columns, [[row.get(column, "") for column in columns] for row in rows])


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table to stdout: with headings, and numbers on the right, unless all are empty."""
    from rich import box  # noqa: PLC0415  (see `options`)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    # Labels and paths may contain what rich would take for markup.
    console, headed = Console(markup=False, highlight=False, emoji=False), any(columns)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    style = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=style, show_header=headed, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(str(column), justify="right" if headed and number else "left")
    for row in rows[:_MOST]:
        table.add_row(*(printable(" ".join(in_words(cell).split())) for cell in row))
    console.print(table)
    print(f"and {len(rows) - _MOST:,} more" if len(rows) > _MOST else "")


def _finite(value: Any) -> Any:
    """Return a value for JSON: None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
