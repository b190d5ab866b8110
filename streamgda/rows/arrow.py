"""Columns of tables in files that pyarrow reads, read forwards in batches."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError, SourceError
from streamgda.rows.arrow_files import Table, shown_names
from streamgda.rows.arrow_formats import Columns
from streamgda.rows.arrow_types import as_label_array, as_matrix, label_type, number_type
from streamgda.rows.forward import ForwardRows

_BLOCK_BYTES = 1 << 23  # of rows that are decoded at a time
_BLOCK_ROWS = 1 << 16
_DECODED_BYTES = 16  # of a number and its place in a dictionary, at least
_REFERENCE_BYTES = 1_000_000  # of a pickle that is sent with each task
_POOL_BYTES = 1 << 25  # that the allocator of pyarrow keeps for later
_SKIPPED_BYTES = 1 << 29  # rows that are read to get at others: workers would repeat that


@dataclass(frozen=True, repr=False)
class ArrowRows(ForwardRows):
    """Columns of a table: a matrix of features, or a column of labels.

    Attributes
    ----------
    values : Table
    fields : tuple of str
        Names of the columns.
    """

    fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return the path, the shape and the first names of the columns."""
        what = f"shape={self.shape}, dtype={self.dtype}"
        return f"ArrowRows({self.values.title!r}, {what}, columns=[{shown_names(self.fields)}])"

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
        return self.fields if self.ndim == 2 else None

    @cached_property
    def shareable(self) -> bool:
        """True if other processes can open the files and get at rows without reading many more."""
        skipped = self.values.largest_piece * self.row_bytes
        return skipped <= _SKIPPED_BYTES and len(pickle.dumps(self.values)) < _REFERENCE_BYTES

    def keys(self, names: Sequence[str]) -> KeyRows:
        """Return a source of other columns of the table, of any type."""
        for name in names:
            if name not in self.values.names:
                raise InvalidParameterError(
                    f"{self.values.title} has no column {name!r} for keys, but "
                    f"{shown_names(self.values.names)}"
                )
        shape = (self.n_rows, len(names))
        dtype = np.dtype(object)
        return KeyRows(self.values, shape, dtype, "keys", start=self.start, fields=tuple(names))

    def holds(self, path: Path) -> bool:
        """Return whether the rows are in this file, which must not be replaced."""
        return path.resolve() in (Path(file.path).resolve() for file in self.values.files)

    def place(self, row: int, column: int | None = None) -> str:
        """Return the name, and the file and the row group that hold the row."""
        where = self.values.place(row)
        named = "" if column is None or self.ndim == 1 else f", column {self.fields[column]!r}"
        return f"{self.name}: {where}{named}"

    @property
    def _block_rows(self) -> int:
        return max(1, min(_BLOCK_ROWS, _BLOCK_BYTES // self._decoded_bytes))

    @property
    def _decoded_bytes(self) -> int:
        """Bytes of a row while it is decoded: narrow numbers are stored as wider ones."""
        return max(self.row_bytes, _DECODED_BYTES * len(self.fields))

    def reading_bytes(self, n_rows: int) -> int:
        """Return the bytes in flight while `n_rows` are processed and as many are read ahead."""
        decoding = self.values.format.decoding_bytes(
            len(self.fields), self.row_bytes, self.values.largest_piece
        )
        kept = _POOL_BYTES if self.ndim == 2 else 0
        return (
            super().reading_bytes(n_rows) + 3 * self._block_rows * self.row_bytes + decoding + kept
        )

    def _origin(self, row: int) -> int:
        return self.values.origin(row)

    def _blocks(self, start: int) -> Iterator[np.ndarray]:
        assert self.dtype is not None
        numeric = self.ndim == 2
        columns = Columns(list(self.fields), self._block_rows, numeric)
        for batch in self.values.batches(start, columns):
            yield as_matrix(batch.columns, self.dtype) if numeric else as_label_array(batch[0])


@dataclass(frozen=True, repr=False)
class KeyRows(ArrowRows):
    """Columns of a table as they are stored: slabs are tables of pyarrow."""

    def _blocks(self, start: int) -> Iterator[Any]:
        return self.values.batches(start, Columns(list(self.fields), self._block_rows, False))

    def _joined(self, parts: list[Any]) -> Any:
        import pyarrow as pa  # noqa: PLC0415

        return pa.Table.from_batches(parts)


def open_table(
    path: Any,
    X: str,
    y: str | None,
    *,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    missing: str = "error",
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[ArrowRows, ArrowRows | None]:
    """Return the columns of features of a table, and that of labels or None.

    Parameters and errors are those of `streamgda.open_store`.
    """
    if X != "X":
        raise InvalidParameterError(
            f"X={X!r} names an array of zarr, and {path} is a table; name its columns with features"
        )
    table = Table.of(path, storage_options)
    label = y if label is None else label
    if label is not None and label not in table.names:
        raise SourceError(
            f"{path} has no column {label!r} of labels, but {shown_names(table.names)}; name it "
            f"with label=..., or pass y=None if the rows have no labels"
        )
    if features is None:
        fields = [name for name in table.names if name != label]
    else:
        fields = [features] if isinstance(features, str) else list(features)
    if not fields or len(set(fields)) < len(fields) or label in fields:
        raise InvalidParameterError(
            f"features are {shown_names(fields)}, labels {label!r}, and {path} has the columns "
            f"{shown_names(table.names)}; expected different names, at least one of a feature"
        )
    number = (
        "features are numbers: leave it out (features=[...]), encode it as numbers, or name it as "
        "the labels (label=...)"
    )
    dtypes = [table.column(name, number_type, number) for name in fields]
    dtypes += [np.dtype(np.float64)] * table.format.guessed
    shape = (table.n_rows, len(fields))
    rows = ArrowRows(table, shape, np.result_type(*dtypes), "X", fields=tuple(fields))
    if label is None:
        return rows, None
    expected = "class labels of one kind are whole numbers, strings, booleans or dates"
    dtype = table.column(label, label_type, expected)
    return rows, ArrowRows(table, shape[:1], dtype, "y", fields=(label,))
