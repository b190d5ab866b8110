"""The inner loop of every matrix product: a small tile, summed in vector registers.

Matrices are packed into panels of shape ``(depth, width)`` before they are multiplied: the axis of
summation comes first, and `panel_width` columns fill a whole number of vectors. `multiply_tile`
multiplies `ROWS` columns of one panel with all columns of another. It is written in LLVM's vector
types, because no compiler keeps such a block of sums in registers when it is written as scalar
loops. LLVM maps the vectors to the instructions of each processor.

Panels of int16 hold two rows side by side, shape ``(depth / 2, width, 2)``, for the processor's
integer dot product: ``pmaddwd`` of AVX2, which LLVM turns into ``vpdpwssd`` if there is VNNI.
"""

import os
from functools import cache

import numpy as np
from llvmlite import binding, ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.vectors import broadcast, fused_multiply_add, loop_function, vector_at

ROWS = 4
_VECTOR_BYTES = 32
# Vectors in a row of a tile. 4 x 3 sums, 3 operands and 1 broadcast operand take all 16 registers
# of AVX2. Integers need one more, for products before they are added.
_VECTORS = {"float64": 3, "float32": 3, "int16": 2}
_SUM_BYTES = {"float64": 8, "float32": 4, "int16": 4}


def has_integer_dot():
    """Return True if panels of int16 can be multiplied: AVX2, and STREAMGDA_PORTABLE is not set."""
    if os.environ.get("STREAMGDA_PORTABLE", "0") != "0":
        return False
    features = config.CPU_FEATURES
    return "+avx2" in features if features is not None else _host_has("avx2")


@cache
def _host_has(feature):
    return bool(binding.get_host_cpu_features().get(feature))


@cache
def panel_width(dtype):
    """Return the number of columns of a panel of float64, float32 or int16."""
    name = np.dtype(dtype).name
    return _VECTORS[name] * _VECTOR_BYTES // _SUM_BYTES[name]


@np.errstate(over="ignore", invalid="ignore")
def _multiply_tile(A, first, B, depth, T):
    """Write ``T[a, b] = sum_k A[k, first + a] B[k, b]`` over the first `depth` entries of panels.

    `A` and `B` have the same type. float32 is summed in float32, and int16 in int32. `T` has shape
    ``(ROWS, width of B)``. Its type is float64, or int64 if all products are whole numbers, as
    those of int16 are. Columns of a panel that hold no feature may hold anything, NaN included, and
    so may their products.
    """
    left = np.moveaxis(A[:depth, first : first + ROWS], 1, 0).reshape(ROWS, -1)
    right = np.moveaxis(B[:depth], 1, 0).reshape(B.shape[1], -1)
    sums = np.int32 if A.dtype == np.int16 else A.dtype
    T[...] = left.astype(sums) @ right.astype(sums).T


@np.errstate(over="ignore", invalid="ignore")
def _add_tile_squares(A, first, B, depth, out):
    """Add ``sum_a T[a, b]^2`` to ``out[b]``, with T as `multiply_tile` computes it from floats."""
    tile = np.empty((ROWS, out.size))
    _multiply_tile(A, first, B, depth, tile)
    out += (tile**2).sum(axis=0)


@intrinsic
def _multiply_tile_in_registers(typing, A, first, B, depth, T):
    """Compile `_multiply_tile`."""
    return types.void(A, first, B, depth, T), _tile_call(A.dtype, T.dtype, squares=False)


@intrinsic
def _add_tile_squares_in_registers(typing, A, first, B, depth, out):
    """Compile `_add_tile_squares`."""
    return types.void(A, first, B, depth, out), _tile_call(A.dtype, out.dtype, squares=True)


def _tile_call(scalar, total, squares):
    """Return the generator of the call of a tile function."""

    def generate(context, builder, signature, arguments):
        a, first, b, depth, t = arguments
        a, b, t = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 4)
        )
        function = _tile_function(context, builder.module, scalar, total, squares)
        pointer = function.args[0].type
        stride = cgutils.unpack_tuple(builder, a.shape)[1]
        left = builder.gep(builder.bitcast(a.data, pointer), [first])
        builder.call(function, [left, stride, builder.bitcast(b.data, pointer), depth, t.data])
        return context.get_dummy_value()

    return generate


def _tile_function(context, module, scalar, total, squares):
    """Return the function (left, stride of left, right, depth, tile) that sums a tile."""
    name = f"{'square' if squares else 'multiply'}_tile_{scalar}_{total}"
    if name in module.globals:
        return module.globals[name]
    integers = scalar == types.int16
    element = context.get_data_type(types.int32 if integers else scalar)
    lanes = _VECTOR_BYTES // _SUM_BYTES[str(scalar)]
    vectors = _VECTORS[str(scalar)]
    vector = ir.VectorType(element, lanes)
    wide = ir.VectorType(context.get_data_type(total), lanes)
    index = context.get_value_type(types.intp)
    pointer = element.as_pointer()
    arguments = [pointer, index, pointer, index, wide.element.as_pointer()]
    function, before, loop, after = loop_function(module, name, arguments)
    left, stride, right, depth, tile = function.args

    builder = ir.IRBuilder(before)
    builder.branch(loop)

    builder.position_at_end(loop)
    k = builder.phi(index)
    sums = [[builder.phi(vector) for _ in range(vectors)] for _ in range(ROWS)]
    right_row = builder.gep(right, [builder.mul(k, index(lanes * vectors))])
    left_row = builder.gep(left, [builder.mul(k, stride)])
    operands = [
        builder.load(vector_at(builder, right_row, v, vector), align=_SUM_BYTES[str(scalar)])
        for v in range(vectors)
    ]
    multiply_add = _add_dot_products if integers else fused_multiply_add
    for row in range(ROWS):
        factor = broadcast(builder, builder.load(builder.gep(left_row, [index(row)])), vector)
        for v in range(vectors):
            previous = sums[row][v]
            previous.add_incoming(ir.Constant(vector, None), before)
            sums[row][v] = multiply_add(builder, factor, operands[v], previous)
            previous.add_incoming(sums[row][v], loop)
    following = builder.add(k, index(1))
    k.add_incoming(index(0), before)
    k.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, depth), loop, after)

    builder.position_at_end(after)
    for v in range(vectors):
        square = builder.load(vector_at(builder, tile, v, wide), align=8) if squares else None
        for row in range(ROWS):
            value = sums[row][v]
            if integers:
                value = builder.sext(value, wide)
            elif total == types.int64:
                value = builder.fptosi(value, wide)
            elif wide != vector:
                value = builder.fpext(value, wide)
            if squares:
                square = fused_multiply_add(builder, value, value, square)
            else:
                builder.store(value, vector_at(builder, tile, row * vectors + v, wide), align=8)
        if squares:
            builder.store(square, vector_at(builder, tile, v, wide), align=8)
    builder.ret_void()
    return function


def _add_dot_products(builder, x, y, total):
    """Return ``total + x[0] y[0] + x[1] y[1]`` for the two int16 in each int32 of x and y."""
    vector = total.type
    halves = ir.VectorType(ir.IntType(16), 2 * vector.count)
    dot = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(vector, [halves, halves]), "llvm.x86.avx2.pmadd.wd"
    )
    return builder.add(total, builder.call(dot, [builder.bitcast(v, halves) for v in (x, y)]))


multiply_tile = _multiply_tile if config.DISABLE_JIT else _multiply_tile_in_registers
add_tile_squares = _add_tile_squares if config.DISABLE_JIT else _add_tile_squares_in_registers
