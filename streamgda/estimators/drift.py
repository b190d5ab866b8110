"""`DriftMonitor`: windows of a stream beside a reference, with alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np

from streamgda.engine.plan import plan_rows
from streamgda.engine.reading import in_process, reading
from streamgda.errors import InvalidDataError, MemoryBudgetError
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
    relative_weights,
    whole_of,
)
from streamgda.models.hypothesis_tests import Approximation
from streamgda.models.model import part_of
from streamgda.moments import ClassMoments
from streamgda.moments.covariance_types import structure_of
from streamgda.rows import Rows, as_source
from streamgda.rows.arrays import is_masked
from streamgda.rows.invalid_rows import (
    CHECK_SUMS,
    all_finite,
    as_matrix,
    refuse_not_finite,
    rows_to_count,
)
from streamgda.rows.labels import as_objects, coded_labels, encode, find, join_labels
from streamgda.rows.lifted import lifted
from streamgda.rows.names import join_names
from streamgda.rows.sources import RowSource, Slab, check_lengths
from streamgda.rows.sparse import CompressedRows
from streamgda.runtime import threads
from streamgda.runtime.interruption import Lock
from streamgda.runtime.memory import allowed_bytes, readable, spare_memory
from streamgda.runtime.parameters import (
    BELOW_ONE,
    LEAST,
    as_integer,
    as_number,
    as_numbers,
)
from streamgda.storage.format import MOST_ROWS, check_array, check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import Saved, State, description_of, nested, restore_nested

_PARAMETERS = ("window", "level", "calibration", "least_rows", "keep", "recent")
_MOMENTS = {"reference", "last_window"}
_REFERENCE = "ClassMoments, or a fitted Gaussian estimator that keeps its moments"


class DriftMonitor(Saved):
    r"""Compare the windows of a stream with a reference, and raise alarms.

    A window is full after `window` rows; the next one starts with the next row. Each full window
    is compared with the reference: all rows, the rows of each class, and the class shares. In the
    meantime each row is added to exponentially weighted means, which can raise an alarm at once.

    - Means: Hotelling's two-sample :math:`T^2` [1]_.
    - Covariances: Box's M. Its chi-square distribution holds for Gaussian rows only, and heavier
      tails would raise one false alarm after another. Therefore the statistics of the first
      `calibration` windows that raise no alarm take its place.
    - Recent means: multivariate exponentially weighted moving averages (MEWMA) [4]_ of all rows
      and of each class, which detect a shift of the mean as soon as it is significant. For
      Gaussian rows their distribution is known; their largest values in the first `calibration`
      windows are used too, because heavier tails have larger ones. Until then they are not tested.
    - Class shares: the G test with Williams's correction [2]_; classes of which fewer than five
      rows are expected share a cell.
    - Features that are constant in the reference are left out of all tests, whatever they become.
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
        Number of rows in a window.
    level : float
        Probability of a false alarm in a window.
    calibration : int or None
        Number of windows, at least 5, from which the distributions of Box's M and of recent means
        are estimated. Until then these are not tested; `can_alarm_from` has the rows. With 0, all
        rows, and those of each class, are taken to be Gaussian. With None, covariances and recent
        means are not tested.
    least_rows : int
        Rows of a class in a window below which only its share is tested.
    covariance_type : str, optional
        Covariance type to compare, which the moments determine; by default their own. Without
        covariances between features, as with ``"diag"``, each feature is tested, and Bonferroni's
        correction applied; the same holds if a window has fewer than five rows per feature.
    keep : int
        Number of reports that are kept; older ones are dropped.
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
        Row from which each test can raise an alarm, unless a window raises one before.

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
        parts = {ALL: whole_of(moments), **parts_of(moments, self._classes.dtype)}
        needed = self.window * (8 * int(moments.n_features or 0) + 17)
        if needed > spare_memory():
            raise MemoryBudgetError(
                f"window={self.window} rows of {moments.n_features} features need "
                f"{readable(needed)} of memory, and {readable(spare_memory())} are available; take "
                f"smaller windows"
            )
        self._reference, self._parts = moments, parts
        self._sample: dict[tuple[Any, float], tuple[float, ...]] = {}
        self.last_window: ClassMoments | None = None
        self._begin_window()
        self._charts: dict[Any, WeightedMeans] = {}
        self._courses: dict[Any, Course] = {}

    def _begin_window(self) -> None:
        """Hold no row. Arrays are written to beyond the rows that are held, and nowhere else."""
        shape = self.window, int(self._reference.n_features or 0)
        self._rows = Window(np.empty(shape), np.empty(shape[0], np.int64), np.empty(shape[0]))
        self._held = 0

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
        """Row from which each test can raise an alarm, unless a window raises one before."""
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
                **{f"p_{name.split()[0]}": _p_value(test) for name, test in each.tests.items()},
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
            Weights, not negative; rows of weight zero are ignored. In recent means they are
            relative to those of the rows of the window so far.

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
            changed, reports = self._shallow(), []
            for rows in changed._read(X, y, sample_weight):
                reports += threads.call_serial_blas(changed._add, rows)
            changed._reports = (*changed._reports, *reports)[-self.keep :]
            self.__dict__ = vars(changed)
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
            The monitor itself.

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
            moments = self._reference if reference is None else _moments_of(reference)
            if moments.n_features != self._reference.n_features:
                raise InvalidDataError(
                    f"reference has {moments.n_features} features, but the stream has "
                    f"{self._reference.n_features} features"
                )
            moments._lifting_with(self._reference)
            names = join_names(
                self._reference.feature_names, moments.feature_names, "the stream", InvalidDataError
            )
            changed = self._shallow()
            changed._start = self.n_rows
            changed._number(join_labels(self._classes, moments.classes))
            changed._refer_to(moments)
            changed._reference._name_features(names)
            self.__dict__ = vars(changed)
        return self

    def _shallow(self) -> Self:
        """Return a shallow copy, to be changed and then adopted as a whole.

        Nothing that it shares with this monitor changes in place, but for the rows of the window
        beyond those that are held.
        """
        copy = object.__new__(type(self))
        copy.__dict__ = vars(self).copy()
        return copy

    # --- rows ---------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Iterator[Window]:
        """Yield rows from any container, slab by slab; refuse those that cannot be used."""
        if type(X) is np.ndarray:  # at once: streams pass each row
            yield self._checked(Slab(X, y, None, sample_weight))
            return
        rows = Rows.of(X, y, sample_weight)
        if isinstance(rows.X, RowSource):
            held = self._reference.feature_names
            names = join_names(held, rows.X.feature_names, "the reference", InvalidDataError)
            if names != held:
                self._reference = self.reference
                self._reference._name_features(names)
        if y is None:  # rows of an unknown number have no labels that could be made up
            source = as_source(rows.X)
            check_lengths(source)
            rows = replace(rows, X=source, y=np.ma.masked_all(source.n_rows, np.int64))
        read = in_process(rows, at_once=True)
        with reading(read, plan_rows(read, allowed_bytes(None))) as slabs:
            yield from map(self._checked, slabs)

    def _checked(self, slab: Slab) -> Window:
        """Return the rows that count, with the numbers of their labels."""
        start = slab.first_row
        X = as_matrix(slab.X, start, sparse=True)
        wanted = self._reference._n_features_in
        if X.shape[1] != wanted:
            raise InvalidDataError(
                f"X has {X.shape[1]} features, but the reference has {wanted} features"
            )
        labels, known = as_known(slab.y, X.shape[0], start)
        codes = np.full(known.size, -1)
        if known.any():
            join_labels(self._classes, labels[known][:1])  # refuses labels of another kind
            codes[known], classes = encode(labels[known], self._classes)
            self._number(classes)
        numbers, weights = None, np.ones(codes.size)
        if slab.weight is not None:
            X, codes, weights, numbers, _ = rows_to_count(X, codes, slab.weight, CHECK_SUMS, start)
        if type(X) is CompressedRows:
            X = np.array([X.row(r) for r in range(len(X))])
        if not all_finite(X):
            refuse_not_finite(X, start, numbers)
        return Window(lifted(X, self._reference._lifting), codes, weights)

    def _number(self, classes: np.ndarray) -> None:
        """Let labels have the numbers that they have among these, which include all so far."""
        if classes.size > self._classes.size:
            codes = self._rows.codes.copy()
            known = np.flatnonzero(codes[: self._held] >= 0)
            codes[known] = find(self._classes, classes)[codes[known]]
            self._rows = self._rows._replace(codes=codes)
        if classes.dtype != self._classes.dtype:  # dates of another unit are other objects
            same = as_objects(self._classes.astype(classes.dtype))
            names = {ALL: ALL, **dict(zip(as_objects(self._classes), same, strict=True))}
            for name in ("_parts", "_charts", "_courses"):
                held = getattr(self, name)
                setattr(self, name, {names[label]: each for label, each in held.items()})
            self._sample = {(names[label], df): n for (label, df), n in self._sample.items()}
            self._reports = tuple(
                replace(report, classes={names[label]: n for label, n in report.classes.items()})
                for report in self._reports
            )
        self._classes = classes

    def _add(self, rows: Window) -> list[DriftReport]:
        """Add rows to the window, and return the reports of those that become full."""
        reports, at = [], 0
        while at < len(rows.X):
            first, n = self._held, min(self.window - self._held, len(rows.X) - at)
            for held, values in zip(self._rows, rows, strict=True):
                held[first : first + n] = values[at : at + n]
            reports += self._watched(first, first + n)
            at, self._held = at + n, first + n
            if self._held == self.window:
                reports.append(self._compared())
                self._start += self.window
                self._begin_window()
                kept = {} if reports[-1].alarm else self._courses
                self._courses = {
                    label: Course(course.means, course.peaks * 0) for label, course in kept.items()
                }
        return reports

    # --- recent means -------------------------------------------------------------------------

    def _watched(self, first: int, last: int) -> list[DriftReport]:
        """Add rows of the window to the weighted means, and return the reports of their alarms."""
        if not self.recent or self.calibration is None:
            return []
        weighted = (self._rows.weights[:last] != 1).any()
        start = 0 if weighted else first  # weights are relative to those before
        X, codes, weights = (values[start:last] for values in self._rows)
        some: dict[Any, Any] = {ALL: np.arange(len(X))}
        if len(self._parts) > 2:
            labels = as_objects(self._classes)
            for k in np.unique(codes[codes >= 0]).tolist():
                some[labels[k]] = np.flatnonzero(codes == k)
        alarms: dict[int, list[Any]] = {}
        courses = dict(self._courses)
        for label in filter(self._parts.__contains__, some):
            chart = self._chart(label)
            course = courses.get(label, chart.start())
            rows, factors = some[label], None
            if weighted:
                factors = relative_weights(weights[rows])[rows >= first - start]
                rows = rows[rows >= first - start]
            courses[label], at = chart.add(course, X[rows], self._limits(label), factors)
            if at is not None:
                alarms.setdefault(start + int(rows[at]) + 1, []).append(label)
        self._courses = courses
        return [self._early(stop, alarms[stop]) for stop in sorted(alarms) if stop < self.window]

    def _chart(self, label: Any) -> WeightedMeans:
        if label not in self._charts:
            part, n_parts = self._parts[label], len(self._parts)
            rows = part.n_rows / self._parts[ALL].n_rows * self.window
            n_tests = len(self.recent) * (n_parts if n_parts > 2 else 1)
            chart = WeightedMeans(part, self.recent, rows, n_tests)
            self._charts = {**self._charts, label: chart}
        return self._charts[label]

    def _samples_of(self, label: Any) -> list[tuple[float, ...]] | None:
        """Return the peaks of windows without an alarm; None if there are too few yet."""
        samples = [self._sample.get((label, weight), ()) for weight in self.recent]
        enough = all(len(sample) >= (self.calibration or 0) for sample in samples)
        return samples if enough else None

    def _limits(self, label: Any) -> np.ndarray:
        """Return the limits of the peaks; infinite until the calibration is complete."""
        samples = self._samples_of(label)
        if samples is None:
            return np.full(len(self.recent), np.inf)
        return self._chart(label).limits(self.level * RECENT_SHARE, samples)

    def _recent(self, label: Any) -> Approximation | None:
        """Return the test of the recent means of a class, or of all rows."""
        course = self._courses.get(label)
        if course is None or not course.peaks.any():
            return None
        samples, chart = self._samples_of(label), self._chart(label)
        p_values, least = np.full(len(self.recent), np.nan), 0
        if samples is not None:
            p_values = chart.p_values(course.peaks, samples)
            least = int(np.nanargmin(p_values))
        df = (float(chart.size),)
        return Approximation(float(course.peaks[least]), df, float(p_values[least]))

    def _early(self, stop: int, labels: list[Any]) -> DriftReport:
        """Return the report of an alarm of recent means within a window."""
        counts = np.bincount(self._rows.codes[:stop] + 1, minlength=self._classes.size + 1)[1:]
        rows = {ALL: stop} | dict(zip(as_objects(self._classes), counts.tolist(), strict=True))
        found = {k: Comparison(float(rows[k]), recent=self._recent(k)) for k in labels}
        overall = found.pop(ALL, Comparison(float(stop)))
        end = self._start + stop
        return DriftReport(self._start, end, self.level, overall, found, early=True)

    # --- full windows -------------------------------------------------------------------------

    def _compared(self) -> DriftReport:
        """Return the report of a full window."""
        (X, codes, weights), kind = self._rows, self._reference.covariance_type
        weighted, known = (weights != 1).any(), codes >= 0

        def moments_of(rows: Any, labels: np.ndarray) -> ClassMoments:
            return ClassMoments(kind).update(X[rows], labels, weights[rows] if weighted else None)

        everyone = moments = ClassMoments(kind)
        every, some = known.all(), known.any()
        if some:
            rows = slice(None) if every else known
            everyone = moments = moments_of(rows, self._classes[codes[rows]])
        if not every:
            everyone = moments_of(slice(None), np.zeros(len(X), np.int64))
        window = {ALL: whole_of(everyone), **(parts_of(moments) if some else {})}
        found, tested = {}, {}
        for label, part in window.items():
            if label not in self._parts:
                continue
            enough = label is ALL or part.n_rows >= self.least_rows
            each = compare(self._parts[label], part) if enough else Comparison(part.n_rows)
            found[label] = replace(each, recent=self._recent(label))
            tested[label] = self._calibrated(label, found[label])
        shares, stop = self._shares(moments) if some else None, self._start + self.window
        report = DriftReport(self._start, stop, self.level, tested.pop(ALL), tested, shares)
        if not report.alarm:
            self._calibrate(found)
        moments._lifting = self._reference._lifting  # the rows of a window are lifted
        moments._name_features(self._reference.feature_names)
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
            values = {}
            if each.covariances is not None:
                values[each.covariances.df[0]] = float(each.covariances.statistic)
            if each.recent is not None:
                values |= zip(self.recent, self._courses[label].peaks.tolist(), strict=True)
            for df, value in values.items():
                kept = (*sample.get((label, df), ()), value)
                sample[label, df] = kept[: self.calibration]
        self._sample = sample

    # --- saving -------------------------------------------------------------------------------
    # Classes have their numbers in arrays, and all rows -1. Statistics of tests that there are not,
    # and degrees of freedom that a test does not have, are NaN.

    def _state(self) -> State:
        parts = {"reference": self._reference}
        if self.last_window is not None:
            parts["last_window"] = self.last_window
        states, arrays = nested(parts)
        X, codes, weights = (values[: self._held] for values in self._rows)
        arrays |= {"X": X, "y": codes, "weights": weights}
        numbers = {label: k for k, label in enumerate([ALL, *as_objects(self._classes)], -1)}
        courses = sorted(self._courses.items(), key=lambda each: numbers[each[0]])
        comparisons = [
            (number, numbers[label], each)
            for number, report in enumerate(self._reports)
            for label, each in report.compared.items()
        ]
        tables: dict[str, list[Any]] = {
            "reports": [(r.start, r.stop, *_numbers(r.shares), r.early) for r in self._reports],
            "comparisons": [
                (number, code, each.n_rows, each.divergence, *_numbers(*each.tests.values()))
                for number, code, each in comparisons
            ],
            "sample": [
                (numbers[label], df, value)
                for (label, df), values in self._sample.items()
                for value in values
            ],
            "courses": [(numbers[label], each.stopped, *each.peaks) for label, each in courses],
        }
        for name, width in self._widths.items():
            arrays[name] = np.array(tables[name], np.float64).reshape(-1, width)
        if self.recent:
            means = np.array([each.means for _, each in courses])
            arrays["recent_means"] = means.reshape(-1, len(self.recent), X.shape[1])
        return {
            **{name: getattr(self, name) for name in _PARAMETERS},
            "recent": [*self.recent],
            "covariance_type": self._wanted,
            "start": self._start,
            "classes": pack_labels(self._classes),
            "labels": pack_labels(self._classes),
            **states,
        }, arrays

    @property
    def _widths(self) -> dict[str, int]:
        """Widths of the tables that are saved."""
        widths = {"reports": 7, "comparisons": 16, "sample": 3}
        return widths | ({"courses": 2 + len(self.recent)} if self.recent else {})

    @classmethod
    def _from_state(cls, attributes: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Self:
        attributes = {"recent": (), **attributes}  # files of 0.2.0 have none
        options = {name: attributes[name] for name in (*_PARAMETERS, "covariance_type")}
        own = {"X", "y", "weights", "reports", "comparisons", "sample", "courses", "recent_means"}
        parts = restore_nested(
            ClassMoments,
            {name: attributes[name] for name in _MOMENTS & attributes.keys()},
            {name: array for name, array in arrays.items() if name not in own},
        )
        monitor = cls(parts["reference"], **options)
        classes = unpack_labels(attributes["classes"])
        if (find(monitor._classes, classes) < 0).any():
            raise ValueError("its classes are not those of its reference")
        monitor._number(classes)
        monitor.last_window = parts.get("last_window")
        monitor._start = check_whole("start", attributes["start"], 0)
        monitor._restore_tables(arrays)
        monitor._restore_rows(arrays, unpack_labels(attributes["labels"]))
        return monitor

    def _restore_rows(self, arrays: Mapping[str, np.ndarray], labels: np.ndarray) -> None:
        X, y, weights = (arrays[name] for name in ("X", "y", "weights"))
        n = check_whole("the number of rows", len(X), 0, self.window - 1)
        check_array("X", X, (n, int(self._reference.n_features or 0)), "f8")
        check_array("y", y, (n,), "i8", least=-1, most=labels.size - 1)
        check_array("weights", weights, (n,), "f8", least=LEAST)
        classes = join_labels(self._classes, labels)  # refuses labels of another kind
        codes = np.append(find(labels, classes), -1)[y]
        self._number(classes)
        for held, values in zip(self._rows, (X, codes, weights), strict=True):
            held[:n] = values
        self._held = n

    def _restore_tables(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore reports, statistics and weighted means.

        Raises
        ------
        ValueError, LookupError
            If the arrays do not fit each other or the classes.
        """
        tables, older = {}, {"reports": 6, "comparisons": 12}  # of 0.2.0, without recent means
        for name, width in self._widths.items():
            array = arrays[name]
            if array.ndim == 2 and array.shape[1] == older.get(name):
                array = np.pad(array, [(0, 0), (0, width - older[name])], constant_values=np.nan)
            if array.ndim != 2 or array.shape[1] != width or array.dtype != np.float64:
                raise ValueError(f"{name} has shape {array.shape} and dtype {array.dtype}")
            tables[name] = array.tolist()
        labels = [ALL, *as_objects(self._classes)]

        def label_of(code: float) -> Any:
            return labels[_whole(code, -1, len(labels) - 2) + 1]

        compared: list[dict[Any, Comparison]] = [{} for _ in tables["reports"]]
        for number, code, n_rows, divergence, *tests in tables["comparisons"]:
            found = Comparison(n_rows, divergence, *(_test(*tests[k : k + 4]) for k in (0, 4, 8)))
            compared[_whole(number, 0, len(compared) - 1)][label_of(code)] = found
        for (start, stop, *shares, early), classes in zip(tables["reports"], compared, strict=True):
            rows = _whole(start, 0, MOST_ROWS), _whole(stop, 0, MOST_ROWS)
            overall, tested = classes.pop(ALL), _test(*shares)
            report = DriftReport(*rows, self.level, overall, classes, tested, early == 1)
            self._reports = (*self._reports, report)
        for code, df, value in tables["sample"]:
            if not (df > 0 and 0 <= value < np.inf):
                raise ValueError(f"sample has the statistic {value} of {df} degrees of freedom")
            key = label_of(code), df
            self._sample[key] = (*self._sample.get(key, ()), value)
        if not self.recent:
            return
        check_array("courses", arrays["courses"], arrays["courses"].shape, "f8", least=-1)
        shape = len(tables["courses"]), len(self.recent), int(self._reference.n_features or 0)
        check_array("recent_means", arrays["recent_means"], shape, "f8")
        for (code, stopped, *peaks), means in zip(
            tables["courses"], arrays["recent_means"], strict=True
        ):
            label = label_of(code)
            if stopped not in (0, 1) or min(peaks) < 0:
                raise ValueError("its courses of recent means hold impossible values")
            if label not in self._parts:
                raise ValueError(f"it has recent means of class {label}, which has no reference")
            self._courses[label] = Course(means, np.array(peaks), bool(stopped))


def _numbers(*tests: Approximation | None) -> Iterator[float]:
    """Yield four numbers of each test: statistic, two degrees of freedom, p-value."""
    for test in tests:
        found = None if test is None else (test.statistic, *(*test.df, np.nan)[:2], test.p_value)
        yield from map(float, found or (np.nan,) * 4)


def _test(statistic: float, df1: float, df2: float, p_value: float) -> Approximation | None:
    if np.isnan(df1):
        return None
    return Approximation(statistic, (df1,) if np.isnan(df2) else (df1, df2), p_value)


def _whole(value: float, least: int, most: int) -> int:
    if not (least <= value <= most and value == int(value)):
        raise ValueError(f"{value} is not a whole number from {least} to {most}")
    return int(value)


def _moments_of(reference: Any) -> ClassMoments:
    return part_of("reference", reference, "moments_", ClassMoments, _REFERENCE)


def _p_value(test: Approximation | None) -> float:
    return np.nan if test is None else float(test.p_value)


class Window(NamedTuple):
    """Rows with the numbers of their labels, and their weights.

    Attributes
    ----------
    X : ndarray of real numbers, shape (n, d)
    codes : ndarray of int64, shape (n,)
        Numbers of their labels; -1 where these are not known.
    weights : ndarray of float64, shape (n,)
        Positive.
    """

    X: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


def as_known(y: Any, n_rows: int, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels as an array, and which of them are known; no `y` has none that are.

    Errors count labels from `start`.

    Raises
    ------
    InvalidDataError
        For labels of the wrong number or kind.
    """
    if y is None:
        return np.zeros(n_rows, np.int64), np.zeros(n_rows, bool)
    labels = coded_labels(y, "y", start, maskable=True)
    if labels.shape != (n_rows,):
        raise InvalidDataError(
            f"X has {n_rows} rows but y has shape {labels.shape}; give one label a row"
        )
    known = ~np.ma.getmaskarray(labels) if is_masked(labels) else np.ones(n_rows, bool)
    return np.asarray(labels), known
