"""Rows in folds: accumulated side by side in one pass, and read again fold by fold.

The fold of a row depends on its number only, not on how rows are stored or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from streamgda.engine.plan import count_classes, plan_rows
from streamgda.engine.progress import Progress
from streamgda.engine.reading import reading
from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.moments import ClassMoments, add_rows
from streamgda.moments.structures import structure_of
from streamgda.rows import as_sources
from streamgda.rows.sources import RowSource, check_rows, placing
from streamgda.rows.validity import as_weights
from streamgda.runtime.parameters import shown


def fold_of(first: int, last: int, n_folds: int, seed: int) -> np.ndarray:
    """Return the fold of each of the rows ``first:last``: a hash of its number (SplitMix64).

    Examples
    --------
    >>> fold_of(0, 10, 5, 0)
    array([4, 3, 0, 4, 1, 0, 3, 2, 3, 1])
    >>> fold_of(4, 10, 5, 0)
    array([1, 0, 3, 2, 3, 1])
    """
    # Seeds start far from each other in the sequence of all hashes.
    start = (int(seed) + 1) * 0xD1342543DE82EF95 % 2**64
    x = (np.arange(first, last, dtype=np.uint64) + np.uint64(start)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) % np.uint64(n_folds)).astype(np.int64)


class FoldedRows:
    """Rows, labels and weights, each row in one of `n_folds` folds.

    Parameters
    ----------
    X : array-like, numpy.memmap, zarr.Array, dask.array.Array or data frame
        Shape (n_rows, n_features).
    y, sample_weight : array-like, zarr.Array or dask.array.Array, shape (n_rows,)
    n_folds, seed : int
        See `fold_of`.
    allowed : int
        Bytes for rows in flight and moments.
    progress : bool or callable
        See `streamgda.accumulate`.

    Raises
    ------
    InvalidDataError
        For shapes that do not fit each other, or chunks of unknown size.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        n_folds: int,
        seed: int,
        allowed: int,
        progress: Progress = False,
    ) -> None:
        self.rows, *self.companions = as_sources(X, y, sample_weight)
        check_rows(self.rows, *self.companions)
        if n_folds > self.rows.n_rows:
            raise InvalidParameterError(
                f"cv={shown(n_folds)}; X has {self.rows.n_rows} rows (n_samples="
                f"{self.rows.n_rows}), fewer than folds: give more rows, or a smaller cv"
            )
        self.n_folds = n_folds
        self.seed = seed
        self.allowed = allowed
        self.progress = progress

    def state_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of a fold."""
        structure = structure_of(covariance_type)
        with placing(*self._sources):
            n_classes = count_classes(self.companions[0])
        return structure.state_bytes(n_classes, self.rows.shape[1])

    def held_bytes(self, covariance_type: str) -> int:
        """Return the bytes of the moments of all folds, and of sums and parts of them."""
        return (self.n_folds + 5) * self.state_bytes(covariance_type)

    def read(self, state: int, what: str) -> Iterator[tuple[slice, list[tuple[np.ndarray, ...]]]]:
        """Yield the range of each slab, and the rows, labels and weights of each fold in it.

        Parameters
        ----------
        state : int
            Bytes that are held meanwhile.
        what : str
            Description of the work, shown with the progress.
        """
        plan = plan_rows(self.rows, self.allowed, state, beside=self.companions, copies=1)
        with reading(plan, *self._sources, what=what, progress=self.progress) as slabs:
            for start, (X, y, *weights) in slabs:
                stop = start + len(X)
                arrays = [X, y, *(as_weights(w, len(X), start) for w in weights)]
                folds = fold_of(start, stop, self.n_folds, self.seed)
                parts = [np.flatnonzero(folds == f) for f in range(self.n_folds)]
                yield slice(start, stop), [tuple(array[part] for array in arrays) for part in parts]

    def accumulate(self, covariance_type: str, norms: bool) -> list[ClassMoments]:
        """Return the moments of each fold, from one pass.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used.
        MemoryBudgetError
            If the moments of all folds exceed the budget.
        """
        folds = [ClassMoments(covariance_type, norms=norms) for _ in range(self.n_folds)]
        state = self.held_bytes(covariance_type)
        for rows, slab in self.read(state, "accumulating"):
            try:
                for moments, part in zip(folds, slab, strict=True):
                    if len(part[0]):
                        moments.update(*part)
            except InvalidDataError:
                # The rows of the whole slab again: that error names a row by its number.
                X, y, *weights = (source.read(rows.start, rows.stop) for source in self._sources)
                with placing(*self._sources):
                    weight = weights[0] if weights else None
                    add_rows(ClassMoments("diag"), X, y, weight, first_row=rows.start)
                raise
        return folds

    @property
    def _sources(self) -> list[RowSource]:
        return [self.rows, *self.companions]


def without(folds: list[ClassMoments], left_out: int) -> ClassMoments:
    """Return the moments of all folds but one: added, so that nothing cancels."""
    return reduce(add, [moments for f, moments in enumerate(folds) if f != left_out])
