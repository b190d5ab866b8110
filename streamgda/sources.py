"""Where rows come from: arrays, memory maps, zarr and HDF5 arrays, data frames, stores on disk.

Each becomes a `RowSource`, which is read in row blocks and never as a whole. Libraries that are
not loaded are not loaded here either: kinds are told apart by what they offer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError


@dataclass(frozen=True)
class RowSource:
    """Something with rows.

    Attributes
    ----------
    values : object
        What is sliced.
    shape : tuple of int
    dtype : numpy.dtype or None
        None where columns have types of their own.
    unit : int
        Rows that are stored together: reading fewer decodes as many.
    in_memory : bool
        Whether reading rows costs no memory.
    """

    values: Any
    shape: tuple[int, ...]
    dtype: np.dtype | None
    unit: int
    in_memory: bool

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row once it is read."""
        itemsize = 8 if self.dtype is None else self.dtype.itemsize
        return itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows ``start:stop``."""
        if hasattr(self.values, "iloc"):
            return np.asarray(self.values.iloc[start:stop])
        return np.asarray(self.values[start:stop])


def is_dask(X: Any) -> bool:
    """Whether this is a dask array, data frame or series (dask is not loaded to find out)."""
    kinds = ("rechunk", "to_dask_array")
    return hasattr(X, "__dask_graph__") and any(hasattr(X, kind) for kind in kinds)


def is_store(X: Any) -> bool:
    """Whether this is an array that is read by slicing: zarr, HDF5 and their like."""
    return (
        not isinstance(X, np.ndarray)
        and hasattr(X, "chunks")
        and hasattr(X, "shape")
        and hasattr(X, "dtype")
        and not is_dask(X)
    )


def as_source(X: Any, what: str = "X") -> RowSource:
    """See rows in `X`.

    Raises
    ------
    InvalidDataError
        Where it is not an array, nor can be made one.
    SourceError
        Where it is a zarr group.
    """
    if is_store(X):
        shards = getattr(X, "shards", None)
        stored = shards or X.chunks
        unit = int(stored[0]) if stored and X.shape else 1
        # A store cut along the features too decodes a row of its chunks at a time.
        return RowSource(X, tuple(X.shape), _dtype(X.dtype), max(1, min(unit, *X.shape[:1])), False)
    refuse_group(X, what)
    if hasattr(X, "iloc"):
        return RowSource(X, tuple(X.shape), None, 1, False)
    if not isinstance(X, np.ndarray):
        X = np.asarray(X)
    if not X.ndim:
        raise InvalidDataError(f"{what} has no rows: it is {type(X.item()).__name__}")
    return RowSource(X, X.shape, X.dtype, 1, True)


def refuse_group(X: Any, what: str = "X") -> None:
    """Raise `SourceError` where this is a zarr group and not one of its arrays."""
    if hasattr(X, "create_array") and hasattr(X, "members"):
        raise SourceError(
            f"{what} is a zarr group, where an array is due; pass one of its arrays: "
            f"{', '.join(sorted(X.array_keys())) or 'it has none'}"
        )


def check_rows(rows: RowSource, *companions: RowSource) -> None:
    """Raise `InvalidDataError` unless all have one shape (n_rows,) beside (n_rows, n_features)."""
    if len(rows.shape) != 2:
        raise InvalidDataError(
            f"X has shape {rows.shape}; expected a 2D array of rows x features (one row: "
            f"X.reshape(1, -1), one feature: X.reshape(-1, 1))"
        )
    for companion, name in zip(companions, ("labels", "weights"), strict=False):
        if len(companion.shape) != 1:
            raise InvalidDataError(f"{name} have shape {companion.shape}; expected one a row")
        if companion.n_rows != rows.n_rows:
            raise InvalidDataError(
                f"X has {rows.n_rows} rows but there are {companion.n_rows} {name} (inconsistent "
                f"numbers of samples); give one a row"
            )
    if not rows.n_rows:
        raise InvalidDataError("X has 0 rows (0 sample(s)); at least one is needed")


def _dtype(dtype: Any) -> np.dtype:
    return dtype if isinstance(dtype, np.dtype) else np.dtype(dtype)


def open_store(path: Any, X: str = "X", y: str | None = "y") -> tuple[Any, Any]:
    """Open a zarr group that holds rows and labels, for reading.

    Parameters
    ----------
    path : path, URL or zarr store
        A path that ends in ``.zip`` is a zip file.
    X, y : str
        Names of the arrays; ``y=None`` where labels are not needed.

    Returns
    -------
    X : zarr.Array, shape (n_rows, n_features)
    y : zarr.Array, shape (n_rows,), or None

    Raises
    ------
    SourceNotFoundError
        Where nothing is there.
    SourceError
        Where there is no zarr group, or it lacks one of the arrays.
    """
    import zarr  # noqa: PLC0415

    local = isinstance(path, str | Path) and "://" not in str(path)
    if local and not Path(path).exists():
        raise SourceNotFoundError(f"{path} does not exist; expected a zarr group with {X!r}, {y!r}")
    try:
        store = zarr.storage.ZipStore(path, mode="r") if str(path).endswith(".zip") else path
        node: Any = zarr.open(store, mode="r")
    except Exception as error:  # as many kinds as there are stores
        raise SourceError(f"{path} cannot be opened as zarr: {error}") from error
    if not isinstance(node, zarr.Group):
        if y is None:
            return node, None
        raise SourceError(
            f"{path} is a zarr array and has no labels with it; expected a group with arrays "
            f"{X!r} and {y!r}"
        )
    return _member(node, path, X, "rows"), None if y is None else _member(node, path, y, "labels")


def _member(group: Any, path: Any, name: str, what: str) -> Any:
    there = sorted(group.array_keys())
    if name in there:
        return group[name]
    if name in group:
        raise SourceError(f"{path}: {name!r} is a group, where an array of {what} is due")
    raise SourceError(
        f"{path} lacks {what}: it has no array {name!r}, but {', '.join(there) or 'none at all'}"
    )
