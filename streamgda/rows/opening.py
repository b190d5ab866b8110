"""`open_store`: rows and labels in files of any kind, opened for reading.

A new kind of files takes an opener in the module of its adapter, and one line in `KINDS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple, Unpack, overload

from streamgda.errors import InvalidParameterError, SourceError
from streamgda.runtime.parameters import (
    ColumnNames,
    TableOptions,
    refuse,
    require,
)
from streamgda.runtime.retry import raised_as
from streamgda.storage.files import local_path
from streamgda.storage.opening import check_exists, named, open_node


def open_arrays(
    path: Any,
    X: str,
    y: str | None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Return the arrays of rows and labels of a zarr group, or an array of rows and None.

    Parameters and errors are those of `streamgda.open_store`.
    """
    import zarr  # noqa: PLC0415

    node = open_node(path, storage_options=storage_options)
    path = named(path)
    if isinstance(node, zarr.Group):
        rows = _member(node, path, X, "rows")
        labels = None if y is None else _member(node, path, y, "labels")
    elif y is None:
        rows, labels = node, None
    else:
        raise SourceError(
            f"{path} is a zarr array without labels; expected a group with arrays {X!r} and {y!r}"
        )
    return rows, labels


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


# --- names of files -------------------------------------------------------------------------------


_ZARR = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
GROUP_ROWS = 1 << 16  # of scores that are written to a table together: row groups of Parquet
_SUFFIXES = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
    **dict.fromkeys((".csv", ".tsv", ".txt", ".data"), "csv"),
}
# Files of other kinds, and the line that hands their rows over.
_OTHERS = {
    **dict.fromkeys((".h5", ".hdf5"), "HDF5: pass h5py.File(path)['X']"),
    **dict.fromkeys((".nc", ".nc4"), "NetCDF: pass xarray.open_dataarray(path)"),
    **dict.fromkeys((".tif", ".tiff"), "GeoTIFF: pass rioxarray.open_rasterio(path)"),
    ".h5ad": "AnnData: pass anndata.read_h5ad(path).X, and labels from its obs",
    ".mat": "MATLAB's: pass scipy.io.loadmat(path)['X'] or h5py.File(path)['X']",
    ".safetensors": "safetensors: pass safetensors.numpy.load_file(path)['X']",
    **dict.fromkeys((".jsonl", ".ndjson"), "JSON lines: pass pandas.read_json(path, lines=True)"),
    ".orc": "ORC: pass pandas.read_orc(path)",
    ".npy": "NumPy's: pass numpy.load(path, mmap_mode='r')",
    ".npz": "NumPy's: pass numpy.load(path)['X'], or `streamgda convert` it",
    **dict.fromkeys((".xls", ".xlsx"), "Excel's: pass pandas.read_excel(path)"),
}


def format_of(name: str) -> str | None:
    """Return the format of a file of a table by its name; None for names of other files."""
    name = name.partition("?")[0] if "://" in name else name  # of a URL that is signed
    return _SUFFIXES.get(PurePath(name.rstrip("/").lower().removesuffix(".gz")).suffix)


def refuse_other_kinds(path: Any) -> None:
    """Raise `SourceError` for a file of a kind that is handed over in another way."""
    suffix = PurePath(str(path).lower()).suffix
    local = local_path(path) if isinstance(path, str | os.PathLike) else None
    if suffix in _OTHERS and local is not None and local.is_file():
        raise SourceError(f"{path} is {_OTHERS[suffix]}")


def is_table(path: Any) -> bool:
    """Return whether a path or URL is that of a table, by its name or the files in its folder."""
    if not isinstance(path, str | os.PathLike):
        return False
    if format_of(str(path)) is not None:
        return True
    local = local_path(path)
    return local is not None and local.is_dir() and _holds_table(local)


def _holds_table(folder: Path) -> bool:
    for _, _, names in os.walk(folder):
        if any(name in _ZARR for name in names):
            return False
        if any(is_part(name, "") for name in names):
            return True
    return False


def table_files(path: Any) -> Any:
    """Import `streamgda.rows.table_files`, which needs pyarrow; the error names the extra."""
    require("pyarrow.dataset", "arrow", f"tables such as {path}")
    from streamgda.rows import table_files  # noqa: PLC0415

    return table_files


def _open_table(path: Any, X: str, y: str | None, **options: Any) -> tuple[Any, Any]:
    return table_files(path).open_table(path, X, y, **options)


def is_part(path: str, folder: str) -> bool:
    """Return whether a file in a folder is a part of its table."""
    inside = path.removeprefix(folder).strip("/").split("/")
    hidden = any(part.startswith(("_", ".")) for part in inside)
    # A text under these names may be notes.
    return not hidden and format_of(path) is not None and not path.endswith((".txt", ".data"))


def is_table_path(out: Any) -> bool:
    """Return whether scores go to a table, by the name of the path."""
    path = local_path(out)
    return path is not None and format_of(str(path)) is not None


# --- kinds of files -------------------------------------------------------------------------------


class FileKind(NamedTuple):
    """A kind of files.

    Attributes
    ----------
    accepts : callable
        Called with the path; returns True if it is of this kind. Libraries are not imported.
    opener : callable
        Called as ``opener(path, X, y, **options)`` with the options of `open_store` that the
        caller gave; returns the rows, and the labels or None.
    options : tuple of str
        Names of the options that it takes.
    """

    accepts: Callable[[Any], bool]
    opener: Callable[..., tuple[Any, Any]]
    options: tuple[str, ...]


_TABLES = FileKind(
    is_table, _open_table, ("label", "features", "storage_options", *TableOptions.__annotations__)
)
# In the order in which they are asked; what no other kind accepts is zarr.
KINDS: tuple[FileKind, ...] = (
    _TABLES,
    FileKind(lambda path: True, open_arrays, ("storage_options",)),
)


@overload
def open_store(path: Any, X: str, y: None, **options: Any) -> tuple[Any, None]: ...


@overload
def open_store(path: Any, X: str = ..., *, y: None, **options: Any) -> tuple[Any, None]: ...


@overload
def open_store(path: Any, X: str = ..., y: str = ..., **options: Any) -> tuple[Any, Any]: ...


def open_store(  # type: ignore[misc]  # the overloads name only what distinguishes them
    path: Any,
    X: str = "X",
    y: str | None = "y",
    *,
    label: str | int | None = None,
    features: ColumnNames | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **table: Unpack[TableOptions],
) -> tuple[Any, Any]:
    """Open the rows and the labels of a zarr group or another file for reading.

    Parameters
    ----------
    path : path, URL or zarr store
        A file is read as its name says, otherwise as a zip file of zarr; a directory as a zarr
        store. URLs are read through fsspec:
        ``http://``, ``s3://`` (with s3fs) and others.
    X : str
        Name of the zarr array of rows.
    y : str or None
        Name of the zarr array of labels; None if labels are not needed.
    label : str or int, optional
        Name or number of the column of labels, for tables.
    features : str, int or slice, or sequence of them, optional
        Names or numbers of the columns of features, for tables; by default all but the labels and
        what pandas wrote as an index. A column of lists is all features.
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.
    **table
        Options of tables: `drop` (columns that are left out), and of text `format`, `header`,
        `delimiter`, `na_values`, `keep_default_na`, `encoding`, `decimal` and `comment`; see
        `streamgda.runtime.parameters.TableOptions`.

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
            raise refuse(argument, name, "the name of an array")
    local_path(path)  # refuses what cannot be one
    refuse_other_kinds(path)
    named = table.get("format") is None
    kind = next(kind for kind in KINDS if kind.accepts(path)) if named else _TABLES
    given = {
        "label": label,
        "features": features,
        "storage_options": storage_options,
        **table,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        if name not in kind.options:
            check_exists(path)
            what = name if isinstance(value, Mapping) else f"{name}={value!r}"  # credentials
            raise InvalidParameterError(
                f"{what} does not apply to {path}, which is opened with "
                f"{', '.join(kind.options) or 'no options'}"
            )
    return kind.opener(path, X, y, **options)
