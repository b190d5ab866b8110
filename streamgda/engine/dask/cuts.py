"""Rows cut into parts, each of them one task.

The cuts depend on the chunks of the rows and on the size of the moments, never on the scheduler
or the number of its workers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from streamgda.rows.sources import RowSource

# A part has enough rows to be worth a task: this many bytes; or several times the bytes of the
# moments, which are moved to be merged. With many parts rows are cut finer, for many workers, and
# with very many parts coarser, to keep the scheduler quick.
PART_BYTES = 1 << 26
PART_STATES = (2, 8)
_MANY_PARTS = 1 << 6
_MOST_PARTS = 1 << 13
SCORED_BYTES = 1 << 23  # of a part that is scored: more work for each row, and nothing to merge

Range = tuple[int, int]  # the first, and one past the last


def part_bytes(total: int, state: int) -> int:
    """Return the bytes of rows in a part, of `total` bytes and with moments of `state` bytes."""
    least, most = (states * state for states in PART_STATES)
    states = min(most, max(least, total // _MANY_PARTS))
    return max(PART_BYTES, states, total // _MOST_PARTS)


def cut_blocks(sizes: list[int], state: int) -> list[Range]:
    """Return ranges of neighbouring blocks that are together worth a part."""
    enough = part_bytes(sum(sizes), state)
    cuts, start, held = [], 0, 0
    for number, size in enumerate(sizes):
        if held and held + size > enough:
            cuts.append((start, number))
            start, held = number, 0
        held += size
    return [*cuts, (start, len(sizes))]


def cut_rows(n_rows: int, unit: int, most: int) -> list[Range]:
    """Return ranges of whole units of about the same size, at most `most` rows if possible."""
    units = -(-n_rows // unit)
    parts = -(-units // max(1, most // unit))
    cuts = [min(units * part // parts * unit, n_rows) for part in range(parts + 1)]
    return list(pairwise(cuts))


def scored_rows(rows: RowSource) -> int:
    """Return the rows of a store that are worth a task that scores them: whole chunks."""
    most = max(SCORED_BYTES, rows.n_rows * rows.row_bytes // _MOST_PARTS) // rows.row_bytes
    return max(1, most // rows.unit) * rows.unit


def evenly_spaced(numbers: list[int], most: int) -> list[int]:
    """Return at most `most` of the numbers, the first and the last among them."""
    places = np.linspace(0, len(numbers) - 1, most).astype(int)
    return sorted({numbers[place] for place in places}) if numbers else []
