"""GeoTIFF files: read in windows of whole blocks, and written window by window.

Files are read through rioxarray, as arrays of xarray, and written through rasterio.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamgda.errors import InvalidDataError, SourceError, SourceNotFoundError, cause_of
from streamgda.rows.grids import STORED_TYPE, Box
from streamgda.rows.rasters import GridRows, RasterRows
from streamgda.runtime.parameters import require
from streamgda.runtime.retry import brief
from streamgda.storage.opening import local_path
from streamgda.storage.replacing import replacing

SCORES_TAG = "streamgda_scores"  # the tag of files that hold scores
CLASSES = "streamgda_classes"  # the tag with the labels that integer codes stand for, as JSON
_SUFFIXES = (".tif", ".tiff")
BLOCK_PIXELS = 256  # pixels of a block that is written, along each dimension
_TYPES = ("u1", "u2", "i2", "u4", "i4", "i8", "u8")


def is_geotiff(path: Any) -> bool:
    """Return whether this is the name of a GeoTIFF."""
    return isinstance(path, str | os.PathLike) and str(path).lower().endswith(_SUFFIXES)


def open_geotiff(path: Any, X: str, y: str | None) -> tuple[RasterRows, None]:
    """Open a GeoTIFF as rows, its pixels, whose features are its bands; there are no labels.

    Parameters and errors are those of `streamgda.open_store`.
    """
    return RasterRows.along(_decoded(open_raster(path), path), "X", "band"), None


def _decoded(raster: Any, path: Any) -> Any:
    """Return a raster with scales, offsets and masks, if the file has any; without alpha bands."""
    rasterio = require("rasterio", "raster", "GeoTIFF files")
    with rasterio.open(path) as file:
        alpha = [c == rasterio.enums.ColorInterp.alpha for c in file.colorinterp]
        masked = any(rasterio.enums.MaskFlags.per_dataset in f for f in file.mask_flag_enums)
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
    local = local_path(path)
    if local is not None and not local.exists():
        raise SourceNotFoundError(f"{path} does not exist; expected a GeoTIFF")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scales differ across bands
            raster = rioxarray.open_rasterio(path, cache=False, **options)
    except Exception as error:  # of GDAL, rasterio and rioxarray
        message = f"{path} cannot be read as a GeoTIFF: {brief(error)}"
        raise SourceError(message) from cause_of(error)
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
        self._file = rasterio.open(
            path,
            "w",
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

    def close(self) -> None:
        """Write what is not yet in the file, and close it."""
        self._file.close()


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
    limits = ((name, np.iinfo(name)) for name in _TYPES)
    return next(np.dtype(n).name for n, i in limits if i.min <= low and high <= i.max)
