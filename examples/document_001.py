"""Document 001: boundaries that meet, and LDA's confusions of digits
=====================================================================

The figures of Iain Styles, "A Probabilistic and Generative Approach to Classification" (2019), next
to ours. The digits are those of MNIST, as there, if ``STREAMGDA_MNIST`` names its folder, and
otherwise the 1,797 digits of scikit-learn.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay

from streamgda import LinearDiscriminantAnalysis, accumulate
from streamgda.datasets import load_digits, load_mnist
from streamgda.plots import plot_decision_boundary

warnings.simplefilter("ignore")  # Some pixels are constant or collinear.
if folder := os.environ.get("STREAMGDA_MNIST"):
    X, y, test, truth = load_mnist(folder)
else:
    images, digits = load_digits()
    X, y, test, truth = images[::2], digits[::2], images[1::2], digits[1::2]
side = round(X.shape[1] ** 0.5)
moments = accumulate(X, y)

# %%
# Figures 1 and 2: the boundary of two classes, the boundaries of three
# ---------------------------------------------------------------------
#
# Figure 1 is a line between two classes. Figure 2 has three lines that enclose a grey region where
# no class would win; it 'is impossible by construction', because the lines must meet in one point.
# Its inequalities, P1 < P3, P3 < P2 and P3 < P1, contradict each other.
#
# Ours are of test images of 3 and 5, and of 3, 5 and 8, in the planes that separate them best. All
# that LDA looks at lies in such a plane: LDA of the projected moments predicts the same. Its
# boundaries are lines, which meet in the white point, where all three are equally probable. Dashed
# lines continue the boundary of each pair where the third digit is more probable.


def picture(ax: plt.Axes, digits: list[int]) -> LinearDiscriminantAnalysis:
    """Draw the regions of some digits in a plane, and return LDA in the plane."""
    params = {"solver": "eigen", "shrinkage": 1e-3}
    some = moments.select_classes(digits)
    lda = LinearDiscriminantAnalysis.from_moments(some, **params)
    fisher = lda.scalings_[:, : len(digits) - 1].T
    plane = np.vstack([fisher, some.pca(1)])[:2]
    shown = np.flatnonzero(np.isin(truth, digits))[:400]
    parts = ["regions", "boundaries", "points"]
    plot_decision_boundary(lda, test[shown], truth[shown], ax, directions=plane, parts=parts)
    return LinearDiscriminantAnalysis.from_moments(some.project(plane))


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
picture(left, [3, 5])
left.set(xlabel="Fisher's direction", ylabel="first principal axis")
lda_of_three = picture(right, [3, 5, 8])
W, w0 = lda_of_three.coef_, lda_of_three.intercept_
pairs = [(0, 1), (0, 2), (1, 2)]
meeting = np.linalg.solve(W[:2] - W[2], w0[2] - w0[:2])
for a, b in pairs:
    p, q = W[a] - W[b]
    right.axline(meeting, meeting + np.array([-q, p]), color="black", linestyle="--", linewidth=0.8)
right.plot(*meeting, "o", color="white", markeredgecolor="black", markersize=10)
right.set(xlabel="Fisher's first direction", ylabel="Fisher's second direction")
print("posteriors where the boundaries meet:", lda_of_three.predict_proba([meeting])[0].round(6))

# %%
# (There is no such point if the three means are on a line: the boundaries are parallel.)
#
# Figure 3: confusion table of LDA on MNIST
# -----------------------------------------
#
# The lecture shows a table of fractions and reports an accuracy of 83 %. Each digit is classified
# as 0 far more often than as most others: 12 % of the 6s, 9 % of the 2s and 7s.
#
# The lecture classifies by the largest density times prior. For images far from all means every
# density is below the smallest floating-point number, all ten are zero, and the first class wins.
# With densities (right), 100 of the 100 fractions of the lecture's table are reproduced to its two
# digits on MNIST, and the accuracy is 83.5 %. With logarithms (left) nothing underflows, and the
# accuracy is 87.3 %.

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
lda = LinearDiscriminantAnalysis.from_moments(moments)
densities = lda.priors_ * np.exp(-lda.mahalanobis(test) / 2)  # All classes share the other factor.
rules = {"logarithms": lda.predict(test), "densities": densities.argmax(axis=1)}
figure, axes = plt.subplots(1, 2, figsize=(12, 5.6), layout="constrained")
tables, accuracies = {}, {}
for ax, (name, predicted) in zip(axes, rules.items(), strict=True):
    display = ConfusionMatrixDisplay.from_predictions(
        truth, predicted, normalize="true", values_format=".2f", cmap="Blues", colorbar=False, ax=ax
    )
    tables[name], accuracies[name] = display.confusion_matrix, (predicted == truth).mean()
    ax.set_title(f"{name}: accuracy {accuracies[name]:.1%}")
if folder:
    same = (np.abs(tables["densities"] - FIGURE_3) <= 0.005).sum()
    lost = (densities.max(axis=1) == 0).mean()
    print(f"{same} of 100 fractions of the lecture; {lost:.1%} of the images have no density")
print(f"priors from {lda.priors_.min():.1%} to {lda.priors_.max():.1%}")

# %%
# (The lecture says that the digits are equally frequent, and that the covariance has an inverse
# once constant pixels are removed. MNIST's priors are 9.0 % to 11.2 %, and of its 717 pixels that
# vary the covariance has rank 712; the other directions are left out.)
#
# Figure 4: generated samples
# ---------------------------
#
# Ten generated images of each digit: 'Some of these samples are identifiable, others are less so.'
# They are drawn from the same model; pixels that are constant keep their value.

figure, axes = plt.subplots(10, 10, figsize=(6.6, 6.6), layout="constrained")
samples, _ = lda.sample(100, random_state=0, y=np.repeat(np.arange(10), 10))
for ax, image in zip(axes.ravel(), samples, strict=True):
    ax.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=X.max())
    ax.set_axis_off()
