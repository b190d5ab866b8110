"""Grids of rows: cubes and rasters, whose features are along one dimension.

xarray is not imported here: its arrays are recognised by their methods.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, InvalidParameterError
from streamgda.rows.arrays import as_slab, is_masked
from streamgda.runtime.parameters import refuse

_CHUNK_BYTES = 4 << 20  # of scores, at most

Box = tuple[slice, ...]


@dataclass(frozen=True)
class Grid:
    """The arrangement of rows in an array: they follow each other in C order.

    Attributes
    ----------
    shape : tuple of int
    chunks : tuple of int
        Elements that are stored together, along each dimension.

    Examples
    --------
    >>> grid = Grid((4, 6), (2, 3))
    >>> grid.line
    12
    >>> list(grid.boxes(3, 12))
    [(slice(0, 1, None), slice(3, 6, None)), (slice(1, 2, None), slice(0, 6, None))]
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], chunks: tuple[int, ...] | None = None) -> Self:
        """Return a grid; without chunks, the elements along its last dimension are together."""
        if chunks is None:
            chunks = tuple([1] * (len(shape) - 1) + [shape[-1] if len(shape) > 1 else 1])
        return cls(
            shape, tuple(max(1, min(n, size)) for n, size in zip(chunks, shape, strict=True))
        )

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)

    @property
    def cut(self) -> int:
        """The first dimension along which several elements are stored together."""
        wide = (k for k, n in enumerate(self.chunks) if n > 1)
        return next(wide, len(self.shape) - 1)

    @property
    def line(self) -> int:
        """Number of consecutive rows that are stored in a line of whole chunks."""
        return self.chunks[self.cut] * math.prod(self.shape[self.cut + 1 :])

    @property
    def chunks_in_line(self) -> int:
        """Number of chunks in such a line."""
        pairs = zip(self.shape[self.cut + 1 :], self.chunks[self.cut + 1 :], strict=True)
        return math.prod(-(-size // n) for size, n in pairs)

    @property
    def unit(self) -> int:
        """Number of rows any multiple of which ends with whole chunks.

        It is a line; or a plane of a cube, if lines do not fill planes.

        Examples
        --------
        >>> Grid((5, 8, 3), (1, 4, 3)).unit, Grid((5, 7, 3), (1, 4, 3)).unit
        (12, 21)
        """
        filled = not self.cut or self.shape[self.cut] % self.chunks[self.cut] == 0
        return self.line if filled else math.prod(self.shape[self.cut :])

    @property
    def slab_unit(self) -> int:
        """Number of rows that slabs are multiples of, to be whole chunks of `in_slabs`."""
        last = len(self.shape) - 1
        return math.prod(self.shape[-2:]) if self.cut == last > 1 else self.unit

    def in_slabs(self, n_rows: int, row_bytes: int) -> Grid:
        """Return the grid in chunks for arrays that are written `n_rows` rows at a time.

        They have a few MiB, with rows of `row_bytes`, and slabs are whole chunks, if possible.

        Examples
        --------
        >>> Grid.of((5_000_000,)).in_slabs(1_000_000, 8).chunks
        (500000,)
        >>> Grid.of((3000, 2000)).in_slabs(600_000, 8).chunks
        (300, 1000)
        """
        if self.cut < len(self.shape) - 1:
            return self
        if len(self.shape) == 1:
            while n_rows % 2 == 0 and n_rows * row_bytes > _CHUNK_BYTES:
                n_rows //= 2
            return Grid.of(self.shape, (n_rows,))
        lines, width = max(1, n_rows // self.shape[-1]), self.chunks[-1]
        width = -(-width // -(-lines * width * row_bytes // _CHUNK_BYTES))
        return Grid.of(self.shape, (*self.chunks[:-2], lines, width))

    def boxes(self, start: int, stop: int) -> Iterator[Box]:
        """Yield the parts of the array, in order, that hold rows ``start:stop``."""
        return _boxes(self.shape, start, stop)

    def read(self, box_of: Callable[[Box], np.ndarray], start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop``; a function returns those of a box, in C order."""
        boxes = [*self.boxes(start, stop)] or [(slice(0, 0),) * len(self.shape)]
        parts = [box_of(box) for box in boxes]
        if len(parts) == 1:
            return parts[0]
        return (np.ma if any(map(is_masked, parts)) else np).concatenate(parts)

    def write(self, array: Any, start: int, scores: np.ndarray) -> None:
        """Write the scores of rows from `start` on to an array of the shape of the grid."""
        done = 0
        scores = in_type_of(array, scores)
        for box in self.boxes(start, start + len(scores)):
            shape = tuple(part.stop - part.start for part in box)
            stop = done + math.prod(shape)
            array[box] = scores[done:stop].reshape(*shape, *scores.shape[1:])
            done = stop

    def shaped(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores of all rows in the shape of the grid."""
        return scores.reshape(*self.shape, *scores.shape[1:])


def in_type_of(array: Any, scores: np.ndarray) -> np.ndarray:
    """Return scores as an array of floats of fewer bytes will hold them; others as they are.

    Raises
    ------
    InvalidDataError
        If a finite score becomes infinite.
    """
    held: Any = getattr(array, "dtype", None)
    dtype = scores.dtype
    if getattr(held, "kind", "") != "f" or dtype.kind != "f" or held.itemsize >= dtype.itemsize:
        return scores
    with np.errstate(over="ignore"):
        rounded = scores.astype(held)
    lost = np.isinf(rounded) & np.isfinite(scores)
    if lost.any():
        raise InvalidDataError(
            f"out has dtype {held}, in which the score {scores[lost][0]:g} is infinite; pass an "
            f"out of dtype {dtype}"
        )
    return rounded


def _boxes(shape: tuple[int, ...], start: int, stop: int) -> Iterator[Box]:
    if len(shape) == 1:
        if start < stop:
            yield (slice(start, stop),)
        return
    inner = math.prod(shape[1:])
    first, last = -(-start // inner), stop // inner  # lines that are whole

    def part_of(line: int, start: int, stop: int) -> Iterator[Box]:
        at = line * inner
        return ((slice(line, line + 1), *box) for box in _boxes(shape[1:], start - at, stop - at))

    if first > last:
        yield from part_of(last, start, stop)
        return
    if start < first * inner:
        yield from part_of(first - 1, start, first * inner)
    if first < last:
        yield (slice(first, last), *(slice(0, n) for n in shape[1:]))
    if last * inner < stop:
        yield from part_of(last, last * inner, stop)


# --- arrays on a grid -----------------------------------------------------------------------------


# Attributes that hold for any array on the same grid, by the conventions of rioxarray and GDAL.
_OF_GRID = ("grid_mapping", "crs", "transform", "res", "spatial_ref", "AREA_OR_POINT")
_OF_NODATA = ("_FillValue", "missing_value", "fill_value", "nodata")  # in rioxarray's order
# Names of the dimensions along which pixels lie, which differ between files of the same grid.
_SPATIAL = {
    **dict.fromkeys(("y", "lat", "latitude", "northing"), "y"),
    **dict.fromkeys(("x", "lon", "longitude", "easting"), "x"),
}
STORED_TYPE = "streamgda_stored_type"  # in the encoding of integers that are read with their mask
_SAME_PLACE = 1e-3  # of the spacing: coordinates that differ by less are equal but for rounding


def is_labelled(X: Any) -> bool:
    """Return whether this is an array, or a data set, of xarray."""
    return hasattr(X, "isel") and hasattr(X, "coords")


def is_polygons(y: Any) -> bool:
    """Return whether these are polygons with labels, or a frame of geopandas."""
    return hasattr(y, "geometry") and hasattr(y, "crs")


def spatial_axes(dims: tuple[Any, ...]) -> tuple[int, int] | None:
    """Return the numbers of the dimensions along y and x; None if one is missing."""
    found = {_SPATIAL[dim]: n for n, dim in enumerate(dims) if dim in _SPATIAL}
    return (found["y"], found["x"]) if len(found) == 2 else None


def has_gaps(y: Any) -> bool:
    """Return whether labels may be on a grid some of whose elements have none."""
    y = getattr(getattr(y, "raster", None), "array", y)
    on_grid = is_labelled(y) and getattr(y, "ndim", 0) > 1
    return on_grid or is_polygons(y) or nodata_of(y) is not None


def nodata_of(array: Any) -> float | None:
    """Return the number that marks missing values, by the attributes of xarray and zarr arrays."""
    attributes: Any = getattr(array, "attrs", None)
    if not hasattr(attributes, "keys"):
        return None
    value = np.asarray(next((attributes[n] for n in _OF_NODATA if n in attributes), None))
    if value.ndim or value.dtype.kind not in "iuf" or np.isnan(value):
        return None
    number: float = value.item()
    return number


def georeference(array: Any) -> tuple[Any, Any]:
    """Return the coordinate reference system and the transform of an array, None if unknown."""
    with contextlib.suppress(ImportError):
        import rioxarray  # noqa: F401, PLC0415  (it adds `rio` to arrays)
    rio = getattr(array, "rio", None)
    crs = transform = None
    with contextlib.suppress(Exception), warnings.catch_warnings():  # of arrays without a plane
        warnings.simplefilter("ignore")  # rotated grids have the transform of their file
        crs = None if rio is None else rio.crs
        transform = None if rio is None else rio.transform(recalc=True)
    return crs, None if transform is None or transform.is_identity else transform


def is_lazy(X: Any) -> bool:
    """Return whether dask evaluates the array."""
    graph = getattr(X, "__dask_graph__", None)
    return graph is not None and graph() is not None


@dataclass(frozen=True)
class Raster:
    """An array of which each element, or all elements along one dimension, are a row.

    Attributes
    ----------
    array : xarray.DataArray, or array with basic slicing
    shape : tuple of int
        Shape of the grid of rows.
    axes : tuple of int or None
        Dimensions of the array along those of the grid; None if all elements there are the same.
    axis : int or None
        Dimension of the features; None if each element is a row.
    """

    array: Any
    shape: tuple[int, ...]
    axes: tuple[int | None, ...]
    axis: int | None = None

    @classmethod
    def of(cls, X: Any, name: str, features: str | int | None = None) -> Self:
        """Return an array of rows whose features are along a dimension, by default the last one.

        Raises
        ------
        InvalidDataError
            For a data set.
        InvalidParameterError
            If there is no such dimension.
        """
        if hasattr(X, "data_vars"):
            names = ", ".join(map(str, X.data_vars))
            raise InvalidDataError(
                f"{name} is an xarray.Dataset of {names}; expected a DataArray: one of them, or "
                f"all as features, with {name}.to_dataarray('band') and features='band'"
            )
        dims = _dims(X)
        stored = () if is_labelled(X) else _stored_names(X)
        if not is_labelled(X):
            if features in stored:
                features = stored.index(features)
            elif type(features) is int and -X.ndim <= features < 0:
                features += X.ndim
        if features is not None and features not in dims:
            named = is_labelled(X) or stored
            what = "dimensions" if named else "numbers of the axes (it has no names)"
            raise refuse("features", features, f"one of the {what} of {name}: {(*dims, *stored)}")
        last = X.ndim - 1 if X.ndim > 1 else None
        others = [dim for dim in dims if dim not in _SPATIAL]
        if features is None and others and X.ndim > 2 and dims[-1] in _SPATIAL:
            best = next((dim for dim in others if "band" in str(dim).lower()), *others[:1])
            raise InvalidParameterError(
                f"{name} has the dimensions {dims}, and the features would be along {dims[-1]!r}, "
                f"the last one; pass features={best!r}, the dimension of the features"
            )
        axis = last if features is None else dims.index(features)
        axes = tuple(n for n in range(X.ndim) if n != axis)
        return cls(X, tuple(int(X.shape[n]) for n in axes), axes, axis)

    @property
    def dtype(self) -> np.dtype:
        """Type of the values as they are read."""
        stored = getattr(self.array, "encoding", {}).get(STORED_TYPE)
        return np.dtype(self.array.dtype if stored is None else stored)

    @property
    def dims(self) -> tuple[Any, ...]:
        """Names of the dimensions of the grid, or their numbers in the array."""
        dims = _stored_names(self.array) or _dims(self.array)
        return tuple(None if n is None else dims[n] for n in self.axes)

    @property
    def features(self) -> Any:
        """Name of the dimension of the features, or its number; None if there is none."""
        return None if self.axis is None else _dims(self.array)[self.axis]

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row."""
        return () if self.axis is None else (int(self.array.shape[self.axis]),)

    def grid(self, what: str = "chunks") -> Grid:
        """Return the grid of rows in chunks, or in ``"shards"``."""
        stored = _stored(self.array, what)
        if stored is None:
            return Grid.of(self.shape)
        return Grid.of(self.shape, tuple(1 if n is None else stored[n] for n in self.axes))

    @property
    def feature_chunks(self) -> int:
        """Number of chunks along the dimension of the features; none if there are no chunks."""
        stored = _stored(self.array, "chunks")
        if self.axis is None or stored is None:
            return int(stored is not None)
        return -(-int(self.array.shape[self.axis]) // max(1, stored[self.axis]))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Coordinates of the features, or else descriptions of the bands, if they are strings."""
        if self.axis is None or not is_labelled(self.array):
            return None
        coordinate = self.array.coords.get(self.features)
        described = self.array.attrs.get("long_name")  # by rioxarray, from a GeoTIFF
        for names in (None if coordinate is None else coordinate.values.tolist(), described):
            found = tuple(names) if isinstance(names, list | tuple) else ()
            if len(found) == self.array.shape[self.axis] and all(type(n) is str for n in found):
                return found
        return None

    @property
    def nodata(self) -> float | None:
        """Number that marks missing measurements, from the attributes."""
        return nodata_of(self.array)

    @property
    def code(self) -> tuple[np.dtype, float | None]:
        """Parameters of `decoded`; nodata of features is not decoded, but up to the pass."""
        return self.dtype, self.nodata if self.axis is None else None

    def read(self, box: Box) -> np.ndarray:
        """Return part of the grid: its rows in C order."""
        index, order = [slice(None)] * self.array.ndim, []
        for part, axis in zip(box, self.axes, strict=True):
            if axis is not None:
                index[axis] = part
                order.append(axis)
        values = self.array.variable if is_labelled(self.array) else self.array
        found = decoded(as_slab(values[tuple(index)]), *self.code)
        found = found.transpose(*order, *(() if self.axis is None else (self.axis,)))
        shape = tuple(part.stop - part.start for part in box)
        if None in self.axes:
            pairs = zip(shape, self.axes, strict=True)
            found = found.reshape([1 if axis is None else n for n, axis in pairs])
            found = np.broadcast_to(found, shape)
        return found.reshape(math.prod(shape), *self.row_shape)

    def place(self, row: int) -> str:
        """Return the position of a row in the grid."""
        at = np.unravel_index(row, self.shape)
        named = is_labelled(self.array)
        pairs = zip(self.dims, at, strict=True)
        where = (f"{dim}={index}" if named else f"{index}" for dim, index in pairs)
        return f"({', '.join(where)})"

    def beside(self, values: Any, name: str) -> Raster:
        """Return labels or weights of the rows, from an array on the same grid.

        Dimensions of xarray's arrays are matched by their names; their order does not matter, and
        along those that are missing all labels are the same.

        Raises
        ------
        InvalidDataError
            If their dimensions, shape or coordinates are others.
        """
        if not is_labelled(values):
            if tuple(values.shape) != self.shape:
                raise InvalidDataError(
                    f"{name} has shape {tuple(values.shape)}; expected that of the grid of X, "
                    f"{self.shape}, or one entry for each of its {math.prod(self.shape)} elements "
                    f"(inconsistent numbers of samples)"
                )
            return Raster(values, self.shape, tuple(range(len(self.shape))))
        dims, single = self.dims, []
        of = {}  # dimensions of the labels by those of the grid
        for dim in values.dims:
            same = [d for d in dims if d == dim] or [
                d for d in dims if d in _SPATIAL and _SPATIAL[d] == _SPATIAL.get(dim)
            ]
            if same:
                of[same[0]] = dim
            elif values.sizes[dim] == 1:
                single.append(dim)
        values = values.isel(dict.fromkeys(single, 0), drop=True) if single else values
        if dims == tuple(n for n in self.axes) and values.ndim == len(dims):  # without names
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
        for dim, size in zip(dims, self.shape, strict=True):
            if dim in of:
                self._check_aligned(values, dim, of[dim], size, name)
        axes = (values.dims.index(of[dim]) if dim in of else None for dim in dims)
        return Raster(values, self.shape, tuple(axes))

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
        """Return scores of the rows, in the shape of the grid, as an array of xarray if it is one.

        Parameters
        ----------
        scores : array
        name : str, optional
            Name of the array.
        classes : ndarray, optional
            Coordinates of its last dimension, if the columns belong to classes.
        fill : label or number, optional
            Scores of invalid rows; a number is the nodata of the array.
        """
        if not is_labelled(self.array):
            return scores
        coords = self.array.coords
        if self.axis is not None:
            coords = coords.to_dataset().drop_dims(self.features, errors="ignore").coords
        column = "component" if classes is None else "class"
        dims = (*self.dims, *(column,)[: scores.ndim - len(self.shape)])
        held = self.array.attrs
        attributes = {name: held[name] for name in _OF_GRID if name in held}
        if isinstance(fill, int | float):
            attributes["_FillValue"] = fill
        wrapped = type(self.array)(scores, coords, dims, name, attributes)
        encoding = {k: v for k, v in self.array.encoding.items() if k == "grid_mapping"}
        wrapped.encoding.update(encoding)
        return wrapped if classes is None else wrapped.assign_coords({"class": classes})


def decoded(found: np.ndarray, dtype: np.dtype, nodata: float | None) -> np.ndarray:
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
