"""Rows of a file of text, as Python reads them: the reader that every other one agrees with."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from streamgda.datasets.missing import Missing, is_number
from streamgda.datasets.textfiles import Line, TextFile
from streamgda.errors import SourceError

# Features, distinct labels, and the number of each row's label among these (None without labels).
Part = tuple[np.ndarray, list[str], np.ndarray | None]

_FIELDS = 1 << 15  # that are in memory at a time, as Python's strings


class NotAnIndexError(Exception):
    """The first column does not number the rows after all."""


@dataclass(frozen=True)
class TextRows:
    """Rows of a file of text, with the meaning of its columns.

    Attributes
    ----------
    file : TextFile
    header : int
        Number of lines before the rows: 0 or 1.
    width : int
        Number of fields of a line.
    features : list of int
        Columns of the features, in order.
    label : int or None
        Column of the labels; None without labels.
    index : int or None
        Number of the first row in the first column, which is left out because it numbers the rows;
        None if there is no such column.
    dtype : numpy.dtype
        Type of the features.
    missing : Missing
        Fields that mean that there is no value.
    keep_unlabelled : bool
        False if a missing label is an error.
    """

    file: TextFile
    header: int
    width: int
    features: list[int]
    label: int | None
    index: int | None
    dtype: np.dtype
    missing: Missing
    keep_unlabelled: bool

    def parts(self, rows: int, done: int) -> Iterator[Part]:
        """Yield all rows but the first `done`, at most `rows` at a time.

        Raises
        ------
        SourceError
            For a line that cannot be read; the message names the line and the field.
        NotAnIndexError
            If the first column does not number the rows as `index` assumes.
        """
        rows = min(rows, max(1, _FIELDS // self.width))
        with contextlib.closing(self.file.lines(self.header + done)) as lines:
            while block := list(itertools.islice(lines, rows)):
                yield self._part(block, done)
                done += len(block)

    def _part(self, block: list[Line], done: int) -> Part:
        try:
            self._check_widths(block)
            if self.index is not None:
                self._check_index(block, done)
            return self._features(block), *self._labels(block)
        except SourceError:
            if len(block) > 1:  # name the first line that cannot be read
                for n, line in enumerate(block):
                    self._part([line], done + n)
            raise

    def _check_widths(self, block: list[Line]) -> None:
        for line, fields in block:
            if len(fields) != self.width:
                raise self._error(line, f"{len(fields)} fields, the first line has {self.width}")

    def _check_index(self, block: list[Line], done: int) -> None:
        start = (self.index or 0) + done
        if any(fields[0] != str(start + n) for n, (_, fields) in enumerate(block)):
            raise NotAnIndexError

    def _labels(self, block: list[Line]) -> tuple[list[str], np.ndarray | None]:
        if self.label is None:
            return [], None
        texts = [fields[self.label] for _, fields in block]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        if not self.keep_unlabelled:
            for text in numbers:
                if text in self.missing:
                    raise self._error(
                        block[texts.index(text)][0],
                        f"the label is missing: {text!r}; missing_labels='keep' keeps such rows, "
                        "and labels=False reads no labels",
                    )
        return list(numbers), np.fromiter((numbers[text] for text in texts), np.intp, len(texts))

    # --- Features --------------------------------------------------------------------------------

    def _features(self, block: list[Line]) -> np.ndarray:
        pick = itemgetter(*self.features)
        rows = (pick(fields) for _, fields in block)
        cells = list(rows if len(self.features) == 1 else itertools.chain.from_iterable(rows))
        values = self._values(cells)
        if values is None and self.dtype.kind == "f":
            values = self._values(["nan" if cell in self.missing else cell for cell in cells])
        if values is None:
            values = np.array([self._exact(line, fields) for line, fields in block], self.dtype)
        return values.reshape(len(block), len(self.features))

    def _values(self, cells: list[str]) -> np.ndarray | None:
        """Return the values of fields that are all plain numbers; None if one of them is not."""
        if "_" in "".join(cells):  # Python reads 1_000 as a number
            return None
        with np.errstate(over="raise"), contextlib.suppress(ValueError, ArithmeticError):
            if self.dtype.kind == "f":
                values = np.fromiter(map(float, cells), np.float64, len(cells))
                return self.missing.clear(values).astype(self.dtype, copy=False)
            if self.dtype.kind in "iu" and not self.missing.numbers:
                return np.fromiter(map(int, cells), self.dtype, len(cells))
        return None

    def _exact(self, line: int, fields: list[str]) -> list[Any]:
        """Return the values of a line; raise `SourceError` for the first wrong field."""
        fit = number_reader(self.dtype)
        values = []
        for column in self.features:
            text = fields[column]
            absent = text in self.missing
            if absent and self.dtype.kind == "f":
                values.append(np.nan)
                continue
            with contextlib.suppress(ValueError, ArithmeticError), np.errstate(over="raise"):
                if not absent and is_number(text):
                    values.append(fit(text))
                    continue
            readable = absent or is_number(text)
            problem = f"does not fit {self.dtype}" if readable else "is not a number"
            raise self._error(line, f"field {column + 1} {problem}: {text!r}")
        return values

    def _error(self, line: int, problem: str) -> SourceError:
        return SourceError(f"{self.file.path}, line {line}: {problem}")


def number_reader(dtype: np.dtype) -> Callable[[str], Any]:
    """Return the function that reads a number of that type; it raises an error if none fits."""
    if dtype.kind == "f":
        return lambda text: np.float64(text).astype(dtype)
    if dtype.kind == "b":
        return functools.partial(_integer, range(2))
    limits = np.iinfo(dtype)
    return functools.partial(_integer, range(limits.min, limits.max + 1))


def _integer(limits: range, text: str) -> int:
    """Return the integer of a text such as 7 or 7.0; raise ValueError if it is not in the range."""
    try:
        value = int(text)
    except ValueError:
        value = int(number := float(text))
        if value != number:
            raise
    if value not in limits:
        raise ValueError(text)
    return value
