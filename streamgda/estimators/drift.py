"""`DriftMonitor`: windows of a stream beside a reference, with alarms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

import numpy as np

from streamgda.engine.passes import one_class
from streamgda.engine.reading import in_process
from streamgda.errors import InvalidDataError
from streamgda.estimators.base import Reading
from streamgda.models.covariance import Summary
from streamgda.models.drift import DriftReport, compare
from streamgda.moments import ClassMoments
from streamgda.rows import Rows
from streamgda.rows.labels import as_objects
from streamgda.runtime.interruption import Lock
from streamgda.runtime.parameters import (
    BELOW_ONE,
    LEAST,
    as_integer,
    as_number,
    as_numbers,
    check_type,
)
from streamgda.storage.format import State, check_whole, pack_labels, unpack_labels
from streamgda.storage.saved import Saved, synchronized


class DriftMonitor(Saved):
    r"""Compare the windows of a stream with a reference, and raise alarms.

    A window is full after `window` rows, and the next one starts with the next row. Of a window, as
    of the reference, the moments are kept. Each full window is compared with the reference:

    - the mean of each class, by Hotelling's two-sample :math:`T^2` [1]_ if the window has more than
      two rows per feature beyond one for each class, and feature by feature otherwise;
    - the covariance of each class, by Box's M if it has five rows per feature in the window, and
      feature by feature, by ratios of variances, otherwise. These distributions hold for Gaussian
      rows only, and heavier tails would raise one false alarm after another. Therefore the
      statistics of the first `calibration` windows that raise no alarm take their place;
    - the class shares, by the G test with Williams's correction [2]_.

    A window raises an alarm if a p-value, after Holm's correction for all its tests, is at most
    `level`: without drift, the probability of an alarm is at most `level` a window. All windows are
    compared with the same reference, which makes them dependent: if the reference has few rows,
    some references raise more alarms than others, and only their mean is `level`. A reference of
    many windows' rows avoids that.

    Parameters
    ----------
    reference : ClassMoments or estimator
        Moments, or a fitted estimator, of the rows to compare with; they are copied. Without
        covariances between features, as with ``"diag"``, each feature is tested.
    window : int
        Number of rows in a window.
    level : float
        Probability of a false alarm in a window.
    calibration : int or None
        Number of windows, at least 5, from which the distribution of tests of covariances is
        estimated; until then they are not tested. With 0, the rows of each class are taken to be
        Gaussian. With None, covariances are not tested.
    least_rows : int
        Rows of a class in a window below which only its share is tested.

    Attributes
    ----------
    n_rows : int
        Rows so far.
    last_window : ClassMoments or None
        Moments of the last full window, with which a monitor can start again.

    Raises
    ------
    InvalidDataError
        If the reference has no rows.
    InvalidParameterError
        For parameters out of range.
    TypeError
        For any other reference.

    References
    ----------
    .. [1] H. Hotelling, The generalization of Student's ratio, Annals of Mathematical Statistics 2
       (1931), 360-378.
    .. [2] R. R. Sokal and F. J. Rohlf, Biometry, 4th ed. (2012), chapter 17.

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
    >>> [report.alarms for report in monitor.update(*rows(500, 0.5))]
    [[(1, 'means')]]
    """

    def __init__(
        self,
        reference: Any,
        *,
        window: int | None = None,
        level: float = 0.01,
        calibration: int | None = 20,
        least_rows: int = 30,
    ) -> None:
        expected = "the number of rows of a window, at least 2, such as window=1000"
        self.window = as_integer("window", window, expected, 2)
        self.level = as_number("level", level, "a probability between 0 and 1", LEAST, BELOW_ONE)
        expected = "0, None, or at least 5 windows"
        if calibration is not None and as_integer("calibration", calibration, expected, 0):
            as_integer("calibration", calibration, expected, 5)
        self.calibration = calibration
        self.least_rows = as_integer("least_rows", least_rows, "at least 2 rows", 2)
        reference = getattr(reference, "moments_", reference)
        expected = "ClassMoments, or a fitted estimator that keeps its moments"
        check_type("reference", reference, ClassMoments, expected)
        Summary.of(reference)  # It raises an error for moments without rows.
        self.reference = reference.copy()
        self.n_rows = 0
        self.last_window: ClassMoments | None = None
        self._open = self._empty()
        self._labelled = True
        self._lock = Lock()
        self._samples: dict[Any, tuple[float, ...]] = {}

    def _empty(self) -> ClassMoments:
        kind, maps = self.reference.covariance_type, self.reference.feature_map
        return ClassMoments(kind, feature_map=maps)

    def __repr__(self) -> str:
        return (
            f"DriftMonitor(window={self.window}, level={self.level:g}): {self.n_rows:,} rows, "
            f"beside {self.reference}"
        )

    @synchronized
    def update(self, X: Any, y: Any = None, **reading: Unpack[Reading]) -> list[DriftReport]:
        """Add rows, and compare each window that they fill.

        Parameters
        ----------
        X : array-like, memmap, zarr.Array, dask.array.Array or data frame
            Rows, shape (n_rows, n_features), in any batches.
        y : array-like, shape (n_rows,), optional
            Their labels. Without labels, all rows are compared with those of all classes.
        **reading
            How rows are read; see `GaussianNB.fit`.

        Returns
        -------
        list of DriftReport
            One for each window that is full.

        Raises
        ------
        InvalidDataError, InvalidParameterError
            For rows or labels that cannot be used; the monitor is then unchanged.

        Examples
        --------
        >>> from streamgda import ClassMoments, DriftMonitor
        >>> monitor = DriftMonitor(ClassMoments().update([[0.0], [1.0]] * 50, [0] * 100), window=40)
        >>> monitor.update([[0.0]] * 20, [0] * 20)
        []
        >>> [report.alarm for report in monitor.update([[3.0], [4.0]] * 10, [0] * 20)]
        [True]
        """
        given: dict[str, Any] = {**reading}
        rows = in_process(Rows.of(X, y, **given)).dense()
        if rows.X.shape[1] != (width := self.reference._n_features_in):
            raise InvalidDataError(f"X has {rows.X.shape[1]} features, the reference has {width}")
        names = rows.X.feature_names, self.reference.feature_names
        if None not in names and names[0] != names[1]:
            raise InvalidDataError(
                f"X has the feature names {names[0]}, and the reference {names[1]}; give the same "
                f"ones in the same order"
            )
        if self.n_rows % self.window and (rows.y is not None) != self._labelled:
            raise InvalidDataError(
                "a window has rows with labels and rows without; give labels for all of its rows, "
                "or for none"
            )
        new: dict[str, Any] = {**vars(self), "_labelled": rows.y is not None}
        reports, at, n = [], 0, rows.X.shape[0]
        while at < n:
            held = new["n_rows"] % self.window
            stop = min(n, at + self.window - held)
            slab = rows.read(at, stop)
            slab = slab if rows.y is not None else slab._replace(y=one_class(slab.X))
            added = self._empty()._update(slab, rows.rule)
            opened = new["_open"] if added.n_features is None else new["_open"] + added
            new |= {"_open": opened, "n_rows": new["n_rows"] + stop - at}
            if held + stop - at == self.window:
                reports.append(self._compared(new))
            at = stop
        self.__dict__ = new  # An interruption leaves the old state or the new one.
        return reports

    def _compared(self, new: dict[str, Any]) -> DriftReport:
        """Return the report of the window that is full, and start the next one."""
        window, reference = new["_open"], self.reference
        stop, samples = new["n_rows"], new["_samples"]
        if not new["_labelled"]:
            reference = reference._in_one_class()
        given = None if self.calibration is None else samples
        needed = self.calibration or 0
        classes, shares, statistics = compare(reference, window, self.least_rows, given, needed)
        report = DriftReport(stop - self.window, stop, self.level, classes, shares)
        if needed and not report.alarm:
            new["_samples"] = samples | {
                key: (*samples.get(key, ()), value)[:needed] for key, value in statistics.items()
            }
        new |= {"last_window": window, "_open": self._empty()}
        return report

    # --- saving -------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        own = {"kind": "DriftMonitor", "window": self.window, "watched": self.n_rows}
        return {**self.reference._description(), **own}

    def _state(self) -> State:
        parts = {"reference": self.reference, "open": self._open, "last_window": self.last_window}
        samples = [(np.array([label]), df, v) for (label, (df,)), v in self._samples.items()]
        own = {
            "samples": [
                {"label": pack_labels(label), "df": float(df), "statistics": [*values]}
                for label, df, values in samples
            ],
            "labelled": self._labelled,
            "rows": self.n_rows,
        }
        states = {name: part._state() for name, part in parts.items() if part is not None}
        return {**{name: getattr(self, name) for name in _PARAMETERS}, **own, **states}

    @classmethod
    def _from_state(cls, state: Mapping[str, Any]) -> Self:
        parts = {n: ClassMoments._from_state(state[n]) for n in _MOMENTS & state.keys()}
        options = {name: state[name] for name in _PARAMETERS}
        monitor = cls(parts["reference"], **options)
        monitor._open, monitor.last_window = parts["open"], parts.get("last_window")
        monitor._labelled = state["labelled"] is True
        monitor.n_rows = check_whole("rows", state["rows"], 0)
        for each in state["samples"]:
            (label,) = as_objects(unpack_labels(each["label"]))
            values = as_numbers("statistics", each["statistics"], "numbers >= 0", finite=True)
            if values.ndim != 1 or (values < 0).any():
                raise ValueError("statistics of covariances are not numbers >= 0")
            monitor._samples[label, (float(each["df"]),)] = tuple(values.tolist())
        return monitor


_PARAMETERS = ("window", "level", "calibration", "least_rows")
_MOMENTS = {"reference", "open", "last_window"}
