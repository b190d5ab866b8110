"""Rows of few features: each row is added to its class's sums and products as it is read.

Where a whole row fits into a few vectors, neither ordering the rows by class nor packing them into
panels pays: a matrix of products is a few vectors long, and stays in the first cache. Sums and
products are kept in rows of whole vectors (`padded_width`); what is beyond the last feature is
zero. As in `tiles`, the loops are written in LLVM's vector types.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel
from streamgda.kernels.vectors import broadcast, fused_multiply_add, vector_at

_LANES = 4
_MOST_VECTORS = 4
NARROW = _LANES * _MOST_VECTORS  # features that a row may have


@inline_kernel
def padded_width(n_features):
    """Features filled up to whole vectors."""
    return (n_features + _LANES - 1) // _LANES * _LANES


def _add_narrow_sums(X, codes, weights, centre, sums):
    """Add ``w (x - centre[class])`` to ``sums[class]``; both are padded.

    `weights` is empty where all rows weigh one.
    """
    w = weights if weights.size else np.ones(codes.size)
    d = X.shape[1]
    np.add.at(sums[:, :d], codes, w[:, None] * (X - centre[codes, :d]))


def _add_narrow_products(X, codes, weights, centre, centre_low, step, S):
    """Add ``w t t'`` to ``S[step * class]``, t = x - centre[class] - centre_low[class].

    All but `X` are padded. Of the products, those below the diagonal are made, and some above it.
    """
    w = weights if weights.size else np.ones(codes.size)
    d = X.shape[1]
    t = np.sqrt(w)[:, None] * ((X - centre[codes, :d]) - centre_low[codes, :d])
    np.add.at(S[:, :d, :d], step * codes, t[:, :, None] * t[:, None, :])


@intrinsic
def _add_narrow_sums_in_registers(typing, X, codes, weights, centre, sums):
    """`_add_narrow_sums` for the compiler."""
    return types.void(X, codes, weights, centre, sums), _call_of(X.dtype, products=False)


@intrinsic
def _add_narrow_products_in_registers(typing, X, codes, weights, centre, centre_low, step, S):
    """`_add_narrow_products` for the compiler."""
    signature = types.void(X, codes, weights, centre, centre_low, step, S)
    return signature, _call_of(X.dtype, products=True)


def _call_of(number, products):
    """What generates the choice of a function for the number of vectors, and its call."""

    def generate(context, builder, signature, arguments):
        def array(i):
            return context.make_array(signature.args[i])(context, builder, arguments[i])

        X, codes, weights, centre = (array(i) for i in range(4))
        low, out = (array(4), array(6)) if products else (centre, array(4))
        n_rows, d = cgutils.unpack_tuple(builder, X.shape)
        index = context.get_value_type(types.intp)
        row = [X.data, n_rows, d, codes.data, weights.data, weights.nitems, centre.data, low.data]
        row += [arguments[5] if products else index(1), out.data]
        after = builder.append_basic_block("after")
        width = builder.udiv(builder.add(d, index(_LANES - 1)), index(_LANES))
        choice = builder.switch(width, after)
        for vectors in range(1, _MOST_VECTORS + 1):
            block = builder.append_basic_block(f"vectors_{vectors}")
            choice.add_case(index(vectors), block)
            builder.position_at_end(block)
            function = _function(context, builder.module, number, vectors, products)
            builder.call(function, row)
            builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return generate


def _function(context, module, number, vectors, products):
    """The function that walks through the rows; `vectors` of float64 hold one."""
    name = f"narrow_{'products' if products else 'sums'}_{number}_{vectors}"
    if name in module.globals:
        return module.globals[name]
    index = context.get_value_type(types.intp)
    double = ir.DoubleType()
    integers = isinstance(number, types.Integer)
    element = context.get_data_type(number)
    vector, stored = ir.VectorType(double, _LANES), ir.VectorType(element, _LANES)
    pointers = [element, None, None, index, double, None, double, double, None, double]
    kind = ir.FunctionType(ir.VoidType(), [t.as_pointer() if t else index for t in pointers])
    function = ir.Function(module, kind, name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    X, n_rows, d, codes, weights, n_weights, centre, low, step, out = function.args
    width = vectors * _LANES

    before = function.append_basic_block("before")
    loop = function.append_basic_block("loop")
    after = function.append_basic_block("after")
    builder = ir.IRBuilder(before)
    # The last vector is read by a mask: beyond the last row there may be nothing.
    lanes = ir.Constant(ir.VectorType(index, _LANES), [index(width - _LANES + i) for i in range(4)])
    mask = builder.icmp_signed("<", lanes, broadcast(builder, d, lanes.type))
    masked_load = cgutils.get_or_insert_function(
        module,
        ir.FunctionType(stored, [stored.as_pointer(), ir.IntType(32), mask.type, stored]),
        f"llvm.masked.load.v{_LANES}{'i' if integers else 'f'}{number.bitwidth}.p0",
    )
    weighted = builder.icmp_signed(">", n_weights, index(0))
    builder.cbranch(builder.icmp_signed(">", n_rows, index(0)), loop, after)

    builder.position_at_end(loop)
    r = builder.phi(index)
    r.add_incoming(index(0), before)
    k = builder.load(builder.gep(codes, [r]))
    x = builder.gep(X, [builder.mul(r, d)])
    row = []
    for v in range(vectors):
        place = vector_at(builder, x, v, stored)
        if v < vectors - 1:
            value = builder.load(place, align=number.bitwidth // 8)
        else:
            alignment = ir.Constant(ir.IntType(32), number.bitwidth // 8)
            value = builder.call(masked_load, [place, alignment, mask, ir.Constant(stored, None)])
        if integers:
            value = (builder.sitofp if number.signed else builder.uitofp)(value, vector)
        row.append(value if value.type == vector else builder.fpext(value, vector))
    at = builder.mul(k, index(width))
    for part in (centre, low) if products else (centre,):
        start = builder.gep(part, [at])
        row = [
            builder.fsub(x, builder.load(vector_at(builder, start, v, vector), align=8))
            for v, x in enumerate(row)
        ]
    with builder.if_else(weighted) as (heavy, light):
        with heavy:
            weight = builder.load(builder.gep(weights, [r]))
            if products:
                root = cgutils.get_or_insert_function(
                    module, ir.FunctionType(double, [double]), "llvm.sqrt.f64"
                )
                weight = builder.call(root, [weight])
            from_heavy = builder.block
        with light:
            from_light = builder.block
    factor = builder.phi(double)
    factor.add_incoming(weight, from_heavy)
    factor.add_incoming(ir.Constant(double, 1.0), from_light)
    factor = broadcast(builder, factor, vector)
    row = [builder.fmul(factor, x) for x in row]
    if products:
        S = builder.gep(out, [builder.mul(builder.mul(k, step), index(width * width))])
        for i in range(width):
            value = builder.extract_element(row[i // _LANES], ir.IntType(32)(i % _LANES))
            value = broadcast(builder, value, vector)
            for v in range(i // _LANES + 1):
                place = vector_at(builder, S, i * vectors + v, vector)
                total = builder.load(place, align=8)
                builder.store(fused_multiply_add(builder, value, row[v], total), place, align=8)
    else:
        start = builder.gep(out, [at])
        for v, x in enumerate(row):
            place = vector_at(builder, start, v, vector)
            builder.store(builder.fadd(builder.load(place, align=8), x), place, align=8)
    following = builder.add(r, index(1))
    r.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, n_rows), loop, after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


_JIT = not config.DISABLE_JIT
add_narrow_sums = _add_narrow_sums_in_registers if _JIT else _add_narrow_sums
add_narrow_products = _add_narrow_products_in_registers if _JIT else _add_narrow_products
