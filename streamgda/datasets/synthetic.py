"""Endless streams of rows from known Gaussians."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from streamgda.errors import InvalidParameterError
from streamgda.runtime.parameters import LEAST, as_integer, as_number, as_numbers, refuse

_BLOCK_VALUES = 1 << 16  # half a MiB of float64: a block fits in the cache of a core
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
        Type of the rows: a floating type, or an integer type to which values are rounded and
        clipped.
    separation : float, default=3.0
        Root mean square distance between two class means, in units of `scale`.
    priors : array-like of shape (K,), default=None
        Class probabilities; equal if None.
    tied : bool, default=False
        Give all classes the same covariance.
    loc : float, default=None
        Centre of the class means; if None, 0, or the middle of an integer type's range.
    scale : float, default=None
        Root mean square standard deviation of a feature within a class, on average over the
        draws; if None, 1, or 16 for an integer type.
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
        tied: bool = False,
        loc: float | None = None,
        scale: float | None = None,
        period: float | None = None,
    ) -> None:
        self.n_features = as_integer("n_features", n_features, "an integer >= 1", 1)
        self.n_classes = as_integer("n_classes", n_classes, "an integer >= 1", 1)
        self.seed = as_integer("seed", seed, "an integer >= 0", 0, (1 << 128) - 1)
        self.dtype = _numeric(dtype)
        middle, unit = (0.0, 1.0) if self.dtype.kind == "f" else (_middle(self.dtype), 16.0)
        loc = middle if loc is None else as_number("loc", loc, "a finite number")
        scale = unit if scale is None else as_number("scale", scale, "a number above 0", LEAST)
        separation = as_number("separation", separation, "a number >= 0", 0)
        if period is not None:
            period = as_number("period", period, "a number of rows above 0, or None", LEAST)
        self.period = period
        self.priors = _priors(priors, self.n_classes)
        self._thresholds = np.cumsum(self.priors)
        self._thresholds /= self._thresholds[-1]
        self._block_rows = max(1, _BLOCK_VALUES // self.n_features)

        shape = (self.n_classes, self.n_features)
        own = (1 if tied else self.n_classes, self.n_features)
        rng = self._generator(0)
        spread = scale * separation / np.sqrt(2 * self.n_features)
        self._loc = loc
        self.means = loc + spread * rng.standard_normal(shape)
        # Half of each feature's variance is independent, half comes from shared factors.
        factors = min(_N_FACTORS, self.n_features)
        deviations = scale * np.sqrt(rng.uniform(0.25, 0.75, own))
        loadings = scale * np.sqrt(0.5 / factors) * rng.standard_normal((factors, *own))
        self._deviations = np.broadcast_to(deviations, shape)
        self._loadings = np.broadcast_to(loadings, (factors, *shape))

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
        return self._rows(
            start, as_integer("stop", stop, f"an integer >= start={start}", start), self._block
        )

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
        block = functools.lru_cache(maxsize=1)(
            self._block
        )  # consecutive batches often share a block
        return (
            self._rows(start, min(start + batch_rows, n_rows), block)
            for start in range(0, n_rows, batch_rows)
        )

    def _rows(
        self, start: int, stop: int, block: Callable[[int], tuple[np.ndarray, np.ndarray]]
    ) -> tuple[np.ndarray, np.ndarray]:
        X = np.empty((stop - start, self.n_features), self.dtype)
        y = np.empty(stop - start, np.int64)
        size = self._block_rows
        for index in range(start // size, -(-stop // size)):
            first, last = max(start, index * size), min(stop, (index + 1) * size)
            for out, values in zip((X, y), block(index), strict=True):
                out[first - start : last - start] = values[first - index * size :][: last - first]
        return X, y

    def _block(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = self._generator(1, index)
        y = np.searchsorted(self._thresholds, rng.random(self._block_rows), side="right")
        X = rng.standard_normal((self._block_rows, self.n_features))
        X *= self._deviations[y]
        for loadings in self._loadings:
            X += rng.standard_normal((self._block_rows, 1)) * loadings[y]
        X += self.means[y] if self.period is None else self._moved_means(index, y, self.period)
        if self.dtype.kind != "f":
            X = np.clip(np.rint(X), *_bounds(self.dtype))
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


def _numeric(dtype: Any) -> np.dtype:
    with contextlib.suppress(TypeError):
        found = np.dtype(dtype)
        if found.kind in "iuf":
            return found
    raise refuse("dtype", dtype, "a floating or integer type")


def _middle(dtype: np.dtype) -> float:
    info = np.iinfo(dtype)
    return (int(info.min) + int(info.max) + 1) / 2


def _bounds(dtype: np.dtype) -> tuple[float, float]:
    """Return the least and the greatest float64 values that the integer type can hold."""
    info = np.iinfo(dtype)
    high = float(info.max)
    return float(info.min), high if int(high) <= info.max else float(np.nextafter(high, 0))


def _priors(priors: Any, n_classes: int) -> np.ndarray:
    if priors is None:
        return np.full(n_classes, 1 / n_classes)
    priors = as_numbers("priors", priors, f"{n_classes} non-negative numbers with sum 1")
    if priors.shape != (n_classes,) or not (priors >= 0).all() or not np.isclose(priors.sum(), 1):
        raise InvalidParameterError(
            f"priors must be {n_classes} non-negative numbers with sum 1, not {priors.tolist()}"
        )
    return priors
