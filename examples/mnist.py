"""MNIST, from raw files to a report
===================================

The four files of MNIST are in the IDX format: a header of a few bytes, then one byte a pixel. They
are read as they are, and one pass over the images yields the moments of each digit. Every model and
every number below follows from these moments.

``STREAMGDA_MNIST`` names the folder with the files. Without it, the program writes a stand-in of
its own: four files of the same format, with noisy strokes instead of handwriting. Its errors are
not those of MNIST.
"""

import os
import struct
import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from streamgda import GaussianDiscriminantAnalysis, accumulate
from streamgda.datasets import load_mnist
from streamgda.errors import ConstantFeatureWarning
from streamgda.plots import (
    plot_confusion_matrix,
    plot_decision_boundary,
    plot_means,
    plot_samples,
)

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"

# %%
# The files
# ---------
#
# An IDX file starts with two zeros, a number for the type (8: unsigned bytes), the number of
# dimensions, and the sizes as big-endian integers. That is all that the stand-in needs.


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write bytes as an IDX file."""
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(header + values.tobytes())


def stand_in(folder: Path, n_train: int, n_test: int) -> None:
    """Write four files: images of ten figures of strokes, which are shifted, bent and noisy."""
    random = np.random.default_rng(0)
    place = np.arange(28)
    ends = random.uniform(6, 22, (10, 3, 2, 2))  # of three strokes for each digit
    for name, n in (("train", n_train), ("t10k", n_test)):
        digits = random.integers(0, 10, n).astype(np.uint8)
        images = np.zeros((n, 28, 28), np.float32)
        bend = random.normal(0, 1.5, (n, 3, 2, 2))
        for stroke in range(3):
            start, stop = np.moveaxis(ends[digits, stroke] + bend[:, stroke], 1, 0)
            for at in np.linspace(0, 1, 9):
                middle = (1 - at) * start + at * stop
                gaps = (place - middle[:, :, None]) ** 2
                images += np.exp(-0.4 * (gaps[:, 0, :, None] + gaps[:, 1, None, :]))
        images = 255 * images.clip(0, 1) + random.normal(0, 8, images.shape) * (images > 0.05)
        write_idx(folder / f"{name}-images-idx3-ubyte", images.clip(0, 255).astype(np.uint8))
        write_idx(folder / f"{name}-labels-idx1-ubyte", digits)


folder = os.environ.get("STREAMGDA_MNIST")
if not folder:
    folder = tempfile.mkdtemp()
    stand_in(Path(folder), *((2000, 500) if SMALL else (20_000, 5000)))
X, y, test, truth = load_mnist(folder)
if SMALL:
    X, y, test, truth = X[:4000], y[:4000], test[:1000], truth[:1000]
print(f"{len(X):,} images to learn from and {len(test):,} to test, {X.shape[1]} pixels, {X.dtype}")

# %%
# One pass
# --------
#
# `accumulate` sums bytes exactly. Many pixels have the same value in all images: they say nothing
# about the digit, and the model leaves them out. A fraction of the largest variance, added to all
# variances, keeps the covariances of rare ink from being singular.

warnings.simplefilter("ignore", ConstantFeatureWarning)
moments = accumulate(X, y)
model = GaussianDiscriminantAnalysis.from_moments(moments, var_smoothing=0.3)
print(moments)
print(f"constant pixels: {len(model.constant_features_)}")

# %%
# What the model has learnt: the mean of each digit,

plot_means(model, (28, 28))

# %%
# and images drawn from the ten Gaussians. Each pixel has noise, but the strokes hold together: the
# covariances know which pixels go together.

plot_samples(model, (28, 28), n=6, random_state=0)

# %%
# How often is it right?
# ----------------------

predicted = model.predict(test)
accuracy = float((predicted == truth).mean())
ax = plot_confusion_matrix(model, test, truth)
ax.set_title(f"{100 * accuracy:.1f} % of the test images are classified correctly")

# %%
# The images that it gets wrong with the highest confidence:

proba = model.predict_proba(test)
confidence = proba.max(axis=1)
wrong = np.flatnonzero(predicted != truth)
worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:10]
figure, axes = plt.subplots(2, 5, figsize=(6, 3), layout="constrained")
for ax, number in zip(axes.ravel(), worst, strict=False):
    ax.imshow(test[number].reshape(28, 28), cmap="gray_r")
    ax.set_title(f"{truth[number]} as {predicted[number]}", size="small")
for ax in axes.ravel():
    ax.set_axis_off()

# %%
# Which digits are close to each other?
# -------------------------------------
#
# The 784-dimensional Gaussians, projected onto the plane that separates the digits best. The
# shapes are those of the projected Gaussians, so that overlaps here are smaller in more dimensions.

plot_decision_boundary(model, test, truth)

# %%
# Can its probabilities be believed?
# ----------------------------------
#
# On the left, images in ten groups by their probability of an error (one minus that of the
# predicted digit), and the share of errors in each group. On the diagonal, the probabilities would
# be right. Pixels are not Gaussian, and the model counts them as more independent than they are: it
# is much too sure of itself. (Groups without an error have no place on a logarithmic scale.)
#
# The order of the probabilities is right all the same. On the right, the images with the lowest
# probability are refused: the model is right more often about the rest. Refusing images with a low
# density, which are unlike all digits, helps less.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
doubt = np.sort(proba, axis=1)[:, :-1].sum(axis=1)  # of all other digits
wrong_share = []
for group in np.array_split(np.argsort(doubt, kind="stable"), 10):
    wrong_share.append((doubt[group].mean(), (predicted != truth)[group].mean()))
claimed, found = np.array(wrong_share).T
left.loglog(claimed, found, "o", label="groups of images")
left.plot([1e-4, 1], [1e-4, 1], color="grey", linestyle="--", label="right probabilities")
left.set(xlabel="mean probability of an error", ylabel="share of errors", title="calibration")
left.legend(loc="lower right")
for name, score in {"probability": confidence, "density": model.score_samples(test)}.items():
    correct = (predicted == truth)[np.argsort(-score, kind="stable")]
    kept = np.arange(len(test) // 2, len(test) + 1)
    right.plot(100 - 100 * kept / len(test), 100 * correct.cumsum()[kept - 1] / kept, label=name)
right.set(xlabel="refused images, %", ylabel="correct among the rest, %", title="rejection by")
right.legend()

# %%
# The report
# ----------

print(f"accuracy on {len(test):,} test images: {100 * accuracy:.2f} %")
print(f"mean probability of the predicted digit: {100 * confidence.mean():.2f} %")
for digit in model.classes_:
    own = truth == digit
    others = predicted[own & (predicted != digit)]
    most = f", most often as {np.bincount(others).argmax()}" if others.size else ""
    print(f"{digit}: {others.size:4d} of {own.sum():,} wrong{most}")
