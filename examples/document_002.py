"""Document 002: QDA, LDA and naive Bayes in the plane
======================================================

The figures of "Machine learning, notes 3b: Generative classifiers" (2021), next to ours: 500 points
of two classes, by predicted and by true class, with the Gaussians and the boundary of three models.
The points are the document's where its file is at hand, beside the folder that ``STREAMGDA_MNIST``
names, and otherwise drawn from Gaussians of the same means and covariances.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from streamgda import (
    ClassMoments,
    GaussianNB,
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from streamgda.plots import plot_decision_boundary

path = Path(os.environ.get("STREAMGDA_MNIST", ".")).parent / "data" / "two-gaussians.csv"
if path.exists():
    points = np.loadtxt(path, delimiter=",", skiprows=1)
    X, t = points[:, :2], points[:, 2].astype(int)
else:
    moments = ClassMoments.from_statistics(
        *([0, 1], [250, 250], [[-0.67, -0.78], [-0.03, 0.30]]),
        covariances=[[[1.07, 0.49], [0.49, 0.72]], [[1.57, -0.65], [-0.65, 0.83]]],
    )
    X, t = QuadraticDiscriminantAnalysis.from_moments(moments).sample(500, random_state=0)

# %%
# The document's program
# ----------------------
#
# It divides covariances by n - 1, we divide by n, as its own equation 7 does. Its LDA uses the
# covariance of all inputs; the right one is that within classes (its equation 10), which we use.
# (It imports ``numpy``, and then uses ``np``.)


def program(name: str) -> np.ndarray:
    """Return the posteriors that the document's program computes."""
    scores = []
    for c in (0, 1):
        covariance = np.cov(X if name == "LDA" else X[t == c], rowvar=False)
        if name == "naive Bayes":
            covariance = np.diag(np.diag(covariance))
        inverse = np.linalg.inv(covariance)
        offsets = X - X[t == c].mean(axis=0)
        distances = np.einsum("ni,ij,nj->n", offsets, inverse, offsets)
        scores.append(np.log((t == c).mean()) + np.linalg.slogdet(inverse)[1] / 2 - distances / 2)
    first = 1 / (1 + np.exp(scores[1] - scores[0]))
    return np.column_stack([first, 1 - first])


qda = QuadraticDiscriminantAnalysis().fit(X, t)
models = {"QDA": qda, "LDA": LinearDiscriminantAnalysis().fit(X, t), "naive Bayes": GaussianNB()}
models["naive Bayes"].fit(X, t)
differences = {}
for name, model in models.items():
    theirs, ours = program(name), model.predict_proba(X)
    differences[name] = np.abs(theirs - ours).max()
    others = (theirs.argmax(axis=1) != model.predict(X)).sum()
    print(f"{name}: {others} points predicted otherwise, posteriors within {differences[name]:.4f}")

# %%
# The data, the predictions and the boundaries
# --------------------------------------------
#
# For two classes the boundary of LDA has the same direction with either covariance, and for equal
# priors the same position. The posteriors differ, and for other priors or more classes the
# predictions differ too. The last picture is LDA with the covariance of all inputs.

every = [np.cov(X.T, ddof=0)] * 2
moments = ClassMoments.from_statistics([0, 1], np.bincount(t), qda.means_, covariances=every)
figure, axes = plt.subplots(2, 3, figsize=(15, 8), layout="constrained")
data, predicted, *others = axes.ravel()
plot_decision_boundary(qda, X, t, data, parts=["points"])
data.set_title("the data")
plot_decision_boundary(qda, X, qda.predict(X), predicted, parts=["classes", "points"])
predicted.set_title("QDA: the predicted classes")
for ax, (name, model) in zip(others, models.items(), strict=False):
    plot_decision_boundary(model, X, t, ax)
    ax.set_title(f"{name}: accuracy {model.score(X, t):.1%}")
plot_decision_boundary(LinearDiscriminantAnalysis.from_moments(moments), X, t, others[-1])
others[-1].set_title("LDA with the covariance of all inputs")

# %%
# The document says that the class distributions of naive Bayes are 'completely circular'. Their
# axes are along the features, and they are no circles:

variances = models["naive Bayes"].var_
print("width to height of the ellipses:", np.sqrt(variances[:, 0] / variances[:, 1]).round(2))
