"""Meaning of the lines of a stream, from the first of them: CSV or JSON, features and labels."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamgda.datasets.csvtable import is_header
from streamgda.datasets.linerows import (
    BYTE_ORDER_MARK,
    CsvRows,
    JsonRows,
    LineRows,
    parsed_object,
    split_fields,
)
from streamgda.datasets.missing import Missing
from streamgda.datasets.text_options import choose
from streamgda.datasets.textfiles import SPACES, as_delimiter
from streamgda.datasets.textlabels import TextLabels
from streamgda.errors import InvalidDataError, SourceError
from streamgda.rows.names import join_names

_DELIMITERS = f",;\t{SPACES}"


@dataclass(frozen=True)
class LineOptions:
    """Options of the lines of a stream.

    Attributes
    ----------
    format : {"csv", "json"}, optional
        JSON by default if the first line begins with a brace.
    delimiter : str, optional
        Separator of the fields of CSV, as of `TextOptions`; inferred from the first line.
    header : bool, optional
        True if the first line has names; by default, if columns are given by name or none of the
        features in that line is a number.
    label : str or int, optional
        Column of the labels; by default there are none.
    features : sequence of str, optional
        Columns of the features; by default `names`, or all but the labels.
    na_values, keep_default_na
        Fields of CSV that mean that there is no value, as of `TextOptions`.
    names : tuple of str, optional
        Names of the features that an estimator expects, in its order.
    n_features : int, optional
        Number of these.
    """

    format: str | None = None
    delimiter: str | None = None
    header: bool | None = None
    label: str | int | None = None
    features: Sequence[str] | None = None
    na_values: tuple[str, ...] | None = None
    keep_default_na: bool = True
    names: tuple[str, ...] | None = None
    n_features: int | None = None

    def reader(self, first: bytes, name: str, labels: TextLabels) -> LineRows:
        """Return the reader of rows for a stream that begins with a line.

        Parameters
        ----------
        first : bytes
            The first line, without its line break.
        name : str
            Name of the stream in errors.
        labels : TextLabels

        Raises
        ------
        SourceError
            If the first line has no columns, or lacks one that is needed.
        InvalidDataError
            If the number of features is not the one that is expected.
        InvalidParameterError
            If the delimiter is not one character, or a column is not one of the line.
        """
        first = first.removeprefix(BYTE_ORDER_MARK)
        if not first.strip():
            raise SourceError(f"{name} has no first line; a stream begins with a header or a row")
        if self.features is not None:
            join_names(self.names, tuple(self.features), "the model", InvalidDataError)
        json = self.format == "json" or (self.format is None and first.lstrip().startswith(b"{"))
        reader = self._json(first, name, labels) if json else self._csv(first, name, labels)
        if self.n_features not in (None, len(reader.names)):
            raise InvalidDataError(
                f"{name} has {len(reader.names)} columns of features ({', '.join(reader.names)}), "
                f"and the model expects {self.n_features}; name them with features"
            )
        return reader

    def _csv(self, first: bytes, name: str, labels: TextLabels) -> CsvRows:
        missing = Missing.of(self.na_values, self.keep_default_na)
        try:
            text = first.decode("utf-8")
            delimiter = self._delimiter(text)
            fields = split_fields(text, delimiter)[0]
        except (UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{name}, line 1 cannot be read: {error}") from None
        fields = [field.lstrip(" ") for field in fields]
        wanted = self.features or (None if self.header is False else self.names)
        choice = choose(
            Path(name),
            fields,
            labelled=False,
            label_column=self.label,
            columns=wanted,
            drop=None,
        )
        features = choice.features[1:] if choice.index else choice.features
        header = self.header
        if header is None:
            header = choice.named or is_header([fields[n] for n in features], missing)
        names = [fields[n] if header else f"field {n + 1}" for n in features]
        return CsvRows(
            first if header else None,
            *(delimiter, len(fields), features, choice.label, names, labels, missing),
        )

    def _delimiter(self, line: str) -> str:
        if self.delimiter is not None:
            return as_delimiter(self.delimiter)
        return next((each for each in _DELIMITERS if each in line), _DELIMITERS[0])

    def _json(self, first: bytes, name: str, labels: TextLabels) -> JsonRows:
        label = None if self.label is None else str(self.label)
        wanted = self.features or self.names
        row: dict[str, Any] | None = None
        with contextlib.suppress(ValueError):
            row = parsed_object(first.decode("utf-8"))
        if row is None and wanted is None:
            raise SourceError(f"{name}, line 1 is not a JSON object, which names the features")
        names = list(wanted or [key for key in row or () if key != label])
        lacking = [] if row is None else [key for key in names if key not in row]
        if lacking or not names:
            raise SourceError(
                f"{name}, line 1 has no {', '.join(lacking) or 'features'}; it has "
                f"{', '.join(row or ())}"
            )
        return JsonRows(names, label, labels)
