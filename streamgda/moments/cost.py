"""Model of the time that adding rows takes, by which the way to add them is chosen.

Times are nanoseconds, of a processor of about 3 GHz. Only their ratios matter, and these hold for
others: products take a time that depends on the vectors of the processor. The model depends on
nothing that may differ between two passes over the same rows, so that their sums have the same
bits.
"""

from __future__ import annotations

from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import LANES

# Of a row, of each of its values, and of each product of two by instructions of one product.
_ROW, _VALUE, _PRODUCT = 1.5, 0.3, 0.16
_BYTE_LANES = SHAPE.vector_bytes * SHAPE.together // 8  # half of those of an instruction

_HAND_OVER = 150_000.0  # of rows to another thread, and of their sums back
_STATE_BYTE = 0.08  # of sums that are filled with zeros first, and added afterwards


def of_row(n_features: int, products: bool, in_bytes: bool) -> float:
    """Return the time of adding a row: its values, and products of pairs or squares.

    Products of integers are those of their bytes, if `in_bytes`.
    """
    lanes = _BYTE_LANES if in_bytes else LANES
    return _ROW + _VALUE * n_features + products * _PRODUCT / lanes * n_features**2


def of_segment(state_bytes: int) -> float:
    """Return the time that a segment of rows takes beside its rows, for sums of its own."""
    return _HAND_OVER + _STATE_BYTE * state_bytes
