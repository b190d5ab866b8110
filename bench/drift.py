"""Suite `drift`: false alarms and delays of `DriftMonitor`, beside ADWIN and MEWMA.

Each stream has a reference and a monitor of its own, with the default calibration. Rates are those
of the windows after it, and without a test of covariances those of the windows before. A stream
that drifts does so once, after the calibration; the delay is the number of rows from there to the
end of the window that raises the alarm, or to the row at which ADWIN, with its default parameters,
reports a change of the errors of a QDA fitted to the reference.

ADWIN sees the errors of a model, which shifts of the mean need not change. MEWMA (Lowry et al.,
1992) sees the rows: the mean and the covariance are known to it, not estimated, and its limit is
that of simulated streams with `LEVEL` alarms a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import signal, stats

from bench.measure import Plan, reason
from streamgda import ClassMoments, DriftMonitor, QuadraticDiscriminantAnalysis

D, WINDOW, LEVEL, CALIBRATION = 4, 250, 0.01, 20
REFERENCE_ROWS = 5000
STREAMS, WINDOWS = 1000, 10  # without drift, after the calibration
DRIFTING_STREAMS, DRIFTING_WINDOWS = 100, 20
OURS, MEANS_AND_SHARES, ADWIN = "DriftMonitor", "means and shares alone", "river ADWIN"
WEIGHT = 0.03  # of the newest row
MEWMA = f"MEWMA, weight {WEIGHT}"
SHIFTS, SIZES = (0.25, 0.5, 1.0), (5, 20)  # in deviations of the first feature; features

Random = np.random.Generator
Draw = Callable[[Random, int], np.ndarray]


def elliptical(random: Random, n: int) -> np.ndarray:
    """Rows of Student's t with five degrees of freedom, all features of a row at once."""
    return random.normal(size=(n, D)) / np.sqrt(random.chisquare(5, (n, 1)) / 5)


DRAWS: dict[str, Draw] = {
    "normal": lambda random, n: random.normal(size=(n, D)),
    "uniform": lambda random, n: random.uniform(-1.7, 1.7, (n, D)),
    "two modes": lambda random, n: random.normal(size=(n, D)) + 4 * random.integers(0, 2, (n, 1)),
    "exponential": lambda random, n: random.exponential(size=(n, D)),
    "Student's t, 5 df": elliptical,
    "log-normal": lambda random, n: np.exp(random.normal(size=(n, D))),
}


@dataclass(frozen=True)
class Change:
    """Change of a stream: of the first feature's mean and spread in class 1, or of its share."""

    name: str
    shift: float = 0.0
    spread: float = 1.0
    share: float = 0.5


CHANGES = [
    *(Change(f"mean by {size:g} deviations", shift=size) for size in (0.25, 0.5, 1.0)),
    *(Change(f"deviation times {size:g}", spread=size) for size in (1.25, 1.5, 2.0)),
    *(Change(f"share from 0.5 to {size:g}", share=size) for size in (0.55, 0.6, 0.7)),
]


@dataclass
class Detection:
    """Alarms of a detector on streams, of which `detected` is the share with an alarm in time.

    `rate` is that of false alarms per window, from `low` to `high` with 95 % confidence; `delay`
    the median number of rows to the alarm.
    """

    data: str
    change: str
    detector: str
    streams: int
    rate: float | None = None
    low: float | None = None
    high: float | None = None
    detected: float | None = None
    delay: float | None = None
    missing: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Detection]:
    streams, drifting = (3, 2) if plan.quick else (STREAMS, DRIFTING_STREAMS)
    for name, draw in DRAWS.items():
        yield from false_alarms(name, draw, streams)
    for change in CHANGES[:1] if plan.quick else CHANGES:
        yield from delays(change, drifting)
    for d in SIZES[:1] if plan.quick else SIZES:
        yield from shifts(d, drifting, windows=100 if plan.quick else 20_000)


def rows(random: Random, draw: Draw, n: int, change: Change) -> tuple[np.ndarray, np.ndarray]:
    y = (random.random(n) < change.share).astype(int)
    X = draw(random, n)
    second = y == 1
    X[second, 0] = X[second, 0] * change.spread + change.shift
    X[:, 1] += 2 * y
    return X, y


def errors_of(reference: tuple[np.ndarray, np.ndarray], X: np.ndarray, y: np.ndarray) -> Any:
    return QuadraticDiscriminantAnalysis().fit(*reference).predict(X) != y


def adwin(errors: np.ndarray) -> list[int]:
    """Return the rows at which ADWIN reports a change."""
    from river import drift

    detector, found = drift.ADWIN(), []
    for number, error in enumerate(errors.tolist()):
        detector.update(error)
        if detector.drift_detected:
            found.append(number)
    return found


def false_alarms(name: str, draw: Draw, streams: int) -> Iterator[Detection]:
    same, windows, random = Change("none"), CALIBRATION + WINDOWS, np.random.default_rng(1)
    alarms = dict.fromkeys((OURS, MEANS_AND_SHARES, ADWIN), 0)
    looked = dict(zip(alarms, (streams * n for n in (WINDOWS, CALIBRATION, windows)), strict=True))
    missing = ""
    for _ in range(streams):
        reference = rows(random, draw, REFERENCE_ROWS, same)
        X, y = rows(random, draw, windows * WINDOW, same)
        monitor = DriftMonitor(ClassMoments().update(*reference), window=WINDOW, level=LEVEL)
        found = [report.alarm for report in monitor.update(X, y) if not report.early]
        alarms[MEANS_AND_SHARES] += sum(found[:CALIBRATION])
        alarms[OURS] += sum(found[CALIBRATION:])
        try:
            alarms[ADWIN] += len(adwin(errors_of(reference, X, y)))
        except ImportError as error:
            missing = reason(error)
    for detector, n in looked.items():
        row = Detection(name, "none", detector, streams)
        if detector == ADWIN and missing:
            row.missing = missing
        else:
            interval = stats.binomtest(alarms[detector], n).proportion_ci()
            row.rate, row.low, row.high = alarms[detector] / n, interval.low, interval.high
        yield row


def delays(change: Change, streams: int) -> Iterator[Detection]:
    random, draw, missing = np.random.default_rng(2), DRAWS["normal"], ""
    ours: list[float] = []
    theirs: list[float] = []
    before, most = CALIBRATION * WINDOW, DRIFTING_WINDOWS * WINDOW
    for _ in range(streams):
        reference, first = (rows(random, draw, n, Change("none")) for n in (REFERENCE_ROWS, before))
        second = rows(random, draw, most, change)
        X, y = (np.concatenate(both) for both in zip(first, second, strict=True))
        monitor = DriftMonitor(ClassMoments().update(*reference), window=WINDOW, level=LEVEL)
        ours.append(first_after(before, [r.stop for r in monitor.update(X, y) if r.alarm]))
        try:
            theirs.append(first_after(before, adwin(errors_of(reference, X, y))))
        except ImportError as error:
            missing = reason(error)
    for detector, found in ((OURS, ours), (ADWIN, theirs)):
        row = Detection("normal", change.name, detector, streams)
        if found:
            row.detected = float(np.mean(np.isfinite(found)))
            row.delay = float(np.median(found)) if row.detected > 0.5 else None
        else:
            row.missing = missing
        yield row


def first_after(row: int, alarms: list[int]) -> float:
    """Return the rows from the change to the first alarm after it; infinity without one."""
    return next((float(at - row) for at in alarms if at > row), np.inf)


def mewma(X: np.ndarray) -> np.ndarray:
    """Return the statistic of MEWMA for rows whose mean is zero and whose covariance is one."""
    means = signal.lfilter([WEIGHT], [1, WEIGHT - 1], X, axis=0)
    return np.asarray((means**2).sum(axis=1) * (2 - WEIGHT) / WEIGHT)


def mewma_limit(d: int, windows: int) -> float:
    """Return the limit that a share `LEVEL` of windows exceeds without drift."""
    random, largest = np.random.default_rng(3), []
    for _ in range(windows // 100):
        squares = mewma(random.normal(size=(101 * WINDOW, d)))[WINDOW:]
        largest.append(squares.reshape(-1, WINDOW).max(axis=1))
    return float(np.quantile(largest, 1 - LEVEL))


def shifts(d: int, streams: int, windows: int) -> Iterator[Detection]:
    """Yield the delays for shifts of the mean of all rows, without labels, and false alarms."""
    random, limit = np.random.default_rng(4), mewma_limit(d, windows)
    before, most = CALIBRATION * WINDOW, DRIFTING_WINDOWS * WINDOW
    delays_of: dict[tuple[str, float], list[float]] = {
        (detector, size): [] for size in SHIFTS for detector in (OURS, MEWMA)
    }
    for _ in range(streams):
        reference = random.normal(size=(REFERENCE_ROWS, d))
        monitor = DriftMonitor(
            ClassMoments().update(reference, np.zeros(REFERENCE_ROWS, int)),
            window=WINDOW,
            level=LEVEL,
        )
        first = random.normal(size=(before, d))
        monitor.update(first)
        saved, second = monitor.to_bytes(), random.normal(size=(most, d))
        for size in SHIFTS:
            shifted = second + size * np.eye(d)[0]
            alarms = DriftMonitor.from_bytes(saved).update(shifted)
            ours = [report.stop for report in alarms if report.alarm]
            theirs = np.flatnonzero(mewma(np.concatenate([first, shifted])) > limit) + 1
            delays_of[OURS, size].append(first_after(before, ours))
            delays_of[MEWMA, size].append(first_after(before, theirs.tolist()))
    for (detector, size), found in delays_of.items():
        row = Detection(f"normal, {d} features", f"mean by {size:g}, all rows", detector, streams)
        row.detected = float(np.mean(np.isfinite(found)))
        row.delay = float(np.median(found)) if row.detected > 0.5 else None
        yield row
