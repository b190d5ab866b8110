"""Sums and products of many rows on all threads: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from streamgda.kernels import integers, products
from streamgda.kernels.centred import rows_by_group
from streamgda.kernels.integers import (
    LINE,
    PACKED_ROWS,
    PART,
    TOGETHER,
    WIDTH,
    add_totals,
    pack_block,
)
from streamgda.kernels.products import BLOCK_ROWS as FLOAT_ROWS
from streamgda.kernels.products import LEAST_ROWS
from streamgda.kernels.sums import group_rows
from streamgda.rows.arrays import as_kernel_rows, blocks
from streamgda.runtime import threads

LARGEST_BLOCK = 2  # times the size that is asked of `even_blocks`; it is less
_PART_ELEMENTS = 1 << 21  # of a part of the rows that is summed by one thread


class Coded(NamedTuple):
    """Rows, the numbers of their classes, and their weights; no weights if all are one."""

    X: Any
    codes: np.ndarray
    weights: np.ndarray

    def part(self, rows: slice, dtype: np.dtype) -> Coded:
        """Return some of the rows, which kernels read in a data type."""
        return Coded(as_kernel_rows(self.X[rows], dtype), self.codes[rows], self.weights[rows])

    def blocks(self, dtype: np.dtype) -> Iterator[Coded]:
        """Yield blocks of the rows, which kernels read in a data type."""
        for rows, block in blocks(self.X, dtype):
            yield Coded(block, self.codes[rows], self.weights[rows])


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


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of scratch space while products of many rows are added."""
    return max(_float_bytes(n_features), _integer_bytes(n_features))


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


# --- floating-point rows ----------------------------------------------------------------------

_BATCH_BYTES = 1 << 24  # rows that are centred at a time
_PART_FEATURES = 170  # of a part of a matrix that a thread adds to
_RANGES = 8  # of blocks, each of which is added to copies of the scatters
_RANGE_BLOCKS = 2  # of a range, at least
_COPIED_BYTES = 1 << 25  # of the copies of all ranges, at most
_CACHED_BYTES = 1 << 20  # rows of a range that are centred at a time


def add_scatter(
    rows: Coded, centre: np.ndarray, centre_low: np.ndarray, dtype: Any, scatter: np.ndarray
) -> None:
    """Add the products of centred rows to the scatters of their groups.

    Parameters
    ----------
    rows : Coded
    centre, centre_low : ndarray, shape (n_classes, n_features)
        Two parts of the class centres.
    dtype : data type
        Type in which rows are multiplied. Blocks whose values are beyond the range of float32 are
        multiplied in float64.
    scatter : ndarray, shape (groups, n_features, n_features)
    """
    X, codes, weights = rows
    order, starts = rows_by_group(codes, len(centre), len(scatter))
    cuts = even_blocks(starts, np.arange(len(scatter)), FLOAT_ROWS)
    source = X, codes, order, weights, *_centre_in(centre, centre_low, dtype, weights)
    copied = _RANGES * scatter.nbytes <= _COPIED_BYTES
    ranges = copied and cuts[0].size >= _RANGES * _RANGE_BLOCKS
    with threads.serial_blas():
        refused = (_add_ranges if ranges else _add_blocks)(source, cuts, dtype, scatter)
        # After all others, so that it does not matter which blocks shared a batch.
        if refused.size:
            source = *source[:4], centre, centre_low
            _add_blocks(source, [cut[refused] for cut in cuts], np.float64, scatter)


def _float_bytes(n_features: int) -> int:
    """Return the most bytes of the rows that are centred at a time."""
    return max(_BATCH_BYTES, 8 * n_features * LARGEST_BLOCK * FLOAT_ROWS)


def _centre_in(
    centre: np.ndarray, centre_low: np.ndarray, dtype: Any, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres in two parts of the type in which rows are centred.

    Rows times the roots of weights must be rounded to float32 only once.
    """
    if dtype == np.float64 or weights.size:
        return centre, centre_low
    high = centre.astype(np.float32)
    return high, ((centre - high) + centre_low).astype(np.float32)


def _add_ranges(
    source: tuple[np.ndarray, ...], cuts: Sequence[np.ndarray], dtype: Any, scatter: np.ndarray
) -> np.ndarray:
    """Add blocks as `_add_blocks` does; each range of blocks in one thread, to its own scatters.

    Threads do not wait for each other, and rows stay in a cache between centring and products.
    """
    d = scatter.shape[-1]
    sizes = cuts[1] - cuts[0]
    most = sizes.max()
    step = max(1, _CACHED_BYTES // (most * d * np.dtype(dtype).itemsize))
    whole = 0, d, 0, d

    def add(some: slice) -> tuple[np.ndarray, list[np.ndarray]]:
        own, refused = np.zeros_like(scatter), []
        rows = np.empty((step * most, d), dtype)
        features, active = np.empty((step, d), np.intp), np.empty(step, np.intp)
        for start in range(some.start, some.stop, step):
            first, last, owner = (cut[start : min(start + step, some.stop)] for cut in cuts)
            at = np.cumsum(last - first) - (last - first)
            products.pack_blocks(source, first, last, at, rows, features, active)
            bad = np.flatnonzero(active[: owner.size] < 0)
            refused.append(bad + start)
            active[bad] = 0
            products.add_products(rows, features, active, at, at + last - first, owner, whole, own)
        return own, refused

    ranges = _shares(sizes, np.arange(sizes.size), _RANGES)
    refused: list[np.ndarray] = []
    for own, bad in threads.imap(add, ((some,) for some in ranges)):
        np.add(scatter, own, out=scatter)
        refused += bad
    return np.concatenate(refused)


def _add_blocks(
    source: tuple[np.ndarray, ...], cuts: Sequence[np.ndarray], dtype: Any, scatter: np.ndarray
) -> np.ndarray:
    """Centre blocks of rows and add their products, batch by batch.

    Returns the numbers of the blocks for which float32 has too small a range.
    """
    d = scatter.shape[-1]
    sizes = cuts[1] - cuts[0]
    ends = np.cumsum(sizes)
    most = max(sizes.max(), _BATCH_BYTES // (d * np.dtype(dtype).itemsize))
    rows = np.empty((min(most, ends[-1]), d), dtype)
    parts = _triangle_parts(d)
    refused = []
    start = 0
    while start < ends.size:
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + most, "right"))
        first, last, owner = (cut[start:stop] for cut in cuts)
        sizes = last - first
        at = np.cumsum(sizes) - sizes
        features, active = np.empty((owner.size, d), np.intp), np.empty(owner.size, np.intp)

        def pack(
            some: slice, ranges: Any = (first, last, at), out: Any = (features, active)
        ) -> None:
            products.pack_blocks(source, *(a[some] for a in ranges), rows, *(a[some] for a in out))

        n_threads = threads.n_threads()
        threads.run(pack, ((some,) for some in _shares(sizes, np.arange(owner.size), n_threads)))
        bad = active < 0
        refused.append(np.flatnonzero(bad) + start)
        active[bad] = 0
        packed = features, active, at, at + sizes, owner

        def add(part: tuple[int, ...], some: slice, blocks: Any = packed) -> None:
            products.add_products(rows, *(a[some] for a in blocks), part, scatter)

        threads.run(add, product(parts, _shares(sizes, owner, n_threads)))
        start = stop
    return np.concatenate(refused)


def _shares(sizes: np.ndarray, owner: np.ndarray, n: int) -> list[slice]:
    """Cut blocks into at most `n` ranges of about equally many rows, each of whole groups."""
    ends = np.flatnonzero(np.diff(owner, append=-1)) + 1
    rows = np.cumsum(sizes)[ends - 1]
    cuts = np.unique(np.searchsorted(rows, rows[-1] * np.arange(1, n + 1) / n))
    return [slice(a, b) for a, b in pairwise([0, *ends[cuts].tolist()])]


def _triangle_parts(d: int) -> list[tuple[int, int, int, int]]:
    """Cut a d x d lower triangle into squares: first and last rows, and columns, largest first.

    BLAS multiplies parts of this size as fast as the whole.
    """
    n = max(1, min(4, d // _PART_FEATURES), d // 512)
    ranges = [*pairwise((np.arange(n + 1) * d // n).tolist())]
    squares = [(*rows, *columns) for i, rows in enumerate(ranges) for columns in ranges[: i + 1]]
    return sorted(squares, key=lambda square: square[0] == square[2])


# --- rows of integers -------------------------------------------------------------------------

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
        integers.add_integers(rows, codes, order, starts, np.arange(n_groups), *state)
        return
    sizes = np.diff(starts)
    small = sizes * _SHARES * (n_threads - 1) <= codes.size
    largest_first = np.argsort(-sizes)
    alone = largest_first[small[largest_first]]
    step = max(1, alone.size // (_SHARES * n_threads))
    threads.run(
        lambda i: integers.add_integers(rows, codes, order, starts, alone[i : i + step], *state),
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
        blocks = even_blocks(starts, large, PACKED_ROWS)
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
        integers.add_integers(rows, codes, own, cuts[i : i + 2], group, *form, *sums)
        unused.append(sums)

    threads.run(add, ((i,) for i in range(pieces)))
    for sums in held:
        for array, added in zip(state, sums, strict=True):
            np.add(array, added, out=array)


def _integer_bytes(n_features: int) -> int:
    """Return the most bytes of panels and of copies of a scatter, of 16-bit integers."""
    columns = 2 * n_features + WIDTH
    panels = max(_PANEL_BYTES, threads.n_threads() * 2 * columns * LARGEST_BLOCK * PACKED_ROWS)
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
            integers.add_packed(
                *(panels, at, places, totals, active, n, g, size, offset, (i, j), T, scatter)
            )

        threads.run(pack, ((b,) for b in range(groups.size)))
        threads.run(multiply, ranges)
