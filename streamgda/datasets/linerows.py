"""Rows of a stream: lines of CSV or of JSON, with a reason for each that cannot be read."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np

from streamgda.datasets.arrowlines import arrow_columns
from streamgda.datasets.lines import Block
from streamgda.datasets.missing import Missing, is_number
from streamgda.datasets.textfiles import SPACES, single_spaced
from streamgda.datasets.textlabels import TextLabels

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WRONG = (ValueError, csv.Error)  # raised for lines that cannot be read


@dataclass
class Rows:
    """Rows of a block of lines.

    Attributes
    ----------
    X : ndarray of float64, shape (n_rows, n_features)
        NaN in lines that cannot be read.
    labels : list
        The label of each row; None without one.
    lines : ndarray of int, shape (n_rows,)
        Number of each row's line in the block, from 1.
    bad : dict of int to str
        Rows that cannot be read, in order, and the reasons.
    """

    X: np.ndarray
    labels: list[Any]
    lines: np.ndarray
    bad: dict[int, str] = field(default_factory=dict)


class LineRows(ABC):
    """Reader of lines that are rows.

    Attributes
    ----------
    names : list of str
        Names of the features; their positions if they have none.
    named : bool
        True if they have names.
    """

    names: list[str]
    named = True
    _no_row: bytes | None = None  # a line that is no row

    def rows(self, block: Block) -> Rows:
        """Return the rows of a block; blank lines are no rows."""
        lines = block.data.split(b"\n")[:-1]
        if b"\r" in block.data:
            lines = [line.removesuffix(b"\r") for line in lines]
        if not block.start.size:
            lines[0] = lines[0].removeprefix(BYTE_ORDER_MARK)
        kept = [n for n, line in enumerate(lines) if line.strip() and line != self._no_row]
        X = np.full((len(kept), len(self.names)), np.nan)
        rows = Rows(X, [None] * len(kept), 1 + np.array(kept, np.intp))
        if kept:
            self._read([lines[n] for n in kept], rows, 0)
        return rows

    def _read(self, lines: list[bytes], rows: Rows, start: int) -> None:
        """Read lines into the rows from `start` on; find those that are wrong by halving."""
        stop = start + len(lines)
        try:
            rows.X[start:stop], rows.labels[start:stop] = self._parsed(lines)
        except _WRONG as error:
            if len(lines) == 1:
                rows.bad[start] = str(error)
                return
            half = len(lines) // 2
            self._read(lines[:half], rows, start)
            self._read(lines[half:], rows, start + half)

    @abstractmethod
    def _parsed(self, lines: list[bytes]) -> tuple[np.ndarray, list[Any]]:
        """Return features and labels; raise one of `_WRONG` if a line is wrong.

        The message is the reason if there is one line only. Labels are read last, so that a line
        that is wrong never decides their type.
        """

    def _decoded(self, lines: Iterable[bytes]) -> str:
        try:
            return b"\n".join(lines).decode("utf-8")
        except UnicodeDecodeError:
            raise ValueError("it is not UTF-8") from None


class CsvRows(LineRows):
    """Reader of lines of fields, each line a row: no field contains a line break.

    Parameters
    ----------
    header : bytes or None
        The first line, if it has names. Lines that repeat it are no rows.
    delimiter : str
    width : int
        Number of fields.
    features : list of int
        Columns of the features.
    label : int or None
        Column of the labels.
    names : list of str
        Names of the features.
    labels : TextLabels
    missing : Missing
        Fields that mean that there is no value.
    """

    def __init__(
        self,
        header: bytes | None,
        delimiter: str,
        width: int,
        features: list[int],
        label: int | None,
        names: list[str],
        labels: TextLabels,
        missing: Missing,
    ) -> None:
        self._no_row, self._delimiter, self._width, self._label = header, delimiter, width, label
        self.names, self.named = names, header is not None
        self._labels, self._missing = labels, missing
        self._features, self._pick = features, itemgetter(*features)

    def rows(self, block: Block) -> Rows:
        """Return the rows of a block; blank lines are no rows."""
        columns = self._delimiter, self._width, self._features, self._label
        if (found := arrow_columns(block, *columns)) is not None:
            X, texts, codes = found
            if np.isfinite(self._missing.clear(X)).all():
                with contextlib.suppress(ValueError):
                    labels = [*map(self._label_of, texts)] or [None]
                    known = [labels[code] for code in codes or [0] * len(X)]
                    return Rows(X, known, np.arange(1, len(X) + 1))
        return super().rows(block)

    def _parsed(self, lines: list[bytes]) -> tuple[np.ndarray, list[Any]]:
        fields = split_fields(self._decoded(lines), self._delimiter)
        for row in fields:
            if len(row) != self._width:
                raise ValueError(f"it has {len(row)} fields, the first line has {self._width}")
        picked = map(self._pick, fields)
        cells = list(picked if len(self.names) == 1 else chain.from_iterable(picked))
        X = self._values(cells).reshape(len(fields), -1)
        if self._label is None:
            return X, [None] * len(fields)
        return X, [self._label_of(row[self._label]) for row in fields]

    def _values(self, cells: list[str]) -> np.ndarray:
        try:
            values = self._missing.clear(np.fromiter(map(float, cells), np.float64, len(cells)))
            if np.isfinite(values).all() and "_" not in "".join(cells):  # 1_000 is none
                return values
        except ValueError:
            pass
        for n, cell in enumerate(cells):
            name = self.names[n % len(self.names)]
            if cell in self._missing:
                raise ValueError(f"{name} is missing: {cell!r}")
            if not is_number(cell):
                raise ValueError(f"{name} is not a number: {cell!r}")
            if not math.isfinite(float(cell)):
                raise ValueError(f"{name} is not finite: {cell!r}")
        raise AssertionError("one of the cells is wrong")

    def _label_of(self, text: str) -> Any:
        return None if text in self._missing else self._labels.read(text.lstrip(" "))


def split_fields(text: str, delimiter: str) -> list[list[str]]:
    """Return the fields of each line of a text.

    Raises
    ------
    csv.Error
        If quotation marks are not closed, or followed by more than a delimiter.
    """
    lines = text.split("\n")
    if '"' in text:
        if delimiter == SPACES:
            lines = [line.strip() for line in single_spaced(lines)]
        options: Any = {"delimiter": delimiter, "skipinitialspace": True, "strict": True}
        return [next(csv.reader([line], **options)) for line in lines]
    if delimiter == SPACES:
        return [line.split() for line in lines]
    return [line.split(delimiter) for line in lines]


class JsonRows(LineRows):
    """Reader of lines that are JSON objects, whose order of names does not matter.

    Parameters
    ----------
    names : list of str
        Names of the features.
    label : str or None
        Name of the label. A label that is null, empty or not there is missing.
    labels : TextLabels
    """

    def __init__(self, names: list[str], label: str | None, labels: TextLabels) -> None:
        self.names, self._label, self._labels = names, label, labels
        self._pick = itemgetter(*names)

    def _parsed(self, lines: list[bytes]) -> tuple[np.ndarray, list[Any]]:
        objects = [parsed_object(line) for line in self._decoded(lines).split("\n")]
        try:
            picked = map(self._pick, objects)
            cells = list(picked if len(self.names) == 1 else chain.from_iterable(picked))
            if {*map(type, cells)} <= {int, float}:
                values = np.fromiter(map(float, cells), np.float64, len(cells))
                if np.isfinite(values).all():
                    return values.reshape(len(lines), -1), [*map(self._label_of, objects)]
        except (KeyError, OverflowError):
            pass
        raise ValueError(self._reason(objects))

    def _reason(self, objects: Sequence[dict[str, Any]]) -> str:
        """Return the reason for the first value that is wrong."""
        for row in objects:
            for name in self.names:
                value = row.get(name)
                if value is None:
                    return f"{name} is missing"
                if type(value) not in (int, float):
                    return f"{name} is not a number: {value!r:.100}"
                if not abs(value) <= sys.float_info.max:
                    return f"{name} is not finite: {value!r:.100}"
        raise AssertionError("one of the values is wrong")

    def _label_of(self, row: dict[str, Any]) -> Any:
        value = None if self._label is None else row.get(self._label)
        if value is None or value == "":
            return None
        if isinstance(value, str):
            return self._labels.read(value, is_text=True)
        if not isinstance(value, int | float):
            raise ValueError(f"the label is no text or number: {value!r:.100}")
        return self._labels.read(json.dumps(value))


def parsed_object(line: str) -> dict[str, Any]:
    """Return a JSON object; raise ValueError for anything else."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"it is not a JSON object, but {found!r:.50}")
    return found
