"""Zarr groups and arrays: opened for reading, and created where there is nothing yet."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, Literal

from streamgda.errors import (
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
    WriteError,
    brief,
    cause_of,
    printable,
    raised_as,
)
from streamgda.runtime.parameters import check_type
from streamgda.storage.files import local_path

WHOLE = {"write_empty_chunks": True}  # Arrays of this configuration have no missing chunks.
MARK = "streamgda_scores"  # This attribute says how far an array of scores is written.
_LONGEST = 200  # Messages show so many characters of a name.

TABLES = (".parquet", ".csv")  # Names of tables of scores end like this,
_ENDINGS = ("", ".zarr", ".zip")  # Names of arrays of scores end like this.


def open_node(
    store: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    mode: Literal["r", "r+"] = "r",
) -> Any:
    """Open a zarr group or array.

    Parameters
    ----------
    store : path, URL, zarr store or group
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.
    mode : {"r", "r+"}
        "r+" allows writing to an existing node.

    Returns
    -------
    zarr.Group or zarr.Array

    Raises
    ------
    SourceNotFoundError
        If the store does not exist.
    SourceError
        If it is not zarr, or cannot be opened.
    """
    import zarr  # noqa: PLC0415

    path, found = local_path(store, storage_options), store
    if path is not None and not path.exists():
        raise SourceNotFoundError(f"{path} does not exist; expected a zarr group or a table")
    try:
        if isinstance(store, zarr.Group | zarr.Array):
            found = store.store_path
        elif path is not None and path.is_file():
            found = zarr.storage.ZipStore(path, mode="r")
        return zarr.open(found, mode=mode, storage_options=storage_options)
    except Exception as error:  # The kind depends on the store.
        missing = isinstance(error, FileNotFoundError) and path is None
        message = f"{named(store)} cannot be opened as zarr: {brief(error)}"
        if path is not None and path.is_file() and path.suffix != ".zip":
            message = (
                f"{path} is neither zarr nor a table (.parquet, .feather or .csv): open it in "
                f"Python, and pass its arrays, or write them by streamgda.datasets.convert"
            )
        raise (SourceNotFoundError if missing else SourceError)(message) from cause_of(error)


def as_target(out: Any) -> Any:
    """Return the path or the store, or the place in one, to which scores can be written.

    Parameters
    ----------
    out : path, URL, zarr store or group
        A path is that of a table by its ending, otherwise that of a zarr array.

    Raises
    ------
    TypeError
        For anything else.
    InvalidParameterError
        If the ending is that of other files.
    """
    import zarr  # noqa: PLC0415

    path = local_path(out)
    found = out.store_path if isinstance(out, zarr.Group) else path or out
    kinds = (str, os.PathLike, zarr.abc.store.Store, zarr.storage.StorePath)
    expected = "an array of numpy or zarr, or a path or zarr store to create one in"
    check_type("out", found, kinds, expected)
    ending = PurePath(found).suffix.lower() if isinstance(found, str | os.PathLike) else ""
    if ending not in (_ENDINGS if path is None else (*_ENDINGS, *TABLES)):
        raise InvalidParameterError(
            f"out={str(out)!r} ends in {ending}; expected .parquet or .csv (a table, on this "
            f"machine), .zarr or no ending (a zarr array)"
        )
    return found


@contextlib.contextmanager
def creating(store: Any) -> Iterator[None]:
    """Enter a context in which zarr creates a node where there is nothing yet.

    Raises
    ------
    SourceError
        If there is anything.
    WriteError
        If a remote store cannot be written.
    """
    import zarr  # noqa: PLC0415

    path = local_path(store)
    root = getattr(getattr(store, "store", store), "root", None)
    if isinstance(root, Path):  # The store is a directory.
        path = root / getattr(store, "path", "")
    with writing(store):
        try:
            if path is not None and path.exists() and (path.is_file() or any(path.iterdir())):
                raise FileExistsError
            yield
        except (FileExistsError, zarr.errors.ContainsGroupError, zarr.errors.ContainsArrayError):
            raise SourceError(
                f"{named(store)} exists already; choose another path, or remove it first"
            ) from None


def named(store: Any) -> str:
    """Return the name of a store in a message, on one line; its type if that is long."""
    text = printable(store)
    return text if len(text) <= _LONGEST and text.isprintable() else type(store).__name__


@contextlib.contextmanager
def writing(store: Any) -> Iterator[None]:
    """Enter a context in which failures to write a remote store name it.

    Raises
    ------
    WriteError
        In place of the errors of networks and their clients.
    """
    if not is_remote(store):
        yield
        return
    with raised_as(WriteError, f"{named(store)} cannot be written"):
        yield


def is_remote(store: Any) -> bool:
    """Return whether a store, or a node in one, is neither on a local disk nor in memory."""
    if isinstance(store, str):
        return local_path(store) is None
    found = getattr(store, "store", store)
    if not hasattr(found, "supports_writes"):  # A store of zarr has this attribute.
        return False
    from zarr.storage import LocalStore, MemoryStore, ZipStore  # noqa: PLC0415

    return not isinstance(found, LocalStore | MemoryStore | ZipStore)


def mark_of(values: Any) -> dict[str, Any] | None:
    """Return the attribute that describes the scores in an array; None if it has none."""
    attributes = getattr(values, "attrs", None)
    mark = attributes.get(MARK) if isinstance(attributes, Mapping) else None
    return mark if isinstance(mark, dict) else None


def check_complete(values: Any, what: str) -> None:
    """Raise `SourceError` if this is an array of scores that is not complete."""
    mark = mark_of(values)
    if mark and not mark.get("complete"):
        raise SourceError(
            f"{what} holds scores that are half-written: {mark.get('done')} of "
            f"{mark.get('n_rows', values.shape[0])} rows. Run the same command again to complete "
            f"them"
        )
