"""Drift of a stream: windows, and exponentially weighted means (MEWMA), beside a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, signal, special

from streamgda.models.hypothesis_tests import Approximation, bartlett, box_approximations, shown_p
from streamgda.moments import ClassMoments, held_sums
from streamgda.rows.labels import as_objects
from streamgda.runtime.display import html_table

_LEAST_ROOT = 1e-6  # in the Cholesky factor of a correlation matrix that has an inverse
_ROWS_PER_FEATURE = 5  # of a window, for a test of all features at once
ALL = None  # the label of all rows together
RECENT = "recent means"  # the name of tests of exponentially weighted means
RECENT_SHARE = 0.85  # of the level, for tests of exponentially weighted means
_LEAST_EXPECTED = 5.0  # rows of a class in a window, for its own cell of the G test


@dataclass(frozen=True, repr=False)
class Comparison:
    """The rows of a class, or all rows, of a window beside those of the reference.

    Attributes
    ----------
    n_rows : float
        Rows in the window; if they have weights, the effective number.
    divergence : float
        Symmetric Kullback-Leibler divergence of the Gaussians, in nats: the size of the drift,
        which does not grow with the rows. NaN if a covariance has no inverse.
    means : Approximation or None
        Hotelling's :math:`T^2` with its F degrees of freedom, or the largest :math:`t^2` of a
        feature. None with too few rows.
    covariances : Approximation or None
        Box's M, corrected, with its chi-square degrees of freedom; or the largest of a feature.
        None with too few rows, or if covariances are pooled over all classes.
    recent : Approximation or None
        Largest :math:`T^2` of exponentially weighted means in the window, with its features. The
        p-value is corrected for the number of such tests. None if there are none.
    """

    n_rows: float
    divergence: float = np.nan
    means: Approximation | None = None
    covariances: Approximation | None = None
    recent: Approximation | None = None

    @property
    def tests(self) -> dict[str, Approximation | None]:
        """The tests by name."""
        return {"means": self.means, "covariances": self.covariances, RECENT: self.recent}

    def __repr__(self) -> str:
        parts = [f"{self.n_rows:.6g} rows, divergence {self.divergence:.3g}"]
        for name, test in self.tests.items():
            if test is not None:
                tested = not np.isnan(test.p_value)
                parts.append(f"{name} {shown_p(test.p_value) if tested else 'not tested yet'}")
        return f"Comparison: {', '.join(parts)}"


@dataclass(frozen=True, repr=False)
class DriftReport:
    """Comparison of a window of a stream with the reference, up to an early alarm if there is one.

    Parameters
    ----------
    start, stop : int
        Numbers of the first row of the window, and of the first row after it.
    level : float
        Probability of a false alarm.
    overall : Comparison
        All rows, with labels or not.
    classes : dict of label to Comparison
        The classes with rows in the window and in the reference.
    shares : Approximation or None
        G test of the class shares, with Williams's correction. None with fewer than two classes.
    early : bool
        The window was not full: recent means raised an alarm at its last row.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import ClassMoments, DriftMonitor
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(1000, 2)), random.integers(0, 2, 1000)
    >>> monitor = DriftMonitor(ClassMoments().update(X, y), window=100)
    >>> (report,) = monitor.update(X[:100] + 1.0, y[:100])
    >>> report.start, report.stop, report.alarm
    (0, 100, True)
    """

    start: int
    stop: int
    level: float
    overall: Comparison
    classes: Mapping[Any, Comparison]
    shares: Approximation | None = None
    early: bool = False

    @property
    def compared(self) -> dict[Any, Comparison]:
        """All rows, under None, and the classes."""
        return {ALL: self.overall, **self.classes}

    @property
    def p_values(self) -> dict[tuple[Any, str], float]:
        """P-values of all tests together, by class (None for all rows) and name.

        Those of recent means have 85 % of the level, if they are tested; the others have
        the rest, and are corrected by Holm's procedure.

        Examples
        --------
        >>> from streamgda import ClassMoments, DriftMonitor
        >>> monitor = DriftMonitor(ClassMoments().update([[0.0], [1.0]] * 50, [0] * 100), window=40)
        >>> (report,) = monitor.update([[3.0], [4.0]] * 20, [0] * 40)
        >>> sorted(report.p_values, key=str)
        [(0, 'means'), (None, 'means')]
        """
        found = {(ALL, "shares"): self.shares}
        for label, each in self.compared.items():
            found |= {(label, name): test for name, test in each.tests.items()}
        tested = {
            test: float(each.p_value)
            for test, each in found.items()
            if each is not None and not np.isnan(each.p_value)
        }
        recent = {test: p for test, p in tested.items() if test[1] == RECENT}
        others = {test: p for test, p in tested.items() if test not in recent}
        share = RECENT_SHARE if recent else 0.0
        corrected = zip(others, holm([*others.values()]).tolist(), strict=True)
        return {
            **{test: min(1.0, p / (1 - share)) for test, p in corrected},
            **{test: min(1.0, p / share) for test, p in recent.items()},
        }

    @property
    def alarms(self) -> list[tuple[Any, str]]:
        """Class (None for all rows) and name of each test that shows a drift."""
        return [test for test, p_value in self.p_values.items() if p_value <= self.level]

    @property
    def alarm(self) -> bool:
        """True if any test shows a drift."""
        return bool(self.alarms)

    def __repr__(self) -> str:
        early = " (not full)" if self.early else ""
        lines = [f"DriftReport: rows {self.start:,} to {self.stop:,}{early}, "]
        if self.alarm:
            tests = (
                f"{'all rows' if k is None else f'class {k}'}: {name}" for k, name in self.alarms
            )
            lines[0] += f"drift ({'; '.join(tests)})"
        else:
            lines[0] += "no drift"
        lines.append(f"  all rows: {str(self.overall).removeprefix('Comparison: ')}")
        lines += [
            f"  class {label}: {str(each).removeprefix('Comparison: ')}"
            for label, each in self.classes.items()
        ]
        if self.shares is not None:
            lines.append(f"  class shares: {shown_p(self.shares.p_value)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        alarms = [f"{'all rows' if k is None else k}: {name}" for k, name in self.alarms]
        facts = {
            "rows": f"{self.start:,} to {self.stop:,}",
            "drift": alarms or "none",
            "class shares p": None if self.shares is None else self.shares.p_value,
        }
        columns = ("class", "rows", "divergence", *(f"p of {name}" for name in self.overall.tests))
        rows = [
            (
                "all rows" if label is None else label,
                each.n_rows,
                each.divergence,
                *(None if test is None else test.p_value for test in each.tests.values()),
            )
            for label, each in self.compared.items()
        ]
        return html_table("DriftReport", facts, columns, rows)


class Part(NamedTuple):
    """The rows of a class, or all rows, on one side of a comparison.

    Attributes
    ----------
    n_rows : float
        Rows, or their effective number.
    mean, mean_low : ndarray, shape (d,)
        Mean, as a sum of both.
    covariance : ndarray, shape (d, d), or (d,) for variances alone
        Unbiased.
    df : float
        Degrees of freedom of the covariance.
    own : bool
        The covariance is that of these rows, rather than one pooled over all classes.
    """

    n_rows: float
    mean: np.ndarray
    mean_low: np.ndarray
    covariance: np.ndarray
    df: float
    own: bool = True

    @property
    def variances(self) -> np.ndarray:
        """Variances of the features."""
        return self.covariance.diagonal() if self.covariance.ndim == 2 else self.covariance

    def scaled(self, features: np.ndarray, scale: np.ndarray) -> Part:
        """Return the part with the covariance of some features, in other units."""
        matrix = self.covariance.ndim == 2
        index, units = (
            (np.ix_(features, features), np.outer(scale, scale)) if matrix else (features, scale**2)
        )
        return self._replace(covariance=self.covariance[index] / units)


def parts_of(moments: ClassMoments, dtype: Any = None) -> dict[Any, Part]:
    """Return the part of each class with rows, by its label in a dtype, by default its own."""
    sums = held_sums(moments).centred()
    structure, seen = sums.structure, sums.count > 0
    n_rows = sums.effective_count(lambda each: each)
    df = structure.group_sums(np.where(seen, n_rows - 1, 0.0))
    rows, weight = structure.group_sums(n_rows), structure.group_sums(sums.count)
    parts, labels = {}, as_objects(moments.classes.astype(dtype or moments.classes.dtype))
    for k in np.flatnonzero(seen).tolist():
        group = structure.group(k)
        covariance = structure.whole(sums.packed[group : group + 1])[0]
        covariance *= rows[group] / (weight[group] * max(df[group], 1.0))
        mean = sums.mean[k], sums.mean_low[k]
        part = Part(float(n_rows[k]), *mean, covariance, float(df[group]), structure.per_class)
        parts[labels[k]] = part
    return parts


def whole_of(moments: ClassMoments) -> Part:
    """Return the part of all rows, whatever their class."""
    (part,) = parts_of(moments._in_one_class()).values()
    return part


def compare(reference: Part, window: Part) -> Comparison:
    """Return the comparison of a window with a reference."""
    features = reference.variances > 0
    if not features.any() or reference.df + window.df < 1:
        return Comparison(window.n_rows)
    scale = np.sqrt(reference.variances[features])
    gap = (window.mean - reference.mean) + (window.mean_low - reference.mean_low)
    gap = gap[features] / scale
    reference, window = (part.scaled(features, scale) for part in (reference, window))
    if reference.covariance.ndim == 2 and window.df >= _ROWS_PER_FEATURE * gap.size:
        first, second = reference.covariance, window.covariance
        both = (reference.df * first + window.df * second) / (reference.df + window.df)
        roots = [root_of(covariance) for covariance in (first, second, both)]
        if all(root is not None for root in roots):
            return _compare_matrices(reference, window, gap, *roots)
    return _compare_variances(reference, window, gap)


def root_of(covariance: np.ndarray) -> np.ndarray | None:
    """Return the lower Cholesky factor of a covariance; None if it has no inverse."""
    deviations = np.sqrt(covariance.diagonal())
    try:
        root = linalg.cholesky(covariance, lower=True)
    except linalg.LinAlgError:
        return None
    return root if (root.diagonal() > _LEAST_ROOT * deviations).all() else None


def _compare_matrices(
    reference: Part, window: Part, gap: np.ndarray, first: Any, second: Any, both: Any
) -> Comparison:
    """Compare covariance matrices, whose Cholesky factors are given, of all features at once."""
    d = gap.size
    df = reference.df + window.df
    rows = reference.n_rows * window.n_rows / (reference.n_rows + window.n_rows)
    t2 = rows * float((linalg.solve_triangular(both, gap, lower=True) ** 2).sum())
    df1, df2 = float(d), df - d + 1
    means = Approximation(t2, (df1, df2), float(special.fdtrc(df1, df2, t2 * df2 / (df * d))))
    there, back = (
        (linalg.solve_triangular(a, np.column_stack([b, gap]), lower=True) ** 2).sum()
        for a, b in ((first, second), (second, first))
    )
    divergence = max(0.0, float(there + back) / 2 - d)
    covariances = None
    if window.own:
        logs = [2 * np.log(root.diagonal()).sum() for root in (first, second, both)]
        m = max(0.0, float(df * logs[2] - reference.df * logs[0] - window.df * logs[1]))
        covariances = box_approximations(m, np.array([reference.df, window.df]), d, 1)[0]
    return Comparison(window.n_rows, divergence, means, covariances)


def _compare_variances(reference: Part, window: Part, gap: np.ndarray) -> Comparison:
    """Compare variances; each test is that of the feature that differs most, after Bonferroni."""
    d, df = gap.size, reference.df + window.df
    a, b = reference.variances, window.variances
    common = (reference.df * a + window.df * b) / df
    rows = reference.n_rows * window.n_rows / (reference.n_rows + window.n_rows)
    t2 = float((rows * gap**2 / common).max())
    means = Approximation(t2, (1.0, df), min(1.0, d * float(special.fdtrc(1, df, t2))))
    divergence, covariances = np.nan, None
    if (b > 0).all():
        if reference.covariance.ndim == 1:
            terms = (a - b) ** 2 / (a * b) + gap**2 * (1 / a + 1 / b)
            divergence = float(terms.sum() / 2)
        if window.own and window.df >= 1:
            each = bartlett(common, np.array([a, b]), np.array([reference.df, window.df]))
            p_value = min(1.0, d * float(np.min(each.p_value)))
            covariances = Approximation(float(np.max(each.statistic)), each.df, p_value)
    return Comparison(window.n_rows, divergence, means, covariances)


def compare_shares(reference: np.ndarray, window: np.ndarray) -> Approximation | None:
    """Return the G test of equal class shares, with Williams's correction.

    Classes of which fewer than five rows are expected in the window share a cell.

    Parameters
    ----------
    reference, window : ndarray, shape (n_classes,)
        Rows of each class.
    """
    counts = np.array([reference, window], np.float64)
    rare = counts[0] * (counts[1].sum() / counts[0].sum()) < _LEAST_EXPECTED
    rest, counts = counts[:, rare].sum(axis=1), counts[:, ~rare]
    if rest[1] >= _LEAST_EXPECTED or not counts.size:
        counts = np.column_stack([counts, rest])
    else:
        counts[:, counts[0].argmin()] += rest
    df = counts.shape[1] - 1
    if not df:
        return None
    n, rows, columns = counts.sum(), counts.sum(axis=1), counts.sum(axis=0)
    g = 2 * special.rel_entr(counts, np.outer(rows, columns) / n).sum()
    q = 1 + (n * (1 / rows).sum() - 1) * (n * (1 / columns).sum() - 1) / (6 * n * df)
    return Approximation(float(g / q), (float(df),), float(special.chdtrc(df, max(g, 0.0) / q)))


def calibrated(test: Approximation, sample: Sequence[float]) -> Approximation:
    """Return a test of covariances with its p-value by statistics of windows without drift.

    The sixth root of a statistic is taken as normal, with the mean and the variance of those of a
    sample (a prediction by Student's t).
    """
    n, roots = len(sample), np.array(sample) ** (1 / 6)
    gap = test.statistic ** (1 / 6) - roots.mean()
    deviation = roots.std(ddof=1) * np.sqrt(1 + 1 / n)
    p_value = float(special.stdtr(n - 1, -gap / deviation)) if deviation > 0 else np.nan
    return Approximation(test.statistic, test.df, p_value)


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values of a family of tests, adjusted by Holm's procedure."""
    p, n = np.array(p_values, np.float64), len(p_values)
    order = np.argsort(p)
    adjusted = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(n, 0, -1)))
    found = np.empty(n)
    found[order] = adjusted
    return found


OVERSHOOT = 0.5826  # of a random walk beyond a limit, in steps (Siegmund, 1985)


class Course(NamedTuple):
    """The weighted means after some rows, and the largest statistics of a window so far.

    Attributes
    ----------
    means : ndarray, shape (n_weights, d)
        Weighted means, less the means of the reference.
    peaks : ndarray, shape (n_weights,)
        Largest squared distances in the window.
    stopped : bool
        An alarm was raised in the window; the rest of its rows are left out.
    """

    means: np.ndarray
    peaks: np.ndarray
    stopped: bool = False


def relative_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights of rows in units in which the sum of their squares, so far, is their sum.

    With these factors the weighted mean and its variance are those of as many rows as the effective
    number.

    Examples
    --------
    >>> relative_weights(np.array([3.0, 3.0, 3.0])), relative_weights(np.array([1.0, 2.0]))
    (array([1., 1., 1.]), array([1. , 1.2]))
    """
    return np.asarray(weights * (np.cumsum(weights) / np.cumsum(weights**2)))


class WeightedMeans:
    r"""Means in which the newest row has weight :math:`\lambda`, with their false alarms.

    .. math:: z_t = (1 - \lambda) z_{t-1} + \lambda (x_t - m)

    The statistic is :math:`T^2 = z^T (c S)^{-1} z`, :math:`c = \lambda / (2 - \lambda) + 1 / n`,
    where m and S are the mean and the covariance of the n rows of the reference [1]_. Without
    drift z is close to an Ornstein-Uhlenbeck process, for which the mean time to a limit is an
    integral; the limit is corrected for the overshoot of discrete steps [2]_.

    Without an inverse of the covariance, it is the largest :math:`t^2` of a feature, after
    Bonferroni.

    Parameters
    ----------
    reference : Part
        Rows to compare with.
    weights : tuple of float
        Weights of the newest row.
    n_rows : float
        Rows that are expected in a window.
    n_tests : int
        Tests of a window, by whose number p-values are multiplied.

    References
    ----------
    .. [1] C. A. Lowry, W. H. Woodall, C. W. Champ and S. E. Rigdon, A multivariate exponentially
       weighted moving average control chart, Technometrics 34 (1992), 46-53.
    .. [2] D. Siegmund, Sequential Analysis (1985), chapter 10.
    """

    def __init__(
        self, reference: Part, weights: tuple[float, ...], n_rows: float, n_tests: int
    ) -> None:
        self._features = np.flatnonzero(reference.variances > 0)
        scale = np.sqrt(reference.variances[self._features])
        part = reference.scaled(self._features, scale)
        self._mean, self._low = reference.mean[self._features], reference.mean_low[self._features]
        self._scale = scale
        root = root_of(part.covariance) if part.covariance.ndim == 2 else None
        matrix = root is not None and part.df >= 2 * scale.size
        inverse = np.linalg.inv(root) if matrix and root is not None else None
        self._whitening = None if inverse is None else np.ascontiguousarray(inverse.T)
        self._shape = len(weights), reference.mean.size
        self.size = scale.size if matrix else 1
        self._df, self._tests = part.df, n_tests * (1 if matrix else scale.size)
        self._weights, self._rows = weights, n_rows
        self._limits: tuple[Any, np.ndarray] = None, np.empty(0)
        self._spread = np.array([w / (2 - w) + 1 / part.n_rows for w in weights])

    def start(self) -> Course:
        """Return the course before the first row."""
        return Course(np.zeros(self._shape), np.zeros(self._shape[0]))

    def add(
        self, course: Course, X: np.ndarray, limits: Any, factors: np.ndarray | None = None
    ) -> tuple[Course, int | None]:
        """Return the course after more rows, and the first row beyond a limit, if there is one.

        With factors, the difference of each row from the mean of the reference is multiplied by
        its own.
        """
        if course.stopped or not self._features.size or not len(X):
            return course, None
        gaps = ((X[:, self._features] - self._mean) - self._low) / self._scale
        if factors is not None:
            gaps *= factors[:, None]
        means, found = course.means.copy(), np.empty((len(self._weights), len(X)))
        for k, weight in enumerate(self._weights):
            before = (1 - weight) * means[k, self._features][None]
            path, _ = signal.lfilter([weight], [1, weight - 1], gaps, axis=0, zi=before)
            means[k, self._features] = path[-1]
            if self._whitening is None:
                squares = (path**2).max(axis=1)
            else:
                white = path @ self._whitening
                squares = np.einsum("ij,ij->i", white, white)
            found[k] = squares / self._spread[k]
        # Rounded, for products of matrices differ in their last bits with the number of rows.
        found = found.astype(np.float32).astype(np.float64)
        beyond = np.flatnonzero((found > np.asarray(limits)[:, None]).any(axis=0))
        first = int(beyond[0]) if beyond.size else None
        stop = None if first is None else first + 1
        peaks = np.maximum(course.peaks, found[:, :stop].max(axis=1))
        return Course(means, peaks, first is not None), first

    def p_values(self, peaks: np.ndarray, samples: list[tuple[float, ...]]) -> np.ndarray:
        """Return the probabilities of larger peaks in a window, multiplied by the number of tests.

        For Gaussian rows these are known. In normal scores, peaks of windows without drift then
        have mean 0 and deviation 1; if one of theirs is larger by more than two standard errors,
        because tails are heavy, scores are compared with these.
        """
        scores = np.array([self._score(peak, k) for k, peak in enumerate(peaks.tolist())])
        shift, spread = self._fit(samples)
        return np.minimum(1.0, self._tests * special.ndtr(-(scores - shift) / spread))

    def _fit(self, samples: list[tuple[float, ...]]) -> np.ndarray:
        """Return the mean and the deviation of the normal scores of peaks, shape (2, n_weights)."""
        found = []
        for k, sample in enumerate(samples):
            scores, n = np.array([self._score(peak, k) for peak in sample]), len(sample)
            shift = scores.mean() if n else 0.0
            spread = scores.std(ddof=1) if n else 1.0
            error = 1 / np.sqrt(max(n, 1))
            if shift < 2 * error and spread < 1 + 2**0.5 * error:
                shift, spread = 0.0, 1.0
            found.append((max(0.0, shift), max(1.0, spread)))
        return np.transpose(found)

    def _score(self, peak: float, k: int) -> float:
        """Return the normal score of a peak of Gaussian rows."""
        rate = self._rows / self._run_length(peak, self._weights[k])
        if rate < 1:
            return float(-special.ndtri(-np.expm1(-rate)))
        return float(special.ndtri(np.exp(-min(rate, 700.0))))

    def limits(self, level: float, samples: list[tuple[float, ...]]) -> np.ndarray:
        """Return the peaks beyond which the p-values are at most `level`."""
        if self._limits[0] == (level, samples):
            return self._limits[1]
        shift, spread = self._fit(samples)
        scores = shift - spread * special.ndtri(level / self._tests)
        low, high = np.full(len(scores), 1e-3), np.full(len(scores), 1e6)
        for _ in range(60):
            middle = np.sqrt(low * high)
            above = [self._score(x, k) < scores[k] for k, x in enumerate(middle.tolist())]
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        self._limits = (level, samples), high
        return high

    def _run_length(self, peak: float, weight: float) -> float:
        """Return the mean number of rows to a peak without drift."""
        residual = max(self._df - self.size + 1, 1.0)
        ratio = residual / max(self._df, 1.0)
        beyond = special.fdtrc(self.size, residual, peak * ratio / self.size)
        decay = -np.log1p(-weight)
        limit = (np.sqrt(special.chdtri(self.size, beyond)) + OVERSHOOT * np.sqrt(2 * decay)) ** 2
        at, logs = _first_passage(self.size)
        return float(np.exp(np.interp(limit, at, logs)) / decay)


@lru_cache(64)
def _first_passage(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return limits, and the logarithms of the mean times to them in units of the decay time.

    Times are those of the squared length of an Ornstein-Uhlenbeck process in d dimensions, which
    starts at zero.
    """
    at = np.linspace(0, special.chdtri(d, 1e-40), 4001)
    y = (at[1:] + at[:-1]) / 2
    half = d / 2
    log_density = (half - 1) * np.log(y) - y / 2 - half * np.log(2) - special.gammaln(half)
    slopes = special.chdtr(d, y) / (4 * y) * np.exp(-log_density)
    return at[1:], np.log(np.cumsum(slopes) * (at[1] - at[0]))
