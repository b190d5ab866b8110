"""`streamgda demo`: the whole workflow from images to accuracies, with timings."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import streamgda
from streamgda import datasets
from streamgda.cli import screen
from streamgda.cli.evaluate import count, show_confusion
from streamgda.cli.files import refuse_occupied
from streamgda.cli.options import takes
from streamgda.errors import ConstantFeatureWarning, MissingLibraryError
from streamgda.runtime.parameters import require
from streamgda.storage.files import aside

Labelled = tuple[Any, Any]  # rows and labels

_PICTURE = Path("streamgda-demo.png")
_MODELS = {"QDA": "full", "LDA": "tied", "GaussianNB": "diag"}
_SMOOTHINGS = (1e-9, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


@takes()
def demo(
    *, mnist: Path | None = None, out: Path | None = None, picture: Path = _PICTURE
) -> dict[str, Any]:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them.

    Parameters
    ----------
    mnist : DIR
        Folder of the four MNIST files; scikit-learn's 8 x 8 digits by default.
    out : PATH
        Keep the data and the best model in this folder.
    picture : FILE
        Picture of the best model; needs matplotlib.

    Examples
    --------
    streamgda demo
    streamgda demo --out digits --picture digits.png
    """
    if out is not None:
        refuse_occupied(out)
    if picture != _PICTURE:  # which another demo may have drawn
        refuse_occupied(picture)
    with contextlib.ExitStack() as stack:
        if out is None:
            kept = stack.enter_context(tempfile.TemporaryDirectory(prefix="streamgda-"))
            folder = Path(kept) / "demo"
        else:
            folder = stack.enter_context(aside(out))
        stack.enter_context(warnings.catch_warnings())
        # The edges of the images are empty; every model would warn about it.
        warnings.simplefilter("ignore", category=ConstantFeatureWarning)
        train, validation, test = _write_parts(mnist, folder)
        trained, everything = _read_once(train, validation)
        models = {
            name: _fit(kind, trained, everything, validation, test)
            for name, kind in _MODELS.items()
        }
        best = max(models, key=lambda name: models[name][1])
        estimator, _, tested, _ = models[best]
        screen.say()
        columns = ("smoothing", "accuracy (validation)", "accuracy (test)", "test rows/s")
        screen.show_table(("model", *columns), [(name, *row) for name, (*_, row) in models.items()])
        screen.say(f"\nBest on the validation rows: {best}. Its confusion matrix on test rows:")
        show_confusion(tested)
        if out is not None:
            estimator.save(folder / "model.npz")
        title = f"{best}, test rows: accuracy {tested['accuracy']:.3f}"
        drawn = _draw(estimator, title, test, picture)
    show_next(mnist, out)
    screen.say(f"\n{drawn}")
    accuracies = {name: tested["accuracy"] for name, (_, _, tested, _) in models.items()}
    return {"best": best, "accuracies": accuracies, "out": out}


# --- Data ---------------------------------------------------------------------------------------


def _write_parts(mnist: Path | None, folder: Path) -> list[Labelled]:
    """Write training, validation and test rows to zarr; return the opened arrays."""
    if mnist is not None:
        X, y, X_test, y_test = datasets.load_mnist(mnist)
        images = f"images in {mnist}"
    else:
        X, y = datasets.load_digits()
        images = "handwritten digits of scikit-learn"
        # Neighbouring rows come from the same writer, so the rows are shuffled.
        order = np.random.default_rng(0).permutation(len(y))
        test, rest = np.split(order, [len(y) // 4])
        X, y, X_test, y_test = X[rest], y[rest], X[test], y[test]
    n = len(y) * 5 // 6
    parts = {"train": (X[:n], y[:n]), "validation": (X[n:], y[n:]), "test": (X_test, y_test)}
    folder.mkdir()
    for name, (rows, labels) in parts.items():
        datasets.convert(rows, folder / name, labels=labels)
    counts = ", ".join(f"{len(labels):,} {name}" for name, (_, labels) in parts.items())
    screen.say(
        f"Wrote {images} to zarr:\n  {counts} rows of {X.shape[1]} features.\n"
        "Reading them once; the first time on a machine, kernels compile for seconds."
    )
    return [streamgda.open_store(folder / name) for name in parts]


# --- Models -------------------------------------------------------------------------------------


def _read_once(train: Labelled, validation: Labelled) -> tuple[Any, Any]:
    """Return the moments of the training rows, and of training and validation rows together."""
    started = time.perf_counter()
    streamgda.accumulate(*(array[:2] for array in train))
    compiled = time.perf_counter()
    trained = streamgda.accumulate(*train, progress=True)
    everything = trained + streamgda.accumulate(*validation, progress=True)
    seconds = time.perf_counter() - compiled
    rows = int(everything.class_count.sum())
    screen.say(
        f"\nOne pass over {rows:,} training and validation rows took {seconds:.3f} s,\n"
        f"  {screen.rate(rows, seconds)}, after {compiled - started:.1f} s to get the kernels.\n"
        "It kept the count, mean and scatter of each class. The models below are made\n"
        f"from these, {len(_SMOOTHINGS)} of each kind; those that predict the validation rows best:"
    )
    return trained, everything


def _fit(
    kind: str, trained: Any, everything: Any, validation: Labelled, test: Labelled
) -> tuple[Any, float, dict[str, Any], tuple[str, ...]]:
    """Fit all rows with the smoothing that predicts the validation rows best, and measure it.

    Returns the estimator, its accuracy on these rows, what it predicts of the test rows, and a row
    of the table.
    """
    from streamgda.rows import Rows  # noqa: PLC0415

    make = streamgda.GaussianDiscriminantAnalysis.from_moments
    accuracies: dict[float, float] = {}
    for smoothing in _SMOOTHINGS:
        with contextlib.suppress(streamgda.errors.SingularCovarianceError):  # too little smoothing
            model = make(trained, covariance_type=kind, var_smoothing=smoothing)
            accuracies[smoothing] = model.score(*validation)
    smoothing, validated = max(accuracies.items(), key=lambda each: each[1])
    estimator = make(everything, covariance_type=kind, var_smoothing=smoothing)
    count(estimator, Rows.of(*(array[:2] for array in test)))  # compiles or loads the kernels
    started = time.perf_counter()
    tested = count(estimator, Rows.of(*test))
    speed = tested["rows"] / (time.perf_counter() - started)
    row = f"{smoothing:g}", f"{validated:.4f}", f"{tested['accuracy']:.4f}", f"{speed:,.0f}"
    return estimator, validated, tested, row


# --- Report -------------------------------------------------------------------------------------


def _draw(estimator: Any, title: str, test: Labelled, path: Path) -> str:
    """Draw the means of the classes and the confusion matrix; return a line that says so."""
    try:
        require("matplotlib", "plot", "pictures")
    except MissingLibraryError as error:
        return f"{error}\n  lets the demo save a picture, too."
    from matplotlib.figure import Figure  # noqa: PLC0415
    from sklearn.metrics import ConfusionMatrixDisplay  # noqa: PLC0415

    side, n = math.isqrt(estimator.n_features_in_), len(estimator.classes_)
    figure = Figure((10, 5), layout="constrained")  # works without a screen
    parts: Any = figure.subfigures(1, 2)
    left, right = parts
    for k, ax in enumerate(left.subplots(-(-n // 3), min(n, 3), squeeze=False).ravel()):
        ax.set_axis_off()
        if k < n:
            ax.imshow(estimator.means_[k].reshape(side, side), cmap="gray_r")
    left.suptitle("class means")
    ConfusionMatrixDisplay.from_estimator(estimator, *test, ax=right.subplots(), colorbar=False)
    right.suptitle(title)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:  # no such folder, or no such type of file
        return f"The picture was not saved: {error}"
    return f"A picture of {title.partition(',')[0]} is in {path}"


def show_next(mnist: Path | None, store: Path | None) -> None:
    """Say which commands to try on the files of the demo, or on one's own."""
    screen.say("\nTry next:")
    if store is not None:
        lines = [
            f"streamgda info {store}/model.npz",
            f"streamgda evaluate {store}/test --model {store}/model.npz",
            f"streamgda fit {store}/train --kind lda --out lda.npz",
        ]
    else:
        lines = [
            "streamgda demo --out digits         # keeps rows and model for other commands",
            "streamgda convert table.csv --out rows.zarr  # your own rows, label last",
            "streamgda fit rows.zarr --kind lda --out lda.npz",
        ]
    if mnist is None:
        lines.append("streamgda demo --mnist FOLDER      # the same with MNIST's 70,000 images")
    for line in lines:
        screen.say(f"  {line}")
