"""`streamgda evaluate`: compare predictions with the labels of rows."""

from __future__ import annotations

import math
import warnings

import numpy as np

from streamgda.cli import options as cli
from streamgda.cli import screen

_VALUES = 1 << 22  # So many probabilities are computed at a time.


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

    from streamgda.engine.reading import reporter  # noqa: PLC0415
    from streamgda.errors import InvalidDataError  # noqa: PLC0415
    from streamgda.rows.labels import code, refuse_missing  # noqa: PLC0415

    estimator, X, y = cli.open_both(model, data, label, features)
    skipped = cli.counting(y, "skip", unlabelled)["unlabelled"] or []
    classes, loss, kept = estimator.classes_, 0.0, []
    step = max(1, _VALUES // (len(classes) + X.shape[1]))
    filling = "fill" if on_invalid == "skip" else "raise"
    with reporter(True, X.shape[0], "evaluating") as progress, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")  # in a block
        for start in range(0, X.shape[0], step):
            stop = min(start + step, X.shape[0])
            proba = estimator.predict_proba(X[start:stop], on_invalid=filling)
            given, counted = code(y[start:stop], first_row=start), ~np.isnan(proba[:, 0])
            if on_invalid == "skip":
                counted &= ~given.missing
            else:
                refuse_missing(given, "y", start)
            counted &= ~np.isin(np.asarray(given), skipped)
            truth, proba = np.asarray(given[np.flatnonzero(counted)]), proba[counted]
            kept.append((truth, classes[proba.argmax(axis=1)]))
            loss += (
                metrics.log_loss(truth, proba, labels=classes, normalize=False)
                if len(truth) and np.isin(truth, classes).all()
                else math.inf * len(truth)
            )
            progress(stop)
    truth, predicted = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    if not len(truth):
        raise InvalidDataError("every row is invalid or unlabelled: no row is left to compare")
    found = np.union1d(truth, predicted)
    of = metrics.classification_report(
        truth, predicted, labels=found, output_dict=True, zero_division=0
    )
    names = [*map(str, found)]
    confusion = metrics.confusion_matrix(truth, predicted, labels=found)
    figures = {
        "rows": len(truth),
        "accuracy": float(metrics.accuracy_score(truth, predicted)),
        "balanced_accuracy": float(metrics.balanced_accuracy_score(truth, predicted)),
        "largest_class": float(np.unique(truth, return_counts=True)[1].max() / len(truth)),
        "log_loss": loss / len(truth) if math.isfinite(loss) else None,
        "classes": [{"label": name, **of[name]} for name in names],
        "confusion_matrix": [
            {"true \\ predicted": name, **dict(zip(names, counts, strict=True))}
            for name, counts in zip(names, confusion.tolist(), strict=True)
        ],
    }
    screen.show({"data": data, "model": model, **figures}, json)
