"""`streamgda demo`: the whole workflow from images to accuracies, with timings."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import streamgda
from streamgda.cli import options as cli
from streamgda.cli import screen
from streamgda.errors import ConstantFeatureWarning, SourceError

Kept = Annotated[cli.Text, cli.Option(metavar="DIR", help="Keep rows and the best model here.")]
_MODELS = {"QDA": "full", "LDA": "tied", "GaussianNB": "diag"}
_SMOOTHING = 0.1  # Most pixels at the edges are empty, so variances are smoothed.


def demo(*, out: Kept = None, json: cli.Json = False) -> None:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them."""
    # Every model would warn of the empty edges of the images.
    warnings.simplefilter("ignore", category=ConstantFeatureWarning)
    if out is not None and Path(out).exists():
        raise SourceError(f"{out} exists already; choose another path, or remove it first")
    X, y = streamgda.datasets.load_digits()
    # The first quarter comes from other writers than most of the rest.
    X, y, X_test, y_test = X[449:], y[449:], X[:449], y[:449]
    with contextlib.ExitStack() as stack:
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        streamgda.datasets.convert(X, y, folder / "train")
        streamgda.datasets.convert(X_test, y_test, folder / "test")
        train, test = (streamgda.open_store(folder / part) for part in ("train", "test"))
        streamgda.accumulate(X[:2], y[:2])  # This compiles or loads the kernels.
        started = time.perf_counter()
        moments = streamgda.accumulate(*train, progress=True)
        seconds = time.perf_counter() - started
        figures: list[dict[str, Any]] = []
        models = {}
        for name, kind in _MODELS.items():
            models[name] = streamgda.GaussianDiscriminantAnalysis.from_moments(
                moments, covariance_type=kind, var_smoothing=_SMOOTHING
            )
            models[name].predict(X[:2])
            started = time.perf_counter()
            accuracy = models[name].score(*test)
            rate = len(y_test) / (time.perf_counter() - started)
            figures.append({"model": name, "accuracy": accuracy, "rows a second": rate})
        best = max(figures, key=lambda each: float(each["accuracy"]))["model"]
        if out is not None:
            models[best].save(folder / "model.npz")
    read = {"rows": len(y), "features": X.shape[1], "seconds": seconds}
    screen.show({"read": read, "best": best, "models": figures}, json)
