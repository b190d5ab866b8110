"""Grids of rows: the shape of arrays of scores, and how they are cut into chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import concatenated

_CHUNK_BYTES = 4 << 20  # of scores, at most

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Grid:
    """The arrangement of rows in an array: they follow each other in C order.

    Attributes
    ----------
    shape : tuple of int
    chunks : tuple of int
        Elements that are stored together, along each dimension.

    Examples
    --------
    >>> grid = Grid((4, 6), (2, 3))
    >>> grid.line
    12
    >>> list(grid.boxes(3, 12))
    [(slice(0, 1, None), slice(3, 6, None)), (slice(1, 2, None), slice(0, 6, None))]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], chunks: tuple[int, ...] | None = None) -> Self:
        """Return a grid; without chunks, the elements along its last dimension are together."""
        if chunks is None:
            chunks = tuple([1] * (len(shape) - 1) + [shape[-1] if len(shape) > 1 else 1])
        return cls(
            shape, tuple(max(1, min(n, size)) for n, size in zip(chunks, shape, strict=True))
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)

    @property
    def cut(self) -> int:
        """The first dimension along which several elements are stored together."""
        wide = (k for k, n in enumerate(self.chunks) if n > 1)
        return next(wide, len(self.shape) - 1)

    @property
    def line(self) -> int:
        """Number of consecutive rows that are stored in a line of whole chunks."""
        return self.chunks[self.cut] * math.prod(self.shape[self.cut + 1 :])

    @property
    def chunks_in_line(self) -> int:
        """Number of chunks in such a line."""
        pairs = zip(self.shape[self.cut + 1 :], self.chunks[self.cut + 1 :], strict=True)
        return math.prod(-(-size // n) for size, n in pairs)

    @property
    def unit(self) -> int:
        """Number of rows any multiple of which ends with whole chunks.

        It is a line; or a plane of a cube, if lines do not fill planes.

        Examples
        --------
        >>> Grid((5, 8, 3), (1, 4, 3)).unit, Grid((5, 7, 3), (1, 4, 3)).unit
        (12, 21)
        """
        filled = not self.cut or self.shape[self.cut] % self.chunks[self.cut] == 0
        return self.line if filled else math.prod(self.shape[self.cut :])

    @property
    def slab_unit(self) -> int:
        """Number of rows that slabs are multiples of, to be whole chunks of `in_slabs`."""
        last = len(self.shape) - 1
        return math.prod(self.shape[-2:]) if self.cut == last > 1 else self.unit

    def in_slabs(self, n_rows: int, row_bytes: int) -> Grid:
        """Return the grid in chunks for arrays that are written `n_rows` rows at a time.

        They have a few MiB, with rows of `row_bytes`, and slabs are whole chunks, if possible.

        Examples
        --------
        >>> Grid.of((5_000_000,)).in_slabs(1_000_000, 8).chunks
        (500000,)
        >>> Grid.of((3000, 2000)).in_slabs(600_000, 8).chunks
        (300, 1000)
        """
        if self.cut < len(self.shape) - 1:
            return self
        if len(self.shape) == 1:
            while n_rows % 2 == 0 and n_rows * row_bytes > _CHUNK_BYTES:
                n_rows //= 2
            return Grid.of(self.shape, (n_rows,))
        lines, width = max(1, n_rows // self.shape[-1]), self.chunks[-1]
        width = -(-width // -(-lines * width * row_bytes // _CHUNK_BYTES))
        return Grid.of(self.shape, (*self.chunks[:-2], lines, width))

    def boxes(self, start: int, stop: int) -> Iterator[Box]:
        """Yield the parts of the array, in order, that hold rows ``start:stop``."""
        return _boxes(self.shape, start, stop)

    def read(self, box_of: Callable[[Box], np.ndarray], start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop``; a function returns those of a box, in C order."""
        boxes = [*self.boxes(start, stop)] or [(slice(0, 0),) * len(self.shape)]
        return concatenated([box_of(box) for box in boxes])

    def write(self, array: Any, start: int, scores: np.ndarray) -> None:
        """Write the scores of rows from `start` on to an array of the shape of the grid."""
        done = 0
        scores = in_type_of(array, scores)
        for box in self.boxes(start, start + len(scores)):
            shape = tuple(part.stop - part.start for part in box)
            stop = done + math.prod(shape)
            array[box] = scores[done:stop].reshape(*shape, *scores.shape[1:])
            done = stop

    def shaped(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores of all rows in the shape of the grid."""
        return scores.reshape(*self.shape, *scores.shape[1:])


def in_type_of(array: Any, scores: np.ndarray) -> np.ndarray:
    """Return scores as an array of floats of fewer bytes will hold them; others as they are.

    Raises
    ------
    InvalidDataError
        If a finite score becomes infinite.
    """
    held: Any = getattr(array, "dtype", None)
    dtype = scores.dtype
    if getattr(held, "kind", "") != "f" or dtype.kind != "f" or held.itemsize >= dtype.itemsize:
        return scores
    with np.errstate(over="ignore"):
        rounded = scores.astype(held)
    lost = np.isinf(rounded) & np.isfinite(scores)
    if lost.any():
        raise InvalidDataError(
            f"out has dtype {held}, in which the score {scores[lost][0]:g} is infinite; pass an "
            f"out of dtype {dtype}"
        )
    return rounded


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    if len(shape) == 1:
        if start < stop:
            yield (slice(start, stop),)
        return
    inner = math.prod(shape[1:])
    first, last = -(-start // inner), stop // inner  # lines that are whole

    def part_of(line: int, start: int, stop: int) -> Iterator[Box]:
        at = line * inner
        return ((slice(line, line + 1), *box) for box in _boxes(shape[1:], start - at, stop - at))

    if first > last:
        yield from part_of(last, start, stop)
        return
    if start < first * inner:
        yield from part_of(first - 1, start, first * inner)
    if first < last:
        yield (slice(first, last), *(slice(0, n) for n in shape[1:]))
    if last * inner < stop:
        yield from part_of(last, last * inner, stop)
