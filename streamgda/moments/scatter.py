"""Scatters of many floating-point rows, on all threads: the same bits for any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any

import numpy as np

from streamgda.kernels.accumulate import rows_by_group
from streamgda.kernels.products import BLOCK_ROWS as FLOAT_ROWS
from streamgda.kernels.products import add_products, pack_blocks
from streamgda.moments.parallel import LARGEST_BLOCK, even_blocks
from streamgda.runtime import threads

_BATCH_BYTES = 1 << 24  # rows that are centred at a time
_PART_FEATURES = 170  # of a part of a matrix that a thread adds to
_RANGES = 8  # of blocks, each of which is added to copies of the scatters
_RANGE_BLOCKS = 2  # of a range, at least
_COPIED_BYTES = 1 << 25  # of the copies of all ranges, at most
_CACHED_BYTES = 1 << 20  # rows of a range that are centred at a time


def add_scatter(
    X: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    centre_low: np.ndarray,
    dtype: Any,
    scatter: np.ndarray,
) -> None:
    """Add the products of centred rows to the scatters of their groups.

    Parameters
    ----------
    X, codes, weights : ndarray
        Rows, their classes and their weights; no weights if all are one.
    centre, centre_low : ndarray, shape (n_classes, n_features)
        Two parts of the class centres.
    dtype : data type
        Type in which rows are multiplied. Blocks whose values are beyond the range of float32 are
        multiplied in float64.
    scatter : ndarray, shape (groups, n_features, n_features)
    """
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


def scratch_bytes(n_features: int) -> int:
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
            pack_blocks(source, first, last, at, rows, features, active)
            bad = np.flatnonzero(active[: owner.size] < 0)
            refused.append(bad + start)
            active[bad] = 0
            add_products(rows, features, active, at, at + last - first, owner, whole, own)
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
            pack_blocks(source, *(a[some] for a in ranges), rows, *(a[some] for a in out))

        n_threads = threads.n_threads()
        threads.run(pack, ((some,) for some in _shares(sizes, np.arange(owner.size), n_threads)))
        bad = active < 0
        refused.append(np.flatnonzero(bad) + start)
        active[bad] = 0
        packed = features, active, at, at + sizes, owner

        def add(part: tuple[int, ...], some: slice, blocks: Any = packed) -> None:
            add_products(rows, *(a[some] for a in blocks), part, scatter)

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
