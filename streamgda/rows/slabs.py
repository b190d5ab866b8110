"""Rows cut into slabs, one of which is read ahead."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from streamgda.errors import MemoryBudgetError
from streamgda.rows.sources import RowSource
from streamgda.runtime import threads


@dataclass(frozen=True)
class Slabs:
    """A partition of rows into slabs.

    Attributes
    ----------
    n_rows : int
        Rows of a slab: whole chunks or shards, if there are any.
    """

    n_rows: int

    def resumed(self, n_rows: int) -> Slabs:
        """Return slabs of `n_rows`, with which another run has started.

        Raises
        ------
        MemoryBudgetError
            If the memory budget requires smaller ones.
        """
        if n_rows > self.n_rows:
            raise MemoryBudgetError(
                f"the work to resume was started in slabs of {n_rows} rows, but max_memory now "
                f"allows {self.n_rows}: pass the max_memory of the first run, or start again"
            )
        return Slabs(n_rows)

    def read(
        self,
        *sources: RowSource,
        first: int = 0,
        wanted: Callable[..., bool] | None = None,
    ) -> Generator[tuple[int, list[np.ndarray]]]:
        """Yield the number of the first row and the rows of each slab; read one slab ahead.

        Each slab is released when the next one is requested; at the end the sources are closed.

        Parameters
        ----------
        *sources : RowSource
        first : int
            First row of the first slab.
        wanted : callable, optional
            Called with the number of the first row of a slab and the rows of all sources but the
            first; if it returns False, those of the first are not read, and there are none.
        """
        n_rows = sources[0].n_rows
        starts = range(first, n_rows, self.n_rows)

        def slab(start: int) -> list[np.ndarray]:
            stop = min(start + self.n_rows, n_rows)
            rows, *others = sources
            beside = [source.read(start, stop) for source in others]
            if wanted is not None and not wanted(start, *beside):
                stop = start
            return [rows.read(start, stop), *beside]

        def in_order() -> Generator[list[np.ndarray]]:
            if not starts or all(source.read_as_views for source in sources):
                yield from map(slab, starts)
                return
            yield from threads.one_ahead(slab, ((start,) for start in starts))

        try:
            with contextlib.closing(in_order()) as read:
                for start, block in zip(starts, read, strict=True):
                    yield start, block
                    for source in sources:
                        source.release()
        finally:
            for source in sources:
                source.close()
