"""The inner loop of products of bytes: a small tile of sums that stay in vector registers.

Bytes are packed into panels before they are multiplied. A panel holds `WIDTH` features: an array
of int32 words, shape ``(entries, WIDTH)``. A word holds the bytes of `TOGETHER` rows, side by side:
two as 16-bit integers for ``pmaddwd`` and ``vpdpwssd``, or four for ``vpdpbusd``. `multiply_tile`
multiplies a few columns of one panel with some of another. It is written in LLVM's vector types,
because no compiler keeps such a block of sums in registers when it is written as scalar loops.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import broadcast, loop_function, vector_at

WIDTH = 48  # whole tiles of every shape
DEPTH = 64  # entries that are multiplied at a time: those of two panels stay in the first cache
ROWS, COLUMNS, TOGETHER = SHAPE.rows, SHAPE.columns, SHAPE.together

# ``vpdpbusd`` multiplies unsigned with signed bytes. The right ones are made signed by subtracting
# this from them, so that this times the sum of the left ones is missing from the products.
LOWERED = 128 if TOGETHER == 4 else 0

# Rows whose products, up to 255^2, an int32 can sum.
MOST_ROWS = (2**31 - 1) // 255**2

_WORD = ir.IntType(32)


def plain_tile(shape):
    """Return a plain function for what `tile_in_registers` compiles."""

    def multiply(A, B, entry, depth, row, column, T):
        """Add to ``T[a, b]`` the sums of ``A[k, a] * (B[k, b] - LOWERED)`` over bytes of words.

        The words are ``entry <= k < entry + depth``, and the tile is that whose first sum is
        ``T[row, column]``. A, B and T have `WIDTH` columns.
        """
        rows, columns = slice(row, row + shape.rows), slice(column, column + shape.columns)
        part = np.uint8 if shape.together == 4 else np.uint16

        def bytes_of(panel, some):
            words = np.ascontiguousarray(panel[entry : entry + depth, some])
            parts = words.view(part).reshape(depth, -1, shape.together)
            return parts.astype(np.int32).transpose(1, 0, 2).reshape(-1, depth * shape.together)

        right = bytes_of(B, columns) - (128 if shape.together == 4 else 0)
        T[rows, columns] += bytes_of(A, rows) @ right.T

    return multiply


def tile_in_registers(shape):
    """Return the tile function of a shape, as `plain_tile` explains it, for the compiler."""

    def generate(context, builder, signature, arguments):
        A, B, entry, depth, row, column, T = arguments
        A, B, T = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 6)
        )
        function = _tile_function(builder.module, shape)
        start = builder.mul(entry, entry.type(WIDTH))
        left = builder.gep(A.data, [builder.add(start, row)])
        right = builder.gep(B.data, [builder.add(start, column)])
        sums = builder.add(builder.mul(row, row.type(WIDTH)), column)
        builder.call(function, [left, right, depth, builder.gep(T.data, [sums])])
        return context.get_dummy_value()

    @intrinsic
    def multiply(typing, A, B, entry, depth, row, column, T):
        index = types.intp
        return types.void(A, B, index, index, index, index, T), generate

    return multiply


def _tile_function(module, shape):
    """Return the function (left, right, depth, sums) that adds to a tile of sums."""
    name = f"multiply_tile_{shape.name}"
    if name in module.globals:
        return module.globals[name]
    vector = ir.VectorType(_WORD, shape.vector_bytes // 4)
    index, pointer = ir.IntType(64), _WORD.as_pointer()
    function, before, loop, after = loop_function(module, name, [pointer, pointer, index, pointer])
    left, right, depth, sums = function.args
    places = [(row, v) for row in range(shape.rows) for v in range(shape.vectors)]

    def sum_at(builder, row, v):
        return vector_at(builder, builder.gep(sums, [index(row * WIDTH)]), v, vector)

    builder = ir.IRBuilder(before)
    initial = {place: builder.load(sum_at(builder, *place), align=4) for place in places}
    builder.branch(loop)

    builder.position_at_end(loop)
    k = builder.phi(index)
    previous = {place: builder.phi(vector) for place in places}
    at = builder.mul(k, index(WIDTH))
    left_words, right_words = builder.gep(left, [at]), builder.gep(right, [at])
    operands = [
        builder.load(vector_at(builder, right_words, v, vector), align=4)
        for v in range(shape.vectors)
    ]
    if shape.together == 4:  # less 128 each, as signed bytes
        top_bits = ir.Constant(vector, [_WORD(-0x7F7F7F80)] * vector.count)
        operands = [builder.xor(operand, top_bits) for operand in operands]
    add_products = _add_four_products(shape) if shape.together == 4 else _add_two_products
    following = {}
    for row in range(shape.rows):
        word = builder.load(builder.gep(left_words, [index(row)]), align=4)
        factor = broadcast(builder, word, vector)
        for v in range(shape.vectors):
            total = previous[row, v]
            following[row, v] = add_products(builder, factor, operands[v], total)
            total.add_incoming(initial[row, v], before)
            total.add_incoming(following[row, v], loop)
    next_k = builder.add(k, index(1))
    k.add_incoming(index(0), before)
    k.add_incoming(next_k, loop)
    builder.cbranch(builder.icmp_signed("<", next_k, depth), loop, after)

    builder.position_at_end(after)
    for place in places:
        builder.store(following[place], sum_at(builder, *place), align=4)
    builder.ret_void()
    return function


def _add_two_products(builder, x, y, total):
    """Return ``total`` plus the products of the two int16 in each word of x and y."""
    # LLVM recognises ``pmaddwd`` and ``vpdpwssd`` in these instructions.
    return _add_parts(builder, x, y, total, ir.IntType(16), builder.sext)


def _add_four_products(shape):
    """Return what adds the products of four unsigned bytes with four signed ones.

    LLVM does not recognise ``vpdpbusd``, which is therefore called by its name where the processor
    has it.
    """

    def call(builder, x, y, total):
        vector = total.type
        dot = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(vector, [vector] * 3),
            f"llvm.x86.avx512.vpdpbusd.{8 * shape.vector_bytes}",
        )
        return builder.call(dot, [total, x, y])

    def plain(builder, x, y, total):
        return _add_parts(builder, x, y, total, ir.IntType(8), builder.zext)

    return call if shape.native else plain


def _add_parts(builder, x, y, total, part, extend):
    """Return ``total`` plus the products of all parts of each word of x and y.

    The parts of y are signed. `extend` makes words of those of x.
    """
    lanes, parts = total.type.count, _WORD.width // part.width
    narrow, wide = (ir.VectorType(element, parts * lanes) for element in (part, _WORD))
    x, y = (builder.bitcast(words, narrow) for words in (x, y))
    products = builder.mul(extend(x, wide), builder.sext(y, wide))
    undefined = ir.Constant(wide, ir.Undefined)
    added = None
    for first in range(parts):
        numbers = [_WORD(parts * lane + first) for lane in range(lanes)]
        chosen = ir.Constant(ir.VectorType(_WORD, lanes), numbers)
        some = builder.shuffle_vector(products, undefined, chosen)
        added = some if added is None else builder.add(added, some)
    return builder.add(total, added)


multiply_tile = (plain_tile if config.DISABLE_JIT else tile_in_registers)(SHAPE)
