"""Deep features: learn class after class, forget nothing
======================================================

A network that is trained on new classes forgets the old ones. RanPAC (McDonnell et al., 2023) does
not train at all: the features of a frozen network go through random weights and a ReLU, and a
linear classifier follows from sums over the rows, class by class. Sums forget nothing: after the
last class the model is the one of all rows at once, in whatever order the classes came.

The images are real, handwritten digits: MNIST if ``STREAMGDA_MNIST`` names the folder with its
files, else the 1,797 images of scikit-learn. Their pixels stand in for the features of a network.
"""

import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn import datasets
from sklearn.linear_model import SGDClassifier

from streamgda import ClassMoments, RandomFeatures, RidgeClassifier, accumulate
from streamgda.datasets import load_mnist

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
folder = os.environ.get("STREAMGDA_MNIST")
if folder and not SMALL:
    X, y, test, truth = load_mnist(folder)
    X, test = X / np.float32(255), test / np.float32(255)
else:
    X, y = datasets.load_digits(return_X_y=True)
    X, test, y, truth = X[:1200] / 16, X[1200:] / 16, y[:1200], y[1200:]
N_FEATURES, ALPHA = (400, 10.0) if len(X) < 10_000 else (3000, 1000.0)
print(f"{len(X):,} images to learn from, {len(test):,} to test, {X.shape[1]} pixels")

# %%
# Five tasks of two digits
# ------------------------
#
# The images of each task are seen once, and then never again. What stays are the moments of their
# random features. The ridge classifier is computed from them after each task. Beside it, a linear
# classifier is trained on the same random features by gradient descent, task after task.

feature_map = RandomFeatures(N_FEATURES, random_state=0)
trained = SGDClassifier(random_state=0)
moments, ours, theirs = ClassMoments("tied", feature_map=feature_map), [], []
lifted = np.asarray(feature_map.transform(test))
for first in range(0, 10, 2):
    task = np.isin(y, (first, first + 1))
    moments.update(X[task], y[task])
    for _ in range(3):
        trained.partial_fit(feature_map.transform(X[task]), y[task], classes=range(10))
    ridge = RidgeClassifier.from_moments(moments, alpha=ALPHA)
    seen = truth < first + 2
    ours.append(ridge.score(test[seen], truth[seen]))
    theirs.append(trained.score(lifted[seen], truth[seen]))
    print(f"digits up to {first + 1}: sums {ours[-1]:.1%}, gradient descent {theirs[-1]:.1%}")

# %%

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for name, values in {"sums of random features": ours, "gradient descent": theirs}.items():
    ax.plot(np.arange(2, 11, 2), 100 * np.array(values), "o-", label=name)
ax.set(xlabel="digits learned so far", ylabel="of these, test images classified correctly, %")
ax.legend()

# %%
# The order makes no difference
# -----------------------------
#
# The same images at once, and in two places with the same seed: the moments are the same up to
# rounding, and so are the predictions. What is saved is the seed, not the weights.

at_once = accumulate(X, y, covariance_type="tied", feature_map=feature_map)
half = len(X) // 2
places = [
    accumulate(X[rows], y[rows], covariance_type="tied", feature_map=RandomFeatures(N_FEATURES))
    for rows in (slice(half), slice(half, None))
]
predictions = [
    RidgeClassifier.from_moments(state, alpha=ALPHA).predict(test)
    for state in (moments, at_once, sum(places))
]
differ = [int((found != predictions[0]).sum()) for found in predictions[1:]]
print(f"test images predicted differently: {differ[0]} at once, {differ[1]} of two places")
print(f"saved: {len(moments.to_bytes()) / 2**20:.1f} MiB, of which the map is {feature_map}")

# %%
# What the random features are for
# --------------------------------
#
# The same classifier on the pixels themselves, and on more and more random features.

numbers = [100, 200, N_FEATURES] if SMALL else [100, 300, 1000, N_FEATURES]
scores = []
for n in numbers:
    few = accumulate(X, y, covariance_type="tied", feature_map=RandomFeatures(n))
    scores.append(RidgeClassifier.from_moments(few, alpha=ALPHA).score(test, truth))
    print(f"{n} random features: {scores[-1]:.1%}")
plain = RidgeClassifier(alpha=ALPHA).fit(X, y).score(test, truth)
print(f"pixels: {plain:.1%}")

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(numbers, 100 * np.array(scores), "o-", label="random features")
ax.axhline(100 * plain, color="grey", linestyle=":", label="pixels")
ax.set(xscale="log", xlabel="features", ylabel="test images classified correctly, %")
ax.legend()
