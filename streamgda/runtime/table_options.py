"""Options of tables in files, which Python functions and commands share; this imports nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

ColumnNames = str | int | slice | Sequence[str | int | slice]


class TableOptions(TypedDict, total=False):
    """Options of a table, of `streamgda.open_store`, `streamgda.datasets.convert` and commands.

    All but `drop` are of text.

    Attributes
    ----------
    drop : str, int or slice, or sequence of them, default=None
        Names or numbers of columns that are left out.
    format : {"csv"}, default=None
        Format of a text with another name than ``.csv``, ``.tsv``, ``.txt`` or ``.data``.
    header : bool, default=None
        True if the first line has the names of the columns. By default, it does unless one of
        its fields is a number.
    delimiter : str, default=None
        Separator of the fields; by default a tab for ``.tsv``, and otherwise that of comma,
        semicolon, tab and bar of which the first line has most.
    na_values : str, number or sequence of them, default=None
        More markers of missing values, such as ``"?"`` or -9999. A number also marks the same
        number in other notation: -9999.0.
    keep_default_na : bool, default=True
        Take empty fields and the markers of pandas (``NA``, ``N/A``, ``NaN``, ``nan``, ``null``,
        ``None``, ``<NA>``, ``#N/A`` and others) as missing values.
    encoding : str, default="utf-8"
        Encoding of the text.
    decimal : str, default="."
        Mark before the fraction of a number.
    comment : str, default=None
        Start of lines that are left out.
    """

    drop: ColumnNames | None
    format: str | None
    header: bool | None
    delimiter: str | None
    na_values: Any
    keep_default_na: bool | None
    encoding: str | None
    decimal: str | None
    comment: str | None
