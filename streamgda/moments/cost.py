"""Model of the time that adding rows takes, by which the way to add them is chosen.

Times are nanoseconds, of a processor of about 3 GHz. Only their ratios matter, and these hold for
others: products take a time that depends on the vectors of the processor. The model supposes two
threads, whatever their number is: a choice depends on nothing that may differ between two passes
over the same rows, so that their sums have the same bits.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

from streamgda.kernels.narrow import LEAST_BUCKET_ROWS
from streamgda.kernels.processors import SHAPE
from streamgda.kernels.products import FEW_ROWS
from streamgda.kernels.vectors import LANES

# Of a row, of each of its values, and of each product of two by instructions of one product; and
# more of a row and of each value if rows are read class by class, half as much of integers.
_ROW, _VALUE, _PRODUCT = 1.1, 0.32, 0.1
_ORDERED_ROW, _ORDERED_VALUE = 20.0, 0.9
_BLAS_VALUE = 1.8  # more of a value if BLAS multiplies
_PACKED_ROW = 22.0  # of a row whose bytes are multiplied
_BYTE_LANES = SHAPE.vector_bytes * SHAPE.together // 8  # half of those of an instruction

# Of rows to another thread, and of their sums back: less in a loop of updates, and more where
# threads have slept for some milliseconds, as those of a stream have.
HAND_OVER = 400_000.0
_GAIN = 1.8  # of two threads: those of two cores gain 1.9, and those of a single one 1.1
_SEGMENT_BYTE = 0.6  # of sums that are made for a segment, and added afterwards; half of integers
_MERGED = 0.1  # of a product of the distance of two means, of each class of a segment
_PASSES = 600_000.0  # of rows to other threads: to sum, to centre and to multiply them
_RANGE = 36_000.0  # of rows to a thread that adds those of some classes
LARGE_RANGE = 1 / 8  # share of all rows from which on those of a range are added on all threads

SEGMENT_STATE = 1 << 22  # bytes of sums that a segment may have of its own
_CACHE = 12 << 20  # bytes of the last cache that a thread can count on
_LARGE_BLOCK = 64  # rows of each class for which sums in any memory are worth it
_NEAR = 1 << 20  # bytes of the cache of a core, and the time of a byte that is not in it
_FAR_BYTE = 0.028


class Load(NamedTuple):
    """Sums that one thread adds rows to, on whose size the time of a row depends.

    Attributes
    ----------
    n_classes, n_groups, n_features : int
    products : bool
        Products of all pairs of values are summed, for each group of classes; otherwise squares.
    value_bytes : int
        Size of the integers that are added, whose sums are exact; 0 for floats.
    wide : bool
        Rows have too many features for buckets, one for each class, whose products are summed.
    """

    n_classes: int
    n_groups: int
    n_features: int
    products: bool
    value_bytes: int = 0
    wide: bool = False

    @property
    def exact(self) -> bool:
        """Values are integers."""
        return self.value_bytes > 0

    @property
    def row(self) -> float:
        """Time of a row whose sums are in a near cache."""
        if self.wide and self.exact:
            d = self.n_features * self.value_bytes
            return _PACKED_ROW + _VALUE * d + _PRODUCT / _BYTE_LANES * d**2
        d = -(-self.n_features // LANES) * LANES
        products = _BLAS_VALUE * self.wide * d + _PRODUCT / LANES * d**2
        return _ROW + _VALUE * d + self.products * products

    @property
    def buckets(self) -> bool:
        """True if products are those of buckets of rows."""
        return self.products and not self.wide

    @property
    def held(self) -> int:
        """Bytes that change while rows are added: buckets and their products, or sums."""
        if not self.products:
            return 8 * (2 if self.exact else 3) * self.n_features * self.n_classes
        return self.bytes_in_buckets if self.buckets else 0

    @property
    def bytes_in_buckets(self) -> int:
        """Bytes of buckets and their products."""
        d = self.n_features
        return 8 * d * (self.n_groups * d + LEAST_BUCKET_ROWS * self.n_classes)

    @property
    def least_in_buckets(self) -> float:
        """Fewest rows that are worth buckets."""
        pooled = self.n_groups < self.n_classes
        each = (0 if self.exact else FEW_ROWS) + pooled * self.n_features / 12
        return each * self.n_classes

    @property
    def far(self) -> float:
        """Time that a row takes beside `row` because `held` is more than a near cache has."""
        d, k = self.n_features, self.n_classes
        moved = 8 * d * (2 if self.products else 4 if self.exact else 5)  # the bucket, or sums
        if self.products and self.n_groups == k > 1:  # half a matrix for each bucket of rows
            moved += 8 * d**2 // LEAST_BUCKET_ROWS
        return _FAR_BYTE * moved * (1 - _NEAR / max(_NEAR, self.held))

    @property
    def ordered(self) -> float:
        """Time that a row takes beside `row` if it is read in the order of classes."""
        return (_ORDERED_ROW + _ORDERED_VALUE * self.n_features) / (2 if self.exact else 1)

    @property
    def row_alone(self) -> float:
        """Time of a row that one thread adds to all sums."""
        return self.row + (self.far if self.held <= _CACHE else self.ordered)

    def alone(self, n_rows: int) -> float:
        """Return the time of one thread that adds rows to all sums."""
        return n_rows * self.row_alone + min(n_rows, self.n_classes) * self.each_class

    @property
    def each_class(self) -> float:
        """Time of a class beside its rows."""
        d = self.n_features
        if not self.products:
            return 4.5 * d
        if self.n_groups == self.n_classes:
            return 20 * d + 0.6 * d**2
        return (2 if self.exact and self.wide else 20) * d  # bytes need no bucket of a class


def in_passes(load: Load, n_rows: int, in_float32: bool = False) -> float:
    """Return the time of two threads that add rows to the same sums, of many features."""
    row = load.row + (0.3 if load.exact else 1.6 if in_float32 else 3.2) * load.n_features
    if in_float32:  # of which a vector holds twice as many
        row -= _PRODUCT / LANES / 2 * load.n_features**2
    return _PASSES + (load.each_class * load.n_classes + n_rows * row) / _GAIN


def in_segments(load: Load, n_rows: int, state_bytes: int, n_segments: int) -> float:
    """Return the time of two threads if each segment of rows has sums of its own."""
    merged = _MERGED * load.n_features**2 if load.products and not load.exact else 0.0
    made = _SEGMENT_BYTE * state_bytes * (0.5 if load.exact else 1)
    each = made + (load.each_class + merged) * load.n_classes
    return HAND_OVER + (n_segments * each + n_rows * (load.row + load.far)) / _GAIN


def in_ranges(load: Load, n_rows: int, n_ranges: int) -> float:
    """Return the time of two threads if those of each range of classes are added apart."""
    rows = n_rows * (load.row + load.ordered) + load.n_classes * load.each_class
    large = n_ranges * LARGE_RANGE < 1  # these are handed over one after another
    return HAND_OVER * (n_ranges if large else 1) + n_ranges * _RANGE + rows / _GAIN


def most_alone(load: Load, time: Callable[[int], float]) -> int:
    """Return the most rows that one thread adds in at most the time of two, linear in the rows."""
    beside, each = time(0), load.each_class
    row = load.row_alone - (time(1) - beside)
    # Rows of classes that share a scatter are few, for one thread, until they are put in buckets.
    pooled = load.buckets and load.n_groups < load.n_classes
    most = load.least_in_buckets if pooled else 0.0
    if beside <= load.n_classes * (row + each):
        most = max(most, beside / (row + each))
    elif row > 0:
        most = max(most, (beside - load.n_classes * each) / row)
    else:
        return sys.maxsize
    return int(most) if beside > 0 else 0


def in_buckets(load: Load, n_rows: int) -> bool:
    """Return True if rows are sooner multiplied in buckets, one for each class.

    Otherwise the rows of a few at a time are added to the scatter at once, and those of many by
    BLAS, or by their bytes if they are exact: class by class. What is held has to stay in a cache
    unless many rows are added.
    """
    if n_rows < load.least_in_buckets or not load.buckets:
        return False
    return load.bytes_in_buckets <= _CACHE or n_rows >= _LARGE_BLOCK * load.n_classes
