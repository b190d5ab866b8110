"""Training batches and held-out rows for `streamgda plot learning`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_LEAST_STEP, _MOST_HELD_OUT = 10, 10_000  # every tenth row is held out, but at most 10,000


class Stream:
    """Rows of a store in order, in batches that grow with the number of rows read.

    Parameters
    ----------
    estimator : estimator
        Fitted to similar rows: the size of its moments determines the memory plan.
    X, y : zarr.Array
        Rows and labels.
    n : int
        Approximate number of batches per factor of ten in the number of rows.
    hold_out : bool
        Leave out the rows that `held_out` returns.
    max_memory : int or str, optional
        Memory budget, as for `streamgda.accumulate`.
    """

    def __init__(
        self, estimator: Any, X: Any, y: Any, n: int, hold_out: bool, max_memory: str | None
    ) -> None:
        from streamgda.engine.labelled import LabelledRows  # noqa: PLC0415  (see `options`)

        self._rows = LabelledRows(X, y)
        n_rows = self._rows.rows.n_rows
        self._n, self._step = n, max(_LEAST_STEP, -(-n_rows // _MOST_HELD_OUT)) if hold_out else 0
        held_out = -(-n_rows // self._step) * self._rows.rows.row_bytes if hold_out else 0
        kept = 3 * estimator.moments_.nbytes + held_out  # before and after an update, and the model
        self._slabs = self._rows.plan(max_memory, kept, copies=1)

    def held_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows at regular steps through the store, and their labels."""
        import numpy as np  # noqa: PLC0415

        from streamgda.rows.labels import as_labels  # noqa: PLC0415

        with self._rows.read(self._slabs) as slabs:
            parts = [
                [part[-start % self._step :: self._step].copy() for part in slab]
                for start, slab in slabs
            ]
        rows, labels = zip(*parts, strict=True)
        return np.concatenate(rows), as_labels(np.concatenate(labels))

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        import numpy as np  # noqa: PLC0415

        from streamgda.rows.labels import as_labels  # noqa: PLC0415

        n_rows = self._rows.rows.n_rows
        n_ends = 1 + int(self._n * np.log10(max(n_rows, 10)))
        ends = np.unique(np.geomspace(1, n_rows, n_ends).astype(int))
        with self._rows.read(self._slabs, "learning", progress=True) as slabs:
            for start, (rows, labels) in slabs:
                inside = ends[(ends > start) & (ends < start + len(rows))] - start
                for part in np.split(np.arange(len(rows)), inside):
                    learned = part[(part + start) % self._step > 0] if self._step else part
                    if learned.size:
                        yield rows[learned], as_labels(labels[learned])
