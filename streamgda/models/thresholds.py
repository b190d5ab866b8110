"""The cheapest threshold on a score, exact even for more scores than fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

_PENDING = 1 << 16  # scores that are worth merging
_ROUNDING = 1e-12  # costs that differ by this part of the largest are equal

Block = tuple[np.ndarray, np.ndarray, np.ndarray]

# Cells are disjoint intervals of scores, in order, as an array of shape (4, n_cells): the smallest
# and the largest score, and the weights of the rows of the first and of the second class. As long
# as memory allows, every score is a separate cell. After that, neighbours share a cell if their
# bits, read as an integer that grows with the number, agree except for the last `shift`.


def cells_of(scores: np.ndarray, second: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return a cell for each row, in no order."""
    scores = scores + 0.0  # no negative zero, whose bits are not those of zero
    return np.stack([scores, scores, np.where(second, 0.0, weights), np.where(second, weights, 0)])


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """Return the cells of all parts, in order."""
    cells = np.concatenate(parts, axis=1)
    return cells[:, np.argsort(cells[0], kind="stable")]


def coarsened(cells: np.ndarray, shift: int, borders: np.ndarray) -> np.ndarray:
    """Return the cells with those of one interval merged; no cell crosses a border."""
    low, high, *weights = cells
    if not low.size:
        return cells
    bits = low.view(np.int64)
    keys = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
    groups = np.diff(keys >> shift) != 0
    groups |= np.diff(np.searchsorted(borders, low, side="right")) != 0
    starts = np.concatenate([[0], np.flatnonzero(groups) + 1])
    most = np.maximum.reduceat(high, starts)
    return np.stack([low[starts], most, *(np.add.reduceat(w, starts) for w in weights)])


def best_threshold(
    read: Callable[[], Iterable[Block]], costs: tuple[float, float], max_cells: int | None = None
) -> tuple[float, float]:
    """Return the cheapest threshold: rows with a higher score are assigned to the second class.

    It is exact for any number of cells: a threshold inside a cell saves at most the cost of the
    cell's rows of the first class, so most cells can be ruled out by their counts alone. If some
    are left, the scores are read again, and only these cells are cut finer; usually once.

    Parameters
    ----------
    read : callable
        Called for each pass; returns blocks of scores, of booleans (True for rows of the second
        class), and of positive weights, each of shape (n_rows,).
    costs : (float, float)
        Cost of a row of the first class that is assigned to the second, and vice versa.
    max_cells : int >= 4, optional
        Cells that may be held; by default as many as there are scores, which are then read once.

    Returns
    -------
    threshold : float
        Midpoint between two scores; infinite if one answer for all rows is cheapest. Among
        thresholds of equal cost, the one nearest to zero, or zero itself.
    cost : float
        Cost of all rows together.
    """
    sure = np.empty((4, 0))
    low, high = np.array([-np.inf]), np.array([np.inf])
    while True:
        cells = joined([sure, _within(read(), low, high, max_cells)])
        threshold, cost, least = _cheapest(cells, costs)
        if max_cells is None or not np.isfinite(least).any():
            return threshold, cost
        # The most promising cells, few enough that each can be halved.
        finer = np.argsort(least, kind="stable")[: max_cells // 4]
        finer = np.sort(finer[np.isfinite(least[finer])])
        low, high = cells[:2, finer]
        sure = np.delete(cells, finer, axis=1)


def _within(
    blocks: Iterable[Block], low: np.ndarray, high: np.ndarray, max_cells: int | None
) -> np.ndarray:
    """Return the cells of the scores within the intervals."""
    held: list[np.ndarray] = []
    shift = pending = 0
    for scores, second, weights in blocks:
        at = np.searchsorted(low, scores, side="right") - 1
        inside = (at >= 0) & (scores <= high[at])
        held.append(cells_of(scores[inside], second[inside], weights[inside]))
        pending += held[-1].shape[1]
        if max_cells is not None and pending > max(_PENDING, held[0].shape[1]):
            cells, shift = _fitted(held, shift, low, max_cells)
            held, pending = [cells], 0
    return _fitted(held, shift, low, max_cells)[0]


def _fitted(
    parts: list[np.ndarray], shift: int, borders: np.ndarray, max_cells: int | None
) -> tuple[np.ndarray, int]:
    """Return the cells of all parts, merged until they are few enough, and the shift."""
    cells = coarsened(joined(parts), shift, borders)
    while max_cells is not None and cells.shape[1] > max_cells:
        shift += 1
        cells = coarsened(cells, shift, borders)
    return cells, shift


def _cheapest(cells: np.ndarray, costs: tuple[float, float]) -> tuple[float, float, np.ndarray]:
    """Return the best threshold between cells, its cost, and a lower bound inside each cell.

    The bound is infinite if it is no better than that cost.
    """
    low, high, first, second = cells
    above = first.sum() - np.concatenate([[0.0], np.cumsum(first)])
    below = np.concatenate([[0.0], np.cumsum(second)])
    cost = costs[0] * above + costs[1] * below
    before = np.concatenate([[-np.inf], high])
    after = np.concatenate([low, [np.inf]])
    possible = np.where(before < after, cost, np.inf)  # not below a score of minus infinity
    limit = possible.min() + _ROUNDING * (costs[0] * above[0] + costs[1] * below[-1])
    # From zero; the upper end does not belong to an interval of thresholds.
    distance = np.maximum(before, np.where(after > 0, 0.0, np.nextafter(-after, np.inf)))
    distance = np.where(possible <= limit, np.maximum(distance, 0), np.inf)
    best = int(np.argmin(distance))
    least = cost[:-1] - costs[0] * first
    mixed = (low < high) & (first > 0) & (second > 0)
    least = np.where(mixed & (least <= limit), least, np.inf)
    threshold = _between(float(before[best]), float(after[best]))
    if best == low.size and threshold:
        threshold = np.inf  # above new rows too
    return threshold, float(cost[best]), least


def _between(before: float, after: float) -> float:
    """Return zero if it is in the interval [before, after), otherwise a number near its middle."""
    if before <= 0 < after:
        return 0.0
    middle = before / 2 + after / 2
    return middle if before <= middle < after else before
