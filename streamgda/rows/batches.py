"""Iterables of batches, each with its rows, labels and perhaps weights.

Batches are tuples, or dicts and tables whose columns are named. Arrays may be those of numpy, or
tensors. They are converted one batch at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.arrays import as_numpy, as_slab, is_masked
from streamgda.rows.tables import FrameRows, LazyFrameRows, as_stacked
from streamgda.rows.zarr import is_group

_DATASET_ROWS = 1000  # of a batch of a dataset
_EXPECTED = "columns=('image', 'label'), columns=(['a', 'b'], 'label'), or a third name of weights"


class BatchColumns(NamedTuple):
    """Names of the columns of a batch.

    Attributes
    ----------
    X : str, or list of str
        A column whose entries are rows, or a column for each feature.
    y : str
        Column of labels.
    weight : str or None
        Column of weights.
    """

    X: Any
    y: str
    weight: str | None = None

    @classmethod
    def of(cls, names: Any) -> Self:
        """Return the names, given as ``(X, y)`` or ``(X, y, weight)``.

        Raises
        ------
        InvalidParameterError
            For anything else.
        """
        found = tuple(names) if isinstance(names, Sequence) and not isinstance(names, str) else ()
        if len(found) in (2, 3) and all(isinstance(name, str) for name in found[1:]):
            X = found[0]
            several = isinstance(X, list | tuple) and len(X) > 0
            if isinstance(X, str) or (several and all(isinstance(name, str) for name in X)):
                return cls(*found)
        raise InvalidParameterError(f"columns={names!r}; expected {_EXPECTED}")

    @property
    def features(self) -> list[str]:
        """Names of the columns of rows."""
        return [self.X] if isinstance(self.X, str) else list(self.X)

    @property
    def all(self) -> list[str]:
        """All names, each once."""
        weight = [] if self.weight is None else [self.weight]
        return list(dict.fromkeys([*self.features, self.y, *weight]))

    def read(self, batch: Any, name: str) -> tuple[Any, ...]:
        """Return rows, labels and perhaps weights of a dict or a table.

        Raises
        ------
        InvalidDataError
            If the batch is neither, or lacks a column.
        """
        available = columns_of(batch)
        if available is None:
            raise InvalidDataError(
                f"{name} is a {type(batch).__name__}, and columns={tuple(self)!r} are of dicts and "
                f"tables; leave out columns for batches (X, y)"
            )
        missing = [column for column in self.all if column not in available]
        if missing:
            raise InvalidDataError(
                f"{name} has no column {missing[0]!r}; its columns are {', '.join(available)}"
            )
        beside = (batch[self.y], *([] if self.weight is None else [batch[self.weight]]))
        parts = [as_stacked(as_slab(batch[feature], feature)) for feature in self.features]
        several = not isinstance(self.X, str)
        for feature, values in zip(self.features, parts, strict=True):
            if not values.ndim or (several and values.shape != parts[0].shape[:1]):
                raise InvalidDataError(
                    f"{name} has a column {feature!r} of shape {values.shape}; expected a value "
                    f"for each of its rows"
                )
        module: Any = np.ma if any(map(is_masked, parts)) else np
        X = module.column_stack(parts) if several or parts[0].ndim == 1 else parts[0]
        return (X, *beside)


@dataclass(frozen=True)
class Batches:
    """Batches that an iterable yields, each ``(X, y)`` or ``(X, y, sample_weight)``.

    Attributes
    ----------
    values : iterable
    columns : Columns, optional
        Names of the columns of batches that are dicts or tables.
    """

    values: Any
    columns: BatchColumns | None = None

    executor: ClassVar[str] = "process"

    @classmethod
    def of(cls, X: Any, columns: BatchColumns | None = None) -> Self:
        """Return the batches; raise `InvalidDataError` for rows without labels."""
        if isinstance(X, str | os.PathLike):
            raise InvalidDataError(
                f"y is missing: X is the path {str(X)!r}; open its rows and labels first: "
                f"X, y = open_store(path), then accumulate(X, y)"
            )
        if is_group(X):
            raise InvalidDataError(
                f"y is missing: X is a {type(X).__name__} of {', '.join(sorted(map(str, X))):.500}"
                f"; pass rows and labels in it, such as accumulate(X['rows'], X['labels']), or an "
                f"iterable of (X, y) batches, such as one of its entries, or [X]"
            )
        frame = FrameRows.accepts(X) or LazyFrameRows.accepts(X)
        if isinstance(X, np.ndarray) or hasattr(X, "dtype") or frame:
            raise InvalidDataError(
                f"y is missing: X is a {type(X).__name__} of rows; pass accumulate(X, y), or an "
                f"iterable of (X, y) batches"
            )
        if callable(getattr(X, "iter", None)) and hasattr(X, "with_format"):
            return cls(_dataset(X, columns), columns)
        if not isinstance(X, Iterable):
            raise InvalidDataError(
                f"X is a {type(X).__name__}; without y, an iterable of (X, y) batches is expected"
            )
        return cls(X, columns)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if a list names the columns of each."""
        several = self.columns is not None and not isinstance(self.columns.X, str)
        return tuple(self.columns.X) if self.columns is not None and several else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        cut = hasattr(self.values, "with_format")
        batches = self.values.iter(batch_size=_DATASET_ROWS) if cut else self.values
        for number, batch in enumerate(batches):
            yield read_batch(batch, f"batch {number}", self.columns)


@dataclass(frozen=True)
class Partitions(Batches):
    """Batches that dask evaluates: a list of delayed objects."""

    executor = "dask"

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept lists of delayed objects."""
        return isinstance(X, list | tuple) and bool(X) and hasattr(X[0], "__dask_graph__")

    @classmethod
    def of(cls, X: Any, columns: BatchColumns | None = None) -> Self:
        """Return the partitions."""
        if columns is None:
            return cls(list(X))
        from dask import delayed  # noqa: PLC0415

        read = delayed(read_batch, pure=True)  # the same names in every process
        return cls([read(batch, f"partition {n}", columns) for n, batch in enumerate(X)], columns)


def _dataset(X: Any, columns: BatchColumns | None) -> Any:
    """Return a dataset that is cut into batches on request, with the columns that are read.

    Those of Hugging Face are such datasets.
    """
    available = columns_of(X)
    if columns is None:
        names = ", ".join(available or ()) or "not known"
        raise InvalidDataError(
            f"X is a {type(X).__name__}, whose columns are {names}; name those of rows and "
            f"labels: {_EXPECTED}"
        )
    if available is not None and not set(columns.all) <= set(available):
        return X  # its first batch is refused
    X = X.select_columns(columns.all)  # so that others are not decoded
    if getattr(X, "format", {}).get("type", X) is None:
        # Without a type they would be rounded to float32, and labels to floats with one.
        double = any("float64" in str(X.features[name]) for name in columns.features)
        options: dict[str, Any] = {"dtype": np.float64} if double else {}
        options |= {"columns": columns.features, "output_all_columns": True}
        X = X.with_format("numpy", **options)
    return X


def read_batch(batch: Any, name: str, columns: BatchColumns | None = None) -> tuple[Any, ...]:
    """Return ``(X, y)`` or ``(X, y, sample_weight)`` of a batch; tensors as arrays.

    Rows with several axes, such as images, are flattened.

    Raises
    ------
    InvalidDataError
        If the batch is anything else.
    """
    if columns is not None:
        batch = columns.read(batch, name)
    elif not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        available = columns_of(batch)
        advice = "" if not available else f"; its columns are {', '.join(available)}: pass columns="
        raise InvalidDataError(
            f"{name} is a {type(batch).__name__}; expected a tuple (X, y) or (X, y, weight){advice}"
        )
    try:
        X, *labels = batch
        X = as_slab(X) if isinstance(X, list | tuple) else as_numpy(X)
        return (_flat(X), *map(as_numpy, labels))
    except InvalidDataError as error:
        error.place(name)
        raise


def _flat(X: Any) -> Any:
    """Return an array of rows with all axes but the first joined."""
    if not isinstance(X, np.ndarray) or X.ndim <= 2:
        return X
    return X.reshape(len(X), math.prod(X.shape[1:]))


def columns_of(batch: Any) -> list[str] | None:
    """Return the names of the columns of a dict or a table; None for anything else."""
    if isinstance(batch, Mapping):
        return [str(name) for name in batch]
    for attribute in ("column_names", "columns"):  # of Arrow and Hugging Face, of data frames
        names = getattr(batch, attribute, None)
        if names is not None and not callable(names):
            return [str(name) for name in names]
    return None
