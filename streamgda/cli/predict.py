"""`streamgda predict`: write predictions of rows to a zarr array or a table."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from streamgda.cli import options as cli
from streamgda.cli import screen

_METHODS = {
    "label": "predict",
    "proba": "predict_proba",
    "log-proba": "predict_log_proba",
    "density": "score_samples",
}
NewPath = Annotated[
    str, typer.Option(metavar="PATH", help="New zarr array, or table: .parquet or .csv.")
]
Method = Annotated[
    Literal["label", "proba", "log-proba", "density"],
    typer.Option("--write", help="Labels, (logarithms of) class probabilities, log-densities."),
]
Reject = Annotated[
    float | None, typer.Option(metavar="P", help="Reject rows whose p-value is below P.")
]
Keys = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME,...", help="Columns that are copied to a table of predictions."),
]
Filling = Annotated[
    Literal["raise", "fill"],
    typer.Option(help="Rows with NaN or infinity: raise, or write --fill for them."),
]
Fill = Annotated[str | None, typer.Option(metavar="VALUE", help="Written for invalid rows.")]
OnMissing = Annotated[
    Literal["raise", "marginal"], typer.Option(help="NaN: invalid, or score the other features.")
]


def predict(
    data: cli.Data,
    *,
    model: cli.Model,
    out: NewPath,
    method: Method = "label",
    features: cli.Features = None,
    keys: Keys = None,
    reject: Reject = None,
    on_invalid: Filling = "raise",
    fill: Fill = None,
    on_missing: OnMissing = "raise",
    max_memory: cli.MaxMemory = None,
    json: cli.Json = False,
) -> None:
    """Write a prediction for each row: its class, unless --write says otherwise.

    The same command resumes a zarr array after an interruption; a table appears when complete.
    """
    estimator, X, _ = cli.open_both(model, data, None, features, labelled=False)
    options: dict[str, Any] = {"on_invalid": on_invalid, "on_missing": on_missing}
    options |= {"max_memory": max_memory, "keys": cli.split_names(keys) or None}
    if fill is not None:
        options["fill"] = cli.label_like(fill, estimator.classes_ if method == "label" else 0.0)
    if reject is not None:
        options["reject"] = reject
    started = time.perf_counter()
    getattr(estimator, _METHODS[method])(X, out=out, **options)
    seconds = time.perf_counter() - started
    figures = {"out": out, "model": model, "data": data, "rows": X.shape[0], "seconds": seconds}
    screen.show(figures | {"rows a second": X.shape[0] / seconds}, json)
