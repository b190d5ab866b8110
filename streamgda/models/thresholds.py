"""The cheapest threshold on a score, exact even for more scores than fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

_PENDING = 1 << 16  # scores that are worth merging
_ROUNDING = 1e-12  # costs that differ by this part of the largest are equal

Block = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Cells:
    """Disjoint intervals of scores, in order, with the weight of the rows in each.

    As long as memory allows, every score is a separate cell. After that, neighbours share a cell
    if their bits, read as an integer that grows with the number, agree except for the last `shift`.

    Attributes
    ----------
    low, high : ndarray, shape (n_cells,)
        Smallest and largest score.
    first, second : ndarray, shape (n_cells,)
        Weights of the rows of the first and of the second class.
    """

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Self:
        """Return a cell for each row, in no order."""
        scores = scores + 0.0  # no negative zero, whose bits are not those of zero
        return cls(scores, scores, np.where(second, 0.0, weights), np.where(second, weights, 0.0))

    def __len__(self) -> int:
        return self.low.size

    def __getitem__(self, index: np.ndarray) -> Cells:
        return Cells(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(parts: list[Cells]) -> Cells:
        """Return the cells of all parts, in order."""
        arrays = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Cells))
        cells = Cells(*arrays)
        return cells[np.argsort(cells.low, kind="stable")]

    def coarsened(self, shift: int, borders: np.ndarray) -> Cells:
        """Return the cells with those of one interval merged; no cell crosses a border."""
        if not len(self):
            return self
        bits = self.low.view(np.int64)
        keys = bits ^ ((bits >> 63) & np.iinfo(np.int64).max)
        groups = np.diff(keys >> shift) != 0
        groups |= np.diff(np.searchsorted(borders, self.low, side="right")) != 0
        starts = np.concatenate([[0], np.flatnonzero(groups) + 1])
        return Cells(
            self.low[starts],
            np.maximum.reduceat(self.high, starts),
            np.add.reduceat(self.first, starts),
            np.add.reduceat(self.second, starts),
        )


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
    sure = Cells.of(np.empty(0), np.empty(0, bool), np.empty(0))
    low, high = np.array([-np.inf]), np.array([np.inf])
    while True:
        cells = Cells.joined([sure, _within(read(), low, high, max_cells)])
        threshold, cost, least = _cheapest(cells, costs)
        if max_cells is None or not np.isfinite(least).any():
            return threshold, cost
        # The most promising cells, few enough that each can be halved.
        finer = np.argsort(least, kind="stable")[: max_cells // 4]
        finer = np.sort(finer[np.isfinite(least[finer])])
        low, high = cells.low[finer], cells.high[finer]
        sure = cells[np.delete(np.arange(len(cells)), finer)]


def _within(
    blocks: Iterable[Block], low: np.ndarray, high: np.ndarray, max_cells: int | None
) -> Cells:
    """Return the cells of the scores within the intervals."""
    held: list[Cells] = []
    shift = pending = 0
    for scores, second, weights in blocks:
        at = np.searchsorted(low, scores, side="right") - 1
        inside = (at >= 0) & (scores <= high[at])
        held.append(Cells.of(scores[inside], second[inside], weights[inside]))
        pending += len(held[-1])
        if max_cells is not None and pending > max(_PENDING, len(held[0])):
            cells, shift = _fitted(held, shift, low, max_cells)
            held, pending = [cells], 0
    return _fitted(held, shift, low, max_cells)[0]


def _fitted(
    parts: list[Cells], shift: int, borders: np.ndarray, max_cells: int | None
) -> tuple[Cells, int]:
    """Return the cells of all parts, merged until they are few enough, and the shift."""
    cells = Cells.joined(parts).coarsened(shift, borders)
    while max_cells is not None and len(cells) > max_cells:
        shift += 1
        cells = cells.coarsened(shift, borders)
    return cells, shift


def _cheapest(cells: Cells, costs: tuple[float, float]) -> tuple[float, float, np.ndarray]:
    """Return the best threshold between cells, its cost, and a lower bound inside each cell.

    The bound is infinite if it is no better than that cost.
    """
    above = cells.first.sum() - np.concatenate([[0.0], np.cumsum(cells.first)])
    below = np.concatenate([[0.0], np.cumsum(cells.second)])
    cost = costs[0] * above + costs[1] * below
    before = np.concatenate([[-np.inf], cells.high])
    after = np.concatenate([cells.low, [np.inf]])
    possible = np.where(before < after, cost, np.inf)  # not below a score of minus infinity
    limit = possible.min() + _ROUNDING * (costs[0] * above[0] + costs[1] * below[-1])
    # From zero; the upper end does not belong to an interval of thresholds.
    distance = np.maximum(before, np.where(after > 0, 0.0, np.nextafter(-after, np.inf)))
    distance = np.where(possible <= limit, np.maximum(distance, 0), np.inf)
    best = int(np.argmin(distance))
    least = cost[:-1] - costs[0] * cells.first
    mixed = (cells.low < cells.high) & (cells.first > 0) & (cells.second > 0)
    least = np.where(mixed & (least <= limit), least, np.inf)
    threshold = _between(float(before[best]), float(after[best]))
    if best == len(cells) and threshold:
        threshold = np.inf  # above new rows too
    return threshold, float(cost[best]), least


def _between(before: float, after: float) -> float:
    """Return zero if it is in the interval [before, after), otherwise a number near its middle."""
    if before <= 0 < after:
        return 0.0
    middle = before / 2 + after / 2
    return middle if before <= middle < after else before
