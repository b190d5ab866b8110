"""Suite `fit`: moments and fitted models of arrays in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import blas
from sklearn import discriminant_analysis as sklearn
from sklearn.naive_bayes import BernoulliNB as SklearnBernoulliNB
from sklearn.naive_bayes import GaussianNB as SklearnNB

import streamgda
from bench import data, limits
from bench.measure import Call, Plan, Row, compare, faster, of_its_time
from bench.peers import dask_ml, one_dal
from streamgda import ClassMoments
from streamgda.kernels.processors import SHAPE

READ = "reading X on all threads"
# Target fractions of the time of BLAS for moments of MNIST.
MNIST_SHARES = {
    ("uint8", "full"): 0.3 if SHAPE.name == "avx512vnni" else 0.5,
    ("uint8", "tied"): 0.35,
    ("float32", "full"): 1.1,
    ("float64", "full"): 1.1,
}
BESIDE_PRODUCTS = (
    "pixels that are zero in a whole block are skipped already; besides the products, the rows are "
    "packed, and the products of each block are added to the matrix"
)
ALGEBRA = (
    "half of the time or more goes to the moments; the rest is rounding them, and factorising and "
    "inverting 717 x 717 matrices in LAPACK"
)
PRODUCTS = "the 44 products of a row and its sums are loaded and stored again for each row"


SMALL_STATES = (
    "small moments are summed in float64 for rows of any type, at half the rate of float32"
)


INTEGERS = "integer labels"


def run(plan: Plan) -> Iterator[Row]:
    yield from mnist_moments(plan)
    yield from moments(plan)
    yield from labels(plan)
    yield from mnist_models(plan)
    yield from models(plan)


def mnist_moments(plan: Plan) -> Iterator[Row]:
    """Compare moments with BLAS on data that is already cast and not centred."""
    name, X, y, _, _ = data.mnist(plan.quick)
    for kind in ("uint8", "float32", "float64"):
        rows = X if kind == "uint8" else X.astype(kind)
        cast = rows if kind != "uint8" else X.astype("float32")
        for structure in ("full", "tied"):
            share = MNIST_SHARES.get((kind, structure))
            yield from compare(
                plan,
                f"{name} {kind}, {structure}, moments",
                limits.moments(rows, y, 10, structure),
                lambda rows=rows, s=structure: ClassMoments(s).update(rows, y),
                {**syrk(cast), **one_dal(cast)},
                {"OpenBLAS": of_its_time(share, BESIDE_PRODUCTS)} if share else None,
            )


def moments(plan: Plan) -> Iterator[Row]:
    """Compare moments of few features, of many, and of many classes."""
    target = {"OpenBLAS": of_its_time(1.3, SMALL_STATES)}
    for n, d, n_classes, structure, kinds, targets in (
        (500_000, 64, 10, "full", ("float32", "float64"), target),
        (2_000_000, 8, 10, "full", ("float32", "float64"), None),
        (100_000, 512, 1000, "tied", ("float32",), None),
        (200_000, 2048, 10, "tied", ("float32",), None),
    ):
        for kind in kinds:
            X, y = data.rows(plan.rows(n), d, n_classes, kind)
            yield from compare(
                plan,
                f"{len(y):,} x {d:,} {kind}, {n_classes:,} classes, {structure}, moments",
                limits.moments(X, y, n_classes, structure),
                lambda X=X, y=y, s=structure: ClassMoments(s).update(X, y),
                {**syrk(X), **one_dal(X), READ: lambda X=X: limits.read(X)},
                targets,
            )


def labels(plan: Plan) -> Iterator[Row]:
    """Compare fits with labels of several kinds with those of integers."""
    n = plan.rows(5_000_000)
    X, codes = data.rows(n, 8, 10, "float64")
    codes = codes.astype(np.int64)
    words = np.array([f"class {k}" for k in range(10)])
    kinds = {
        "strings": words[codes],
        "objects": words.astype(object)[codes],
        "variable-width strings": words[codes].astype(np.dtypes.StringDType()),
    }
    with contextlib.suppress(ImportError):
        import pandas as pd

        categories = pd.Series(pd.Categorical.from_codes(codes, words))
        kinds |= {
            "pandas categories": categories,
            "pandas strings": categories.astype("string[pyarrow]"),
        }
    for name, y in kinds.items():
        yield from compare(
            plan,
            f"{n:,} x 8 float64, labels: {name}, QDA fit",
            limits.fit(X, codes, 10, "full"),
            lambda y=y: streamgda.QuadraticDiscriminantAnalysis().fit(X, y),
            {INTEGERS: lambda: streamgda.QuadraticDiscriminantAnalysis().fit(X, codes)},
            {INTEGERS: of_its_time(2)},
        )


def syrk(X: np.ndarray) -> dict[str, Call]:
    """Return BLAS's product of X with itself, without classes or centring."""
    name, function = ("ssyrk", blas.ssyrk) if X.dtype == np.float32 else ("dsyrk", blas.dsyrk)
    return {f"OpenBLAS {name}": lambda: function(1.0, X.T, lower=1)}


def mnist_models(plan: Plan) -> Iterator[Row]:
    """Compare fitted models of MNIST; scikit-learn gets float64, cast beforehand."""
    name, X, y, _, _ = data.mnist(plan.quick)
    real = X.astype(np.float64)
    yield from compare(
        plan,
        f"{name} uint8, QDA fit",
        limits.fit(X, y, 10, "full"),
        lambda: streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y),
        sklearn_qda(real, y, regularised=True),
        {"scikit-learn": faster(12, ALGEBRA)},
    )
    yield from compare(
        plan,
        f"{name} uint8, LDA fit",
        limits.fit(X, y, 10, "tied"),
        lambda: streamgda.LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3).fit(X, y),
        sklearn_lda(real, y),
        {"scikit-learn": faster(10, ALGEBRA)},
    )
    yield from naive_bayes(plan, f"{name} uint8", X, real, y, {})
    yield from compare(
        plan,
        f"{name} uint8, BernoulliNB fit",
        limits.fit(X, y, 10, "diag"),
        lambda: streamgda.BernoulliNB(binarize=127).fit(X, y),
        {"scikit-learn BernoulliNB": lambda: SklearnBernoulliNB(binarize=127).fit(real, y)},
    )


def models(plan: Plan) -> Iterator[Row]:
    """Compare fitted models of rows with few features."""
    few = {
        "scikit-learn": faster(20, PRODUCTS),
        READ: of_its_time(1.5, PRODUCTS),
    }
    for n, d, kinds, targets in (
        (500_000, 64, ("float32", "float64"), {}),
        (2_000_000, 8, ("float32", "float64"), few),
    ):
        for kind in kinds:
            X, y = data.rows(plan.rows(n), d, 10, kind)
            title = f"{len(y):,} x {d} {kind}, 10 classes"
            if kind == "float64":
                yield from compare(
                    plan,
                    f"{title}, QDA fit",
                    limits.fit(X, y, 10, "full"),
                    lambda X=X, y=y: streamgda.QuadraticDiscriminantAnalysis().fit(X, y),
                    {**sklearn_qda(X, y), READ: lambda X=X: limits.read(X)},
                    targets,
                )
            yield from naive_bayes(plan, title, X, X, y, {"scikit-learn": faster(5)})


def naive_bayes(
    plan: Plan, title: str, X: np.ndarray, theirs: np.ndarray, y: np.ndarray, targets: dict
) -> list[Row]:
    return compare(
        plan,
        f"{title}, GaussianNB fit",
        limits.fit(X, y, 10, "diag"),
        lambda: streamgda.GaussianNB().fit(X, y),
        {"scikit-learn GaussianNB": lambda: SklearnNB().fit(theirs, y), **dask_ml(theirs, y)},
        targets,
    )


def sklearn_qda(X: np.ndarray, y: np.ndarray, regularised: bool = False) -> dict[str, Call]:
    """Return scikit-learn's QDA for each solver, with that solver's regularisation if needed."""
    settings: dict[str, dict[str, Any]] = {"svd": {"reg_param": 0.1}, "eigen": {"shrinkage": 0.1}}
    return {
        f"scikit-learn QDA ({solver})": lambda s=solver, params=params: (
            sklearn.QuadraticDiscriminantAnalysis(solver=s, **(params if regularised else {})).fit(
                X, y
            )
        )
        for solver, params in settings.items()
    }


def sklearn_lda(X: np.ndarray, y: np.ndarray) -> dict[str, Call]:
    """Return scikit-learn's LDA for each solver."""
    return {
        f"scikit-learn LDA ({solver})": lambda s=solver: sklearn.LinearDiscriminantAnalysis(
            solver=s, shrinkage=None if s == "svd" else 1e-3
        ).fit(X, y)
        for solver in ("svd", "lsqr", "eigen")
    }
