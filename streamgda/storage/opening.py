"""Zarr stores of any kind, opened for reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from streamgda.errors import InvalidParameterError, SourceError, SourceNotFoundError
from streamgda.runtime.retry import brief, patiently


def open_store(
    path: Any,
    X: str = "X",
    y: str | None = "y",
    *,
    missing: Literal["fill", "error"] = "fill",
    storage_options: Mapping[str, Any] | None = None,
) -> tuple[Any, Any]:
    """Open a zarr group that holds rows and labels, for reading.

    Parameters
    ----------
    path : path, URL or zarr store
        A path that ends in ``.zip`` is a zip file. URLs are read through fsspec: ``http://``,
        ``s3://`` (with s3fs) and their like.
    X, y : str
        Names of the arrays; ``y=None`` where labels are not needed.
    missing : {"fill", "error"}
        What a chunk (or shard) that is not there means: rows of the array's fill value, as zarr has
        it (which leaves out chunks that hold nothing else), or an error when it is read.
    storage_options : dict, optional
        For the file system of a URL: credentials, an endpoint.

    Returns
    -------
    X : zarr.Array, shape (n_rows, n_features)
    y : zarr.Array, shape (n_rows,), or None

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    SourceError
        Where there is no zarr group, or it lacks one of the arrays.
    """
    import zarr  # noqa: PLC0415

    node = open_node(path, missing=missing, storage_options=storage_options)
    if not isinstance(node, zarr.Group):
        if y is None:
            return node, None
        raise SourceError(
            f"{path} is a zarr array and has no labels with it; expected a group with arrays "
            f"{X!r} and {y!r}"
        )
    return _member(node, path, X, "rows"), None if y is None else _member(node, path, y, "labels")


def open_node(
    path: Any,
    *,
    missing: str = "fill",
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Open a zarr group or array for reading; parameters and errors as of `open_store`."""
    import zarr  # noqa: PLC0415

    if missing not in ("fill", "error"):
        raise InvalidParameterError(f"missing={missing!r}; expected 'fill' or 'error'")
    local = isinstance(path, str | Path) and "://" not in str(path)
    if local and not Path(path).exists():
        raise SourceNotFoundError(f"{path} does not exist; expected a zarr group")
    try:
        store = zarr.storage.ZipStore(path, mode="r") if str(path).endswith(".zip") else path
        options = None if storage_options is None else dict(storage_options)
        node: Any = patiently(lambda: zarr.open(store, mode="r", storage_options=options))
        if missing == "error":
            from streamgda.storage.guards import Complete  # noqa: PLC0415  (it needs zarr)

            node = zarr.open(Complete(node.store), path=node.path, mode="r")
    except Exception as error:  # as many kinds as there are stores
        if not local and isinstance(error, FileNotFoundError):
            raise SourceNotFoundError(f"{path} holds no zarr group or array: {error}") from error
        raise SourceError(f"{path} cannot be opened as zarr: {brief(error)}") from error
    return node


def _member(group: Any, path: Any, name: str, what: str) -> Any:
    # Asked for by its name: not every store can list what it has.
    try:
        node = patiently(lambda: group.get(name))
    except Exception as error:  # as many kinds as there are stores
        raise SourceError(f"{path}: {name!r} cannot be opened: {brief(error)}") from error
    if node is not None and hasattr(node, "shape"):
        return node
    if node is not None:
        raise SourceError(f"{path}: {name!r} is a group, where an array of {what} is due")
    try:
        there = ", ".join(sorted(group.array_keys())) or "none at all"
    except Exception:
        there = "others that cannot be listed"
    raise SourceError(f"{path} lacks {what}: it has no array {name!r}, but {there}")
