"""Suite `stream`: rows that arrive a few at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.naive_bayes import GaussianNB as SklearnNB

import streamgda
from bench import data
from bench.limits import Work
from bench.measure import Call, Plan, Row, compare, faster
from bench.peers import RIVER, river
from streamgda import ClassMoments

D, K = 20, 10
SKLEARN = "scikit-learn GaussianNB.partial_fit"
CALLS = "most of a call is Python: checking rows and labels, and looking up the classes"
Batches = list[tuple[np.ndarray, np.ndarray]]


def run(plan: Plan) -> Iterator[Row]:
    for size, n, targets in (  # long enough that the first batches, which take longer, count little
        (1000, 200_000, {RIVER: faster(120, CALLS)}),
        (100, 50_000, {RIVER: faster(40, CALLS)}),
        (32, 20_000, {RIVER: faster(15, CALLS), SKLEARN: faster(3, CALLS)}),
        (1, 2000, {RIVER: faster(1, CALLS)}),
    ):
        X, y = data.rows(plan.rows(n), D, K, "float64")
        batches = cut(X, y, size)
        yield from compare(
            plan,
            f"{len(y):,} x {D} float64 in batches of {size:,}, GaussianNB.partial_fit",
            work_of(X, batches),
            partial_fit(streamgda.GaussianNB, batches),
            {SKLEARN: partial_fit(SklearnNB, batches), **river(X, y)},
            targets,
        )
    X, y = data.rows(plan.rows(2000), D, K, "float64")
    batches = cut(X, y, 1)
    for structure in ("diag", "full"):
        yield from compare(
            plan,
            f"{len(y):,} x {D} float64 a row at a time, {structure}, ClassMoments.update",
            work_of(X, batches),
            lambda s=structure, batches=batches: update(s, batches),
            river(X, y),
            {RIVER: faster(1, CALLS)},
        )
    batches = [(X[:100], y[:100]), *cut(X[100:], y[100:], 1)]  # a single row makes no model
    yield from compare(
        plan,
        f"{len(y):,} x {D} float64 a row at a time, GaussianNB.partial_fit and predict",
        work_of(X, batches),
        partial_fit(streamgda.GaussianNB, batches, predicts=True),
        {f"{SKLEARN} and predict": partial_fit(SklearnNB, batches, predicts=True)}
        | river(X, y, predicts=True),
    )


def cut(X: np.ndarray, y: np.ndarray, size: int) -> Batches:
    """Cut rows into batches of the given size."""
    cuts = [*range(0, len(y), size), len(y)]
    return [(X[a:b], y[a:b]) for a, b in pairwise(cuts)]


def partial_fit(kind: Callable[[], Any], batches: Batches, *, predicts: bool = False) -> Call:
    """Return a call that fits an estimator to all batches, and may predict each afterwards."""

    def learn() -> None:
        model = kind()
        classes = np.arange(K)
        for X, y in batches:
            model.partial_fit(X, y, classes=classes)
            if predicts:
                model.predict(X)

    return learn


def update(structure: str, batches: Batches) -> None:
    moments = ClassMoments(structure)
    for X, y in batches:
        moments.update(X, y)


def work_of(X: np.ndarray, batches: Batches) -> Work:
    """Return the work of batches, whose lower bound is often that of the calls."""
    return Work(X.nbytes, {"float64": X.size}, len(batches))
