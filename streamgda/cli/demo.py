"""`streamgda demo`: the whole workflow from images to accuracies, with timings."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

Mnist = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder of MNIST's files; scikit-learn's digits by default."),
]
Kept = Annotated[
    str | None, typer.Option(metavar="DIR", help="Keep the rows and the best model in this folder.")
]
_MODELS = {"QDA": "full", "LDA": "tied", "GaussianNB": "diag"}
_SMOOTHING = 0.1  # Most pixels at the edges are empty, so variances are smoothed.


def demo(*, mnist: Mnist = None, out: Kept = None, json: cli.Json = False) -> None:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them."""
    import streamgda  # noqa: PLC0415  (see `options`)
    from streamgda.errors import InvalidParameterError  # noqa: PLC0415

    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        # Every model would warn of the empty edges of the images.
        warnings.simplefilter("ignore", category=streamgda.errors.ConstantFeatureWarning)
        if out is not None and Path(out).exists():
            raise InvalidParameterError(f"{out} exists; name a new folder")
        folder = Path(out or stack.enter_context(tempfile.TemporaryDirectory()))
        train, test = _write(mnist, folder)
        streamgda.accumulate(train[0][:2], train[1][:2])  # This compiles or loads the kernels.
        started = time.perf_counter()
        moments = streamgda.accumulate(*train, progress=True)
        seconds = time.perf_counter() - started
        figures: list[dict[str, Any]] = []
        models = {}
        for name, kind in _MODELS.items():
            models[name] = streamgda.GaussianDiscriminantAnalysis.from_moments(
                moments, covariance_type=kind, var_smoothing=_SMOOTHING
            )
            models[name].predict(test[0][:2])
            started = time.perf_counter()
            accuracy = models[name].score(*test)
            rate = test[0].shape[0] / (time.perf_counter() - started)
            figures.append({"model": name, "accuracy": accuracy, "rows a second": rate})
        best = max(figures, key=lambda each: float(each["accuracy"]))
        if out is not None:
            models[best["model"]].save(folder / "model.npz")
    read = {"rows": train[0].shape[0], "features": train[0].shape[1], "seconds": seconds}
    screen.show({"read": read, "best": best["model"], "models": figures}, json)


def _write(mnist: str | None, folder: Path) -> list[tuple[Any, Any]]:
    """Write training and test rows to zarr; return the opened arrays."""
    import numpy as np  # noqa: PLC0415

    from streamgda import datasets, open_store  # noqa: PLC0415

    if mnist is not None:
        X, y, X_test, y_test = datasets.load_mnist(mnist)
    else:
        X, y = datasets.load_digits()
        # Neighbouring rows come from the same writer, so the rows are shuffled.
        test, train = np.split(np.random.default_rng(0).permutation(len(y)), [len(y) // 4])
        X, y, X_test, y_test = X[train], y[train], X[test], y[test]
    datasets.convert(X, y, folder / "train")
    datasets.convert(X_test, y_test, folder / "test")
    return [open_store(folder / "train"), open_store(folder / "test")]
