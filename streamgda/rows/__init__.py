"""Rows: one adapter for each kind of container, slabs, labels, and checks of their values.

A new container takes one file with a subclass of `RowSource`, and one line in `ADAPTERS`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import ArrayRows, MaskedRows
from streamgda.rows.batches import Batches, Partitions
from streamgda.rows.dask import DaskRows
from streamgda.rows.frames import FrameRows
from streamgda.rows.labels import as_labels
from streamgda.rows.memmaps import MemmapRows
from streamgda.rows.sources import RowSource
from streamgda.rows.sparse import SparseRows
from streamgda.rows.stores import StoredRows

# In the order in which they are asked; libraries are recognised without importing them.
ADAPTERS: tuple[type[RowSource], ...] = (
    DaskRows,
    SparseRows,
    StoredRows,
    FrameRows,
    MaskedRows,
    MemmapRows,
    ArrayRows,
)
BATCH_ADAPTERS: tuple[type[Batches], ...] = (
    Partitions,
    Batches,
)


def adapter_of(X: Any) -> type[RowSource]:
    """Return the adapter for a container."""
    if isinstance(X, RowSource):
        return type(X)
    return next(adapter for adapter in ADAPTERS if adapter.accepts(X))


def as_source(X: Any, name: str = "X") -> RowSource:
    """Return a source of the rows of `X`: `X` itself if it is one already.

    Raises
    ------
    InvalidDataError
        If it is not an array and cannot be converted to one.
    SourceError
        If it is a zarr group.
    """
    if isinstance(X, RowSource):
        return X
    return adapter_of(X).of(X, name)


def as_sources(X: Any, y: Any, sample_weight: Any = None) -> list[RowSource]:
    """Return sources of rows, labels and, if they are given, weights."""
    sources = [as_source(X), as_source(as_labels(y) if isinstance(y, list | tuple) else y, "y")]
    if sample_weight is not None:
        if np.isscalar(sample_weight):
            sample_weight = np.broadcast_to(sample_weight, sources[0].n_rows)
        sources.append(as_source(sample_weight, "sample_weight"))
    return sources


def as_batches(X: Any, sample_weight: Any = None) -> Batches:
    """Return the batches of `X`, each with its own weights.

    Raises
    ------
    InvalidDataError
        If `X` holds rows rather than batches, or weights are given besides.
    """
    batches = next(adapter for adapter in BATCH_ADAPTERS if adapter.accepts(X)).of(X)
    if sample_weight is not None:
        raise InvalidDataError(
            "sample_weight belongs to rows and labels; batches hold their own weights: "
            "(X, y, weight)"
        )
    return batches
