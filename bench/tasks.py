"""What is timed: every suite yields tasks, each with its peers and the ratios to reach."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr
from sklearn import decomposition, discriminant_analysis, linear_model, naive_bayes
from sklearn.decomposition import IncrementalPCA
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV

import streamgda
from bench import data, peers
from bench.measure import Call
from streamgda import ClassMoments
from streamgda.kernels.vectors import SHAPE


@dataclass(frozen=True)
class Task:
    """A call of streamgda, what peers do in its place, and the ratios to reach."""

    title: str
    ours: Call
    peers: dict[str, Call]
    targets: dict[str, float] = field(default_factory=dict)


Tasks = Iterator[Task]


def moments() -> Tasks:
    """Moments of arrays in memory beside BLAS, which neither centres nor knows classes."""
    name, X, y, _, _ = data.mnist()
    bytes_target = 1 / 0.3 if SHAPE.name == "avx512vnni" else 2
    for dtype, target in (("uint8", bytes_target), ("float32", 1), ("float64", 1)):
        rows = X.astype(dtype)
        floats = X.astype("float32") if dtype == "uint8" else rows
        title, ours = f"{name} {dtype}, full, moments", lambda: ClassMoments().update(rows, y)
        yield Task(title, ours, peers.syrk(floats), {"": target})
    for n, d, kind, dtype, target in (
        (500_000, 64, "full", "float32", 1 / 1.3),
        (500_000, 64, "full", "float64", 1 / 1.3),
        (200_000, 2048, "tied", "float32", 1 / 1.2),
    ):
        X, y = data.rows(n, d, 10, dtype)
        title = f"{n:,} x {d:,} {dtype}, {kind}, moments"
        ours = lambda: ClassMoments(kind).update(X, y)
        yield Task(title, ours, peers.syrk(X), {"": target})
    X, y = data.rows(2_000_000, 8, 10, "float64")
    title = "2,000,000 x 8 float64, full, moments"
    yield Task(title, lambda: ClassMoments().update(X, y), peers.queries(X, y), {"": 1})


def order() -> Tasks:
    """Moments of rows whose labels are sorted or skewed beside random order."""
    for n, d in ((2_000_000, 8), (200_000, 128)):
        X, y = data.rows(n, d, 10, "float64")
        usual = lambda: ClassMoments().update(X, y)
        rare = (np.arange(n) % 1000 == 0).astype(np.int64)
        for what, labels in (("sorted labels", np.sort(y)), ("a rare class", rare)):
            title = f"{n:,} x {d} float64, {what}, moments"
            ours = lambda labels=labels: ClassMoments().update(X, labels)
            yield Task(title, ours, {"labels in random order": usual}, {"": 1 / 1.3})


def fit() -> Tasks:
    """Fitted models beside scikit-learn, which gets float64."""
    name, X, y, _, _ = data.mnist()
    real = X.astype(np.float64)
    qda = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2)
    lda = streamgda.LinearDiscriminantAnalysis("lsqr", shrinkage=1e-3)
    wanted = {"scikit-learn": 15.0}, {"scikit-learn": 7.0}, {"scikit-learn": 14.0}
    others = peers.sklearn_qda(real, y, regularised=True)
    yield Task(f"{name} uint8, QDA fit", lambda: qda.fit(X, y), others, wanted[0])
    yield Task(
        f"{name} uint8, LDA fit", lambda: lda.fit(X, y), peers.sklearn_lda(real, y), wanted[1]
    )
    few, labels = data.rows(2_000_000, 8, 10, "float64")
    title, plain = "2,000,000 x 8 float64, 10 classes", streamgda.QuadraticDiscriminantAnalysis()
    others = peers.sklearn_qda(few, labels, regularised=False)
    yield Task(f"{title}, QDA fit", lambda: plain.fit(few, labels), others, wanted[2])
    nb, others = streamgda.GaussianNB(), peers.dask_ml(few, labels)
    others["scikit-learn GaussianNB"] = lambda: naive_bayes.GaussianNB().fit(few, labels)
    yield Task(f"{title}, GaussianNB fit", lambda: nb.fit(few, labels), others)


def score() -> Tasks:
    """Predictions beside those of scikit-learn's models."""
    name, X, y, test, _ = data.mnist()
    ours = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
    kind = discriminant_analysis.QuadraticDiscriminantAnalysis
    theirs = kind(solver="eigen", shrinkage=0.1).fit(X[::6].astype(np.float64), y[::6])
    for dtype, target in (("float64", 3.5), ("float32", 6.0)):
        rows = test.astype(dtype)
        title = f"10,000 x 784 {dtype} ({name}), 10 classes, QDA predict"
        others = {"scikit-learn QDA": lambda rows=rows: theirs.predict(rows)}
        yield Task(title, lambda rows=rows: ours.predict(rows), others, {"": target})
    X, y = data.rows(2_000_000, 8, 10, "float64")
    for title, mine, other, targets in (
        ("QDA", streamgda.QuadraticDiscriminantAnalysis(), kind(), (40, 7)),
        ("GaussianNB", streamgda.GaussianNB(), naive_bayes.GaussianNB(), (20, None)),
        (
            "LDA",
            streamgda.LinearDiscriminantAnalysis(),
            discriminant_analysis.LinearDiscriminantAnalysis(),
            (2.5, None),
        ),
    ):
        mine.fit(X, y)
        other.fit(X, y)
        if not np.array_equal(mine.predict(X[:1000]), other.predict(X[:1000])):
            raise AssertionError(f"{title}: streamgda and scikit-learn do not agree")
        for method, target in zip(("predict", "predict_proba"), targets, strict=True):
            yield Task(
                f"2,000,000 x 8 float64, 10 classes, {title} {method}",
                lambda m=mine, f=method: getattr(m, f)(X),
                {f"scikit-learn {title}": lambda m=other, f=method: getattr(m, f)(X)},
                {"": target} if target else {},
            )


def stream() -> Tasks:
    """Rows that arrive in batches, which every peer gets that can learn from batches."""

    def learn(model: Any, batches: list[tuple[np.ndarray, np.ndarray]]) -> None:
        classes = np.arange(10)
        for rows, labels in batches:
            model.partial_fit(rows, labels, classes=classes)

    def cut(X: np.ndarray, y: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
        return [(X[i : i + size], y[i : i + size]) for i in range(0, len(y), size)]

    for size, n, target in ((1000, 200_000, 20.0), (100, 50_000, None), (1, 2000, None)):
        X, y = data.rows(n, 20, 10, "float64")
        batches = cut(X, y, size)
        name = "scikit-learn GaussianNB.partial_fit"
        others = {name: lambda b=batches: learn(naive_bayes.GaussianNB(), b)}
        yield Task(
            f"{n:,} x 20 float64 in batches of {size:,}, GaussianNB.partial_fit",
            lambda b=batches: learn(streamgda.GaussianNB(), b),
            others | (peers.river_rows(batches) if size == 1 else {}),
            {"scikit-learn": target} if target else {},
        )
    X, y = data.rows(200_000, 20, 10, "float64")
    batches = cut((X > 0).astype(np.float64), y, 1000)
    yield Task(
        "200,000 x 20 zeros and ones in batches of 1,000, BernoulliNB.partial_fit",
        lambda: learn(streamgda.BernoulliNB(), batches),
        {"scikit-learn BernoulliNB.partial_fit": lambda: learn(naive_bayes.BernoulliNB(), batches)}
        | peers.river_batches(batches),
    )
    X, _ = data.rows(200_000, 128, 10, "float64")

    def components(model: Any) -> Any:
        for start in range(0, len(X), 10_000):
            model.partial_fit(X[start : start + 10_000])
        return model.components_

    yield Task(
        "200,000 x 128 float64 in batches of 10,000, PCA.partial_fit, 10 components",
        lambda: components(streamgda.PCA(10)),
        {"scikit-learn IncrementalPCA.partial_fit": lambda: components(IncrementalPCA(10))},
    )


def heads() -> Tasks:
    """Other models of the same moments, and choice among models."""
    X, y = data.rows(200_000, 128, 10, "float64")
    exact = decomposition.PCA(10, svd_solver="covariance_eigh")
    yield Task(
        "200,000 x 128 float64, PCA fit, 10 components",
        lambda: streamgda.PCA(10).fit(X),
        {"scikit-learn PCA (covariance_eigh)": lambda: exact.fit(X)},
    )
    ridge = linear_model.RidgeClassifier(solver="cholesky")
    yield Task(
        "200,000 x 128 float64, 10 classes, RidgeClassifier fit",
        lambda: streamgda.RidgeClassifier().fit(X, y),
        {"scikit-learn RidgeClassifier (cholesky)": lambda: ridge.fit(X, y)},
    )
    X, y = data.rows(50_000, 32, 10, "float64")
    grid = {"shrinkage": np.geomspace(1e-3, 0.9, 10).tolist()}
    peer = discriminant_analysis.QuadraticDiscriminantAnalysis(solver="eigen")
    yield Task(
        "50,000 x 32 float64, 10 classes, choice among 10 QDA models, 5 folds",
        lambda: streamgda.GaussianDiscriminantCV(grid, cv=5).fit(X, y),
        {"scikit-learn GridSearchCV": lambda: GridSearchCV(peer, grid, cv=5, n_jobs=2).fit(X, y)},
    )

    X, cells = data.rows(100_000, 16, 50, "float64")
    y, soft = cells // 5, GaussianMixture(5, random_state=0)
    for n_iter in (0, 5):
        mda = streamgda.MixtureDiscriminantAnalysis(5, n_iter=n_iter)
        yield Task(
            f"100,000 x 16 float64, 10 classes of 5 Gaussians, mixtures fit, n_iter={n_iter}",
            lambda mda=mda: mda.fit(X, y),
            {"scikit-learn GaussianMixture": lambda: [soft.fit(X[y == k]) for k in range(10)]},
            {"": 1},
        )


def stores() -> Tasks:
    """Stores of zarr and tables beside the same libraries alone."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory() as folder:
        X, y = data.rows(4_000_000, 16, 10, "float32")
        path = f"{folder}/rows.zarr"
        group = zarr.create_group(path)
        group.create_array("X", data=X, chunks=(65_536, 16))
        group.create_array("y", data=y, chunks=(65_536,))
        rows, labels = streamgda.open_store(path)
        qda = streamgda.QuadraticDiscriminantAnalysis()
        in_memory = lambda: (rows[:], labels[:], qda.fit(X, y))
        title = "4,000,000 x 16 float32 in zarr"
        both = "reading, then fitting in memory"
        yield Task(f"{title}, QDA fit", lambda: qda.fit(rows, labels), {both: in_memory}, {"": 0.8})
        X_lazy, y_lazy = (da.from_zarr(f"{path}/{name}") for name in "Xy")
        ours = lambda: qda.fit(X_lazy, y_lazy)
        yield Task(f"{title}, QDA fit by dask", ours, {both: in_memory})
        lda, new = streamgda.LinearDiscriminantAnalysis("lsqr").fit(X, y), count()
        ours = lambda: lda.predict(rows, out=f"{folder}/{next(new)}.zarr")
        apart = lambda: zarr.create_array(
            f"{folder}/{next(new)}.zarr", data=lda.predict(rows[:]), chunks=(65_536,)
        )
        yield Task(f"{title}, LDA predict into zarr", ours, {"reading, predicting, writing": apart})

        X, y = data.rows(1_000_000, 16, 10, "float64")
        file = Path(folder) / "rows.parquet"
        pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(16)} | {"y": y}), file)
        X_file, y_file = streamgda.open_store(file, label="y")

        def by_batches() -> None:
            state = ClassMoments()
            for batch in ds.dataset(file).to_batches():
                *columns, label = (column.to_numpy() for column in batch.columns)
                state.update(np.column_stack(columns), label)

        yield Task(
            "1,000,000 x 16 float64 in Parquet, moments",
            lambda: streamgda.accumulate(X_file, y_file),
            {"pyarrow batches and update": by_batches},
            {"": 0.8},
        )


def startup() -> Tasks:
    """The first fit of a fresh process, whose kernels were compiled before."""
    code = "import numpy as np; X = np.random.rand(1000, 20); y = np.arange(1000) % 3; import {0}"
    fits = {
        "ours": "streamgda; streamgda.QuadraticDiscriminantAnalysis().fit(X, y)",
        "theirs": (
            "sklearn.discriminant_analysis as s; s.QuadraticDiscriminantAnalysis().fit(X, y)"
        ),
    }
    run = {
        name: lambda what=what: subprocess.run(
            [sys.executable, "-c", code.format(what)], check=True
        )
        for name, what in fits.items()
    }
    title = "first fit in a fresh process"
    yield Task(title, run["ours"], {"scikit-learn QDA": run["theirs"]})


SUITES: dict[str, Callable[[], Tasks]] = {
    suite.__name__: suite for suite in (moments, order, fit, score, stream, heads, stores, startup)
}
