"""`streamgda evaluate`: accuracy of a model on labelled rows, counted slab by slab."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamgda.cli import screen
from streamgda.cli.files import counting, open_both, open_rows
from streamgda.cli.options import FormerArgument, options_of, takes

if TYPE_CHECKING:
    import numpy as np

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
    streamgda evaluate flowers.zarr --model model.zip
    streamgda evaluate flowers.csv --model model.zip --labels kind --json
    """
    from streamgda.rows import Rows  # noqa: PLC0415  (see the note in `options`)

    reading = options_of(open_rows, options)
    model, data, estimator, X, truth = open_both(model, data, former, **reading)
    rows = Rows.of(X, truth, **counting(truth, **options))
    result = count(estimator, rows.X, truth, max_memory=max_memory, rule=rows.rule)
    screen.show_table(
        ("", ""),
        [
            ("rows", f"{result.confusion.sum():,}"),
            ("accuracy", f"{result.accuracy:.4f}"),
            ("balanced accuracy", f"{result.balanced_accuracy:.4f}"),
            ("largest class", f"{result.largest_share:.4f}"),
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
    return {"model": model, "data": data, **result.as_json()}


def show_confusion(result: Evaluation) -> None:
    """Write the confusion matrix, or the most frequent confusions if there are many classes."""
    import numpy as np  # noqa: PLC0415

    labels, confusion = result.labels.tolist(), result.confusion
    if len(labels) <= _MOST_CLASSES:
        screen.show_table(
            ("true \\ predicted", *map(str, labels)),
            [
                (label, *(str(n) if n else "." for n in row))
                for label, row in zip(labels, confusion.tolist(), strict=True)
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
        return float(self.confusion.trace() / self.confusion.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean of the recalls of the labels that the rows have."""
        rows = self.confusion.sum(axis=1)
        return float((self.confusion.diagonal()[rows > 0] / rows[rows > 0]).mean())

    @property
    def largest_share(self) -> float:
        """Fraction of the rows that have the most frequent label: the accuracy of a constant."""
        return float(self.confusion.sum(axis=1).max() / self.confusion.sum())

    def per_class(self) -> list[tuple[Any, ...]]:
        """Return label, rows, precision, recall and F1 of each class; None for undefined values."""
        import numpy as np  # noqa: PLC0415

        right, true, predicted = (
            self.confusion.diagonal(),
            self.confusion.sum(axis=1),
            self.confusion.sum(axis=0),
        )
        with np.errstate(invalid="ignore"):  # 0 / 0
            scores = right / predicted, right / true, 2 * right / (true + predicted)
        values = [[screen.finite(v) for v in score.tolist()] for score in scores]
        return list(zip(self.labels.tolist(), true.tolist(), *values, strict=True))

    def as_json(self) -> dict[str, Any]:
        """Return the figures for JSON: null for an infinite log-loss and for undefined values."""
        names = ("label", "rows", "precision", "recall", "f1")
        return {
            "rows": int(self.confusion.sum()),
            "accuracy": self.accuracy,
            "balanced_accuracy": self.balanced_accuracy,
            "largest_class": self.largest_share,
            "log_loss": screen.finite(self.log_loss),
            "classes": [dict(zip(names, row, strict=True)) for row in self.per_class()],
            "confusion_matrix": self.confusion.tolist(),
        }


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

    from streamgda.engine.plan import distinct_labels, plan_labelled  # noqa: PLC0415
    from streamgda.engine.reading import in_process, reading  # noqa: PLC0415
    from streamgda.errors import InvalidDataError  # noqa: PLC0415
    from streamgda.rows import Rows  # noqa: PLC0415
    from streamgda.rows.invalid_rows import CHECK_SUMS  # noqa: PLC0415
    from streamgda.rows.labels import find, join_labels  # noqa: PLC0415

    rule = CHECK_SUMS if rule is None else rule
    rows = in_process(Rows(X, y))
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
            scores = scorer.function(X, slab.first_row)
            best = scores.argmax(axis=1) if likely else find(scores, classes)
            np.add.at(confusion, (codes, number_of_class[best]), 1)
            if likely:
                of_truth = scores[np.arange(codes.size), column[codes]]
                loss -= float(np.where(column[codes] >= 0, of_truth, -np.inf).sum())
    if not confusion.any():
        raise InvalidDataError("every row is unlabelled or invalid: no row is left to score")
    return Evaluation(labels, confusion, loss / confusion.sum() if likely else None)
