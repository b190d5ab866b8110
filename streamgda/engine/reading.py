"""The slab loop: every pass over rows in this process reads them here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator

import numpy as np

from streamgda.engine.progress import Progress, reporter
from streamgda.rows.sources import RowSource, Slabs, placing

Slab = tuple[int, list[np.ndarray]]  # number of the first row, and rows of each source


@contextlib.contextmanager
def reading(
    slabs: Slabs,
    *sources: RowSource,
    what: str = "",
    progress: Progress = False,
    first: int = 0,
    wanted: Callable[..., bool] | None = None,
) -> Iterator[Iterator[Slab]]:
    """Provide the slabs of rows, one of which is read ahead.

    Progress is reported when the next slab is requested. Errors about a row that are raised
    within the context name the array and the chunk. Pages of memory maps are released after use.

    Parameters
    ----------
    slabs : Slabs
    *sources : RowSource
        Rows, and labels and weights that are read with them.
    what : str
        Description of the work, shown with the progress.
    progress : bool or callable
        See `reporter`.
    first : int
        First row that is read, the first one of a slab.
    wanted : callable, optional
        See `Slabs.read`.
    """
    rows = sources[0]

    def reported() -> Generator[Slab]:
        for start, arrays in slabs.read(*sources, first=first, wanted=wanted):
            yield start, arrays
            report(start + len(arrays[-1]))

    with (
        placing(*sources),
        reporter(progress, rows.n_rows, what, first=first, row_bytes=rows.row_bytes) as report,
        contextlib.closing(reported()) as read,
    ):
        yield read
