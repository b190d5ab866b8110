"""Memory: sizes in bytes, and the memory that this process may use."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path, PurePosixPath

import psutil

from streamgda.runtime.parameters import as_integer, unexpected

_CGROUPS = Path("/sys/fs/cgroup")


def spare_memory() -> int:
    """Return half of the available memory, or half of a control group's limit if that is less.

    The page cache counts as available. Control groups (of containers) may have version 1 or 2.
    """
    available: int = psutil.virtual_memory().available
    return min([available, *cgroup_limits(Path("/proc/self/cgroup"), _CGROUPS)]) // 2


def cgroup_limits(membership: Path, root: Path) -> list[int]:
    """Return the limits in bytes of a process's control groups and of their parents.

    Parameters
    ----------
    membership : path
        The list of the groups of a process, such as ``/proc/self/cgroup``.
    root : path
        Mount point of the groups.
    """
    limits: list[int] = []
    with contextlib.suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            mounted = root / "memory" if controllers else root
            name = "memory.limit_in_bytes" if controllers else "memory.max"
            inside = PurePosixPath(path.lstrip("/"))
            for group in (inside, *inside.parents):
                # The file may be missing, or say "max".
                with contextlib.suppress(OSError, ValueError):
                    limits.append(int((mounted / group / name).read_text()))
    return limits


def allowed_bytes(max_memory: int | str | None) -> int:
    """Return a memory budget in bytes, which is `spare_memory` by default."""
    given = as_bytes(max_memory)
    return spare_memory() if given is None else given


_EXPECTED = "a number of bytes above 0, or a string such as '512MB'"
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def as_bytes(size: int | str | None) -> int | None:
    """Return a number of bytes, given as an integer or as a string such as ``"512MB"``.

    Raises
    ------
    InvalidParameterError
        If the size is anything else.

    Examples
    --------
    >>> as_bytes("512MB"), as_bytes("2GiB")
    (512000000, 2147483648)
    """
    if size is None:
        return None
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d{1,18}(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", size.upper())
        if not match or match[2] not in _UNITS:
            raise unexpected("max_memory", size, _EXPECTED)
        return int(float(match[1]) * _UNITS[match[2]])
    return as_integer("max_memory", size, _EXPECTED, 1)


def readable(size: float) -> str:
    """Return a number of bytes in a unit that is easy to read.

    Examples
    --------
    >>> readable(49_172_480)
    '49.2 MB'
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"
