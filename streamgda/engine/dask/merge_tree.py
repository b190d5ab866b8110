"""Rows to moments on dask: each part is a task, and parts are merged in a fixed tree.

Parts are merged in pairs, pairs in pairs, and so on: a range of parts is halved at the largest
power of two below their number. So few states are held, few are waited for, and the order depends
on the number of parts only. For progress or a checkpoint, ranges of some parts are fetched when
they are complete, and merged further here, in the same tree; the checkpoint keeps these.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import dask
import numpy as np
from dask.delayed import delayed

from streamgda.engine.accumulate_checkpoint import Journal
from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster
from streamgda.engine.dask.collections import in_blocks, name_of
from streamgda.engine.dask.parts import (
    PART_BYTES,
    PART_STATES,
    PartMoments,
    Parts,
    Range,
    accumulate_part,
    block_parts,
    fingerprint_of,
    merge,
    stored_parts,
)
from streamgda.engine.fingerprints import REMEDY, PartFingerprint, checksum, describe, refuse_others
from streamgda.engine.plan import CLASSES_EXPECTED, plan_classes, plan_tasks
from streamgda.engine.progress import reporter
from streamgda.engine.reading import resumed
from streamgda.errors import CheckpointError, InvalidDataError
from streamgda.moments import Moments
from streamgda.rows import Rows
from streamgda.runtime.memory import allowed_bytes

Value = TypeVar("Value")

_FETCHED_BITS = 6  # binary digits of the number of ranges that are fetched, at most
_NAMED = "{}, by the name that dask gives it"


def accumulate(asked: Accumulation, rows: Rows) -> Moments:
    """Accumulate dask collections on the active scheduler or client.

    Parameters
    ----------
    asked : Accumulation
    rows : Rows
        Sources, at least one a dask collection. If chunk sizes are unknown, all are collections
        with the same blocks.

    Returns
    -------
    Moments

    Raises
    ------
    InvalidDataError
        If shapes or blocks do not fit each other.
    ClusterError
        If the cluster fails.
    """
    described = {}
    for source in rows.sources:
        described[source.name] = describe(source)
        if asked.checkpoint is not None:
            described[_NAMED.format(source.name)] = name_of(source)
    journal = asked.journal(TreeJournal, "dask", described)
    columns, beside = in_blocks(rows)
    X = columns["X"]
    labels = replace(beside, y=rows.y) if beside.y is None else beside
    state, row_bytes = _state_bytes(asked, X.shape[1], labels), X.shape[1] * X.dtype.itemsize
    parts = block_parts("block", columns, X.chunks[0], row_bytes, state, beside, asked.progress)
    with _few_tasks(asked, X.shape[1], labels, len(parts.cuts)):
        moments = _accumulated(asked, parts, journal, rows.weight is not None)
    if asked.again is None and moments._n_features_in not in (None, X.shape[1]):
        raise InvalidDataError(
            f"X has {X.shape[1]} columns by its shape, and its blocks have "
            f"{moments._n_features_in}; declare the shape that they have (chunks= of map_blocks)"
        )
    return moments


def accumulate_partitions(asked: Accumulation, partitions: list[Any]) -> Moments:
    """Accumulate delayed objects, each of which evaluates to ``(X, y)`` or ``(X, y, weight)``.

    Parameters, results and errors are those of `accumulate`.
    """
    described = {}
    if asked.checkpoint is not None:
        keys = np.array([str(partition.key) for partition in partitions])
        described[_NAMED.format("X")] = f"checksum {checksum(keys)}"
    parts = block_parts("partition", partitions, [math.nan] * len(partitions), 0, 0)
    return _accumulated(asked, parts, asked.journal(TreeJournal, "dask", described), False)


def accumulate_store(asked: Accumulation, slab_rows: int, rows: Rows) -> Moments:
    """Accumulate rows in a store that workers read themselves, slab by slab.

    Parameters
    ----------
    asked : Accumulation
    slab_rows : int
        Rows that a task reads at a time.
    rows : Rows
        Sources; other processes can open that of `X`. Others that only this process can read are
        sent.

    Returns
    -------
    Moments

    Raises
    ------
    ClusterError
        If the cluster fails, or a worker cannot open the store.
    """
    described = {source.name: describe(source) for source in rows.sources}
    journal = asked.journal(TreeJournal, "workers", described)
    if journal.kept is not None:
        slab_rows = resumed(journal.slab_rows, slab_rows)
    parts = stored_parts(rows, slab_rows, _state_bytes(asked, rows.X.shape[1], rows))
    return _accumulated(asked, parts, journal, True, slab_rows=slab_rows)


def _state_bytes(asked: Accumulation, n_features: int, rows: Rows) -> int:
    """Return the bytes of moments of the classes of rows, where their number makes a difference."""
    moments = asked.empty()
    state = moments._bytes(CLASSES_EXPECTED, n_features)[0]
    if rows.y is None or math.isnan(rows.y.n_rows):
        return state
    narrow = rows.y.dtype is not None and rows.y.dtype.itemsize == 1
    most = moments._bytes(min(rows.y.n_rows, 256) if narrow else rows.y.n_rows, n_features)[0]
    if PART_STATES[0] * most <= PART_BYTES:
        return state
    return moments._bytes(_n_classes(asked, rows), n_features)[0]


def _n_classes(asked: Accumulation, rows: Rows) -> int:
    """Return the number of classes, from the labels if reading them needs no dask."""
    if rows.y is None:
        return 1
    return CLASSES_EXPECTED if rows.y.executor == "dask" else plan_classes(rows.y, asked.rule)


def _allowed(asked: Accumulation) -> int | None:
    return None if asked.max_memory is None else allowed_bytes(asked.max_memory)


@contextlib.contextmanager
def _few_tasks(asked: Accumulation, n_features: int, rows: Rows, n_parts: int) -> Iterator[None]:
    """Let dask's threads run no more tasks than `max_memory` has room for; on a cluster, check one.

    Raises
    ------
    MemoryBudgetError
        If there is no room for one.
    """
    allowed = _allowed(asked)
    if allowed is None:
        yield
        return
    n_tasks = plan_tasks(
        asked.empty(),
        n_classes=_n_classes(asked, rows),
        n_features=n_features,
        n_parts=n_parts,
        allowed=allowed,
    )
    with cluster.at_most(n_tasks):
        yield


def _accumulated(
    asked: Accumulation, parts: Parts, journal: TreeJournal, may_be_empty: bool, **details: Any
) -> Moments:
    """Return the moments of all parts, merged in a tree that the scheduler does not affect."""
    journal.begin(parts.cuts, details)
    _compare(journal, parts)
    work = replace(asked, progress=False, checkpoint=None)
    merging = delayed(merge, pure=False)

    def counted(span: Range) -> int:
        if parts.total is None:
            return int(journal.values[span].moments.class_count.sum())
        return sum(parts.rows[slice(*span)])

    n_threads, n_evaluated = cluster.n_threads(), 0
    done = sum(map(counted, journal.values))
    with reporter(asked.progress, parts.total, "evaluating the first blocks") as report:

        def were_evaluated(n_rows: int) -> None:
            nonlocal n_evaluated
            n_evaluated += n_rows
            report(max(done, n_evaluated))

        pieces = parts.pieces(n_threads)
        evaluated = cluster.begun(pieces, parts.evaluation, n_threads, were_evaluated)

    def task(span: Range) -> Any:
        start, stop = span
        halved = [*map(task, halves(span))] if stop - start > 1 else []
        # Of the tasks that can run, the first parts do: dask would start in the middle.
        with dask.annotate(priority=-start):
            if halved:
                return merging(*halved)
            return parts.task(accumulate_part, start, work, journal.keeps, evaluated=evaluated)

    most = len(parts.cuts)
    if journal.keeps or asked.progress:
        most = 1 << max(0, (most - 1).bit_length() - _FETCHED_BITS)
    wanted = missing(journal.whole, journal.values, most)
    if wanted:
        journal.try_place()
    # What a function was told counts on; bars count rows that are added.
    told = n_evaluated if callable(asked.progress) else 0
    with reporter(asked.progress, parts.total, "accumulating", first=done) as report, journal:

        def ended(number: int, part: PartMoments) -> None:
            nonlocal done
            journal.values[wanted[number]] = part
            done += counted(wanted[number])
            journal.merge()
            report(max(done, told))

        try:
            cluster.compute([*map(task, wanted)], ended)
        finally:
            evaluated.clear()  # or the traceback of an error would hold results
    merged = journal.values[journal.whole].moments
    # Rows of weight zero, unlabelled and invalid ones are no reason for an error.
    if merged.n_features is None and not may_be_empty and not asked.rule.selects:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def _compare(journal: TreeJournal, parts: Parts) -> None:
    """Compare completed parts with their fingerprints; raise CheckpointError if they differ."""
    held = journal.fingerprints
    compared = parts.compared([*held])
    tasks = [parts.task(fingerprint_of, *sampled) for sampled in compared.items()]
    found = cluster.compute(tasks) if tasks else []
    for number, (labels, rows) in zip(compared, found, strict=True):
        start, stop = parts.cuts[number]
        where = f"those of {parts.what} {start} to {stop - 1} have changed. {REMEDY}"
        if labels != held[number][0]:
            raise CheckpointError(f"{journal} was started with other labels or weights: {where}")
        if rows not in (0, held[number][1]):
            raise CheckpointError(f"{journal} was started with other rows: {where}")


# --- the tree -------------------------------------------------------------------------------------


def halves(parts: Range) -> tuple[Range, Range]:
    """Return the two ranges that are merged to a range of two parts or more.

    Examples
    --------
    >>> halves((8, 11))
    ((8, 10), (10, 11))
    """
    start, stop = parts
    middle = start + (1 << (stop - start - 1).bit_length() - 1)
    return (start, middle), (middle, stop)


def missing(parts: Range, held: Collection[Range], most: int) -> list[Range]:
    """Return the largest ranges of the tree that contain none of those held, of at most some parts.

    Examples
    --------
    >>> missing((0, 11), {(0, 2), (2, 3), (8, 10)}, 11)
    [(3, 4), (4, 8), (10, 11)]
    >>> missing((0, 11), {(0, 2), (2, 3), (8, 10)}, 2)
    [(3, 4), (4, 6), (6, 8), (10, 11)]
    """
    if parts in held:
        return []
    free = not any(parts[0] <= start and stop <= parts[1] for start, stop in held)
    if free and parts[1] - parts[0] <= most:
        return [parts]
    return [one for half in halves(parts) for one in missing(half, held, most)]


def joined(
    parts: Range, values: Mapping[Range, Value], merge: Callable[[Value, Value], Value]
) -> dict[Range, Value]:
    """Return values of ranges of the tree, with the values of both halves merged.

    Examples
    --------
    >>> joined((0, 4), {(0, 1): "a", (1, 2): "b", (2, 3): "c"}, lambda a, b: a + b)
    {(0, 2): 'ab', (2, 3): 'c'}
    """
    if parts in values:
        return {parts: values[parts]}
    if parts[1] - parts[0] < 2:
        return {}
    both = halves(parts)
    found = joined(both[0], values, merge) | joined(both[1], values, merge)
    return {parts: merge(*found.values())} if (*found,) == both else found


class TreeJournal(Journal):
    """Moments of parts that are computed elsewhere, as ranges of the tree.

    Parameters
    ----------
    path, every, description
        See `Journal`.

    Attributes
    ----------
    whole : tuple of int
        The range of all parts.
    values : dict
        Moments by ranges of parts.
    """

    def __init__(self, path: Any, every: float, description: Mapping[str, str]) -> None:
        super().__init__(path, every, description)
        self.whole: Range = (0, 0)
        self.values: dict[Range, PartMoments] = {}
        self._cut: dict[str, Any] = {}

    @property
    def fingerprints(self) -> dict[int, PartFingerprint]:
        """Fingerprints of the parts that are held here, by their numbers."""
        return {
            number: fingerprint
            for (start, stop), part in sorted(self.values.items())
            for number, fingerprint in zip(range(start, stop), part.fingerprints, strict=True)
        }

    @property
    def slab_rows(self) -> int:
        """Rows of a slab in the run that is resumed."""
        cut = (self.kept or {}).get("cut")
        slab_rows = cut.get("slab_rows") if isinstance(cut, dict) else None
        if isinstance(slab_rows, int) and slab_rows > 0:
            return slab_rows
        raise CheckpointError(f"{self} is damaged: its slabs have {slab_rows} rows. {REMEDY}")

    def begin(self, cuts: list[Range], details: Mapping[str, Any]) -> None:
        """Resume with the content of the file, or start.

        Parameters
        ----------
        cuts : list of tuple of int
            Ranges of rows or blocks of the parts.
        details : dict
            Everything else that determines how rows are cut, as JSON.

        Raises
        ------
        CheckpointError
            If the parts were cut differently, or the file is damaged.
        """
        self.whole = 0, len(cuts)
        if not self.keeps:
            return
        self.kind = f"{{:,}} of {len(cuts):,} parts"
        parts = f"{len(cuts)}, with the checksum {checksum(np.array(cuts))}"
        self._cut = {"parts": parts, **details}
        if self.kept is None:
            return
        try:
            cut, seen = dict(self.kept["cut"]), dict(self.kept["parts"])
            for name, moments in self.held.items():
                start, stop = map(int, name.split("-"))
                each = tuple((int(labels), int(rows)) for labels, rows in seen[name])
                self.values[start, stop] = PartMoments(moments, each)
            # Ranges that are not of the tree, or within others, would be missing besides.
            ranges = [*self.values, *missing(self.whole, self.values, len(cuts))]
            whole = sum(stop - start for start, stop in ranges) == len(cuts)
            sound = whole and self.done == len(self.fingerprints) > 0
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self} is damaged: {error!r}. {REMEDY}") from None
        refuse_others(cut, self._cut, str(self))
        if not sound:
            raise CheckpointError(
                f"{self} is damaged: it holds {[*self.held]} of {len(cuts)} parts. {REMEDY}"
            )

    def merge(self) -> None:
        """Merge the ranges that are next to each other in the tree; write them if it is time."""
        self.values = joined(self.whole, self.values, merge)
        if self.due:
            self.keep()

    def keep(self) -> None:
        """Write the moments, unless the checkpoint already has them."""
        self.done = sum(stop - start for start, stop in self.values)
        names = {parts: "{}-{}".format(*parts) for parts in self.values}
        seen = {name: self.values[parts].fingerprints for parts, name in names.items()}
        held = {name: self.values[parts].moments for parts, name in names.items()}
        self._write({"cut": self._cut, "parts": seen}, held)
