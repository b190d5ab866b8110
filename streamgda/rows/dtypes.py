"""Data types of rows: the type that kernels read, and how values are summed and scored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class RowType:
    """Treatment of rows of one data type.

    Attributes
    ----------
    dtype : dtype
        Type that the kernels read.
    floating : dtype
        Type in which rows are centred, multiplied and scored where that is not done in integers.
        float32 is only used where its accuracy is enough, float64 otherwise.
    origin : int, optional
        Whole number that exact sums subtract from every value. None for floating-point rows, which
        have no exact sums.
    """

    dtype: np.dtype
    floating: np.dtype
    origin: int | None = None

    def reach(self, origin: int) -> int:
        """Return the largest distance of a value of this integer type from an origin."""
        least, most = self.limits
        return max(abs(least - origin), abs(most - origin))

    @cached_property
    def limits(self) -> tuple[int, int]:
        """The least and the largest value of this integer type."""
        limits = np.iinfo(self.dtype)
        return int(limits.min), int(limits.max)


# An origin is the middle of a type's range. That of bytes is zero: zeros then cost nothing.
_TYPES = {
    kind.dtype: kind
    for kind in (
        RowType(np.dtype("u1"), floating=np.dtype("f8"), origin=0),
        RowType(np.dtype("i1"), floating=np.dtype("f8"), origin=0),
        RowType(np.dtype("u2"), floating=np.dtype("f8"), origin=1 << 15),
        RowType(np.dtype("i2"), floating=np.dtype("f8"), origin=0),
        RowType(np.dtype("f4"), floating=np.dtype("f4")),
        RowType(np.dtype("f8"), floating=np.dtype("f8")),
    )
}
_FLOAT64 = _TYPES[np.dtype("f8")]  # that rows of all other types are cast to

INTEGERS = tuple(dtype for dtype, kind in _TYPES.items() if kind.origin is not None)
ORIGINS = frozenset(_TYPES[dtype].origin for dtype in INTEGERS)


def row_type(dtype: np.dtype) -> RowType:
    """Return the treatment of rows of a data type, in any byte order.

    Examples
    --------
    >>> row_type(np.dtype(">f4")).dtype, row_type(np.dtype("int64")).dtype
    (dtype('float32'), dtype('float64'))
    """
    found = _TYPES.get(dtype)
    if found is None:
        found = _TYPES.get(dtype.newbyteorder("="), _FLOAT64)
    return found
