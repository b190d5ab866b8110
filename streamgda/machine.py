"""How much memory a process may take: of what the machine has available, or a container allows."""

from __future__ import annotations

import contextlib
from pathlib import Path, PurePosixPath

import psutil

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
