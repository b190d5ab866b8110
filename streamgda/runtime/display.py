"""Values as people read them, objects as HTML for notebooks, and data frames with names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from streamgda.runtime.parameters import require

_MOST_ROWS = 12  # A table in a notebook has at most so many rows.
_NOTHING = ("", "-", "no")


def html_table(
    title: str,
    facts: Mapping[str, Any],
    columns: Sequence[str] = (),
    rows: Iterable[Sequence[Any]] = (),
) -> str:
    """Return HTML: a heading, a line of facts, and a table of at most a dozen rows.

    Examples
    --------
    >>> html_table("Ants", {"rows": 2000, "names": None})
    '<div><b>Ants</b><br>rows 2,000</div>'
    """
    lines = [f"<b>{escape(title)}</b>"]
    texts = {name: in_words(value) for name, value in facts.items()}
    told = [f"{name} {text}" for name, text in texts.items() if text not in _NOTHING]
    if told:
        lines.append("<br>" + escape(" · ".join(told)))
    body = [[in_words(value) for value in row] for row in rows]
    if body:
        cells = [_row("th", columns), *(_row("td", row) for row in body[:_MOST_ROWS])]
        lines.append(f"<table>{''.join(cells)}</table>")
        if len(body) > _MOST_ROWS:
            lines.append(f"and {len(body) - _MOST_ROWS:,} more")
    return f"<div>{''.join(lines)}</div>"


def in_words(value: Any) -> str:
    """Return a value as people read it: counts with separators, and the first of many names.

    Examples
    --------
    >>> in_words(2000), in_words({"ant": 2, "bee": 1}), in_words(None)
    ('2,000', 'ant=2, bee=1', '-')
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(map(str, value[:_MOST_ROWS]))
        return shown if len(value) <= _MOST_ROWS else f"{shown}, ... ({len(value):,})"
    return str(value)


def _row(cell: str, values: Iterable[Any]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(str(value))}</{cell}>' for value in values)}</tr>"


def frame_of(values: Any, index: Any, columns: Any) -> Any:
    """Return a pandas data frame; an index of pairs becomes two levels.

    Raises
    ------
    MissingLibraryError
        If pandas is not installed.
    """
    pandas = require("pandas", "xarray", "frames of results")
    if len(index) and isinstance(index[0], tuple):
        index = pandas.MultiIndex.from_tuples(index)
    return pandas.DataFrame(values, index=index, columns=columns)
