"""Zarr stores, groups and arrays of any kind, opened for reading."""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

from streamgda.errors import (
    FormatError,
    InvalidParameterError,
    SourceError,
    SourceNotFoundError,
    WriteError,
    cause_of,
    printable,
)
from streamgda.runtime.interruption import uninterrupted
from streamgda.runtime.parameters import check_type, shown
from streamgda.runtime.retry import brief, raised_as
from streamgda.storage.replacing import exists

Result = TypeVar("Result")

WHOLE = {"write_empty_chunks": True}  # configuration of arrays without missing chunks
MARK = "streamgda_scores"  # the attribute of arrays of scores that keeps how far they are written
_LONGEST = 200  # characters of a name in a message

_ENDINGS = ("", ".zarr", ".zip", ".partial")  # of new arrays and groups

# Names of the files of zarr, format 3. It writes each under the first name, and then renames it.
_PARTIAL = r"\.[0-9a-f]{32}\.partial"
_METADATA = rf"zarr(\.json|{_PARTIAL})"
_CHUNK = rf"c(/[0-9]+)*({_PARTIAL})?"


def open_node(
    store: Any,
    *,
    storage_options: Mapping[str, Any] | None = None,
    guard: Callable[[Any], Any] | None = None,
    mode: Literal["r", "r+"] = "r",
) -> Any:
    """Open a zarr group or array.

    Parameters
    ----------
    store : path, URL, zarr store or group
    storage_options : dict, optional
        Options of the file system of a URL: credentials, an endpoint.
    guard : callable, optional
        Wraps the zarr store in another one; see `streamgda.storage.guards`.
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
    try:
        import zarr  # noqa: PLC0415

        found, inside = locate(store, storage_options, read_only=mode == "r")
        try:
            return zarr.open(found if guard is None else guard(found), path=inside, mode=mode)
        except BaseException:
            close(store, found)
            raise
    except (SourceNotFoundError, SourceError):
        raise
    except FileNotFoundError as error:
        kind = SourceNotFoundError if local_path(store) is None else SourceError
        message = f"{named(store)} holds no zarr group or array: {brief(error)}"
        raise kind(message) from cause_of(error)
    except Exception as error:  # the kind depends on the store
        path = local_path(store)
        other = path is not None and path.is_file() and path.suffix.lower() != ".zip"
        advice = "; `streamgda convert` makes zarr of files of other kinds" if other else ""
        message = f"{named(store)} cannot be opened as zarr: {brief(error)}{advice}"
        raise SourceError(message) from cause_of(error)


@contextlib.contextmanager
def opened_node(store: Any, **options: Any) -> Iterator[Any]:
    """Open a zarr group or array as `open_node` does, and close its store on leaving."""
    node = open_node(store, **options)
    try:
        yield node
    finally:
        close(store, node.store)


@contextlib.contextmanager
def described(store: Any) -> Iterator[Any]:
    """Open any zarr group or array, to read its metadata only.

    Raises
    ------
    SourceNotFoundError
        If the store does not exist.
    SourceError
        If it is not zarr, or cannot be described.
    """
    from streamgda.storage.guards import Described  # noqa: PLC0415  (it needs zarr)

    failure = f"{store} cannot be described"
    with raised_as(SourceError, failure), opened_node(store, guard=Described) as node:
        yield node


def as_target(store: Any, name: str) -> Any:
    """Return the store, or the place in one, where zarr can create a group or an array.

    Parameters
    ----------
    store : path, URL, zarr store or group
    name : str
        Name of the parameter, in errors.

    Raises
    ------
    TypeError
        For anything else.
    SourceError
        If the store cannot be written.
    """
    import zarr  # noqa: PLC0415

    found = store.store_path if isinstance(store, zarr.Group) else local_path(store) or store
    kinds = (str, os.PathLike, dict, zarr.abc.store.Store, zarr.storage.StorePath)
    expected = "an array of numpy or zarr, or a path or zarr store to create one in"
    check_type(name, found, kinds, expected)
    if isinstance(found, dict):
        _check_names(found)
    inner = found.store if isinstance(found, zarr.storage.StorePath) else found
    if isinstance(inner, zarr.abc.store.Store) and not inner.supports_writes:
        raise SourceError(
            f"{name} is a {type(inner).__name__}, which refers to other files and cannot be "
            f"written; pass a path or another store"
        )
    if getattr(inner, "read_only", False) or getattr(store, "read_only", False):
        raise SourceError(f"{name} is a read-only {type(inner).__name__}; open it for writing")
    return found


def check_new(store: Any, files: str = "") -> None:
    """Refuse an `out` for a new array or group that has another ending, or is in no folder.

    Parameters
    ----------
    store : path, URL or zarr store
    files : str
        Endings of files that can be written as well, for errors.

    Raises
    ------
    InvalidParameterError
        If the ending is that of other files.
    SourceNotFoundError
        If the folder in which it would be does not exist.
    """
    if not isinstance(store, str | os.PathLike):
        return
    local_path(store)  # refuses what cannot be one
    ending = PurePath(store).suffix.lower()
    if ending not in _ENDINGS:
        raise InvalidParameterError(
            f"out={str(store)!r} ends in {ending}; expected {files}.zarr or no ending (a zarr "
            f"array)"
        )
    check_folder(store)


def check_exists(store: Any, expected: str = "") -> None:
    """Raise SourceNotFoundError if a local path does not exist."""
    path = local_path(store)
    if path is not None and not exists(path):
        raise SourceNotFoundError(f"{path} does not exist{expected and f'; expected {expected}'}")


def check_folder(store: Any) -> None:
    """Raise SourceNotFoundError if a local path is in no folder."""
    path = local_path(store)
    if path is not None and not path.resolve().parent.is_dir():
        raise SourceNotFoundError(
            f"{path.resolve().parent} is no folder, so that {path} cannot be written: create it "
            f"first, or choose another path"
        )


def _check_names(store: Mapping[Any, Any]) -> None:
    """Raise `InvalidParameterError` for a dict that is no store, by names of its files."""
    other = [key for key in store if not isinstance(key, str)]
    if other:
        raise InvalidParameterError(
            f"the store is a dict with the key {shown(other[0])}; expected names of files as keys, "
            f"as in the empty dict {{}} to save to, or a path"
        )


@contextlib.contextmanager
def creating(store: Any) -> Iterator[None]:
    """Enter a context in which zarr creates a node in `out`, where there is nothing yet.

    Raises
    ------
    SourceError
        If there is anything.
    """
    import zarr  # noqa: PLC0415

    errors = zarr.errors
    try:
        if next(contents(store), None) is not None:
            raise FileExistsError
        yield
    except (FileExistsError, errors.ContainsGroupError, errors.ContainsArrayError):
        raise SourceError(
            f"out={named(store)} exists already; choose another path, or remove it first"
        ) from None


def stranger(store: Any, arrays_of: Callable[[Any], Collection[str] | None]) -> str | None:
    """Return the name of something in a store that must not be replaced; None if nothing is.

    Parameters
    ----------
    store : path, URL, zarr store or group
    arrays_of : callable
        Called with the node in the store; returns the names of the arrays in a group that may be
        replaced ("" is an array without a group), or None if the node may not.
    """
    while True:
        before = _identity(store)
        found = _stranger(store, arrays_of)
        # The files of a directory are listed one by one, and its writer may replace it meanwhile.
        if _identity(store) == before:
            return found


def _stranger(store: Any, arrays_of: Callable[[Any], Collection[str] | None]) -> str | None:
    first = next(contents(store), None)
    if first is None:
        return None
    try:
        with described(store) as node:
            arrays = arrays_of(node)
    except (SourceError, SourceNotFoundError, FormatError):
        return first
    if arrays is None:
        return first
    parents = (name.split("/")[:n] for name in arrays for n in range(name.count("/") + 1))
    nodes = {"", *arrays, *map("/".join, parents)}
    own = [f"{re.escape(f'{name}/' if name else '')}{_METADATA}" for name in nodes]
    own += [f"{re.escape(f'{name}/' if name else '')}{_CHUNK}" for name in arrays]
    known = re.compile("|".join(own))
    return next((name for name in contents(store) if not known.fullmatch(name)), None)


def remove_partial_files(folder: Path) -> None:
    """Remove what a killed process has left beside the chunks of an array of scores."""
    left = re.compile(rf"(zarr|c(/[0-9]+)*){_PARTIAL}")
    for name in contents(folder):
        if left.fullmatch(name):
            (folder / name).unlink(missing_ok=True)


def contents(store: Any) -> Iterator[str]:
    """Yield the names of all files of a local path, or all keys of a store.

    A file that is no zip file is a name, too.
    """
    path = local_path(store)
    if path is None:
        yield from _keys(*locate(store, read_only=False))
    elif path.is_dir():
        for folder, folders, files in os.walk(path):
            here = Path(folder)
            links = (name for name in folders if (here / name).is_symlink())
            empty = () if folders or files or here == path else ("",)
            for name in (*files, *links, *empty):
                yield (here / name).relative_to(path).as_posix()
    elif exists(path):
        try:
            with zipfile.ZipFile(path) as packed:
                yield from packed.namelist()
        except (OSError, zipfile.BadZipFile):
            yield path.name


def _keys(store: Any, inside: str) -> Iterator[str]:
    """Yield the keys below a place in a store, as far as it can list them."""
    root = getattr(store, "root", None)
    if isinstance(root, Path):
        yield from contents(root / inside)
    elif getattr(store, "supports_listing", False):
        from zarr.buffer import default_buffer_prototype  # noqa: PLC0415
        from zarr.core.sync import sync  # noqa: PLC0415

        start = f"{inside}/" if inside else ""

        async def listed() -> list[str]:
            await store.get("zarr.json", default_buffer_prototype())  # opens it
            return [key async for key in store.list_prefix(start)]

        yield from (key.removeprefix(start) for key in sync(listed()))


def named(store: Any) -> str:
    """Return the name of a store in a message, on one line; its type if that is long."""
    text = printable(store)
    return text if len(text) <= _LONGEST and text.isprintable() else type(store).__name__


# --- the one way to a zarr store ----------------------------------------------------------------


def locate(
    store: Any, storage_options: Mapping[str, Any] | None = None, *, read_only: bool = True
) -> tuple[Any, str]:
    """Return a zarr store and the path of a node in it; parameters as of `open_node`."""
    import zarr  # noqa: PLC0415

    if isinstance(store, zarr.Group | zarr.Array):
        store = store.store_path
    if isinstance(store, zarr.storage.StorePath):
        return store.store, store.path
    if isinstance(store, dict):
        _check_names(store)
        return zarr.storage.MemoryStore(store), ""
    path = local_path(store)
    if storage_options is not None and not (isinstance(store, str) and path is None):
        raise InvalidParameterError(f"storage_options are for URLs, and {store} is on this machine")
    if path is not None:
        check_exists(path, "a zarr group")
        if path.is_file():
            return zarr.storage.ZipStore(path, mode="r"), ""
        return zarr.storage.LocalStore(path, read_only=read_only), ""
    if isinstance(store, str):
        options = dict(storage_options or {})
        return zarr.storage.FsspecStore.from_url(store, options, read_only=read_only), ""
    return store, ""


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
    if not hasattr(found, "supports_writes"):  # not one of zarr
        return False
    from zarr.storage import LocalStore, MemoryStore, ZipStore  # noqa: PLC0415

    return not isinstance(found, LocalStore | MemoryStore | ZipStore)


def undisturbed(store: Any, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function that reads or writes a store, completely if the store is on a local disk.

    zarr has one thread for everything. An interrupt of what waits for it may leave a lock behind
    that this thread needs, and then all that comes later waits for ever. Waits for a remote store
    may be long, and can be interrupted.
    """
    if path_of(store) is None:
        return function(*arguments)
    return uninterrupted(function, *arguments)


def reread_if_replaced(read: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that reads a store read it again if it was replaced meanwhile.

    Files of a directory are opened one by one, and so a reader may find old and new ones.
    """

    @wraps(read)
    def consistent(store: Any, *arguments: Any) -> Any:
        while True:
            before = _identity(store)
            try:
                return undisturbed(store, read, store, *arguments)
            except (FormatError, SourceError, SourceNotFoundError):
                if _identity(store) == before:
                    raise

    return consistent


def _identity(store: Any) -> tuple[int, int] | None:
    """Return what distinguishes the file or directory at a path from the one that replaces it."""
    path = local_path(store)
    if path is None or not exists(path):
        return None
    with contextlib.suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_ctime_ns
    return None


def local_path(store: Any) -> Path | None:
    """Return the local path that a store was given as, if it was.

    Raises
    ------
    InvalidParameterError
        For a text that cannot be a path.
    """
    if not isinstance(store, str | os.PathLike) or "://" in str(store):
        return None
    if store == "" or "\0" in str(store):
        raise InvalidParameterError(f"{str(store)!r} is not a path: it is empty, or holds a NUL")
    if re.match(r"[a-z][a-z0-9+.-]+:/", str(store)):
        raise InvalidParameterError(
            f"{named(store)} is a URL that was made a path, which has lost a slash; expected a "
            f"path on this machine, or a URL as a text"
        )
    return Path(store)


def path_of(store: Any) -> Path | None:
    """Return the local path of a path, or of a store or a node in a directory; None for others."""
    path = local_path(store)
    if path is None:
        root = getattr(innermost(getattr(store, "store", store)), "root", None)
        path = root / getattr(store, "path", "") if isinstance(root, Path) else None
    return None if path is None else path.resolve()


def innermost(store: Any) -> Any:
    """Return the zarr store that others are wrapped around."""
    while hasattr(store, "_store") and hasattr(store, "supports_writes"):
        store = store._store
    return store


def close(store: Any, found: Any) -> None:
    """Close a zarr store that was found at a path or a URL; leave the caller's own stores open."""
    if isinstance(store, str | os.PathLike):
        with contextlib.suppress(AttributeError):  # zarr raises it for zip files never opened
            found.close()


def mark_of(values: Any) -> dict[str, Any] | None:
    """Return the attribute that describes the scores in an array; None if it has none."""
    attributes = getattr(values, "attrs", None)
    mark = attributes.get(MARK) if isinstance(attributes, Mapping) else None
    return mark if isinstance(mark, dict) else None


def refuse_half_written(values: Any, what: str) -> None:
    """Raise `SourceError` if this is an array of scores that is not complete."""
    mark = mark_of(values)
    if mark and not mark.get("complete"):
        raise SourceError(
            f"{what} holds scores that are half-written: {mark.get('done')} of "
            f"{mark.get('n_rows', values.shape[0])} rows. Run the same command again to complete "
            f"them"
        )
