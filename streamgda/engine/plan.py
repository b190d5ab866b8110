"""The memory plan of a pass: the rows of a slab."""

from __future__ import annotations

import logging
import math
from contextvars import ContextVar
from dataclasses import replace

from streamgda.errors import MemoryBudgetError
from streamgda.models.scoring import scratch_bytes
from streamgda.rows import Rows
from streamgda.rows.source import RowSource, as_source
from streamgda.runtime.memory import readable

CLASSES_EXPECTED = 10  # More classes raise an error when they appear, if memory does not suffice.

_SLAB_BYTES = 1 << 27  # Rows in memory are summed by so many bytes at a time.
_READ_BYTES = 1 << 25  # Other rows are read or scored by so many bytes at a time.
SLAB_BYTES: ContextVar[int | None] = ContextVar("slab_bytes", default=None)  # It replaces both.
_SLAB_ROWS = 1 << 20  # A slab has at most so many rows.
_SLAB_CHUNKS = 1 << 12  # So many chunks are read at a time: zarr runs a task for each.
_MOST_ALIGNED = 2  # Slabs grow at most so much to be whole chunks of the scores.
_FEWEST_ROWS = 1 << 8  # Smaller slabs, unless they are chunks, cost passes over the state.
_SCRATCH_BYTES = 3 << 25  # Kernels pack, group and cast so much at a time, if threads are few.
_ROW_BYTES = 64  # The code of a row, its position and the like take about so many bytes.

log = logging.getLogger("streamgda")


def plan_rows(
    rows: Rows,
    allowed: int,
    held: int = 0,
    *,
    out_row_bytes: int = 0,
    out_rows: int = 1,
    copies: int = 0,
    scratch: int | None = None,
) -> tuple[int, int]:
    """Return the rows of a slab such that the data in flight fits the budget, and its bytes.

    In flight are the slab being processed, the one being read ahead, and its chunks, encoded and
    decoded; and the scores being computed, those being written, and their encoded form.

    Parameters
    ----------
    rows : Rows
        Sources; labels and weights are read with the rows.
    allowed : int
        The budget in bytes.
    held : int
        Bytes that are held besides, while rows are processed.
    out_row_bytes : int
        Bytes of the scores of a row.
    out_rows : int
        Rows whose scores are stored together. Slabs are multiples of them if these are not large.
    copies : int
        Number of copies of the slab being processed.
    scratch : int, optional
        The most bytes of temporary arrays, however many rows there are; by default for scores.

    Raises
    ------
    MemoryBudgetError
        If not even the smallest slab fits.
    """
    X = rows.X
    if scratch is None:
        scratch = scratch_bytes(math.prod(X.shape[1:]))
    unit, n_rows = X.chunk_rows, best_rows(X, out_row_bytes)
    fewest = min(n_rows, -(-_FEWEST_ROWS // unit) * unit)
    aligned = math.lcm(unit, out_rows)
    if aligned <= _MOST_ALIGNED * n_rows:
        n_rows = min(-(-n_rows // aligned) * aligned, X.n_rows)
    else:
        aligned = unit
    extra = copies * X.row_bytes + 4 * out_row_bytes
    while held + (flight := _in_flight(rows, n_rows, extra, scratch)) > allowed and n_rows > fewest:
        step = aligned if n_rows > 2 * aligned else unit
        n_rows = max(fewest, n_rows // 2 // step * step)
    if held + flight > allowed:
        raise MemoryBudgetError(
            f"this needs {readable(held + flight)} of memory, max_memory allows "
            f"{readable(allowed)} (by default half of what is available): {readable(held)} "
            f"for the moments and results computed from them, {readable(flight)} for rows in "
            f"flight ({n_rows} at a time, as they are stored) and temporary arrays. Pass a larger "
            f"max_memory, or use covariance_type='tied' or 'diag', fewer features, or smaller "
            f"chunks (rechunk the store)"
        )
    log.debug(
        "%s rows in slabs of %s, %s in flight, %s held, %s allowed",
        *(f"{X.n_rows:,}", f"{n_rows:,}", readable(flight), readable(held), readable(allowed)),
    )
    return n_rows, flight


def best_rows(X: RowSource, out_row_bytes: int = 0) -> int:
    """Return the rows of a slab without a budget: whole chunks, if there are any."""
    in_place = X.read_as_views and not out_row_bytes
    most = SLAB_BYTES.get() or (_SLAB_BYTES if in_place else _READ_BYTES)
    n_rows = min(_SLAB_ROWS, most // max(_ROW_BYTES // 2, X.row_bytes, out_row_bytes))
    unit = X.chunk_rows
    if X.chunks:
        n_rows = min(n_rows, max(1, _SLAB_CHUNKS // X.chunks_across) * unit)
        best = max(1, n_rows // unit)
    else:  # A number that can be halved, so that chunks of the scores fit in slabs.
        step = 1 << max(0, (n_rows // unit).bit_length() - 7)
        best = max(1, -(-(n_rows // unit) // step) * step)
    return min(best * unit, X.n_rows)


def _in_flight(rows: Rows, n_rows: int, extra: int, scratch: int) -> int:
    """Return the bytes of slabs in flight, `extra` ones for each row, and temporary arrays."""
    X, sources = rows.X, rows.sources
    casts = 4 * n_rows * 8 * math.prod(X.shape[1:]) + (1 << 20)  # Few rows need no more than this.
    scratch = min(max(_SCRATCH_BYTES, scratch), casts)
    found = sum(source.reading_bytes(n_rows) for source in sources)
    if n_rows >= X.n_rows:  # Nothing is read any more when the only slab is processed.
        held = n_rows * sum(s.row_bytes for s in sources if s.reading_bytes(n_rows))
        found, scratch = max(found, held + scratch), 0
    return int(scratch + found + n_rows * (_ROW_BYTES * (len(sources) - 1) + extra))


def decoded_once(rows: Rows, allowed: int) -> tuple[Rows, int]:
    """Return rows with their labels in memory, and the bytes of these.

    Passes would decode their chunks again. They may take an eighth of the budget; otherwise they
    stay where they are.
    """
    labels = rows.y
    n_bytes = 0 if labels is None else labels.n_rows * labels.row_bytes
    if labels is None or labels.read_as_views or n_bytes > allowed // 8:
        return rows, 0
    return replace(rows, y=as_source(labels.whole(), labels.name)), n_bytes
