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
from streamgda.kernels.vectors import (
    broadcast,
    call_for,
    fused_multiply_add,
    loop_function,
    vector_at,
)

_LANES = 4
_MOST_VECTORS = 4
NARROW = _LANES * _MOST_VECTORS  # features that a row may have


@inline_kernel
def padded_width(n_features):
    """Features filled up to whole vectors."""
    return (n_features + _LANES - 1) // _LANES * _LANES


def _add_narrow(X, codes, weights, centre, centre_low, sums_step, sums, step, products):
    """Add ``w t`` to ``sums[sums_step * class]``, ``w t t'`` to ``products[step * class]``.

    There t is x - centre[class] - centre_low[class]; `weights` is empty where all rows weigh one.
    All but `X` are padded. Of the products, those below the diagonal are made, and some above it.
    """
    d = X.shape[1]
    root = np.sqrt(weights if weights.size else np.ones(codes.size))[:, None]
    t = root * ((X - centre[codes, :d]) - centre_low[codes, :d])
    np.add.at(sums[:, :d], sums_step * codes, root * t)
    np.add.at(products[:, :d, :d], step * codes, t[:, :, None] * t[:, None, :])


def _add_narrow_sums(X, codes, weights, centre, centre_low, sums_step, sums, step, products):
    """`_add_narrow` with neither products nor low parts, which are not looked at."""
    zeros, nowhere = np.zeros(centre.shape), np.zeros((1, *2 * sums.shape[1:]))
    _add_narrow(X, codes, weights, centre, zeros, sums_step, sums, 0, nowhere)


def _in_registers(with_products):
    """`_add_narrow` for the compiler: calls the function for the number of vectors in a row."""

    def call(context, builder, signature, arguments):
        X, codes, weights, centre, low, sums_step, sums, step, products = (
            context.make_array(kind)(context, builder, argument)
            if isinstance(kind, types.Array)
            else argument
            for kind, argument in zip(signature.args, arguments, strict=True)
        )
        n_rows, d = cgutils.unpack_tuple(builder, X.shape)
        row = [X.data, n_rows, d, codes.data, weights.data, weights.nitems, centre.data, low.data]
        row += [sums_step, sums.data, step, products.data]
        number = signature.args[0].dtype
        width = builder.udiv(builder.add(d, d.type(_LANES - 1)), d.type(_LANES))

        def function(vectors):
            return _function(context, builder.module, number, vectors, with_products)

        call_for(builder, width, _MOST_VECTORS, function, row)
        return context.get_dummy_value()

    @intrinsic
    def add(typing, X, codes, weights, centre, centre_low, sums_step, sums, step, products):
        number = types.intp
        kinds = X, codes, weights, centre, centre_low, number, sums, number, products
        return types.void(*kinds), call

    return add


def _function(context, module, number, vectors, with_products):
    """The function that walks through the rows; `vectors` of float64 hold one."""
    name = f"add_narrow_{'both' if with_products else 'sums'}_{number}_{vectors}"
    if name in module.globals:
        return module.globals[name]
    index = context.get_value_type(types.intp)
    double = ir.DoubleType()
    integers = isinstance(number, types.Integer)
    element = context.get_data_type(number)
    vector, stored = ir.VectorType(double, _LANES), ir.VectorType(element, _LANES)
    pointers = [element, None, None, index, double, None, double, double]
    pointers += [None, double, None, double]
    arguments = [t.as_pointer() if t else index for t in pointers]
    function, before, loop, after = loop_function(module, name, arguments)
    X, n_rows, d, codes, weights, n_weights, centre, low, *out = function.args
    sums_step, sums, step, products = out
    width = vectors * _LANES

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
    for part in (centre, low) if with_products else (centre,):
        start = builder.gep(part, [at])
        row = [
            builder.fsub(x, builder.load(vector_at(builder, start, v, vector), align=8))
            for v, x in enumerate(row)
        ]
    with builder.if_else(weighted) as (heavy, light):
        with heavy:
            root = cgutils.get_or_insert_function(
                module, ir.FunctionType(double, [double]), "llvm.sqrt.f64"
            )
            weight = builder.call(root, [builder.load(builder.gep(weights, [r]))])
            from_heavy = builder.block
        with light:
            from_light = builder.block
    factor = builder.phi(double)
    factor.add_incoming(weight, from_heavy)
    factor.add_incoming(ir.Constant(double, 1.0), from_light)
    factor = broadcast(builder, factor, vector)
    row = [builder.fmul(factor, x) for x in row]

    def add(place, factor, x):
        total = builder.load(place, align=8)
        builder.store(fused_multiply_add(builder, factor, x, total), place, align=8)

    start = builder.gep(sums, [builder.mul(at, sums_step)])
    for v, x in enumerate(row):
        add(vector_at(builder, start, v, vector), factor, x)
    start = builder.gep(products, [builder.mul(builder.mul(k, step), index(width * width))])
    for i in range(width if with_products else 0):
        value = builder.extract_element(row[i // _LANES], ir.IntType(32)(i % _LANES))
        value = broadcast(builder, value, vector)
        for v in range(i // _LANES + 1):
            add(vector_at(builder, start, i * vectors + v, vector), value, row[v])
    following = builder.add(r, index(1))
    r.add_incoming(following, builder.block)
    builder.cbranch(builder.icmp_signed("<", following, n_rows), loop, after)
    builder.position_at_end(after)
    builder.ret_void()
    return function


add_narrow = _add_narrow if config.DISABLE_JIT else _in_registers(with_products=True)
add_narrow_sums = _add_narrow_sums if config.DISABLE_JIT else _in_registers(with_products=False)
