"""Document 000: two boundaries between drawn classes, and a digit from naive Bayes."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material, exactly
from bench.gallery.page import Item, Section, numbers
from bench.report import Table
from streamgda import GaussianNB, QuadraticDiscriminantAnalysis, QuadraticDiscriminants
from streamgda.plots import plot_decision_boundary

# As in the document. For class 1 of the right plot it gives two means; the second one is used.
GIVEN = {
    "left": ([0.5, 0.5], [[0, 2], [3, 4]], [np.eye(2), np.eye(2)]),
    "right": ([0.6, 0.4], [[0, 1], [4, 5]], [[[2.5, 2], [2, 3]], np.eye(2)]),
}
ROWS = 600  # not given in the document


def section(material: Material) -> Section:
    return Section(
        "000: notes on generative classification, with code", [boundaries(), digits(material)]
    )


def boundaries() -> Item:
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    lines = []
    priors, (_, mean), covariances = GIVEN["right"]
    moments = exactly(priors, [[0, 2], mean], covariances)
    first = QuadraticDiscriminantAnalysis.from_moments(moments)
    other = 2 * QuadraticDiscriminants.of(first, origin=0).pair(1, 2).c
    for ax, (side, given) in zip(axes, GIVEN.items(), strict=True):
        true = QuadraticDiscriminantAnalysis.from_moments(exactly(*given))
        X, y = true.sample(ROWS, random_state=0)
        fitted = QuadraticDiscriminantAnalysis().fit(X, y)
        ax.set_aspect("equal")
        plot_decision_boundary(
            fitted, X, y, ax, colors=("darkblue", "darkred"), line_color="white", s=9
        )
        ax.set_title(f"{side}: fitted to {ROWS} rows")
        for name, model in (("as given", true), ("fitted", fitted)):
            A, b, c = QuadraticDiscriminants.of(model, origin=0).pair(1, 2)
            terms = numbers([2 * A[0, 0], 2 * A[0, 1], 2 * A[1, 1]]), numbers(2 * b)
            lines.append((side, name, *terms, numbers([2 * c])))
    return Item(
        "Decision boundary and probability plots",
        ("decision boundaries, left", "decision boundaries, right"),
        "Two pairs of Gaussians in the plane, shaded by the posterior, with a white boundary. "
        "Left: priors 0.5, means (0, 2) and (3, 4), unit covariances; the boundary of the fitted "
        "model is 'almost linear'. Right: priors 0.6 and 0.4, means (0, 2) and again (0, 1) of the "
        "first class and (4, 5) of the second, covariances [[2.5, 2], [2, 3]] and the unit matrix; "
        "the boundary is curved.",
        "000-boundaries",
        figure,
        "The same parameters but other rows, because the document gives neither its seed nor the "
        "number of rows. On the left, the boundary bends because the two estimated covariances "
        "differ; with the given parameters, A is zero. On the right, the first class has the mean "
        f"(0, 1); with (0, 2), c would be {other:.2f}. The table shows the coefficients of the "
        "boundary by eq. 26-28, which are positive where class 1 is more probable. They are twice "
        "ours, because the document multiplies the equation by two, and so are not the log-odds. "
        "(Its gradient by a mean, before eq. 17, has the wrong sign, which does not matter where "
        "it is zero.)",
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
    deviations = {"normal(mu, var)": variance, "normal(mu, sd)": np.sqrt(variance)}
    figure, axes = plt.subplots(2, 10, figsize=(11, 2.6), layout="constrained")
    for row, (name, deviation) in zip(axes, deviations.items(), strict=True):
        for ax, image in zip(row, mean + deviation * noise, strict=True):
            ax.imshow(image.reshape(material.shape), cmap="gray_r", vmin=0, vmax=1)
            ax.set(xticks=[], yticks=[])
            ax.spines[:].set_visible(False)
        row[0].set_ylabel(name)
    ink = variance > 0
    return Item(
        "Generated samples, naive Bayes on MNIST",
        ("generated sample",),
        "One generated digit, drawn pixel by pixel, which 'looks pretty reasonable'.",
        "000-digits",
        figure,
        "The document's program calls `np.random.normal(mu, var)`, whose second argument is a "
        "standard deviation. Top: the same call, with a mean standard deviation of "
        f"{variance[ink].mean():.3f} in the pixels that vary. Bottom: the correct call, with "
        f"{np.sqrt(variance[ink]).mean():.3f}; the model's independent pixels are this noisy. Both "
        "rows use the same random numbers and the same pass over the images.",
        grey=True,
    )
