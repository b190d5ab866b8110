"""Suite `fit`: arrays in memory to fitted models, and to moments alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import blas
from sklearn import discriminant_analysis as peers
from sklearn.naive_bayes import GaussianNB as PeerNB

import streamgda
from bench import data
from bench.measure import Row, compare
from streamgda import ClassMoments


def run(repeats: int) -> Iterator[Row]:
    yield from moments(repeats)
    yield from models(repeats)


def moments(repeats: int) -> Iterator[Row]:
    """Moments alone, against BLAS on data that is already cast and not centred."""
    name, X, y, _, _ = data.mnist()
    for kind in ("uint8", "float32", "float64"):
        rows = X if kind == "uint8" else X.astype(kind)
        cast = rows if kind != "uint8" else X.astype("float32")
        name_of, syrk = ("dsyrk", blas.dsyrk) if kind == "float64" else ("ssyrk", blas.ssyrk)
        for structure in ("full", "tied"):
            yield from compare(
                "fit",
                f"{name} {kind}, {structure}, moments",
                lambda rows=rows, s=structure: ClassMoments(s).update(rows, y),
                {f"OpenBLAS {name_of}": lambda c=cast, f=syrk: f(1.0, c.T, lower=1)},
                repeats,
            )
    for n, d in ((500_000, 64), (2_000_000, 8)):
        for kind in ("float32", "float64"):
            X, y = data.rows(n, d, 10, kind)
            name_of, syrk = ("dsyrk", blas.dsyrk) if kind == "float64" else ("ssyrk", blas.ssyrk)
            yield from compare(
                "fit",
                f"{n:,} x {d} {kind}, full, moments",
                lambda X=X, y=y: ClassMoments().update(X, y),
                {f"OpenBLAS {name_of}": lambda X=X, f=syrk: f(1.0, X.T, lower=1)},
                repeats,
            )


def models(repeats: int) -> Iterator[Row]:
    """Array in, fitted model out."""
    name, X, y, _, _ = data.mnist()
    real = X.astype(np.float64)
    few = max(1, repeats // 2)
    qda = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2)
    yield from compare(
        "fit",
        f"{name}, QDA fit",
        lambda: quietly(qda, X, y),
        {
            f"scikit-learn QDA ({solver})": lambda s=solver: peers.QuadraticDiscriminantAnalysis(
                solver=s, **({"reg_param": 0.1} if s == "svd" else {"shrinkage": 0.1})
            ).fit(real, y)
            for solver in ("svd", "eigen")
        },
        few,
    )
    yield from compare(
        "fit",
        f"{name}, LDA fit",
        lambda: quietly(streamgda.LinearDiscriminantAnalysis(shrinkage=1e-3), X, y),
        {
            f"scikit-learn LDA ({solver})": lambda s=solver: peers.LinearDiscriminantAnalysis(
                solver=s, shrinkage=None if s == "svd" else 1e-3
            ).fit(real, y)
            for solver in ("svd", "lsqr", "eigen")
        },
        few,
    )
    yield from compare(
        "fit",
        f"{name}, GaussianNB fit",
        lambda: quietly(streamgda.GaussianNB(), X, y),
        {"scikit-learn GaussianNB": lambda: PeerNB().fit(real, y)},
        repeats,
    )
    for n, d in ((500_000, 64), (2_000_000, 8)):
        rows, labels = data.rows(n, d, 10, "float64")
        yield from compare(
            "fit",
            f"{n:,} x {d} float64, QDA fit",
            lambda X=rows, y=labels: streamgda.QuadraticDiscriminantAnalysis().fit(X, y),
            {
                "scikit-learn QDA": lambda X=rows, y=labels: (
                    peers.QuadraticDiscriminantAnalysis().fit(X, y)
                )
            },
            repeats,
        )
        yield from compare(
            "fit",
            f"{n:,} x {d} float64, GaussianNB fit",
            lambda X=rows, y=labels: streamgda.GaussianNB().fit(X, y),
            {"scikit-learn GaussianNB": lambda X=rows, y=labels: PeerNB().fit(X, y)},
            repeats,
        )


def quietly(estimator: object, X: np.ndarray, y: np.ndarray) -> None:
    """Fit without the word on constant pixels."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", streamgda.errors.ConstantFeatureWarning)
        estimator.fit(X, y)
