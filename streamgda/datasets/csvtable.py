"""Tables from text files of numbers, with labels in one of the columns."""

from __future__ import annotations

import contextlib
import functools
import math
import re
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.datasets.arrowtext import UnlikePythonError, arrow_parts
from streamgda.datasets.files import existing_file
from streamgda.datasets.missing import Missing, is_number
from streamgda.datasets.tables import Block, Revised, Table
from streamgda.datasets.text_options import Columns, as_missing_labels, choose
from streamgda.datasets.textfiles import TextFile
from streamgda.datasets.textrows import NotAnIndexError, Part, TextRows
from streamgda.errors import SourceError
from streamgda.runtime.parameters import as_flag

SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat", ".trn", ".tst", ".test")
_SAMPLE = 100  # rows from which types are guessed
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")  # 18 digits always fit int64
# Types of labels with their parsers and their missing labels, from the narrowest to the most
# general. Integers have no missing value: such labels become float64.
_LABELS: tuple[tuple[np.dtype, Callable[[str], Any], Any], ...] = (
    (np.dtype(np.int64), int, None),
    (np.dtype(np.float64), float, np.nan),
    (np.dtypes.StringDType(), str, ""),
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
    na_values: Any = None,
    keep_default_na: bool = True,
    missing_labels: str = "raise",
) -> Table:
    """Return the rows of a text file (UTF-8, plain or gzip) as a table.

    This function reads the first lines only. The number of rows is unknown, and the type of the
    labels (integers, finite numbers, or else strings) is that of the first rows: `blocks` raises
    `Revised` when it meets others.

    Parameters
    ----------
    path : pathlib.Path
    labelled : bool
        True if one of the columns holds labels.
    dtype : numpy.dtype, default=None
        Type of the features, as which they are read; float64 if None.
    header, delimiter, keep_index, label_column, columns, drop, na_values, keep_default_na, \
missing_labels
        See `TextOptions`.

    Returns
    -------
    Table

    Raises
    ------
    SourceNotFoundError
        If the file does not exist.
    SourceError
        If there are no rows, no features or no such column; `blocks` raises it if lines differ in
        their number of fields, a label is missing, or a feature is not a number, or does not fit
        `dtype`. The message names the line and the field.
    InvalidParameterError
        If a column is not the index of one, or `delimiter` is not one character.
    """
    keep_index = as_flag("keep_index", keep_index)
    missing = Missing.of(na_values, as_flag("keep_default_na", keep_default_na))
    keep_unlabelled = as_missing_labels(missing_labels)
    file = TextFile.of(existing_file(path), delimiter)
    sample = [fields for _, fields in file.first(1 + _SAMPLE)]
    first = sample[0] if sample else []
    choice = choose(
        path, first, labelled=labelled, label_column=label_column, columns=columns, drop=drop
    )
    if header is None:
        header = choice.named or is_header([first[column] for column in choice.features], missing)
    if len(sample) == int(header):
        raise SourceError(f"{path} has a header but no rows")
    rows = TextRows(
        *(file, int(header), len(first), choice.features, choice.label, None),
        *(dtype or np.dtype(float), missing, keep_unlabelled),
    )
    sample = [fields for fields in sample[rows.header :] if len(fields) == rows.width]
    labels = [] if rows.label is None else [fields[rows.label] for fields in sample]
    guess = _Guess(rows, tuple(first) if header else None, _kind(labels, missing))
    if header and choice.index and not keep_index:
        guess = guess.without_index(sample)
    return guess.table()


def is_header(fields: list[str], missing: Missing) -> bool:
    """Return True if the features of a first line look like names: none of them is a value."""
    absent = all(field and field in missing for field in fields)
    return not absent and not any(map(is_number, fields))


@dataclass(frozen=True)
class _Guess:
    """Meaning of the columns as far as the rows that were read show it.

    Attributes
    ----------
    rows : TextRows
    names : tuple of str or None
        Names of all columns.
    kind : int
        Number of the type of the labels in `_LABELS`.
    note : str or None
        Warning about a first column without a name.
    """

    rows: TextRows
    names: tuple[str, ...] | None
    kind: int
    note: str | None = None

    def without_index(self, sample: list[list[str]]) -> _Guess:
        """Leave out the first column, which has no name, if it numbers the rows of the sample."""
        path = self.rows.file.path
        start = next((n for n in (0, 1) if _numbers_rows(sample, n)), None)
        if start is None:
            return self._with_index()
        if len(self.rows.features) == 1:
            raise SourceError(f"{path} has no columns of features beside the numbers of its rows")
        rows = replace(self.rows, features=self.rows.features[1:], index=start)
        note = (
            f"{path}: the first column has no name and numbers the rows from {start}: it is left "
            "out; keep_index=True keeps it"
        )
        return replace(self, rows=rows, note=note)

    def _with_index(self) -> _Guess:
        features = [0, *(column for column in self.rows.features if column)]
        note = (
            f"{self.rows.file.path}: the first column has no name and does not number the rows: "
            "it is kept; drop=0 leaves it out"
        )
        return replace(self, rows=replace(self.rows, features=features, index=None), note=note)

    def table(self) -> Table:
        """Return the table; its `blocks` raise `Revised` when rows refute the guess."""
        rows, names = self.rows, self.names
        dtype, _, none = _LABELS[self.kind]
        return Table(
            n_rows=None,
            n_features=len(rows.features),
            dtype=rows.dtype,
            label_dtype=None if rows.label is None else dtype,
            blocks=self._blocks,
            feature_names=None if names is None else tuple(names[n] for n in rows.features),
            missing_label=none if rows.keep_unlabelled and isinstance(none, str) else None,
            fraction=lambda: rows.file.fraction,
            note=self.note,
        )

    def _blocks(self, n_rows: int) -> Iterator[Block]:
        dtype, parse, none = _LABELS[self.kind]
        missing = self.rows.missing
        try:
            for X, texts, codes in _parts(self.rows, n_rows):
                if codes is None:
                    yield (X,)
                    continue
                if (kind := _kind(texts, missing)) > self.kind:
                    raise Revised(replace(self, kind=kind).table())
                labels = [none if text in missing else parse(text) for text in texts]
                yield X, np.array(labels, dtype)[codes]
        except NotAnIndexError:
            raise Revised(self._with_index().table()) from None


def _parts(rows: TextRows, n_rows: int) -> Generator[Part]:
    """Yield the rows, read by pyarrow as far as possible."""
    done = 0
    try:
        with contextlib.closing(arrow_parts(rows)) as parts:
            for part in parts:
                yield part
                done += len(part[0])
        return
    except UnlikePythonError:
        pass
    yield from rows.parts(n_rows, done)


def _numbers_rows(sample: list[list[str]], start: int) -> bool:
    return all(fields[0] == str(start + n) for n, fields in enumerate(sample))


def _kind(labels: Iterable[str], missing: Missing) -> int:
    """Return the number of the narrowest type in `_LABELS` that holds the labels."""
    return max((1 if text in missing else _label_kind(text) for text in labels), default=0)


@functools.lru_cache(maxsize=1024)
def _label_kind(text: str) -> int:
    if _INTEGER.fullmatch(text):
        return 0
    return 1 if is_number(text) and math.isfinite(float(text)) else 2
