"""A scene and its fields, out of core
====================================

A satellite image larger than memory is classified by training fields, whose polygons somebody has
drawn: rioxarray opens it in lines of blocks, and dask reads, classifies and writes a few of them at
a time.

The scene is synthetic: six bands of noise around the reflectances of five invented land covers, in
patches of 32 x 32 pixels of ten metres.
"""

import os
import tempfile
import threading
from pathlib import Path

import geopandas
import matplotlib.pyplot as plt
import numpy as np
import rasterio
import rioxarray
import shapely
import xarray as xr
from rasterio.features import rasterize
from rasterio.transform import from_origin

from streamgda import QuadraticDiscriminantAnalysis, accumulate, separability
from streamgda.plots import plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
SIZE, BLOCK, PATCH = (512 if SMALL else 3072), 256, 32
COVERS = np.array(["forest", "maize", "meadow", "rye", "water"])
temporary = tempfile.TemporaryDirectory()
path, result = (Path(temporary.name) / name for name in ("scene.tif", "classes.tif"))

# %%
# The scene
# ---------

random = np.random.default_rng(0)
centres = random.integers(500, 3000, (5, 6))
patches = random.integers(0, 5, (SIZE // PATCH, SIZE // PATCH))
truth = np.kron(patches, np.ones((PATCH, PATCH), np.uint8))
grid = from_origin(500_000, 5_000_000, 10, 10)
form = {"driver": "GTiff", "height": SIZE, "width": SIZE, "tiled": True, "crs": "EPSG:32632"}
form |= {"blockxsize": BLOCK, "blockysize": BLOCK, "transform": grid}
with rasterio.open(path, "w", count=6, dtype="uint16", **form) as file:
    for start in range(0, SIZE, BLOCK):
        bands = centres[truth[start : start + BLOCK]].transpose(2, 0, 1)
        bands = bands + random.normal(scale=400, size=bands.shape)
        window = ((start, start + BLOCK), (0, SIZE))
        file.write(bands.clip(1, 65535).astype(np.uint16), window=window)

# %%
# The fields
# ----------
#
# Polygons inside of some patches, with the cover that was found there, in another coordinate
# reference system (degrees), as a GPS writes them.

rows, columns = np.divmod(random.choice(patches.size, patches.size // 8, False), len(patches))
shapes = [
    shapely.Polygon([grid * ((c + x) * PATCH, (r + y) * PATCH) for x, y in corners])
    for r, c in zip(rows, columns, strict=True)
    for corners in [[(0.1, 0.2), (0.9, 0.1), (0.8, 0.9), (0.2, 0.8)]]
]
frame = geopandas.GeoDataFrame(
    {"cover": COVERS[patches[rows, columns]]}, geometry=shapes, crs="EPSG:32632"
).to_crs(4326)

# %%
# One pass, and one to classify
# -----------------------------
#
# The scene is opened in chunks of whole lines. The polygons are reprojected to its coordinate
# reference system and rasterised: 1 to 5 are the covers, and 0 are pixels without one, which do not
# count. Predictions are a DataArray as well, which rioxarray writes chunk by chunk.

scene = rioxarray.open_rasterio(path, chunks={"x": -1, "y": BLOCK})
fields = frame.to_crs(scene.rio.crs)
codes = np.searchsorted(COVERS, fields["cover"]) + 1
labels = rasterize(
    zip(fields.geometry, codes.tolist(), strict=True),
    scene.shape[1:],
    transform=scene.rio.transform(),
    dtype="uint8",
)
labels = xr.DataArray(labels, dims=("y", "x"))
moments = accumulate(scene, labels, features="band", unlabelled=0)
model = QuadraticDiscriminantAnalysis.from_moments(moments)
predicted = model.predict(scene, features="band").astype("uint8")
predicted.rio.to_raster(result, tiled=True, compress="deflate", lock=threading.Lock())

print(f"{len(frame)} fields: {moments.class_count.sum():,} training pixels of {labels.size:,}")
classes = rioxarray.open_rasterio(result).squeeze("band").values
print(f"{(classes == truth + 1).mean():.1%} of all pixels have their cover")

# %%
# A corner of the scene, its fields, and the classes of all pixels.

corner = scene[:3, :BLOCK, :BLOCK].transpose("y", "x", "band").astype(float)
colours = plt.matplotlib.colors.ListedColormap(plt.color_sequences["petroff10"][:5])
left, bottom, right, top = corner.rio.bounds()
figure, panels = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
((corner - corner.min()) / (corner.max() - corner.min())).plot.imshow(ax=panels[0])
panels[0].set_title("three of six bands")
legend = {"loc": "upper left"}
fields.plot("cover", ax=panels[1], cmap=colours, legend=True, legend_kwds=legend)
panels[1].set(title="training fields", xlim=(left, right), ylim=(bottom, top))
panels[2].imshow(classes[:BLOCK, :BLOCK], colours, extent=(left, right, bottom, top))
panels[2].set_title("classes of all pixels")
for ax in panels:
    ax.set(xticks=[], yticks=[], xlabel="", ylabel="")

# %%
# Which covers are hard to tell apart? The Jeffries-Matusita distance of remote sensing says it from
# the moments, and the plane of best separation shows it.

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
figure.colorbar(left.imshow(separability(model), cmap="Blues"), label="Jeffries-Matusita distance")
left.set(xticks=range(5), yticks=range(5), xlabel="class", ylabel="class")
plot_decision_boundary(model, ax=right)
temporary.cleanup()
