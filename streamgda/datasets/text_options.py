"""Options of tables of text, and their columns: features, labels, and those left out."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from streamgda.errors import InvalidParameterError, SourceError
from streamgda.runtime.parameters import refuse

Columns = str | int | slice | Sequence[str | int | slice] | None
_UNNAMED = ("", "Unnamed: 0")  # as pandas writes an index, and reads and writes it again
_SHOWN = 20


class TextOptions(TypedDict, total=False):
    """Options of a table of text, as for `streamgda.datasets.convert`.

    They are accepted for the names that `convert` lists, and for any name with ``format="csv"``.
    A column is given by its name in the header or by its index, of which negative ones count from
    the end; `columns` and `drop` take slices of indices too.

    Attributes
    ----------
    label_column : str or int, default=None
        Column of the labels. The last that is not dropped if None.
    columns : str, int or slice, or sequence of them, default=None
        Columns of the features, in this order; all if None. The labels are never a feature.
    drop : str, int or slice, or sequence of them, default=None
        Columns to leave out.
    header : bool, default=None
        True if the first line has the names of the columns. If None, it does if columns are given
        by name, or if none of the features in that line is a number.
    delimiter : str, default=None
        Separator of the fields; a space stands for any number of spaces and tabs. If None, the
        first of comma, semicolon, tab and space that is in the first line; but never a space for
        ``.csv``, and always a tab for ``.tsv``.
    keep_index : bool, default=False
        Keep a first column without a name that numbers the rows from 0 or 1, as pandas writes an
        index. It is left out otherwise, with a warning.
    na_values : str, number or sequence of them, default=None
        More markers of missing values, such as ``"?"`` or -9999. A number also marks the same
        number in other notation: -9999.0.
    keep_default_na : bool, default=True
        Take empty fields and the markers of pandas (``NA``, ``N/A``, ``NaN``, ``nan``, ``null``,
        ``None``, ``<NA>``, ``#N/A`` and others) as missing values. Missing features are NaN.
    missing_labels : {"raise", "keep"}, default="raise"
        Refuse a row whose label is missing, or keep it. Labels that are numbers then become
        float64, with NaN for those that are missing; of strings, those are "", and the attribute
        ``missing_label`` of the array says so.
    """

    label_column: str | int | None
    columns: Columns
    drop: Columns
    header: bool | None
    delimiter: str | None
    keep_index: bool
    na_values: Any
    keep_default_na: bool
    missing_labels: str


def given(*values: Any) -> TextOptions:
    """Return the options of `TextOptions`, in their order, that differ from the default."""
    defaults = {"keep_index": False, "keep_default_na": True, "missing_labels": "raise"}
    options: Any = {}
    for name, value in zip(TextOptions.__annotations__, values, strict=True):
        default = defaults.get(name)
        if not isinstance(value, type(default)) or value != default:
            options[name] = value
    return options


def as_missing_labels(value: Any) -> bool:
    """Return True if rows with missing labels are kept."""
    if value not in ("raise", "keep"):
        raise refuse("missing_labels", value, "'raise' or 'keep'")
    return bool(value == "keep")


@dataclass(frozen=True)
class Choice:
    """Indices of the columns of features, in order, and of the column of labels.

    Attributes
    ----------
    features : list of int
    label : int or None
        None without labels.
    index : bool
        True if the first column, which has no name, may be an index: the user did not ask for it.
    named : bool
        True if the user gave the name of a column, so that the first line must hold names.
    """

    features: list[int]
    label: int | None
    index: bool
    named: bool


def choose(
    path: Path,
    first: list[str],
    *,
    labelled: bool,
    label_column: str | int | None,
    columns: Columns,
    drop: Columns,
) -> Choice:
    """Return the columns that a user chose; see `TextOptions`.

    Parameters
    ----------
    path : pathlib.Path
        Name of the table in errors.
    first : list of str
        Fields of the first line.
    labelled : bool
        True if one of the columns holds labels.
    label_column, columns, drop
        See `TextOptions`.

    Raises
    ------
    SourceError
        If there are no such columns, or none for features.
    InvalidParameterError
        If a column is not a name, an index or a slice, or the label column is dropped.
    """
    wanted, unwanted = _listed("columns", columns), _listed("drop", drop)
    dropped = [] if unwanted is None else _positions(path, first, "drop", unwanted)
    chosen = (
        list(range(len(first))) if wanted is None else _positions(path, first, "columns", wanted)
    )
    label = None
    if label_column is not None:
        label = _position(path, first, "label_column", label_column)
        if label in dropped:
            raise InvalidParameterError(
                f"label_column={label_column!r} is among the columns to drop; give another"
            )
    elif labelled:
        label = max(set(range(len(first))).difference(dropped), default=None)
    features = [column for column in chosen if column != label and column not in dropped]
    if not features:
        raise SourceError(
            f"{path} has no columns of features: columns={columns!r}, drop={drop!r}, and its first "
            f"line is {_line(first)}"
        )
    index = wanted is None and 0 in features and first[0] in _UNNAMED
    named = any(isinstance(c, str) for c in (label_column, *(wanted or ()), *(unwanted or ())))
    return Choice(features, label, index, named)


def _line(fields: list[str]) -> str:
    return f"{', '.join(fields[:_SHOWN])}{', ...' if len(fields) > _SHOWN else ''}" or "empty"


def _listed(name: str, columns: Columns) -> list[Any] | None:
    if columns is None:
        return None
    try:
        return [columns] if isinstance(columns, str | int | slice) else list(columns)
    except TypeError:
        raise refuse(name, columns, "names, indices or slices of columns") from None


def _positions(path: Path, first: list[str], name: str, columns: list[Any]) -> list[int]:
    """Return the indices of columns, each once, in the given order."""
    found: dict[int, None] = {}
    for column in columns:
        if isinstance(column, slice):
            try:
                part = range(len(first))[column]
            except (TypeError, ValueError):
                raise refuse(name, column, "a slice of integers") from None
            if not part:
                raise InvalidParameterError(
                    f"{name}={column!r} selects none of the {len(first)} columns of {path}"
                )
            found |= dict.fromkeys(part)
        else:
            found[_position(path, first, name, column)] = None
    return list(found)


def _position(path: Path, first: list[str], name: str, column: Any) -> int:
    if isinstance(column, str):
        if first.count(column) != 1:
            raise SourceError(
                f"{path} has {first.count(column)} columns named {column!r}; its first line is "
                f"{_line(first)}"
            )
        return first.index(column)
    try:
        if isinstance(column, bool):
            raise TypeError
        return range(len(first))[operator.index(column)]
    except (IndexError, TypeError):
        raise InvalidParameterError(
            f"{name} must be a name or an index of one of {len(first)} columns, not {column!r}"
        ) from None
