"""Statistics of hypothesis tests by their definitions, as `naive` has those of models."""

import naive
import numpy as np


def effective_moments(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None
) -> naive.Moments:
    """Moments whose weights sum to the effective number of rows in each class."""
    m = naive.moments(X, y, weights)
    w = np.ones(len(X)) if weights is None else weights
    count = np.array([naive.effective(w[y == label]) for label in m.classes])
    return naive.Moments(m.classes, count, m.means, m.scatter * (count / m.count)[:, None, None])


def box_m(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Box's M by its definition, with determinants."""
    m = effective_moments(X, y, weights)
    df = m.count - 1
    pooled = m.scatter.sum(axis=0) / df.sum()
    logs = [np.log(np.linalg.det(s / n)) for s, n in zip(m.scatter, df, strict=True)]
    return float(df.sum() * np.log(np.linalg.det(pooled)) - df @ logs)


def manova(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> list[float]:
    """Wilks's lambda, the traces of Pillai and of Hotelling and Lawley, Roy's root: matrices."""
    m = effective_moments(X, y, weights)
    gaps = m.means - m.count @ m.means / m.count.sum()
    W, B = m.scatter.sum(axis=0), (m.count * gaps.T) @ gaps
    wilks = np.linalg.det(W) / np.linalg.det(W + B)
    product = np.linalg.solve(W, B)
    pillai = np.trace(np.linalg.solve(W + B, B))
    return [wilks, pillai, np.trace(product), np.linalg.eigvals(product).real.max()]
