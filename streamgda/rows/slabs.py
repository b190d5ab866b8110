"""Rows cut into slabs, one of which is read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from streamgda.errors import MemoryBudgetError
from streamgda.rows.sources import RowSource


@dataclass(frozen=True)
class Slabs:
    """How rows are cut for reading.

    Attributes
    ----------
    n_rows : int
        Rows of a slab: whole chunks or shards, where there are any.
    """

    n_rows: int

    def resumed(self, n_rows: int) -> Slabs:
        """Slabs of `n_rows`, as another run has begun with.

        Raises
        ------
        MemoryBudgetError
            Where these had to be smaller.
        """
        if n_rows > self.n_rows:
            raise MemoryBudgetError(
                f"the work that is to be gone on with was begun in slabs of {n_rows} rows, where "
                f"max_memory now allows {self.n_rows}: give it the max_memory that it was begun "
                f"with, or begin it anew"
            )
        return Slabs(n_rows)

    def read(self, *sources: RowSource, first: int = 0) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Yield the first row's number and the rows of each slab; one slab is read ahead.

        Slabs before row `first`, where one begins, are left out.
        """
        starts = range(first, sources[0].n_rows, self.n_rows)

        def slab(start: int) -> list[np.ndarray]:
            stop = min(start + self.n_rows, sources[0].n_rows)
            return [source.read(start, stop) for source in sources]

        if not starts or all(source.in_memory for source in sources):
            for start in starts:
                yield start, slab(start)
                for source in sources:
                    source.release()
            return
        with ThreadPoolExecutor(1, thread_name_prefix="streamgda-read") as reader:
            ahead = reader.submit(slab, first)
            for start in starts:
                block = ahead.result()
                if start + self.n_rows < sources[0].n_rows:
                    ahead = reader.submit(slab, start + self.n_rows)
                yield start, block
