"""The slab loop of every pass in this process, and the choice of what executes a pass."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any, Self

from streamgda.engine.fingerprints import REMEDY, SeenSlabs
from streamgda.engine.progress import Progress, reporter
from streamgda.errors import CheckpointError, MemoryBudgetError
from streamgda.rows import Rows, as_source
from streamgda.rows.sources import RowSource, Slab, check_lengths, placing
from streamgda.rows.targets import RowsWithTargets
from streamgda.runtime.retry import not_hiding


def on_dask() -> Any:
    """Return the package that executes passes on dask, which is imported only then."""
    from streamgda.engine import dask  # noqa: PLC0415

    return dask


def read_by_workers(rows: RowSource) -> bool:
    """Return whether the workers of an active `distributed.Client` can read the rows."""
    loaded = "distributed" in sys.modules
    return loaded and on_dask().active_client() is not None and rows.shareable


def in_process(rows: Rows, at_once: bool = False) -> Rows:
    """Return sources of rows that this process reads.

    Parameters
    ----------
    rows : Rows
    at_once : bool
        Evaluate dask collections now, all at once, because the result fits in memory. Otherwise
        chunks of unknown size are counted first.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other.
    """
    rows = rows.opened()
    if rows.executor != "dask":
        return rows.checked()
    arrays = on_dask().aligned(rows)
    values = [*arrays.values()]
    values = on_dask().compute(values) if at_once else [*map(on_dask().sized, values)]
    named = zip(arrays, values, rows.sources, strict=True)
    read: Any = {field: as_source(value, source.name) for field, value, source in named}
    rows = replace(rows, **read)
    check_lengths(rows.X, *rows.beside)
    return rows


def with_targets(rows: Rows) -> Rows:
    """Return rows with their targets as further columns, and without labels.

    Parameters
    ----------
    rows : Rows
        Rows whose `y` is a source of targets; see `streamgda.rows.targets.targets_of`.
    """
    X, y = as_source(rows.X), rows.y
    if "dask" in (X.executor, y.executor):
        return replace(rows, X=as_source(on_dask().with_targets(X, y)), y=None)
    return replace(rows, X=RowsWithTargets.beside(X, y), y=None)


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
        reporter(progress, source.n_rows, what, first=first, row_bytes=source.row_bytes) as report,
        contextlib.closing(reported()) as read,
    ):
        yield read


class Resumable:
    """Base of work that keeps how much of it is done, from where another run resumes it.

    As a context manager, it is also kept on leaving, even after an error.

    Parameters
    ----------
    every : float
        Minimum number of seconds between two times at which it is kept.

    Attributes
    ----------
    title : str
        Name of the file or array that keeps it, in messages.
    kind : str
        Format of the progress in messages.
    done : int
        Number of rows, batches or parts that are done.
    kept : dict or None
        Fingerprints of these that the resumed run has kept, if there is one.
    seen : SeenSlabs, SeenBatches or None
        Fingerprints of the rows so far. Set it before the first row is added.
    """

    title: str
    kind = "the first {:,} rows"
    done = 0
    kept: dict[str, Any] | None = None
    seen: Any = None
    _written = 0  # `done`, when it was kept last

    def __init__(self, every: float) -> None:
        self._every, self._since = every, time.monotonic()

    @property
    def keeps(self) -> bool:
        """True if it is kept."""
        raise NotImplementedError

    @property
    def due(self) -> bool:
        """True if it is time to keep it."""
        return self.keeps and time.monotonic() - self._since >= self._every

    def keep(self) -> None:
        """Keep what is done, unless that is kept already."""
        raise NotImplementedError

    def _was_kept(self) -> None:
        self._written, self._since = self.done, time.monotonic()

    def resume(self, slab_rows: int, rows: Rows) -> int:
        """Return the rows of a slab in the run that is resumed, or those planned if there is none.

        Parameters
        ----------
        slab_rows : int
            Rows of a slab that the memory budget allows.
        rows : Rows
            Sources, whose fingerprints are compared. Those of further slabs are added to `seen`.

        Raises
        ------
        CheckpointError
            If the rows are not those of that run, or what it has kept is damaged.
        MemoryBudgetError
            If the memory budget requires smaller slabs.
        """
        if self.kept is not None:
            held = self.kept.get("slab_rows")
            if not isinstance(held, int) or held < 1 or not 0 <= self.done <= rows.X.n_rows:
                raise CheckpointError(
                    f"{self} is damaged: {self.done} rows in slabs of {held}. {REMEDY}"
                )
            slab_rows = resumed(held, slab_rows)
        self.seen = SeenSlabs(rows, slab_rows)
        if self.kept is not None:
            self.seen.check(self.kept, self.done, str(self))
        return slab_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with not_hiding(error):
            self.keep()
        if error is not None and self._written:
            error.add_note(
                f"{self.title} keeps what was done, {self.kind.format(self._written)}: run the "
                f"same call again to resume after them"
            )


def resumed(held: int, planned: int) -> int:
    """Return the rows of a slab with which a run was started, unless fewer are planned now.

    Raises
    ------
    MemoryBudgetError
        If they are.
    """
    if held > planned:
        raise MemoryBudgetError(
            f"the work to resume was started in slabs of {held} rows, but max_memory, by default "
            f"half of what is available, now allows {planned}: pass a larger max_memory (that of "
            f"the first run if it had one), free memory, or start again"
        )
    return held
