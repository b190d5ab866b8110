"""Endless streams of rows from known Gaussians."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from streamgda.runtime.parameters import LEAST, as_integer, as_number, as_numbers, unexpected

_BLOCK_VALUES = 1 << 16  # A block of half a MiB of float64 fits in the cache of a core.
_N_FACTORS = 4


class GaussianStream:
    """Stream of labelled rows, drawn from one known Gaussian per class.

    Row i depends only on the parameters and on i, not on the batches, the machine or the number
    of threads. Rows are generated in fixed blocks, each with a separate Philox generator, and
    without matrix products, whose rounding depends on the BLAS. Another version of NumPy may draw
    other numbers (NEP 19).

    Parameters
    ----------
    n_features : int
        Number of features d, at least 1.
    n_classes : int
        Number of classes K, at least 1; the labels are 0, ..., K - 1.
    seed : int, default=0
        Random seed, not negative.
    dtype : dtype, default="float64"
        Type of the rows: a floating type, or an integer type of at most 32 bits, to which values
        are rounded and clipped.
    separation : float, default=3.0
        Root mean square distance between two class means, in standard deviations of a feature.
    priors : array-like of shape (K,), default=None
        Class probabilities; equal if None.
    loc : float, default=None
        Centre of the class means; if None, 0, or the middle of an integer type's range. The
        standard deviation of a feature is 1, or 16 for an integer type.
    period : float, default=None
        Number of rows in which the class means complete one rotation: after a quarter of them,
        each mean is where the next one was at row 0; after half of them, on the other side of
        `loc`. If None, the means do not move.

    Attributes
    ----------
    n_features, n_classes, seed, dtype, period
        The parameters.
    priors : ndarray of shape (K,), float64
        Class probabilities.
    means : ndarray of shape (K, d), float64
        Class means at row 0, before values are rounded and clipped to an integer type.
    covariances : ndarray of shape (K, d, d), float64
        Class covariances, before values are rounded and clipped: a diagonal plus at most four
        factors, positive definite, without zeros. Computed on first access.

    Raises
    ------
    InvalidParameterError
        If a parameter is out of range.

    Examples
    --------
    >>> stream = GaussianStream(3, 2, seed=1, dtype="uint8")
    >>> X, y = stream.rows(1000, 1004)
    >>> X.shape, X.dtype, y.dtype
    ((4, 3), dtype('uint8'), dtype('int64'))
    >>> sum(len(X) for X, y in stream.batches(1_000, batch_rows=300))
    1000
    >>> stream.covariances.shape
    (2, 3, 3)
    """

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        seed: int = 0,
        dtype: Any = "float64",
        separation: float = 3.0,
        priors: Any = None,
        loc: float | None = None,
        period: float | None = None,
    ) -> None:
        self.n_features = d = as_integer("n_features", n_features, "an integer >= 1", 1)
        self.n_classes = k = as_integer("n_classes", n_classes, "an integer >= 1", 1)
        self.seed = as_integer("seed", seed, "an integer >= 0", 0, (1 << 128) - 1)
        self.dtype = np.dtype(dtype)
        if self.dtype.kind not in "iuf" or (self.dtype.kind != "f" and self.dtype.itemsize > 4):
            raise unexpected(
                "dtype", dtype, "a floating type, or an integer type of at most 32 bits"
            )
        self._limits = None if self.dtype.kind == "f" else np.iinfo(self.dtype)
        middle = (self._limits.min + self._limits.max + 1) / 2 if self._limits else 0.0
        self._loc = middle if loc is None else as_number("loc", loc, "a finite number")
        separation = as_number("separation", separation, "a number >= 0", 0)
        if period is not None:
            period = as_number("period", period, "a number of rows above 0, or None", LEAST)
        self.period = period
        expected = f"{k} non-negative numbers with sum 1"
        self.priors = as_numbers(
            "priors", np.full(k, 1 / k) if priors is None else priors, expected
        )
        good = self.priors.shape == (k,) and (self.priors >= 0).all()
        if not good or not np.isclose(self.priors.sum(), 1):
            raise unexpected("priors", priors, expected)
        self._thresholds = np.cumsum(self.priors) / self.priors.sum()
        self._block_rows = max(1, _BLOCK_VALUES // d)
        rng, scale = self._generator(0), 16.0 if self._limits else 1.0
        self.means = self._loc + scale * separation / np.sqrt(2 * d) * rng.standard_normal((k, d))
        # Half of each feature's variance is independent, half comes from shared factors.
        factors = min(_N_FACTORS, d)
        self._deviations = scale * np.sqrt(rng.uniform(0.25, 0.75, (k, d)))
        self._loadings = scale * np.sqrt(0.5 / factors) * rng.standard_normal((factors, k, d))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.n_features}, {self.n_classes}, seed={self.seed}, "
            f"dtype={self.dtype.name!r})"
        )

    @functools.cached_property
    def covariances(self) -> np.ndarray:
        """Class covariances, shape (K, d, d), float64."""
        factors = np.moveaxis(self._loadings, 0, -1)
        covariances = factors @ np.swapaxes(factors, 1, 2)
        index = np.arange(self.n_features)
        covariances[:, index, index] += self._deviations**2
        return covariances

    def rows(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows from `start` up to, but not including, `stop`.

        Parameters
        ----------
        start, stop : int
            Row numbers, with ``0 <= start <= stop``.

        Returns
        -------
        X : ndarray of shape (stop - start, d), of type `dtype`
            Rows.
        y : ndarray of shape (stop - start,), int64
            Labels.

        Raises
        ------
        InvalidParameterError
            If start or stop is out of range.

        Examples
        --------
        >>> from streamgda.datasets import GaussianStream
        >>> stream = GaussianStream(n_features=2, n_classes=3)
        >>> X, y = stream.rows(1_000_000, 1_000_002)
        >>> X.shape, y
        ((2, 2), array([0, 0]))
        """
        start = as_integer("start", start, "an integer >= 0", 0)
        stop = as_integer("stop", stop, f"an integer >= start={start}", start)
        size = self._block_rows
        blocks = [self._block(index) for index in range(start // size, max(1, -(-stop // size)))]
        skipped = slice(start % size, start % size + stop - start)
        X, y = (np.concatenate(parts)[skipped] for parts in zip(*blocks, strict=True))
        return X, y

    def batches(
        self, n_rows: int, batch_rows: int = 10_000
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Return an iterator over the first `n_rows` rows in batches.

        Parameters
        ----------
        n_rows : int
            Total number of rows.
        batch_rows : int, default=10_000
            Rows per batch; the last batch may have fewer.

        Returns
        -------
        iterator of (X, y)
            Rows and labels of each batch, as returned by `rows`.

        Raises
        ------
        InvalidParameterError
            If n_rows is negative or batch_rows is less than 1.

        Examples
        --------
        >>> from streamgda.datasets import GaussianStream
        >>> stream = GaussianStream(n_features=2, n_classes=3)
        >>> [len(y) for X, y in stream.batches(25, batch_rows=10)]
        [10, 10, 5]
        """
        n_rows = as_integer("n_rows", n_rows, "an integer >= 0", 0)
        batch_rows = as_integer("batch_rows", batch_rows, "an integer >= 1", 1)
        starts = range(0, n_rows, batch_rows)
        return (self.rows(start, min(start + batch_rows, n_rows)) for start in starts)

    @functools.lru_cache(maxsize=2)  # noqa: B019  (consecutive batches share a block)
    def _block(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self._generator(1, index)
        y = np.searchsorted(self._thresholds, rng.random(self._block_rows), side="right")
        X = rng.standard_normal((self._block_rows, self.n_features))
        X *= self._deviations[y]
        for loadings in self._loadings:
            X += rng.standard_normal((self._block_rows, 1)) * loadings[y]
        X += self.means[y] if self.period is None else self._moved_means(index, y, self.period)
        if self._limits is not None:
            X = np.clip(np.rint(X), self._limits.min, self._limits.max)
        return X.astype(self.dtype), y

    def _moved_means(self, index: int, y: np.ndarray, period: float) -> np.ndarray:
        rows = index * self._block_rows + np.arange(self._block_rows)
        angle = (2 * np.pi * rows / period)[:, None]
        gaps = self.means - self._loc
        return self._loc + np.cos(angle) * gaps[y] + np.sin(angle) * np.roll(gaps, -1, axis=0)[y]

    def _generator(self, *key: int) -> np.random.Generator:
        return np.random.Generator(
            np.random.Philox(np.random.SeedSequence(self.seed, spawn_key=key))
        )
