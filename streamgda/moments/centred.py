"""Class moments in float64: counts, means in two parts, scatter about the mean."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from streamgda.kernels.accumulate import LARGE, first_rows, means_of_sums
from streamgda.kernels.merging import add_outer, merge_means, two_sum
from streamgda.kernels.products import may_use_blas_threads
from streamgda.kernels.sums import count_rows
from streamgda.moments.structures import Structure
from streamgda.moments.sums import NotFinite, Sums
from streamgda.rows.arrays import row_type
from streamgda.rows.sparse import CompressedRows
from streamgda.storage.checks import check_array, check_count, check_squares

FORGOTTEN = 1e-250  # weight of a class at which squares are not yet rounded to nothing

# Sums of squares are off by less than this share of them: by eps / 2 for each number that was
# added, which is this for 2^21 numbers if all these errors have one sign, and for 2^42 if they have
# any. Sums of float32 products are off by more, `ClassMoments` derives it, and so are those from
# which others were subtracted: their `rounding` is a bound.
ROUNDING = 2.0**-32
_FLOAT32_ROUNDING = 260 * 2.0**-24

_MOST = 1e280  # magnitude of a mean

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
    rounding : ndarray of float64, shape (groups, n_features), optional
        Bounds of the rounding errors of the sums of squares beyond the share `ROUNDING` of them.
    """

    def __init__(
        self,
        structure: Structure,
        count: np.ndarray,
        mean: np.ndarray,
        mean_low: np.ndarray,
        scatter: np.ndarray,
        squares: np.ndarray | None = None,
        rounding: np.ndarray | None = None,
    ) -> None:
        self.structure = structure
        self.count = count
        self.mean = mean
        self.mean_low = mean_low
        self.scatter = scatter
        self.squares = squares
        self.rounding = rounding

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
            *_copies(self.squares, self.rounding),
        )

    def with_classes(self, kept: Any, groups: Any) -> CentredSums:
        """Return a copy of the sums of some classes, and of some groups of them."""
        return CentredSums(
            *(self.structure, self.count[kept], self.mean[kept], self.mean_low[kept]),
            self.scatter[groups].copy(),
            None if self.squares is None else self.squares[kept],
            None if self.rounding is None else self.rounding[groups].copy(),
        )

    def with_scatter(self, scatter: np.ndarray, rounding: np.ndarray | None) -> CentredSums:
        """Return copies of the counts and means with another scatter."""
        means = self.count.copy(), self.mean.copy(), self.mean_low.copy()
        squares, rounding = _copies(self.squares, rounding)
        return CentredSums(self.structure, *means, scatter, squares, rounding)

    def with_features(self, index: np.ndarray, scatter: np.ndarray) -> CentredSums:
        """Return the sums of some features, with their scatter."""
        return CentredSums(
            self.structure,
            self.count.copy(),
            np.ascontiguousarray(self.mean[:, index]),
            np.ascontiguousarray(self.mean_low[:, index]),
            scatter,
            _copies(self.squares)[0],
            None if self.rounding is None else np.ascontiguousarray(self.rounding[:, index]),
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
        if self.rounding is not None:
            shape = self.structure.diagonal(self.scatter).shape
            check_array("rounding", self.rounding, shape, "f8", least=0)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state by name."""
        arrays = {
            "count": self.count,
            "mean": self.mean,
            "mean_low": self.mean_low,
            "scatter": self.scatter,
            "squares": self.squares,
            "rounding": self.rounding,
        }
        return {name: array for name, array in arrays.items() if array is not None}

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
        self,
        X: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray,
        block_rows: int,
        limit: float = LARGE,
    ) -> None:
        count = self._count_for(weights.size > 0)
        squares = self._squares() if weights.size else self.squares
        held = _NO_SQUARES if squares is None else squares
        state = limit, count, held, self.mean, self.mean_low, self.scatter
        if self.structure.add_centred(X, codes, weights, block_rows, *state):
            self.count, self.squares = count, squares
            return
        # Of several blocks, some may be added by now; they are only added to empty sums.
        whole = type(X) is CompressedRows or X.shape[0] <= block_rows
        trial = self._trial(limit, self.copy if whole else partial(self.empty, count.size))
        trial._add_few(X, codes, weights, block_rows, np.inf)
        self._become(trial)

    def _add_many(
        self, X: np.ndarray, codes: np.ndarray, weights: np.ndarray, limit: float = LARGE
    ) -> None:
        number = np.zeros(self.count.size)
        count_rows(codes, weights, number)
        first = np.empty(number.size, np.intp)
        first_rows(codes, number, self.count, first)
        pivot, sums = self.mean * (number > 0)[:, None], np.zeros_like(self.mean)
        pivot[first >= 0] = X[first[first >= 0]]
        within = not self._add_sums(X, codes, weights, pivot, sums) or limit == np.inf
        within = within and (number + self.count).max() < limit
        if not (within and means_of_sums(limit, number, pivot, sums)):
            trial = self._trial(limit, self.copy)
            with np.errstate(over="ignore", invalid="ignore"):
                trial._add_many(X, codes, weights, np.inf)
            self._become(trial)
            return
        dtype = self._read_dtype(X.dtype)
        before = self.structure.diagonal(self.scatter).copy()
        self._add_scatter(X, codes, weights, pivot, sums, dtype)
        if self.structure.matrix and dtype != _FLOAT64:
            added = self.structure.diagonal(self.scatter) - before
            self.rounding = self._rounding() + _FLOAT32_ROUNDING * added
        if weights.size or self.squares is not None:
            self.squares = self._squares()
            count_rows(codes, weights * weights, self.squares)
        self.count = self._count_for(weights.size > 0)
        self._merge_means(number, pivot, sums)

    def _trial(self, limit: float, make: Callable[[], CentredSums]) -> CentredSums:
        """Return other sums, to which values beyond `LARGE` are added to see if they overflow."""
        if limit == np.inf:
            raise NotFinite
        return make()

    def _become(self, trial: CentredSums) -> None:
        """Take the values of other sums, unless they overflowed."""
        if not trial.finite:
            raise NotFinite
        self.count, self.squares, self.rounding = trial.count, trial.squares, trial.rounding
        self.mean, self.mean_low, self.scatter = trial.mean, trial.mean_low, trial.scatter

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

    def _rounding(self) -> np.ndarray:
        """Return the bounds of rounding errors."""
        if self.rounding is None:
            return np.zeros(self.structure.diagonal(self.scatter).shape)
        return self.rounding

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed, and means may be summed, too."""
        # Products of features are less than their squares.
        squares = self.structure.diagonal(self.scatter)
        held = self.count.sum(), self._squares().sum(), squares
        finite = all(bool(np.isfinite(values).all()) for values in held)
        return finite and bool((np.abs(self.mean) <= _MOST).all())

    def has_room_for(self, other: CentredSums, at: np.ndarray) -> bool:
        """Return True if no sum overflows with `other` added, see `add`."""
        trial = self.without_products() if self.structure.matrix else self.copy()
        with np.errstate(all="ignore"):
            trial.add(other.without_products(), at)
            return trial.finite

    def can_scale(self, gamma: float, norms: np.ndarray | None) -> bool:
        """Return True if no sum overflows if every weight is multiplied by `gamma`."""
        squares = self.structure.diagonal(self.scatter)
        held = [self.count.sum(), squares, *([] if norms is None else [norms])]
        with np.errstate(over="ignore"):
            finite = [np.isfinite(values * gamma).all() for values in held]
            return all(finite) and bool(np.isfinite(self._squares().sum() * gamma * gamma))

    def scale(self, gamma: float) -> np.ndarray:
        """Multiply every weight by `gamma`; return which classes have faded to no rows."""
        self.squares = self._squares() * gamma * gamma
        if self.rounding is not None:
            self.rounding = self.rounding * gamma
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
        if self.rounding is not None or other.rounding is not None:
            self.rounding = self._rounding()
            self.structure.add_groups(self.rounding, other._rounding(), at, 1)
        self.count = self._count_for(other.count.dtype.kind == "f")
        gap, weight = np.empty_like(other.mean), np.empty(other.count.size)
        merge_means(
            other.count, other.mean, other.mean_low, at,
            self.count, self.mean, self.mean_low, gap, weight,
        )  # fmt: skip
        groups = self.structure.groups(self.count.size)[at]
        for k in np.flatnonzero(weight):
            add_outer(gap[k], weight[k], self.scatter[groups[k]])

    def subtract(self, other: CentredSums, at: np.ndarray) -> np.ndarray:
        """Subtract `other`, whose class k is class ``at[k]`` here; see `Sums.subtract`."""
        before = self.count[at]
        left = before - other.count
        left[left < 1e-12 * before] = 0
        squares_before = self.structure.diagonal(self.scatter).copy()
        safe = np.where(left > 0, left, 1)
        gap = (other.mean - self.mean[at]) + (other.mean_low - self.mean_low[at])
        apart = np.where(left == 0, other.count, 0)[:, None] * (gap * gap)
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
        groups = self.structure.groups(self.count.size)
        bound = self._rounding()
        self.structure.add_groups(bound, other._rounding(), at, 1)
        # The error of what was subtracted is at most that of the whole. The distance of the means
        # has the relative errors of the means and, with weights, of `left`, and its share of the
        # squares is at most the whole. Where little is left, these errors grow by n / left.
        growth = np.zeros(len(bound))
        changed = other.count > 0
        ratio = np.where(left > 0, before / safe, 0)
        np.maximum.at(growth, groups[at][changed], 1 + ratio[changed])
        bound += ROUNDING * growth[:, None] * squares_before
        squares = self.structure.diagonal(self.scatter)
        impossible = ~(squares >= -bound)  # true of NaN, too
        np.logical_or.at(impossible, groups[at], ~(apart <= bound[groups[at]]))
        if self.count.dtype.kind == "i":  # otherwise rows of almost no weight may be lost
            alone = self.structure.group_sums(np.maximum(self.count - 1, 0)) == 0
            impossible |= alone[:, None] & (squares > bound)
        np.maximum(squares, 0, out=squares)
        gone = self.structure.group_sums(self.count) == 0
        self.scatter[gone] = 0
        bound[gone] = 0
        self.rounding = bound if bound.any() else None
        return impossible


def _copies(*arrays: np.ndarray | None) -> list[np.ndarray | None]:
    return [None if array is None else array.copy() for array in arrays]
