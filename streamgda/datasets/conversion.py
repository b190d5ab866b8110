"""Conversion of rows from many sources to a zarr group, a few chunks at a time."""

from __future__ import annotations

import contextlib
import math
import os
import re
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import zarr

from streamgda.datasets.digits import IdxFile
from streamgda.engine.progress import Progress, reporter
from streamgda.errors import InvalidDataError, InvalidParameterError, SourceError
from streamgda.rows import Rows, as_source, names_of
from streamgda.rows.arrays import CodedLabels, as_slab, distinct, unmasked
from streamgda.rows.in_memory import BackedSparseRows, SparseRows, as_array
from streamgda.rows.labels import are_missing
from streamgda.rows.names import join_names
from streamgda.rows.opening import is_table, refuse_other_kinds, table_files
from streamgda.rows.sources import ForwardRows, RowSource, check_lengths
from streamgda.runtime import threads
from streamgda.runtime.parameters import (
    ColumnNames,
    TableOptions,
    as_integer,
    refuse,
    renamed,
)
from streamgda.runtime.retry import raised_as
from streamgda.storage import opening
from streamgda.storage.files import aside, local_path

_PATH = str | os.PathLike  # type: ignore[type-arg]  # isinstance takes no others
Block = tuple[np.ndarray, ...]  # (X, y), or (X,) without labels

_CHUNK_BYTES = 4 << 20
_WRITTEN_BYTES = 16 << 20  # of chunks that are written at a time, unless one has more
_IDX_BYTES = 1 << 17  # of IDX files that are read at a time
_NUMBER_KINDS = "biuf"
_TEXT_KINDS = "USOT"  # of objects, those that are strings
_TEXT = np.dtypes.StringDType(coerce=False)  # refuses objects that are not strings
_WIDEST = {"i": np.dtype(np.int64), "u": np.dtype(np.int64), "f": np.dtype(np.float64)}
_IDX = re.compile(r"[-.]idx(\d+-[a-z]+)?$")
_ACCEPTED = (
    "IDX files (named like digits.idx or train-images-idx3-ubyte, also with .gz); .npy, .npz; zarr "
    "in a directory or a .zip; or, but not for labels alone, tables: .csv, .tsv, .txt, .data, "
    ".parquet, .arrow, or text of any name with format='csv'"
)


def convert(
    source: Any,
    store: Any,
    *,
    labels: Any = None,
    label: str | int | None = None,
    features: ColumnNames | None = None,
    missing_labels: str = "raise",
    names: tuple[str, str] = ("X", "y"),
    n_rows: int | None = None,
    dtype: Any = None,
    chunk_rows: int | None = None,
    progress: Progress | None = None,
    label_column: str | int | None = None,
    columns: ColumnNames | None = None,
    **table: Unpack[TableOptions],
) -> zarr.Group:
    """Write rows and labels to a zarr group that every estimator can read in chunks.

    The group (zarr format 3) holds ``X``, rows x features in chunks of whole rows, and ``y``, if
    there are labels. A few blocks of the source, and chunks of 16 MiB or one that is larger, are in
    memory at a time: some are written while the next ones are read.

    Parameters
    ----------
    source : path, array, zarr node or store, or iterable of batches
        IDX (also gzip), ``.npy``, ``.npz``, a table that `streamgda.open_store` opens, zarr (path,
        URL, store, node), array, or batches ``(X, y)`` or X. Dimensions after the first are
        flattened.
    store : path, zarr store or zarr group
        Where to write. A path, to a directory that does not exist, appears only when it is
        complete. Other stores are written in place.
    labels : path, array-like, zarr node or False, default=None
        One label per row. If None, the labels of the source; if False, no labels.
    label : str or int, default=None
        Tables: name or number of the column of labels; the last one that is not dropped if None.
    features : str, int or slice, or sequence of them, default=None
        Tables: names or numbers of the columns of features; all if None.
    missing_labels : {"raise", "keep"}, default="raise"
        Tables: refuse a row whose label is missing, or keep it. Labels that are numbers then become
        float64, with NaN where they are missing. Among strings, "" stands for a missing label, as
        the attribute ``missing_label`` of the array says.
    names : (str, str), default=("X", "y")
        Names of the arrays of features and labels in a source with several arrays.
    n_rows : int, default=None
        Total number of rows in the batches, if it is known.
    dtype : dtype, default=None
        Type of the features; only floating types may round. By default float64 for text.
    chunk_rows : int, default=None
        Rows per chunk; about 4 MiB of rows if None.
    progress : bool or callable, default=None
        True shows the progress, as `streamgda.accumulate` does; a callable gets the rows done and
        their total, or None, after each chunk.
    label_column : str or int, default=None
        Deprecated name of `label`.
    columns : str, int or slice, or sequence of them, default=None
        Deprecated name of `features`.
    **table
        Options of tables: `drop` (columns that are left out), and of text `format`, `header`,
        `delimiter`, `na_values`, `keep_default_na`, `encoding`, `decimal` and `comment`; see
        `streamgda.runtime.parameters.TableOptions`.

    Returns
    -------
    zarr.Group
        The group, open for reading. String labels have zarr's variable-length dtype.

    Raises
    ------
    SourceNotFoundError, SourceError, InvalidDataError
        If a file is missing or damaged, if something is at the path, or lengths, widths, types or
        values do not fit. The message names the line of a text.
    InvalidParameterError
        If a parameter is invalid.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> convert(np.eye(2), zarr.storage.MemoryStore(), labels=["setosa", "other"])["y"][:].tolist()
    ['setosa', 'other']
    """
    opening.check_exists(source)
    opening.check_exists(labels)
    wanted = _number_type(dtype)
    if missing_labels not in ("raise", "keep"):
        raise refuse("missing_labels", missing_labels, "'raise' or 'keep'")
    if n_rows is not None:
        n_rows = as_integer("n_rows", n_rows, "an integer >= 0", 0)
    if chunk_rows is not None:
        chunk_rows = as_integer("chunk_rows", chunk_rows, "an integer >= 1", 1)
    place = opening.as_target(store, "store")
    if isinstance(place, Path) and place.suffix == ".zip":
        raise InvalidParameterError(f"store={str(place)!r} is no directory; expected one")
    keep, own = missing_labels == "keep", labels is None
    label = renamed("label_column", label_column, "label", label)
    features = renamed("columns", columns, "features", features)
    options = {"label": label, "features": features, **table}
    given: Any = {name: value for name, value in options.items() if value is not None}
    tabular = isinstance(source, _PATH) and ("format" in given or is_table(source))
    if given and not tabular:
        raise InvalidParameterError(
            f"{' and '.join(given)} given; expected only for tables: .csv, .tsv, .txt, .data, "
            f".parquet, .arrow, or any name with format='csv'"
        )
    batched = not tabular and _are_batches(source)
    with contextlib.ExitStack() as stack:
        if batched:
            if not own and labels is not False:
                raise InvalidParameterError(
                    "labels cannot be given with batches; give batches of (X, y)"
                )
            blocks, feature_names = _of_batches(source, own)
        else:
            if tabular:
                X, y = _columns(source, own, keep, wanted, **given)
            else:
                X, y = _opened(source, names, stack)
            if not own:
                found, beside = (None, None) if labels is False else _opened(labels, names, stack)
                y = found if beside is None else beside
            rows = Rows(_source(X, "X"), None if y is None else _source(y, "y"))
            if n_rows not in (None, rows.X.n_rows):
                raise InvalidDataError(
                    f"n_rows is {n_rows}, but the source has {rows.X.n_rows} rows"
                )
            n_rows, feature_names = rows.X.n_rows, rows.X.feature_names
            blocks = stack.enter_context(contextlib.closing(_slabs(rows, chunk_rows)))
        first = next(blocks)
        dtypes = _stored_types([part.dtype for part in first], wanted, batched)
        if not first[0].shape[1]:
            raise InvalidDataError("the rows have no features; expected at least one")
        if chunk_rows is None:
            chunk_rows = max(1, _CHUNK_BYTES // (first[0].shape[1] * dtypes[0].itemsize))
        row_bytes = first[0].shape[1] * dtypes[0].itemsize
        together = max(1, _WRITTEN_BYTES // (chunk_rows * row_bytes)) * chunk_rows
        chunks = _chunks(chain([first], blocks), min(together, n_rows or together), dtypes)
        del first
        with opening.writing(store), opening.creating(store):
            if isinstance(place, Path):
                place = stack.enter_context(aside(place))
            group = zarr.create_group(place)
        report = stack.enter_context(reporter(progress or False, n_rows, "converting"))
        _write(chunks, group, n_rows, chunk_rows, report, store)
        if feature_names is not None:
            group["X"].attrs["feature_names"] = list(feature_names)
        if tabular and own and keep and dtypes[1].kind == "T":
            group["y"].attrs["missing_label"] = ""
    return opening.open_node(opening.path_of(store) or store)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _IdxRows(ForwardRows):
    """Rows of an `IdxFile`, which may be gzip and is read from its start."""

    @classmethod
    def of(cls, X: IdxFile, name: str) -> _IdxRows:
        """Return a source of the rows."""
        return cls(X, X.shape, X.dtype, name)

    def _origin(self, row: int) -> int:
        return 0

    def _blocks(self, start: int) -> Iterator[np.ndarray]:
        return self.values.blocks(max(1, _IDX_BYTES // max(1, self.row_bytes)))


def _columns(
    path: Any,
    own: bool,
    keep: bool,
    dtype: np.dtype | None,
    label: str | int | None = None,
    **options: Any,
) -> tuple[RowSource, RowSource | None]:
    """Return the rows of a table, and its own labels or None."""
    drop = options.get("drop")
    if label is not None and not own:
        raise InvalidParameterError("label and labels were given; expected one of them")

    def last(names: list[str]) -> str | None:
        dropped = [] if drop is None else table_files(path).chosen(names, drop, "drop", str(path))
        return next((name for name in reversed(names) if name not in dropped), None)

    column = last if own and label is None else label
    X, y = table_files(path).open_table(path, y=None, label=column, dtype=dtype, **options)
    if y is None or y.dtype is None:
        return X, None
    texts = y.dtype.kind not in _NUMBER_KINDS
    kind = _TEXT if texts else np.dtype(np.float64) if keep else y.dtype
    return X, y.map(partial(_stored, texts=texts, keep=keep, title=y.title), kind)


def _stored(labels: Any, first_row: int, texts: bool, keep: bool, title: str) -> np.ndarray:
    """Return labels as they are stored: those that are missing are NaN or empty, or an error."""
    coded = labels if type(labels) is CodedLabels else distinct(np.asarray(labels))
    values, absent = coded.values, are_missing(coded.values)
    missing = absent[coded.codes]
    if not keep and missing.any():
        raise SourceError(
            f"{title}: the label of row {first_row + int(missing.argmax())} is missing; "
            f"missing_labels='keep' keeps such rows"
        )
    if texts:
        words = ["" if gone else str(value) for value, gone in zip(values, absent, strict=True)]
        values = np.array(words, _TEXT)
    elif missing.any():
        values = np.where(absent, np.nan, values).astype(np.float64)
    return values[coded.codes]


def _slabs(rows: Rows, chunk_rows: int | None) -> Generator[Block]:
    """Yield blocks of rows that are opened, in whole chunks, so that these are read once."""
    X, y = rows.X, rows.y
    if len(X.shape) < 2:
        raise InvalidDataError(f"features of shape {X.shape}, expected rows x features")
    if y is not None and (X.n_rows or y.n_rows):  # a source may have no rows
        check_lengths(X, y)
    n = chunk_rows or max(1, _CHUNK_BYTES // max(1, X.row_bytes))
    for slab in rows.slabs(-(-n // X.unit) * X.unit) if X.n_rows else [rows.read(0, 0)]:
        features, *labels = (
            np.asarray(part)
            if type(part) is CodedLabels
            else unmasked(part, source.name, slab.first_row)
            for part, source in zip([slab.X, *slab.beside], rows.sources, strict=True)
        )
        yield features.reshape(len(features), X.row_elements), *labels


def _source(values: Any, name: str) -> RowSource:
    """Return a source of rows or labels whose number is known."""
    if isinstance(values, IdxFile):
        return _IdxRows.of(values, name)
    if name == "y" and not (isinstance(values, RowSource) or hasattr(values, "chunks")):
        values = as_slab(values, name)
    source = as_source(values, name)
    if isinstance(source, SparseRows | BackedSparseRows):
        raise InvalidDataError(
            f"{name} is sparse, and arrays of zarr are dense; pass batches of dense rows, such as "
            f"(X[n : n + 1000].toarray() for n in range(0, X.shape[0], 1000))"
        )
    unknown = math.isnan(source.n_rows)  # as of frames of dask
    return as_source(source.values.compute(), name) if unknown else source


def _of_batches(batches: Iterable[Any], labelled: bool) -> tuple[Iterator[Block], Any]:
    """Return the blocks of batches ``(X, y)`` or X, all like the first, and names of features.

    Unless `labelled`, the labels are left out.
    """
    waiting = iter(batches)
    head = next(waiting, None)
    if head is None:
        raise InvalidDataError(
            "no batches; expected at least one, which determines the number of features"
        )
    first, names = _batch(head, labelled)

    def others() -> Iterator[Block]:
        for batch in waiting:
            block, found = _batch(batch, labelled, first)
            join_names(names, found, "the first batch", InvalidDataError)
            yield block

    return chain([first], others()), names


def _batch(batch: Any, labelled: bool, first: Block = ()) -> tuple[Block, Any]:
    """Return the arrays of a batch, and the names of its features or None."""
    parts = batch if isinstance(batch, tuple | list) else (batch,)
    named = [(name, part) for name, part in zip("Xy-", parts, strict=False) if part is not None]
    block = tuple(unmasked(as_array(part, name), name) for name, part in named)
    X, *labels = block
    fits = X.ndim == 2 and len(block) < 3 and all(y.shape == X.shape[:1] for y in labels)
    block = block if labelled else block[:1]
    if not fits or (first and (len(block), X.shape[1]) != (len(first), first[0].shape[1])):
        shapes, before = ([part.shape for part in found] for found in (block, first))
        raise InvalidDataError(
            f"a batch with arrays of shapes {shapes}{f' after one of {before}' if first else ''}; "
            f"expected (X, y) or X alike, X of shape (rows, features) and y of shape (rows,)"
        )
    return block, names_of(parts[0])


def _opened(source: Any, names: tuple[str, str], stack: contextlib.ExitStack) -> tuple[Any, Any]:
    """Return the rows of a source, and the labels beside them, or None."""
    path = local_path(source)
    suffix = None if path is None else path.suffix.lower()
    stored = isinstance(source, zarr.abc.store.Store) or (
        path is None and isinstance(source, _PATH)
    )
    if stored or suffix == ".zip" or (path is not None and path.is_dir()):
        opened = stack.enter_context(opening.opened_node(source))
    elif path is None:
        opened = source
    elif _IDX.search(path.name.lower().removesuffix(".gz")):
        opened = IdxFile(path)
    elif suffix in (".npy", ".npz"):
        try:  # NumPy leaves a file open if it fails to read it
            opened = (
                np.lib.format.open_memmap(path, mode="r")
                if suffix == ".npy"
                else np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
            )
        except (EOFError, ValueError, zipfile.BadZipFile) as error:
            raise SourceError(f"{path} is not a {suffix} file of numbers: {error}") from error
    else:
        refuse_other_kinds(path)
        raise SourceError(f"the name of {path} does not identify its format; expected {_ACCEPTED}")
    if hasattr(opened, "shape") or not hasattr(opened, "keys"):
        return opened, None
    members = list(opened.keys())
    if names[0] not in members:
        raise SourceError(f"{source} has no array {names[0]!r}; it holds {sorted(members)}")
    return _member(source, opened, names[0]), (
        _member(source, opened, names[1]) if names[1] in members else None
    )


def _member(source: Any, opened: Any, name: str) -> Any:
    """Return the array with this name in a group or an archive."""
    with raised_as(SourceError, f"{source}: cannot read the array {name!r}"):
        found = opened[name]
        if not hasattr(found, "shape"):
            raise TypeError("it is a group")
    return found


def _are_batches(source: Any) -> bool:
    stored = isinstance(source, zarr.Array | zarr.Group | zarr.abc.store.Store)
    plain = not (stored or isinstance(source, _PATH) or hasattr(source, "shape"))
    return plain and isinstance(source, Iterable)


# --- writing ----------------------------------------------------------------------------------


def _stored_types(
    found: Sequence[np.dtype], wanted: np.dtype | None, batched: bool
) -> list[np.dtype]:
    """Return the types of the arrays to write.

    Numbers as labels of batches become int64 or float64, because a later batch may have values that
    do not fit the type of the first.
    """
    stored: list[np.dtype] = []
    expected = (("features", "numbers"), ("labels", "numbers or strings"))
    for dtype, (what, kinds) in zip(found, expected, strict=False):
        if what == "labels" and dtype.kind in _TEXT_KINDS:
            stored.append(_TEXT)
            continue
        if not _is_number_type(dtype):
            raise InvalidDataError(f"{what} of dtype {dtype}, expected {kinds}")
        widened = what == "labels" and batched and dtype != np.uint64
        stored.append((widened and _WIDEST.get(dtype.kind)) or dtype.newbyteorder("="))
    return [wanted or stored[0], *stored[1:]]


def _write(
    chunks: Iterable[Block],
    group: zarr.Group,
    n_rows: int | None,
    chunk_rows: int,
    report: Callable[[int], object],
    store: Any,
) -> None:
    """Write chunks to arrays, which grow unless the number of rows is known.

    Some chunks are encoded and written while the next ones are read.
    """
    arrays: list[Any] = []
    written = reported = 0

    def report_chunks() -> None:
        nonlocal reported
        while reported < written:
            reported = min(reported + chunk_rows, written)
            report(reported)

    def write(chunk: Block, start: int, done: int) -> None:
        nonlocal written
        with opening.writing(store):
            for name, values in zip("Xy", chunk, strict=False) if not arrays else ():
                array = group.create_array(
                    name,
                    shape=(n_rows or 0, *values.shape[1:]),
                    chunks=(min(len(values), chunk_rows) or chunk_rows, *values.shape[1:]),
                    dtype=str if values.dtype.kind == "T" else values.dtype,
                    config=opening.WHOLE,
                )
                arrays.append(array)
            for array, values in zip(arrays, chunk, strict=True):
                if n_rows is None:
                    array.resize((done, *array.shape[1:]))
                array[start:done] = values
        written = done

    def placed() -> Iterator[tuple[Block, int, int]]:
        done = 0
        for chunk in chunks:
            start, done = done, done + len(chunk[0])
            if n_rows is not None and done > n_rows:
                raise InvalidDataError(f"expected {n_rows} rows, but the source has {done} or more")
            yield chunk, start, done
            report_chunks()
        if n_rows is not None and done < n_rows:
            raise InvalidDataError(f"expected {n_rows} rows, but the source has only {done}")

    threads.in_background(write, placed())
    report_chunks()


def _chunks(blocks: Iterable[Block], n: int, dtypes: list[np.dtype]) -> Iterator[Block]:
    """Yield chunks of n rows, of which the last, or the only one, may have fewer."""
    chunk: Block = ()
    filled = done = 0
    for block in blocks:
        taken = 0
        while taken < len(block[0]) or not chunk:
            if not filled:  # a new array, because a store in memory may keep it
                pairs = zip(block, dtypes, strict=True)
                chunk = tuple(np.empty((n, *part.shape[1:]), dtype) for part, dtype in pairs)
            count = min(n - filled, len(block[0]) - taken)
            for out, part in zip(chunk, block, strict=True):
                out[filled : filled + count] = _cast(part[taken : taken + count], out.dtype, done)
            taken, filled, done = taken + count, filled + count, done + count
            if filled == n:
                yield chunk
                filled = 0
    if filled or not done:
        yield tuple(part[:filled] for part in chunk)


def _cast(values: np.ndarray, dtype: np.dtype, row: int) -> np.ndarray:
    """Cast values, which start at `row`, to a type; only floating types may round."""
    if values.dtype == dtype:
        return values
    where = f"rows {row} to {row + len(values) - 1} hold values ({values.dtype})"
    if dtype.kind == "T" and values.dtype.kind in _TEXT_KINDS:
        with contextlib.suppress(ValueError):
            return values.astype(_TEXT)
    elif dtype.kind != "T" and values.dtype.kind in _NUMBER_KINDS:
        with np.errstate(all="ignore"):
            cast = values.astype(dtype)
            kept = np.isfinite(cast) == np.isfinite(values) if dtype.kind == "f" else cast == values
        if kept.all():
            return cast
        at = np.argwhere(~kept)[0]
        where += f", such as {values[tuple(at)]} in row {row + at[0]},"
    raise InvalidDataError(
        f"{where} that are not {'strings' if dtype.kind == 'T' else f'{dtype} without loss'}"
    )


def _number_type(wanted: Any) -> np.dtype | None:
    try:
        dtype = None if wanted is None else np.dtype(wanted).newbyteorder("=")
    except TypeError:
        raise InvalidParameterError(f"unknown dtype {wanted!r}") from None
    if dtype is not None and not _is_number_type(dtype):
        raise InvalidParameterError(f"dtype must be bool, integer or floating, not {dtype}")
    return dtype


def _is_number_type(dtype: np.dtype) -> bool:
    return dtype.kind in _NUMBER_KINDS and dtype.itemsize <= 8
