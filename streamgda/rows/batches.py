"""Iterables of batches, each with its rows, labels and perhaps weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from streamgda.errors import InvalidDataError


@dataclass(frozen=True)
class Batches:
    """Batches that an iterable yields, each ``(X, y)`` or ``(X, y, sample_weight)``.

    Attributes
    ----------
    values : iterable
    """

    values: Iterable[Any]

    executor: ClassVar[str] = "process"

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept everything: this is the last adapter to be asked."""
        return True

    @classmethod
    def of(cls, X: Any) -> Self:
        """Return the batches; raise `InvalidDataError` for rows without labels."""
        if isinstance(X, np.ndarray) or hasattr(X, "dtype") or hasattr(X, "iloc"):
            raise InvalidDataError(
                f"y is missing: X is a {type(X).__name__} of rows; pass accumulate(X, y), or an "
                f"iterable of (X, y) batches"
            )
        if not isinstance(X, Iterable):
            raise InvalidDataError(
                f"X is a {type(X).__name__}; without y, an iterable of (X, y) batches is expected"
            )
        return cls(X)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)


@dataclass(frozen=True)
class Partitions(Batches):
    """Batches that dask evaluates: a list of delayed objects."""

    executor = "dask"

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept lists of delayed objects."""
        return isinstance(X, list | tuple) and bool(X) and hasattr(X[0], "__dask_graph__")

    @classmethod
    def of(cls, X: Any) -> Self:
        """Return the partitions."""
        return cls(list(X))


def check_batch(batch: Any, name: str) -> None:
    """Raise `InvalidDataError` unless this is ``(X, y)`` or ``(X, y, sample_weight)``."""
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        raise InvalidDataError(
            f"{name} is a {type(batch).__name__}; expected a tuple (X, y) or (X, y, weight)"
        )
