"""Matrix products by BLAS, for kernels: without the GIL, on row-major matrices.

The routines are those of `scipy.linalg.cython_blas`. Kernels call them by symbols, which are
registered when this module is imported; addresses in the code would make cached kernels invalid in
other processes.

Matrices are float32 or float64, all of a call of the same type. Their rows are contiguous, and may
be parts of longer rows. BLAS stores matrices by columns: it sees the transposes of these.

BLAS may use several threads for a call, and other bits with them, unless `runtime.threads` limits
it. That costs 20 us, so it is done once for many products.
"""

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

_SYMBOL = "streamgda_{}".format
_LETTERS = {types.float32: "s", types.float64: "d"}

for _routine in ("syrk", "gemm"):
    for _letter in _LETTERS.values():
        _name = _letter + _routine
        binding.add_symbol(
            _SYMBOL(_name), get_cython_function_address("scipy.linalg.cython_blas", _name)
        )


def _update(C, part, product, beta):
    C[part] = product + beta * C[part] if beta else product


@intrinsic
def gram(typing, A, beta, C):
    """Write the lower triangle of ``A.T @ A + beta * C`` to that of `C`.

    If `beta` is zero, the old values of `C` do not matter.
    """

    def generate(call, A, beta, C):
        call("syrk", "UN", [A.columns, A.rows], A, beta, C)

    return types.void(A, types.float64, C), _generator(generate)


@intrinsic
def cross(typing, A, B, beta, C):
    """Write ``A.T @ B + beta * C`` to `C`; see `gram`."""

    def generate(call, A, B, beta, C):
        call("gemm", "NT", [B.columns, A.columns, A.rows], B, A, beta, C)

    return types.void(A, B, types.float64, C), _generator(generate)


class _Matrix:
    """Pointer to a matrix, and its shape and leading dimension as BLAS takes them."""

    def __init__(self, context, builder, kind, value):
        if kind.ndim != 2 or kind.dtype not in _LETTERS:
            raise TypeError(f"BLAS multiplies float32 and float64 matrices, not {kind}")
        array = context.make_array(kind)(context, builder, value)
        integer = ir.IntType(32)
        shape = cgutils.unpack_tuple(builder, array.shape)
        stride = cgutils.unpack_tuple(builder, array.strides)[0]
        item = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        self.kind = kind.dtype
        self.data = array.data
        self.rows, self.columns, stride = (
            builder.trunc(n, integer) for n in (*shape, builder.sdiv(stride, item))
        )
        # At least the width, and one: the stride of a single row may be anything.
        least = _larger(builder, self.columns, integer(1))
        self.leading = _larger(builder, stride, least)


def _larger(builder, a, b):
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def _generator(generate):
    """Return the code generator of an intrinsic: `generate` gets matrices and `call`."""

    def emit(context, builder, signature, values):
        def call(routine, flags, sizes, *operands):
            kind = next(x.kind for x in operands if isinstance(x, _Matrix))
            number = context.get_value_type(kind)
            arguments = [
                *(cgutils.global_constant(builder, "flag", ir.IntType(8)(ord(f))) for f in flags),
                *(cgutils.alloca_once_value(builder, size) for size in sizes),
                cgutils.alloca_once_value(builder, number(1.0)),
            ]
            for operand in operands:
                if not isinstance(operand, _Matrix):
                    beta = operand if kind == types.float64 else builder.fptrunc(operand, number)
                    arguments.append(cgutils.alloca_once_value(builder, beta))
                    continue
                if operand.kind != kind:
                    raise TypeError(f"BLAS cannot multiply {operand.kind} by {kind}")
                leading = cgutils.alloca_once_value(builder, operand.leading)
                arguments += [operand.data, leading]
            declared = ir.FunctionType(ir.VoidType(), [a.type for a in arguments])
            function = cgutils.get_or_insert_function(
                builder.module, declared, _SYMBOL(_LETTERS[kind] + routine)
            )
            builder.call(function, arguments)

        operands = [
            _Matrix(context, builder, kind, value) if isinstance(kind, types.Array) else value
            for kind, value in zip(signature.args, values, strict=True)
        ]
        generate(call, *operands)
        return context.get_dummy_value()

    return emit
