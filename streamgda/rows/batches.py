"""Iterables of batches ``(X, y)`` or ``(X, y, weight)``, or of dicts and frames with named columns.

They are converted one batch at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.frames import FrameRows
from streamgda.rows.source import as_array, as_numpy, as_slab
from streamgda.rows.zarr import is_group

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

    def read(self, batch: Any, name: str) -> tuple[Any, ...]:
        """Return rows, labels and perhaps weights of a dict or a frame.

        Raises
        ------
        InvalidDataError
            If the batch is neither, or lacks a column.
        """
        available = columns_of(batch)
        if available is None:
            raise InvalidDataError(
                f"{name} is a {type(batch).__name__}, and columns={tuple(self)!r} are of dicts and "
                f"frames; leave out columns for batches (X, y)"
            )
        features = [self.X] if isinstance(self.X, str) else list(self.X)
        beside = [self.y] if self.weight is None else [self.y, self.weight]
        missing = [column for column in [*features, *beside] if column not in available]
        if missing:
            raise InvalidDataError(
                f"{name} has no column {missing[0]!r}; its columns are {', '.join(available)}"
            )
        parts = [as_array(batch[feature]) for feature in features]
        several = not isinstance(self.X, str)
        for feature, values in zip(features, parts, strict=True):
            if not values.ndim or (several and values.shape != parts[0].shape[:1]):
                raise InvalidDataError(
                    f"{name} has a column {feature!r} of shape {values.shape}; expected a value "
                    f"for each of its rows"
                )
        if several:
            return (np.column_stack(parts), *(batch[column] for column in beside))
        X = parts[0].reshape(-1, 1) if parts[0].ndim == 1 else parts[0]
        return (X, *(batch[column] for column in beside))


@dataclass(frozen=True)
class Batches:
    """Batches that an iterable yields, each ``(X, y)`` or ``(X, y, sample_weight)``.

    Attributes
    ----------
    values : iterable
    columns : BatchColumns, optional
        Names of the columns of batches that are dicts or frames.
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
        if isinstance(X, np.ndarray) or hasattr(X, "dtype") or FrameRows.accepts(X):
            raise InvalidDataError(
                f"y is missing: X is a {type(X).__name__} of rows; pass accumulate(X, y), or an "
                f"iterable of (X, y) batches"
            )
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
        for number, batch in enumerate(self.values):
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
    elif isinstance(batch, list) and batch and isinstance(batch[0], Mapping):
        raise InvalidDataError(
            f"{name} is a list of dicts (records); make frames of them, such as "
            f"pandas.DataFrame(records), and name their columns: {_EXPECTED}"
        )
    elif not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        available = columns_of(batch)
        advice = "" if not available else f"; its columns are {', '.join(available)}: pass columns="
        raise InvalidDataError(
            f"{name} is a {type(batch).__name__}; expected a tuple (X, y) or (X, y, weight){advice}"
        )
    try:
        X, *labels = batch
        X = as_slab(X) if isinstance(X, list | tuple | np.ndarray) else as_numpy(X)
        if isinstance(X, np.ndarray) and X.ndim > 2:
            X = X.reshape(len(X), int(np.prod(X.shape[1:])))
        return (X, *map(as_numpy, labels))
    except InvalidDataError as error:
        error.place(name)
        raise


def columns_of(batch: Any) -> list[str] | None:
    """Return the names of the columns of a dict or a frame; None for anything else."""
    if isinstance(batch, Mapping):
        return [str(name) for name in batch]
    for attribute in ("column_names", "columns"):  # of Arrow, of data frames
        names = getattr(batch, attribute, None)
        if names is not None and not callable(names):
            return [str(name) for name in names]
    return None
