"""Anomalies in images: a Gaussian for each position
==================================================

``python examples/anomalies.py``

PaDiM (Defard et al., 2021) describes normal images by a Gaussian of features at each position, and
finds defects where a new image is far from the Gaussian of its position. Here each position is a
class: ``mahalanobis(X, y)`` computes the distance to the class of each row alone. The images pass
by in batches, and the memory does not depend on their number.

The images are handwritten digits of scikit-learn, 8 x 8 pixels. Those of one digit are normal, the
features of a position are the 3 x 3 pixels around it, and a defect is a short stroke that was added
to other images of that digit.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from streamgda import GaussianDiscriminantAnalysis

BATCH = 20  # images
SIDE = 6  # positions in each direction whose surroundings are in the image
POSITIONS = np.arange(SIDE * SIDE)


def features(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the surroundings of all positions of images, with the numbers of the positions."""
    around = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return around.reshape(-1, 9), np.tile(POSITIONS, len(images))


def with_stroke(images: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return images with a stroke each, and where these are."""
    defects = np.zeros(images.shape, bool)
    for defect in defects:
        row, column = random.integers(1, 7, 2)
        defect[row, max(1, column - 1) : column + 2] = True
    return np.where(defects, 16 - images, images), defects[:, 1:-1, 1:-1]


def main(digit: int = 3) -> float:
    """Learn from normal images, and print how well strokes in others are found.

    Returns
    -------
    float
        AUROC of the distances, position by position.
    """
    random = np.random.default_rng(0)
    images, labels = load_digits(return_X_y=True)
    normal = images[labels == digit].reshape(-1, 8, 8)
    learnt, held_out = normal[:120], normal[120:]

    gda = GaussianDiscriminantAnalysis(shrinkage=0.1, reg_param=0.1)
    for start in range(0, len(learnt), BATCH):
        gda.partial_fit(*features(learnt[start : start + BATCH]), classes=POSITIONS)
    print(gda.moments_)

    damaged, defects = with_stroke(held_out, random)
    distances = gda.mahalanobis(*features(damaged)).reshape(defects.shape)
    found = float(roc_auc_score(defects.ravel(), distances.ravel()))
    print(f"{len(damaged)} images with a stroke: AUROC of the positions {found:.3f}")
    show(damaged[:6], defects[:6], distances[:6])
    return found


def show(images: np.ndarray, defects: np.ndarray, distances: np.ndarray) -> None:
    """Draw images, and the distance of each position with the defects outlined."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(2, len(images), figsize=(12, 4.2), layout="constrained")
    for (above, below), image, defect, distance in zip(
        axes.T, images, defects, distances, strict=True
    ):
        above.imshow(image[1:-1, 1:-1], cmap="gray_r")
        below.imshow(np.sqrt(distance), vmin=0, vmax=np.sqrt(distances.max()))
        below.contour(defect, [0.5], colors="white")
        for ax in (above, below):
            ax.set(xticks=[], yticks=[])
    axes[0, 0].set_ylabel("image")
    axes[1, 0].set_ylabel("distance")


if __name__ == "__main__":
    main()
