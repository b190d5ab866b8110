"""Class numbers of labels, and rows grouped by class."""

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.extending import intrinsic

from streamgda.kernels import kernel

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


def _word_at(memory, at):
    """Return the 64-bit word that starts at a byte, which need not be aligned."""
    return memory[at : at + WORD].view(np.uint64)[0]


@intrinsic
def _unaligned_word_at(typing, memory, at):
    """Compile `_word_at`."""

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        start = builder.gep(array.data, [arguments[1]])
        word = builder.load(builder.bitcast(start, ir.IntType(64).as_pointer()))
        word.align = 1
        return word

    return types.uint64(memory, types.int64), generate


word_at = _word_at if config.DISABLE_JIT else _unaligned_word_at


@kernel
def number_entries(memory, size, mask, bits, table, firsts, codes):
    """Write the number of each entry among the different ones in memory; return how many these are.

    They are numbered as they first appear, each at byte ``firsts[number]``. An entry has `size`
    bytes, and is compared by words, the last of which ends with it and is masked. If entries are
    shorter than a word, `memory` is longer by one. `table` has ``2**bits`` entries, all zero, at
    least one more than there are codes.
    """
    shift, last_place = np.uint64(64 - bits), np.uint64(table.shape[0] - 1)
    end = max(size - WORD, 0)
    n_different = start = 0
    for r in range(codes.shape[0]):
        last = word_at(memory, start + end) & mask
        value, j = last * _ODD, 0
        while j < end:
            value = (value ^ word_at(memory, start + j)) * _ODD
            j += WORD
        place = value >> shift
        while True:  # linear probing
            number = np.int64(table[place]) - 1
            if number < 0:
                number = n_different
                firsts[number] = start
                n_different += 1
                table[place] = n_different
                break
            first, j = firsts[number], 0
            while j < end and word_at(memory, first + j) == word_at(memory, start + j):
                j += WORD
            if j >= end and word_at(memory, first + end) & mask == last:
                break
            place = (place + _ONE) & last_place
        codes[r] = number
        start += size
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
