"""Classify the pixels of a large scene, out of core
=================================================

``python examples/raster.py [size] [folder]``

The scene is synthetic: six bands of noise around the reflectances of five invented land covers. It
is written, read, classified and written again line of blocks by line of blocks, so that memory
holds a few lines of blocks at a time. A tenth of the pixels has a label, as fields have that
somebody has visited.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import rasterio
import rasterio.transform
import rasterio.windows

from streamgda import QuadraticDiscriminantAnalysis, accumulate, open_store

BLOCK = 256
SIZE = 600 if os.environ.get("STREAMGDA_EXAMPLES") == "small" else 3000


def write_scene(folder: Path, size: int) -> None:
    """Write scene.tif, and fields.tif with the labels of a tenth of the pixels."""
    random = np.random.default_rng(0)
    centres = random.integers(500, 3000, (6, 6, 1, 1))
    form = {"driver": "GTiff", "height": size, "width": size, "tiled": True}
    form |= {"blockxsize": BLOCK, "blockysize": BLOCK, "crs": "EPSG:32632"}
    form["transform"] = rasterio.transform.from_origin(500_000, 5_000_000, 10, 10)
    with (
        rasterio.open(folder / "scene.tif", "w", count=6, dtype="uint16", **form) as scene,
        rasterio.open(folder / "fields.tif", "w", count=1, dtype="uint8", **form) as fields,
    ):
        for start in range(0, size, BLOCK):
            lines = min(BLOCK, size - start)
            coarse = random.integers(1, 6, (-(-lines // 32), -(-size // 32)))
            cover = np.kron(coarse, np.ones((32, 32), int))[:lines, :size]
            bands = np.concatenate([c[cover, 0, 0][None] for c in centres])
            bands = bands + random.normal(scale=200, size=bands.shape)
            window = ((start, start + lines), (0, size))
            scene.write(bands.clip(1, 65535).astype(np.uint16), window=window)
            known = np.where(random.random(cover.shape) < 0.1, cover, 0)
            fields.write(known[None].astype(np.uint8), window=window)


def main(size: int, folder: Path) -> None:
    """Write a scene, learn from its labelled pixels, and write the class of every pixel."""
    write_scene(folder, size)
    X, _ = open_store(folder / "scene.tif")
    labels, _ = open_store(folder / "fields.tif")
    moments = accumulate(X, labels, unlabelled=0)
    model = QuadraticDiscriminantAnalysis.from_moments(moments)
    classes = model.predict(X, out=folder / "classes.tif")
    print(f"synthetic scene: {moments.class_count.sum():,} labelled pixels of {X.n_rows:,}")
    print(f"classes of all pixels: classes.tif, {classes.shape}")
    show(model, folder)


def show(model: QuadraticDiscriminantAnalysis, folder: Path) -> None:
    """Draw a corner of the scene, of the labels and of the classes, and the model."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    from streamgda.plots import plot_decision_boundary

    corner = rasterio.windows.Window(0, 0, BLOCK, BLOCK)
    pictures = {}
    for name in ("scene", "fields", "classes"):
        with rasterio.open(folder / f"{name}.tif") as file:
            pictures[name] = file.read(window=corner)
    figure, axes = plt.subplots(1, 4, figsize=(15, 4), layout="constrained")
    bands = pictures["scene"][:3].transpose(1, 2, 0).astype(float)
    axes[0].imshow(((bands - bands.min()) / (bands.max() - bands.min())).clip(0, 1))
    axes[0].set_title("three of six bands")
    colours = plt.matplotlib.colors.ListedColormap(
        ["white", *plt.color_sequences["petroff10"][: model.classes_.size]]
    )
    for ax, name, title in zip(
        axes[1:], ("fields", "classes"), ("labels of some pixels", "classes of all"), strict=False
    ):
        image = pictures[name][0]
        ax.imshow(image, cmap=colours, vmin=-0.5, vmax=colours.N - 0.5, interpolation="nearest")
        ax.set_title(title)
    for ax in axes[:3]:
        ax.set(xticks=[], yticks=[])
    plot_decision_boundary(model, ax=axes[3])
    axes[3].set_title("land covers in the model")
    figure.savefig(folder / "classes.png")


if __name__ == "__main__":
    size = int(sys.argv[1]) if len(sys.argv) > 1 else SIZE
    main(size, Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()))
