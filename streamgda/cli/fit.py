"""`streamgda fit`: fit an estimator to rows, to saved moments, or to both."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

_ESTIMATORS = {
    "qda": "QuadraticDiscriminantAnalysis",
    "lda": "LinearDiscriminantAnalysis",
    "gnb": "GaussianNB",
    "bnb": "BernoulliNB",
    "gda": "GaussianDiscriminantAnalysis",
}
Kind = Annotated[
    Literal["qda", "lda", "gnb", "bnb", "gda"],
    typer.Option(help="Estimator: naive Bayes is gnb or bnb, any covariance gda."),
]
_Path = str | None
Checkpoint = Annotated[_Path, typer.Option(metavar="PATH", help="Keep what is done, to resume.")]
MomentsIn = Annotated[_Path, typer.Option(metavar="PATH", help="Moments that DATA is added to.")]
MomentsOut = Annotated[_Path, typer.Option(metavar="PATH", help="Save moments, for other kinds.")]


def fit(
    data: cli.OptionalData = None,
    *,
    out: cli.Out,
    kind: Kind = "qda",
    settings: cli.Settings = None,
    label: cli.Label = None,
    features: cli.Features = None,
    drop: cli.Drop = None,
    weights: cli.Weights = None,
    on_invalid: cli.OnInvalid = "raise",
    unlabelled: cli.Unlabelled = None,
    max_memory: cli.MaxMemory = None,
    checkpoint: Checkpoint = None,
    moments_in: MomentsIn = None,
    moments_out: MomentsOut = None,
    json: cli.Json = False,
) -> None:
    """Fit an estimator in one pass over the rows, and save it.

    No progress is shown for --kind bnb and --set shrinkage=auto.
    """
    import streamgda  # noqa: PLC0415  (see `options`)
    from streamgda.storage.files import check_place  # noqa: PLC0415

    if data is None and moments_in is None:
        raise typer.BadParameter("give DATA to read, or --moments-in", param_hint="DATA")
    estimator, given = getattr(streamgda, _ESTIMATORS[kind])(), cli.parameters(settings)
    for name in given.keys() - estimator.get_params().keys():
        known = ", ".join(estimator.get_params())
        raise typer.BadParameter(f"{name!r}; expected {known}", param_hint="--set")
    estimator.set_params(**given)
    needs_rows = kind == "bnb" or given.get("shrinkage") == "auto"  # not moments of them
    if needs_rows and (checkpoint or (data and moments_in)):
        what = "--kind bnb" if kind == "bnb" else "--set shrinkage=auto"
        raise typer.BadParameter(
            f"{what} is fitted to rows: leave out --checkpoint, and --moments-in beside DATA"
        )
    for place in filter(None, (out, moments_out)):
        check_place(place)
    moments = None if moments_in is None else streamgda.ClassMoments.load(moments_in)
    figures: dict[str, Any] = {}
    if data is not None:
        X, y, weight = cli.open_rows(data, label, features, drop, weights)
        about = cli.counting(y, on_invalid, unlabelled)
        about |= {"sample_weight": weight, "max_memory": max_memory}
        started = time.perf_counter()
        if needs_rows:
            found = estimator.fit(X, y, **about).moments_
        else:
            pooled = {"gnb": "diag", "lda": "full" if "priors" in given else "tied"}
            about["covariance_type"] = pooled.get(kind) or given.get("covariance_type", "full")
            found = streamgda.accumulate(X, y, checkpoint=checkpoint, progress=True, **about)
        moments = found if moments is None else moments + found
        seconds = time.perf_counter() - started
        figures["read"] = {
            "rows": X.shape[0],
            "skipped": found.n_skipped,
            "seconds": seconds,
            "rows a second": X.shape[0] / seconds,
        }
    if moments is not None and moments_out is not None:
        moments.save(moments_out)
    if not (needs_rows and data):
        estimator = estimator.from_moments(moments, **estimator.get_params())
    estimator.save(out)
    screen.show({"out": out, "data": data} | figures | estimator._description(), json)
