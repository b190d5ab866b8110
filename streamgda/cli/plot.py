"""`streamgda plot`: draw a picture of a saved estimator, or a learning curve."""

from __future__ import annotations

import math
from typing import Any

import typer

from streamgda.cli import options, screen
from streamgda.cli.inputs import open_both
from streamgda.cli.options import Along, MissingChunks, Picture
from streamgda.cli.paths import refuse_occupied
from streamgda.errors import InvalidParameterError


def plot(
    picture: options.PictureKind,
    model: options.Model,
    out: options.PictureFile,
    store: options.StoreToPlot = None,
    test: options.TestStore = None,
    features: options.Features = None,
    directions: options.AlongDirections = None,
    shape: options.ImageShape = None,
    n: options.Number = None,
    seed: options.Seed = 0,
    x: options.XName = "X",
    y: options.YName = "y",
    label: options.LabelName = None,
    max_memory: options.MaxMemory = None,
    missing: options.Missing = MissingChunks.FILL,
    overwrite: options.Overwrite = False,
) -> None:
    """Draw a picture of a saved estimator, or the learning curve of a similar one on a store."""
    if store is None and picture in (Picture.CONFUSION, Picture.LEARNING):
        raise typer.BadParameter(f"{picture} needs rows and labels", param_hint="--store")
    chosen, image = _features(features), _integers(shape, "--shape")
    refuse_occupied(out, overwrite)
    plt = _pyplot()

    from streamgda import load, plots  # noqa: PLC0415

    estimator: Any
    X: Any = None
    labels: Any = None
    if store is None:
        estimator = load(model)
    else:
        estimator, X, labels = open_both(model, store, x, y, missing, label)
    drawn: Any
    match picture:
        case Picture.CONFUSION:
            drawn = plots.plot_confusion_matrix(estimator, X, labels[:])
        case Picture.LEARNING:
            held_out = None if test is None else open_both(model, test, x, y, missing, label)[1:]
            drawn = _learning(estimator, X, labels, held_out, 20 if n is None else n, max_memory)
        case Picture.BOUNDARY | Picture.DENSITIES:
            drawn = _projection(picture, estimator, X, labels, chosen, directions)
        case Picture.SPECTRA:
            drawn = plots.plot_spectra(estimator, n=n)
        case Picture.SEPARABILITY:
            drawn = plots.plot_separability(estimator)
        case Picture.MEANS:
            drawn = plots.plot_means(estimator, image or _square(estimator))
        case Picture.SAMPLES:
            count = 5 if n is None else n
            drawn = plots.plot_samples(estimator, image or _square(estimator), count, seed)
    figure = getattr(drawn, "flat", [drawn])[0].figure
    try:
        figure.savefig(out, dpi=150)
    except ValueError as error:  # matplotlib does not know the file type
        raise typer.BadParameter(str(error), param_hint="--out") from None
    finally:
        plt.close(figure)
    screen.say(f"{picture} of {type(estimator).__name__}: drawn to {out}")


def _pyplot() -> Any:
    try:
        import matplotlib as mpl  # noqa: PLC0415  (see the note in `options`)
    except ImportError:
        raise InvalidParameterError(
            "pictures need matplotlib, which is not installed: pip install streamgda[plot]"
        ) from None
    mpl.use("Agg")  # works without a screen
    import matplotlib.pyplot as plt  # noqa: PLC0415

    return plt


def _square(estimator: Any) -> list[int]:
    return [math.isqrt(estimator.n_features_in_)] * 2


def _projection(
    picture: Picture,
    estimator: Any,
    X: Any,
    labels: Any,
    features: list[Any] | None,
    along: Along | None,
) -> Any:
    """Draw boundaries in a plane or densities along a line, with rows or a sample of them."""
    from streamgda import plots  # noqa: PLC0415

    vectors = None if along is None else _vectors(estimator, along, picture)
    if picture is Picture.BOUNDARY:
        return plots.plot_decision_boundary(
            estimator, X, labels, features=features, directions=vectors
        )
    if features is not None and len(features) != 1:
        raise typer.BadParameter("densities need one feature", param_hint="--features")
    feature = None if features is None else features[0]
    return plots.plot_densities(estimator, X, labels, feature=feature, direction=vectors)


def _vectors(estimator: Any, along: Along, picture: Picture) -> Any:
    from streamgda import FisherDiscriminant  # noqa: PLC0415

    n = 1 if picture is Picture.DENSITIES else 2
    if along is Along.PCA:
        return estimator.moments_.pca(n)
    shrinkage = getattr(estimator, "shrinkage", None)  # the same as the estimator's
    if isinstance(shrinkage, str):
        shrinkage = float(estimator.shrinkage_.mean())  # pooled moments do not determine it
    moments = estimator.moments_
    return FisherDiscriminant.from_moments(moments, n, shrinkage=shrinkage).components


def _learning(estimator: Any, X: Any, y: Any, test: Any, n: int, max_memory: str | None) -> Any:
    from sklearn.base import clone  # noqa: PLC0415

    from streamgda import plots  # noqa: PLC0415
    from streamgda.cli.learning import Stream  # noqa: PLC0415

    # With twice as many batches as points, a batch ends near every point.
    stream = Stream(estimator, X, y, 2 * n, test is None, max_memory)
    return plots.plot_learning_curve(clone(estimator), stream, *(test or stream.held_out()), n=n)


def _features(text: str | None) -> list[Any] | None:
    """Return features by number, or by name unless all are numbers."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    try:
        return [int(part) for part in parts]
    except ValueError:
        return parts


def _integers(text: str | None, option: str) -> list[int] | None:
    try:
        return None if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a list of integers separated by commas", param_hint=option
        ) from None
