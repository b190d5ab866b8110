"""The threshold on a score that costs least: exactly, also of more scores than fit in memory."""

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
    """Intervals of scores that do not overlap, in order, and what lies in each.

    While there is room, every score is a cell of its own. After that neighbours share one: those
    whose bits, read as an integer that grows with the number, agree but for the last `shift`.

    Attributes
    ----------
    low, high : ndarray, shape (n_cells,)
        The least and the largest score.
    first, second : ndarray, shape (n_cells,)
        Weight of the rows of the first class, and of those of the second.
    """

    low: np.ndarray
    high: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, second: np.ndarray, weights: np.ndarray) -> Self:
        """A cell for each row, in no order."""
        scores = scores + 0.0  # no negative zero, whose bits are not those of zero
        return cls(scores, scores, np.where(second, 0.0, weights), np.where(second, weights, 0.0))

    def __len__(self) -> int:
        return self.low.size

    def __getitem__(self, index: np.ndarray) -> Cells:
        return Cells(*(getattr(self, field.name)[index] for field in fields(self)))

    @staticmethod
    def joined(parts: list[Cells]) -> Cells:
        """The cells of all parts, in order."""
        arrays = (np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Cells))
        cells = Cells(*arrays)
        return cells[np.argsort(cells.low, kind="stable")]

    def coarsened(self, shift: int, borders: np.ndarray) -> Cells:
        """Cells of one interval made one; none reaches over a border."""
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
    read: Callable[[], Iterable[Block]], costs: tuple[float, float], room: int | None = None
) -> tuple[float, float]:
    """The threshold that costs least, where rows with a score above it are taken for the second.

    Exact whatever the room: a threshold inside of a cell saves at most what the cell's rows of
    the first class cost, so most cells can be ruled out by their counts alone. Where some are
    left, the scores are read once more, and only these cells are cut finer; as a rule, once.

    Parameters
    ----------
    read : callable
        Gives, each time anew, blocks of scores, of whether rows are of the second class, and of
        weights above zero, each of shape (n_rows,).
    costs : (float, float)
        Of a row of the first class that is taken for the second, and the other way round.
    room : int >= 4, optional
        How many cells may be held; by default as many as there are scores, which are then read
        once.

    Returns
    -------
    threshold : float
        In the middle between two scores; infinite where one answer for all rows costs least. Of
        thresholds that cost the same the one nearest to zero, and zero itself if it is one.
    cost : float
        Of all rows together.
    """
    sure = Cells.of(np.empty(0), np.empty(0, bool), np.empty(0))
    low, high = np.array([-np.inf]), np.array([np.inf])
    while True:
        cells = Cells.joined([sure, _within(read(), low, high, room)])
        threshold, cost, least = _cheapest(cells, costs)
        if room is None or not np.isfinite(least).any():
            return threshold, cost
        # The most promising, so few that there is room to halve each.
        finer = np.argsort(least, kind="stable")[: room // 4]
        finer = np.sort(finer[np.isfinite(least[finer])])
        low, high = cells.low[finer], cells.high[finer]
        sure = cells[np.delete(np.arange(len(cells)), finer)]


def _within(blocks: Iterable[Block], low: np.ndarray, high: np.ndarray, room: int | None) -> Cells:
    """Cells of the scores that lie within the intervals."""
    held: list[Cells] = []
    shift = pending = 0
    for scores, second, weights in blocks:
        at = np.searchsorted(low, scores, side="right") - 1
        inside = (at >= 0) & (scores <= high[at])
        held.append(Cells.of(scores[inside], second[inside], weights[inside]))
        pending += len(held[-1])
        if room is not None and pending > max(_PENDING, len(held[0])):
            cells, shift = _fitted(held, shift, low, room)
            held, pending = [cells], 0
    return _fitted(held, shift, low, room)[0]


def _fitted(
    parts: list[Cells], shift: int, borders: np.ndarray, room: int | None
) -> tuple[Cells, int]:
    cells = Cells.joined(parts).coarsened(shift, borders)
    while room is not None and len(cells) > room:
        shift += 1
        cells = cells.coarsened(shift, borders)
    return cells, shift


def _cheapest(cells: Cells, costs: tuple[float, float]) -> tuple[float, float, np.ndarray]:
    """The best threshold between cells, its cost, and the least that one inside of each may cost.

    The last is infinite where that is no better than what there is.
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
    """Zero, or else the middle: a number that is not below the one, and below the other."""
    if before <= 0 < after:
        return 0.0
    middle = before / 2 + after / 2
    return middle if before <= middle < after else before
