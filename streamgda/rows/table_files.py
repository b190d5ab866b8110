"""Tables in files: Parquet, Arrow and text; one file, or a folder with files alike.

Scores are written as a table, beside key columns. It is moved into place when it is complete, and
is not resumed: a run that was stopped leaves the path as it was, and starts again.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, fs, ipc

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    StreamGDAError,
    cause_of,
    printable,
)
from streamgda.rows.arrow import (
    EXPECTED_LABELS,
    as_label_array,
    common_type,
    feature_matrix,
    label_type,
    list_width,
    number_type,
)
from streamgda.rows.opening import GROUP_ROWS, format_of, is_part
from streamgda.rows.sources import ForwardRows, RowSource
from streamgda.rows.text_files import Contents, Label, NoRowsError, Text, label_in, number_in
from streamgda.runtime import threads
from streamgda.runtime.parameters import ColumnNames, refuse
from streamgda.runtime.retry import brief, raised_as
from streamgda.storage.files import aside, local_path

_SHOWN = 20  # names of columns in an error message
_BLOCK_BYTES = 1 << 24  # of rows that are decoded at a time
_BLOCK_ROWS = 1 << 17
_DECODED_BYTES = 16  # of a number and its place in a dictionary, at least
_POOL_BYTES = 9 << 22  # that the allocator of pyarrow keeps for later, at most
_POOL_BLOCKS = 16  # that it keeps, of small ones
_BUFFER = 1 << 16  # bytes of Parquet that are read from a column at a time
_PAGE = 1 << 20  # bytes of a page of Parquet, or of its dictionary, as writers cut them
_PACKED = 8  # bytes of a dictionary for one of its compressed form, at most: its entries differ
_COLUMN_BYTES = 1 << 14  # of the decoder of a column
_WIDTHS = {"INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8}  # bytes of types of Parquet
_METADATA = 20  # bytes of decoded metadata for one of Parquet
_BATCH_BYTES = 10 << 20  # that the allocator keeps of record batches
_LARGE = 1 << 17  # bytes of an array that is not allocated in a block with others
_GAPS = 5 << 22  # bytes between large arrays that are decompressed, at most
_NUMBERED = (  # where columns have numbers for names
    " (its first line holds numbers, so that columns have no names: give their numbers, or "
    "header=True)"
)
_MAGIC = b"ARROW1"  # at the end of an Arrow file
_FOOTER = 1 << 16  # bytes of its end that are read first
# Where a block of Arrow starts, and the bytes of its metadata and body; where a buffer starts.
_PLACE = np.dtype([("start", "<i8"), ("metadata", "<i4"), ("", "<i4"), ("body", "<i8")])
_SPAN = np.dtype([("start", "<i8"), ("bytes", "<i8")])
_UNNAMED = ("", "Unnamed: 0")  # as pandas writes an index, and reads and writes it again


class TableFile(NamedTuple):
    """A file of a table.

    Attributes
    ----------
    path : str
    sizes : list of int
        Rows of its pieces: reading starts with the first row of one of them.
    schema : pyarrow.Schema
        The same object for all files with the same columns.
    constants : dict of str to object
        Values of columns that all of its rows share: those of the partition in its path.
    line : Line or None
        First line of a text.
    """

    path: str
    sizes: list[int]
    schema: Any
    constants: Mapping[str, Any]
    line: Any = None


# --- formats --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parquet:
    """Parquet: a piece is a row group, of which each column is decoded page by page."""

    name: ClassVar[str] = "parquet"
    piece: ClassVar[str] = "row group"

    def contents(self, path: str, filesystem: Any, label: Any) -> Contents:
        """Return the rows of each piece, and the schema, as the end of the file describes them."""
        with filesystem.open_input_file(path) as opened, pq.ParquetFile(opened) as file:
            about = file.metadata
            sizes = [about.row_group(number).num_rows for number in range(about.num_row_groups)]
            decoding: dict[str, int] = {}
            if sizes:
                largest = about.row_group(int(np.argmax(sizes)))
                for number in range(largest.num_columns):
                    column = largest.column(number)
                    name = column.path_in_schema.partition(".")[0]
                    decoding[name] = decoding.get(name, 0) + self._decoding(column)
            return Contents(sizes, file.schema_arrow, decoding, _METADATA * about.serialized_size)

    def _decoding(self, column: Any) -> int:
        """Return the bytes of the dictionary of a column, a page, and what is read of the file."""
        stored = column.total_uncompressed_size
        dictionary = 0
        if column.has_dictionary_page:
            compressed = column.data_page_offset - column.dictionary_page_offset
            dictionary = min(_PAGE, stored, _PACKED * compressed)
            if width := _WIDTHS.get(column.physical_type):
                dictionary = min(dictionary, width * column.num_values)
        # A dictionary is copied from a page, whose memory is that of the next page then.
        pages = max(2 * dictionary, min(stored, dictionary + _PAGE))
        # The allocator rounds the sizes of large arrays.
        return 5 * pages // 4 + min(_BUFFER, column.total_compressed_size) + _COLUMN_BYTES

    def batches(
        self,
        file: TableFile,
        filesystem: Any,
        first: int,
        kinds: Mapping[str, Any],
        n_rows: int,
    ) -> Iterator[Iterator[Any]]:
        """Yield the record batches of each row group from the first on."""
        options = {"columns": [*kinds], "use_threads": threads.n_threads() > 1}
        # Buffers of a few pages, where whole row groups would be read by default.
        own: dict[str, Any] = {"pre_buffer": False, "buffer_size": _BUFFER}
        own["page_checksum_verification"] = True
        with (
            filesystem.open_input_file(file.path) as opened,
            pq.ParquetFile(opened, **own) as groups,
        ):
            for group in range(first, groups.num_row_groups):
                yield groups.iter_batches(n_rows, row_groups=[group], **options)
                # What decoding the group has freed would stay beside the next one.
                pa.default_memory_pool().release_unused()


class Batches(NamedTuple):
    """The record batches of a file, as its end and their metadata describe them.

    Attributes
    ----------
    end : bytes
        The end of the file.
    size : int
        Bytes of the file.
    schema : pyarrow.Schema
    places : ndarray
        Where the metadata of each batch start, their bytes, and those of its body.
    sizes : list of int
        Rows of each.
    buffers : list of ndarray
        Where the buffers of each start in its body, and their bytes.
    compressed : bool
    """

    end: bytes
    size: int
    schema: Any
    places: np.ndarray
    sizes: list[int]
    buffers: list[np.ndarray]
    compressed: bool

    @classmethod
    def of(
        cls, size: int, read: Callable[[int, int], Any], read_all: Callable[[Any], Iterator[Any]]
    ) -> Self | None:
        """Return the record batches of a file of some size; None if it is a stream.

        Parameters
        ----------
        size : int
        read : callable
            Returns the bytes between two places of the file.
        read_all : callable
            Returns those between several such pairs.
        """
        end = bytes(read(max(0, size - _FOOTER), size))
        if not end.endswith(_MAGIC):
            return None
        about = len(_MAGIC) + 4 + struct.unpack_from("<i", end, len(end) - len(_MAGIC) - 4)[0]
        if about > len(end):
            end = bytes(read(size - about, size))
        schema = ipc.open_file(end).schema  # refuses ends that are damaged
        footer = len(end) - about
        places = _vector(end, footer + _number("<I", end, footer), 3, _PLACE)
        starts, stops = places["start"], places["start"] + places["metadata"]
        sizes, buffers, compressed = [], [], False
        for metadata in map(bytes, read_all(zip(starts.tolist(), stops.tolist(), strict=True))):
            root = 8 if metadata.startswith(b"\xff" * 4) else 4
            message = root + _number("<I", metadata, root)
            header = _field(metadata, message, 2)
            batch = header + _number("<I", metadata, header)
            at = _field(metadata, batch, 0)
            sizes.append(_number("<q", metadata, at) if at else 0)
            if sizes[-1] < 0:
                raise pa.ArrowInvalid(f"a record batch has {sizes[-1]} rows")
            buffers.append(_vector(metadata, batch, 2, _SPAN))
            compressed |= bool(_field(metadata, batch, 3))
        return cls(end, size, schema, places, sizes, buffers, compressed)

    def spans(self, number: int, names: Container[str]) -> Iterator[tuple[int, int]]:
        """Yield where the metadata of a batch and the buffers of some columns start and stop."""
        start, body = (int(self.places[number][name]) for name in ("start", "metadata"))
        body += start
        yield start, body
        # As many buffers as an empty column has; of some types, they depend on the values.
        of_columns = [len(pa.nulls(0, field.type).buffers()) for field in self.schema]
        first, buffers = 0, self.buffers[number]
        if sum(of_columns) != len(buffers):
            yield body, body + int(self.places[number]["body"])
            return
        for name, count in zip(self.schema.names, of_columns, strict=True):
            for begin, n_bytes in buffers[first : first + count].tolist() if name in names else ():
                if n_bytes:
                    yield body + begin, body + begin + n_bytes
            first += count


# Tables of flatbuffers, in which Arrow describes batches: a table starts with the distance back to
# the places of its fields.


def _number(kind: str, data: bytes, at: int) -> int:
    return int(struct.unpack_from(kind, data, at)[0])


def _field(data: bytes, table: int, number: int) -> int:
    """Return where a field of a table is; 0 if it has its default."""
    places = table - _number("<i", data, table)
    at = 4 + 2 * number
    distance = _number("<H", data, places + at) if at < _number("<H", data, places) else 0
    return table + distance if distance else 0


def _vector(data: bytes, table: int, number: int, dtype: np.dtype) -> np.ndarray:
    """Return a field that is a vector of structures."""
    at = _field(data, table, number)
    if not at:
        return np.empty(0, dtype)
    start = at + _number("<I", data, at)
    return np.frombuffer(data, dtype, _number("<I", data, start), start + 4)


@dataclass(frozen=True)
class Arrow:
    """Arrow or Feather: a piece is a record batch, which is decoded as a whole.

    A file in the format of streams is one piece.
    """

    name: ClassVar[str] = "ipc"
    piece: ClassVar[str] = "record batch"

    def contents(self, path: str, filesystem: Any, label: Any) -> Contents:
        """Return the rows of each piece, and the schema; streams are read to count their rows."""
        found, n_bytes = self._described(path, filesystem), filesystem.get_file_info(path).size
        if found is not None:
            schema, sizes = found.schema, found.sizes
        else:
            with self._opened(filesystem.open_input_file(path), [0]) as batches:
                sizes = [batch.num_rows for batch in batches]
            with self._opened(filesystem.open_input_file(path), []) as batches:
                schema = batches.schema
        compressed, largest = found is None or found.compressed, max(sizes, default=0)
        widths = dict.fromkeys(schema.names, n_bytes)
        for column in schema:
            with contextlib.suppress(ValueError):  # of texts, whose width is unknown
                width = largest * column.type.bit_width // 8
                widths[column.name] = min(widths[column.name], width)
        # Memory is taken for a batch as it is stored, unless it is read column by column.
        stored = 0 if compressed else min(n_bytes, sum(widths.values())) // max(1, largest)
        decoding, kept = {}, _BATCH_BYTES
        if compressed:
            # What was decompressed before leaves gaps, into which no array as large may fit.
            large = sum(width for width in widths.values() if width > _LARGE)
            decoding, kept = widths, _BATCH_BYTES // 2 + min(2 * large, _GAPS)
        pieces = [sum(sizes)] if found is None else sizes
        return Contents(pieces, schema, decoding, kept, largest, stored)

    def batches(
        self,
        file: TableFile,
        filesystem: Any,
        first: int,
        kinds: Mapping[str, Any],
        n_rows: int,
    ) -> Iterator[Iterator[Any]]:
        """Yield slices of each record batch from the first on."""

        def slices(batch: Any) -> Iterator[Any]:
            batch.validate(full=True)  # places of texts beyond their bytes would end the process
            return (batch[start : start + n_rows] for start in range(0, len(batch), n_rows))

        fields = [file.schema.get_field_index(name) for name in kinds]
        with self._opened(filesystem.open_input_file(file.path), fields) as batches:
            if not hasattr(batches, "num_record_batches"):
                yield (part for batch in batches for part in slices(batch))
                return
            for number in range(first, batches.num_record_batches):
                yield slices(batches.get_batch(number))

    def _described(self, path: str, filesystem: Any) -> Batches | None:
        """Return the batches of a file; None for streams."""
        size = filesystem.get_file_info(path).size
        with filesystem.open_input_file(path) as opened:

            def read(start: int, stop: int) -> bytes:
                return opened.read_at(stop - start, start)

            return Batches.of(size, read, lambda spans: (read(*span) for span in spans))

    @contextlib.contextmanager
    def _opened(self, place: Any, fields: list[int]) -> Iterator[Any]:
        threaded = threads.n_threads() > 1
        options = ipc.IpcReadOptions(included_fields=fields or None, use_threads=threaded)
        with place as opened:
            random = opened.read_at(len(_MAGIC), max(0, opened.size() - len(_MAGIC))) == _MAGIC
            opened.seek(0)
            opener = ipc.open_file if random else ipc.open_stream
            with opener(opened, options=options) as batches:
                yield batches


_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # of a column of a partition

# --- tables ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Rows of one or more files, numbered from the first row of the first file.

    Attributes
    ----------
    title : str
        The path or URL.
    format : Parquet, Arrow or Text
    filesystem : pyarrow.fs.FileSystem
    files : list of TableFile
    decoding : dict of str to int
        Bytes that are held beside the rows while a column is decoded.
    fixed : int
        Bytes that are held besides, whatever the columns.
    whole : int
        Rows that are decoded as a whole; 0 if as many are as are asked for.
    stored : int
        Bytes of a row in all columns, if memory is taken for those too that are not read.
    """

    title: str
    format: Any
    filesystem: Any
    files: list[TableFile]
    decoding: Mapping[str, int]
    fixed: int
    whole: int
    stored: int

    @classmethod
    def of(
        cls,
        path: Any,
        storage_options: Mapping[str, Any] | None = None,
        *,
        label: Label = None,
        format: str | None = None,
        **text: Any,
    ) -> Table:
        """Open the files at a path or URL.

        Parameters
        ----------
        path : path or URL
        storage_options : dict, optional
            Options of the file system of a URL.
        label : str or int, optional
            Column of a text whose type is to be that of all of its rows.
        format : {"csv"}, optional
            Format of a file with any name.
        **text
            See `TableOptions`.

        Raises
        ------
        SourceNotFoundError
            If the path does not exist.
        SourceError
            If a file cannot be opened.
        InvalidParameterError
            For options of text, for other files.
        """
        if format not in (None, "csv"):
            raise refuse("format", format, "'csv', or None for the format of the name")
        title = printable(path)
        filesystem, name = _locate(path, storage_options)
        paths, folder = _files(filesystem, name, title, format)
        kind = str(format or format_of(paths[0]))
        if text and kind != "csv":
            raise InvalidParameterError(
                f"{', '.join(text)} given, and {title} is no text; expected only for .csv, .tsv, "
                f".txt and .data, or any name with format='csv'"
            )
        form: Any = Text(**text) if kind == "csv" else {"parquet": Parquet, "ipc": Arrow}[kind]()

        def contents_of(path: str) -> Contents | None:
            with raised_as(SourceError, f"{path} cannot be opened"):
                try:
                    return form.contents(path, filesystem, label)
                except NoRowsError:
                    if not folder:
                        raise
                    return None

        every: list[Contents | None] = threads.run(contents_of, ((p,) for p in paths))
        paths = [path for path, contents in zip(paths, every, strict=True) if contents is not None]
        found = [contents for contents in every if contents is not None]
        if not found:
            raise SourceError(f"{title} has no rows: all of its files are empty")
        schemas = [contents.schema for contents in found]
        if kind == "csv":
            schemas = _with_one_label(found, label)
        keys, fields = _partitions([path.removeprefix(name) for path in paths if folder])
        known: dict[Any, Any] = {}
        files = []
        for number, (path_, schema) in enumerate(zip(paths, schemas, strict=True)):
            key = keys[number] if keys else {}
            own = [fields.get(field.name, field) for field in schema]
            own += [fields[n] for n in key if n not in schema.names]
            complete = pa.schema(own, schema.metadata)
            same = known.setdefault(complete.serialize().to_pybytes(), complete)
            files.append(TableFile(path_, found[number].sizes, same, key, found[number].line))
        columns = dict.fromkeys(chain.from_iterable(c.decoding for c in found))
        decoding = {name: max(c.decoding.get(name, 0) for c in found) for name in columns}
        fixed, whole = max(c.fixed for c in found), max(c.whole for c in found)
        stored = max(c.stored for c in found)
        return cls(title, form, filesystem, files, decoding, fixed, whole, stored)

    # --- columns ------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the order of the first file."""
        return list(self.files[0].schema.names)

    @property
    def named(self) -> bool:
        """True if the columns have names: those of a text may have none."""
        return self.files[0].line is None or self.files[0].line.header

    @property
    def index(self) -> list[str]:
        """Names of the columns that pandas wrote as an index."""
        about = self.files[0].schema.pandas_metadata or {}
        return [name for name in about.get("index_columns", ()) if isinstance(name, str)]

    def column(
        self, name: str, type_of: Callable[[Any], np.dtype | None], expected: str
    ) -> np.dtype:
        """Return the data type of a column.

        Parameters
        ----------
        name : str
        type_of : callable
            Returns the data type of an Arrow type, or None: `number_type` or `label_type`.
        expected : str
            What the column is expected to hold, and what to do if it does not.

        Raises
        ------
        SourceError
            If a file lacks the column.
        InvalidDataError
            If it does not have such a type.
        """
        kinds = self.kinds(name)
        dtype = common_type(kinds, type_of)
        if dtype is None:
            found = " and ".join(dict.fromkeys(map(str, kinds)))
            raise InvalidDataError(f"{self.title}: column {name!r} holds {found}; {expected}")
        return dtype

    def kinds(self, name: str) -> list[Any]:
        """Return the Arrow types of a column in the files, each schema's once.

        Raises
        ------
        SourceError
            If a file lacks the column.
        """
        kinds = []
        first = {id(file.schema): file for file in reversed(self.files)}
        for path, _, schema, *_ in reversed(first.values()):
            at = schema.get_all_field_indices(name)
            if len(at) != 1:
                raise SourceError(
                    f"{path} has {len(at) or 'no'} column{'s' * (len(at) > 1)} {name!r}; it has "
                    f"{shown_names(schema.names)}"
                )
            kinds.append(schema.field(at[0]).type)
        return kinds

    def key_type(self, name: str) -> Any:
        """Return the Arrow type that holds the values of a column in all files, to copy them.

        That of a text is a string: numbers would lose zeros and digits, and the first rows, which
        the type is found from, may not be like the others.

        Raises
        ------
        InvalidDataError
            If there is none.
        """
        kinds = self.kinds(name)
        if self.format.name == "csv":
            return pa.string()
        schemas = [pa.schema([(name, kind)]) for kind in kinds]
        try:
            return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except pa.ArrowTypeError:
            found = " and ".join(dict.fromkeys(map(str, kinds)))
            raise InvalidDataError(
                f"{self.title}: column {name!r} holds {found}; keys of one type are copied"
            ) from None

    # --- rows ---------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> np.ndarray:
        """Number of the first row of each piece of each file, and of all rows."""
        return np.cumsum([0, *(size for file in self.files for size in file.sizes)])

    @cached_property
    def _pieces(self) -> list[tuple[TableFile, int]]:
        """The file of each piece, and the number of the piece in it."""
        return [(file, number) for file in self.files for number in range(len(file.sizes))]

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.bounds[-1])

    @property
    def largest_piece(self) -> int:
        """Rows of the largest piece: the most that may be read to get at one of them."""
        return int(np.diff(self.bounds).max(initial=0))

    def _piece(self, row: int) -> int:
        """Return the number of the piece that holds a row."""
        return int(np.searchsorted(self.bounds, row, "right")) - 1

    def origin(self, row: int) -> int:
        """Return the first row of the piece that holds a row."""
        return int(self.bounds[self._piece(row)])

    def place(self, row: int) -> str:
        """Return the file and the piece that hold a row."""
        return self._place(*self._pieces[self._piece(row)])

    def _place(self, file: TableFile, piece: int) -> str:
        return f"{file.path}: {self.format.piece} {piece}" if self.format.piece else file.path

    def batches(self, origin: int, kinds: Mapping[str, Any], n_rows: int) -> Iterator[Any]:
        """Yield the record batches of columns from the first row of a piece on.

        Parameters
        ----------
        origin : int
        kinds : dict of str to pyarrow.DataType
            The columns, and the types as which those of a text are read.
        n_rows : int
            Rows of a batch, at most.

        Raises
        ------
        ReadError
            If a file cannot be read, or has changed.
        """
        first, piece = self._pieces[self._piece(origin)]
        files = self.files[self.files.index(first) :]
        for file in files:
            start, stored = piece if file is first else 0, _stored(file, kinds)
            pieces = self.format.batches(file, self.filesystem, start, stored, n_rows)
            yield from self._of_file(file, start, kinds, pieces)

    def _of_file(
        self, file: TableFile, first: int, kinds: Mapping[str, Any], pieces: Any
    ) -> Iterator[Any]:
        """Yield the record batches of a file from a piece on."""
        with contextlib.closing(pieces):
            for number, size in enumerate(file.sizes[first:], first):
                found = 0
                try:
                    for batch in next(pieces, ()):
                        found += batch.num_rows
                        yield _complete(batch, file, kinds)
                        del batch  # not held while the next one is decoded
                except (MemoryError, StreamGDAError):
                    raise
                except Exception as error:  # pyarrow and file systems have many kinds
                    raise ReadError(
                        f"{self._place(file, number)} cannot be read: {brief(error)}"
                    ) from cause_of(error)
                if found != size:
                    raise ReadError(
                        f"{self._place(file, number)} has {found} rows; {size} were expected: it "
                        f"changed after it was opened"
                    )


def chosen(
    names: list[str], columns: ColumnNames, option: str, title: str, named: bool = True
) -> list[str]:
    """Return the names of columns that are given by name, number or slice of numbers.

    A text that is no name may be a number or a range, such as ``"-1"`` or ``"2:5"``.

    Raises
    ------
    SourceError
        If there is no column of this name.
    InvalidParameterError
        If there is none of this number.
    """
    found: list[str] = []
    listed = [columns] if isinstance(columns, str | int | slice) else columns
    try:
        for column in listed:
            if isinstance(column, bool):
                raise TypeError
            if column in names:
                found.append(column)
                continue
            number = number_in(column)
            if isinstance(number, str):
                raise SourceError(
                    f"{title} has no column {column!r} for {option}; it has {shown_names(names)}"
                    f"{'' if named else _NUMBERED}"
                )
            found += names[number] if isinstance(number, slice) else [names[number]]
    except (TypeError, IndexError):
        raise refuse(
            option, columns, f"names or numbers of the {len(names)} columns of {title}"
        ) from None
    return list(dict.fromkeys(found))


def _partitions(paths: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the values of columns in paths such as ``year=2024/a.parquet``, and fields."""
    keys = [
        dict(unquote(part).split("=", 1) for part in path.split("/")[:-1] if "=" in part)
        for path in paths
    ]
    fields = {}
    for name in dict.fromkeys(name for own in keys for name in own):
        texts = [own.get(name) for own in keys]
        values = pa.array([None if text == _NO_VALUE else text for text in texts], pa.string())
        with contextlib.suppress(pa.ArrowInvalid):
            numbers = values.cast(pa.int64())
            if len(numbers.unique()) == len(values.unique()):  # 01 and 1 are two values
                values = numbers
        fields[name] = pa.field(name, values.type)
        for own, value in zip(keys, values.to_pylist(), strict=True):
            own[name] = value
    return keys, fields


def _with_one_label(found: Sequence[Contents], label: Label) -> list[Any]:
    """Return the schemas of texts, in which labels have the narrowest type that holds them all."""
    schemas = [contents.schema for contents in found]
    name = label_in(schemas[0].names, label)
    if name is None:
        return schemas
    kind = next(k for k in found[0].labels if all(k in contents.labels for contents in found))
    own = pa.field(name, pa.type_for_alias(kind))
    at = [schema.get_field_index(name) for schema in schemas]
    return [s if n < 0 else s.set(n, own) for s, n in zip(schemas, at, strict=True)]


def _stored(file: TableFile, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the columns that a file stores, or one that counts the rows."""
    stored = {name: kind for name, kind in kinds.items() if name not in file.constants}
    if not stored:
        name = next(name for name in file.schema.names if name not in file.constants)
        stored = {name: file.schema.field(name).type}
    return stored


def _complete(batch: Any, file: TableFile, kinds: Mapping[str, Any]) -> Any:
    """Return a batch with the columns in the order asked for, constant ones too."""
    if batch.schema.names == [*kinds]:
        return batch

    def column(name: str) -> Any:
        if name not in file.constants:
            return batch.column(name)
        kind = file.schema.field(name).type
        return pa.repeat(pa.scalar(file.constants[name], kind), batch.num_rows)

    return pa.record_batch([column(name) for name in kinds], [*kinds])


def shown_names(names: Sequence[str]) -> str:
    """Return names of columns for an error message; of many, the first ones."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(str, names[:_SHOWN])) or 'none at all'}{more}"


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class TableRows(ForwardRows):
    """Columns of a table: a matrix of features, or a column of labels.

    Attributes
    ----------
    values : Table
    fields : tuple of str
        Names of the columns.
    """

    apart = True
    fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the path, the shape and the first names of the columns."""
        what = f"shape={self.shape}, dtype={self.dtype}"
        return f"TableRows({self.values.title!r}, {what}, columns=[{shown_names(self.fields)}])"

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.shape[0]

    def __getitem__(self, rows: slice | int) -> Any:
        """Return rows in memory: a slice of them, or one."""
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step > 0:
                return self.read(start, max(start, stop))[::step]
        elif isinstance(rows, int | np.integer) and -len(self) <= rows < len(self):
            row = int(rows) % len(self)
            return self.read(row, row + 1)[0]
        raise IndexError(f"{self.title} has {len(self)} rows, which are read by slices; got {rows}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all rows in memory."""
        return np.asarray(self.whole(), dtype)

    @property
    def ndim(self) -> int:
        """Number of axes: two for features, one for labels."""
        return len(self.shape)

    @property
    def title(self) -> str:
        """The name, with the path of the table."""
        return f"{self.name} ({self.values.title})"

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of features."""
        named = self.ndim == 2 and self.values.named and len(self.fields) == self.shape[1]
        return self.fields if named else None

    def keys(self, names: Sequence[str]) -> KeyRows:
        """Return a source of other columns of the table, of any type."""
        for name in names:
            if name not in self.values.names:
                raise InvalidParameterError(
                    f"{self.values.title} has no column {name!r} for keys, but "
                    f"{shown_names(self.values.names)}"
                )
        table, shape = self.values, (self.n_rows, len(names))
        kinds = {name: table.key_type(name) for name in names}
        own: dict[str, Any] = {"fields": tuple(names), "kinds": kinds}
        return KeyRows(table, shape, np.dtype(object), "keys", **own)

    def holds(self, path: Path) -> bool:
        """Return whether the rows are in this file, or in the folder that it would be in."""
        path, own = path.resolve(), local_path(self.values.title)
        if own is not None and own.is_dir():
            return path.is_relative_to(own.resolve())
        return path in (Path(file.path).resolve() for file in self.values.files)

    def place(self, row: int, column: int | None = None) -> str:
        """Return the name, and the file and the row group that hold the row."""
        where = self.values.place(row)
        names = self.feature_names
        named = "" if column is None or names is None else f", column {names[column]!r}"
        return f"{self.name}: {where}{named}"

    @property
    def _block_rows(self) -> int:
        # Narrow numbers are stored as wider ones.
        decoded = max(self.row_bytes, _DECODED_BYTES * len(self.fields))
        most = min(_BLOCK_ROWS, self.values.largest_piece)
        return max(1, min(most, _BLOCK_BYTES // decoded))

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        table, block = self.values, self._block_rows
        decoding = table.fixed + sum(table.decoding.get(name, 0) for name in self.fields)
        if not table.whole:
            # Freed blocks of a row group, and of those before on other threads.
            decoding += min(_POOL_BYTES, _POOL_BLOCKS * block * self.row_bytes)
        # Two slabs hold all blocks that some of their rows are in, and are copied unless they are
        # read where they are.
        held = min(self.n_rows, 2 * (n_rows + table.whole)) + (0 if table.whole else 3 * block)
        copied = n_rows
        if self.ndim == 1:  # labels, which are copied out of what is stored together
            decoding += table.whole * table.stored
            return decoding + self.row_bytes * (held + copied)
        return decoding + max(self.row_bytes, table.stored) * held + self.row_bytes * copied

    def _origin(self, row: int) -> int:
        return self.values.origin(row)

    @property
    def _kinds(self) -> dict[str, Any]:
        """The columns with their Arrow types; numbers of a text are read as those of the rows."""
        assert self.dtype is not None
        kinds = {name: self.values.kinds(name)[0] for name in self.fields}
        if self.values.format.name == "csv" and self.ndim == 2:
            number = pa.from_numpy_dtype(self.dtype)
            return {n: k if pa.types.is_boolean(k) else number for n, k in kinds.items()}
        return kinds

    def _blocks(self, start: int) -> Iterator[np.ndarray]:
        for batch in self.values.batches(start, self._kinds, self._block_rows):
            yield self._block(batch)
            del batch

    def _block(self, batch: Any) -> Any:
        assert self.dtype is not None
        if self.ndim == 2:
            return feature_matrix(batch.columns, self.dtype, self.shape[1])
        labels = as_label_array(batch[0])
        if type(labels) is not np.ndarray:
            return labels
        # A view would hold all columns that are stored with it.
        return labels.astype(object) if self.dtype == object else labels.copy()


@dataclass(frozen=True, repr=False)
class KeyRows(TableRows):
    """Columns of a table as they are stored: slabs are tables of pyarrow.

    Attributes
    ----------
    kinds : dict of str to pyarrow.DataType
        Types that hold the values of all files.
    """

    kinds: Mapping[str, Any] = field(default_factory=dict)

    def _blocks(self, start: int) -> Iterator[Any]:
        return self.values.batches(start, self.kinds, self._block_rows)

    def _joined(self, parts: list[Any]) -> Any:
        schema = pa.schema([*self.kinds.items()])
        return pa.concat_tables(pa.Table.from_batches([part]).cast(schema) for part in parts)


def open_table(
    path: Any,
    X: str = "X",
    y: str | int | None = "y",
    *,
    label: Label = None,
    features: ColumnNames | None = None,
    drop: ColumnNames | None = None,
    storage_options: Mapping[str, Any] | None = None,
    format: str | None = None,
    dtype: np.dtype | None = None,
    **text: Any,
) -> tuple[TableRows, TableRows | None]:
    """Return the columns of features of a table, and that of labels or None.

    Other parameters, and errors, are those of `streamgda.open_store`.

    Parameters
    ----------
    format : {"csv"}, optional
        Format of a file with any name.
    dtype : numpy.dtype, optional
        Type of the features of a text; float64 by default, and for all that float64 holds.
    """
    if X != "X":
        raise InvalidParameterError(
            f"X={X!r} names an array of zarr, and {path} is a table; name its columns with features"
        )
    label = y if label is None else label
    table = Table.of(path, storage_options, label=label, format=format, **text)
    label = _label(table, label)
    dropped = [] if drop is None else chosen(table.names, drop, "drop", table.title)
    if label in dropped:
        raise InvalidParameterError(f"label={label!r} is among the columns to drop; name another")
    if features is None:
        fields = [n for n in table.names if n not in (label, *dropped, *table.index)]
        unnamed = [n for n in fields if table.named and n in _UNNAMED]
        if unnamed:
            raise SourceError(
                f"{table.title} has a column without a name, as pandas writes an index; "
                f"features=[...] names the columns of features, and "
                f"drop={table.names.index(unnamed[0])} leaves it out"
            )
        given: Any = fields
    else:
        found = chosen(table.names, features, "features", table.title, table.named)
        given = [features] if isinstance(features, str | int | slice) else features
        named = all(feature in table.names for feature in given)
        twice = named and len(found) < len(given)
        fields = [n for n in found if not twice and n not in dropped and (named or n != label)]
    if not fields or label in fields:
        raise InvalidParameterError(
            f"features are {shown_names(given)}, labels {label!r}, and {path} has the columns "
            f"{shown_names(table.names)}; expected different names, at least one of a feature"
        )
    rows = _feature_rows(table, fields, dtype)
    if label is None:
        return rows, None
    kind = table.column(label, label_type, EXPECTED_LABELS)
    return rows, TableRows(table, (table.n_rows,), kind, "y", fields=(label,))


def _label(table: Table, label: Label) -> str | None:
    """Return the name of the column of labels."""
    label = label(table.names) if callable(label) else label
    if label is None or label in table.names:
        return label
    if not isinstance(label, str) or isinstance(number_in(label), int):
        return chosen(table.names, label, "label", table.title)[0]
    raise SourceError(
        f"{table.title} has no column {label!r} of labels, but {shown_names(table.names)}"
        f"{'' if table.named else _NUMBERED}; name it with label=..., or pass y=None if the "
        f"rows have no labels"
    )


def _feature_rows(table: Table, fields: list[str], dtype: np.dtype | None) -> TableRows:
    """Return the rows of columns of numbers, or of one of lists."""
    expected = (
        "features are numbers: leave it out (features=[...]), encode it as numbers, or name it as "
        "the labels (label=...)"
    )
    dtypes = [table.column(name, number_type, expected) for name in fields]
    if table.format.name == "csv":
        wide = dtype is not None and dtype.kind in "iu" and dtype.itemsize == 8
        dtypes = [np.dtype(dtype) if wide else np.dtype(np.float64)]
    width = len(fields)
    lists = [name for name in fields if any(map(list_width, table.kinds(name)))]
    if lists:
        if width > 1:
            raise InvalidDataError(
                f"{table.title}: column {lists[0]!r} holds a list for each row, all of its "
                f"features; name it alone: features={lists[0]!r}"
            )
        kinds = table.kinds(lists[0])
        width = max(map(list_width, kinds))
        if width < 0:  # lists of any length: that of the first row is expected of all
            batches = table.batches(0, {lists[0]: kinds[0]}, 1)
            first = next((batch[0][0].as_py() for batch in batches if batch.num_rows), None)
            width = len(first or ())
        if not width:
            raise InvalidDataError(f"{table.title}: column {lists[0]!r} begins with no list")
    shape = (table.n_rows, width)
    return TableRows(table, shape, np.result_type(*dtypes), "X", fields=tuple(fields))


# --- opening --------------------------------------------------------------------------------------


def _locate(path: Any, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return a file system of pyarrow and the name of the path in it."""
    local = local_path(path)
    if local is not None:
        if storage_options is not None:
            raise InvalidParameterError(
                f"storage_options are for URLs, and {path} is on this machine"
            )
        return fs.LocalFileSystem(), str(local)
    from fsspec.core import url_to_fs  # noqa: PLC0415

    found, name = url_to_fs(str(path), **(storage_options or {}))
    return fs.PyFileSystem(fs.FSSpecHandler(found)), name


def _files(filesystem: Any, name: str, title: str, format: str | None) -> tuple[list[str], bool]:
    """Return the files of a table in order, and whether they are in a folder."""
    with raised_as(SourceError, f"{title} cannot be opened"):
        info = filesystem.get_file_info(name)
        if info.type == fs.FileType.NotFound:
            raise SourceNotFoundError(f"{title} does not exist")
        if info.is_file:
            return [info.path], False
        inside = filesystem.get_file_info(fs.FileSelector(name, recursive=True))
    paths = sorted(i.path for i in inside if i.is_file and is_part(i.path, name))
    if not paths:
        raise SourceError(f"{title} is a folder without tables; expected .parquet, .arrow or .csv")
    kinds = {format_of(path): path for path in reversed(paths)}
    if len(kinds) > 1 and format is None:
        one, other, *_ = sorted(kinds.values())
        raise SourceError(
            f"{title} holds files of several formats, such as {one} and {other}; expected "
            f"one: name a folder or a file inside"
        )
    return paths, True


# --- writing --------------------------------------------------------------------------------------


# Names of scores in columns, where they are others than those of the methods.
_NAMES = {
    "decision_function": "decision",
    "p_values": "p_value",
    "score_samples": "log_density",
    "transform": "component",
}


@contextlib.contextmanager
def writing_table(
    path: Any, rows: RowSource, width: tuple[int, ...], dtype: np.dtype, asked: Any
) -> Iterator[TableWriter]:
    """Yield a table to write to; on leaving without an error it is moved to `path`.

    Parameters
    ----------
    path : path
    rows : RowSource
        The rows that are scored.
    width : tuple of int
    dtype : dtype
    asked : Scoring
        The scores, and the names of the columns that are copied from the table of the rows.

    Raises
    ------
    InvalidParameterError
        If the rows have no such columns.
    """
    keys = rows.keys(asked.keys) if asked.keys else None
    scores = score_columns(asked)
    names = [*asked.keys, *(f"predicted_{n}" if n in asked.keys else n for n in scores)]
    if len(set(names)) < len(names):
        raise InvalidParameterError(
            f"{path} would have the columns {shown_names(names)}; expected different names"
        )
    if rows.holds(Path(path)):
        raise InvalidParameterError(
            f"{path} is among the files of the rows that are scored; name another path"
        )
    with aside(Path(path)) as partial, contextlib.ExitStack() as stack:

        def opened(schema: Any) -> Any:
            return _writer(stack, str(partial), str(path), schema)

        writer = TableWriter((rows.n_rows, *width), names, keys, opened)
        yield writer
        writer.flush()


@dataclass
class TableWriter:
    """A table that is written in the order of its rows.

    Attributes
    ----------
    shape : tuple of int
        Shape of all scores.
    names : list of str
        Names of the columns.
    keys : RowSource or None
        The first columns of each row.
    opened : callable
        Returns what writes tables with a schema.
    """

    shape: tuple[int, ...]
    names: list[str]
    keys: Any
    opened: Callable[[Any], Any]
    _waiting: list[Any] = field(default_factory=list, init=False)
    _writer: Any = field(default=None, init=False)

    def __setitem__(self, rows: slice, scores: np.ndarray) -> None:
        """Write the scores of the next rows."""
        parts = [scores] if scores.ndim == 1 else scores.T
        columns = [pa.array(_in_known_unit(column)) for column in parts]
        if self.keys is not None:
            columns = [*self.keys.read(rows.start, rows.stop).columns, *columns]
        self._waiting.append(pa.table(columns, self.names))
        if sum(map(len, self._waiting)) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait for others."""
        if self._waiting:
            table, self._waiting = pa.concat_tables(self._waiting).combine_chunks(), []
            self._writer = self._writer or self.opened(table.schema)
            self._writer.write_table(table)


def _writer(stack: contextlib.ExitStack, partial: str, path: str, schema: Any) -> Any:
    """Return an object that writes tables to a path, in the format of a name."""
    kind, name = format_of(path), path.lower()
    if kind != "csv":
        new = pq.ParquetWriter if kind == "parquet" else ipc.new_file
        return stack.enter_context(new(partial, schema))
    packing = "gzip" if name.endswith(".gz") else None
    lines = stack.enter_context(pa.output_stream(partial, compression=packing))
    tabs = csv.WriteOptions(delimiter="\t" if ".tsv" in name else ",")
    return stack.enter_context(csv.CSVWriter(lines, schema, write_options=tabs))


def _in_known_unit(scores: np.ndarray) -> np.ndarray:
    """Return dates and durations in a unit that Arrow has; other scores as they are."""
    kind = scores.dtype.kind
    if kind not in "mM":
        return scores
    days = kind == "M" and np.datetime_data(scores.dtype)[0] in "YMWD"
    dtype = np.result_type(scores.dtype, f"{kind}8[{'D' if days else 's'}]")
    return scores.astype(dtype, copy=False)


def score_columns(asked: Any) -> list[str]:
    """Return the names of the columns of scores.

    They are ``label``; or the name of the scores, followed by the class that a column is of, such
    as ``proba_oak``, or else by its number.
    """
    if asked.labels is not None:
        return ["label"]
    method = asked.name or "score"
    name = _NAMES.get(method, method.removeprefix("predict_"))
    if asked.columns is None:
        return [name]
    classes = range(asked.columns) if asked.classes is None else asked.classes
    return [f"{name}_{label}" for label in classes]
