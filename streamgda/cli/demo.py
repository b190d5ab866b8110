"""`streamgda demo`: the whole way, from images to a table of accuracies, measured as it runs."""

from __future__ import annotations

import contextlib
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.evaluate import count, show_confusion
from streamgda.cli.paths import refuse_occupied, replacing
from streamgda.errors import ConstantFeatureWarning

if TYPE_CHECKING:
    import numpy as np

    Rows = tuple[np.ndarray, np.ndarray]

_MODELS = {"QDA": "full", "LDA": "tied", "GaussianNB": "diag"}
_SMOOTHINGS = (1e-9, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


def demo(
    mnist: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with MNIST's four files; else the digits 8 x 8."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Keep the data and the best model in this zarr group."),
    ] = None,
) -> None:
    """Fit three classifiers in one pass over handwritten digits in zarr, and compare them."""
    import zarr  # noqa: PLC0415

    from streamgda import accumulate, datasets, open_store  # noqa: PLC0415

    if store is not None:
        refuse_occupied(store)
    imported = _peak_memory()
    with _folder(store) as folder, warnings.catch_warnings():
        # Of every candidate, it would be said anew that the rims of the images are empty.
        warnings.simplefilter("ignore", category=ConstantFeatureWarning)
        zarr.create_group(folder)
        parts = _parts(mnist)
        features = parts["train"][0].shape[1]
        for name, (X, y) in parts.items():
            datasets.convert(X, folder / name, labels=y)
        screen.say(
            f"{'digits of scikit-learn' if mnist is None else f'images in {mnist}'}, "
            f"{features} features, written to zarr: "
            + ", ".join(f"{len(y):,} {name}" for name, (_, y) in parts.items())
            + " rows"
        )
        first = parts["train"][0][:2], parts["train"][1][:2]
        del parts, X, y
        train, validation, test = (
            open_store(folder / name) for name in ("train", "validation", "test")
        )

        started = time.perf_counter()
        accumulate(*first)
        compiled = time.perf_counter()
        seen = accumulate(*train, progress=True)
        everything = seen + accumulate(*validation, progress=True)
        seconds = time.perf_counter() - compiled
        rows = int(everything.class_count.sum())
        screen.say(
            f"one pass over {rows:,} training and validation rows: {seconds:.3f} s, "
            f"{rows / seconds:,.0f} rows a second (kernels made ready in "
            f"{compiled - started:.1f} s before)"
        )

        chosen = {name: _choose(seen, kind, *validation) for name, kind in _MODELS.items()}
        results = {}
        for name, (smoothing, _) in chosen.items():
            estimator = _estimator(everything, _MODELS[name], smoothing)
            estimator.predict_log_proba(first[0])  # makes the kernel ready
            started = time.perf_counter()
            results[name] = estimator, count(estimator, *test), time.perf_counter() - started
        screen.say()
        screen.show_table(
            ("model", "smoothing", "accuracy (validation)", "accuracy (test)", "test rows/s"),
            [
                (
                    name,
                    f"{chosen[name][0]:g}",
                    f"{chosen[name][1]:.4f}",
                    f"{result.accuracy:.4f}",
                    f"{result.confusion.sum() / spent:,.0f}",
                )
                for name, (_, result, spent) in results.items()
            ],
        )
        best = max(chosen, key=lambda name: chosen[name][1])
        estimator, result, _ = results[best]
        screen.say(f"\nconfusions of {best}, the best on the validation rows, in the test rows")
        show_confusion(result)
        if store is not None:
            estimator.save(folder / "model")
    peak = _peak_memory()
    if peak is not None and imported is not None:
        from streamgda.runtime.memory import readable  # noqa: PLC0415

        screen.say(
            f"\npeak memory of this process: {readable(peak)}, of which {readable(imported)} were "
            f"there before the data"
        )
    _show_next(mnist, store, chosen[best][0], _MODELS[best])


@contextlib.contextmanager
def _folder(store: Path | None) -> Iterator[Path]:
    if store is not None:
        with replacing(store) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="streamgda-") as folder:
        yield Path(folder) / "demo.zarr"


def _parts(mnist: Path | None) -> dict[str, Rows]:
    """Rows to learn from, to choose by and to judge by."""
    import numpy as np  # noqa: PLC0415

    from streamgda import datasets  # noqa: PLC0415

    if mnist is not None:
        X, y, X_test, y_test = datasets.load_mnist(mnist)
    else:
        X, y = datasets.load_digits()
        # Neighbouring rows are of one writer: rows are dealt out as scattered as can be.
        order = np.random.default_rng(0).permutation(len(y))
        held_out = len(y) // 4
        X_test, y_test = X[order[:held_out]], y[order[:held_out]]
        X, y = X[order[held_out:]], y[order[held_out:]]
    n = len(y) * 5 // 6
    return {"train": (X[:n], y[:n]), "validation": (X[n:], y[n:]), "test": (X_test, y_test)}


def _estimator(moments: Any, covariance_type: str, smoothing: float) -> Any:
    from streamgda import GaussianDiscriminantAnalysis  # noqa: PLC0415

    return GaussianDiscriminantAnalysis.from_moments(
        moments, covariance_type=covariance_type, var_smoothing=smoothing
    )


def _choose(moments: Any, covariance_type: str, X: Any, y: Any) -> tuple[float, float]:
    """The smoothing that does best on those rows, and its accuracy there."""
    from streamgda.errors import SingularCovarianceError  # noqa: PLC0415

    accuracies = {}
    for smoothing in _SMOOTHINGS:
        with contextlib.suppress(SingularCovarianceError):  # too little smoothing
            estimator = _estimator(moments, covariance_type, smoothing)
            accuracies[smoothing] = float(estimator.score(X, y))
    best = max(accuracies, key=lambda smoothing: accuracies[smoothing])
    return best, accuracies[best]


def _peak_memory() -> int | None:
    """Bytes that were resident at most; None where the system does not say."""
    import sys  # noqa: PLC0415

    try:
        import resource  # noqa: PLC0415
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


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
