"""Document 003: the posterior is a sigmoid, and naive Bayes of zeros and ones
==============================================================================

The statements of "Probabilistic generative models", notes on Bishop's section 4.2, next to ours.
The document has no numbers, and our copy lacks its pictures. The digits are those of MNIST if
``STREAMGDA_MNIST`` names its folder, and otherwise the 1,797 digits of scikit-learn.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy import special

from streamgda import (
    BernoulliNB,
    ClassMoments,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
    accumulate,
)
from streamgda.datasets import load_digits, load_mnist
from streamgda.errors import ConstantFeatureWarning
from streamgda.plots import plot_decision_boundary

warnings.simplefilter("ignore", ConstantFeatureWarning)  # Some pixels are always white.

# %%
# The posterior of two classes is a sigmoid
# -----------------------------------------
#
# p(C1 | x) = sigma(w x + w0), with w = S^-1 (m1 - m2); the priors 'enter only through the bias
# parameter w0', so that other priors make 'parallel shifts of the decision boundary and more
# generally of the parallel contours of constant posterior probability'. (The document's densities
# lack the minus sign in the exponent; these formulas are right.)

moments = ClassMoments.from_statistics(
    *([0, 1], [250, 250], [[-0.67, -0.78], [-0.03, 0.30]]),
    covariances=[[[1.07, 0.49], [0.49, 0.72]], [[1.57, -0.65], [-0.65, 0.83]]],
)
X, t = QuadraticDiscriminantAnalysis.from_moments(moments).sample(500, random_state=0)
moments = accumulate(X, t)
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", sharey=True)
differences = []
for ax, priors in zip(axes, ([0.5, 0.5], [0.9, 0.1]), strict=True):
    lda = LinearDiscriminantAnalysis.from_moments(moments, priors=priors)
    plot_decision_boundary(lda, X, t, ax)
    grid = np.meshgrid(*(np.linspace(*limits, 100) for limits in (ax.get_xlim(), ax.get_ylim())))
    posterior = lda.predict_proba(np.column_stack([g.ravel() for g in grid]))[:, 0]
    lines = ax.contour(*grid, posterior.reshape(100, 100), np.arange(1, 10) / 10, linewidths=0.8)
    ax.clabel(lines, fontsize="x-small")
    ax.set_title(f"priors {priors}")
    # The document's formula, evaluated on the rows:
    m1, m2 = (X[t == k].mean(axis=0) for k in (0, 1))
    S1, S2 = (np.cov(X[t == k].T, ddof=0) for k in (0, 1))
    n1, n2 = np.bincount(t)
    inverse = np.linalg.inv((n1 * S1 + n2 * S2) / (n1 + n2))
    w = inverse @ (m1 - m2)
    w0 = (m2 @ inverse @ m2 - m1 @ inverse @ m1) / 2 + np.log(priors[0] / priors[1])
    differences.append(np.abs(special.expit(X @ w + w0) - lda.predict_proba(X)[:, 0]).max())
    print(f"priors {priors}: w {w.round(4)}, w0 {w0:.4f}, within {differences[-1]:.0e} of ours")

# %%
# LDA and QDA
# -----------
#
# With a covariance for each class 'we obtain quadratic terms in x, giving rise to a quadratic
# discriminant'. Classes 1 and 2 have the same covariance, and a straight boundary; class 3 has one
# of its own, and curved boundaries.

shared, other = [[1.0, 0.3], [0.3, 0.6]], [[0.5, -0.2], [-0.2, 2.0]]
moments = ClassMoments.from_statistics(
    *([1, 2, 3], [100, 100, 100], [[-2, 1], [1.5, 1.5], [0, -2]]),
    covariances=[shared, shared, other],
)
qda = QuadraticDiscriminantAnalysis.from_moments(moments)
ax = plot_decision_boundary(qda, *qda.sample(300, random_state=0))

# %%
# The weights of several classes
# ------------------------------
#
# a_k(x) = w_k x + w_k0, with w_k = S^-1 m_k. Ours are S^-1 (m_k - m), about the mean m of all
# images: all differ from the document's by the same vector. Ink on red pixels speaks for the digit,
# ink on blue ones against it.

if folder := os.environ.get("STREAMGDA_MNIST"):
    images, digits, test, truth = load_mnist(folder)
else:
    images, digits = load_digits()
    images, digits, test, truth = images[::2], digits[::2], images[1::2], digits[1::2]
side = round(images.shape[1] ** 0.5)
lda = LinearDiscriminantAnalysis("lsqr", shrinkage=0.1).fit(images, digits)
figure, axes = plt.subplots(1, 10, figsize=(11, 1.5), layout="constrained")
for ax, weights in zip(axes, lda.coef_, strict=True):
    most = np.abs(weights).max()
    ax.imshow(weights.reshape(side, side), cmap="RdBu_r", vmin=-most, vmax=most)
    ax.set_axis_off()
print(f"accuracy with a shrinkage of 0.1: {lda.score(test, truth):.1%}")

# %%
# Discrete inputs: naive Bayes
# ----------------------------
#
# For zeros and ones, a_k(x) = sum_i x_i ln mu_ki + (1 - x_i) ln(1 - mu_ki) + ln p(C_k), with K D
# parameters instead of 2^D - 1 per class, which the document needs 'to model relationship between
# each pair of features'. (They are those of all joint probabilities; pairs are only D (D - 1) / 2.)
# Ours are smoothed by one count of each value: with the document's maximum likelihood, a single
# pixel could rule out a class.

black = images.max() // 2
nb = BernoulliNB(binarize=black).fit(images, digits)
x = (test[:500] > black).astype(float)
mu, priors = np.exp(nb.feature_log_prob_), np.exp(nb.class_log_prior_)
a = x @ np.log(mu).T + (1 - x) @ np.log(1 - mu).T + np.log(priors)
differences.append(np.abs(a - nb.predict_joint_log_proba(test[:500])).max())
print(f"{mu.size:,} parameters, accuracy {nb.score(test, truth):.1%}")
figure, axes = plt.subplots(1, 10, figsize=(11, 1.5), layout="constrained")
for ax, image in zip(axes, mu, strict=True):
    ax.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
    ax.set_axis_off()
