"""`prequential`: predict, then learn, batch by batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from streamgda.errors import InvalidDataError, SingularCovarianceError
from streamgda.estimators.drift import DriftMonitor, as_known
from streamgda.estimators.moment_classifier import MomentClassifier
from streamgda.models.drift import DriftReport
from streamgda.moments import ClassMoments
from streamgda.rows import as_batches, as_source
from streamgda.rows.batches import Batches
from streamgda.rows.invalid_rows import as_weights
from streamgda.rows.labels import find
from streamgda.runtime.parameters import LEAST, as_integer, as_number, check_type

_LEAST_PROBABILITY = np.finfo(np.float64).eps  # as for scikit-learn's log_loss
REFERENCE_WINDOWS = 10  # of rows that a model has learnt before it is a reference


@dataclass(frozen=True, repr=False)
class PrequentialResult:
    """Scores of a model on a stream, up to a batch.

    Rows without labels, and those that came before the model could predict, have no score. The
    mean of no scores is NaN. Rows count with their weights.

    Parameters
    ----------
    batch : int
        Number of the batch.
    n_rows : int
        Rows so far, of all batches.
    n_scored : int
        Rows so far that have a score.
    accuracy, log_loss : float
        Means of all scores so far.
    batch_accuracy, batch_log_loss : float
        Means of the scores of the batch.
    faded_accuracy, faded_log_loss : float
        Means in which older scores have less weight.
    seconds : float
        Time spent so far on predicting, learning and comparing.
    predictions : ndarray or None
        Predicted labels of the batch; None if the model could not predict.
    drift : list of DriftReport
        The windows that the batch filled.
    can_alarm_from : int or None
        First row of the stream at which drift can raise an alarm. None without a drift monitor.

    Examples
    --------
    >>> from streamgda import GaussianNB, prequential
    >>> from streamgda.datasets import GaussianStream
    >>> stream = GaussianStream(n_features=2, n_classes=3)
    >>> *_, last = prequential(GaussianNB(), stream.batches(1000, batch_rows=100))
    >>> round(last.accuracy, 2)
    0.68
    """

    batch: int
    n_rows: int
    n_scored: int
    accuracy: float
    log_loss: float
    batch_accuracy: float
    batch_log_loss: float
    faded_accuracy: float
    faded_log_loss: float
    seconds: float
    predictions: np.ndarray | None
    drift: list[DriftReport]
    can_alarm_from: int | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows so far, divided by the time spent on them."""
        return self.n_rows / self.seconds if self.seconds else np.nan

    def __repr__(self) -> str:
        drift = ", drift" if any(report.alarm for report in self.drift) else ""
        if self.can_alarm_from is not None and self.n_rows < self.can_alarm_from:
            drift = f", drift not watched before row {self.can_alarm_from:,}"
        return (
            f"PrequentialResult: {self.n_rows:,} rows, accuracy {self.accuracy:.4f} (faded "
            f"{self.faded_accuracy:.4f}), log-loss {self.log_loss:.4f} (faded "
            f"{self.faded_log_loss:.4f}){drift}"
        )


def prequential(
    model: Any,
    batches: Iterable[Any],
    *,
    drift: DriftMonitor | int | None = None,
    half_life: float | None = None,
    faded_half_life: float = 1000.0,
    columns: Any = None,
) -> Iterator[PrequentialResult]:
    r"""Predict each batch of a stream, then learn from it, and yield the scores so far.

    Every row is scored by a model that has not seen it, so that no row has to be held out [1]_. A
    batch is read when the next result is requested.

    - A model that is not fitted, or whose covariances are still singular, learns without
      predicting.
    - A row of a class that the model does not know counts as wrong. The probability of the true
      class counts as :math:`2^{-52}` at least, as in scikit-learn's ``log_loss``: the loss of a row
      is at most 36.04.
    - Rows without labels are only predicted.

    Parameters
    ----------
    model : estimator
        Estimator with ``partial_fit``, fitted or not, which learns.
    batches : iterable
        Batches ``(X, y)`` or ``(X, y, sample_weight)`` of one row or more. `y` may be None, or have
        missing labels (None, NaN or masked).
    drift : DriftMonitor or int, optional
        Monitor that the rows are added to. A number makes one with windows of that many rows, whose
        reference is the model: at once if it is fitted, else as soon as it has learnt the rows of
        ten windows.
    half_life : float, optional
        Number of rows, with labels or without, after which a row counts half for the model; see
        ``partial_fit``.
    faded_half_life : float
        Number of rows after which a score counts half in the faded scores.
    columns : tuple, optional
        Names ``(X, y)`` or ``(X, y, weight)`` of the columns of batches that are dicts or tables,
        as for `accumulate`.

    Returns
    -------
    iterator of PrequentialResult
        A result after each batch.

    Raises
    ------
    InvalidDataError
        For a batch that cannot be used, when it is read. The model has learnt those before it.
    InvalidParameterError
        For parameters out of range.
    TypeError
        For a model without ``partial_fit``, or another `drift`.

    References
    ----------
    .. [1] J. Gama, R. Sebastiao and P. P. Rodrigues, On evaluating stream learning algorithms,
       Machine Learning 90 (2013), 317-346.

    Examples
    --------
    >>> from streamgda import GaussianNB, prequential
    >>> from streamgda.datasets import GaussianStream
    >>> batches = GaussianStream(4, 3, seed=1).batches(3000, 1000)
    >>> for result in prequential(GaussianNB(), batches):
    ...     print(result.n_rows, result.n_scored, round(result.accuracy, 2))
    1000 0 nan
    2000 1000 0.78
    3000 2000 0.78
    """
    check_type("model", model, MomentClassifier, "an estimator of streamgda with partial_fit")
    given = drift is None or isinstance(drift, DriftMonitor)
    window = None if given else as_integer("drift", drift, "a DriftMonitor, or rows >= 2", 2)
    faded = as_number("faded_half_life", faded_half_life, "a number of rows above 0", LEAST)
    if half_life is not None:
        as_number("half_life", half_life, "a number of rows above 0, or None", LEAST)
    read = as_batches(batches, columns=columns)
    return _results(model, read, drift if given else None, window, half_life, faded)


def _results(
    model: Any,
    batches: Batches,
    monitor: Any,
    window: int | None,
    half_life: float | None,
    faded_half_life: float,
) -> Iterator[PrequentialResult]:
    """Yield the results; parameters are valid."""
    learning = {} if half_life is None else {"half_life": half_life}
    total, faded = np.zeros(3), np.zeros(3)
    n_rows, n_scored, seconds, learnt = 0, 0, 0.0, np.inf if hasattr(model, "moments_") else 0
    watching, watched = False, None
    for number, (X, y, *weight) in enumerate(batches):
        started = time.perf_counter()
        if window is not None and monitor is None and learnt >= REFERENCE_WINDOWS * window:
            monitor = DriftMonitor(without_fourth_moments(model.moments_), window=window)
        if monitor is not None and not watching:
            watching, watched = True, n_rows - monitor.n_rows + min(monitor.can_alarm_from.values())
        elif monitor is None and window is not None:  # the model learns its reference first
            watched = n_rows + int(max(0, REFERENCE_WINDOWS * window - learnt)) + window
        try:
            n = X.shape[0] if hasattr(X, "shape") else as_source(X).n_rows
            labels, known = as_known(y, n)
            predictions, scores = _score(model, X, labels, known)
            if predictions is None and not known.all():  # rows without labels are skipped
                ClassMoments("diag").update(X, np.zeros(n, np.int64))  # but none with NaN
            if known.any() or learning:  # rows without labels age those before them
                skip = {} if known.all() else {"on_invalid": "skip"}
                given = np.full(n, None) if y is None else y
                model.partial_fit(X, given, None, *weight, **learning, **skip)
            reports = [] if monitor is None else monitor.update(X, y, *weight)
        except InvalidDataError as error:
            error.place(f"batch {number}")
            raise
        weights = as_weights(weight[0], n) if weight else np.ones(n)
        ages = np.arange(n - 1, -1, -1)
        own = _sums(scores, weights[known])
        total += own
        recent = np.exp2(-ages / faded_half_life)
        faded = faded * 0.5 ** (n / faded_half_life) + _sums(scores, (weights * recent)[known])
        n_rows, n_scored, learnt = n_rows + n, n_scored + len(scores), learnt + known.sum()
        seconds += time.perf_counter() - started
        names = {"": total, "batch_": own, "faded_": faded}
        means = {
            f"{name}{score}": mean
            for name, sums in names.items()
            for score, mean in zip(("accuracy", "log_loss"), _means(sums), strict=True)
        }
        yield PrequentialResult(
            batch=number,
            n_rows=n_rows,
            n_scored=n_scored,
            seconds=seconds,
            predictions=predictions,
            drift=reports,
            can_alarm_from=watched,
            **means,
        )


def _score(
    model: Any, X: Any, labels: np.ndarray, known: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return predictions, and the hit and the loss of each row with a label, shape (n, 2).

    There are none if the model cannot predict.
    """
    try:
        model.model_  # noqa: B018  (errors of the model, not of the rows)
    except (NotFittedError, InvalidDataError, SingularCovarianceError):
        return None, np.empty((0, 2))
    log_proba = np.asarray(model.predict_log_proba(X), np.float64)
    best = log_proba.argmax(axis=1)
    codes = find(labels[known], model.classes_)
    own = log_proba[known, codes]
    own[codes < 0] = -np.inf
    losses = -np.maximum(own, np.log(_LEAST_PROBABILITY))
    return model.classes_[best], np.column_stack([best[known] == codes, losses])


def _sums(scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the sum of the weights, and the weighted sums of scores; zeros without scores."""
    return np.array([weights.sum(), *(weights @ scores)]) if len(scores) else np.zeros(3)


def _means(sums: np.ndarray) -> tuple[float, float]:
    weight, hits, losses = sums.tolist()
    return (hits / weight, losses / weight) if weight > 0 else (np.nan, np.nan)


def without_fourth_moments(moments: Any) -> Any:
    """Return moments as they are, or without fourth moments, which a reference does not need."""
    return moments.select_features(slice(None)) if moments.fourth_moments else moments
