"""Paths that are written to: what may be replaced there, and how big it has become."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from streamgda.errors import FormatError, InvalidParameterError


def is_free(path: Path) -> bool:
    """Whether nothing is there, or an empty directory."""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def refuse_occupied(path: str | Path, overwrite: bool | None = None) -> None:
    """Raise `InvalidParameterError` where something is there that was not asked to be replaced.

    Parameters
    ----------
    path : path
    overwrite : bool, optional
        None for a command that never replaces anything.
    """
    if not (overwrite or is_free(Path(path))):
        remedy = "name another path" if overwrite is None else "--overwrite replaces it"
        raise InvalidParameterError(f"{path} exists; {remedy}")


def refuse_other_kind(path: Path, kind: str) -> None:
    """Raise `InvalidParameterError` where something else is than was saved as that kind.

    Saving replaces whatever zarr group is there: rows too, without this.
    """
    from streamgda import storage  # noqa: PLC0415

    if is_free(path):
        return
    try:
        found = storage.kind_of(path)
    except FormatError:
        found = "other things"
    if found != kind:
        raise InvalidParameterError(
            f"{path} holds {found}, not saved {kind}: it will not be replaced"
        )


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a directory to, which takes the place of `path` once all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        if path.exists():
            shutil.rmtree(path)
        partial.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def stored_bytes(path: str | Path) -> int | None:
    """Bytes of a file, or of the files in a directory; None where it is not on this machine."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    return sum(member.stat().st_size for member in path.rglob("*") if member.is_file())
