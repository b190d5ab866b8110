"""The slab loop of every pass in this process, and the choice of what executes a pass."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from streamgda.engine.progress import Progress, reporter
from streamgda.rows import Rows, side_by_side
from streamgda.rows.counting import Slab
from streamgda.rows.source import as_source, placing


def on_dask() -> Any:
    """Return the package that executes passes on dask, which is imported only then."""
    from streamgda.engine import dask  # noqa: PLC0415

    return dask


def in_process(rows: Rows) -> Rows:
    """Return sources of rows that this process reads.

    Parameters
    ----------
    rows : Rows
        Chunks of dask collections whose size is unknown are counted.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other.
    """
    rows = rows.opened()
    if rows.executor == "dask":
        read: Any = {
            field: as_source(
                array.copy().compute_chunk_sizes() if math.isnan(array.shape[0]) else array,
                getattr(rows, field).name,
            )
            for field, array in on_dask().aligned(rows).items()
        }
        rows = replace(rows, **read)
    return rows.checked()


def with_targets(rows: Rows) -> Rows:
    """Return rows with their targets as further columns, and without labels.

    Parameters
    ----------
    rows : Rows
        Rows whose `y` is a source of targets; see `streamgda.rows.targets_of`.
    """
    X, y = as_source(rows.X), rows.y
    if "dask" in (X.executor, y.executor):
        return replace(rows, X=as_source(on_dask().with_targets(X, y)), y=None)

    def joined(X: Any, first_row: int) -> np.ndarray:
        return side_by_side(X, y.read(first_row, first_row + len(X)))

    columns = X.shape[1] + math.prod(y.shape[1:])
    return replace(rows, X=X.map(joined, np.float64, columns), y=None)


@contextlib.contextmanager
def reading(
    rows: Rows,
    slab_rows: int,
    what: str = "",
    progress: Progress = False,
    first: int = 0,
    wanted: Callable[[int, Any], bool] | None = None,
) -> Iterator[Iterator[Slab]]:
    """Provide the slabs of rows, one of which is read ahead.

    Progress is reported when the next slab is requested. Errors about a row that are raised
    within the context name the array and the chunk. Pages of memory maps are released after use.

    Parameters
    ----------
    rows : Rows
        Sources.
    slab_rows : int
        Rows of a slab.
    what : str
        Description of the work, shown with the progress.
    progress : bool or callable
        See `reporter`.
    first : int
        First row that is read, the first one of a slab.
    wanted : callable, optional
        See `Rows.slabs`.
    """
    source = rows.sources[0]

    def reported() -> Generator[Slab]:
        for slab in rows.slabs(slab_rows, first, wanted):
            yield slab
            report(min(slab.first_row + slab_rows, source.n_rows))

    with (
        placing(*rows.sources),
        reporter(progress, source.n_rows, what, first=first) as report,
        contextlib.closing(reported()) as read,
    ):
        yield read
