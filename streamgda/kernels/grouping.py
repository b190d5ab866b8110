"""Class numbers of labels, and rows grouped by class."""

import numpy as np

from streamgda.kernels import kernel

_HALF, _ODD = np.uint64(32), np.uint64(0x9E3779B97F4A7C15)


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


@kernel
def number_entries(words, bits, table, firsts, codes):
    """Write the number of each row among the different rows of `words`; return how many these are.

    They are numbered as they first appear, each in row ``firsts[number]``. `table` has ``2**bits``
    entries, all zero, at least one more than there are rows.
    """
    n_rows, width = words.shape
    shift, last = np.uint64(64 - bits), table.shape[0] - 1
    n_different = 0
    for r in range(n_rows):
        value = np.uint64(0)
        for j in range(0, width - 1, 2):
            pair = np.uint64(words[r, j]) | (np.uint64(words[r, j + 1]) << _HALF)
            value = (value ^ pair) * _ODD
        if width & 1:
            value = (value ^ np.uint64(words[r, width - 1])) * _ODD
        at = np.int64(value >> shift)
        while True:  # linear probing
            number = table[at] - 1
            if number < 0:
                number = n_different
                firsts[number] = r
                n_different += 1
                table[at] = n_different
                break
            first, difference = firsts[number], np.uint32(0)
            for j in range(width):
                difference |= words[first, j] ^ words[r, j]
            if difference == 0:
                break
            at = (at + 1) & last
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
