"""Suite `choice`: the default candidates of a search against the best of scikit-learn's searches.

Each set is split into training and test rows several times. Ours is `GaussianDiscriminantCV()`;
theirs are `GridSearchCV` over LDA, QDA and naive Bayes with their usual parameters, of which the
table shows the one with the best mean accuracy on the test rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.naive_bayes import GaussianNB

from bench.measure import Plan
from streamgda import GaussianDiscriminantCV

Rows = tuple[np.ndarray, np.ndarray]
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


@dataclass
class Choice:
    """Mean accuracy on test rows of the models that two searches choose, and their seconds."""

    data: str
    rows: str
    candidates: int
    ours: float
    theirs: float
    best: str
    seconds: float
    their_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Choice]:
    sets = {name: SETS[name] for name in ("iris", "wine")} if plan.quick else SETS
    for name, make in sets.items():
        yield compare(name, *make(), n_splits=2 if plan.quick else 10)


def compare(name: str, X: np.ndarray, y: np.ndarray, n_splits: int) -> Choice:
    """Return the mean accuracies over stratified splits, three tenths of the rows for the test."""
    ours: list[float] = []
    theirs: dict[str, list[float]] = {kind: [] for kind in THEIRS}
    candidates, seconds, their_seconds = 0, 0.0, 0.0
    for train, test in StratifiedShuffleSplit(n_splits, test_size=0.3, random_state=0).split(X, y):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # collinear features, and candidates that fail
            started = time.perf_counter()
            search = GaussianDiscriminantCV().fit(X[train], y[train])
            seconds += time.perf_counter() - started
            candidates = len(search.cv_results_["params"])
            ours.append(search.score(X[test], y[test]))
            started = time.perf_counter()
            for kind, (estimator, grid) in THEIRS.items():
                theirs[kind].append(_score(GridSearchCV(estimator, grid), X, y, train, test))
            their_seconds += time.perf_counter() - started
    means = {kind: float(np.mean(scores)) for kind, scores in theirs.items()}
    best = max(means, key=means.__getitem__)
    rows = f"{len(X):,} x {X.shape[1]}, {np.unique(y).size} classes"
    each = seconds / n_splits, their_seconds / n_splits
    return Choice(name, rows, candidates, float(np.mean(ours)), means[best], best, *each)


def _score(search: Any, X: np.ndarray, y: np.ndarray, train: Any, test: Any) -> float:
    try:
        return float(search.fit(X[train], y[train]).score(X[test], y[test]))
    except ValueError:  # all fits failed
        return 0.0


# --- Sets with scales, counts and categories like those of well-known tables ----------------------


def one_hot(rng: np.random.Generator, codes: np.ndarray, size: int) -> np.ndarray:
    return np.eye(size)[np.clip(codes, 0, size - 1)]


def adult(n: int = 4000) -> Rows:
    """Like adult: ages and hours, weights of 1e5, gains that are mostly zero, and categories."""
    rng = np.random.default_rng(1)
    age, school = rng.gamma(9, 4.3, n) + 17, np.clip(rng.normal(10, 2.6, n).round(), 1, 16)
    hours = np.clip(rng.normal(40, 12, n).round(), 1, 99)
    married = rng.random(n) < 1 / (1 + np.exp(-(age - 36) / 10))
    job = np.clip((school / 3 + rng.normal(0, 1.2, n)).round().astype(int), 0, 6)
    logit = 0.35 * (school - 11) + 2.2 * (married - 0.6) + 0.03 * (hours - 40) - 1.2
    y = rng.random(n) < 1 / (1 + np.exp(-logit))
    gain = np.where(rng.random(n) < 0.04 + 0.17 * y, rng.lognormal(8.5, 1.0, n).round(), 0)
    loss = np.where(rng.random(n) < 0.03 + 0.06 * y, rng.normal(1850, 300, n).round(), 0)
    numbers = [age, rng.lognormal(12.1, 0.5, n), school, gain, loss, hours]
    kinds = [one_hot(rng, married.astype(int), 2), one_hot(rng, job, 7)]
    kinds.append(one_hot(rng, rng.geometric(0.6, n) - 1, 5))
    return np.column_stack([*numbers, *kinds]), y.astype(int)


def covertype(n: int = 5000) -> Rows:
    """Like covertype: heights and distances to 1e4, and rare categories of area and of soil."""
    rng = np.random.default_rng(2)
    y = rng.choice(7, n, p=[0.36, 0.49, 0.06, 0.01, 0.02, 0.03, 0.03])
    height = np.array([3128, 2920, 2394, 2224, 2787, 2419, 3361])[y] + rng.normal(0, 1, n) * 150
    aspect, slope = rng.uniform(0, 360, n), rng.gamma(4, 3.5, n) + 3 * np.isin(y, [2, 3, 5])
    water = rng.exponential(np.array([270, 280, 210, 107, 212, 160, 357])[y])
    above = 0.2 * water + rng.normal(0, 50, n)
    road = rng.exponential(np.array([2600, 2400, 940, 914, 1350, 1040, 2738])[y])
    fire = rng.exponential(np.array([2010, 2170, 910, 860, 1577, 1055, 2070])[y])
    angle = np.radians(aspect)
    shade = [
        base + scale * slope * np.cos(angle - turned)
        for base, scale, turned in ((220, 2, 0.8), (225, -1, 3), (140, -2, 4))
    ]
    areas = np.array([[1, 0, 1, 0], [1, 0, 1, 0], [0, 0, 0.6, 1], [0, 0, 0, 1.2]])
    areas = np.vstack([areas, [[1, 0, 1, 0], [0, 0, 0.6, 1], [1, 0.2, 0.9, 0]]])
    area = rng.random((n, 4)) + areas[y]
    soil = rng.integers(0, 14, n) + np.array([16, 14, 2, 0, 12, 3, 24])[y]
    numbers = [height, aspect, slope, water, above, road, fire, *shade]
    kinds = [one_hot(rng, area.argmax(axis=1), 4), one_hot(rng, soil, 40)]
    return np.column_stack([*numbers, *kinds]), y


def page_blocks(n: int = 4000) -> Rows:
    """Like page blocks: nine tenths of one class, and skewed counts from 1e-2 to 1e4."""
    rng = np.random.default_rng(3)
    y = rng.choice(5, n, p=[0.898, 0.06, 0.01, 0.016, 0.016])
    height = np.maximum(1, rng.lognormal(np.array([2.2, 1.0, 2.9, 3.9, 2.6])[y], 0.4)).round()
    length = np.maximum(1, rng.lognormal(np.array([4.0, 4.3, 4.5, 1.2, 3.4])[y], 0.9)).round()
    filled = rng.beta(np.array([4, 8, 4, 9, 4])[y], np.array([8, 3, 6, 2, 4])[y], n)
    smeared = np.clip(filled + rng.beta(5, 3, n) * (1 - filled), 0, 1)
    black, white = (filled * height * length).round(), (smeared * height * length).round()
    runs = np.maximum(1, black / rng.lognormal(np.array([1.2, 2.5, 1.2, 1.8, 1.4])[y], 0.6)).round()
    X = [height, length, height * length, length / height, filled, smeared, black / runs, black]
    return np.column_stack([*X, white, runs]), y


def wine_quality(n: int = 3000) -> Rows:
    """Like wine quality: eleven correlated features from 1e-3 to 1e2, and marks that overlap."""
    rng = np.random.default_rng(4)
    Z = rng.normal(size=(n, 11)) @ (np.eye(11) + rng.normal(0, 0.35, (11, 11)))
    mark = Z @ rng.normal(0, 0.3, 11) + rng.normal(0, 0.9, n)
    y = np.digitize(mark, np.quantile(mark, [0.006, 0.05, 0.48, 0.85, 0.97]))
    scales = [0.8, 0.1, 0.12, 5, 0.02, 17, 42, 0.003, 0.15, 0.11, 1.2]
    skewed = [3, 5, 8]
    Z[:, skewed] = np.exp(0.7 * Z[:, skewed])
    return Z * scales + [7, 0.3, 0.3, 0, 0, 35, 138, 0.994, 3.2, 0.5, 10.5], y


def collinear(n: int = 600) -> Rows:
    """Correlated features with scales from 1e-3 to 1e4, some of them sums of others."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 4, n)
    mix = np.eye(12) + rng.normal(0, 0.3, (12, 12))
    Z = (rng.normal(size=(n, 12)) + 0.7 * rng.normal(size=(4, 12))[y]) @ mix
    Z = Z * np.geomspace(1e-3, 1e4, 12)
    return np.column_stack([Z, Z[:, 0] + Z[:, 1], Z[:, 3], np.ones(n)]), y


def bundled(load: Callable[..., Any]) -> Callable[[], Rows]:
    return lambda: load(return_X_y=True)


SETS: dict[str, Callable[[], Rows]] = {
    "iris": bundled(datasets.load_iris),
    "wine": bundled(datasets.load_wine),
    "breast cancer": bundled(datasets.load_breast_cancer),
    "digits": bundled(datasets.load_digits),
    "like adult": adult,
    "like covertype": covertype,
    "like page blocks": page_blocks,
    "like wine quality": wine_quality,
    "collinear": collinear,
}
