"""xarray's arrays, GeoTIFF files, and cubes of any kind: each pixel, or each sample, is a row.

xarray and dask are not imported before an array of theirs is passed. GeoTIFF files are read through
rioxarray, as arrays of xarray, and written through rasterio, window by window.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    ReadError,
    SourceError,
)
from streamgda.rows.arrays import CodedLabels, as_slab
from streamgda.rows.dask import DaskRows
from streamgda.rows.grids import (
    SPATIAL,
    STORED_TYPE,
    Box,
    Grid,
    georeference,
    is_labelled,
    is_lazy,
    is_polygons,
    nodata_of,
    warn_if_scaled,
)
from streamgda.rows.in_memory import as_array
from streamgda.rows.polygons import PolygonGrid, Polygons
from streamgda.rows.sources import RowSource
from streamgda.rows.stores import is_reference
from streamgda.runtime.parameters import refuse, require
from streamgda.runtime.retry import raised_as
from streamgda.storage.opening import check_exists
from streamgda.storage.replacing import replacing

SCORES_TAG = "streamgda_scores"  # the tag of files that hold scores
CLASSES = "streamgda_classes"  # the tag with the labels that integer codes stand for, as JSON
_SUFFIXES = (".tif", ".tiff")
_SAMPLED = 64  # pixels to each side of the middle of an alpha band
BLOCK_PIXELS = 256  # pixels of a block that is written, along each dimension

# Attributes that hold for any array on the same grid, by the conventions of rioxarray and GDAL.
_OF_GRID = ("grid_mapping", "crs", "transform", "res", "spatial_ref", "AREA_OR_POINT")
# Types of labels in files, without int8, which few programs read.
_WHOLE = "uint8", "uint16", "int16", "uint32", "int32", "uint64", "int64"
_SAME_PLACE = 1e-3  # of the spacing: coordinates that differ by less are equal but for rounding


@dataclass(frozen=True)
class GridRows(RowSource):
    """Base of the adapters of arrays of which all elements along one dimension are a row.

    Attributes
    ----------
    array : xarray.DataArray, or array with basic slicing
    grid_shape : tuple of int
        Shape of the grid of rows.
    axes : tuple of int or None
        Dimensions of the array along those of the grid; None if all elements there are the same.
    axis : int or None
        Dimension of the features; None if each element is a row.
    """

    array: Any = None
    grid_shape: tuple[int, ...] = ()
    axes: tuple[int | None, ...] = ()
    axis: int | None = None

    @classmethod
    def accepts(cls, X: Any) -> bool:
        """Accept arrays and data sets of xarray that dask evaluates, or that it does not."""
        return is_labelled(X) and is_lazy(X) == (cls.executor == "dask")

    @classmethod
    def of(cls, X: Any, name: str) -> Self:
        """Return a source of the rows, whose features are along the last dimension."""
        return cls.along(X, name, None)

    @classmethod
    def along(cls, X: Any, name: str, features: Any) -> Self:
        """Return a source of the rows whose features are along a dimension, by default the last.

        Raises
        ------
        InvalidDataError
            For a data set.
        InvalidParameterError
            If there is no such dimension.
        """
        X = X.array if isinstance(X, GridRows) else X
        if hasattr(X, "data_vars"):
            names = ", ".join(map(str, X.data_vars))
            raise InvalidDataError(
                f"{name} is an xarray.Dataset of {names}; expected a DataArray: one of them, or "
                f"all as features, with {name}.to_dataarray('band') and features='band'"
            )
        dims = _dims(X)
        stored = () if is_labelled(X) else _stored_names(X)
        if not is_labelled(X):
            warn_if_scaled(X, name)
            if features in stored:
                features = stored.index(features)
            elif type(features) is int and -X.ndim <= features < 0:
                features += X.ndim
        if features is not None and features not in dims:
            named = is_labelled(X) or stored
            what = "dimensions" if named else "numbers of the axes (it has no names)"
            raise refuse("features", features, f"one of the {what} of {name}: {(*dims, *stored)}")
        last = X.ndim - 1 if X.ndim > 1 else None
        others = [dim for dim in dims if dim not in SPATIAL]
        if features is None and others and X.ndim > 2 and dims[-1] in SPATIAL:
            best = next((dim for dim in others if "band" in str(dim).lower()), *others[:1])
            raise InvalidParameterError(
                f"{name} has the dimensions {dims}, and the features would be along {dims[-1]!r}, "
                f"the last one; pass features={best!r}, the dimension of the features"
            )
        axis = last if features is None else dims.index(features)
        axes = tuple(n for n in range(X.ndim) if n != axis)
        return cls._on_grid(X, name, tuple(int(X.shape[n]) for n in axes), axes, axis)

    @classmethod
    def _on_grid(cls, array: Any, name: str, shape: Any, axes: Any, axis: Any = None) -> Self:
        """Return a source of the rows of an array; see the attributes."""
        raise NotImplementedError

    @property
    def dims(self) -> tuple[Any, ...]:
        """Names of the dimensions of the grid, or their numbers in the array."""
        dims = _stored_names(self.array) or _dims(self.array)
        return tuple(None if n is None else dims[n] for n in self.axes)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Coordinates of the features, or else descriptions of the bands, if they are strings."""
        if self.axis is None or not is_labelled(self.array):
            return None
        coordinate = self.array.coords.get(self.array.dims[self.axis])
        described = self.array.attrs.get("long_name")  # by rioxarray, from a GeoTIFF
        for names in (None if coordinate is None else coordinate.values.tolist(), described):
            found = tuple(names) if isinstance(names, list | tuple) else ()
            if len(found) == self.array.shape[self.axis] and all(type(n) is str for n in found):
                return found
        return None

    @property
    def nodata(self) -> float | None:
        """Number that marks missing measurements, from the attributes."""
        return None if self.mapping else nodata_of(self.array)

    @property
    def grid(self) -> Grid:
        """The grid of the rows."""
        return self._stored_grid("chunks")

    def _stored_grid(self, what: str) -> Grid:
        """Return the grid of rows in chunks, or in ``"shards"``."""
        stored = _stored(self.array, what)
        chunks = None if stored is None else tuple(1 if n is None else stored[n] for n in self.axes)
        return Grid.of(self.grid_shape, chunks)

    def _beside(self, values: Any, name: str) -> RasterRows | None:
        """Return labels or weights that are on the grid; None if they are one-dimensional.

        Dimensions of xarray's arrays are matched by their names; their order does not matter, and
        along those that are missing all labels are the same.

        Raises
        ------
        InvalidDataError
            If their dimensions, shape or coordinates are others.
        """
        values = values.array if isinstance(values, GridRows) else values
        if is_polygons(values):
            polygons = Polygons.of(values)
            values = PolygonGrid.of(self.array, self.grid_shape, self.dims, polygons)
        if not is_labelled(values):
            if isinstance(values, RowSource) or not _is_array(values) or values.ndim == 1:
                return None
            if tuple(values.shape) != self.grid_shape:
                raise InvalidDataError(
                    f"{name} has shape {tuple(values.shape)}; expected that of the grid of X, "
                    f"{self.grid_shape}, or one entry for each of its {self.n_rows} elements "
                    f"(inconsistent numbers of samples)"
                )
            return RasterRows._on_grid(values, name, self.grid_shape, tuple(range(values.ndim)))
        dims, single = self.dims, []
        of = {}  # dimensions of the labels by those of the grid
        for dim in values.dims:
            same = [d for d in dims if d == dim] or [
                d for d in dims if d in SPATIAL and SPATIAL[d] == SPATIAL.get(dim)
            ]
            if same:
                of[same[0]] = dim
            elif values.sizes[dim] == 1:
                single.append(dim)
        values = values.isel(dict.fromkeys(single, 0), drop=True) if single else values
        if dims == self.axes and values.ndim == len(dims):  # without names
            of = dict(zip(dims, values.dims, strict=True))
        if len(of) < values.ndim:
            others = [dim for dim in values.dims if dim not in of.values()]
            left = [dim for dim in dims if dim not in of]
            new = ", ".join(f"{a!r}: {b!r}" for a, b in zip(others, left, strict=False))
            raise InvalidDataError(
                f"{name} has the dimensions {values.dims}; expected those of the grid of X: {dims}"
                + (f". Pass {name}.rename({{{new}}}) if these are the same" if new else "")
            )
        crs, their_crs = (georeference(array)[0] for array in (self.array, values))
        if None not in (crs, their_crs) and crs != their_crs:
            raise InvalidDataError(
                f"{name} has the coordinate reference system {their_crs} and X has {crs}; "
                f"{_remedy(name)}"
            )
        for dim, size in zip(dims, self.grid_shape, strict=True):
            if dim in of:
                self._check_aligned(values, dim, of[dim], size, name)
        axes = (values.dims.index(of[dim]) if dim in of else None for dim in dims)
        return RasterRows._on_grid(values, name, self.grid_shape, tuple(axes))

    def _check_aligned(self, values: Any, dim: Any, theirs: Any, size: int, name: str) -> None:
        """Raise `InvalidDataError` unless sizes and coordinates along a dimension are the same."""
        if values.sizes[theirs] != size:
            raise InvalidDataError(
                f"{name} has {values.sizes[theirs]} elements along {theirs!r} and X has {size} "
                f"(inconsistent numbers of samples); {_remedy(name)}"
            )
        coords = getattr(self.array, "coords", ())
        if dim in coords and theirs in values.coords:
            a, b = coords[dim].values, values.coords[theirs].values
            aligned = _same_places(a, b)
            found = f"the coordinates {b[0]} to {b[-1]} along {theirs!r}", f"{a[0]} to {a[-1]}"
        else:  # rotated rasters have a transform alone
            a, b = (georeference(array)[1] for array in (self.array, values))
            aligned = None in (a, b) or a.almost_equals(b)
            found = f"the transform {tuple(b or ())[:6]}", f"{tuple(a or ())[:6]}"
        if not aligned:
            raise InvalidDataError(f"{name} has {found[0]} and X has {found[1]}; {_remedy(name)}")

    def wrapped(self, scores: Any, name: str | None, classes: np.ndarray | None, fill: Any) -> Any:
        """Return scores in the shape of the grid as an array of xarray, if the rows are one.

        Their columns are along ``"class"``, with its labels, or ``"component"``. A number that is
        the fill value of invalid rows is the nodata of the array.
        """
        if not is_labelled(self.array):
            return scores
        coords = self.array.coords
        if self.axis is not None:
            coords = (
                coords.to_dataset().drop_dims(self.array.dims[self.axis], errors="ignore").coords
            )
        column = "component" if classes is None else "class"
        dims = (*self.dims, *(column,)[: scores.ndim - len(self.grid_shape)])
        held = self.array.attrs
        attributes = {name: held[name] for name in _OF_GRID if name in held}
        if isinstance(fill, int | float):
            attributes["_FillValue"] = fill
        wrapped = type(self.array)(scores, coords, dims, name, attributes)
        encoding = {k: v for k, v in self.array.encoding.items() if k == "grid_mapping"}
        wrapped.encoding.update(encoding)
        return wrapped if classes is None else wrapped.assign_coords({"class": classes})


@dataclass(frozen=True)
class RasterRows(GridRows):
    """Rows of a grid that this process reads, slabs of whole lines of chunks at a time."""

    @classmethod
    def _on_grid(cls, array: Any, name: str, shape: Any, axes: Any, axis: Any = None) -> Self:
        stored_type = getattr(array, "encoding", {}).get(STORED_TYPE)
        dtype = np.dtype(array.dtype if stored_type is None else stored_type)
        width = 0 if axis is None else int(array.shape[axis])
        on_grid: Any = {"array": array, "grid_shape": shape, "axes": axes, "axis": axis}
        rows = cls(
            array, (math.prod(shape), *([] if axis is None else [width])), dtype, name, **on_grid
        )
        grid, stored = rows.grid, _stored(array, "chunks")
        columns = 0 if stored is None else grid.chunks_in_line
        if stored is not None and axis is not None:
            columns *= -(-width // max(1, stored[axis]))
        shard = max(grid.line, rows._stored_grid("shards").line)
        return replace(rows, unit=grid.line, shard=shard, columns=columns)

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
        at, named = np.unravel_index(row, self.grid_shape), is_labelled(self.array)
        pairs = zip(self.dims, at, strict=True)
        where = (f"{dim}={index}" if named else f"{index}" for dim, index in pairs)
        return f"{self.title}: ({', '.join(where)})"

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels or weights in the order of the rows."""
        beside = self._beside(values, name)
        return values if beside is None else beside

    def _slice(self, start: int, stop: int) -> np.ndarray:
        return self.grid.read(self._box, start, stop)

    def _box(self, box: Box) -> np.ndarray:
        where = ", ".join(f"{part.start} to {part.stop - 1}" for part in box)
        with raised_as(ReadError, f"{self.title}: {where} cannot be read"):
            return self._read(box)

    def _read(self, box: Box) -> np.ndarray:
        """Return part of the grid: its rows in C order."""
        index, order = [slice(None)] * self.array.ndim, []
        for part, axis in zip(box, self.axes, strict=True):
            if axis is not None:
                index[axis] = part
                order.append(axis)
        values = self.array.variable if is_labelled(self.array) else self.array
        found = _decoded(as_slab(values[tuple(index)]), *self._code)
        found = found.transpose(*order, *(() if self.axis is None else (self.axis,)))
        shape = tuple(part.stop - part.start for part in box)
        if None in self.axes:
            pairs = zip(shape, self.axes, strict=True)
            found = found.reshape([1 if axis is None else n for n, axis in pairs])
            found = np.broadcast_to(found, shape)
        return found.reshape(math.prod(shape), *self.shape[1:])

    @property
    def _code(self) -> tuple[Any, float | None]:
        """Parameters of `_decoded`; nodata of features is not decoded, but up to the pass."""
        return self.dtype, nodata_of(self.array) if self.axis is None else None


@dataclass(frozen=True)
class DaskRasterRows(GridRows, DaskRows):
    """Rows of a grid that dask evaluates: a block of the array is a block of rows.

    So the rows are in the order of the blocks, and only in C order within a block.
    """

    @classmethod
    def _on_grid(cls, array: Any, name: str, shape: Any, axes: Any, axis: Any = None) -> Self:
        blocks = array.data if is_labelled(array) else array
        blocks = blocks.transpose(*axes, *(() if axis is None else (axis,)))
        rows = DaskRows.of(_flat(blocks, len(shape)), name)
        on_grid: Any = {"array": array, "grid_shape": shape, "axes": axes, "axis": axis}
        return cls(rows.values, rows.shape, rows.dtype, name, rows.unit, rows.shard, **on_grid)

    def laid_out(self, values: Any, name: str) -> Any:
        """Return labels or weights as a dask array in the order of the rows."""
        import dask.array as da  # noqa: PLC0415

        beside = self._beside(values, name)
        if beside is None:
            if not (_is_array(values) and hasattr(values, "chunks")):
                found: Any = as_array(values, name)
                values = np.asarray(found) if type(found) is CodedLabels else found
            if values.shape != (self.n_rows,):
                return values
            chunks = getattr(values, "chunks", -1)
            array = values if is_lazy(values) else da.from_array(values, chunks)
            return _flat(array.reshape(self.grid_shape).rechunk(self._chunks), len(self._chunks))
        array = beside.array
        if is_labelled(array):
            pairs = zip(self.dims, self._chunks, strict=True)
            array = array.chunk({dim: n for dim, n in pairs if dim in array.dims}).data
            array = array.transpose(*(n for n in beside.axes if n is not None))
            whole = tuple(None if n is None else slice(None) for n in beside.axes)
            array = da.broadcast_to(array[whole], beside.grid_shape, chunks=self._chunks)
        elif not is_lazy(array):
            array = da.from_array(array, chunks=self._chunks, asarray=False)
        array = array.rechunk(self._chunks).map_blocks(_decoded, *beside._code, dtype=beside.dtype)
        return _flat(array, len(beside.grid_shape))

    @property
    def _chunks(self) -> tuple[tuple[int, ...], ...]:
        chunks = self.array.chunks
        return tuple(chunks[axis] for axis in self.axes)

    def gridded(self, scores: Any) -> Any:
        """Return scores of the rows, as a dask array, in the shape of the grid."""
        from dask.array import reshape_blockwise  # noqa: PLC0415

        shape = *self.grid_shape, *scores.shape[1:]
        return reshape_blockwise(scores, shape, (*self._chunks, *scores.chunks[1:]))


def _is_array(values: Any) -> bool:
    return all(hasattr(values, each) for each in ("shape", "dtype", "ndim"))


def _flat(array: Any, n_dimensions: int) -> Any:
    """Return a dask array on a grid as one with rows, block by block."""
    from dask.array import reshape_blockwise  # noqa: PLC0415

    n = n_dimensions
    array = array.rechunk({n: -1}) if array.ndim > n else array
    return reshape_blockwise(array, (math.prod(array.shape[:n]), *array.shape[n:]))


def _decoded(found: np.ndarray, dtype: np.dtype, nodata: float | None) -> np.ndarray:
    """Return values as the type that is stored, with those masked that are not there."""
    if found.dtype != dtype:
        missing = np.isnan(found)
        whole = np.where(missing, 0, found).astype(dtype)
        found = np.ma.array(whole, mask=missing) if missing.any() else whole
    if nodata is None:
        return found
    return as_slab(np.ma.array(found, mask=np.ma.getmaskarray(found) | np.equal(found, nodata)))


def _remedy(name: str) -> str:
    return f"{name} must be on the grid of X (rioxarray's reproject_match resamples it)"


def _dims(X: Any) -> tuple[Any, ...]:
    return tuple(X.dims) if is_labelled(X) else tuple(range(X.ndim))


def _stored_names(X: Any) -> tuple[str, ...]:
    """Return the names of the dimensions of a zarr array; none if they are not in its metadata."""
    names = getattr(getattr(X, "metadata", None), "dimension_names", None)
    if names is None:  # as xarray writes them in version 2 of the format
        names = getattr(X, "attrs", {}).get("_ARRAY_DIMENSIONS", ())
    return tuple(names)


def _stored(X: Any, what: str) -> tuple[int, ...] | None:
    """Return the shape of the chunks or shards of an array; None if it has none."""
    found = getattr(X, what, None)
    if found is not None and not is_lazy(X):
        return tuple(found)
    if found is not None:
        return tuple(max(sizes, default=1) for sizes in found)
    encoding = getattr(X, "encoding", {})  # of arrays that xarray reads when they are sliced
    if what == "chunks" and "preferred_chunks" in encoding:
        return tuple(encoding["preferred_chunks"].get(dim, 1) for dim in X.dims)
    found = encoding.get(what)
    return tuple(found) if isinstance(found, list | tuple) and len(found) == X.ndim else None


def _same_places(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind in "iuf" and b.dtype.kind in "iuf" and a.size > 1:
        return np.allclose(a, b, rtol=0, atol=_SAME_PLACE * abs(float(a[1]) - float(a[0])))
    return np.array_equal(a, b)


# --- GeoTIFF files --------------------------------------------------------------------------------


def is_geotiff(path: Any) -> bool:
    """Return whether this is the name of a GeoTIFF."""
    return isinstance(path, str | os.PathLike) and str(path).lower().endswith(_SUFFIXES)


def open_geotiff(path: Any, X: str, y: str | None) -> tuple[RasterRows, None]:
    """Open a GeoTIFF as rows, its pixels, whose features are its bands; there are no labels.

    Parameters and errors are those of `streamgda.open_store`.
    """
    return RasterRows.along(_with_masks(open_raster(path), path), "X", "band"), None


def _with_masks(raster: Any, path: Any) -> Any:
    """Return a raster with scales, offsets and masks, if the file has any; without alpha bands."""
    rasterio = require("rasterio", "raster", "GeoTIFF files")
    with rasterio.open(path) as file:
        alpha = [c == rasterio.enums.ColorInterp.alpha for c in file.colorinterp]
        masked = any(rasterio.enums.MaskFlags.per_dataset in f for f in file.mask_flag_enums)
        if any(alpha):
            _warn_of_values(file, 1 + alpha.index(True))
        scaled = {*file.scales} != {1} or {*file.offsets} != {0}
    if not masked and not scaled:
        return raster
    stored, names = raster.dtype, raster.attrs.get("long_name")
    raster = open_raster(path, masked=masked, mask_and_scale=scaled)
    if not scaled and stored.kind in "iu":  # NaN is where there is nothing
        raster.encoding[STORED_TYPE] = stored.name
    if any(alpha):  # it is the mask
        bands = [n for n, is_alpha in enumerate(alpha) if not is_alpha]
        raster = raster.isel(band=bands)
        if isinstance(names, tuple):
            raster.attrs["long_name"] = tuple(names[n] for n in bands)
    return raster


def _warn_of_values(file: Any, band: int) -> None:
    """Warn if a band that is declared as alpha has more values in the middle than a mask has.

    GDAL declares the fourth band of bytes as alpha by default, such as near infrared.
    """
    middle = [slice(max(0, n // 2 - _SAMPLED), n // 2 + _SAMPLED) for n in file.shape]
    if np.unique(file.read(band, window=tuple(middle))).size > 2:
        warnings.warn(
            f"band {band} of {file.name} is declared as alpha: it is a mask and no feature, though "
            f"it has many values. If it is a measurement, change `colorinterp` in rasterio",
            stacklevel=5,
        )


def open_raster(path: Any, **options: bool) -> Any:
    """Open a GeoTIFF as an array of xarray, which is read when it is sliced.

    Parameters
    ----------
    path : path
    **options : bool
        ``masked`` and ``mask_and_scale`` of rioxarray.

    Returns
    -------
    xarray.DataArray, shape (n_bands, height, width)

    Raises
    ------
    SourceNotFoundError, SourceError
        If there is no such file, or it cannot be read as one raster.
    MissingLibraryError
        If rioxarray is not installed.
    """
    rioxarray = require("rioxarray", "raster", "GeoTIFF files")
    check_exists(path, "a GeoTIFF")
    failure = f"{path} cannot be read as a GeoTIFF"
    with raised_as(SourceError, failure), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scales differ across bands
        raster = rioxarray.open_rasterio(path, cache=False, **options)
    if getattr(raster, "ndim", 0) != 3:
        raise SourceError(f"{path} holds several rasters; expected one, with bands, y and x")
    return raster


class GeoTiff:
    """A GeoTIFF that is written window by window, as if it were an array.

    Numbers keep their values, in the smallest integer type that holds all labels. Labels of other
    kinds become the codes 1, 2, ... of the sorted labels; a tag says which.

    Parameters
    ----------
    path : path
        File to write.
    rows : RowSource
        Rows of the raster whose coordinates and coordinate reference system the file gets.
    width : tuple of int
        Number of bands; empty for one.
    dtype : dtype
    asked : object
        Kind of the scores, with attributes `labels`, `classes`, `fill` and `name`.

    Raises
    ------
    InvalidDataError
        If the rows are not those of a raster.
    """

    def __init__(
        self, path: Path, rows: Any, width: tuple[int, ...], dtype: np.dtype, asked: Any
    ) -> None:
        require("rioxarray", "raster", "GeoTIFF files")  # adds `rio` to arrays
        rasterio = require("rasterio", "raster", "GeoTIFF files")
        array = rows.array if isinstance(rows, GridRows) else None
        georeferenced = getattr(array, "rio", None)
        if georeferenced is None or rows.dims != _plane(georeferenced):
            found = "no raster" if georeferenced is None else f"a grid of {rows.dims}"
            raise InvalidDataError(
                f"a GeoTIFF holds pixels along y and x, and X is {found}: pass a DataArray with "
                f"these dimensions in this order beside the features, or name a zarr array as out"
            )
        self.shape = (*rows.grid_shape, *width)
        self.dtype = np.dtype(dtype)
        labels = asked.labels
        fill = asked.fill if isinstance(asked.fill, int | float) else None
        self._classes = None if labels is None or dtype.kind in "biuf" else np.unique(labels)
        height, columns = rows.grid_shape
        self._written: list[_Written] = []
        self._file = rasterio.open(
            path,
            "w",
            opener=self._opened,
            driver="GTiff",
            height=height,
            width=columns,
            count=width[0] if width else 1,
            dtype=_stored_type(self.dtype, labels),
            crs=georeferenced.crs,
            transform=georeferenced.transform(),
            nodata=fill,
            tiled=min(rows.grid_shape) >= BLOCK_PIXELS,
            blockxsize=BLOCK_PIXELS,
            blockysize=BLOCK_PIXELS,
            compress="deflate",
            BIGTIFF="IF_SAFER",
        )
        self._file.update_tags(**{SCORES_TAG: asked.name or ""})
        for band, label in enumerate(() if asked.classes is None else asked.classes, 1):
            self._file.set_band_description(band, str(label))
        if self._classes is not None:
            codes = dict(enumerate(map(str, self._classes), 1))
            self._file.update_tags(**{CLASSES: json.dumps(codes)})

    def __setitem__(self, box: Box, values: np.ndarray) -> None:
        rows, columns = box[:2]
        if self._classes is not None:
            values = np.searchsorted(self._classes, values) + 1
        bands = values[None] if values.ndim == 2 else np.moveaxis(values, -1, 0)
        window = ((rows.start, rows.stop), (columns.start, columns.stop))
        self._file.write(bands.astype(self._file.dtypes[0], copy=False), window=window)

    def _opened(self, path: str, mode: str = "rb", **_: Any) -> _Written:
        self._written.append(_Written(path, mode))
        return self._written[-1]

    def close(self) -> None:
        """Write what is not yet in the file, and close it.

        Raises
        ------
        OSError
            If anything could not be written.
        """
        self._file.close()
        for error in (file.error for file in self._written if file.error is not None):
            raise error


class _Written(io.FileIO):
    """A file that keeps the first error of writing, as GDAL ignores those on closing.

    What follows is not written.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left and self.error is None:
                left = left[super().write(left) :]
        except OSError as error:
            self.error = error
        return len(data)


def _plane(georeferenced: Any) -> tuple[Any, Any] | None:
    """Return the names of the dimensions of rows and columns of pixels, if rioxarray finds them."""
    try:
        return georeferenced.y_dim, georeferenced.x_dim
    except Exception:  # of rioxarray, which is not imported here
        return None


@contextlib.contextmanager
def writing_geotiff(path: Any, *arguments: Any) -> Iterator[GeoTiff]:
    """Yield a file to write to; on leaving without an error it is moved to `path`.

    Parameters and errors are those of `GeoTiff`.
    """
    with (
        replacing(Path(path), ".tif") as partial,
        contextlib.closing(GeoTiff(partial, *arguments)) as file,
    ):
        yield file


def is_of_scores(path: Any) -> bool:
    """Return whether a GeoTIFF holds scores that were written here."""
    return SCORES_TAG in open_raster(path).attrs


def _stored_type(dtype: np.dtype, labels: np.ndarray | None) -> str:
    """Return the type of the values in the file: the smallest one that holds all labels."""
    if labels is None:
        return dtype.name
    if dtype.kind not in "biuf":
        return np.min_scalar_type(labels.size).name
    whole = labels.astype(np.int64) if dtype.kind != "u" else labels
    low, high = int(whole.min()), int(whole.max())
    return next(t for t in _WHOLE if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
