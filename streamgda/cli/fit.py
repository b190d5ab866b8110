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
    labels: cli.Labels = None,
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
    """Fit an estimator in one pass over the rows, and save it."""
    import streamgda  # noqa: PLC0415  (see `options`)
    from streamgda.storage.saved import description_of  # noqa: PLC0415

    if data is None and moments_in is None:
        raise typer.BadParameter("give DATA to read, or --moments-in", param_hint="DATA")
    given = cli.parameters(settings)
    estimator = getattr(streamgda, _ESTIMATORS[kind])()
    cli.check_names(given, estimator.get_params(), "--set")
    estimator.set_params(**given)
    needs_rows = kind == "bnb" or given.get("shrinkage") == "auto"  # not moments of them
    if needs_rows and (checkpoint or (data and moments_in)):
        raise typer.BadParameter(
            f"{kind} is then fitted to rows, without --checkpoint and --moments-in"
        )
    cli.check_place(out)
    cli.check_place(moments_out)
    moments = None if moments_in is None else streamgda.ClassMoments.load(moments_in)
    figures: dict[str, Any] = {}
    if data is not None:
        X, y, weight = cli.open_rows(data, labels, features, drop, weights)
        reading = cli.counting(y, on_invalid, unlabelled)
        started = time.perf_counter()
        if needs_rows:
            found = estimator.fit(X, y, sample_weight=weight, **reading).moments_
        else:
            about: dict[str, Any] = {"max_memory": max_memory, "checkpoint": checkpoint}
            pooled = {"gnb": "diag", "lda": "full" if "priors" in given else "tied"}
            about["covariance_type"] = pooled.get(kind) or given.get("covariance_type", "full")
            about |= {"sample_weight": weight, "progress": True}
            found = streamgda.accumulate(X, y, **about, **reading)
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
    screen.show({"out": out, "data": data} | figures | description_of(estimator), json)
