"""Tables of text, as pyarrow reads them: CSV with any delimiter, decimal mark and encoding."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pa_csv

from streamgda.errors import InvalidParameterError, ReadError, SourceError
from streamgda.runtime.parameters import TableOptions, as_flag, refuse

_SNIFFED = 1 << 16  # bytes that hold the first line
_NUMBER = re.compile("-?[0-9]+")
_RANGE = re.compile("(-?[0-9]+)?:(-?[0-9]+)?")
_DELIMITERS = ",;\t|"
_READ_BYTES = 1 << 26  # of blocks of text that are read ahead and parsed
_EXACT = 1 << 53  # to which float64 holds all integers
_MISSING = (  # the markers of pandas
    *("", "NA", "N/A", "NULL", "NaN", "None", "n/a", "nan", "null", "<NA>", "#N/A", "#N/A N/A"),
    *("#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
)
# Types of labels from the narrowest on, and the texts that are labels of such a type. Numbers with
# leading zeros are codes: 01 and 1 are two labels.
_LABELS = {
    "int64": "^(0|-?[1-9][0-9]*)$",
    "uint64": "^(0|[1-9][0-9]*)$",
    "double": "^[-+]?(0|0?[^0-9xX_][^xX_]*|[1-9][^xX_]*)$",
    "bool": "^(true|True|TRUE|false|False|FALSE)$",
}

# Name or number of the column of labels, or a function that chooses it among the names.
Label = str | int | Callable[[list[str]], str | int | None] | None


class NoRowsError(SourceError):
    """A text has no rows, as the parts of a folder may have."""


class Contents(NamedTuple):
    """Pieces and columns of a file, and the memory that decoding them takes.

    Attributes
    ----------
    sizes : list of int
        Rows of its pieces.
    schema : pyarrow.Schema
    decoding : dict of str to int
        Bytes that are held beside the rows while a column of the largest piece is decoded.
    fixed : int
        Bytes that are held besides, whatever the columns.
    whole : int
        Rows that are decoded as a whole; 0 if as many are as are asked for.
    stored : int
        Bytes of a row in all columns, if memory is taken for those too that are not read.
    line : Line or None
        First line of a text.
    labels : list of str
        Types that hold all labels of a text, the narrowest first.
    """

    sizes: list[int]
    schema: Any
    decoding: Mapping[str, int]
    fixed: int
    whole: int = 0
    stored: int = 0
    line: Any = None
    labels: Sequence[str] = ()


class Line(NamedTuple):
    """The first line of a file.

    Attributes
    ----------
    delimiter : str
    names : list of str
        Names of the columns; their numbers if the line does not name them.
    header : bool
    skipped : int
        Lines before the first row.
    spaced : bool
        True if there are spaces after delimiters.
    """

    delimiter: str
    names: list[str]
    header: bool
    skipped: int
    spaced: bool


class Text:
    """Format of text, whose rows are lines. A file is one piece.

    Parameters
    ----------
    **options
        See `TableOptions`.

    Raises
    ------
    InvalidParameterError
        For an option that text cannot have.
    """

    name = "csv"
    piece = ""

    def __init__(self, **options: Any) -> None:
        for name in options:
            if name not in TableOptions.__annotations__:
                raise TypeError(f"unexpected keyword argument {name!r}")
        self._options = given = {k: value for k, value in options.items() if value is not None}
        for name in given.keys() & {"delimiter", "decimal", "comment"}:
            text = given[name]
            if not isinstance(text, str) or not text or '"' in text or "\n" in text:
                raise refuse(name, text, "a character that is no quotation mark or line break")
            if len(text) > 1 and name != "comment":
                raise InvalidParameterError("delimiter and decimal are one character each")
        self._decimal = given.get("decimal", ".")
        self._encoding = given.get("encoding", "utf-8")
        try:
            self._plain = codecs.lookup(self._encoding).name == "utf-8" and "comment" not in given
        except (LookupError, TypeError):
            raise refuse("encoding", self._encoding, "the name of an encoding") from None
        markers = given.get("na_values", [])
        markers = [markers] if isinstance(markers, str | float | int) else list(markers)
        if not all(isinstance(marker, str | float | int | np.number) for marker in markers):
            raise refuse("na_values", markers, "texts or numbers that mark missing values")
        texts = [str(marker).strip() for marker in markers]
        # Missing values are marked by texts and by numbers, whatever their notation.
        self._numbers = [n for n in (float(t) for t in texts if _is_number(t)) if n == n]  # noqa: PLR0124
        if as_flag("keep_default_na", given.get("keep_default_na", True)):
            texts += _MISSING
        # pyarrow compares whole fields.
        self._missing = [f"{a}{text}{b}" for text in texts for a in ("", " ") for b in ("", " ")]

    def contents(self, path: str, filesystem: Any, label: Label) -> Contents:
        """Return the number of rows, the columns with their types, and the first line of a file.

        The file is read once, to count its rows and to find the type of all labels. Types of other
        columns are those of the first rows.

        Raises
        ------
        SourceError
            If lines differ in their number of fields, or a quotation mark is not closed.
        """
        line = self._first_line(path, filesystem)
        label = label_in(line.names, label)
        lines, kinds, n_rows = self._lines(path), [*_LABELS], 0
        own = {label or line.names[0]: pa.string()}
        try:
            with self._batches(path, filesystem, line, {}) as batches:
                schema = batches.schema
            with self._batches(path, filesystem, line, own, lines) as batches:
                for batch in batches:
                    n_rows += batch.num_rows
                    if label is not None:
                        labels = self._cleaned(batch, line).column(0)
                        kinds = _left(kinds, labels, self._decimal)
        except pa.ArrowInvalid as error:
            raise SourceError(self._explained(path, filesystem, line, {}, error)) from None
        if n_rows + line.header < lines.n_filled:  # a field goes on over line breaks
            raise SourceError(self._explained(path, filesystem, line, {}, None))
        return Contents([n_rows], schema, {}, _READ_BYTES, line=line, labels=[*kinds, "string"])

    def batches(
        self, file: Any, filesystem: Any, first: int, kinds: Mapping[str, Any], n_rows: int
    ) -> Iterator[Iterator[Any]]:
        """Yield the record batches of a file, in blocks of the default size, of these types."""
        yield self._of_file(file.path, filesystem, file.line, kinds)

    def _of_file(
        self, path: str, filesystem: Any, line: Line, kinds: Mapping[str, Any]
    ) -> Iterator[Any]:
        try:
            with self._batches(path, filesystem, line, kinds) as batches:
                for batch in batches:
                    yield self._cleaned(batch, line)
        except pa.ArrowInvalid as error:
            numbers = {line.names.index(n): n for n, kind in kinds.items() if kind != pa.string()}
            raise ReadError(self._explained(path, filesystem, line, numbers, error)) from None

    def _first_line(self, path: str, filesystem: Any) -> Line:
        """Return the first line of a file.

        Raises
        ------
        SourceError
            If there is no line, or its names cannot be those of columns.
        """
        with self._opened(path, filesystem, self._lines(path)) as text:
            start = text.read(_SNIFFED).decode(errors="ignore")  # cut within a character
        lines = re.split("\r\n|\r|\n", start)  # not at other characters that end lines
        at = next((n for n, line in enumerate(lines) if line), None)
        if at is None:
            raise NoRowsError(f"{path} has no rows: it is empty")
        delimiter = self._options.get("delimiter")
        if delimiter is None:
            usable = "\t" if ".tsv" in path.lower() else _DELIMITERS.replace(self._decimal, "")
            delimiter = max(usable, key=re.sub('"[^"]*"', "", lines[at]).count)
        fields = next(csv.reader([lines[at]], delimiter=delimiter, skipinitialspace=True))
        fields = [field.strip() for field in fields]
        header = self._options.get("header")
        if header is None:
            header = not any(_is_number(f) or f in self._missing for f in fields if f)
        if len(start) < _SNIFFED and not any(lines[at + bool(header) :]):
            raise NoRowsError(f"{path} has a header but no rows")
        names = fields if header else [*map(str, range(len(fields)))]
        twice = sorted({name for name in names if names.count(name) > 1} - {""})
        if twice:
            raise SourceError(
                f"{path} has several columns named {', '.join(twice):.200}; rename them in the "
                f"file, or read it with header=False and name columns by their numbers"
            )
        spaced = f"{delimiter} " in start
        return Line(delimiter, names, bool(header), at + bool(header), spaced)

    def _lines(self, path: str) -> _Lines:
        return _Lines(path, self._encoding, self._options.get("comment"))

    @contextlib.contextmanager
    def _opened(self, path: str, filesystem: Any, lines: _Lines | None = None) -> Iterator[Any]:
        """Provide the text in UTF-8, in which comments are blank lines."""
        with filesystem.open_input_stream(path, compression="detect") as opened:
            plain = lines is None and self._plain
            yield opened if plain else pa.TransformInputStream(opened, lines or self._lines(path))

    @contextlib.contextmanager
    def _batches(
        self,
        path: str,
        filesystem: Any,
        line: Line,
        kinds: Mapping[str, Any],
        lines: _Lines | None = None,
    ) -> Iterator[Any]:
        """Provide a reader of the columns with these types, or of all columns."""
        with (
            self._opened(path, filesystem, lines) as text,
            pa_csv.open_csv(
                text,
                read_options=pa_csv.ReadOptions(column_names=line.names, skip_rows=line.skipped),
                parse_options=pa_csv.ParseOptions(delimiter=line.delimiter),
                convert_options=pa_csv.ConvertOptions(
                    column_types=kinds or None,
                    include_columns=[*kinds] or None,
                    null_values=self._missing,
                    strings_can_be_null=True,
                    decimal_point=self._decimal,
                ),
            ) as batches,
        ):
            yield batches

    def _cleaned(self, batch: Any, line: Line) -> Any:
        """Return a batch without spaces around texts, and numbers that mark missing values."""

        def cleaned(column: Any) -> Any:
            if pa.types.is_string(column.type):
                column = pc.utf8_trim_whitespace(column)
                quoted = line.spaced and pc.any(pc.starts_with(column, '"')).as_py()
                return pc.utf8_trim(column, '"') if quoted else column
            if self._numbers and pa.types.is_floating(column.type):
                marked = pc.is_in(column, value_set=pa.array(self._numbers, column.type))
                return pc.if_else(marked, pa.scalar(None, column.type), column)
            return column

        return pa.record_batch([cleaned(column) for column in batch.columns], batch.schema.names)

    def _explained(
        self,
        path: str,
        filesystem: Any,
        line: Line,
        numbers: Mapping[int, str],
        error: BaseException | None,
    ) -> str:
        """Return a message that names the first line that cannot be read, and the column."""
        last = 0
        with self._opened(path, filesystem) as opened:
            text = io.TextIOWrapper(opened, "utf-8", newline="")
            rows = csv.reader(text, delimiter=line.delimiter, strict=True)
            try:
                for fields in rows:
                    first, last = last + 1, rows.line_num
                    if not fields or last <= line.skipped:
                        continue
                    if last > first:
                        return (
                            f"{path}: line {first}: a quotation mark is closed in another line; "
                            f"a row is one line"
                        )
                    if len(fields) != len(line.names):
                        found = f"{len(fields)} fields, the first line has {len(line.names)}"
                        return f"{path}: line {last}: {found}"
                    for at, name in numbers.items():
                        value = fields[at].replace(self._decimal, ".")
                        if fields[at] not in self._missing and not _is_number(value):
                            column = f"column {name!r}" if line.header else f"field {at + 1}"
                            return f"{path}: line {last}: {column} is not a number: {fields[at]!r}"
            except csv.Error:
                return f"{path}: line {last + 1}: a quotation mark is opened and not closed"
        return f"{path} cannot be read: {error}"


def label_in(names: list[str], label: Label) -> str | None:
    """Return the name of the column of labels among these; None if it is none of them."""
    label = label(names) if callable(label) else label
    if label in names:
        return str(label)
    number = number_in(label)
    inside = isinstance(number, int) and -len(names) <= number < len(names)
    return names[number] if inside else None


def number_in(column: Any) -> Any:
    """Return the number or range of numbers that a text stands for; other columns as they are."""
    if not isinstance(column, str):
        return column
    if _NUMBER.fullmatch(column):
        return int(column)
    bounds = _RANGE.fullmatch(column)
    return slice(*(int(b) if b else None for b in bounds.groups())) if bounds else column


def _left(kinds: list[str], column: Any, decimal: str) -> list[str]:
    """Return those of the types of `_LABELS` that hold all labels of a column, too."""
    if decimal != ".":  # numbers have no point beside another decimal mark
        column = pc.replace_substring(pc.replace_substring(column, ".", "x"), decimal, ".")

    def hold(kind: str) -> bool:
        if not pc.all(pc.match_substring_regex(labels, _LABELS[kind]), min_count=0).as_py():
            return False
        try:
            values = labels.cast(kind)
        except pa.ArrowInvalid:
            return False
        exact = kind != "double" or pc.all(pc.less(pc.abs(values), _EXACT), min_count=0).as_py()
        return bool(exact)

    labels: Any = pc.drop_null(pc.unique(column)) if kinds else None
    return [kind for kind in kinds if hold(kind)]


def _is_number(text: str) -> bool:
    """Return whether a text is a number, as Python reads one, but without underscores."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


class _Lines:
    """Decoder of a text to UTF-8, which blanks comments and counts the other lines.

    pyarrow calls it with one block of bytes after the other, and with none at the end.

    Attributes
    ----------
    n_filled : int
        Lines so far that are not blank.
    """

    def __init__(self, path: str, encoding: str, comment: str | None) -> None:
        plain = codecs.lookup(encoding).name == "utf-8"
        self._path = path
        self._decoder = codecs.getincrementaldecoder("utf-8-sig" if plain else encoding)()
        self._comment = None if comment is None else re.compile(rf"(?m)^{re.escape(comment)}.*$")
        self._rest = ""
        self._n_lines = 0
        self.n_filled = 0

    def __call__(self, block: Any) -> bytes:
        """Return the lines that end in a block of bytes, and the last one at the end."""
        try:
            text = self._rest + self._decoder.decode(block, not len(block))
        except UnicodeDecodeError as error:
            line = self._n_lines + error.object[: error.start].count(b"\n") + 1
            raise SourceError(
                f"{self._path}: line {line} is not {error.encoding.upper()}; encoding= names "
                f"another one, such as encoding='latin-1'"
            ) from None
        end = text.rfind("\n") + 1 if len(block) else len(text)
        text, self._rest = text[:end], text[end:]
        text = text if self._comment is None else self._comment.sub("", text)
        data = text.encode()
        codes = np.frombuffer(b"\n\n" + data + b"\n" * (not len(block)), np.uint8)
        ends = np.flatnonzero(codes[2:] == ord("\n"))
        one, two = codes[ends + 1], codes[ends]  # before the ends
        self._n_lines += ends.size
        self.n_filled += int(((one != 10) & ((one != 13) | (two != 10))).sum())
        return data
