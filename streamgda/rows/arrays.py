"""Arrays as kernels read them: tensors, masks, types, blocks, rows by columns, coded labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.kernels.columns import write_rows
from streamgda.kernels.products import LEAST_ROWS
from streamgda.kernels.sums import number_entries, widen_halves
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
_NARROW = tuple((dtype, np.iinfo(dtype).min, np.iinfo(dtype).max) for dtype in INTEGERS)
_LIMITED_ELEMENTS = 1 << 17  # whose limits are found at a time: they stay in a cache


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


def narrowed(X: Any) -> Any:
    """Return rows of 32- or 64-bit integers as those of the first smaller type that holds them all.

    They are a view of the lowest bytes. All other rows are returned unchanged.

    Examples
    --------
    >>> narrowed(np.array([[3, 200], [0, 255]])).dtype, narrowed(np.array([[70_000]])).dtype
    (dtype('uint8'), dtype('int64'))
    """
    if X.dtype.kind not in "iu" or X.dtype.itemsize < 4:
        return X
    X = np.asarray(X)
    least = most = 0
    step = max(1, _LIMITED_ELEMENTS // max(1, X.shape[1]))
    for start in range(0, len(X), step):
        rows = X[start : start + step]
        least, most = min(least, int(rows.min())), max(most, int(rows.max()))
        if most - least > np.iinfo("u2").max:
            return X
    for dtype, low, high in _NARROW:
        if low <= least and most <= high:
            rest = "rest", f"V{X.itemsize - dtype.itemsize}"
            fields: list[Any] = [("low", dtype), rest]
            if X.dtype.str[0] == ">":
                fields = [rest, ("low", dtype.newbyteorder(">"))]
            return X.view(np.dtype(fields))["low"]
    return X


# --- blocks of rows -------------------------------------------------------------------------------


def is_plain(X: Any) -> bool:
    """Return whether `X` is exactly a numpy array whose values are in memory."""
    return type(X) is np.ndarray and not isinstance(X.base, np.memmap)


NO_WEIGHTS = np.empty(0)
_HALF, _SINGLE = np.dtype(np.float16), np.dtype(np.float32)
_WIDENED_ELEMENTS = 1 << 18  # that are worth a call on another thread
WINDOW_BYTES = 1 << 26  # held of rows that are grouped by class at a time


def blocks(X: Any, dtype: np.dtype, beside: int) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield blocks of rows as `as_kernel_rows` returns them, each with its place in `X`.

    They are as large as memory for copies, and for the bytes that are held beside each row, allows:
    large sums are read and written once for each block.
    """
    as_it_is = isinstance(X, np.ndarray) and X.dtype == dtype and X.flags.c_contiguous
    row_bytes = beside + (0 if as_it_is else dtype.itemsize * X.shape[1])
    n_rows = max(LEAST_ROWS, WINDOW_BYTES // max(1, row_bytes))
    for start in range(0, X.shape[0], n_rows):
        rows = slice(start, min(start + n_rows, X.shape[0]))
        yield rows, as_kernel_rows(X[rows], dtype)


_NUMBERS = frozenset(np.dtype(kind) for kind in ("f4", "f8", "i4", "u4", "i8", "u8"))


def as_numbers(X: Any, dtype: np.dtype) -> tuple[Any, np.dtype]:
    """Return rows, and the type in which kernels read them that convert each value for themselves.

    That is float16 as its bits, see `kernels.sums.number_of`, or the type of the rows. Those that
    have to be copied anyway are converted to a data type first.
    """
    if not isinstance(X, np.ndarray) or not X.flags.c_contiguous:
        return X, dtype
    if X.dtype == _HALF and dtype == _SINGLE:
        X = X.view(np.uint16)
        return X, X.dtype
    return X, X.dtype if X.dtype in _NUMBERS else dtype


class OrderedRows:
    """Rows as kernels read them, in another order, which some kernels follow without a copy."""

    def __init__(self, values: np.ndarray, order: np.ndarray) -> None:
        self.values, self.order = values, order
        self.shape, self.dtype = (order.size, values.shape[1]), values.dtype

    def __getitem__(self, rows: slice) -> OrderedRows:
        return OrderedRows(self.values, self.order[rows])


# Rows that are written at a time, and summed while they are in the first cache; there are multiples
# of as many of few features. Successive ones are added to different sums, in turn, by some kernels.
_SPACE_ROWS, _FEW_FEATURES = 32, 16
_NO_ORDER, _NO_COLUMNS = np.empty(0, np.intp), (np.empty((0, 0), np.intp), np.empty(0, np.intp))
_IN_ORDER = _NO_ORDER, *_NO_COLUMNS


def with_order(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that kernels read, and their order, empty if they are in order."""
    return (X.values, X.order) if type(X) is OrderedRows else (np.asarray(X), _NO_ORDER)


def with_columns(X: Any) -> tuple[np.ndarray, ...]:
    """Return rows and their order as `with_order` does; or space for some rows, and columns.

    Kernels write them to that space from the columns, given as `ColumnRows.addresses`.
    """
    if type(X) is np.ndarray:
        return X, *_IN_ORDER
    if type(X) is not ColumnRows:
        return *with_order(X), *_NO_COLUMNS
    n_rows = min(len(X), _SPACE_ROWS * max(1, _FEW_FEATURES // X.shape[1]))
    return np.empty((n_rows, X.shape[1]), X.dtype), _NO_ORDER, *X.addresses()


def copied(X: Any) -> Any:
    """Return rows in order, as kernels read them; a copy if they are not."""
    if type(X) is not OrderedRows:
        return np.asarray(X)
    rows = np.empty(X.shape, X.dtype)
    np.take(X.values, X.order, axis=0, out=rows, mode="clip")
    return as_kernel_rows(rows, X.dtype)


def as_kernel_rows(X: Any, dtype: np.dtype) -> Any:
    """Return `X`, or a copy of it, as a C-contiguous array of a data type, for reading.

    Sparse rows stay sparse.
    """
    if type(X) is CompressedRows:
        return X.astype(dtype)
    if type(X) is OrderedRows:
        return X
    if X.dtype != _HALF or dtype != _SINGLE:
        return np.ascontiguousarray(X, dtype)
    # numpy takes several times as long
    bits = np.ascontiguousarray(X, _HALF).reshape(-1).view(np.uint16)
    rows = np.empty(X.shape, dtype)
    step = max(_WIDENED_ELEMENTS, -(-bits.size // threads.n_threads()))
    parts = (slice(i, i + step) for i in range(0, bits.size, step))
    out = rows.reshape(-1)
    threads.run(lambda some: widen_halves(bits[some], out[some]), ((some,) for some in parts))
    return rows


def byte_rows(X: np.ndarray) -> tuple[np.ndarray, tuple[int, np.uint8]]:
    """Return rows of integers as bytes, and what `kernels.integers` must know of them.

    That is the size of a value in bytes, and the bits that differ in its highest byte from an
    unsigned number.
    """
    return X.view(np.uint8), (X.itemsize, np.uint8(128 if X.dtype.kind == "i" else 0))


# --- rows by columns ------------------------------------------------------------------------------


_TASK_ELEMENTS = 1 << 18  # that are worth a call on another thread


class _Part(NamedTuple):
    """Rows ``first:last`` of some columns, and the addresses of these if they are read as they are.

    Other columns are strided, or of other types.
    """

    columns: list[np.ndarray]
    addresses: np.ndarray | None
    first: int
    last: int

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], dtype: np.dtype) -> _Part:
        """Return all rows of columns."""
        plain = all(each.dtype == dtype and each.flags.c_contiguous for each in columns)
        found = [each.__array_interface__["data"][0] for each in columns] if plain else None
        addresses = None if found is None else np.array(found, np.intp)
        return cls([*columns], addresses, 0, len(columns[0]))

    def converted(self, dtype: np.dtype) -> _Part:
        """Return the rows with columns that are read as they are: copies of others."""
        if self.addresses is not None:
            return self
        rows = slice(self.first, self.last)
        return self.of([np.ascontiguousarray(each[rows], dtype) for each in self.columns], dtype)


class ColumnRows:
    """Rows whose columns are separate arrays; they become an array where one is needed.

    Kernels ask for some rows at a time, on all threads, so that the rows never exist as a whole.

    Parameters
    ----------
    parts : list
        Consecutive rows.
    n_features : int
    dtype : numpy.dtype

    Examples
    --------
    >>> rows = ColumnRows.of([np.array([1, 2, 3]), np.array([0.5, 1.5, 2.5])], np.dtype("f8"))
    >>> rows[1:].shape, np.asarray(rows[1:])
    ((2, 2), array([[2. , 1.5],
           [3. , 2.5]]))
    """

    ndim = 2

    def __init__(self, parts: list[_Part], n_features: int, dtype: np.dtype) -> None:
        self._parts, self.dtype = parts, dtype
        self.shape = sum(part.last - part.first for part in parts), n_features

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], dtype: np.dtype) -> ColumnRows:
        """Return the rows of columns, which are converted to a type as rows are read."""
        return cls([_Part.of(columns, dtype)], len(columns), dtype)

    @classmethod
    def concatenated(cls, rows: Sequence[ColumnRows]) -> ColumnRows:
        """Return consecutive rows as one."""
        parts = [part for some in rows for part in some._parts]
        return cls(parts, rows[0].shape[1], rows[0].dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows as an array."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns as `kernels.columns.write_rows` reads them, while the rows exist.

        Those that kernels cannot read are copied, and the rows keep the copies.
        """
        self._parts = [part.converted(self.dtype) for part in self._parts]
        firsts, lasts = np.array([part[2:] for part in self._parts], np.intp).T
        stops = np.cumsum(lasts - firsts)
        skipped = self.dtype.itemsize * (lasts - stops)
        return np.array([part.addresses for part in self._parts]) + skipped[:, np.newaxis], stops

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Return consecutive rows by their columns, and others as an array."""
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            kept, at = [], 0  # the number of the first row of a part
            for part in self._parts:
                first, last = (
                    min(max(part.first, part.first + row - at), part.last) for row in (start, stop)
                )
                if first < last:
                    kept.append(part._replace(first=first, last=last))
                at += part.last - part.first
            return ColumnRows(kept, self.shape[1], self.dtype)
        return np.asarray(self)[rows]

    def row(self, number: int) -> np.ndarray:
        """Return a row."""
        return np.asarray(self[number : number + 1])[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the rows as an array."""
        rows = np.empty(self.shape, self.dtype)
        step = max(1, _TASK_ELEMENTS // max(1, self.shape[1]))
        threads.run(
            self._write,
            ((start, rows[start : start + step]) for start in range(0, len(rows), step)),
        )
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def _write(self, start: int, out: np.ndarray) -> None:
        """Write rows from the row `start` on."""
        some = self[start : start + len(out)]
        write_rows(*some.addresses(), 0, out.view(f"u{out.itemsize}"))  # one kernel for some types


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
    if all(type(part) is ColumnRows for part in parts):
        return ColumnRows.concatenated(parts)
    if not all(type(part) is CodedLabels for part in parts):
        masked = any(isinstance(part, np.ma.MaskedArray) for part in parts)
        return (np.ma if masked else np).concatenate(parts)
    values = np.concatenate([part.values for part in parts])
    first = np.cumsum([0, *(part.values.size for part in parts[:-1])])
    dtype = np.min_scalar_type(-values.size)
    codes = [np.add(part.codes, n, dtype=dtype) for part, n in zip(parts, first, strict=True)]
    return CodedLabels(values, np.concatenate(codes))
