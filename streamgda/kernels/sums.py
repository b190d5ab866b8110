"""Rows grouped and summed by class, the merging of sums, and triangles of matrices.

The same source sums floating point (about float64 centres) and exact integers (int64 centres).
Counts, means and scatters are merged by the formula of Chan, Golub and LeVeque.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from streamgda.kernels import inline_kernel, kernel

WORD = 8  # bytes
_ONE, _ODD = np.uint64(1), np.uint64(0x9E3779B97F4A7C15)


@kernel
def all_within(labels, low, n):
    """Return True if all labels are among the n whole numbers from `low` on."""
    signs = 0
    for r in range(labels.shape[0]):
        at = labels[r] - low
        signs |= at | (n - 1 - at)
    return signs >= 0


@kernel
def encode_labels(labels, low, table, codes):
    """Write ``table[label - low]`` for each label; return False if the table lacks one."""
    for r in range(labels.shape[0]):
        at = labels[r] - low
        if at < 0 or at >= table.shape[0] or table[at] < 0:
            return False
        codes[r] = table[at]
    return True


@intrinsic
def address_of(typing, memory):
    """Return the address of the first byte of an array."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(array.data, ir.IntType(64))

    return types.int64(memory), generate


@intrinsic
def word_at(typing, address):
    """Return the 64-bit word that starts at an address, which need not be aligned."""

    def generate(context, builder, signature, arguments):
        word = ir.IntType(64)
        return builder.load(builder.inttoptr(arguments[0], word.as_pointer()), align=1)

    return types.uint64(types.int64), generate


@kernel
def number_entries(memory, offsets, n_known, table, found, codes):
    """Write the number of each entry among the different ones; return how many these are.

    Entry r is ``memory[offsets[r]:offsets[r + 1]]``. Different ones are numbered as they first
    appear, after those that are known. In `found`, number k has its entry in ``found[0, k]``, the
    address and the size of that in ``found[1:3, k]``, its last word in ``found[3, k]``, and its
    place in `table` in ``found[4, k]``. The size of `table`, whose other entries are zero, is a
    power of two; at least one is left.
    """
    bits = 64
    while table.shape[0] >> (64 - bits) > 1:
        bits -= 1
    shift, last_place = np.uint64(bits), np.uint64(table.shape[0] - 1)
    base, n_different = address_of(memory), n_known
    entries, starts, sizes, words, places = found[0], found[1], found[2], found[3], found[4]
    stop = base + offsets[0]
    for r in range(codes.shape[0]):
        start, stop = stop, base + offsets[np.uint64(r + 1)]
        size, end = stop - start, stop - WORD
        if size >= WORD:
            word = word_at(end)
        elif end >= base:  # the bytes before the entry are shifted out
            word = (word_at(end) >> np.uint64(8)) >> np.uint64(56 ^ (8 * size))
        else:
            word = np.uint64(0)
            for i in range(size):
                word |= np.uint64(memory[np.uint64(start - base + i)]) << np.uint64(8 * i)
        value, at = (word ^ np.uint64(size)) * _ODD, start
        while at < end:
            value = (value ^ word_at(at)) * _ODD
            at += WORD
        place = value >> shift
        while True:  # linear probing
            number = np.int64(table[place]) - 1
            k = np.uint64(number)
            if number < 0:
                number, k = n_different, np.uint64(n_different)
                entries[k], starts[k], sizes[k], words[k] = r, start, size, np.int64(word)
                places[k] = np.int64(place)
                n_different += 1
                table[place] = n_different
                break
            if words[k] == np.int64(word) and sizes[k] == size:
                at, apart = start, starts[k] - start
                while at < end and word_at(at) == word_at(at + apart):
                    at += WORD
                if at >= end:
                    break
            place = (place + _ONE) & last_place
        codes[r] = number
    return n_different


@kernel
def group_rows(codes, order, starts):
    """Order rows by class: class k has rows ``order[starts[k]:starts[k + 1]]``, in rising order.

    `starts` has one entry more than there are classes.
    """
    n_classes = starts.shape[0] - 1
    starts[:] = 0
    for r in range(codes.shape[0]):
        starts[codes[r] + 1] += 1
    for k in range(n_classes):
        starts[k + 1] += starts[k]
    for r in range(codes.shape[0]):  # starts[k] advances to the start of class k + 1 ...
        k = codes[r]
        order[starts[k]] = r
        starts[k] += 1
    for k in range(n_classes, 0, -1):  # ... and is put back
        starts[k] = starts[k - 1]
    starts[0] = 0


@kernel
def all_below(values, bound):
    """Return True if no value is NaN, or at or beyond a bound."""
    beyond = False
    for i in range(values.shape[0]):
        beyond |= not abs(float(values[i])) < bound  # NumPy would compare as float32
    return not beyond


def triangle_size(d):
    """Return the entries of d rows of a packed lower triangle: where row d starts."""
    return d * (d + 1) >> 1


row_start = inline_kernel(triangle_size)


_BLOCK = 32  # rows and columns that are copied together, within the first cache


@kernel
def copy_symmetric(triangles, features, out):
    """Write the rows and columns of some features, given in rising order, of symmetric matrices.

    `triangles` are their packed lower triangles; whole matrices are written.
    """
    d = features.size
    for g in range(out.shape[0]):
        for i_block in range(0, d, _BLOCK):
            for j_block in range(0, i_block + 1, _BLOCK):
                for i in range(i_block, min(i_block + _BLOCK, d)):
                    row = triangles[g, row_start(features[i]) :]
                    for j in range(j_block, min(j_block + _BLOCK, i + 1)):
                        out[g, i, j] = out[g, j, i] = row[features[j]]


@kernel
def remove_directions(root, images):
    """Replace a lower triangle W by a root of ``W' (I - S S') W``.

    `images` holds S, whose columns are orthonormal, shape (d, k), and is overwritten. Rows are
    rotated with one that starts as zero and takes up a direction; for each direction, a row of the
    triangle becomes zero.
    """
    d, k = images.shape
    for c in range(k):
        taken, overlap, length = np.zeros(d), np.zeros(k), 0.0
        for i in range(d):
            if images[i, c] == 0.0:
                continue
            whole = np.hypot(length, images[i, c])
            cosine, sine, length = length / whole, images[i, c] / whole, whole
            row, image = root[i], images[i]
            for j in range(i + 1):
                taken[j], row[j] = (
                    cosine * taken[j] + sine * row[j],
                    cosine * row[j] - sine * taken[j],
                )
            for j in range(c, k):
                overlap[j], image[j] = (
                    cosine * overlap[j] + sine * image[j],
                    cosine * image[j] - sine * overlap[j],
                )
