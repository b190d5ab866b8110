"""`streamgda select`: choose the best of many models by cross-validation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from streamgda.cli import screen
from streamgda.cli.inputs import open_rows
from streamgda.cli.labels import labels_like
from streamgda.cli.options import (
    AllTouched,
    CheckpointEvery,
    CheckpointFile,
    FeatureNames,
    InvalidRows,
    Json,
    LabelName,
    Labels,
    MaxMemory,
    Missing,
    MissingChunks,
    Nodata,
    OnInvalid,
    OutputModel,
    Overwrite,
    Store,
    Unlabelled,
    XName,
    YName,
)
from streamgda.cli.paths import refuse_other_kind, refuse_replacing, stored_size

_SHOWN = 20
_WORDS = {"none": None, "true": True, "false": False}


class Scoring(StrEnum):
    """Score to maximise on held-out rows."""

    ACCURACY = "accuracy"
    LOG_LOSS = "neg_log_loss"
    LIKELIHOOD = "joint_log_likelihood"


def select(
    *,
    store: Store,
    model: OutputModel,
    scoring: Annotated[
        Scoring,
        typer.Option(
            help="Score to maximise; joint_log_likelihood needs one pass over the rows, others two."
        ),
    ] = Scoring.ACCURACY,
    cv: Annotated[int, typer.Option(help="Number of folds.")] = 5,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Values of a parameter to try, such as covariance_type=full,tied or "
            "shrinkage=0.01,0.1,oas. Give it several times to try all combinations. By default, "
            "37 models from common to separate covariances, in units of the rows and standardised.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed of the folds, and of --sample.")] = 0,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="ROWS",
            help="Score only that many of the rows held out, drawn at random, or a share below 1; "
            "all rows are learnt from.",
        ),
    ] = None,
    checkpoint: CheckpointFile = None,
    checkpoint_every: CheckpointEvery = 60.0,
    x: XName = "X",
    y: YName = "y",
    label: LabelName = None,
    features: FeatureNames = None,
    labels: Labels = None,
    all_touched: AllTouched = False,
    max_memory: MaxMemory = None,
    missing: Missing = MissingChunks.FILL,
    on_invalid: InvalidRows = OnInvalid.RAISE,
    nodata: Nodata = None,
    unlabelled: Unlabelled = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Compare many models by cross-validation, and save the best, fitted to all rows."""
    params = _grid(grid) if grid else None
    from streamgda import GaussianDiscriminantCV  # noqa: PLC0415

    refuse_replacing(model, "estimator", overwrite)
    _check_checkpoint(checkpoint, model)
    search = GaussianDiscriminantCV(
        params,
        cv=cv,
        scoring=scoring.value,
        random_state=seed,
        max_memory=max_memory,
        verbose=True,
        score_sample=int(sample) if sample is not None and sample.is_integer() else sample,
    )
    rows, found = open_rows(store, x, y, missing, label, features, labels, all_touched)
    without = labels_like(unlabelled, found, "--unlabelled")
    search.fit(
        rows,
        found,
        unlabelled=without,
        nodata=nodata,
        on_invalid=on_invalid.value,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
    )
    search.best_estimator_.save(model)
    _show(search, scoring.value, model, json)


def _check_checkpoint(checkpoint: Path | None, model: Path) -> None:
    """Refuse a checkpoint that would replace something else."""
    if checkpoint is not None:  # of an earlier search, which is resumed
        if checkpoint.resolve() == model.resolve():
            raise typer.BadParameter("--model and --checkpoint must be different paths")
        refuse_other_kind(checkpoint, "checkpoint")


def _show(search: Any, scoring: str, model: Path, json: bool) -> None:
    """Show the candidates, and where the best one was saved."""
    ranked = _ranked(search.cv_results_)
    if json:
        best = {"params": search.best_params_, "score": search.best_score_}
        screen.show_json({"scoring": scoring, "best": best, "candidates": ranked})
        return
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
            for row in ranked[:_SHOWN]
        ],
    )
    if len(ranked) > _SHOWN:
        screen.say(f"and {len(ranked) - _SHOWN:,} more")
    screen.say()
    screen.say(
        f"{' '.join(repr(search.best_estimator_).split())}: saved to {model} ({stored_size(model)})"
    )


def _ranked(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates, best first; scores that are not finite become None."""
    import numpy as np  # noqa: PLC0415

    order = np.argsort(results["rank_test_score"], kind="stable")
    means, deviations = results["mean_test_score"], results["std_test_score"]
    return [
        {
            "rank": int(results["rank_test_score"][c]),
            "params": results["params"][c],
            "score": float(means[c]) if np.isfinite(means[c]) else None,
            "std": float(deviations[c]) if np.isfinite(deviations[c]) else None,
        }
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
        grid[name.strip().replace("-", "_")] = [_value(text.strip()) for text in values.split(",")]
    return grid


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
