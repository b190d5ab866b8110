"""Output paths: checks before they are replaced, and the size of what was written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer

from streamgda.errors import FormatError, InvalidParameterError
from streamgda.storage.replacing import exists


def is_free(path: Path) -> bool:
    """Return True if the path does not exist, or is an empty directory."""
    return not exists(path) or (path.is_dir() and not any(path.iterdir()))


def check_distinct(paths: Mapping[str, Path | None]) -> None:
    """Raise BadParameter if two options name the same path."""
    written = [path.resolve() for path in paths.values() if path is not None]
    if len(set(written)) < len(written):
        *names, last = paths
        raise typer.BadParameter(f"{', '.join(names)} and {last} must be different paths")


def refuse_occupied(path: str | Path, overwrite: bool | None = None) -> None:
    """Raise InvalidParameterError if the path exists and may not be replaced.

    Parameters
    ----------
    path : path
    overwrite : bool, optional
        Allow replacing it; None if the command has no such option.
    """
    if not (overwrite or is_free(Path(path))):
        remedy = "name another path" if overwrite is None else "--overwrite replaces it"
        raise InvalidParameterError(f"{path} exists; {remedy}")


def refuse_other_kind(path: Path, kind: str) -> None:
    """Raise InvalidParameterError if the path holds anything but a saved object of this kind.

    Saving replaces any zarr group; this check protects rows from being replaced.
    """
    from streamgda import storage  # noqa: PLC0415

    if is_free(path):
        return
    try:
        found = storage.kind_of(path)
    except FormatError:
        found = "other data"
    if found != kind:
        raise InvalidParameterError(
            f"{path} holds {found}, not {kind}: it will not be replaced; name another path"
        )


def refuse_replacing(path: Path, kind: str, overwrite: bool) -> None:
    """Raise InvalidParameterError unless saving an object of this kind may write to the path."""
    refuse_other_kind(path, kind)
    refuse_occupied(path, overwrite)


def stored_bytes(path: str | Path) -> int | None:
    """Return the size of a file, or of all files in a directory; None for a remote store."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    if not path.is_dir():
        return None
    return sum(member.stat().st_size for member in path.rglob("*") if member.is_file())


def stored_size(path: str | Path) -> str:
    """Return `stored_bytes` in a readable unit."""
    from streamgda.runtime.memory import readable  # noqa: PLC0415

    return readable(stored_bytes(path) or 0)
