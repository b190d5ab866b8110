"""Conversion of rows from many sources to a zarr group, a few chunks at a time."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from streamgda.datasets.idx import IdxFile
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
)
from streamgda.runtime.parameters import as_flag, as_integer, refuse
from streamgda.storage.opening import (
    as_target,
    check_exists,
    contents,
    local_path,
    locate,
    open_node,
    open_zarr,
    opened_node,
    stranger,
    writing,
)
from streamgda.storage.replacing import exists, replacing

if TYPE_CHECKING:
    import zarr

    from streamgda.runtime.table_options import ColumnNames, TableOptions

Block = tuple[np.ndarray, ...]  # (X, y), or (X,) without labels

_CHUNK_BYTES = 4 << 20
_NUMBER_KINDS = "biuf"
_TEXT_KINDS = "USOT"  # of objects, those that are strings
_STRICT_TEXT = np.dtypes.StringDType(coerce=False)  # refuses objects that are not strings
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
    label_column: str | int | None = None,
    columns: ColumnNames | None = None,
    missing_labels: str = "raise",
    names: tuple[str, str] = ("X", "y"),
    n_rows: int | None = None,
    dtype: Any = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
    **table: Unpack[TableOptions],
) -> zarr.Group:
    """Write rows and labels to a zarr group that every estimator can read in chunks.

    The group (zarr format 3) holds ``X``, rows x features in chunks of whole rows, and ``y``, if
    there are labels. At most one block of the source and one chunk are in memory at a time.

    Parameters
    ----------
    source : path, array, zarr node or store, or iterable of batches
        IDX (also gzip), ``.npy``, ``.npz``, a table that `streamgda.open_store` opens, zarr (path,
        URL, store, node), array, or batches ``(X, y)`` or X. Dimensions after the first are
        flattened.
    store : path, zarr store or zarr group
        Where to write. A path (a zip file if it ends in ``.zip``, else a directory) appears only
        when it is complete. Other stores are written in place.
    labels : path, array-like, zarr node or False, default=None
        One label per row. If None, the labels of the source; if False, no labels.
    label_column : str or int, default=None
        Tables: name or number of the column of labels; the last one that is not dropped if None.
    columns : str, int or slice, or sequence of them, default=None
        Tables: names or numbers of the columns of features; all if None.
    missing_labels : {"raise", "keep"}, default="raise"
        Tables: refuse a row whose label is missing, or keep it. Labels that are numbers then become
        float64, with NaN for those that are missing; of strings, those are "", and the attribute
        ``missing_label`` of the array says so.
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
        Called with the rows done and their total, or None, after each chunk.
    **table
        Options of tables: `drop` (columns that are left out), and of text `format`, `header`,
        `delimiter`, `na_values`, `keep_default_na`, `encoding`, `decimal` and `comment`; see
        `streamgda.runtime.table_options.TableOptions`.

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
    check_exists(source)
    check_exists(labels)
    wanted = _number_type(dtype)
    if missing_labels not in ("raise", "keep"):
        raise refuse("missing_labels", missing_labels, "'raise' or 'keep'")
    options = {"label_column": label_column, "columns": columns, **table}
    given: Any = {name: value for name, value in options.items() if value is not None}
    with contextlib.ExitStack() as stack:
        if _is_path(source) and ("format" in given or _is_table(source)):
            rows = _of_table(source, labels, missing_labels == "keep", wanted, given)
        elif given:
            raise InvalidParameterError(
                f"{' and '.join(given)} given; expected only for tables: .csv, .tsv, .txt, .data, "
                f".parquet, .arrow, or any name with format='csv'"
            )
        elif _are_batches(source):
            if labels is not None and labels is not False:
                raise InvalidParameterError(
                    "labels cannot be given with batches; give batches of (X, y)"
                )
            rows = _of_batches(source, labels is None)
        else:
            rows = _of_arrays(source, labels, names, stack)
        n_rows = None if n_rows is None else as_integer("n_rows", n_rows, "an integer >= 0", 0)
        if n_rows is not None and rows.n_rows not in (None, n_rows):
            raise InvalidDataError(f"n_rows is {n_rows}, but the source has {rows.n_rows} rows")
        rows = replace(rows, n_rows=rows.n_rows if n_rows is None else n_rows)
        dtypes = _dtypes(rows, wanted)
        if chunk_rows is None:
            chunk_rows = max(1, _CHUNK_BYTES // (rows.n_features * dtypes[0].itemsize))
        chunk_rows = as_integer("chunk_rows", chunk_rows, "an integer >= 1", 1)
        with _created(store, overwrite, (source, labels)) as group:
            _write(rows, group, dtypes, min(chunk_rows, rows.n_rows or chunk_rows), progress, store)
    return open_node(_local_path(store) or store)


# --- sources --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rows:
    """Rows, with or without labels, that have not been read yet.

    Attributes
    ----------
    n_rows : int or None
        Number of rows; None if it is known only at the end.
    n_features : int
    dtype : numpy.dtype
    label_dtype : numpy.dtype or None
        None without labels.
    blocks : callable
        ``blocks(n)`` iterates over blocks of about n rows.
    names : tuple of str or None
        Names of the features.
    unit : int
        Number of rows of which a block should be a multiple, so that chunks are read once.
    missing_label : str or None
        Label that stands for a missing one; None if there is no such label.
    """

    n_rows: int | None
    n_features: int
    dtype: np.dtype
    label_dtype: np.dtype | None
    blocks: Callable[[int], Iterator[Block]]
    names: tuple[str, ...] | None = None
    unit: int = 1
    missing_label: str | None = None


def _of_table(
    path: Any, labels: Any, keep: bool, dtype: np.dtype | None, options: dict[str, Any]
) -> _Rows:
    """Return the rows of a table in files."""
    from streamgda.rows.table_files import chosen, open_table  # noqa: PLC0415  (it needs Numba)

    own, drop = labels is None, options.get("drop")
    label = options.pop("label_column", None)
    if label is not None and not own:
        raise InvalidParameterError("label_column and labels were given; expected one of them")
    renamed = {"columns": "features"}
    options = {renamed.get(name, name): value for name, value in options.items()}

    def last(names: list[str]) -> str | None:
        dropped = [] if drop is None else chosen(names, drop, "drop", str(path))
        return next((name for name in reversed(names) if name not in dropped), None)

    found = last if own and label is None else label
    X, y = open_table(path, y=None, label=found, dtype=dtype, **options)
    if not own:
        return _of_sources(X, None if labels is False else _column(labels), X.feature_names)
    assert y is not None
    number = y.dtype is not None and y.dtype.kind in "biuf"
    rows = _of_sources(X, y, X.feature_names)
    label_dtype = rows.label_dtype if number else np.dtypes.StringDType()
    label_dtype = np.dtype(np.float64) if keep and number else label_dtype

    def blocks(n: int) -> Iterator[Block]:
        done = 0
        for block, found in rows.blocks(n):
            read = np.asarray(found)
            absent = np.array([x is None or x != x for x in read.tolist()], bool)  # noqa: PLR0124
            if absent.any() and not keep:
                raise SourceError(
                    f"{X.values.title}: the label of row {done + int(absent.argmax())} is missing; "
                    f"missing_labels='keep' keeps such rows"
                )
            if number:
                read = read.astype(np.float64) if absent.any() else read
            else:
                read = np.array(
                    ["" if a else str(x) for x, a in zip(read.tolist(), absent, strict=True)],
                    _STRICT_TEXT,
                )
            yield block, read
            done += len(block)

    missing = "" if keep and not number else None
    return replace(rows, label_dtype=label_dtype, blocks=blocks, missing_label=missing)


def _of_arrays(
    source: Any, labels: Any, names: tuple[str, str], stack: contextlib.ExitStack
) -> _Rows:
    """Return the rows of arrays: of numpy, of zarr, in a file, or anything that adapters read."""
    from streamgda.rows import as_source, names_of  # noqa: PLC0415  (it needs Numba)

    opened = _opened(source, stack)
    y: Any = None
    if hasattr(opened, "keys") and not hasattr(opened, "shape"):
        opened, y = _members(source, opened, names)
    if labels is not None:
        found = None if labels is False else _opened(labels, stack)
        if hasattr(found, "keys") and not hasattr(found, "shape"):
            first, second = _members(labels, found, names)
            found = first if second is None else second
        y = found
    if isinstance(opened, IdxFile):
        X: Any = opened
        found_names = None
    else:
        X = as_source(opened, "X")
        found_names = X.feature_names
        if found_names is None and not (_is_path(source) or _is_zarr(source)):
            found_names = names_of(source)
    return _of_sources(X, None if y is None else _column(y), found_names)


def _column(labels: Any) -> Any:
    """Return a source of labels."""
    from streamgda.rows import as_source  # noqa: PLC0415  (it needs Numba)
    from streamgda.rows.arrays import as_slab  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        opened = _opened(labels, stack) if _is_path(labels) else labels
        if isinstance(opened, IdxFile):
            return opened
        return as_source(opened if hasattr(opened, "chunks") else as_slab(opened), "y")


def _of_sources(X: Any, y: Any, names: tuple[str, ...] | None) -> _Rows:
    """Return the rows of a `RowSource` or an `IdxFile`, and labels of another."""
    if len(X.shape) < 2:
        raise InvalidDataError(f"features of shape {X.shape}, expected rows x features")
    n_rows, width = X.shape[0], math.prod(X.shape[1:])
    if y is not None and len(y.shape) != 1:
        raise InvalidDataError(f"labels of shape {y.shape}, expected one dimension")
    if y is not None and y.shape[0] != n_rows:
        raise InvalidDataError(f"{n_rows} rows, but {y.shape[0]} labels")

    def blocks(n: int) -> Iterator[Block]:
        for parts in zip(*(_blocks(s, n) for s in (X, y) if s is not None), strict=True):
            yield parts[0].reshape(len(parts[0]), width), *parts[1:]

    label_dtype = None if y is None else y.dtype
    return _Rows(n_rows, width, X.dtype, label_dtype, blocks, names, getattr(X, "unit", 1))


def _blocks(source: Any, n: int) -> Iterator[np.ndarray]:
    """Yield the rows of a source in blocks; masked values are refused."""
    from streamgda.rows.arrays import as_slab, unmasked  # noqa: PLC0415  (it needs Numba)

    if isinstance(source, IdxFile):
        yield from source.blocks(n)
        return
    for start in range(0, source.n_rows, n):
        if source.executor == "dask":
            block = as_slab(source.values[start : start + n])
        else:
            block = source.read(start, min(start + n, source.n_rows))
        yield unmasked(block, source.name, start)


def _of_batches(batches: Iterable[Any], labelled: bool) -> _Rows:
    """Return the rows of batches ``(X, y)`` or X; the first determines width and dtypes.

    Numeric labels become int64 or float64, because a later batch may have values that do not fit
    the dtype of the first. Unless `labelled`, the labels are left out.
    """
    from streamgda.rows import names_of  # noqa: PLC0415  (it needs Numba)
    from streamgda.rows.names import join_names  # noqa: PLC0415

    def names_in(batch: Any) -> tuple[str, ...] | None:
        return names_of(batch[0] if isinstance(batch, tuple | list) and batch else batch)

    waiting = iter(batches)
    head = next(waiting, None)
    if head is None:
        raise InvalidDataError(
            "no batches; expected at least one, which determines the number of features"
        )
    X, *y = first = _batch(head, labelled)
    names = names_in(head)
    label_dtype = y[0].dtype if y else None
    if label_dtype is not None and label_dtype != np.uint64:
        label_dtype = _WIDEST.get(label_dtype.kind, label_dtype)

    def checked(batch: Any) -> Block:
        join_names(names, names_in(batch), "the first batch", InvalidDataError)
        block = _batch(batch, labelled)
        if len(block) != len(first) or block[0].shape[1] != X.shape[1]:
            raise InvalidDataError(
                f"a batch with {_described(block)} after one with {_described(first)}"
            )
        return block

    def blocks(_: int) -> Iterator[Block]:
        return itertools.chain([first], map(checked, waiting))

    return _Rows(None, X.shape[1], X.dtype, label_dtype, blocks, names)


def _batch(batch: Any, labelled: bool) -> Block:
    from streamgda.rows.arrays import unmasked  # noqa: PLC0415
    from streamgda.rows.in_memory import as_array  # noqa: PLC0415  (it needs Numba)

    parts = batch if isinstance(batch, tuple | list) else (batch,)
    if not 1 <= len(parts) <= 2:
        raise InvalidDataError(f"a batch of {len(parts)} parts; expected (X, y) or X")
    block = tuple(
        unmasked(as_array(part, name), name)
        for name, part in zip("Xy", parts, strict=False)
        if part is not None
    )
    if block[0].ndim != 2 or any(y.ndim != 1 for y in block[1:]):
        raise InvalidDataError(
            f"a batch with {_described(block)}; expected (X, y) or X, with X of shape "
            "(rows, features) and y of shape (rows,)"
        )
    if any(len(y) != len(block[0]) for y in block[1:]):
        raise InvalidDataError(f"a batch has {len(block[0])} rows, but {len(block[1])} labels")
    return block if labelled else block[:1]


def _described(block: Block) -> str:
    return " and ".join(
        f"{name} of shape {part.shape}" for name, part in zip("Xy", block, strict=False)
    ) + ("" if len(block) > 1 else " and no y")


def _members(source: Any, opened: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """Return the arrays with these names in a group or an archive; the second may be missing."""
    members = list(opened.keys())
    if names[0] not in members:
        raise SourceError(f"{source} has no array {names[0]!r}; it holds {sorted(members)}")
    found = []
    for name in names:
        try:
            found.append(opened[name] if name in members else None)
            if found[-1] is not None and not hasattr(found[-1], "shape"):
                raise TypeError("it is a group")
        except Exception as error:  # pickled objects, damaged members, nested groups
            raise SourceError(f"{source}: cannot read the array {name!r}: {error}") from error
    return found[0], found[1]


def _opened(source: Any, stack: contextlib.ExitStack) -> Any:
    """Open a source as an IdxFile, an array, or a mapping of names to arrays."""
    import zarr  # noqa: PLC0415

    if _is_zarr(source):
        opened = not isinstance(source, zarr.abc.store.Store)
        return source if opened else stack.enter_context(opened_node(source))
    if not _is_path(source):
        from streamgda.rows.arrays import as_slab  # noqa: PLC0415  (the package needs Numba)

        # Arrays in chunks need not fit in memory; all others are in memory already.
        return source if hasattr(source, "chunks") else as_slab(source)
    if "://" in str(source):
        return stack.enter_context(opened_node(source))
    path = Path(source)
    suffix = path.suffix.lower()
    if path.is_dir() or suffix == ".zip":
        return stack.enter_context(opened_node(path))
    if _IDX.search(path.name.lower().removesuffix(".gz")):
        return IdxFile(path)
    if suffix not in (".npy", ".npz"):
        raise SourceError(f"the name of {path} does not identify its format; expected {_ACCEPTED}")
    try:
        if suffix == ".npy":
            return np.lib.format.open_memmap(path, mode="r")
        # NumPy leaves a file open if it fails to read it.
        return np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path} is not a {suffix} file of numbers: {error}") from error


def _is_table(path: Any) -> bool:
    from streamgda.rows.table_files import is_table  # noqa: PLC0415  (it needs Numba)

    return is_table(path)


def _are_batches(source: Any) -> bool:
    plain = not (_is_path(source) or _is_zarr(source) or hasattr(source, "shape"))
    return plain and isinstance(source, Iterable)


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _is_zarr(source: Any) -> bool:
    import zarr  # noqa: PLC0415

    return isinstance(source, zarr.Array | zarr.Group | zarr.abc.store.Store)


# --- writing --------------------------------------------------------------------------------------


def _dtypes(rows: _Rows, wanted: np.dtype | None) -> list[np.dtype]:
    """Return the types of the arrays to write."""
    if not rows.n_features:
        raise InvalidDataError("the rows have no features; expected at least one")
    if not _is_number_type(rows.dtype):
        raise InvalidDataError(f"features of dtype {rows.dtype}, expected numbers")
    dtypes = [wanted or rows.dtype.newbyteorder("=")]
    found = rows.label_dtype
    if found is not None and found.kind in _TEXT_KINDS:
        dtypes.append(np.dtypes.StringDType())
    elif found is not None:
        if not _is_number_type(found):
            raise InvalidDataError(f"labels of dtype {found}, expected numbers or strings")
        dtypes.append(found.newbyteorder("="))
    return dtypes


def _write(
    rows: _Rows,
    group: zarr.Group,
    dtypes: list[np.dtype],
    chunk_rows: int,
    progress: Callable[[int, int | None], object] | None,
    store: Any,
) -> None:
    chunks = _chunks(rows.blocks(-(-chunk_rows // rows.unit) * rows.unit), chunk_rows, dtypes)
    first = next(chunks, None)
    if first is not None:
        chunk_rows = len(first[0])  # shorter if it is the only one
        chunks = itertools.chain([first], chunks)
    with writing(store):
        arrays = [
            group.create_array(
                name,
                shape=(rows.n_rows or 0, *shape),
                chunks=(chunk_rows, *shape),
                dtype=str if dtype.kind == "T" else dtype,
            )
            for name, shape, dtype in zip("Xy", [(rows.n_features,), ()], dtypes, strict=False)
        ]
        if rows.names is not None:
            arrays[0].attrs["feature_names"] = list(rows.names)
        if rows.missing_label is not None:
            arrays[1].attrs["missing_label"] = rows.missing_label
    done = 0
    for chunk in chunks:
        start, done = done, done + len(chunk[0])
        if rows.n_rows is not None and done > rows.n_rows:
            raise InvalidDataError(
                f"expected {rows.n_rows} rows, but the source has {done} or more"
            )
        with writing(store):
            for array, values in zip(arrays, chunk, strict=True):
                if rows.n_rows is None:
                    array.resize((done, *array.shape[1:]))
                array[start:done] = values
        if progress is not None:
            progress(done, rows.n_rows)
    if rows.n_rows is not None and done < rows.n_rows:
        raise InvalidDataError(f"expected {rows.n_rows} rows, but the source has only {done}")


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
    where = f"rows {row} to {row + len(values) - 1} hold values ({values.dtype})"
    if dtype.kind == "T" and values.dtype.kind in _TEXT_KINDS:
        with contextlib.suppress(ValueError):
            return values.astype(_STRICT_TEXT)
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
    if wanted is None:
        return None
    try:
        dtype = np.dtype(wanted)
    except TypeError:
        raise InvalidParameterError(f"unknown dtype {wanted!r}") from None
    if not _is_number_type(dtype):
        raise InvalidParameterError(f"dtype must be bool, integer or floating, not {dtype}")
    return dtype.newbyteorder("=")


def _is_number_type(dtype: np.dtype) -> bool:
    return dtype.kind in _NUMBER_KINDS and dtype.itemsize <= 8


# --- the destination ------------------------------------------------------------------------------


@contextlib.contextmanager
def _created(store: Any, overwrite: bool, sources: Iterable[Any]) -> Iterator[zarr.Group]:
    """Create an empty group to be filled; at a local path it appears once it is complete.

    Parameters
    ----------
    store : path, zarr store or zarr group
    overwrite : bool
        Replace existing zarr nodes.
    sources : iterable
        Sources that will be read meanwhile; they must not be in a store that is written in place.

    Raises
    ------
    InvalidParameterError
        If `store` has contents and `overwrite` is not set, or they must not be replaced.
    """
    import zarr  # noqa: PLC0415

    overwrite = as_flag("overwrite", overwrite)
    path = _local_path(store)
    if path is None:
        with writing(store):
            _check_store(store, overwrite, sources)
            group = zarr.create_group(as_target(store, "store"), overwrite=overwrite)
        yield group
        return
    from streamgda.storage.writing import new_group  # noqa: PLC0415  (it needs zarr)

    _check_path(path, overwrite)
    with replacing(path) as partial:
        # Zip files are packed at the end, because an array that grows rewrites its metadata, and
        # the members of a zip file cannot be written twice.
        zipped = path.suffix == ".zip"
        folder = partial.with_name(f"{partial.name}.folder") if zipped else partial
        with new_group(folder) as group:
            yield group
        if zipped:
            _pack(folder, partial)
        _check_path(path, overwrite)  # another process may have written meanwhile


def _local_path(store: Any) -> Path | None:
    import zarr  # noqa: PLC0415

    if isinstance(store, str | os.PathLike):
        path = local_path(store)
        return None if path is None else path.resolve()
    inner = store.path if isinstance(store, zarr.Group) else ""
    root = store.store if isinstance(store, zarr.Group) else store
    return Path(root.root, inner).resolve() if isinstance(root, zarr.storage.LocalStore) else None


def _check_path(path: Path, overwrite: bool) -> None:
    if not exists(path):
        return
    zipped = path.suffix == ".zip"
    if path.is_dir() and not zipped and not any(path.iterdir()):
        return
    other = path.name if path.is_dir() == zipped else _other_contents(path)
    if other is not None:
        raise InvalidParameterError(
            f"{path} exists and is not replaced, because it holds what no conversion writes: "
            f"{other}. Choose another path"
        )
    if not overwrite:
        raise InvalidParameterError(f"{path} exists: overwrite=True would replace it")


def _check_store(store: Any, overwrite: bool, sources: Iterable[Any]) -> None:
    try:
        existing = open_zarr(store)
    except FileNotFoundError:
        existing = None
    if existing is not None and not overwrite:
        raise InvalidParameterError(f"{store} holds a zarr node: overwrite=True would replace it")
    other = _other_contents(store)
    if other is not None:
        raise InvalidParameterError(
            f"{store} is not replaced, because it holds what no conversion writes: {other}. "
            f"Choose another one"
        )
    if existing is None:
        return
    for source in sources:
        if _same_store(_store(source), existing.store):
            raise InvalidParameterError(
                f"{source} is in the store that would be overwritten; write to another one"
            )


def _other_contents(store: Any) -> str | None:
    """Return the name of something in a store that no conversion writes, if there is any."""
    import zarr  # noqa: PLC0415

    arrays: tuple[str, ...] | None = None
    with contextlib.suppress(SourceError, SourceNotFoundError), opened_node(store) as node:
        arrays = ("X", "y") if isinstance(node, zarr.Group) else None
    return next(contents(store), None) if arrays is None else stranger(store, arrays)


def _store(source: Any) -> Any:
    import zarr  # noqa: PLC0415

    located = isinstance(source, str) and "://" in source
    return locate(source)[0] if located or isinstance(source, zarr.Array | zarr.Group) else source


def _same_store(one: Any, other: Any) -> bool:
    """Return True if two stores are the same place, no matter which of them is read-only."""
    if type(one) is not type(other):
        return False
    try:
        return bool(one.with_read_only(True) == other.with_read_only(True))
    except (AttributeError, NotImplementedError):
        return True  # they may be


def _pack(folder: Path, file: Path) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as packed:
        for member in sorted(folder.rglob("*")):
            if member.is_file():
                packed.write(member, member.relative_to(folder).as_posix())
