"""From rows to sums: one kernel call for a few rows, segments of rows, or rows class by class.

Neither segments nor the tasks of classes depend on the number of threads, so no bit does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from streamgda.kernels.blocks import PRODUCT_ROWS, add_variances, add_wide
from streamgda.kernels.buckets import add_narrow, add_narrow_exact
from streamgda.kernels.integers import add_bytes, add_squares_exact
from streamgda.kernels.sums import group_rows
from streamgda.moments.covariance_types import Structure
from streamgda.moments.feature_maps import LiftedRows
from streamgda.moments.sums import EXACT_ROWS, ExactSums, Sums
from streamgda.rows.counting import as_kernel_rows, kernel_type
from streamgda.runtime import threads

_FEW_VALUES = 1 << 17  # One kernel call adds rows of at most so many values.
# Narrower rows need no BLAS or byte tiles; keys are bytes of integers.
_NARROW = {0: 64, 1: 24, 2: 120}
_SEGMENT_ROWS = 1 << 11, 1 << 17  # Segments have at least and at most so many rows.
_SEGMENT_STATE = 1 << 20  # Each segment may have sums of so many bytes.
_TASK_ROWS, _TASK_VALUES = 512, 1 << 21  # A task that adds rows by class has so many.
_WINDOW_VALUES = 1 << 23  # So many values are converted to another type at a time.
_SPARSE_ENTRIES = 1 << 20  # So many entries of sparse rows are added at a time.
_SPARSE_ROWS = 300  # Their sums are those of parts of about so many rows.
_LARGE = 32  # A state of more bytes per value of the rows changes in place.
_AHEAD = 2  # So many sums may wait to be merged.
_FLOAT64 = np.dtype(np.float64)
_FLOAT32_STATE = 1 << 20  # float32 rows are multiplied in float32 if the sums have more bytes.


class Rows(NamedTuple):
    """Rows, their classes, and their weights, which are empty if all are one."""

    X: Any
    codes: np.ndarray
    weights: np.ndarray

    def part(self, first: int, last: int, dtype: np.dtype) -> Rows:
        """Return some rows as kernels read them."""
        some = slice(first, last)
        codes = np.ascontiguousarray(self.codes[some], np.int64)
        return Rows(as_kernel_rows(self.X[some], dtype), codes, self.weights[some])


# Called as add(rows, order, base, *arrays of sums): adds ``rows[order]``, with `base` less than
# their codes.
Kernel = Callable[..., None]


def _add_floats(kernel: Any) -> Kernel:
    return lambda rows, order, base, *state: kernel(rows.X, order, *rows[1:], base, *state)


def _add_integers(kernel: Any) -> Kernel:
    return lambda rows, order, base, *state: kernel(rows.X, order, rows.codes, base, *state)


def _add_tiles(rows: Rows, order: np.ndarray, base: int, *state: np.ndarray) -> None:
    X = rows.X
    sign = np.uint8(128 if X.dtype.kind == "i" else 0)
    add_bytes(X.view(np.uint8), order, rows.codes, base, X.itemsize, sign, *state)


_KERNELS = {  # Keys: exact, wide, matrix.
    (False, False, False): _add_floats(add_variances),
    (False, False, True): _add_floats(add_narrow),
    (False, True, True): _add_floats(add_wide),
    (True, False, False): _add_integers(add_squares_exact),
    (True, False, True): _add_integers(add_narrow_exact),
    (True, True, True): _add_tiles,
}


class Adding:
    """Addition of rows of a type to sums of a size.

    Attributes
    ----------
    dtype : dtype
        Type in which the rows are read.
    exact : bool
        The sums are exact.
    wide : bool
        Rows are multiplied by BLAS or by byte tiles, class by class.
    most_few : int
        Number of rows that one kernel call adds.
    """

    def __init__(
        self, structure: Structure, n_classes: int, n_features: int, dtype: np.dtype, exact: bool
    ) -> None:
        dtype = kernel_type(dtype)
        self.n_features, self.exact = n_features, exact
        self.state_bytes = structure.state_bytes(n_classes, n_features)
        size = dtype.itemsize if exact else 0
        self.wide = structure.matrix and n_features > _NARROW[size]
        self.dtype = dtype if exact or dtype == np.float32 else _FLOAT64
        if self.wide and self.state_bytes <= _FLOAT32_STATE and not exact:
            self.dtype = _FLOAT64
        self.most_few = _FEW_VALUES // n_features
        self._pooled = not structure.per_class
        # BLAS, where the kernel uses it, has one thread.
        self._blas = threads.serial_blas if self.wide and not exact else nullcontext
        self._kernel = _KERNELS[exact, self.wide, structure.matrix]

    def in_place(self, n_rows: int) -> bool:
        """Return True if sums of these rows would take longer to merge than to change."""
        return n_rows <= self.most_few or _LARGE * n_rows * self.n_features <= self.state_bytes

    def add(self, rows: Rows, sums: Any) -> None:
        """Add rows to sums, which others may not read meanwhile."""
        n = len(rows.codes)
        if not isinstance(rows.X, np.ndarray):
            entries = max(_SPARSE_ENTRIES, sums.packed.size)
            step = max(1, entries * n // max(1, rows.X.nnz))
            for first in range(0, n, step):
                some = slice(first, first + step)
                add = _add_sparse_exact if self.exact else _add_sparse
                add(Rows(*(values[some] for values in rows)), sums)
        elif n <= self.most_few:
            self.add_at_once(rows.part(0, n, self.dtype), sums.state)
        elif not self.wide and self.state_bytes <= _SEGMENT_STATE:
            self._add_segments(rows, sums)
        else:
            for first, last in self._windows(rows.X):
                self._add_by_class(rows.part(first, last, self.dtype), sums)

    def add_at_once(self, rows: Rows, state: tuple[np.ndarray, ...]) -> None:
        """Add rows as kernels read them to the arrays of sums, in one kernel call."""
        n, wide = len(rows.codes), self.wide
        order = in_class_order(rows.codes, len(state[0]))[0] if wide else np.arange(n)
        with self._blas():
            self._kernel(rows, order, 0, *state)

    def _add_segments(self, rows: Rows, sums: Any) -> None:
        """Add sums of segments, each computed by one thread."""
        n, n_classes = len(rows.codes), sums.count.size
        least, most = _SEGMENT_ROWS
        most = max(least, min(most, _TASK_VALUES // self.n_features))
        cuts = _even(n, min(most, max(least, -(-n // 8), 16 * n_classes)))
        order = np.arange(cuts[1])

        def segment(first: int, last: int) -> Any:
            own = sums.empty(n_classes)
            part = rows.part(first, last, self.dtype)
            self._kernel(part, order[: last - first], 0, *own.state)
            return own

        everyone = np.arange(n_classes)
        calls = pairwise(cuts)
        with closing(threads.imap(segment, calls, ahead=_AHEAD)) as segments:
            for own in segments:
                sums.add(own, everyone)

    def _add_by_class(self, rows: Rows, sums: Any) -> None:
        """Add rows in the order of their classes, as many a task.

        A task adds whole classes to the sums themselves. A scatter that several tasks add to gets
        sums of their own from all but the first of them.
        """
        codes, n = rows.codes, len(rows.codes)
        order, starts = in_class_order(codes, sums.count.size)
        most = max(4 * PRODUCT_ROWS, _TASK_VALUES // self.n_features)
        cuts = _even(n, min(most, max(_TASK_ROWS, -(-n // 8))))

        def task(first: int, last: int) -> tuple[int, Any]:
            low = int(codes[order[first]])
            split = min(last, int(starts[low + 1])) if starts[low] < first else first
            if self._pooled and first:
                split = last
            own = None
            if split > first:
                own = sums.empty(int(codes[order[split - 1]]) - low + 1)
                self._kernel(rows, order[first:split], low, *own.state)
            if last > split:
                start, stop = int(codes[order[split]]), int(codes[order[last - 1]]) + 1
                *of_classes, scatter = sums.state
                scatter = scatter if self._pooled else scatter[start:stop]
                state = *(array[start:stop] for array in of_classes), scatter
                self._kernel(rows, order[split:last], start, *state)
            return low, own

        with self._blas(), closing(threads.imap(task, pairwise(cuts), ahead=_AHEAD)) as tasks:
            for low, own in tasks:
                if own is not None:
                    sums.add(own, np.arange(low, low + own.count.size))

    def _windows(self, X: Any) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows: all, unless they have to be copied."""
        n, plain = X.shape[0], isinstance(X, np.ndarray) and X.flags.c_contiguous
        step = n if plain and X.dtype == self.dtype else _WINDOW_VALUES // self.n_features
        step = max(step, PRODUCT_ROWS)
        return ((first, min(first + step, n)) for first in range(0, n, step))


def _add_sparse_exact(rows: Rows, sums: ExactSums) -> None:
    """Add sparse rows of whole numbers to counts, sums and squares."""
    X, (n_classes, d) = rows.X, sums.total.shape
    entries = np.repeat(rows.codes, np.diff(X.indptr)) * d + X.indices
    values = X.data.astype(np.int64)
    sums.count += np.bincount(rows.codes, minlength=n_classes)
    np.add.at(sums.total.reshape(-1), entries, values)
    places = entries if sums.structure.per_class else X.indices
    np.add.at(sums.packed.reshape(-1), places, values * values)


def _add_sparse(rows: Rows, sums: Sums) -> None:
    """Add sparse rows: those of a class are a block, in which zeros count with their weight."""
    X, shape, n = rows.X, sums.origin.shape, len(rows.codes)
    n_classes, size, n_entries = len(sums.count), sums.origin.size, np.diff(X.indptr)
    entries = np.repeat(rows.codes, n_entries) * shape[1] + X.indices
    # Parts of the rows have sums of their own, as those of many numbers would lose digits.
    n_parts = max(1, min(n // _SPARSE_ROWS, X.nnz // size))
    in_parts = np.repeat(np.arange(n) * n_parts // n * size, n_entries) + entries
    values = X.data.astype(np.float64)
    weights = rows.weights if rows.weights.size else np.ones(len(rows.codes))
    each = np.repeat(weights, n_entries)

    def total(numbers: np.ndarray) -> np.ndarray:
        return np.bincount(in_parts, numbers, n_parts * size).reshape(-1, *shape).sum(axis=0)

    n_rows = np.bincount(rows.codes, minlength=n_classes)
    block = sums.empty(n_classes)
    block.count[:] = np.bincount(rows.codes, weights, n_classes)
    block.weight_squares[:] = np.bincount(rows.codes, weights * weights, n_classes)
    count = np.where(n_rows > 0, block.count, 1.0)[:, None]
    present = np.bincount(entries, minlength=size).reshape(shape)
    # Weights that are summed in another order leave a rest.
    zeros = np.where(present < n_rows[:, None], np.maximum(count - total(each), 0), 0.0)
    block.origin.reshape(-1)[entries] = values
    values -= block.origin.reshape(-1)[entries]
    block.offset[:] = (total(each * values) - zeros * block.origin) / count
    values -= block.offset.reshape(-1)[entries]
    squares = total(each * (values * values)) + zeros * block.mean**2
    block.packed[:] = squares if sums.structure.per_class else squares.sum(axis=0)
    sums.add(block, np.arange(n_classes))


def _even(n: int, most: int) -> list[int]:
    """Cut n rows into parts of at most so many, the first the largest; return their limits."""
    size = -(-n // -(-n // most))
    return [*range(0, n, size), n]


def in_class_order(codes: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in the order of their classes, and the place where each class starts."""
    order, starts = np.empty(codes.size, np.intp), np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    return order, starts


adding_of = lru_cache(64)(Adding)


def sums_of(structure: Structure, rows: Rows, n_classes: int) -> Sums | ExactSums:
    """Return the sums of rows of classes; they may not be finite if the rows are not.

    Rows behind a feature map are lifted window by window.
    """
    X, codes, weights = rows
    d = X.shape[1]
    if type(X) is LiftedRows:
        total: Any = Sums.zeros(structure, n_classes, d)
        for some, values in X.windows():
            part = Rows(values, codes[some], weights[some])
            total.add(sums_of(structure, part, n_classes), np.arange(n_classes))
            del values, part  # They go before the next ones are lifted.
        return total
    whole = kernel_type(X.dtype).kind in "iu"
    exact = whole and not weights.size and len(codes) < EXACT_ROWS
    kind: Any = ExactSums if exact else Sums
    sums = kind.zeros(structure, n_classes, d)
    with np.errstate(over="ignore", invalid="ignore"):
        adding_of(structure, n_classes, d, X.dtype, exact).add(rows, sums)
    return sums


def scratch_bytes(structure: Structure, n_features: int) -> int:
    """Return the most bytes that are held besides sums and rows while rows are added."""
    d, n_threads = n_features, threads.n_threads()
    segment = 8 * max(_TASK_VALUES, _SEGMENT_ROWS[0] * d) + _SEGMENT_STATE
    window = 8 * max(_WINDOW_VALUES, PRODUCT_ROWS * d)
    block = 8 * (PRODUCT_ROWS * d + d * d) + 4 * d * (d + 1) if structure.matrix else 0
    return max((n_threads + _AHEAD) * segment, window + (n_threads + _AHEAD) * block)
