"""Suite `score`: labels and probabilities of arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn import discriminant_analysis as peers
from sklearn.naive_bayes import GaussianNB as PeerNB

import streamgda
from bench import data
from bench.fit import quietly
from bench.measure import Row, compare


def run(repeats: int) -> Iterator[Row]:
    name, X, y, test, _ = data.mnist()
    ours = streamgda.GaussianDiscriminantAnalysis(var_smoothing=0.2)
    quietly(ours, X, y)
    theirs = peers.QuadraticDiscriminantAnalysis(reg_param=0.1).fit(X[::6].astype(float), y[::6])
    for kind in ("float64", "float32"):
        rows = test.astype(kind)
        yield from compare(
            "score",
            f"{len(test):,} x 784 {kind} ({name}), QDA predict",
            lambda rows=rows: ours.predict(rows),
            {"scikit-learn QDA": lambda rows=rows: theirs.predict(rows)},
            repeats,
        )
    rows, labels = data.rows(2_000_000, 8, 10, "float64")
    pairs = (
        ("QDA", streamgda.QuadraticDiscriminantAnalysis(), peers.QuadraticDiscriminantAnalysis()),
        ("LDA", streamgda.LinearDiscriminantAnalysis(), peers.LinearDiscriminantAnalysis()),
        ("GaussianNB", streamgda.GaussianNB(), PeerNB()),
    )
    for title, mine, peer in pairs:
        mine.fit(rows, labels)
        peer.fit(rows, labels)
        if not np.array_equal(mine.predict(rows[:1000]), peer.predict(rows[:1000])):
            raise AssertionError(f"{title}: ours and scikit-learn's do not agree")
        for method in ("predict", "predict_proba"):
            yield from compare(
                "score",
                f"2,000,000 x 8 float64, 10 classes, {title} {method}",
                lambda m=mine, f=method: getattr(m, f)(rows),
                {f"scikit-learn {title}": lambda m=peer, f=method: getattr(m, f)(rows)},
                max(1, repeats // 2),
            )
