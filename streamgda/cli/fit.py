"""`streamgda fit`: fit an estimator to the rows of a store, or to saved moments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, Unpack

import typer

import streamgda
from streamgda.cli import files, screen
from streamgda.cli.options import options_of, takes, value_of, warn_deprecated

_ESTIMATORS = {
    "qda": "QuadraticDiscriminantAnalysis",
    "lda": "LinearDiscriminantAnalysis",
    "gnb": "GaussianNB",
    "bnb": "BernoulliNB",
    "gda": "GaussianDiscriminantAnalysis",
}
_OTHER_NAMES = {name: kind for kind, name in _ESTIMATORS.items()}
_DEPRECATED = {"nb": "gnb", "bernoulli": "bnb"}


def _kinds(incomplete: str) -> list[str]:
    """Return the names of estimators that begin with a text, for completion in the shell."""
    return [kind for kind in (*_ESTIMATORS, *_ESTIMATORS.values()) if kind.startswith(incomplete)]


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
        gnb, gda: fraction of the largest variance that is added to all variances.
    standardize : bool
        gda: regularise scaled features.
    priors : P,P,...
        Prior probabilities of the sorted classes; class frequencies by default.
    tol : float
        qda, lda, gda: threshold for singularity.
    ddof : int
        gda: number subtracted from each class count in a covariance.
    alpha : float
        bnb: additive smoothing; 1 by default.
    binarize : float
        bnb: values above this are ones; 0 by default.
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


@takes(files.open_rows, files.counting)
def fit(
    data: str | None = None,
    *,
    out: Path,
    kind: Annotated[str, typer.Option(autocompletion=_kinds)] = "qda",
    weights: str | None = None,
    max_memory: str | None = None,
    checkpoint: Path | None = None,
    checkpoint_every: Annotated[float, typer.Option(min=0)] = 60.0,
    moments_out: Path | None = None,
    moments_in: Path | None = None,
    overwrite: bool = False,
    **options: Unpack[Parameters],
) -> dict[str, Any]:
    """Fit an estimator in one pass over the rows, and save it.

    Parameters
    ----------
    out : PATH
        File for the estimator.
    kind : KIND
        Estimator to fit: qda, lda, gnb (GaussianNB), bnb (BernoulliNB), gda, or its name in Python.
    weights : NAME
        Array or column of sample weights.
    max_memory : BYTES
        Memory budget for rows and sums, such as 512MB; an error if it is too small.
    checkpoint : PATH
        Save partial moments to this file; run the same command again to resume.
    checkpoint_every : SECONDS
        Time between two checkpoints.
    moments_out : PATH
        Also save the moments, from which other models can be fitted without reading rows.
    moments_in : PATH
        Start from saved moments; add the rows of DATA to them if it is given.
    overwrite : bool
        Replace a saved object.

    Examples
    --------
    streamgda fit flowers.zarr --kind lda --out model.npz
    streamgda fit flowers.csv --labels kind --kind gda --reg-param 0.01 --out gda.npz
    """
    from streamgda.storage.saved import description_of  # noqa: PLC0415  (see the note in `options`)

    if data is None and moments_in is None:
        raise typer.BadParameter("give DATA to read, or --moments-in", param_hint="DATA")
    files.check_distinct({"--out": out, "--moments-out": moments_out, "--checkpoint": checkpoint})
    given: dict[str, Any] = dict(options)
    reading, which = options_of(files.open_rows, given), options_of(files.counting, given)
    estimator = _estimator(kind, given)
    for path in (out, moments_out):
        if path is not None:
            files.check_saving(path, overwrite or path == moments_in)  # to be added to
    if checkpoint is not None:  # of an earlier pass, which is resumed
        files.check_saving(checkpoint, True)

    held: Any = None if moments_in is None else streamgda.ClassMoments.load(moments_in)
    figures: dict[str, Any] = {"data": data, "out": out}
    if data is not None:
        beside = () if weights is None else (weights,)
        X, y, *weight = files.open_rows(data, beside, **reading)
        counted = files.counting(y, **which)
        resumed = checkpoint is not None and checkpoint.exists()
        skipped, started = held.n_skipped if held else 0, time.perf_counter()
        held = estimator.accumulate(
            X,
            y,
            *weight,
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
        figures["read"] = {"rows": X.shape[0], "seconds": seconds}
        if counted["on_invalid"] == "skip":
            n = held.n_skipped - skipped
            figures["read"]["left_out"] = n
            screen.say(f"left out {n:,} rows with NaN, infinity, nodata or no label")

    def keep() -> None:
        if moments_out is not None:
            held.save(moments_out)
            screen.say(f"{held!r}: saved to {moments_out} ({files.stored_size(moments_out)})")

    # After an error, the same command would add the rows to them again.
    added = moments_in and moments_out and moments_in.resolve() == moments_out.resolve()
    if not added:
        keep()
    fitted = type(estimator).from_moments(held, **estimator.get_params())
    fitted.save(out)
    if added:
        keep()
    rows = screen.number(held.class_count.sum().item())
    screen.say(
        f"{' '.join(repr(fitted).split())} of {rows} rows in {held.classes.size:,} classes: "
        f"saved to {out} ({files.stored_size(out)})"
    )
    return figures | description_of(fitted)


def _estimator(kind: str, options: dict[str, Any]) -> Any:
    """Return an unfitted estimator with the parameters that were given; refuse those it lacks."""
    if kind in _DEPRECATED:
        warn_deprecated(f"--kind {kind}", f"--kind {_DEPRECATED[kind]}")
    kind = (_OTHER_NAMES | _DEPRECATED).get(kind, kind)
    if kind not in _ESTIMATORS:
        expected = f"expected {', '.join((*_ESTIMATORS, *_ESTIMATORS.values()))}"
        raise typer.BadParameter(f"{kind!r}; {expected}", param_hint="--kind")
    estimator = getattr(streamgda, _ESTIMATORS[kind])()
    given = {k: value for k, value in options.items() if value is not None and value is not False}
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
