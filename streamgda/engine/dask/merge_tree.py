"""Rows to moments on dask: each part is a task, and parts are merged in a fixed tree.

Parts are merged in pairs, pairs in pairs, and so on: a range of parts is halved at the largest
power of two below their number. So few states are held, few are waited for, and the order depends
on the number of parts only. The checkpoint keeps the largest ranges that are complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import dask
import numpy as np
from dask.delayed import delayed

from streamgda.engine.accumulate_checkpoint import Journal
from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster
from streamgda.engine.dask.collections import aligned
from streamgda.engine.dask.parts import (
    PartMoments,
    Parts,
    Range,
    accumulate_part,
    block_parts,
    fingerprint_of,
    merge,
    stored_parts,
)
from streamgda.engine.fingerprints import (
    REMEDY,
    PartFingerprint,
    checksum,
    describe,
    refuse_others,
)
from streamgda.engine.progress import reporter
from streamgda.engine.reading import resumed
from streamgda.errors import CheckpointError, InvalidDataError
from streamgda.moments import Moments
from streamgda.rows import Rows

Value = TypeVar("Value")

_CLASSES_EXPECTED = 10
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
    columns, described = aligned(rows), {}
    for source, column in zip(rows.sources, columns.values(), strict=True):
        described[source.name] = f"shape {column.shape}, {column.dtype}"
        described[_NAMED.format(source.name)] = column.name
    X = columns["X"]
    row_bytes = X.shape[1] * X.dtype.itemsize
    state = _state_bytes(asked, X.shape[1])
    parts = block_parts("block", columns, X.chunks[0], row_bytes, state)
    return _accumulated(asked, parts, _journal(asked, "dask", described), rows.weight is not None)


def accumulate_partitions(asked: Accumulation, partitions: list[Any]) -> Moments:
    """Accumulate delayed objects, each of which evaluates to ``(X, y)`` or ``(X, y, weight)``.

    Parameters, results and errors are those of `accumulate`.
    """
    described = {}
    if asked.checkpoint is not None:
        keys = np.array([str(partition.key) for partition in partitions])
        described[_NAMED.format("X")] = f"checksum {checksum(keys)}"
    parts = block_parts("partition", partitions, [math.nan] * len(partitions), 0, 0)
    return _accumulated(asked, parts, _journal(asked, "dask", described), False)


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
    journal = _journal(asked, "workers", described)
    if journal.kept is not None:
        slab_rows = resumed(journal.slab_rows, slab_rows)
    parts = stored_parts(rows, slab_rows, _state_bytes(asked, rows.X.shape[1]))
    return _accumulated(asked, parts, journal, True, slab_rows=slab_rows)


def _state_bytes(asked: Accumulation, n_features: int) -> int:
    return asked.empty()._bytes(_CLASSES_EXPECTED, n_features)[0]


def _journal(asked: Accumulation, reader: str, rows: Mapping[str, str]) -> TreeJournal:
    """Return the journal of a pass, with what its file holds."""
    description = asked.description(**{"read by": reader}, **rows)
    journal = TreeJournal(asked.checkpoint, asked.checkpoint_every, description)
    journal.name_features(asked.feature_names)
    if asked.rule.action == "raise":
        journal.refuse_skipped()
    return journal


def _accumulated(
    asked: Accumulation, parts: Parts, journal: TreeJournal, may_be_empty: bool, **details: Any
) -> Moments:
    """Return the moments of all parts, merged in a tree that the scheduler does not affect."""
    journal.begin(parts.cuts, details)
    _compare(journal, parts)
    work = replace(asked, progress=False, checkpoint=None)
    merging = delayed(merge, pure=False)
    nodes: dict[Range, Any] = {}

    def node(span: Range) -> Any:
        start, stop = span
        halved = [*map(node, halves(span))] if stop - start > 1 else []
        # Of the tasks that can run, the first parts do: dask would start in the middle.
        with dask.annotate(priority=-start):
            if halved:
                nodes[span] = merging(*halved)
            else:
                nodes[span] = parts.task(accumulate_part, start, work, journal.keeps)
        return nodes[span]

    wanted = missing(journal.whole, journal.values)
    roots = [node(span) for span in wanted]
    if wanted:
        journal.try_place()
    spans = {task.key: span for span, task in nodes.items()}
    leaves = {(n, n + 1) for n in range(len(parts.cuts))} & nodes.keys()
    done = sum(parts.rows) - sum(parts.rows[n] for n, _ in leaves)
    counters: list[Any] = []  # of rows whose number is not known beforehand
    if parts.total is None:
        done = sum(map(_counted, journal.values.values()))
        counting = delayed(_counted, pure=False)
        counters = [counting(nodes[leaf]) for leaf in leaves if asked.progress]
    with reporter(asked.progress, parts.total, "accumulating", first=done) as report, journal:

        def ended(key: str, fetch: Callable[[], Any]) -> Iterable[str]:
            nonlocal done
            span = spans.get(key)
            n_rows = fetch() if span is None else parts.rows[span[0]]
            if span is None or (n_rows and span in leaves):
                done += n_rows
                report(done)
            halved = () if span is None else journal.ended(span, fetch)
            return [nodes[half].key for half in halved]

        watched = [*nodes] if journal.keeps else [*leaves] if asked.progress else []
        inner = [nodes[span] for span in reversed(watched) if span not in wanted]
        found = cluster.compute([*roots, *counters], ended if watched else None, inner)
        journal.values.update(zip(wanted, found, strict=False))
    merged = joined(journal.whole, journal.values, merge)[journal.whole].moments
    # Rows of weight zero, unlabelled and invalid ones are no reason for an error.
    if merged.n_features is None and not may_be_empty and not asked.rule.selects:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def _counted(part: PartMoments) -> int:
    return int(part.moments.class_count.sum())


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


def missing(parts: Range, held: Collection[Range]) -> list[Range]:
    """Return the largest ranges of the tree that contain none of those held.

    Examples
    --------
    >>> missing((0, 11), {(0, 2), (2, 3), (8, 10)})
    [(3, 4), (4, 8), (10, 11)]
    """
    if not any(parts[0] <= start and stop <= parts[1] for start, stop in held):
        return [parts]
    if parts in held:
        return []
    return [one for half in halves(parts) for one in missing(half, held)]


def largest(parts: Range, held: Collection[Range]) -> list[Range]:
    """Return the ranges of the tree that are held, without those inside of others.

    Examples
    --------
    >>> largest((0, 8), {(0, 2), (2, 4), (0, 4), (4, 5), (6, 8)})
    [(0, 4), (4, 5), (6, 8)]
    """
    if parts in held:
        return [parts]
    if parts[1] - parts[0] < 2:
        return []
    return [one for half in halves(parts) for one in largest(half, held)]


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
    """Moments of parts that are computed elsewhere, fetched when they are to be written.

    Each time, at most as many ranges are fetched as the number of parts has binary digits, the
    largest of those that are complete: that is all of them if parts are completed in order.

    Parameters
    ----------
    path, every, description
        See `Journal`.

    Attributes
    ----------
    whole : tuple of int
        The range of all parts.
    values : dict
        Moments that are held here, by ranges of parts.
    """

    def __init__(self, path: Any, every: float, description: Mapping[str, str]) -> None:
        super().__init__(path, every, description)
        self.whole: Range = (0, 0)
        self.values: dict[Range, PartMoments] = {}
        self._cut: dict[str, Any] = {}
        self._fetches: dict[Range, Callable[[], PartMoments]] = {}

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
            sound = self.done == len(self.fingerprints) > 0
        except (LookupError, TypeError, ValueError) as error:
            raise CheckpointError(f"{self} is damaged: {error!r}. {REMEDY}") from None
        refuse_others(cut, self._cut, str(self))
        if not sound or {*largest(self.whole, self.values)} != self.values.keys():
            raise CheckpointError(
                f"{self} is damaged: it holds {[*self.held]} of {len(cuts)} parts. {REMEDY}"
            )

    def ended(self, parts: Range, fetch: Callable[[], PartMoments]) -> Iterable[Range]:
        """Note that a range can be fetched; return the ranges that need not be held any longer."""
        if not self.keeps:
            return ()
        self._fetches[parts] = fetch
        merged = halves(parts) if parts[1] - parts[0] > 1 else ()
        for half in merged:
            self._fetches.pop(half, None)
        if self.due:
            self.keep()
        return merged

    def keep(self) -> None:
        """Fetch the largest complete ranges, and write them."""
        if not self.keeps:
            return
        found = largest(self.whole, self.values.keys() | self._fetches.keys())
        if sum(stop - start for start, stop in found) == self.done:
            return
        coming = sorted((a - b, a) for a, b in found if (a, b) not in self.values)
        for minus_size, start in coming[: self.whole[1].bit_length()]:
            parts = start, start - minus_size
            self.values[parts] = self._fetches.pop(parts)()
        self.values = joined(self.whole, self.values, merge)
        self.done = sum(stop - start for start, stop in self.values)
        names = {parts: "{}-{}".format(*parts) for parts in self.values}
        seen = {name: self.values[parts].fingerprints for parts, name in names.items()}
        held = {name: self.values[parts].moments for parts, name in names.items()}
        self._write({"cut": self._cut, "parts": seen}, held)

    def __exit__(self, *error: Any) -> None:
        try:
            super().__exit__(*error)
        finally:
            self._fetches.clear()  # so that the cluster need not hold results any longer
