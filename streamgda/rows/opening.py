"""`open_store`: rows and labels in files of any kind, opened for reading.

A new kind of files takes an opener in the module of its adapter, and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Unpack, overload

from streamgda.errors import InvalidParameterError
from streamgda.rows.geotiff import is_geotiff, open_geotiff
from streamgda.rows.polygons import is_polygon_file, open_polygons
from streamgda.rows.stores import open_arrays
from streamgda.rows.table_files import Columns, is_table, open_table, refuse_other_kinds
from streamgda.rows.text_files import TextOptions
from streamgda.runtime.parameters import as_flag, refuse
from streamgda.storage.opening import check_exists, local_path


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


_TEXT = tuple(TextOptions.__annotations__)

# In the order in which they are asked; what no other kind accepts is zarr.
KINDS: tuple[FileKind, ...] = (
    FileKind(is_polygon_file, open_polygons, ("label", "all_touched")),
    FileKind(is_table, open_table, ("label", "features", "storage_options", *_TEXT)),
    FileKind(is_geotiff, open_geotiff, ()),
    FileKind(lambda path: True, open_arrays, ("features", "missing", "storage_options")),
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
    features: Columns | None = None,
    missing: Literal["fill", "error"] = "fill",
    all_touched: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **text: Unpack[TextOptions],
) -> tuple[Any, Any]:
    """Open the rows and the labels of a zarr group or another file for reading.

    Parameters
    ----------
    path : path, URL or zarr store
        A file is read as its name says, otherwise as a zip file of zarr; a directory as a zarr
        store. Polygons (``.gpkg``, ``.geojson``, ``.shp``, ``.fgb``, or a geopandas frame) are
        labels of the pixels of a raster, and returned first. URLs are read through fsspec:
        ``http://``, ``s3://`` (with s3fs) and others.
    X : str
        Name of the zarr array of rows.
    y : str or None
        Name of the zarr array of labels; None if labels are not needed.
    label : str or int, optional
        Name or number of the column of labels, for tables and polygons.
    features : str, int or slice, or sequence of them, optional
        Names or numbers of the columns of features, for tables; by default all but the labels and
        what pandas wrote as an index. A column of lists is all features. For a zarr array such as
        a cube of bands, name or number of the dimension of the features.
    missing : {"fill", "error"}
        Meaning of a missing chunk (or shard): rows of the array's fill value, because zarr omits
        chunks that hold nothing else, or an error when it is read.
    all_touched : bool
        For polygons: label the pixels that only polygons of one class touch, too, and not only
        those whose centre is in a polygon.
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.
    **text
        Options of text: `header`, `delimiter`, `na_values`, `keep_default_na`, `encoding`,
        `decimal` and `comment`; see `streamgda.rows.text_files.TextOptions`.

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
    kind = next(kind for kind in KINDS if kind.accepts(path))
    given = {
        "label": label,
        "features": features,
        "all_touched": as_flag("all_touched", all_touched) or None,
        "missing": None if missing == "fill" else missing,
        "storage_options": storage_options,
        **text,
    }
    options = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        if name not in kind.options:
            check_exists(path)
            raise InvalidParameterError(
                f"{name}={value!r} does not apply to {path}, which is opened with "
                f"{', '.join(kind.options) or 'no options'}"
            )
    return kind.opener(path, X, y, **options)
