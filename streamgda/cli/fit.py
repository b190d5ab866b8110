"""`streamgda fit` fits an estimator; `streamgda select` chooses the best of many."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import typer

import streamgda
from streamgda.cli import options as cli
from streamgda.cli import screen
from streamgda.errors import FormatError

_ESTIMATORS = {
    "qda": "QuadraticDiscriminantAnalysis",
    "lda": "LinearDiscriminantAnalysis",
    "gnb": "GaussianNB",
    "bnb": "BernoulliNB",
    "gda": "GaussianDiscriminantAnalysis",
}
Kind = Annotated[
    Literal["qda", "lda", "gnb", "bnb", "gda"],
    cli.Option(help="Estimator: naive Bayes is gnb or bnb, any covariance gda."),
]
Checkpoint = Annotated[cli.Text, cli.Option(metavar="PATH", help="Keep what is done, to resume.")]
AddTo = Annotated[cli.Text, cli.Option(metavar="PATH", help="Model or moments of earlier rows.")]
Scoring = Annotated[
    Literal["accuracy", "neg_log_loss", "joint_log_likelihood"],
    cli.Option(help="Score to maximise; joint_log_likelihood takes one pass, others two."),
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
    add_to: AddTo = None,
    json: cli.Json = False,
) -> None:
    """Fit an estimator in one pass over the rows, and save it."""
    from streamgda.storage.files import check_place  # noqa: PLC0415  (see `options`)

    if data is None and add_to is None:
        raise typer.BadParameter("give DATA to read, or --add-to", param_hint="DATA")
    estimator = getattr(streamgda, _ESTIMATORS[kind])()
    given = cli.parameters(settings, "--set", estimator)
    estimator.set_params(**given)
    in_parts = checkpoint or add_to  # Moments of the rows suffice.
    if data and in_parts and (kind == "bnb" or given.get("shrinkage") == "auto"):
        raise typer.BadParameter(
            "bnb and shrinkage=auto need all rows: leave out --checkpoint, and --add-to beside DATA"
        )
    check_place(out)
    held = None if add_to is None else streamgda.load(add_to)
    held = getattr(held, "moments_", held)
    if held is not None and not isinstance(held, streamgda.ClassMoments):
        raise FormatError(f"{add_to} holds {type(held).__name__}; expected an estimator")
    if data is not None:
        X, y, weight = cli.open_rows(data, label, features, drop, weights)
        about = cli.counting(y, on_invalid, unlabelled) | {"max_memory": max_memory}
        if in_parts:
            structure = estimator._covariance_type() if held is None else held.covariance_type
            about |= {"covariance_type": structure, "checkpoint": checkpoint}
            found = streamgda.accumulate(X, y, sample_weight=weight, **about)
            held = found if held is None else held + found
        else:
            estimator.fit(X, y, weight, **about)
    if in_parts:
        estimator = estimator.from_moments(held, **estimator.get_params())
    estimator.save(out)
    screen.show({"out": out, "data": data} | estimator._description(), json)


def select(
    data: cli.Data,
    *,
    out: cli.Out,
    grid: cli.Grid = None,
    scoring: Scoring = "accuracy",
    cv: Annotated[int, cli.Option(min=2, help="Number of folds.")] = 5,
    seed: Annotated[int, cli.Option(min=0, help="Random seed of the folds.")] = 0,
    groups: cli.Groups = None,
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
    from sklearn.model_selection import GroupKFold  # noqa: PLC0415

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
