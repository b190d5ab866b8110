"""Tables from text files of numbers, with labels in one of the columns."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
import math
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.datasets.files import existing_file, open_binary
from streamgda.datasets.tables import Block, Table
from streamgda.datasets.text_options import Columns, choose
from streamgda.errors import InvalidParameterError, SourceError
from streamgda.runtime.parameters import as_flag

Line = tuple[int, list[str]]  # its number and its fields

SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat", ".trn", ".tst", ".test")
_SEPARATORS = {".csv": ",;\t", ".tsv": "\t"}  # others may be separated by spaces too
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
    dtype: np.dtype | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    keep_index: bool = False,
    label_column: str | int | None = None,
    columns: Columns = None,
    drop: Columns = None,
) -> Table:
    """Return the rows of a text file (UTF-8, plain or gzip) as a table.

    This function reads the file once, for the number of rows and the type of the labels (integers,
    finite numbers, or else strings). `blocks` reads it again.

    Parameters
    ----------
    path : pathlib.Path
    labelled : bool
        True if one of the columns holds labels.
    dtype : numpy.dtype, default=None
        Type of the features, as which they are read; float64 if None.
    header, delimiter, keep_index, label_column, columns, drop
        See `TextOptions`.

    Returns
    -------
    Table

    Warns
    -----
    UserWarning
        If the first column has no name: it is left out if it numbers the rows, and kept otherwise.

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    SourceError
        If lines differ in their number of fields, a label is empty, or there are no rows, no
        features or no such column; `blocks` raises it if a feature is not a number, or does not
        fit `dtype`. The message names the line and the field.
    InvalidParameterError
        If a column is not the index of one, or `delimiter` is not one character.
    """
    keep_index = as_flag("keep_index", keep_index)
    path = existing_file(path)
    records = functools.partial(_records, path, _delimiter(path, delimiter))
    with contextlib.closing(records(0)) as lines:
        _, first = next(lines, (0, []))
    choice = choose(
        path, first, labelled=labelled, label_column=label_column, columns=columns, drop=drop
    )
    if header is None:
        header = choice.named or not any(_is_number(first[column]) for column in choice.features)
    with contextlib.closing(records(int(header))) as lines:
        n_rows, label_dtype, parse, start = _scan(path, lines, len(first), choice.label)
    features = choice.features
    if header and choice.index and not keep_index:
        features = _without_index(path, features, start)
    dtype = np.dtype(float) if dtype is None else dtype
    read = _reader(path, features, dtype)

    def blocks(rows: int) -> Iterator[Block]:
        with contextlib.closing(records(int(header))) as lines:
            for done in range(0, n_rows, rows):
                X = np.empty((min(rows, n_rows - done), len(features)), dtype)
                y = []
                for out, (line, fields) in zip(X, itertools.islice(lines, len(X)), strict=True):
                    read(out, line, fields)
                    if choice.label is not None:
                        y.append(parse(fields[choice.label]))
                yield (X, np.array(y, label_dtype)) if labelled else (X,)

    return Table(n_rows, len(features), dtype, label_dtype if labelled else None, blocks)


# --- Lines ---------------------------------------------------------------------------------------


def _delimiter(path: Path, wanted: str | None) -> str:
    """Return the separator of fields: the first that is in the first line, unless it is given."""
    if wanted is not None:
        if not isinstance(wanted, str) or len(wanted) != 1 or wanted in '"\r\n':
            raise InvalidParameterError(f"delimiter must be one character, not {wanted!r}")
        return wanted
    candidates = _SEPARATORS.get(Path(path.name.lower().removesuffix(".gz")).suffix, ",;\t ")
    for delimiter in candidates:
        with (
            contextlib.suppress(SourceError),
            contextlib.closing(_records(path, delimiter, 0)) as lines,
        ):
            if len(next(lines, (0, []))[1]) > 1:
                return delimiter
    return candidates[0]


def _records(path: Path, delimiter: str, skip: int) -> Generator[Line]:
    """Yield the number and the fields of each line that is not blank, without the first `skip`."""
    with open_binary(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as text:
        lines = _single_spaced(text) if delimiter == " " else text
        reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
        try:
            for fields in itertools.islice(filter(None, reader), skip, None):
                yield reader.line_num, fields
        except (csv.Error, UnicodeDecodeError) as error:
            raise SourceError(f"{path}, after line {reader.line_num}: {error}") from error


def _single_spaced(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines whose fields are separated by spaces only, and not surrounded by them."""
    for line in lines:
        yield line.replace("\t", " ").strip() + "\n"


def _scan(
    path: Path, lines: Iterable[Line], width: int, label: int | None
) -> tuple[int, np.dtype, Callable[[str], Any], int | None]:
    """Return the number of rows, the type and the parser of their labels, and the first row number.

    The last is 0 or 1 if the first column numbers the rows, and None otherwise.
    """
    n_rows = kind = 0
    starts = [0, 1]
    for line, fields in lines:
        if len(fields) != width:
            raise SourceError(
                f"{path}, line {line}: {len(fields)} fields, the first line has {width}"
            )
        if label is not None:
            if not fields[label]:
                raise SourceError(f"{path}, line {line}: the label is empty")
            kind = max(kind, _label_kind(fields[label]))
        if starts:
            starts = [start for start in starts if fields[0] == str(n_rows + start)]
        n_rows += 1
    if not n_rows:
        raise SourceError(f"{path} has a header but no rows")
    return n_rows, *_LABELS[kind], next(iter(starts), None)


def _without_index(path: Path, features: list[int], start: int | None) -> list[int]:
    """Return the features without the first column, which has no name, if it numbers the rows."""
    unnamed = f"{path}: the first column has no name and"
    if start is None:
        warnings.warn(
            f"{unnamed} does not number the rows: it is kept; drop=0 leaves it out", stacklevel=5
        )
        return features
    warnings.warn(
        f"{unnamed} numbers the rows from {start}: it is left out; keep_index=True keeps it",
        stacklevel=5,
    )
    if features := features[1:]:
        return features
    raise SourceError(f"{path} has no columns of features beside the numbers of its rows")


# --- Fields --------------------------------------------------------------------------------------


def _reader(
    path: Path, features: list[int], dtype: np.dtype
) -> Callable[[np.ndarray, int, list[str]], None]:
    """Return a function that reads the features of a line of fields into a row."""
    fast: Callable[[str], float]
    exact: Callable[[str], float]
    fast = exact = float
    if dtype.kind == "b":
        fast = exact = functools.partial(_integer, range(2))
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fast, exact = int, functools.partial(_integer, range(limits.min, limits.max + 1))

    def read(out: np.ndarray, line: int, fields: list[str]) -> None:
        texts = [fields[column] for column in features]
        with np.errstate(over="raise"):
            with contextlib.suppress(ValueError, ArithmeticError):
                if "_" not in "".join(texts):  # Python reads 1_000 as a number
                    out[:] = list(map(fast, texts))
                    return
            for position, (column, text) in enumerate(zip(features, texts, strict=True)):
                problem = "is not a number"
                with contextlib.suppress(ValueError, ArithmeticError):
                    if _is_number(text):
                        problem = f"does not fit {dtype}"
                        out[position] = exact(text)
                        continue
                raise SourceError(f"{path}, line {line}: field {column + 1} {problem}: {text!r}")

    return read


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
