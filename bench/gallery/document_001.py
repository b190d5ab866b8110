"""Document 001: boundaries that meet, LDA's confusions on MNIST, and the digits it generates."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material
from bench.gallery.page import Item, Section, numbers, percent
from bench.report import Table
from streamgda import FisherDiscriminant, LinearDiscriminantAnalysis, LinearDiscriminants
from streamgda.plots import plot_confusion_matrix, plot_decision_boundary, plot_samples

# Figure 3: fraction of each digit's test images (rows) classified as each digit (columns).
FIGURE_3 = np.array(
    [
        [0.96, 0.00, 0.00, 0.00, 0.00, 0.01, 0.01, 0.00, 0.01, 0.00],
        [0.00, 0.96, 0.00, 0.00, 0.00, 0.00, 0.00, 0.00, 0.02, 0.00],
        [0.09, 0.03, 0.73, 0.03, 0.02, 0.00, 0.03, 0.01, 0.05, 0.00],
        [0.07, 0.00, 0.02, 0.82, 0.00, 0.02, 0.00, 0.01, 0.03, 0.01],
        [0.03, 0.01, 0.01, 0.00, 0.88, 0.00, 0.01, 0.00, 0.01, 0.05],
        [0.05, 0.01, 0.00, 0.04, 0.01, 0.79, 0.02, 0.01, 0.04, 0.02],
        [0.12, 0.01, 0.01, 0.00, 0.02, 0.03, 0.79, 0.00, 0.02, 0.00],
        [0.09, 0.03, 0.01, 0.01, 0.02, 0.00, 0.00, 0.77, 0.00, 0.07],
        [0.04, 0.03, 0.01, 0.03, 0.02, 0.04, 0.01, 0.00, 0.80, 0.03],
        [0.04, 0.01, 0.00, 0.01, 0.06, 0.00, 0.00, 0.04, 0.01, 0.83],
    ]
)
ACCURACY = 0.83  # "the overall classification accuracy is 83%"
THREE = (3, 5, 8)
SHOWN = 400  # images shown as points


def section(material: Material) -> Section:
    return Section(
        'Iain Styles, "A Probabilistic and Generative Approach to Classification" (001)',
        [boundaries(material), confusions(material), digits(material)],
    )


def boundaries(material: Material) -> Item:
    moments = material.moments.select_classes(THREE)
    two = LinearDiscriminantAnalysis.from_moments(
        moments.select_classes(THREE[:2]), solver="lsqr", shrinkage=1e-3
    )
    three = LinearDiscriminantAnalysis.from_moments(moments, solver="lsqr", shrinkage=1e-3)
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")

    def shown(lda: LinearDiscriminantAnalysis, ax: Any, directions: np.ndarray) -> None:
        rows = np.flatnonzero(np.isin(material.truth, lda.classes_))[:SHOWN]
        X, y = material.test[rows], material.truth[rows]
        parts = ("regions", "boundaries", "pairs", "points")
        plot_decision_boundary(lda, X, y, ax, directions=directions, parts=parts, s=12)

    fisher = FisherDiscriminant.from_moments(two.moments_, shrinkage=1e-3).components[0]
    shown(two, axes[0], np.stack([fisher, two.moments_.pca(1)[0]]))
    axes[0].set(xlabel="Fisher's direction", ylabel="first principal axis")
    plane = FisherDiscriminant.from_moments(three.moments_, 2, shrinkage=1e-3).components
    shown(three, axes[1], plane)
    axes[1].set(xlabel="Fisher's first direction", ylabel="Fisher's second direction")
    meeting = LinearDiscriminants.of(three).meeting(*THREE)
    axes[1].plot(*plane @ meeting, "o", color="white", markeredgecolor="black", markersize=10)
    posterior = three.predict_proba(meeting[None])[0]
    return Item(
        "Figures 1 and 2: the boundary of two classes, the boundaries of three",
        ("figure 1", "figure 2"),
        "Figure 1: a line between two classes. Figure 2: three lines that enclose a grey region "
        "where no class would win; it 'is impossible by construction', because the lines must meet "
        "in one point. Its inequalities, P1 < P3, P3 < P2 and P3 < P1, contradict each other.",
        "001-boundaries",
        figure,
        f"Test images of {THREE[0]} and {THREE[1]}, and of {THREE[0]}, {THREE[1]} and {THREE[2]}, "
        f"in planes of the {material.X.shape[1]}-dimensional space. Dashed lines continue the "
        "boundary of each pair where the third digit is more probable. The white point is the "
        "meeting point of the boundaries by `LinearDiscriminants.meeting`: there, the posteriors "
        f"of the three classes are {numbers(posterior, 6)}. (There is no such point if the three "
        "means are on a line: the boundaries are parallel.)",
        caption="LDA's decision regions for two digits (left) and three digits (right), with test "
        "images, in planes along Fisher's directions: `plot_decision_boundary(lda, X, y, "
        "directions=fisher.components)`.",
    )


class Densities:
    r"""The lecture's rule: the class with the largest :math:`f_i(x) \pi_i`.

    It is evaluated in floating point, without logarithms and without the factor that all classes
    share, as in the lecture. If all ten values are zero, `argmax` returns the first class.
    """

    def __init__(self, lda: LinearDiscriminantAnalysis) -> None:
        self.classes_ = lda.classes_
        self._priors, self._lda = lda.priors_, lda

    def densities(self, X: np.ndarray) -> np.ndarray:
        """Return the densities times priors, shape (n_rows, n_classes)."""
        return self._priors * np.exp(-0.5 * self._lda.mahalanobis(X))

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the predicted classes, shape (n_rows,)."""
        return self.classes_[self.densities(X).argmax(axis=1)]


def confusions(material: Material) -> Item:
    X, y, lda = material.test, material.truth, material.lda
    lecture = Densities(lda)
    figure, axes = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
    shares, right = {}, {}
    for ax, (name, rule) in zip(
        axes, {"in logarithms": lda, "densities": lecture}.items(), strict=True
    ):
        plot_confusion_matrix(rule, X, y, ax, normalize="true", text_kw={"fontsize": 8})
        shares[name] = np.asarray(ax.images[0].get_array())
        right[name] = float((rule.predict(X) == y).mean())
        ax.set_title(f"{name}: accuracy {percent(right[name])}")
    lost = float((lecture.densities(X).max(axis=1) == 0).mean())
    same = int((np.abs(shares["densities"] - FIGURE_3) <= 0.005).sum())
    lines = [
        (str(digit), *(f"{table[digit, digit]:.2f}" for table in (FIGURE_3, *shares.values())))
        for digit in range(10)
    ]
    lines += [
        (f"{digit} classified as 0", *(f"{t[digit, 0]:.2f}" for t in (FIGURE_3, *shares.values())))
        for digit in (2, 6)
    ]
    accuracies = (percent(right[name]) for name in shares)
    lines.append(("all test images", f"{100 * ACCURACY:.0f} %", *accuracies))
    return Item(
        "Figure 3: confusion table of LDA on MNIST",
        ("figure 3, the table", "figure 3, the matrix"),
        f"A ten by ten table of fractions and its image, and the accuracy, {100 * ACCURACY:.0f} %. "
        "Each digit is classified as 0 far more often than as most others: 12 % of the 6s, 9 % of "
        "the 2s and 7s.",
        "001-confusions",
        figure,
        "Both tables are of one model, that of the lecture: one covariance, without shrinkage. Our "
        f"accuracy (left) is {percent(right['in logarithms'])}. The lecture classifies by the "
        "largest density times prior. For images far from all means, every density is below the "
        "smallest floating-point number, all ten are zero, and the first class wins. With "
        f"densities (right), this happens for {percent(lost)} of the test images, and the accuracy "
        f"is {percent(right['densities'])}: {same} of the 100 fractions in the lecture's table are "
        "reproduced to its two digits. With logarithms, nothing underflows. (The lecture says that "
        "the digits are equally frequent, and that the covariance has an inverse once constant "
        f"pixels are removed. The priors are {percent(lda.priors_.min())} to "
        f"{percent(lda.priors_.max())}, and of the {lda.model_.features.size} pixels that vary the "
        f"covariance has rank {lda.model_.rank}; the other directions are left out.)",
        Table(("correct", "lecture", "ours", "ours, with densities"), lines),
    )


def digits(material: Material) -> Item:
    figure, axes = plt.subplots(10, 10, figsize=(6.6, 6.6), layout="constrained")
    plot_samples(material.lda, material.shape, 10, 0, axes)
    return Item(
        "Figure 4: generated samples",
        ("figure 4",),
        "Ten generated images of each digit. 'Some of these samples are identifiable, others are "
        "less so.'",
        "001-digits",
        figure,
        "The same model: one covariance for all ten digits, which is singular; constant pixels "
        "keep their value. The noise has the same covariance for all digits.",
        grey=True,
        caption="Digits sampled from LDA, ten per class: `plot_samples(lda, (28, 28), 10)`.",
    )
