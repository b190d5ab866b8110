"""Tables as destinations of scores: Parquet, Arrow or text, beside key columns.

A table is moved into place when it is complete. It is not resumed: a run that was stopped leaves
the path as it was, and starts again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.rows.sources import RowSource
from streamgda.rows.table_files import format_of, shown_names, tables_library
from streamgda.storage.opening import local_path
from streamgda.storage.replacing import replacing

GROUP_ROWS = 1 << 16  # that are written together, at least: row groups of Parquet

# Names of scores in columns, where they are others than those of the methods.
_NAMES = {
    "decision_function": "decision",
    "p_values": "p_value",
    "score_samples": "log_density",
    "transform": "component",
}


def is_table_path(out: Any) -> bool:
    """Return whether scores go to a table, by the name of the path."""
    path = local_path(out)
    return path is not None and format_of(str(path)) is not None


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
    MissingLibraryError
        If pyarrow is not installed.
    """
    tables_library(str(path))
    keys = rows.keys(asked.keys) if asked.keys else None
    names = [*asked.keys, *score_columns(asked)]
    if len(set(names)) < len(names) or len(rows.grid.shape) > 1:
        raise InvalidParameterError(
            f"{path} would have the columns {shown_names(names)}, a row for each of the rows of "
            f"shape {rows.grid.shape}; expected different names, and rows in one dimension"
        )
    if rows.holds(Path(path)):
        raise InvalidParameterError(f"{path} holds the rows that are scored; name another path")
    with replacing(Path(path)) as partial, contextlib.ExitStack() as stack:

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

    def __setitem__(self, box: tuple[slice], scores: np.ndarray) -> None:
        """Write the scores of the next rows."""
        import pyarrow as pa  # noqa: PLC0415

        parts = [scores] if scores.ndim == 1 else scores.T
        columns = [pa.array(_in_known_unit(column)) for column in parts]
        if self.keys is not None:
            columns = [*self.keys.read(box[0].start, box[0].stop).columns, *columns]
        self._waiting.append(pa.table(columns, self.names))
        if sum(map(len, self._waiting)) >= GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait for others."""
        import pyarrow as pa  # noqa: PLC0415

        if self._waiting:
            table, self._waiting = pa.concat_tables(self._waiting).combine_chunks(), []
            self._writer = self._writer or self.opened(table.schema)
            self._writer.write_table(table)


def _writer(stack: contextlib.ExitStack, partial: str, path: str, schema: Any) -> Any:
    """Return an object that writes tables to a path, in the format of a name."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.csv as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    kind, name = format_of(path), path.lower()
    if kind != "csv":
        new = pq.ParquetWriter if kind == "parquet" else pa.ipc.new_file
        return stack.enter_context(new(partial, schema))
    packing = "gzip" if name.endswith(".gz") else None
    lines = stack.enter_context(pa.output_stream(partial, compression=packing))
    tabs = pc.WriteOptions(delimiter="\t" if ".tsv" in name else ",")
    return stack.enter_context(pc.CSVWriter(lines, schema, write_options=tabs))


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
