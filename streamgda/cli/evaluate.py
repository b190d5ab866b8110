"""`streamgda evaluate`: accuracy of a model on labelled rows, counted slab by slab."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgda.cli import screen
from streamgda.cli.inputs import open_both
from streamgda.cli.labels import labels_like
from streamgda.cli.options import (
    AllTouched,
    FeatureNames,
    InvalidRows,
    Json,
    LabelName,
    Labels,
    MaxMemory,
    Missing,
    MissingChunks,
    Model,
    Nodata,
    OnInvalid,
    Store,
    Unlabelled,
    XName,
    YName,
)

if TYPE_CHECKING:
    import numpy as np

_MOST_CLASSES = 20  # in a full confusion matrix; also the number of pairs listed otherwise
_SCORES = 1 << 20  # rows x classes that are scored at a time


def evaluate(
    model: Model,
    store: Store,
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
    json: Json = False,
) -> None:
    """Compare predicted and true labels: accuracy, precision, recall, log-loss, confusions."""
    from streamgda.rows import as_rows  # noqa: PLC0415
    from streamgda.rows.invalid_rows import row_rule  # noqa: PLC0415

    estimator, X, truth = open_both(
        model, store, x, y, missing, label, features, labels, all_touched
    )
    without = labels_like(unlabelled, truth, "--unlabelled")
    X, nodata = as_rows(X, None, nodata)
    rule = row_rule(on_invalid.value, nodata, without, y=truth)
    result = count(estimator, X, truth, max_memory=max_memory, rule=rule)
    if json:
        screen.show_json({"model": model, "store": store, **result.as_json()})
        return
    screen.show_table(
        ("", ""),
        [
            ("rows", f"{result.confusion.sum():,}"),
            ("accuracy", f"{result.accuracy:.4f}"),
            ("log-loss", "-" if result.log_loss is None else f"{result.log_loss:.4f}"),
        ],
    )
    screen.say()
    screen.show_table(
        ("class", "rows", "precision", "recall", "f1"),
        [
            (label, f"{rows:,}", *("-" if v is None else f"{v:.4f}" for v in values))
            for label, rows, *values in result.per_class()
        ],
    )
    screen.say()
    show_confusion(result)


def show_confusion(result: Evaluation) -> None:
    """Write the confusion matrix, or the most frequent confusions if there are many classes."""
    labels = result.labels.tolist()
    if len(labels) <= _MOST_CLASSES:
        screen.show_table(
            ("true \\ predicted", *map(str, labels)),
            [
                (label, *(str(n) if n else "." for n in row))
                for label, row in zip(labels, result.confusion.tolist(), strict=True)
            ],
        )
        return
    screen.show_table(
        ("true", "predicted", "rows"), [(*pair, f"{n:,}") for *pair, n in result.confused()]
    )


@dataclass(frozen=True)
class Evaluation:
    """Counts of true and predicted labels, and the log-loss.

    Attributes
    ----------
    labels : ndarray, shape (n_labels,)
        Classes of the model and labels of the rows, sorted.
    confusion : ndarray of int64, shape (n_labels, n_labels)
        Number of rows of each true label (axis 0) and predicted label (axis 1).
    log_loss : float or None
        Mean negative log-probability of the true class: infinite if a row has a label that the
        model does not know, None if the classifier has no probabilities.
    """

    labels: np.ndarray
    confusion: np.ndarray
    log_loss: float | None

    @property
    def accuracy(self) -> float:
        """Fraction of the rows whose predicted class is correct."""
        from sklearn.metrics import accuracy_score  # noqa: PLC0415

        true, predicted, rows = self._pairs()
        return float(accuracy_score(true, predicted, sample_weight=rows))

    def per_class(self) -> list[tuple[Any, int, float | None, float | None, float | None]]:
        """Return label, rows, precision, recall and F1 of each class; None for undefined values."""
        from sklearn.metrics import precision_recall_fscore_support  # noqa: PLC0415

        true, predicted, rows = self._pairs()
        scores = precision_recall_fscore_support(
            true, predicted, sample_weight=rows, zero_division=math.nan
        )[:3]
        values = [[None if math.isnan(v) else float(v) for v in score] for score in scores]
        return list(
            zip(self.labels.tolist(), self.confusion.sum(axis=1).tolist(), *values, strict=True)
        )

    def confused(self) -> list[tuple[Any, Any, int]]:
        """Return true label, predicted label and rows of the most frequent confusions."""
        true, predicted, rows = self._pairs()
        wrong = [i for i in (-rows).argsort(kind="stable") if true[i] != predicted[i] and rows[i]]
        labels = self.labels.tolist()
        return [
            (labels[true[i]], labels[predicted[i]], int(rows[i])) for i in wrong[:_MOST_CLASSES]
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the figures for JSON: null for an infinite log-loss and for undefined values."""
        names = ("label", "rows", "precision", "recall", "f1")
        return {
            "rows": int(self.confusion.sum()),
            "accuracy": self.accuracy,
            "log_loss": self.log_loss if math.isfinite(self.log_loss or 0) else None,
            "classes": [dict(zip(names, row, strict=True)) for row in self.per_class()],
            "confusion_matrix": self.confusion.tolist(),
        }

    def _pairs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        import numpy as np  # noqa: PLC0415

        true, predicted = np.indices(self.confusion.shape)
        return true.ravel(), predicted.ravel(), self.confusion.ravel()


def count(
    estimator: Any, X: Any, y: Any, *, max_memory: int | str | None = None, rule: Any = None
) -> Evaluation:
    """Score labelled rows slab by slab, and count the predictions.

    Parameters
    ----------
    estimator : estimator
    X : zarr.Array or array-like, shape (n_rows, n_features)
    y : zarr.Array or array-like, shape (n_rows,)
    max_memory : int or str, optional
        Memory budget, as for `streamgda.accumulate`.
    rule : RowRule, optional
        Which rows count; by default all, none of which may be invalid.

    Returns
    -------
    Evaluation
    """
    import numpy as np  # noqa: PLC0415
    from sklearn.metrics import confusion_matrix  # noqa: PLC0415

    from streamgda.engine.labelled import LabelledRows  # noqa: PLC0415
    from streamgda.engine.reading import reading  # noqa: PLC0415
    from streamgda.errors import InvalidDataError  # noqa: PLC0415
    from streamgda.estimators.scoring import scorer_of  # noqa: PLC0415
    from streamgda.rows.invalid_rows import CHECK_SUMS  # noqa: PLC0415
    from streamgda.rows.labels import encode, find  # noqa: PLC0415

    rule = CHECK_SUMS if rule is None else rule
    rows = LabelledRows(X, y)
    plan = rows.plan(max_memory)
    classes = labels = estimator.classes_
    likely = hasattr(estimator, "predict_log_proba")
    scorer = scorer_of(estimator, "predict_log_proba" if likely else "predict")
    with reading(plan, *rows.companions) as slabs:
        for start, (truth,) in slabs:
            labels = encode(rule.class_labels(truth, start), labels)[1]
    column = find(labels, classes)  # -1 for labels that the model does not know
    numbers = np.arange(labels.size)
    number_of_class = np.flatnonzero(column >= 0)
    confusion = np.zeros((labels.size, labels.size), np.int64)
    loss, n_rows = 0.0, 0
    step = max(1, _SCORES // classes.size)
    with rows.read(plan, "evaluating", progress=True) as slabs:
        for start, arrays in slabs:
            block, truth = _counted(rule, start, *arrays)
            n_rows += len(block)
            codes = find(truth, labels)
            for first in range(0, len(block), step):
                scores = scorer.function(block[first : first + step], start + first)
                true = codes[first : first + step]
                best = scores.argmax(axis=1) if likely else find(scores, classes)
                confusion += confusion_matrix(true, number_of_class[best], labels=numbers)
                if likely:
                    of_truth = scores[np.arange(true.size), column[true]]
                    loss -= float(np.where(column[true] >= 0, of_truth, -np.inf).sum())
    if not n_rows:
        raise InvalidDataError("every row is unlabelled or invalid: no row is left to score")
    return Evaluation(labels, confusion, loss / n_rows if likely else None)


def _counted(rule: Any, first_row: int, X: Any, y: Any) -> tuple[Any, np.ndarray]:
    """Return the rows that count, and their labels."""
    from streamgda.rows.invalid_rows import (  # noqa: PLC0415
        CHECK_SUMS,
        as_maskable_matrix,
        rows_to_count,
    )

    labels = rule.as_labels(y, first_row)
    if rule is CHECK_SUMS:  # the function that scores rows checks them
        return X, labels
    return rows_to_count(as_maskable_matrix(X, sparse=True), labels, None, rule, first_row)[:2]
