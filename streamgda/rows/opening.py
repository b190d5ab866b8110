"""`open_store`: rows and labels in zarr stores and in tables, opened for reading."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from streamgda.errors import InvalidParameterError, SourceError, raised_as
from streamgda.runtime.parameters import require, unexpected
from streamgda.storage.files import local_path
from streamgda.storage.opening import TABLES, named, open_node

_ZARR = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
_SUFFIXES = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
}


def format_of(name: str) -> str | None:
    """Return the format of a file of a table by its name; None for names of other files."""
    name = name.partition("?")[0] if "://" in name else name  # A signed URL ends in a query.
    return _SUFFIXES.get(PurePath(name.rstrip("/").lower().removesuffix(".gz")).suffix)


def is_table(path: Any) -> bool:
    """Return whether a path or URL is that of a table, by its name or the files in its folder."""
    if not isinstance(path, str | os.PathLike):
        return False
    if format_of(str(path)) is not None:
        return True
    local = local_path(path)
    if local is None or not local.is_dir() or any((local / name).exists() for name in _ZARR):
        return False
    return any(format_of(name) is not None for _, _, names in os.walk(local) for name in names)


def is_table_path(out: Any) -> bool:
    """Return whether scores go to a table, by the name of the path."""
    path = local_path(out)
    return path is not None and path.suffix.lower() in TABLES


def _member(group: Any, path: Any, name: str, what: str) -> Any:
    # The array is opened by its name, because some stores cannot list their contents.
    with raised_as(SourceError, f"{path}: {name!r} cannot be opened"):
        node = group.get(name)
    if node is not None and hasattr(node, "shape"):
        return node
    if node is not None:
        raise SourceError(f"{path}: {name!r} is a group; expected an array of {what}")
    try:
        others = ", ".join(sorted(group.array_keys())) or "none at all"
    except Exception:
        others = "others that cannot be listed"
    raise SourceError(f"{path} lacks {what}: it has no array {name!r}, but {others}")


def table_files(path: Any) -> Any:
    """Import `streamgda.rows.files`, which needs pyarrow; the error names the extra."""
    require("pyarrow.dataset", "arrow", f"tables such as {path}")
    from streamgda.rows import files  # noqa: PLC0415

    return files


def open_store(
    path: Any,
    X: str = "X",
    y: str | None = "y",
    *,
    label: str | None = None,
    features: str | Sequence[str] | None = None,
    drop: str | Sequence[str] = (),
    format: Any = None,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Open the rows and the labels of a zarr group or another file for reading.

    Parameters
    ----------
    path : path, URL or zarr store
        A table by its name (``.parquet``, ``.feather``, ``.arrow``, ``.csv``, ``.tsv``, also as
        ``.gz``) or a folder of them; anything else is zarr. URLs are read through fsspec:
        ``http://``, ``s3://`` (with s3fs) and others.
    X : str
        Name of the zarr array of rows.
    y : str or None
        Name of the zarr array of labels; None if labels are not needed.
    label : str, optional
        Tables: name of the column of labels.
    features : str or sequence of str, optional
        Tables: names of the columns of features; by default all but `label`, `drop` and what pandas
        wrote as an index. A column of lists is all features.
    drop : str or sequence of str, optional
        Tables: names of columns that are not features.
    format : {"parquet", "feather", "csv"} or pyarrow.dataset.FileFormat, optional
        Tables: format of files with other names, or with options of pyarrow, such as
        ``CsvFileFormat(ParseOptions(delimiter=";"))``.
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.

    Returns
    -------
    X : zarr.Array or source of rows, shape (n_rows, n_features)
        The rows.
    y : zarr.Array or source of labels, shape (n_rows,), or None
        The labels.

    Raises
    ------
    SourceNotFoundError
        If the store does not exist.
    SourceError
        If the store is not a zarr group, or lacks one of the arrays.
    InvalidParameterError
        If an option does not apply to files of this kind.

    Examples
    --------
    >>> import numpy as np
    >>> import zarr
    >>> from tempfile import TemporaryDirectory
    >>> from streamgda import open_store
    >>> with TemporaryDirectory() as folder:
    ...     group = zarr.create_group(f"{folder}/ants.zarr")
    ...     group["X"], group["y"] = np.zeros((3, 2)), np.array([0, 1, 1])
    ...     X, y = open_store(f"{folder}/ants.zarr")
    ...     print(X.shape, y[:])
    (3, 2) [0 1 1]
    """
    for argument, name in (("X", X), ("y", "y" if y is None else y)):
        if not isinstance(name, str):
            raise unexpected(argument, name, "the name of an array")
    tables = {"label": label, "features": features, "drop": drop or None, "format": format}
    given = {name: value for name, value in tables.items() if value is not None}
    if format is not None or is_table(path):
        options: dict[str, Any] = {**given, "storage_options": storage_options}
        return table_files(path).open_table(path, labelled=y is not None, **options)
    node, place = open_node(path, storage_options=storage_options), named(path)
    if given:
        names = ", ".join(f"{name}=..." for name in given)
        raise InvalidParameterError(f"{names} goes with tables, and {place} is zarr")
    if hasattr(node, "array_keys"):
        rows = _member(node, place, X, "rows")
        return rows, None if y is None else _member(node, place, y, "labels")
    if y is None:
        return node, None
    raise SourceError(
        f"{place} is a zarr array without labels; expected a group with arrays {X!r} and {y!r}"
    )
