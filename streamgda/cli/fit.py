"""`streamgda fit` fits an estimator; `streamgda select` chooses the best of many."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import numpy as np
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
Scoring = Annotated[
    Literal["accuracy", "neg_log_loss", "joint_log_likelihood"],
    typer.Option(help="Score to maximise; joint_log_likelihood takes one pass, others two."),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE,...", help="Values of a parameter to try; repeatable."),
]
Groups = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column or array of groups that stay together.")
]


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
    """Fit an estimator in one pass over the rows, and save it."""
    import streamgda  # noqa: PLC0415  (see `options`)
    from streamgda.storage.files import check_place  # noqa: PLC0415

    if data is None and moments_in is None:
        raise typer.BadParameter("give DATA to read, or --moments-in", param_hint="DATA")
    estimator = getattr(streamgda, _ESTIMATORS[kind])()
    given = cli.parameters(settings, "--set", estimator)
    estimator.set_params(**given)
    in_parts = checkpoint or moments_in  # Moments of the rows suffice.
    if data and in_parts and (kind == "bnb" or given.get("shrinkage") == "auto"):
        what = "--kind bnb" if kind == "bnb" else "--set shrinkage=auto"
        raise typer.BadParameter(
            f"{what} is fitted to rows: leave out --checkpoint, and --moments-in beside DATA"
        )
    for place in filter(None, (out, moments_out)):
        check_place(place)
    moments = None if moments_in is None else streamgda.ClassMoments.load(moments_in)
    read: dict[str, Any] = {}
    if data is not None:
        X, y, weight = cli.open_rows(data, label, features, drop, weights)
        about = cli.counting(y, on_invalid, unlabelled) | {"max_memory": max_memory}
        started = time.perf_counter()
        if in_parts:
            about |= {"covariance_type": estimator._covariance_type(), "checkpoint": checkpoint}
            found = streamgda.accumulate(X, y, sample_weight=weight, **about)
            moments = found if moments is None else moments + found
        else:
            moments = estimator.fit(X, y, weight, **about).moments_
        seconds = time.perf_counter() - started
        read = {"rows": X.shape[0], "seconds": seconds, "rows a second": X.shape[0] / seconds}
    if moments_out is not None and moments is not None:
        moments.save(moments_out)
    if in_parts:
        estimator = estimator.from_moments(moments, **estimator.get_params())
    estimator.save(out)
    screen.show({"out": out, "data": data, "read": read} | estimator._description(), json)


def select(
    data: cli.Data,
    *,
    out: cli.Out,
    grid: Grid = None,
    scoring: Scoring = "accuracy",
    cv: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the folds.")] = 0,
    groups: Groups = None,
    label: cli.Label = None,
    features: cli.Features = None,
    drop: cli.Drop = None,
    weights: cli.Weights = None,
    on_invalid: cli.OnInvalid = "raise",
    unlabelled: cli.Unlabelled = None,
    max_memory: cli.MaxMemory = None,
    json: cli.Json = False,
) -> None:
    """Compare models by cross-validation, and save the best, fitted to all rows."""
    from sklearn.model_selection import GroupKFold  # noqa: PLC0415  (see `options`)

    import streamgda  # noqa: PLC0415
    from streamgda.storage.files import check_place  # noqa: PLC0415

    given = cli.parameters(grid, "--grid", streamgda.GaussianDiscriminantAnalysis())
    tried = {name: value if isinstance(value, list) else [value] for name, value in given.items()}
    check_place(out)
    search = streamgda.GaussianDiscriminantCV(
        tried or None,
        cv=cv if groups is None else GroupKFold(cv),
        scoring=scoring,
        random_state=seed,
    )
    X, y, weight, group = cli.open_rows(data, label, features, drop, weights, groups)
    beside = {"sample_weight": weight, "groups": group, "max_memory": max_memory}
    beside = {name: value for name, value in beside.items() if value is not None}
    search.fit(X, y, **beside, **cli.counting(y, on_invalid, unlabelled))
    search.best_estimator_.save(out)
    found = search.cv_results_
    columns = ("rank_test_score", "params", "mean_test_score", "std_test_score")
    rows = zip(*(np.asarray(found[name]).tolist() for name in columns), strict=True)
    candidates: list[dict[str, Any]] = [
        {"rank": rank, **params, scoring: mean, "+-": std}
        for rank, params, mean, std in sorted(rows, key=lambda row: row[0])
    ]
    best = {"params": search.best_params_, "score": search.best_score_}
    screen.show({"data": data, "out": out, "best": best, "candidates": candidates}, json)
