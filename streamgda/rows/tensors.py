"""Tensors: arrays of other libraries. On a device, their rows are summed and scored there.

What happens on a device is written in the array API standard, by `array_api_compat`, for PyTorch,
CuPy, JAX and others. Rows are centred in float64. Products of rows that are float32 or narrower are
computed in float32, if the device does not round them further, as TensorFloat-32 does; all others,
and all sums, are float64. Labels, weights and the results of sums are on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import array_api_compat
import numpy as np

from streamgda.kernels.sums import LARGE
from streamgda.rows.arrays import as_numpy, as_slab
from streamgda.rows.in_memory import ArrayRows
from streamgda.rows.sources import RowSource
from streamgda.rows.sparse import refuse_type

_BLOCK_ELEMENTS = 1 << 24  # of rows and scores that are computed at a time
_LEAST_ROWS = 256
_FLOAT32_ROWS = 240  # whose products are summed in float32
_FETCHED_BYTES = 1 << 26  # of products that are copied to the host at a time
_REACH = 2.0**-100, 2.0**100  # of coefficients, and of their products with rows, in float32
_NEAR = 1e6  # squared distance of centres, below which squares are multiplied out
_PROBE = 1 + 2.0**-12  # which TensorFloat-32 rounds to one

Block = tuple[slice, np.ndarray, np.ndarray]


# --- recognition ----------------------------------------------------------------------------------


def is_tensor(values: Any) -> bool:
    """Return whether this is an array of another library that follows the array API."""
    if isinstance(values, np.ndarray | np.generic | list | tuple):
        return False
    if hasattr(values, "__array_namespace__"):
        return not array_api_compat.is_pydata_sparse_array(values)
    return array_api_compat.is_torch_array(values) or array_api_compat.is_cupy_array(values)


def on_device(values: Any) -> DeviceArray | None:
    """Return a tensor as rows that stay on its device; None for all that numpy reads.

    These are tensors in the memory of this process, and those of devices without float64.
    """
    if type(values) is DeviceArray:
        return values
    strided = str(getattr(values, "layout", "torch.strided")) == "torch.strided"
    if not strided or not is_tensor(values) or in_memory(array_api_compat.device(values)):
        return None
    tensor = DeviceArray(values)
    return tensor if _has_float64(tensor.xp, tensor.device) else None


def in_memory(device: Any) -> bool:
    """Return whether arrays on a device are in memory that numpy reads."""
    return "cpu" in (device, getattr(device, "type", None), getattr(device, "platform", None))


def _dtype_of(values: Any) -> np.dtype:
    """Return the data type of a tensor in numpy, float32 for bfloat16."""
    name = str(values.dtype).rpartition(".")[2]
    try:
        dtype = np.dtype(np.float32 if name == "bfloat16" else name)
    except TypeError:
        refuse_type(values.dtype)
    return dtype


@dataclass(frozen=True)
class TensorRows(RowSource):
    """Rows of a tensor. Reading copies them from its device, unless the source is `resident`.

    Results are tensors on the same device, if the library has their data type.

    Attributes
    ----------
    namespace, device : object
        Those of the tensor.
    """

    namespace: Any = None
    device: Any = None

    in_memory = True

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept what follows the array API."""
        return type(X) is DeviceArray or is_tensor(X)

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows; raise `InvalidDataError` for a scalar."""
        tensor = on_device(X)
        if tensor is None:
            rows = ArrayRows.of(X, name)
            values, dtype = rows.values, rows.dtype
            xp, device = array_api_compat.array_namespace(X), array_api_compat.device(X)
        else:
            values, dtype, xp, device = tensor, tensor.own_dtype, tensor.xp, tensor.device
            if not values.ndim:
                ArrayRows.of(np.asarray(values), name)
        return cls(values, values.shape, dtype, name, namespace=xp, device=device)

    def in_place(self) -> Self:
        """Return a source that reads rows as `DeviceArray`, if that is where they are."""
        return super().in_place() if type(self.values) is DeviceArray else self

    def _slice(self, start: int, stop: int) -> Any:
        rows = self.values[start:stop]
        return rows if self.resident else as_slab(rows)

    @property
    def read_as_views(self) -> bool:
        """True if reading costs neither time nor memory."""
        copied = type(self.values) is DeviceArray and not self.resident
        return self.mapping is None and not copied

    @property
    def row_bytes(self) -> int:
        """Bytes that a row takes in the memory of this process."""
        return 0 if self.resident else super().row_bytes

    @property
    def copied_bytes(self) -> float:
        """Bytes of an array; none for rows that stay on a device, infinity for those copied."""
        if type(self.values) is DeviceArray:
            return 0.0 if self.resident else float("inf")
        return float(self.values.nbytes)

    def wrapped(self, scores: Any, name: str | None, classes: Any, fill: Any) -> Any:
        """Return scores as a tensor on the device of the rows; texts and dates stay as they are."""
        if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "biuf":
            return scores
        if scores.dtype.kind == "f" and not _has_float64(self.namespace, self.device):
            scores = scores.astype(np.float32)
        return self.namespace.asarray(scores, device=self.device)


def _has_float64(xp: Any, device: Any) -> bool:
    try:
        made = xp.zeros(1, dtype=xp.float64, device=device)
    except (TypeError, ValueError, RuntimeError):
        return False
    return bool(made.dtype == xp.float64)  # JAX makes float32 unless it is told otherwise


# --- rows on a device -----------------------------------------------------------------------------


class DeviceArray:
    """Rows on a device.

    `numpy.asarray` copies them to the host; a slice, or the numbers of some rows, are read there.

    Attributes
    ----------
    values : tensor, shape (n_rows, n_features)
    xp, device : object
        The namespace of its library, and its device.
    own_dtype : numpy.dtype
        Data type of the tensor, float32 for bfloat16.
    dtype : numpy.dtype
        float32 for floats of up to 32 bits, whose products are computed in it, otherwise float64.
    shape : tuple of int
    """

    def __init__(self, values: Any) -> None:
        self.values = values.detach() if hasattr(values, "detach") else values
        self.xp = array_api_compat.array_namespace(values)
        self.device = array_api_compat.device(values)
        self.own_dtype = _dtype_of(self.values)
        if self.own_dtype.kind not in "biuf":
            refuse_type(self.own_dtype)
        single = self.own_dtype.kind == "f" and self.own_dtype.itemsize <= 4
        self.dtype = np.dtype(np.float32 if single else np.float64)
        self.shape = tuple(self.values.shape)
        self._order: np.ndarray | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on the host."""
        return self.own_dtype.itemsize * math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> DeviceArray:
        """Return some rows, given as a slice or by their numbers; these are moved when read."""
        some = copy(self)
        if self._order is not None or not isinstance(rows, slice):
            some._order = rows if self._order is None else self._order[rows]
            n_rows = some._order.size
        else:
            some.values = self.values[slice(*rows.indices(len(self))), ...]
            n_rows = some.values.shape[0]
        some.shape = n_rows, *self.shape[1:]
        return some

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(as_numpy(self._rows()), dtype)

    def row(self, at: int) -> np.ndarray:
        """Return a row as an array."""
        return np.asarray(self[at : at + 1])[0]

    def flat(self) -> DeviceArray:
        """Return rows with all axes but the first joined."""
        return DeviceArray(self.xp.reshape(self.values, (len(self), -1)))

    def put(self, array: np.ndarray) -> Any:
        """Return a copy of an array on the device."""
        return self.xp.asarray(np.array(array, order="C"), device=self.device)

    def _rows(self) -> Any:
        order = self._order
        return self.values if order is None else self.xp.take(self.values, self.put(order), axis=0)

    def _read(self) -> Any:
        """Return the rows in float64."""
        return self.xp.astype(self._rows(), self.xp.float64)

    def _blocks(self, n_beside: int = 1) -> Iterator[slice]:
        """Yield the places of blocks of rows that are read at a time.

        Beside each row there are `n_beside` other numbers at most.
        """
        step = max(_LEAST_ROWS, _BLOCK_ELEMENTS // max(1, *self.shape[1:], n_beside))
        for start in range(0, max(1, len(self)), step):
            yield slice(start, min(start + step, len(self)))

    def _of_blocks(self, function: Callable[[DeviceArray], Any]) -> np.ndarray:
        """Return what a function makes of the rows of each block, one after another."""
        parts = [function(self[block]) for block in self._blocks()]
        return np.asarray(as_numpy(self.xp.concat(parts)))

    def invalid(self, nodata: float | None = None) -> np.ndarray:
        """Return an array of the host that is True for rows with NaN, infinity or `nodata`."""
        xp = self.xp

        def of_block(block: DeviceArray) -> Any:
            rows = block._read()
            bad = ~xp.isfinite(rows)
            if nodata is not None:  # in the type of the rows
                same = self.put(np.array(nodata, self.dtype).astype(np.float64))
                bad = bad | (rows == same)
            return xp.any(bad, axis=1)

        return self._of_blocks(of_block)

    @cached_property
    def largest(self) -> float:
        """The largest magnitude of a value; NaN if one is NaN."""
        xp, floats = self.xp, self.own_dtype.kind == "f"
        if not len(self):
            return 0.0

        def of_block(block: DeviceArray) -> Any:
            rows = block._rows() if floats else block._read()
            largest = xp.maximum(xp.max(rows), -xp.min(rows))
            return xp.reshape(xp.astype(largest, xp.float64), (1,))

        return float(self._of_blocks(of_block).max())

    @cached_property
    def product_type(self) -> Any:
        """The data type in which rows are multiplied."""
        xp = self.xp
        if self.dtype == np.float64:
            return xp.float64
        probe = xp.full((_LEAST_ROWS,) * 2, _PROBE, dtype=xp.float32, device=self.device)
        rounded = float(xp.matmul(probe, probe)[0, 0]) < _LEAST_ROWS * _PROBE
        return xp.float64 if rounded else xp.float32

    # --- sums by class ------------------------------------------------------------------------

    def _of_classes(self, codes: np.ndarray) -> Iterator[Block]:
        """Yield the places of blocks of rows, their classes, and the ends of these in the block.

        Rows are in the order of their classes.
        """
        for block in self._blocks(1 + int(np.count_nonzero(np.diff(codes)))):
            own = codes[block]
            first = np.flatnonzero(np.diff(own, prepend=-1))
            yield block, own[first], np.append(first[1:], own.size)

    def _centred(self, ends: np.ndarray, *centres: np.ndarray) -> tuple[Any, Any]:
        """Return rows less the centre of the class of each, and the number of that class."""
        xp, rows = self.xp, self._read()
        sizes = np.diff(ends, prepend=0)
        own = self.put(np.repeat(np.arange(ends.size), sizes))
        for centre in centres:
            rows = rows - xp.take(self.put(centre), own, axis=0)
        return rows, own

    def _totals(self, rows: Any, own: Any, n: int, weights: np.ndarray) -> Any:
        """Return the sums of rows of each of n classes, whose numbers are given, with weights."""
        xp = self.xp
        members = xp.arange(n, device=self.device)[:, None] == own[None, :]
        shares = xp.astype(members, xp.float64)
        if weights.size:
            shares = shares * self.put(weights)[None, :]
        return xp.matmul(shares, rows)

    def add_sums(
        self,
        codes: np.ndarray,
        weights: np.ndarray,
        centre: np.ndarray,
        sums: np.ndarray,
        beyond: np.ndarray,
    ) -> None:
        """Add sums by class to arrays of the host; see `streamgda.kernels.sums.add_sums`.

        Rows are in the order of their classes. `beyond` counts blocks.
        """
        xp, numbers, parts, reach = self.xp, [], [], []
        heaviest = max(1.0, weights.max(initial=0.0))
        for block, classes, ends in self._of_classes(codes):
            rows, own = self[block]._centred(ends, centre[classes])
            parts.append(self._totals(rows, own, classes.size, weights[block]))
            reach.append(xp.max(xp.abs(rows)))
            numbers.append(classes)
        np.add.at(sums, np.concatenate(numbers), as_numpy(xp.concat(parts)))
        beyond += np.count_nonzero(heaviest * np.asarray(as_numpy(xp.stack(reach))) > LARGE)

    def scatter(
        self,
        codes: np.ndarray,
        weights: np.ndarray,
        centres: tuple[np.ndarray, ...],
        groups: np.ndarray,
        matrix: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return groups of classes, some several times, and squares or products of their rows.

        Parameters
        ----------
        codes, weights : ndarray
            Of rows that are in the order of their classes.
        centres : tuple of ndarray, shape (n_classes, n_features)
            Class centres, in two parts.
        groups : ndarray, shape (n_classes,)
            Group of each class, in rising order.
        matrix : bool
            Products of features are summed; otherwise squares.
        """
        xp = self.xp
        found = _Fetched(xp)
        for block, classes, ends in self._of_classes(codes):
            rows, own = self[block]._centred(ends, *(centre[classes] for centre in centres))
            of_block, last = np.unique(groups[classes][::-1], return_index=True)
            stops = ends[classes.size - 1 - last]
            if not matrix:
                sizes = np.diff(stops, prepend=0)
                own = self.put(np.repeat(np.arange(of_block.size), sizes))
                found.add(of_block, self._totals(rows * rows, own, of_block.size, weights[block]))
                continue
            if weights.size:
                rows = rows * xp.sqrt(self.put(weights[block]))[:, None]
            for group, start, stop in zip(of_block, [0, *stops[:-1]], stops, strict=True):
                products = self._products(rows[int(start) : int(stop), :])
                found.add(np.array([group]), products[None, ...])
        return found.arrays()

    def _products(self, rows: Any) -> Any:
        """Return the sums of products of the features of rows, shape (d, d)."""
        xp = self.xp
        if self.product_type == xp.float64:
            return xp.matmul(xp.matrix_transpose(rows), rows)
        # Features are scaled, so that no product leaves the range of float32.
        size = xp.max(xp.abs(rows), axis=0)
        size = xp.where(size > 0, size, xp.ones_like(size))
        unit = xp.astype(rows / size, xp.float32)
        whole = unit.shape[0] // _FLOAT32_ROWS * _FLOAT32_ROWS
        parts = xp.reshape(unit[:whole, :], (-1, _FLOAT32_ROWS, unit.shape[1]))
        rest = unit[whole:, :]
        products = xp.astype(xp.matmul(xp.matrix_transpose(rest), rest), xp.float64)
        if whole:
            each = xp.matmul(xp.matrix_transpose(parts), parts)
            products = products + xp.sum(each, axis=0, dtype=xp.float64)
        return products * size[:, None] * size[None, :]

    # --- scores, class by class -------------------------------------------------------------------

    def scored(
        self, scores_of: Callable[[Any], Any], finish: Callable[[Any, Any], Any], n: int
    ) -> Any:
        """Return what functions of rows, and then of their n scores, make of all rows."""
        self.largest  # noqa: B018  (of all blocks)
        self.product_type  # noqa: B018
        blocks = [finish(self.xp, scores_of(self[block])) for block in self._blocks(n)]
        return self.xp.concat(blocks, axis=0)

    def _less(self, features: Any, centre: Any) -> Any:
        """Return some features less a centre."""
        rows = self._read()
        if features.shape[0] < self.shape[1]:
            rows = self.xp.take(rows, features, axis=1)
        return rows - centre

    def _multiplied(self, rows: Any, matrix: Any, reach: float) -> Any:
        """Return products of rows and the rows of a matrix, whose largest entry is given."""
        xp = self.xp
        within = _REACH[0] < reach and 2 * reach * self.largest * rows.shape[-1] < _REACH[1]
        dtype = self.product_type if within else xp.float64
        turned = xp.matrix_transpose(xp.astype(matrix, dtype))
        return xp.astype(xp.matmul(xp.astype(rows, dtype), turned), xp.float64)

    def linear(self, given: Moved) -> Any:
        """Return linear functions of the rows, shape (n_functions, n_rows).

        Given are features, a centre, vectors and offsets.
        """
        features, centre, vectors, offsets = given.beside(self)
        products = self._multiplied(self._less(features, centre), vectors, given.reach[2])
        return self.xp.matrix_transpose(products + offsets)

    def distances(self, given: Moved) -> Any:
        """Return squared distances to centres, shape (n_centres, n_rows); see `moved_distances`."""
        xp = self.xp
        features, middle, turn, centres, roots = given.beside(self)
        rows = self._less(features, middle)
        if given.reach[2]:
            rows = self._multiplied(rows, turn, given.reach[2])
        if not given.near:
            return self._direct(rows, centres, roots, given.reach[4])
        weighted, rows = roots * centres, xp.matrix_transpose(rows)
        squares = xp.matmul(roots, rows * rows) - 2 * xp.matmul(weighted, rows)
        squares = squares + xp.sum(weighted * centres, axis=1)[:, None]
        return xp.where(squares > 0, squares, xp.zeros_like(squares))

    def _direct(self, rows: Any, centres: Any, roots: Any, reach: float) -> Any:
        """Return squared distances to each centre, from rows less that centre."""
        xp, found = self.xp, []
        step = max(1, _BLOCK_ELEMENTS // max(1, rows.shape[0] * rows.shape[1]))
        for start in range(0, centres.shape[0], step):
            some = slice(start, min(start + step, centres.shape[0]))
            gaps = rows[None, ...] - centres[some, None, :]
            own = roots[some, ...] if roots.shape[0] > 1 else roots
            if own.ndim == 3:
                white = self._multiplied(gaps, own, reach)
                found.append(xp.sum(white * white, axis=2))
            else:
                found.append(xp.sum(gaps * gaps * own[:, None, :], axis=2))
        return xp.concat(found, axis=0)


class _Fetched:
    """Results by number: those of equal numbers are summed, and many are copied to the host."""

    def __init__(self, xp: Any) -> None:
        self._xp = xp
        self._waiting: list[tuple[np.ndarray, Any]] = []
        self._held: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, numbers: np.ndarray, values: Any) -> None:
        """Add results of some numbers, in rising order."""
        waiting = self._waiting
        if waiting and numbers.size == 1 and np.array_equal(waiting[-1][0], numbers):
            waiting[-1] = numbers, waiting[-1][1] + values
            return
        if sum(8 * int(np.prod(each.shape)) for _, each in waiting) > _FETCHED_BYTES:
            self._fetch()
        self._waiting.append((numbers, values))

    def _fetch(self) -> None:
        values = np.asarray(as_numpy(self._xp.concat([each for _, each in self._waiting], axis=0)))
        self._held.append((np.concatenate([numbers for numbers, _ in self._waiting]), values))
        self._waiting = []

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers and their results on the host; a number may be there several times."""
        self._fetch()
        numbers, values = zip(*self._held, strict=True)
        return np.concatenate(numbers), np.concatenate(values)


class Moved:
    """Arrays of a model, and their copies on the device where they were last used.

    Attributes
    ----------
    arrays : tuple of ndarray
    reach : tuple of float
        Largest magnitude of each.
    near : bool
        Squared distances of rows to centres are accurate if they are multiplied out.
    """

    near = False

    def __init__(self, *arrays: np.ndarray) -> None:
        self.arrays = arrays
        self.reach = tuple(float(np.abs(array).max(initial=0.0)) for array in arrays)
        self._copies: tuple[Any, tuple[Any, ...]] | None = None

    def beside(self, rows: DeviceArray) -> tuple[Any, ...]:
        """Return the arrays on the device of some rows."""
        place = rows.xp, rows.device
        held = self._copies
        if held is None or held[0] != place:
            held = self._copies = place, tuple(rows.put(array) for array in self.arrays)
        return held[1]


def moved_distances(roots: np.ndarray, features: np.ndarray, centres: np.ndarray) -> Moved:
    """Return what `DeviceArray.distances` takes, from what `moments.roots.Distances` has.

    By a common matrix, rows and centres are turned, and their distances are those of unit roots.
    """
    middle, turn = centres.mean(axis=0), np.zeros((0, 0))
    centres = centres - middle
    if roots.ndim == 3 and len(roots) == 1:
        turn = roots[0]
        centres, roots = centres @ turn.T, np.ones((1, features.size))
    moved = Moved(features, middle, turn, centres, roots)
    moved.near = roots.ndim == 2 and bool((roots * centres**2).max() < _NEAR)
    return moved


# --- answers from scores on a device, row by row; see `streamgda.models.model` --------------------


def transposed(xp: Any, scores: Any) -> Any:
    """Return the scores of each row."""
    return xp.matrix_transpose(scores)


def as_codes(xp: Any, scores: Any) -> Any:
    """Return the numbers of the classes of the largest scores."""
    return xp.argmax(scores, axis=0)


def difference(xp: Any, scores: Any) -> Any:
    """Return the last score of each row less the first."""
    return scores[-1, :] - scores[0, :]


def _less_largest(xp: Any, scores: Any) -> tuple[Any, Any, Any]:
    """Return scores less the largest of their row, the sums of their exponentials, the largest."""
    top = xp.max(scores, axis=0)
    scores = xp.where((top > -xp.inf)[None, :], scores - top[None, :], xp.zeros_like(scores))
    return scores, xp.sum(xp.exp(scores), axis=0), top


def posterior(xp: Any, scores: Any) -> Any:
    """Return probabilities."""
    scores, total, _ = _less_largest(xp, scores)
    return xp.matrix_transpose(xp.exp(scores) / total[None, :])


def log_posterior(xp: Any, scores: Any) -> Any:
    """Return logarithms of probabilities."""
    scores, total, _ = _less_largest(xp, scores)
    return xp.matrix_transpose(scores - xp.log(total)[None, :])


def log_sum_exp(xp: Any, scores: Any) -> Any:
    """Return the logarithm of the sum over the classes."""
    _, total, top = _less_largest(xp, scores)
    return xp.log(total) + top


def as_labels(codes: Any, classes: np.ndarray) -> Any:
    """Return labels by their codes on a device; on the host, if no tensor holds such labels."""
    if classes.dtype.kind not in "biuf":
        return classes[np.asarray(as_numpy(codes))]
    xp, device = array_api_compat.array_namespace(codes), array_api_compat.device(codes)
    return xp.take(xp.asarray(classes.copy(), device=device), codes, axis=0)


def in_columns(mask: np.ndarray, scores: Any) -> Any:
    """Return scores that are NaN in some columns."""
    xp, device = array_api_compat.array_namespace(scores), array_api_compat.device(scores)
    missing = xp.asarray(mask.copy(), device=device)[None, :]
    return xp.where(missing, xp.full_like(scores, xp.nan), scores)


def in_single(scores: Any) -> Any:
    """Return scores in float32."""
    if not is_tensor(scores):
        return scores.astype(np.float32)
    xp = array_api_compat.array_namespace(scores)
    return xp.astype(scores, xp.float32)
