"""Suite `select`: many models from one pass, and model selection, against refitting each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn import discriminant_analysis as sklearn
from sklearn import linear_model
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut

import streamgda
from bench import data, limits
from bench.measure import Plan, Row, compare, faster, of_its_time

CALLS = (
    "each of the 500 covariances (32 x 32) is inverted separately, and most of that time is the "
    "overhead of calls of LAPACK and NumPy"
)
SCORES = "50 models are computed as well, and distances of 32 features are far from the peak rate"
GROUPS = "the models of 120 training sets are computed from their moments, 10 matrices each"
SHRINKAGES = np.geomspace(1e-3, 0.9, 50)


def run(plan: Plan) -> Iterator[Row]:
    n, amounts = plan.rows(200_000), SHRINKAGES[::25] if plan.quick else SHRINKAGES
    title = f"{n:,} x 32 float64, 10 classes"
    X, y = data.rows(n, 32, 10, "float64")
    yield from compare(
        plan,
        f"{title}, one pass and {len(amounts)} QDA models",
        limits.fit(X, y, 10, "full"),
        lambda: from_one_pass(X, y, amounts),
        {f"scikit-learn QDA (eigen), {len(amounts)} fits": lambda: fit_each(X, y, amounts)},
        {"scikit-learn": faster(50, CALLS)},
    )
    n = plan.rows(50_000)
    title, X, y = f"{n:,} x 32 float64, 10 classes", X[:n], y[:n]
    grid = {"shrinkage": amounts[::5].tolist()}
    yield from compare(
        plan,
        f"{title}, choice among {len(amounts[::5])} QDA models, 5 folds",
        limits.score(X, 32, 100, "full"),
        lambda: streamgda.GaussianDiscriminantCV(grid).fit(X, y),
        {"scikit-learn GridSearchCV": lambda: search(grid).fit(X, y)},
        {"scikit-learn": faster(10, SCORES)},
    )
    n = plan.rows(20_000)
    n_groups, title, X, y = 120, f"{n:,} x 32 float64, 10 classes", X[:n], y[:n]
    sites, grid = np.arange(n) * n_groups // n, {"shrinkage": [0.01, 0.1, 0.3]}
    leave_out = {"cv": LeaveOneGroupOut()}
    yield from compare(
        plan,
        f"{title}, choice among 3 QDA models, each of {n_groups} groups left out",
        limits.score(X, 32, 30, "full"),
        lambda: streamgda.GaussianDiscriminantCV(grid, **leave_out).fit(X, y, groups=sites),
        {
            "scikit-learn GridSearchCV": lambda: GridSearchCV(qda(), grid, **leave_out).fit(
                X, y, groups=sites
            ),
            "streamgda, balanced accuracy": lambda: streamgda.GaussianDiscriminantCV(
                grid, **leave_out, scoring="balanced_accuracy"
            ).fit(X, y, groups=sites),
        },
        {"scikit-learn": faster(5, GROUPS)},
    )
    n = plan.rows(5_000_000)
    X, y = data.rows(n, 9, 7, "float64")
    some = max(1000, n // 100)  # too many models for scikit-learn to fit to all rows
    yield from compare(
        plan,
        f"{n:,} x 9 float64, 7 classes, choice among 42 models, 5 folds",
        limits.score(X, 9, 42 * 7, "full"),
        lambda: streamgda.GaussianDiscriminantCV().fit(X, y),
        {
            f"scikit-learn GridSearchCV of {len(amounts[:42])} models, {some:,} rows": lambda: (
                search({"shrinkage": amounts[:42].tolist()}).fit(X[:some], y[:some])
            ),
            "streamgda, scores of a sample of 1 %": lambda: streamgda.GaussianDiscriminantCV(
                score_sample=0.01
            ).fit(X, y),
        },
    )
    yield from groups(plan)
    yield from penalties(plan)


def penalties(plan: Plan) -> Iterator[Row]:
    """Time the choice of a penalty of ridge regression by folds."""
    n = plan.rows(60_000)
    X, labels = data.rows(n, 40, 10, "float64")
    y = X @ np.random.default_rng(2).normal(size=40) + labels
    alphas, grid = np.geomspace(1e-3, 1e4, 8), {"alpha": np.geomspace(1e-3, 1e4, 8)}
    yield from compare(
        plan,
        f"{n:,} x 40 float64, Ridge, choice among 8 penalties, 5 folds",
        limits.fit(X, np.zeros(n, int), 1, "full"),
        lambda: streamgda.Ridge(alphas=alphas).fit(X, y),
        {
            "scikit-learn GridSearchCV": lambda: GridSearchCV(linear_model.Ridge(), grid).fit(X, y),
            "scikit-learn RidgeCV, leave-one-out": lambda: linear_model.RidgeCV(alphas).fit(X, y),
        },
    )


def groups(plan: Plan) -> Iterator[Row]:
    """Time passes with groups and passes over as many classes, which hold the same moments."""
    for most, d, covariance_type in (
        (2_000_000, 8, "full"),
        (400_000, 64, "full"),
        (400_000, 64, "diag"),
    ):
        n = plan.rows(most)
        X, y = data.rows(n, d, 10, "float64")
        sites = np.random.default_rng(1).integers(0, 100, n)
        cells = 10 * sites + y
        yield from compare(
            plan,
            f"{n:,} x {d} float64, {covariance_type} moments of 100 groups x 10 classes",
            limits.fit(X, y, 1000, covariance_type),
            lambda X=X, y=y, sites=sites, kind=covariance_type: streamgda.accumulate(
                X, y, groups=sites, covariance_type=kind
            ),
            {
                "streamgda, 1000 classes": lambda X=X, y=cells, kind=covariance_type: (
                    streamgda.accumulate(X, y, covariance_type=kind)
                )
            },
            {"streamgda": of_its_time(1.3)},
        )


def from_one_pass(X: np.ndarray, y: np.ndarray, amounts: np.ndarray) -> list[Any]:
    moments = streamgda.accumulate(X, y)
    make = streamgda.QuadraticDiscriminantAnalysis.from_moments
    return [make(moments, solver="eigen", shrinkage=amount) for amount in amounts]


def fit_each(X: np.ndarray, y: np.ndarray, amounts: np.ndarray) -> list[Any]:
    return [qda(shrinkage=amount).fit(X, y) for amount in amounts]


def search(grid: dict[str, list[float]]) -> GridSearchCV:
    return GridSearchCV(qda(), grid, n_jobs=None)


def qda(**params: Any) -> sklearn.QuadraticDiscriminantAnalysis:
    return sklearn.QuadraticDiscriminantAnalysis(solver="eigen", **params)
