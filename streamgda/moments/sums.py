"""What the two states of class moments share: how rows are taken in, and by which threads.

Rows are read in two passes: sums per class first, then squares or products about a centre.
`CentredSums` moves the centre to each class's mean; `ExactSums` keeps it at a whole number.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Self

import numpy as np

from streamgda.kernels import narrow_products
from streamgda.kernels.accumulate import rows_by_group
from streamgda.kernels.scatter import (
    DEPTH,
    add_products,
    empty_panels,
    pack_blocks,
    rows_of_entry,
)
from streamgda.kernels.sums import add_squares, add_sums
from streamgda.moments.structure import Structure
from streamgda.rows.blocks import as_rows, blocks, read_dtype
from streamgda.runtime import threads

NO_PANELS = np.empty((0, 1, 1, 1))

_BLOCK_ELEMENTS = 1 << 16  # of a block that stays in the second cache while it is read twice
# Of a segment that one thread takes, block by block. Of much data they are larger: between two of
# them a thread has to wait for Python.
_SEGMENT_ELEMENTS = 1 << 19
_MOST_SEGMENT_ELEMENTS = 1 << 21
_SEGMENTS = 16
_PART_ELEMENTS = 1 << 21  # of a part of the rows that is summed by one thread, for large states
_SMALL_WORK = 1 << 24  # multiplications that are not worth a second thread
_SMALL_STATE = 1 << 20  # bytes: a state up to this size is worth having once a segment
_TILE_FEATURES = 384  # of a part of a large scatter that a thread adds products to
_ALIGNED = 48  # features: whole panels of every type
_PANEL_BYTES = 1 << 24  # panels that are packed at a time


class Sums:
    """What `CentredSums` and `ExactSums` share: how a block of rows is taken in.

    Few rows are added to the state in one kernel call. Of more, a small state is made once for each
    segment of rows, on all threads, and the segments are merged in their order; a large one is
    filled in place, each thread taking parts of the matrix. Neither the segments nor the order
    depend on the number of threads, so neither does any bit.

    Attributes
    ----------
    structure : Structure
    count : ndarray, shape (n_classes,)
        Rows of each class, or their total weight.
    scatter : ndarray, shape ``structure.scatter_shape(n_classes, n_features)``
        In matrices, the lower triangle.
    """

    structure: Structure
    count: np.ndarray
    scatter: np.ndarray

    def empty(self, n_classes: int) -> Any:
        """Sums of no rows, otherwise like these."""
        raise NotImplementedError

    def read_dtype(self, dtype: np.dtype) -> np.dtype:
        """The data type in which rows of a data type are taken in."""
        return read_dtype(dtype)

    def _take_small(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, block_rows: int
    ) -> None:
        """Take in rows block by block; where the first block fails, nothing has changed."""
        raise NotImplementedError

    def _take_large(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """Take in rows on all threads; where that fails, nothing has changed."""
        raise NotImplementedError

    def add(self, other: Any, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.scatter.shape[-1]

    def moved(self, at: np.ndarray, n_classes: int) -> Self:
        """A copy in which class k is class ``at[k]`` of `n_classes`."""
        sums: Self = self.empty(n_classes)
        sums.add(self, at)
        return sums

    def _add_scattered(self, other: Any, at: np.ndarray, sign: int) -> None:
        if not self.structure.per_class or np.array_equal(at, np.arange(len(self.scatter))):
            add = np.add if sign > 0 else np.subtract
            add(self.scatter, other.scatter, out=self.scatter)
        else:
            for k, g in enumerate(at):
                self.scatter[g] += sign * other.scatter[k]

    def update(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """Take in rows; where that fails, nothing has changed."""
        n, d = X.shape
        n_classes = self.count.size
        # Enough rows for every class to have some to multiply with each other.
        block_rows = max(DEPTH, _BLOCK_ELEMENTS // d, 64 * n_classes)
        work = n * d * (d if self.structure.matrix else 1)
        dtype = self.read_dtype(X.dtype)
        if n <= block_rows and work <= _SMALL_WORK:
            self._take_small(as_rows(X, dtype), codes, weights, block_rows)
            return
        if self.structure.state_bytes(n_classes, d) > _SMALL_STATE:
            self._take_large(X, codes, weights)
            return
        segment = min(n // _SEGMENTS, _MOST_SEGMENT_ELEMENTS // d)
        segment = max(block_rows, _SEGMENT_ELEMENTS // d, segment)

        def part(start: int) -> Sums:
            rows = slice(start, start + segment)
            sums: Sums = self.empty(n_classes)
            sums._take_small(as_rows(X[rows], dtype), codes[rows], weights[rows], block_rows)
            return sums

        everyone = np.arange(n_classes)
        fresh = self.empty(n_classes)
        for sums in threads.imap(part, ((start,) for start in range(0, n, segment)), ahead=2):
            fresh.add(sums, everyone)
        self.add(fresh, everyone)

    def _narrow(self, n_rows: int) -> bool:
        """Whether so many rows go straight into sums, without being packed."""
        return (
            self.structure.matrix
            and self.n_features <= narrow_products.MAX_FEATURES
            and n_rows > self.count.size
        )

    def _panels(self, n_rows: int, dtype: Any) -> np.ndarray:
        """Room for the panels of a block, as the kernels want it beside a state."""
        if not self.structure.matrix:
            return NO_PANELS
        return empty_panels(1, n_rows, self.n_features, dtype)[0]

    def _add_sums(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        sums: np.ndarray,
    ) -> None:
        """Add the centred rows to `sums`, shape (n_classes, n_features), in place."""
        for rows, block in blocks(X, self.read_dtype(X.dtype)):
            _in_parts(add_sums, (block, codes[rows], weights[rows]), (centre,), sums)

    def _add_scatter(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        centre_low: np.ndarray,
        panel_dtype: Any,
    ) -> None:
        """Add squares or products of the centred rows to the scatter, in place."""
        n_classes = centre.shape[0]
        for rows, block in blocks(X, self.read_dtype(X.dtype)):
            labels, weight = codes[rows], weights[rows]
            if not self.structure.matrix:
                shared = centre, centre_low, self.structure.groups(n_classes)
                _in_parts(add_squares, (block, labels, weight), shared, self.scatter)
                continue
            order, starts = rows_by_group(labels, n_classes, self.scatter.shape[0])
            source = block, labels, order, weight, centre, centre_low
            self._add_products(
                source, _cut(starts, DEPTH * rows_of_entry(panel_dtype)), panel_dtype
            )

    def _add_products(
        self,
        source: tuple[np.ndarray, ...],
        cuts: tuple[np.ndarray, np.ndarray, np.ndarray],
        dtype: Any,
    ) -> None:
        """Pack blocks of rows and add their products, batch by batch."""
        d = self.n_features
        n_threads = threads.n_threads()
        n_rows = int((cuts[1] - cuts[0]).max())
        block_bytes = n_rows * d * np.dtype(dtype).itemsize
        batch = min(max(n_threads, _PANEL_BYTES // block_bytes), cuts[0].size)
        panels = empty_panels(batch, n_rows, d, dtype)
        features = np.empty((batch, panels.shape[1] * panels.shape[3]), np.intp)
        active = np.empty(batch, np.intp)
        tiles = _triangle_tiles(d)
        shares = [
            slice(a, b) for a, b in pairwise(np.linspace(0, batch, n_threads + 1).astype(int))
        ]
        refused = []
        for start in range(0, cuts[0].size, batch):
            first, last, owner = (cut[start : start + batch] for cut in cuts)

            def pack(some: slice, a: np.ndarray = first, b: np.ndarray = last) -> None:
                pack_blocks(source, a[some], b[some], panels[some], features[some], active[some])

            threads.run(pack, ((some,) for some in shares))
            bad = active[: first.size] < 0  # float32 has too small a range
            refused.append(np.flatnonzero(bad) + start)
            active[: first.size][bad] = 0
            product = panels, features, active, last - first, owner
            threads.run(lambda i, j, p=product: add_products(*p, i, j, self.scatter), tiles)
        # After all others, so that it does not matter what was a batch.
        again = np.concatenate(refused)
        if again.size:
            self._add_products(source, (cuts[0][again], cuts[1][again], cuts[2][again]), np.float64)


def _in_parts(
    function: Callable[..., None],
    by_row: tuple[np.ndarray, ...],
    shared: tuple[np.ndarray, ...],
    out: np.ndarray,
) -> None:
    """Call ``function(*rows, *shared, sums)`` for parts of the rows; add their sums in order."""
    n_rows, d = by_row[0].shape
    step = max(DEPTH, _PART_ELEMENTS // d)

    def part(start: int) -> np.ndarray:
        sums = np.zeros_like(out)
        function(*(array[start : start + step] for array in by_row), *shared, sums)
        return sums

    for sums in threads.imap(part, ((start,) for start in range(0, n_rows, step))):
        out += sums


def _triangle_tiles(d: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Square parts of a d x d lower triangle, first rows and columns and those after the last.

    Enough of them for all threads, and none so large that it does not stay in the third cache
    while the products of many blocks are added to it.
    """
    side = min(_TILE_FEATURES, -(-d // (3 * _ALIGNED)) * _ALIGNED)
    ranges = [(i, min(i + side, d)) for i in range(0, d, side)]
    return [(rows, columns) for i, rows in enumerate(ranges) for columns in ranges[: i + 1]]


def triangle_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """Row ranges of a d x d lower triangle, of about equal area, the largest rows first."""
    cuts = np.unique(np.round(np.sqrt(np.linspace(0, 1, parts + 1)) * d).astype(int))
    return [(int(a), int(b)) for a, b in pairwise(cuts)][::-1]


def _cut(starts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut each group's rows ``starts[g]:starts[g + 1]`` into blocks: first, last, owner."""
    sizes = np.diff(starts)
    pieces = -(-sizes // size)
    owner = np.repeat(np.arange(sizes.size), pieces)
    number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[owner] + number * size
    return first, np.minimum(first + size, starts[owner + 1]), owner


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: str) -> None:
    """Raise ValueError where an array has not that shape and type, or counts less than nothing."""
    if array.shape != shape or array.dtype.str[1:] != dtype:
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, expected {shape} and {dtype}"
        )
    if not np.isfinite(array).all() or (name == "count" and (array < 0).any()):
        raise ValueError(f"{name} holds impossible values")
