"""Tables from CSV files of numbers, with labels in one of the columns."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
import math
import operator
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.datasets.files import existing_file, open_binary
from streamgda.datasets.tables import Block, Table
from streamgda.errors import InvalidParameterError, SourceError

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # 18 digits always fit int64
# Types of labels with their parsers, from the narrowest to the most general.
_LABELS: tuple[tuple[np.dtype, Callable[[str], Any]], ...] = (
    (np.dtype(np.int64), int),
    (np.dtype(np.float64), float),
    (np.dtypes.StringDType(), str),
)


def csv_table(
    path: Path,
    *,
    labelled: bool,
    label_column: str | int | None = None,
    header: bool | None = None,
    delimiter: str = ",",
) -> Table:
    """Return the rows of a CSV file (UTF-8, plain or gzip) as a table of float64 features.

    This function reads the file once, for the number of rows and the type of the labels (integers,
    finite numbers, or else strings). `blocks` reads it again.

    Parameters
    ----------
    path : pathlib.Path
    labelled : bool
        True if one of the columns holds labels.
    label_column : str or int, default=None
        Name (in the header) or index of the label column; negative indices count from the end.
        The last column if None.
    header : bool, default=None
        True if the first line contains column names. If None, it does if `label_column` is a name,
        or if none of the features in that line is a number.
    delimiter : str, default=","
        One character.

    Returns
    -------
    Table

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    SourceError
        If lines differ in their number of fields, a label is empty, or there are no rows, no
        features or no such column; `blocks` raises it if a feature is not a number. The message
        names the line.
    InvalidParameterError
        If `label_column` is not the index of a column, or `delimiter` is not one character.
    """
    if len(delimiter) != 1:
        raise InvalidParameterError(f"delimiter must be one character, not {delimiter!r}")
    path = existing_file(path)
    records = functools.partial(_records, path, delimiter)
    with contextlib.closing(records()) as lines:
        _, first = next(lines, (0, []))
    n_features = len(first) - labelled
    if n_features < 1:
        raise SourceError(f"{path} has no columns of features: its first line is {first}")
    label = _label_index(path, first, label_column) if labelled else None
    if header is None:
        numeric = [_is_number(field) for index, field in enumerate(first) if index != label]
        header = isinstance(label_column, str) or not any(numeric)

    with contextlib.closing(records()) as lines:
        data = itertools.islice(lines, int(header), None)
        n_rows, label_dtype, parse = _scan(path, data, len(first), label)

    def blocks(rows: int) -> Iterator[Block]:
        with contextlib.closing(records()) as lines:
            data = itertools.islice(lines, int(header), None)
            for start in range(0, n_rows, rows):
                X = np.empty((min(rows, n_rows - start), n_features))
                y = []
                for out, (line, fields) in zip(X, itertools.islice(data, len(X)), strict=True):
                    out[:] = _numbers(path, line, fields, label)
                    if label is not None:
                        y.append(parse(fields[label]))
                yield (X, np.array(y, label_dtype)) if labelled else (X,)

    return Table(n_rows, n_features, np.dtype(float), label_dtype if labelled else None, blocks)


def _scan(
    path: Path, lines: Iterable[tuple[int, list[str]]], width: int, label: int | None
) -> tuple[int, np.dtype, Callable[[str], Any]]:
    """Return the number of rows, and the type and the parser of their labels."""
    n_rows = kind = 0
    for line, fields in lines:
        if len(fields) != width:
            raise SourceError(
                f"{path}, line {line}: {len(fields)} fields, the first line has {width}"
            )
        if label is not None:
            if not fields[label]:
                raise SourceError(f"{path}, line {line}: the label is empty")
            kind = max(kind, _label_kind(fields[label]))
        n_rows += 1
    if not n_rows:
        raise SourceError(f"{path} has a header but no rows")
    return n_rows, *_LABELS[kind]


def _records(path: Path, delimiter: str) -> Generator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line that is not blank."""
    with open_binary(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            for fields in reader:
                if fields:
                    yield reader.line_num, fields
        except (csv.Error, UnicodeDecodeError) as error:
            raise SourceError(f"{path}, after line {reader.line_num}: {error}") from error


def _label_index(path: Path, first: list[str], column: str | int | None) -> int:
    if isinstance(column, str):
        if first.count(column) != 1:
            raise SourceError(
                f"{path} has {first.count(column)} columns named {column!r}; its first line is "
                f"{', '.join(first[:20])}{', ...' if len(first) > 20 else ''}"
            )
        return first.index(column)
    try:
        return range(len(first))[-1 if column is None else operator.index(column)]
    except (IndexError, TypeError):
        raise InvalidParameterError(
            f"label_column must be a name or an index of one of {len(first)} columns, "
            f"not {column!r}"
        ) from None


def _numbers(path: Path, line: int, fields: list[str], label: int | None) -> list[float]:
    features = fields if label is None else fields[:label] + fields[label + 1 :]
    try:
        if "_" not in "".join(features):  # Python reads 1_000 as a number
            return list(map(float, features))
    except ValueError:
        pass
    index = next(i for i, field in enumerate(fields) if i != label and not _is_number(field))
    raise SourceError(f"{path}, line {line}: field {index + 1} is not a number: {fields[index]!r}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


@functools.lru_cache(maxsize=1024)
def _label_kind(text: str) -> int:
    if _INTEGER.fullmatch(text):
        return 0
    return 1 if _is_number(text) and math.isfinite(float(text)) else 2
