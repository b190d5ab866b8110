"""Deep features: 1,000 classes, and rows of none of them
======================================================

``python examples/unknown_classes.py [n_classes] [n_features]``

The last layer of a deep network but one gives a row of features for each image. One Gaussian a
class with a common covariance tells whether a row belongs to any class that is known (Lee et al.,
2018). The relative Mahalanobis distance (Ren et al., 2021) subtracts the distance to the Gaussian
of all rows, and finds unknown classes that are near the known ones.

The rows are synthetic, but like features of a deep network. Class means are in a subspace of few
dimensions. All classes share the noise about them: its variance falls from direction to direction,
and its strength differs from row to row. Rows of unknown classes are near the known ones: their
means are drawn like those of the known classes, and they have the same noise.
"""

import os
import sys
import time
from collections.abc import Iterator

import numpy as np
from sklearn.metrics import roc_auc_score, roc_curve

from streamgda import GaussianDiscriminantAnalysis, accumulate

BATCH = 5000  # rows
SIZES = [100, 64] if os.environ.get("STREAMGDA_EXAMPLES") == "small" else [1000, 512]
MEASURES = ("-log density", "Mahalanobis distance", "relative Mahalanobis distance")
SEPARATION = 1.25  # standard deviation of class means, in units of the noise


class Features:
    """Means of classes, and rows about them."""

    def __init__(self, n_classes: int, n_features: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        axes, _ = np.linalg.qr(self.random.normal(size=(n_features, n_features)))
        scales = np.arange(1, n_features + 1) ** -0.5
        self.noise = (scales[:, None] * axes.T).astype(np.float32)
        chosen = self.random.choice(n_features, n_features // 16, replace=False)
        codes = self.random.normal(scale=SEPARATION, size=(n_classes, chosen.size))
        self.means = codes @ self.noise[chosen]

    def rows(self, y: np.ndarray) -> np.ndarray:
        """Return rows of given classes, float32."""
        white = self.random.standard_normal((y.size, len(self.noise)), np.float32)
        strength = self.random.lognormal(sigma=0.05, size=(y.size, 1)).astype(np.float32)
        return self.means[y].astype(np.float32) + strength * white @ self.noise

    def stream(self, labels: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield rows of those classes in batches, with their labels."""
        for start in range(0, labels.size, BATCH):
            y = labels[start : start + BATCH]
            yield self.rows(y), y


def main(n_classes: int, n_features: int, n_rows: int = 100) -> tuple[float, float]:
    """Learn from rows of most classes, and print how well rows of the others are found.

    Returns
    -------
    tuple of float
        AUROC of the Mahalanobis distance and of the relative one.
    """
    unknown = max(1, n_classes // 5)
    features = Features(n_classes + unknown, n_features)
    started = time.perf_counter()
    y = features.random.permutation(np.repeat(np.arange(n_classes), n_rows))
    moments = accumulate(features.stream(y), covariance_type="tied")
    print(f"{moments} in {time.perf_counter() - started:.1f} s")

    started = time.perf_counter()
    gda = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type="tied")
    n_held_out = 20 * unknown
    new = features.random.integers(n_classes, n_classes + unknown, n_held_out)
    held_out = np.append(features.random.integers(n_classes, size=n_held_out), new)
    scores = [
        (
            -gda.score_samples(X),
            gda.mahalanobis(X).min(axis=1),
            gda.relative_mahalanobis(X).min(axis=1),
        )
        for X, _ in features.stream(held_out)
    ]
    measures = dict(zip(MEASURES, np.concatenate(scores, axis=1), strict=True))
    unknowns = held_out >= n_classes
    _, plain, relative = found = [float(roc_auc_score(unknowns, s)) for s in measures.values()]
    print(f"{held_out.size:,} rows scored three times in {time.perf_counter() - started:.1f} s")
    print(f"AUROC of the density: {found[0]:.3f}")
    print(f"AUROC of the Mahalanobis distance: {plain:.3f}, of the relative one: {relative:.3f}")
    show(measures, unknowns)
    return plain, relative


def show(measures: dict[str, np.ndarray], unknowns: np.ndarray) -> None:
    """Draw how measures separate rows of unknown classes from others, and the ROC curves."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    _, axes = plt.subplots(1, 4, figsize=(15, 3.8), layout="constrained")
    for ax, (name, score) in zip(axes, measures.items(), strict=False):
        bins = np.linspace(*np.quantile(score, [0.001, 0.999]), 50).tolist()
        for which, label in ((~unknowns, "known classes"), (unknowns, "unknown classes")):
            ax.hist(score[which], bins, alpha=0.6, label=label)
        ax.set(title=name, yticks=[])
        false, true, _ = roc_curve(unknowns, score)
        axes[3].plot(false, true, label=f"{name}: {roc_auc_score(unknowns, score):.3f}")
    axes[0].legend()
    axes[3].plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    axes[3].set(xlabel="known rows that are refused", ylabel="unknown rows that are found")
    axes[3].set_title("ROC curves and their areas")
    axes[3].legend(loc="lower right")


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    main(*(given + SIZES[len(given) :]))
