"""Tiles of integer products that suit each kind of processor."""

import math
import os
from typing import NamedTuple

import numpy as np
from llvmlite import binding
from numba import config


class TileShape(NamedTuple):
    """The part of a product of integers whose sums fill the vector registers of a processor.

    Attributes
    ----------
    name : str
        Name of the instructions.
    feature : str
        Feature by which LLVM knows processors that have them, empty for all processors.
    vector_bytes : int
        Width of a vector.
    rows, vectors : int
        Rows of a tile, and vectors in each of them.
    together : int
        Bytes that an instruction multiplies and adds to one sum: 2 (``pmaddwd``, ``vpdpwssd``) or
        4 (``vpdpbusd``).
    """

    name: str
    feature: str
    vector_bytes: int
    rows: int
    vectors: int
    together: int

    @property
    def columns(self):
        """Columns of a tile: sums have four bytes."""
        return self.vectors * self.vector_bytes // 4

    @property
    def panel_width(self):
        """Features of a panel: the least number that is whole tiles in both directions."""
        return math.lcm(self.rows, self.columns)

    @property
    def part(self):
        """Data type of a byte in a word."""
        return np.dtype(np.uint8 if self.together == 4 else np.uint16)

    @property
    def native(self):
        """True if the processor has the instructions."""
        return not self.feature or _has(self.feature)


# Registers hold the sums, the operands of a row and one that is broadcast, and where `together` is
# 2, products before they are added.
SHAPES = (
    # 32 registers: 8 x 3 + 3 + 1
    TileShape("avx512vnni", "avx512vnni", 64, 8, 3, 4),
    TileShape("avx512", "avx512bw", 64, 8, 3, 2),
    # 16 registers: 6 x 2 + 2 + 1, and 4 x 2 + 2 + 1 + 1
    TileShape("avxvnni", "avxvnni", 32, 6, 2, 4),
    TileShape("avx2", "avx2", 32, 4, 2, 2),
    TileShape("sse2", "", 16, 4, 2, 2),
)


def tile_shape():
    """Return the shape of tiles for this processor, or for the one that Numba compiles for.

    The environment variable ``STREAMGDA_VECTORS`` names another one. Any processor can compute
    with it, if more slowly.

    Raises
    ------
    ValueError
        If the variable names no shape.
    """
    wanted = os.environ.get("STREAMGDA_VECTORS")
    if not wanted:
        return next(shape for shape in SHAPES if shape.native)
    for shape in SHAPES:
        if shape.name == wanted:
            return shape
    names = ", ".join(shape.name for shape in SHAPES)
    raise ValueError(f"STREAMGDA_VECTORS={wanted!r} is not known; use one of {names}")


def _has(feature):
    if config.CPU_FEATURES is None:
        return bool(binding.get_host_cpu_features().get(feature))
    return f"+{feature}" in config.CPU_FEATURES.split(",")


SHAPE = tile_shape()
