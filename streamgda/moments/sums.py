"""Base of the two kinds of sums that class moments hold: adding rows, and on which threads.

Rows are read in two passes: sums per class first, then squares or products about a centre.
`CentredSums` moves the centre to each class's mean; `ExactSums` keeps it at a whole number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import closing
from functools import partial
from typing import Any, Self

import numpy as np

from streamgda.errors import MergeError
from streamgda.kernels.products import LEAST_ROWS
from streamgda.kernels.sums import add_sums
from streamgda.moments import integer_parallel, scatter
from streamgda.moments.parallel import add_in_parts
from streamgda.moments.structures import Structure, structure_of
from streamgda.rows.arrays import NO_WEIGHTS, WINDOW_BYTES, as_kernel_rows, blocks
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads
from streamgda.runtime.interruption import undone, uninterrupted

OVERFLOW = "sums or squares would overflow float64; scale the data down, or the weights"

_BLOCK_ELEMENTS = 1 << 16  # of a block that stays in the second cache while it is read twice
# Of a segment, which one thread adds block by block. Segments of much data are larger: between two
# of them a thread has to wait for Python.
_SEGMENT_ELEMENTS = 1 << 19
_MOST_SEGMENT_ELEMENTS = 1 << 21
_SEGMENTS = 16
_AHEAD = 2  # segments that wait for a thread
_SMALL_WORK = 1 << 24  # multiplications that are not worth a second thread
_SMALL_STATE = 1 << 20  # bytes: states up to this size are copied, and one for each segment


def scratch_bytes(structure: Structure, n_features: int) -> int:
    """Return the most bytes that are held besides sums and rows while many rows are added.

    They are copies of rows in the type that the kernels read: of segments, a thread copies one at
    a time, and the sums of some others wait to be added. Beside those of large states there is
    the scratch space of products.
    """
    n_threads = threads.n_threads()
    segment = 8 * max(_MOST_SEGMENT_ELEMENTS, LEAST_ROWS * n_features)
    small = n_threads * segment + (n_threads + _AHEAD + 2) * _SMALL_STATE
    products = (scatter.scratch_bytes, integer_parallel.scratch_bytes) if structure.matrix else ()
    return max(small, WINDOW_BYTES + max((of(n_features) for of in products), default=0))


class NotFinite(Exception):  # noqa: N818
    """A sum is not finite; the caller knows where the rows came from, and names the value."""


class Sums(ABC):
    """Base of `CentredSums` and `ExactSums`.

    A few rows, and any number of sparse ones, are added to the state in one kernel call. For more
    rows, a small state is filled for each segment of rows, on all threads, and the segments are
    merged in their order; a large state is filled in place, each thread adding to parts of the
    matrix. Neither the segments nor the order depend on the number of threads, so no bit does.

    Sums that moments hold must never be half changed, whatever exception arrives: they change in a
    single kernel call, or in a call that is not interrupted, or small ones are replaced by others.

    Attributes
    ----------
    structure : Structure
    count : ndarray, shape (n_classes,)
        Rows of each class, or their total weight.
    scatter : ndarray, shape ``structure.scatter_shape(n_classes, n_features)``
        Matrices hold their lower triangle.
    """

    structure: Structure
    count: np.ndarray
    scatter: np.ndarray
    rounding: np.ndarray | None = None

    @abstractmethod
    def empty(self, n_classes: int) -> Any:
        """Return sums of no rows, otherwise like these."""

    @abstractmethod
    def copy(self) -> Any:
        """Return independent sums with the same values."""

    @abstractmethod
    def with_classes(self, kept: Any, groups: Any) -> Any:
        """Return a copy of the sums of some classes, and of some groups of them."""

    @abstractmethod
    def with_scatter(self, scatter: np.ndarray, rounding: np.ndarray | None) -> Any:
        """Return copies of the counts and means with another scatter."""

    @abstractmethod
    def with_features(self, index: np.ndarray, scatter: np.ndarray) -> Any:
        """Return the sums of some features, with their scatter."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state by name."""

    @abstractmethod
    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""

    @abstractmethod
    def class_means(self) -> np.ndarray:
        """Return the means, NaN for classes without rows."""

    @abstractmethod
    def centred(self) -> Any:
        """Return the same moments as `CentredSums`."""

    @abstractmethod
    def select_scatter(self, groups: slice, features: np.ndarray, out: np.ndarray) -> None:
        """Write scatters about the means of some groups and features, in rising order; whole."""

    def without_products(self) -> Any:
        """Return `centred` without products of different features."""
        if not self.structure.matrix:
            return self.centred()
        alone = self.with_scatter(self.structure.diagonal(self.scatter).copy(), self.rounding)
        alone.structure = structure_of("diag" if self.structure.per_class else "tied_diag")
        return alone.centred()

    @abstractmethod
    def add(self, other: Any, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""

    @abstractmethod
    def subtract(self, other: Any, at: np.ndarray) -> np.ndarray:
        """Subtract `other`, whose class k is class ``at[k]`` here.

        Returns
        -------
        ndarray of bool, shape (groups, n_features)
            True where no rows have the sum of squares that is left: it is negative, or positive
            without two rows of a class, by more than rounding. `other` was not included then.
        """

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed."""
        return True

    @abstractmethod
    def _read_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the data type in which rows of a data type are read."""

    @abstractmethod
    def _changes_at_once(self, dtype: np.dtype, weights: np.ndarray) -> bool:
        """Return True if `_add_few` changes nothing but arrays, in a single kernel call."""

    @abstractmethod
    def taken_at_once(self) -> tuple[tuple[np.dtype, ...], float]:
        """Return the types of rows that `add_at_once` takes, and how many rows there may be.

        The number holds until rows are added; in one call there are `most_at_once` at most.
        """

    @property
    def most_at_once(self) -> int:
        """Rows that a single kernel call adds, on one thread."""
        n_rows = min(LEAST_ROWS, _SMALL_WORK // self.structure.group_size(self.n_features))
        while self._uses_blas_threads(n_rows):
            n_rows //= 2
        return n_rows

    def add_at_once(self, X: np.ndarray, codes: np.ndarray) -> None:
        """Add rows of one of the types of `taken_at_once`, in a single kernel call."""
        self._add_few(as_kernel_rows(X, X.dtype), codes, NO_WEIGHTS, LEAST_ROWS)

    @abstractmethod
    def _add_few(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, block_rows: int
    ) -> None:
        """Add rows block by block; if the first block fails, nothing has changed."""

    @abstractmethod
    def _add_many(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        """Add rows on all threads; if that fails, nothing has changed."""

    def _uses_blas_threads(self, n_rows: int) -> bool:
        """Return True if BLAS might use several threads to add that many rows, if it is let."""
        return False

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.scatter.shape[-1]

    @property
    def small(self) -> bool:
        """True if it takes little time and memory to copy these sums."""
        return self.structure.state_bytes(self.count.size, self.n_features) <= _SMALL_STATE

    def _is_little(self, n_rows: int, n_features: int) -> bool:
        """Return True if adding rows is not worth a second thread."""
        return n_rows * self.structure.group_size(n_features) <= _SMALL_WORK

    def placed(self, at: np.ndarray, n_classes: int) -> Self:
        """Return a copy in which class k is class ``at[k]`` of `n_classes`.

        Raises
        ------
        MergeError
            If sums of several classes overflow.
        """
        sums: Self = self.empty(n_classes)
        with np.errstate(over="ignore", invalid="ignore"):
            sums.add(self, at)
        return sums.checked()

    def checked(self) -> Self:
        """Return these sums; raise `MergeError` if one has overflowed."""
        if not self.finite:
            raise MergeError(OVERFLOW)
        return self

    def updated(
        self,
        X: Any,
        codes: np.ndarray,
        weights: np.ndarray,
        held: bool,
        decay: float | None = None,
    ) -> Any:
        """Return the sums with rows added: these, or others. If that fails, nothing has changed.

        Parameters
        ----------
        X, codes, weights : ndarray
            Rows, their classes and their weights; no weights if all are one.
        held : bool
            The sums are held by moments: they change completely or not at all.
        decay : float, optional
            Factor that all weights are multiplied by afterwards, those of `CentredSums`.
        """
        if decay is not None:
            if held and not self.small:
                return uninterrupted(self.updated, X, codes, weights, False, decay)
            scaled = (self.copy() if held else self).updated(X, codes, weights, False)
            scaled.scale(decay)
            return scaled
        n, d = X.shape
        n_classes = self.count.size
        block_rows = LEAST_ROWS
        if n > LEAST_ROWS:  # enough rows for every class to have some to multiply with each other
            block_rows = max(LEAST_ROWS, _BLOCK_ELEMENTS // d, 64 * n_classes)
        dtype = self._read_dtype(X.dtype)
        few = n <= block_rows and self._is_little(n, d)
        if few or type(X) is CompressedRows:
            rows = as_kernel_rows(X, dtype)
            add: Any = self._add_few
            if held and not self._changes_at_once(dtype, weights):
                add = partial(uninterrupted, add)
            if self._uses_blas_threads(n):
                add = partial(threads.call_serial_blas, add)
            add(rows, codes, weights, block_rows)
            return self
        if not self.small:
            uninterrupted(self._add_many, X, codes, weights)
            return self
        segment = min(n // _SEGMENTS, _MOST_SEGMENT_ELEMENTS // d)
        segment = max(block_rows, _SEGMENT_ELEMENTS // d, segment)

        def part(start: int) -> Sums:
            rows = slice(start, start + segment)
            sums: Sums = self.empty(n_classes)
            sums._add_few(as_kernel_rows(X[rows], dtype), codes[rows], weights[rows], block_rows)
            return sums

        def whole() -> Sums:
            total: Sums = self.empty(n_classes)
            starts = ((start,) for start in range(0, n, segment))
            with threads.serial_blas(), closing(threads.imap(part, starts, ahead=_AHEAD)) as parts:
                for sums in parts:
                    total.add(sums, everyone)
            return total

        everyone = np.arange(n_classes)
        added = undone(whole)
        result = self.copy() if held else self
        with np.errstate(over="ignore", invalid="ignore"):
            result.add(added, everyone)
        if not result.finite:
            raise NotFinite
        return result

    def _add_sums(
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        sums: np.ndarray,
    ) -> bool:
        """Add the centred rows to `sums`, shape (n_classes, n_features), in place.

        Returns True if any are too large to be squared and summed.
        """
        beyond = np.zeros(1, np.int64)
        for rows, block in blocks(X, self._read_dtype(X.dtype)):
            add_in_parts(add_sums, (block, codes[rows], weights[rows]), (centre,), sums, beyond)
        return bool(beyond.any())

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
        for rows, block in blocks(X, self._read_dtype(X.dtype)):
            by_row = block, codes[rows], weights[rows]
            self.structure.add_rows(*by_row, centre, centre_low, panel_dtype, self.scatter)
