"""Arrays in memory as kernels read them: tensors, types, blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError


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


def as_slab(values: Any, name: str = "X") -> Any:
    """Return an array-like in memory as an array; masked values of rows become NaN.

    Collections of dask are evaluated, tensors are copied from their device.

    Raises
    ------
    InvalidDataError
        If NumPy cannot convert them, and for masked labels, groups and weights.
    """
    if type(values) in (np.ndarray, np.memmap):
        return values
    if hasattr(values, "__dask_graph__"):
        values = values.compute()
    values = as_numpy(values)
    if isinstance(values, np.ma.MaskedArray):
        if np.ma.getmaskarray(values).any() and name != "X":
            raise InvalidDataError(
                f"{name} is a masked array; give the masked entries a value (filled(...)), or "
                f"leave their rows out"
            )
        floats = values.dtype if values.dtype.kind == "f" else np.float64
        masked = np.ma.is_masked(values)
        return np.ma.filled(values.astype(floats), np.nan) if masked else values.data
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidDataError(f"{name} cannot be converted to an array: {error}") from None


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
    return np.ascontiguousarray(X, dtype) if hasattr(X, "__array__") else X.astype(dtype)


def of_columns(columns: Sequence[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """Return the rows of columns that are separate arrays, in a data type."""
    rows = np.empty((len(columns[0]), len(columns)), dtype)
    for j, column in enumerate(columns):
        rows[:, j] = column
    return rows
