"""What workers do: take parts of the rows in, merge what was taken in, score.

A task never changes what it was given: it may run twice, and each row must count once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from dask.sizeof import sizeof

from streamgda import threads
from streamgda.distributed import cluster
from streamgda.distributed.blocks import Block
from streamgda.errors import InvalidDataError, StreamGDAError
from streamgda.moments import Moments
from streamgda.slabs import Slabs
from streamgda.sources import RowSource

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
        Of `Moments._update`.
    """

    fresh: Moments
    options: Mapping[str, Any]

    def take(self, part: Part, batches: Iterable[Batch]) -> Moments:
        """The moments of a part's batches."""
        moments = self.fresh.copy()
        done = 0
        with threads.limit(1):
            for name, first_row, (X, y, *weights) in batches:
                try:
                    if len(X):
                        weight = weights[0] if weights else None
                        moments._update(X, y, weight, first_row or 0, **self.options)
                except InvalidDataError as error:
                    counted = " (rows counted from its first)" if first_row is None else ""
                    if name:
                        error.place(name + counted)
                    raise
                done += len(X)
                part.tell(done)
        return moments


@sizeof.register(Moments)
def _(moments: Moments) -> int:
    # Workers spill, and the scheduler chooses where to merge, by how large results are.
    return moments.nbytes


def merge(first: Moments, second: Moments) -> Moments:
    """The moments of both."""
    with threads.limit(1):
        return first + second


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
) -> Moments:
    """The moments of a window of a store, read slab by slab."""
    _check_seen(sources)
    slabs = Slabs(slab_rows).read(*sources)
    return taking.take(part, (("", first_row + at, arrays) for at, arrays in slabs))


@sendable
def score_rows(
    part: Part, first_row: int, slab_rows: int, rows: RowSource, out: Any, function: Scorer
) -> Any:
    """The scores of a window of a store, written to `out` slab by slab, or given back."""
    _check_seen([rows])
    if out is not None:
        cluster.check_seen(out)
    made = []
    for at, (X,) in Slabs(slab_rows).read(rows):
        scores = function(X, first_row + at)
        if out is None:
            made.append(scores)
        else:
            out[first_row + at : first_row + at + len(scores)] = scores
        part.tell(at + len(scores))
    return np.concatenate(made) if out is None else None


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
) -> Moments:
    """The moments of blocks, made one after the other; what they need was made elsewhere."""
    given = dict(zip(keys, made, strict=True))
    values = ((name, first_row, _arrays(name, block, given)) for name, first_row, block in blocks)
    return taking.take(part, values)


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
