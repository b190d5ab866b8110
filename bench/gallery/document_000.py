"""Document 000: two boundaries between drawn classes, and a digit from naive Bayes."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material, exactly
from bench.gallery.page import Item, Section, numbers
from bench.report import Table
from streamgda import GaussianNB, QuadraticDiscriminantAnalysis, QuadraticDiscriminants
from streamgda.plots import plot_decision_boundary

# As the document states them; of the right plot it lists two means for class 1, the second counts.
GIVEN = {
    "left": ([0.5, 0.5], [[0, 2], [3, 4]], [np.eye(2), np.eye(2)]),
    "right": ([0.6, 0.4], [[0, 1], [4, 5]], [[[2.5, 2], [2, 3]], np.eye(2)]),
}
ROWS = 600  # the document does not say how many


def section(material: Material) -> Section:
    return Section(
        "000: notes on generative classification, with code", [boundaries(), digits(material)]
    )


def boundaries() -> Item:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    lines = []
    for ax, (side, given) in zip(axes, GIVEN.items(), strict=True):
        true = QuadraticDiscriminantAnalysis.from_moments(exactly(*given))
        X, y = true.sample(ROWS, random_state=0)
        fitted = QuadraticDiscriminantAnalysis().fit(X, y)
        plot_decision_boundary(fitted, X, y, ax, s=9)
        ax.set_title(f"{side}: fitted to {ROWS} rows")
        ax.set_aspect("equal")
        for name, model in (("as given", true), ("fitted", fitted)):
            A, b, c = QuadraticDiscriminants.of(model, origin=0).pair(1, 2)
            terms = numbers([2 * A[0, 0], 2 * A[0, 1], 2 * A[1, 1]]), numbers(2 * b)
            lines.append((side, name, *terms, numbers([2 * c])))
    return Item(
        "Decision boundary and probability plots",
        "Two pairs of Gaussians in the plane, shaded by the posterior, the boundary white. Left: "
        "priors 0.5, means (0, 2) and (3, 4), unit covariances; the boundary of the fitted model "
        "is 'almost linear'. Right: priors 0.6 and 0.4, means (0, 1) and (4, 5), covariances "
        "[[2.5, 2], [2, 3]] and the unit matrix; the boundary is curved.",
        "000-boundaries",
        figure,
        "The same parameters, other rows: the document gives neither its seed nor how many there "
        "are. On the left the boundary bends by what two estimated covariances differ; as given, "
        "A is zero. The table has the boundary's coefficients by eq. 26-28 (ours times two, for "
        "the document leaves out a factor 1/2); with the prior term of eq. 24, positive where "
        "class 1 is the more probable.",
        Table(("plot", "parameters", "A: xx, xy, yy", "b", "c"), lines),
    )


def digits(material: Material) -> Item:
    moments = material.moments
    low, high = (edge(material.X, axis=0) / 255 for edge in (np.min, np.max))
    scale = high - low + 1e-5  # "increase image contrast"
    nb = GaussianNB.from_moments(moments, var_smoothing=1e-9)
    mean = (nb.theta_ / 255 - low) / scale
    variance = np.maximum(nb.var_ - nb.epsilon_, 0) / (255 * scale) ** 2
    noise = np.random.default_rng(0).standard_normal(mean.shape)
    spreads = {"normal(mu, var)": variance, "normal(mu, sd)": np.sqrt(variance)}
    figure, axes = plt.subplots(2, 10, figsize=(11, 2.6), layout="constrained")
    for row, (name, spread) in zip(axes, spreads.items(), strict=True):
        for ax, image in zip(row, mean + spread * noise, strict=True):
            ax.imshow(image.reshape(material.shape), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(name)
    ink = variance > 0
    return Item(
        "Generated samples, naive Bayes on MNIST",
        "One generated digit, drawn pixel by pixel, which 'looks pretty reasonable'.",
        "000-digits",
        figure,
        "The document's program calls `np.random.normal(mu, var)`, whose second argument is a "
        "standard deviation. Above: as it does, with a noise of "
        f"{variance[ink].mean():.3f} in the pixels that vary; below: right, with "
        f"{np.sqrt(variance[ink]).mean():.3f}. The independent pixels of the model are as noisy as "
        "that. Both are of the same random numbers and the same pass over the images.",
        grey=True,
    )
