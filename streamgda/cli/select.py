"""`streamgda select`: choose the best of many models by cross-validation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import typer

import streamgda
from streamgda.cli import files, screen
from streamgda.cli.options import options_of, takes, value_of

_SHOWN = 20


@takes(files.open_rows, files.counting)
def select(
    data: str,
    *,
    out: Path,
    scoring: Literal[
        "accuracy", "balanced_accuracy", "neg_log_loss", "joint_log_likelihood"
    ] = "accuracy",
    cv: int = 5,
    grid: list[str] | None = None,
    seed: int = 0,
    sample: float | None = None,
    weights: str | None = None,
    groups: str | None = None,
    max_memory: str | None = None,
    overwrite: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Compare many models by cross-validation, and save the best, fitted to all rows.

    Parameters
    ----------
    out : PATH
        File for the estimator.
    scoring : {"accuracy", "balanced_accuracy", "neg_log_loss", "joint_log_likelihood"}
        Score to maximise; joint_log_likelihood needs one pass over the rows, others two.
    cv : int
        Number of folds: of --groups, if they are given.
    grid : NAME=VALUE,...
        Values of a parameter to try, such as covariance_type=full,tied or shrinkage=0.01,0.1,oas.
        Give it several times to try all combinations. By default, 42 models from common to separate
        covariances, in units of the rows and standardised.
    seed : int
        Random seed of the folds, and of --sample.
    sample : ROWS
        Score only about that many of the rows held out, drawn at random, or a share below 1; all
        rows are learnt from.
    weights : NAME
        Array or column of sample weights.
    groups : NAME
        Array or column of groups, such as patients or sites: the rows of one are never in several
        folds.
    max_memory : BYTES
        Memory budget for rows and sums, such as 512MB; an error if it is too small.
    overwrite : bool
        Replace existing output.

    Examples
    --------
    streamgda select flowers.zarr --out best.npz --scoring neg_log_loss
    streamgda select flowers.csv --labels kind --groups field --out best.npz --overwrite
    """
    params = _grid(grid) if grid else None
    from sklearn.model_selection import GroupKFold  # noqa: PLC0415  (see the note in `options`)

    files.check_saving(out, overwrite)
    search = streamgda.GaussianDiscriminantCV(
        params,
        cv=GroupKFold(cv) if groups is not None and cv > 1 else cv,
        scoring=scoring,
        random_state=seed,
        max_memory=max_memory,
        verbose=True,
        score_sample=int(sample) if sample is not None and sample.is_integer() else sample,
    )
    beside = {"sample_weight": weights, "groups": groups}
    given = {name: array for name, array in beside.items() if array is not None}
    reading = options_of(files.open_rows, options)
    X, y, *arrays = files.open_rows(data, tuple(given.values()), **reading)
    search.fit(X, y, **dict(zip(given, arrays, strict=True)), **files.counting(y, **options))
    search.best_estimator_.save(out)
    ranked = _ranked(search.cv_results_)
    names = sorted({name for row in ranked for name in row["params"]})
    screen.show_table(
        ["rank", *names, scoring, "+-"],
        [
            (
                row["rank"],
                *(row["params"].get(name, "") for name in names),
                "singular" if row["score"] is None else f"{row['score']:.5g}",
                "" if row["score"] is None else f"{row['std']:.2g}",
            )
            for row in ranked
        ],
        most=_SHOWN,
    )
    screen.say()
    best = " ".join(repr(search.best_estimator_).split())
    screen.say(f"{best}: saved to {out} ({files.stored_size(out)})")
    found = {"params": search.best_params_, "score": search.best_score_}
    return {"data": data, "out": out, "scoring": scoring, "best": found, "candidates": ranked}


def _ranked(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates, best first; scores that are not finite become None."""
    names = {"rank": "rank_test_score", "score": "mean_test_score", "std": "std_test_score"}
    columns = {name: np.asarray(results[key]).tolist() for name, key in names.items()}
    order = np.argsort(results["rank_test_score"], kind="stable")
    return [
        {"params": results["params"][c]}
        | {name: screen.finite(column[c]) for name, column in columns.items()}
        for c in order
    ]


def _grid(options: list[str]) -> dict[str, list[Any]]:
    grid = {}
    for option in options:
        name, equals, values = option.partition("=")
        if not equals or not name or not values:
            raise typer.BadParameter(
                f"{option!r}; expected a parameter and values, such as shrinkage=0.01,0.1",
                param_hint="--grid",
            )
        grid[name.strip().replace("-", "_")] = [value_of(t.strip()) for t in values.split(",")]
    return grid
