"""Distributions of the squared Mahalanobis distances of fresh rows to estimated Gaussians."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline

from streamgda.moments.covariance_types import Structure

_LEAST = 1e-10  # probability down to which sums are computed; below, their tail is a power


class Tail(ABC):
    """A distribution of squared distances."""

    @abstractmethod
    def beyond(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of larger distances."""

    def limit(self, p: float) -> float:
        """Return the distance that a share p of the rows exceeds."""
        low, high = -700.0, 700.0
        while high - low > 1e-13 * max(1.0, abs(low)):
            middle = (low + high) / 2
            above = self.beyond(np.exp(np.array(middle))) > p
            low, high = (middle, high) if above else (low, middle)
        return float(np.exp(low))


@dataclass(frozen=True)
class ChiSquare(Tail):
    """Distances to a Gaussian that is known."""

    d: int

    def beyond(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of larger distances."""
        return np.asarray(special.chdtrc(self.d, x))


@dataclass(frozen=True)
class ScaledF(Tail):
    """A multiple of an F distribution."""

    scale: float
    d1: float
    d2: float

    def beyond(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of larger distances."""
        return np.asarray(special.fdtrc(self.d1, self.d2, x / self.scale))


class SumOfF(Tail):
    r"""The sum of d independent variables with the distribution F(1, nu).

    It has no closed form. With the Laplace transform L of its density, the probability of more than
    x is

    .. math:: \frac{1}{2 \pi i} \int_C e^{s x} \frac{1 - L(s)}{s} ds

    along two rays from zero to the left of the imaginary axis, where the integrand falls off fast.
    In the logarithm of s the trapezoidal rule converges exponentially. The error is about 1e-12,
    and that of interpolation 1e-5; for 100,000 variables of few degrees of freedom, 5e-4.

    Parameters
    ----------
    d : int
        Number of variables.
    nu : float
        Degrees of freedom, at least one.

    Examples
    --------
    >>> import numpy as np
    >>> SumOfF(3, 1e9).beyond(np.array([7.815])).round(4)  # nearly chi-square
    array([0.05])
    """

    def __init__(self, d: int, nu: float) -> None:
        # L is a mean over the chi-square variable of each denominator, by the trapezoidal rule too.
        spread = 8 * np.sqrt(2 / nu)
        v = np.linspace(-80 / nu - spread, np.log1p(spread + 70 / nu), 160)
        weights = np.exp(nu / 2 * (v - np.expm1(v)))
        least = float(special.chdtri(d, 1 - 1e-6))
        most = d * ScaledF(1.0, 1.0, nu).limit(1e-12 / d)
        # The nearer the rays are to the imaginary axis, the less cancels if d is large.
        slope = np.pi / 6 / max(1, d / 100) ** 0.25
        step = min(slope / 4.4, 0.8 / d**0.5)
        # Beyond, e^(s x) is nothing; of many variables, L^d falls off later.
        furthest = max(40 / (least * np.sin(slope)), (80 / d) ** 0.5)
        r = np.exp(np.arange(np.log(1e-17 / most), np.log(furthest), step))
        s = r * np.exp(1j * (np.pi / 2 + slope))
        transform = (1 / np.sqrt(1 + 2 * s[:, None] * np.exp(-v))) @ (weights / weights.sum())
        x, rest = np.linspace(np.log(least), np.log(most), 200), 1 - transform**d
        for _ in range(2):  # the second time, of the range that matters
            p = step / np.pi * (np.exp(np.outer(np.exp(x), s)) @ rest).imag
            last = int(np.argmin(np.append(p[:-1], 0) > _LEAST))
            self._x, logs = x[:last], np.log(p[:last])
            # A quarter of the points is for the short range of most sums of many variables.
            along = 3 * np.arange(last + 1) / last - p[: last + 1]
            x = np.interp(np.linspace(along[0], along[-1], x.size), along, x[: last + 1])
        self._spline = CubicSpline(self._x, logs)

    def beyond(self, x: np.ndarray) -> np.ndarray:
        """Return the probabilities of larger distances."""
        with np.errstate(divide="ignore"):
            at = np.log(x)
        inside = np.clip(at, self._x[0], self._x[-1])
        steepest = self._spline(self._x[-1], 1)
        return np.exp(np.minimum(self._spline(inside), 0) + steepest * np.maximum(at - inside, 0))


def tail_of(structure: Structure, d: int, nu: float) -> Tail | None:
    """Return the distribution of the distances of fresh rows, in units of an unbiased covariance.

    Parameters
    ----------
    structure : Structure
        Structure of the covariance.
    d : int
        Number of directions.
    nu : float
        Degrees of freedom of the covariance; infinite for one that is known.

    Returns
    -------
    Tail or None
        None with too few degrees of freedom.

    Examples
    --------
    >>> from streamgda.moments.covariance_types import structure_of
    >>> tail_of(structure_of("full"), 30, 99.0)  # Hotelling's T squared
    ScaledF(scale=42.42857142857143, d1=30, d2=70.0)
    >>> tail_of(structure_of("full"), 30, 20.0)
    """
    if np.isinf(nu):
        return ChiSquare(d)
    if nu < (d if structure.matrix else 1):
        return None
    if structure.one_variance:
        return ScaledF(d, d, nu * d)
    if structure.matrix or d == 1:
        return ScaledF(d * nu / (nu - d + 1), d, nu - d + 1)
    return _sum_of_f(d, float(f"{nu:.6g}"))  # those of classes of equal size differ by smoothing


@lru_cache(4096)
def _sum_of_f(d: int, nu: float) -> SumOfF:
    return SumOfF(d, nu)
