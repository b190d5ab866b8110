"""Drift of a stream from what an estimator had learnt before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamgda.errors import StreamGDAError
from streamgda.estimators.drift import DriftMonitor
from streamgda.estimators.gaussian import GaussianClassifier
from streamgda.estimators.prequential import REFERENCE_WINDOWS, without_norms
from streamgda.models.drift import DriftReport


class OnlineDrift:
    """Windows of a stream, compared with what an estimator had learnt when they began.

    The reference is the estimator: at once if it is fitted, else as soon as it has learnt the rows
    of ten windows. Estimators that are not Gaussian are not compared.

    Parameters
    ----------
    estimator : MomentClassifier
    window : int
        Rows of a window; 0 compares nothing.

    Attributes
    ----------
    n_windows, n_alarms : int
        Windows that were compared, and those of them that raised an alarm.
    last_alarm : DriftReport or None
    failure : str
        Reason that nothing is compared any more, if there is one.

    Examples
    --------
    >>> from streamgda import GaussianNB
    >>> random = np.random.default_rng(0)
    >>> nb = GaussianNB().fit(random.normal(size=(400, 2)), [0, 1] * 200)
    >>> drift = OnlineDrift(nb, 100)
    >>> drift.update(random.normal(size=(100, 2)) + 1, [None] * 100)
    >>> str(drift)
    '1 of 1 windows, last rows 0 to 100 (all rows: means)'
    """

    def __init__(self, estimator: Any, window: int) -> None:
        self._estimator, self._window = estimator, window
        self._active = bool(window) and isinstance(estimator, GaussianClassifier)
        self._monitor: DriftMonitor | None = None
        self.n_windows = self.n_alarms = 0
        self.last_alarm: DriftReport | None = None
        self.failure = ""
        self._least = REFERENCE_WINDOWS * window
        if self._active and hasattr(estimator, "moments_"):
            self._least = 0
            self._start()

    def update(self, X: np.ndarray, labels: Sequence[Any]) -> None:
        """Add rows, with labels that may be None, before the estimator learns them."""
        if self._active and self._monitor is None:
            self._start()
        if self._monitor is None or not len(X):
            return
        try:
            reports = self._monitor.update(X, np.array(labels, object))
        except StreamGDAError as error:
            self._stop(error)
            return
        self.n_windows += len(reports)
        for report in reports:
            if report.alarm:
                self.n_alarms, self.last_alarm = self.n_alarms + 1, report

    def __str__(self) -> str:
        if self.failure:
            return f"not compared: {self.failure}"
        text = f"{self.n_alarms:,} of {self.n_windows:,} windows"
        if self.last_alarm is None:
            return text
        tests = (
            f"{'all rows' if label is None else f'class {label}'}: {test}"
            for label, test in self.last_alarm.alarms
        )
        start, stop = self.last_alarm.start, self.last_alarm.stop
        return f"{text}, last rows {start:,} to {stop:,} ({', '.join(tests)})"

    def _start(self) -> None:
        """Take the estimator as the reference, if it has learnt enough."""
        moments = getattr(self._estimator, "moments_", None)
        if moments is None or moments.class_count.sum() < self._least:
            return
        try:
            self._monitor = DriftMonitor(without_norms(moments), window=self._window)
        except StreamGDAError as error:
            self._stop(error)

    def _stop(self, error: StreamGDAError) -> None:
        self._active, self._monitor, self.failure = False, None, str(error)
