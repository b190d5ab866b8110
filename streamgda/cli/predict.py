"""`streamgda predict` writes predictions; `streamgda evaluate` compares them with labels."""

from __future__ import annotations

import math
import warnings
from typing import Annotated, Any, Literal

import numpy as np
import typer

from streamgda.cli import options as cli
from streamgda.cli import screen
from streamgda.errors import InvalidDataError

_METHODS = {
    "label": "predict",
    "proba": "predict_proba",
    "log-proba": "predict_log_proba",
    "density": "score_samples",
}
_VALUES = 1 << 22  # So many probabilities are computed at a time.
NewPath = Annotated[str, cli.Option(metavar="PATH", help="New zarr array, or .parquet or .csv.")]
Method = Annotated[
    Literal["label", "proba", "log-proba", "density"],
    cli.Option("--write", help="Labels, (logarithms of) class probabilities, log-densities."),
]
Reject = Annotated[float | None, cli.Option(metavar="P", help="Reject rows of a p-value below P.")]
Filling = Annotated[
    Literal["raise", "fill"], cli.Option(help="Rows with NaN or infinity: raise, or write --fill.")
]
Fill = Annotated[cli.Text, cli.Option(metavar="VALUE", help="Written for invalid rows.")]
OnMissing = Annotated[
    Literal["raise", "marginal"], cli.Option(help="NaN: invalid, or score the other features.")
]


def predict(
    data: cli.Data,
    *,
    model: cli.Model,
    out: NewPath,
    method: Method = "label",
    features: cli.Features = None,
    keys: cli.Keys = None,
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
    if reject is not None and method != "label":
        raise typer.BadParameter("rejecting goes with --write label", param_hint="--reject")
    name = _METHODS[method]
    estimator, X, _ = cli.open_both(model, name, data, None, features, labelled=False)
    options: dict[str, Any] = {"on_invalid": on_invalid, "on_missing": on_missing}
    options |= {"max_memory": max_memory, "keys": keys or None}
    if fill is not None:
        like = estimator.classes_ if method == "label" else np.zeros(1)
        options["fill"] = cli.label_like(fill, like)
    if reject is not None:
        options["reject"] = reject
    getattr(estimator, name)(X, out=out, **options)
    screen.show({"out": out, "model": model, "data": data, "rows": X.shape[0]}, json)


def evaluate(
    data: cli.Data,
    *,
    model: cli.Model,
    label: cli.Label = None,
    features: cli.Features = None,
    on_invalid: cli.OnInvalid = "raise",
    unlabelled: cli.Unlabelled = None,
    json: cli.Json = False,
) -> None:
    """Report accuracy, log-loss, precision and recall of a model on labelled rows."""
    from sklearn import metrics  # noqa: PLC0415  (see `options`)

    from streamgda.engine.reading import reading  # noqa: PLC0415
    from streamgda.rows import Rows  # noqa: PLC0415
    from streamgda.rows.counting import raise_not_finite  # noqa: PLC0415

    estimator, X, y = cli.open_both(model, "predict_proba", data, label, features)
    rows = Rows.of(X, y, **cli.counting(y, on_invalid, unlabelled)).opened().checked()
    classes, loss, truth, predicted = estimator.classes_, 0.0, [], []
    summed: Any = {"labels": classes, "normalize": False}
    unit = rows.X.chunk_rows
    step = max(1, _VALUES // (len(classes) + X.shape[1]) // unit) * unit
    with reading(rows, step, "evaluating") as slabs, warnings.catch_warnings():
        # A slab has no names.
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        for slab in slabs:
            counted = rows.rule.counted(slab)
            if not len(counted.X):
                continue
            if not np.isfinite(np.asarray(counted.X)).all():
                raise_not_finite(counted.X, slab.first_row, counted.numbers)
            proba, labels = estimator.predict_proba(counted.X), np.asarray(counted.y)
            known = np.isin(labels, classes).all()
            loss += metrics.log_loss(labels, proba, **summed) if known else math.inf
            truth.append(labels)
            predicted.append(classes[proba.argmax(axis=1)])
    if not truth:
        raise InvalidDataError(f"every row of {data} is invalid or unlabelled; give others")
    t, p = np.concatenate(truth), np.concatenate(predicted)
    found = np.union1d(t, p)
    of = metrics.classification_report(t, p, labels=found, output_dict=True, zero_division=0)
    names = [*map(str, found)]
    confusion = metrics.confusion_matrix(t, p, labels=found).tolist()
    figures = {
        "rows": len(t),
        "accuracy": float(metrics.accuracy_score(t, p)),
        "balanced_accuracy": float(metrics.balanced_accuracy_score(t, p)),
        "largest_class": float(np.unique(t, return_counts=True)[1].max() / len(t)),
        "log_loss": loss / len(t) if math.isfinite(loss) else None,
        "classes": [{"label": name, **of[name]} for name in names],
        "confusion_matrix": [
            {"true \\ predicted": name, **dict(zip(names, counts, strict=True))}
            for name, counts in zip(names, confusion, strict=True)
        ],
    }
    screen.show({"data": data, "model": model, **figures}, json)
