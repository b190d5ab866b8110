"""Sums of many rows on all threads: the same bits for any number of threads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from streamgda.kernels.accumulate import rows_by_group
from streamgda.kernels.scatter import (
    DEPTH,
    add_products,
    empty_panels,
    pack_blocks,
    rows_of_entry,
)
from streamgda.runtime import threads

_PART_ELEMENTS = 1 << 21  # of a part of the rows that is summed by one thread
_TILE_FEATURES = 384  # of a part of a scatter that a thread adds products to
_ALIGNED = 48  # features: whole panels of every type
_PANEL_BYTES = 1 << 24  # panels that are packed at a time

_Cuts = tuple[np.ndarray, np.ndarray, np.ndarray]


def add_in_parts(
    kernel: Callable[..., None],
    by_row: tuple[np.ndarray, ...],
    shared: tuple[Any, ...],
    *out: np.ndarray,
) -> None:
    """Call ``kernel(*rows, *shared, *sums)`` for parts of the rows; add their sums in order."""
    n_rows, d = by_row[0].shape
    step = max(DEPTH, _PART_ELEMENTS // d)

    def part(start: int) -> list[np.ndarray]:
        sums = [np.zeros_like(array) for array in out]
        kernel(*(array[start : start + step] for array in by_row), *shared, *sums)
        return sums

    for sums in threads.imap(part, ((start,) for start in range(0, n_rows, step))):
        for array, added in zip(out, sums, strict=True):
            np.add(array, added, out=array)


def add_scatter(
    X: np.ndarray,
    codes: np.ndarray,
    weights: np.ndarray,
    centre: np.ndarray,
    centre_low: np.ndarray,
    panel_dtype: Any,
    scatter: np.ndarray,
) -> None:
    """Add the products of centred rows to the scatters of their groups.

    Parameters
    ----------
    X, codes, weights : ndarray
        Rows, their classes and their weights; no weights if all are one.
    centre, centre_low : ndarray, shape (n_classes, n_features)
        Two parts of the class centres.
    panel_dtype : data type
        Type in which rows are multiplied. Blocks whose values are beyond the range of float32 are
        multiplied in float64.
    scatter : ndarray, shape (groups, n_features, n_features)
    """
    order, starts = rows_by_group(codes, len(centre), len(scatter))
    source = X, codes, order, weights, centre, centre_low
    cuts = _cut(starts, DEPTH * rows_of_entry(panel_dtype))
    refused = _add_blocks(source, cuts, panel_dtype, scatter)
    # After all others, so that it does not matter which blocks shared a batch.
    if refused.size:
        first, last, owner = cuts
        again = first[refused], last[refused], owner[refused]
        _add_blocks(source, again, np.float64, scatter)


def _add_blocks(
    source: tuple[np.ndarray, ...], cuts: _Cuts, dtype: Any, scatter: np.ndarray
) -> np.ndarray:
    """Pack blocks of rows and add their products, batch by batch.

    Returns the numbers of the blocks for which float32 has too small a range.
    """
    d = scatter.shape[-1]
    n_threads = threads.n_threads()
    n_rows = int((cuts[1] - cuts[0]).max())
    block_bytes = n_rows * d * np.dtype(dtype).itemsize
    batch = min(max(n_threads, _PANEL_BYTES // block_bytes), cuts[0].size)
    panels = empty_panels(batch, n_rows, d, dtype)
    features = np.empty((batch, panels.shape[1] * panels.shape[3]), np.intp)
    active = np.empty(batch, np.intp)
    tiles = _triangle_tiles(d)
    shares = [slice(a, b) for a, b in pairwise(np.linspace(0, batch, n_threads + 1).astype(int))]
    refused = []
    for start in range(0, cuts[0].size, batch):
        first, last, owner = (cut[start : start + batch] for cut in cuts)

        def pack(some: slice, a: np.ndarray = first, b: np.ndarray = last) -> None:
            pack_blocks(source, a[some], b[some], panels[some], features[some], active[some])

        threads.run(pack, ((some,) for some in shares))
        bad = active[: first.size] < 0
        refused.append(np.flatnonzero(bad) + start)
        active[: first.size][bad] = 0
        product = panels, features, active, last - first, owner
        threads.run(lambda i, j, p=product: add_products(*p, i, j, scatter), tiles)
    return np.concatenate(refused)


def _cut(starts: np.ndarray, size: int) -> _Cuts:
    """Cut each group's rows ``starts[g]:starts[g + 1]`` into blocks: first, last, owner."""
    sizes = np.diff(starts)
    pieces = -(-sizes // size)
    owner = np.repeat(np.arange(sizes.size), pieces)
    number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[owner] + number * size
    return first, np.minimum(first + size, starts[owner + 1]), owner


def _triangle_tiles(d: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Cut a d x d lower triangle into squares: ranges of rows and of columns.

    There are enough of them for all threads, and each is small enough to stay in the third cache
    while the products of many blocks are added to it.
    """
    side = min(_TILE_FEATURES, -(-d // (3 * _ALIGNED)) * _ALIGNED)
    ranges = [(i, min(i + side, d)) for i in range(0, d, side)]
    return [(rows, columns) for i, rows in enumerate(ranges) for columns in ranges[: i + 1]]


def triangle_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """Cut the rows of a d x d lower triangle into ranges of about equal area, largest first."""
    cuts = np.unique(np.round(np.sqrt(np.linspace(0, 1, parts + 1)) * d).astype(int))
    return [(int(a), int(b)) for a, b in pairwise(cuts)][::-1]
