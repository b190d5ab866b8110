"""Sums and products of many rows on all threads: the same bits for any number of threads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import count, pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np

from streamgda.kernels import integers, products
from streamgda.kernels.integers import PACKED_ROWS, TOGETHER, WIDTH
from streamgda.kernels.products import BLOCK_ROWS as FLOAT_ROWS
from streamgda.kernels.products import LEAST_ROWS, PRODUCT_ROWS
from streamgda.kernels.sums import group_rows
from streamgda.moments.roots import halves
from streamgda.rows.arrays import OrderedRows, as_kernel_rows, blocks
from streamgda.rows.labels import read_codes
from streamgda.runtime import threads
from streamgda.runtime.interruption import Lock

_ORDER_BYTES = 32  # of the place, class and weight of a row that is added in another order
LARGEST_TASK = 3  # times the size that is asked of `even_blocks` and `_tasks`; it is less
_PART_ELEMENTS = 1 << 21  # of a part of the rows that is summed by one thread


class Coded(NamedTuple):
    """Rows, the numbers of their classes, and their weights; no weights if all are one.

    The numbers of many rows may be `CodedLabels`, of which `part` and `blocks` read some.
    """

    X: Any
    codes: Any
    weights: np.ndarray

    def read(self) -> Coded:
        """Return the rows with an array of the numbers of their classes."""
        return self._replace(codes=read_codes(self.codes))

    def part(self, rows: slice, dtype: np.dtype) -> Coded:
        """Return some of the rows, which kernels read in a data type."""
        X = as_kernel_rows(self.X[rows], dtype)
        return Coded(X, read_codes(self.codes[rows]), self.weights[rows])

    def blocks(self, dtype: np.dtype) -> Iterator[Coded]:
        """Yield blocks of the rows, which kernels read in a data type; see `rows.arrays.blocks`."""
        for rows, block in blocks(self.X, dtype, _ORDER_BYTES):
            yield Coded(block, read_codes(self.codes[rows]), self.weights[rows])


def sums_of_weights(codes: np.ndarray, weights: np.ndarray, n_classes: int) -> np.ndarray:
    """Return the weight of the rows of each class, their number if they have no weights."""
    return np.bincount(codes, weights if weights.size else None, n_classes).astype(np.float64)


def rows_by_group(
    codes: np.ndarray, n_classes: int, n_groups: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the row numbers in order of their classes, and where each group starts in them.

    As many successive classes make each group. The rows of a class stay in their order.
    """
    order, starts = np.empty(codes.size, np.intp), np.empty(n_classes + 1, np.intp)
    group_rows(codes, order, starts)
    return order, np.ascontiguousarray(starts[:: n_classes // n_groups])


def by_ranges(rows: Coded, range_of: np.ndarray) -> tuple[Coded, np.ndarray]:
    """Return rows in the order of ranges of classes, and where those of each range start.

    Class k is in range ``range_of[k]``. The rows of a range stay in their order.
    """
    X, codes, weights = rows
    order, starts = rows_by_group(range_of[codes], range_of[-1] + 1, range_of[-1] + 1)
    weights = weights[order] if weights.size else weights
    return Coded(OrderedRows(X, order), codes[order], weights), starts


def add_in_parts(
    rows: Coded, dtype: np.dtype, kernel: Callable[..., None], shared: tuple[Any, ...], *out: Any
) -> None:
    """Call ``kernel(*rows, *shared, *sums)`` for parts of the rows; add their sums in order.

    The kernel reads the rows in a data type.
    """
    n_rows, d = rows.X.shape
    step = max(LEAST_ROWS, _PART_ELEMENTS // d)

    def part(start: int) -> list[np.ndarray]:
        sums = [np.zeros_like(array) for array in out]
        kernel(*rows.part(slice(start, start + step), dtype), *shared, *sums)
        return sums

    with closing(threads.imap(part, ((start,) for start in range(0, n_rows, step)))) as parts:
        for sums in parts:
            for array, added in zip(out, sums, strict=True):
                np.add(array, added, out=array)


def scratch_bytes(n_features: int) -> int:
    """Return the most bytes of scratch space while products of many rows are added."""
    return max(_float_bytes(n_features), _integer_bytes(n_features))


def triangle_ranges(d: int, parts: int) -> list[tuple[int, int]]:
    """Cut the rows of a d x d lower triangle into ranges of about equal area, largest first."""
    cuts = np.unique(np.round(np.sqrt(np.linspace(0, 1, parts + 1)) * d).astype(int))
    return [(int(a), int(b)) for a, b in pairwise(cuts)][::-1]


def even_blocks(
    starts: np.ndarray, groups: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut the rows ``starts[g]:starts[g + 1]`` of some groups into blocks: first, last, group.

    Those of a group are equal, but for a row. They may have half as many rows again as `size`,
    because a small block takes almost as long.
    """
    sizes = (starts[1:] - starts[:-1])[groups]
    pieces = np.maximum((sizes + size // 2) // size, sizes > 0)
    owner, total, parts = (np.repeat(a, pieces) for a in (groups, sizes, pieces))
    number = np.arange(owner.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first, last = (starts[owner] + n * total // parts for n in (number, number + 1))
    return first, last, owner


class _Spaces:
    """Scratch space of the tasks that run at a time, which later ones use again."""

    def __init__(self, make: Callable[[], Sequence[np.ndarray]]) -> None:
        self._make = make
        self._unused: list[Sequence[np.ndarray]] = []

    @contextmanager
    def one(self) -> Iterator[Sequence[np.ndarray]]:
        """Lend space that no other task uses."""
        try:
            space = self._unused.pop()
        except IndexError:
            space = self._make()
        yield space
        self._unused.append(space)


def _tasks(sizes: np.ndarray, owner: np.ndarray, n_rows: int) -> list[tuple[slice, int | None]]:
    """Cut blocks into tasks of about as many rows, or of one block if this has more.

    A task has blocks of one group, and adds to it in its turn, or all blocks of several groups:
    the turn is None. The threads begin with different groups, so that they seldom add to the same.
    """
    several = np.bincount(owner)[owner] > 1
    other = np.diff(owner, prepend=-1) != 0
    before = np.cumsum(sizes) - sizes
    full = np.diff(before // max(1, n_rows), prepend=-1) != 0
    starts = np.flatnonzero(full | (other & (several | np.append(False, several[:-1]))))
    whole = np.flatnonzero(other[starts])  # tasks that begin with a group
    turns = np.arange(starts.size) - np.repeat(whole, np.diff(whole, append=starts.size))
    ends = [*starts[1:].tolist(), sizes.size]
    tasks = [
        (slice(first, last), turn if several[first] else None)
        for first, last, turn in zip(starts.tolist(), ends, turns.tolist(), strict=True)
    ]
    n = threads.n_threads()
    shares = before[starts[whole]] * n // max(1, sizes.sum())
    cuts = [*whole[np.flatnonzero(np.diff(shares, prepend=-1))].tolist(), len(tasks)]
    in_step = zip_longest(*(tasks[a:b] for a, b in pairwise(cuts)))
    return [task for some in in_step for task in some if task]


# --- floating-point rows ----------------------------------------------------------------------

_BLOCKS = 8  # that rows are cut into, at least, unless these are few
_TASK_ELEMENTS = 1 << 19  # of rows that are worth a call on another thread
_PART_FEATURES = 1024  # of a part of a matrix whose products are held, of many rows twice as many
_MANY_BLOCKS = 16  # of wide rows, which are enough tasks if a matrix has few parts
_ADDED_FEATURES = 128  # of a part of a matrix to which one thread adds, and others to others


def add_scatter(
    rows: Coded, centre: np.ndarray, centre_low: np.ndarray, dtype: Any, scatter: np.ndarray
) -> None:
    """Add the products of centred rows to the scatters of their groups.

    Parameters
    ----------
    rows : Coded
    centre, centre_low : ndarray, shape (n_classes, n_features)
        Two parts of the class centres.
    dtype : data type
        Type in which rows are multiplied. Blocks whose values are beyond the range of float32 are
        multiplied in float64.
    scatter : ndarray, shape (groups, n_features * (n_features + 1) / 2)
    """
    X, codes, weights = rows
    n_rows, d = X.shape
    order, starts = rows_by_group(codes, len(centre), len(scatter))
    wide = d > _PART_FEATURES
    # Each block of wide rows is added to a large matrix.
    least, n_blocks = (FLOAT_ROWS, _MANY_BLOCKS) if wide else (PRODUCT_ROWS, _BLOCKS)
    size = max(least, min(4 * least, n_rows // n_blocks))
    cuts: Sequence[np.ndarray] = even_blocks(starts, np.arange(len(scatter)), size)
    if wide:
        n, n_parts = len(cuts[0]), len(_triangle_parts(n_rows, d))
        cuts = *(np.repeat(cut, n_parts) for cut in cuts), np.tile(np.arange(n_parts), n)
    source = X, codes, order, weights, *_centre_in(centre, centre_low, dtype, weights)
    add = _add_in_parts if wide else _add_blocks
    with threads.serial_blas():
        refused = add(source, cuts, dtype, scatter)
        # After all others, so that it does not matter which blocks shared a task.
        if refused.size:
            source = *source[:4], centre, centre_low
            add(source, [cut[refused] for cut in cuts], np.float64, scatter)


def _float_bytes(n_features: int) -> int:
    """Return the most bytes of the rows and products that all threads hold."""
    if n_features > _PART_FEATURES:
        width = min(n_features, 2 * _PART_FEATURES)
        return 8 * threads.n_threads() * width * (width + 2 * PRODUCT_ROWS)
    rows = LARGEST_TASK * max(FLOAT_ROWS, _TASK_ELEMENTS // n_features)
    blocks, block = max(1, rows // FLOAT_ROWS), FLOAT_ROWS + FLOAT_ROWS // 2
    return 8 * threads.n_threads() * (block * n_features + blocks * n_features**2)


def _centre_in(
    centre: np.ndarray, centre_low: np.ndarray, dtype: Any, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return centres in two parts of the type in which rows are centred.

    Rows times the roots of weights must be rounded to float32 only once.
    """
    if dtype == np.float64 or weights.size:
        return centre, centre_low
    high, low = halves(centre, np.float32, centre_low)
    return high, low


def _add_blocks(
    source: tuple[np.ndarray, ...], cuts: Sequence[np.ndarray], dtype: Any, scatter: np.ndarray
) -> np.ndarray:
    """Centre blocks of rows and add their products.

    Each task is a few blocks, and the rows of one stay in a cache between centring and products.
    Several tasks of one group multiply at the same time, and add to each part of it in turn.

    Returns the numbers of the blocks for which float32 has too small a range.
    """
    d = source[0].shape[1]
    sizes, owner = cuts[1] - cuts[0], cuts[2]
    tasks = _tasks(sizes, owner, min(_TASK_ELEMENTS // d, int(sizes.sum()) // _BLOCKS))
    active, nowhere = np.empty(sizes.size, np.intp), scatter[:0]
    parts = triangle_ranges(d, max(1, d // _ADDED_FEATURES))
    held = max(1 if turn is None else some.stop - some.start for some, turn in tasks)
    shapes = (int(sizes.max()), d), (held, d, d)
    spaces = _Spaces(lambda: [np.empty(shape, dtype) for shape in shapes])

    def add(turns: threads.Turns, some: slice, turn: int | None) -> None:
        first, last, groups = (cut[some] for cut in cuts)
        features, own = np.empty((groups.size, d), np.intp), active[some]
        with spaces.one() as (rows, results):
            to = scatter if turn is None else nowhere
            blocks = first, last, groups, rows, features, own
            products.multiply_blocks(source, *blocks, results, to)
            if turn is None:
                return
            for part in parts:
                with turns.turn((groups[0], part), turn):
                    products.add_blocks(results, features, own, groups, *part, scatter)

    threads.run_in_turns(add, tasks)
    return np.flatnonzero(active < 0)


def _add_in_parts(
    source: tuple[np.ndarray, ...], cuts: Sequence[np.ndarray], dtype: Any, scatter: np.ndarray
) -> np.ndarray:
    """Centre blocks of wide rows and add parts of their products; see `_add_blocks`.

    A task is a block and the number of a part, and centres the features that it multiplies.
    """
    parts = _triangle_parts(*source[0].shape)
    width = max(part[1] - part[0] for part in parts)
    shapes = (2, PRODUCT_ROWS, width), (width, width)
    spaces = _Spaces(lambda: [np.empty(shape, dtype) for shape in shapes])

    def add(turns: threads.Turns, turn: int, first: int, last: int, g: int, p: int) -> bool:
        features = np.empty(2 * width, np.intp)
        with spaces.one() as (rows, results):
            n = products.multiply_part(source, first, last, parts[p], rows, features, results)
            with turns.turn((g, p), turn):
                products.add_part(results, features, *n, scatter[g])
        return n[1] < 0

    turns: defaultdict[Any, Iterator[int]] = defaultdict(count)
    tasks = zip(*(cut.tolist() for cut in cuts), strict=True)
    return np.flatnonzero(
        threads.run_in_turns(add, ((next(turns[task[2:]]), *task) for task in tasks))
    )


def _triangle_parts(n_rows: int, d: int) -> list[tuple[int, int, int, int]]:
    """Cut a d x d lower triangle into squares: first and last rows, and columns.

    Many rows have few parts, whose products take less time, because their blocks are tasks enough.
    """
    many = n_rows >= _MANY_BLOCKS * FLOAT_ROWS
    n = -(-d // (_PART_FEATURES * (2 if many else 1)))
    ranges = [*pairwise((np.arange(n + 1) * d // n).tolist())]
    return [(*rows, *columns) for i, rows in enumerate(ranges) for columns in ranges[: i + 1]]


# --- rows of integers -------------------------------------------------------------------------

_TILES_BYTES = 1 << 20  # of products that are held, unless those of a single panel have more

Form = tuple[int, np.uint8]


def add_integers(
    rows: np.ndarray,
    codes: np.ndarray,
    form: Form,
    count: np.ndarray,
    total: np.ndarray,
    scatter: np.ndarray,
    n_threads: int,
) -> None:
    """Add rows to the counts and sums of their classes, and to the products of their groups.

    On one thread, that is a single kernel call. On several, tasks are as those of `_add_blocks`.

    Parameters
    ----------
    rows, form
        What `rows.arrays.byte_rows` returns.
    codes : ndarray
        Classes of the rows.
    count, total, scatter : ndarray of int64
        Shapes (n_classes,), (n_classes, n_features), (groups, n_features * (n_features + 1) / 2).
    n_threads : int
    """
    n_groups = len(scatter)
    # In order of classes even if a group holds several: more features are zero in a block.
    order, starts = rows_by_group(codes, count.size, n_groups)
    state = *form, count, total, scatter
    if n_threads == 1:
        integers.add_integers(rows, codes, order, starts, np.arange(n_groups), *state)
        return
    size = max(PACKED_ROWS, min(_TASK_ELEMENTS // rows.shape[1], codes.size // _BLOCKS))
    first, last, owner = even_blocks(starts, np.arange(n_groups), size)
    tasks = _tasks(last - first, owner, size)
    n_panels, at_a_time = _panels(rows.shape[1])
    columns = n_panels * WIDTH
    words = columns * -(
        -max(last[some.stop - 1] - first[some.start] for some, _ in tasks) // TOGETHER
    )
    sizes = words, columns, at_a_time * columns * WIDTH
    spaces = _Spaces(lambda: (np.empty(columns, np.intp), *(np.empty(n, np.int32) for n in sizes)))

    locks = [Lock() for _ in range(n_groups)]

    def add(some: slice, turn: int | None) -> None:
        if turn is None:
            integers.add_integers(rows, codes, order, starts, owner[some], *state)
            return
        g, own = owner[some.start], order[first[some.start] : last[some.stop - 1]]
        with spaces.one() as (places, words, totals, tiles):
            active = integers.pack_block(rows, own, *form, words, places, totals)
            for i in range(0, n_panels, at_a_time):
                part = i, min(i + at_a_time, -(-active // WIDTH))
                integers.multiply_panels(words, own.size, *part, tiles)
                # In any order, but one at a time: other features are in a panel of another block.
                with locks[g]:
                    block = places, totals, active
                    if i == 0:
                        integers.add_totals(rows, codes, own, *block, *form, count, total)
                    integers.add_tiles(tiles, *part, *block, own.size, *form, scatter[g])

    threads.run(add, tasks)


def _panels(n_bytes: int) -> tuple[int, int]:
    """Return the number of panels of rows, and of those whose products are held at a time."""
    n_panels = -(-n_bytes // WIDTH)
    return n_panels, min(n_panels, max(1, _TILES_BYTES // (4 * n_panels * WIDTH**2)))


def _integer_bytes(n_features: int) -> int:
    """Return the most bytes of the panels and products of 16-bit integers that all threads hold."""
    n_panels, at_a_time = _panels(2 * n_features)
    most = LARGEST_TASK * max(PACKED_ROWS, _TASK_ELEMENTS // n_features)
    entries = most // TOGETHER
    words = (n_panels + 1) * entries + n_panels * (at_a_time * WIDTH + 3)
    return threads.n_threads() * 4 * WIDTH * words
