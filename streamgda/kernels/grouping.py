"""Class numbers of labels, and rows grouped by class."""

from streamgda.kernels import kernel


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
