"""What the two states of class moments share: how rows are taken in, and by which threads.

Rows are read in two passes: sums per class first, then squares or products about a centre.
`CentredSums` moves the centre to each class's mean; `ExactSums` keeps it at a whole number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Self

import numpy as np

from streamgda import threads
from streamgda.kernels.grouping import group_rows
from streamgda.kernels.scatter import (
    DEPTH,
    LANES,
    PANEL,
    TILE_ROWS,
    add_products,
    pack_rows,
)
from streamgda.kernels.sums import add_squares, add_sums
from streamgda.moments.structure import Structure

NO_WEIGHTS = np.empty(0)

# Data types that the kernels read as they are; blocks of other types are cast to float64.
_NATIVE = {"uint8", "int8", "uint16", "int16", "float32", "float64"}

_SEGMENT_ELEMENTS = 1 << 19  # of a segment that one thread takes through all passes
_SMALL_STATE = 1 << 20  # bytes: a state up to this size is worth having once a segment
_WINDOW_BYTES = 1 << 26  # rows that are grouped by class at a time
_PANEL_BYTES = 1 << 24  # panels that are packed at a time


def blocks(X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Row blocks of `X` as the kernels want them: C-contiguous, of a native type."""
    itemsize = X.dtype.itemsize if X.dtype.name in _NATIVE else 8
    n_rows = max(PANEL, _WINDOW_BYTES // (itemsize * max(1, X.shape[1])))
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_rows(X[rows])


def as_rows(X: np.ndarray) -> np.ndarray:
    """`X` itself, or a copy that is C-contiguous and of a type that the kernels read."""
    return np.ascontiguousarray(X, X.dtype.name if X.dtype.name in _NATIVE else np.float64)


class Sums:
    """What `CentredSums` and `ExactSums` share: how a block of rows is taken in.

    A small state is made once for each segment of rows, on all threads, and the segments are
    merged in their order; a large one is filled in place, each thread taking features. Neither
    the segments nor the order depend on the number of threads, so neither does any bit.

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

    def _take(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
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
        if not self.structure.per_class:
            self.scatter += sign * other.scatter
        else:
            for k, g in enumerate(at):
                self.scatter[g] += sign * other.scatter[k]

    def update(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """Take in rows; where that fails, nothing has changed."""
        n, d = X.shape
        n_classes = self.count.size
        segment = max(PANEL, _SEGMENT_ELEMENTS // max(1, d))
        small = self.structure.state_bytes(n_classes, d) <= _SMALL_STATE
        if n <= segment or not small:
            self._take(X, codes, weights)
            return

        def part(start: int) -> Sums:
            rows = slice(start, start + segment)
            sums: Sums = self.empty(n_classes)
            sums._take(X[rows], codes[rows], weights[rows])
            return sums

        everyone = np.arange(n_classes)
        fresh = self.empty(n_classes)
        for sums in threads.imap(part, ((start,) for start in range(0, n, segment)), ahead=2):
            fresh.add(sums, everyone)
        self.add(fresh, everyone)

    def _add_sums(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        sums: np.ndarray,
    ) -> None:
        """Add the centred rows to `sums`, shape (n_classes, n_features), in place."""
        columns = _feature_ranges(X.shape[1], threads.n_threads())
        for rows, block in blocks(X):
            arguments = block, codes[rows], weights[rows], centre
            threads.run(lambda i, j, a=arguments: add_sums(*a, i, j, sums), columns)

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
        n_classes, d = centre.shape
        high, low = centre.astype(panel_dtype), centre_low.astype(panel_dtype)
        group = self.structure.groups(n_classes)
        for rows, block in blocks(X):
            labels, weight = codes[rows], weights[rows]
            if not self.structure.matrix:
                arguments = block, labels, weight, centre, centre_low, group
                columns = _feature_ranges(d, threads.n_threads())
                threads.run(lambda i, j, a=arguments: add_squares(*a, i, j, self.scatter), columns)
                continue
            order = np.empty(labels.size, np.int64)
            starts = np.empty(n_classes + 1, np.int64)
            group_rows(labels, order, starts)
            if not self.structure.per_class:  # panels may run across classes
                starts = np.array([0, labels.size])
            first, last, owner = _cut_panels(starts)
            self._add_panels(
                (block, labels, order, np.sqrt(weight), high, low),
                first,
                last,
                owner,
                np.dtype(panel_dtype),
            )

    def _add_panels(
        self,
        source: tuple[np.ndarray, ...],
        first: np.ndarray,
        last: np.ndarray,
        owner: np.ndarray,
        dtype: np.dtype,
    ) -> None:
        d = self.n_features
        depth = -(-d // DEPTH) * DEPTH
        width = min(PANEL, -(-int((last - first).max(initial=1)) // LANES) * LANES)
        batch = max(1, _PANEL_BYTES // (depth * width * dtype.itemsize))
        panels = np.zeros((min(batch, first.size), depth, width), dtype)
        n_threads = threads.n_threads()
        columns = _feature_ranges(d, n_threads)
        strips = _triangle_ranges(d, 2 * n_threads if n_threads > 1 else 1)
        for p in range(0, first.size, batch):
            some = slice(p, p + batch)
            a, b, g = first[some], last[some], owner[some]
            packing = *source, a, b
            product = panels, b - a, g
            threads.run(lambda i, j, p=packing: pack_rows(*p, i, j, panels), columns)
            threads.run(lambda i, j, p=product: add_products(*p, i, j, self.scatter), strips)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Knuth: a + b as the nearest float64 and what that leaves."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _feature_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """`d` features in up to `parts` ranges, none so short that threads share cache lines."""
    step = max(32, -(-d // parts))
    return [(i, min(i + step, d)) for i in range(0, d, step)]


def _triangle_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """Row ranges of a d x d lower triangle, of about equal area, the largest rows first."""
    tiles = -(-d // TILE_ROWS)
    cuts = np.unique(np.round(np.sqrt(np.linspace(0, 1, parts + 1)) * tiles).astype(int))
    cuts *= TILE_ROWS
    return [(int(a), int(b)) for a, b in pairwise(cuts)][::-1]


def _cut_panels(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut each group's rows ``starts[g]:starts[g + 1]`` into panels: first, last, owner."""
    sizes = np.diff(starts)
    pieces = -(-sizes // PANEL)
    owner = np.repeat(np.arange(sizes.size), pieces)
    number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[owner] + number * PANEL
    return first, np.minimum(first + PANEL, starts[owner + 1]), owner


def check_array(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: str) -> None:
    """Raise ValueError where an array has not that shape and type, or counts less than nothing."""
    if array.shape != shape or array.dtype.str[1:] != dtype:
        raise ValueError(
            f"{name} has shape {array.shape} and dtype {array.dtype}, expected {shape} and {dtype}"
        )
    if not np.isfinite(array).all() or (name == "count" and (array < 0).any()):
        raise ValueError(f"{name} holds impossible values")
