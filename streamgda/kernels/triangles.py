"""Lower and upper triangles of matrices."""

from streamgda.kernels import kernel

_BLOCK = 32  # rows and columns that are mirrored together, within the first cache


@kernel
def mirror(matrix):
    """Copy the lower triangle of a square matrix to its upper one."""
    d = matrix.shape[0]
    for i_block in range(0, d, _BLOCK):
        for j_block in range(0, i_block + 1, _BLOCK):
            for i in range(i_block, min(i_block + _BLOCK, d)):
                for j in range(j_block, min(j_block + _BLOCK, i)):
                    matrix[j, i] = matrix[i, j]


@kernel
def clear_upper(matrix):
    """Set the elements above the diagonal to zero."""
    d = matrix.shape[0]
    for i in range(d):
        for j in range(i + 1, d):
            matrix[i, j] = 0.0


@kernel
def select_features(matrices, features, out):
    """Write the rows and columns of some features, given in rising order, of symmetric matrices.

    Only the lower triangles of `matrices` are read.
    """
    for g in range(out.shape[0]):
        selected = out[g]
        for i in range(features.shape[0]):
            row, own = matrices[g, features[i]], selected[i]
            for j in range(i + 1):
                own[j] = row[features[j]]
        mirror(selected)
