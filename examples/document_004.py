"""Document 004: Gaussians of all shapes, their decision rules, and Fisher's direction
======================================================================================

The figures of ECE407, "Classification with generative models II", after Sanjoy Dasgupta, next to
ours. The document gives no numbers: the parameters are ours.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from streamgda import (
    ClassMoments,
    GaussianDiscriminantAnalysis,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.datasets import load_digits
from streamgda.errors import ConstantFeatureWarning
from streamgda.plots import plot_decision_boundary, plot_densities

warnings.simplefilter("ignore", ConstantFeatureWarning)


def given(priors, means, covariances, kind=QuadraticDiscriminantAnalysis):
    """Return a model with these parameters."""
    labels, counts = np.arange(1, len(priors) + 1), 100 * np.array(priors)
    moments = ClassMoments.from_statistics(labels, counts, means, covariances=covariances)
    return kind.from_moments(moments)


# %%
# Gaussians: spherical, diagonal, general
# ---------------------------------------
#
# Contours of a density: circles; 'axis-aligned ellipsoids centred at mu'; and rotated ellipsoids,
# whose axes are the eigenvectors of the covariance: a Gaussian 'is simply a rotated version of' one
# with a diagonal covariance. Ellipses at one and two standard deviations hold 39 % and 86 % of the
# rows. (The document's density has \|S\|^(p/2) instead of \|S\|^(1/2).)

slanted = np.array([[2.0, 1.2], [1.2, 1.0]])
moments = ClassMoments.from_statistics(
    *([1, 2], [300, 200], [[0, 0], [3, -1]]), covariances=[slanted, [[0.8, -0.3], [-0.3, 1.5]]]
)
X, y = QuadraticDiscriminantAnalysis.from_moments(moments).sample(500, random_state=0)
figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained", sharey=True)
for ax, covariance_type in zip(axes, ("spherical", "diag", "full"), strict=True):
    model = GaussianDiscriminantAnalysis(covariance_type).fit(X, y)
    plot_decision_boundary(model, X, y, ax)
    ax.set(title=f"{covariance_type}: accuracy {model.score(X, y):.1%}", aspect="equal")
    if covariance_type == "full":
        for mean, covariance in zip(model.means_, model.covariance_, strict=True):
            lengths, vectors = np.linalg.eigh(covariance)
            for length, u in zip(np.sqrt(lengths), vectors.T, strict=True):
                ax.annotate("", mean + length * u, mean, arrowprops={"arrowstyle": "->"})

# %%
# The eigenvalues of the covariances of scikit-learn's ten digits, in 64 dimensions. Those of zero
# belong to pixels that are always white: without smoothing, no covariance has an inverse.

moments = GaussianDiscriminantAnalysis(var_smoothing=0.01).fit(*load_digits()).moments_
spectra = np.linalg.eigvalsh(moments.covariance())[:, ::-1]
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
ax.semilogy(np.maximum(spectra, 1e-6).T, label=moments.classes)
ax.set(xlabel="principal axis", ylabel="variance")
ax.legend(title="digit", ncols=2)

# %%
# Thresholds in one dimension
# ---------------------------
#
# With equal priors, the threshold x0 is where two densities cross; with pi_1 > pi_2 it 'is closer
# to the mean of class 2'; with different variances 'you may have two decision thresholds'. For
# equal variances it is (m1 + m2) / 2 + s^2 ln(pi_1 / pi_2) / (m2 - m1): 1 and 1.6931 here.

cases = {
    "equal priors": ([0.5, 0.5], [1.0, 1.0]),
    "class 1 more frequent": ([0.8, 0.2], [1.0, 1.0]),
    "different variances": ([0.5, 0.5], [4.0, 0.5]),
}
figure, axes = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
thresholds = {}
for ax, (name, (priors, variances)) in zip(axes, cases.items(), strict=True):
    model = given(priors, [[0], [2]], np.reshape(variances, (2, 1, 1)))
    plot_densities(model, *model.sample(2000, random_state=0), ax)
    ax.set(title=name, xlabel="x")
    thresholds[name] = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    print(f"{name}: {np.round(thresholds[name], 4)}")

# %%
# Common covariance, different covariances, several classes
# ---------------------------------------------------------
#
# Common covariance: a line half-way between the means; closer to class 2 if pi_1 > pi_2; slanted if
# the covariance is not spherical. Different covariances: a circle around the narrower class; 'a
# parabolic boundary'; 'many other possibilities'. Several classes with one covariance: lines that
# meet. The kind of curve follows from the eigenvalues of M = (S2^-1 - S1^-1) / 2: none, one or both
# are zero. (The document has 2 w beside M. It should be w.)

one = np.eye(2)
KINDS = {
    "common, spherical": ([0.5, 0.5], [[0, 0], [3, 1]], [one, one]),
    "class 1 more frequent": ([0.95, 0.05], [[0, 0], [3, 1]], [one, one]),
    "common, not spherical": ([0.5, 0.5], [[0, 0], [3, 1]], [[[2, 1.4], [1.4, 1.5]]] * 2),
    "three classes, common": ([1 / 3] * 3, [[0, 0], [4, 0], [1, 3]], [[[1.5, 0.5], [0.5, 1]]] * 3),
    "a circle": ([0.5, 0.5], [[0, 0], [1.5, 0.5]], [4 * one, 0.6 * one]),
    "a parabola": ([0.5, 0.5], [[0, 0], [0, 3]], [np.diag([3.0, 1]), one]),
    "an ellipse": ([0.5, 0.5], [[0, 0], [1, 0]], [np.diag([4.0, 2]), np.diag([1.0, 0.3])]),
    "a hyperbola": ([0.5, 0.5], [[0, 0], [2, 1]], [np.diag([3.0, 0.5]), np.diag([0.5, 2])]),
}
figure, axes = plt.subplots(2, 4, figsize=(19, 8.4), layout="constrained")
eigenvalues = {}
for ax, (title, (priors, means, covariances)) in zip(axes.ravel(), KINDS.items(), strict=True):
    model = given(priors, means, covariances)
    plot_decision_boundary(model, *model.sample(250, random_state=0), ax, s=9)
    ax.set(title=title, xlabel="", ylabel="", aspect="equal")
    S1, S2 = covariances[:2]
    eigenvalues[title] = np.linalg.eigvalsh((np.linalg.inv(S2) - np.linalg.inv(S1)) / 2)
    print(f"{title}: eigenvalues of M {eigenvalues[title].round(2)}")

# %%
# Fisher's linear discriminant
# ----------------------------
#
# Two projections of two classes, one 'better than' the other: means apart, and variance within
# classes small. J(w) = (w m1 - w m2)^2 / w S w is largest for w ~ S^-1 (m1 - m2), which is the
# direction of LDA. It is not that from mean to mean.

covariance = np.array([[3, 2.2], [2.2, 2]])
lda = given([0.5, 0.5], [[0, 0], [2, 0.4]], [covariance] * 2, LinearDiscriminantAnalysis)
X, y = lda.sample(2000, random_state=0)
offset = np.diff(lda.means_, axis=0)[0]
figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
plot_decision_boundary(lda, X[:300], y[:300], axes[0], s=9)
J, accuracies = {}, {}
directions = {"Fisher's w": lda.scalings_[:, 0], "m2 - m1": offset}
for ax, (name, direction) in zip(axes[1:], directions.items(), strict=True):
    w = direction / np.linalg.norm(direction)
    J[name] = float((w @ offset) ** 2 / (w @ covariance @ w))
    along = LinearDiscriminantAnalysis.from_moments(lda.moments_.project(w[None]))
    accuracies[name] = along.score(X @ w[:, None], y)
    plot_densities(lda, X, y, ax, direction=w)
    ax.set(title=f"along {name}: J = {J[name]:.2f}, accuracy {accuracies[name]:.1%}", xlabel="w x")

# %%
# The rule w x >= theta, with theta fitted
# ----------------------------------------
#
# 'Common practice: choose w as above, but fit theta to minimise training/validation error', because
# theta is right only if the model fits perfectly. Each digit of scikit-learn against the others,
# which are not Gaussian: w from the moments, and theta between two log-odds of the training rows.

images, digits = load_digits()
train, test = slice(None, None, 2), slice(1, None, 2)
errors = []
for digit in range(10):
    y = digits == digit
    lda = LinearDiscriminantAnalysis("lsqr", shrinkage=0.01).fit(images[train], y[train])
    odds, truth = lda.decision_function(images[train]), y[train]
    order = np.argsort(odds)
    missed = np.append(0, np.cumsum(truth[order])) + np.append(
        np.cumsum(~truth[order][::-1])[::-1], 0
    )
    best = missed.argmin()  # Theta lies above so many log-odds.
    theta = np.mean(np.append(odds[order], odds.max() + 1)[[max(best - 1, 0), best]])
    errors.append(
        [
            np.mean((lda.decision_function(images[rows]) >= at) != y[rows])
            for rows in (train, test)
            for at in (0, theta)
        ]
    )
    print(f"{digit}: theta {theta:5.2f}, errors {np.round(errors[-1], 3)}")
mean = np.mean(errors, axis=0)
print(f"training error {mean[0]:.2%} with theta of the model, {mean[1]:.2%} with the fitted one")
print(f"test error {mean[2]:.2%} and {mean[3]:.2%}")
