"""The tasks that workers run: accumulate parts of the rows, merge moments, score rows.

A task never changes its arguments: it may run twice, and each row must count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from streamgda.engine.accumulation import Accumulation
from streamgda.engine.dask import cluster
from streamgda.engine.dask.blocks import Block
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
from streamgda.rows.grids import Grid
from streamgda.rows.sources import RowSource, Slab
from streamgda.runtime import threads

# Name, or an empty string; rows; and whether the number of the first one is known.
Batch = tuple[str, Slab, bool]


@dataclass(frozen=True)
class Part:
    """One of the parts into which the rows are cut, and where it reports progress.

    Attributes
    ----------
    number : int
    topic : str
        Topic of the reports; empty if there are none.
    """

    number: int
    topic: str

    def report(self, done: int) -> None:
        """Report the number of its rows that are done."""
        if self.topic:
            cluster.report(self.topic, self.number, done)


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


@dataclass(frozen=True)
class PartWork:
    """The accumulation of a part.

    Attributes
    ----------
    asked : Accumulation
    fingerprinted : bool
        Whether fingerprints of the rows are needed.
    """

    asked: Accumulation
    fingerprinted: bool = False

    def run(self, part: Part, batches: Iterable[Batch]) -> PartMoments:
        """Return the moments of the batches of a part."""
        moments = self.asked.empty()
        done, fingerprint = 0, None
        with threads.limit(1):
            for name, slab, numbered in batches:
                n_rows = len(slab.X)
                try:
                    if n_rows:
                        self.asked.add(moments, slab)
                        if self.fingerprinted:
                            fingerprint = fingerprint_part(fingerprint, slab)
                except InvalidDataError as error:
                    counted = "" if numbered else " (rows counted from its first)"
                    if name:
                        error.place(name + counted)
                    raise
                done += n_rows
                part.report(done)
        return PartMoments(moments, (fingerprint or NO_ROWS,) if self.fingerprinted else ())


def merge(first: PartMoments, second: PartMoments) -> PartMoments:
    """Return the moments of both ranges of parts."""
    with threads.limit(1):
        return PartMoments(first.moments + second.moments, first.fingerprints + second.fingerprints)


@dataclass(frozen=True)
class OneThread:
    """A function that scores rows on one thread.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)``.
    nbytes : int
        Size of the function with all that it holds, most often a model.
    """

    function: Callable[..., np.ndarray]
    nbytes: int

    def __call__(self, X: np.ndarray, first_row: int) -> np.ndarray:
        """Return the scores of a block."""
        with threads.limit(1):
            return self.function(X, first_row)

    def __sizeof__(self) -> int:
        return self.nbytes


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


# --- rows in a store, which workers read themselves ---------------------------------------------


def window(source: RowSource, start: int, stop: int) -> RowSource:
    """Return some of the rows, to be sent: a reference to the store, or the rows themselves."""
    if source.shareable:
        return source.window(start, stop)
    return as_source(source.read(start, stop), source.name)


@sendable
def accumulate_rows(
    work: PartWork, part: Part, first_row: int, slab_rows: int, rows: Rows
) -> PartMoments:
    """Return the moments of a window of a store, read slab by slab."""
    _check_opens(rows.sources)
    slabs = rows.slabs(slab_rows)
    return work.run(
        part, (("", slab._replace(first_row=first_row + slab.first_row), True) for slab in slabs)
    )


@sendable
def fingerprint_window(slab_rows: int, sampled: bool, rows: Rows) -> PartFingerprint:
    """Return the fingerprint of a window of a store; 0 for its rows unless they are `sampled`."""
    _check_opens(rows.sources)
    labels = 0
    for slab in replace(rows, X=None).slabs(slab_rows):
        for array in slab.beside:
            labels = checksum(array, labels)
    if not sampled:
        return labels, 0
    return labels, fingerprint_rows(rows.X.read(0, min(slab_rows, rows.X.n_rows)))


@sendable
def score_rows(
    part: Part,
    first_row: int,
    slab_rows: int,
    unit: int,
    rows: RowSource,
    grid: Grid,
    out: Any,
    marked: bool,
    function: OneThread,
) -> Any:
    """Score a window of a store; return the scores, or write them to `out`.

    Each `unit` rows of `out` are written at once, for another task may write the same ones: one
    that a lost client has left behind. The result is then the end of the first slab and, if `out`
    is `marked`, the fingerprint of its rows.
    """
    _check_opens([rows])
    if out is not None:
        cluster.check_opens(out)
    scores: list[np.ndarray] = []
    start, first_slab = first_row, None
    for slab in Rows(rows).slabs(slab_rows):
        X, at = slab.X, slab.first_row
        scores.append(function(X, first_row + at))
        stop = first_row + at + len(X)
        if out is not None and ((stop - first_row) % unit == 0 or at + len(X) == rows.n_rows):
            grid.write(out, start, np.concatenate(scores))
            start, scores = stop, []
        first_slab = first_slab or (stop, fingerprint_rows(X) if marked else 0)
        part.report(at + len(X))
    return np.concatenate(scores) if out is None else first_slab


def _check_opens(sources: Iterable[RowSource]) -> None:
    for source in sources:
        cluster.check_opens(source.values)


# --- blocks that dask evaluates -----------------------------------------------------------------


@sendable
def accumulate_blocks(
    work: PartWork,
    part: Part,
    blocks: list[tuple[str, int | None, Block]],
    keys: list[Any],
    values: list[Any],
) -> PartMoments:
    """Return the moments of blocks, evaluated one after the other from `values` of `keys`."""
    return work.run(part, _batches(blocks, keys, values))


@sendable
def fingerprint_blocks(
    blocks: list[tuple[str, int | None, Block]], keys: list[Any], values: list[Any]
) -> PartFingerprint:
    """Return the fingerprint of blocks, which are evaluated again."""
    fingerprint = None
    for _, slab, _ in _batches(blocks, keys, values):
        if len(slab.X):
            fingerprint = fingerprint_part(fingerprint, slab)
    return fingerprint or NO_ROWS


def _batches(
    blocks: list[tuple[str, int | None, Block]], keys: list[Any], values: list[Any]
) -> Iterator[Batch]:
    given = dict(zip(keys, values, strict=True))
    for name, first_row, block in blocks:
        yield name, block.slab(given, name, first_row or 0), first_row is not None
