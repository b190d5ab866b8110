"""`streamgda fit`: fit an estimator to the rows of a store, or to saved moments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import typer

from streamgda.cli import screen
from streamgda.cli.files import (
    check_distinct,
    counting,
    open_rows,
    refuse_occupied,
    refuse_other_kind,
    stored_size,
)
from streamgda.cli.options import options_of, takes, value_of

_ESTIMATORS = {
    "qda": "QuadraticDiscriminantAnalysis",
    "lda": "LinearDiscriminantAnalysis",
    "nb": "GaussianNB",
    "gda": "GaussianDiscriminantAnalysis",
    "bernoulli": "BernoulliNB",
}


class Parameters(TypedDict, total=False):
    """Parameters of the estimators.

    Attributes
    ----------
    solver : {"svd", "lsqr", "eigen"}
        qda, lda: solver, as in scikit-learn; eigen if shrinkage is given.
    covariance_type : str
        gda: covariances of the classes.
    shrinkage : AMOUNT
        qda, lda, gda: shrinkage towards a sphere, 0 to 1, or ledoit_wolf or oas; or auto (Ledoit
        and Wolf of standardised features), which reads the rows twice.
    pooling : float
        gda: weight of the pooled covariance, 0 to 1.
    reg_param : float
        qda, gda: weight of the identity matrix, 0 to 1.
    var_smoothing : float
        nb, gda: fraction of the largest variance that is added to all variances.
    standardize : bool
        gda: regularise scaled features.
    priors : P,P,...
        Prior probabilities of the sorted classes; class frequencies by default.
    tol : float
        qda, lda, gda: threshold for singularity.
    ddof : int
        gda: number subtracted from each class count in a covariance.
    alpha : float
        bernoulli: additive smoothing; 1 by default.
    binarize : float
        bernoulli: values above this are ones; 0 by default.
    """

    solver: Literal["svd", "lsqr", "eigen"] | None
    covariance_type: (
        Literal["full", "tied", "diag", "tied_diag", "spherical", "tied_spherical"] | None
    )
    shrinkage: str | None
    pooling: float | None
    reg_param: float | None
    var_smoothing: float | None
    standardize: bool
    priors: str | None
    tol: float | None
    ddof: int | None
    alpha: float | None
    binarize: float | None


@takes(open_rows, counting)
def fit(
    store: str | None = None,
    *,
    model: Path,
    kind: Literal["qda", "lda", "nb", "gda", "bernoulli"] = "qda",
    weights: str | None = None,
    max_memory: str | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: Annotated[float, typer.Option(min=0)] = 60.0,
    moments: Path | None = None,
    moments_in: Path | None = None,
    overwrite: bool = False,
    **options: Unpack[Parameters],
) -> None:
    """Fit an estimator in one pass over the rows, and save it.

    Parameters
    ----------
    model : PATH
        File for the estimator.
    kind : {"qda", "lda", "nb", "gda", "bernoulli"}
        Estimator to fit.
    weights : NAME
        Name of the array of sample weights.
    max_memory : BYTES
        Memory budget for rows and sums, such as 512MB; an error if it is too small.
    checkpoint : PATH
        Save partial moments to this file; run the same command again to resume.
    checkpoint_every : SECONDS
        Time between two checkpoints.
    moments : PATH
        Also save the moments, from which other models can be fitted without reading rows.
    moments_in : PATH
        Start from saved moments; add the rows of STORE to them if it is given.
    overwrite : bool
        Replace existing output.
    """
    from streamgda import ClassMoments  # noqa: PLC0415  (see the note in `options`)

    if store is None and moments_in is None:
        raise typer.BadParameter("give STORE to read, or --moments-in", param_hint="STORE")
    check_distinct({"--model": model, "--moments": moments, "--checkpoint": checkpoint})
    given: dict[str, Any] = dict(options)
    reading, which = options_of(open_rows, given), options_of(counting, given)
    estimator = _estimator(kind, given)
    for path, saved in ((model, "estimator"), (moments, "moments")):
        if path is not None:
            refuse_other_kind(path, saved)
            refuse_occupied(path, overwrite or path == moments_in)  # to be added to
    if checkpoint is not None:  # of an earlier pass, which is resumed
        refuse_other_kind(checkpoint, "checkpoint")

    held: Any = None if moments_in is None else ClassMoments.load(moments_in)
    if store is not None:
        X, y, weight = _open(store, weights, reading)
        counted, resumed = counting(y, **which), checkpoint is not None and checkpoint.exists()
        skipped, started = held.n_skipped if held else 0, time.perf_counter()
        with screen.notes_on_interrupt():
            held = estimator.accumulate(
                X,
                y,
                weight,
                into=held,
                max_memory=max_memory,
                progress=True,
                checkpoint=checkpoint,
                checkpoint_every=checkpoint_every,
                **counted,
            )
        seconds = time.perf_counter() - started
        rate = "resumed from the checkpoint" if resumed else screen.rate(X.shape[0], seconds)
        size = f"{X.shape[0]:,} rows x {X.shape[1]:,} features"
        screen.say(f"read {size} in {seconds:.2f} s ({rate})")
        if counted["on_invalid"] == "skip":
            n = held.n_skipped - skipped
            screen.say(f"left out {n:,} rows with NaN, infinity, nodata or no label")
    if moments is not None:
        held.save(moments)
        screen.say(f"{held!r}: saved to {moments} ({stored_size(moments)})")
    fitted = type(estimator).from_moments(held, **estimator.get_params())
    fitted.save(model)
    rows = screen.number(held.class_count.sum().item())
    screen.say(
        f"{' '.join(repr(fitted).split())} of {rows} rows in {held.classes.size:,} classes: "
        f"saved to {model} ({stored_size(model)})"
    )


def _estimator(kind: str, options: dict[str, Any]) -> Any:
    """Return an unfitted estimator with the parameters that were given; refuse those it lacks."""
    import streamgda  # noqa: PLC0415

    estimator = getattr(streamgda, _ESTIMATORS[kind])()
    given = {name: value for name, value in options.items() if value not in (None, False)}
    accepted = [name for name in options if name in estimator.get_params()]
    for name in given:
        if name not in accepted:
            takes = ", ".join(map(_spelled, accepted))
            raise typer.BadParameter(f"--kind {kind} accepts {takes}", param_hint=_spelled(name))
    if "shrinkage" in given:
        given["shrinkage"] = value_of(given["shrinkage"])
        if kind != "gda" and "solver" not in given:
            if "reg_param" in given:
                raise typer.BadParameter(
                    "qda takes --shrinkage or --reg-param; use --kind gda for both",
                    param_hint="--reg-param",
                )
            given["solver"] = "eigen"
    if "priors" in given:
        given["priors"] = [value_of(part) for part in given["priors"].split(",")]
        if not all(isinstance(prior, int | float) for prior in given["priors"]):
            raise typer.BadParameter(
                f"{options['priors']!r} is not a list of numbers separated by commas",
                param_hint="--priors",
            )
    return estimator.set_params(**given)


def _spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _open(store: str, weights: str | None, reading: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return rows, labels and weights (None without a name)."""
    X, y = open_rows(store, **reading)
    if weights is None:
        return X, y, None
    from streamgda.rows import names_of  # noqa: PLC0415

    named = reading | {"y": weights, "label": None, "labels": None}
    if reading["features"] is None and (names := names_of(X)) and weights in names:
        # A column of weights is none of the features.
        named["features"] = reading["features"] = ",".join(n for n in names if n != weights)
        X, y = open_rows(store, **reading)
    return X, y, open_rows(store, **named)[1]
