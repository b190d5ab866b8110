"""Lower and upper triangles of matrices."""

import numpy as np

from streamgda.kernels import kernel

_BLOCK = 32  # rows and columns that are copied together, within the first cache


@kernel
def copy_symmetric(matrices, features, out):
    """Write the rows and columns of some features, given in rising order, of symmetric matrices.

    Only the lower triangles of `matrices` are read. `out` may be the same array.
    """
    d = features.size
    for g in range(out.shape[0]):
        for i_block in range(0, d, _BLOCK):
            for j_block in range(0, i_block + 1, _BLOCK):
                for i in range(i_block, min(i_block + _BLOCK, d)):
                    row = matrices[g, features[i]]
                    for j in range(j_block, min(j_block + _BLOCK, i + 1)):
                        out[g, i, j] = out[g, j, i] = row[features[j]]


def mirror(matrices):
    """Copy the lower triangles of square matrices to the upper ones."""
    copy_symmetric(matrices, np.arange(matrices.shape[-1]), matrices)


@kernel
def clear_upper(matrix):
    """Set the elements above the diagonal to zero."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1, d):
            matrix[i, j] = 0.0


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
