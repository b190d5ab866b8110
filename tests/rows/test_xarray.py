"""DataArrays of xarray against the same rows in an array."""

import dask.array as da
import numpy as np
import pytest
import rioxarray  # noqa: F401  (adds `rio` to arrays)
import xarray as xr

from streamgda import (
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.errors import InvalidDataError, InvalidParameterError

# Of scikit-learn: some models are fitted to rows with names of the bands, and score others.
pytestmark = pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")

BANDS, HEIGHT, WIDTH = 3, 10, 14
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
    attributes = {"units": "reflectance", "AREA_OR_POINT": "Area"}
    X = xr.DataArray(cube.astype(np.uint8), coords, ("band", "y", "x"), "scene", attributes)
    y = xr.DataArray(labels, {dim: coords[dim] for dim in "yx"}, ("y", "x"))
    return X.rio.write_crs("EPSG:32632"), y


def held(X, kind):
    """The array in memory, or as blocks of dask that are tiles."""
    chunks = {"band": 1, "y": 4, "x": 5}
    tiles = {dim: n for dim, n in chunks.items() if dim in X.dims}
    return X.chunk(tiles) if kind == "dask" else X


def pixels(X):
    return X.transpose("y", "x", "band").values.reshape(-1, BANDS)


EITHER = pytest.mark.parametrize("kind", ["numpy", "dask"])


@EITHER
@pytest.mark.parametrize("dims", [("band", "y", "x"), ("y", "x", "band"), ("y", "band", "x")])
def test_pixels_are_rows(kind, dims):
    X, y = scene()
    flat, labels = pixels(X), y.values.ravel()
    known = labels > 0
    expected = accumulate(flat[known], labels[known])
    X = held(X.transpose(*dims), kind)
    for given in (y, y.T, y.chunk({"x": 3}), labels, da.from_array(labels, chunks=13)):
        found = accumulate(X, given, **BAND, unlabelled=0)
        np.testing.assert_array_equal(found.classes, [1, 2, 3])
        np.testing.assert_array_equal(found.class_count, expected.class_count)
        np.testing.assert_allclose(found.means, expected.means, rtol=1e-14)
        np.testing.assert_allclose(found.covariance(), expected.covariance(), rtol=1e-13)


@EITHER
def test_what_lacks_a_dimension_is_the_same_along_it(kind):
    X, y = scene()
    weights = 1 + np.arange(WIDTH) % 3
    expected = accumulate(pixels(X), y.values.ravel(), sample_weight=np.tile(weights, HEIGHT))
    found = accumulate(held(X, kind), y, sample_weight=(0 * y.x + weights), **BAND)
    np.testing.assert_allclose(found.class_count, expected.class_count)
    np.testing.assert_allclose(found.means, expected.means)
    by_row = accumulate(held(X, kind), y, groups=(y.y * 0 + np.arange(HEIGHT)).astype(int), **BAND)
    assert len(by_row) == HEIGHT


@EITHER
def test_scores_are_on_the_grid(kind):
    X, y = scene()
    rows = held(X, kind)
    model = QuadraticDiscriminantAnalysis().fit(rows, y, **BAND)
    plain = QuadraticDiscriminantAnalysis().fit(pixels(X), y.values.ravel())
    assert list(model.feature_names_in_) == ["red", "green", "blue"]
    assert model.score(rows, y, **BAND) == plain.score(pixels(X), y.values.ravel())
    classes = model.predict(rows, **BAND)
    posterior = model.predict_proba(rows, **BAND)
    for found in (classes, posterior):
        assert (found.chunks is not None) == (kind == "dask")
        assert found.rio.crs == X.rio.crs
        assert found.attrs == {"AREA_OR_POINT": "Area"}
        xr.testing.assert_equal(found.y, X.y)
    assert classes.dims == ("y", "x")
    np.testing.assert_array_equal(classes, plain.predict(pixels(X)).reshape(HEIGHT, WIDTH))
    assert posterior.dims == ("y", "x", "class")
    assert posterior["class"].values.tolist() == [0, 1, 2, 3]
    expected = plain.predict_proba(pixels(X)).reshape(HEIGHT, WIDTH, -1)
    np.testing.assert_allclose(posterior, expected, rtol=1e-9, atol=1e-12)
    lda = LinearDiscriminantAnalysis(n_components=2).fit(rows, y, **BAND)
    assert lda.transform(rows, **BAND).dims == ("y", "x", "component")


@EITHER
def test_features_may_be_the_first_of_two_dimensions(kind):
    X, y = scene()
    table = held(xr.DataArray(pixels(X), {"row": np.arange(y.size)}, ("row", "band")), kind)
    fitted = GaussianNB().fit(table, xr.DataArray(y.values.ravel(), dims="row"))
    assert fitted.predict(table.T, **BAND).dims == ("row",)
    np.testing.assert_array_equal(fitted.predict(table.T, **BAND), fitted.predict(table))


@EITHER
def test_the_fill_value_is_missing(kind):
    X, y = scene()
    X[:, :2] = 255
    marked = held(X.assign_attrs(_FillValue=255), kind)
    found = accumulate(marked, y, **BAND, on_invalid="skip")
    expected = accumulate(pixels(X[:, 2:]), y.values[2:].ravel())
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-14)
    model = GaussianNB.from_moments(found)
    with pytest.raises(InvalidDataError, match="NaN"):
        np.asarray(model.predict(marked, **BAND))
    classes = model.predict(marked, **BAND, on_invalid="fill", fill=99)
    assert (classes[:2] == 99).all()
    assert classes.attrs["_FillValue"] == 99
    assert (classes[2:] == model.predict(X[:, 2:], **BAND)).all()


@EITHER
def test_labels_on_another_grid_are_an_error(kind):
    X, y = scene()
    rows, bare = held(X, kind), y.drop_vars(["x", "y"])
    for labels in (y.assign_coords(x=y.x + 5), y[1:], bare[1:], y.rename(x="lon")):
        with pytest.raises(InvalidDataError, match=r"y is not on the grid of X.*\('y', 'x'\)"):
            accumulate(rows, labels, **BAND)
    found, expected = accumulate(rows, bare, **BAND), accumulate(rows, y, **BAND)
    np.testing.assert_array_equal(found.means, expected.means)


def test_wrong_arrays_and_dimensions():
    X, y = scene()
    hole, dims = X.astype(float), r"features=.*'band', 'y', 'x'"
    hole[1, 4, 7] = np.nan
    for given, labels, features, message in (
        (hole, y, "band", r"^X: \(y=4, x=7\): .*row 63, column 1"),
        (X, y, "bands", dims),
        (X, y, None, dims),
        (X, y, 0, dims),
        (X.to_dataset(), y, "band", r"X is an xarray.Dataset of scene.*to_dataarray"),
        (pixels(X), y.values.ravel(), "band", "names the dimension of a DataArray"),
    ):
        with pytest.raises((InvalidDataError, InvalidParameterError), match=message):
            accumulate(given, labels, features=features)
    with pytest.raises(InvalidParameterError, match=r"out=.*to_zarr"):
        GaussianNB().fit(X, y, **BAND).predict(X, **BAND, out="classes.zarr")
