"""Rows from anywhere to a zarr group, in the memory of a few chunks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from streamgda.datasets.checks import at_least
from streamgda.datasets.sources import open_table
from streamgda.datasets.tables import Block, Table
from streamgda.datasets.target import created, reopened
from streamgda.errors import InvalidDataError, InvalidParameterError

if TYPE_CHECKING:
    import zarr

_CHUNK_BYTES = 4 << 20
_TEXT = np.dtypes.StringDType()
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
        Rows in a chunk; about 4 MiB if None.
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
    >>> import numpy as np
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
            raise InvalidDataError(f"n_rows is {n_rows}, but {source} has {table.n_rows} rows")
        chunks = _Chunks(table, dtype, chunk_rows)
        with created(store, overwrite, (source, labels)) as group:
            chunks.write(group, progress)
    return reopened(store)


class _Chunks:
    """The rows of a table, cast and cut into the chunks that are written."""

    def __init__(self, table: Table, dtype: Any, chunk_rows: int | None) -> None:
        if not table.n_features:
            raise InvalidDataError("the rows have no features")
        self.table = table
        self.dtype = _feature_dtype(table.dtype, dtype)
        self.label_dtype = None if table.label_dtype is None else _label_dtype(table.label_dtype)
        self.rows = chunk_rows or max(
            1, _CHUNK_BYTES // (table.n_features * self.dtype.itemsize)
        )
        if chunk_rows is None and table.n_rows is not None:
            self.rows = max(1, min(self.rows, table.n_rows))

    def write(
        self, group: zarr.Group, progress: Callable[[int, int | None], object] | None
    ) -> None:
        """Make the arrays in the group, and fill them."""
        total, width = self.table.n_rows, self.table.n_features
        arrays = [
            group.create_array("X", shape=(total or 0, width), chunks=(self.rows, width), dtype=self.dtype)
        ]
        if self.label_dtype is not None:
            kind = str if self.label_dtype.kind == "T" else self.label_dtype
            arrays.append(group.create_array("y", shape=(total or 0,), chunks=(self.rows,), dtype=kind))
        done = 0
        for block in self:
            start, done = done, done + len(block[0])
            for array, values in zip(arrays, block, strict=False):
                if total is None:
                    array.resize((done, *array.shape[1:]))
                array[start:done] = values
            if progress is not None:
                progress(done, total)
        if total is not None and done != total:
            raise InvalidDataError(f"{total} rows were due, but {done} came")

    def __iter__(self) -> Iterator[Block]:
        """Full chunks, and at the end what is left; the arrays are used again for the next."""
        X = y = None
        filled = 0
        for block in self._cast_blocks():
            
            ...
