"""Tables from user input: a path, arrays, or batches."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from streamgda.datasets.csvtable import SUFFIXES, csv_table
from streamgda.datasets.idx import IdxFile
from streamgda.datasets.tables import (
    Column,
    Slices,
    Table,
    batch_table,
    column_table,
    with_labels,
)
from streamgda.datasets.text_options import TextOptions
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    SourceError,
)
from streamgda.runtime.parameters import as_integer, refuse
from streamgda.storage.opening import check_exists, opened_node

_TEXT = f"{', '.join(SUFFIXES)}, or any name with format='csv'"
_ACCEPTED = (
    "IDX files (named like digits.idx or train-images-idx3-ubyte); .npy, .npz; zarr in a directory "
    f"or a .zip; or, but not for labels alone, text ({_TEXT}); IDX and text also with .gz"
)
_IDX = re.compile(r"[-.]idx(\d+-[a-z]+)?$")


def open_table(
    source: Any,
    labels: Any,
    stack: contextlib.ExitStack,
    *,
    names: tuple[str, str],
    n_rows: int | None,
    dtype: np.dtype | None,
    format: str | None,
    **text_options: Unpack[TextOptions],
) -> Table:
    """Return the rows of a source, and its labels, as a table.

    Parameters
    ----------
    source, labels, names, n_rows, dtype, format
        As for `streamgda.datasets.convert`.
    stack : contextlib.ExitStack
        Closes the files opened here.
    **text_options
        Options of a table of text. None is as if they were not given.
    """
    check_exists(source)
    check_exists(labels)
    n_rows = None if n_rows is None else as_integer("n_rows", n_rows, "an integer >= 0", 0)
    own = labels is None  # those of the source
    options: Any = {name: value for name, value in text_options.items() if value is not None}
    text = _is_path(source) and (format == "csv" or _suffix(source) in SUFFIXES)
    if format not in (None, "csv"):
        raise refuse("format", format, "'csv', or None for the format of the name")
    if format is not None and not _is_path(source):
        raise InvalidParameterError("format given; expected only for the path of a file")
    if options and not text:
        raise InvalidParameterError(f"{' and '.join(options)} given; expected only for {_TEXT}")
    if "label_column" in options and not own:
        raise InvalidParameterError("label_column and labels were given; expected one of them")

    if text:
        table = csv_table(Path(source), labelled=own, dtype=dtype, **options)
    elif _are_batches(source):
        if labels is not None and labels is not False:
            raise InvalidParameterError(
                "labels cannot be given with batches; give batches of (X, y)"
            )
        table = batch_table(source, n_rows, labelled=own)
    else:
        features, found = _columns(source, names, stack, "X")
        table = column_table(features)
        if own and found is not None:
            table = with_labels(table, found)
        if not (_is_path(source) or _is_zarr(source)) and table.feature_names is None:
            from streamgda.rows import names_of  # noqa: PLC0415  (it needs Numba)

            table = replace(table, feature_names=names_of(source))
    if not own and labels is not False:
        column, found = _columns(labels, names, stack, "y")
        table = with_labels(table, column if found is None else found)
    if n_rows is not None and table.n_rows is None:
        return replace(table, n_rows=n_rows)
    if n_rows is not None and n_rows != table.n_rows:
        raise InvalidDataError(f"n_rows is {n_rows}, but the source has {table.n_rows} rows")
    return table


def _are_batches(source: Any) -> bool:
    return (
        isinstance(source, Iterable)
        and not _is_path(source)
        and not _is_zarr(source)
        and not hasattr(source, "shape")
    )


def _is_path(source: Any) -> bool:
    return isinstance(source, str | os.PathLike)


def _is_zarr(source: Any) -> bool:
    import zarr  # noqa: PLC0415

    return isinstance(source, zarr.Array | zarr.Group | zarr.abc.store.Store)


def _suffix(path: str | os.PathLike[str]) -> str:
    """Return the suffix that identifies the format, in lower case and without .gz.

    It is ".idx" for all names of IDX files.

    Examples
    --------
    >>> _suffix("train-labels-idx1-ubyte.gz"), _suffix("Iris.CSV")
    ('.idx', '.csv')
    """
    name = Path(path).name.lower().removesuffix(".gz")
    return ".idx" if _IDX.search(name) else Path(name).suffix


def _columns(
    source: Any, names: tuple[str, str], stack: contextlib.ExitStack, name: str
) -> tuple[Column, Column | None]:
    """Return the array of a source, or its two arrays with `names` (the second may be missing).

    `name` is that of a single array in errors.
    """
    opened = _opened(source, stack)
    if isinstance(opened, IdxFile):
        return opened, None
    if not hasattr(opened, "keys"):
        return Slices(opened, name), None
    members = list(opened.keys())
    if names[0] not in members:
        raise SourceError(f"{source} has no array {names[0]!r}; it holds {sorted(members)}")
    first, *rest = [_member(source, opened, name) for name in names if name in members]
    return first, rest[0] if rest else None


def _member(source: Any, opened: Any, name: str) -> Column:
    try:
        return Slices(opened[name], name)
    except Exception as error:  # pickled objects, damaged members, nested groups
        raise SourceError(f"{source}: cannot read the array {name!r}: {error}") from error


def _opened(source: Any, stack: contextlib.ExitStack) -> Any:
    """Open a source as an IdxFile, an array, or a mapping of names to arrays."""
    import zarr  # noqa: PLC0415

    if _is_zarr(source):
        opened = not isinstance(source, zarr.abc.store.Store)
        return source if opened else stack.enter_context(opened_node(source))
    if not _is_path(source):
        from streamgda.rows.masked import as_slab  # noqa: PLC0415  (the package needs Numba)

        # Arrays in chunks need not fit in memory; all others are in memory already.
        return source if hasattr(source, "chunks") else as_slab(source)
    if "://" in str(source):
        return stack.enter_context(opened_node(source))
    path, suffix = Path(source), _suffix(source)
    if path.is_dir() or suffix == ".zip":
        return stack.enter_context(opened_node(path))
    if suffix == ".idx":
        return IdxFile(path)
    if suffix in (".npy", ".npz"):
        return _numpy(path, stack)
    raise SourceError(f"the name of {path} does not identify its format; expected {_ACCEPTED}")


def _numpy(path: Path, stack: contextlib.ExitStack) -> Any:
    try:
        if path.suffix.lower() == ".npy":
            return np.lib.format.open_memmap(path, mode="r")
        # NumPy leaves a file open if it fails to read it.
        return np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path} is not a {path.suffix} file of numbers: {error}") from error
