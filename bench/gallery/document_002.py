"""Document 002: QDA, LDA and naive Bayes on its 500 points."""

from __future__ import annotations

from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from bench.gallery.material import Material
from bench.gallery.page import Item, Section, numbers, percent
from bench.report import Table
from streamgda import GaussianNB, LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from streamgda.plots import plot_decision_boundary

MODELS = {
    "QDA": partial(QuadraticDiscriminantAnalysis, store_covariance=True),
    "LDA": partial(LinearDiscriminantAnalysis, store_covariance=True),
    "naive Bayes": GaussianNB,
}


def section(material: Material) -> Section:
    return Section(
        '"Machine learning, notes 3b: Generative classifiers", 2021 (002)', [models(material)]
    )


def program(name: str, X: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return posteriors and covariances as the document's program computes them."""
    scores, covariances = [], []
    for c in (0, 1):
        own = X[t == c]
        covariance = np.cov(X if name == "LDA" else own, rowvar=False)
        if name == "naive Bayes":
            covariance = np.diag(np.diag(covariance))
        inverse = np.linalg.inv(covariance)
        gap = X - own.mean(axis=0)
        distance = np.einsum("ni,ij,nj->n", gap, inverse, gap)
        scores.append(
            np.log(len(own) / len(X)) + 0.5 * np.log(np.linalg.det(inverse)) - distance / 2
        )
        covariances.append(covariance)
    first = 1 / (1 + np.exp(scores[1] - scores[0]))
    return np.column_stack([first, 1 - first]), covariances


def models(material: Material) -> Item:
    X, t = material.points, material.targets
    figure, axes = plt.subplots(2, 3, figsize=(15, 9), layout="constrained")
    qda = QuadraticDiscriminantAnalysis().fit(X, t)
    panels = iter(axes.ravel())

    def shown(model: Any, title: str, labels: np.ndarray = t, **options: Any) -> None:
        ax = next(panels)
        ax.set_aspect("equal")
        plot_decision_boundary(model, X, labels, ax, s=10, **options)
        ax.set(title=title, xlabel="first", ylabel="second")

    shown(qda, "the data", parts=["points"])
    shown(qda, "QDA: the predicted classes", qda.predict(X), parts=["classes", "points"])
    lines = []
    for name, make in MODELS.items():
        model = make().fit(X, t)
        right = model.score(X, t)
        shown(model, f"{name}: accuracy {percent(right)}")
        posterior, covariances = program(name, X, t)
        predicted = posterior.argmax(axis=1)
        ours = getattr(model, "var_", None)
        values = model.covariance_ if ours is None else ours
        own = values if name != "LDA" else [values, values]
        shapes = [np.diag(S) if np.ndim(S) == 1 else S for S in own]
        lines.append(
            (
                name,
                percent((predicted == t).mean()),
                percent(right),
                str((predicted != model.predict(X)).sum()),
                f"{np.abs(posterior - model.predict_proba(X)).max():.4f}",
                "; ".join(numbers(S[[0, 0, 1], [0, 1, 1]]) for S in covariances),
                "; ".join(numbers(S[[0, 0, 1], [0, 1, 1]]) for S in shapes),
            )
        )
    theirs = LinearDiscriminantAnalysis.from_parameters(
        means=qda.means_, covariance=np.cov(X.T), priors=qda.priors_, classes=qda.classes_
    )
    shown(theirs, "LDA with the covariance of all inputs")
    aspect = np.array([np.sqrt(t_[0] / t_[1]) for t_ in GaussianNB().fit(X, t).var_])
    shares, means = np.bincount(t) / t.size, [X[t == c].mean(axis=0) for c in (0, 1)]
    return Item(
        "Figures of the data, the predictions and the decision boundaries",
        (
            "data",
            "QDA: predictions",
            "QDA: decision boundary",
            "LDA: classes, distributions and boundary",
            "naive Bayes: classes, distributions and boundary",
        ),
        "500 points of two classes: the points by predicted class with the Gaussians of QDA, and "
        "by true class over its decision boundary; the same for LDA, and for naive Bayes, whose "
        "'class distributions are completely circular'.",
        "002-models",
        figure,
        f"The same points: priors {numbers(shares, 3)}, means ({numbers(means[0])}) and "
        f"({numbers(means[1])}) in the document's program and ours. The program divides "
        "covariances by n - 1, we divide by n (its own eq. 7). Its LDA uses the covariance of all "
        "inputs (last picture); the correct one is that within classes (its eq. 10), which we use. "
        "(It imports `numpy`, and then uses `np`.) For two "
        "classes, the boundary has the same direction with either, and for equal priors the same "
        "position; the posteriors differ, and for other priors or more classes the predictions "
        "differ too. The ellipses of naive Bayes have their axes along the features and are not "
        f"circles: the ratios of width to height are {numbers(aspect)}.",
        Table(
            (
                "model",
                "accuracy of the document's program",
                "our accuracy",
                "points predicted differently",
                "largest difference of posteriors",
                "its covariances: xx, xy, yy",
                "our covariances",
            ),
            lines,
        ),
        caption="QDA, LDA and naive Bayes: `plot_decision_boundary(model, X, y)`.",
    )
