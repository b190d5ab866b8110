"""Rows written from columns that are separate arrays."""

from streamgda.kernels import kernel
from streamgda.kernels.loops import loops, numbers_at

_BLOCK_ROWS = 128  # that stay in a near cache while one column after another is written


@loops()
def write_columns(addresses, stops, first, out):
    """Write rows from the row `first` on of columns that consist of parts.

    The rows of part i end before the row ``stops[i]``, and ``addresses[i, j]`` is where the first
    row of all would be if all of column j were where this part is.
    """
    n, d = out.shape
    start, part = 0, 0
    while start < n:
        at = first + start
        while stops[part] <= at:
            part += 1
        m = min(_BLOCK_ROWS, n - start, stops[part] - at)
        places = addresses[part]
        for j in range(0, d - 3, 4):  # fewer writes to the same line of a cache
            a, b = numbers_at(places[j], out), numbers_at(places[j + 1], out)
            c, e = numbers_at(places[j + 2], out), numbers_at(places[j + 3], out)
            for r in range(m):
                row, i = out[start + r], at + r
                row[j], row[j + 1], row[j + 2], row[j + 3] = a[i], b[i], c[i], e[i]
        for j in range(d // 4 * 4, d):
            a = numbers_at(places[j], out)
            for r in range(m):
                out[start + r, j] = a[at + r]
        start += m


@kernel
def write_rows(addresses, stops, first, out):
    """Write rows as `write_columns` does."""
    write_columns(addresses, stops, first, out)
