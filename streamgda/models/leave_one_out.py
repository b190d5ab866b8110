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
    n, N = summary.count, summary.count.sum()
    used = np.flatnonzero(summary.variances > 0)
    means, centre = summary.offsets[:, used], (n @ summary.offsets / N)[used]
    matrix, pooled = covariance_type in ("full", "tied"), covariance_type.startswith("tied")
    S = summary.scatter
    S = S if matrix or S.ndim == 2 else np.einsum("gii->gi", S)
    S = S.sum(axis=0, keepdims=True) if pooled else S
    S = S[np.ix_(np.arange(len(S)), *[used] * (1 + matrix))]
    a, averaged = float(how.shrinkage or 0), summary.variances.size
    if "spherical" in covariance_type:
        a, averaged = 1.0, used.size
    scores = np.full((len(X), n.size), -np.inf)

    def score(g: int, V: Any, values: np.ndarray, rows: np.ndarray) -> None:
        """Score rows by the classes of a scatter, which loses its share of those of its own."""
        x, k_own = X[rows][:, used] - summary.origin[used], codes[rows]
        own, alone = pooled | (k_own == g), n[k_own] == 1
        b = np.where(own & ~alone, n[k_own] / np.maximum(n[k_own] - 1, 1), 0.0)[:, None]
        divisor = n[g] - how.ddof - own
        if pooled:
            divisor = N - 1 - how.ddof * ((n > 0).sum() - alone)
        delta = x - means[k_own]
        z = delta if V is None else delta @ V
        lost = b * z**2
        trace = values.sum() - lost.sum(axis=1, keepdims=True)
        c = (1 - how.reg_param) * (1 - a) / divisor[:, None]
        t = (1 - how.reg_param) * a * trace / (divisor[:, None] * averaged) + how.reg_param
        if how.var_smoothing:
            left = N * summary.variances[used] - N / (N - 1) * (x - centre) ** 2
            t = t + how.var_smoothing * left.max(axis=1, keepdims=True) / (N - 1)
        D = c * (values - (0 if matrix else lost)) + t
        gamma = c * b * matrix
        h = 1 - (gamma * z**2 / D).sum(axis=1)
        bad = (h <= _LEAST) | ~(_LEAST * (c * values + t) < D).all(axis=1)
        if bad.any():
            row, label = int(rows[bad.argmax()]), summary.classes[codes[rows[bad.argmax()]]]
            raise SingularCovarianceError(
                f"without row {row}, the covariance of class {label!s} is singular, or nearly. "
                f"Regularise, or leave out that row"
            )
        logs = np.log(D).sum(axis=1) + np.log(h)
        for k in range(n.size) if pooled else (g,):
            u = np.where((k_own == k)[:, None], b * delta, x - means[k])
            u = u if V is None else u @ V
            squares = (u * u / D).sum(axis=1) + gamma[:, 0] * (u * z / D).sum(axis=1) ** 2 / h
            scores[rows, k] = -0.5 * (squares + logs)

    with np.errstate(divide="ignore", invalid="ignore"):
        for g in range(len(S)):
            values, V = np.linalg.eigh(S[g]) if matrix else (S[g], None)
            # A row is scored by at least one other row.
            scored = np.flatnonzero(pooled | (n[g] - (codes == g) > 0))
            for rows in np.split(scored, range(_BLOCK, scored.size, _BLOCK)):
                score(g, V, values, rows)
        if priors is None:
            left = np.broadcast_to(n, scores.shape).copy()
            left[np.arange(len(X)), codes] -= 1
            scores += np.log(left / (N - 1))
        else:
            scores += np.log(priors)
    gone = np.flatnonzero(n[codes] == 1)  # These classes have no other row.
    scores[gone, codes[gone]] = -np.inf
    return np.asarray(special.log_softmax(scores, axis=1))
