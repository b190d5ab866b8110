"""Class moments of 8- and 16-bit integers, exact: not a bit depends on chunks, order or threads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamgda.kernels.sums import two_sum
from streamgda.moments.centred import AddingAtOnce, CentredSums, Sums, check_fourth
from streamgda.moments.covariance_types import Structure, add_entries
from streamgda.moments.parallel import Coded
from streamgda.rows.arrays import INTEGERS, RowType, row_type
from streamgda.runtime import threads
from streamgda.storage.format import check_array, check_count, check_whole

# int64 sums of squares are exact for rows up to this many times the largest square.
_EXACT_LIMIT = (1 << 63) - 1

# Rounding multiplies two remainders below the number of rows (`centre_scatter`).
_EXACT_ROWS = 1 << 31

_MOST_REACH = 1 << 16  # of 16-bit integers


@dataclass(eq=False)
class ExactSums(Sums):
    """Counts, sums and sums of products in int64: no rounding at all.

    Attributes
    ----------
    reach : int
        Largest magnitude that a value seen so far can have, by its data type.
    count : ndarray of int64, shape (n_classes,)
    total : ndarray of int64, shape (n_classes, n_features)
    packed : ndarray of int64
        Sums of products: not centred at the means.
    """

    structure: Structure
    reach: int
    count: np.ndarray
    total: np.ndarray
    packed: np.ndarray
    fourth: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.total.shape[1]

    @classmethod
    def zeros(cls, structure: Structure, n_classes: int, n_features: int) -> ExactSums:
        """Return sums of no rows."""
        return cls(
            structure,
            0,
            np.zeros(n_classes, np.int64),
            np.zeros((n_classes, n_features), np.int64),
            np.zeros(structure.scatter_shape(n_classes, n_features), np.int64),
        )

    def empty(self, n_classes: int) -> ExactSums:
        """Return sums of no rows, otherwise like these."""
        return ExactSums.zeros(self.structure, n_classes, self.n_features)

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        shape = n_classes, self.n_features
        check_whole("reach", self.reach, 0, _MOST_REACH)
        check_count(self.count, n_classes, "i8")
        if not self._stays_exact(0, 0):
            raise ValueError(f"{self.count.sum()} rows are never summed within {self.reach}")
        most = 2 * _EXACT_ROWS * self.reach  # twice, if rows were subtracted that were not there
        check_array("total", self.total, shape, "i8", least=-most, most=most)
        check_array("scatter", self.packed, self.structure.scatter_shape(*shape), "i8")
        check_fourth(self, n_classes)

    def class_means(self) -> np.ndarray:
        """Return the means, each rounded once; NaN for classes without rows."""
        n = np.where(self.count > 0, self.count, 1)[:, None]
        return np.where(self.count[:, None] > 0, self.total / n, np.nan)

    def fits(self, n_rows: int, kind: RowType) -> bool:
        """Return True if the sums stay within int64 with that many more rows of a type."""
        return self._stays_exact(n_rows, kind.reach)

    def can_add(self, other: ExactSums) -> bool:
        """Return True if the sums stay within int64 with `other` added."""
        return self._stays_exact(int(other.count.sum()), other.reach)

    def _stays_exact(self, n_rows: int, reach: int) -> bool:
        rows = int(self.count.sum()) + n_rows
        return rows < _EXACT_ROWS and rows * max(self.reach, reach) ** 2 <= _EXACT_LIMIT

    def _read_dtype(self, dtype: np.dtype) -> np.dtype:
        return row_type(dtype).dtype

    def _changes_at_once(self, dtype: np.dtype, weights: np.ndarray) -> bool:
        return row_type(dtype).reach <= self.reach

    @property
    def _value_bytes(self) -> int:  # type: ignore[override]
        return 1 if self.reach < 256 else 2

    def adding_at_once(self) -> AddingAtOnce:
        """Return a function of types that do not widen the reach, while sums stay exact."""
        add, state = self.structure.add_integers, (self.count, self.total, self.packed)

        def add_rows(X: np.ndarray, codes: np.ndarray) -> bool:
            add(X, codes, 1, *state)
            return True

        taken = tuple(dtype for dtype in INTEGERS if row_type(dtype).reach <= self.reach)
        most = min(_EXACT_ROWS - 1, _EXACT_LIMIT // max(1, self.reach) ** 2)
        return add_rows, taken, most - int(self.count.sum())

    def _add_few(self, rows: Coded, block_rows: int) -> None:
        self._add_on_threads(rows, 1)

    def _add_by_ranges(self, rows: Coded, edges: np.ndarray) -> None:
        self.reach = max(self.reach, row_type(rows.X.dtype).reach)
        super()._add_by_ranges(rows, edges)

    def _add_many(self, rows: Coded) -> None:
        for block in rows.blocks(self._read_dtype(rows.X.dtype)):
            self._add_on_threads(block, threads.n_threads())

    def _add_on_threads(self, rows: Coded, n_threads: int) -> None:
        X, codes, _ = rows
        self.reach = max(self.reach, row_type(X.dtype).reach)
        self.structure.add_integers(X, codes, n_threads, self.count, self.total, self.packed)

    def add(self, other: ExactSums, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        self._add_signed(other, at, 1)

    def subtract(self, other: ExactSums, at: np.ndarray) -> np.ndarray:
        """Subtract `other`, whose class k is class ``at[k]`` here; see `Sums.subtract`.

        Sums of more than the data type can hold are impossible too.
        """
        self._add_signed(other, at, -1)
        squares = self.without_products().packed
        beyond = np.abs(self.total) > self.count[:, None] * self.reach
        alone = self.structure.group_sums(np.maximum(self.count - 1, 0)) == 0
        impossible: np.ndarray = (squares < 0) | (alone[:, None] & (squares != 0))
        return impossible | (self.structure.group_sums(beyond) > 0)

    def _add_signed(self, other: ExactSums, at: np.ndarray, sign: int) -> None:
        self.reach = max(self.reach, other.reach)
        add_entries(self.count, other.count, at, sign)
        add_entries(self.total, other.total, at, sign)
        self.structure.add_groups(self.packed, other.packed, at, sign)

    def centred(self) -> CentredSums:
        """Return the same moments as `CentredSums`, every scatter and mean rounded once."""
        quotient, rest = self._whole_means()
        packed = np.empty(self.packed.shape)
        self._centre(slice(None), np.arange(self.n_features), packed)
        n = np.where(self.count > 0, self.count, 1)[:, None]
        mean, mean_low = two_sum(quotient.astype(np.float64), rest / n)
        mean[self.count == 0] = 0
        sums = CentredSums(self.structure, self.count.copy(), mean, mean_low, packed)
        if self.fourth is not None:  # they have rounding errors of any size
            sums.fourth, sums.rounding = self.fourth, sums._rounding()
        return sums

    def select_scatter(self, groups: slice, features: np.ndarray, out: np.ndarray) -> None:
        """Write scatters about the means of some groups and features, each entry rounded once."""
        packed = np.empty((len(out), self.structure.scatter_shape(1, features.size)[1]))
        self._centre(groups, features, packed)
        self.structure.select_varying(packed, np.arange(features.size), out)

    def _centre(self, groups: slice, features: np.ndarray, out: np.ndarray) -> None:
        """Write scatters about the means, packed."""
        classes = groups if self.structure.per_class else slice(None)
        by_class = (self.total, *self._whole_means())
        sums = (np.ascontiguousarray(array[classes, features]) for array in by_class)
        self.structure.centre_integers(
            self.count[classes], *sums, self.packed[groups], features, out=out
        )

    def _whole_means(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the class means, rounded down, and n times what is left."""
        n = np.where(self.count > 0, self.count, 1)[:, None]
        return np.divmod(self.total, n)
