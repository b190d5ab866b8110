"""Suite `score`: labels and probabilities of arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import scipy.sparse
from sklearn import discriminant_analysis as sklearn
from sklearn.naive_bayes import BernoulliNB as SklearnBernoulliNB
from sklearn.naive_bayes import GaussianNB as SklearnNB

import streamgda
from bench import data, limits
from bench.measure import Plan, Row, compare, faster, of_its_time
from streamgda.kernels.processors import SHAPE

SHARE_OF_PREDICT = 0.8  # target ratio of predict_proba, as a fraction of that of predict
WHERE_TIME_GOES = (
    "besides the distances, rows are packed and scores compared; exponentials and writing the "
    "probabilities row by row take longer than the distances"
)

WIDE = SHAPE.name.startswith("avx512")


def run(plan: Plan) -> Iterator[Row]:
    yield from images(plan)
    yield from few_features(plan)
    yield from widths(plan)
    yield from sparse_rows(plan)
    yield from leave_one_out(plan)


def images(plan: Plan) -> Iterator[Row]:
    """Compare models of many features."""
    name, X, y, test, _ = data.mnist(plan.quick)
    ours = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2).fit(X, y)
    # The number of training rows makes no difference to scoring.
    few = slice(None, None, 1 if plan.quick else 6)
    theirs = sklearn.QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=0.1)
    theirs.fit(X[few].astype(np.float64), y[few])
    varying = int((X[0] != X).any(axis=0).sum())  # constant features are left out
    for kind, times in (("float64", 5 if WIDE else 3.5), ("float32", 10 if WIDE else 7)):
        rows = test.astype(kind)
        yield from compare(
            plan,
            f"{len(test):,} x 784 {kind} ({name}), 10 classes, QDA predict",
            limits.score(rows, varying, 10, "full"),
            lambda rows=rows: ours.predict(rows),
            {"scikit-learn QDA": lambda rows=rows: theirs.predict(rows)},
            {"scikit-learn": faster(times)},
        )
    bernoulli, peer = streamgda.BernoulliNB(binarize=127), SklearnBernoulliNB(binarize=127)
    bernoulli.fit(X, y)
    peer.fit(X, y)
    yield from compare(
        plan,
        f"{len(test):,} x 784 uint8 ({name}), 10 classes, BernoulliNB predict",
        limits.score(test, X.shape[1], 10, "tied"),
        lambda: bernoulli.predict(test),
        {"scikit-learn BernoulliNB": lambda: peer.predict(test)},
    )


def few_features(plan: Plan) -> Iterator[Row]:
    """Compare models of few features on many rows."""
    X, y = data.rows(plan.rows(2_000_000), 8, 10, "float64")
    for title, structure, times, ours, theirs in (
        (
            "QDA",
            "full",
            35,
            streamgda.QuadraticDiscriminantAnalysis(),
            sklearn.QuadraticDiscriminantAnalysis(),
        ),
        ("GaussianNB", "diag", 15, streamgda.GaussianNB(), SklearnNB()),
        (
            "LDA",
            "tied",
            2,
            streamgda.LinearDiscriminantAnalysis(),
            sklearn.LinearDiscriminantAnalysis(),
        ),
    ):
        ours.fit(X, y)
        theirs.fit(X, y)
        if not np.array_equal(ours.predict(X[:1000]), theirs.predict(X[:1000])):
            raise AssertionError(f"{title}: streamgda and scikit-learn do not agree")
        for method in ("predict", "predict_proba"):
            labels = method == "predict"
            yield from compare(
                plan,
                f"{len(y):,} x 8 float64, 10 classes, {title} {method}",
                limits.score(X, 8, 10, structure, probabilities=not labels),
                lambda m=ours, f=method: getattr(m, f)(X),
                {f"scikit-learn {title}": lambda m=theirs, f=method: getattr(m, f)(X)},
                {
                    "scikit-learn": faster(
                        times * (1 if labels else SHARE_OF_PREDICT), WHERE_TIME_GOES
                    )
                },
            )


def widths(plan: Plan) -> Iterator[Row]:
    """Compare with reading rows, and with BLAS's product of as many multiply-adds.

    Labels are random, so that no class is so far away that its distance need not be computed.
    """
    few = (
        "rows are transposed in registers and scores compared, beside products that alone take a "
        "third of the time of reading, and two thirds of it for 8 features of float32"
    )
    for d in (32, 64, 128, 192, 256, 384, 784):
        for kind in ("float64", "float32"):
            X, _ = data.rows(plan.rows(max(3000, 100_000_000 // d**2)), d, 1, kind)
            y, columns = np.arange(len(X)) % 10, np.ones((d, 5 * (d + 1)), kind)
            model = streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X, y)
            yield from compare(
                plan,
                f"{len(X):,} x {d} {kind}, 10 alike classes, QDA predict",
                limits.score(X, d, 10, "full"),
                lambda X=X, model=model: model.predict(X),
                {"gemm of as many products": lambda X=X, columns=columns: X @ columns},
                {"gemm": faster(0.5)},
            )
    for d in (8, 64, 784):
        for kind in ("float64", "float32"):
            X, _ = data.rows(plan.rows(16_000_000 // d), d, 1, kind)
            y, columns = np.arange(len(X)) % 10, np.ones((d, 10), kind)
            linear = streamgda.LinearDiscriminantAnalysis().fit(X, y)
            yield from compare(
                plan,
                f"{len(X):,} x {d} {kind}, 10 classes, LDA predict",
                limits.score(X, d, 10, "tied"),
                lambda X=X, linear=linear: linear.predict(X),
                {
                    "reading the rows": lambda X=X: limits.read(X),
                    "gemm": lambda X=X, columns=columns: X @ columns,
                },
                {"reading": of_its_time(1.0, few)},
            )


def sparse_rows(plan: Plan) -> Iterator[Row]:
    """Compare Bernoulli models of sparse rows, as of words in documents."""
    for most, d, per_row, n_classes in ((11_000, 100_000, 100, 20), (200_000, 1000, 20, 5)):
        n = plan.rows(most)
        columns = np.random.default_rng(0).integers(0, d, n * per_row)
        starts = np.arange(0, columns.size + 1, per_row)
        X = scipy.sparse.csr_matrix((np.ones(columns.size), columns, starts), (n, d))
        X.sum_duplicates()
        y = np.arange(n) % n_classes
        ours, peer = streamgda.BernoulliNB().fit(X, y), SklearnBernoulliNB().fit(X, y)
        for method in ("fit", "predict", "predict_proba"):
            labels = (y,) if method == "fit" else ()
            yield from compare(
                plan,
                f"{n:,} x {d:,} CSR, {per_row} entries a row, {n_classes} classes, "
                f"BernoulliNB {method}",
                limits.Work(12.0 * X.nnz, {"float64": float(X.nnz)}, 1),
                partial(getattr(ours, method), X, *labels),
                {"scikit-learn": partial(getattr(peer, method), X, *labels)},
                {"scikit-learn": of_its_time(0.7)},
            )


def leave_one_out(plan: Plan) -> Iterator[Row]:
    """Compare posteriors by models without the row with those by the model of all rows."""
    own = "each row also needs its own distance, and its share of the covariance"
    leverage = "linear scores need no distances, and without the row they do"
    variances = "each row has variances of its own, and so quotients and a determinant"
    few = data.rows(plan.rows(100_000), 20, 10, "float64")
    many = data.rows(plan.rows(10_000), 100 if plan.quick else 784, 10, "float64")
    for (X, y), title, structure, estimator, why in (
        (few, "QDA", "full", streamgda.QuadraticDiscriminantAnalysis(), own),
        (few, "QDA, reg_param=0.1", "full", _regularised(), own),
        (few, "GaussianNB", "diag", streamgda.GaussianNB(), variances),
        (few, "LDA", "tied", streamgda.LinearDiscriminantAnalysis(), leverage),
        (many, "QDA, reg_param=0.1", "full", _regularised(), own),
        (many, "LDA", "tied", streamgda.LinearDiscriminantAnalysis(), leverage),
    ):
        estimator.fit(X, y)
        n, d = X.shape
        peers = [name for name in ("predict_proba", "mahalanobis") if hasattr(estimator, name)]
        yield from compare(
            plan,
            f"{n:,} x {d} {X.dtype}, 10 classes, {title} leave_one_out_proba",
            limits.score(X, d, 10, structure, probabilities=True),
            lambda m=estimator, rows=X, labels=y: m.leave_one_out_proba(rows, labels),
            {name: partial(getattr(estimator, name), X) for name in peers},
            {"predict_proba": of_its_time(1.5, why)},
        )


def _regularised() -> streamgda.QuadraticDiscriminantAnalysis:
    return streamgda.QuadraticDiscriminantAnalysis(reg_param=0.1)
