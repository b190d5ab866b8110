"""The memory plan of a pass: the rows of a slab, within a budget that is known beforehand."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import numpy as np

from streamgda.errors import MemoryBudgetError
from streamgda.moments import Moments, planned_bytes
from streamgda.moments.structures import Structure
from streamgda.rows.labels import as_labels, encode
from streamgda.rows.slabs import Slabs
from streamgda.rows.sources import RowSource
from streamgda.runtime import threads
from streamgda.runtime.memory import readable

_SLAB_BYTES = 1 << 25  # rows that are read at a time
_SLAB_CHUNKS = 1 << 12  # chunks that are read at a time: each is a task of zarr's
_FEWEST_ROWS = 1 << 8  # of a slab, where chunks are not larger: each costs a pass over the state
_SCRATCH_BYTES = 3 << 25  # what the kernels pack, group and cast at a time, at most
_ROW_BYTES = 64  # of a row's code, its place in the order of the classes, and their like
_MATRICES = 5  # that a thread makes on the way to a covariance's root
_HELD_BYTES = 1 << 26  # of labels, at most
_LABELS = 1 << 20  # that are counted at a time


def plan_rows(
    rows: RowSource,
    allowed: int,
    state: int = 0,
    *,
    beside: Sequence[RowSource] = (),
    out_row_bytes: int = 0,
    copies: int = 0,
    least: int = 0,
) -> Slabs:
    """Cut the rows so that all that is in flight stays within the budget.

    In flight are the slab that is worked on, the one that is read ahead, and the chunks that
    are decoded for it, encoded and decoded; of scores, those that are made, those that are
    written and what they are encoded to.

    Parameters
    ----------
    rows : RowSource
    allowed : int
        Bytes.
    state : int
        Bytes that are held besides, while rows are worked on.
    beside : sequence of RowSource
        Labels and weights, which are read with the rows.
    out_row_bytes : int
        Bytes of a row's scores.
    copies : int
        How often the slab that is worked on is copied.
    least : int
        Bytes that are needed at another time.

    Raises
    ------
    MemoryBudgetError
        Where not even the least slab fits.
    """
    unit, n_rows = _wanted(rows, out_row_bytes)
    fewest = min(n_rows, -(-_FEWEST_ROWS // unit) * unit)
    extra = copies * rows.row_bytes + 4 * out_row_bytes
    required = _required(rows, n_rows, beside, extra)
    while state + required > allowed and n_rows > fewest:
        n_rows = max(fewest, n_rows // 2 // unit * unit)
        required = _required(rows, n_rows, beside, extra)
    if max(state + required, least) > allowed:
        raise MemoryBudgetError(
            f"this needs {readable(max(state + required, least))} of memory, max_memory allows "
            f"{readable(allowed)} (by default half of what is available): {readable(state)} "
            f"for the moments and what is made of them, {readable(required)} for rows being "
            f"read ({n_rows} at a time, as they are stored) and to work in. A larger "
            f"max_memory helps, or covariance_type='tied' or 'diag', fewer features, smaller "
            f"chunks (rechunk the store)"
        )
    return Slabs(n_rows)


def plan_moments(
    rows: RowSource,
    labels: RowSource,
    *weights: RowSource,
    moments: Moments,
    allowed: int,
    copies: int = 0,
    model: Structure | None = None,
) -> tuple[Slabs, RowSource]:
    """Cut rows that are accumulated.

    Labels are counted first, unless any number of classes would fit. Those that take little
    room are then held, and need not be read again.

    Parameters
    ----------
    rows, labels, *weights : RowSource
    moments : Moments
        Like those that rows will be added to.
    allowed : int
        Bytes.
    copies : int
        As of `plan_rows`.
    model : Structure, optional
        Of the model that will be made of the moments, which is planned in.

    Returns
    -------
    slabs : Slabs
    labels : RowSource
        Where they are to be read from.

    Raises
    ------
    MemoryBudgetError
        Where not even the least slab fits.
    """

    def plan(n_classes: int, labels: RowSource, labels_held: int = 0) -> Slabs:
        state, held = planned_bytes(moments, n_classes, rows.shape[1])
        least = held if model is None else _model_bytes(model, state, rows.shape[1])
        beside, held = (labels, *weights), held + labels_held
        return plan_rows(rows, allowed, held, beside=beside, copies=copies, least=least)

    most = labels.n_rows
    if labels.dtype is not None and labels.dtype.kind in "biu" and labels.dtype.itemsize == 1:
        most = min(most, 256)
    with contextlib.suppress(MemoryBudgetError):
        best = plan(most, labels)
        if best.n_rows == _wanted(rows)[1]:
            return best, labels
    size = labels.n_rows * labels.row_bytes
    if labels.in_memory or size > min(_HELD_BYTES, allowed // 16):
        return plan(count_classes(labels), labels), labels
    labels = labels.held()
    return plan(count_classes(labels), labels, size), labels


def _wanted(rows: RowSource, out_row_bytes: int = 0) -> tuple[int, int]:
    """Rows that slabs are made of, and of the slab that is best where there is room."""
    n_rows = _SLAB_BYTES // max(_ROW_BYTES // 2, rows.row_bytes, out_row_bytes)
    unit = rows.unit if rows.shard > n_rows else rows.shard
    n_rows = min(n_rows, max(1, _SLAB_CHUNKS // rows.columns) * rows.unit)
    return unit, min(max(unit, n_rows // unit * unit), rows.n_rows)


def _required(rows: RowSource, n_rows: int, beside: Sequence[RowSource], extra: int) -> int:
    """Bytes for slabs of so many rows: being read, with so many extra ones, and to work in."""
    scratch = min(_SCRATCH_BYTES, 4 * n_rows * 8 * rows.row_elements + (1 << 20))
    in_flight = sum(source.reading_bytes(n_rows) for source in (rows, *beside))
    return scratch + in_flight + n_rows * (_ROW_BYTES * len(beside) + extra)


def _model_bytes(structure: Structure, state: int, n_features: int) -> int:
    """Bytes while a model is made of moments: of a copy, centred, through covariances, to roots."""
    return 4 * state + _MATRICES * threads.n_threads() * structure.group_bytes(n_features)


def count_classes(labels: RowSource) -> int:
    """How many different labels there are: all of them are read."""
    classes = np.empty(0, np.int64)
    for start in range(0, labels.n_rows, _LABELS):
        block = as_labels(labels.read(start, start + _LABELS), first_row=start)
        classes = encode(block, classes)[1]
    return int(classes.size)
