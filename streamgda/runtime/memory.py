"""How much memory a process may take: of what the machine has available, or a container allows."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path, PurePosixPath

import numpy as np
import psutil

from streamgda.errors import InvalidParameterError

_CGROUPS = Path("/sys/fs/cgroup")


def spare_memory() -> int:
    """Half of the memory that is available, or that a control group allows where that is less.

    Page cache counts as available. Of control groups, versions 1 and 2 are looked at.
    """
    available: int = psutil.virtual_memory().available
    return min([available, *cgroup_limits(Path("/proc/self/cgroup"), _CGROUPS)]) // 2


def cgroup_limits(membership: Path, root: Path) -> list[int]:
    """Limits in bytes of the control groups that a process is in, and of those around them.

    Parameters
    ----------
    membership : path
        A file such as ``/proc/self/cgroup``.
    root : path
        Where the groups are mounted.
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
                with contextlib.suppress(OSError, ValueError):  # not there, or "max"
                    limits.append(int((mounted / group / name).read_text()))
    return limits


def allowed_bytes(max_memory: int | str | None) -> int:
    """The budget that is meant, which by default is `spare_memory`."""
    given = as_bytes(max_memory)
    return spare_memory() if given is None else given


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def as_bytes(size: int | str | None) -> int | None:
    """A number of bytes, from one or from a text such as ``"512MB"`` or ``"2GiB"``.

    Raises
    ------
    InvalidParameterError
        For anything else.

    Examples
    --------
    >>> as_bytes("512MB"), as_bytes("2GiB")
    (512000000, 2147483648)
    """
    if size is None:
        return None
    if isinstance(size, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", size.upper())
        if match and match[2] in _UNITS:
            return int(float(match[1]) * _UNITS[match[2]])
    elif isinstance(size, int | np.integer) and not isinstance(size, bool) and size > 0:
        return int(size)
    raise InvalidParameterError(
        f"max_memory={size!r}; expected a number of bytes above 0, or a text such as '512MB'"
    )


def readable(size: float) -> str:
    """Bytes as a person would say them.

    Examples
    --------
    >>> readable(49_172_480)
    '49.2 MB'
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"
