"""Document 000: two boundaries in the plane, and digits drawn pixel by pixel
=============================================================================

The figures of the notes on generative classification with code, next to ours. Statements of the
document are quoted. The pixels are those of MNIST if ``STREAMGDA_MNIST`` names its folder, and
otherwise of the 1,797 digits of scikit-learn.
"""

import os
import warnings

import matplotlib.pyplot as plt
import numpy as np

from streamgda import ClassMoments, GaussianNB, QuadraticDiscriminantAnalysis, accumulate
from streamgda.datasets import load_digits, load_mnist
from streamgda.errors import ConstantFeatureWarning
from streamgda.plots import plot_decision_boundary

warnings.simplefilter("ignore", ConstantFeatureWarning)  # Some pixels are always white.

# %%
# Decision boundary and probability plots
# ---------------------------------------
#
# The document draws two pairs of Gaussians, shaded by the posterior. On the left the boundary of
# the fitted model is 'almost linear': the given covariances are equal, the estimated ones differ.
# On the right it is curved. The document gives two means of the first class there, (0, 2) and
# (0, 1); we use the second. It gives neither its seed nor the number of rows.

GIVEN = {
    "left": ([50, 50], [[0, 2], [3, 4]], [np.eye(2), np.eye(2)]),
    "right": ([60, 40], [[0, 1], [4, 5]], [[[2.5, 2], [2, 3]], np.eye(2)]),
}


def boundary(model: QuadraticDiscriminantAnalysis) -> tuple[np.ndarray, np.ndarray, float]:
    """Return A, b and c of equations 26-28: x'Ax + b'x + c is positive where class 1 wins."""
    (m1, m2), (S1, S2), (p1, p2) = model.means_, model.covariance_, model.priors_
    P1, P2 = np.linalg.inv(S1), np.linalg.inv(S2)
    log_dets = np.linalg.slogdet(S2)[1] - np.linalg.slogdet(S1)[1]
    constant = m2 @ P2 @ m2 - m1 @ P1 @ m1 + log_dets + 2 * np.log(p1 / p2)
    return P2 - P1, 2 * (P1 @ m1 - P2 @ m2), float(constant)


figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
coefficients = {}
for ax, (side, (counts, means, covariances)) in zip(axes, GIVEN.items(), strict=True):
    moments = ClassMoments.from_statistics([1, 2], counts, means, covariances=covariances)
    true = QuadraticDiscriminantAnalysis.from_moments(moments, store_covariance=True)
    X, y = true.sample(600, random_state=0)
    fitted = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
    plot_decision_boundary(fitted, X, y, ax, colors=("darkblue", "darkred"), s=9)
    ax.set(title=f"{side}: fitted to 600 rows", aspect="equal")
    for name, model in (("as given", true), ("fitted", fitted)):
        A, b, c = coefficients[side, name] = boundary(model)
        print(f"{side}, {name}: A {A[[0, 0, 1], [0, 1, 1]].round(2)}, b {b.round(2)}, c {c:.2f}")

# %%
# These are the coefficients of the document's equations, which are twice the log-odds because it
# multiplies by two. With the mean (0, 2), c on the right would be 37.70. (The gradient by a mean,
# before equation 17, has the wrong sign, which does not matter where it is zero.)
#
# A generated sample
# ------------------
#
# The document draws one digit by naive Bayes, pixel by pixel, which 'looks pretty reasonable'. Its
# program calls ``np.random.normal(mu, var)``, whose second argument is a standard deviation. The
# first row below is drawn by this call, and the second with the standard deviation: the independent
# pixels of the model are as noisy as this.

folder = os.environ.get("STREAMGDA_MNIST")
images, digits = load_mnist(folder)[:2] if folder else load_digits()
side = round(images.shape[1] ** 0.5)
nb = GaussianNB.from_moments(accumulate(images, digits))
black = float(images.max())
mean, variance = nb.theta_ / black, (nb.var_ - nb.epsilon_).clip(0) / black**2
noise = np.random.default_rng(0).standard_normal(mean.shape)
figure, axes = plt.subplots(2, 10, figsize=(11, 2.6), layout="constrained")
drawn = [*(mean + variance * noise), *(mean + np.sqrt(variance) * noise)]
for ax, image in zip(axes.ravel(), drawn, strict=True):
    ax.imshow(image.reshape(side, side), cmap="gray_r", vmin=0, vmax=1)
    ax.set(xticks=[], yticks=[])
axes[0, 0].set_ylabel("normal(mu, var)")
axes[1, 0].set_ylabel("normal(mu, sd)")
