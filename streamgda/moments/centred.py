"""Class moments in float64: counts, means in two parts, scatter about the mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamgda.kernels.accumulate import first_rows, means_of_sums
from streamgda.kernels.merging import add_outer, merge_means, two_sum
from streamgda.kernels.products import may_use_blas_threads
from streamgda.kernels.sums import count_rows
from streamgda.moments.structures import Structure
from streamgda.moments.sums import Sums
from streamgda.rows.dtypes import row_type
from streamgda.storage.checks import check_array, check_count, check_squares

FORGOTTEN = 1e-250  # weight of a class at which squares are not yet rounded to nothing

_FLOAT64 = np.dtype(np.float64)
_FLOATS = _FLOAT64, np.dtype(np.float32)
_NO_SQUARES = np.empty(0)


class CentredSums(Sums):
    """Count, mean and scatter about the mean, in float64.

    The mean is the sum of two float64 numbers, ``mean + mean_low``: at an offset of 1e8 one
    alone is off by 1e-8, and merging would carry that error times the distance of the means
    into the scatter.

    Attributes
    ----------
    count : ndarray of int64, or of float64 once weights are used, shape (n_classes,)
    mean, mean_low : ndarray of float64, shape (n_classes, n_features)
    scatter : ndarray of float64
    squares : ndarray of float64, shape (n_classes,), optional
        Sums of the squared weights; None if they are equal to the counts.
    """

    def __init__(
        self,
        structure: Structure,
        count: np.ndarray,
        mean: np.ndarray,
        mean_low: np.ndarray,
        scatter: np.ndarray,
        squares: np.ndarray | None = None,
    ) -> None:
        self.structure = structure
        self.count = count
        self.mean = mean
        self.mean_low = mean_low
        self.scatter = scatter
        self.squares = squares

    @classmethod
    def zeros(cls, structure: Structure, n_classes: int, n_features: int) -> CentredSums:
        """Return sums of no rows."""
        return cls(
            structure,
            np.zeros(n_classes, np.int64),
            np.zeros((n_classes, n_features)),
            np.zeros((n_classes, n_features)),
            np.zeros(structure.scatter_shape(n_classes, n_features)),
        )

    def empty(self, n_classes: int) -> CentredSums:
        """Return sums of no rows, otherwise like these."""
        return CentredSums.zeros(self.structure, n_classes, self.n_features)

    def copy(self) -> CentredSums:
        """Return independent sums with the same values."""
        return CentredSums(
            self.structure,
            *(self.count.copy(), self.mean.copy(), self.mean_low.copy(), self.scatter.copy()),
            None if self.squares is None else self.squares.copy(),
        )

    def with_classes(self, kept: Any, scatter: np.ndarray) -> CentredSums:
        """Return copies of the counts and means of some classes, with another scatter."""
        return CentredSums(
            *(self.structure, self.count[kept], self.mean[kept], self.mean_low[kept], scatter),
            None if self.squares is None else self.squares[kept],
        )

    def with_features(self, index: np.ndarray, scatter: np.ndarray) -> CentredSums:
        """Return the sums of some features, with their scatter."""
        return CentredSums(
            self.structure,
            self.count.copy(),
            np.ascontiguousarray(self.mean[:, index]),
            np.ascontiguousarray(self.mean_low[:, index]),
            scatter,
            None if self.squares is None else self.squares.copy(),
        )

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        shape = n_classes, self.n_features
        check_count(self.count, n_classes, "i8" if self.count.dtype.kind == "i" else "f8")
        check_array("mean", self.mean, shape, "f8")
        check_array("mean_low", self.mean_low, shape, "f8")
        if (np.abs(self.mean_low) > 1e-9 * np.abs(self.mean)).any():
            raise ValueError("mean_low is more than the rounding error of mean")
        check_array("scatter", self.scatter, self.structure.scatter_shape(*shape), "f8")
        check_squares("scatter", self.structure.diagonal(self.scatter))
        if self.squares is not None:
            check_array("squares", self.squares, (n_classes,), "f8")
            check_squares("squares", self.squares)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state by name."""
        arrays = {
            "count": self.count,
            "mean": self.mean,
            "mean_low": self.mean_low,
            "scatter": self.scatter,
        }
        return arrays if self.squares is None else {**arrays, "squares": self.squares}

    def effective_count(self, groups: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        r"""Return Kish's effective numbers of rows :math:`(\sum w)^2 / \sum w^2` of groups.

        They equal the numbers of rows if all weights are equal, and are at least one.

        Parameters
        ----------
        groups : callable
            Returns the sums over the classes of each group; see `Structure.group_sums`.
        """
        count = groups(self.count.astype(np.float64))
        squares = groups(self._squares())
        return np.maximum(count * (count / np.where(squares > 0, squares, 1.0)), count > 0)

    def class_means(self) -> np.ndarray:
        """Return the means, NaN for classes without rows."""
        return np.where(self.count[:, None] > 0, self.mean, np.nan)

    def centred(self) -> CentredSums:
        """Return these sums."""
        return self

    def select_scatter(self, groups: slice, features: np.ndarray, out: np.ndarray) -> None:
        """Write scatters about the means of some groups and features, in rising order; whole."""
        self.structure.select_varying(self.scatter[groups], features, out)

    def _read_dtype(self, dtype: np.dtype) -> np.dtype:
        return row_type(dtype).floating

    def _changes_at_once(self, dtype: np.dtype, weights: np.ndarray) -> bool:
        return not weights.size or self.squares is not None

    def taken_at_once(self) -> tuple[tuple[np.dtype, ...], float]:
        """Return floating-point types, of which there may be any number of rows."""
        return _FLOATS, np.inf

    def _uses_blas_threads(self, n_rows: int) -> bool:
        return self.structure.matrix and may_use_blas_threads(n_rows, self.n_features)

    def _add_few(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, block_rows: int
    ) -> None:
        count = self._count_for(weights.size > 0)
        squares = self._squares() if weights.size else self.squares
        held = _NO_SQUARES if squares is None else squares
        state = count, held, self.mean, self.mean_low, self.scatter
        if not self.structure.add_centred(X, codes, weights, block_rows, *state):
            raise NotFinite
        self.count, self.squares = count, squares

    def _add_many(self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        number = np.zeros(self.count.size)
        count_rows(codes, weights, number)
        first = np.empty(number.size, np.intp)
        first_rows(codes, number, self.count, first)
        pivot, sums = self.mean * (number > 0)[:, None], np.zeros_like(self.mean)
        pivot[first >= 0] = X[first[first >= 0]]
        self._add_sums(X, codes, weights, pivot, sums)
        if not means_of_sums(number, pivot, sums):
            raise NotFinite
        self._add_scatter(X, codes, weights, pivot, sums, self._read_dtype(X.dtype))
        if weights.size or self.squares is not None:
            self.squares = self._squares()
            count_rows(codes, weights * weights, self.squares)
        self.count = self._count_for(weights.size > 0)
        self._merge_means(number, pivot, sums)

    def _merge_means(self, number: np.ndarray, mean: np.ndarray, mean_low: np.ndarray) -> None:
        """Move the means to those of all rows, and add the distance of the means to the scatter.

        This is Chan, Golub and LeVeque's update; the distances are added to the scatter like rows.
        """
        gap, weight = np.empty_like(mean), np.empty(number.size)
        everyone = np.arange(number.size)
        merge_means(
            number, mean, mean_low, everyone, self.count, self.mean, self.mean_low, gap, weight
        )
        both = np.flatnonzero(weight)
        if both.size:
            zeros = np.zeros_like(gap)
            self._add_scatter(gap[both], both, weight[both], zeros, zeros, _FLOAT64)

    def _count_for(self, weighted: bool) -> np.ndarray:
        """Return the count, as float64 if weights will be added to it; itself if it is already."""
        return self.count.astype(np.float64, copy=False) if weighted else self.count

    def _squares(self) -> np.ndarray:
        """Return the sums of the squared weights, an array that may be changed in place."""
        return self.count.astype(np.float64) if self.squares is None else self.squares

    def scale(self, gamma: float) -> np.ndarray:
        """Multiply every weight by `gamma`; return which classes have faded to no rows."""
        self.squares = self._squares() * gamma**2
        self.count = self.count * gamma
        np.multiply(self.scatter, gamma, out=self.scatter)
        gone: np.ndarray = self.count < FORGOTTEN
        for array in (self.count, self.squares, self.mean, self.mean_low):
            array[gone] = 0
        self.scatter[self.structure.group_sums(self.count) == 0] = 0
        return gone

    def add(self, other: CentredSums, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        self.structure.add_groups(self.scatter, other.scatter, at, 1)
        if self.squares is not None or other.squares is not None:
            self.squares = self._squares()
            np.add.at(self.squares, at, other._squares())
        self.count = self._count_for(other.count.dtype.kind == "f")
        gap, weight = np.empty_like(other.mean), np.empty(other.count.size)
        merge_means(
            other.count, other.mean, other.mean_low, at,
            self.count, self.mean, self.mean_low, gap, weight,
        )  # fmt: skip
        groups = self.structure.groups(self.count.size)[at]
        for k in np.flatnonzero(weight):
            add_outer(gap[k], weight[k], self.scatter[groups[k]])

    def subtract(self, other: CentredSums, at: np.ndarray) -> None:
        """Subtract `other`, whose class k is class ``at[k]`` here."""
        left = self.count[at] - other.count
        left[left < 1e-12 * self.count[at]] = 0
        safe = np.where(left > 0, left, 1)
        gap = (other.mean - self.mean[at]) + (other.mean_low - self.mean_low[at])
        gap[(other.count == 0) | (left == 0)] = 0
        back = gap * (other.count / safe)[:, None]
        self.structure.add_groups(self.scatter, other.scatter, at, -1)
        # The distance between the parts' means is gap + back.
        whole = np.where(left > 0, left + other.count, 1)
        coefficients = -(left * other.count / whole)
        for g, vector, coefficient in zip(
            self.structure.groups(self.count.size)[at], gap + back, coefficients, strict=True
        ):
            add_outer(vector, coefficient, self.scatter[g])
        high, low = two_sum(self.mean[at], self.mean_low[at] - back)
        if self.squares is not None or other.squares is not None:
            squares = self._squares()
            squares[at] = np.where(left > 0, np.maximum(squares[at] - other._squares(), 0), 0)
            self.squares = squares
        gone = (left == 0)[:, None]
        self.mean[at] = np.where(gone, 0, high)
        self.mean_low[at] = np.where(gone, 0, low)
        self.count = self.count.astype(np.result_type(self.count, left))
        self.count[at] = left
        self.scatter[self.structure.group_sums(self.count) == 0] = 0
        self.structure.clip(self.scatter)


class NotFinite(Exception):  # noqa: N818
    """A sum is not finite; the caller knows where the rows came from, and names the value."""
