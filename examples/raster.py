"""A scene and its fields, out of core
====================================

A satellite image larger than memory is classified by training fields, whose polygons somebody has
drawn: it is read, classified and written again line of blocks by line of blocks, so that memory
holds a few lines of blocks at a time.

The scene is synthetic: six bands of noise around the reflectances of five invented land covers, in
patches of 32 x 32 pixels of ten metres.
"""

import os
import tempfile
from pathlib import Path

import geopandas
import matplotlib.pyplot as plt
import numpy as np
import rasterio
import shapely
from rasterio.transform import from_origin
from rasterio.windows import Window

from streamgda import QuadraticDiscriminantAnalysis, accumulate, open_store, separability
from streamgda.plots import plot_decision_boundary

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
SIZE, BLOCK, PATCH = (512 if SMALL else 3072), 256, 32
COVERS = np.array(["forest", "maize", "meadow", "rye", "water"])
temporary = tempfile.TemporaryDirectory()
scene, fields, result = (
    Path(temporary.name) / name for name in ("scene.tif", "fields.gpkg", "classes.tif")
)

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
with rasterio.open(scene, "w", count=6, dtype="uint16", **form) as file:
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
)
frame.to_crs(4326).to_file(fields)

# %%
# One pass, and one to classify
# -----------------------------
#
# The polygons are reprojected and rasterised in the windows that are read. Pixels outside of them
# do not count.

X, _ = open_store(scene)
labels, _ = open_store(fields, label="cover")
moments = accumulate(X, labels)
model = QuadraticDiscriminantAnalysis.from_moments(moments)
model.predict(X, out=result)
print(f"{len(frame)} fields: {moments.class_count.sum():,} training pixels of {X.n_rows:,}")
with rasterio.open(result) as file:
    classes = file.read(1)
    print(file.tags()["streamgda_classes"])
print(f"{(classes == truth + 1).mean():.1%} of all pixels have their cover")

# %%
# A corner of the scene, its fields, and the classes of all pixels.

corner = Window(0, 0, BLOCK, BLOCK)
with rasterio.open(scene) as file:
    bands = file.read([1, 2, 3], window=corner).transpose(1, 2, 0).astype(float)
colours = plt.matplotlib.colors.ListedColormap(plt.color_sequences["petroff10"][:5])
extent = (*(grid * (0, BLOCK))[:1], *(grid * (BLOCK, 0))[:1], (grid * (0, BLOCK))[1], 5_000_000)
figure, panels = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
panels[0].imshow(((bands - bands.min()) / np.ptp(bands)).clip(0, 1), extent=extent)
panels[0].set_title("three of six bands")
frame.plot("cover", ax=panels[1], cmap=colours, legend=True, legend_kwds={"loc": "upper left"})
panels[1].set(title="training fields", xlim=extent[:2], ylim=extent[2:])
panels[2].imshow(classes[:BLOCK, :BLOCK], cmap=colours, extent=extent, interpolation="nearest")
panels[2].set_title("classes of all pixels")
for ax in panels:
    ax.set(xticks=[], yticks=[])

# %%
# Which covers are hard to tell apart? The Jeffries-Matusita distance of remote sensing says it from
# the moments, and the plane of best separation shows it.

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
figure.colorbar(left.imshow(separability(model), cmap="Blues"), label="Jeffries-Matusita distance")
left.set(xticks=range(5), yticks=range(5), xlabel="class", ylabel="class")
plot_decision_boundary(model, ax=right)
temporary.cleanup()
