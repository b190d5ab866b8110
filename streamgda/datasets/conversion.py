"""Rows from anywhere to a zarr group, in the memory of a few chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.datasets.checks import at_least
from streamgda.datasets.sources import open_table
from streamgda.datasets.tables import Block, Table
from streamgda.datasets.writer import created, reopened
from streamgda.errors import InvalidDataError, InvalidParameterError

if TYPE_CHECKING:
    import zarr

_CHUNK_BYTES = 4 << 20
_NUMBER_KINDS = "biuf"
_TEXT_KINDS = "USOT"  # of objects, those that are strings
_STRICT_TEXT = np.dtypes.StringDType(coerce=False)  # refuses what is not a string


def convert(
    source: Any,
    store: Any,
    *,
    labels: Any = None,
    label_column: str | int | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    names: tuple[str, str] = ("X", "y"),
    n_rows: int | None = None,
    dtype: Any = None,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int | None], object] | None = None,
) -> zarr.Group:
    """Write rows and labels into a zarr group, from which every estimator can read in chunks.

    The group (zarr format 3) holds ``X``, rows x features in chunks of whole rows, and, where
    there are labels, ``y`` in chunks of as many rows. No more than a block of the source and a
    chunk of the target are in memory at a time, whatever the number of rows.

    Parameters
    ----------
    source : path, array, zarr node or store, or iterable of batches
        - IDX (a name like ``digits.idx`` or ``train-images-idx3-ubyte``), plain or gzip; images
          become rows, as anything with more than two dimensions does.
        - ``.npy``: mapped into memory.
        - ``.npz``: the arrays of `names`, which are loaded whole.
        - ``.csv``, ``.tsv``, plain or gzip: read twice, the first time for the number of rows and
          the kind of the labels (integers, finite numbers, or else strings). Features become
          float64.
        - a zarr array or group (of arrays with `names`): a directory, a ``.zip``, an address such
          as ``s3://...``, a zarr store or the node itself. Read in whole chunks of the source.
        - an array in memory or in chunks (NumPy, dask, HDF5), or anything else that
          `numpy.asarray` takes as one, such as a data frame of numbers.
        - an iterable of ``(X, y)`` or X, of any numbers of rows. The first batch tells the dtypes.
    store : path, zarr store or zarr group
        Where to write. A path that ends in ``.zip`` becomes a zip file, any other a directory;
        either takes its name only once it is complete. Other stores are written in place.
    labels : path, array-like, zarr node or False, default=None
        One label for each row: an IDX, .npy or .npz file, or an array of any kind. If None, the
        labels that the source has; if False, none.
    label_column : str or int, default=None
        CSV only: name in the header, or index, of the column with the labels; the last if None.
    header : bool, default=None
        CSV only: whether the first line names the columns. If None, it does where `label_column`
        is a name, and where not one of the features in that line is a number.
    delimiter : str, default=None
        CSV only: a comma, or a tab for ``.tsv``, if None.
    names : (str, str), default=("X", "y")
        Names of the arrays with features and labels in a source that holds several.
    n_rows : int, default=None
        Rows that the batches have in all, if that is known.
    dtype : dtype, default=None
        Type for the features: bool, integer or floating. As in the source if None. Integers must
        hold every value exactly; floating types round.
    chunk_rows : int, default=None
        Rows in a chunk, at most as many as there are; about 4 MiB if None.
    overwrite : bool, default=False
        Whether to replace what is at `store`. A directory that is not zarr is never replaced.
    progress : callable, default=None
        Called as ``progress(rows_done, rows_in_all)`` after each chunk; ``rows_in_all`` is None
        where it is not known.

    Returns
    -------
    zarr.Group
        Open for reading. Labels that are strings have zarr's variable-length dtype.

    Raises
    ------
    SourceNotFoundError
        Where a file is missing.
    SourceError
        Where a file is damaged, of a format that its name does not tell, or without what is due
        in it.
    InvalidDataError
        Where features and labels differ in length, batches differ in width, or values are of a
        wrong kind or do not fit `dtype`.
    InvalidParameterError
        Where a parameter is out of its range or does not go with the source, or where something
        is at `store` and `overwrite` is not set.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "iris.csv").write_text("length,width,kind\\n5,3.5,setosa\\n7,3.2,other\\n")
    >>> group = convert(folder / "iris.csv", folder / "iris.zarr")
    >>> group["X"][:]
    array([[5. , 3.5],
           [7. , 3.2]])
    >>> group["y"][:].tolist()
    ['setosa', 'other']
    """
    n_rows = None if n_rows is None else at_least(0, "n_rows", n_rows)
    chunk_rows = None if chunk_rows is None else at_least(1, "chunk_rows", chunk_rows)
    with contextlib.ExitStack() as stack:
        table = open_table(
            source,
            labels,
            stack,
            names=names,
            n_rows=n_rows,
            label_column=label_column,
            header=header,
            delimiter=delimiter,
        )
        if n_rows is not None and n_rows != table.n_rows:
            raise InvalidDataError(f"n_rows is {n_rows}, but there are {table.n_rows} rows")
        if not table.n_features:
            raise InvalidDataError("the rows have no features")
        dtypes = [_feature_dtype(table.dtype, dtype)]
        if table.label_dtype is not None:
            dtypes.append(_label_dtype(table.label_dtype))
        if chunk_rows is None:
            chunk_rows = max(1, _CHUNK_BYTES // (table.n_features * dtypes[0].itemsize))
        if table.n_rows:
            chunk_rows = min(chunk_rows, table.n_rows)
        with created(store, overwrite, (source, labels)) as group:
            _write(table, group, dtypes, chunk_rows, progress)
    return reopened(store)


def _write(
    table: Table,
    group: zarr.Group,
    dtypes: list[np.dtype],
    chunk_rows: int,
    progress: Callable[[int, int | None], object] | None,
) -> None:
    shapes = [(table.n_features,), ()]
    arrays = [
        group.create_array(
            name,
            shape=(table.n_rows or 0, *shape),
            chunks=(chunk_rows, *shape),
            dtype=str if dtype.kind == "T" else dtype,
        )
        for name, shape, dtype in zip("Xy", shapes, dtypes, strict=False)
    ]
    blocks = table.blocks(-(-chunk_rows // table.granule) * table.granule)
    done = 0
    for chunk in _chunks(blocks, chunk_rows, dtypes):
        start, done = done, done + len(chunk[0])
        if table.n_rows is not None and done > table.n_rows:
            raise InvalidDataError(f"{table.n_rows} rows were due, but {done} or more came")
        for array, values in zip(arrays, chunk, strict=True):
            if table.n_rows is None:
                array.resize((done, *array.shape[1:]))
            array[start:done] = values
        if progress is not None:
            progress(done, table.n_rows)
    if table.n_rows is not None and done < table.n_rows:
        raise InvalidDataError(f"{table.n_rows} rows were due, but only {done} came")


def _chunks(blocks: Iterable[Block], rows: int, dtypes: list[np.dtype]) -> Iterator[Block]:
    """Blocks of any numbers of rows as chunks of that many; the last one may have fewer."""
    chunk: Block = ()
    filled = done = 0
    for block in blocks:
        taken = 0
        while taken < len(block[0]):
            if not filled:  # new ones, because a store in memory may keep what it is given
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
    """The values, which start at that row, as that type; only floating types may round."""
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


def _feature_dtype(found: np.dtype, wanted: Any) -> np.dtype:
    if not _is_number_type(found):
        raise InvalidDataError(f"features of dtype {found}, expected numbers")
    try:
        dtype = found if wanted is None else np.dtype(wanted)
    except TypeError:
        raise InvalidParameterError(f"dtype {wanted!r} is not known") from None
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
