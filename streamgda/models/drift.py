"""Drift: how far the rows of a window are from those of a reference, and whether that is chance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from streamgda.models.covariance_tests import bartlett, box_approximations
from streamgda.models.hypotheses import Approximation, shown_p
from streamgda.moments import ClassMoments
from streamgda.moments.triangles import symmetric
from streamgda.moments.variances import total_scatter, total_variance

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
    """A window of a stream beside the reference, or its rows up to an alarm of recent means.

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
        """Return the part of some features, in other units."""
        matrix = self.covariance.ndim == 2
        index, units = (
            (np.ix_(features, features), np.outer(scale, scale)) if matrix else (features, scale**2)
        )
        return self._replace(
            mean=self.mean[features] / scale,
            mean_low=self.mean_low[features] / scale,
            covariance=self.covariance[index] / units,
        )


def parts_of(moments: ClassMoments) -> dict[Any, Part]:
    """Return the part of each class with rows, by label."""
    sums = moments.centred()
    structure, seen = sums.structure, sums.count > 0
    n_rows = sums.effective_count(lambda each: each)
    df = structure.group_sums(np.where(seen, n_rows - 1, 0.0))
    rows, weight = structure.group_sums(n_rows), structure.group_sums(sums.count)
    parts = {}
    for k in np.flatnonzero(seen).tolist():
        group = structure.group(k)
        scatter = sums.scatter[group]
        covariance = symmetric(scatter) if structure.matrix else scatter
        covariance = covariance * (rows[group] / (weight[group] * max(df[group], 1.0)))
        mean = sums.mean[k], sums.mean_low[k]
        part = Part(float(n_rows[k]), *mean, covariance, float(df[group]), structure.per_class)
        parts[moments.classes[k].item()] = part
    return parts


def whole_of(moments: ClassMoments) -> Part:
    """Return the part of all rows, whatever their class."""
    sums = moments.centred()
    seen, weight = sums.count > 0, sums.count.sum()
    n_rows = float(sums.effective_count(lambda each: each.sum(keepdims=True))[0])
    mean = sums.mean[seen][0]
    low = (sums.count[seen] / weight) @ ((sums.mean[seen] - mean) + sums.mean_low[seen])
    matrix = sums.structure.matrix
    covariance = total_scatter(sums) / weight if matrix else total_variance(sums)
    df = n_rows - 1
    return Part(n_rows, mean, low, covariance * (n_rows / max(df, 1.0)), df)


def compare(reference: Part, window: Part) -> Comparison:
    """Return the comparison of a window with a reference."""
    features = reference.variances > 0
    if not features.any() or reference.df + window.df < 1:
        return Comparison(window.n_rows)
    scale = np.sqrt(reference.variances[features])
    reference, window = (part.scaled(features, scale) for part in (reference, window))
    gap = (window.mean - reference.mean) + (window.mean_low - reference.mean_low)
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
