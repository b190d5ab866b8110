"""Arrays as kernels read them: tensors, masks, types, blocks, coded labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels.sums import number_entries
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads


def read_only(values: np.ndarray) -> np.ndarray:
    """Return a view of an array that cannot be written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def as_numpy(values: Any) -> Any:
    """Return a tensor as an array, copied from its device; return anything else unchanged.

    bfloat16 of PyTorch, which NumPy does not have, becomes float32.

    Raises
    ------
    InvalidDataError
        For tensors that no array can hold, such as sparse ones.
    """
    if isinstance(values, np.ndarray | np.generic):
        return values
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            return (values.float() if "bfloat16" in str(values.dtype) else values).numpy()
        if hasattr(values, "__dlpack__") and hasattr(values, "get"):  # of CuPy
            return values.get()
        if hasattr(values, "__dlpack__") and not hasattr(values, "__array__"):
            return np.from_dlpack(values)
        return values.numpy() if callable(getattr(values, "numpy", None)) else values
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidDataError(
            f"a {type(values).__name__} cannot be converted to an array: {error}"
        ) from None


# --- masked values --------------------------------------------------------------------------------


SKIP_OR_FILL = (
    "leave such rows out or fill them in (on_invalid='skip' when learning, on_invalid='fill' when "
    "predicting)"
)
_MEANING = {
    "X": f"every value is needed; {SKIP_OR_FILL}",
    "y": "every row needs a label; leave such rows out, as on_invalid='skip' does",
    "sample_weight": "every row needs a weight; give rows that do not count the weight zero",
}
_LABELS = "every one is needed; leave out those that are masked"


def is_masked(values: Any) -> bool:
    """Return whether this is a masked array of which some values are masked."""
    masked = isinstance(values, np.ma.MaskedArray) and values.dtype.names is None
    return masked and bool(np.ma.getmask(values).any())


def as_slab(values: Any, name: str = "X") -> np.ndarray:
    """Return values as an array, which is a masked one only if some of them are masked.

    Collections of dask are evaluated; as an argument of `numpy.asarray` they would lose the mask.
    Tensors are copied from their device.

    Raises
    ------
    InvalidDataError
        If numpy cannot convert them.
    """
    if hasattr(values, "__dask_graph__"):
        values = values.compute()
    if is_masked(values) or type(values) is CodedLabels:
        return values
    try:
        return np.asarray(as_numpy(values))
    except ValueError as error:
        raise InvalidDataError(f"{name} cannot be converted to an array: {error}") from None


def unmasked(values: np.ndarray, name: str, first_row: int = 0) -> np.ndarray:
    """Return an array none of whose values are masked.

    Raises
    ------
    InvalidDataError
        For the first masked value; it counts rows from `first_row`.
    """
    if not is_masked(values):
        return values
    if not values.ndim:
        raise InvalidDataError(f"{name} is masked, which means missing")
    at, *columns = (int(i) for i in np.argwhere(np.ma.getmask(values))[0])
    row, column = first_row + at, columns[0] if columns else None
    where = f"{name}[{row}]" if column is None else f"row {row}, column {column} of {name}"
    raise InvalidDataError(
        f"{where} is masked, which means missing; {_MEANING.get(name, _LABELS)}",
        *(name, row, column),
    )


# --- data types -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowType:
    """Treatment of rows of one data type.

    Attributes
    ----------
    dtype : dtype
        Type that the kernels read.
    floating : dtype
        Type in which rows are centred, multiplied and scored where that is not done in integers.
        float32 is only used where its accuracy is enough, float64 otherwise.
    """

    dtype: np.dtype
    floating: np.dtype

    @property
    def exact(self) -> bool:
        """True for integers, which have exact sums."""
        return self.dtype.kind in "iu"

    @cached_property
    def reach(self) -> int:
        """The largest magnitude of a value of this integer type."""
        limits = np.iinfo(self.dtype)
        return max(-int(limits.min), int(limits.max))


_TYPES = {
    np.dtype(kind): RowType(np.dtype(kind), floating=np.dtype("f4" if kind == "f4" else "f8"))
    for kind in ("u1", "i1", "u2", "i2", "f4", "f8")
}
_FLOAT64 = _TYPES[np.dtype("f8")]  # that rows of all other types are cast to
_TYPES[np.dtype("f2")] = _TYPES[np.dtype("f4")]

INTEGERS = tuple(dtype for dtype, kind in _TYPES.items() if kind.exact)


def row_type(dtype: np.dtype) -> RowType:
    """Return the treatment of rows of a data type, in any byte order.

    Examples
    --------
    >>> row_type(np.dtype(">f4")).dtype, row_type(np.dtype("int64")).dtype
    (dtype('float32'), dtype('float64'))
    """
    found = _TYPES.get(dtype)
    if found is None:
        found = _TYPES.get(dtype.newbyteorder("="), _FLOAT64)
    return found


# --- blocks of rows -------------------------------------------------------------------------------


def is_plain(X: Any) -> bool:
    """Return whether `X` is exactly a numpy array whose values are in memory."""
    return type(X) is np.ndarray and not isinstance(X.base, np.memmap)


NO_WEIGHTS = np.empty(0)
WINDOW_BYTES = 1 << 26  # held of rows that are grouped by class at a time


def blocks(X: Any, dtype: np.dtype, beside: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of rows as `as_kernel_rows` returns them, each with its place in `X`.

    They are as large as memory for copies, and for the bytes that are held beside each row, allows:
    large sums are read and written once for each block.
    """
    as_it_is = isinstance(X, np.ndarray) and X.dtype == dtype and X.flags.c_contiguous
    row_bytes = beside + (0 if as_it_is else dtype.itemsize * X.shape[1])
    n_rows = max(1024, WINDOW_BYTES // max(1, row_bytes))
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_kernel_rows(X[rows], dtype)


def as_kernel_rows(X: Any, dtype: np.dtype) -> Any:
    """Return `X`, or a copy of it, as a C-contiguous array of a data type, for reading.

    Sparse rows stay sparse.
    """
    if type(X) is CompressedRows:
        return X.astype(dtype)
    return np.ascontiguousarray(X, dtype)


def of_columns(columns: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return the rows of columns that are separate arrays, in a data type."""
    rows = np.empty((len(columns[0]), len(columns)), dtype)
    for j, column in enumerate(columns):
        rows[:, j] = column
    return rows


# --- labels by codes ------------------------------------------------------------------------------


_NUMBERED = 1 << 17  # labels that a thread numbers at a time


@dataclass(frozen=True, eq=False)
class CodedLabels:
    """Labels by their codes, as those of categories; numpy converts them to an array of labels.

    Attributes
    ----------
    values : ndarray, shape (n_values,)
        Labels in any order; some may occur in no row, and some several times in `values`.
    codes : ndarray of int, shape (n_rows,)
        Number of each row's label.
    """

    values: np.ndarray
    codes: np.ndarray

    ndim = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, as the shape of an array."""
        return self.codes.shape

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.codes.size

    @property
    def dtype(self) -> np.dtype:
        """Data type of the labels."""
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        """Return the label of a row, or those of some rows, by their codes."""
        codes = self.codes[rows]
        return CodedLabels(self.values, codes) if np.ndim(codes) else self.values[codes]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the labels as an array."""
        return np.asarray(self.values[self.codes], dtype)

    def copy(self) -> CodedLabels:
        """Return the labels, with codes of their own."""
        return CodedLabels(self.values, self.codes.copy())

    def tolist(self) -> list[Any]:
        """Return the labels as a list."""
        return np.asarray(self).tolist()


def coded(codes: np.ndarray, words: list[Any]) -> CodedLabels:
    """Return labels by the codes of a library, in which a missing label has a negative one."""
    if codes.min(initial=0) < 0:
        words, codes = [*words, None], np.where(codes < 0, len(words), codes)
    values = np.empty(len(words), object)
    values[:] = words
    return CodedLabels(values, codes)


def distinct(labels: np.ndarray) -> CodedLabels:
    """Return labels by codes. Those in `values` differ in their bytes.

    Entries of an array with the same bytes are equal, whatever its type: those of an array of
    objects are addresses. Equal labels may differ in their bytes, such as equal strings that are
    several objects, and 0.0 and -0.0.

    Examples
    --------
    >>> coded = distinct(np.array(["b", "a", "b"]))
    >>> coded.values, coded.codes
    (array(['b', 'a'], dtype='<U1'), array([0, 1, 0], dtype=int32))
    """
    labels = np.ascontiguousarray(labels)
    memory, size = np.ndarray((labels.nbytes,), np.uint8, labels), labels.dtype.itemsize
    offsets = np.arange(min(labels.size, _NUMBERED) + 1) * size

    def entries(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        return memory[start * size : stop * size], offsets[: stop - start + 1]

    codes, firsts = numbered(labels.size, entries)
    return CodedLabels(labels[firsts], codes)


class _Known(NamedTuple):
    """Different entries: their number and descriptions, and the memory that these point to."""

    n: int
    found: np.ndarray
    memory: Any


def numbered(
    n_entries: int, entries: Callable[[int, int], tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the code of each entry, and for each code an entry that has it.

    Equal entries have one code if one of them is in the first part, or all in one part.

    Parameters
    ----------
    n_entries : int
    entries : callable
        Called with the numbers of the first entry of a part and of the one after it; returns bytes
        and offsets, see `kernels.sums.number_entries`.
    """
    codes: Any = np.empty(n_entries, np.int32 if n_entries < 1 << 31 else np.int64)
    if not n_entries:
        return codes, np.empty(0, np.intp)
    size = min(n_entries, _NUMBERED)

    def number(start: int, known: _Known) -> _Known:
        own = codes[start : start + _NUMBERED]
        memory, offsets = entries(start, start + own.size)
        found = np.empty((len(known.found), known.n + own.size), np.int64)
        found[:, : known.n] = known.found
        table = np.zeros(2 << size.bit_length(), np.int32)
        table[known.found[-1]] = np.arange(1, known.n + 1)
        n = number_entries(memory, offsets, known.n, table, found, own)
        found[0, known.n : n] += start
        return _Known(n, found[:, :n].copy(), memory)

    first = number(0, _Known(0, np.empty((5, 0), np.int64), None))

    def others(start: int) -> np.ndarray:
        return number(start, first).found[0, first.n :]

    starts = range(size, n_entries, size)
    firsts, n = [first.found[0]], first.n
    for start, own in zip(starts, threads.run(others, ((i,) for i in starts)), strict=True):
        if own.size and n > first.n:
            part = codes[start : start + _NUMBERED]
            part[part >= first.n] += n - first.n
        firsts.append(own)
        n += own.size
    return codes, np.concatenate(firsts)


def coded_texts(labels: Sequence[Any]) -> CodedLabels | None:
    """Return strings, or bytes, by the codes of different ones, with None among them or not.

    It is None for other labels.
    """
    numbers: defaultdict[Any, int] = defaultdict(count().__next__)
    try:
        codes = np.fromiter(map(numbers.__getitem__, labels), np.int32, len(labels))
    except TypeError:  # not all can be hashed
        return None
    kinds = {*map(type, numbers)} - {type(None)}
    texts = any(all(issubclass(kind, base) for kind in kinds) for base in (str, bytes))
    return CodedLabels(np.array([*numbers], object), codes) if texts else None


def concatenated(parts: Sequence[Any]) -> Any:
    """Return consecutive parts of labels or rows as one."""
    if len(parts) == 1:
        return parts[0]
    if not all(type(part) is CodedLabels for part in parts):
        masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
        return (np.ma if masked else np).concatenate(parts)
    values = np.concatenate([part.values for part in parts])
    first = np.cumsum([0, *(part.values.size for part in parts[:-1])])
    dtype = np.min_scalar_type(-values.size)
    codes = [np.add(part.codes, n, dtype=dtype) for part, n in zip(parts, first, strict=True)]
    return CodedLabels(values, np.concatenate(codes))
