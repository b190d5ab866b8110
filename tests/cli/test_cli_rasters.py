"""The command line on rasters: GeoTIFF and zarr in, GeoTIFF and zarr out."""

import json
from typing import Any

import geopandas
import numpy as np
import pytest
import rasterio
import rasterio.features
import shapely
import zarr
from rasterio.transform import from_origin

import streamgda

SHAPE = (40, 50)


def create(path, count, dtype, shape, **options):
    return rasterio.open(
        path,
        "w",
        driver="GTiff",
        height=shape[0],
        width=shape[1],
        count=count,
        dtype=dtype,
        crs="EPSG:32632",
        transform=from_origin(5e5, 5e6, 10, 10),
        **options,
    )


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A folder with a scene of three bands, fields of which some pixels have a label, a model."""
    folder = tmp_path_factory.mktemp("scene")
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, SHAPE).astype(np.uint8)
    cube = (random.integers(1, 60, (3, *SHAPE)) + 40 * labels).astype(np.uint8)
    cube[:, 5, 7] = 0
    with create(folder / "scene.tif", 3, "uint8", SHAPE, nodata=0) as file:
        file.write(cube)
    with create(folder / "fields.tif", 1, "uint8", SHAPE) as file:
        file.write(labels[None])
    np.savez(folder / "arrays.npz", X=np.moveaxis(cube, 0, -1).reshape(-1, 3), y=labels.ravel())
    zarr.create_array(folder / "fields.zarr", data=labels, chunks=(16, 16))
    return folder


@pytest.mark.parametrize("fields", ["fields.tif", "fields.zarr"])
def test_a_scene_is_fitted_evaluated_and_predicted(done, scene, tmp_path, fields):
    tif, model = scene / "scene.tif", tmp_path / "m.zip"
    labelled = ("--labels", scene / fields, "--unlabelled", "0")
    said = done("fit", tif, *labelled, "--on-invalid", "skip", "--out", model)
    assert "read 2,000 rows x 3 features" in said
    with np.load(scene / "arrays.npz") as arrays:
        X, y = arrays["X"], arrays["y"]
    known = (y > 0) & X.any(axis=1)
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(X[known], y[known])
    fitted = streamgda.load(model)
    np.testing.assert_array_equal(fitted.means_, expected.means_)
    counted = json.loads(
        done("evaluate", tif, "--model", model, *labelled, "--on-invalid", "skip", "--json")
    )
    assert counted["rows"] == known.sum()
    assert counted["accuracy"] == pytest.approx(expected.score(X[known], y[known]))

    filled = ("--on-invalid", "fill", "--fill", "99")
    done("predict", tif, "--model", model, "--out", tmp_path / "c.tif", *filled)
    with rasterio.open(tmp_path / "c.tif") as file, rasterio.open(tif) as like:
        classes = file.read(1)
        assert (file.crs, file.transform, file.nodata) == (like.crs, like.transform, 99)
    assert (classes.dtype, classes[5, 7]) == (np.uint8, 99)
    labels = np.where(X.any(axis=1), expected.predict(X), 99).reshape(SHAPE)
    np.testing.assert_array_equal(classes, labels)
    done(
        "predict",
        tif,
        "--model",
        model,
        "--out",
        tmp_path / "p.zarr",
        "--proba",
        "--on-invalid",
        "fill",
    )
    written = zarr.open_array(tmp_path / "p.zarr")
    assert written.shape == (*SHAPE, 3)
    assert np.isnan(written[5, 7]).all()
    assert {path.name for path in tmp_path.iterdir()} == {"m.zip", "c.tif", "p.zarr"}


@pytest.mark.parametrize("ending", ["gpkg", "geojson", "shp"])
def test_polygons_are_labels(done, command, scene, tmp_path, ending):
    """The pixels whose centre is in a polygon, or that it touches, have the label of its column."""
    tif, model, fields = scene / "scene.tif", tmp_path / "m.zip", tmp_path / f"fields.{ending}"
    corners = [(13, 23), (212, 41), (352, 204)]
    shapes = [shapely.box(5e5 + x, 5e6 - y - 103, 5e5 + x + 121, 5e6 - y) for x, y in corners]
    frame = geopandas.GeoDataFrame(
        {"crop": ["rye", "oats", "rye"], "year": 1}, geometry=shapes, crs="EPSG:32632"
    )
    (frame.to_crs(4326) if ending == "geojson" else frame).to_file(fields)
    labelled = ("--labels", fields, "--labels", "crop", "--on-invalid", "skip")
    cube = rasterio.open(tif).read()
    for touched in (False, True):
        option = ("--all-touched",) * touched
        done("fit", tif, *labelled, *option, "--kind", "gnb", "--out", model, "--overwrite")
        pairs = zip(shapes, [2, 1, 2], strict=True)
        grid: dict[str, Any] = {"transform": from_origin(5e5, 5e6, 10, 10), "all_touched": touched}
        codes = rasterio.features.rasterize(pairs, SHAPE, **grid) * (cube > 0).all(axis=0)
        fitted = streamgda.load(model)
        assert fitted.classes_.tolist() == ["oats", "rye"]
        for code in (1, 2):
            expected = cube[:, codes == code].mean(axis=1)
            np.testing.assert_allclose(fitted.theta_[code - 1], expected)
        counted = json.loads(done("evaluate", tif, "--model", model, *labelled, *option, "--json"))
        assert counted["rows"] == (codes > 0).sum() == fitted.class_count_.sum()
    search = ("select", tif, *labelled, "--grid", "covariance_type=diag", "--cv", "2")
    done(*search, "--out", tmp_path / "s.zip")
    ended = command("fit", tif, "--labels", fields, "--labels", "corp", "--out", tmp_path / "n")
    assert ended.code == 1
    assert f"--labels corp: {fields} has the columns crop, year" in " ".join(ended.err.split())
    ended = command("fit", tif, "--labels", tmp_path / "no.gpkg", "--out", tmp_path / "n")
    assert "no.gpkg does not exist; expected a file of polygons" in " ".join(ended.err.split())


def test_cubes_in_zarr_that_name_their_dimensions(done, scene, tmp_path):
    store, model, out = tmp_path / "scene.zarr", tmp_path / "m.zip", tmp_path / "c.zarr"
    with np.load(scene / "arrays.npz") as arrays:
        X, y = arrays["X"], arrays["y"]
    group, names = zarr.create_group(store), ("y", "x", "band")
    group.create_array("cube", data=X.reshape(*SHAPE, 3), dimension_names=names)
    group.create_array("fields", data=y.reshape(SHAPE))
    rows = (store, "--x", "cube", "--features", "band")
    done("fit", *rows, "--labels", "fields", "--unlabelled", "0", "--out", model)
    done("predict", *rows, "--model", model, "--out", out)
    expected = streamgda.QuadraticDiscriminantAnalysis().fit(X[y > 0], y[y > 0]).predict(X)
    np.testing.assert_array_equal(zarr.open_array(out)[:], expected.reshape(SHAPE))


def test_commands_refuse_rasters_that_do_not_fit(command, scene, tmp_path):
    tif, model = scene / "scene.tif", tmp_path / "m.zip"
    with create(tmp_path / "small.tif", 1, "uint8", (40, 49)) as file:
        file.write(np.ones((1, 40, 49), np.uint8))
    for arguments, message in (
        ((), "scene.tif holds no 'y' beside the rows: --labels names the file that holds"),
        (("--labels", tmp_path / "small.tif"), "y has 49 elements along 'x' and X has 50"),
        (("--labels", tmp_path / "none.tif"), "none.tif does not exist; expected a GeoTIFF"),
    ):
        ended = command("fit", tif, *arguments, "--out", model)
        assert ended.code == 1
        assert message in " ".join(ended.err.split())
        assert not model.exists()
    labels = ("--labels", scene / "fields.tif")
    assert not command("fit", tif, *labels, "--nodata", "255", "--out", model).code
    for out in (tif, tmp_path / "small.tif"):  # that hold no predictions
        before = out.read_bytes()
        ended = command(
            "predict", tif, "--model", model, "--out", out, "--overwrite", "--nodata", "255"
        )
        assert ended.code == 1
        assert "does not hold predictions" in " ".join(ended.err.split())
        assert out.read_bytes() == before
    out = tmp_path / "c.tif"
    for overwrite in ((), ("--overwrite",)):
        ended = command(
            "predict", tif, "--model", model, "--out", out, "--nodata", "255", *overwrite
        )
        assert not ended.code
    ended = command("predict", tif, "--model", model, "--out", out)
    assert "--overwrite replaces it" in " ".join(ended.err.split())
