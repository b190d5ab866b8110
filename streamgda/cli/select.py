"""`streamgda select`: choose the best of many models by cross-validation."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

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


def select(
    data: cli.Data,
    *,
    out: cli.Out,
    grid: Grid = None,
    scoring: Scoring = "accuracy",
    cv: Annotated[int, typer.Option(help="Number of folds.")] = 5,
    seed: Annotated[int, typer.Option(help="Random seed of the folds.")] = 0,
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

    tried = {n: v if isinstance(v, list) else [v] for n, v in cli.parameters(grid).items()}
    check_place(out)
    search = streamgda.GaussianDiscriminantCV(
        tried or None,
        cv=cv if groups is None else GroupKFold(cv),
        scoring=scoring,
        random_state=seed,
        verbose=True,
    )
    X, y, weight, group = cli.open_rows(data, label, features, drop, weights, groups)
    reading = cli.counting(y, on_invalid, unlabelled)
    beside = {"sample_weight": weight, "groups": group, "max_memory": max_memory}
    search.fit(X, y, **{n: v for n, v in beside.items() if v is not None}, **reading)
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
