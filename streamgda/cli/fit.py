"""`streamgda fit`: one pass over the rows, or none where moments were saved before."""

from __future__ import annotations

import functools
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.options import MaxMemory, Missing, MissingChunks, XName, YName
from streamgda.cli.paths import refuse_other_kind, stored_bytes


class Kind(StrEnum):
    """Estimators by their short names."""

    QDA = "qda"
    LDA = "lda"
    NB = "nb"
    GDA = "gda"
    BERNOULLI = "bernoulli"


class OnInvalid(StrEnum):
    """What is done with rows that are invalid."""

    RAISE = "raise"
    SKIP = "skip"


_ESTIMATORS = {
    Kind.QDA: ("QuadraticDiscriminantAnalysis", "full"),
    Kind.LDA: ("LinearDiscriminantAnalysis", "tied"),
    Kind.NB: ("GaussianNB", "diag"),
    Kind.GDA: ("GaussianDiscriminantAnalysis", "full"),
    Kind.BERNOULLI: ("BernoulliNB", "diag"),
}


def fit(
    *,
    store: Annotated[
        str | None,
        typer.Argument(metavar="STORE", help="zarr group of rows and labels.", show_default=False),
    ] = None,
    model: Annotated[Path, typer.Option(metavar="PATH", help="Where the estimator is saved.")],
    kind: Annotated[Kind, typer.Option(help="Which estimator.")] = Kind.QDA,
    covariance_type: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="gda: full, tied, diag, tied_diag, spherical or tied_spherical.",
        ),
    ] = None,
    shrinkage: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT",
            help="qda, lda, gda: towards a sphere, 0 to 1; or ledoit_wolf or oas.",
        ),
    ] = None,
    pooling: Annotated[
        float | None, typer.Option(help="gda: towards the common covariance, 0 to 1.")
    ] = None,
    reg_param: Annotated[
        float | None, typer.Option(help="qda, gda: towards the unit matrix, 0 to 1.")
    ] = None,
    var_smoothing: Annotated[
        float | None,
        typer.Option(help="nb, gda: share of the largest variance that is added to all."),
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option(metavar="P,P,...", help="Of the sorted classes; their shares by default."),
    ] = None,
    tol: Annotated[
        float | None, typer.Option(help="qda, lda, gda: what counts as singular.")
    ] = None,
    ddof: Annotated[int | None, typer.Option(help="gda: taken off the count of a class.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="bernoulli: smoothing, 1 unless given.")
    ] = None,
    binarize: Annotated[
        float | None, typer.Option(help="bernoulli: values above it are ones, 0 unless given.")
    ] = None,
    x: XName = "X",
    y: YName = "y",
    weights: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of an array that holds a weight for each row."),
    ] = None,
    max_memory: MaxMemory = None,
    missing: Missing = MissingChunks.FILL,
    on_invalid: Annotated[
        OnInvalid, typer.Option(help="Rows with NaN, infinity or --nodata: an error, or left out.")
    ] = OnInvalid.RAISE,
    nodata: Annotated[
        float | None, typer.Option(help="Value that says that nothing was measured.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="File that keeps the moments while rows are read: where that is stopped, the "
            "same command goes on from there.",
        ),
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="Between two writings of the file.")
    ] = 60.0,
    moments: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Save the moments too, before the model is made: another model then costs no "
            "second pass.",
        ),
    ] = None,
    moments_in: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Start from saved moments: without STORE no row is read, else its rows are added.",
        ),
    ] = None,
) -> None:
    """Fit an estimator in one pass over the rows, and save it."""
    if store is None and moments_in is None:
        raise typer.BadParameter("give STORE to read, or --moments-in", param_hint="STORE")
    written = [path.resolve() for path in (model, moments, checkpoint) if path is not None]
    if len(set(written)) < len(written):
        raise typer.BadParameter("--model, --moments and --checkpoint need a path each")

    import streamgda  # noqa: PLC0415
    from streamgda.runtime.memory import readable  # noqa: PLC0415

    name, structure = _ESTIMATORS[kind]
    estimator_class = getattr(streamgda, name)
    params, kept = _params(
        kind,
        estimator_class,
        structure,
        covariance_type=covariance_type,
        shrinkage=_number_or_text(shrinkage),
        pooling=pooling,
        reg_param=reg_param,
        var_smoothing=var_smoothing,
        priors=_numbers(priors),
        tol=tol,
        ddof=ddof,
        alpha=alpha,
        binarize=binarize,
    )
    refuse_other_kind(model, "estimator")
    if moments is not None:
        refuse_other_kind(moments, "moments")
    if checkpoint is not None:
        refuse_other_kind(checkpoint, "checkpoint")

    held = None if moments_in is None else streamgda.ClassMoments.load(moments_in)
    if store is not None:
        opened = functools.partial(streamgda.open_store, store, x, missing=missing.value)
        X, labels = opened(y)
        weight = None if weights is None else opened(weights)[1]
        started = time.perf_counter()
        resumed = checkpoint is not None and checkpoint.exists()
        with screen.saying_what_is_kept():
            added = streamgda.accumulate(
                estimator_class(**params).summed(X),
                labels,
                sample_weight=weight,
                **(
                    {"covariance_type": held.covariance_type, "norms": held.norms} if held else kept
                ),
                max_memory=max_memory,
                for_model=True,
                progress=True,
                on_invalid=on_invalid.value,
                nodata=nodata,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
            )
        held = held + added if held else added
        seconds = time.perf_counter() - started
        rate = "from the checkpoint on" if resumed else f"{X.shape[0] / seconds:,.0f} rows a second"
        screen.say(
            f"read {X.shape[0]:,} rows x {X.shape[1]:,} features in {seconds:.2f} s ({rate})"
        )
        if on_invalid is OnInvalid.SKIP:
            screen.say(f"left out {added.n_skipped:,} rows with NaN, infinity or nodata")
    assert held is not None  # there was a store, or moments
    if moments is not None:
        held.save(moments)
        screen.say(f"{held!r}: saved to {moments} ({readable(stored_bytes(moments) or 0)})")
    estimator = estimator_class.from_moments(held, **params)
    estimator.save(model)
    rows = screen.number(held.class_count.sum().item())
    screen.say(
        f"{' '.join(repr(estimator).split())} of {rows} rows in {held.classes.size:,} classes: "
        f"saved to {model} ({readable(stored_bytes(model) or 0)})"
    )


def _params(
    kind: Kind, estimator_class: Any, structure: str, **options: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options that were given, and what moments are to keep for them.

    Refused before any row is read where they cannot be meant.
    """
    from dataclasses import fields  # noqa: PLC0415

    from streamgda.models.covariance import Regularisation  # noqa: PLC0415

    given = {name: value for name, value in options.items() if value is not None}
    taken = [name for name in options if name in estimator_class().get_params()]
    for name in given:
        if name not in taken:
            raise typer.BadParameter(
                f"--kind {kind} takes {', '.join(map(_option, taken))}", param_hint=_option(name)
            )
    how = Regularisation(
        **{f.name: given[f.name] for f in fields(Regularisation) if f.name in given}
    )
    return given, how.needs(given.get("covariance_type", structure))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _number_or_text(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _numbers(text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not numbers with commas between them", param_hint="--priors"
        ) from None
