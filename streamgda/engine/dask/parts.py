"""Parts of the rows: ranges of a store, or blocks that dask evaluates; and the tasks that add them.

The cuts into parts depend on the rows and on the size of the moments, never on the scheduler or
the number of its workers. These decide only which tasks evaluate the blocks of a part: the one
that adds them, or several. A task never changes its arguments: it may run twice, and each row must
count once.
"""

from __future__ import annotations

import math
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, ClassVar

import dask
import numpy as np
from dask.delayed import delayed
from dask.sizeof import sizeof
from dask.utils import parse_bytes

from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster
from streamgda.engine.dask.blocks import Columns, LayeredBlocks, ListedBlocks, blocks_of
from streamgda.engine.fingerprints import (
    NO_ROWS,
    PartFingerprint,
    checksum,
    fingerprint_part,
    fingerprint_rows,
)
from streamgda.engine.progress import Progress, reporter
from streamgda.errors import InvalidDataError, sendable
from streamgda.moments import Moments
from streamgda.rows import FIELDS, Rows, as_source
from streamgda.rows.sources import RowSource, Slab
from streamgda.runtime import threads

# A part has enough rows to be worth a task: this many bytes; or several times the bytes of the
# moments, which are moved to be merged. With many parts rows are cut finer, for many workers, and
# with very many parts coarser, to keep the scheduler quick.
PART_BYTES = 1 << 26
PART_STATES = (4, 16)
_MANY_PARTS = 1 << 6
MOST_PARTS = 1 << 13
SCORED_BYTES = 1 << 23  # of a part that is scored: more work for each row, and nothing to merge

_TASKS_A_THREAD = 8  # that evaluate costly blocks
_COSTLY = 0.01, 1e-8  # seconds of an evaluation, and seconds of each byte, that are worth a task
_SAMPLED = 17  # parts of a store, some rows of which are compared when a pass is resumed
_EVALUATED_AGAIN = 4  # parts of a dask collection that are

Range = tuple[int, int]  # the first, and one past the last
NOTHING_BESIDE = Rows(None)
NONE_EVALUATED: Mapping[Range, Any] = {}


# --- cuts -----------------------------------------------------------------------------------------


def part_bytes(total: int, state: int) -> int:
    """Return the bytes of rows in a part, of `total` bytes and with moments of `state` bytes.

    dask's configuration may say otherwise: ``dask.config.set({"streamgda.part-bytes": "8 MiB"})``.
    """
    given = dask.config.get("streamgda.part-bytes", None)
    if given is not None:
        return max(1, parse_bytes(given))
    least, most = (states * state for states in PART_STATES)
    states = min(most, max(least, total // _MANY_PARTS))
    return max(PART_BYTES, states, total // MOST_PARTS)


def cut_blocks(sizes: list[int], enough: int) -> list[Range]:
    """Return ranges of neighbouring blocks that have together about `enough` bytes."""
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


def evenly_spaced(numbers: list[int], most: int) -> list[int]:
    """Return at most `most` of the numbers, the first and the last among them."""
    places = np.linspace(0, len(numbers) - 1, most).astype(int)
    return sorted({numbers[place] for place in places}) if numbers else []


# --- parts ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredPart:
    """Rows of a store that a task reads itself, slab by slab.

    Attributes
    ----------
    rows : Rows
        Windows of the sources; those that only this process can read hold their values.
    first_row : int
        Number of the first row.
    slab_rows : int
        Rows that the task reads at a time.
    """

    rows: Rows
    first_row: int
    slab_rows: int
    needs: ClassVar[tuple[Any, ...]] = ()  # keys of values that are evaluated elsewhere

    def slabs(self, values: Sequence[Any]) -> Iterator[tuple[str, Slab]]:
        """Yield slabs of the rows, and their place for errors that name no row."""
        for source in self.rows.sources:
            cluster.check_opens(source.values)
        for slab in self.rows.slabs(self.slab_rows):
            yield "", slab._replace(first_row=self.first_row + slab.first_row)

    def fingerprint(self, values: Sequence[Any], sampled: bool) -> PartFingerprint:
        """Return the fingerprint of the part; 0 for its rows unless they are `sampled`."""
        labels, X = 0, self.rows.X
        for _, slab in replace(self, rows=replace(self.rows, X=None)).slabs(values):
            for array in slab.beside:
                labels = checksum(array, labels)
        if not sampled:
            return labels, 0
        cluster.check_opens(X.values)
        return labels, fingerprint_rows(X.read(0, min(self.slab_rows, X.n_rows)))


@dataclass(frozen=True)
class BlocksPart:
    """Neighbouring blocks, evaluated one after the other inside of the task that reads them.

    A task that received its blocks as arguments would hold all of them at once, and they might
    have been evaluated on other workers.

    Attributes
    ----------
    name : str
        Name of a block in errors.
    first : int
        Number of the first block.
    blocks : ListedBlocks or LayeredBlocks
    bounds : list of int or None
        Numbers of the first row of each, and of one past the last; None if they are unknown.
    beside : Rows
        Labels, groups and weights of the blocks that are no dask collections.
    """

    name: str
    first: int
    blocks: ListedBlocks | LayeredBlocks
    bounds: list[int] | None
    beside: Rows

    @property
    def needs(self) -> list[Any]:
        """Keys of values that are evaluated elsewhere."""
        return sorted(self.blocks.needs, key=str)

    def piece(self, start: int, stop: int) -> BlocksPart:
        """Return the part of some of the blocks."""
        bounds, beside = self.bounds, self.beside
        if bounds:
            first = bounds[0]
            bounds = bounds[start : stop + 1]
            beside = windows(beside, bounds[0] - first, bounds[-1] - first)
        return BlocksPart(self.name, self.first + start, self.blocks[start:stop], bounds, beside)

    def slabs(self, values: Sequence[Any]) -> Iterator[tuple[str, Slab]]:
        """Yield the blocks as slabs, and their place for errors."""
        bounds, given = self.bounds, dict(zip(self.needs, values, strict=True))
        counted = "" if bounds else " (rows counted from its first)"
        for n, block in enumerate(self.blocks):
            name = f"{self.name} {self.first + n}"
            slab = block.slab(given, name, bounds[n] if bounds else 0)
            if bounds and self.beside.sources:
                beside = self.beside.read(bounds[n] - bounds[0], bounds[n + 1] - bounds[0])
                held = {name: getattr(beside, name) for name in FIELDS[1:]}
                slab = slab._replace(
                    **{name: each for name, each in held.items() if each is not None}
                )
            yield name + counted, slab

    def fingerprint(self, values: Sequence[Any], sampled: bool) -> PartFingerprint:
        """Return the fingerprint of the part."""
        found = None
        for _, slab in self.slabs(values):
            found = fingerprint_part(found, slab) if len(slab.X) else found
        return found or NO_ROWS


@dataclass(frozen=True)
class EvaluatedPart:
    """Blocks the first of which are evaluated by other tasks.

    Attributes
    ----------
    evaluated : list of tuple
        Keys of the lists of these blocks.
    rest : BlocksPart, optional
        The other blocks.
    """

    evaluated: list[Range]
    rest: BlocksPart | None

    @property
    def needs(self) -> list[Any]:
        """Keys of values that are evaluated elsewhere."""
        return [*self.evaluated, *(self.rest.needs if self.rest else ())]

    def slabs(self, values: Sequence[Any]) -> Iterator[tuple[str, Slab]]:
        """Yield the blocks as slabs, and their place for errors."""
        n = len(self.evaluated)
        yield from chain.from_iterable(values[:n])
        if self.rest:
            yield from self.rest.slabs(values[n:])


Part = StoredPart | BlocksPart | EvaluatedPart


@dataclass(frozen=True)
class Parts:
    """The parts of a pass.

    Attributes
    ----------
    each : list of StoredPart or BlocksPart
    cuts : list of tuple of int
        Ranges of blocks, or of rows, of each part.
    rows : list of int
        Rows of each part; 0 if they are unknown.
    total : int or None
        Rows of all parts, if they are known.
    what : str
        What the cuts count, in error messages.
    elsewhere : dict
        Values that parts need, delayed, by their keys.
    """

    each: Sequence[Any]
    cuts: list[Range]
    rows: list[int]
    total: int | None
    what: str
    elsewhere: dict[Any, Any] = field(default_factory=dict)

    def pieces(self, n_threads: int) -> list[Range]:
        """Return ranges of blocks, enough for all threads, if there are too few parts."""
        most = -(-_TASKS_A_THREAD * n_threads // len(self.cuts))
        if n_threads < 2 or most < 2 or self.what == "rows":
            return []
        found: list[Range] = []
        for start, stop in self.cuts:
            n = min(most, stop - start)
            cuts = [start + (stop - start) * piece // n for piece in range(n + 1)]
            found += pairwise(cuts) if n > 1 else []
        return found

    def evaluation(self, piece: Range) -> Any:
        """Return a delayed evaluation of some blocks of a part."""
        starts = [start for start, _ in self.cuts]
        number = bisect(starts, piece[0]) - 1
        blocks = self.each[number].piece(*(block - starts[number] for block in piece))
        return _call(evaluate, blocks, self.elsewhere)

    def task(
        self,
        function: Callable[..., Any],
        number: int,
        *arguments: Any,
        evaluated: Mapping[Range, Any] = NONE_EVALUATED,
    ) -> Any:
        """Return a delayed call of a function with a part, the values it needs, and arguments.

        Parameters
        ----------
        function : callable
        number : int
            Number of the part.
        *arguments
        evaluated : dict
            Delayed lists of the first blocks of parts, by their ranges, in order.
        """
        part = self.each[number]
        start, stop = self.cuts[number]
        first = [piece for piece in evaluated if start <= piece[0] < stop]
        if first:
            done = first[-1][1]
            rest = part.piece(done - start, stop - start) if done < stop else None
            part = EvaluatedPart(first, rest)
        elsewhere = {**self.elsewhere, **evaluated} if first else self.elsewhere
        return _call(function, part, elsewhere, *arguments)

    def compared(self, numbers: list[int]) -> dict[int, bool]:
        """Return which of some parts are compared again, and whether their rows are.

        Labels in a store are narrow, and all of them are.
        """
        if self.what != "rows":
            return dict.fromkeys(evenly_spaced(numbers, _EVALUATED_AGAIN), True)
        sampled = evenly_spaced(numbers, _SAMPLED)
        return {number: number in sampled for number in numbers}


def _call(
    function: Callable[..., Any], part: Part, elsewhere: Mapping[Any, Any], *arguments: Any
) -> Any:
    # Dask does not search the arguments of partial functions for tasks and data.
    call = partial(function, part, *arguments)
    return delayed(call, pure=False)([elsewhere[key] for key in part.needs])


def stored_parts(rows: Rows, slab_rows: int, state: int) -> Parts:
    """Return parts of rows in a store, with moments of `state` bytes."""
    X = rows.X
    most = part_bytes(X.n_rows * X.row_bytes, state) // X.row_bytes
    cuts = cut_rows(X.n_rows, slab_rows, most)
    each = [StoredPart(windows(rows, *cut), cut[0], slab_rows) for cut in cuts]
    return Parts(each, cuts, [stop - start for start, stop in cuts], X.n_rows, "rows")


def windows(rows: Rows, start: int, stop: int) -> Rows:
    """Return some of the rows, to be sent: references to stores, or the rows themselves."""

    def window(source: RowSource) -> RowSource:
        if source.shareable:
            return source.window(start, stop)
        return as_source(source.read(start, stop), source.name)

    return rows.each(window)


def block_parts(
    name: str,
    columns: Columns,
    sizes: Sequence[float],
    row_bytes: int,
    state: int,
    beside: Rows = NOTHING_BESIDE,
    progress: Progress = False,
) -> Parts:
    """Return parts of blocks of these numbers of rows, NaN if they are unknown.

    Parameters
    ----------
    name : str
        Name of a block.
    columns : dict or list
        See `blocks_of`.
    sizes : sequence of float
    row_bytes : int
        Bytes of a row.
    state : int
        Bytes of the moments of a part.
    beside : Rows
        Labels, groups and weights that are no dask collections.
    progress : bool or callable
        See `reporter`.
    """
    known = not np.isnan(sizes).any()
    bounds = [0, *np.nancumsum(sizes).astype(int).tolist()]
    weights = [PART_BYTES if math.isnan(n) else int(n) * row_bytes for n in sizes]
    cuts = cut_blocks(weights, part_bytes(sum(weights), state))
    rows = [bounds[stop] - bounds[start] for start, stop in cuts]
    shown = False if callable(progress) else progress
    with reporter(shown, bounds[-1] if known else None, "preparing") as report:
        blocks, elsewhere = blocks_of(columns)
        whole = BlocksPart(name, 0, blocks, bounds if known else None, beside)
        each = []
        for start, stop in cuts:
            each.append(whole.piece(start, stop))
            report(bounds[stop])
    return Parts(each, cuts, rows, bounds[-1] if known else None, f"{name}s", elsewhere)


# --- tasks ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartMoments:
    """Moments of neighbouring parts.

    Attributes
    ----------
    moments : Moments
    fingerprints : tuple of PartFingerprint
        Of each part, if the moments are to be kept in a checkpoint.
    """

    moments: Moments
    fingerprints: tuple[PartFingerprint, ...] = ()


@sizeof.register(PartMoments)
def _(part: PartMoments) -> int:
    # Workers spill results to disk, and the scheduler places merges, by the size of results.
    return part.moments.nbytes


@sendable
def accumulate_part(
    part: Part, asked: Accumulation, kept: bool, values: Sequence[Any]
) -> PartMoments:
    """Return the moments of a part, and its fingerprint if they are to be kept."""
    moments, fingerprint = asked.empty(), None
    with threads.limit(1):
        for place, slab in part.slabs(values):
            try:
                if len(slab.X):
                    asked.add(moments, slab)
                    fingerprint = fingerprint_part(fingerprint, slab) if kept else None
            except InvalidDataError as error:
                if place:
                    error.place(place)
                raise
    return PartMoments(moments, (fingerprint or NO_ROWS,) if kept else ())


class Evaluated(list[tuple[str, Slab]]):
    """Blocks as slabs, with their places for errors.

    Attributes
    ----------
    costly : bool
        Evaluating them took long compared with adding them.
    """

    costly = False

    @property
    def n_rows(self) -> int:
        """Rows of all blocks."""
        return sum(len(slab.X) for _, slab in self)


@sizeof.register(Evaluated)
def _(blocks: Evaluated) -> int:
    return sum(sizeof(slab.X) for _, slab in blocks)


@sendable
def evaluate(part: BlocksPart, values: Sequence[Any]) -> Evaluated:
    """Return the blocks of a part."""
    start, found = time.perf_counter(), Evaluated(part.slabs(values))
    seconds, seconds_a_byte = _COSTLY
    limit = max(seconds, seconds_a_byte * sizeof(found))
    found.costly = time.perf_counter() - start > limit
    return found


@sendable
def fingerprint_of(
    part: StoredPart | BlocksPart, sampled: bool, values: Sequence[Any]
) -> PartFingerprint:
    """Return the fingerprint of a part, which is read again."""
    return part.fingerprint(values, sampled)


def merge(first: PartMoments, second: PartMoments) -> PartMoments:
    """Return the moments of both ranges of parts."""
    with threads.limit(1):
        return PartMoments(first.moments + second.moments, first.fingerprints + second.fingerprints)
