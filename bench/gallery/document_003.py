"""Document 003: formulas for Gaussians with a common covariance, and for zeros and ones."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy import special

from bench.gallery.material import Material
from bench.gallery.page import Item, Section, below, numbers, percent
from bench.report import Table
from streamgda import (
    BernoulliNB,
    LinearDiscriminantAnalysis,
    LinearDiscriminants,
    accumulate,
)
from streamgda.plots import plot_decision_boundary, plot_means

PRIORS = ([0.5, 0.5], [0.9, 0.1])
BLACK = 127  # grey levels above it are ones


def section(material: Material) -> Section:
    return Section(
        '"Probabilistic generative models", notes on Bishop 4.2 (003)',
        [formulas(material), bernoulli(material)],
    )


def formulas(material: Material) -> Item:
    X, t = material.points, material.targets
    moments = accumulate(X, t)
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    lines, weights, offsets = [], [], []
    for ax, priors in zip(axes, PRIORS, strict=True):
        lda = LinearDiscriminantAnalysis.from_moments(moments, priors=priors)
        ax.set_aspect("equal")
        plot_decision_boundary(lda, X, t, ax, s=10)
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
        "LDA and QDA: the posterior as a sigmoid",
        "No numbers. p(C1 | x) = sigma(w x + w0), with w = S^-1 (m1 - m2); the priors 'enter only "
        "through the bias parameter w0', so that other priors make 'parallel shifts of the "
        "decision boundary'.",
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
