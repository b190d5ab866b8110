"""Anomalies in images: a Gaussian for each position
==================================================

PaDiM (Defard et al., 2021) describes normal images by a Gaussian of features at each position, and
finds defects where a new image is far from the Gaussian of its position. Here each position is a
class: ``mahalanobis(X, y)`` computes the distance to the class of each row alone.

The images are real, handwritten digits of scikit-learn, 8 x 8 pixels. Images of one digit are
normal, and the features of a position are the 3 x 3 pixels around it. The defects are synthetic: a
short stroke that is added to other images of that digit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from streamgda import GaussianDiscriminantAnalysis

BATCH = 20  # Images in a batch.
POSITIONS = np.arange(6 * 6)  # The surroundings of each lie in the image.


def features(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the surroundings of all positions of images, with the numbers of the positions."""
    around = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2))
    return around.reshape(-1, 9), np.tile(POSITIONS, len(images))


# %%
# Learn what is normal
# --------------------
#
# The images pass by in batches, and the memory does not depend on their number.

images, labels = load_digits(return_X_y=True)
normal = images[labels == 3].reshape(-1, 8, 8)
learned, held_out = normal[:120], normal[120:]
gda = GaussianDiscriminantAnalysis(shrinkage=0.1, reg_param=0.1)
for start in range(0, len(learned), BATCH):
    gda.partial_fit(*features(learned[start : start + BATCH]), classes=POSITIONS)
print(gda.moments_)

# %%
# Find strokes in other images
# ----------------------------

random = np.random.default_rng(0)
defects = np.zeros(held_out.shape, bool)
for defect in defects:
    row, column = random.integers(1, 7, 2)
    defect[row, max(1, column - 1) : column + 2] = True
damaged = np.where(defects, 16 - held_out, held_out)
defects = defects[:, 1:-1, 1:-1]

distances = gda.mahalanobis(*features(damaged)).reshape(defects.shape)
found = float(roc_auc_score(defects.ravel(), distances.ravel()))
print(f"{len(damaged)} images with a stroke: AUROC of the positions {found:.3f}")

# %%
# Above, images; below, the distance of each position, with the stroke outlined. Positions next to a
# stroke are far, too, because it is in their surroundings.

figure, axes = plt.subplots(2, 6, figsize=(12, 4.2), layout="constrained")
for (above, below), image, defect, distance in zip(
    axes.T, damaged, defects, distances, strict=False
):
    above.imshow(image[1:-1, 1:-1], cmap="gray_r")
    below.imshow(np.sqrt(distance), vmin=0, vmax=np.sqrt(distances[:6].max()))
    below.contour(defect, [0.5], colors="white")
    for ax in (above, below):
        ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("image")
axes[1, 0].set_ylabel("distance")
