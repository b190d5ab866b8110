"""Sums of the rows of each class: `Sums` in float64 about a row, `ExactSums` in integers.

Moments hold one of them. `Sums.add` merges sums, which serves adding and subtracting moments,
renaming, declaring and uniting classes; `ExactSums.centred` rounds exact sums once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from streamgda.errors import MergeError
from streamgda.kernels.blocks import merge
from streamgda.kernels.integers import add_entries, centre_scatter, nearest_quotient
from streamgda.moments.covariance_types import Structure, structure_of
from streamgda.rows.counting import FORGOTTEN, read_only
from streamgda.runtime import threads
from streamgda.storage.format import check_array

OVERFLOW = "sums or squares would overflow float64; scale the data down, or the weights"

_NOTHING = 1e-9  # Where rows are subtracted, this share of a sum of squares is rounding.
_NO_GAP = 1e-13  # This share of the largest mean, too, however little the rows vary.

# Sums of squares of so many integers of 16 bits are exact in int64, and rounding multiplies two
# remainders below the number of rows (`kernels.integers`).
EXACT_ROWS = 1 << 31


class InPlace:
    """Base of sums whose arrays change in place."""

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take the attributes of a copy or a pickle; arrays, which change, get their own memory.

        Those of a pickle may be read-only, mapped from a file, or buffers of somebody else.
        """
        vars(self).update(
            {n: np.array(v) if isinstance(v, np.ndarray) else v for n, v in state.items()}
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def _mapped(self, change: Callable[[str, np.ndarray], np.ndarray], **others: Any) -> Self:
        """Return sums whose arrays are what a function of their names and values returns."""
        changed = {name: change(name, array) for name, array in self.arrays().items()}
        return replace(self, **changed, **others)  # type: ignore[type-var]

    def copy(self) -> Self:
        """Return independent sums with the same values."""
        return self._mapped(lambda _, array: array.copy())


class _State(InPlace):
    """What both kinds of sums have in common: arrays with one entry a class, and `packed`."""

    structure: Structure
    count: np.ndarray
    packed: np.ndarray

    def empty(self: Any, n_classes: int) -> Any:
        """Return sums of no rows, otherwise like these."""
        return self.zeros(self.structure, n_classes, self.n_features)

    def placed(self: Any, at: np.ndarray, n_classes: int) -> Any:
        """Return sums in which class k is class ``at[k]`` of `n_classes`."""
        return self.empty(n_classes).add(self, at).checked()

    def checked(self: Any) -> Any:
        """Return these sums; raise `MergeError` if one has overflowed."""
        if not self.finite:
            raise MergeError(OVERFLOW)
        return self

    def with_classes(self, kept: Any) -> Self:
        """Return the sums of some classes; a pooled scatter stays that of all."""
        pooled = not self.structure.per_class
        return self._mapped(lambda name, a: a if pooled and name == "packed" else a[kept]).copy()

    def with_structure(self, structure: Structure) -> Self:
        """Return a copy with the scatter of a structure that this one covers."""
        with np.errstate(over="ignore"):
            packed = structure.reduced(self.structure, self.packed)
        changed = self._mapped(
            lambda name, a: packed if name == "packed" else a, structure=structure
        )
        return changed.copy()

    def with_features(self, index: np.ndarray) -> Self:
        """Return the sums of some features, in any order."""

        def selected(name: str, array: np.ndarray) -> np.ndarray:
            if name == "packed":
                return self.structure.select_features(array, index)
            return np.ascontiguousarray(array[:, index]) if array.ndim == 2 else array.copy()

        return self._mapped(selected)

    @property
    def scatter(self) -> np.ndarray:
        """Scatters as matrices, or sums of squares; a copy."""
        return read_only(self.structure.whole(self.packed))


@dataclass(eq=False)
class Sums(_State):
    """Counts, means and scatters about the means, in float64.

    Attributes
    ----------
    structure : Structure
    count : ndarray, shape (n_classes,)
        Rows of each class, or their total weight.
    weight_squares : ndarray, shape (n_classes,)
        Sums of the squared weights.
    origin, offset : ndarray, shape (n_classes, n_features)
        The means are their sums. An origin is a row of the class, so that no digit of the distance
        of a mean from another one is lost.
    packed : ndarray, shape ``structure.scatter_shape(n_classes, n_features)``
    """

    structure: Structure
    count: np.ndarray
    weight_squares: np.ndarray
    origin: np.ndarray
    offset: np.ndarray
    packed: np.ndarray

    @classmethod
    def zeros(cls, structure: Structure, n_classes: int, n_features: int) -> Self:
        """Return sums of no rows."""
        of_class, shape = partial(np.zeros, n_classes), (n_classes, n_features)
        scatter = np.zeros(structure.scatter_shape(*shape))
        return cls(structure, of_class(), of_class(), np.zeros(shape), np.zeros(shape), scatter)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.origin.shape[1]

    @property
    def state(self) -> tuple[np.ndarray, ...]:
        """The arrays, as kernels take them."""
        return self.count, self.weight_squares, self.origin, self.offset, self.packed

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        shape = n_classes, self.n_features
        check_array("count", self.count, (n_classes,), "f8", least=0)
        check_array("weight_squares", self.weight_squares, (n_classes,), "f8", least=0)
        check_array("origin", self.origin, shape, "f8")
        check_array("offset", self.offset, shape, "f8")
        check_array("scatter", self.packed, self.structure.scatter_shape(*shape), "f8")

    def centred(self) -> Sums:
        """Return these sums."""
        return self

    def add(self, other: Sums, at: np.ndarray, sign: float = 1.0) -> Self:
        """Add other sums, whose class k is class ``at[k]`` here, or subtract them."""
        merge(at, sign, *other.state, *self.state)
        return self

    def has_room_for(self, other: Sums, at: np.ndarray) -> bool:
        """Return True if no sum overflows with `other` added; products are below the squares."""
        return self.without_products().add(other.without_products(), at).finite

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed."""
        held = self.square_sums, self.origin + self.offset, self.weight_squares, self.count.sum()
        return all(np.isfinite(values).all() for values in held)

    def subtract(self, other: Sums, at: np.ndarray) -> np.ndarray:
        """Subtract sums, whose class k is class ``at[k]`` here.

        Returns
        -------
        ndarray of bool, shape (groups, n_features)
            Sums of squares below zero by more than rounding: `other` holds rows that were never
            added here.
        """
        # Of rows that have the same value, all that is left may be rounding of rows that are gone.
        largest = max(abs(a).max() for s in (self, other) for a in (s.origin, s.offset))
        near = self.structure.group_sums(self.count)[:, None] * (_NO_GAP * largest) ** 2
        rounding = _NOTHING * self.square_sums + near
        self.add(other, at, -1.0)
        free = self.count if self.weighted else np.maximum(self.count - 1, 0)
        alone = self.structure.group_sums(free) == 0  # Single rows do not vary.
        left = self.square_sums
        impossible = np.isnan(left) | (left < -rounding)
        self.structure.clip_squares(self.packed)
        self.packed[alone] = 0
        np.maximum(self.weight_squares, 0, out=self.weight_squares)
        return impossible

    def scale(self, gamma: float) -> None:
        """Multiply every weight by `gamma`; classes whose weight fades get no rows."""
        self.count *= gamma
        self.weight_squares *= gamma * gamma
        self.packed *= gamma
        gone = self.count < FORGOTTEN
        for array in (self.count, self.weight_squares, self.origin, self.offset):
            array[gone] = 0
        self.packed[self.structure.group_sums(self.count) == 0] = 0

    # --- what models read ---------------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        """True if weights other than one are known by their sums and those of their squares."""
        return bool((self.count != self.weight_squares).any() or (self.count % 1).any())

    @property
    def mean(self) -> np.ndarray:
        """Class means, zero without rows."""
        return self.origin + self.offset

    def class_means(self) -> np.ndarray:
        """Return the means, NaN for classes without rows."""
        return np.where(self.count[:, None] > 0, self.mean, np.nan)

    @property
    def square_sums(self) -> np.ndarray:
        """Sums of squares of single features, shape (groups, d); maybe a view."""
        return self.structure.squares(self.packed)

    @property
    def effective_count(self) -> np.ndarray:
        r"""Kish's effective numbers of rows :math:`(\sum w)^2 / \sum w^2` of the classes.

        They equal the numbers of rows if all weights are equal, and are at least one.
        """
        squares = np.where(self.weight_squares > 0, self.weight_squares, 1.0)
        return np.maximum(self.count * (self.count / squares), self.count > 0)

    def without_products(self) -> Sums:
        """Return a copy without products of different features."""
        return self.with_structure(
            structure_of("diag" if self.structure.per_class else "tied_diag")
        )


@dataclass(eq=False)
class ExactSums(_State):
    """Counts, sums and sums of products in int64: no rounding at all.

    Attributes
    ----------
    structure : Structure
    count : ndarray of int64, shape (n_classes,)
    total : ndarray of int64, shape (n_classes, n_features)
    packed : ndarray of int64
        Sums of products: not centred at the means.
    """

    weighted = False
    finite = True

    structure: Structure
    count: np.ndarray
    total: np.ndarray
    packed: np.ndarray

    @classmethod
    def zeros(cls, structure: Structure, n_classes: int, n_features: int) -> Self:
        """Return sums of no rows."""
        shape = n_classes, n_features
        count, total = np.zeros(n_classes, np.int64), np.zeros(shape, np.int64)
        square = np.zeros(structure.scatter_shape(*shape), np.int64)
        return cls(structure, count, total, square)

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.total.shape[1]

    @property
    def state(self) -> tuple[np.ndarray, ...]:
        """The arrays, as kernels take them."""
        return self.count, self.total, self.packed

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        shape = n_classes, self.n_features
        check_array("count", self.count, (n_classes,), "i8", least=0)
        if not self.fits(0):
            raise ValueError(f"{self.count.sum()} rows are never summed in integers")
        check_array("total", self.total, shape, "i8")
        check_array("scatter", self.packed, self.structure.scatter_shape(*shape), "i8")

    def fits(self, n_rows: int) -> bool:
        """Return True if the sums stay within int64 with that many more rows."""
        return int(self.count.sum()) + n_rows < EXACT_ROWS

    def add(self, other: ExactSums, at: np.ndarray, sign: int = 1) -> Self:
        """Add other sums, whose class k is class ``at[k]`` here, or subtract them."""
        groups = at if self.structure.per_class else np.zeros(1, np.intp)
        add_entries(self.count[:, None], other.count[:, None], at, sign)
        add_entries(self.total, other.total, at, sign)
        add_entries(self.packed, other.packed, groups, sign)
        return self

    def subtract(self, other: ExactSums, at: np.ndarray) -> np.ndarray:
        """Subtract sums; see `Sums.subtract`."""
        self.add(other, at, -1)
        return self.without_products().packed < 0

    # --- what models read ---------------------------------------------------------------------

    def class_means(self) -> np.ndarray:
        """Return the means, each rounded once; NaN for classes without rows."""
        n = np.where(self.count > 0, self.count, 1)[:, None]
        return np.where(self.count[:, None] > 0, self.total / n, np.nan)

    def centred(self) -> Sums:
        """Return the same moments about the means, every scatter and offset rounded once."""
        n = np.where(self.count > 0, self.count, 1)[:, None]
        quotient, rest = np.divmod(self.total, n)
        packed = np.empty(self.packed.shape)
        if self.structure.matrix:
            given = self.count, self.total, quotient, rest, self.packed
            ranges = triangle_ranges(self.n_features, threads.n_threads())
            threads.run(lambda first, last: centre_scatter(*given, first, last, packed), ranges)
        else:  # The kernel does the same.
            squares = rest * rest
            nearest = nearest_quotient(squares, n)
            whole = quotient * (self.total + rest) + nearest
            taken, part = map(self.structure.group_sums, (whole, (squares - nearest * n) / n))
            packed[:] = (self.packed - taken) - part
        count, origin = self.count.astype(np.float64), quotient.astype(np.float64)
        return Sums(self.structure, count, count.copy(), origin, rest / n, packed)

    def without_products(self) -> Sums:
        """Return `centred` without products of different features."""
        kind = structure_of("diag" if self.structure.per_class else "tied_diag")
        return self.with_structure(kind).centred()


def triangle_ranges(d: int, n_ranges: int) -> list[tuple[int, int]]:
    """Cut the rows of a lower triangle into ranges of about as many entries."""
    edges = np.rint(d * np.sqrt(np.arange(n_ranges + 1) / n_ranges)).astype(int).tolist()
    return [pair for pair in pairwise(edges) if pair[0] < pair[1]]
