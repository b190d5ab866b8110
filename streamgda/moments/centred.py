"""Class moments in float64: counts, means in two parts, scatter about the mean.

`Sums` is the base of the two kinds of sums that class moments hold: it adds rows, and decides on
which threads. Rows are read in two passes: sums per class first, then squares or products about a
centre. `CentredSums` moves the centre to each class's mean; `ExactSums` keeps it at a whole number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg
from scipy.linalg import blas

from streamgda.errors import InvalidDataError, MergeError
from streamgda.kernels.centred import add_norms, means_of_sums
from streamgda.kernels.products import LEAST_ROWS, most_serial_rows
from streamgda.kernels.sums import (
    LARGE,
    add_outer,
    add_sums,
    all_below,
    merge_means,
    two_sum,
)
from streamgda.moments import cost, parallel
from streamgda.moments.covariance_types import Structure, structure_of, symmetric
from streamgda.moments.parallel import (
    Coded,
    add_in_parts,
    by_ranges,
    sums_of_weights,
)
from streamgda.moments.roots import LEAST_VARIANCE
from streamgda.rows.arrays import (
    NO_WEIGHTS,
    WINDOW_BYTES,
    as_kernel_rows,
    read_only,
    row_type,
)
from streamgda.rows.invalid_rows import FORGOTTEN
from streamgda.rows.lifted import LiftedRows
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads
from streamgda.runtime.interruption import uninterrupted
from streamgda.storage.format import check_array, check_count, check_squares

OVERFLOW = "sums or squares would overflow float64; scale the data down, or the weights"

_BLOCK_ELEMENTS = 1 << 16  # of a block that stays in the second cache while it is read twice
_MOST_SEGMENT_ELEMENTS = 1 << 21  # of a segment, which one thread adds block by block
_LEAST_SEGMENT = 64  # rows
_CHECKED_ELEMENTS = 1 << 19  # of a part that one thread checks
_RANGES = 16  # at least, if there are as many classes
_AHEAD = 2  # segments that wait for a thread
_SMALL_STATE = 1 << 20  # bytes: states up to this size are copied rather than changed in place
_RANGE_STATE = 1 << 18  # bytes of the sums of a range of classes, which stay in a near cache
_SAFE = 1e60  # squares of smaller values and weights can be summed, however many there are


def scratch_bytes(structure: Structure, n_features: int) -> int:
    """Return the most bytes that are held besides sums and rows while many rows are added.

    They are copies of rows in the type that the kernels read: of segments, a thread copies one at
    a time, and the sums of some others wait to be added. Beside those of large states there is
    the scratch space of products.
    """
    n_threads = threads.n_threads()
    segment = 8 * max(_MOST_SEGMENT_ELEMENTS, LEAST_ROWS * n_features)
    small = n_threads * segment + (n_threads + _AHEAD + 2) * cost.SEGMENT_STATE
    products = parallel.scratch_bytes(n_features) if structure.matrix else 0
    return max(small, WINDOW_BYTES + products)


class NotFinite(Exception):  # noqa: N818
    """A sum is not finite; the caller knows where the rows came from, and names the value."""


class _TooLarge(Exception):  # noqa: N818
    """Nothing has changed, as the square of a value or weight may overflow; see `LARGE`."""


# A function that adds rows and their codes in one kernel call to the arrays of sums, the types of
# rows that it takes, and how many rows in all. Rows are C-contiguous. It returns False, with
# nothing changed, for values that may be too large.
AddingAtOnce = tuple[Callable[[np.ndarray, np.ndarray], bool], tuple[np.dtype, ...], float]


class Ways:
    """Ways in which rows can be added to sums of a size, and the time of each.

    Attributes
    ----------
    load : Load
        Sizes on which the times depend.
    state_bytes : int
        Size of the sums.
    most_few : int
        Rows that are added as one block, or block by block, to the sums themselves.
    way : callable
        Returns how a number of rows, read in a data type, is added; see `_way`.
    """

    def __init__(
        self, structure: Structure, n_classes: int, n_features: int, value_bytes: int
    ) -> None:
        self._structure = structure
        self.load = structure.load(n_classes, n_features, value_bytes)
        self.state_bytes = structure.state_bytes(n_classes, n_features)
        times = self.times(_FLOAT64).values()
        most = min(cost.most_alone(self.load, time) for time in times)
        self._most = max(LEAST_ROWS, 2 * _MOST_SEGMENT_ELEMENTS // max(1, n_features))
        self.most_few = min(most, self._most)
        self.way = lru_cache(self._way)  # batches often have as many rows

    def times(self, dtype: np.dtype, n_segments: int = 2) -> dict[str, Callable[[int], float]]:
        """Return the time of rows read in a data type by the ways in which two threads add them."""
        load, structure = self.load, self._structure
        d, state, exact = load.n_features, self.state_bytes, load.exact
        small = state <= _SMALL_STATE
        in_float32 = dtype.itemsize == 4
        times: dict[str, Callable[[int], float]] = {}
        # Of floats, they are worth it from a quarter of these features on, if sums are large.
        if structure.wide(d if exact else 4 * d, load.value_bytes) and not small:
            times["passes"] = partial(cost.in_passes, load, in_float32=in_float32)
        # Few classes have their sums in a near cache in any order.
        few = state <= min(_RANGE_STATE, cost.SEGMENT_STATE) and not load.far
        if not (load.wide or few) and (n_ranges := self.ranges().size - 1) > 1:
            times["ranges"] = partial(cost.in_ranges, load, n_ranges=n_ranges)
        # Products of wide rows by BLAS need large blocks of a class, which segments do not have.
        if not times or (state <= cost.SEGMENT_STATE and (exact or not load.wide)):
            times["segments"] = partial(
                cost.in_segments, load, state_bytes=state, n_segments=n_segments
            )
        return times

    def _way(self, n_rows: int, dtype: np.dtype) -> str:
        """Return how that many rows, read in a data type, are added.

        Either "alone", by one thread; or in "segments", or "ranges" of classes, or, of many
        features, in "passes" over the rows: see `Sums`.
        """
        if n_rows <= self.most_few or self.load.alone(n_rows) <= cost.HAND_OVER:
            return "alone"
        times = self.times(dtype, -(-n_rows // self.segment(n_rows)))
        if n_rows <= self._most:  # it may take less time again, after the first rows of all classes
            times["alone"] = self.load.alone
        return min(times, key=lambda way: times[way](n_rows))

    def segment(self, n_rows: int) -> int:
        """Return the number of rows of each segment of them."""
        # An even number, so that threads have equally many. There are twice as many segments of
        # twice as many rows if there are four times as many: each costs some time beside its rows.
        least = max(_LEAST_SEGMENT, self.most_few // 2)
        n_segments = 1 << ((n_rows // (2 * least)).bit_length() + 1) // 2
        most = max(least, _MOST_SEGMENT_ELEMENTS // self.load.n_features)
        pairs = -(-n_rows // (2 * most))
        return -(-n_rows // max(n_segments, 2 * pairs if n_rows > most else 1))

    def ranges(self) -> np.ndarray:
        """Cut the classes into ranges whose sums stay in a near cache; return the first of each.

        A range has whole groups, unless a single group has too many classes.
        """
        n_classes, n_groups, d = self.load.n_classes, self.load.n_groups, self.load.n_features
        shared = n_classes // n_groups  # number of classes that share a scatter
        group_bytes = self._structure.state_bytes(shared, d)
        if shared == 1 or group_bytes <= _RANGE_STATE:
            size = shared * max(1, min(_RANGE_STATE // group_bytes, n_groups // _RANGES))
            return np.append(np.arange(0, n_classes, size), n_classes)
        size = max(1, min(_RANGE_STATE // (16 * d), shared // _RANGES))
        firsts = np.arange(0, n_classes, shared)[:, None] + np.arange(0, shared, size)
        return np.append(firsts, n_classes)


ways_of = lru_cache(Ways)


class Sums(ABC):
    """Base of `CentredSums` and `ExactSums`.

    A few rows, and any number of sparse ones, are added to the state in one kernel call. For more
    rows, a small state is filled for each segment of rows, on all threads, and the segments are
    merged in their order. A large state is filled in place: each thread takes ranges of classes,
    whose sums stay in its caches, and reads the rows of a range where they are. Only matrices of
    many features are filled by all threads, rows after rows. Neither the segments nor the ranges
    depend on the number of threads, so no bit does.

    Sums that moments hold must never be half changed, whatever exception arrives: they change in a
    single kernel call, or in a call that is not interrupted, or they are replaced by others.

    Attributes
    ----------
    structure : Structure
    count : ndarray, shape (n_classes,)
        Rows of each class, or their total weight.
    packed : ndarray, shape ``structure.scatter_shape(n_classes, n_features)``
        Scatters, of matrices the lower triangles row by row.
    fourth : ndarray, shape (n_classes, n_features + 1), optional
        Fourth moments of the rows about their class means, see `fourth_of_rows`. `add` and
        `subtract` leave them as they are, for the caller to replace by `fourth_with`.
    """

    structure: Structure
    count: np.ndarray
    packed: np.ndarray
    rounding: np.ndarray | None = None
    fourth: np.ndarray | None = None
    _value_bytes = 0  # of integers, whose sums are exact

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features."""

    @abstractmethod
    def empty(self, n_classes: int) -> Any:
        """Return sums of no rows, otherwise like these."""

    @abstractmethod
    def centred(self) -> Any:
        """Return the same moments as `CentredSums`."""

    @abstractmethod
    def add(self, other: Any, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""

    @abstractmethod
    def _read_dtype(self, dtype: np.dtype) -> np.dtype:
        """Return the data type in which rows of a data type are read."""

    @abstractmethod
    def _changes_at_once(self, dtype: np.dtype, weights: np.ndarray) -> bool:
        """Return True if `_add_few` changes nothing but arrays, in a single kernel call."""

    @abstractmethod
    def _add_few(self, rows: Coded, block_rows: int) -> None:
        """Add rows block by block; if the first block fails, nothing has changed."""

    @abstractmethod
    def _add_many(self, rows: Coded) -> None:
        """Add many rows of many features on all threads; if that fails, nothing has changed."""

    @property
    def scatter(self) -> np.ndarray:
        """Scatters as lower triangular matrices, or sums of squares; a copy for matrices."""
        return read_only(self.structure.unpack(self.packed))

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed."""
        return True

    def has_room_for(self, other: Any, at: np.ndarray) -> bool:
        """Return True if no sum overflows with `other` added, see `add`."""
        return True

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def _mapped(self, change: Callable[[str, np.ndarray], np.ndarray]) -> Self:
        """Return sums whose arrays are what a function of their names and values returns."""
        mapped = object.__new__(type(self))  # `copy.copy` takes longer than small arrays do
        held = mapped.__dict__
        for name, value in self.__dict__.items():
            held[name] = change(name, value) if isinstance(value, np.ndarray) else value
        return mapped

    def copy(self) -> Self:
        """Return independent sums with the same values."""
        return self._mapped(lambda _, array: array.copy())

    def with_classes(self, kept: Any, groups: Any) -> Self:
        """Return the sums of some classes, and of some groups of them; views for slices."""
        own = ("packed", "rounding")
        return self._mapped(lambda name, a: a[groups if name in own else kept])

    def with_scatter(self, packed: np.ndarray, rounding: np.ndarray | None) -> Self:
        """Return a copy with another scatter."""
        changed = self._mapped(lambda name, a: packed if name == "packed" else a)
        changed.rounding, changed.fourth = rounding, None
        return changed.copy()

    def with_features(self, index: np.ndarray) -> Self:
        """Return the sums of some features."""

        def selected(name: str, array: np.ndarray) -> np.ndarray:
            if name == "packed":
                return self.structure.select_features(array, index)
            return np.ascontiguousarray(array[:, index]) if array.ndim == 2 else array.copy()

        some = self._mapped(selected)
        some.fourth = None
        return some

    def without_products(self) -> Any:
        """Return `centred` without products of different features."""
        if not self.structure.matrix:
            return self.centred()
        squares = self.structure.squares(self.packed)
        alone = self._mapped(lambda name, array: squares if name == "packed" else array)
        alone.fourth = None
        alone.structure = structure_of("diag" if self.structure.per_class else "tied_diag")
        if self.structure.sharing:
            alone.structure = replace(alone.structure, sharing=self.structure.sharing)
        return alone.centred()

    @property
    def most_at_once(self) -> int:
        """Rows that a single kernel call adds, on one thread."""
        most = most_serial_rows(self.n_features)  # and more if they are multiplied in buckets
        return min(self._most_few, most) if self._uses_blas_threads(most + 1) else self._most_few

    @property
    def _ways(self) -> Ways:
        """Ways in which rows can be added to these sums."""
        return ways_of(self.structure, self.count.size, self.n_features, self._value_bytes)

    @property
    def _most_few(self) -> int:
        """Rows that are added as one block, or block by block, to the sums themselves."""
        return self._ways.most_few

    @abstractmethod
    def adding_at_once(self) -> AddingAtOnce:
        """Return a function that adds up to `most_at_once` rows, and what it takes."""

    def _uses_blas_threads(self, n_rows: int) -> bool:
        """Return True if BLAS might use several threads to add that many rows, if it is let."""
        return False

    @property
    def small(self) -> bool:
        """True if it takes little time and memory to copy these sums."""
        return self._ways.state_bytes <= _SMALL_STATE

    def placed(self, at: np.ndarray, n_classes: int) -> Self:
        """Return a copy in which class k is class ``at[k]`` of `n_classes`.

        Raises
        ------
        MergeError
            If sums of several classes overflow.
        """
        sums: Self = self.empty(n_classes)
        fourth = sums.fourth_with(self, at)
        with np.errstate(over="ignore", invalid="ignore"):
            sums.add(self, at)
        sums.fourth = fourth
        return sums.checked()

    def fourth_with(self, other: Sums, at: np.ndarray, sign: int = 1) -> np.ndarray | None:
        """Return the fourth moments once `other` is added or subtracted; None if it has none.

        Raises
        ------
        MergeError
            If no rows have them.
        """
        if other.fourth is None:
            return None
        parts = [(sign, other.centred(), at)]
        if self.fourth is not None:
            parts.insert(0, (1, self.centred(), np.arange(self.count.size)))
        return merge_fourth(parts, self.count.size)

    def checked(self) -> Self:
        """Return these sums; raise `MergeError` if one has overflowed."""
        if not self.finite:
            raise MergeError(OVERFLOW)
        return self

    def updated(self, rows: Coded, held: bool, decay: float | None = None) -> Any:
        """Return the sums with rows added: these, or others. If that fails, nothing has changed.

        Parameters
        ----------
        rows : Coded
        held : bool
            The sums are held by moments: they change completely or not at all.
        decay : float, optional
            Factor that all weights are multiplied by afterwards, those of `CentredSums`.
        """
        if decay is not None:
            if held and not self.small:
                return uninterrupted(self.updated, rows, False, decay)
            scaled = (self.copy() if held else self).updated(rows, False)
            scaled.scale(decay)
            return scaled
        X, n = rows.X, len(rows.codes)
        if type(X) is LiftedRows:
            return self._updated_by_windows(rows, held)
        dtype, way = self._read_dtype(X.dtype), self.way(n, X.dtype)
        if way == "segments" and type(X) is not CompressedRows:
            return self._updated_by_segments(rows)
        _, codes, weights = rows.read()
        if way == "alone" or type(X) is CompressedRows:
            add: Any = self._add_few
            if held and not self._changes_at_once(dtype, weights):
                add = partial(uninterrupted, add)
            if self._uses_blas_threads(n):
                add = partial(threads.call_serial_blas, add)
            add(Coded(as_kernel_rows(X, dtype), codes, weights), max(n, LEAST_ROWS))
            return self
        rows = Coded(np.asarray(X), codes, weights)  # which are read several times
        if way == "passes":
            uninterrupted(self._add_many, rows)
        else:
            uninterrupted(self._add_by_ranges, rows, self._ways.ranges())
        return self

    def way(self, n_rows: int, dtype: np.dtype) -> str:
        """Return how that many rows are added; see `Ways`."""
        return self._ways.way(n_rows, self._read_dtype(dtype))

    def _updated_by_segments(self, rows: Coded, in_place: bool = False) -> Any:
        """Return the sums with rows added, each segment to sums of its own; see `updated`.

        They are added to a copy, unless these sums have to change in place.
        """
        (n, d), n_classes = rows.X.shape, self.count.size
        dtype = self._read_dtype(rows.X.dtype)
        segment = self._ways.segment(n)
        # Every class has rows to multiply with each other; of narrow rows, products take less time
        # than to merge those of a block.
        block_rows = max(LEAST_ROWS, _BLOCK_ELEMENTS // d, 64 * n_classes)
        block_rows *= 1 if self.structure.wide(d) else 2

        everyone = np.arange(n_classes)

        def part(start: int, sums: Sums) -> Sums:
            sums._add_few(rows.part(slice(start, start + segment), dtype), block_rows)
            return sums

        def whole() -> Sums:
            first = self.empty(n_classes) if in_place else self.copy()
            if n <= segment:
                return part(0, first)
            others = ((start, self.empty(n_classes)) for start in range(segment, n, segment))
            with closing(threads.imap(part, chain([(0, first)], others), ahead=_AHEAD)) as parts:
                total = next(parts)
                with np.errstate(over="ignore", invalid="ignore"):
                    for sums in parts:
                        total.add(sums, everyone)
            return total

        sizes = min(n, segment), n % segment
        serial = any(self._uses_blas_threads(size) for size in sizes)
        added = threads.call_serial_blas(whole) if serial else whole()
        if in_place:
            return self._with_added(added, in_place)
        if not added.finite:
            raise NotFinite
        return added

    def _with_added(self, added: Any, in_place: bool = False) -> Any:
        """Return sums with others of the same classes added: these, or a copy of small ones."""
        everyone = np.arange(self.count.size)
        if self.small and not in_place:
            result = self.copy()
            with np.errstate(over="ignore", invalid="ignore"):
                result.add(added, everyone)
            if not result.finite:
                raise NotFinite
            return result
        if not added.finite or not self.has_room_for(added, everyone):
            raise NotFinite
        uninterrupted(self.add, added, everyone)
        return self

    def _add_by_ranges(self, rows: Coded, edges: np.ndarray) -> None:
        """Add the rows of each range of classes to its part of these sums; see `_ranges`.

        One thread adds all rows of a range, unless they are a large share of the rows. A range that
        shares a scatter with others has one of its own, which is added afterwards.
        """
        shared = self.count.size // len(self.packed)
        apart = bool(edges[1] % shared)
        range_of = np.repeat(np.arange(edges.size - 1), np.diff(edges))
        for window in rows.blocks(self._read_dtype(rows.X.dtype)):
            ordered, starts = by_ranges(window, range_of)

            def add(i: int, large: bool, ordered: Coded = ordered, starts: Any = starts) -> Any:
                (first, last), own = edges[i : i + 2], slice(*starts[i : i + 2])
                groups = slice(first // shared, -(-last // shared))
                part = self.with_classes(slice(first, last), groups)
                if apart:
                    part.packed = np.zeros_like(part.packed)
                X, codes, weights = (values[own] for values in ordered)
                rows = Coded(X, codes - first, weights)
                if large:
                    part._updated_by_segments(rows, in_place=True)
                else:
                    part._add_few(rows, len(rows.codes))
                return part.packed

            sizes = np.diff(starts)
            large = sizes > cost.LARGE_RANGE * len(window.codes)
            first, others = (np.flatnonzero(a).tolist() for a in (large, ~large & (sizes > 0)))
            with threads.serial_blas():
                triangles = [add(i, True) for i in first]
                triangles += threads.run(add, ((i, False) for i in others))
            for i, scatter in zip(first + others, triangles, strict=True):
                if apart:
                    self.packed[edges[i] // shared] += scatter[0]

    def _updated_by_windows(self, rows: Coded, held: bool) -> Any:
        """Return the sums with rows added that are lifted window by window; see `updated`."""
        X, codes, weights = rows
        windows = X.windows()
        first, lifted = next(windows)
        if len(lifted) == len(X):
            return self.updated(Coded(lifted, codes, weights), held)
        empty: Sums = self.empty(self.count.size)
        added = empty.updated(Coded(lifted, codes[first], weights[first]), False)
        del lifted  # before the next ones are lifted
        for some, lifted in windows:
            added = added.updated(Coded(lifted, codes[some], weights[some]), False)
            del lifted
        if added.finite and not any(array.any() for array in self.arrays().values()):
            return added  # to sums of no rows
        return self._with_added(added)


# Sums of squares are off by less than this share of them: by eps / 2 for each number that was
# added, which is this for 2^21 numbers if all these errors have one sign, and for 2^42 if they have
# any. Sums of float32 products are off by more, `ClassMoments` derives it, and so are those from
# which others were subtracted: their `rounding` is a bound.
ROUNDING = 2.0**-32
_FLOAT32_ROUNDING = 260 * 2.0**-24

_MOST = 1e280  # magnitude of a mean
_EPS = np.finfo(np.float64).eps

_FLOAT64 = np.dtype(np.float64)
_FLOATS = _FLOAT64, np.dtype(np.float32)
_NO_SQUARES = np.empty(0)


class Means(NamedTuple):
    """The weight of the rows of each class, and their mean in two parts."""

    number: np.ndarray
    mean: np.ndarray
    mean_low: np.ndarray


@dataclass(eq=False)
class CentredSums(Sums):
    """Count, mean and scatter about the mean, in float64.

    The mean is the sum of two float64 numbers, ``mean + mean_low``: at an offset of 1e8 one
    alone is off by 1e-8, and merging would carry that error times the distance of the means
    into the scatter.

    Attributes
    ----------
    count : ndarray of int64, or of float64 once weights are used, shape (n_classes,)
    mean, mean_low : ndarray of float64, shape (n_classes, n_features)
    packed : ndarray of float64
    squares : ndarray of float64, shape (n_classes,), optional
        Sums of the squared weights; None if they are equal to the counts.
    rounding : ndarray of float64, shape (groups, n_features), optional
        Bounds of the rounding errors of the sums of squares beyond the share `ROUNDING` of them.
    """

    structure: Structure
    count: np.ndarray
    mean: np.ndarray
    mean_low: np.ndarray
    packed: np.ndarray
    squares: np.ndarray | None = None
    rounding: np.ndarray | None = None
    fourth: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        """Number of features."""
        return self.mean.shape[1]

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

    def check(self, n_classes: int) -> None:
        """Raise ValueError unless these could be sums of rows of that many classes."""
        shape = n_classes, self.n_features
        check_count(self.count, n_classes, "i8" if self.count.dtype.kind == "i" else "f8")
        check_array("mean", self.mean, shape, "f8")
        check_array("mean_low", self.mean_low, shape, "f8")
        if (np.abs(self.mean_low) > 1e-9 * np.abs(self.mean)).any():
            raise ValueError("mean_low is more than the rounding error of mean")
        check_array("scatter", self.packed, self.structure.scatter_shape(*shape), "f8")
        check_squares("scatter", self._square_sums)
        if self.squares is not None:
            check_array("squares", self.squares, (n_classes,), "f8")
            check_squares("squares", self.squares)
        if self.rounding is not None:
            check_array("rounding", self.rounding, self._square_sums.shape, "f8", least=0)
        check_fourth(self, n_classes)

    def effective_count(self, groups: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        r"""Return Kish's effective numbers of rows :math:`(\sum w)^2 / \sum w^2` of groups.

        They equal the numbers of rows if all weights are equal, and are at least one.

        Parameters
        ----------
        groups : callable
            Returns the sums over the classes of each group; see `Structure.group_sums`.
        """
        count = groups(self.count.astype(np.float64))
        if self.squares is None:
            return count
        squares = groups(self.squares)
        return np.maximum(count * (count / np.where(squares > 0, squares, 1.0)), count > 0)

    def class_means(self) -> np.ndarray:
        """Return the means, NaN for classes without rows."""
        return np.where(self.count[:, None] > 0, self.mean, np.nan)

    def centred(self) -> CentredSums:
        """Return these sums."""
        return self

    def select_scatter(self, groups: slice, features: np.ndarray, out: np.ndarray) -> None:
        """Write scatters about the means of some groups and features, in rising order; whole."""
        self.structure.select_varying(self.packed[groups], features, out)

    def _read_dtype(self, dtype: np.dtype) -> np.dtype:
        return row_type(dtype).floating

    def _changes_at_once(self, dtype: np.dtype, weights: np.ndarray) -> bool:
        return not weights.size or self.squares is not None

    def adding_at_once(self) -> AddingAtOnce:
        """Return a function that adds up to `most_at_once` rows, and what it takes."""
        squares = _NO_SQUARES if self.squares is None else self.squares
        state = LARGE, self.count, squares, self.mean, self.mean_low, self.packed
        add: Callable[..., bool] = self.structure.add_few
        block_rows = max(LEAST_ROWS, self.most_at_once)

        def add_rows(X: np.ndarray, codes: np.ndarray) -> bool:
            return add(X, codes, NO_WEIGHTS, block_rows, *state)

        return add_rows, _FLOATS, np.inf

    def _uses_blas_threads(self, n_rows: int) -> bool:
        if not self.structure.matrix or n_rows <= most_serial_rows(self.n_features):
            return False
        load = self._ways.load
        return not cost.in_buckets(load, n_rows)

    def _add_few(self, rows: Coded, block_rows: int, limit: float = LARGE) -> None:
        weighted = rows.weights.size > 0
        count = self._count_for(weighted)
        squares = self._squares() if weighted else self.squares
        held = _NO_SQUARES if squares is None else squares
        state = limit, count, held, self.mean, self.mean_low, self.packed
        if not self.structure.add_few(*rows, block_rows, *state):
            raise NotFinite if limit == np.inf else _TooLarge
        self.count, self.squares = count, squares

    def _add_by_ranges(self, rows: Coded, edges: np.ndarray) -> None:
        empty, before = not self.count.any(), (self.count, self.squares)
        if not (empty or self._safe(rows)):  # those of some ranges could not be taken back
            raise _TooLarge
        if rows.weights.size:  # not in each part
            self.count, self.squares = self._count_for(True), self._squares()
        try:
            super()._add_by_ranges(rows, edges)
        except (NotFinite, _TooLarge):
            self.count, self.squares = before
            for array in self.arrays().values() if empty else ():
                array[...] = 0
            raise

    def _safe(self, rows: Coded) -> bool:
        """Return True if no sum can overflow or be NaN with rows added."""
        held = self.count, self.mean, rows.weights
        if not all(np.abs(values).max(initial=0) < _SAFE for values in held):
            return False
        if rows.X.dtype.kind != "f":
            return True
        dtype = self._read_dtype(rows.X.dtype)
        bound = min(_SAFE, float(np.finfo(dtype).max))
        for block in rows.blocks(dtype):
            values, step = block.X.reshape(-1), _CHECKED_ELEMENTS
            parts = ((values[at : at + step], bound) for at in range(0, values.size, step))
            if not all(threads.run(all_below, parts)):
                return False
        return True

    def _add_many(self, rows: Coded) -> None:
        means = self._means_of(rows)
        self._add_about(rows, means, *self._centres(means))

    def _means_of(self, rows: Coded) -> Means:
        """Return the means of rows."""
        X, codes, weights = rows
        number = sums_of_weights(codes, weights, self.count.size)
        # The pivot is the first row of each class: the last one of those in reverse order. Sums of
        # equal values about it are zero, and features that are constant in these rows stay so.
        first, present = np.zeros(number.size, np.intp), number > 0
        first[codes[::-1]] = np.arange(codes.size)[::-1]
        pivot, sums = np.zeros_like(self.mean), np.zeros_like(self.mean)
        pivot[present] = X[first[present]]
        beyond = np.zeros(1, np.int64)  # values too large to be squared and summed
        dtype = self._read_dtype(X.dtype)
        add_in_parts(rows, dtype, add_sums, (pivot,), sums, beyond)
        within = not beyond.any() and (number + self.count).max() < LARGE
        if not (within and means_of_sums(LARGE, number, pivot, sums)):
            raise _TooLarge
        return Means(number, pivot, sums)

    def _centres(self, means: Means) -> tuple[np.ndarray, np.ndarray]:
        r"""Return the centres about which rows are added, in two parts.

        Chan, Golub and LeVeque add :math:`n n' / (n + n') (m' - m)(m' - m)^T` to the scatters of n
        and n' rows with means m and m'. By that much, the scatter of the n' rows is larger about
        :math:`m' - \sqrt{n / (n + n')} (m' - m)`, which takes no other pass over a large scatter.
        """
        number, mean, mean_low = means
        if not self.count.any():
            return mean, mean_low
        both = (number > 0) & (self.count > 0)
        share = np.sqrt(self.count / np.where(both, self.count + number, np.inf))[:, None]
        gap = (mean - self.mean) + (mean_low - self.mean_low)
        centre, low = two_sum(mean, mean_low - share * gap)
        return centre, low

    def _add_about(
        self,
        rows: Coded,
        means: Means,
        centre: np.ndarray,
        centre_low: np.ndarray,
    ) -> None:
        """Add rows with given centres."""
        X, codes, weights = rows
        dtype = self._read_dtype(X.dtype)
        rounded = self.structure.matrix and dtype != _FLOAT64
        before = self._square_sums.copy() if rounded else _NO_SQUARES
        for block in rows.blocks(dtype):
            parallel.add_scatter(block, centre, centre_low, dtype, self.packed)
        if rounded:
            self.rounding = self._rounding() + _FLOAT32_ROUNDING * (self._square_sums - before)
        if weights.size or self.squares is not None:
            added = sums_of_weights(codes, weights * weights, self.count.size)
            self.squares = self._squares() + added
        self.count = self._count_for(weights.size > 0)
        everyone, (number, mean, low) = np.arange(self.count.size), means
        state = self.count, self.mean, self.mean_low
        merge_means(number, mean, low, everyone, *state, np.empty_like(mean), np.empty(number.size))

    def updated(self, rows: Coded, held: bool, decay: float | None = None) -> Any:
        """Return the sums with rows added; see `Sums.updated`."""
        if decay is not None:
            return super().updated(rows, held, decay)
        try:
            return super().updated(rows, held)
        except _TooLarge:
            return self._with_large_values(rows)

    def _with_large_values(self, rows: Coded) -> CentredSums:
        """Return other sums, with rows added whose squares may overflow; see `NotFinite`."""
        sums = self.copy()
        for block in rows.blocks(self._read_dtype(rows.X.dtype)):
            threads.call_serial_blas(sums._add_few, block, LEAST_ROWS, np.inf)
        if not sums.finite:
            raise NotFinite
        return sums

    def _count_for(self, weighted: bool) -> np.ndarray:
        """Return the count, as float64 if weights will be added to it; itself if it is already."""
        return self.count.astype(np.float64, copy=False) if weighted else self.count

    def _squares(self) -> np.ndarray:
        """Return the sums of the squared weights, an array that may be changed in place."""
        return self.count.astype(np.float64) if self.squares is None else self.squares

    def _rounding(self) -> np.ndarray:
        """Return the bounds of rounding errors."""
        if self.rounding is None:
            return np.zeros(self._square_sums.shape)
        return self.rounding

    @property
    def _square_sums(self) -> np.ndarray:
        """Sums of squares of single features, shape (groups, d); maybe a view."""
        return self.structure.squares(self.packed)

    @property
    def finite(self) -> bool:
        """True if no sum has overflowed, and means may be summed, too."""
        # Products of features are less than their squares, which take longer to find in a few.
        squares = self.packed if self.small else self._square_sums
        weights = [self.count] if self.squares is None else [self.count, self.squares]
        held = squares.max(initial=0), *(values.sum() for values in weights)
        finite = all(value < np.inf for value in held)
        return finite and bool(np.abs(self.mean).max(initial=0) <= _MOST)

    def has_room_for(self, other: CentredSums, at: np.ndarray) -> bool:
        """Return True if no sum overflows with `other` added, see `add`."""
        trial = self.without_products().copy()
        with np.errstate(all="ignore"):
            trial.add(other.without_products(), at)
            return trial.finite

    def can_scale(self, gamma: float) -> bool:
        """Return True if no sum overflows if every weight is multiplied by `gamma`."""
        fourth = [] if self.fourth is None else [self.fourth]
        held = [self.count.sum(), self._square_sums, *fourth]
        with np.errstate(over="ignore"):
            finite = [np.isfinite(values * gamma).all() for values in held]
            return all(finite) and bool(np.isfinite(self._squares().sum() * gamma * gamma))

    def scale(self, gamma: float) -> None:
        """Multiply every weight by `gamma`; classes whose weight fades get no rows."""
        self.squares = self._squares() * gamma * gamma
        if self.rounding is not None:
            self.rounding = self.rounding * gamma
        self.count = self.count * gamma
        np.multiply(self.packed, gamma, out=self.packed)
        held = [self.count, self.squares, self.mean, self.mean_low]
        if self.fourth is not None:
            self.fourth = self.fourth * gamma
            held.append(self.fourth)
        gone = self.count < FORGOTTEN
        for array in held:
            array[gone] = 0
        self.packed[self.structure.group_sums(self.count) == 0] = 0

    def add(self, other: CentredSums, at: np.ndarray) -> None:
        """Add `other`, whose class k is class ``at[k]`` here."""
        self.structure.add_groups(self.packed, other.packed, at, 1)
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
        add_outer(gap, weight, groups, self.packed)

    def subtract(self, other: CentredSums, at: np.ndarray) -> np.ndarray:
        """Subtract `other`, whose class k is class ``at[k]`` here; see `Sums.subtract`."""
        before = self.count[at]
        left = before - other.count
        left[left < 1e-12 * before] = 0
        squares_before = self._square_sums.copy()
        safe = np.where(left > 0, left, 1)
        gap = (other.mean - self.mean[at]) + (other.mean_low - self.mean_low[at])
        apart = np.where(left == 0, other.count, 0)[:, None] * (gap * gap)
        gap[(other.count == 0) | (left == 0)] = 0
        back = gap * (other.count / safe)[:, None]
        self.structure.add_groups(self.packed, other.packed, at, -1)
        # The distance between the parts' means is gap + back.
        whole = np.where(left > 0, left + other.count, 1)
        coefficients = -(left * other.count / whole)
        groups = self.structure.groups(self.count.size)
        add_outer(gap + back, coefficients, groups[at], self.packed)
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
        squares = self._square_sums
        impossible = ~(squares >= -bound)  # true of NaN, too
        np.logical_or.at(impossible, groups[at], ~(apart <= bound[groups[at]]))
        self.structure.put_squares(self.packed, np.maximum(squares, 0))
        # Single rows do not vary; those with weights may be several, of almost no weight but one.
        counted = self.count.dtype.kind == "i"
        beyond = np.maximum(self.count - 1, 0) if counted else self.count
        alone = self.structure.group_sums(beyond) == 0
        if counted:
            impossible |= alone[:, None] & (squares > bound)
        self.packed[alone] = 0
        # The mean of such a row has the errors of what was subtracted, as rows taken next show.
        bound[self.structure.group_sums(self.count) == 0] = 0
        self.rounding = bound if bound.any() else None
        return impossible


# --- fourth moments, which Ledoit and Wolf's shrinkage needs in addition to the scatter -----------


def fourth_of_rows(rows: Coded, sums: CentredSums) -> np.ndarray:
    """Return the fourth moments of rows about the means of their classes, from their other sums.

    For each class, they are the sums of ``w |t|^2 t`` and of ``w |t|^4``, where t is the row less
    the class mean. Together with the scatter they can be moved to another mean, and so be merged.

    Returns
    -------
    ndarray, shape (n_classes, n_features + 1)

    Raises
    ------
    InvalidDataError
        If they overflow float64.
    """
    n_classes, d = sums.mean.shape
    about = sums.mean, sums.mean_low, np.ones_like(sums.mean)
    total = np.zeros((n_classes, d + 1))
    add_in_parts(rows, row_type(rows.X.dtype).dtype, add_norms, about, total)
    if not np.isfinite(total).all():
        raise InvalidDataError(
            "Input X contains values whose fourth powers overflow float64, which this shrinkage "
            "(fourth_moments=True) sums; scale the data down"
        )
    return total


def merge_fourth(
    parts: Sequence[tuple[int, CentredSums, np.ndarray]], n_classes: int
) -> np.ndarray:
    """Return the fourth moments about the common means of rows that were added and subtracted.

    Parameters
    ----------
    parts : sequence of tuple
        Sign (1 for rows added, -1 for rows subtracted), sums, and the class that each of their
        classes becomes.
    n_classes : int

    Returns
    -------
    ndarray, shape (n_classes, n_features + 1)

    Raises
    ------
    MergeError
        If a sum of fourth powers is negative by more than rounding: other rows were subtracted.
    """
    merged = np.zeros((n_classes, parts[0][1].n_features + 1))
    sources: dict[int, list[tuple[int, Any, int]]] = {}
    for sign, sums, at in parts:
        for k in np.flatnonzero(sums.count > 0).tolist():
            sources.setdefault(int(at[k]), []).append((sign, sums, k))
    for target, own in sources.items():
        weights = np.array([sign * float(sums.count[k]) for sign, sums, k in own])
        if weights.sum() <= 1e-12 * weights.max():  # all are subtracted again
            continue
        high = np.array([sums.mean[k] for _, sums, k in own])
        low = np.array([sums.mean_low[k] for _, sums, k in own])
        gaps = (high - high[0]) + (low - low[0])
        steps = weights @ gaps / weights.sum() - gaps
        size = 0.0
        for (sign, sums, k), step in zip(own, steps, strict=True):
            trace = float(sums.structure.squares(sums.packed[k : k + 1]).sum())
            part = _about(sums.fourth[k], sums.count[k], sums.packed[k], trace, step)
            merged[target] += sign * part
            square = float(step @ step)
            spread = trace + sums.count[k] * square
            size += sums.fourth[k, -1] + spread * square
        # The magnitudes of all terms of `_about` sum to at most 8 times the size, by the inequality
        # of Cauchy and Schwarz, with up to 4 times the relative error of the step, which grows as
        # in `CentredSums.subtract`. What an earlier subtraction left is not known.
        bound = 32 * ROUNDING * (1 + weights.max() / weights.sum()) * size
        known = all(sums.rounding is None for _, sums, _ in own)
        if known and merged[target, -1] < -bound:
            raise MergeError(
                "subtracting these moments leaves fourth moments that no rows have: only rows "
                "that were added can be subtracted"
            )
    np.maximum(merged[:, -1], 0, out=merged[:, -1])
    return merged


def _about(
    fourth: np.ndarray, count: float, packed: np.ndarray, trace: float, step: np.ndarray
) -> np.ndarray:
    """Return the fourth moments of one class about its mean plus `step`."""
    if not step.any():
        return fourth
    # The rows of a lower triangle are the columns of an upper one, which Fortran packs.
    product = blas.dspmv(step.size, 1.0, packed, step, lower=0)
    square = float(step @ step)
    cubes = fourth[:-1] - 2 * product - (trace + count * square) * step
    last = fourth[-1] - 4 * (step @ fourth[:-1] - step @ product) + 2 * square * trace
    return np.append(cubes, last + count * (square * square))


def check_fourth(sums: Sums, n_classes: int) -> None:
    """Raise ValueError unless fourth moments, if there are any, could be those of rows."""
    if sums.fourth is not None:
        check_array("norms", sums.fourth, (n_classes, sums.n_features + 1), "f8")
        check_squares("norms", sums.fourth[:, -1])


# --- scatter and variances of all rows together -----------------------------------------------


def total_scatter(sums: CentredSums) -> np.ndarray:
    """Return the scatter of all rows about their common mean, shape (d, d), from matrices."""
    count, gaps = between_means(sums)
    return symmetric(sums.packed.sum(axis=0)) + (gaps.T * count) @ gaps


def principal_axes(sums: CentredSums, n_axes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the principal axes of all rows, and the sums of squares along them.

    Parameters
    ----------
    sums : CentredSums
        Sums with matrices.
    n_axes : int, optional
        Number of axes; by default all.

    Returns
    -------
    squares : ndarray, shape (n_axes,)
        In falling order.
    axes : ndarray, shape (n_axes, d)
        Orthonormal rows; the largest entry of each is positive.

    Raises
    ------
    MergeError
        If sums overflow.
    InvalidDataError
        If they underflow.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = total_scatter(sums)
    if not np.isfinite(total).all():
        raise MergeError(OVERFLOW)
    check_underflow(total.diagonal().max(), total)
    d = len(total)
    options: dict[str, Any] = {"driver": "evd"}
    if n_axes is not None:
        options = {"subset_by_index": (d - n_axes, d - 1)}
    squares, vectors = threads.call_blas(d, partial(linalg.eigh, lower=True, **options), total)
    axes = vectors[:, ::-1].T
    largest = np.abs(axes).argmax(axis=1)
    signs = np.sign(axes[np.arange(len(axes)), largest])
    return np.maximum(squares[::-1], 0), axes * signs[:, None]


def check_underflow(squares: np.ndarray, products: np.ndarray) -> None:
    """Raise `InvalidDataError` for features whose products count, and whose squares underflow.

    By the inequality of Cauchy and Schwarz, a feature without squares has no products.

    Parameters
    ----------
    squares : ndarray, shape (n_features,) or ()
        Sums of squares to which the products of the features are compared.
    products : ndarray, shape (n_features, n)
    """
    lost = (squares < LEAST_VARIANCE) & products.any(axis=1)
    if lost.any():
        raise InvalidDataError(
            f"the squares of feature {lost.argmax()} underflow float64, as its values differ by "
            f"less than about 1e-154; scale the data up, or the weights"
        )


def total_variance(sums: CentredSums) -> np.ndarray:
    """Return the variances of all rows about their common mean, shape (d,)."""
    count, gaps = between_means(sums)
    scatter: np.ndarray = _within(sums) + count @ (gaps * gaps)
    return scatter / np.add.reduce(count)


def class_variance(sums: CentredSums, *, total: bool = False) -> np.ndarray:
    """Return the variances of each class, or of all rows; one for features without variance.

    As for scikit-learn's `StandardScaler`, that is a variance below what rounding may leave of
    equal values.

    Parameters
    ----------
    sums : CentredSums
        Sums with a scatter per class, or, for all rows, of any structure.
    total : bool
        The variances of all rows about their mean.

    Returns
    -------
    ndarray, shape (n_classes, d), or (1, d)
    """
    if total:
        count = sums.count.sum(keepdims=True)[:, None]
        variance, mean = total_variance(sums)[None], (sums.count / count) @ sums.mean
    else:
        count = np.where(sums.count > 0, sums.count, 1)[:, None]
        variance, mean = sums.structure.squares(sums.packed) / count, sums.mean
    with np.errstate(over="ignore"):
        bound = count * _EPS * variance + (count * mean * _EPS) ** 2
    return np.where(variance > bound, variance, 1.0)


def pooled_variance(sums: CentredSums) -> np.ndarray:
    """Return the variances within classes, pooled, shape (d,).

    They are positive: a feature that varies only between classes gets its variance over all rows,
    and a constant one gets one.
    """
    within = _within(sums) / sums.count.sum()
    variance = np.where(within > 0, within, total_variance(sums))
    return np.where(variance > 0, variance, 1.0)


def constant_features(sums: CentredSums) -> np.ndarray:
    """Return a mask of the features that have one value in all rows, shape (n_features,)."""
    constant = _within(sums) == 0
    if np.count_nonzero(constant):
        _, mean, low = _with_rows(sums)
        constant &= (mean == mean[0]).all(axis=0) & (low == low[0]).all(axis=0)
    return constant


def between_means(sums: CentredSums) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of the classes with rows, and their means less the mean of all rows."""
    count, mean, low = _with_rows(sums)
    gaps = (mean - mean[0]) + (low - low[0])
    return count, gaps - (count / np.add.reduce(count)) @ gaps


def _with_rows(sums: CentredSums) -> Means:
    """Return the counts of the classes with rows, and their means in two parts."""
    means = Means(sums.count, sums.mean, sums.mean_low)
    if np.count_nonzero(sums.count) == sums.count.size:
        return means
    return Means(*(values[sums.count > 0] for values in means))


def _within(sums: CentredSums) -> np.ndarray:
    """Return the sums of squares within classes, shape (d,)."""
    return np.add.reduce(sums.structure.squares(sums.packed), axis=0)
