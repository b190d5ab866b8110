"""Mixtures: the ways in which a digit is written
===============================================

A seven has a stroke through its middle, or none. One Gaussian is a poor picture of both. A mixture
gives each digit several Gaussians, which are found in one pass: k-means of a small sample gives
centres, each image is added to the moments of the nearest centre of its digit, and the moments are
the model.

The images are real: MNIST, if ``STREAMGDA_MNIST`` names its folder, and otherwise the 1,797 digits
that scikit-learn has on board, of which the last third is kept for tests.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np

from streamgda import PCA, MixtureDiscriminantAnalysis
from streamgda.datasets import load_digits, load_mnist

folder = os.environ.get("STREAMGDA_MNIST")
if folder:
    X, y, test, truth = load_mnist(folder)
    n_axes, most, side, held = 60, 40, 28, 10_000
else:
    X, y = load_digits()
    X, y, test, truth = X[:1200], y[:1200], X[1200:], y[1200:]
    n_axes, most, side, held = 20, 8, 8, 300
print(f"{len(X):,} images to learn from and {len(test):,} to test, {X.shape[1]} pixels")

# %%
# Choose on images held out
# -------------------------
#
# Rows are coordinates along principal components. `pooling` mixes the covariance of each component
# with those of the others of its digit; `var_smoothing` adds a share of the largest variance.
# Neither needs another pass: they are parameters of a model of the same moments. The test images
# have no say.

start = time.perf_counter()
pca = PCA(n_axes).fit(X[:-held])
rows = pca.transform(X).astype(np.float32)
chosen = {}
for n_components in (1, most // 4, most):
    mda = MixtureDiscriminantAnalysis(n_components).fit(rows[:-held], y[:-held])
    for pooling in (0.01, 0.05):
        for var_smoothing in (0.005, 0.02):
            mda.set_params(pooling=pooling, var_smoothing=var_smoothing)
            score = mda.score(rows[-held:], y[-held:])
            if score > chosen.get(n_components, (0,))[0]:
                chosen[n_components] = score, mda.get_params()

# %%
# Fit to all images
# -----------------

pca = PCA(n_axes).fit(X)
rows, others = (pca.transform(images).astype(np.float32) for images in (X, test))
accuracies = {}
for n_components, (score, params) in chosen.items():
    mda = MixtureDiscriminantAnalysis(**params).fit(rows, y)
    accuracies[n_components] = mda.score(others, truth)
    print(f"{n_components:2} components: {score:.2%} held out, {accuracies[n_components]:.2%} test")
print(f"all of it took {time.perf_counter() - start:.1f} s")

# %%
# The components
# --------------
#
# Means of components, a digit a row, from the most common one to the rarest. Slants, loops and
# strokes that one mean blurs are apart.

columns = 8
figure, axes = plt.subplots(10, columns, figsize=(6, 7.5), layout="constrained")
for ax in axes.ravel():
    ax.set_axis_off()
for digit, line in enumerate(axes):
    own = np.flatnonzero(mda.component_classes_ == digit)
    own = own[np.argsort(-mda.weights_[own])][:columns]
    for ax, image in zip(line, pca.inverse_transform(mda.means_[own]), strict=False):
        ax.imshow(image.reshape(side, side), cmap="gray_r")

# %%
# Images that nobody wrote
# ------------------------
#
# Rows drawn from the mixtures, a digit a row.

figure, axes = plt.subplots(10, columns, figsize=(6, 7.5), layout="constrained")
for digit, line in enumerate(axes):
    drawn = pca.inverse_transform(mda.sample(columns, random_state=digit, y=digit)[0])
    for ax, image in zip(line, drawn, strict=True):
        ax.imshow(image.reshape(side, side), cmap="gray_r", vmin=0)
        ax.set_axis_off()
