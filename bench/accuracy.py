"""Suite `accuracy`: test images of MNIST told right, by models of one pass over a zarr store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import data
from bench.measure import Plan
from streamgda import (
    GaussianDiscriminantAnalysis,
    GaussianNB,
    LinearDiscriminantAnalysis,
    accumulate,
    open_store,
)
from streamgda.datasets import convert

HELD_OUT = 10_000  # training images that smoothing is chosen on
SMOOTHINGS = (0.01, 0.05, 0.1, 0.15, 0.2, 0.3)


@dataclass
class Accuracy:
    """A model, what it was fitted to, and the share of the test images that it tells right."""

    model: str
    rows: str
    accuracy: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Accuracy]:
    name, X, y, test, truth = data.mnist(plan.quick)
    n = len(y) - min(HELD_OUT, len(y) // 6)
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for part, rows in (("fit", slice(0, n)), ("held-out", slice(n, None))):
            convert(X[rows], Path(folder) / part, labels=y[rows])
            parts.append(accumulate(*open_store(Path(folder) / part)))
    everything = parts[0] + parts[1]
    images = f"{len(y):,} images ({name})"

    def row(title: str, model: Any, rows: str = images) -> Accuracy:
        return Accuracy(title, rows, model.score(test, truth))

    for title, kind in (
        ("QDA", GaussianDiscriminantAnalysis),
        ("Gaussian naive Bayes", GaussianNB),
    ):
        scores = [
            kind.from_moments(parts[0], var_smoothing=s).score(X[n:], y[n:]) for s in SMOOTHINGS
        ]
        best = SMOOTHINGS[int(np.argmax(scores))]
        model = kind.from_moments(everything, var_smoothing=best)
        yield row(f"{title}, var_smoothing={best} chosen on training images", model)
    lda = LinearDiscriminantAnalysis.from_moments(everything, shrinkage=1e-3)
    yield row("LDA, shrinkage=0.001", lda)
    few = np.random.default_rng(0).permutation(len(y))[:3000]
    lda = LinearDiscriminantAnalysis(shrinkage=1e-3).fit(X[few], y[few])
    yield row("LDA, shrinkage=0.001", lda, f"{few.size:,} of them, at random")
