"""Parts of the rows, each of them one task: ranges of a store, or blocks that dask evaluates.

The cuts depend on the chunks of the rows and on the size of the moments, never on the scheduler
or the number of its workers. A task never changes its arguments: it may run twice, and each row
must count once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import pairwise
from typing import Any

import dask
import numpy as np
from dask.core import flatten, toposort
from dask.delayed import Delayed, delayed
from dask.sizeof import sizeof
from dask.task_spec import DataNode

from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster
from streamgda.engine.fingerprints import (
    NO_ROWS,
    PartFingerprint,
    checksum,
    fingerprint_part,
    fingerprint_rows,
)
from streamgda.errors import InvalidDataError, StreamGDAError
from streamgda.moments import Moments
from streamgda.rows import Rows, as_source
from streamgda.rows.batches import read_batch
from streamgda.rows.sources import RowSource, Slab
from streamgda.runtime import threads

# A part has enough rows to be worth a task: this many bytes; or several times the bytes of the
# moments, which are moved to be merged. With many parts rows are cut finer, for many workers, and
# with very many parts coarser, to keep the scheduler quick.
PART_BYTES = 1 << 26
PART_STATES = (2, 8)
_MANY_PARTS = 1 << 6
MOST_PARTS = 1 << 13
SCORED_BYTES = 1 << 23  # of a part that is scored: more work for each row, and nothing to merge

_SEVERAL = -1  # in place of the number of a block
_SAMPLED = 17  # parts of a store, some rows of which are compared when a pass is resumed
_EVALUATED_AGAIN = 4  # parts of a dask collection that are

Range = tuple[int, int]  # the first, and one past the last
Columns = Mapping[str, Any] | list[Any]  # collections by the fields of a `Slab`, or batches


# --- cuts -----------------------------------------------------------------------------------------


def part_bytes(total: int, state: int) -> int:
    """Return the bytes of rows in a part, of `total` bytes and with moments of `state` bytes."""
    least, most = (states * state for states in PART_STATES)
    states = min(most, max(least, total // _MANY_PARTS))
    return max(PART_BYTES, states, total // MOST_PARTS)


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
    needs : tuple of str
        Keys of values that are evaluated elsewhere: none.
    """

    rows: Rows
    first_row: int
    slab_rows: int
    needs: tuple[str, ...] = ()

    def slabs(self, _: Sequence[Any]) -> Iterator[tuple[str, Slab]]:
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
    blocks : list of Block
    names : list of str
        Names of the blocks in errors.
    bounds : list of int or None
        Numbers of the first row of each; None if they are unknown.
    """

    blocks: list[Block]
    names: list[str]
    bounds: list[int] | None

    @property
    def needs(self) -> list[Any]:
        """Keys of values that are evaluated elsewhere."""
        return sorted({key for block in self.blocks for key in block.needs}, key=str)

    def slabs(self, values: Sequence[Any]) -> Iterator[tuple[str, Slab]]:
        """Yield the blocks as slabs, and their place for errors."""
        given = dict(zip(self.needs, values, strict=True))
        counted = "" if self.bounds else " (rows counted from its first)"
        for n, (block, name) in enumerate(zip(self.blocks, self.names, strict=True)):
            yield name + counted, block.slab(given, name, self.bounds[n] if self.bounds else 0)

    def fingerprint(self, values: Sequence[Any], sampled: bool) -> PartFingerprint:
        """Return the fingerprint of the part."""
        found = None
        for _, slab in self.slabs(values):
            found = fingerprint_part(found, slab) if len(slab.X) else found
        return found or NO_ROWS


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

    each: Sequence[StoredPart | BlocksPart]
    cuts: list[Range]
    rows: list[int]
    total: int | None
    what: str
    elsewhere: Mapping[Any, Any] = field(default_factory=dict)

    def task(self, function: Callable[..., Any], number: int, *arguments: Any) -> Any:
        """Return a delayed call of a function with a part, the values it needs, and arguments."""
        part = self.each[number]
        # Dask does not search the arguments of partial functions for tasks and data.
        call = partial(function, part, *arguments)
        return delayed(call, pure=False)([self.elsewhere[key] for key in part.needs])

    def compared(self, numbers: list[int]) -> dict[int, bool]:
        """Return which of some parts are compared again, and whether their rows are.

        Labels in a store are narrow, and all of them are.
        """
        if self.what != "rows":
            return dict.fromkeys(evenly_spaced(numbers, _EVALUATED_AGAIN), True)
        sampled = evenly_spaced(numbers, _SAMPLED)
        return {number: number in sampled for number in numbers}


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
) -> Parts:
    """Return parts of blocks of these numbers of rows, NaN if they are unknown."""
    blocks, elsewhere = blocks_of(columns)
    known = not np.isnan(sizes).any()
    bounds = [0, *np.nancumsum(sizes).astype(int).tolist()]
    weights = [PART_BYTES if math.isnan(n) else int(n) * row_bytes for n in sizes]
    cuts = cut_blocks(weights, state)
    names = [f"{name} {number}" for number in range(len(blocks))]
    each = [
        BlocksPart(blocks[start:stop], names[start:stop], bounds[start:stop] if known else None)
        for start, stop in cuts
    ]
    rows = [bounds[stop] - bounds[start] for start, stop in cuts]
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


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a task raise its errors without their causes, which often cannot be pickled."""

    @wraps(function)
    def run(*args: Any) -> Any:
        try:
            return function(*args)
        except StreamGDAError as error:
            raised = error
        raised.__cause__ = raised.__context__ = None
        raise raised

    return run


@sendable
def accumulate_part(
    part: StoredPart | BlocksPart, asked: Accumulation, kept: bool, values: Sequence[Any]
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


# --- blocks ---------------------------------------------------------------------------------------


class Block:
    """The tasks that evaluate a block; dask does not search it for tasks and data.

    Attributes
    ----------
    keys : list
        Keys of the values.
    names : tuple of str
        Their names: fields of a `Slab`, or none if the only value is a batch.
    graph : dict
        The tasks that evaluate them.
    needs : list
        Keys of values that are evaluated elsewhere.
    """

    def __init__(self, keys: list[Any], names: tuple[str, ...], graph: dict[Any, Any]) -> None:
        self.keys, self.names, self.graph = keys, names, graph
        needed = {*keys}.union(*(task.dependencies for task in graph.values()))
        self.needs = sorted(needed - graph.keys(), key=str)

    def slab(self, elsewhere: dict[Any, Any], name: str, first_row: int) -> Slab:
        """Evaluate the block, given the values that were evaluated elsewhere.

        Parameters
        ----------
        elsewhere : dict
        name : str
            Name of a batch in errors.
        first_row : int
            Number of its first row.
        """
        given = {key: DataNode(key, elsewhere[key]) for key in self.needs}
        values: Sequence[Any] = dask.get(self.graph | given, self.keys)
        if not self.names:
            return Slab.of_batch(read_batch(values[0], name))
        return Slab(**dict(zip(self.names, values, strict=True)), first_row=first_row)


def blocks_of(columns: Columns) -> tuple[list[Block], dict[Any, Any]]:
    """Return the blocks of collections side by side.

    Tasks that only one block needs run inside of the task that reads it; those that several
    blocks need stay separate.

    Parameters
    ----------
    columns : dict of str to dask collection, or list of delayed objects
        Collections with the same number of blocks, by the fields of a `Slab`; or batches.

    Returns
    -------
    blocks : list of Block
        In order.
    elsewhere : dict
        Values they need that are evaluated elsewhere: delayed objects or futures, by their keys.
    """
    keys: list[list[Any]] = []
    graph: dict[Any, Any] = {}
    names = tuple(columns) if isinstance(columns, Mapping) else ()
    sides = [*columns.values()] if isinstance(columns, Mapping) else [columns]
    for column in dask.optimize(*sides):
        collections = column if isinstance(column, list) else [column]
        keys.append(list(flatten([collection.__dask_keys__() for collection in collections])))
        for collection in collections:
            graph.update(collection.__dask_graph__())
    wanted = [list(block) for block in zip(*keys, strict=True)]
    user: dict[Any, int] = {}

    def use(key: Any, block: int) -> None:
        user[key] = block if user.get(key, block) == block else _SEVERAL

    for number, keys in enumerate(wanted):
        for key in keys:
            use(key, number)
    inner = {key: task.dependencies & graph.keys() for key, task in graph.items()}
    for key in reversed(toposort(graph, dependencies=inner)):
        for needed in graph[key].dependencies if key in user else ():
            use(needed, user[key])
    tasks: dict[int, dict[Any, Any]] = {number: {} for number in (_SEVERAL, *range(len(wanted)))}
    for key, number in user.items():
        if key in graph:
            tasks[number][key] = graph[key]
    blocks = [Block(keys, names, tasks[number]) for number, keys in enumerate(wanted)]
    shared = tasks[_SEVERAL]
    needs = {key for block in blocks for key in block.needs}
    return blocks, {key: Delayed(key, shared) if key in shared else _held(key) for key in needs}


def _held(key: Any) -> Any:
    """Return a value that is persisted on the cluster, without a graph."""
    from distributed import Future  # noqa: PLC0415

    return Future(key, cluster.active_client())
