"""Formats of files of tables: Parquet, Arrow and text, as pyarrow reads them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, ClassVar, NamedTuple

from streamgda.errors import SourceError
from streamgda.runtime import threads

_BUFFER = 1 << 16  # bytes of Parquet that are read from a column at a time
_PAGE = 1 << 20  # bytes of a page of Parquet, or of its dictionary, as writers cut them
_TEXT_BYTES = 40 << 20  # of blocks of text that are read ahead and parsed
_SNIFFED = 1 << 16  # bytes that hold the first line of a text
_DELIMITERS = ",;\t|"

Pieces = Generator[Iterator[Any]]  # the record batches of each piece of a file


class FileContents(NamedTuple):
    """Contents of a file.

    Attributes
    ----------
    sizes : list of int
        Rows of its pieces: reading starts with the first row of one of them.
    schema : pyarrow.Schema
    """

    sizes: list[int]
    schema: Any


class TableFile(NamedTuple):
    """A file of a table.

    Attributes
    ----------
    path : str
    sizes : list of int
        Rows of its pieces.
    schema : pyarrow.Schema
        The same object for all files with the same columns.
    constants : dict of str to object
        Values of columns that all of its rows share: those of the partition in its path.
    """

    path: str
    sizes: list[int]
    schema: Any
    constants: Mapping[str, Any]


@dataclass(frozen=True)
class Columns:
    """Columns to read.

    Attributes
    ----------
    names : list of str
    n_rows : int
        Rows of a batch, at most.
    numeric : bool
        True if all are numbers; whole ones at the start of a text may be followed by fractions.
    """

    names: list[str]
    n_rows: int
    numeric: bool


@dataclass(frozen=True)
class Format:
    """A format of files."""

    name: ClassVar[str]
    piece: ClassVar[str] = ""  # name of a piece in error messages, if a file has several
    guessed: ClassVar[bool] = False  # True if types are those of the first rows of a file

    def for_dataset(self) -> Any:
        """Return the format as `pyarrow.dataset` knows it."""
        return self.name

    def contents(self, fragment: Any, filesystem: Any) -> FileContents:
        """Return the contents of a fragment of a dataset."""
        raise NotImplementedError

    def read(self, file: TableFile, filesystem: Any, first: int, columns: Columns) -> Pieces:
        """Yield the record batches of each piece of a file from the first on."""
        raise NotImplementedError

    @classmethod
    def writer(cls, path: str, name: str, schema: Any) -> AbstractContextManager[Any]:
        """Return a context with an object that writes tables to a path.

        Parameters
        ----------
        path, name : str
            Where to write, and the name of the file, which may say more about the format.
        schema : pyarrow.Schema
        """
        raise NotImplementedError

    def decoding_bytes(self, n_columns: int, row_bytes: int, largest: int) -> int:
        """Return the bytes that decoding takes beside the batch that it yields.

        Parameters
        ----------
        n_columns : int
        row_bytes : int
        largest : int
            Rows of the largest piece.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Parquet(Format):
    """Parquet: a piece is a row group, of which each column is decoded page by page."""

    name = "parquet"
    piece = "row group"

    def contents(self, fragment: Any, filesystem: Any) -> FileContents:
        """Return the contents as the end of the file describes them."""
        groups = fragment.metadata
        sizes = [groups.row_group(number).num_rows for number in range(groups.num_row_groups)]
        return FileContents(sizes, fragment.physical_schema)

    def read(self, file: TableFile, filesystem: Any, first: int, columns: Columns) -> Pieces:
        """Yield the record batches of each row group."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        options = {"columns": columns.names, "use_threads": threads.n_threads() > 1}
        with (
            filesystem.open_input_file(file.path) as opened,
            # Buffers of a few pages, where whole row groups would be read by default.
            pq.ParquetFile(opened, pre_buffer=False, buffer_size=_BUFFER) as groups,
        ):
            for group in range(first, groups.num_row_groups):
                yield groups.iter_batches(columns.n_rows, row_groups=[group], **options)

    @classmethod
    def writer(cls, path: str, name: str, schema: Any) -> AbstractContextManager[Any]:
        """Return a context with a writer of row groups."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        return pq.ParquetWriter(path, schema)

    def decoding_bytes(self, n_columns: int, row_bytes: int, largest: int) -> int:
        """Return the bytes of a page, compressed and not, and of a dictionary for each column."""
        return min(3 * largest * row_bytes, 4 * _PAGE * n_columns) + _BUFFER * n_columns


@dataclass(frozen=True)
class Arrow(Format):
    """Arrow or Feather: a piece is a record batch, which is decoded as a whole."""

    name = "ipc"
    piece = "record batch"

    def contents(self, fragment: Any, filesystem: Any) -> FileContents:
        """Return the contents; a column of each record batch is decoded to count its rows."""
        with self._opened(fragment.path, filesystem, [0]) as batches:
            numbers = range(batches.num_record_batches)
            sizes = [batches.get_batch(number).num_rows for number in numbers]
        return FileContents(sizes, fragment.physical_schema)

    def read(self, file: TableFile, filesystem: Any, first: int, columns: Columns) -> Pieces:
        """Yield slices of each record batch."""
        n_rows, fields = columns.n_rows, map(file.schema.get_field_index, columns.names)
        with self._opened(file.path, filesystem, [*fields]) as batches:
            for number in range(first, batches.num_record_batches):
                batch = batches.get_batch(number)
                yield (batch[start : start + n_rows] for start in range(0, len(batch), n_rows))
                del batch

    @contextlib.contextmanager
    def _opened(self, path: str, filesystem: Any, fields: list[int]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415

        options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=threads.n_threads() > 1)
        with (
            filesystem.open_input_file(path) as opened,
            pa.ipc.open_file(opened, options=options) as file,
        ):
            yield file

    @classmethod
    def writer(cls, path: str, name: str, schema: Any) -> AbstractContextManager[Any]:
        """Return a context with a writer of record batches."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.ipc.new_file(path, schema)

    def decoding_bytes(self, n_columns: int, row_bytes: int, largest: int) -> int:
        """Return the bytes of a record batch, compressed and decompressed."""
        return 2 * largest * row_bytes


@dataclass(frozen=True)
class Text(Format):
    """Text: a file is one piece, whose first line names the columns.

    Attributes
    ----------
    delimiter : str
    """

    delimiter: str = ","

    name = "csv"
    guessed = True

    @classmethod
    def like(cls, path: str, filesystem: Any) -> Text:
        """Return the format of a file, whose first line has most of its delimiter.

        Raises
        ------
        SourceError
            If the first line holds numbers, which are no names.
        """
        with filesystem.open_input_stream(path, compression="detect") as opened:
            start = opened.read(_SNIFFED)
        line = start.decode("utf-8-sig", "replace").partition("\n")[0]
        delimiter = max(_DELIMITERS, key=line.count)
        numbers = [name for name in line.split(delimiter) if _is_number(name)]
        if numbers:
            raise SourceError(
                f"{path}: the first line holds numbers, such as {numbers[0].strip()}; expected the "
                f"names of the columns. `streamgda convert` reads tables without a header"
            )
        return cls(delimiter)

    def for_dataset(self) -> Any:
        """Return the format as `pyarrow.dataset` knows it."""
        import pyarrow.csv as pc  # noqa: PLC0415
        import pyarrow.dataset as ds  # noqa: PLC0415

        return ds.CsvFileFormat(parse_options=pc.ParseOptions(delimiter=self.delimiter))

    def contents(self, fragment: Any, filesystem: Any) -> FileContents:
        """Return the contents; rows are counted."""
        return FileContents([fragment.count_rows()], fragment.physical_schema)

    def read(self, file: TableFile, filesystem: Any, first: int, columns: Columns) -> Pieces:
        """Yield the record batches of the file, in blocks of the default size."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.csv as pc  # noqa: PLC0415

        kinds = {name: file.schema.field(name).type for name in columns.names}
        if columns.numeric:
            whole = [name for name, kind in kinds.items() if pa.types.is_integer(kind)]
            kinds |= dict.fromkeys(whole, pa.float64())
        with (
            filesystem.open_input_stream(file.path, compression="detect") as opened,
            pc.open_csv(
                opened,
                parse_options=pc.ParseOptions(delimiter=self.delimiter),
                convert_options=pc.ConvertOptions(
                    column_types=kinds, include_columns=columns.names, strings_can_be_null=True
                ),
            ) as batches,
        ):
            yield batches

    @classmethod
    @contextlib.contextmanager
    def writer(cls, path: str, name: str, schema: Any) -> Iterator[Any]:
        """Provide a writer of lines, packed if the name says so."""
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.csv as pc  # noqa: PLC0415

        name = name.lower()
        tabs = pc.WriteOptions(delimiter="\t" if ".tsv" in name else ",")
        packing = "gzip" if name.endswith(".gz") else None
        with (
            pa.output_stream(path, compression=packing) as opened,
            pc.CSVWriter(opened, schema, write_options=tabs) as lines,
        ):
            yield lines

    def decoding_bytes(self, n_columns: int, row_bytes: int, largest: int) -> int:
        """Return the bytes of the blocks that are parsed."""
        return _TEXT_BYTES


def _is_number(text: str) -> bool:
    try:
        float(text.strip().strip('"'))
    except ValueError:
        return False
    return True


_FORMATS: dict[str, type[Format]] = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), Parquet),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), Arrow),
    **dict.fromkeys((".csv", ".tsv"), Text),
}


def format_of(name: str) -> type[Format] | None:
    """Return the format of a file by its name; None for names of other files."""
    return _FORMATS.get(PurePath(name.rstrip("/").lower().removesuffix(".gz")).suffix)
