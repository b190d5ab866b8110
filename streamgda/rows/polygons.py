"""Training polygons: labels of the pixels of a raster, rasterised in the windows that are read."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from streamgda.errors import InvalidDataError, SourceError
from streamgda.rows.grids import georeference, is_polygons, spatial_axes
from streamgda.rows.labels import coded_labels
from streamgda.runtime.parameters import require, shown
from streamgda.runtime.retry import raised_as
from streamgda.storage.opening import check_exists

_SUFFIXES = (".gpkg", ".geojson", ".shp", ".fgb")
_MARGIN = 2  # pixels around a window
_one_at_a_time = threading.Lock()  # rasterio silences a warning, which another thread would undo
_MOST = 5  # pairs of polygons that an error names


@dataclass(frozen=True)
class Polygons:
    """Polygons with one label each.

    Attributes
    ----------
    geometry : sequence
        Shapes of shapely.
    labels : ndarray
    ids : ndarray
        Numbers of the features in the file, or their index in the frame.
    crs : object
        Coordinate reference system; None if it is unknown.
    all_touched : bool
        Label all pixels that only polygons of one class touch, not only those whose centre is in
        one.
    title : str
        Their name in error messages.
    """

    geometry: Sequence[Any]
    labels: np.ndarray
    ids: np.ndarray
    crs: Any
    all_touched: bool = False
    title: str = "y"

    @property
    def dtype(self) -> np.dtype:
        """Data type of the labels."""
        return self.labels.dtype

    @classmethod
    def of(cls, frame: Any, label: str | None = None, all_touched: bool = False) -> Self:
        """Return the polygons of a geopandas frame; those without a label or a shape are left out.

        Raises
        ------
        InvalidDataError
            If there is no column `label`, or no polygon has a label.
        """
        if isinstance(frame, cls):
            return frame
        shapes = frame.geometry
        columns = [name for name in getattr(frame, "columns", ()) if name != shapes.name]
        label = _column(label, columns, "the frame")
        labels = frame[label].to_numpy()
        return cls._of([*shapes], labels, frame.index.to_numpy(), frame.crs, all_touched, label)

    @classmethod
    def _of(cls, shapes: list[Any], y: Any, ids: Any, crs: Any, touched: bool, title: str) -> Self:
        labels = coded_labels(y, title, maskable=True)
        kept = ~np.ma.getmaskarray(labels) & [s is not None and not s.is_empty for s in shapes]
        geometry = [shape for shape, keep in zip(shapes, kept, strict=True) if keep]
        kinds = sorted({shape.geom_type for shape in geometry} - {"Polygon", "MultiPolygon"})
        if kinds or not geometry:
            found = f"holds a {kinds[0]}" if kinds else "has no polygon with a label"
            raise InvalidDataError(f"{title} {found}; expected labelled polygons")
        return cls(geometry, np.asarray(labels)[kept], np.asarray(ids)[kept], crs, touched, title)


@dataclass(frozen=True)
class PolygonGrid:
    """Labels on the grid of a raster, as an array of which windows are rasterised when sliced.

    Attributes
    ----------
    shape : tuple of int
    plane : tuple of int
        Dimensions of the grid along y and x.
    polygons : Polygons
        In the order of their labels; their coordinates are columns and rows of pixels.
    codes : ndarray of int
        Numbers of the polygons' classes.
    boxes : ndarray, shape (4, n_polygons)
        First column and row, and last column and row, of each polygon.
    """

    shape: tuple[int, ...]
    plane: tuple[int, int]
    polygons: Polygons
    codes: np.ndarray
    boxes: np.ndarray

    @classmethod
    def of(
        cls, array: Any, shape: tuple[int, ...], dims: tuple[Any, ...], polygons: Polygons
    ) -> Self:
        """Return polygons on the grid of an array of this shape, with these dimensions.

        Raises
        ------
        InvalidDataError
            If it is unknown where the raster or the polygons are, or they are elsewhere.
        """
        warp = require("rasterio.warp", "raster", "polygons")
        crs, transform = georeference(array)
        plane = spatial_axes(dims)
        if transform is None or plane is None:
            raise InvalidDataError(
                "polygons are labels of the pixels of a raster, and X has no dimensions y and x "
                "with coordinates: pass a GeoTIFF, or a DataArray with coordinates and a "
                "coordinate reference system (rioxarray's write_crs)"
            )
        if (crs is None) != (polygons.crs is None):
            raise InvalidDataError(
                f"{polygons.title}: the coordinate reference system of the polygons is "
                f"{polygons.crs} and that of X is {crs}; name the one that is missing (set_crs of "
                f"geopandas, write_crs of rioxarray)"
            )
        shapely: Any = require("shapely", "raster", "polygons")
        codes = np.unique(polygons.labels, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        shapes = [polygons.geometry[n] for n in order]
        source = None if crs is None else type(crs).from_user_input(polygons.crs)
        if source != crs:
            shapes = [*map(shapely.geometry.shape, warp.transform_geom(source, crs, shapes))]
        a, b, c, d, e, f = tuple(~transform)[:6]
        turn, origin = np.array([[a, b], [d, e]]).T, np.array([c, f])
        shapes = shapely.transform(np.array(shapes), lambda points: points @ turn + origin)
        ordered = polygons.labels[order], polygons.ids[order], crs
        moved = Polygons(shapes, *ordered, polygons.all_touched, polygons.title)
        grid = cls(shape, plane, moved, codes[order], shapely.bounds(shapes).T)
        height, width = (shape[n] for n in plane)
        if not grid._inside((0, height), (0, width)).any():
            left, top, right, bottom = shapely.total_bounds(shapes)
            raise InvalidDataError(
                f"{polygons.title}: no polygon is within X, which has {height} x {width} pixels; "
                f"they are in the rows {top:.1f} to {bottom:.1f} and columns {left:.1f} to "
                f"{right:.1f} of its grid, in the coordinate reference system {crs}"
            )
        return grid

    @property
    def dtype(self) -> np.dtype:
        """Data type of the labels."""
        return self.polygons.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, box: tuple[slice, ...]) -> np.ndarray:
        parts = [part.indices(size)[:2] for part, size in zip(box, self.shape, strict=True)]
        found = self._rasterised(*(parts[n] for n in self.plane))
        if self.plane[0] > self.plane[1]:
            found = found.T
        flat = [stop - start if n in self.plane else 1 for n, (start, stop) in enumerate(parts)]
        found = np.broadcast_to(found.reshape(flat), [stop - start for start, stop in parts])
        labels = self.polygons.labels[np.maximum(found, 1) - 1]
        return labels if found.all() else np.ma.array(labels, mask=found == 0)

    def _inside(self, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
        """Return a boolean array that is True for the polygons that may be in a window."""
        left, top, right, bottom = self.boxes
        high = (top < rows[1]) & (bottom > rows[0])
        return high & (left < columns[1]) & (right > columns[0])

    def _rasterised(self, rows: tuple[int, int], columns: tuple[int, int]) -> np.ndarray:
        """Return the polygon of each pixel in a window, counted from 1; 0 if it is in none."""
        import shapely  # noqa: PLC0415
        from affine import Affine  # noqa: PLC0415
        from rasterio.features import rasterize  # noqa: PLC0415

        (top, bottom), (left, right) = rows, columns
        numbers = np.flatnonzero(self._inside(rows, columns))
        # GDAL writes beyond an array whose last column a shape crosses (3.10, if all that is
        # touched is asked for): the array has a margin that shapes are cut to lie within.
        shapes = np.asarray(self.polygons.geometry)[numbers]
        shapes = shapely.clip_by_rect(shapes, left - 1, top - 1, right + 1, bottom + 1)
        pairs = zip(shapes, (numbers + 1).tolist(), strict=True)
        inside = [pair for pair in pairs if not pair[0].is_empty]
        if not inside or top == bottom or left == right:
            return np.zeros((bottom - top, right - left), np.int32)
        shape = bottom - top + 2 * _MARGIN, right - left + 2 * _MARGIN
        options = {"transform": Affine.translation(left - _MARGIN, top - _MARGIN), "dtype": "int32"}

        def ends(all_touched: bool) -> list[np.ndarray]:
            """Return the first and the last of the polygons of each pixel: of one class, or two."""
            parts = (inside[::-1], inside)
            with _one_at_a_time:
                found = [rasterize(p, shape, all_touched=all_touched, **options) for p in parts]
            return [f[_MARGIN:-_MARGIN, _MARGIN:-_MARGIN] for f in found]

        first, last = ends(False)
        two = self.codes[first - 1] != self.codes[last - 1]  # pixels in no polygon: 0 and 0
        if two.any():
            self._refuse(np.unique([first[two], last[two]], axis=1).T - 1)
        if self.polygons.all_touched:
            one, other = ends(True)
            last = np.where(
                (last == 0) & (self.codes[one - 1] == self.codes[other - 1]), other, last
            )
        return last

    def _refuse(self, pairs: np.ndarray) -> None:
        """Raise `InvalidDataError` that names polygons of different classes that overlap."""
        labels, ids = self.polygons.labels.tolist(), self.polygons.ids.tolist()
        named = "; ".join(
            f"{labels[a]!r} (feature {ids[a]}) and {labels[b]!r} (feature {ids[b]})"
            for a, b in pairs[:_MOST].tolist()
        )
        raise InvalidDataError(
            f"{self.polygons.title}: polygons of different classes overlap: {named}"
            f"{'; and others' if len(pairs) > _MOST else ''}. A pixel has one label: cut them"
        )


def is_polygon_file(path: Any) -> bool:
    """Return whether this is the name of a file of polygons, or a geopandas frame."""
    named = isinstance(path, str | os.PathLike)
    return str(path).lower().endswith(_SUFFIXES) if named else is_polygons(path)


def open_polygons(
    path: Any, X: str, y: str | None, *, label: str | None = None, all_touched: bool = False
) -> tuple[Polygons, None]:
    """Open polygons as labels of the pixels of a raster.

    Parameters and errors are those of `streamgda.open_store`.
    """
    if is_polygons(path):
        return Polygons.of(path, label, all_touched), None
    pyogrio: Any = require("pyogrio", "raster", "polygons")
    shapely: Any = require("shapely", "raster", "polygons")
    check_exists(path, "a file of polygons")
    with raised_as(SourceError, f"{path} cannot be read as polygons"):
        layers = pyogrio.list_layers(path)[:, 0].tolist()
        columns = pyogrio.read_info(path, layer=layers[0])["fields"].tolist()
    if len(layers) > 1:
        raise SourceError(f"{path} holds the layers {', '.join(layers)}; expected one")
    label = _column(label, columns, path)
    options = {"columns": [label], "force_2d": True, "return_fids": True}
    about, ids, shapes, (labels,) = pyogrio.raw.read(path, **options)
    title = f"{path}, column {label!r}"
    shapes = [*shapely.from_wkb(shapes)]
    return Polygons._of(shapes, labels, ids, about["crs"], all_touched, title), None


def _column(label: str | None, columns: list[Any], where: Any) -> Any:
    """Return the name of the column of labels, by default the only one."""
    if label is None and len(columns) == 1:
        return columns[0]
    if label not in columns:
        held = ", ".join(map(str, columns)) or "none"
        raise InvalidDataError(
            f"label={shown(label)}: {where} has the columns {held}; name the one with the labels "
            f"of the polygons" + (": label=... of open_store" if label is None else "")
        )
    return label
