"""Sums and products of rows of integers, on one thread or on all."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streamgda.kernels import integer_scatter
from streamgda.kernels.grouping import group_rows
from streamgda.kernels.integer_scatter import BLOCK_ROWS, add_products, add_totals, pack_block
from streamgda.kernels.integer_tiles import LINE, PART, TOGETHER, WIDTH
from streamgda.moments.parallel import LARGEST_BLOCK, even_blocks, triangle_ranges
from streamgda.runtime import threads

_PANEL_BYTES = 1 << 22  # panels that are packed at a time, at least one block for each thread
_SHARES = 4  # of the work for each thread, at least, so that all finish at about the same time
_COPIES_BYTES = 1 << 26  # of a scatter, one for each thread, for rows of a large group
_TOTAL_BYTES = 64  # of a row, at least, that a thread adds to totals

Form = tuple[int, np.uint8, int]


def add_integers(
    rows: np.ndarray,
    codes: np.ndarray,
    form: Form,
    count: np.ndarray,
    total: np.ndarray,
    scatter: np.ndarray,
    n_threads: int,
) -> None:
    """Add rows to the counts and sums of their classes, and to the products of their groups.

    On one thread, that is a single kernel call. Of several, one adds all rows of a group, whose
    panels stay in its own caches. If a group is too large a share of the work, each thread adds
    some of its rows to a copy of the sums, or some of the products if copies would be too large.

    Parameters
    ----------
    rows, form
        What `rows.blocks.byte_rows` returns.
    codes : ndarray
        Classes of the rows.
    count, total, scatter : ndarray of int64
        Shapes (n_classes,), (n_classes, n_features) and (groups, n_features, n_features).
    n_threads : int
    """
    n_groups = len(scatter)
    # In order of classes even if a group holds several: more features are zero in a block.
    order, starts = np.empty(codes.size, np.intp), np.empty(count.size + 1, np.intp)
    group_rows(codes, order, starts)
    starts = np.ascontiguousarray(starts[:: count.size // n_groups])
    state = *form, count, total, scatter
    if n_threads == 1:
        integer_scatter.add_integers(rows, codes, order, starts, np.arange(n_groups), *state)
        return
    sizes = np.diff(starts)
    small = sizes * _SHARES * (n_threads - 1) <= codes.size
    largest_first = np.argsort(-sizes)
    alone = largest_first[small[largest_first]]
    step = max(1, alone.size // (_SHARES * n_threads))
    threads.run(
        lambda i: integer_scatter.add_integers(
            rows, codes, order, starts, alone[i : i + step], *state
        ),
        ((i,) for i in range(0, alone.size, step)),
    )
    large = np.flatnonzero(~small)
    if _copies_bytes(scatter.shape[-1]):
        for g in large:
            own = order[starts[g] : starts[g + 1]]
            _add_apart(rows, codes, own, form, (count, total, scatter[g : g + 1]), n_threads)
    elif large.size:
        own = np.concatenate([order[starts[g] : starts[g + 1]] for g in large])
        count += np.bincount(codes[own], minlength=count.size)
        _add_totals(rows, codes, own, form, total, n_threads)
        blocks = even_blocks(starts, large, BLOCK_ROWS)
        _add_together(rows, order, form, blocks, scatter, n_threads)


def _add_apart(
    rows: np.ndarray,
    codes: np.ndarray,
    own: np.ndarray,
    form: Form,
    state: tuple[np.ndarray, ...],
    n_threads: int,
) -> None:
    """Add some rows of one group: each thread adds some of them to sums of its own."""
    pieces = _SHARES * n_threads
    cuts = np.arange(pieces + 1) * own.size // pieces
    held: list[tuple[np.ndarray, ...]] = []
    unused: list[tuple[np.ndarray, ...]] = []

    def add(i: int) -> None:
        try:
            sums = unused.pop()
        except IndexError:  # all threads before this one are adding to theirs
            sums = tuple(map(np.zeros_like, state))
            held.append(sums)
        group = np.zeros(1, np.intp)
        integer_scatter.add_integers(rows, codes, own, cuts[i : i + 2], group, *form, *sums)
        unused.append(sums)

    threads.run(add, ((i,) for i in range(pieces)))
    for sums in held:
        for array, added in zip(state, sums, strict=True):
            np.add(array, added, out=array)


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of panels and of copies of a scatter, of 16-bit integers."""
    columns = 2 * n_features + WIDTH
    panels = max(_PANEL_BYTES, threads.n_threads() * 2 * columns * LARGEST_BLOCK * BLOCK_ROWS)
    return panels + _copies_bytes(n_features)


def _copies_bytes(n_features: int) -> int:
    """Return the bytes of a copy of a scatter for each thread; zero if they would be too large."""
    copies = threads.n_threads() * 8 * n_features**2
    return copies if copies <= _COPIES_BYTES else 0


def _add_totals(
    rows: np.ndarray,
    codes: np.ndarray,
    own: np.ndarray,
    form: Form,
    total: np.ndarray,
    n_threads: int,
) -> None:
    """Add some rows to the sums of their classes: each thread adds some of the features."""
    parts = max(1, min(n_threads, rows.shape[1] // _TOTAL_BYTES))
    threads.run(
        lambda first, last: add_totals(rows, codes, own, *form, first, last, total),
        pairwise(total.shape[1] * i // parts for i in range(parts + 1)),
    )


def _add_together(
    rows: np.ndarray,
    order: np.ndarray,
    form: Form,
    blocks: tuple[np.ndarray, np.ndarray, np.ndarray],
    scatter: np.ndarray,
    n_threads: int,
) -> None:
    """Add the products of blocks of rows, each of which all threads multiply."""
    size, _, offset = form
    n_bytes = rows.shape[1]
    n_panels = -(-n_bytes // WIDTH)
    length = -(-int((blocks[1] - blocks[0]).max()) // TOGETHER) * n_panels * LINE
    batch = max(n_threads, _PANEL_BYTES // (length * PART.itemsize))
    batch = min(batch, blocks[0].size)
    panels, at = np.empty(batch * length, PART), np.arange(batch) * length
    places = np.empty((batch, n_panels * WIDTH), np.intp)
    totals, active = np.empty(places.shape, np.int32), np.empty(batch, np.intp)
    ranges = triangle_ranges(scatter.shape[-1], _SHARES * n_threads)
    for start in range(0, blocks[0].size, batch):
        first, last, groups = (array[start : start + batch] for array in blocks)

        def pack(b: int, first: np.ndarray = first, last: np.ndarray = last) -> None:
            ends, own = np.empty(3 * n_bytes, np.uint8), order[first[b] : last[b]]
            space = panels[at[b] : at[b] + length], places[b], totals[b]
            active[b] = pack_block(rows, own, *form, ends, *space)

        def multiply(i: int, j: int, n: np.ndarray = last - first, g: np.ndarray = groups) -> None:
            T = np.empty(WIDTH * WIDTH, np.int32)
            add_products(
                *(panels, at, places, totals, active, n, g, size, offset, (i, j), T, scatter)
            )

        threads.run(pack, ((b,) for b in range(groups.size)))
        threads.run(multiply, ranges)
