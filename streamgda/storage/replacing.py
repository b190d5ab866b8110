"""Replacing a file or a directory in one step.

New contents are written under a temporary name beside the old ones and moved into place once they
are complete. A failure on the way leaves the old contents as they were.
"""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a path to write to; on leaving without an error, its contents replace those of `path`.

    A file replaces a file atomically, and only once it is on the disk: if the process or the
    machine stops, the old file or the new one is there. A directory is moved away before the new
    one takes its place.

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
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.partial{suffix}")
    try:
        yield partial
        move_into_place(partial, path)
    finally:
        _remove(partial)


def move_into_place(partial: Path, path: Path) -> None:
    """Move a complete file or directory to `path`, replacing the existing one."""
    if partial.is_file():
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
    if not path.exists() or not (path.is_dir() or partial.is_dir()):
        partial.replace(path)
        return
    old = partial.with_name(f"{partial.name}.old")  # directories are not replaced atomically
    path.replace(old)
    try:
        partial.replace(path)
    except BaseException:
        old.replace(path)
        raise
    _remove(old)


def remove_left_overs(file: Path) -> None:
    """Remove the temporary files that killed processes left beside a file."""
    for left in file.parent.glob(f"{glob.escape(file.name)}.*.partial*"):
        left.unlink(missing_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
