"""Rows grouped by class, and the first row of each class."""

from streamgda.kernels import kernel


@kernel
def group_rows(codes, order, starts):
    """Order rows by class: class k has rows ``order[starts[k]:starts[k + 1]]``, in their order.

    `starts` has one entry more than there are classes.
    """
    n_classes = starts.shape[0] - 1
    starts[:] = 0
    for r in range(codes.shape[0]):
        starts[codes[r] + 1] += 1
    for k in range(n_classes):
        starts[k + 1] += starts[k]
    for r in range(codes.shape[0]):  # starts[k] walks to the start of class k + 1 ...
        k = codes[r]
        order[starts[k]] = r
        starts[k] += 1
    for k in range(n_classes, 0, -1):  # ... and is put back
        starts[k] = starts[k - 1]
    starts[0] = 0


@kernel
def first_rows(codes, first):
    """Write the number of the first row of each class for which `first` is -1."""
    left = 0
    for k in range(first.shape[0]):
        left += first[k] < 0
    for r in range(codes.shape[0]):
        k = codes[r]
        if first[k] < 0:
            first[k] = r
            left -= 1
            if left == 0:
                return
