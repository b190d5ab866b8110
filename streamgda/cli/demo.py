"""`streamgda demo`: the whole workflow from images to accuracies, with timings."""

from __future__ import annotations

import contextlib
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
from streamgda.errors import ConstantFeatureWarning
from streamgda.storage.replacing import replacing

if TYPE_CHECKING:
    import numpy as np

    Rows = tuple[np.ndarray, np.ndarray]

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
) -> None:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them."""
    if store is not None:
        refuse_occupied(store)
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
        if store is not None:
            best.estimator.save(folder / "model")
    _show_memory(imported)
    _show_next(mnist, store, best.smoothing, _MODELS[best.name])


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
    screen.say(
        f"{'digits of scikit-learn' if mnist is None else f'images in {mnist}'}, "
        f"{X.shape[1]} features, written to zarr: "
        + ", ".join(f"{len(y):,} {name}" for name, (_, y) in parts.items())
        + " rows"
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
        f"one pass over {rows:,} training and validation rows: {seconds:.3f} s, "
        f"{screen.rate(rows, seconds)} (after {compiled - started:.1f} s to load the kernels)"
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
    screen.say(f"\nconfusion matrix of {best.name}, the best on the validation rows (test rows)")
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
            f"\npeak memory of this process: {readable(peak)}, of which {readable(imported)} were "
            f"in use before any data was read"
        )


def _show_next(mnist: Path | None, store: Path | None, smoothing: float, kind: str) -> None:
    screen.say("\nwhere to go next")
    fit = f"--kind gda --covariance-type {kind} --var-smoothing {smoothing:g}"
    if store is not None:
        lines = [
            f"streamgda info {store}/model",
            f"streamgda evaluate {store}/model {store}/test",
            f"streamgda fit {store}/train --model model.zip {fit}",
            f"streamgda predict {store}/model {store}/test --out labels.zarr",
        ]
    else:
        lines = [
            "streamgda demo --store demo.zarr    (keeps data and model to try commands on)",
            "streamgda convert rows.csv rows.zarr",
            f"streamgda fit rows.zarr --model model.zip {fit}",
            "streamgda evaluate model.zip rows.zarr",
        ]
    if mnist is None:
        lines.append("streamgda demo --mnist DIR    (the same with MNIST's 70,000 images)")
    for line in lines:
        screen.say(f"  {line}")
