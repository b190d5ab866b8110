"""Rasters: xarray's arrays and cubes of any kind, against the same pixels as rows of an array."""

import json

import dask.array as da
import geopandas
import numpy as np
import polars as pl
import pytest
import rasterio
import rasterio.features
import rioxarray  # noqa: F401  (adds `rio` to arrays)
import shapely
import xarray as xr
import zarr

from streamgda import (
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
    open_store,
)
from streamgda.engine import plan
from streamgda.errors import (
    InvalidDataError,
    InvalidParameterError,
    MissingLibraryError,
    ReadError,
    SourceError,
    SourceNotFoundError,
)
from streamgda.rows import as_source
from streamgda.rows.grids import Grid

# Of scikit-learn: some models are fitted to rows with names of the bands, and score others.
pytestmark = pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")

BANDS, HEIGHT, WIDTH = 3, 10, 14
KINDS = ["numpy", "zarr", "dask"]
BAND = {"features": "band"}


def scene(seed=0):
    """A cube (band, y, x) of bytes and labels (y, x), of which 0 means that there is none."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 4, (HEIGHT, WIDTH)).astype(np.uint8)
    cube = random.integers(0, 60, (BANDS, HEIGHT, WIDTH)) + 40 * labels
    coords = {
        "band": ["red", "green", "blue"],
        "y": 500.0 - 10 * np.arange(HEIGHT),
        "x": 100.0 + 10 * np.arange(WIDTH),
    }
    attrs = {"units": "reflectance", "crs": "EPSG:32632"}
    X = xr.DataArray(cube.astype(np.uint8), coords, ("band", "y", "x"), "scene", attrs)
    y = xr.DataArray(labels, {dim: coords[dim] for dim in "yx"}, ("y", "x"))
    return X, y


def held(X, kind):
    """The cube in memory, in a store that is read when it is sliced, or as blocks of dask."""
    if kind == "numpy":
        return X
    chunks = {"band": 1, "y": 4, "x": 5}
    if kind == "dask":
        return X.chunk({dim: n for dim, n in chunks.items() if dim in X.dims})
    store = zarr.storage.MemoryStore()
    named = X.drop_vars("band").rename("scene").to_dataset()
    encoding = {"scene": {"chunks": tuple(chunks.get(dim, 2) for dim in X.dims)}}
    named.to_zarr(store, encoding=encoding, zarr_format=3, consolidated=False)
    opened = xr.open_zarr(store, chunks=None, consolidated=False)["scene"]
    return opened.assign_coords(band=X.band)


def pixels(X):
    """The pixels as rows, in the order of the grid of `X`."""
    return np.moveaxis(X.values, X.dims.index("band"), -1).reshape(-1, BANDS)


# --- learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [("band", "y", "x"), ("y", "x", "band"), ("x", "band", "y")])
def test_labelled_pixels_are_accumulated(kind, dims):
    X, y = scene()
    X = X.transpose(*dims)
    labels = y.transpose(*[dim for dim in dims if dim != "band"])
    flat, flat_labels = pixels(X), labels.values.ravel()
    known = flat_labels > 0
    expected = accumulate(flat[known], flat_labels[known])
    plain = labels.values
    for given in (y, labels, labels.chunk({"x": 3}), plain, plain.ravel(), zarr.array(plain),
                  da.from_array(plain, chunks=3), y.expand_dims("layer"),
                  pl.Series(plain.ravel())):  # fmt: skip
        found = accumulate(held(X, kind), given, **BAND, unlabelled=0)
        np.testing.assert_array_equal(found.classes, [1, 2, 3])
        np.testing.assert_array_equal(found.class_count, expected.class_count)
        np.testing.assert_array_equal(found.means, expected.means)
        np.testing.assert_array_equal(found.covariance(), expected.covariance())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_on_the_grid(kind):
    X, y = scene()
    weights = (0.0 * y + y.x) % 3
    expected = accumulate(pixels(X), y.values.ravel(), sample_weight=weights.values.ravel())
    for given in (weights, weights.T, weights.values, weights.values.ravel(), weights[0]):
        found = accumulate(held(X, kind), y, sample_weight=given, **BAND)
        np.testing.assert_allclose(found.class_count, expected.class_count)
        np.testing.assert_allclose(found.means, expected.means)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_and_features(kind):
    X, y = scene()
    flat, labels = pixels(X), y.values.ravel()
    table = xr.DataArray(flat, {"sample": np.arange(len(flat))}, ("sample", "band"), "scene")
    table = held(table.assign_coords(band=X.band), kind)
    fitted = QuadraticDiscriminantAnalysis().fit(table, xr.DataArray(labels, dims="sample"))
    expected = QuadraticDiscriminantAnalysis().fit(flat, labels)
    assert list(fitted.feature_names_in_) == ["red", "green", "blue"]
    found = fitted.predict(table.T, **BAND)
    assert found.dims == ("sample",)
    np.testing.assert_array_equal(found.sample, table.sample)
    np.testing.assert_array_equal(found, expected.predict(flat))
    assert fitted.score(table, labels) == expected.score(flat, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_cubes(kind):
    """Dimensions of arrays without names are numbered."""
    X, y = scene()
    cube, labels = X.values, y.values.ravel()
    if kind == "zarr":
        cube = zarr.create_array({}, data=cube, chunks=(1, 4, 5))
    elif kind == "dask":
        cube = da.from_array(cube, chunks=(2, 4, 5))
    found = accumulate(cube, y.values, features=0)
    np.testing.assert_array_equal(found.means, accumulate(pixels(X), labels).means)
    fitted = GaussianNB.from_moments(found)
    expected = fitted.predict_proba(pixels(X)).reshape(HEIGHT, WIDTH, -1)
    np.testing.assert_array_equal(fitted.predict_proba(cube, features=-3), expected)


@pytest.mark.parametrize("version", [2, 3])
def test_zarr_arrays_that_name_their_dimensions(version, tmp_path):
    X, y = scene()
    data = xr.Dataset({"X": X, "fields": y}).drop_vars("band")
    data.to_zarr(tmp_path / "scene.zarr", zarr_format=version, consolidated=False)
    expected = accumulate(X, y, **BAND, unlabelled=0)
    array = zarr.open_group(tmp_path / "scene.zarr")["X"]
    for cube, labels in (
        open_store(tmp_path / "scene.zarr", y="fields", **BAND),
        open_store(tmp_path / "scene.zarr", y="fields", features=["0"]),
        (as_source(array, **BAND), y.values),
    ):
        assert cube.shape == (y.size, BANDS)
        found = accumulate(cube, labels, unlabelled=0)
        np.testing.assert_array_equal(found.covariance(), expected.covariance())
    with pytest.raises(InvalidParameterError, match=r"dimensions of X: \(0, 1, 2, 'band'"):
        accumulate(array, y.values, features="bands")
    with pytest.raises(InvalidParameterError, match="one dimension, for zarr arrays"):
        open_store(tmp_path / "scene.zarr", y=None, features=["band", "y"])


def test_slabs_without_labels_are_not_read(monkeypatch):
    X, y = scene()
    lines = []

    class Store:
        shape, chunks, dtype, ndim = (BANDS, HEIGHT, WIDTH), (3, 4, 14), np.dtype("u1"), 3

        def __getitem__(self, box):
            if box[1].stop > box[1].start:
                lines.append(box[1])
            return X.values[box]

    y.values[4:8] = 0
    monkeypatch.setattr(plan, "_SLAB_BYTES", 4 * WIDTH * 32)
    done = []
    found = accumulate(
        *(Store(), y.values),
        features=0,
        unlabelled=0,
        progress=lambda n, _: done.append(n),
    )
    assert lines == [slice(0, 4), slice(8, 10)]
    assert done[-1] == HEIGHT * WIDTH
    expected = accumulate(X, y, **BAND, unlabelled=0)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 4), (1, 5, 1, 3)])
def test_boxes_cover_any_rows_once(shape):
    grid = Grid.of(shape)
    numbers = np.arange(grid.n_rows).reshape(shape)
    for start in range(grid.n_rows + 1):
        for stop in range(start, grid.n_rows + 1):
            boxes = list(grid.boxes(start, stop))
            found = [number for box in boxes for number in numbers[box].ravel()]
            assert found == list(range(start, stop))
            assert len(boxes) < 2 * len(shape)


# --- predictions --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_rasters(kind):
    X, y = scene()
    flat = pixels(X)
    fitted = LinearDiscriminantAnalysis().fit(held(X, kind), y.values, **BAND)
    plain = LinearDiscriminantAnalysis().fit(flat, y.values.ravel())
    for method in ("predict", "predict_proba", "score_samples", "transform"):
        found = getattr(fitted, method)(held(X, kind), **BAND)
        expected = getattr(plain, method)(flat)
        np.testing.assert_allclose(found, expected.reshape(*y.shape, *expected.shape[1:]))
        assert found.name == method
        assert found.attrs == {"crs": "EPSG:32632"}
        assert found.dims[:2] == ("y", "x")
        assert found.y.equals(X.y)
        assert "band" not in found.coords
        assert (found.chunks is not None) == (kind == "dask")
    proba = fitted.predict_proba(held(X, kind), **BAND)
    assert proba.sel({"class": 2}).dims == ("y", "x")
    assert fitted.score(as_source(held(X, kind), **BAND), y) == plain.score(flat, y.values.ravel())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_predictions_are_written_in_the_shape_of_the_raster(kind, method, tmp_path):
    X, y = scene()
    fitted = GaussianNB().fit(pixels(X), y.values.ravel())
    score = getattr(fitted, method)
    expected = score(X, **BAND).values
    out = np.zeros(expected.shape)
    assert score(held(X, kind), out=out, **BAND) is out
    np.testing.assert_array_equal(out, expected)
    written = score(held(X, kind), out=tmp_path / "scores.zarr", **BAND)
    np.testing.assert_array_equal(written[:], expected)
    if kind != "numpy":
        assert written.chunks[:2] == (4, 5)
    flat = np.zeros(expected.shape)
    rows = pixels(X) if kind == "numpy" else da.from_array(pixels(X), chunks=(30, BANDS))
    score(rows, out=flat)
    np.testing.assert_array_equal(flat, expected)
    with pytest.raises(InvalidDataError, match=r"expected shape \(10, 14"):
        score(held(X, kind), out=np.zeros((WIDTH, HEIGHT, *expected.shape[2:])), **BAND)


def test_half_a_raster_is_resumed(tmp_path):
    X, y = scene()
    fitted = GaussianNB().fit(pixels(X), y.values.ravel())

    class Breaks:
        shape, chunks, dtype, ndim = (BANDS, HEIGHT, WIDTH), (3, 4, 14), np.dtype("u1"), 3
        broken = True
        lines = 0

        def __getitem__(self, box):
            if self.broken and box[1].start >= 8:
                raise ValueError("gone")
            self.lines += box[1].stop - box[1].start
            return X.values[box]

    stored, out = Breaks(), tmp_path / "labels.zarr"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_SLAB_BYTES", 4 * WIDTH * 32)
        with pytest.raises(ReadError, match=r"8 to 9, 0 to 13 cannot be read: .*gone"):
            fitted.predict(stored, out=out, features=0)
        with pytest.raises(SourceError, match="half-written: 112 of 140 rows"):
            accumulate(X, zarr.open_array(out), **BAND)
        stored.broken, stored.lines = False, 0
        written = fitted.predict(stored, out=out, features=0)
    assert stored.lines < HEIGHT + 8
    np.testing.assert_array_equal(written[:], fitted.predict(X, **BAND))


@pytest.mark.parametrize("kind", KINDS)
def test_nodata_of_the_raster_is_missing(kind):
    X, y = scene()
    X.values[X.values == 7] = 8
    X.values[1, 2, 3] = 7
    cube = held(X, kind)
    cube.attrs["_FillValue"] = np.uint8(7)
    with pytest.raises(InvalidDataError, match="nodata=7"):
        accumulate(cube, y, **BAND)
    moments = accumulate(cube, y, **BAND, on_invalid="skip")
    assert moments.n_skipped == 1
    fitted = GaussianNB.from_moments(moments)
    labels = fitted.predict(cube, **BAND, on_invalid="fill", fill=99)
    assert labels.values[2, 3] == 99
    assert (labels.values == 99).sum() == 1
    assert labels.attrs["_FillValue"] == 99
    density = fitted.score_samples(cube, **BAND, on_invalid="fill")
    assert np.isnan(density.values[2, 3])
    assert accumulate(cube, y, **BAND, nodata=255).n_skipped == 0  # instead of that of the raster
    y.values[2, 3] = 0
    assert accumulate(cube, y, **BAND, unlabelled=0).n_skipped == 0


# --- GeoTIFF ------------------------------------------------------------------------------------


def written_tif(array, path, **options):
    array.drop_vars("band", errors="ignore").rio.write_crs("EPSG:32632").rio.to_raster(
        path, **options
    )
    return path


@pytest.fixture
def files(tmp_path):
    X, y = scene()
    X.attrs["long_name"] = ("red", "green", "blue")
    tiled = {"tiled": True, "blockxsize": 16, "blockysize": 16}
    return written_tif(X, tmp_path / "X.tif", **tiled), written_tif(y, tmp_path / "y.TIF")


def test_geotiffs_are_rows_and_labels(files, tmp_path):
    X, y = scene()
    rows, none = open_store(files[0])
    labels, _ = open_store(str(files[1]))
    assert none is None
    assert rows.feature_names == ("red", "green", "blue")
    found = accumulate(rows, labels, unlabelled=0)
    expected = accumulate(X, y, **BAND, unlabelled=0)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())
    fitted = GaussianNB.from_moments(found)
    predicted = fitted.predict(rows)
    assert predicted.rio.crs == "EPSG:32632"
    np.testing.assert_array_equal(predicted, fitted.predict(X, **BAND))
    classes = fitted.predict(rows, out=tmp_path / "classes.tif")
    assert (classes.dtype, classes.shape) == (np.uint8, (1, HEIGHT, WIDTH))
    assert classes.rio.transform() == predicted.rio.transform()
    assert classes.rio.crs == "EPSG:32632"
    np.testing.assert_array_equal(classes[0], predicted)
    proba = fitted.predict_proba(rows, out=tmp_path / "proba.tif")
    assert proba.attrs["long_name"] == ("1", "2", "3")
    expected = fitted.predict_proba(rows).transpose("class", "y", "x")
    np.testing.assert_array_equal(proba.values, expected.values)
    filled = fitted.predict(
        rows, out=tmp_path / "filled.tif", nodata=X.values[0, 0, 0].item(), on_invalid="fill"
    )
    assert (filled.dtype, filled.rio.nodata) == (np.int16, -1)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("X.tif", "y.TIF", "classes.tif", "proba.tif", "filled.tif"),
    }


@pytest.mark.parametrize("kind", ["numpy", "dask"])
def test_labels_that_are_strings_have_codes_in_a_geotiff(kind, tmp_path):
    X, y = scene()
    names = np.array(["water", "field", "rock", "town"])
    fitted = GaussianNB().fit(X, y.copy(data=names[y.values]), **BAND)
    written = fitted.predict(held(X, kind), out=tmp_path / "classes.tif", **BAND)
    codes = json.loads(written.attrs["streamgda_classes"])
    assert codes == {"1": "field", "2": "rock", "3": "town", "4": "water"}
    expected = fitted.predict(X, **BAND).values
    np.testing.assert_array_equal(np.vectorize(lambda code: codes[str(code)])(written[0]), expected)


def test_large_labels_beside_negative_ones_stay_integers_in_a_geotiff(tmp_path):
    X, y = scene()
    large = y.copy(data=y.values.astype(np.int64) + 2**60)
    fitted = GaussianNB().fit(X, large, **BAND)
    nodata = X.values[0, 0, 0].item()
    options = {**BAND, "nodata": nodata, "on_invalid": "fill"}
    written = fitted.predict(X, out=tmp_path / "classes.tif", **options)
    assert written.dtype == np.int64
    np.testing.assert_array_equal(written[0], fitted.predict(X, **options))


@pytest.mark.parametrize("kind", ["f4", "i2"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_fill_values_that_xarray_wrote_are_missing(zarr_format, kind, tmp_path):
    X, y = scene()
    gaps = X.drop_vars("band").astype(float).where(y != 2)
    how = {"encoding": {"scene": {"dtype": kind, "_FillValue": -9999}}, "consolidated": False}
    gaps.to_dataset().to_zarr(tmp_path, zarr_format=zarr_format, **how)
    rows, _ = open_store(tmp_path, "scene", None, **BAND)
    found = accumulate(rows, y.values, on_invalid="skip")
    assert found.n_skipped == (y == 2).sum()
    np.testing.assert_array_equal(found.classes, [0, 1, 3])


def test_values_that_xarray_would_scale_are_read_as_stored_with_a_warning(tmp_path):
    X, _ = scene()
    stored = zarr.array(X.values, dimension_names=X.dims, attributes={"scale_factor": 0.5})
    with pytest.warns(UserWarning, match="X has scale_factor among its attributes"):
        found = accumulate(stored, np.zeros(HEIGHT * WIDTH, int), **BAND)
    assert found.exact


def test_a_geotiff_is_complete_or_missing(tmp_path):
    X, y = scene()
    fitted = GaussianNB().fit(pixels(X), y.values.ravel())
    rows = X.astype(float)
    rows.values[0, -1, -1] = np.nan
    out = tmp_path / "classes.tif"
    with pytest.raises(InvalidDataError, match="contains NaN"):
        fitted.predict(rows, out=out, **BAND)
    assert not list(tmp_path.iterdir())
    fitted.predict(X, out=out, **BAND)
    before = out.read_bytes()
    with pytest.raises(InvalidDataError, match="contains NaN"):
        fitted.predict(rows, out=out, **BAND)
    assert out.read_bytes() == before


def with_mask(X, path, how):
    """A GeoTIFF of bytes, and which of its pixels are masked: by a mask band, a file, alpha."""
    hidden = np.zeros((HEIGHT, WIDTH), bool)
    hidden[2, 3:6] = True
    seen = np.where(hidden, 0, 255).astype(np.uint8)
    n = X.shape[0] + (how == "alpha")
    form = {"driver": "GTiff", "height": HEIGHT, "width": WIDTH, "count": n, "dtype": "uint8"}
    form |= {"crs": "EPSG:32632", "transform": X.rio.transform()}
    internal = rasterio.Env(GDAL_TIFF_INTERNAL_MASK=how == "band")
    with internal, rasterio.open(path, "w", **form) as file:
        file.write(X.values, [*range(1, X.shape[0] + 1)])
        if how == "alpha":
            file.write(seen, n)
            colors = rasterio.enums.ColorInterp
            file.colorinterp = [*[colors.gray, *[colors.undefined] * n][: n - 1], colors.alpha]
        else:
            file.write_mask(seen)
    return hidden


@pytest.mark.parametrize("how", ["band", "file", "alpha"])
def test_masked_pixels_of_a_geotiff_are_missing(how, tmp_path):
    """Pixels behind a mask are missing measurements, whatever they hold; integers stay exact."""
    X, y = scene()
    hidden = with_mask(X, tmp_path / "X.tif", how)
    rows, _ = open_store(tmp_path / "X.tif")
    assert (rows.shape, rows.dtype) == ((HEIGHT * WIDTH, BANDS), np.uint8)
    with pytest.raises(InvalidDataError, match="masked"):
        accumulate(rows, y)
    found = accumulate(rows, y, on_invalid="skip")
    expected = accumulate(pixels(X)[~hidden.ravel()], y.values[~hidden])
    assert found.n_skipped == hidden.sum()
    np.testing.assert_array_equal(found.covariance(), expected.covariance())
    fitted = GaussianNB.from_moments(found)
    labels = fitted.predict(rows, on_invalid="fill", fill=9)
    expected = np.where(hidden, 9, fitted.predict(pixels(X)).reshape(hidden.shape))
    np.testing.assert_array_equal(labels, expected)


def test_a_measurement_that_is_declared_as_alpha_is_named(tmp_path):
    """GDAL declares the fourth band of bytes as alpha."""
    bands = np.random.default_rng(0).integers(1, 255, (4, HEIGHT, WIDTH)).astype(np.uint8)
    places = {"y": 7.0 - np.arange(HEIGHT), "x": np.arange(WIDTH)}
    raster = xr.DataArray(bands, places, ("band", "y", "x"))
    raster.rio.to_raster(tmp_path / "X.tif")
    with pytest.warns(UserWarning, match=r"band 4 of .*X.tif is declared as alpha"):
        rows, _ = open_store(tmp_path / "X.tif")
    assert rows.shape[1] == 3
    with rasterio.open(tmp_path / "X.tif", "r+") as file:
        file.colorinterp = [*file.colorinterp[:3], rasterio.enums.ColorInterp.undefined]
    rows, _ = open_store(tmp_path / "X.tif")
    found = accumulate(rows, [0] * (HEIGHT * WIDTH), covariance_type="diag").means
    np.testing.assert_allclose(found[0], bands.mean(axis=(1, 2)))


@pytest.mark.parametrize("how", ["nodata", "band", "alpha"])
@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_a_raster_does_not_have_are_no_class(how, kind, tmp_path):
    """Labels equal to nodata, or behind a mask, are those of unlabelled pixels."""
    X, y = scene()
    if how == "nodata":
        y.values[:5] = 255
        hidden = y.values == 255
        y.rio.write_nodata(255).rio.write_crs("EPSG:32632").rio.to_raster(tmp_path / "y.tif")
    else:
        hidden = with_mask(y.expand_dims("band"), tmp_path / "y.tif", how)
    labels, _ = open_store(tmp_path / "y.tif")
    expected = accumulate(pixels(X)[~hidden.ravel()], y.values[~hidden])
    found = accumulate(held(X, kind), labels, **BAND)
    assert found.classes.dtype == np.uint8
    assert found.n_skipped == 0
    np.testing.assert_array_equal(found.classes, expected.classes)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_xarray_that_are_missing_are_no_class(kind):
    X, y = scene()
    gap = y.values == 2
    filled = y.assign_attrs(_FillValue=np.uint8(2))
    for labels in (filled, filled.chunk(x=5), y.where(~gap)):  # the last has NaN
        fitted = GaussianNB().fit(held(X, kind), labels, **BAND)
        np.testing.assert_array_equal(fitted.classes_, [0, 1, 3])
        assert fitted.class_count_.sum() == (~gap).sum()
    flat = filled.drop_vars(filled.coords).stack(pixel=("y", "x"), create_index=False)
    again = GaussianNB().fit(pixels(X), flat)
    np.testing.assert_array_equal(again.theta_, fitted.theta_)
    with pytest.raises(InvalidDataError, match="is nan, and every label is needed"):
        GaussianNB().fit(pixels(X), flat.drop_attrs().where(flat != 2))


def test_scales_and_offsets_of_a_geotiff_are_applied(tmp_path):
    """As rioxarray does with mask_and_scale, when learning and when predicting."""
    X, y = scene()
    X.values[X.values == 7] = 8
    X.values[1, 2, 3] = 7
    written_tif(X.rio.write_nodata(7), tmp_path / "X.tif")
    with rasterio.open(tmp_path / "X.tif", "r+") as file:
        file.scales, file.offsets = (0.5, 2, 1), (0, -3, 0.25)
    rows, _ = open_store(tmp_path / "X.tif")
    scaled = pixels(X) * np.array([0.5, 2, 1]) + [0, -3, 0.25]
    known = np.arange(y.size) != 2 * WIDTH + 3
    found = accumulate(rows, y, on_invalid="skip")
    expected = accumulate(scaled[known], y.values.ravel()[known])
    np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-5)
    fitted = GaussianNB.from_moments(expected)
    labels = fitted.predict(rows, on_invalid="fill", fill=9).values.ravel()
    np.testing.assert_array_equal(labels[known], fitted.predict(scaled[known]))
    assert labels[~known] == 9


def test_labels_elsewhere_are_refused():
    X, y = (array.rio.write_crs("EPSG:32632") for array in scene())
    with pytest.raises(
        InvalidDataError, match=r"system EPSG:32633 and X has EPSG:32632; y must be"
    ):
        accumulate(X, y.rio.write_crs("EPSG:32633"), **BAND)
    turned = rasterio.Affine.rotation(30) * X.rio.transform()
    rotated = [array.drop_vars(["x", "y"]).rio.write_transform(turned) for array in (X, y)]
    accumulate(*rotated, **BAND)
    shifted = rotated[1].rio.write_transform(rasterio.Affine.translation(5, 0) * turned)
    with pytest.raises(InvalidDataError, match=r"y has the transform .* and X has "):
        accumulate(rotated[0], shifted, **BAND)


def test_dimensions_are_matched_by_what_they_are(files, tmp_path):
    """Labels of a GeoTIFF are on (y, x), and cubes may have other names, or none."""
    X, y = scene()
    expected = accumulate(X, y, **BAND, unlabelled=0).covariance()
    labels, _ = open_store(files[1])
    turned = X.rename(y="lat", x="lon").transpose("lon", "lat", "band")
    turned.drop_vars("band").to_dataset(name="X").to_zarr(tmp_path / "s.zarr", consolidated=False)
    cube, _ = open_store(tmp_path / "s.zarr", y=None, **BAND)
    for rows in (cube, as_source(turned, **BAND), as_source(X.values, features=0)):
        found = accumulate(rows, labels, unlabelled=0)
        np.testing.assert_array_equal(found.covariance(), expected)


# --- polygons -----------------------------------------------------------------------------------


def fields(crops=("rye", "oats", "rye"), crs="EPSG:32632"):
    """Three fields in a scene, the last of which is a triangle, and one beside it."""
    shapes = [
        shapely.box(112, 451, 141, 489),
        shapely.box(141, 451, 168, 489),
        shapely.Polygon([(183, 417), (227, 417), (205, 496)]),
        shapely.box(900, 900, 950, 950),
    ]
    frame = geopandas.GeoDataFrame({"crop": [*crops, None]}, geometry=shapes, crs="EPSG:32632")
    return frame if crs is None else frame.to_crs(crs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [("band", "y", "x"), ("x", "band", "y")])
def test_polygons_are_labels_of_the_pixels_in_them(kind, dims, tmp_path):
    X, _ = scene()
    X = X.rio.write_crs("EPSG:32632")
    burnt = rasterio.features.rasterize(
        zip(fields().geometry[:3], [2, 1, 2], strict=True),
        (HEIGHT, WIDTH),
        transform=X.rio.transform(),
    )
    expected = accumulate(X, burnt, **BAND, unlabelled=0)
    files = [tmp_path / name for name in ("crops.gpkg", "crops.geojson", "crops.shp")]
    for file, frame in zip(files, (fields(), fields(crs=4326), fields((2, 1, 2))), strict=True):
        frame.to_file(file)
    cube = held(X.transpose(*dims), kind).assign_coords(spatial_ref=X.spatial_ref)
    for given in (fields(), fields(crs=4326), *files):
        y = given if hasattr(given, "columns") else open_store(given, label="crop")[0]
        found = accumulate(cube, y, **BAND)
        assert found.classes.tolist() in (["oats", "rye"], [1, 2])
        np.testing.assert_array_equal(found.class_count, expected.class_count)
        np.testing.assert_array_equal(found.covariance(), expected.covariance())
    twice = xr.concat([cube, cube], "time")
    np.testing.assert_array_equal(
        accumulate(twice, fields(), **BAND).class_count, 2 * expected.class_count
    )


def test_polygons_are_rasterised_in_the_slabs_that_are_read(monkeypatch):
    """Slabs outside of all polygons are not rasterised."""
    X, _ = scene()
    X = X.rio.write_crs("EPSG:32632")
    expected = accumulate(X, fields(), **BAND)
    shapes, rasterize = [], rasterio.features.rasterize
    monkeypatch.setattr(
        *(rasterio.features, "rasterize"),
        lambda part, shape, **options: shapes.append(shape) or rasterize(part, shape, **options),
    )
    monkeypatch.setattr(plan, "_SLAB_BYTES", 2 * WIDTH * 32)
    found = accumulate(X, fields(), **BAND)
    np.testing.assert_array_equal(found.covariance(), expected.covariance())
    assert set(shapes) == {(2 + 4, WIDTH + 4)}  # with a margin


@pytest.mark.parametrize("touched", [False, True])
def test_windows_of_polygons_are_those_of_the_whole(touched):
    """However the grid is cut, flipped or cropped, pixels keep their labels."""
    X = scene()[0].rio.write_crs("EPSG:32632")
    polygons, _ = open_store(fields(), all_touched=touched)

    def on(X):
        return as_source(X, **BAND).laid_out(polygons, "y").array

    whole = on(X)[:, :].filled("")
    assert set(whole.ravel()) == {"", "oats", "rye"}
    random = np.random.default_rng(0)
    grid = on(X)
    for _ in range(100):
        y, x = (slice(*np.sort(random.choice(n + 1, 2, False))) for n in (HEIGHT, WIDTH))
        np.testing.assert_array_equal(np.ma.filled(grid[y, x], ""), whole[y, x])
        if whole[y, x].any() and min(whole[y, x].shape) > 1:
            part = on(X.isel(y=y, x=x).isel(y=slice(None, None, -1)))
            found = np.ma.filled(part[:, :], "")
            np.testing.assert_array_equal(found, whole[y, x][::-1])


@pytest.mark.parametrize("turned", range(8))
def test_neighbours_share_no_pixel(turned):
    """A pixel whose centre is on the edge between two polygons belongs to one of them."""
    X = scene()[0].rio.write_crs("EPSG:32632")
    shapes = [shapely.box(*b) for b in ((100, 430, 150, 470), (150, 430, 200, 470))]
    shapes = [*shapes, shapely.box(100, 470, 200, 490)]
    shapes = [s.reverse() if turned >> n & 1 else s for n, s in enumerate(shapes)]
    polygons = geopandas.GeoDataFrame({"crop": [1, 2, 3]}, geometry=shapes, crs="EPSG:32632")
    assert accumulate(X, polygons, **BAND).class_count.tolist() == [20, 20, 20]


def test_polygons_that_are_no_labels():
    X = scene()[0].rio.write_crs("EPSG:32632")
    overlapping = fields()
    overlapping.loc[1, "geometry"] = shapely.box(121, 451, 168, 489)
    for labels, message in (
        (
            overlapping,
            r"different classes overlap: 'oats' \(feature 1\) and 'rye' \(feature 0\)\. A",
        ),
        (
            fields()[:3].assign(geometry=fields().geometry[3]),
            "no polygon is within X, which has 10 x 14 pixels",
        ),
        (
            fields().set_crs(None, allow_override=True),
            "polygons is None and that of X is EPSG:32632; name",
        ),
        (fields().assign(geometry=fields().centroid), "holds a Point; expected labelled polygons"),
        (fields((None,) * 3), "has no polygon with a label"),
        (
            fields().assign(year=1),
            r"label=None: the frame has the columns crop, year; .*open_store",
        ),
    ):
        with pytest.raises(InvalidDataError, match=message):
            accumulate(X, labels, **BAND)
    accumulate(X, overlapping.assign(crop="rye"), **BAND)  # of one class they may overlap
    with pytest.raises(InvalidDataError, match="label='corp': the frame has the columns crop; n"):
        open_store(fields(), label="corp")
    for rows in (X.values, X.drop_vars(X.coords)):
        with pytest.raises(InvalidDataError, match="polygons are labels of the pixels of a raster"):
            accumulate(rows, fields(), features=0 if rows is X.values else "band")
    for call in (accumulate, GaussianNB().fit):
        with pytest.raises(InvalidDataError, match="X must be a GeoTIFF or a DataArray on y and x"):
            call(pixels(X), fields())


# --- refusals -----------------------------------------------------------------------------------


def test_refusals():
    X, y = scene()
    for labels, message in (
        (y[:, :-1], "y has 13 elements along 'x' and X has 14 .inconsistent numbers of samples"),
        (y.assign_coords(x=y.x + 5), "y has the coordinates 105.0 to 235.0 along 'x' and X has"),
        (
            y.rename(x="cell"),
            r"y has the dimensions \('y', 'cell'\); expected those of the grid of X: \('y', 'x'\). "
            r"Pass y.rename\({'cell': 'x'}\) if these are the same",
        ),
        (y.values.T, r"y has shape \(14, 10\); expected that of the grid of X, \(10, 14\), or one"),
        (y.values.ravel()[1:], "X has 140 rows but there are 139 labels"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            accumulate(X, labels, **BAND)
    accumulate(X, y.assign_coords(x=y.x + 1e-9), **BAND)  # rounding
    with pytest.raises(InvalidParameterError, match="features='bands'; expected one of the dimen"):
        accumulate(X, y, features="bands")
    with pytest.raises(InvalidParameterError, match=r"features='band'.* X is a ndarray"):
        accumulate(pixels(X), y.values.ravel(), features="band")
    with pytest.raises(InvalidDataError, match=r"an xarray.Dataset of red, green, blue; expected"):
        accumulate(X.to_dataset("band"), y, **BAND)
    fitted = GaussianNB().fit(X, y, **BAND)
    for call in (lambda: GaussianNB().fit(X, y), lambda: fitted.predict(X)):
        with pytest.raises(InvalidParameterError, match=r"would be along 'x'.*features='band'"):
            call()


def test_files_that_are_no_rasters(tmp_path, monkeypatch):
    with pytest.raises(SourceNotFoundError, match=r"none.tif does not exist; expected a GeoTIFF"):
        open_store(tmp_path / "none.tif")
    (tmp_path / "text.tif").write_text("no raster")
    with pytest.raises(SourceError, match=r"text.tif cannot be read as a GeoTIFF: "):
        open_store(tmp_path / "text.tif")
    X, y = scene()
    fitted = GaussianNB().fit(pixels(X), y.values.ravel())
    with pytest.raises(InvalidDataError, match="a GeoTIFF holds pixels along y and x, and X is no"):
        fitted.predict(pixels(X), out=tmp_path / "out.tif")
    monkeypatch.setitem(__import__("sys").modules, "rioxarray", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "streamgda\[raster\]"'):
        open_store(tmp_path / "text.tif")
