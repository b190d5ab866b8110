"""Rows to moments on dask: each part is a task, and parts are merged in a fixed tree."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import dask
import numpy as np
from dask.delayed import delayed

from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster, cuts, tasks
from streamgda.engine.dask.blocks import blocks_of
from streamgda.engine.dask.collections import aligned
from streamgda.engine.dask.cuts import Range, evenly_spaced
from streamgda.engine.dask.merge_tree import TreeJournal, halves, joined, missing
from streamgda.engine.fingerprints import REMEDY, checksum, describe
from streamgda.engine.progress import reporter
from streamgda.engine.reading import resumed
from streamgda.errors import CheckpointError, InvalidDataError
from streamgda.moments import Moments
from streamgda.rows import FIELDS, Rows

_CLASSES_EXPECTED = 10
_SAMPLED = 17  # parts of a store, some rows of which are compared when a pass is resumed
_EVALUATED_AGAIN = 4  # parts of a dask collection that are
_NAMED = "{}, by the name that dask gives it"


@dataclass(frozen=True)
class Parts:
    """The parts of a pass, and the tasks of each.

    Attributes
    ----------
    cuts : list of tuple of int
        Ranges of blocks, or of rows, of each part.
    rows : list of int
        Rows of each part; 0 if they are unknown.
    total : int or None
        Rows of all parts, if they are known.
    accumulate : callable
        Called as ``accumulate(work, part, start, stop)``; returns a delayed `PartMoments`.
    fingerprint : callable
        Called as ``fingerprint(number, sampled)``; returns a delayed `PartFingerprint`.
    what : str
        What the cuts count, in error messages.
    """

    cuts: list[Range]
    rows: list[int]
    total: int | None
    accumulate: Callable[[tasks.PartWork, tasks.Part, int, int], Any]
    fingerprint: Callable[[int, bool], Any]
    what: str


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
    sources = rows.sources
    columns = aligned(*sources)
    X, described = columns[0], {}
    for source, column in zip(sources, columns, strict=True):
        described[source.name] = f"shape {column.shape}, {column.dtype}"
        described[_NAMED.format(source.name)] = column.name
    state, _ = asked.empty()._bytes(_CLASSES_EXPECTED, X.shape[1])
    row_bytes = X.shape[1] * X.dtype.itemsize
    read = iter(columns)
    named = {field: next(read) for field in FIELDS if getattr(rows, field) is not None}
    blocks = blocks_of(named)
    parts = _parts_of_blocks("block", blocks, list(X.chunks[0]), row_bytes, state)
    merged = _accumulate_blocks(asked, parts, described)
    # Rows of weight zero, unlabelled and invalid ones are no reason for an error.
    if merged.n_features is None and rows.weight is None and not asked.rule.selects:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def accumulate_partitions(asked: Accumulation, partitions: list[Any]) -> Moments:
    """Accumulate delayed objects, each of which evaluates to ``(X, y)`` or ``(X, y, weight)``.

    Parameters, results and errors are those of `accumulate`.
    """
    keys = np.array([str(partition.key) for partition in partitions])
    described = {_NAMED.format("X"): f"checksum {checksum(keys)}"}
    unknown = [math.nan] * len(partitions)
    parts = _parts_of_blocks("partition", blocks_of(partitions), unknown, 0, 0)
    merged = _accumulate_blocks(asked, parts, described)
    if merged.n_features is None and not asked.rule.selects:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")
    return merged


def _parts_of_blocks(
    name: str,
    made: tuple[list[Any], dict[Any, Any]],
    sizes: list[float],
    row_bytes: int,
    state: int,
) -> Parts:
    """Return parts of neighbouring blocks of these numbers of rows, NaN if they are unknown."""
    blocks, elsewhere = made
    total = None if np.isnan(sizes).any() else int(sum(sizes))
    bounds = [0, *np.nancumsum(sizes).astype(int).tolist()]
    named = [
        (f"{name} {number}", None if total is None else bounds[number], block)
        for number, block in enumerate(blocks)
    ]
    weights = [cuts.PART_BYTES if math.isnan(n) else int(n) * row_bytes for n in sizes]
    ranges = cuts.cut_blocks(weights, state)

    def of_blocks(function: Callable[..., Any], start: int, stop: int) -> Any:
        mine = named[start:stop]
        keys = sorted({key for _, _, block in mine for key in block.needs}, key=str)
        task = delayed(partial(function, mine, keys), pure=False)
        return task([elsewhere[key] for key in keys])

    return Parts(
        cuts=ranges,
        rows=[bounds[stop] - bounds[start] for start, stop in ranges],
        total=total,
        accumulate=lambda work, part, start, stop: of_blocks(
            partial(tasks.accumulate_blocks, work, part), start, stop
        ),
        fingerprint=lambda number, _: of_blocks(tasks.fingerprint_blocks, *ranges[number]),
        what=f"{name}s",
    )


def _accumulate_blocks(asked: Accumulation, parts: Parts, described: Mapping[str, str]) -> Moments:
    journal = None
    if asked.checkpoint is not None:
        journal = _journal(asked, "dask", described)
        journal.begin(parts.cuts, {})
        again = evenly_spaced([*journal.fingerprints], _EVALUATED_AGAIN)
        _check(journal, parts, dict.fromkeys(again, True))
    return _merged(asked, parts, journal)


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
    X, journal = rows.X, None
    if asked.checkpoint is not None:
        described = {source.name: describe(source) for source in rows.sources}
        journal = _journal(asked, "workers", described)
        if journal.kept is not None:
            slab_rows = resumed(journal.slab_rows, slab_rows)
    state, _ = asked.empty()._bytes(_CLASSES_EXPECTED, X.shape[1])
    most = cuts.part_bytes(X.n_rows * X.row_bytes, state) // X.row_bytes
    ranges = cuts.cut_rows(X.n_rows, slab_rows, most)

    def window(start: int, stop: int) -> Rows:
        return rows.each(lambda source: tasks.window(source, start, stop))

    def of_window(work: tasks.PartWork, part: tasks.Part, start: int, stop: int) -> Any:
        task = partial(tasks.accumulate_rows, work, part, start, slab_rows, window(start, stop))
        return delayed(task, pure=False)()

    def fingerprint(number: int, sampled: bool) -> Any:
        read = window(*ranges[number])
        task = partial(tasks.fingerprint_window, slab_rows, sampled, read)
        return delayed(task, pure=False)()

    sizes = [stop - start for start, stop in ranges]
    parts = Parts(ranges, sizes, X.n_rows, of_window, fingerprint, "rows")
    if journal is not None:
        journal.begin(ranges, {"slab_rows": slab_rows})
        sampled = evenly_spaced([*journal.fingerprints], _SAMPLED)
        _check(journal, parts, {number: number in sampled for number in journal.fingerprints})
    return _merged(asked, parts, journal)


def _journal(asked: Accumulation, reader: str, rows: Mapping[str, str]) -> TreeJournal:
    """Return the journal of a pass, with what its file holds."""
    description = asked.description(**{"read by": reader}, **rows)
    journal = TreeJournal(asked.checkpoint, asked.checkpoint_every, description)
    journal.name_features(asked.feature_names)
    if asked.rule.action == "raise":
        journal.refuse_skipped()
    return journal


def _merged(asked: Accumulation, parts: Parts, journal: TreeJournal | None) -> Moments:
    """Return the moments of all parts, merged in a tree that the scheduler does not affect."""
    topic = cluster.new_topic() if asked.progress else ""
    merge = delayed(tasks.merge, pure=False)
    kept = journal is not None
    work = tasks.PartWork(replace(asked, progress=False, checkpoint=None), kept)
    nodes: dict[Range, Any] = {}

    def node(span: Range) -> Any:
        start, stop = span
        merged = [*map(node, halves(span))] if stop - start > 1 else []
        # Of the tasks that can run, the first parts do: dask would start in the middle.
        with dask.annotate(priority=-start):
            if merged:
                nodes[span] = merge(*merged)
            else:
                nodes[span] = parts.accumulate(work, tasks.Part(start, topic), *parts.cuts[start])
        return nodes[span]

    whole = 0, len(parts.cuts)
    held = {} if journal is None else journal.values
    wanted = missing(whole, held)
    roots = [node(span) for span in wanted]
    sizes = {nodes[n, n + 1].key: size for n, size in enumerate(parts.rows) if (n, n + 1) in nodes}
    first = sum(parts.rows) - sum(sizes.values())
    if parts.total is None:
        first = int(sum(part.moments.class_count.sum() for part in held.values()))
    if journal is not None and wanted:
        journal.try_place()
    watching = {} if journal is None else _watching(journal, nodes, wanted)
    with (
        reporter(asked.progress, parts.total, "accumulating", first=first) as report,
        journal or contextlib.nullcontext(),
    ):
        found = cluster.compute(roots, sizes, topic, lambda done: report(first + done), **watching)
        values = dict(zip(wanted, found, strict=True))
        if journal is not None:
            journal.values.update(values)
            values = journal.values
    return joined(whole, values, tasks.merge)[whole].moments


def _watching(
    journal: TreeJournal, nodes: Mapping[Range, Any], wanted: list[Range]
) -> dict[str, Any]:
    """Return the options of `cluster.compute` that let a journal keep results that are complete."""
    spans = {task.key: span for span, task in nodes.items()}

    def ended(key: str, fetch: Callable[[], Any]) -> list[str]:
        return [nodes[span].key for span in journal.ended(spans[key], fetch)]

    inner = [task for span, task in nodes.items() if span not in wanted]
    return {"inner": inner, "ended": ended}


def _check(journal: TreeJournal, parts: Parts, compared: Mapping[int, bool]) -> None:
    """Compare completed parts with their fingerprints.

    Parameters
    ----------
    compared : dict of int to bool
        Numbers of parts, and whether their rows are compared besides the labels.

    Raises
    ------
    CheckpointError
        If they differ.
    """
    tasks_of = [parts.fingerprint(number, sampled) for number, sampled in compared.items()]
    found = cluster.compute(tasks_of) if tasks_of else []
    held = journal.fingerprints
    for number, (labels, rows) in zip(compared, found, strict=True):
        start, stop = parts.cuts[number]
        where = f"those of {parts.what} {start} to {stop - 1} have changed. {REMEDY}"
        if labels != held[number][0]:
            raise CheckpointError(f"{journal} was started with other labels or weights: {where}")
        if rows not in (0, held[number][1]):
            raise CheckpointError(f"{journal} was started with other rows: {where}")
