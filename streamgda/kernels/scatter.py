"""Scatter matrices: rows are packed into panels, and the panels are multiplied with each other.

A block of rows of one group becomes panels of `DEPTH` entries (see `tiles`). The panels hold only
the features that are not zero in all rows of the block, so that border pixels of images and sparse
counts cost no multiplication.
"""

import numpy as np

from streamgda.kernels import inline_kernel, kernel
from streamgda.kernels.tiles import ROWS, multiply_tile, panel_width

# Entries of a panel. A panel of any type takes 16 to 24 KB, and so stays in the first cache. Sums
# of this many float32 products of bytes, up to 255^2, are exact.
DEPTH = 256

# If the magnitudes of a feature in a block sum to a value between these, their squares and the
# sums of those neither overflow nor underflow in float32.
_LEAST, _MOST = 1e-15, 1e17


def empty_panels(n_blocks, n_rows, n_features, dtype):
    """Return empty panels for blocks of at most `n_rows` rows.

    Their shape is ``(blocks, panels, depth, width, rows of an entry)``.
    """
    width, together = panel_width(dtype), rows_of_entry(dtype)
    depth = min(DEPTH, -(-n_rows // together))
    return np.empty((n_blocks, -(-n_features // width), depth, width, together), dtype)


def rows_of_entry(dtype):
    """Return the number of rows that share an entry of a panel."""
    return 2 if dtype == np.int16 else 1


@inline_kernel
def empty_scratch(n_features, panels):
    """Return empty arrays for the centred rows of a block, magnitudes and feature numbers."""
    depth, width, together = panels.shape[-3:]
    rows = np.empty((depth * together, n_features + width), panels.dtype)
    features = np.empty(panels.shape[-4] * width, np.intp)
    return rows, np.empty(n_features), features


@kernel
def pack_centred(X, codes, order, weights, centre, centre_low, rows, magnitude, panels, features):
    """Centre and pack the rows numbered by `order`; return the number of packed features.

    Each row minus its class's centre, ``centre + centre_low``, times the root of its weight goes
    to `panels`, shape ``(panels, depth, width, rows of an entry)``. The numbers of the packed
    features go to `features`. `rows` and `magnitude` are scratch space. If float32 cannot hold the
    squares of the values, the function packs nothing and returns -1.
    """
    d, n = X.shape[1], order.shape[0]
    width, together = panels.shape[2], panels.shape[3]
    if n % together:
        panels[:, n // together] = 0
    float32_rows = panels.itemsize == 4 and X.itemsize == 4  # whose range is checked below
    _centre(X, codes, order, weights, centre, centre_low, rows, magnitude)
    active = 0
    for j in range(d):
        features[active] = j
        active += magnitude[j] != 0
    if float32_rows:
        for j in features[:active]:
            if not _LEAST < magnitude[j] < _MOST:
                return -1
    if active:  # fill the last panel with columns of `rows` that are not used
        last = features[active - 1]
        for j in range(active, features.shape[0]):
            features[j] = last + 1 + j - active
    for p in range((active + width - 1) // width):
        _copy_features(rows[:n], features[p * width : (p + 1) * width], panels[p])
    return active


@inline_kernel
def _centre(X, codes, order, weights, centre, centre_low, rows, magnitude):
    """Write the centred rows and, for each feature, the sum of their magnitudes."""
    d = X.shape[1]
    number = rows.dtype.type
    magnitude[:] = 0
    for q in range(order.shape[0]):
        r = np.uint64(order[q])  # unsigned: no check for negative indices
        k = np.uint64(codes[r])
        if weights.shape[0] > 0:
            root = np.sqrt(weights[r])
            for j in range(d):  # values that float32 rounds to zero count here as nonzero
                value = root * ((X[r, j] - centre[k, j]) - centre_low[k, j])
                rows[q, j] = number(value)
                magnitude[j] += abs(value)
        else:
            for j in range(d):
                rows[q, j] = number((X[r, j] - centre[k, j]) - centre_low[k, j])
            for j in range(d):
                magnitude[j] += abs(rows[q, j])


@inline_kernel
def _copy_features(rows, features, panel):
    """Copy the given features of centred rows to a panel."""
    width, together = panel.shape[1], panel.shape[2]
    first = features[0]
    contiguous = features[width - 1] - first == width - 1
    for part in range(together):
        for entry in range((rows.shape[0] - part + together - 1) // together):
            q = entry * together + part
            if contiguous:
                for c in range(width):
                    panel[entry, c, part] = rows[q, np.uint64(first + c)]
            else:
                for c in range(width):
                    panel[entry, c, part] = rows[q, np.uint64(features[c])]


@kernel
def pack_blocks(source, first, last, panels, features, active):
    """Pack ``order[first[b]:last[b]]`` as block b; `source` is what `pack_centred` reads."""
    X, codes, order, weights, centre, centre_low = source
    rows, magnitude, _ = empty_scratch(X.shape[1], panels)
    for b in range(first.shape[0]):
        rows_of_block = order[first[b] : last[b]]
        active[b] = pack_centred(
            X,
            codes,
            rows_of_block,
            weights,
            centre,
            centre_low,
            rows,
            magnitude,
            panels[b],
            features[b],
        )


@inline_kernel
def _count_below(features, active, feature):
    """Count the active features with a smaller number than the given one."""
    n = 0
    for j in range(active):
        n += features[j] < feature
    return n


@kernel
def add_product(panels, features, active, entries, rows, columns, S):
    """Add the product of the panels with themselves to a part of the lower triangle of `S`.

    `rows` and `columns` are the first feature of the part and one past the last.
    """
    width = panels.shape[2]
    T = np.empty((ROWS, width), S.dtype)
    i_start = _count_below(features, active, rows[0])
    i_stop = _count_below(features, active, rows[1])
    j_start = _count_below(features, active, columns[0])
    j_stop = _count_below(features, active, columns[1])
    for i_panel in range(i_start // width * width, i_stop, width):
        A = panels[i_panel // width]
        for j_panel in range(j_start // width * width, min(j_stop, i_panel + 1), width):
            B = panels[j_panel // width]
            first = max(0, j_start - j_panel)
            for tile in range(0, width, ROWS):
                if i_panel + tile + ROWS <= i_start or i_panel + tile >= i_stop:
                    continue
                multiply_tile(A, tile, B, entries, T)
                for a in range(ROWS):
                    i = i_panel + tile + a
                    last = min(width, j_stop - j_panel, i - j_panel + 1)
                    if i < i_start or i >= i_stop or first >= last:
                        continue
                    row = S[features[i]]
                    values, places = T[a, first:last], features[j_panel + first : j_panel + last]
                    if places[-1] - places[0] == last - first - 1:
                        part = row[places[0] : places[0] + last - first]
                        for b in range(part.shape[0]):
                            part[b] += values[b]
                    else:
                        for b in range(places.shape[0]):
                            row[places[b]] += values[b]


@kernel
def add_products(panels, features, active, sizes, groups, rows, columns, S):
    """Add each block's product to a part of ``S[groups[b]]``, as `add_product` does."""
    together = panels.shape[4]
    for b in range(sizes.shape[0]):
        entries = (sizes[b] + together - 1) // together
        add_product(panels[b], features[b], active[b], entries, rows, columns, S[groups[b]])


@inline_kernel
def add_rows(X, codes, order, weights, centre, centre_low, scratch, panels, S):
    """Add the products of the rows numbered by `order` to `S`.

    `scratch`, from `empty_scratch`, and `panels`, shape
    ``(panels, depth, width, rows of an entry)``, are overwritten.
    """
    rows, magnitude, features = scratch
    together = panels.shape[3]
    step = panels.shape[1] * together
    everything = (np.intp(0), X.shape[1])  # of one type: `add_product` is compiled once for all
    for first in range(0, order.shape[0], step):
        block = order[first : first + step]
        active = pack_centred(
            X, codes, block, weights, centre, centre_low, rows, magnitude, panels, features
        )
        entries = (block.shape[0] + together - 1) // together
        add_product(panels, features, active, entries, everything, everything, S)
