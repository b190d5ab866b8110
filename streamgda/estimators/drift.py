"""`DriftMonitor`: windows of a stream beside a reference, with alarms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from streamgda import storage
from streamgda.errors import InvalidDataError, MemoryBudgetError
from streamgda.estimators.drift_state import NAMES, Sample, as_arrays, from_arrays
from streamgda.estimators.window_rows import WindowRows, read_rows
from streamgda.models.covariance_test import Approximation
from streamgda.models.drift import (
    ALL,
    RECENT,
    RECENT_SHARE,
    Comparison,
    Course,
    DriftReport,
    WeightedMeans,
    calibrated,
    compare,
    compare_shares,
    parts_of,
    whole_of,
)
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.rows.labels import find, join_labels
from streamgda.runtime.interruption import Lock
from streamgda.runtime.memory import readable, spare_memory
from streamgda.runtime.parameters import (
    BELOW_ONE,
    LEAST,
    as_integer,
    as_number,
    as_numbers,
    check_type,
)
from streamgda.storage.checks import check_array, check_whole
from streamgda.storage.saved import Saved, State, description_of, nested, restore_nested

_PARAMETERS = ("window", "level", "calibration", "least_rows", "keep", "recent")
COURSES = ("courses", "recent_means")  # arrays of the exponentially weighted means
_REFERENCE = "ClassMoments, or a fitted Gaussian estimator that keeps its moments"


class DriftMonitor(Saved):
    r"""Compare the windows of a stream with a reference, and raise alarms.

    A window is full after `window` rows; the next one starts with the next row. Each full window
    is compared with the reference: all rows, the rows of each class, and the class shares. Between,
    each row is added to exponentially weighted means, which raise an alarm at once.

    - Means: Hotelling's two-sample :math:`T^2` [1]_.
    - Covariances: Box's M. Its chi-square distribution holds for Gaussian rows only, and heavier
      tails would raise one false alarm after another. Therefore the statistics of the first
      `calibration` windows that raise no alarm take its place.
    - Recent means: multivariate exponentially weighted moving averages (MEWMA) [4]_ of all rows
      and of each class, which see a shift of the mean as soon as it can be told from chance. Those
      of Gaussian rows have a known distribution; their largest values in the first `calibration`
      windows count too, because heavier tails reach further. Until then they are not tested.
    - Class shares: the G test with Williams's correction [2]_; classes of which fewer than five
      rows are expected share a cell.
    - The symmetric Kullback-Leibler divergence of the Gaussians [3]_ measures the size of a drift,
      which p-values do not: in large windows every difference is significant.

    A window raises an alarm if a p-value, after correction for all its tests, is at most
    `level`: without drift, the probability of an alarm is at most `level` a window. All windows
    are compared with the same reference, which makes them dependent: if the reference has few
    rows, some references raise more alarms than others, and only their mean is `level`. A
    reference of many windows' rows avoids that.

    Parameters
    ----------
    reference : ClassMoments or estimator
        Moments, or a fitted Gaussian estimator, of the rows to compare with; they are copied.
    window : int
        Rows of a window.
    level : float
        Probability of a false alarm in a window.
    calibration : int or None
        Windows from which the distributions of Box's M and of recent means are estimated, at
        least 5. Until then they are not tested; `can_alarm_from` has the rows. Zero takes all rows,
        and those of classes, as Gaussian. None leaves covariances and recent means untested.
    least_rows : int
        Rows of a class in a window below which only its share is tested.
    covariance_type : str, optional
        Covariance type to compare, which the moments determine; by default their own. Without
        covariances between features, as with ``"diag"``, each feature is tested, and Bonferroni's
        correction applied; so it is with less than five rows a feature.
    keep : int
        Most reports that are kept.
    recent : tuple of float
        Weights of the newest row in exponentially weighted means, below 1; empty for none.

    Attributes
    ----------
    n_rows : int
        Rows that have been compared, or wait for their window to be full.
    reports : list of DriftReport
        The last reports.
    last_window : ClassMoments or None
        Moments of the labelled rows of the last full window.
    can_alarm_from : dict of str to int
        Row from which on each test can raise an alarm, if no window does before.

    Raises
    ------
    InvalidDataError
        If the reference has no rows.
    InvalidParameterError
        For parameters out of range.
    MemoryBudgetError
        If a window does not fit in memory.
    MergeError
        If the reference does not determine the covariance type.
    TypeError
        For any other reference.

    References
    ----------
    .. [1] H. Hotelling, The generalization of Student's ratio, Annals of Mathematical Statistics 2
       (1931), 360-378.
    .. [2] R. R. Sokal and F. J. Rohlf, Biometry, 4th ed. (2012), chapter 17.
    .. [3] S. Kullback, Information Theory and Statistics (1959), chapter 9.
    .. [4] C. A. Lowry, W. H. Woodall, C. W. Champ and S. E. Rigdon, A multivariate exponentially
       weighted moving average control chart, Technometrics 34 (1992), 46-53.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import ClassMoments, DriftMonitor
    >>> random = np.random.default_rng(0)
    >>> def rows(n, shift):
    ...     y = random.integers(0, 2, n)
    ...     return random.normal(size=(n, 3)) + y[:, None] * [2, 0, shift], y
    >>> monitor = DriftMonitor(ClassMoments().update(*rows(5000, 0)), window=500)
    >>> [report.alarm for report in monitor.update(*rows(1000, 0))]
    [False, False]
    >>> monitor.update(*rows(500, 0.5))
    [DriftReport: rows 1,000 to 1,500, drift (...class 1: means)
      all rows: 500 rows, divergence ..., means p = ..., covariances not tested yet...
      class 0: ...
      class 1: ...
      class shares: p = ...]
    """

    _kind = "drift"

    def __init__(
        self,
        reference: Any,
        *,
        window: int | None = None,
        level: float = 0.01,
        calibration: int | None = 20,
        least_rows: int = 30,
        covariance_type: str | None = None,
        keep: int = 200,
        recent: Sequence[float] = (0.027,),
    ) -> None:
        expected = "the number of rows of a window, at least 2, such as window=1000"
        self.window = as_integer("window", window, expected, 2)
        expected = "a probability between 0 and 1"
        self.level = as_number("level", level, expected, LEAST, BELOW_ONE)
        expected = "0, None, or at least 5 windows"
        if calibration is not None:
            calibration = as_integer("calibration", calibration, expected, 0)
            if calibration:
                as_integer("calibration", calibration, expected, 5)
        self.calibration = calibration
        self.least_rows = as_integer("least_rows", least_rows, "at least 2 rows", 2)
        self.keep = as_integer("keep", keep, "at least 1 report", 1)
        expected = "a sequence of weights between 0 and 1"
        self.recent = tuple(
            as_number("recent", weight, expected, 1e-6, 0.999)
            for weight in as_numbers("recent", recent, expected).tolist()
        )
        if covariance_type is not None:
            structure_of(covariance_type)
        self._wanted = covariance_type
        self._lock = Lock()
        self._reports: tuple[DriftReport, ...] = ()
        self._start = 0  # number of the first row of the window
        moments = _moments_of(reference)
        self._classes = moments.classes  # of all references so far
        self._refer_to(moments)

    def _description(self) -> dict[str, Any]:
        return {
            **description_of(self.reference),
            "kind": "drift monitor",
            "window": self.window,
            "watched": self.n_rows,
            "reports": len(self._reports),
            "alarms": sum(report.alarm for report in self._reports),
        }

    def _refer_to(self, reference: ClassMoments) -> None:
        """Compare with another reference from here on."""
        moments = reference.reduce(self._wanted or reference.covariance_type)
        parts, whole = parts_of(moments), whole_of(moments)
        needed = WindowRows.bytes_of(self.window, int(moments.n_features or 0))
        if needed > spare_memory():
            raise MemoryBudgetError(
                f"window={self.window} rows of {moments.n_features} features need "
                f"{readable(needed)} of memory, and {readable(spare_memory())} are available; take "
                f"smaller windows"
            )
        self._reference, self._parts, self._whole = moments, parts, whole
        self._sample: Sample = {}
        self.last_window: ClassMoments | None = None
        self._held = 0  # rows of the window so far
        self._rows = self._room()
        self._limits: dict[Any, np.ndarray] = {}
        self._charts: dict[Any, WeightedMeans] = {}
        self._courses: dict[Any, Course] = {}

    @property
    def reference(self) -> ClassMoments:
        """Copy of the moments that windows are compared with."""
        return self._reference.copy()

    @property
    def reports(self) -> list[DriftReport]:
        """The last reports, the oldest first."""
        return [*self._reports]

    @property
    def n_rows(self) -> int:
        """Rows that have been compared, or wait for their window to be full."""
        return self._start + self._held

    @property
    def alarm(self) -> bool:
        """True if the last full window raised an alarm, or recent means did since then."""
        return bool(self._reports) and self._reports[-1].alarm

    @property
    def can_alarm_from(self) -> dict[str, int]:
        """Row from which on each test can raise an alarm, if no window does before."""
        end = self._start + self.window
        found = {"means": end, "shares": end}
        if self.calibration is None:
            return found
        held = {df: len(sample) for (label, df), sample in self._sample.items() if label is ALL}
        left = {df: max(0, self.calibration - n) * self.window for df, n in held.items()}
        unseen = self.calibration * self.window
        found["covariances"] = end + min((n for df, n in left.items() if df >= 1), default=unseen)
        if self.recent:
            found[RECENT] = self._start + max(left.get(weight, unseen) for weight in self.recent)
        return found

    @property
    def history(self) -> list[dict[str, Any]]:
        """The reports as a table for a data frame: a row for each class of each window.

        Columns are ``start`` and ``stop``, ``class`` (None for all rows), ``n_rows``,
        ``divergence``, ``p_means``, ``p_covariances`` and ``p_recent`` (before Holm's correction),
        ``p_shares`` (of all rows only) and ``alarm`` (of the window). Missing values are NaN.
        """
        return [
            {
                "start": report.start,
                "stop": report.stop,
                "class": label,
                "n_rows": each.n_rows,
                "divergence": each.divergence,
                "p_means": _p_value(each.means),
                "p_covariances": _p_value(each.covariances),
                "p_recent": _p_value(each.recent),
                "p_shares": _p_value(report.shares if label is ALL else None),
                "alarm": report.alarm,
            }
            for report in self._reports
            for label, each in report.compared.items()
        ]

    def __repr__(self) -> str:
        alarms = sum(report.alarm for report in self._reports)
        return (
            f"DriftMonitor: {self.n_rows:,} rows in windows of {self.window:,}; alarms in {alarms} "
            f"of the last {len(self._reports)} reports; {self._shown_start()}; reference "
            f"{self._reference!r}"
        )

    def _shown_start(self) -> str:
        """Return the rows from which on tests can raise alarms as text."""
        starts: dict[int, list[str]] = {}
        for name, row in self.can_alarm_from.items():
            starts.setdefault(row, []).append(name)
        return "can alarm from row " + ", ".join(
            f"{row:,} ({', '.join(names)})" for row, names in sorted(starts.items())
        )

    def update(self, X: Any, y: Any = None, sample_weight: Any = None) -> list[DriftReport]:
        """Add rows, and compare the windows that they fill; they may be cut in any way.

        Parameters
        ----------
        X : array-like, sparse matrix, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features).
        y : array-like, shape (n_rows,), optional
            Labels. Rows without them, or whose label is missing (None, NaN or masked), count among
            all rows only. Labels that the reference lacks count in the class shares.
        sample_weight : array-like of float, shape (n_rows,), optional
            Weights, not negative; rows of weight zero are ignored.

        Returns
        -------
        list of DriftReport
            One for each window that these rows fill, often none.

        Raises
        ------
        InvalidDataError
            For rows, labels or weights that cannot be used. The monitor stays as it was.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import ClassMoments, DriftMonitor
        >>> random = np.random.default_rng(0)
        >>> X, y = random.normal(size=(1000, 2)), random.integers(0, 2, 1000)
        >>> monitor = DriftMonitor(ClassMoments().update(X, y), window=100)
        >>> reports = monitor.update(X[:250] + 1.0, y[:250])
        >>> [report.alarm for report in reports]
        [True, True]
        """
        with self._lock:
            before, reports = vars(self).copy(), []
            try:
                for rows in read_rows(X, y, sample_weight, self._reference, self._classes):
                    reports += self._add(rows)
                self._reports = (*self._reports, *reports)[-self.keep :]
            except BaseException:
                self.__dict__ = before  # a window that was full is not written to again
                raise
        return reports

    def reset(self, reference: Any = None) -> Self:
        """Start again with an empty window and without calibration; reports are kept.

        After an alarm, ``monitor.reset(monitor.last_window)`` compares with the rows that raised
        it, and ``monitor.reset(monitor.reference + monitor.last_window)`` adds them.

        Parameters
        ----------
        reference : ClassMoments or estimator, optional
            Another reference; by default the same.

        Returns
        -------
        DriftMonitor
            The object itself.

        Raises
        ------
        InvalidDataError
            If the reference has no rows, or other features or kinds of labels.

        Examples
        --------
        >>> import numpy as np
        >>> from streamgda import ClassMoments, DriftMonitor
        >>> random = np.random.default_rng(0)
        >>> X, y = random.normal(size=(1000, 2)), random.integers(0, 2, 1000)
        >>> monitor = DriftMonitor(ClassMoments().update(X, y), window=100)
        >>> _ = monitor.update(X[:100] + 1.0, y[:100])
        >>> [report.alarm for report in monitor.reset(monitor.last_window).update(X[100:200] + 1.0)]
        [False]
        """
        with self._lock:
            before = vars(self).copy()
            moments = self._reference if reference is None else _moments_of(reference)
            if moments.n_features != self._reference.n_features:
                raise InvalidDataError(
                    f"reference has {moments.n_features} features, but the stream has "
                    f"{self._reference.n_features} features"
                )
            try:
                self._classes = join_labels(self._classes, moments.classes)
                self._start = self.n_rows
                self._refer_to(moments)
            except BaseException:
                self.__dict__ = before
                raise
        return self

    def _add(self, rows: WindowRows) -> list[DriftReport]:
        """Add rows to the window, and return the reports of those that become full."""
        reports, at, n = [], 0, len(rows.X)
        while at < n:
            some = rows.part(slice(at, at + self.window - self._held))
            stop = self._held + len(some.X)
            self._rows = self._rows.put(self._held, some)
            reports += self._watched(some)
            at, self._held = at + len(some.X), stop
            if stop == self.window:
                reports.append(self._compared(self._rows))
                self._start, self._held = self._start + self.window, 0
                self._rows = self._room()
                kept = {} if reports[-1].alarm else self._courses
                self._courses = {
                    label: Course(course.means, course.peaks * 0) for label, course in kept.items()
                }
        return reports

    # --- recent means -------------------------------------------------------------------------

    def _watched(self, rows: WindowRows) -> list[DriftReport]:
        """Add rows to the weighted means, and return the reports of their alarms."""
        if not self.recent or self.calibration is None:
            return []
        seen = set(np.unique(rows.y[rows.known]).tolist()) if len(self._parts) > 1 else ()
        alarms: dict[int, list[Any]] = {}
        courses = dict(self._courses)
        for label in (ALL, *(label for label in self._parts if label in seen)):
            chart = self._chart(label)
            some = np.flatnonzero(self._of(rows, label))
            course = courses.get(label, chart.start())
            courses[label], at = chart.add(course, rows.X[some], self._limits_of(label))
            if at is not None:
                alarms.setdefault(self._held + int(some[at]) + 1, []).append(label)
        self._courses = courses
        return [self._early(stop, alarms[stop]) for stop in sorted(alarms) if stop < self.window]

    @staticmethod
    def _of(rows: WindowRows, label: Any) -> np.ndarray:
        """Return a mask of the rows of a class, or of all rows."""
        return np.ones(len(rows.X), bool) if label is ALL else rows.known & (rows.y == label)

    def _chart(self, label: Any) -> WeightedMeans:
        if label not in self._charts:
            part = self._whole if label is ALL else self._parts[label]
            share = part.n_rows / self._whole.n_rows
            n_tests = len(self.recent) * (1 + (len(self._parts) if len(self._parts) > 1 else 0))
            self._charts[label] = WeightedMeans(part, self.recent, share * self.window, n_tests)
        return self._charts[label]

    def _samples_of(self, label: Any) -> list[tuple[float, ...]] | None:
        """Return the peaks of windows without an alarm; None if there are too few yet."""
        samples = [self._sample.get((label, weight), ()) for weight in self.recent]
        enough = all(len(sample) >= (self.calibration or 0) for sample in samples)
        return samples if enough else None

    def _limits_of(self, label: Any) -> np.ndarray:
        """Return the limits of the peaks; infinite until the calibration is complete."""
        if label not in self._limits:
            samples = self._samples_of(label)
            if samples is None:
                return np.full(len(self.recent), np.inf)
            self._limits[label] = self._chart(label).limits(self.level * RECENT_SHARE, samples)
        return self._limits[label]

    def _recent(self, label: Any) -> Approximation | None:
        """Return the test of the recent means of a class, or of all rows."""
        course = self._courses.get(label)
        if course is None or not course.peaks.any():
            return None
        samples, chart = self._samples_of(label), self._chart(label)
        p_values = np.full(len(self.recent), np.nan)
        if samples is not None:
            p_values = chart.p_values(course.peaks, samples)
        least = int(np.nanargmin(p_values)) if samples is not None else 0
        df = (float(chart.size),)
        return Approximation(float(course.peaks[least]), df, float(p_values[least]))

    def _early(self, stop: int, labels: list[Any]) -> DriftReport:
        """Return the report of an alarm of recent means within a window."""
        rows = self._rows.part(slice(0, stop))
        found = {
            label: Comparison(float(self._of(rows, label).sum()), recent=self._recent(label))
            for label in labels
        }
        overall = found.pop(ALL, Comparison(float(stop)))
        end = self._start + stop
        return DriftReport(self._start, end, self.level, overall, found, early=True)

    def _room(self) -> WindowRows:
        """Return room for the rows of a window."""
        d, dtype = int(self._reference.n_features or 0), self._classes.dtype
        return WindowRows.empty(self.window, d, dtype)

    def _compared(self, rows: WindowRows) -> DriftReport:
        """Return the report of a full window."""
        kind, some = self._reference.covariance_type, rows.known.any()
        moments = rows.moments(kind) if some else ClassMoments(kind)
        everyone = moments if rows.known.all() else rows.moments(kind, as_one=True)
        found, shares = {ALL: compare(self._whole, whole_of(everyone))}, None
        if some:
            shares = self._shares(moments)
            for label, part in parts_of(moments).items():
                if label in self._parts:
                    enough = part.n_rows >= self.least_rows
                    reference = self._parts[label]
                    found[label] = compare(reference, part) if enough else Comparison(part.n_rows)
        found = {label: replace(each, recent=self._recent(label)) for label, each in found.items()}
        tested = {label: self._calibrated(label, each) for label, each in found.items()}
        stop = self._start + self.window
        report = DriftReport(self._start, stop, self.level, tested.pop(ALL), tested, shares)
        if not report.alarm:
            self._calibrate(found)
        self.last_window = moments
        return report

    def _shares(self, window: ClassMoments) -> Approximation | None:
        """Return the test of the class shares."""
        classes = join_labels(self._reference.classes, window.classes)
        counts = np.zeros((2, classes.size))
        for row, moments in zip(counts, (self._reference, window), strict=True):
            count = moments.class_count
            row[find(moments.classes, classes)] = count * (whole_of(moments).n_rows / count.sum())
        return compare_shares(*counts)

    def _calibrated(self, label: Any, found: Comparison) -> Comparison:
        """Return a comparison with the p-value of the covariances by earlier windows."""
        test = found.covariances
        if test is None or self.calibration == 0:
            return found
        sample = self._sample.get((label, test.df[0]), ())
        if self.calibration is None or len(sample) < self.calibration:
            return replace(found, covariances=replace(test, p_value=np.nan))
        return replace(found, covariances=calibrated(test, sample))

    def _calibrate(self, found: Mapping[Any, Comparison]) -> None:
        """Keep the statistics of a window without an alarm until there are enough."""
        if not self.calibration:
            return
        sample = dict(self._sample)
        for label, each in found.items():
            if each.covariances is not None:
                key = label, each.covariances.df[0]
                kept = (*sample.get(key, ()), float(each.covariances.statistic))
                sample[key] = kept[: self.calibration]
            if each.recent is not None:
                for weight, peak in zip(self.recent, self._courses[label].peaks, strict=True):
                    kept = (*sample.get((label, weight), ()), float(peak))
                    sample[label, weight] = kept[: self.calibration]
        self._sample = sample

    # --- saving -------------------------------------------------------------------------------

    def _state(self) -> State:
        parts = {"reference": self._reference}
        if self.last_window is not None:
            parts["last_window"] = self.last_window
        states, arrays = nested(parts)
        rows = self._rows.part(slice(0, self._held))
        labels = np.unique(rows.y[rows.known])
        codes = np.where(rows.known, find(rows.y, labels), -1)
        arrays |= {"X": rows.X, "y": codes, "weights": rows.weights}
        return {
            **{name: getattr(self, name) for name in _PARAMETERS},
            "recent": [*self.recent],
            "covariance_type": self._wanted,
            "start": self._start,
            "classes": storage.pack_labels(self._classes),
            "labels": storage.pack_labels(labels),
            **states,
        }, arrays | as_arrays(self._reports, self._sample, self._classes) | self._saved_courses()

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        attributes = {"recent": (), **attributes}  # files of 0.2.0 have none
        none = {name: np.empty((0, 0)) for name in COURSES}
        own = {name: {**none, **arrays}[name] for name in ("X", "y", "weights", *NAMES, *COURSES)}
        names = [name for name in ("reference", "last_window") if name in attributes]
        parts = restore_nested(
            ClassMoments,
            {name: attributes[name] for name in names},
            {name: array for name, array in arrays.items() if name not in own},
        )
        options = {name: attributes[name] for name in (*_PARAMETERS, "covariance_type")}
        monitor = cls(parts["reference"], **options)
        classes = storage.unpack_labels(attributes["classes"])
        if (find(monitor._classes, classes) < 0).any():
            raise ValueError("its classes are not those of its reference")
        monitor._classes, monitor.last_window = classes, parts.get("last_window")
        monitor._start = check_whole("start", attributes["start"], 0)
        monitor._restore_rows(**own, labels=storage.unpack_labels(attributes["labels"]))
        monitor._reports, monitor._sample = from_arrays(own, classes, monitor.level)
        monitor._restore_courses(*(own[name] for name in COURSES))
        return monitor

    def _restore_rows(
        self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, labels: np.ndarray, **_: Any
    ) -> None:
        n = check_whole("the number of rows", len(X), 0, self.window - 1)
        check_array("X", X, (n, int(self._reference.n_features or 0)), "f8")
        check_array("y", y, (n,), "i8", least=-1, most=labels.size - 1)
        check_array("weights", weights, (n,), "f8", least=LEAST)
        join_labels(self._classes, labels)  # refuses labels of another kind
        found = labels[np.maximum(y, 0)] if labels.size else np.zeros(n, self._classes.dtype)
        self._rows, self._held = self._room().put(0, WindowRows(X, found, y >= 0, weights)), n

    def _saved_courses(self) -> dict[str, np.ndarray]:
        """Return the weighted means with their numbers of classes, all rows -1, and peaks."""
        if not self.recent:
            return {}
        labels = [label for label in (ALL, *self._classes.tolist()) if label in self._courses]
        held = [self._courses[label] for label in labels]
        codes = [-1 if label is ALL else self._classes.tolist().index(label) for label in labels]
        n, d = len(self.recent), int(self._reference.n_features or 0)
        ends = [(k, each.stopped, *each.peaks) for k, each in zip(codes, held, strict=True)]
        return {
            "courses": np.array(ends, np.float64).reshape(len(held), 2 + n),
            "recent_means": np.array([c.means for c in held]).reshape(len(held), n, d),
        }

    def _restore_courses(self, courses: np.ndarray, recent_means: np.ndarray) -> None:
        n, d = len(self.recent), int(self._reference.n_features or 0)
        if not n:
            return
        check_array("courses", courses, (len(courses), 2 + n), "f8", least=-1)
        check_array("recent_means", recent_means, (len(courses), n, d), "f8")
        labels = [*self._classes.tolist(), ALL]  # number -1 is the last
        for (code, stopped, *peaks), means in zip(courses.tolist(), recent_means, strict=True):
            label = labels[int(code)]
            if int(code) != code or stopped not in (0, 1) or min(peaks) < 0:
                raise ValueError("its courses of recent means hold impossible values")
            if label is not ALL and label not in self._parts:
                raise ValueError(f"it has recent means of class {label}, which has no reference")
            self._courses[label] = Course(means, np.array(peaks), bool(stopped))


def _moments_of(reference: Any) -> ClassMoments:
    """Return the moments of a fitted estimator, search or threshold, or moments as they are."""
    moments = reference
    for name in ("best_estimator_", "estimator_", "moments_"):
        moments = getattr(moments, name, moments) if not isinstance(moments, type) else moments
    if not isinstance(moments, ClassMoments):  # the message names what was passed
        check_type("reference", reference, ClassMoments, _REFERENCE)
    return moments


def _p_value(test: Approximation | None) -> float:
    return np.nan if test is None else float(test.p_value)
