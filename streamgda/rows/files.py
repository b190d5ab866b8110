"""Tables in files by `pyarrow.dataset`: Parquet, Feather and CSV, one file or a folder of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import csv

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    printable,
    raised_as,
)
from streamgda.rows.opening import format_of
from streamgda.rows.source import RowSource
from streamgda.storage.files import aside, file_system

_BATCH_BYTES = 1 << 22  # Rows are decoded by so many bytes, or by whole row groups.
_HELD_BYTES = 1 << 25  # pyarrow holds so much, whatever is read: blocks, buffers, freed memory.
_PIECE_BYTES = 1 << 23  # A request returns so many bytes of a remote file.
_INDEX = ("", "Unnamed: 0")  # pandas writes an index into these columns of CSV.

# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """Files with the same columns, as one table.

    Attributes
    ----------
    path : str
        Without passwords, for errors.
    schema : pyarrow.Schema
        Names of the columns, and the types that hold the values of all files.
    fragments : list of pyarrow.dataset.Fragment
        The files, in the order of their names.
    groups : list of list of int
        Rows of each row group of each file; those of the file, if it is not Parquet.
    filesystem : fsspec file system
    """

    path: str
    schema: Any
    fragments: list[Any]
    groups: list[list[int]]
    filesystem: Any

    @classmethod
    def of(
        cls, path: Any, format: Any = None, storage_options: Mapping[str, Any] | None = None
    ) -> Self:
        """Open a file or a folder; raise SourceNotFoundError, or SourceError if it is none."""
        with raised_as(SourceError, f"{path} cannot be opened"):
            files, name = file_system(path, storage_options)
            try:
                folder = name if files.info(name)["type"] == "directory" else None
            except FileNotFoundError:
                raise SourceNotFoundError(f"{path} does not exist") from None
            paths = sorted(p for p in files.find(name) if format_of(p)) if folder else [name]
            if not paths:
                raise SourceError(f"{path} is a folder without .parquet, .feather or .csv files")
            format = format or format_of(paths[0]) or "parquet"
            if format == "csv":
                format = ds.CsvFileFormat(
                    csv.ParseOptions(delimiter="\t" if ".tsv" in name.lower() else ","),
                    convert_options=csv.ConvertOptions(strings_can_be_null=True),
                )
            about = {"partitioning": folder and "hive", "partition_base_dir": folder}
            dataset = ds.dataset(paths, format=format, filesystem=files, **about)
            fragments = list(dataset.get_fragments())
            schemas = [dataset.schema, *(f.physical_schema for f in fragments)]
            schema = pa.unify_schemas(schemas, promote_options="permissive")
            return cls(printable(path), schema, fragments, [*map(_groups, fragments)], files)

    def with_types(self, kinds: Mapping[str, Any]) -> Self:
        """Return the table with columns that are read as other types."""
        fields = [f.with_type(kinds.get(f.name, f.type)) for f in self.schema]
        return replace(self, schema=pa.schema(fields, self.schema.metadata))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(map(sum, self.groups))

    @property
    def is_text(self) -> bool:
        """True if the files are CSV, whose types are those of the first rows."""
        return isinstance(self.fragments[0].format, ds.CsvFileFormat)

    @property
    def is_remote(self) -> bool:
        """True if the files are elsewhere, and Parquet, and are requested as a whole."""
        return "file" not in self.filesystem.protocol and _is_parquet(self.fragments[0])

    def has_nulls(self, names: Sequence[str]) -> bool:
        """Return whether values of columns may be null; only Parquet says so without reading."""
        if not all(map(_is_parquet, self.fragments)):
            return True
        groups = [f.metadata.row_group(n) for f in self.fragments for n in range(f.num_row_groups)]
        chunks, known = (g.column(n) for g in groups for n in range(g.num_columns)), {*names}
        found = (c.statistics for c in chunks if c.path_in_schema.partition(".")[0] in known)
        whole = sum(each is not None and each.null_count == 0 for each in found)
        return whole < len(groups) * len(names)

    def batches(self, columns: Sequence[str], start: int, row_bytes: int) -> Iterator[Any]:
        """Yield the record batches of columns from a row on."""
        options: dict[str, Any] = {"batch_readahead": 1, "fragment_readahead": 1}
        # pyarrow 26 crashes where a scan of Feather on threads is not read to its end.
        options["use_threads"] = not isinstance(self.fragments[0].format, ds.IpcFileFormat)
        options["batch_size"] = max(1, min(1 << 15, _BATCH_BYTES // max(1, row_bytes)))
        for fragment, sizes in zip(self.fragments, self.groups, strict=True):
            skipped, start = start, max(0, start - sum(sizes))
            if skipped >= sum(sizes):
                continue
            file = fragment
            if _is_parquet(file):
                options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
                    pre_buffer=False,
                    use_buffered_stream=True,
                    buffer_size=1 << 16,
                    page_checksum_verification=True,
                )
                group = int(np.searchsorted(np.cumsum(sizes), skipped, "right"))
                skipped -= sum(sizes[:group])
                file = self._fetched(file) if self.is_remote else file
                file = file.subset(row_group_ids=range(group, len(sizes)))
            for batch in file.to_batches(self.schema, columns=list(columns), **options):
                if batch.num_rows > skipped:
                    yield batch[skipped:]
                skipped = max(0, skipped - batch.num_rows)

    def _fetched(self, fragment: Any) -> Any:
        """Return a fragment of a remote file with all of its bytes in memory."""
        starts = range(0, size := self.filesystem.size(fragment.path), _PIECE_BYTES)
        stops = [min(size, start + _PIECE_BYTES) for start in starts]
        paths = [fragment.path] * len(starts)
        pieces = self.filesystem.cat_ranges(paths, list(starts), stops, on_error="raise")
        whole, keys = pa.BufferReader(b"".join(pieces)), fragment.partition_expression
        return fragment.format.make_fragment(whole, partition_expression=keys)


def _groups(fragment: Any) -> list[int]:
    """Return the rows of each row group of Parquet; those of the file for other formats."""
    if _is_parquet(fragment):
        return [group.num_rows for group in fragment.row_groups]
    return [fragment.count_rows()]


def _is_parquet(fragment: Any) -> bool:
    return isinstance(fragment, ds.ParquetFileFragment)


@dataclass(frozen=True, repr=False)
class TableRows(RowSource):
    """Columns of a table: a matrix of features, or a column of labels.

    A read that begins where the last one ended goes on with it; any other one begins with the row
    group that holds its first row. Rows without a data type are read as tables of pyarrow.

    Attributes
    ----------
    values : Table
    fields : tuple of str
        Names of the columns.
    """

    fields: tuple[str, ...] = ()
    _open: list[Any] = field(default_factory=list, init=False, compare=False)

    def __repr__(self) -> str:
        """Return the path, the shape and the first names of the columns."""
        columns = shown_names(self.fields)
        return f"TableRows({self.values.path!r}, shape={self.shape}, columns=[{columns}])"

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes for pickles, without an open file."""
        return {**vars(self), "_open": []}

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.n_rows

    def __getitem__(self, rows: Any) -> Any:
        """Return rows in memory; all are read for anything but a slice of consecutive ones."""
        if not isinstance(rows, slice) or rows.step not in (None, 1):
            return self[:][rows]
        start, stop, _ = rows.indices(self.n_rows)
        return self.read(start, max(start, stop))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return all rows in memory."""
        return np.asarray(self[:], dtype)

    @property
    def ndim(self) -> int:
        """Number of axes: two for features, one for labels."""
        return len(self.shape)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of features."""
        return self.fields if self.shape[1:] == (len(self.fields),) else None

    def place(self, row: int | None = None, column: int | None = None) -> str:
        """Return the name, with the path; of a value, with its file and its column."""
        if row is None:
            return f"{self.name} ({self.values.path})"
        stops = np.cumsum([sum(sizes) for sizes in self.values.groups])
        file = self.values.fragments[int(np.searchsorted(stops, row, "right"))].path
        names = self.feature_names
        named = f", column {names[column]!r}" if names and column is not None else ""
        return f"{self.name}: {file}{named}"

    @classmethod
    def of_columns(
        cls, table: Table, fields: tuple[str, ...], width: tuple[int, ...], dtype: Any, name: str
    ) -> Self:
        """Return columns of a table; reading them holds twice the largest row group."""
        rows, held = cls(table, (table.n_rows, *width), dtype, name, fields=fields), _HELD_BYTES
        if all(map(_is_parquet, table.fragments)):
            held += 2 * max(map(max, filter(None, table.groups)), default=0) * rows.row_bytes
        if table.is_remote:  # Memory holds a file, its pieces, and the file before.
            held += 3 * max(table.filesystem.size(f.path) for f in table.fragments)
        return replace(rows, held_bytes=held)

    def read(self, start: int, stop: int) -> Any:
        """Return features or labels as an array, keys as a table of pyarrow."""
        stop = min(stop, self.n_rows)
        with raised_as(ReadError, f"{self.place()}: rows {start} to {stop - 1} cannot be read"):
            parts = self._parts(start, stop)
            if self.dtype is None:
                return pa.Table.from_batches(parts)
            rows = [np.empty((0, *self.shape[1:]), self.dtype)]
            for part in parts:
                first = start + sum(map(len, rows))
                rows.append(_labels(part[0]) if self.ndim == 1 else self._matrix(part, first))
            return np.concatenate(rows)

    def _parts(self, start: int, stop: int) -> Iterator[Any]:
        """Yield record batches with rows ``start:stop``, and keep the rest for the next read."""
        at, rest, scan = self._open.pop() if self._open else (-1, None, iter(()))
        if at != start:
            rest, scan = None, self.values.batches(self.fields, start, self.row_bytes)
        while start < stop:
            batch, rest = next(scan, None) if rest is None else rest, None
            if batch is None:
                raise ReadError("it has fewer rows than when it was opened")
            if batch.num_rows > stop - start:
                batch, rest = batch[: stop - start], batch[stop - start :]
            start += batch.num_rows
            yield batch
        if stop < self.n_rows:  # At the end, files are closed.
            self._open.append((stop, rest, scan))

    def _matrix(self, part: Any, first: int) -> np.ndarray:
        """Return a record batch, whose first row has this number, as rows."""
        width = self.shape[1]
        if self.feature_names is not None and not _is_list(part[0].type):
            columns = [column.to_numpy(zero_copy_only=False) for column in part.columns]
            return np.column_stack(columns).astype(self.dtype, copy=False)  # Nulls become NaN.
        sizes = pc.fill_null(pc.list_value_length(part[0]), 0).to_numpy(zero_copy_only=False)
        if (sizes != width).any():
            row = int((sizes != width).argmax())
            raise InvalidDataError(
                f"{self.place()}: row {first + row} has {sizes[row]} values; expected {width}"
            )
        return part[0].flatten().to_numpy(zero_copy_only=False).reshape(-1, width)


def _labels(column: Any) -> np.ndarray:
    """Return labels as an array, in which null ones are None, NaN or NaT."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _labels(column.dictionary_decode())
    if column.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return np.array(column.to_pylist(), object)
    return np.array(column.to_numpy(zero_copy_only=False))  # A view would keep other columns alive.


# --- opening --------------------------------------------------------------------------------------


def _is_list(kind: Any) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def shown_names(names: Sequence[str]) -> str:
    """Return names of columns for an error message; of many, the first ones."""
    return ", ".join(names[:20]) + (f" and {len(names) - 20:,} more" if len(names) > 20 else "")


def _check_names(table: Table, names: Sequence[str]) -> None:
    """Raise InvalidParameterError, which lists the columns, unless each name is that of one."""
    known = {*table.schema.names}
    for name in names:
        if name not in known:
            raise InvalidParameterError(
                f"{table.path} has no column {name!r}; it has {shown_names(table.schema.names)}"
            )


def open_table(
    path: Any,
    *,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    format: Any = None,
    storage_options: Mapping[str, Any] | None = None,
    labelled: bool = True,
) -> tuple[TableRows, TableRows | None]:
    """Return the columns of features of a table, and that of labels or None.

    Other parameters, and errors, are those of `streamgda.open_store`.

    Parameters
    ----------
    labelled : bool
        False for rows without labels.
    """
    table = Table.of(path, format, storage_options)
    columns = table.schema.names
    if labelled and label is None:
        raise InvalidParameterError(
            f"{path} is a table: name its column of labels by label=...; it has "
            f"{shown_names(columns)}"
        )
    labels = [] if label is None else [label]
    drop = [drop] if isinstance(drop, str) else list(drop)
    index = (table.schema.pandas_metadata or {}).get("index_columns", ())
    others = [*labels, *drop, *index, *(_INDEX if table.is_text else ())]
    if features is None:
        features = [name for name in columns if name not in others]
    names = [features] if isinstance(features, str) else list(features)
    _check_names(table, [*names, *drop, *labels])
    if not names or label in names:
        raise InvalidParameterError(
            f"features={names!r} and label={label!r}; expected other columns than that of labels"
        )
    X = _feature_rows(table, names)
    if label is None:
        return X, None
    dtype = _labels(pa.array([], table.schema.field(label).type)).dtype
    return X, TableRows.of_columns(table, (label,), (), dtype, "y")


def keys_of(rows: RowSource, names: Sequence[str]) -> TableRows:
    """Return other columns of the same rows, as they are stored, to be copied beside scores.

    Raises
    ------
    InvalidParameterError
        If the rows are not those of a table.
    """
    if not isinstance(rows, TableRows):
        raise InvalidParameterError(
            f"keys={', '.join(names)} are columns of the table that is scored, and {rows.place()} "
            f"is no table in a file; open one with open_store"
        )
    table = rows.values
    _check_names(table, names)
    # Numbers would lose zeros and digits of texts.
    texts = dict.fromkeys(names, pa.string()) if table.is_text else {}
    return TableRows.of_columns(
        table.with_types(texts), tuple(names), (len(names),), None, rows.name
    )


def _feature_rows(table: Table, names: Sequence[str]) -> TableRows:
    """Return columns of numbers as rows, or one of lists."""
    types = pa.types
    if table.is_text:  # Fractions may follow the integers of the first rows.
        found = {name: table.schema.field(name).type for name in names}
        whole = [n for n, kind in found.items() if types.is_integer(kind) or types.is_null(kind)]
        table = table.with_types(dict.fromkeys(whole, pa.float64()))
    kinds, width = [table.schema.field(name).type for name in names], len(names)
    if width == 1 and _is_list(kinds[0]):
        first = table.fragments[0].head(1, columns=list(names))[names[0]].to_pylist()
        kinds, width = [kinds[0].value_type], len(first[0] or ()) if first else 0
    others = [
        f"{name} ({kind})"
        for name, kind in zip(names, kinds, strict=True)
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))
    ]
    if others or not width:
        raise InvalidDataError(
            f"{table.path} has features that are not numbers: {shown_names(others) or names[0]}; "
            f"name the features, features=[...], or leave others out, drop=[...]. A column of "
            f"lists is all features of its rows"
        )
    dtypes = [np.uint8 if types.is_boolean(k) else k.to_pandas_dtype() for k in kinds]
    dtype = np.result_type(*dtypes)
    if dtype.kind != "f" and table.has_nulls(names):
        dtype = np.dtype(np.float64)  # Integers have no NaN.
    return TableRows.of_columns(table, tuple(names), (width,), dtype, "X")


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableWriter:
    """A table of scores that is written in the order of its rows; the first columns are keys."""

    keys: Any
    schema: Any
    file: Any

    def __setitem__(self, rows: slice, scores: np.ndarray) -> None:
        """Write the scores of the next rows."""
        keys = [] if self.keys is None else self.keys.read(rows.start, rows.stop).columns
        columns = [pa.array(column) for column in np.atleast_2d(scores.T)]
        self.file.write_table(pa.table([*keys, *columns], schema=self.schema))


@contextlib.contextmanager
def writing_table(
    path: Any, rows: RowSource, width: tuple[int, ...], dtype: np.dtype, asked: Any
) -> Iterator[TableWriter]:
    """Yield a Parquet or CSV file to write to, which is moved to `path` if there is no error.

    The columns of scores are ``label``; or the name of the scores, followed by the class that a
    column is of, such as ``proba_oak``, or else by its index.

    Parameters
    ----------
    path : path
    rows : RowSource
        The rows that are scored.
    width : tuple of int
    dtype : dtype
    asked : Scoring
        The scores, and the names of the columns that are copied from the table of the rows.
    """
    name = "log_density" if asked.name == "score_samples" else asked.name or "score"
    name = "label" if asked.labels is not None else name.removeprefix("predict_")
    classes = range(asked.columns or 0) if asked.classes is None else asked.classes
    names = [name] if asked.columns is None else [f"{name}_{label}" for label in classes]
    kind = pa.from_numpy_dtype(dtype)
    fields = [pa.field(f"predicted_{n}" if n in asked.keys else n, kind) for n in names]
    keys = keys_of(rows, asked.keys) if asked.keys else None
    if keys is not None:
        fields = [*map(keys.values.schema.field, keys.fields), *fields]
    schema = pa.schema(fields)
    if len(set(schema.names)) < len(fields):
        raise InvalidParameterError(f"keys={asked.keys!r}; expected different columns")
    writer: Any = csv.CSVWriter if Path(path).suffix.lower() == ".csv" else pq.ParquetWriter
    with aside(Path(path)) as partial, writer(str(partial), schema) as file:
        yield TableWriter(keys, schema, file)
