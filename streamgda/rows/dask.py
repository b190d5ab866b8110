"""dask arrays, data frames and series; dask itself is not imported here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError
from streamgda.rows.arrays import as_slab
from streamgda.rows.names import as_names
from streamgda.rows.sources import RowSource
from streamgda.rows.stores import StoredArray, StoredRows


@dataclass(frozen=True)
class DaskRows(RowSource):
    """Rows of a dask collection, which dask evaluates."""

    executor = "dask"

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept dask arrays, data frames and series, but no delayed objects."""
        kinds = ("rechunk", "to_dask_array")
        return hasattr(X, "__dask_graph__") and any(hasattr(X, kind) for kind in kinds)

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, or of labels or weights in a series or a frame's column.

        The number of rows of a data frame is unknown.
        """
        if not hasattr(X, "chunks"):
            if name != "X" and X.ndim == 2 and X.shape[1] == 1:
                X = X[X.columns[0]]
            return cls(X, (math.nan, *X.shape[1:]), None, name)  # type: ignore[arg-type]
        X = _reading_stores(X, name)
        sizes = X.chunks[0] if X.chunks else ()
        unit = 1 if any(math.isnan(n) for n in sizes) else max([1, *sizes])
        return cls(X, tuple(X.shape), X.dtype, name, unit, unit, math.prod(X.numblocks[1:]))

    def whole(self) -> np.ndarray:
        """Return all rows, whose number may be unknown."""
        return as_slab(self.values)

    @property
    def stored(self) -> StoredRows | None:
        """The rows in the store of which the collection is a plain view, as of `from_zarr`."""
        from dask.array.core import getter, getter_inline, getter_nofancy  # noqa: PLC0415
        from dask.blockwise import Blockwise  # noqa: PLC0415

        X = self.values
        layer = X.__dask_graph__().layers.get(X.name) if hasattr(X, "chunks") else None
        if type(self) is not DaskRows or not isinstance(layer, Blockwise) or self.mapping:
            return None
        task, (value, *others) = layer.task, [value for value, _ in layer.indices]
        if task.func not in (getter, getter_nofancy, getter_inline) or task.kwargs:
            return None
        if hasattr(value, "key"):
            value = X.__dask_graph__().layers[value.key].get(value.key)
        if not isinstance(value, StoredArray) or [*layer.io_deps] != others:
            return None
        return value.source if value.shape == X.shape else None

    def gridded(self, scores: Any) -> Any:
        """Return scores of the rows, as a dask array, in the shape of the grid."""
        return scores

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the columns of a data frame, if all are strings."""
        return as_names(getattr(self.values, "columns", ()))

    def place(self, row: int, column: int | None = None) -> str:
        """Return the name and the block that holds the row."""
        if not hasattr(self.values, "chunks"):
            return ""
        block = np.searchsorted(np.cumsum(self.values.chunks[0]), row, "right")
        return f"{self.name}: block {block}"


def refuse_delayed(values: Any, name: str) -> None:
    """Raise `InvalidDataError` for an object of dask.delayed, which has every attribute."""
    if type(values).__module__ == "dask.delayed":
        raise InvalidDataError(
            f"{name} is an object of dask.delayed; pass an array of it, "
            f"dask.array.from_delayed({name}, shape, dtype), or delayed batches (X, y) in a list"
        )


def _reading_stores(X: Any, name: str) -> Any:
    """Return a dask array that reads its stores through `StoredRows`; its keys stay the same."""
    from dask.array import Array  # noqa: PLC0415
    from dask.blockwise import Blockwise  # noqa: PLC0415
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer  # noqa: PLC0415

    def reading(value: Any) -> Any:
        return StoredArray(StoredRows.of(value, name)) if StoredRows.accepts(value) else value

    graph, layers = X.__dask_graph__(), {}
    for key, layer in graph.layers.items():
        if isinstance(layer, MaterializedLayer) and len(layer) == 1:
            ((only, value),) = layer.items()
            if StoredRows.accepts(value):
                layers[key] = MaterializedLayer({only: reading(value)})
        elif isinstance(layer, Blockwise) and any(
            at is None and StoredRows.accepts(value) for value, at in layer.indices
        ):
            indices = [(reading(value), at) for value, at in layer.indices]
            layers[key] = Blockwise(
                *(layer.output, layer.output_indices, layer.task, indices, layer.numblocks),
                *(layer.concatenate, layer.new_axes, layer.output_blocks),
                *(layer.annotations, layer.io_deps),
            )
    if not layers:
        return X
    graph = HighLevelGraph({**graph.layers, **layers}, graph.dependencies)
    return Array(graph, X.name, X.chunks, meta=X)
