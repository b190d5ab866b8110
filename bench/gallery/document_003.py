"""Document 003: formulas for Gaussians with a common covariance, and for zeros and ones."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy import special

from bench.gallery.material import Material, exactly
from bench.gallery.page import Item, Section, below, numbers, percent
from bench.report import Table
from streamgda import (
    BernoulliNB,
    LinearDiscriminantAnalysis,
    LinearDiscriminants,
    QuadraticDiscriminantAnalysis,
    QuadraticDiscriminants,
    accumulate,
)
from streamgda.plots import plot_decision_boundary, plot_means

PRIORS = ([0.5, 0.5], [0.9, 0.1])
LEVELS = np.arange(1, 10) / 10
BLACK = 127  # grey levels above it are ones


def section(material: Material) -> Section:
    return Section(
        '"Probabilistic generative models", notes on Bishop 4.2 (003)',
        [formulas(material), three_classes(), weights(material), bernoulli(material)],
    )


def formulas(material: Material) -> Item:
    X, t = material.points, material.targets
    moments = accumulate(X, t)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    lines, weights, offsets = [], [], []
    for ax, priors in zip(axes, PRIORS, strict=True):
        lda = LinearDiscriminantAnalysis.from_moments(moments, priors=priors)
        ax.set_aspect("equal")
        plot_decision_boundary(lda, X, t, ax, levels=LEVELS, s=10)
        ax.set(title=f"priors {numbers(priors, 1)}", xlabel="first", ylabel="second")
        w, w0 = LinearDiscriminants.of(lda, origin=0).pair(0, 1)
        weights.append(w)
        offsets.append(w0)
        # The document's formula, evaluated on the rows.
        m1, m2 = (X[t == k].mean(axis=0) for k in (0, 1))
        S1, S2 = (np.cov(X[t == k].T, ddof=0) for k in (0, 1))
        n1, n2 = np.bincount(t)
        inverse = np.linalg.inv((n1 * S1 + n2 * S2) / (n1 + n2))
        written = inverse @ (m1 - m2)
        intercept = (m2 @ inverse @ m2 - m1 @ inverse @ m1) / 2 + np.log(priors[0] / priors[1])
        gap = special.expit(X @ written + intercept) - lda.predict_proba(X)[:, 0]
        lines.append(
            (
                numbers(priors, 1),
                f"{numbers(written, 4)}; {intercept:.4f}",
                f"{numbers(w, 4)}; {w0:.4f}",
                below(np.abs(gap).max(), 1e-14),
            )
        )
    shift = (offsets[1] - offsets[0]) / np.linalg.norm(weights[0])
    return Item(
        "The posterior of two classes is a sigmoid",
        ("probabilistic generative models",),
        "No numbers, and a picture that our copy lacks. p(C1 | x) = sigma(w x + w0), with w = S^-1 "
        "(m1 - m2); the priors 'enter only through the bias parameter w0', so that other priors "
        "make 'parallel shifts of the decision boundary and more generally of the parallel "
        "contours of constant posterior probability'.",
        "003-priors",
        figure,
        "The points of document 002: its formula, evaluated on the rows, and "
        "`LinearDiscriminants`, computed from the moments. Both priors have the same w, and the "
        f"boundary is shifted by {shift:.2f} along it. (The document's densities lack the minus "
        "sign in the exponent; these formulas are correct.)",
        Table(
            ("priors", "document: w; w0", "ours: w; w0", "largest difference of posteriors"), lines
        ),
    )


def three_classes() -> Item:
    shared = [[1.0, 0.3], [0.3, 0.6]]
    means, other = [[-2, 1], [1.5, 1.5], [0, -2]], [[0.5, -0.2], [-0.2, 2.0]]
    qda = QuadraticDiscriminantAnalysis.from_moments(
        exactly([1 / 3] * 3, means, [shared, shared, other])
    )
    figure, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
    ax.set_aspect("equal")
    plot_decision_boundary(qda, *qda.sample(300, random_state=0), ax, s=9)
    discriminants = QuadraticDiscriminants.of(qda)
    largest = [np.abs(discriminants.pair(*pair).A).max() for pair in ((1, 2), (1, 3), (2, 3))]
    return Item(
        "LDA and QDA",
        ("LDA and QDA",),
        "A picture that our copy lacks, of linear and quadratic boundaries: with a covariance for "
        "each class 'we obtain quadratic terms in x, giving rise to a quadratic discriminant'.",
        "003-classes",
        figure,
        "Classes 1 and 2 have the same covariance, and a straight boundary; class 3 has one of its "
        "own, and curved boundaries. The largest entries of A, for classes 1 and 2, 1 and 3, 2 and "
        f"3, are {numbers(largest)}.",
    )


def weights(material: Material) -> Item:
    lda = LinearDiscriminantAnalysis.from_moments(material.moments, solver="lsqr", shrinkage=0.1)
    figure, axes = plt.subplots(1, 10, figsize=(11, 1.5), layout="constrained")
    plot_means(lda, material.shape, axes, weights=True)
    right = lda.score(material.test, material.truth)
    return Item(
        "The weights of several classes",
        (),
        "No picture. a_k(x) = w_k x + w_k0, with w_k = S^-1 m_k.",
        "003-weights",
        figure,
        "The w_k of LDA as images: ink on red pixels speaks for the digit, ink on blue ones "
        "against it. Ours are S^-1 (m_k - m), about the mean m of all images: all differ from the "
        "document's by the same vector. With a shrinkage of 0.1, the test accuracy is "
        f"{percent(right)}.",
    )


def bernoulli(material: Material) -> Item:
    nb = BernoulliNB(binarize=BLACK).fit(material.X, material.y)
    n_rows = min(500, len(material.test))
    x = (material.test[:n_rows] > BLACK).astype(float)
    mu, priors = np.exp(nb.feature_log_prob_), np.exp(nb.class_log_prior_)
    a = np.stack([(x * np.log(m) + (1 - x) * np.log(1 - m)).sum(axis=1) for m in mu], axis=1)
    gap = np.abs(a + np.log(priors) - nb.predict_joint_log_proba(material.test[:n_rows])).max()
    right = nb.score(material.test, material.truth)
    figure, axes = plt.subplots(1, 10, figsize=(11, 1.5), layout="constrained")
    plot_means(nb, material.shape, axes)
    K, D = mu.shape
    return Item(
        "Discrete inputs: naive Bayes",
        (),
        "No numbers. For zeros and ones, a_k(x) = sum_i x_i ln mu_ki + (1 - x_i) ln(1 - mu_ki) + "
        "ln p(C_k), with K D parameters instead of 2^D - 1 per class, 'to model relationship "
        "between each pair of features'.",
        "003-bernoulli",
        figure,
        f"The mu_k of the images, whose pixels count as ones above {BLACK}: K D = {K} x {D} = "
        f"{K * D:,} parameters from one pass, with a test accuracy of {percent(right)}. Ours are "
        "smoothed by one count of each value, because with the document's maximum likelihood a "
        f"single pixel could rule out a class. For {n_rows} images and ten classes, the document's "
        f"sum differs from ours by {below(gap, 1e-11)}. (2^D - 1 parameters are those of all "
        "joint probabilities; pairs of features are only D (D - 1) / 2.)",
        grey=True,
    )
