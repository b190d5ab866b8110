"""Sums of many rows on all threads: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from streamgda.kernels.products import LEAST_ROWS
from streamgda.runtime import threads

LARGEST_BLOCK = 2  # times the size that is asked of `even_blocks`; it is less
_PART_ELEMENTS = 1 << 21  # of a part of the rows that is summed by one thread


def add_in_parts(
    kernel: Callable[..., None],
    by_row: tuple[np.ndarray, ...],
    shared: tuple[Any, ...],
    *out: np.ndarray,
) -> None:
    """Call ``kernel(*rows, *shared, *sums)`` for parts of the rows; add their sums in order."""
    n_rows, d = by_row[0].shape
    step = max(LEAST_ROWS, _PART_ELEMENTS // d)

    def part(start: int) -> list[np.ndarray]:
        sums = [np.zeros_like(array) for array in out]
        kernel(*(array[start : start + step] for array in by_row), *shared, *sums)
        return sums

    for sums in threads.imap(part, ((start,) for start in range(0, n_rows, step))):
        for array, added in zip(out, sums, strict=True):
            np.add(array, added, out=array)


def triangle_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """Cut the rows of a d x d lower triangle into ranges of about equal area, largest first."""
    cuts = np.unique(np.round(np.sqrt(np.linspace(0, 1, parts + 1)) * d).astype(int))
    return [(int(a), int(b)) for a, b in pairwise(cuts)][::-1]


def even_blocks(
    starts: np.ndarray, groups: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the rows ``starts[g]:starts[g + 1]`` of some groups into blocks: first, last, group.

    Those of a group are equal, but for a row. They may have half as many rows again as `size`,
    because a small block takes almost as long.
    """
    sizes = (starts[1:] - starts[:-1])[groups]
    pieces = np.maximum((sizes + size // 2) // size, sizes > 0)
    owner, total, parts = (np.repeat(a, pieces) for a in (groups, sizes, pieces))
    number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first, last = (starts[owner] + n * total // parts for n in (number, number + 1))
    return first, last, owner
