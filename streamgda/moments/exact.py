"""Class moments of 8- and 16-bit integers, exact: not a bit depends on chunks, order or threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.kernels.accumulate import add_exact
from streamgda.kernels.accumulate_narrow import EXACT_NARROW_ROWS, add_exact_narrow
from streamgda.kernels.merging import two_sum
from streamgda.kernels.rounding import centre_scatter, centre_squares
from streamgda.kernels.sums import count_rows
from streamgda.kernels.tiles import has_integer_dot
from streamgda.moments.centred import CentredSums
from streamgda.moments.structure import Structure
from streamgda.moments.sums import Sums, check_array, triangle_ranges
from streamgda.runtime import threads

# The whole number that is taken off the values of each data type: the middle of its range, but
# of bytes nothing, so that where they are zero they cost nothing.
ORIGINS = {
    np.dtype(np.uint8): 0,
    np.dtype(np.int8): 0,
    np.dtype(np.uint16): 1 << 15,
    np.dtype(np.int16): 0,
}

# int64 sums of squares are exact for rows up to this many times the largest square.
_EXACT_LIMIT = 1 << 62

# Rounding multiplies two remainders below the number of rows (`centre_scatter`).
_EXACT_ROWS = 1 << 31


def _reach(dtype: np.dtype, origin: int) -> int:
    limits = np.iinfo(dtype)
    return max(abs(int(limits.min) - origin), abs(int(limits.max) - origin))


class ExactSums(Sums):
    """Counts, sums and scatter about one whole number, in int64: no rounding at all.

    Attributes
    ----------
    origin : int
        The number that is taken off every value.
    reach : int
        How far from the origin a value seen so far can be, by its data type.
    count : ndarray of int64, shape (n_classes,)
    total : ndarray of int64, shape (n_classes, n_features)
        Sums of ``x - origin``.
    scatter : ndarray of int64
        Sums of products of ``x - origin``: not centred at the means.
    """

    def __init__(
        self,
        structure: Structure,
        origin: int,
        reach: int,
        count: np.ndarray,
        total: np.ndarray,
        scatter: np.ndarray,
    ) -> None:
        self.structure = structure
        self.origin = origin
        self.reach = reach
        self.count = count
        self.total = total
        self.scatter = scatter

    @classmethod
    def zeros(
        cls, structure: Structure, n_classes: int, n_features: int, dtype: np.dtype
    ) -> ExactSums:
        """Sums of no rows, for values of that data type."""
        return cls(
            structure,
            ORIGINS[dtype],
            0,
            np.zeros(n_classes, np.int64),
            np.zeros((n_classes, n_features), np.int64),
            np.zeros(structure.scatter_shape(n_classes, n_features), np.int64),
        )

    def empty(self, n_classes: int) -> ExactSums:
        """Sums of no rows, otherwise like these."""
        d = self.n_features
        return ExactSums(
            self.structure,
            self.origin,
            0,
            np.zeros(n_classes, np.int64),
            np.zeros((n_classes, d), np.int64),
            np.zeros(self.structure.scatter_shape(n_classes, d), np.int64),
        )

    def with_scatter(self, scatter: np.ndarray) -> ExactSums:
        """The same rows with another scatter of theirs."""
        return self.with_classes(np.ones(self.count.size, bool), scatter)

    def with_classes(self, kept: np.ndarray, scatter: np.ndarray) -> ExactSums:
        """Some of the classes, with their scatter."""
        return ExactSums(
            self.structure, self.origin, self.reach, self.count[kept], self.total[kept], scatter
        )

    def with_features(self, index: np.ndarray, scatter: np.ndarray) -> ExactSums:
        """Some of the features, with their scatter."""
        return ExactSums(
            self.structure,
            self.origin,
            self.reach,
            self.count.copy(),
            np.ascontiguousarray(self.total[:, index]),
            scatter,
        )

    def check(self, n_classes: int) -> None:
        """Raise ValueError where shapes or types are not those of such sums."""
        shape = n_classes, self.n_features
        check_array("count", self.count, (n_classes,), "i8")
        check_array("total", self.total, shape, "i8")
        check_array("scatter", self.scatter, self.structure.scatter_shape(*shape), "i8")

    def arrays(self) -> dict[str, np.ndarray]:
        """The state by name."""
        return {"count": self.count, "total": self.total, "scatter": self.scatter}

    def class_means(self) -> np.ndarray:
        """Means, each rounded once; NaN for classes without rows."""
        n = np.where(self.count > 0, self.count, 1)[:, None]
        whole = self.total + self.origin * self.count[:, None]
        return np.where(self.count[:, None] > 0, whole / n, np.nan)

    def has_room(self, n_rows: int, dtype: np.dtype) -> bool:
        """Whether the sums stay within int64 with that many more rows of that type."""
        return self._stays_exact(n_rows, _reach(dtype, self.origin))

    def can_add(self, other: ExactSums) -> bool:
        """Whether the sums stay within int64 with `other` added."""
        reach = other.reach + abs(other.origin - self.origin)
        return self._stays_exact(int(other.count.sum()), reach)

    def _stays_exact(self, n_rows: int, reach: int) -> bool:
        rows = int(self.count.sum()) + n_rows
        return rows < _EXACT_ROWS and rows * max(self.reach, reach) ** 2 <= _EXACT_LIMIT

    def _take_small(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, block_rows: int
    ) -> None:
        dtype = self._reach_and_panels(X.dtype)
        origins, centre, zeros = self._centres(dtype)
        state = X, codes, block_rows, self.count, self.total, origins
        if self._narrow(X.shape[0]) and X.shape[0] <= EXACT_NARROW_ROWS:
            add_exact_narrow(*state, self.scatter)
        else:
            add_exact(*state, centre, zeros, self._panels(X.shape[0], dtype), self.scatter)

    def _take_large(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        dtype = self._reach_and_panels(X.dtype)
        origins, centre, zeros = self._centres(dtype)
        count_rows(codes, weights, self.count)
        self._add_sums(X, codes, weights, origins, self.total)
        self._add_scatter(X, codes, weights, centre, zeros, dtype)

    def _centres(self, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What sums and products are made about, as the kernels want it."""
        origins = np.full(self.total.shape, self.origin)
        centre = origins.astype(dtype) if self.structure.matrix else origins
        return origins, centre, np.zeros_like(centre)

    def _reach_and_panels(self, dtype: np.dtype) -> Any:
        """Widen the reach to values of a data type, and say in what type products are exact."""
        reach = _reach(dtype, self.origin)
        self.reach = max(self.reach, reach)
        if reach > 255:
            return np.float64
        return np.int16 if has_integer_dot() else np.float32

    def _moved_to(self, origin: int) -> ExactSums:
        if origin == self.origin:
            return self
        step = self.origin - origin
        groups = self.structure.groups(self.count.size)
        n_groups = self.scatter.shape[0]
        count = np.zeros(n_groups, np.int64)
        total = np.zeros((n_groups, self.n_features), np.int64)
        np.add.at(count, groups, self.count)
        np.add.at(total, groups, self.total)
        cross = total[:, :, None] + total[:, None, :] if self.structure.matrix else 2 * total
        constant = count.reshape(-1, *[1] * (self.scatter.ndim - 1)) * step**2
        return ExactSums(
            self.structure,
            origin,
            self.reach + abs(step),
            self.count,
            self.total + step * self.count[:, None],
            self.scatter + step * cross + constant,
        )

    def add(self, other: ExactSums, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        self._add_signed(other, at, 1)

    def subtract(self, other: ExactSums, at: np.ndarray) -> None:
        """Take `other` out again; its class k is class ``at[k]`` here."""
        self._add_signed(other, at, -1)

    def _add_signed(self, other: ExactSums, at: np.ndarray, sign: int) -> None:
        other = other._moved_to(self.origin)
        self.reach = max(self.reach, other.reach)
        np.add.at(self.count, at, sign * other.count)
        np.add.at(self.total, at, sign * other.total)
        self._add_scattered(other, at, sign)

    def centred(self) -> CentredSums:
        """The same moments as `CentredSums`, every scatter and mean rounded once."""
        count = self.count[:, None]
        n = np.where(count > 0, count, 1)
        quotient, rest = np.divmod(self.total, n)
        scatter = np.zeros(self.scatter.shape)
        sums = self.count, self.total, quotient, rest, self.scatter
        if self.structure.matrix:
            strips = triangle_ranges(self.n_features, threads.n_threads())
            threads.run(lambda i, j: centre_scatter(*sums, i, j, scatter), strips)
        else:
            centre_squares(*sums, scatter)
        mean, mean_low = two_sum((quotient + self.origin).astype(np.float64), rest / n)
        mean[self.count == 0] = 0
        return CentredSums(self.structure, self.count.copy(), mean, mean_low, scatter)
