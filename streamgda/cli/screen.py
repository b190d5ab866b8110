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
    facts: list[dict[str, Any]] = []
    tables = [facts]
    for name, value in figures.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            tables.append(value)
            continue
        inner = value.items() if isinstance(value, Mapping) else [(name, value)]
        told = [(n, v) for n, v in inner if v not in (None, "", [], {}, ())]
        facts += [{"": n.replace("_", " "), " ": v} for n, v in told]
    for rows in tables:
        _show_table(rows)


def _show_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a table to stdout: with headings, and numbers on the right, unless all are empty."""
    from rich import box  # noqa: PLC0415  (see `options`)
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    # Labels and paths may contain what rich would take for markup.
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    console = Console(markup=False, highlight=False, emoji=False, width=width)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    headed = any(map(str.strip, columns))
    style = box.SIMPLE_HEAD if console.is_terminal else None
    table = Table(box=style, show_header=headed, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if headed and number else "left")
    for row in rows[:_MOST]:
        cells = (in_words(row.get(column, "")) for column in columns)
        table.add_row(*(printable(" ".join(cell.split())) for cell in cells))
    console.print(table)
    print(f"and {len(rows) - _MOST:,} more" if len(rows) > _MOST else "")


def _finite(value: Any) -> Any:
    """Return a value for JSON: None for numbers that are not finite."""
    if isinstance(value, Mapping):
        return {str(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
