"""Parameters: their checks, and the libraries that some need; results as people read them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError, MissingLibraryError

LEAST = math.ulp(0.0)  # The smallest number above zero.
BELOW_ONE = math.nextafter(1.0, 0.0)

_LONGEST = 200  # Messages show so many characters of a value.
_MOST_ROWS = 12  # A table in a notebook has at most so many rows.


def shown(value: Any) -> str:
    """Return the representation of a value on one line, shortened if it is long.

    Examples
    --------
    >>> shown("twelve"), len(shown([0] * 1000)), shown(10**5000)
    ("'twelve'", 203, 'int (too long to show)')
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # Integers may have too many digits, and objects can raise anything.
        return f"{type(value).__name__} (too long to show)"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 50]}...{text[-50:]}"


def unexpected(name: str, value: Any, expected: str) -> InvalidParameterError:
    """Return the error for a parameter that has another value than what is expected."""
    return InvalidParameterError(f"{name}={shown(value)}; expected {expected}")


def as_number(
    name: str, value: Any, expected: str, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return a parameter that is a finite real number.

    Parameters
    ----------
    name : str
    value : object
    expected : str
        Description of such numbers, for the message.
    low, high : float
        Limits, which are allowed values.

    Raises
    ------
    InvalidParameterError
        For anything else, booleans among it.

    Examples
    --------
    >>> as_number("tol", 10**400, "a number >= 0", 0)
    Traceback (most recent call last):
    streamgda.errors.InvalidParameterError: tol=...; expected a number >= 0
    """
    if type(value) is not float:  # Every call of a stream passes here, mostly with a float.
        real = isinstance(value, Real) and not isinstance(value, bool)
        try:
            number = float(value) if real else math.nan
        except OverflowError:
            number = math.nan
    else:
        number = value
    if not low <= number <= high or math.isinf(number):
        raise unexpected(name, value, expected)
    return number


def as_integer(
    name: str, value: Any, expected: str, low: int = 0, high: int = (1 << 63) - 1
) -> int:
    """Return a parameter that is a whole number from `low` to `high`; otherwise as `as_number`.

    Examples
    --------
    >>> as_integer("n_samples", 2.5, "an integer >= 1", 1)
    Traceback (most recent call last):
    streamgda.errors.InvalidParameterError: n_samples=2.5; expected an integer >= 1
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number > high:
        expected += f", at most {high}"
    if isinstance(value, bool) or not low <= number <= high:
        raise unexpected(name, value, expected)
    return number


def as_flag(name: str, value: Any) -> bool:
    """Return a parameter that is True or False, or one or zero in its place."""
    if not isinstance(value, bool | np.bool_ | Integral) or value not in (0, 1):
        raise unexpected(name, value, "True or False")
    return bool(value)


def check_type(name: str, value: Any, kind: Any, expected: str) -> None:
    """Raise `TypeError` unless an argument is an object of that kind."""
    if not isinstance(value, kind):
        given = "None" if value is None else f"of type {type(value).__name__}"
        if isinstance(value, type):
            given = f"the class {value.__name__}"
        raise TypeError(f"{name} is {given}; expected {expected}")


def as_numbers(name: str, value: Any, expected: str, finite: bool = False) -> np.ndarray:
    """Return a copy of a parameter that is an array of real numbers as float64, in any shape.

    NaN and infinity pass unless `finite` is True.

    Raises
    ------
    InvalidParameterError
        For anything else, masked values among it.
    """
    try:
        values = np.asanyarray(value)
        if values.dtype.kind == "O":  # It holds integers beyond 64 bits, fractions or decimals.
            values = values.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.empty(0, "V")
    if values.dtype.kind not in "biuf" or np.ma.is_masked(values):
        raise unexpected(name, value, expected)
    numbers = np.array(values, np.float64)
    if finite and not np.isfinite(numbers).all():
        raise unexpected(name, value, f"{expected}, all finite")
    return numbers


def require(module: str, extra: str, what: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    module : str
        For example ``"pyarrow.parquet"``.
    extra : str
        Extra of the package that installs the library.
    what : str
        Subject of the error message, in the plural: those that need the library.

    Returns
    -------
    module

    Raises
    ------
    MissingLibraryError
        If the library is not installed.

    Examples
    --------
    >>> require("nowhere.files", "arrow", "Parquet files")
    Traceback (most recent call last):
    ...
    streamgda.errors.MissingLibraryError: Parquet files need nowhere, which is not installed: \
pip install "streamgda[arrow]"
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise MissingLibraryError(
            f'{what} need {library}, which is not installed: pip install "streamgda[{extra}]"'
        ) from error


# --- results as people read them ------------------------------------------------------------------


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
    told = [f"{name} {text}" for name, text in texts.items() if text not in ("", "-", "no")]
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
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={in_words(each)}" for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(map(str, value[:_MOST_ROWS]))
        return shown if len(value) <= _MOST_ROWS else f"{shown}, ... ({len(value):,})"
    return str(value)


def _row(cell: str, values: Iterable[Any]) -> str:
    return f"<tr>{''.join(f'<{cell}>{escape(str(value))}</{cell}>' for value in values)}</tr>"
