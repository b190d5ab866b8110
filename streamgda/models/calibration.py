r"""Temperatures of posteriors: the one that makes the classes of rows held out most likely.

Posteriors of temperature T are :math:`p_k \propto \exp(s_k / T)`, with the joint log-likelihoods
:math:`s_k = \ln p(x, y=k)`. The log-likelihood of the true classes t is a concave function of the
sharpness :math:`\beta = 1/T`:

.. math:: L(\beta) = \sum_i w_i \Big(\beta s_{it} - \ln \sum_k e^{\beta s_{ik}}\Big), \quad
          L' = \sum_i w_i (s_{it} - \bar s_i), \quad
          L^{(j)} = -\sum_i w_i \sum_k p_{ik} (s_{ik} - \bar s_i)^j

where :math:`\bar s_i = \sum_k p_{ik} s_{ik}` and j is 2 or 3. These are sums over rows: they are
added up at some values of the sharpness in a single pass, and L between two of them is the
polynomial of degree 7 with these values.

Source: C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger: On calibration of modern neural networks,
ICML 2017, section 4.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

N_SUMS = 4  # the log-likelihood and its derivatives
_STEPS = 2  # from one sharpness to its double
SHARPNESS = 2.0 ** (np.arange(-12 * _STEPS, 4 * _STEPS + 1) / _STEPS)  # of 4096 to 1/16
_IMPOSSIBLE = -1e100  # in place of minus infinity, whose product with zero is not a number


def likelihoods(scores: np.ndarray, truth: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the log-likelihood of rows, and its derivatives, at each sharpness.

    Rows whose true class is impossible are left out: no temperature makes it possible.

    Parameters
    ----------
    scores : ndarray, shape (n_classes, n_rows)
        Joint log-likelihoods, up to a term that all classes of a row share.
    truth : ndarray of int, shape (n_rows,)
        Numbers of their classes.
    weights : ndarray of float64, shape (n_rows,)

    Returns
    -------
    ndarray, shape (N_SUMS, n_sharpnesses)
        Log-likelihood, and its first three derivatives by the sharpness.
    """
    possible = np.flatnonzero(scores[truth, np.arange(truth.size)] > -np.inf)
    scores = np.maximum(scores[:, possible], _IMPOSSIBLE)
    scores -= scores.max(axis=0)
    own, weights = scores[truth[possible], np.arange(possible.size)], weights[possible]
    squares = scores * scores
    sums = np.empty((N_SUMS, SHARPNESS.size))
    for first in range(_STEPS):  # each ladder by squaring, for exponentials take longer
        powers = np.exp(SHARPNESS[first] * scores)
        for i in range(first, SHARPNESS.size, _STEPS):
            total = powers.sum(axis=0)
            mean = np.einsum("kn,kn->n", powers, scores) / total
            square = np.einsum("kn,kn->n", powers, squares) / total
            cube = np.einsum("kn,kn,kn->n", powers, squares, scores) / total
            sums[0, i] = weights @ (SHARPNESS[i] * own - np.log(total))
            sums[1, i] = weights @ (own - mean)
            sums[2, i] = weights @ (mean**2 - square)
            sums[3, i] = weights @ ((3 * square - 2 * mean**2) * mean - cube)
            powers *= powers
    return sums


def best_temperature(sums: np.ndarray) -> float:
    """Return the temperature of the largest log-likelihood, between those of `SHARPNESS`.

    Parameters
    ----------
    sums : ndarray, shape (N_SUMS, n_sharpnesses)
        Sums of `likelihoods`.

    Returns
    -------
    float
        The temperature; the lowest if every row is classified correctly.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[0.0, 0.0, 0.0], [-4.0, -4.0, -4.0]])
    >>> round(best_temperature(likelihoods(scores, np.array([0, 0, 1]), np.ones(3))), 3)
    5.771
    """
    from scipy.optimize import brentq  # noqa: PLC0415  (slow to import)

    after = int(np.searchsorted(-sums[1], 0.0))  # the first beyond the maximum
    if after in (0, SHARPNESS.size):
        return float(1 / SHARPNESS[min(after, SHARPNESS.size - 1)])
    slope = _polynomial(sums, after).derivative()
    return float(1 / brentq(slope, *SHARPNESS[after - 1 : after + 1]))


def likelihood_at(sums: np.ndarray, temperature: float) -> float:
    """Return the log-likelihood at a temperature among those of `SHARPNESS`, interpolated."""
    after = int(np.clip(np.searchsorted(SHARPNESS, 1 / temperature), 1, SHARPNESS.size - 1))
    return float(_polynomial(sums, after)(1 / temperature))


def _polynomial(sums: np.ndarray, after: int) -> Any:
    """Return the log-likelihood between one sharpness and the next, whose number is `after`."""
    from scipy.interpolate import BPoly  # noqa: PLC0415  (slow to import)

    between = slice(after - 1, after + 1)
    return BPoly.from_derivatives(SHARPNESS[between], sums[:, between].T)
