"""Labelled rows from any container, read slab by slab as often as needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from streamgda.engine.executors import on_dask
from streamgda.engine.plan import plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import Slab, reading
from streamgda.rows import as_source, as_sources
from streamgda.rows.sources import RowSource, Slabs, check_lengths, check_rows
from streamgda.runtime.memory import allowed_bytes


class LabelledRows:
    """Rows with labels and perhaps weights.

    Parameters
    ----------
    X : array-like, zarr.Array, data frame, dask collection, or RowSource that transforms rows
    y, sample_weight : array-like, zarr.Array or dask collection, shape (n_rows,)
    at_once : bool
        Evaluate dask collections now, all at once, because the result fits in memory. Otherwise
        chunks of unknown size are counted first.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, at_once: bool = False) -> None:
        sources = as_sources(X, y, sample_weight)
        if any(source.executor == "dask" for source in sources):
            names = [source.name for source in sources]
            arrays = on_dask().aligned(*sources)
            arrays = on_dask().compute(arrays) if at_once else on_dask().sized(*arrays)
            sources = [as_source(*named) for named in zip(arrays, names, strict=True)]
            check_lengths(*sources)
        else:
            check_rows(*sources)
        self.rows, *self.companions = sources

    @property
    def sources(self) -> list[RowSource]:
        """Rows, labels and, if there are any, weights."""
        return [self.rows, *self.companions]

    def plan(self, max_memory: int | str | None, held: int = 0, **options: int) -> Slabs:
        """Cut the rows into slabs that fit in the budget.

        Parameters
        ----------
        max_memory : int or str, optional
            See `streamgda.accumulate`.
        held : int
            Bytes that are held meanwhile.
        **options
            See `plan_rows`.
        """
        allowed = allowed_bytes(max_memory)
        return plan_rows(self.rows, allowed, held, beside=self.companions, **options)

    def read(
        self, plan: Slabs, what: str = "", progress: Progress = False
    ) -> AbstractContextManager[Iterator[Slab]]:
        """Provide slabs of rows, labels and weights; see `reading`."""
        return reading(plan, *self.sources, what=what, progress=progress)
