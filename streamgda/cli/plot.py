"""`streamgda plot`: pictures of a saved estimator, and of how it learns."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_both
from streamgda.cli.options import (
    MaxMemory,
    Missing,
    MissingChunks,
    Model,
    Overwrite,
    XName,
    YName,
)
from streamgda.cli.paths import refuse_occupied
from streamgda.errors import InvalidParameterError

_MOST_POINTS = 2000  # that a plane shows


class Picture(StrEnum):
    """What is drawn."""

    CONFUSION = "confusion"
    BOUNDARY = "boundary"
    DENSITIES = "densities"
    MEANS = "means"
    SAMPLES = "samples"
    SPECTRA = "spectra"
    LEARNING = "learning"


class Along(StrEnum):
    """Directions that the moments of an estimator have."""

    FISHER = "fisher"
    PCA = "pca"


def plot(
    picture: Annotated[
        Picture,
        typer.Argument(
            help="Confusion matrix; decision boundary in a plane; densities along a line; class "
            "means or samples as images; spectra of covariances; learning curve.",
        ),
    ],
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Picture to write: .png, .svg, .pdf.")],
    store: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="confusion: rows and labels; boundary, densities: to show (2,000 at most); "
            "learning: to learn from, in their order.",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="learning: rows that are held out; by default every tenth of STORE, or 10,000.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            metavar="I,J", help="boundary: numbers of two features, 0,1 by default; densities: one."
        ),
    ] = None,
    directions: Annotated[
        Along | None,
        typer.Option(
            help="boundary, densities: Fisher's directions or principal axes in place of features."
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="H,W", help="means, samples: of an image; a square by default."),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n",
            help="samples: images of each class (5); spectra: how many axes (all); learning: "
            "points for each tenfold number of rows (20).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="samples: of the random numbers.")] = 0,
    x: XName = "X",
    y: YName = "y",
    max_memory: MaxMemory = None,
    missing: Missing = MissingChunks.FILL,
    overwrite: Overwrite = False,
) -> None:
    """Draw a picture of a saved estimator, or of how its like learns from a store."""
    if store is None and picture in (Picture.CONFUSION, Picture.LEARNING):
        raise typer.BadParameter(f"{picture} needs rows and labels", param_hint="--store")
    numbers, image = _numbers(features, "--features"), _numbers(shape, "--shape")
    refuse_occupied(out, overwrite)

    try:
        import matplotlib as mpl  # noqa: PLC0415  (see the note in `options`)
    except ImportError:
        raise InvalidParameterError(
            "pictures need matplotlib, which is not installed: pip install streamgda[plot]"
        ) from None
    mpl.use("Agg")  # there may be no screen
    import matplotlib.pyplot as plt  # noqa: PLC0415

    from streamgda import load, plots  # noqa: PLC0415

    X: Any = None
    labels: Any = None
    if store is None:
        estimator: Any = load(model)
    else:
        estimator, X, labels = open_both(model, store, x, y, missing)
    drawn: Any
    if picture is Picture.CONFUSION:
        drawn = plots.plot_confusion_matrix(estimator, X, labels[:])
    elif picture is Picture.LEARNING:
        held_out = None if test is None else open_both(model, test, x, y, missing)[1:]
        drawn = _learning(estimator, X, labels, held_out, 20 if n is None else n, max_memory)
    elif picture in (Picture.BOUNDARY, Picture.DENSITIES):
        if X is not None:
            X, labels = X[:_MOST_POINTS], labels[:_MOST_POINTS]
        vectors = None if directions is None else _vectors(estimator, directions, picture)
        if picture is Picture.BOUNDARY:
            drawn = plots.plot_decision_boundary(
                estimator, X, labels, features=numbers, directions=vectors
            )
        else:
            if numbers is not None and len(numbers) != 1:
                raise typer.BadParameter("densities are of one", param_hint="--features")
            feature = None if numbers is None else numbers[0]
            drawn = plots.plot_densities(estimator, X, labels, feature=feature, direction=vectors)
    elif picture is Picture.SPECTRA:
        drawn = plots.plot_spectra(estimator, n=n)
    else:
        image = image or [math.isqrt(estimator.n_features_in_)] * 2
        if picture is Picture.MEANS:
            drawn = plots.plot_means(estimator, image)
        else:
            drawn = plots.plot_samples(estimator, image, 5 if n is None else n, seed)
    figure = getattr(drawn, "flat", [drawn])[0].figure
    try:
        figure.savefig(out, dpi=150)
    except ValueError as error:  # a kind of file that matplotlib does not write
        raise typer.BadParameter(str(error), param_hint="--out") from None
    finally:
        plt.close(figure)
    screen.say(f"{picture} of {type(estimator).__name__}: drawn to {out}")


def _vectors(estimator: Any, along: Along, picture: Picture) -> Any:
    from streamgda import FisherDiscriminant  # noqa: PLC0415

    n = 1 if picture is Picture.DENSITIES else 2
    if along is Along.PCA:
        return estimator.moments_.pca(n)
    shrinkage = getattr(estimator, "shrinkage", None)  # as the estimator is regularised
    moments = estimator.moments_
    return FisherDiscriminant.from_moments(moments, n, shrinkage=shrinkage).components


def _learning(estimator: Any, X: Any, y: Any, test: Any, n: int, max_memory: str | None) -> Any:
    from sklearn.base import clone  # noqa: PLC0415

    from streamgda import plots  # noqa: PLC0415
    from streamgda.cli.learning import Stream  # noqa: PLC0415

    # Twice as many batches as points: one is there when a point is due.
    stream = Stream(estimator, X, y, 2 * n, test is None, max_memory)
    return plots.plot_learning_curve(clone(estimator), stream, *(test or stream.held_out()), n=n)


def _numbers(text: str | None, option: str) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not whole numbers with commas between them", param_hint=option
        ) from None
