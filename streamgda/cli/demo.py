"""`streamgda demo`: the whole workflow from images to accuracies, with timings."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.evaluate import Evaluation, count, show_confusion
from streamgda.cli.paths import refuse_occupied
from streamgda.errors import ConstantFeatureWarning, MissingLibraryError
from streamgda.runtime.extras import require
from streamgda.storage.replacing import replacing

if TYPE_CHECKING:
    import numpy as np

    Rows = tuple[np.ndarray, np.ndarray]

_PICTURE = Path("streamgda-demo.png")
_MODELS = {"QDA": "full", "LDA": "tied", "GaussianNB": "diag"}
_SMOOTHINGS = (1e-9, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


def demo(
    mnist: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the four MNIST files; scikit-learn's 8 x 8 digits by default.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Keep the data and the best model in this zarr group."),
    ] = None,
    picture: Annotated[
        Path,
        typer.Option(metavar="FILE", help="Picture of the best model; needs matplotlib."),
    ] = _PICTURE,
) -> None:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them."""
    if store is not None:
        refuse_occupied(store)
    if picture != _PICTURE:  # which another demo may have drawn
        refuse_occupied(picture)
    # Imported first, so that the memory that modules take is not counted as that of the data.
    from streamgda import datasets, estimators  # noqa: F401, PLC0415

    imported = _peak_memory()
    with _folder(store) as folder, warnings.catch_warnings():
        # The edges of the images are empty; every candidate would warn about it.
        warnings.simplefilter("ignore", category=ConstantFeatureWarning)
        train, validation, test = _write_parts(mnist, folder)
        trained, everything = _read_once(train, validation)
        candidates = [
            _fit(name, kind, trained, everything, validation, test)
            for name, kind in _MODELS.items()
        ]
        best = max(candidates, key=lambda candidate: candidate.validation_accuracy)
        _show(candidates, best)
        _show_memory(imported)
        if store is not None:
            best.estimator.save(folder / "model")
        drawn = _draw(best, test, picture)
    show_next(mnist, store)
    screen.say(f"\n{drawn}")


# --- Data ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(store: Path | None) -> Iterator[Path]:
    if store is not None:
        with replacing(store) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="streamgda-") as folder:
        yield Path(folder) / "demo.zarr"


def _write_parts(mnist: Path | None, folder: Path) -> list[tuple[Any, Any]]:
    """Write training, validation and test rows to zarr; return the opened arrays."""
    import zarr  # noqa: PLC0415

    from streamgda import datasets, open_store  # noqa: PLC0415

    zarr.create_group(folder)
    parts = _parts(mnist)
    for name, (X, y) in parts.items():
        datasets.convert(X, folder / name, labels=y)
    images = "handwritten digits of scikit-learn" if mnist is None else f"images in {mnist}"
    counts = ", ".join(f"{len(y):,} {name}" for name, (_, y) in parts.items())
    screen.say(
        f"Wrote {images} to zarr:\n  {counts} rows of {X.shape[1]} features.\n"
        "Reading them once; the first time on a machine, kernels compile for seconds."
    )
    return [open_store(folder / name) for name in parts]


def _parts(mnist: Path | None) -> dict[str, Rows]:
    """Return rows and labels for training, validation and testing."""
    import numpy as np  # noqa: PLC0415

    from streamgda import datasets  # noqa: PLC0415

    if mnist is not None:
        X, y, X_test, y_test = datasets.load_mnist(mnist)
    else:
        X, y = datasets.load_digits()
        # Neighbouring rows come from the same writer, so the rows are shuffled.
        order = np.random.default_rng(0).permutation(len(y))
        held_out = len(y) // 4
        X_test, y_test = X[order[:held_out]], y[order[:held_out]]
        X, y = X[order[held_out:]], y[order[held_out:]]
    n = len(y) * 5 // 6
    return {"train": (X[:n], y[:n]), "validation": (X[n:], y[n:]), "test": (X_test, y_test)}


# --- Models -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Candidate:
    """A fitted model with the smoothing that did best on the validation rows."""

    name: str
    smoothing: float
    validation_accuracy: float
    estimator: Any
    evaluation: Evaluation  # on the test rows
    seconds: float  # taken by the evaluation


def _read_once(train: tuple[Any, Any], validation: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the moments of the training rows, and of training and validation rows together."""
    from streamgda import accumulate  # noqa: PLC0415

    started = time.perf_counter()
    accumulate(*(array[:2] for array in train))
    compiled = time.perf_counter()
    trained = accumulate(*train, progress=True)
    everything = trained + accumulate(*validation, progress=True)
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
    name: str,
    kind: str,
    trained: Any,
    everything: Any,
    validation: tuple[Any, Any],
    test: tuple[Any, Any],
) -> _Candidate:
    smoothing, accuracy = _choose(trained, kind, *validation)
    estimator = _estimator(everything, kind, smoothing)
    count(estimator, *(array[:2] for array in test))  # compiles or loads the kernels
    started = time.perf_counter()
    evaluation = count(estimator, *test)
    return _Candidate(
        name, smoothing, accuracy, estimator, evaluation, time.perf_counter() - started
    )


def _estimator(moments: Any, covariance_type: str, smoothing: float) -> Any:
    from streamgda import GaussianDiscriminantAnalysis  # noqa: PLC0415

    return GaussianDiscriminantAnalysis.from_moments(
        moments, covariance_type=covariance_type, var_smoothing=smoothing
    )


def _choose(moments: Any, covariance_type: str, X: Any, y: Any) -> tuple[float, float]:
    """Return the smoothing with the highest accuracy on the rows, and that accuracy."""
    from streamgda.errors import SingularCovarianceError  # noqa: PLC0415

    accuracies = {}
    for smoothing in _SMOOTHINGS:
        with contextlib.suppress(SingularCovarianceError):  # too little smoothing
            estimator = _estimator(moments, covariance_type, smoothing)
            accuracies[smoothing] = float(estimator.score(X, y))
    best = max(accuracies, key=lambda smoothing: accuracies[smoothing])
    return best, accuracies[best]


# --- Report -------------------------------------------------------------------------------------


def _show(candidates: list[_Candidate], best: _Candidate) -> None:
    screen.say()
    screen.show_table(
        ("model", "smoothing", "accuracy (validation)", "accuracy (test)", "test rows/s"),
        [
            (
                each.name,
                f"{each.smoothing:g}",
                f"{each.validation_accuracy:.4f}",
                f"{each.evaluation.accuracy:.4f}",
                f"{each.evaluation.confusion.sum() / each.seconds:,.0f}",
            )
            for each in candidates
        ],
    )
    screen.say(f"\nBest on the validation rows: {best.name}. Its confusion matrix on test rows:")
    show_confusion(best.evaluation)


def _peak_memory() -> int | None:
    """Return the peak resident memory of the process in bytes; None if the system has no figure."""
    import sys  # noqa: PLC0415

    try:
        import resource  # noqa: PLC0415
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _show_memory(imported: int | None) -> None:
    from streamgda.runtime.memory import readable  # noqa: PLC0415

    peak = _peak_memory()
    if peak is not None and imported is not None:
        screen.say(
            f"\npeak memory of this process: {readable(peak)}; {readable(imported)} were in use\n"
            "  before any data was read"
        )


def _draw(best: _Candidate, test: tuple[Any, Any], path: Path) -> str:
    """Draw the means of the classes and the confusion matrix; return a line that says so."""
    try:
        require("matplotlib", "plot", "pictures")
    except MissingLibraryError as error:
        return f"{error}\n  lets the demo save a picture, too."
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")  # works without a screen
    from matplotlib.figure import Figure  # noqa: PLC0415

    from streamgda import plots  # noqa: PLC0415

    side = math.isqrt(best.estimator.n_features_in_)
    figure = Figure((10, 5), layout="constrained")
    parts: Any = figure.subfigures(1, 2)
    left, right = parts
    n = len(best.estimator.classes_)
    plots.plot_means(best.estimator, (side, side), left.subplots(-(-n // 3), min(n, 3)))
    left.suptitle("class means")
    plots.plot_confusion_matrix(best.estimator, *test, right.subplots(), colorbar=False)
    right.suptitle(f"{best.name}, test rows: accuracy {best.evaluation.accuracy:.3f}")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:  # no such folder, or no such type of file
        return f"The picture was not saved: {error}"
    return f"A picture of {best.name} is in {path}"


def show_next(mnist: Path | None, store: Path | None) -> None:
    """Say which commands to try on the files of the demo, or on one's own."""
    screen.say("\nTry next:")
    if store is not None:
        lines = [
            f"streamgda info {store}/model",
            f"streamgda evaluate {store}/model {store}/test",
            f"streamgda fit {store}/train --model lda.zip --kind lda",
        ]
    else:
        lines = [
            "streamgda demo --store demo.zarr   # keeps rows and model for other commands",
            "streamgda convert table.csv rows.zarr      # your own rows, label last",
            "streamgda fit rows.zarr --model lda.zip --kind lda",
        ]
    if mnist is None:
        lines.append("streamgda demo --mnist FOLDER      # the same with MNIST's 70,000 images")
    for line in lines:
        screen.say(f"  {line}")
