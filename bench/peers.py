"""Optional peers, which are imported by the call that is timed: an error becomes their row."""

from __future__ import annotations

from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np
from scipy.linalg import blas
from sklearn import discriminant_analysis

from bench.measure import Call

PACKAGES = ("dask-ml", "river", "duckdb", "polars")


def syrk(X: np.ndarray) -> dict[str, Call]:
    """Return BLAS's product of X with itself, without classes or centring."""
    name, function = ("ssyrk", blas.ssyrk) if X.dtype == np.float32 else ("dsyrk", blas.dsyrk)
    return {f"OpenBLAS {name}": lambda: function(1.0, X.T, lower=1)}


def dask_ml(X: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """Return naive Bayes of dask arrays over the same memory, with the same threads."""
    rows, labels = da.from_array(X, chunks=(-(-len(y) // 8), X.shape[1])), da.from_array(y)

    def fit() -> object:
        from dask_ml.naive_bayes import GaussianNB

        model = GaussianNB().fit(rows, labels.rechunk(rows.chunks[0]))
        return dask.compute(model.theta_, model.sigma_, model.class_prior_)

    return {"dask-ml GaussianNB": fit}


def river_rows(batches: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Call]:
    """Return river's Gaussian naive Bayes, which learns one row at a time only."""
    rows = [
        (dict(enumerate(row)), label)
        for X, y in batches
        for row, label in zip(X.tolist(), y.tolist(), strict=True)
    ]

    def learn() -> object:
        from river.naive_bayes import GaussianNB

        model = GaussianNB()
        for row, label in rows:
            model.learn_one(row, label)
        return model

    return {"river GaussianNB.learn_one": learn}


def river_batches(batches: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, Call]:
    """Return river's Bernoulli naive Bayes, which learns batches of frames, made beforehand."""

    @cache
    def frames() -> list[tuple[Any, Any]]:
        import pandas as pd

        return [(pd.DataFrame(X), pd.Series(y)) for X, y in batches]

    def learn() -> object:
        from river.naive_bayes import BernoulliNB

        model = BernoulliNB()
        for X, y in frames():
            model.learn_many(X, y)
        return model

    return {"river BernoulliNB.learn_many": learn}


def sklearn_qda(X: np.ndarray, y: np.ndarray, regularised: bool) -> dict[str, Call]:
    """Return fits of scikit-learn's QDA by each solver."""
    settings: dict[str, dict[str, Any]] = {"svd": {"reg_param": 0.1}, "eigen": {"shrinkage": 0.1}}
    kind = discriminant_analysis.QuadraticDiscriminantAnalysis
    models = {
        solver: kind(solver=solver, **(params if regularised else {}))
        for solver, params in settings.items()
    }
    return {f"scikit-learn QDA ({s})": lambda m=m: m.fit(X, y) for s, m in models.items()}


def sklearn_lda(X: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """Return fits of scikit-learn's LDA by each solver that shrinks."""
    kind = discriminant_analysis.LinearDiscriminantAnalysis
    models = {solver: kind(solver=solver, shrinkage=1e-3) for solver in ("lsqr", "eigen")}
    return {f"scikit-learn LDA ({s})": lambda m=m: m.fit(X, y) for s, m in models.items()}


def queries(X: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """Return sums, squares and products by class of columns in memory, by SQL and by polars."""
    names = [f"x{j}" for j in range(X.shape[1])]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[: i + 1]]
    columns = {name: X[:, j].copy() for j, name in enumerate(names)} | {"y": y}

    def by_duckdb() -> object:
        import duckdb
        import polars as pl

        frame = pl.DataFrame(columns)  # noqa: F841  The query names it.
        sums = ", ".join([f"sum({a})" for a in names] + [f"sum({a} * {b})" for a, b in pairs])
        return duckdb.sql(f"select y, count(*), {sums} from frame group by y").fetchall()

    def by_polars() -> object:
        import polars as pl

        sums = [pl.col(a).sum().alias(a) for a in names]
        sums += [(pl.col(a) * pl.col(b)).sum().alias(f"{a}{b}") for a, b in pairs]
        return pl.DataFrame(columns).lazy().group_by("y").agg(pl.len(), *sums).collect()

    return {"duckdb, sums of products": by_duckdb, "polars, sums of products": by_polars}
