"""xarray's arrays, and cubes of any kind: each pixel, or each sample, is a row.

xarray and dask are not imported before an array of theirs is passed.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, ReadError
from streamgda.rows.dask import DaskRows
from streamgda.rows.grids import Box, Grid, Raster, decoded, is_labelled, is_lazy, is_polygons
from streamgda.rows.in_memory import as_array
from streamgda.rows.polygons import PolygonGrid, Polygons
from streamgda.rows.sources import RowSource
from streamgda.rows.stores import is_reference
from streamgda.runtime.retry import brief, with_retries


@dataclass(frozen=True)
class GridRows(RowSource):
    """Base of the adapters of arrays whose rows are on a grid.

    Attributes
    ----------
    raster : Raster
        The container with its dimensions.
    """

    raster: Raster = None  # type: ignore[assignment]  # the fields before it have defaults

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept arrays and data sets of xarray that dask evaluates, or that it does not."""
        return is_labelled(X) and is_lazy(X) == (cls.executor == "dask")

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features."""
        return self.raster.feature_names

    @property
    def nodata(self) -> float | None:
        """Number that marks missing measurements."""
        return None if self.mapping else self.raster.nodata

    @property
    def grid(self) -> Grid:
        """The grid of the rows."""
        return self.raster.grid()

    def wrapped(self, scores: Any, name: str | None, classes: np.ndarray | None, fill: Any) -> Any:
        """Return scores in the shape of the grid as an array of xarray, if the rows are one."""
        return self.raster.wrapped(scores, name, classes, fill)

    def _beside(self, values: Any, name: str) -> Raster | None:
        """Return labels or weights that are on the grid; None if they are one-dimensional."""
        values = _array_of(values)
        if is_polygons(values):
            values = PolygonGrid.of(self.raster, Polygons.of(values))
        if isinstance(values, RowSource) or not (is_labelled(values) or _is_array(values)):
            return None
        if not is_labelled(values) and values.ndim == 1:
            return None
        return self.raster.beside(values, name)


@dataclass(frozen=True)
class RasterRows(GridRows):
    """Rows of a grid that this process reads, slabs of whole lines of chunks at a time."""

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, whose features are along the last dimension."""
        return cls.along(X, name, None)

    @classmethod
    def along(cls, X: Any, name: str, features: Any) -> Self:
        """Return a source of the rows whose features are along a dimension; see `Raster.of`."""
        return cls._of(Raster.of(_array_of(X), name, features), name)

    @classmethod
    def _of(cls, raster: Raster, name: str) -> Self:
        grid, array = raster.grid(), raster.array
        return cls(
            *(array, (grid.n_rows, *raster.row_shape), raster.dtype, name),
            unit=grid.line,
            shard=max(grid.line, raster.grid("shards").line),
            columns=grid.chunks_in_line * raster.feature_chunks,
            raster=raster,
        )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that has been read, or of what xarray reads in its place."""
        return max(super().row_bytes, np.dtype(self.values.dtype).itemsize * self.row_elements)

    @property
    def title(self) -> str:
        """The name, with the file or store if it is known."""
        source = getattr(self.values, "encoding", {}).get("source")
        return self.name if source is None else f"{self.name} ({source})"

    @property
    def shareable(self) -> bool:
        """True if the array can be pickled as a reference to a file or store."""
        return is_reference(self.values)

    def place(self, row: int, column: int | None = None) -> str:
        """Return the title and the position of the row in the grid."""
        return f"{self.title}: {self.raster.place(row)}"

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels or weights in the order of the rows."""
        beside = self._beside(values, name)
        return values if beside is None else RasterRows._of(beside, name)

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.grid.read(self._box, start, stop)

    def _box(self, box: Box) -> np.ndarray:
        try:
            rows: np.ndarray = with_retries(lambda: self.raster.read(box))
        except (MemoryError, InvalidDataError):
            raise
        except Exception as error:  # each store, file and codec has its own exceptions
            where = ", ".join(f"{part.start} to {part.stop - 1}" for part in box)
            raise ReadError(f"{self.title}: {where} cannot be read: {brief(error)}") from error
        return rows


@dataclass(frozen=True)
class DaskRasterRows(GridRows, DaskRows):
    """Rows of a grid that dask evaluates: a block of the array is a block of rows.

    So the rows are in the order of the blocks, and only in C order within a block.
    """

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, whose features are along the last dimension."""
        return cls.along(X, name, None)

    @classmethod
    def along(cls, X: Any, name: str, features: Any) -> Self:
        """Return a source of the rows whose features are along a dimension; see `Raster.of`."""
        raster = Raster.of(_array_of(X), name, features)
        array = raster.array.data if is_labelled(raster.array) else raster.array
        last = () if raster.axis is None else (raster.axis,)
        flat = _flat(array.transpose(*raster.axes, *last), len(raster.shape))
        rows = DaskRows.of(flat, name)
        fields = (rows.values, rows.shape, rows.dtype, name, rows.unit, rows.shard)
        return cls(*fields, raster=raster)

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels or weights as a dask array in the order of the rows."""
        import dask.array as da  # noqa: PLC0415

        beside = self._beside(values, name)
        if beside is None:
            if isinstance(values, RowSource) or not _is_array(values):
                values = as_array(values, name)
            if values.shape != (self.n_rows,):
                return values
            array = values if is_lazy(values) else da.from_array(values)
            return _flat(array.reshape(self.raster.shape).rechunk(self._chunks), len(self._chunks))
        array = beside.array
        if is_labelled(array):
            pairs = zip(self.raster.dims, self._chunks, strict=True)
            array = array.chunk({dim: n for dim, n in pairs if dim in array.dims}).data
            array = array.transpose(*(n for n in beside.axes if n is not None))
            whole = tuple(None if n is None else slice(None) for n in beside.axes)
            array = da.broadcast_to(array[whole], beside.shape, chunks=self._chunks)
        elif not is_lazy(array):
            array = da.from_array(array, chunks=self._chunks, asarray=False)
        array = array.rechunk(self._chunks).map_blocks(decoded, *beside.code, dtype=beside.dtype)
        return _flat(array, len(beside.shape))

    @property
    def _chunks(self) -> tuple[tuple[int, ...], ...]:
        chunks = self.raster.array.chunks
        return tuple(chunks[axis] for axis in self.raster.axes)

    def gridded(self, scores: Any) -> Any:
        """Return scores of the rows, as a dask array, in the shape of the grid."""
        if len(self._chunks) == 1:
            return scores
        return _reshaped(scores, "grid", (*self._chunks, *scores.chunks[1:]))


def _array_of(X: Any) -> Any:
    return X.raster.array if isinstance(X, GridRows) else X


def _is_array(values: Any) -> bool:
    return hasattr(values, "shape") and hasattr(values, "dtype")


def _flat(array: Any, n_dimensions: int) -> Any:
    """Return a dask array on a grid as one with rows, block by block."""
    n = n_dimensions
    array = array.rechunk({n: -1}) if array.ndim > n else array
    sizes = tuple(map(math.prod, itertools.product(*array.chunks[:n])))
    return array if n == 1 else _reshaped(array, "rows", (sizes, *array.chunks[n:]))


def _reshaped(array: Any, prefix: str, chunks: tuple[tuple[int, ...], ...]) -> Any:
    """Return a dask array with the blocks of another, in their order, in the shape of chunks."""
    from dask.array import Array  # noqa: PLC0415
    from dask.highlevelgraph import HighLevelGraph  # noqa: PLC0415
    from dask.task_spec import Task, TaskRef  # noqa: PLC0415

    name, tasks = f"{prefix}-{array.name}", {}
    pairs = zip(np.ndindex(*array.numblocks), np.ndindex(*map(len, chunks)), strict=True)
    for (before, after), shape in zip(pairs, itertools.product(*chunks), strict=True):
        key = (name, *after)
        tasks[key] = Task(key, np.reshape, TaskRef((array.name, *before)), shape)
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[array])
    return Array(graph, name, chunks, dtype=array.dtype)
