"""Squared lengths of narrow rows times a triangular matrix, computed in vector registers.

For few features, BLAS would spend more time on copies than on products. The matrix is multiplied
`_SUMS` rows at a time, up to its diagonal, in LLVM's vector types.
"""

from itertools import chain, product

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

from streamgda.kernels.vectors import broadcast, fused_multiply_add, vector_at

FLOAT64_FEATURES = 12  # so few are multiplied in float64 whatever the rows are
MAX_FEATURES = 96  # for more, BLAS is as fast
_VECTOR_BYTES = 32
_VECTORS = 2  # side by side: an element of the matrix is loaded once for both
_SUMS = 4
ROW_STEP = _VECTORS * _VECTOR_BYTES // 4  # rows that are computed together, or twice as many


def _triangle_squares(panel, W, out):
    """Write ``|W x|^2`` to ``out[r]`` for each column x of a panel, shape (d, width).

    W is lower triangular. It has the type of the panel; the squares are summed in float64. The
    width is a multiple of `ROW_STEP`.
    """
    out[:] = ((W @ panel).astype("float64") ** 2).sum(axis=0)


@intrinsic
def _triangle_squares_in_registers(typing, panel, W, out):
    """Compile `_triangle_squares`."""
    if {array.layout for array in (panel, W, out)} != {"C"} or panel.dtype != W.dtype:
        return None  # no match: the function is given pointers and no strides

    def generate(context, builder, signature, arguments):
        panel, W, out = (
            context.make_array(kind)(context, builder, argument)
            for kind, argument in zip(signature.args, arguments, strict=True)
        )
        d, width = cgutils.unpack_tuple(builder, panel.shape)
        element = context.get_data_type(signature.args[0].dtype)
        function = _squares_function(builder.module, element, d.type)
        builder.call(function, [panel.data, width, W.data, d, out.data])
        return context.get_dummy_value()

    return types.void(panel, W, out), generate


def _squares_function(module, element, index):
    """Return the function (panel, width, W, d, out)."""
    name = f"narrow_triangle_squares_{element}"
    if name in module.globals:
        return module.globals[name]
    double, pointer = ir.DoubleType(), element.as_pointer()
    arguments = [pointer, index, pointer, index, double.as_pointer()]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), arguments), name)
    function.linkage = "internal"
    function.attributes.add("noinline")  # the code around it would take registers from it
    panel, width, W, d, out = function.args
    size = 4 if isinstance(element, ir.FloatType) else 8
    vector = ir.VectorType(element, _VECTOR_BYTES // size)
    wide = ir.VectorType(double, vector.count)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    sums = [[cgutils.alloca_once(builder, vector) for _ in range(_VECTORS)] for _ in range(_SUMS)]
    squares = [cgutils.alloca_once(builder, wide) for _ in range(_VECTORS)]

    def add_products(j, first, rows):
        """Add ``W[first + i, j] * panel[j]`` to the sums of some rows i."""
        start = builder.gep(panel, [builder.add(builder.mul(j, width), r)])
        x = [
            builder.load(vector_at(builder, start, v, vector), align=size) for v in range(_VECTORS)
        ]
        for i in rows:
            row = builder.mul(builder.add(first, index(i)), d)
            w = broadcast(builder, builder.load(builder.gep(W, [builder.add(row, j)])), vector)
            for v in range(_VECTORS):
                total = fused_multiply_add(builder, w, x[v], builder.load(sums[i][v]))
                builder.store(total, sums[i][v])

    def add_squares(first, last, n_rows):
        """Add the squares for rows of the matrix from `first` to `last`, `n_rows` at a time."""
        with cgutils.for_range_slice(builder, first, last, index(n_rows), index) as (row, _):
            for total in chain(*sums[:n_rows]):
                builder.store(ir.Constant(vector, None), total)
            with cgutils.for_range(builder, row, intp=index) as loop:
                add_products(loop.index, row, range(n_rows))
            for j in range(n_rows):  # up to the diagonal
                add_products(builder.add(row, index(j)), row, range(j, n_rows))
            for i, v in product(range(n_rows), range(_VECTORS)):
                value = builder.load(sums[i][v])
                if wide != vector:
                    value = builder.fpext(value, wide)
                total = fused_multiply_add(builder, value, value, builder.load(squares[v]))
                builder.store(total, squares[v])

    step = index(_VECTORS * vector.count)
    n_single = builder.urem(d, index(_SUMS))
    with cgutils.for_range_slice(builder, index(0), width, step, index) as (r, _):
        for total in squares:
            builder.store(ir.Constant(wide, None), total)
        add_squares(index(0), n_single, 1)
        add_squares(n_single, d, _SUMS)
        for v in range(_VECTORS):
            place = vector_at(builder, builder.gep(out, [r]), v, wide)
            builder.store(builder.load(squares[v]), place, align=8)
    builder.ret_void()
    return function


narrow_triangle_squares = (
    _triangle_squares if config.DISABLE_JIT else _triangle_squares_in_registers
)
