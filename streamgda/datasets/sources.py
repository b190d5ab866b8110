"""From what the user gives (a path, arrays, batches) to a table."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.datasets.csvtable import csv_table
from streamgda.datasets.idx import IdxFile
from streamgda.datasets.tables import (
    Column,
    Slices,
    Table,
    batch_table,
    column_table,
    with_labels,
)
from streamgda.errors import InvalidParameterError, SourceError, SourceNotFoundError

_ACCEPTED = (
    "IDX files (named like digits.idx or train-images-idx3-ubyte), .csv and .tsv (not for labels "
    "alone), all these also with .gz, .npy, .npz, and zarr in a directory or a .zip"
)
_IDX = re.compile(r"[-.]idx(\d+-[a-z]+)?$")


def open_table(
    source: Any,
    labels: Any,
    stack: contextlib.ExitStack,
    *,
    names: tuple[str, str],
    n_rows: int | None,
    **csv_options: Any,
) -> Table:
    """The rows of a source.

    Parameters
    ----------
    source, labels, names, n_rows
        As for `streamgda.datasets.convert`.
    stack : contextlib.ExitStack
        Closes what is opened here.
    **csv_options
        Of `csv_table`; None where the user gave none.
    """
    own = labels is None
    options = {name: value for name, value in csv_options.items() if value is not None}
    suffix = _suffix(source) if _is_path(source) else ""
    if options and suffix not in (".csv", ".tsv"):
        raise InvalidParameterError(
            f"{', '.join(options)} can be given for .csv and .tsv files only"
        )
    if "label_column" in options and not own:
        raise InvalidParameterError("label_column and labels exclude each other")

    if suffix in (".csv", ".tsv"):
        options.setdefault("delimiter", "\t" if suffix == ".tsv" else ",")
        table = csv_table(Path(source), labelled=own, **options)
    elif _are_batches(source):
        if labels is not None and labels is not False:
            raise InvalidParameterError("batches bring their labels along: give (X, y), not labels")
        return batch_table(source, n_rows, labelled=own)
    else:
        features, found = _columns(source, names, stack)
        table = column_table(features)
        if own and found is not None:
            table = with_labels(table, found)
    if labels is None or labels is False:
        return table
    column, found = _columns(labels, names, stack)
    return with_labels(table, column if found is None else found)


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
    """What tells the format, without .gz: a suffix in lower case, ".idx" for all IDX names.

    Examples
    --------
    >>> _suffix("train-labels-idx1-ubyte.gz"), _suffix("Iris.CSV")
    ('.idx', '.csv')
    """
    name = Path(path).name.lower().removesuffix(".gz")
    return ".idx" if _IDX.search(name) else Path(name).suffix


def _columns(
    source: Any, names: tuple[str, str], stack: contextlib.ExitStack
) -> tuple[Column, Column | None]:
    """The array of a source, or the two arrays of these names (the second may be missing)."""
    opened = _opened(source, stack)
    if isinstance(opened, IdxFile):
        return opened, None
    if not hasattr(opened, "keys"):
        return Slices(opened), None
    members = list(opened.keys())
    if names[0] not in members:
        raise SourceError(f"{source} has no array {names[0]!r}; it holds {sorted(members)}")
    first, *rest = [_member(source, opened, name) for name in names if name in members]
    return first, rest[0] if rest else None


def _member(source: Any, opened: Any, name: str) -> Column:
    try:
        return Slices(opened[name])
    except Exception as error:  # pickled objects, damaged members, groups within the group
        raise SourceError(f"{source}: {name!r} is no array that can be read: {error}") from error


def _opened(source: Any, stack: contextlib.ExitStack) -> Any:
    """An IdxFile, something like an array, or something like a dictionary of arrays."""
    import zarr  # noqa: PLC0415

    if _is_zarr(source):
        return _zarr(source, stack) if isinstance(source, zarr.abc.store.Store) else source
    if not _is_path(source):
        # What has chunks need not fit in memory; the rest is in memory already.
        return source if hasattr(source, "chunks") else np.asarray(source)
    if "://" in str(source):
        return _zarr(source, stack)
    path, suffix = Path(source), _suffix(source)
    if not path.exists():
        raise SourceNotFoundError(f"{path} does not exist")
    if path.is_dir() or suffix == ".zip":
        return _zarr(path, stack)
    if suffix == ".idx":
        return IdxFile(path)
    if suffix in (".npy", ".npz"):
        return _numpy(path, stack)
    raise SourceError(f"the name of {path} does not tell its format; accepted are {_ACCEPTED}")


def _zarr(store: Any, stack: contextlib.ExitStack) -> Any:
    import zarr  # noqa: PLC0415

    zipped = isinstance(store, Path) and store.is_file()
    inner = zarr.storage.ZipStore(store, mode="r") if zipped else store
    try:
        opened = zarr.open(inner, mode="r")
    except Exception as error:  # what is wrong depends on the store
        missing = isinstance(error, FileNotFoundError) and not isinstance(store, Path)
        kind = SourceNotFoundError if missing else SourceError
        raise kind(f"{store} is no zarr array or group that can be read: {error}") from error
    if zipped:
        stack.callback(inner.close)
    return opened


def _numpy(path: Path, stack: contextlib.ExitStack) -> Any:
    try:
        if path.suffix.lower() == ".npy":
            return np.lib.format.open_memmap(path, mode="r")
        # NumPy leaves the file open where it fails to open one itself.
        return np.load(stack.enter_context(path.open("rb")), allow_pickle=False)
    except (EOFError, ValueError, zipfile.BadZipFile) as error:
        raise SourceError(f"{path} is not a {path.suffix} file of numbers: {error}") from error
