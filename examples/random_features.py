"""Random features: curved boundaries from linear discriminants
============================================================

A linear discriminant cannot separate classes that surround each other. After a fixed random map of
the rows it can: the map is a layer of a network that nobody trains, and the discriminants of its
features follow from one pass over the rows, as always. Moments of two places with the same seed
combine, and what is saved is the seed.

The first rows are synthetic rings, the others handwritten digits that scikit-learn has on board.
"""

import os
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_circles
from sklearn.inspection import DecisionBoundaryDisplay

from streamgda import LinearDiscriminantAnalysis, RandomFeatures, accumulate

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"


def discriminant(feature_map: RandomFeatures | None) -> LinearDiscriminantAnalysis:
    """Return LDA behind a map, with a little shrinkage: features depend on each other."""
    return LinearDiscriminantAnalysis("lsqr", shrinkage=1e-4, feature_map=feature_map)


# %%
# Two rings
# ---------
#
# ReLU features are flat pieces that meet in straight lines, so that few of them make corners;
# Fourier features are waves, whose length is chosen by gamma, in the units of the rows.

X, y = make_circles(1000, noise=0.1, factor=0.5, random_state=0)
maps = {
    "no map": None,
    "8 ReLU features": RandomFeatures(8),
    "200 ReLU features": RandomFeatures(200),
    "200 Fourier features": RandomFeatures(200, "fourier", gamma=2.0),
}
figure, panels = plt.subplots(1, 4, figsize=(14, 3.6), sharex=True, sharey=True)
for axes, (title, feature_map) in zip(panels, maps.items(), strict=True):
    lda = discriminant(feature_map).fit(X, y)
    DecisionBoundaryDisplay.from_estimator(lda, X, ax=axes, alpha=0.4, cmap="coolwarm")
    axes.scatter(*X.T, c=y, s=4, cmap="coolwarm")
    axes.set_title(f"{title}: {lda.score(X, y):.0%}")
figure.tight_layout()

# %%
# Digits: how many features?
# --------------------------

digits, labels = load_digits(return_X_y=True)
train, test = slice(0, 1200), slice(1200, None)
digits = digits[:, digits[train].any(axis=0)]  # without pixels that are empty in all of them
numbers = [50, 200] if SMALL else [50, 100, 200, 400, 800, 1600]
plain = discriminant(None).fit(digits[train], labels[train]).score(digits[test], labels[test])
kinds = {"ReLU": {}, "Fourier": {"kind": "fourier", "gamma": 5e-4}}
found = {kind: [] for kind in kinds}
for kind, how in kinds.items():
    for n in numbers:
        started = time.perf_counter()
        lda = discriminant(RandomFeatures(n, **how)).fit(digits[train], labels[train])
        found[kind].append(lda.score(digits[test], labels[test]))
    print(f"{n} {kind} features: {found[kind][-1]:.1%}, {time.perf_counter() - started:.2f} s")
print(f"without a map: {plain:.1%}")

figure, axes = plt.subplots(figsize=(6, 4))
for kind, scores in found.items():
    axes.plot(numbers, 100 * np.array(scores), marker="o", label=f"{kind} features")
axes.axhline(100 * plain, color="grey", linestyle=":", label="no map")
axes.set(xscale="log", xlabel="features", ylabel="test rows classified correctly, %")
axes.legend()

# %%
# Two places, one seed
# --------------------
#
# Each place sums its own rows. The sums combine, because the same seed makes the same map, on every
# machine; sums of another map would be refused.

places = [
    accumulate(digits[rows], labels[rows], covariance_type="tied", feature_map=RandomFeatures(400))
    for rows in (slice(0, 600), slice(600, 1200))
]
lda = LinearDiscriminantAnalysis.from_moments(sum(places), solver="lsqr", shrinkage=1e-4)
print(f"two places together: {lda.score(digits[test], labels[test]):.1%}")
print(f"saved: {len(lda.to_bytes()) / 2**20:.1f} MiB, of which the map is {lda.feature_map}")
