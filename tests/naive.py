"""An independent oracle: the textbook formulas, in plain numpy and in exact fractions.

Nothing here imports streamgda, is fast, or works in one pass. The covariance types and the shapes
that belong to them are those of the public contract.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import linalg

COVARIANCE_TYPES = ("full", "tied", "diag", "tied_diag", "spherical", "tied_spherical")


def is_tied(covariance_type: str) -> bool:
    return covariance_type.startswith("tied")


def is_matrix(covariance_type: str) -> bool:
    return covariance_type in ("full", "tied")


# --- moments ----------------------------------------------------------------------------------


@dataclass
class Moments:
    """Per class: rows or their weight (K,), means (K, d), scatter about the mean (K, d, d)."""

    classes: np.ndarray
    count: np.ndarray
    means: np.ndarray
    scatter: np.ndarray


def moments(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Moments:
    """Two passes over float64 rows, class by class."""
    X, y = np.asarray(X, np.float64), np.asarray(y)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    classes = np.unique(y[w > 0])
    count, means, scatter = [], [], []
    for label in classes:
        rows, weight = X[y == label], w[y == label]
        mean = rows[0] + (weight[:, None] * (rows - rows[0])).sum(axis=0) / weight.sum()
        centred = rows - mean
        count.append(weight.sum())
        means.append(mean)
        scatter.append((weight[:, None] * centred).T @ centred)
    return Moments(classes, np.array(count), np.array(means), np.array(scatter))


def covariance(
    X: np.ndarray,
    y: np.ndarray,
    covariance_type: str = "full",
    weights: np.ndarray | None = None,
    ddof: float = 0,
) -> np.ndarray:
    """The covariances of that type, in the shape that the contract gives."""
    m = moments(X, y, weights)
    n, scatter = m.count - ddof, m.scatter
    if is_tied(covariance_type):
        scatter, n = scatter.sum(axis=0, keepdims=True), n.sum(keepdims=True)
    n = np.where(n > 0, n, np.nan)
    S = scatter / n[:, None, None]
    if not is_matrix(covariance_type):
        S = np.array([np.diag(s) for s in S])
    if covariance_type.endswith("spherical"):
        S = S.mean(axis=1)
    return S[0] if is_tied(covariance_type) else S


def principal_components(X: np.ndarray, k: int) -> tuple[np.ndarray, ...]:
    """Axes, variances, coordinates and squared distances from the subspace, of centred rows."""
    centred = X - X[0]
    centred = centred - centred.mean(axis=0)
    _, singular, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:k] * np.sign([axis[np.abs(axis).argmax()] for axis in axes[:k]])[:, None]
    coordinates = centred @ axes.T
    residual = ((centred - coordinates @ axes) ** 2).sum(axis=1)
    return axes, singular[:k] ** 2 / (len(X) - 1), coordinates, residual


def grouped(groups: np.ndarray, weights: np.ndarray | None = None) -> dict[object, np.ndarray]:
    """Which rows each group has, by its label; groups without weight are none."""
    seen = groups if weights is None else groups[weights > 0]
    return {group: groups == group for group in np.unique(seen).tolist()}


def group_counts(
    y: np.ndarray, groups: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """The weight of each class in each group, counted row by row."""
    w = np.ones(len(y)) if weights is None else weights
    classes = np.unique(y[w > 0]).tolist()
    counts = {group: dict.fromkeys(classes, 0.0) for group in grouped(groups, weights)}
    for label, group, weight in zip(y.tolist(), groups.tolist(), w.tolist(), strict=True):
        if weight > 0:
            counts[group][label] += weight
    return np.array([[*own.values()] for own in counts.values()])


# --- moments without rounding -----------------------------------------------------------------


@dataclass
class ExactMoments:
    """`Moments` in fractions: lists over classes."""

    classes: list
    count: list[Fraction]
    means: list[list[Fraction]]
    scatter: list[list[list[Fraction]]]


def exact_moments(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> ExactMoments:
    """Return the exact moments of integers or floats, which are fractions too."""
    rows = [[Fraction(value) for value in row] for row in np.asarray(X).tolist()]
    labels = np.asarray(y).tolist()
    w = [Fraction(1)] * len(rows) if weights is None else [Fraction(v) for v in weights.tolist()]
    d = len(rows[0])
    out = ExactMoments([], [], [], [])
    for label in sorted({k for k, v in zip(labels, w, strict=True) if v}):
        mine = [(r, v) for r, k, v in zip(rows, labels, w, strict=True) if k == label]
        n = sum((v for _, v in mine), Fraction(0))
        total = [sum((v * r[j] for r, v in mine), Fraction(0)) for j in range(d)]
        scatter = [[Fraction(0)] * d for _ in range(d)]
        for i in range(d):
            for j in range(i + 1):
                products = sum((v * r[i] * r[j] for r, v in mine), Fraction(0))
                scatter[i][j] = scatter[j][i] = products - total[i] * total[j] / n
        out.classes.append(label)
        out.count.append(n)
        out.means.append([t / n for t in total])
        out.scatter.append(scatter)
    return out


def rounded(exact: object) -> np.ndarray:
    """Fractions, each rounded once to the nearest float64 (Python's division does that)."""
    array = np.array(exact, object)
    return np.array([float(v) for v in array.ravel()], np.float64).reshape(array.shape)


def ulps(value: np.ndarray, exact: object) -> float:
    """The largest distance of float64 values from fractions, in units of the last place."""
    distance = 0.0
    for v, e in zip(np.ravel(value).tolist(), np.ravel(np.array(exact, object)), strict=True):
        distance = max(distance, float(abs(Fraction(v) - e) / Fraction(float(np.spacing(abs(v))))))
    return distance


# --- regularisation ---------------------------------------------------------------------------


def regularised_covariances(
    X: np.ndarray,
    y: np.ndarray,
    covariance_type: str = "full",
    *,
    weights: np.ndarray | None = None,
    ddof: float = 0,
    pooling: float = 0.0,
    shrinkage: float = 0.0,
    reg_param: float = 0.0,
    var_smoothing: float = 0.0,
) -> np.ndarray:
    """One matrix per class whatever the type, (K, d, d), regularised in the order of arguments.

    pooling: ``((1-l) S_k + l S_w) / ((1-l) n_k + l n)`` on scatters (nothing to do where tied);
    shrinkage: ``(1-a) S + a tr(S)/d I``; reg_param: ``(1-r) S + r I``; var_smoothing: that
    fraction of the largest variance of a feature over all rows is added to every variance.
    """
    m = moments(X, y, weights)
    n = m.count - ddof
    within, n_all = m.scatter.sum(axis=0), n.sum()
    out = []
    for k in range(len(m.classes)):
        if is_tied(covariance_type):
            S = within / n_all
        else:
            S = (1 - pooling) * m.scatter[k] + pooling * within
            S = S / ((1 - pooling) * n[k] + pooling * n_all)
        d = len(S)
        if not is_matrix(covariance_type):
            S = np.diag(np.diag(S))
        if covariance_type.endswith("spherical"):
            S = np.trace(S) / d * np.eye(d)
        S = (1 - shrinkage) * S + shrinkage * np.trace(S) / d * np.eye(d)
        S = (1 - reg_param) * S + reg_param * np.eye(d)
        out.append(S + var_smoothing * largest_variance(X, weights) * np.eye(d))
    return np.array(out)


def effective(weights: np.ndarray) -> float:
    """Return Kish's effective number of weighted rows."""
    return float(weights.sum() ** 2 / (weights**2).sum())


def oas(rows: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Return the oracle approximating shrinkage of rows with mean zero, less its terms in 2 / d."""
    w = np.ones(len(rows)) if weights is None else weights
    n, d = w.sum(), rows.shape[1]
    S = (w[:, None] * rows).T @ rows / n
    square, squares = np.trace(S) ** 2, np.trace(S @ S)
    return min((squares + square) / ((effective(w) + 1) * (squares - square / d)), 1.0)


def largest_variance(X: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The largest variance of a feature over all rows of all classes."""
    return float(np.diag(moments(X, np.zeros(len(X), int), weights).scatter[0]).max()) / (
        len(X) if weights is None else float(np.sum(weights))
    )


# --- densities --------------------------------------------------------------------------------


def squared_mahalanobis(X: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """``(x - m_k)' S_k^-1 (x - m_k)``, shape (n_rows, K)."""
    X = np.asarray(X, np.float64)
    out = np.empty((len(X), len(means)))
    for k in range(len(means)):
        for r in range(len(X)):
            z = X[r] - means[k]
            out[r, k] = z @ np.linalg.solve(covariances[k], z)
    return out


def joint_log_likelihood(
    X: np.ndarray, means: np.ndarray, covariances: np.ndarray, priors: np.ndarray
) -> np.ndarray:
    """``ln pi_k + ln N(x; m_k, S_k)``, shape (n_rows, K)."""
    d = means.shape[1]
    determinants = np.array([np.linalg.slogdet(S)[1] for S in covariances])
    squares = squared_mahalanobis(X, means, covariances)
    return np.log(priors) - 0.5 * (d * np.log(2 * np.pi) + determinants + squares)


def log_density(joint: np.ndarray) -> np.ndarray:
    """``ln p(x)`` by log-sum-exp, shape (n_rows,)."""
    top = joint.max(axis=1)
    return top + np.log(np.exp(joint - top[:, None]).sum(axis=1))


def log_posterior(joint: np.ndarray) -> np.ndarray:
    """``ln p(k | x)``, shape (n_rows, K)."""
    return joint - log_density(joint)[:, None]


def posterior(joint: np.ndarray) -> np.ndarray:
    """``p(k | x)``, shape (n_rows, K)."""
    return np.exp(log_posterior(joint))


def gaussian_classifier(
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    covariance_type: str = "full",
    *,
    priors: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    **regularisation: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Fit to (X, y), and score `rows`: labels, and the joint log-likelihood (n_rows, K)."""
    m = moments(X, y, weights)
    priors = m.count / m.count.sum() if priors is None else np.asarray(priors)
    S = regularised_covariances(X, y, covariance_type, weights=weights, **regularisation)
    joint = joint_log_likelihood(rows, m.means, S, priors)
    return m.classes[joint.argmax(axis=1)], joint


def class_mixtures(
    X: np.ndarray,
    y: np.ndarray,
    parts: np.ndarray,
    rows: np.ndarray,
    covariance_type: str = "full",
    **regularisation: float,
) -> list[np.ndarray]:
    """Joint log-likelihoods of rows and the components of each class, class by class.

    Each row of X counts for one component of its class; pooling is among those of a class.
    """
    out, cells = [], np.unique(np.stack([y, parts]), axis=1, return_inverse=True)[1].ravel()
    for label in np.unique(y):
        own = y == label
        m = moments(X[own], parts[own])
        if is_tied(covariance_type):
            S = regularised_covariances(X, cells, covariance_type, **regularisation)
            S = S[np.unique(cells[own])]
        else:
            S = regularised_covariances(X[own], parts[own], covariance_type, **regularisation)
        out.append(joint_log_likelihood(rows, m.means, S, m.count / len(y)))
    return out


# --- separability -----------------------------------------------------------------------------


def separability(means: np.ndarray, covariances: np.ndarray, method: str) -> np.ndarray:
    """The formulas of Richards, and of Swain and Davis, with inverses, shape (K, K)."""
    formula = {
        "bhattacharyya": bhattacharyya,
        "jeffries_matusita": lambda *pair: 2 * (1 - math.exp(-bhattacharyya(*pair))),
        "matusita": lambda *pair: math.sqrt(2 * (1 - math.exp(-bhattacharyya(*pair)))),
        "divergence": divergence,
        "transformed_divergence": lambda *pair: 2 * (1 - math.exp(-divergence(*pair) / 8)),
        "kullback_leibler": kullback_leibler,
        "mahalanobis": lambda m, S, n, T: (m - n) @ np.linalg.inv((S + T) / 2) @ (m - n),
    }[method]
    classes = list(zip(means, covariances, strict=True))
    return np.array([[formula(*p, *q) if p is not q else 0.0 for q in classes] for p in classes])


def bhattacharyya(m: np.ndarray, S: np.ndarray, n: np.ndarray, T: np.ndarray) -> float:
    """``(m-n)' ((S+T)/2)^-1 (m-n) / 8 + ln(|(S+T)/2| / sqrt(|S| |T|)) / 2``."""
    M = (S + T) / 2
    logs = [np.linalg.slogdet(matrix)[1] for matrix in (M, S, T)]
    return float((m - n) @ np.linalg.inv(M) @ (m - n) / 8 + (logs[0] - sum(logs[1:]) / 2) / 2)


def divergence(m: np.ndarray, S: np.ndarray, n: np.ndarray, T: np.ndarray) -> float:
    """``tr (S - T)(T^-1 - S^-1) / 2 + tr (S^-1 + T^-1)(m - n)(m - n)' / 2``."""
    P, Q, outer = np.linalg.inv(S), np.linalg.inv(T), np.outer(m - n, m - n)
    return float(np.trace((S - T) @ (Q - P)) + np.trace((P + Q) @ outer)) / 2


def frechet(m: np.ndarray, S: np.ndarray, n: np.ndarray, T: np.ndarray) -> float:
    """``|m-n|^2 + tr(S + T - 2 (S T)^1/2)``."""
    return float((m - n) @ (m - n) + np.trace(S + T - 2 * np.real(linalg.sqrtm(S @ T))))


def kullback_leibler(m: np.ndarray, S: np.ndarray, n: np.ndarray, T: np.ndarray) -> float:
    """The mean of ``ln p(x) - ln q(x)`` over rows of p, N(m, S), where q is N(n, T)."""
    Q = np.linalg.inv(T)
    logs = np.linalg.slogdet(T)[1] - np.linalg.slogdet(S)[1]
    return float(np.trace(Q @ S) - len(m) + (m - n) @ Q @ (m - n) + logs) / 2


# --- hypothesis tests -----------------------------------------------------------------------


def effective_moments(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Moments:
    """Moments whose weights sum to the effective number of rows in each class."""
    m = moments(X, y, weights)
    w = np.ones(len(X)) if weights is None else weights
    count = np.array([effective(w[y == label]) for label in m.classes])
    return Moments(m.classes, count, m.means, m.scatter * (count / m.count)[:, None, None])


def box_m(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Box's M by its definition, with determinants."""
    m = effective_moments(X, y, weights)
    df = m.count - 1
    pooled = m.scatter.sum(axis=0) / df.sum()
    logs = [np.log(np.linalg.det(s / n)) for s, n in zip(m.scatter, df, strict=True)]
    return float(df.sum() * np.log(np.linalg.det(pooled)) - df @ logs)


def manova(X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> list[float]:
    """Wilks's lambda and Pillai's trace, of matrices."""
    m = effective_moments(X, y, weights)
    gaps = m.means - m.count @ m.means / m.count.sum()
    W, B = m.scatter.sum(axis=0), (m.count * gaps.T) @ gaps
    wilks = np.linalg.det(W) / np.linalg.det(W + B)
    return [wilks, np.trace(np.linalg.solve(W + B, B))]


# --- zeros and ones ---------------------------------------------------------------------------


def bernoulli_joint(
    X: np.ndarray,
    y: np.ndarray,
    rows: np.ndarray,
    *,
    alpha: float = 1.0,
    priors: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Fit to zeros and ones (X, y), and score `rows`: ``ln p(x, y=k)``, shape (n_rows, K)."""
    w = np.ones(len(y)) if weights is None else weights
    classes = np.unique(y[w > 0])
    out = np.empty((len(rows), len(classes)))
    for k in range(len(classes)):
        mine = y == classes[k]
        n = w[mine].sum()
        p, q = ((w[mine] @ (X[mine] == v) + alpha) / (n + 2 * alpha) for v in (1, 0))
        prior = n / w.sum() if priors is None else priors[k]
        for r in range(len(rows)):
            with np.errstate(divide="ignore"):
                out[r, k] = np.log(prior) + np.log(np.where(rows[r] == 1, p, q)).sum()
    return out


def rows_that_count(
    X: np.ndarray,
    y: list,
    weights: np.ndarray | None = None,
    nodata: float | None = None,
    unlabelled: list | None = None,
) -> tuple[list[int], int]:
    """Numbers of the rows that are learned, and the number of those left out as invalid.

    Rows of weight zero and unlabelled rows are neither, whatever they hold.
    """
    numbers, skipped = [], 0
    masks = np.ma.getmaskarray(X)
    for i, label in enumerate(y):
        if weights is not None and weights[i] == 0:
            continue
        missing = label is None or (isinstance(label, float) and math.isnan(label))
        if not missing and label in (unlabelled or []):
            continue
        values = zip(np.ma.getdata(X)[i].tolist(), masks[i].tolist(), strict=True)
        if missing or any(m or not math.isfinite(v) or v == nodata for v, m in values):
            skipped += 1
        else:
            numbers.append(i)
    return numbers, skipped


# --- rows with gaps ---------------------------------------------------------------------------


def marginal_joint(
    x: np.ndarray, means: np.ndarray, covariances: np.ndarray, priors: np.ndarray
) -> np.ndarray:
    """Ln p(x_o, y=k) of the features of a row that are not NaN, for covariances (K, d, d)."""
    o = ~np.isnan(x)
    joint = []
    for mean, covariance, prior in zip(means, covariances, priors, strict=True):
        block, gap = covariance[np.ix_(o, o)], x[o] - mean[o]
        distance = gap @ np.linalg.solve(block, gap)
        spread = np.linalg.slogdet(2 * np.pi * block)[1]
        joint.append(math.log(prior) - (spread + distance) / 2)
    return np.array(joint)


# --- maps of rows -------------------------------------------------------------------------------


def random_features(
    X: np.ndarray, n: int, kind: str = "relu", gamma: float = 1.0, seed: int = 0
) -> np.ndarray:
    """Random features of rows, whose weights and phases are two streams of one seed."""
    X, d = np.asarray(X, np.float64), X.shape[1]
    streams = (np.random.Philox(key=np.array([seed, i], np.uint64)) for i in (0, 1))
    normal, uniform = map(np.random.RandomState, streams)
    products = X @ normal.normal(size=(n, d)).T
    if kind == "relu":
        return np.maximum(products * math.sqrt(2 / d), 0)
    phases = uniform.uniform(0, 2 * math.pi, n)
    return math.sqrt(2 / n) * np.cos(products * math.sqrt(2 * gamma) + phases)


# --- ridge regression -------------------------------------------------------------------------


def ridge(
    X: np.ndarray, y: np.ndarray, alpha: float, weights: np.ndarray, intercept: bool = True
) -> np.ndarray:
    """Coefficients of least squares of all rows and of one more for each penalised coefficient."""
    if intercept:
        X, y = X - np.average(X, 0, weights), y - np.average(y, 0, weights)
    root, d = np.sqrt(weights)[:, None], X.shape[1]
    penalised = np.concatenate([root * X, np.sqrt(alpha) * np.eye(d)])
    targets = np.concatenate([root * y.reshape(len(y), -1), np.zeros((d, y[0].size))])
    solution: np.ndarray = np.linalg.lstsq(penalised, targets, rcond=None)[0]
    return solution.T.reshape(*y.shape[1:], d)


def penalty_scores(
    X: np.ndarray, y: np.ndarray, alphas: list[float], folds: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """Negative mean squared errors of each penalty, of the rows of each fold held out in turn."""
    scores = []
    for alpha, fold in itertools.product(alphas, np.unique(folds)):
        own, y_of = folds == fold, y.reshape(len(y), -1)
        coef = ridge(X[~own], y_of[~own], alpha, weights[~own])
        centre = np.average(X[~own], 0, weights[~own]), np.average(y_of[~own], 0, weights[~own])
        errors = y_of[own] - centre[1] - (X[own] - centre[0]) @ coef.T
        scores.append(-np.average((errors**2).mean(axis=1), weights=weights[own]))
    return np.reshape(scores, (len(alphas), -1))
