"""Saved files: written aside and moved into place on this machine, or by one request at a URL.

A file that is there is only replaced if streamgda saved it, and a directory never is.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from streamgda.errors import (
    FormatError,
    InvalidParameterError,
    ReadError,
    SourceError,
    SourceNotFoundError,
    WriteError,
    cause_of,
)
from streamgda.runtime.interruption import deferred_interrupts
from streamgda.runtime.parameters import check_type
from streamgda.storage.format import is_saved

_START = 64  # These first bytes of a file at a URL show that streamgda saved it.


def reading(
    place: Any, storage_options: Mapping[str, Any] | None = None, end: int | None = None
) -> BinaryIO:
    """Open a file at a path or a URL; of a URL, up to a byte.

    Raises
    ------
    SourceNotFoundError
        If it does not exist.
    FormatError
        If it is a directory.
    ReadError
        If a URL cannot be read.
    """
    path = local_path(place, storage_options)
    try:
        if path is not None:
            return path.open("rb")
        return io.BytesIO(_at_url(place, storage_options, "cat_file", end=end))
    except FileNotFoundError:
        raise SourceNotFoundError(f"{place} does not exist") from None
    except IsADirectoryError:
        raise FormatError(f"{place} is a directory; expected a file that streamgda saved") from None


@contextlib.contextmanager
def replacing(place: Any, storage_options: Mapping[str, Any] | None = None) -> Iterator[BinaryIO]:
    """Yield an empty file to be written, which replaces the one at a path or a URL on leaving.

    On an error, what was there stays. A file on this machine is on the disk before it replaces
    another; it keeps the mode of that one, and symbolic links to it stay. Interrupts are deferred
    until it is there.

    Raises
    ------
    SourceError
        If a directory or a file that streamgda did not save is there.
    WriteError
        If a URL cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from streamgda import ClassMoments
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(f"{folder}/moments.npz") as file:
    ...         _ = file.write(ClassMoments().to_bytes())
    ...     print([path.name for path in Path(folder).iterdir()])
    ['moments.npz']
    """
    path = _replaceable(place, storage_options)
    if path is None:
        memory = io.BytesIO()
        yield memory
        _at_url(place, storage_options, "pipe_file", memory.getvalue())
        return
    path = path.resolve()  # A link stays one.
    with deferred_interrupts(), aside(path) as partial, open(partial, "x+b") as file:
        if path.exists():
            os.chmod(partial, stat.S_IMODE(path.stat().st_mode))
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def aside(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a path to a new file or directory to be written, which is moved to `path` on leaving.

    It is in the same folder, which is made if it is missing. On an error, nothing is left of it.
    Errors of the system name `path`.

    Parameters
    ----------
    path : Path
        Not a directory, unless an empty one.
    suffix : str
        Suffix of the yielded path, for writers that depend on it.
    """
    partial = path.with_name(f"{path.name[:50]}.{secrets.token_hex(4)}.partial{suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        if partial.is_dir():
            shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            partial.unlink()
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(partial)):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def check_place(place: Any) -> None:
    """Raise the errors of `replacing` now, rather than when there is something to write."""
    path = _replaceable(place)
    if path is not None:
        folder = path.resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


def _replaceable(place: Any, storage_options: Mapping[str, Any] | None = None) -> Path | None:
    """Return the path of a place on this machine, None for a URL.

    Raises
    ------
    SourceError
        If a directory or a file that streamgda did not save is there.
    """
    path = local_path(place, storage_options)
    try:
        saved = path is None or path.is_file() or not path.exists()  # A pipe may never end.
        if saved:
            with reading(place, storage_options, _START) as file:
                saved = is_saved(file)
    except SourceNotFoundError:
        return path
    if not saved:
        raise SourceError(
            f"{place} is not a file that streamgda saved, and would be lost: choose another path, "
            f"or remove it first"
        )
    return path


def local_path(store: Any, storage_options: Mapping[str, Any] | None = None) -> Path | None:
    """Return the local path that a store was given as, if it was; None for URLs and others.

    Raises
    ------
    InvalidParameterError
        For a text that cannot be a path, and for options of a path.
    """
    if not isinstance(store, str | os.PathLike):
        return None
    text = str(store).removeprefix("file://")
    if "://" in text:
        return None
    if storage_options is not None:
        raise InvalidParameterError(f"storage_options are for URLs, and {store} is a path")
    if text == "" or "\0" in text:
        raise InvalidParameterError(f"{text!r} is not a path: it is empty, or holds a NUL")
    if re.match(r"[a-z][a-z0-9+.-]+:/", text):
        raise InvalidParameterError(
            f"{store} is a URL that was made a path, which has lost a slash; expected a path on "
            f"this machine, or a URL as a text"
        )
    return Path(text)


def file_system(place: Any, storage_options: Mapping[str, Any] | None) -> tuple[Any, str]:
    """Return fsspec's file system of a path or a URL, and the name of the place in it."""
    from fsspec.core import url_to_fs  # noqa: PLC0415

    return url_to_fs(os.fspath(place), **(storage_options or {}))


def _at_url(
    url: Any,
    storage_options: Mapping[str, Any] | None,
    method: str,
    *values: Any,
    **options: Any,
) -> Any:
    """Call a method of the file system of a URL with the name of the file there."""
    check_type("path", url, str, "a path or a URL of a file")
    try:
        files, name = file_system(url, storage_options)
        return getattr(files, method)(name, *values, **options)
    except Exception as error:  # The kind depends on the file system.
        if isinstance(error, FileNotFoundError) and not values:
            raise
        kind, done = (WriteError, "written") if values else (ReadError, "read")
        raise kind(f"{url} cannot be {done}: {error}") from cause_of(error)
