"""The memory plan of a pass: the rows of a slab, and the bytes that are left for the moments."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace

from streamgda.errors import MemoryBudgetError
from streamgda.models.scoring import scratch_bytes
from streamgda.moments import GroupedMoments, Moments, group_labels
from streamgda.moments.covariance_types import Structure
from streamgda.rows import Rows
from streamgda.rows.counting import RowRule, Slab
from streamgda.rows.source import RowSource, as_source
from streamgda.runtime import threads
from streamgda.runtime.memory import readable

CLASSES_EXPECTED = 10  # More classes raise an error when they appear, if memory does not suffice.

_SLAB_BYTES = 1 << 27  # Rows in memory are summed by so many bytes at a time.
_READ_BYTES = 1 << 25  # Other rows are read or scored by so many bytes at a time.
_slab_bytes: ContextVar[int | None] = ContextVar("slab_bytes", default=None)
_SLAB_ROWS = 1 << 20
_SLAB_CHUNKS = 1 << 12  # So many chunks are read at a time: zarr runs a task for each.
_MOST_ALIGNED = 2  # times the best slab: larger ones are not aligned with chunks of scores
_FEWEST_ROWS = 1 << 8  # of a slab, unless chunks are larger: each slab costs a pass over the state
_SCRATCH_BYTES = 3 << 25  # what kernels pack, group and cast at a time, if threads and rows are few
_ROW_BYTES = 64  # The code of a row, its position and the like take about so many bytes.
_MATRICES = 5  # A thread that factorises a covariance holds so many matrices.
_LABEL_ROWS = 1 << 19  # So many labels are counted at a time, unless chunks are larger.

log = logging.getLogger("streamgda")


@contextlib.contextmanager
def slabs_of(n_bytes: int) -> Iterator[None]:
    """Plan slabs of this many bytes of rows at most, within this context."""
    token = _slab_bytes.set(n_bytes)
    try:
        yield
    finally:
        _slab_bytes.reset(token)


# --- rows in flight -------------------------------------------------------------------------------


def plan_rows(
    rows: Rows,
    allowed: int,
    held: int = 0,
    *,
    out_row_bytes: int = 0,
    out_rows: int = 1,
    copies: int = 0,
    scratch: int | None = None,
) -> int:
    """Return the rows of a slab such that all data in flight stays within the budget.

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
    unit, n_rows = _wanted(X, out_row_bytes)
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
    return n_rows


def most_rows(row_bytes: int, in_place: bool = True) -> int:
    """Return the most rows of a slab, which is summed in place or read from elsewhere."""
    most = _slab_bytes.get() or (_SLAB_BYTES if in_place else _READ_BYTES)
    return min(_SLAB_ROWS, most // max(_ROW_BYTES // 2, row_bytes))


def _wanted(rows: RowSource, out_row_bytes: int) -> tuple[int, int]:
    """Return the rows that slabs are multiples of, and those of the best slab without a budget."""
    in_place = rows.read_as_views and not out_row_bytes
    n_rows = most_rows(max(rows.row_bytes, out_row_bytes), in_place)
    unit = rows.chunk_rows
    if rows.chunks:
        n_rows = min(n_rows, max(1, _SLAB_CHUNKS // rows.chunks_across) * unit)
        best = max(1, n_rows // unit)
    else:  # not in chunks: a number that can be halved, so that chunks of the scores fit in slabs
        step = 1 << max(0, (n_rows // unit).bit_length() - 7)
        best = max(1, -(-(n_rows // unit) // step) * step)
    return unit, min(best * unit, rows.n_rows)


def _in_flight(rows: Rows, n_rows: int, extra: int, scratch: int) -> int:
    """Return the bytes of slabs in flight, `extra` ones for each row, and temporary arrays."""
    X, sources = rows.X, rows.sources
    scratch = min(max(_SCRATCH_BYTES, scratch), cast_bytes(n_rows, math.prod(X.shape[1:])))
    found = sum(source.reading_bytes(n_rows) for source in sources)
    if n_rows >= X.n_rows:  # nothing is read any more when the only slab is processed
        held = n_rows * sum(s.row_bytes for s in sources if s.reading_bytes(n_rows))
        found, scratch = max(found, held + scratch), 0
    return int(scratch + found + n_rows * (_ROW_BYTES * (len(sources) - 1) + extra))


def cast_bytes(n_rows: int, n_features: int) -> int:
    """Return the bytes of temporary arrays that so few rows cannot exceed."""
    return 4 * n_rows * 8 * n_features + (1 << 20)


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


# --- moments --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MomentsBudget:
    """The bytes that moments may take while rows are added, and a model of them afterwards.

    Attributes
    ----------
    n_bytes : int
    model : Structure, optional
        Structure of the covariances of a model, if its memory counts.
    """

    n_bytes: int
    model: Structure | None = None

    def needed(self, moments: Moments, n_classes: int, n_features: int, n_groups: int = 0) -> int:
        """Return the bytes that moments of so many classes need."""
        lifting = moments._lifting
        lifted = 0
        if lifting is not None:
            lifting = lifting.bound(n_features)
            n_features, lifted = lifting.n_out, lifting.nbytes
        state, held = moments._bytes(n_classes, n_features, n_groups)
        if self.model is None:
            return held + lifted
        # A centred copy, covariances and their roots, of all groups together.
        matrices = _MATRICES * threads.n_threads() * 8 * math.prod(self.model.shape(n_features))
        state //= max(1, n_groups)
        model = 2 * (state + self.model.model_bytes(n_classes, n_features)) + matrices
        return max(held + lifted, model)

    def check(self, moments: Moments, slab: Slab, rule: RowRule) -> None:
        """Raise `MemoryBudgetError` if moments with these rows as well would need more."""
        d, start, grouped = slab.X.shape[1], slab.first_row, isinstance(moments, GroupedMoments)
        most = moments.classes.size + len(slab.y)
        if not grouped and self.needed(moments, most, d) <= self.n_bytes:
            return
        n_classes = rule.class_labels(slab.y, moments.classes, start).size
        n_groups = 0
        if isinstance(moments, GroupedMoments):
            n_groups = group_labels(slab.groups, start, known=moments.groups).values.size
        needed = self.needed(moments, n_classes, d, n_groups)
        if needed > self.n_bytes:
            what = f"{n_groups} groups x " if grouped else ""
            raise MemoryBudgetError(
                f"moments of {what}{n_classes} classes need {readable(needed)}, and max_memory (by "
                f"default half of what is available) leaves {readable(self.n_bytes)} for them "
                f"beside the rows. Pass a larger max_memory, or use covariance_type='tied' or "
                f"'diag', or fewer features or larger groups"
            )


def plan_moments(
    rows: Rows, moments: Moments, allowed: int, model: Structure | None = None
) -> tuple[int, Rows, MomentsBudget]:
    """Return the rows of a slab of a pass that accumulates them, and what is left for moments.

    Parameters
    ----------
    rows : Rows
        Sources.
    moments : Moments
        Moments of the kind to which rows will be added.
    allowed : int
        The budget in bytes.
    model : Structure, optional
        Structure of a model of these moments, whose memory is planned, too.

    Returns
    -------
    slab_rows : int
    rows : Rows
        With the labels in memory if their chunks are longer than slabs.
    budget : MomentsBudget

    Raises
    ------
    MemoryBudgetError
        If the smallest slab and the moments of a few classes do not fit.
    """
    n_features, labels_held = rows.X.shape[1], 0
    n_classes = 1 if rows.y is None else min(rows.y.n_rows, CLASSES_EXPECTED)
    expected = MomentsBudget(allowed, model).needed(moments, n_classes, n_features)
    scratch = moments._scratch_bytes(n_features)
    copies = int(rows.rule.selects)
    if rows.y is not None and rows.y.chunk_rows > _wanted(rows.X, 0)[1]:
        rows, labels_held = decoded_once(rows, allowed)
    held = expected + labels_held
    slab_rows = plan_rows(rows, allowed, held, copies=copies, scratch=scratch)
    left = allowed - labels_held - _in_flight(rows, slab_rows, copies * rows.X.row_bytes, scratch)
    return slab_rows, rows, MomentsBudget(left, model)
