"""Comparison of a window of a stream with a reference, from the moments of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from streamgda.models.covariance import Summary, inverse_roots
from streamgda.models.hypothesis_tests import Statistic, box_approximations
from streamgda.moments import ClassMoments
from streamgda.rows.labels import as_objects, find, join_labels

_ROWS_PER_FEATURE = 5  # A class in a window needs so many for a test of its covariance matrix.
_LEAST_EXPECTED = 5.0  # A class with fewer expected rows has no cell of its own in the G test.
_TOL = 1e-6  # `inverse_roots` takes this tolerance.
SHARES = "shares"  # The test of class shares has this key.


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
    at, pooled = find(b.classes, a.classes), len(a.scatter) < a.count.size
    many = b.rows.sum() - np.count_nonzero(b.count) > 2 * a.origin.size
    for j in np.flatnonzero((b.count > 0) & (at >= 0) & (a.count[at] > 0)).tolist():
        i, n_rows = int(at[j]), float(b.rows[j])
        each = Comparison(n_rows)
        if n_rows >= least_rows and a.rows[i] >= 2:
            offset = (b.origin - a.origin) + (b.offsets[j] - a.offsets[i])
            each = _compare(offset, _scatter(a, i), _scatter(b, j), float(a.rows[i]), n_rows, many)
        if pooled or samples is None:
            each = each._replace(covariances=None)
        elif each.covariances is not None:
            key = labels[j], each.covariances.df
            statistics[key] = float(each.covariances.statistic)
            if needed:
                p_value = _calibrated(statistics[key], samples.get(key, ()), needed)
                each = each._replace(covariances=each.covariances._replace(p_value=p_value))
        found[labels[j]] = each
    return found, _compare_shares(a, b), statistics


def _scatter(summary: Summary, k: int) -> tuple[np.ndarray, float]:
    """Return the scatter of a class, or that pooled over classes, and its degrees of freedom."""
    rows, count, n_classes = summary.rows[k], summary.count[k], 1
    if len(summary.scatter) < summary.count.size:
        rows, count, k = summary.rows.sum(), summary.count.sum(), 0
        n_classes = int(np.count_nonzero(summary.count))
    return summary.scatter[k] * (rows / count), float(rows - n_classes)


def _compare(
    offset: np.ndarray,
    reference: tuple[np.ndarray, float],
    window: tuple[np.ndarray, float],
    n_reference: float,
    n_window: float,
    many: bool,
) -> Comparison:
    """Compare scatters, with degrees of freedom, of rows whose means differ by an offset."""
    (A, df_a), (B, df_b) = reference, window
    matrix, n = A.ndim == 2, n_reference * n_window / (n_reference + n_window)
    variances = (A.diagonal() if matrix else A) / df_a
    features = np.flatnonzero(variances > 0)  # Others are left out, whatever they become.
    if not features.size or df_b < 1:
        return Comparison(n_window)
    scale, d, df = np.sqrt(variances[features]), features.size, df_a + df_b
    index, units = np.ix_(*[features] * A.ndim), np.outer(scale, scale) if matrix else scale**2
    offset, A, B = offset[features] / scale, A[index] / units, B[index] / units
    covariances = np.stack([(A + B) / df, A / df_a, B / df_b])
    common, a, b = np.einsum("gii->gi", covariances) if matrix else covariances
    ranks = np.zeros(3)
    if matrix and many and df > 2 * d:
        roots, logs, ranks = inverse_roots(covariances, _TOL)
    if ranks[0] == d:
        t2, df2 = n * float(((roots[0] @ offset) ** 2).sum()), df - d + 1
        means = Statistic(t2, (d, df2), float(special.fdtrc(d, df2, t2 * df2 / (df * d))))
    else:
        t2 = float((n * offset**2 / common).max())
        means = Statistic(t2, (1, df), min(1.0, d * float(special.fdtrc(1, df, t2))))
    if (ranks == d).all() and df_b >= _ROWS_PER_FEATURE * d - 1:
        crossed = (roots[1], covariances[2]), (roots[2], covariances[1])
        squares = [np.vdot(W @ S, W) + ((W @ offset) ** 2).sum() for W, S in crossed]
        m = max(0.0, float(df * logs[0] - df_a * logs[1] - df_b * logs[2]))
        p_value = box_approximations(m, np.array([df_a, df_b]), d)[1].p_value
        box = Statistic(m, (d * (d + 1) / 2,), p_value)
        return Comparison(n_window, max(0.0, float(sum(squares)) / 2 - d), means, box)
    # The ratio of two variances of a feature has the distribution F, exactly.
    tails = np.minimum(special.fdtr(df_b, df_a, b / a), special.fdtrc(df_b, df_a, b / a))
    least = min(1.0, max(2 * float(tails.min()), 1e-300))  # A feature may have become constant.
    ratios = Statistic(float(special.chdtri(1, least)), (1.0,), min(1.0, d * least))
    divergence = np.nan
    if not matrix and (b > 0).all():
        divergence = float(((a - b) ** 2 / (a * b) + offset**2 * (1 / a + 1 / b)).sum() / 2)
    return Comparison(n_window, divergence, means, ratios)


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


def _calibrated(statistic: float, sample: Sequence[float], needed: int) -> float:
    """Return the p-value of a statistic of covariances by those of windows without drift.

    The sixth root of a statistic is taken as normal, with the mean and the variance of those of a
    sample: a prediction by Student's t. It is NaN until there are as many as needed.
    """
    n, roots = len(sample), np.array(sample) ** (1 / 6)
    if n < needed:
        return np.nan
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
