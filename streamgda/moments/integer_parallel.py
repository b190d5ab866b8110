"""Products of many rows of integers on all threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.kernels.accumulate import rows_by_group
from streamgda.kernels.integer_scatter import (
    BLOCK_ROWS,
    add_byte_products,
    add_groups,
    empty_panels,
    pack_bytes,
)
from streamgda.moments.parallel import LARGEST_BLOCK, even_blocks, triangle_ranges
from streamgda.runtime import threads

_PANEL_BYTES = 1 << 22  # panels that are packed at a time, at least one for each thread
_SHARES = 4  # of the work for each thread, at least, so that all finish at about the same time


def add_integer_scatter(
    rows: np.ndarray,
    codes: np.ndarray,
    form: tuple[int, np.uint8, int],
    n_classes: int,
    scatter: np.ndarray,
) -> None:
    """Add the products of rows about an origin to the scatters of their groups.

    One thread adds all rows of a group, whose panels stay in its own caches, unless the group is
    too large a share of the work.

    Parameters
    ----------
    rows, form
        What `rows.blocks.byte_rows` returns.
    codes : ndarray
        Classes of the rows.
    n_classes : int
    scatter : ndarray of int64, shape (groups, n_features, n_features)
    """
    order, starts = rows_by_group(codes, n_classes, len(scatter))
    sizes = np.diff(starts)
    small = sizes * _SHARES * (threads.n_threads() - 1) <= codes.size
    largest_first = np.argsort(-sizes)
    alone = largest_first[small[largest_first]]
    step = max(1, alone.size // (_SHARES * threads.n_threads()))
    threads.run(
        lambda first: add_groups(rows, order, starts, alone[first : first + step], *form, scatter),
        ((first,) for first in range(0, alone.size, step)),
    )
    if not small.all():
        _add_together(
            rows, order, form, even_blocks(starts, np.flatnonzero(~small), BLOCK_ROWS), scatter
        )


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of the panels that are packed at a time, of 16-bit integers."""
    return max(_PANEL_BYTES, threads.n_threads() * 4 * n_features * LARGEST_BLOCK * BLOCK_ROWS)


def _add_together(
    rows: np.ndarray,
    order: np.ndarray,
    form: tuple[int, np.uint8, int],
    cuts: tuple[np.ndarray, np.ndarray, np.ndarray],
    scatter: np.ndarray,
) -> None:
    """Add the products of blocks of rows, each of which all threads multiply."""
    size, _, offset = form
    firsts, lasts, owners = cuts
    panel_bytes = 2 * int((lasts - firsts).max()) * rows.shape[1]
    batch = min(max(threads.n_threads(), _PANEL_BYTES // panel_bytes), firsts.size)
    panels, features, sums = empty_panels(batch, int((lasts - firsts).max()), rows.shape[1])
    active = np.empty(batch, np.intp)
    ranges = triangle_ranges(scatter.shape[-1], _SHARES * threads.n_threads())
    for start in range(0, firsts.size, batch):
        first, last, owner = (cut[start : start + batch] for cut in (firsts, lasts, owners))

        def pack(b: int, first: np.ndarray = first, last: np.ndarray = last) -> None:
            own = order[first[b] : last[b]]
            active[b] = pack_bytes(rows, own, *form, panels[b], features[b], sums[b])

        threads.run(pack, ((b,) for b in range(first.size)))
        blocks = panels, features, sums, active, last - first

        def multiply(i: int, j: int, of: tuple[Any, ...] = (blocks, owner)) -> None:
            add_byte_products(*of, size, offset, i, j, scatter)

        threads.run(multiply, ranges)
