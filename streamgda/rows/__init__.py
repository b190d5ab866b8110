"""Rows: one adapter for each kind of container, slabs, labels, and checks of their values.

A new container takes one file with a subclass of `RowSource`, and one line in `ADAPTERS`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import is_masked
from streamgda.rows.batches import BatchColumns, Batches, DatasetBatches, Partitions
from streamgda.rows.dask import DaskRows
from streamgda.rows.in_memory import ArrayRows, MaskedRows, MemmapRows, SparseRows
from streamgda.rows.labels import as_maskable_labels
from streamgda.rows.polygons import PolygonRows
from streamgda.rows.rasters import DaskRasterRows, GridRows, RasterRows
from streamgda.rows.sources import RowSource
from streamgda.rows.stores import StoredRows
from streamgda.rows.tables import FrameRows, LazyFrameRows
from streamgda.runtime.parameters import refuse

# In the order in which they are asked; libraries are recognised without importing them.
ADAPTERS: tuple[type[RowSource], ...] = (
    PolygonRows,
    FrameRows,
    DaskRasterRows,
    RasterRows,
    DaskRows,
    SparseRows,
    StoredRows,
    LazyFrameRows,
    MaskedRows,
    MemmapRows,
    ArrayRows,
)
_GRIDS: dict[str, type[RowSource]] = {"process": RasterRows, "dask": DaskRasterRows}  # of arrays
BATCH_ADAPTERS: tuple[type[Batches], ...] = (
    Partitions,
    DatasetBatches,
    Batches,
)


def adapter_of(X: Any) -> type[RowSource]:
    """Return the adapter for a container."""
    if type(X) is np.ndarray:  # before any other, because most rows are
        return MemmapRows if MemmapRows.accepts(X) else ArrayRows
    if isinstance(X, RowSource):
        return type(X)
    return next(adapter for adapter in ADAPTERS if adapter.accepts(X))


def as_source(X: Any, name: str = "X", *, features: Any = None) -> RowSource:
    """Return a source of the rows of `X`: `X` itself if it is one already.

    Parameters
    ----------
    X : array-like, memmap, zarr.Array, data frame, dask collection or DataArray
    name : str
        Name of the array in error messages.
    features : str or int, optional
        Dimension that holds the features: its name in a DataArray, or in a zarr array that names
        its dimensions; its number in other arrays.

    Raises
    ------
    InvalidDataError
        If it is not an array and cannot be converted to one.
    InvalidParameterError
        For `features` of anything but a DataArray.
    SourceError
        If it is a zarr group.
    """
    if features is not None:
        return _adapter_along(X, features).along(X, name, features)
    if isinstance(X, RowSource):
        return X
    return adapter_of(X).of(X, name)


def _adapter_along(X: Any, features: Any) -> type[RowSource]:
    """Return the adapter for a container with the features along a dimension."""
    adapter = adapter_of(X)
    gridded = ArrayRows | StoredRows | DaskRows if isinstance(features, int) else StoredRows
    if not hasattr(X, "ndim") or not issubclass(adapter, gridded):
        return adapter
    return adapter if issubclass(adapter, GridRows) else _GRIDS[adapter.executor]


def as_rows(X: Any, features: Any, nodata: Any = None) -> tuple[Any, Any]:
    """Return an array as it was given, and a source of the rows of any other container.

    The second result is `nodata`, or else the number that the container names.
    """
    if type(X) is np.ndarray and features is None:
        return X, nodata
    if features is not None or isinstance(X, RowSource):
        rows = as_source(X, features=features)
    else:
        adapter = adapter_of(X)
        if adapter.checked_at_once:
            return X, nodata
        rows = adapter.of(X, "X")
    return rows, rows.nodata if nodata is None else nodata


def named_rows(X: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Return rows, as a source if their columns may have names, and these names or None."""
    if isinstance(X, np.ndarray | list | tuple):
        return X, None
    adapter = adapter_of(X)
    if adapter.feature_names is RowSource.feature_names:  # the property that has no names
        return X, None
    source = X if isinstance(X, RowSource) else adapter.of(X, "X")
    return source, source.feature_names


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the names of the columns of a container; None if it has none."""
    return named_rows(X)[1]


def as_sources(X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> list[RowSource]:
    """Return sources of rows, labels and, if they are given, groups and weights."""
    rows = as_source(X)
    names = ["X", "y"]
    sources = [rows, _label_source(rows, y, "y")]
    if groups is not None:
        names.append("groups")
        sources.append(_label_source(rows, groups, "groups"))
    if sample_weight is not None:
        names.append("sample_weight")
        if np.isscalar(sample_weight):
            sample_weight = np.broadcast_to(sample_weight, rows.n_rows)
        weights = rows.laid_out(sample_weight, "sample_weight")
        sources.append(as_source(weights, "sample_weight"))
    return [  # columns that were opened as labels may be weights
        source if source.name == name else replace(source, name=name)
        for source, name in zip(sources, names, strict=True)
    ]


def _label_source(rows: RowSource, y: Any, name: str) -> RowSource:
    """Return a source of labels, or of groups."""
    if isinstance(y, list | tuple):
        labels: Any = as_maskable_labels(y, name)
        if is_masked(labels):
            y = np.array(y, object)
        else:  # dask cuts arrays of numpy
            y = labels if rows.executor == "process" else np.asarray(labels)
    return as_source(rows.laid_out(y, name), name)


def as_batches(
    X: Any, sample_weight: Any = None, *, features: Any = None, columns: Any = None
) -> Batches:
    """Return the batches of `X`, each with its own weights.

    Parameters
    ----------
    X : iterable
        Batches.
    sample_weight, features : None
        Others are refused.
    columns : tuple, optional
        Names ``(X, y)`` or ``(X, y, weight)`` of the columns of batches that are dicts or tables.

    Raises
    ------
    InvalidDataError
        If `X` holds rows rather than batches, or weights are given besides.
    InvalidParameterError
        For other `columns`, and for `features`.
    """
    if features is not None:
        raise refuse("features", features, "None: batches are arrays of rows x features")
    adapter = next(adapter for adapter in BATCH_ADAPTERS if adapter.accepts(X))
    batches = adapter.of(X, None if columns is None else BatchColumns.of(columns))
    if sample_weight is not None:
        raise InvalidDataError(
            "sample_weight belongs to rows and labels; batches hold their own weights: "
            "(X, y, weight)"
        )
    return batches
