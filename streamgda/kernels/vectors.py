"""Tiles of integer products that suit each kind of processor, and vector instructions of LLVM."""

import math
import os
from typing import NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils


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


# --- instructions of LLVM -------------------------------------------------------------------------


def vector_at(builder, pointer, number, vector):
    """Return a pointer to a vector, given its number counted from another pointer."""
    start = builder.gep(pointer, [ir.IntType(64)(number * vector.count)])
    return builder.bitcast(start, vector.as_pointer())


def broadcast(builder, scalar, vector):
    """Return a vector of the given type with the scalar in every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    start = builder.insert_element(undefined, scalar, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None)
    return builder.shuffle_vector(start, undefined, zeros)


def fused_multiply_add(builder, x, y, total):
    """Return ``x y + total`` of vectors, rounded once."""
    vector = total.type
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    fma = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(vector, [vector] * 3),
        f"llvm.fma.v{vector.count}f{bits}",
    )
    return builder.call(fma, [x, y, total])


def function_of(module, name, arguments, generate, result=None):
    """Return the function of a name, which is generated when a module first uses it.

    ``generate(builder, *arguments)`` returns its value, if it has one. The function is never
    inlined, because the code around it would take registers from it.
    """
    if name not in module.globals:
        kind = ir.FunctionType(result or ir.VoidType(), arguments)
        function = ir.Function(module, kind, name)
        function.linkage = "internal"
        function.attributes.add("noinline")
        builder = ir.IRBuilder(function.append_basic_block())
        value = generate(builder, *function.args)
        builder.ret(value) if result else builder.ret_void()
    return module.globals[name]


def repeated(builder, n, totals, step):
    """Return totals after ``totals = step(i, totals)`` for all i below `n`, which is at least one.

    They stay in registers in between.
    """
    before, loop = builder.block, builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    i, held = builder.phi(n.type), [builder.phi(total.type) for total in totals]
    results = step(i, held)
    following = builder.add(i, n.type(1))
    starts, ends = [n.type(0), *totals], [following, *results]
    for value, start, end in zip([i, *held], starts, ends, strict=True):
        value.add_incoming(start, before)
        value.add_incoming(end, loop)
    after = builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<", following, n), loop, after)
    builder.position_at_end(after)
    return results


def as_structures(context, builder, signature, arguments):
    """Return arguments for the compiler: arrays as structures, other values as they are."""
    return [
        context.make_array(kind)(context, builder, argument)
        if isinstance(kind, types.Array)
        else argument
        for kind, argument in zip(signature.args, arguments, strict=True)
    ]
