"""Document 004: Gaussians of all shapes, their decision rules, Fisher, and a fitted threshold."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material, exactly
from bench.gallery.page import Item, Section, numbers, percent
from bench.report import Table
from streamgda import (
    FisherDiscriminant,
    GaussianDiscriminantAnalysis,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    QuadraticDiscriminants,
    ThresholdClassifier,
    accumulate,
)
from streamgda.plots import plot_decision_boundary, plot_densities, plot_spectra

I2 = np.eye(2)
# Title, priors, means, covariances of the kinds in the document, which gives no numbers.
KINDS: list[tuple[str, Any, Any, Any]] = [
    ("common, spherical", [0.5, 0.5], [[0, 0], [3, 1]], [I2, I2]),
    ("common, spherical, class 1 more frequent", [0.95, 0.05], [[0, 0], [3, 1]], [I2, I2]),
    ("common, not spherical", [0.5, 0.5], [[0, 0], [3, 1]], [[[2, 1.4], [1.4, 1.5]]] * 2),
    ("spherical, of different size", [0.5, 0.5], [[0, 0], [1.5, 0.5]], [4 * I2, 0.6 * I2]),
    ("a parabola", [0.5, 0.5], [[0, 0], [0, 3]], [np.diag([3.0, 1]), I2]),
    ("three classes, common", [1 / 3] * 3, [[0, 0], [4, 0], [1, 3]], [[[1.5, 0.5], [0.5, 1]]] * 3),
]
SHOWN = 1  # digit whose threshold is drawn


def section(material: Material) -> Section:
    items = [
        shapes(material),
        spectra(material),
        one_dimension(),
        rules(),
        fisher(),
        threshold(material),
    ]
    return Section(
        'ECE407, "Classification with generative models II", after Sanjoy Dasgupta (004)', items
    )


def shapes(material: Material) -> Item:
    X, t = material.points, material.targets
    moments = accumulate(X, t)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for ax, name in zip(axes, ("spherical", "diag", "full"), strict=True):
        model = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type=name)
        ax.set_aspect("equal")
        plot_decision_boundary(model, X, t, ax, s=10)
        right = percent(model.score(X, t))
        ax.set(title=f"{name}: accuracy {right}", xlabel="first", ylabel="second")
    return Item(
        "Spherical, diagonal and general Gaussians",
        "Contours of a density: circles; 'axis-aligned ellipsoids centred at mu'; and rotated "
        "ellipsoids, whose axes are the eigenvectors of the covariance.",
        "004-shapes",
        figure,
        "The three covariance types on the points of document 002, from one pass. (The document's "
        "density has |S|^(p/2) instead of |S|^(1/2).)",
    )


def spectra(material: Material) -> Item:
    smoothed = GaussianDiscriminantAnalysis.from_moments(material.moments, var_smoothing=0.01)
    figure, ax = plt.subplots(figsize=(8, 4.6), layout="constrained")
    plot_spectra(smoothed, ax)
    ax.legend(title="digit", ncols=2)
    values = np.linalg.eigvalsh(material.moments.reduce("tied").covariance())[::-1]
    n_most = int(np.searchsorted(values.cumsum(), 0.95 * values.sum())) + 1
    ranks = [np.linalg.matrix_rank(S, hermitian=True) for S in material.moments.covariance()]
    return Item(
        "Eigendecomposition of the covariance",
        "An ellipse with axes u1, u2 and eigenvalues lambda_1 >= lambda_2: a Gaussian 'is simply a "
        "rotated version of' one with a diagonal covariance.",
        "004-spectra",
        figure,
        f"The eigenvalues of the ten digits' covariances, in {values.size} dimensions. {n_most} "
        "axes hold 95 % of the variance within classes. The covariances have ranks of "
        f"{min(ranks)} to {max(ranks)}, so that none has an inverse; var_smoothing adds the floor "
        "on the right.",
    )


def one_dimension() -> Item:
    cases = {
        "equal priors": ([0.5, 0.5], [1.0, 1.0]),
        "class 1 more frequent": ([0.8, 0.2], [1.0, 1.0]),
        "different variances": ([0.5, 0.5], [4.0, 0.5]),
    }
    figure, axes = plt.subplots(1, 3, figsize=(15, 3.8), layout="constrained")
    lines = []
    for ax, (name, (priors, variances)) in zip(axes, cases.items(), strict=True):
        means = [0.0, 2.0]
        moments = exactly(priors, [[m] for m in means], [[[v]] for v in variances])
        model = QuadraticDiscriminantAnalysis.from_moments(moments)
        X, y = model.sample(2000, random_state=0)
        plot_densities(model, X, y, ax)
        ax.set(title=name, xlabel="x")
        found = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
        formula = "a quadratic in x"
        if variances[0] == variances[1]:
            odds = np.log(priors[0] / priors[1])
            formula = f"{np.mean(means) + variances[0] * odds / (means[1] - means[0]):.4f}"
        lines.append((name, formula, numbers(found, 4)))
    return Item(
        "Thresholds in one dimension",
        "Two densities over a line: with equal priors, the threshold x0 is where they cross; with "
        "pi_1 > pi_2, it 'is closer to the mean of class 2'; with different variances 'you may "
        "have two decision thresholds'.",
        "004-thresholds",
        figure,
        "Means 0 and 2 (the document gives none), and 2,000 rows sampled from each model. The "
        "formula is (m1 + m2) / 2 + s^2 ln(pi_1 / pi_2) / (m2 - m1).",
        Table(("case", "formula", "drawn"), lines),
    )


def kind_of(A: np.ndarray) -> str:
    """Return the kind of curve on which a quadratic form with this matrix is constant."""
    values = np.linalg.eigvalsh(A)
    zero = np.abs(values) < 1e-9 * max(1.0, np.abs(values).max())
    if zero.all():
        return "a line"
    if zero.any():
        return "a parabola"
    if np.ptp(values) < 1e-9 * np.abs(values).max():
        return "a circle"
    return "an ellipse" if values.prod() > 0 else "a hyperbola"


def rules() -> Item:
    figure, axes = plt.subplots(2, 3, figsize=(15, 8.4), layout="constrained")
    lines = []
    for ax, (title, priors, means, covariances) in zip(axes.ravel(), KINDS, strict=True):
        model = QuadraticDiscriminantAnalysis.from_moments(exactly(priors, means, covariances))
        ax.set_aspect("equal")
        plot_decision_boundary(model, *model.sample(250, random_state=0), ax, s=9)
        ax.set(title=title, xlabel="", ylabel="")
        discriminants = QuadraticDiscriminants.of(model, origin=0)
        pairs = [discriminants.pair(a, b) for a, b in pairwise(model.classes_)]
        A = pairs[0].A
        lines.append(
            (
                title,
                numbers([A[0, 0], A[0, 1], A[1, 1]]),
                numbers(pairs[0].b),
                ", ".join(sorted({kind_of(pair.A) for pair in pairs})),
            )
        )
    return Item(
        "Common covariance, different covariances, several classes",
        "Examples without numbers. Common covariance: a line half-way between the means; closer to "
        "class 2 if pi_1 > pi_2; slanted if the covariance is not spherical. Different "
        "covariances: a circle around the narrower class; 'a parabolic boundary'; 'many other "
        "possibilities'. Several classes with one covariance: lines that meet.",
        "004-rules",
        figure,
        "One example of each kind, computed from moments with exactly these parameters. The kind "
        "of curve follows from the eigenvalues of M (ours: A), here of the first two classes: "
        "none, one, or two are not zero. (The document has 2 w beside M = (S2^-1 - S1^-1) / 2. It "
        "should be w, as here: A = M and b = w are half of eq. 26-27 of document 000.)",
        Table(("example", "A: xx, xy, yy", "b", "boundaries"), lines),
    )


def fisher() -> Item:
    covariance = [[3, 2.2], [2.2, 2]]
    moments = exactly([0.5, 0.5], [[0, 0], [2, 0.4]], [covariance] * 2)
    model = LinearDiscriminantAnalysis.from_moments(moments)
    X, y = model.sample(2000, random_state=0)
    found = FisherDiscriminant.from_moments(moments)
    w, along = found.components[0], np.diff(moments.means, axis=0)[0]
    along = along / np.sqrt(
        along @ np.array(covariance) @ along
    )  # unit variance within classes, like w
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    axes[0].set_aspect("equal")
    plot_decision_boundary(model, X[:300], y[:300], axes[0], s=9)
    lines = []
    for ax, (name, direction) in zip(
        axes[1:], {"Fisher's w": w, "m2 - m1": along}.items(), strict=True
    ):
        J = float(found.criterion(direction))
        projected = LinearDiscriminantAnalysis.from_moments(moments.project(direction[None]))
        right = projected.score(X @ direction[:, None], y)
        plot_densities(model, X, y, ax, direction=direction)
        ax.set(title=f"along {name}: J = {4 * J:.2f}", xlabel="w x")
        lines.append(
            (name, numbers(direction / np.linalg.norm(direction)), f"{4 * J:.2f}", percent(right))
        )
    return Item(
        "Fisher's linear discriminant",
        "Two projections of two classes, one 'better than' the other: means apart, and variance "
        "within classes small. J(w) = (w m1 - w m2)^2 / w S w is largest for w ~ S^-1 (m1 - m2). "
        "'Look familiar?'",
        "004-fisher",
        figure,
        "The direction of best separation is not that from mean to mean. Our J includes the class "
        "frequencies, and is a quarter of the document's if they are equal; the table shows the "
        "document's. The direction is that of LDA.",
        Table(("direction", "w, of length 1", "J(w)", "accuracy along it"), lines),
    )


def threshold(material: Material) -> Item:
    figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    lines, digits = [], []
    for digit in range(10):
        y, truth = ((labels == digit).astype(int) for labels in (material.y, material.truth))
        fitted = ThresholdClassifier(LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3)).fit(
            material.X, y
        )
        rules = (fitted.estimator_, fitted)
        errors = [
            1 - rule.score(*rows)
            for rows in ((material.X, y), (material.test, truth))
            for rule in rules
        ]
        lines.append((str(digit), f"{fitted.threshold_:.2f}", *map(percent, errors)))
        digits.append(errors)
        if digit == SHOWN:
            odds = fitted.estimator_.decision_function(material.X)[:, None]
            model = LinearDiscriminantAnalysis.from_moments(accumulate(odds, y))
            plot_densities(model, odds, y, ax, bins=120)
            for line in [line for line in ax.lines if line.get_linestyle() == "--"]:
                line.remove()  # the threshold of Gaussians fitted to the log-odds
            ax.axvline(0, color="black", linestyle="--", label="the model's threshold")
            ax.axvline(fitted.threshold_, color="black", label="fitted to the rows")
    ax.set(xlabel="w x + w0, the log-odds", yscale="log", ylim=(1e-5, 2))
    ax.legend(title=f"1: the digit {SHOWN}", fontsize=9)
    means = np.mean(digits, axis=0)
    return Item(
        "The rule w x >= theta, with theta fitted",
        "No figure: 'common practice: choose w as above, but fit theta to minimise "
        "training/validation error', because theta is correct only if the model fits perfectly.",
        "004-fitted",
        figure,
        "Each digit against the others, which are not Gaussian: one pass for w, and one for theta. "
        f"On average over the ten digits, the training error is {percent(means[0])} with the "
        f"model's threshold and {percent(means[1])} with the fitted one; the test error is "
        f"{percent(means[2])} and {percent(means[3])}.",
        Table(
            (
                "digit",
                "fitted threshold on the log-odds",
                "training error, model's",
                "fitted",
                "test error, model's",
                "fitted",
            ),
            lines,
        ),
    )
