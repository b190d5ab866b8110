"""Iterables of batches ``(X, y)`` or ``(X, y, weight)``, or of dicts and frames with named columns.

They are converted one batch at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.counting import Slab
from streamgda.rows.frames import FrameRows
from streamgda.rows.source import as_array, as_numpy, as_slab, check_container
from streamgda.rows.zarr import is_group

_EXPECTED = "columns=('image', 'label'), columns=(['a', 'b'], 'label'), or a third name of weights"


@dataclass(frozen=True)
class Batches:
    """Batches that an iterable yields, each ``(X, y)`` or ``(X, y, sample_weight)``.

    Attributes
    ----------
    values : iterable
    columns : tuple, optional
        Names ``(X, y)`` or ``(X, y, weight)`` of the columns of batches that are dicts or frames;
        X is a column whose entries are rows, or a list of columns, one for each feature.
    """

    values: Any
    columns: Any = None

    def __post_init__(self) -> None:
        """Raise errors for rows without labels, and for columns that are not names."""
        X, columns = self.values, self.columns
        if isinstance(X, str | os.PathLike):
            check_container(X, "X")
        group = is_group(X)
        if group or not isinstance(X, Iterable) or hasattr(X, "dtype") or FrameRows.accepts(X):
            names = f" of {', '.join(sorted(map(str, X))):.500}" if group else ""
            raise InvalidDataError(
                f"y is missing: X is a {type(X).__name__}{names}; pass rows and labels, "
                f"accumulate(X, y), or an iterable of (X, y) batches, such as [X]"
            )
        if columns is not None and not _are_names(columns):
            raise InvalidParameterError(f"columns={columns!r}; expected {_EXPECTED}")

    @property
    def executor(self) -> str:
        """The executor of a pass: dask for a list of delayed objects, otherwise this process."""
        first = next(iter(self.values), None) if isinstance(self.values, list | tuple) else None
        return "dask" if hasattr(first, "__dask_graph__") else "process"

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, if a list names the columns of each."""
        several = self.columns is not None and not isinstance(self.columns[0], str)
        return tuple(self.columns[0]) if several else None

    def __iter__(self) -> Iterator[Slab]:
        for number, batch in enumerate(self.values):
            yield read_batch(batch, f"batch {number}", self.columns)


def _are_names(columns: Any) -> bool:
    """Return whether these are names (X, y) or (X, y, weight) of columns."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or len(columns) not in (2, 3):
        return False
    X = columns[0]
    names = [*X] if isinstance(X, list | tuple) and X else [X]
    return all(isinstance(name, str) for name in (*names, *columns[1:]))


def read_batch(batch: Any, name: str, columns: Any = None) -> Slab:
    """Return the rows of a batch, with their labels and perhaps weights; tensors as arrays.

    Rows with several axes, such as images, are flattened.

    Raises
    ------
    InvalidDataError
        If the batch is anything else.
    """
    if columns is not None:
        batch = _named(batch, name, columns)
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
        X, y, weight = (*batch, None)[:3]
        X = as_slab(X) if isinstance(X, list | tuple | np.ndarray) else as_numpy(X)
        if isinstance(X, np.ndarray) and X.ndim > 2:
            X = X.reshape(len(X), int(np.prod(X.shape[1:])))
        return Slab(X, as_numpy(y), weight=as_numpy(weight))
    except InvalidDataError as error:
        error.place(name)
        raise


def _named(batch: Any, name: str, columns: Any) -> list[Any]:
    """Return rows, labels and perhaps weights of a dict or a frame."""
    X, *beside = columns
    features, available = [X] if isinstance(X, str) else list(X), columns_of(batch)
    if available is None:
        raise InvalidDataError(
            f"{name} is a {type(batch).__name__}, and columns={tuple(columns)!r} are of dicts and "
            f"frames; leave out columns for batches (X, y)"
        )
    missing = [column for column in (*features, *beside) if column not in available]
    if missing:
        raise InvalidDataError(
            f"{name} has no column {missing[0]!r}; its columns are {', '.join(available)}"
        )
    parts = [as_array(batch[feature]) for feature in features]
    try:
        rows = parts[0] if isinstance(X, str) else np.stack(parts, axis=1)
        rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows
    except ValueError:
        shapes = ", ".join(
            f"{n!r} of {part.shape}" for n, part in zip(features, parts, strict=True)
        )
        raise InvalidDataError(
            f"{name} has columns of different shapes: {shapes}; expected a value for each row"
        ) from None
    return [rows, *(batch[column] for column in beside)]


def columns_of(batch: Any) -> list[str] | None:
    """Return the names of the columns of a dict or a frame; None for anything else."""
    names = getattr(batch, "column_names", None) or getattr(batch, "columns", None)
    names = batch if isinstance(batch, Mapping) else names  # Arrow has names of columns.
    return None if names is None or callable(names) else [str(name) for name in names]
