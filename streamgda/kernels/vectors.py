"""Vector instructions of LLVM, and functions written in them."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from streamgda.kernels.processors import SHAPE

LANES = max(4, SHAPE.vector_bytes // 8)  # numbers of float64 in a vector

_LINE = 64  # bytes of a cache line


def _aligned(number):
    """Return the type and the code of a function that allocates arrays of numbers."""

    def allocate(typing, shape):
        sizes_of = cgutils.unpack_tuple if isinstance(shape, types.BaseTuple) else None
        array = types.Array(number, len(shape) if sizes_of else 1, "C")

        def generate(context, builder, signature, arguments):
            shape = sizes_of(builder, *arguments) if sizes_of else arguments
            sizes = [ir.IntType(64)(8)]
            for n in reversed(shape):
                sizes.append(builder.mul(sizes[-1], n))
            nrt, out = context.nrt, context.make_array(array)(context, builder)
            memory = nrt.meminfo_alloc_aligned(builder, sizes[-1], ir.IntType(32)(_LINE))
            data = builder.bitcast(nrt.meminfo_data(builder, memory), out.data.type)
            strides = sizes[-2::-1]
            populate_array(out, data, shape, strides, itemsize=8, meminfo=memory)
            return out._getvalue()

        return array(shape), generate

    return allocate


# Return arrays of float64 and of indices, uninitialised, of a size or shape. They start at a cache
# line, which no vector of them crosses. NumPy's functions take long to compile.
empty_vectors = intrinsic(_aligned(types.float64))
empty_indices = intrinsic(_aligned(types.intp))


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


def least(builder, a, b):
    """Return the lesser of two integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


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
