"""Replacing a file or a directory in one step, no matter who else writes to the same path.

New contents are written under a temporary name beside the old ones and moved into place once they
are complete. A failure on the way leaves the old contents as they were. A writer of ``model`` has
a random number, and holds or creates

- ``model.streamgda-1a2b3c4d.lock`` as long as its process lives, which protects the others from
  removal;
- ``model.streamgda-1a2b3c4d.partial``, the new contents;
- ``model.streamgda-1a2b3c4d.old``, the old contents, on systems that cannot exchange two
  directories in one step. Between two renames, these are the only ones: the next reader or writer
  moves them back.

A writer that takes several steps, each of which the next process can resume, holds
``model.streamgda.lock``. Files with other names are never removed.

A lock file holds the number of its process, and shows whether that is still alive: the system
releases a lock when its process ends, in whatever way. Forked children, which may live longer, do
not hold the locks of their parents.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from streamgda.errors import SourceError, StreamGDAError

_PATIENCE = 1.0  # seconds to wait for a writer between two renames
_IN_THE_WAY = (errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)  # a directory, or file
_FILES = re.compile(r"\.(zip|tiff?|parquet|arrow|feather|ipc|csv)$", re.IGNORECASE)
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # only writing fails with these


@contextlib.contextmanager
def replacing(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a path to write to; on leaving without an error, its contents replace those of `path`.

    The old or the new contents are there at any time. A file is moved once it is on the disk.
    Of several writers, the last one wins. What killed writers have left is removed.

    Parameters
    ----------
    path : Path
        Missing parent directories are created, and symbolic links are followed.
    suffix : str
        Suffix of the temporary name, for writers that depend on it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "notes"
    ...     with replacing(file) as partial:
    ...         _ = partial.write_text("complete")
    ...     file.read_text(), len(list(Path(folder).iterdir()))
    ('complete', 1)
    """
    path = path.resolve()
    _refuse_within_stores(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_left_overs(path)
        with _number(path) as number:
            partial = _temporary(path, number, f"partial{suffix}")
            yield partial
            _move(partial, path, _temporary(path, number, "old"))


def move_into_place(partial: Path, path: Path) -> None:
    """Move a complete file or directory to `path`, replacing the existing one."""
    with naming(path), _number(path) as number:
        _move(partial, path, _temporary(path, number, "old"))
        _remove(partial)


@contextlib.contextmanager
def only_writer(path: Path, kind: type[StreamGDAError] = SourceError) -> Iterator[None]:
    """Enter a context in which no other process or thread writes to a path in several steps.

    Raises
    ------
    StreamGDAError
        Of that kind, if another process or thread does.
    """
    path = path.resolve()
    _refuse_within_stores(path, kind)
    lock = lock_of(path)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a directory that cannot be written, or is missing
            if not stack.enter_context(locked(lock)):
                raise kind(
                    f"{path} is being written by another process or thread: wait for it, or name "
                    f"another path (if there is none, remove {lock})"
                )
        yield


def lock_of(path: Path) -> Path:
    """Return the lock of those who write to a path in several steps."""
    return path.with_name(f"{path.name}.streamgda.lock")


def try_place(path: Path) -> None:
    """Raise OSError unless files can be created beside a path, whose parent may be missing."""
    _refuse_within_stores(path)
    beside = next(parent for parent in path.parents if parent.exists()) / path.name
    with naming(path, beside), _number(beside):
        pass


def exists(path: Path) -> bool:
    """Return whether a path exists; a replacement that was interrupted half-way is undone first."""
    if path.exists():
        return True
    path, until = path.resolve(), time.monotonic() + _PATIENCE
    while any(name.endswith(".old") for name in _left_overs(path)) and time.monotonic() < until:
        remove_left_overs(path)
        if path.exists():
            return True
        time.sleep(0.001)
    return path.exists()


def is_free(path: Path) -> bool:
    """Return True if the path does not exist, or is an empty directory."""
    return not exists(path) or (path.is_dir() and not any(path.iterdir()))


def remove_left_overs(path: Path) -> None:
    """Remove the temporary files that killed processes left beside a path, as far as possible."""
    path = path.resolve()
    numbers = {name.removeprefix(f"{path.name}.").split(".")[0] for name in _left_overs(path)}
    for number in numbers:
        with contextlib.suppress(OSError), locked(_temporary(path, number, "lock")) as free:
            if free:
                _settle(path, number)


@contextlib.contextmanager
def naming(path: Path, written: Path | None = None) -> Iterator[None]:
    """Name the path in errors of the system that name no file, or a temporary one.

    Parameters
    ----------
    path : Path
    written : Path, optional
        The path beside which temporary files are written, if it is another one.
    """
    try:
        yield
    except StreamGDAError:
        raise
    except OSError as error:
        name = error.filename
        temporary = name is not None and str(name).startswith(f"{written or path}.")
        if not temporary and (name is not None or error.errno not in _FULL):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


# --- temporary files ------------------------------------------------------------------------------


def _temporary(path: Path, number: str, what: str) -> Path:
    return path.with_name(f"{path.name}.{number}.{what}")


def _left_overs(path: Path) -> list[str]:
    """Return the names of the temporary files of all writers of a path."""
    kind = re.compile(rf"{re.escape(path.name)}\.streamgda-[0-9a-f]{{8}}\.(lock|old|partial.*)")
    try:
        return [name for name in os.listdir(path.parent) if kind.fullmatch(name)]
    except OSError:  # there is no such directory, or it cannot be listed
        return []


@contextlib.contextmanager
def _number(path: Path) -> Iterator[str]:
    """Yield the number of a writer, whose temporary files are removed on leaving."""
    while True:
        number = f"streamgda-{uuid.uuid4().hex[:8]}"
        with locked(_temporary(path, number, "lock")) as free:
            if not free:  # another writer is just removing what it takes for a left-over
                continue
            try:
                yield number
            finally:
                _settle(path, number)
            return


def _refuse_within_stores(path: Path, error: type[StreamGDAError] = SourceError) -> None:
    """Raise an error for a file within a zarr store, or anything within a zarr array.

    Other paths within a zarr group become members of it.
    """
    for folder in path.parents:
        kind = _kind_of_node(folder)
        if kind == "array" or (kind == "group" and _FILES.search(path.name)):
            raise error(f"{path} is within the zarr {kind} {folder}: choose another path")


def _kind_of_node(folder: Path) -> str | None:
    """Return "array" or "group" for the directory of a node of zarr, and None for others."""
    for name, kind in ((".zarray", "array"), (".zgroup", "group")):
        if (folder / name).exists():
            return kind
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        return json.loads((folder / "zarr.json").read_bytes())["node_type"]
    return None


def _settle(path: Path, number: str) -> None:
    """Remove the temporary files of a writer; move old contents back if there are no others."""
    start = f"{path.name}.{number}."
    left = {name for name in _left_overs(path) if name.startswith(start)}
    for name in sorted(left - {f"{start}lock"}):  # the lock is removed by its owner
        if name.endswith(".old") and not path.exists():
            with contextlib.suppress(OSError):  # another writer was faster
                path.with_name(name).rename(path)
        _remove(path.with_name(name))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


# --- moving ---------------------------------------------------------------------------------------


def _move(partial: Path, path: Path, old: Path) -> None:
    """Move new contents into place; old ones may end at either of the other paths."""
    if partial.is_file():
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
    while True:
        try:
            partial.replace(path)
            return
        except OSError as error:
            # Ask for the kind of error first: another writer may have moved the directory since.
            if error.errno not in _IN_THE_WAY and not path.is_dir():
                raise
        if exchange(partial, path):
            return
        _remove(old)
        with contextlib.suppress(FileNotFoundError):  # another writer has moved it
            path.replace(old)


def exchange(one: Path, other: Path) -> bool:
    """Exchange two files or directories in one step; return False if the system cannot."""
    function, arguments = {
        "linux": ("renameat2", (-100, one, -100, other, 2)),  # AT_FDCWD, RENAME_EXCHANGE
        "darwin": ("renamex_np", (one, other, 2)),  # RENAME_SWAP
    }.get(sys.platform, ("", ()))
    call = getattr(ctypes.CDLL(None), function, None) if function else None
    if call is None:  # another system, or an old one
        return False
    return call(*(os.fsencode(a) if isinstance(a, Path) else a for a in arguments)) == 0


# --- locks ----------------------------------------------------------------------------------------

if sys.platform == "win32":
    import msvcrt

    def _lock(file: IO[bytes]) -> None:
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None
else:
    import fcntl

    def _lock(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_held: set[IO[bytes]] = set()  # the lock files of this process


def _let_go() -> None:
    """Close the lock files in a forked child; the parent still holds their locks."""
    while _held:
        _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock file, which is removed on leaving; yield False if somebody else holds it.

    On file systems without locks, an existing file counts as held.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "lock"
    ...     with locked(file) as first, locked(file) as second:
    ...         first, second
    ...     file.exists()
    (True, False)
    False
    """
    file = _acquired(path)
    if file is None:
        yield False
        return
    with file:
        _held.add(file)
        with contextlib.suppress(OSError):  # a full disk
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(os.getpid()).encode())
        try:
            yield True
        finally:
            if file in _held:  # not in a forked child
                _held.discard(file)
                if sys.platform == "win32":  # where open files cannot be removed
                    file.close()
                with contextlib.suppress(OSError):
                    path.unlink()


def owner(path: Path) -> int | None:
    """Return the number of the process that holds a lock file, if it can be read."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _acquired(path: Path) -> IO[bytes] | None:
    while True:
        created = not path.exists()
        file = path.open("ab", buffering=0)  # without a lock, which a fork might find locked
        try:
            _lock(file)
            # The former owner may have removed the file before it was locked.
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        except OSError:  # there are no locks
            if created:
                return file
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        file.close()
