"""What workers do: take parts of the rows in, merge what was taken in, score.

A task never changes what it was given: it may run twice, and each row must count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from streamgda.engine.dask import cluster
from streamgda.engine.dask.blocks import Block
from streamgda.engine.fingerprints import NOTHING, Seen, checksum, sample, see
from streamgda.errors import InvalidDataError, StreamGDAError
from streamgda.moments import Moments, add_rows
from streamgda.rows.slabs import Slabs
from streamgda.rows.sources import RowSource
from streamgda.runtime import threads

# Its name, if it has one, the number of its first row, if that is known, and its arrays.
Batch = tuple[str, int | None, Sequence[Any]]


@dataclass(frozen=True)
class Part:
    """One of the parts that the rows are cut into, and how it is told how far it is.

    Attributes
    ----------
    number : int
    topic : str
        What its progress is told under; empty where nobody asks.
    """

    number: int
    topic: str

    def tell(self, done: int) -> None:
        """Say how many of its rows are done."""
        if self.topic:
            cluster.tell(self.topic, self.number, done)


@dataclass(frozen=True)
class Taking:
    """How rows are taken in.

    Attributes
    ----------
    fresh : Moments
        Without rows.
    options : dict
        Of `add_rows`.
    seeing : bool
        Whether to tell what was seen of them.
    """

    fresh: Moments
    options: Mapping[str, Any]
    seeing: bool = False

    def take(self, part: Part, batches: Iterable[Batch]) -> Taken:
        """What becomes of a part's batches."""
        moments = self.fresh.copy()
        done, seen = 0, None
        with threads.limit(1):
            for name, first_row, (X, y, *weights) in batches:
                try:
                    if len(X):
                        weight = weights[0] if weights else None
                        add_rows(moments, X, y, weight, first_row=first_row or 0, **self.options)
                        seen = see(seen, X, (y, *weights)) if self.seeing else None
                except InvalidDataError as error:
                    counted = " (rows counted from its first)" if first_row is None else ""
                    if name:
                        error.place(name + counted)
                    raise
                done += len(X)
                part.tell(done)
        return Taken(moments, (seen or NOTHING,) if self.seeing else ())


@dataclass(frozen=True)
class Taken:
    """What neighbouring parts have become.

    Attributes
    ----------
    moments : Moments
    seen : tuple of Seen
        What was seen of each part, where that was asked for.
    """

    moments: Moments
    seen: tuple[Seen, ...] = ()


@sizeof.register(Taken)
def _(taken: Taken) -> int:
    # Workers spill, and the scheduler chooses where to merge, by how large results are.
    return taken.moments.nbytes


def merge(first: Taken, second: Taken) -> Taken:
    """What both have become."""
    with threads.limit(1):
        return Taken(first.moments + second.moments, first.seen + second.seen)


@dataclass(frozen=True)
class Scorer:
    """A function that scores rows, on one thread.

    Attributes
    ----------
    function : callable
        Called as ``function(rows, first_row)``.
    nbytes : int
        Of what it holds, which is a model most often.
    """

    function: Callable[..., np.ndarray]
    nbytes: int

    def __call__(self, X: np.ndarray, first_row: int) -> np.ndarray:
        """Scores of a block."""
        with threads.limit(1):
            return self.function(X, first_row)

    def __sizeof__(self) -> int:
        return self.nbytes


def sendable(function: Callable[..., Any]) -> Callable[..., Any]:
    """A task whose errors reach the caller as they are: what led to them often cannot be sent."""

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


@dataclass(frozen=True)
class _Shifted:
    """An array seen from one of its rows on."""

    values: Any
    start: int

    def __getitem__(self, rows: slice) -> Any:
        return self.values[self.start + rows.start : self.start + rows.stop]


def window(source: RowSource, start: int, stop: int) -> RowSource:
    """Some of the rows, to be sent to a worker: where they are, or of narrow ones, themselves."""
    stays = cluster.travels(source.values)
    values = _Shifted(source.values, start) if stays else source.read(start, stop)
    shape = (stop - start, *source.shape[1:])
    return replace(source, values=values, shape=shape, in_memory=not stays)


@sendable
def take_rows(
    taking: Taking, part: Part, first_row: int, slab_rows: int, sources: list[RowSource]
) -> Taken:
    """What a window of a store becomes, read slab by slab."""
    _check_seen(sources)
    slabs = Slabs(slab_rows).read(*sources)
    return taking.take(part, (("", first_row + at, arrays) for at, arrays in slabs))


@sendable
def see_rows(slab_rows: int, sampled: bool, sources: list[RowSource]) -> Seen:
    """What is seen of a window of a store; 0 instead of a sample of its rows, unless asked for."""
    _check_seen(sources)
    rows, *columns = sources
    labels = 0
    for _, arrays in Slabs(slab_rows).read(*columns):
        for array in arrays:
            labels = checksum(array, labels)
    return labels, sample(rows.read(0, min(slab_rows, rows.n_rows))) if sampled else 0


@sendable
def score_rows(
    part: Part,
    first_row: int,
    slab_rows: int,
    unit: int,
    rows: RowSource,
    out: Any,
    function: Scorer,
) -> Any:
    """The scores of a window of a store: given back, or written.

    Where they are written, each `unit` rows of `out` are so at once, for another task may be at the
    same: one whose client is no more. Given back is then up to which row a sample was taken, and
    its checksum.
    """
    _check_seen([rows])
    if out is not None:
        cluster.check_seen(out)
    made: list[np.ndarray] = []
    start, seen = first_row, None
    for at, (X,) in Slabs(slab_rows).read(rows):
        made.append(function(X, first_row + at))
        stop = first_row + at + len(X)
        if out is not None and ((stop - first_row) % unit == 0 or at + len(X) == rows.n_rows):
            out[start:stop] = np.concatenate(made)
            start, made = stop, []
        seen = seen or (stop, sample(X))
        part.tell(at + len(X))
    return np.concatenate(made) if out is None else seen


def _check_seen(sources: Iterable[RowSource]) -> None:
    for source in sources:
        if isinstance(source.values, _Shifted):
            cluster.check_seen(source.values.values)


# --- blocks that dask makes ---------------------------------------------------------------------


@sendable
def take_blocks(
    taking: Taking,
    part: Part,
    blocks: list[tuple[str, int | None, Block]],
    keys: list[Any],
    made: list[Any],
) -> Taken:
    """What blocks become, made one after the other; what they need was made elsewhere."""
    return taking.take(part, _batches(blocks, keys, made))


@sendable
def see_blocks(
    blocks: list[tuple[str, int | None, Block]], keys: list[Any], made: list[Any]
) -> Seen:
    """What is seen of blocks, which are made again."""
    seen = None
    for _, _, (X, *columns) in _batches(blocks, keys, made):
        if len(X):
            seen = see(seen, X, columns)
    return seen or NOTHING


def _batches(
    blocks: list[tuple[str, int | None, Block]], keys: list[Any], made: list[Any]
) -> Iterator[Batch]:
    given = dict(zip(keys, made, strict=True))
    for name, first_row, block in blocks:
        yield name, first_row, _arrays(name, block, given)


def _arrays(name: str, block: Block, given: dict[Any, Any]) -> Sequence[Any]:
    values = block.values(given)
    if len(block.keys) > 1:
        return values
    (batch,) = values
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise InvalidDataError(
            f"{name} is a {type(batch).__name__}; expected a tuple (X, y) or (X, y, weight)"
        )
    return batch
