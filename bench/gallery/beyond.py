"""Figures beyond the documents."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material
from bench.gallery.page import Item, Section
from streamgda import GaussianDiscriminantAnalysis, GaussianNB, LinearDiscriminantAnalysis
from streamgda.plots import plot_learning_curve


def section(material: Material) -> Section:
    return Section("Beyond the documents", [learning(material)])


def learning(material: Material) -> Item:
    ends = np.unique(np.geomspace(50, len(material.y), 24).astype(int))

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            yield material.X[start:end], material.y[start:end]

    models = {
        "QDA, var_smoothing=0.3": GaussianDiscriminantAnalysis(var_smoothing=0.3),
        "LDA, shrinkage=0.001": LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3),
        "LDA, shrinkage=0.1": LinearDiscriminantAnalysis("lsqr", shrinkage=0.1),
        "naive Bayes, var_smoothing=0.1": GaussianNB(var_smoothing=0.1),
    }
    figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
    ax.set_prop_cycle(color=plt.color_sequences["petroff10"])
    for name, model in models.items():
        plot_learning_curve(model, batches(), material.test, material.truth, ax, label=name, n=10)
    seen, accuracy = (np.asarray(values) for values in ax.lines[1].get_data())
    worst = int(seen[accuracy.argmin()])
    few = material.X[:worst]
    varying = int((few.min(axis=0) < few.max(axis=0)).sum())
    return Item(
        "Learning curves over a stream",
        (),
        "None of the documents studies the number of training images.",
        "learning",
        figure,
        "Each model reads the training images once, in batches, and is evaluated in between. LDA "
        f"with little shrinkage is worst after {worst:,} images, in which {varying:,} pixels vary: "
        "with about as many images as pixels, such a covariance is nearly singular.",
        caption="Accuracy on the test images while the training images stream by: "
        "`plot_learning_curve(model, batches, X, y)`.",
    )
