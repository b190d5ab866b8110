"""The inner loop of products of bytes: a small tile of sums that stay in vector registers.

Bytes are packed into panels before they are multiplied. A panel holds `WIDTH` features. Each of its
entries is a line of int32 words, one a feature, that hold the bytes of `TOGETHER` rows side by
side: two as 16-bit integers for ``pmaddwd`` and ``vpdpwssd``, or four for ``vpdpbusd``. Panels are
flat arrays of the type of those bytes, `PART`. `multiply_tile` multiplies a few columns of one
panel with some of another. It is written in LLVM's vector types, because no compiler keeps
such a block of sums in registers when it is written as scalar loops.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.processors import SHAPE
from streamgda.kernels.vectors import broadcast, loop_function, vector_at

ROWS, COLUMNS, TOGETHER = SHAPE.rows, SHAPE.columns, SHAPE.together
WIDTH = SHAPE.panel_width
PART = SHAPE.part
LINE = WIDTH * TOGETHER  # parts of an entry

# Entries that are multiplied at a time: those of two panels stay in the first cache.
DEPTH = max(16, 2048 // WIDTH)

# ``vpdpbusd`` multiplies unsigned with signed bytes. The right ones are made signed by subtracting
# this from them, so that this times the sum of the left ones is missing from the products.
LOWERED = 128 if TOGETHER == 4 else 0

# Rows whose products, up to 255^2, an int32 can sum.
MOST_ROWS = (2**31 - 1) // 255**2

_WORD = ir.IntType(32)


def plain_tile(shape):
    """Return a plain function for what `tile_in_registers` compiles."""
    width, together = shape.panel_width, shape.together

    def multiply(panels, left, right, depth, row, column, T):
        """Add to ``T[a * WIDTH + b]`` the sums of ``A[k, a] * (B[k, b] - LOWERED)``.

        That is for ``k < depth``, where A and B are the parts of panels that start at
        ``panels[left]`` and ``panels[right]``. The tile is that whose first sum is that of `row`
        and `column`.
        """
        rows, columns = slice(row, row + shape.rows), slice(column, column + shape.columns)

        def bytes_of(first, some):
            words = panels[first : first + depth * width * together]
            return words.reshape(depth, width, together)[:, some].astype(np.int32)

        lowered = 128 if together == 4 else 0
        T.reshape(width, width)[rows, columns] += np.einsum(
            "kat,kbt->ab", bytes_of(left, rows), bytes_of(right, columns) - lowered
        )

    return multiply


def tile_in_registers(shape):
    """Return the tile function of a shape, as `plain_tile` explains it, for the compiler."""
    width, together = shape.panel_width, shape.together

    def generate(context, builder, signature, arguments):
        panels, left, right, depth, row, column, T = arguments
        panels, T = (
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 6)
        )
        function = _tile_function(builder.module, shape)
        words = [
            builder.bitcast(
                builder.gep(
                    panels.data, [builder.add(first, builder.mul(own, own.type(together)))]
                ),
                _WORD.as_pointer(),
            )
            for first, own in ((left, row), (right, column))
        ]
        sums = builder.gep(T.data, [builder.add(builder.mul(row, row.type(width)), column)])
        builder.call(function, [*words, depth, sums])
        return context.get_dummy_value()

    @intrinsic
    def multiply(typing, panels, left, right, depth, row, column, T):
        index = types.intp
        return types.void(panels, index, index, index, index, index, T), generate

    return multiply


def _tile_function(module, shape):
    """Return the function (left, right, depth, sums) that adds to a tile of sums."""
    name = f"multiply_tile_{shape.name}"
    if name in module.globals:
        return module.globals[name]
    width, vector = shape.panel_width, ir.VectorType(_WORD, shape.vector_bytes // 4)
    index, pointer = ir.IntType(64), _WORD.as_pointer()
    function, before, loop, after = loop_function(module, name, [pointer, pointer, index, pointer])
    left, right, depth, sums = function.args
    places = [(row, v) for row in range(shape.rows) for v in range(shape.vectors)]

    def sum_at(builder, row, v):
        return vector_at(builder, builder.gep(sums, [index(row * width)]), v, vector)

    builder = ir.IRBuilder(before)
    initial = {place: builder.load(sum_at(builder, *place), align=4) for place in places}
    builder.branch(loop)

    builder.position_at_end(loop)
    k = builder.phi(index)
    previous = {place: builder.phi(vector) for place in places}
    at = builder.mul(k, index(width))
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
