"""Conversion of rows from many sources to a zarr group, a few chunks at a time."""

from __future__ import annotations

import contextlib
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.datasets.sources import open_table
from streamgda.datasets.tables import Block, Revised, Table
from streamgda.datasets.text_options import Columns, given
from streamgda.datasets.writer import created, reopened
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.runtime.parameters import as_integer
from streamgda.storage.opening import writing

if TYPE_CHECKING:
    import zarr

_CHUNK_BYTES = 4 << 20
_NUMBER_KINDS = "biuf"
_TEXT_KINDS = "USOT"  # of objects, those that are strings
_STRICT_TEXT = np.dtypes.StringDType(coerce=False)  # refuses objects that are not strings


def convert(
    source: Any,
    store: Any,
    *,
    labels: Any = None,
    label_column: str | int | None = None,
    columns: Columns = None,
    drop: Columns = None,
    header: bool | None = None,
    delimiter: str | None = None,
    keep_index: bool = False,
    na_values: Any = None,
    keep_default_na: bool = True,
    missing_labels: str = "raise",
    format: str | None = None,
    names: tuple[str, str] = ("X", "y"),
    n_rows: int | None = None,
    dtype: Any = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> zarr.Group:
    """Write rows and labels to a zarr group that every estimator can read in chunks.

    The group (zarr format 3) holds ``X``, rows x features in chunks of whole rows, and ``y``, if
    there are labels. At most one block of the source and one chunk are in memory at a time.

    Parameters
    ----------
    source : path, array, zarr node or store, or iterable of batches
        IDX, ``.npy``, ``.npz``, text (``.csv``, ``.tsv``, ``.txt``, ``.data``, ``.dat``, ``.trn``,
        ``.tst``, ``.test``; fastest with pyarrow; text and IDX also gzip), zarr (path, URL, store,
        node), array, or batches ``(X, y)`` or X. Dimensions after the first are flattened.
    store : path, zarr store or zarr group
        Where to write. A path (a zip file if it ends in ``.zip``, else a directory) appears only
        when it is complete. Other stores are written in place.
    labels : path, array-like, zarr node or False, default=None
        One label per row. If None, the labels of the source; if False, no labels.
    label_column, columns, drop, header, delimiter, keep_index, na_values, keep_default_na, \
missing_labels, format : optional
        See `streamgda.datasets.text_options.TextOptions`; "csv" is the format of text.
    names : (str, str), default=("X", "y")
        Names of the arrays of features and labels in a source with several arrays.
    n_rows : int, default=None
        Total number of rows in the batches, if it is known.
    dtype : dtype, default=None
        Type of the features; only floating types may round. By default float64 for text.
    chunk_rows : int, default=None
        Rows per chunk; about 4 MiB of rows if None.
    overwrite : bool, default=False
        Replace a group of these arrays in `store`. What holds anything else is never replaced.
    progress : callable, default=None
        Called with the rows done and their total (None, or an estimate of text) after each chunk.

    Returns
    -------
    zarr.Group
        The group, open for reading. String labels have zarr's variable-length dtype.

    Raises
    ------
    SourceNotFoundError, SourceError, InvalidDataError
        If a file is missing or damaged, or lengths, widths, types or values do not fit. The message
        names the line of a text.
    InvalidParameterError
        If a parameter is invalid, or if `store` exists and `overwrite` is not set.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> convert(np.eye(2), zarr.storage.MemoryStore(), labels=["setosa", "other"])["y"][:].tolist()
    ['setosa', 'other']
    """
    chosen = (label_column, columns, drop, header, delimiter, keep_index)
    text = given(*chosen, na_values, keep_default_na, missing_labels)
    about: Any = {"names": names, "n_rows": n_rows, "dtype": _number_type(dtype), "format": format}
    with contextlib.ExitStack() as stack:
        table = open_table(source, labels, stack, **about, **text)
        layout = functools.partial(_layout, dtype=about["dtype"], chunk_rows=chunk_rows)
        return _convert(table, layout, store, overwrite, (source, labels), progress)


def _layout(
    table: Table, dtype: np.dtype | None, chunk_rows: int | None
) -> tuple[list[np.dtype], int]:
    """Return the types of the arrays to write, and their rows per chunk."""
    if not table.n_features:
        raise InvalidDataError("the rows have no features; expected at least one")
    if not _is_number_type(table.dtype):
        raise InvalidDataError(f"features of dtype {table.dtype}, expected numbers")
    dtypes = [dtype or table.dtype.newbyteorder("=")]
    if table.label_dtype is not None:
        dtypes.append(_label_dtype(table.label_dtype))
    if chunk_rows is None:
        chunk_rows = max(1, _CHUNK_BYTES // (table.n_features * dtypes[0].itemsize))
    chunk_rows = as_integer("chunk_rows", chunk_rows, "an integer >= 1", 1)
    return dtypes, min(chunk_rows, table.n_rows or chunk_rows)


def _convert(
    table: Table,
    layout: Callable[[Table], tuple[list[np.dtype], int]],
    store: Any,
    overwrite: bool,
    sources: Iterable[Any],
    progress: Callable[[int, int | None], object] | None,
) -> zarr.Group:
    """Write a table; write it again if the rows are not what the table says."""
    layout(table)  # refuses a table before anything is written
    with created(store, overwrite, sources) as group:
        while True:
            try:
                _write(table, group, *layout(table), progress, store)
                break
            except Revised as revised:
                table = replace(revised.table, n_rows=table.n_rows)
    if table.note is not None:
        warnings.warn(table.note, stacklevel=3)
    return reopened(store)


def _write(
    table: Table,
    group: zarr.Group,
    dtypes: list[np.dtype],
    chunk_rows: int,
    progress: Callable[[int, int | None], object] | None,
    store: Any,
) -> None:
    blocks = table.blocks(-(-chunk_rows // table.unit) * table.unit)
    chunks = _chunks(blocks, chunk_rows, dtypes)
    first = next(chunks, None)
    if first is not None:
        chunk_rows = len(first[0])  # shorter if it is the only one
        chunks = itertools.chain([first], chunks)
    arrays = _create(table, group, dtypes, chunk_rows, store)
    done = 0
    for chunk in chunks:
        start, done = done, done + len(chunk[0])
        if table.n_rows is not None and done > table.n_rows:
            raise InvalidDataError(
                f"expected {table.n_rows} rows, but the source has {done} or more"
            )
        with writing(store):
            for array, values in zip(arrays, chunk, strict=True):
                if table.n_rows is None:
                    array.resize((done, *array.shape[1:]))
                array[start:done] = values
        if progress is not None:
            progress(done, _total(table, done))
    if table.n_rows is not None and done < table.n_rows:
        raise InvalidDataError(f"expected {table.n_rows} rows, but the source has only {done}")


def _create(
    table: Table, group: zarr.Group, dtypes: list[np.dtype], chunk_rows: int, store: Any
) -> list[zarr.Array]:
    """Create the arrays X and y, or replace those of another description of the table."""
    shapes = [(table.n_features,), ()]
    with writing(store):
        arrays = [
            group.create_array(
                name,
                shape=(table.n_rows or 0, *shape),
                chunks=(chunk_rows, *shape),
                dtype=str if dtype.kind == "T" else dtype,
                overwrite=True,
            )
            for name, shape, dtype in zip("Xy", shapes, dtypes, strict=False)
        ]
        if table.feature_names is not None:
            arrays[0].attrs["feature_names"] = list(table.feature_names)
        if table.missing_label is not None:
            arrays[1].attrs["missing_label"] = table.missing_label
    return arrays


def _total(table: Table, done: int) -> int | None:
    """Return the number of rows of a table, or an estimate; None if nothing is known."""
    share = table.fraction() if table.fraction is not None else 0.0
    if table.n_rows is not None or not share:
        return table.n_rows
    return max(done, round(done / share))


def _chunks(blocks: Iterable[Block], rows: int, dtypes: list[np.dtype]) -> Iterator[Block]:
    """Regroup blocks of any size into chunks of `rows` rows; the last may have fewer."""
    chunk: Block = ()
    filled = done = 0
    for block in blocks:
        taken = 0
        while taken < len(block[0]):
            if not filled:  # a new array, because a store in memory may keep it
                chunk = tuple(
                    np.empty((rows, *part.shape[1:]), dtype)
                    for part, dtype in zip(block, dtypes, strict=True)
                )
            count = min(rows - filled, len(block[0]) - taken)
            for out, part in zip(chunk, block, strict=True):
                out[filled : filled + count] = _cast(part[taken : taken + count], out.dtype, done)
            taken, filled, done = taken + count, filled + count, done + count
            if filled == rows:
                yield chunk
                filled = 0
    if filled:
        yield tuple(part[:filled] for part in chunk)


def _cast(values: np.ndarray, dtype: np.dtype, row: int) -> np.ndarray:
    """Cast values, which start at `row`, to a type; only floating types may round."""
    if values.dtype == dtype:
        return values
    if dtype.kind == "T" and values.dtype.kind in _TEXT_KINDS:
        with contextlib.suppress(ValueError):
            return values.astype(_STRICT_TEXT)
    elif dtype.kind != "T" and values.dtype.kind in _NUMBER_KINDS:
        with np.errstate(all="ignore"):
            cast = values.astype(dtype)
            kept = np.isfinite(cast) == np.isfinite(values) if dtype.kind == "f" else cast == values
        if kept.all():
            return cast
    raise InvalidDataError(
        f"rows {row} to {row + len(values) - 1} hold values ({values.dtype}) that are not "
        f"{'strings' if dtype.kind == 'T' else f'{dtype} without loss'}"
    )


def _number_type(wanted: Any) -> np.dtype | None:
    if wanted is None:
        return None
    try:
        dtype = np.dtype(wanted)
    except TypeError:
        raise InvalidParameterError(f"unknown dtype {wanted!r}") from None
    if not _is_number_type(dtype):
        raise InvalidParameterError(f"dtype must be bool, integer or floating, not {dtype}")
    return dtype.newbyteorder("=")


def _label_dtype(found: np.dtype) -> np.dtype:
    if found.kind in _TEXT_KINDS:
        return np.dtypes.StringDType()
    if not _is_number_type(found):
        raise InvalidDataError(f"labels of dtype {found}, expected numbers or strings")
    return found.newbyteorder("=")


def _is_number_type(dtype: np.dtype) -> bool:
    return dtype.kind in _NUMBER_KINDS and dtype.itemsize <= 8
