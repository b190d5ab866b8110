"""Lock files, which show whether the process that wrote something is still alive.

A lock file holds the number of its process. The system releases a lock when its process ends, in
whatever way.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

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
        process = os.getpid()
        with contextlib.suppress(OSError):  # a full disk
            os.truncate(file.fileno(), 0)
            os.write(file.fileno(), str(process).encode())
        try:
            yield True
        finally:
            if sys.platform == "win32":  # where open files cannot be removed
                file.close()
            if os.getpid() == process:  # none that was forked from it
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
        file = path.open("ab")
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
