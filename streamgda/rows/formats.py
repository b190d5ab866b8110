"""Formats of tables in files, by the names of the files; pyarrow is not imported here."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Any

from streamgda.storage.files import local_path
from streamgda.storage.opening import TABLES

_ZARR = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")
_SUFFIXES = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), "parquet"),
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "ipc"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
}


def format_of(name: str) -> str | None:
    """Return the format of a file of a table by its name; None for names of other files."""
    name = name.partition("?")[0] if "://" in name else name  # of a URL that is signed
    return _SUFFIXES.get(PurePath(name.rstrip("/").lower().removesuffix(".gz")).suffix)


def is_table(path: Any) -> bool:
    """Return whether a path or URL is that of a table, by its name or the files in its folder."""
    if not isinstance(path, str | os.PathLike):
        return False
    if format_of(str(path)) is not None:
        return True
    local = local_path(path)
    if local is None or not local.is_dir() or any((local / name).exists() for name in _ZARR):
        return False
    return any(format_of(name) is not None for _, _, names in os.walk(local) for name in names)


def is_table_path(out: Any) -> bool:
    """Return whether scores go to a table, by the name of the path."""
    path = local_path(out)
    return path is not None and path.suffix.lower() in TABLES
