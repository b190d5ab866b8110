"""Comparison of a window of a stream with a reference, from the moments of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from streamgda.models.covariance import Summary
from streamgda.models.hypothesis_tests import Statistic, box_approximations
from streamgda.moments import ClassMoments
from streamgda.rows.labels import as_objects, find, join_labels

_ROWS_PER_FEATURE = 5  # of a class in a window, for a test of its covariance matrix
_LEAST_EXPECTED = 5.0  # rows of a class in a window, for its own cell of the G test
SHARES = "shares"  # the key of the test of class shares


class Comparison(NamedTuple):
    """The rows of a class in a window beside those of the reference.

    Attributes
    ----------
    n_rows : float
        Rows of the class in the window; if they have weights, the effective number.
    divergence : float
        Symmetric Kullback-Leibler divergence of the Gaussians, in nats: the size of the drift,
        which does not grow with the rows. NaN if a covariance has no inverse.
    means : Statistic or None
        Hotelling's :math:`T^2`, or the largest :math:`t^2` of a feature. None with too few rows.
    covariances : Statistic or None
        Box's M, or the chi-square of the feature whose variances differ most. The p-value is NaN
        until the test is calibrated. None with too few rows, or without a covariance of the class.
    """

    n_rows: float
    divergence: float = np.nan
    means: Statistic | None = None
    covariances: Statistic | None = None


@dataclass(frozen=True)
class DriftReport:
    """Comparison of a window of a stream with the reference.

    Attributes
    ----------
    start, stop : int
        Numbers of the first row of the window, and of the first row after it.
    level : float
        Probability of a false alarm.
    classes : dict of label to Comparison
        The classes with rows in the window and in the reference; of rows without labels, 0.
    shares : Statistic or None
        G test of the class shares, with Williams's correction. None with fewer than two classes.

    Examples
    --------
    >>> import numpy as np
    >>> from streamgda import ClassMoments, DriftMonitor
    >>> random = np.random.default_rng(0)
    >>> X, y = random.normal(size=(1000, 2)), random.integers(0, 2, 1000)
    >>> monitor = DriftMonitor(ClassMoments().update(X, y), window=100)
    >>> (report,) = monitor.update(X[:100] + [1.0, 0.0], y[:100])
    >>> report.alarms
    [(0, 'means'), (1, 'means')]
    """

    start: int
    stop: int
    level: float
    classes: Mapping[Any, Comparison]
    shares: Statistic | None = None

    @property
    def p_values(self) -> dict[Any, float]:
        """P-values of all tests together, corrected by Holm's procedure.

        The keys are pairs of a class and ``"means"`` or ``"covariances"``, and ``"shares"``.
        """
        found: dict[Any, Any] = {SHARES: self.shares}
        for label, each in self.classes.items():
            found |= {(label, "means"): each.means, (label, "covariances"): each.covariances}
        tested = {key: test.p_value for key, test in found.items() if test is not None}
        tested = {key: p for key, p in tested.items() if not np.isnan(p)}
        return dict(zip(tested, holm([*tested.values()]).tolist(), strict=True))

    @property
    def alarms(self) -> list[Any]:
        """The tests that show a drift: keys of `p_values`."""
        return [key for key, p_value in self.p_values.items() if p_value <= self.level]

    @property
    def alarm(self) -> bool:
        """True if any test shows a drift."""
        return bool(self.alarms)


def compare(
    reference: ClassMoments,
    window: ClassMoments,
    least_rows: int,
    samples: Mapping[Any, Sequence[float]] | None,
    needed: int,
) -> tuple[dict[Any, Comparison], Statistic | None, dict[Any, float]]:
    """Compare a window with a reference.

    Parameters
    ----------
    reference, window : ClassMoments
        Of one covariance type.
    least_rows : int
        Rows of a class in the window below which only its share is compared.
    samples : mapping of (label, df) to sequence of float, or None
        Statistics of the covariances in windows without drift. None if covariances are not tested.
    needed : int
        Statistics by which a test is calibrated; 0 for the distribution of Gaussian rows.

    Returns
    -------
    classes : dict of label to Comparison
    shares : Statistic or None
    statistics : dict of (label, df) to float
        Statistics of the covariances of this window.
    """
    a, b = Summary.of(reference), Summary.of(window)
    labels, found, statistics = as_objects(b.classes), {}, {}
    at = find(b.classes, a.classes)
    d = a.origin.size
    matrix = a.scatter.ndim == 3 and b.rows.sum() - np.count_nonzero(b.count) > 2 * d
    for j in np.flatnonzero(b.count > 0).tolist():
        i, n_rows = int(at[j]), float(b.rows[j])
        if i < 0 or not a.count[i] > 0:
            continue
        if n_rows < least_rows or a.rows[i] < 2:
            found[labels[j]] = Comparison(n_rows)
            continue
        offset = (b.origin - a.origin) + (b.offsets[j] - a.offsets[i])
        sides = _side(a, i), _side(b, j)
        each = _compare(offset, *sides, float(a.rows[i]), n_rows, matrix)
        if len(a.scatter) < a.count.size or samples is None:  # pooled over classes, or not tested
            each = each._replace(covariances=None)
        if each.covariances is not None:
            key = labels[j], each.covariances.df
            statistics[key] = float(each.covariances.statistic)
            if needed:
                sample = (samples or {}).get(key, ())
                p_value = _calibrated(statistics[key], sample) if len(sample) >= needed else np.nan
                each = each._replace(covariances=each.covariances._replace(p_value=p_value))
        found[labels[j]] = each
    return found, _compare_shares(a, b), statistics


def _side(summary: Summary, k: int) -> tuple[np.ndarray, float]:
    """Return the scatter of a class, or that pooled over classes, and its degrees of freedom."""
    seen = summary.count > 0
    if len(summary.scatter) < summary.count.size:
        rows, count, scatter = summary.rows[seen].sum(), summary.count.sum(), summary.scatter[0]
        return scatter * (rows / count), float(rows - seen.sum())
    rows = summary.rows[k]
    return summary.scatter[k] * (rows / summary.count[k]), float(rows - 1)


def _compare(
    offset: np.ndarray,
    reference: tuple[np.ndarray, float],
    window: tuple[np.ndarray, float],
    n_reference: float,
    n_window: float,
    matrix: bool,
) -> Comparison:
    """Compare scatters, with degrees of freedom, of rows whose means differ by an offset."""
    (A, df_a), (B, df_b) = reference, window
    variances = (A.diagonal() if A.ndim == 2 else A) / df_a
    features = np.flatnonzero(variances > 0)  # constant ones are left out, whatever they become
    if not features.size or df_b < 1:
        return Comparison(n_window)
    scale, d = np.sqrt(variances[features]), features.size
    offset = offset[features] / scale
    if A.ndim == 2:
        index, units = np.ix_(features, features), np.outer(scale, scale)
    else:
        index, units = features, scale**2  # type: ignore[assignment]
    A, B = A[index] / units, B[index] / units
    df, n = df_a + df_b, n_reference * n_window / (n_reference + n_window)
    common = (A + B) / df
    root = _root(common) if matrix and df > 2 * d else None
    if root is not None:
        t2 = n * float((linalg.solve_triangular(root, offset, lower=True) ** 2).sum())
        df2 = df - d + 1
        means = Statistic(t2, (d, df2), float(special.fdtrc(d, df2, t2 * df2 / (df * d))))
    else:
        t2 = float((n * offset**2 / (common.diagonal() if A.ndim == 2 else common)).max())
        means = Statistic(t2, (1, df), min(1.0, d * float(special.fdtrc(1, df, t2))))
    first, second = A / df_a, B / df_b
    if root is not None and df_b >= _ROWS_PER_FEATURE * d - 1:
        roots = [_root(first), _root(second), root]
        if roots[0] is not None and roots[1] is not None:
            divergence = _divergence(offset, roots[0], roots[1])
            logs = [2 * np.log(each.diagonal()).sum() for each in roots]  # type: ignore[union-attr]
            m = max(0.0, float(df * logs[2] - df_a * logs[0] - df_b * logs[1]))
            _, f = box_approximations(m, np.array([df_a, df_b]), d)
            covariances = Statistic(m, (d * (d + 1) / 2,), f.p_value)
            return Comparison(n_window, divergence, means, covariances)
    # Each feature by itself: the ratio of two variances has the distribution F, exactly.
    a, b = (each.diagonal() if A.ndim == 2 else each for each in (first, second))
    tails = np.minimum(special.fdtr(df_b, df_a, b / a), special.fdtrc(df_b, df_a, b / a))
    least = min(1.0, max(2 * float(tails.min()), 1e-300))  # zero if a feature has become constant
    covariances = Statistic(float(special.chdtri(1, least)), (1.0,), min(1.0, d * least))
    divergence = np.nan
    if A.ndim == 1 and (b > 0).all():
        divergence = float(((a - b) ** 2 / (a * b) + offset**2 * (1 / a + 1 / b)).sum() / 2)
    return Comparison(n_window, divergence, means, covariances)


def _root(covariance: np.ndarray) -> np.ndarray | None:
    """Return the lower Cholesky factor of a covariance; None if it has no inverse."""
    try:
        root = linalg.cholesky(covariance, lower=True)
    except linalg.LinAlgError:
        return None
    return root if (root.diagonal() > 1e-6 * np.sqrt(covariance.diagonal())).all() else None


def _divergence(offset: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the symmetric Kullback-Leibler divergence, from Cholesky factors of covariances."""
    there, back = (
        (linalg.solve_triangular(x, np.column_stack([y, offset]), lower=True) ** 2).sum()
        for x, y in ((first, second), (second, first))
    )
    return max(0.0, float(there + back) / 2 - offset.size)


def _compare_shares(a: Summary, b: Summary) -> Statistic | None:
    """Return the G test of equal class shares, with Williams's correction.

    Classes of which fewer than five rows are expected in the window share a cell.
    """
    classes = join_labels(a.classes, b.classes)
    counts = np.zeros((2, classes.size))
    for row, each in zip(counts, (a, b), strict=True):
        row[find(each.classes, classes)] = each.count * (each.rows.sum() / each.count.sum())
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
    statistic = max(g, 0.0) / q
    return Statistic(float(statistic), (df,), float(special.chdtrc(df, statistic)))


def _calibrated(statistic: float, sample: Sequence[float]) -> float:
    """Return the p-value of a statistic of covariances by those of windows without drift.

    The sixth root of a statistic is taken as normal, with the mean and the variance of those of a
    sample: a prediction by Student's t.
    """
    n, roots = len(sample), np.array(sample) ** (1 / 6)
    offset = statistic ** (1 / 6) - roots.mean()
    deviation = roots.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(special.stdtr(n - 1, -offset / deviation)) if deviation > 0 else np.nan


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Return p-values of a family of tests, adjusted by Holm's procedure."""
    p, n = np.array(p_values, np.float64), len(p_values)
    order = np.argsort(p)
    adjusted = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(n, 0, -1)))
    found = np.empty(n)
    found[order] = adjusted
    return found
