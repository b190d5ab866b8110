"""Sums and products of narrow rows: each row is added to those of its class as it is read.

If a whole row fits into a few vectors, it does not pay to order the rows by class or to pack them
into panels: a matrix of products is a few vectors long, and stays in the first cache. Sums and
products have rows of whole vectors (`padded_width`), with zeros beyond the last feature. As in
`tiles`, the loops are written in LLVM's vector types.
"""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel
from streamgda.kernels.vectors import (
    broadcast,
    fused_multiply_add,
    loop_function,
    switch_call,
    vector_at,
)

_LANES = 4
_MAX_VECTORS = 4
MAX_FEATURES = _LANES * _MAX_VECTORS


@inline_kernel
def padded_width(n_features):
    """Return the number of features, rounded up to whole vectors."""
    return (n_features + _LANES - 1) // _LANES * _LANES


def _add_products(X, codes, weights, centre, centre_low, sums_step, sums, step, products):
    """Add ``w t`` to ``sums[sums_step * class]``, ``w t t'`` to ``products[step * class]``.

    Here t is x - centre[class] - centre_low[class]. All matrices except `X` are padded. Products
    are computed below the diagonal, and some above it.
    """
    d = X.shape[1]
    root = np.sqrt(weights if weights.size else np.ones(codes.size))[:, None]
    t = root * ((X - centre[codes, :d]) - centre_low[codes, :d])
    np.add.at(sums[:, :d], sums_step * codes, root * t)
    np.add.at(products[:, :d, :d], step * codes, t[:, :, None] * t[:, None, :])


def _add_sums(X, codes, weights, centre, centre_low, sums_step, sums, step, products):
    """Add sums as `_add_products` does, but no products; `centre_low` is not read."""
    zeros, ignored = np.zeros(centre.shape), np.zeros((1, *2 * sums.shape[1:]))
    _add_products(X, codes, weights, centre, zeros, sums_step, sums, 0, ignored)


def _in_registers(with_products):
    """Return `_add_products` or `_add_sums` for the compiler.

    It calls the function that is written for the number of vectors in a row.
    """

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
        scalar = signature.args[0].dtype
        width = builder.udiv(builder.add(d, d.type(_LANES - 1)), d.type(_LANES))

        def function(vectors):
            return _row_function(context, builder.module, scalar, vectors, with_products)

        switch_call(builder, width, _MAX_VECTORS, function, row)
        return context.get_dummy_value()

    @intrinsic
    def add(typing, X, codes, weights, centre, centre_low, sums_step, sums, step, products):
        index = types.intp
        kinds = X, codes, weights, centre, centre_low, index, sums, index, products
        return types.void(*kinds), call

    return add


def _row_function(context, module, scalar, vectors, with_products):
    """Return the function that adds rows of the type `scalar`, each of which fills `vectors`."""
    name = f"add_narrow_{'products' if with_products else 'sums'}_{scalar}_{vectors}"
    if name in module.globals:
        return module.globals[name]
    index = context.get_value_type(types.intp)
    double = ir.DoubleType()
    element = context.get_data_type(scalar)
    vector, stored = ir.VectorType(double, _LANES), ir.VectorType(element, _LANES)
    pointers = [element, None, None, index, double, None, double, double]
    pointers += [None, double, None, double]
    arguments = [t.as_pointer() if t else index for t in pointers]
    function, before, loop, after = loop_function(module, name, arguments)
    X, n_rows, d, codes, weights, n_weights, centre, low, *out = function.args
    sums_step, sums, step, products = out
    width = vectors * _LANES

    builder = ir.IRBuilder(before)
    load_last = _masked_load(builder, d, width, scalar, stored)
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
        last = v == vectors - 1
        value = load_last(place) if last else builder.load(place, align=scalar.bitwidth // 8)
        if isinstance(scalar, types.Integer):
            value = (builder.sitofp if scalar.signed else builder.uitofp)(value, vector)
        row.append(value if value.type == vector else builder.fpext(value, vector))
    at = builder.mul(k, index(width))
    for part in (centre, low) if with_products else (centre,):
        start = builder.gep(part, [at])
        row = [
            builder.fsub(x, builder.load(vector_at(builder, start, v, vector), align=8))
            for v, x in enumerate(row)
        ]
    factor = broadcast(builder, _root_weight(builder, weighted, weights, r), vector)
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


def _masked_load(builder, d, width, scalar, stored):
    """Return what loads the last vector of a row of `width` values, of which `d` exist.

    The mask keeps it from reading beyond the last row, where the memory may end.
    """
    index = d.type
    lanes = ir.VectorType(index, _LANES)
    numbers = ir.Constant(lanes, [index(i) for i in range(width - _LANES, width)])
    mask = builder.icmp_signed("<", numbers, broadcast(builder, d, lanes))
    kind = "i" if isinstance(scalar, types.Integer) else "f"
    load = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(stored, [stored.as_pointer(), ir.IntType(32), mask.type, stored]),
        f"llvm.masked.load.v{_LANES}{kind}{scalar.bitwidth}.p0",
    )
    alignment = ir.Constant(ir.IntType(32), scalar.bitwidth // 8)
    zeros = ir.Constant(stored, None)
    return lambda place: builder.call(load, [place, alignment, mask, zeros])


def _root_weight(builder, weighted, weights, r):
    """Return the square root of the weight of row `r`, which is one without weights."""
    double = weights.type.pointee
    with builder.if_else(weighted) as (then, otherwise):
        with then:
            sqrt = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(double, [double]), "llvm.sqrt.f64"
            )
            root = builder.call(sqrt, [builder.load(builder.gep(weights, [r]))])
            weighted_block = builder.block
        with otherwise:
            unweighted_block = builder.block
    factor = builder.phi(double)
    factor.add_incoming(root, weighted_block)
    factor.add_incoming(ir.Constant(double, 1.0), unweighted_block)
    return factor


add_narrow_products = _add_products if config.DISABLE_JIT else _in_registers(with_products=True)
add_narrow_sums = _add_sums if config.DISABLE_JIT else _in_registers(with_products=False)
