"""The memory plan of a pass: the rows of a slab, within a budget known beforehand."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, MemoryBudgetError
from streamgda.models.model import scratch_bytes
from streamgda.moments import GroupedMoments, Moments, group_labels
from streamgda.moments.covariance_types import Structure
from streamgda.rows import Rows
from streamgda.rows.arrays import CodedLabels, distinct, is_masked
from streamgda.rows.in_memory import DecodedLabels
from streamgda.rows.invalid_rows import CHECK_SUMS, RowRule
from streamgda.rows.labels import coded_classes, encode
from streamgda.rows.sources import RowSource
from streamgda.runtime import threads
from streamgda.runtime.memory import allowed_bytes, readable

CLASSES_EXPECTED = 10  # where labels are not read before the pass

_SLAB_BYTES = 1 << 27  # rows in memory that are summed at a time
_slab_bytes: ContextVar[int | None] = ContextVar("slab_bytes", default=None)
_READ_BYTES = 1 << 25  # other rows that are read at a time, or scored
_SLAB_ROWS = 1 << 20
_SLAB_CHUNKS = 1 << 12  # chunks that are read at a time: zarr runs a task for each
_MOST_ALIGNED = 2  # times the best slab: larger ones are not aligned with chunks of scores
_FEWEST_ROWS = 1 << 8  # of a slab, unless chunks are larger: each slab costs a pass over the state
_SCRATCH_BYTES = 3 << 25  # what kernels pack, group and cast at a time, if threads and rows are few
_ROW_BYTES = 64  # of the code of a row, its position in the order of the classes, and so on
_MATRICES = 5  # temporary ones of a thread that factorises a covariance
_HELD_BYTES = 1 << 26  # of labels, at most
_LABEL_BYTES = 1 << 22  # of those that are counted at a time, unless chunks are larger


@contextlib.contextmanager
def slabs_of(n_bytes: int) -> Iterator[None]:
    """Plan slabs of this many bytes of rows at most, within this context."""
    token = _slab_bytes.set(n_bytes)
    try:
        yield
    finally:
        _slab_bytes.reset(token)


def plan_rows(
    rows: Rows,
    allowed: int,
    state: int = 0,
    *,
    out_row_bytes: int = 0,
    out_rows: int = 1,
    copies: int = 0,
    least: int = 0,
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
    state : int
        Bytes that are held besides, while rows are processed.
    out_row_bytes : int
        Bytes of the scores of a row.
    out_rows : int
        Rows whose scores are stored together. Slabs are multiples of them if these are not large.
    copies : int
        Number of copies of the slab being processed.
    least : int
        Bytes that are needed at another time.
    scratch : int, optional
        The most bytes of temporary arrays, however many rows there are; by default for scores.

    Returns
    -------
    slab_rows : int

    Raises
    ------
    MemoryBudgetError
        If not even the smallest slab fits.
    """
    X, sources = rows.X, rows.sources
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
    required = _required(sources, n_rows, extra, scratch)
    while state + required > allowed and n_rows > fewest:
        step = aligned if n_rows > 2 * aligned else unit
        n_rows = max(fewest, n_rows // 2 // step * step)
        required = _required(sources, n_rows, extra, scratch)
    if max(state + required, least) > allowed:
        raise MemoryBudgetError(
            f"this needs {readable(max(state + required, least))} of memory, max_memory allows "
            f"{readable(allowed)} (by default half of what is available): {readable(state)} "
            f"for the moments and results computed from them, {readable(required)} for rows in "
            f"flight ({n_rows} at a time, as they are stored) and temporary arrays. Pass a larger "
            f"max_memory, or use covariance_type='tied' or 'diag', fewer features, or smaller "
            f"chunks (rechunk the store)"
        )
    return n_rows


def plan_labelled(
    rows: Rows, max_memory: int | str | None, held: int = 0, **options: Any
) -> tuple[int, Rows]:
    """Return what `plan_rows` does, for a pass that compares the labels of rows in this process.

    Labels are kept in memory if that takes little, so that none are decoded twice: the rows are
    returned, too.

    Parameters
    ----------
    rows : Rows
        Sources.
    max_memory : int or str, optional
    held : int
        Bytes that are held besides, while rows are processed.
    **options
        See `plan_rows`.
    """
    allowed = allowed_bytes(max_memory)
    rows, labels_held = decoded_once(rows, allowed)
    return plan_rows(rows, allowed, held + labels_held, **options), rows


def plan_moments(
    rows: Rows, *, moments: Moments, allowed: int, model: Structure | None = None
) -> tuple[int, Rows]:
    """Return the rows of a slab of a pass that accumulates them.

    Labels are counted first, unless any number of classes would fit and no chunk of labels is
    longer than a slab. If their codes need little memory, they are then kept, and labels are not
    read again. Groups are always counted.

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
        With the labels in memory if they are kept.

    Raises
    ------
    MemoryBudgetError
        If not even the smallest slab fits.
    """
    labels, n_features, lifting = rows.y, rows.X.shape[1], moments._lifting
    lifted = 0
    if lifting is not None:
        lifting = lifting.bound(n_features)
        n_features, lifted = lifting.n_out, lifting.nbytes

    def plan(n_classes: int, rows: Rows = rows, labels_held: int = 0) -> tuple[int, Rows]:
        state, held = moments._bytes(n_classes, n_features, n_groups)
        held += lifted
        least = held
        if model is not None:  # of all groups together
            least = max(held, _model_bytes(model, state // max(1, n_groups), n_classes, n_features))
        try:
            slab_rows = plan_rows(
                rows,
                allowed,
                held + labels_held,
                copies=int(rows.rule.selects),
                least=least,
                scratch=scratch,
            )
        except MemoryBudgetError as error:
            if not n_groups:
                raise
            raise MemoryBudgetError(
                f"{error}. These are the moments of {n_groups} groups x {n_classes} classes: or "
                f"pass larger groups, such as regions instead of sites"
            ) from None
        return slab_rows, rows

    n_groups = count_groups(rows.groups) if isinstance(moments, GroupedMoments) else 0
    scratch = moments._scratch_bytes(n_features)

    if labels is None:
        return plan(1)
    most = labels.n_rows
    if labels.dtype is not None and labels.dtype.kind in "biu" and labels.dtype.itemsize == 1:
        most = min(most, 256)
    with contextlib.suppress(MemoryBudgetError):
        best = None if n_groups else plan(most)
        if best is not None and labels.unit <= best[0] == _wanted(rows.X)[1]:
            return best
    rows, labels_held = decoded_once(rows, allowed)
    return plan(count_classes(rows.y, rows.rule), rows, labels_held)


def plan_classes(labels: RowSource, rule: RowRule = CHECK_SUMS) -> int:
    """Return the number of classes, or the number expected if labels are invalid."""
    try:
        return max(1, count_classes(labels, rule))
    except InvalidDataError:  # the pass says where
        return CLASSES_EXPECTED


def plan_tasks(
    moments: Moments, *, n_classes: int, n_features: int, n_parts: int, allowed: int
) -> int:
    """Return how many parts may be added at a time, each of them to its own moments.

    Planned are the moments of each task and those that it merges, and those of parts that wait for
    others; not the rows of collections, which dask holds.

    Raises
    ------
    MemoryBudgetError
        If there is no room for one.
    """
    state, held = moments._bytes(n_classes, n_features)
    task = max(held + moments._scratch_bytes(n_features), 3 * state)
    waiting = state * n_parts.bit_length()
    if task + waiting > allowed:
        raise MemoryBudgetError(
            f"this needs {readable(task + waiting)} of memory, max_memory allows "
            f"{readable(allowed)}: {readable(task)} for the moments of {n_classes} classes that a "
            f"task holds, {readable(waiting)} for those that wait to be merged. Pass a larger "
            f"max_memory, or use covariance_type='tied' or 'diag', or fewer features"
        )
    return (allowed - waiting) // max(1, task)


def _wanted(rows: RowSource, out_row_bytes: int = 0) -> tuple[int, int]:
    """Return the rows that slabs are multiples of, and those of the best slab without a budget."""
    in_place = rows.read_as_views and not out_row_bytes
    most = _slab_bytes.get() or (_SLAB_BYTES if in_place else min(_SLAB_BYTES, _READ_BYTES))
    n_rows = min(_SLAB_ROWS, most // max(_ROW_BYTES // 2, rows.row_bytes, out_row_bytes))
    unit = rows.unit if rows.shard > n_rows else rows.shard
    if rows.columns:
        n_rows = min(n_rows, max(1, _SLAB_CHUNKS // rows.columns) * rows.unit)
        best = max(1, n_rows // unit)
    else:  # not in chunks: a number that can be halved, so that chunks of the scores fit in slabs
        step = 1 << max(0, (n_rows // unit).bit_length() - 7)
        best = max(1, -(-(n_rows // unit) // step) * step)
    return unit, min(best * unit, rows.n_rows)


def _required(sources: Sequence[RowSource], n_rows: int, extra: int, scratch: int) -> int:
    """Return the bytes for slabs in flight, `extra` ones for each row, and temporary arrays."""
    cast = 4 * n_rows * 8 * sources[0].row_elements + (1 << 20)
    scratch = min(max(_SCRATCH_BYTES, scratch), cast)
    in_flight = sum(source.reading_bytes(n_rows) for source in sources)
    if n_rows >= sources[0].n_rows:  # nothing is read any more when the only slab is processed
        held = n_rows * sum(s.row_bytes for s in sources if s.reading_bytes(n_rows))
        in_flight, scratch = max(in_flight, held + scratch), 0
    return scratch + in_flight + n_rows * (_ROW_BYTES * (len(sources) - 1) + extra)


def _model_bytes(structure: Structure, state: int, n_classes: int, n_features: int) -> int:
    """Return the bytes needed to compute a model: a centred copy, covariances and their roots."""
    matrices = _MATRICES * threads.n_threads() * 8 * structure.group_size(n_features)
    return 2 * (state + structure.model_bytes(n_classes, n_features)) + matrices


def _labels_at_a_time(labels: RowSource) -> int:
    """Return how many labels are read at a time before the pass: those of whole chunks."""
    return -(-max(1, _LABEL_BYTES // labels.row_bytes) // labels.unit) * labels.unit


def decoded_once(rows: Rows, allowed: int) -> tuple[Rows, int]:
    """Return rows with their labels in memory, for passes that would decode chunks again.

    Labels that are in memory already stay as they are, and so do those that no codes of a byte or
    two stand for, or too many for the budget.

    Parameters
    ----------
    rows : Rows
        Sources that this process reads.
    allowed : int
        The budget in bytes.

    Returns
    -------
    rows : Rows
    held : int
        Bytes that the labels take.
    """
    labels = rows.y
    if labels.read_as_views:
        return rows, 0
    # Reading them again beside the rows may take more than keeping them.
    most = max(allowed // 16, labels.reading_bytes(1))
    kept = _coded(labels, min(_HELD_BYTES, most))
    if kept is None:
        return rows, 0
    decoded = DecodedLabels.of(kept, labels.name)
    return replace(rows, y=replace(decoded, stored=labels)), kept.codes.nbytes


def _coded(labels: RowSource, most: int) -> CodedLabels | None:
    """Return all labels by codes of a byte or two; None if that is impossible, or takes too much.

    Every chunk is decoded once.
    """
    if labels.n_rows > most:
        return None
    numbers: dict[Any, int] = {}
    values: list[np.ndarray] = []
    integers = np.empty(0, np.int64)  # of all slabs so far, which are looked up in the next one
    codes: Any = np.empty(labels.n_rows, np.uint8)
    with contextlib.closing(Rows(None, labels).slabs(_labels_at_a_time(labels))) as slabs:
        for slab in slabs:
            if is_masked(slab.y) or slab.y.ndim != 1:
                return None
            part, known = slab.y, len(numbers)
            if type(part) is np.ndarray and part.dtype.kind in "biu":
                found, integers = encode(part, integers)
                part = CodedLabels(integers, found)
            elif type(part) is not CodedLabels:
                part = distinct(part)
            try:
                keys = [(type(value), value) for value in part.values.tolist()]
                found = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
            except TypeError:  # lists and the like, which are no labels
                return None
            if len(numbers) > 1 << 16:
                return None
            if len(numbers) > 1 << 8:
                codes = codes.astype(np.uint16, copy=False)
            narrow = found.astype(codes.dtype)
            codes[slab.first_row : slab.first_row + part.size] = narrow[part.codes]
            number, first = np.unique(found, return_index=True)
            values.append(part.values[first[number >= known]])
    return CodedLabels(np.concatenate(values), codes) if codes.nbytes <= most else None


def count_classes(labels: RowSource, rule: RowRule = CHECK_SUMS) -> int:
    """Return the number of different labels of rows that may count; all of them are read."""
    return int(distinct_labels(labels, rule).size)


def count_groups(groups: RowSource) -> int:
    """Return the number of different groups of rows; all of them are read."""
    found = np.empty(0, np.int64)
    for slab in Rows(None, groups=groups).slabs(_labels_at_a_time(groups)):
        found = coded_classes(group_labels(slab.groups, slab.first_row), found)[1]
    return int(found.size)


def distinct_labels(labels: RowSource, rule: RowRule = CHECK_SUMS) -> np.ndarray:
    """Return the different labels of rows that may count, sorted; all of them are read."""
    classes = np.empty(0, np.int64)
    for slab in Rows(None, labels).slabs(_labels_at_a_time(labels)):
        classes = coded_classes(rule.class_labels(slab.y, slab.first_row), classes)[1]
    return classes
