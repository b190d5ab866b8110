"""Suite `accuracy`: test accuracy on MNIST of models fitted in one pass over a zarr store."""

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

HELD_OUT = 10_000  # training images used to choose the smoothing
SMOOTHINGS = (0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3)
COMPONENTS = 50


@dataclass
class Accuracy:
    """Accuracy of a model on the test images."""

    model: str
    rows: str
    accuracy: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
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
    fitted_to = f"{len(y):,} images ({name})"
    components = everything.pca(COMPONENTS)
    fewer = [part.project(components) for part in (*parts, everything)]
    of_components = fewer, X[n:] @ components.T, test @ components.T
    of_pixels = [*parts, everything], X[n:], test
    within = f"in {COMPONENTS} principal components"
    for title, kind, (moments, held_out, images) in (
        ("QDA", GaussianDiscriminantAnalysis, of_pixels),
        (f"QDA {within}", GaussianDiscriminantAnalysis, of_components),
        ("Gaussian naive Bayes", GaussianNB, of_pixels),
    ):
        scores = [
            kind.from_moments(moments[0], var_smoothing=s).score(held_out, y[n:])
            for s in SMOOTHINGS
        ]
        best = SMOOTHINGS[int(np.argmax(scores))]
        model = kind.from_moments(moments[2], var_smoothing=best)
        chosen = f"{title}, var_smoothing={best} chosen on training images"
        yield Accuracy(chosen, fitted_to, model.score(images, truth))
    lda = LinearDiscriminantAnalysis.from_moments(everything, solver="lsqr", shrinkage=1e-3)
    yield Accuracy("LDA, shrinkage=0.001", fitted_to, lda.score(test, truth))
