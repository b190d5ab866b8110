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
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    QuadraticDiscriminants,
    ThresholdClassifier,
    accumulate,
)
from streamgda.plots import plot_decision_boundary, plot_densities, plot_spectra

I2 = np.eye(2)
SLANTED = [[2.0, 1.2], [1.2, 1.0]]
LENGTHS, AXES = (values[..., ::-1] for values in np.linalg.eigh(SLANTED))
# A Gaussian with the covariance SLANTED is this one, turned by its axes.
DIAGONAL = GaussianNB.from_parameters([[0.0, 0.0]], [LENGTHS], [1.0], [1])
# Title, priors, means, covariances of the kinds in the document, which gives no numbers.
KINDS: list[tuple[str, Any, Any, Any]] = [
    ("common, spherical", [0.5, 0.5], [[0, 0], [3, 1]], [I2, I2]),
    ("common, spherical, class 1 more frequent", [0.95, 0.05], [[0, 0], [3, 1]], [I2, I2]),
    ("common, not spherical", [0.5, 0.5], [[0, 0], [3, 1]], [[[2, 1.4], [1.4, 1.5]]] * 2),
    ("spherical, of different size", [0.5, 0.5], [[0, 0], [1.5, 0.5]], [4 * I2, 0.6 * I2]),
    ("a parabola", [0.5, 0.5], [[0, 0], [0, 3]], [np.diag([3.0, 1]), I2]),
    ("an ellipse", [0.5, 0.5], [[0, 0], [1, 0]], [np.diag([4.0, 2]), np.diag([1.0, 0.3])]),
    ("a hyperbola", [0.5, 0.5], [[0, 0], [2, 1]], [np.diag([3.0, 0.5]), np.diag([0.5, 2])]),
    ("three classes, common", [1 / 3] * 3, [[0, 0], [4, 0], [1, 3]], [[[1.5, 0.5], [0.5, 1]]] * 3),
]
SHOWN = 1  # digit whose threshold is drawn


def section(material: Material) -> Section:
    items = [
        gaussians(),
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


def gaussians() -> Item:
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    one = GaussianNB.from_parameters([[0.0]], [[1.0]], [1.0], [1])
    plot_densities(one, ax=left)
    left.set_xticks([-2, -1, 0, 1, 2], ["m - 2s", "m - s", "m", "m + s", "m + 2s"])
    left.set(title="of one variable", xlabel="x", ylabel="density")
    right.set_aspect("equal")
    rows = DIAGONAL.sample(400, random_state=0)
    parts = ["classes", "points"]
    plot_decision_boundary(DIAGONAL, *rows, right, directions=AXES, parts=parts, s=9)
    right.set(title="of two variables", xlabel="x1", ylabel="x2")
    for ax in (left, right):
        ax.legend().remove()
    return Item(
        "The Gaussian of one variable and of several",
        ("univariate Gaussian", "multivariate Gaussian"),
        "A bell-shaped density with mean mu and standard deviation sigma, and one of several "
        "variables with mean mu and covariance S.",
        "004-gaussians",
        figure,
        "Mean zero and unit variance; a covariance of [[2, 1.2], [1.2, 1]], and 400 rows drawn "
        "from it. The ellipses, at one and two standard deviations, hold 39 % and 86 % of the "
        "rows.",
    )


def shapes(material: Material) -> Item:
    X, t = material.points, material.targets
    moments = accumulate(X, t)
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for ax, name in zip(axes, ("spherical", "diag", "full"), strict=True):
        model = GaussianDiscriminantAnalysis.from_moments(moments, covariance_type=name)
        ax.set_aspect("equal")
        plot_decision_boundary(model, X, t, ax, principal_axes=True, s=10)
        right = percent(model.score(X, t))
        ax.set(title=f"{name}: accuracy {right}", xlabel="first", ylabel="second")
    return Item(
        "Spherical, diagonal and general Gaussians",
        ("spherical Gaussian", "diagonal Gaussian", "general Gaussian"),
        "Contours of a density: circles; 'axis-aligned ellipsoids centred at mu'; and rotated "
        "ellipsoids, whose axes are the eigenvectors of the covariance.",
        "004-shapes",
        figure,
        "The three covariance types on the points of document 002, from one pass. (The document's "
        "density has |S|^(p/2) instead of |S|^(1/2).)",
    )


def spectra(material: Material) -> Item:
    smoothed = GaussianDiscriminantAnalysis.from_moments(material.moments, var_smoothing=0.01)
    figure, (left, middle, ax) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for panel, directions, names in ((left, AXES, "x1 x2"), (middle, I2, "u1'x u2'x")):
        options = {"directions": directions, "principal_axes": True, "parts": ["classes"]}
        panel.set_aspect("equal")
        plot_decision_boundary(DIAGONAL, ax=panel, **options)
        panel.set(**dict(zip(("xlabel", "ylabel"), names.split(), strict=True)))
        panel.legend().remove()
    plot_spectra(smoothed, ax)
    ax.legend(title="digit", ncols=2)
    values = np.linalg.eigvalsh(material.moments.reduce("tied").covariance())[::-1]
    n_most = int(np.searchsorted(values.cumsum(), 0.95 * values.sum())) + 1
    ranks = [np.linalg.matrix_rank(S, hermitian=True) for S in material.moments.covariance()]
    return Item(
        "Eigendecomposition of the covariance",
        ("ellipse with the axes u1 and u2",),
        "An ellipse with axes u1, u2 and eigenvalues lambda_1 >= lambda_2: a Gaussian 'is simply a "
        "rotated version of' one with a diagonal covariance.",
        "004-spectra",
        figure,
        "Left: a Gaussian with the axes u1 and u2, as long as a standard deviation along them. "
        f"Middle: the same Gaussian along its axes, with the variances {numbers(LENGTHS)} and "
        f"no covariance. Right: the eigenvalues of the ten digits' covariances, in {values.size} "
        f"dimensions. {n_most} axes hold 95 % of the variance within classes. The covariances "
        f"have ranks of {min(ranks)} to {max(ranks)}, so that none has an inverse; var_smoothing "
        "adds the floor on the right.",
    )


def one_dimension() -> Item:
    cases = {
        "equal priors": ([0.5, 0.5], [1.0, 1.0]),
        "class 1 more frequent": ([0.8, 0.2], [1.0, 1.0]),
        "different variances": ([0.5, 0.5], [4.0, 0.5]),
    }
    figure, (*axes, last) = plt.subplots(1, 4, figsize=(18, 3.8), layout="constrained")
    lines = []
    for ax, (name, (priors, variances)) in zip(axes, cases.items(), strict=True):
        means = [0.0, 2.0]
        moments = exactly(priors, [[m] for m in means], [[[v]] for v in variances])
        model = QuadraticDiscriminantAnalysis.from_moments(moments)
        X, y = model.sample(2000, random_state=0)
        plot_densities(model, X, y, ax)
        ax.set(title=name, xlabel="x")
        found = QuadraticDiscriminants.of(model).thresholds()
        formula = "a quadratic in x"
        if variances[0] == variances[1]:
            odds = np.log(priors[0] / priors[1])
            formula = f"{np.mean(means) + variances[0] * odds / (means[1] - means[0]):.4f}"
        lines.append((name, formula, numbers(found, 4)))
    X, y = QuadraticDiscriminantAnalysis.from_moments(
        exactly([0.5, 0.5], [[0], [2]], [[[1]]] * 2)
    ).sample(40, random_state=0)
    fitted = QuadraticDiscriminantAnalysis().fit(X, y)
    plot_densities(fitted, ax=last)
    for label, line in zip(fitted.classes_, last.lines, strict=False):
        own = X[y == label, 0]
        last.plot(own, np.zeros(own.size), "o", color=line.get_color(), clip_on=False)
    last.set(title="estimated from the dots", xlabel="x")
    found = QuadraticDiscriminants.of(fitted).thresholds()
    lines.append(("estimated from the dots", "a quadratic in x", numbers(found, 4)))
    return Item(
        "Thresholds in one dimension",
        (
            "two classes on a line, with their training data",
            "one-dimensional example, class 1 more frequent",
            "one-dimensional example, different variances",
        ),
        "Two densities over a line: with equal priors, the threshold x0 is where they cross; with "
        "pi_1 > pi_2, it 'is closer to the mean of class 2'; with different variances 'you may "
        "have two decision thresholds'.",
        "004-thresholds",
        figure,
        "Means 0 and 2 (the document gives none), and 2,000 rows sampled from each model; 40 rows "
        "in the last picture, from which the model is estimated. `Discriminants.thresholds` "
        "returns the numbers. The formula is (m1 + m2) / 2 + s^2 ln(pi_1 / pi_2) / (m2 - m1).",
        Table(("case", "formula", "thresholds"), lines),
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
    figure, axes = plt.subplots(2, 4, figsize=(19, 8.4), layout="constrained")
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
        (
            "common covariance, examples 1 to 3",
            "different covariances, example 1",
            "different covariances, example 3",
            "many other possibilities",
            "several classes, linear boundaries",
        ),
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
        ("two projections, one better than the other",),
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
        (),
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
