"""Model of the time that adding rows takes, by which the way to add them is chosen.

Times are nanoseconds, of a processor of about 3 GHz. Only their ratios matter, and these hold for
others: products take a time that depends on the vectors of the processor. The model supposes two
threads, whatever their number is: a choice depends on nothing that may differ between two passes
over the same rows, so that their sums have the same bits.
"""

from __future__ import annotations

from streamgda.kernels.processors import SHAPE
from streamgda.kernels.products import FEW_ROWS
from streamgda.kernels.vectors import LANES

# Of a row, of each of its values, and of each product of two by instructions of one product; and
# more of a row and of each value if rows are multiplied one class after another.
_ROW, _VALUE, _PRODUCT = 1.5, 0.3, 0.16
_ORDERED_ROW, _ORDERED_VALUE = 10.5, 1.4
_BYTE_LANES = SHAPE.vector_bytes * SHAPE.together // 8  # half of those of an instruction

_HAND_OVER = 225_000.0  # of rows to another thread, and of their sums back
# Of a byte of sums that are made for a segment, and added afterwards; and of sums that change in
# place: with means to merge, or exact.
_SEGMENT_BYTE, _BYTE, _EXACT_BYTE = 0.5, 0.12, 0.05
_RANGE = 60_000.0  # of rows to a thread that adds those of some classes
_ALONE = 2.0  # times the time beside that of rows: with less work, two threads gain nothing

# Bytes of sums that each segment of rows has of its own. More of them leave the near caches so
# often that reading the rows in another order, class by class, takes less time.
SEGMENT_STATE = 1 << 22
_CACHE = 12 << 20  # bytes of the last cache that a thread can count on
_LARGE_BLOCK = 64  # rows of each class for which sums in any memory are worth it


def of_row(n_features: int, products: bool, in_bytes: bool = False) -> float:
    """Return the time of a row: of its values, and of the products of pairs of them, or squares.

    Products of integers are those of their bytes, if `in_bytes`.
    """
    lanes = _BYTE_LANES if in_bytes else LANES
    return _ROW + _VALUE * n_features + products * _PRODUCT / lanes * n_features**2


def of_order(n_features: int, products: bool) -> float:
    """Return the time that a row takes beside `of_row` if it is one of many classes."""
    return _ORDERED_ROW + (_ORDERED_VALUE if products else 0.5) * n_features


def of_class(n_features: int, products: bool, state_bytes: int) -> float:
    """Return the time of a class beside its rows: that of its sums in a cache, or in memory."""
    if not products:
        return 4.6 * n_features
    each = 200 + 20 * n_features + 0.33 * n_features**2
    return each if state_bytes <= _CACHE else 2.5 * each


def of_segment(state_bytes: int) -> float:
    """Return the time beside that of rows if each segment of them has sums of its own."""
    return _HAND_OVER + _SEGMENT_BYTE * state_bytes


def of_change(state_bytes: int, exact: bool) -> float:
    """Return the time beside that of rows if all threads add them to the same sums."""
    return _HAND_OVER + (_EXACT_BYTE if exact else _BYTE) * state_bytes


def of_ranges(n_ranges: int) -> float:
    """Return the time beside that of rows if those of each range of classes are added apart."""
    return _HAND_OVER + _RANGE * n_ranges


def most_alone(beside: float, row: float, each_class: float = 0.0, n_classes: int = 0) -> int:
    """Return the most rows that one thread adds as soon as two, which take some time beside."""
    whole = _ALONE * beside
    n_rows = whole / (row + each_class)
    return int(n_rows if n_rows <= n_classes else (whole - n_classes * each_class) / row)


def in_buckets(
    n_rows: int, n_classes: int, n_features: int, pooled: bool, exact: bool, held: int
) -> bool:
    """Return True if narrow rows are sooner multiplied in buckets, one for each class.

    Otherwise the rows of a few at a time are added to the scatter at once, and those of many by
    BLAS, or by their bytes if they are exact: class by class. `held` are the bytes of buckets and
    of the sums of their products, which have to stay in a cache unless many rows are added.
    """
    least = (0 if exact else FEW_ROWS) + pooled * n_features / 12
    cached = held <= _CACHE or n_rows >= _LARGE_BLOCK * n_classes
    return cached and n_rows >= least * n_classes
