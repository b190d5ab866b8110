"""`streamgda plot`: pictures of a saved estimator."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_both
from streamgda.cli.options import Missing, MissingChunks, Model, Overwrite, XName, YName
from streamgda.cli.paths import refuse_occupied
from streamgda.errors import InvalidParameterError

_MOST_POINTS = 2000  # that a plane shows


class Picture(StrEnum):
    """What is drawn."""

    CONFUSION = "confusion"
    BOUNDARY = "boundary"
    MEANS = "means"
    SAMPLES = "samples"
    SPECTRA = "spectra"


def plot(
    picture: Annotated[
        Picture,
        typer.Argument(help="Confusion matrix; plane of two features; class images; spectra."),
    ],
    model: Model,
    out: Annotated[Path, typer.Option(metavar="FILE", help="Picture to write: .png, .svg, .pdf.")],
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="confusion, boundary: rows and labels to show."),
    ] = None,
    features: Annotated[
        str, typer.Option(metavar="I,J", help="boundary: numbers of the two features.")
    ] = "0,1",
    shape: Annotated[
        str | None,
        typer.Option(metavar="H,W", help="means, samples: of an image; a square by default."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="samples: images of each class.")] = 5,
    seed: Annotated[int, typer.Option(help="samples: of the random numbers.")] = 0,
    x: XName = "X",
    y: YName = "y",
    missing: Missing = MissingChunks.FILL,
    overwrite: Overwrite = False,
) -> None:
    """Draw a picture of a saved estimator."""
    if picture is Picture.CONFUSION and store is None:
        raise typer.BadParameter("a confusion matrix needs rows and labels", param_hint="--store")
    plane, image = _numbers(features, "--features"), _numbers(shape, "--shape")
    refuse_occupied(out, overwrite)

    try:
        import matplotlib as mpl  # noqa: PLC0415  (see the note in `options`)
    except ImportError:
        raise InvalidParameterError(
            "pictures need matplotlib, which is not installed: pip install streamgda[plot]"
        ) from None
    mpl.use("Agg")  # there may be no screen
    from streamgda import load, plots  # noqa: PLC0415

    X: Any = None
    labels: Any = None
    if store is None:
        estimator: Any = load(model)
    else:
        estimator, X, labels = open_both(model, store, x, y, missing)
    if image is None:
        side = math.isqrt(estimator.n_features_in_)
        image = [side, side]
    if picture is Picture.CONFUSION:
        drawn: Any = plots.plot_confusion_matrix(estimator, X, labels[:])
    elif picture is Picture.BOUNDARY:
        if X is not None:
            X, labels = X[:_MOST_POINTS], labels[:_MOST_POINTS]
        drawn = plots.plot_decision_boundary(estimator, X, labels, features=plane or ())
    elif picture is Picture.MEANS:
        drawn = plots.plot_means(estimator, image)
    elif picture is Picture.SAMPLES:
        drawn = plots.plot_samples(estimator, image, n, seed)
    else:
        drawn = plots.plot_spectra(estimator)
    figure = getattr(drawn, "flat", [drawn])[0].figure
    try:
        figure.savefig(out, dpi=150)
    except ValueError as error:  # a kind of file that matplotlib does not write
        raise typer.BadParameter(str(error), param_hint="--out") from None
    screen.say(f"{picture} of {type(estimator).__name__}: drawn to {out}")


def _numbers(text: str | None, option: str) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not whole numbers with commas between them", param_hint=option
        ) from None
