"""Rows cut into slabs that are read ahead within a memory budget."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from streamgda.errors import InvalidParameterError, MemoryBudgetError
from streamgda.sources import RowSource

_SLAB_BYTES = 1 << 25  # rows that are read at a time
_SCRATCH_BYTES = 3 << 25  # what the kernels pack, group and cast at a time, at most


@dataclass(frozen=True)
class Slabs:
    """How rows are cut for reading.

    Attributes
    ----------
    n_rows : int
        Rows of a slab: whole chunks or shards, where there are any.
    """

    n_rows: int

    @classmethod
    def plan(
        cls,
        rows: RowSource,
        allowed: int | None,
        state: int,
        out_row_bytes: int = 0,
        copies: int = 0,
    ) -> Slabs:
        """Cut the rows so that all that is in flight stays within the budget.

        In flight are the slab that is worked on and its copies, the one that is read ahead, and
        what is being decoded for it; of scores, those that are made and those that are written. A
        state is held twice while classes are added to it.

        Raises
        ------
        MemoryBudgetError
            Where not even the least slab fits.
        """
        slab_rows = _SLAB_BYTES // max(1, rows.row_bytes, out_row_bytes)
        wanted = max(rows.unit, slab_rows // rows.unit * rows.unit)
        if allowed is None:
            return cls(min(wanted, rows.n_rows))
        fixed = 2 * state + _SCRATCH_BYTES
        read = 0 if rows.in_memory else 3
        flying = (read + copies) * rows.row_bytes + 2 * out_row_bytes
        n_rows = wanted
        if flying:
            fitting = max(0, allowed - fixed) // flying // rows.unit * rows.unit
            n_rows = min(wanted, max(rows.unit, fitting))
        required = fixed + flying * min(n_rows, rows.n_rows)
        if required > allowed:
            raise MemoryBudgetError(
                f"this needs {readable(required)} of memory, max_memory allows "
                f"{readable(allowed)}: {readable(2 * state)} for the moments, "
                f"{readable(required - fixed)} for rows being read ({n_rows} at a time, as they "
                f"are stored) and {readable(_SCRATCH_BYTES)} to work in. A larger max_memory "
                f"helps, or covariance_type='tied' or 'diag', fewer features, smaller chunks"
            )
        return cls(min(n_rows, rows.n_rows))

    def resumed(self, n_rows: int) -> Slabs:
        """Slabs of `n_rows`, as another run has begun with.

        Raises
        ------
        MemoryBudgetError
            Where these had to be smaller.
        """
        if n_rows > self.n_rows:
            raise MemoryBudgetError(
                f"the work that is to be gone on with was begun in slabs of {n_rows} rows, where "
                f"max_memory now allows {self.n_rows}: give it the max_memory that it was begun "
                f"with, or begin it anew"
            )
        return Slabs(n_rows)

    def read(self, *sources: RowSource, first: int = 0) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the first row's number and the rows of each slab; one slab is read ahead.

        Slabs before row `first`, where one begins, are left out.
        """
        starts = range(first, sources[0].n_rows, self.n_rows)

        def slab(start: int) -> list[np.ndarray]:
            stop = min(start + self.n_rows, sources[0].n_rows)
            return [source.read(start, stop) for source in sources]

        if not starts or all(source.in_memory for source in sources):
            for start in starts:
                yield start, slab(start)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="streamgda-read") as reader:
            ahead = reader.submit(slab, first)
            for start in starts:
                block = ahead.result()
                if start + self.n_rows < sources[0].n_rows:
                    ahead = reader.submit(slab, start + self.n_rows)
                yield start, block


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
