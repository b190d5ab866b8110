"""Exponentially weighted means of the rows of a stream, beside those of a reference (MEWMA)."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import signal, special

from streamgda.models.drift import Part, root_of

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
        self._scale, self._mean, self._low = scale, part.mean, part.mean_low
        root = root_of(part.covariance) if part.covariance.ndim == 2 else None
        matrix = root is not None and part.df >= 2 * scale.size
        inverse = np.linalg.inv(root) if matrix and root is not None else None
        self._whitening = None if inverse is None else np.ascontiguousarray(inverse.T)
        self._shape = len(weights), reference.mean.size
        self.size = scale.size if matrix else 1
        self._df, self._tests = part.df, n_tests * (1 if matrix else scale.size)
        self._weights, self._rows = weights, n_rows
        self._fitted: tuple[list[tuple[float, ...]], np.ndarray] = [], np.empty(0)
        self._spread = np.array([w / (2 - w) + 1 / part.n_rows for w in weights])

    def start(self) -> Course:
        """Return the course before the first row."""
        return Course(np.zeros(self._shape), np.zeros(self._shape[0]))

    def add(self, course: Course, X: np.ndarray, limits: Any) -> tuple[Course, int | None]:
        """Return the course after more rows, and the first row beyond a limit, if there is one."""
        if course.stopped or not self._features.size or not len(X):
            return course, None
        gaps = (X[:, self._features] / self._scale - self._mean) - self._low
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
        if samples == self._fitted[0]:
            return self._fitted[1]
        found = []
        for k, sample in enumerate(samples):
            scores, n = np.array([self._score(peak, k) for peak in sample]), len(sample)
            shift = scores.mean() if n else 0.0
            spread = scores.std(ddof=1) if n else 1.0
            error = 1 / np.sqrt(max(n, 1))
            if shift < 2 * error and spread < 1 + 2**0.5 * error:
                shift, spread = 0.0, 1.0
            found.append((max(0.0, shift), max(1.0, spread)))
        self._fitted = samples, np.transpose(found)
        return self._fitted[1]

    def _score(self, peak: float, k: int) -> float:
        """Return the normal score of a peak of Gaussian rows."""
        rate = self._rows / self._run_length(peak, self._weights[k])
        if rate < 1:
            return float(-special.ndtri(-np.expm1(-rate)))
        return float(special.ndtri(np.exp(-min(rate, 700.0))))

    def limits(self, level: float, samples: list[tuple[float, ...]]) -> np.ndarray:
        """Return the peaks beyond which the p-values are at most `level`."""
        shift, spread = self._fit(samples)
        scores = shift - spread * special.ndtri(level / self._tests)
        low, high = np.full(len(scores), 1e-3), np.full(len(scores), 1e6)
        for _ in range(60):
            middle = np.sqrt(low * high)
            above = [self._score(x, k) < scores[k] for k, x in enumerate(middle.tolist())]
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return high

    def _run_length(self, peak: float, weight: float) -> float:
        """Return the mean number of rows to a peak without drift."""
        beyond = special.fdtrc(self.size, self._residual, peak * self._ratio / self.size)
        decay = -np.log1p(-weight)
        limit = (np.sqrt(special.chdtri(self.size, beyond)) + OVERSHOOT * np.sqrt(2 * decay)) ** 2
        at, logs = _first_passage(self.size)
        return float(np.exp(np.interp(limit, at, logs)) / decay)

    @cached_property
    def _residual(self) -> float:
        return max(self._df - self.size + 1, 1.0)

    @cached_property
    def _ratio(self) -> float:
        return self._residual / max(self._df, 1.0)


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
