"""Leave-one-out: log-posteriors of rows of a fit by the model without each of them.

In the eigenvectors V of the scatter S of a class of n rows, the covariance without a row x of it is
:math:`V (D - g z z^T) V^T` with :math:`z = V^T (x - m)` and a diagonal D, whatever regularises.
The formula of Sherman and Morrison gives its inverse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from streamgda.errors import SingularCovarianceError
from streamgda.models.covariance import Regularisation, Summary

_LEAST = 1e-9  # Without a row, at least this share of a variance must be left.
_BLOCK = 4096  # So many rows are scored at a time.


def leave_one_out(
    summary: Summary,
    covariance_type: str,
    how: Regularisation,
    X: np.ndarray,
    codes: np.ndarray,
    priors: np.ndarray | None = None,
) -> np.ndarray:
    """Return the log-posteriors of rows of the fit, shape (n_rows, n_classes).

    Parameters
    ----------
    summary : Summary
        Of the moments of all rows, without weights.
    covariance_type : str
    how : Regularisation
        With a number for the shrinkage, and without pooling.
    X : ndarray of float64, shape (n_rows, n_features)
        Rows of the fit: all, or some.
    codes : ndarray of int, shape (n_rows,)
        Numbers of their classes.
    priors : ndarray, shape (n_classes,), optional
        Priors that do not change; by default the classes' shares of the other rows.

    Raises
    ------
    SingularCovarianceError
        If a covariance is singular without one of the rows, which is named.
    """
    n, N, K = summary.count, summary.count.sum(), summary.classes.size
    used = np.flatnonzero(summary.variances > 0)
    means, centre = summary.offsets[:, used], (n @ summary.offsets / N)[used]
    total = N * summary.variances[used]
    matrix, pooled = covariance_type in ("full", "tied"), covariance_type.startswith("tied")
    S = summary.scatter
    S = S if matrix or S.ndim == 2 else np.einsum("gii->gi", S)
    S = S.sum(axis=0, keepdims=True) if pooled else S
    S = S[np.ix_(np.arange(len(S)), *[used] * (1 + matrix))]
    one_variance = "spherical" in covariance_type
    a, averaged = (
        (1.0, used.size) if one_variance else (float(how.shrinkage or 0), summary.variances.size)
    )
    axes = [np.linalg.eigh(each) if matrix else (each, None) for each in S]
    scores = np.empty((len(X), K))

    def score(rows: np.ndarray, g: int, own: bool, columns: Any) -> None:
        """Score rows of which this scatter loses its share, or others, by the classes of it."""
        x, k_own = X[rows][:, used] - summary.origin[used], codes[rows]
        values, V = axes[g]
        alone = n[k_own] == 1
        b = np.where(alone | (not own), 0.0, n[k_own] / (n[k_own] - 1))[:, None]
        divisor = n[g] - how.ddof - own
        if pooled:
            divisor = (N - 1 - how.ddof * ((n > 0).sum() - alone))[:, None]
        delta = x - means[k_own] if own else np.zeros_like(x)
        z = delta if V is None else delta @ V
        lost = b * z**2
        trace = values.sum() - lost.sum(axis=1, keepdims=True)
        c = (1 - how.reg_param) * (1 - a) / divisor
        t = (1 - how.reg_param) * a * trace / (divisor * averaged) + how.reg_param
        if how.var_smoothing:
            left = (total - N / (N - 1) * (x - centre) ** 2) / (N - 1)
            t = t + how.var_smoothing * left.max(axis=1, keepdims=True)
        D = c * (values - (0 if matrix else lost)) + t
        h, gamma = np.ones(len(x)), c * b if own and matrix else None
        if gamma is not None:
            h = 1 - (gamma * z**2 / D).sum(axis=1)
        bad = (h <= _LEAST) | ~(_LEAST * (c * values + t) < D).all(axis=1)
        if bad.any():
            row, label = int(rows[bad.argmax()]), summary.classes[codes[rows[bad.argmax()]]]
            raise SingularCovarianceError(
                f"without row {row}, the covariance of class {label!s} is singular, or nearly. "
                f"Regularise, or leave out that row"
            )
        logs = np.log(D).sum(axis=1) + np.log(h)
        for k in columns:
            u = np.where((k_own == k)[:, None], b * delta, x - means[k]) if own else x - means[k]
            u = u if V is None else u @ V
            squares = (u * u / D).sum(axis=1)
            if gamma is not None:
                squares += gamma[:, 0] * (u * z / D).sum(axis=1) ** 2 / h
            scores[rows, k] = -0.5 * (squares + logs)

    with np.errstate(divide="ignore", invalid="ignore"):
        for start in range(0, len(X), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(X)))
            if pooled:
                score(rows, 0, True, range(K))
                continue
            for g in range(K):
                for own in (True, False):
                    some = rows[(codes[rows] == g) == own]
                    if some.size and n[g] > own:
                        score(some, g, own, (g,))
        if priors is None:
            left = np.broadcast_to(n, scores.shape).copy()
            left[np.arange(len(X)), codes] -= 1
            scores += np.log(left / (N - 1))
        else:
            scores += np.log(priors)
    scores[:, n == 0] = -np.inf
    gone = np.flatnonzero(n[codes] == 1)  # These classes have no other row.
    scores[gone, codes[gone]] = -np.inf
    return np.asarray(special.log_softmax(scores, axis=1))
