"""Digits: from images to a report
================================

One pass over the images yields the moments of each digit: a count, a mean, a scatter matrix. Every
model and every number below follows from these moments.

The images are real: 1,797 handwritten digits that scikit-learn has on board, 8 x 8 pixels with 17
shades. The last third of them is kept for tests. (`load_mnist` reads MNIST.)
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay

from streamgda import GaussianDiscriminantAnalysis, LinearDiscriminantAnalysis, accumulate
from streamgda.datasets import load_digits
from streamgda.errors import ConstantFeatureWarning
from streamgda.plots import plot_decision_boundary

X, y = load_digits()
X, y, test, truth = X[:1200], y[:1200], X[1200:], y[1200:]
print(f"{len(X):,} images to learn from and {len(test):,} to test, {X.shape[1]} pixels, {X.dtype}")

# %%
# One pass
# --------
#
# A few pixels have the same value in all images: they say nothing about the digit, and the model
# leaves them out. A fraction of the largest variance, added to all variances, keeps the covariances
# of rare ink from being singular.

warnings.simplefilter("ignore", ConstantFeatureWarning)
moments = accumulate(X, y)
model = GaussianDiscriminantAnalysis.from_moments(moments, var_smoothing=0.1)
print(moments)
print(f"constant pixels: {len(model.constant_features_)}")

# %%
# The moments show themselves as a table in notebooks:

moments

# %%
# What the model has learned: the mean of each digit (first row), and images drawn from the ten
# Gaussians. Each pixel has noise, but the strokes hold together: the covariances know which pixels
# go together.

drawn = [model.means_]
drawn += [model.sample(10, random_state=i, y=range(10))[0] for i in range(5)]
figure, axes = plt.subplots(6, 10, figsize=(8, 5), layout="constrained")
for ax, image in zip(axes.ravel(), np.vstack(drawn), strict=True):
    ax.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
    ax.set_axis_off()

# %%
# LDA, from the same moments, weighs each pixel once: ink on red pixels speaks for the digit, ink on
# blue ones against it.

lda = LinearDiscriminantAnalysis.from_moments(moments, solver="lsqr", shrinkage=0.1)
figure, axes = plt.subplots(1, 10, figsize=(8, 1), layout="constrained")
for ax, weights in zip(axes, lda.coef_, strict=True):
    ax.imshow(
        weights.reshape(8, 8), cmap="RdBu_r", vmin=-abs(weights).max(), vmax=abs(weights).max()
    )
    ax.set_axis_off()

# %%
# How often is it right?
# ----------------------

predicted = model.predict(test)
accuracy = float((predicted == truth).mean())
display = ConfusionMatrixDisplay.from_estimator(model, test, truth, cmap="Blues", colorbar=False)
display.ax_.set_title(f"{accuracy:.1%} of the test images are classified correctly")
print(f"with one covariance for all digits (LDA): {lda.score(test, truth):.1%}")

# %%
# The images that it gets wrong with the highest confidence:

proba = model.predict_proba(test)
confidence = proba.max(axis=1)
wrong = np.flatnonzero(predicted != truth)
worst = wrong[np.argsort(-confidence[wrong], kind="stable")][:10]
figure, axes = plt.subplots(2, 5, figsize=(6, 3), layout="constrained")
for ax, number in zip(axes.ravel(), worst, strict=False):
    ax.imshow(test[number].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{truth[number]} as {predicted[number]}", size="small")
for ax in axes.ravel():
    ax.set_axis_off()

# %%
# Which digits are close to each other?
# -------------------------------------
#
# The 64-dimensional Gaussians, projected onto the plane that separates the digits best. The shapes
# are those of the projected Gaussians, so that overlaps here are smaller in more dimensions.

plot_decision_boundary(model, test, truth)

# %%
# When to ask a person
# --------------------
#
# The images with the lowest probability are rejected: the model is right more often about the rest.
# Rejecting images with a low density, which are unlike all digits, helps less.

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, score in {"probability": confidence, "density": model.score_samples(test)}.items():
    correct = (predicted == truth)[np.argsort(-score, kind="stable")]
    kept = np.arange(len(test) // 2, len(test) + 1)
    ax.plot(100 - 100 * kept / len(test), 100 * correct.cumsum()[kept - 1] / kept, label=name)
ax.set(xlabel="rejected images, %", ylabel="correct among the rest, %", title="rejection by")
ax.legend()
