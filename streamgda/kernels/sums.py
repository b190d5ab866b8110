"""Labels looked up, rows grouped by class, and triangles of matrices."""

from streamgda.kernels import inline_kernel, kernel

WORD = 8  # A word has so many bytes.


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
    for r in range(codes.shape[0]):  # The value `starts[k]` advances to the start of class k + 1.
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


_BLOCK = 32  # A square of so many rows and columns fits the first cache.


@kernel
def copy_symmetric(triangles, out):
    """Write symmetric matrices, shape (n, d, d), whose packed lower triangles are given."""
    d = out.shape[1]
    for g in range(out.shape[0]):
        for i_block in range(0, d, _BLOCK):
            for j_block in range(0, i_block + 1, _BLOCK):
                for i in range(i_block, min(i_block + _BLOCK, d)):
                    row = triangles[g, row_start(i) :]
                    for j in range(j_block, min(j_block + _BLOCK, i + 1)):
                        out[g, i, j] = out[g, j, i] = row[j]
