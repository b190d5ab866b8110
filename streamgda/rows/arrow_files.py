"""Tables in files that pyarrow reads: one file, or a folder of files with the same columns."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MissingLibraryError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    StreamGDAError,
)
from streamgda.rows.arrow_formats import (
    Columns,
    FileContents,
    Format,
    Pieces,
    TableFile,
    Text,
    format_of,
)
from streamgda.rows.arrow_types import common_type
from streamgda.runtime import threads
from streamgda.runtime.extras import require
from streamgda.runtime.retry import brief, is_temporary, with_retries
from streamgda.storage.opening import local_path

_ZARR = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
_SHOWN = 20  # names of columns in an error message


@dataclass(frozen=True)
class Table:
    """Rows of one or more files, numbered from the first row of the first file.

    Attributes
    ----------
    title : str
        The path or URL.
    format : Format
    filesystem : pyarrow.fs.FileSystem
    files : list of TableFile
    """

    title: str
    format: Format
    filesystem: Any
    files: list[TableFile]

    @classmethod
    def of(cls, path: Any, storage_options: Mapping[str, Any] | None = None) -> Table:
        """Open the files at a path or URL.

        Raises
        ------
        SourceNotFoundError
            If the path does not exist.
        SourceError
            If a file cannot be opened.
        MissingLibraryError
            If pyarrow is not installed.
        """
        ds = tables_library(str(path))
        import pyarrow as pa  # noqa: PLC0415

        title = str(path)
        filesystem, name = _locate(path, storage_options)
        paths, folder = _files(filesystem, name, title)
        kind = format_of(paths[0])
        assert kind is not None  # it is that of a table
        with _opening(paths[0]):
            form = Text.like(paths[0], filesystem) if kind is Text else kind()
            dataset = ds.dataset(
                paths,
                format=form.for_dataset(),
                filesystem=filesystem,
                partitioning="hive" if folder else None,
                partition_base_dir=name if folder else None,
            )

        def contents_of(fragment: Any) -> FileContents:
            with _opening(fragment.path):
                return with_retries(lambda: form.contents(fragment, filesystem))

        fragments = list(dataset.get_fragments())
        found = threads.run(contents_of, ((fragment,) for fragment in fragments))
        files: list[TableFile] = []
        schemas: list[Any] = []
        for fragment, contents in zip(fragments, found, strict=True):
            keys = ds.get_partition_keys(fragment.partition_expression)
            fields = {field.name: field for field in dataset.schema if field.name in keys}
            own = [fields.pop(field.name, field) for field in contents.schema]
            schema = pa.schema([*own, *fields.values()])
            schema = next((known for known in schemas if known.equals(schema)), schema)
            schemas = [schema, *(known for known in schemas if known is not schema)]
            files.append(TableFile(fragment.path, contents.sizes, schema, keys))
        return cls(title, form, filesystem, files)

    # --- columns ------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """Names of the columns, in the order of the first file."""
        return list(self.files[0].schema.names)

    def column(
        self, name: str, type_of: Callable[[Any], np.dtype | None], expected: str
    ) -> np.dtype:
        """Return the data type of a column.

        Parameters
        ----------
        name : str
        type_of : callable
            Returns the data type of an Arrow type, or None; see `streamgda.rows.arrow_types`.
        expected : str
            What the column is expected to hold, and what to do if it does not.

        Raises
        ------
        SourceError
            If a file lacks the column.
        InvalidDataError
            If it does not have such a type.
        """
        kinds = []
        first = {id(file.schema): file for file in reversed(self.files)}
        for path, _, schema, _ in reversed(first.values()):
            at = schema.get_all_field_indices(name)
            if len(at) != 1:
                raise SourceError(
                    f"{path} has {len(at) or 'no'} column{'s' * (len(at) > 1)} {name!r}; it has "
                    f"{shown_names(schema.names)}"
                )
            kinds.append(schema.field(at[0]).type)
        dtype = common_type(kinds, type_of)
        if dtype is None:
            found = " and ".join(dict.fromkeys(map(str, kinds)))
            raise InvalidDataError(f"{self.title}: column {name!r} holds {found}; {expected}")
        return dtype

    # --- rows ---------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> np.ndarray:
        """Number of the first row of each piece of each file, and of all rows."""
        return np.cumsum([0, *(size for file in self.files for size in file.sizes)])

    @cached_property
    def _first_pieces(self) -> np.ndarray:
        return np.cumsum([0, *(len(file.sizes) for file in self.files)])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.bounds[-1])

    @property
    def largest_piece(self) -> int:
        """Rows of the largest piece: the most that may be read to get at one of them."""
        return int(np.diff(self.bounds).max(initial=0))

    def origin(self, row: int) -> int:
        """Return the first row of the piece that holds a row."""
        return int(self.bounds[self._piece(row)])

    def place(self, row: int) -> str:
        """Return the file and the piece that hold a row."""
        file = int(np.searchsorted(self._first_pieces, self._piece(row), "right")) - 1
        return self._place(self.files[file], self._piece(row) - int(self._first_pieces[file]))

    def _piece(self, row: int) -> int:
        return int(np.searchsorted(self.bounds, row, "right")) - 1

    def _place(self, file: TableFile, piece: int) -> str:
        return f"{file.path}: {self.format.piece} {piece}" if self.format.piece else file.path

    def batches(self, origin: int, columns: Columns) -> Iterator[Any]:
        """Yield the record batches of columns from the first row of a piece on.

        Raises
        ------
        ReadError
            If a file cannot be read, or has changed.
        """
        first = self._piece(origin)
        for file, start, stop in zip(
            self.files, self._first_pieces, self._first_pieces[1:], strict=False
        ):
            if stop > first:
                yield from self._of_file(file, max(0, first - int(start)), columns)

    def _of_file(self, file: TableFile, first: int, columns: Columns) -> Iterator[Any]:
        """Yield the record batches of a file from a piece on."""
        stored = replace(columns, names=[n for n in columns.names if n not in file.constants])
        pieces = self._constant(file, first, columns)
        if stored.names:
            pieces = self.format.read(file, self.filesystem, first, stored)
        with contextlib.closing(pieces):
            for number, size in enumerate(file.sizes[first:], first):
                found = 0
                try:
                    for batch in next(pieces, ()):
                        found += batch.num_rows
                        yield self._complete(batch, file, columns)
                except (MemoryError, StreamGDAError):
                    raise
                except Exception as error:  # pyarrow and file systems have many kinds
                    if self._remote and is_temporary(error):
                        raise
                    raise ReadError(
                        f"{self._place(file, number)} cannot be read: {brief(error)}"
                    ) from error
                if found != size:
                    raise ReadError(
                        f"{self._place(file, number)} has {found} rows; {size} were expected: it "
                        f"changed after it was opened"
                    )

    @property
    def _remote(self) -> bool:
        return self.filesystem.type_name != "local"

    def _constant(self, file: TableFile, first: int, columns: Columns) -> Pieces:
        """Yield batches without columns, of all pieces from the first on."""
        import pyarrow as pa  # noqa: PLC0415

        for size in file.sizes[first:]:
            starts = range(0, size, columns.n_rows)
            rows = (min(columns.n_rows, size - start) for start in starts)
            yield (pa.record_batch({"": pa.nulls(n)}) for n in rows)

    def _complete(self, batch: Any, file: TableFile, columns: Columns) -> Any:
        """Return a batch with the columns in the order asked for, constant ones too."""
        import pyarrow as pa  # noqa: PLC0415

        def column(name: str) -> Any:
            if name not in file.constants:
                return batch.column(name)
            kind = file.schema.field(name).type
            return pa.repeat(pa.scalar(file.constants[name], kind), batch.num_rows)

        return pa.record_batch([column(name) for name in columns.names], columns.names)


def shown_names(names: Sequence[str]) -> str:
    """Return names of columns for an error message; of many, the first ones."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(str, names[:_SHOWN])) or 'none at all'}{more}"


# --- opening --------------------------------------------------------------------------------------


def is_table(path: Any) -> bool:
    """Return whether a path or URL is that of a table, by its name or the files in its folder."""
    if not isinstance(path, str | os.PathLike):
        return False
    if format_of(str(path)) is not None:
        return True
    local = local_path(path)
    return local is not None and local.is_dir() and _holds_table(local)


def _holds_table(folder: Path) -> bool:
    for _, _, names in os.walk(folder):
        if any(name in _ZARR for name in names):
            return False
        if any(_is_part(name, "") for name in names):
            return True
    return False


def tables_library(path: str) -> Any:
    """Import `pyarrow.dataset`; the error names the extra, and `streamgda convert` for text."""
    try:
        return require("pyarrow.dataset", "arrow", f"tables such as {path}")
    except MissingLibraryError as error:
        if format_of(path) is not Text:
            raise
        raise MissingLibraryError(
            f"{error}; or run `streamgda convert`, which needs none"
        ) from error


def _locate(path: Any, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return a file system of pyarrow and the name of the path in it."""
    from pyarrow import fs  # noqa: PLC0415

    local = local_path(path)
    if local is not None:
        if storage_options is not None:
            raise InvalidParameterError(f"storage_options are for URLs, and {path} is not a URL")
        return fs.LocalFileSystem(), str(local)
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]  # noqa: PLC0415

    found, name = url_to_fs(str(path), **(storage_options or {}))
    return fs.PyFileSystem(fs.FSSpecHandler(found)), name


def _files(filesystem: Any, name: str, title: str) -> tuple[list[str], bool]:
    """Return the files of a table in order, and whether they are in a folder."""
    from pyarrow import fs  # noqa: PLC0415

    with _opening(title):
        info = with_retries(lambda: filesystem.get_file_info(name))
        if info.type == fs.FileType.NotFound:
            raise SourceNotFoundError(f"{title} does not exist")
        if info.is_file:
            return [info.path], False
        inside = with_retries(
            lambda: filesystem.get_file_info(fs.FileSelector(name, recursive=True))
        )
    paths = sorted(i.path for i in inside if i.is_file and _is_part(i.path, name))
    if not paths:
        raise SourceError(f"{title} is a folder without tables; expected .parquet, .arrow or .csv")
    others = [path for path in paths if format_of(path) is not format_of(paths[0])]
    if others:
        raise SourceError(
            f"{title} holds files of several formats, such as {paths[0]} and {others[0]}; expected "
            f"one: name a folder or a file inside"
        )
    return paths, True


def _is_part(path: str, folder: str) -> bool:
    inside = path.removeprefix(folder).strip("/").split("/")
    hidden = any(part.startswith(("_", ".")) for part in inside)
    return not hidden and format_of(path) is not None


@contextlib.contextmanager
def _opening(path: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, StreamGDAError):
        raise
    except FileNotFoundError as error:
        raise SourceNotFoundError(f"{path} does not exist: {brief(error)}") from error
    except Exception as error:  # pyarrow and file systems have many kinds
        raise SourceError(f"{path} cannot be opened: {brief(error)}") from error
