"""Tables of text, as pyarrow reads them: CSV with any delimiter, decimal mark and encoding."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidParameterError, SourceError
from streamgda.runtime.parameters import as_flag, refuse
from streamgda.runtime.table_options import TableOptions

_SNIFFED = 1 << 16  # bytes that hold the first line
_DELIMITERS = ",;\t|"
_UNNAMED = ("", "Unnamed: 0")  # as pandas writes an index, and reads and writes it again
_EXACT = 1 << 53  # to which float64 holds all integers
_MISSING = (  # the markers of pandas
    *("", "NA", "N/A", "NULL", "NaN", "None", "n/a", "nan", "null", "<NA>", "#N/A", "#N/A N/A"),
    *("#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
)


# Name or number of the column of labels, or a function that chooses it among the names.
Label = str | int | Callable[[list[str]], str | int | None] | None


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


@dataclass(frozen=True)
class Text:
    """Format of text, whose rows are lines.

    Attributes
    ----------
    options : dict
        See `TableOptions`.
    missing : tuple of str
        Markers of missing values, compared as text.
    numbers : tuple of float
        Markers of missing values, compared as numbers.
    """

    options: Mapping[str, Any]
    missing: tuple[str, ...]
    numbers: tuple[float, ...]

    name = "csv"
    piece = ""
    encoding = property(lambda self: self.options.get("encoding") or "utf-8")
    decimal = property(lambda self: self.options.get("decimal") or ".")

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Return the format with these options; see `TableOptions`.

        Raises
        ------
        InvalidParameterError
            For an option that text cannot have.
        """
        for name in options:
            if name not in TableOptions.__annotations__:
                raise TypeError(f"unexpected keyword argument {name!r}")
        for name in ("delimiter", "decimal", "comment"):
            given = options.get(name)
            if given is not None and (
                not isinstance(given, str) or len(given) < 1 or '"' in given or "\n" in given
            ):
                raise refuse(name, given, "a character that is no quotation mark or line break")
        if any(len(options.get(name) or ".") > 1 for name in ("delimiter", "decimal")):
            raise InvalidParameterError("delimiter and decimal are one character each")
        try:
            codecs.lookup(options.get("encoding") or "utf-8")
        except (LookupError, TypeError):
            raise refuse("encoding", options["encoding"], "the name of an encoding") from None
        given = options.get("na_values")
        given = [] if given is None else given
        markers = [given] if isinstance(given, str | float | int) else list(given)
        if not all(isinstance(m, str | float | int | np.number) for m in markers):
            raise refuse("na_values", given, "texts or numbers that mark missing values")
        texts = [str(marker).strip() for marker in markers]
        numbers = [float(text) for text in texts if is_number(text)]
        if as_flag("keep_default_na", options.get("keep_default_na", True)):
            texts += _MISSING
        # pyarrow compares whole fields.
        spaced = {
            f"{left}{text}{right}" for text in texts for left in ("", " ") for right in ("", " ")
        }
        return cls(options, tuple(sorted(spaced)), tuple(n for n in numbers if n == n))  # noqa: PLR0124

    # --- opening ----------------------------------------------------------------------------------

    def first_line(self, path: str, filesystem: Any) -> Line:
        """Return the first line of a file.

        Raises
        ------
        SourceError
            If there is no line, or its names cannot be those of columns.
        """
        with self._opened(path, filesystem) as text:
            start = _decoded(text.read(_SNIFFED), path)
        lines = start.splitlines()
        at = next((n for n, line in enumerate(lines) if line), None)
        if at is None:
            raise SourceError(f"{path} has no rows: it is empty")
        delimiter = self.options.get("delimiter")
        if delimiter is None:
            usable = "\t" if ".tsv" in path.lower() else _DELIMITERS.replace(self.decimal, "")
            delimiter = max(usable, key=lines[at].count)
        fields = next(csv.reader([lines[at]], delimiter=delimiter, skipinitialspace=True))
        fields = [field.strip() for field in fields]
        header = self.options.get("header")
        if header is None:
            header = not any(is_number(f) or f in self.missing[1:] for f in fields if f)
        names = fields if header else [*map(str, range(len(fields)))]
        twice = sorted({name for name in names if names.count(name) > 1} - {""})
        if twice:
            raise SourceError(
                f"{path} has several columns named {', '.join(twice):.200}; rename them in the "
                f"file, or read it with header=False and name columns by their numbers"
            )
        spaced = f"{delimiter} " in start
        return Line(delimiter, names, bool(header), at + bool(header), spaced)

    def contents(self, path: str, filesystem: Any, label: Label) -> tuple[list[int], Any, Line]:
        """Return the number of rows, the columns with their types, and the first line of a file.

        The file is read once, to count its rows and to find the type of all labels. Types of other
        columns are those of the first rows.

        Raises
        ------
        SourceError
            If lines differ in their number of fields, or a quotation mark is not closed.
        """
        import pyarrow as pa  # noqa: PLC0415

        line = self.first_line(path, filesystem)
        names = line.names
        label = label_in(names, label)
        kinds, n_rows = Kinds(), 0
        own = {label or names[0]: pa.string()}
        try:
            with self._reading(path, filesystem, line, {}) as batches:
                schema = batches.schema
            with self._opened(path, filesystem) as text:
                lines = _Counted(text)
                with self._batches(lines, line, own) as batches:
                    for batch in batches:
                        n_rows += batch.num_rows
                        if label is not None:
                            kinds.add(self._cleaned(batch, line).column(0))
        except pa.ArrowInvalid as error:
            raise SourceError(self._explained(path, filesystem, line, {}, error)) from None
        if n_rows + line.header < lines.n_lines:  # a field goes on over line breaks
            raise SourceError(self._explained(path, filesystem, line, {}, None))
        if label is not None:
            at = names.index(label)
            schema = schema.set(at, pa.field(label, kinds.common))
        if not n_rows:
            raise SourceError(f"{path} has a header but no rows")
        return [n_rows], schema, line

    def read(
        self, path: str, filesystem: Any, line: Line, kinds: Mapping[str, Any]
    ) -> Iterator[Any]:
        """Yield the record batches of columns with these types.

        Raises
        ------
        SourceError
            For a field that has another type.
        """
        import pyarrow as pa  # noqa: PLC0415

        try:
            with self._reading(path, filesystem, line, kinds) as batches:
                for batch in batches:
                    yield self._cleaned(batch, line)
        except pa.ArrowInvalid as error:
            numbers = {line.names.index(n): n for n, kind in kinds.items() if kind != pa.string()}
            raise SourceError(self._explained(path, filesystem, line, numbers, error)) from None

    def _cleaned(self, batch: Any, line: Line) -> Any:
        """Return a batch without spaces around texts, and numbers that mark missing values."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        def cleaned(column: Any) -> Any:
            if pa.types.is_string(column.type):
                column = pc.utf8_trim_whitespace(column)
                quoted = line.spaced and pc.any(pc.starts_with(column, '"')).as_py()
                return pc.utf8_trim(column, '"') if quoted else column
            if self.numbers and pa.types.is_floating(column.type):
                marked = pc.is_in(column, value_set=pa.array(self.numbers, column.type))
                return pc.if_else(marked, pa.scalar(None, column.type), column)
            return column

        return pa.record_batch([cleaned(column) for column in batch.columns], batch.schema.names)

    @contextlib.contextmanager
    def _opened(self, path: str, filesystem: Any) -> Iterator[Any]:
        """Provide the text in UTF-8, in which comments are blank lines."""
        with filesystem.open_input_stream(path, compression="detect") as opened:
            comment = self.options.get("comment")
            plain = comment is None and codecs.lookup(self.encoding).name == "utf-8"
            yield opened if plain else _Converted(opened, self.encoding, comment)

    @contextlib.contextmanager
    def _reading(
        self, path: str, filesystem: Any, line: Line, kinds: Mapping[str, Any]
    ) -> Iterator[Any]:
        with self._opened(path, filesystem) as text, self._batches(text, line, kinds) as batches:
            yield batches

    def _batches(self, text: Any, line: Line, kinds: Mapping[str, Any]) -> Any:
        """Return a reader of the columns with these types, or of all columns."""
        import pyarrow.csv as pc  # noqa: PLC0415

        return pc.open_csv(
            text,
            read_options=pc.ReadOptions(column_names=line.names, skip_rows=line.skipped),
            parse_options=pc.ParseOptions(delimiter=line.delimiter),
            convert_options=pc.ConvertOptions(
                column_types=kinds or None,
                include_columns=[*kinds] or None,
                null_values=[*self.missing],
                strings_can_be_null=True,
                decimal_point=self.decimal,
            ),
        )

    def _explained(
        self,
        path: str,
        filesystem: Any,
        line: Line,
        numbers: Mapping[int, str],
        error: BaseException | None,
    ) -> str:
        """Return a message that names the first line that cannot be read, and the column."""
        found = f"{path} cannot be read: {error}"
        with self._opened(path, filesystem) as opened:
            text = io.TextIOWrapper(io.BufferedReader(_Readable(opened)), "utf-8", newline="")
            rows = csv.reader(text, delimiter=line.delimiter, strict=True)
            last = 0
            try:
                for fields in rows:
                    first, last = last + 1, rows.line_num
                    if not fields or last <= line.skipped:
                        continue
                    where = f"{path}: line {last}"
                    if last > first:
                        return (
                            f"{path}: line {first}: a quotation mark is closed in another line; "
                            f"a row is one line"
                        )
                    if len(fields) != len(line.names):
                        return (
                            f"{where}: {len(fields)} fields, the first line has {len(line.names)}"
                        )
                    for at, name in numbers.items():
                        value = fields[at]
                        if not (
                            value in self.missing or is_number(value.replace(self.decimal, "."))
                        ):
                            column = f"column {name!r}" if line.header else f"field {at + 1}"
                            return f"{where}: {column} is not a number: {value!r}"
            except csv.Error:
                return f"{path}: line {last + 1}: a quotation mark is opened and not closed"
            except UnicodeDecodeError:
                return _not_decoded(f"{path}: line {last + 1}")
        return found


def label_in(names: list[str], label: Label) -> str | None:
    """Return the name of the column of labels among these; None if it is none of them."""
    if callable(label):
        label = label(names)
    if isinstance(label, int) and -len(names) <= label < len(names):
        return names[label]
    return label if isinstance(label, str) and label in names else None


class Kinds:
    """Types that can hold all labels of a text: integers, numbers, booleans, or else strings."""

    def __init__(self) -> None:
        self._left = ["int64", "uint64", "double", "bool"]

    def add(self, column: Any) -> None:
        """Leave out types that cannot hold some of these labels."""
        import pyarrow.compute as pc  # noqa: PLC0415

        if self._left:
            labels = pc.drop_null(pc.unique(column))
            self._left = [name for name in self._left if _can_be(labels, name)]

    @property
    def common(self) -> Any:
        """The narrowest type that is left."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.type_for_alias(self._left[0] if self._left else "string")


def _can_be(labels: Any, name: str) -> bool:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    patterns = {"bool": "^(true|True|TRUE|false|False|FALSE)$", "double": "^[^xX_]+$"}
    pattern = patterns.get(name, "^-?[0-9]+$")
    if not pc.all(pc.match_substring_regex(labels, pattern), min_count=0).as_py():
        return False
    try:
        values = labels.cast(name)
    except pa.ArrowInvalid:
        return False
    if name != "double":
        return True
    return bool(pc.all(pc.less(pc.abs(values), _EXACT), min_count=0).as_py())


def is_number(text: str) -> bool:
    """Return whether a text is a number, as Python reads one, but without underscores."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def refuse_unnamed(names: Iterable[str], path: str) -> None:
    """Raise `SourceError` if one of the columns of features has no name, as an index has not."""
    if any(name in _UNNAMED for name in names):
        raise SourceError(
            f"{path} has a column without a name, as pandas writes an index; it is a feature only "
            f"if it is asked for: name the columns (features=[...]; columns= or drop= of convert)"
        )


def _decoded(data: bytes, path: str) -> str:
    text, n = codecs.getincrementaldecoder("utf-8-sig")(), data
    try:
        return text.decode(n)
    except UnicodeDecodeError:
        raise SourceError(_not_decoded(path)) from None


def _not_decoded(where: str) -> str:
    return f"{where} is not UTF-8; encoding= names another one, such as encoding='latin-1'"


class _Readable(io.RawIOBase):
    """Binary stream that reads from another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer."""
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Counted(_Readable):
    """Binary stream that counts the lines that are not blank."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._ends = 0
        self._last = b"\n\n"

    def read(self, size: int = -1) -> bytes:
        """Read some bytes."""
        data: bytes = self._stream.read(size)
        before = np.frombuffer(self._last + data, np.uint8)
        ends = np.flatnonzero(before[2:] == ord("\n"))
        one, two = before[ends + 1], before[ends]
        self._ends += int(((one != 10) & ((one != 13) | (two != 10))).sum())
        self._last = (self._last + data)[-2:]
        return data

    @property
    def n_lines(self) -> int:
        """Lines so far that are not blank."""
        return self._ends + (self._last[-1:] not in (b"\n", b"\r"))


class _Converted(_Readable):
    """Binary stream of a text in UTF-8, in which comments are blank lines."""

    def __init__(self, stream: Any, encoding: str, comment: str | None) -> None:
        super().__init__(stream)
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._comment = None if comment is None else re.compile(rf"(?m)^{re.escape(comment)}.*$")
        self._left = ""

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, about as many as asked for."""
        while True:
            block = self._stream.read(size)
            try:
                text = self._left + self._decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                raise SourceError(f"the text cannot be decoded: {error}; see encoding=") from None
            end = text.rfind("\n") + 1 if block else len(text)
            text, self._left = text[:end], text[end:]
            if text or not block:
                break
        return (self._comment.sub("", text) if self._comment else text).encode()
