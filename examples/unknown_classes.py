"""Rows of no known class: 1,000 classes of deep features
=======================================================

The last layer but one of a deep network gives a row of features for each image. One Gaussian a
class with a common covariance tells whether a row belongs to any class that is known (Lee et al.,
2018). The relative Mahalanobis distance (Ren et al., 2021) subtracts the distance to the Gaussian
of all rows, and finds unknown classes that are near the known ones.

The rows are synthetic, but like features of a deep network. Class means are in a subspace of few
dimensions. All classes share the noise about them: its variance falls from direction to direction,
and its strength differs from row to row. Means of unknown classes are drawn like those of the known
ones, and their rows have the same noise.
"""

import os
import time
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from streamgda import GaussianDiscriminantAnalysis, accumulate

SMALL = os.environ.get("STREAMGDA_EXAMPLES") == "small"
N_CLASSES, N_FEATURES, ROWS = (60, 64, 50) if SMALL else (1000, 512, 100)
UNKNOWN = N_CLASSES // 5  # These classes are not learned.
BATCH = 5000  # Rows in a batch.

# %%
# The features
# ------------

random = np.random.default_rng(0)
axes, _ = np.linalg.qr(random.normal(size=(N_FEATURES, N_FEATURES)))
noise = (np.arange(1, N_FEATURES + 1)[:, None] ** -0.5 * axes.T).astype(np.float32)
chosen = random.choice(N_FEATURES, N_FEATURES // 16, replace=False)
means = random.normal(scale=1.25, size=(N_CLASSES + UNKNOWN, chosen.size)) @ noise[chosen]


def stream(labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows of those classes in batches, with their labels."""
    for start in range(0, labels.size, BATCH):
        y = labels[start : start + BATCH]
        white = random.standard_normal((y.size, N_FEATURES), np.float32)
        strength = random.lognormal(sigma=0.05, size=(y.size, 1)).astype(np.float32)
        yield means[y].astype(np.float32) + strength * white @ noise, y


# %%
# One pass
# --------
#
# Tied moments hold a mean for each class and one scatter for all.

started = time.perf_counter()
moments = accumulate(
    stream(random.permutation(np.repeat(np.arange(N_CLASSES), ROWS))), covariance_type="tied"
)
print(f"{moments} in {time.perf_counter() - started:.1f} s")
gda = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type="tied")

# %%
# Known and unknown
# -----------------
#
# As many rows of unknown classes as of known ones, and three measures of each. The density and the
# distance say little: they measure most of all how strong the noise is. The relative distance
# leaves out most of the directions along which all classes vary alike.

new = random.integers(N_CLASSES, N_CLASSES + UNKNOWN, 20 * UNKNOWN)
held_out = np.append(random.integers(N_CLASSES, size=new.size), new)
n, mean, scatter = moments.total()  # All rows make one Gaussian.
whitening = np.linalg.inv(np.linalg.cholesky(scatter / n)).T


def three_measures(X):
    """Return three measures of how far rows are from all classes."""
    nearest = gda.mahalanobis(X).min(axis=1)
    white = (X - mean) @ whitening
    return -gda.score_samples(X), nearest, nearest - (white**2).sum(axis=1)


scores = [three_measures(X) for X, _ in stream(held_out)]
names = ("-log density", "Mahalanobis distance", "relative Mahalanobis distance")
measures = dict(zip(names, np.concatenate(scores, axis=1), strict=True))
unknown = held_out >= N_CLASSES
areas = {name: float(roc_auc_score(unknown, score)) for name, score in measures.items()}
for name, area in areas.items():
    print(f"AUROC of the {name}: {area:.3f}")

# %%

figure, panels = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
for ax, (name, score) in zip(panels, measures.items(), strict=False):
    bins = np.linspace(*np.quantile(score, [0.001, 0.999]), 50).tolist()
    for which, label in ((~unknown, "known classes"), (unknown, "unknown classes")):
        ax.hist(score[which], bins, alpha=0.6, label=label)
    ax.set(title=name, yticks=[])
    false, true, _ = roc_curve(unknown, score)
    panels[3].plot(false, true, label=f"{name}: {areas[name]:.3f}")
panels[0].legend()
panels[3].plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
panels[3].set(xlabel="known rows that are rejected", ylabel="unknown rows that are found")
panels[3].set_title("ROC curves and their areas")
panels[3].legend(loc="lower right")
