"""`streamgda evaluate`: accuracy of a model on labelled rows, counted slab by slab."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamgda.cli import screen
from streamgda.cli.files import counting, open_both, open_rows
from streamgda.cli.options import FormerArgument, options_of, takes
from streamgda.errors import InvalidDataError

_MOST_CLASSES = 20  # in a full confusion matrix; also the number of pairs listed otherwise


@takes(open_rows, counting)
def evaluate(
    data: str,
    former: FormerArgument = None,
    *,
    model: str | None = None,
    max_memory: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Compare predicted and true labels: accuracy, precision, recall, log-loss, confusions.

    Parameters
    ----------
    model : PATH
        Saved estimator.
    max_memory : BYTES
        Memory budget for rows and scores, such as 512MB; an error if it is too small.

    Examples
    --------
    streamgda evaluate flowers.zarr --model model.npz
    streamgda evaluate flowers.csv --model model.npz --labels kind --json
    """
    from streamgda.rows import Rows  # noqa: PLC0415  (see the note in `options`)

    reading = options_of(open_rows, options)
    model, data, estimator, X, truth = open_both(model, data, former, **reading)
    rows = Rows.of(X, truth, **counting(truth, **options))
    figures = count(estimator, rows, max_memory)
    screen.show_table(
        ("", ""),
        [
            ("rows", f"{figures['rows']:,}"),
            ("accuracy", _score(figures["accuracy"])),
            ("balanced accuracy", _score(figures["balanced_accuracy"])),
            ("largest class", _score(figures["largest_class"])),
            ("log-loss", _score(figures["log_loss"])),
        ],
    )
    screen.say()
    screen.show_table(
        ("class", "rows", "precision", "recall", "f1"),
        [
            (label, f"{n:,}", *map(_score, values))
            for label, n, *values in (each.values() for each in figures["classes"])
        ],
    )
    screen.say()
    show_confusion(figures)
    log_loss = screen.finite(figures["log_loss"])
    return {"model": model, "data": data, **figures, "log_loss": log_loss}


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def show_confusion(figures: dict[str, Any]) -> None:
    """Write the confusion matrix, or the most frequent confusions if there are many classes."""
    labels, confusion = [c["label"] for c in figures["classes"]], figures["confusion_matrix"]
    if len(labels) <= _MOST_CLASSES:
        screen.show_table(
            ("true \\ predicted", *map(str, labels)),
            [
                (label, *(str(n) if n else "." for n in row))
                for label, row in zip(labels, confusion, strict=True)
            ],
        )
        return
    wrong = np.where(np.eye(len(labels), dtype=bool), 0, confusion)
    most = np.argsort(-wrong, axis=None, kind="stable")[:_MOST_CLASSES]
    pairs = zip(*np.unravel_index(most, wrong.shape), strict=True)
    screen.show_table(
        ("true", "predicted", "rows"),
        [(labels[i], labels[j], f"{wrong[i, j]:,}") for i, j in pairs if wrong[i, j]],
    )


def count(estimator: Any, rows: Any, max_memory: int | str | None = None) -> dict[str, Any]:
    """Score labelled rows slab by slab, count the predictions, and return figures of them.

    Parameters
    ----------
    estimator : estimator
    rows : Rows
        Rows and their labels.
    max_memory : int or str, optional
        Memory budget, as for `streamgda.accumulate`.

    Returns
    -------
    dict
        For JSON, but that the log-loss, the mean negative log-probability of the true class, is
        infinite if a row has a label that the model does not know. It is None if the classifier
        has no probabilities. The accuracy of a constant is ``largest_class``. Undefined values of
        a class are None. The confusion matrix has a row for each true label.
    """
    from streamgda.engine.plan import distinct_labels, plan_labelled  # noqa: PLC0415
    from streamgda.engine.reading import in_process, reading  # noqa: PLC0415
    from streamgda.rows.labels import find, join_labels  # noqa: PLC0415

    rows, rule = in_process(rows), rows.rule
    classes = estimator.classes_
    slab_rows, rows = plan_labelled(rows, max_memory, out_row_bytes=8 * classes.size)
    likely = hasattr(estimator, "predict_log_proba")
    scorer = estimator._scorer("predict_log_proba" if likely else "predict")
    labels = join_labels(classes, distinct_labels(rows.y, rule))
    column = find(labels, classes)  # -1 for labels that the model does not know
    number_of_class = np.flatnonzero(column >= 0)
    confusion = np.zeros((labels.size, labels.size), np.int64)
    loss = 0.0
    with reading(rows, slab_rows, "evaluating", progress=True) as slabs:
        for slab in slabs:
            X, known = rule.counted(slab, sparse=True)[:2]
            codes = find(known, labels)
            found = scorer.function(X, slab.first_row)
            best = found.argmax(axis=1) if likely else find(found, classes)
            np.add.at(confusion, (codes, number_of_class[best]), 1)
            if likely:
                of_truth = found[np.arange(codes.size), column[codes]]
                loss -= float(np.where(column[codes] >= 0, of_truth, -np.inf).sum())
    if not confusion.any():
        raise InvalidDataError("every row is unlabelled or invalid: no row is left to score")
    right, true, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0
        precision, recall, f1 = right / predicted, right / true, 2 * right / (true + predicted)
    scores = [[screen.finite(v) for v in score.tolist()] for score in (precision, recall, f1)]
    names = ("label", "rows", "precision", "recall", "f1")
    per_class = zip(labels.tolist(), true.tolist(), *scores, strict=True)
    n_rows = true.sum().item()
    return {
        "rows": n_rows,
        "accuracy": right.sum().item() / n_rows,
        "balanced_accuracy": recall[true > 0].mean().item(),
        "largest_class": true.max().item() / n_rows,
        "log_loss": loss / n_rows if likely else None,
        "classes": [dict(zip(names, row, strict=True)) for row in per_class],
        "confusion_matrix": confusion.tolist(),
    }
