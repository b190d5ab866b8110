"""Vector instructions of LLVM, and functions written in them."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from streamgda.kernels import inline_kernel
from streamgda.kernels.processors import SHAPE

LANES = max(4, SHAPE.vector_bytes // 8)  # numbers of float64 in a vector

_LINE = 64  # bytes of a cache line


@inline_kernel
def padded_width(n_features):
    """Return the number of features, rounded up to whole vectors of float64."""
    return (n_features + LANES - 1) // LANES * LANES


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


def whole_vectors(builder, d, scalar, stored):
    """Return the number of vectors of `d` values but for the last one, and what loads that.

    A mask keeps it from reading beyond the last row, where the memory may end.
    """
    index, lanes = d.type, stored.count
    n_whole = builder.sdiv(builder.sub(d, index(1)), index(lanes))
    numbers = ir.Constant(ir.VectorType(index, lanes), [index(i) for i in range(lanes)])
    left = builder.sub(d, builder.mul(n_whole, index(lanes)))
    mask = builder.icmp_signed("<", numbers, broadcast(builder, left, numbers.type))
    kind = "i" if isinstance(scalar, types.Integer) else "f"
    load = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(stored, [stored.as_pointer(), ir.IntType(32), mask.type, stored]),
        f"llvm.masked.load.v{lanes}{kind}{scalar.bitwidth}.p0",
    )
    alignment = ir.Constant(ir.IntType(32), scalar.bitwidth // 8)
    zeros = ir.Constant(stored, None)
    return n_whole, lambda place: builder.call(load, [place, alignment, mask, zeros])


def for_vectors(builder, n, vector, many, write):
    """Call ``write(number, n_vectors, load)`` for vectors of `n` numbers of float64 in memory.

    It is called for `many` at a time, then for single ones, and for the last one, which `load` does
    not read beyond its end.
    """
    index, zero = n.type, n.type(0)
    n_whole, load_last = whole_vectors(builder, n, types.float64, vector)
    start = builder.and_(n_whole, index(-many))
    for step, first, last in ((many, zero, start), (1, start, n_whole))[:many]:
        with cgutils.for_range_slice(builder, first, last, index(step), index) as (number, _):
            write(number, step, lambda place: builder.load(place, align=8))
    write(n_whole, 1, load_last)


def masked_store(builder, vector):
    """Return what stores those values of a vector of 64-bit numbers that a mask selects."""
    kind = "f" if isinstance(vector.element, ir.DoubleType) else "i"
    mask = ir.VectorType(ir.IntType(1), vector.count)
    store = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [vector, vector.as_pointer(), ir.IntType(32), mask]),
        f"llvm.masked.store.v{vector.count}{kind}64.p0",
    )
    alignment = ir.Constant(ir.IntType(32), 8)
    return lambda values, place, mask: builder.call(store, [values, place, alignment, mask])


def shuffled(builder, a, b, lanes):
    """Return the given lanes of two vectors, of which those of the second follow the first's."""
    lanes = [ir.IntType(32)(lane) for lane in lanes]
    return builder.shuffle_vector(
        a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes)
    )


def interleaved(builder, a, b, n):
    """Return two vectors of pieces of `n` lanes: the even ones of `a` and `b` in turn, and the odd.

    Done with n = 1, 2, 4, ... to pairs of vectors whose numbers differ by n, it transposes them.
    """
    lanes = a.type.count
    even = [i for i in range(lanes) if i // n % 2 == 0]
    pieces = [even[i : i + n] for i in range(0, len(even), n)]
    even = [i for piece in pieces for i in (*piece, *(lanes + j for j in piece))]
    return [shuffled(builder, a, b, [i + shift for i in even]) for shift in (0, n)]


def transposed(builder, vectors):
    """Return the transpose of as many vectors as each has lanes."""
    n = 1
    while n < len(vectors):
        result = list(vectors)
        for i in range(len(vectors)):
            if not i & n:
                result[i], result[i + n] = interleaved(builder, vectors[i], vectors[i + n], n)
        vectors, n = result, 2 * n
    return vectors


def least(builder, a, b):
    """Return the lesser of two integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def as_floats(builder, values, scalar, element):
    """Return a vector of values of a data type as floats of another, which is not narrower."""
    vector = ir.VectorType(element, values.type.count)
    if isinstance(scalar, types.Integer):
        return (builder.sitofp if scalar.signed else builder.uitofp)(values, vector)
    return values if values.type == vector else builder.fpext(values, vector)


def prefetch(builder, place, nearness=3):
    """Start to load what is at a place, or nothing if no memory is there.

    It goes to the first cache, or for a nearness of 2 to the second one.
    """
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
        "llvm.prefetch.p0",
    )
    at = builder.bitcast(place, byte)
    builder.call(function, [at, number(0), number(nearness), number(1)])  # read, data


def loader(builder, start, n_bytes, n_turns):
    """Return what starts to load a share of some bytes in each of so many turns, given its number.

    Lines that no turn meets are left to the processor, which loads those beside them, too.
    """
    one = n_turns.type(1)
    many = builder.select(builder.icmp_signed(">", n_turns, one), n_turns, one)
    step = builder.sdiv(n_bytes, many)
    return lambda turn: prefetch(builder, builder.gep(start, [builder.mul(turn, step)]))


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
