"""Suite `stability`: correct digits of least squares, for offsets and condition numbers of rows.

The coefficients of each solver are compared with those that exact fractions give for the same rows
and targets, which have noise. The digits are those of the largest error, relative to the largest
coefficient, in the worst of several sets. The condition number is that of the centred features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import linalg
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as TheirRidge

import streamgda
from bench.measure import Plan

ROWS, FEATURES, SETS = 200, 6, 3
CONDITIONS, OFFSETS = (1e1, 1e3, 1e5, 1e7), (0.0, 1e3, 1e5, 1e7)
GRID = 2.0**24  # rows are multiples of its inverse, so that the largest offset is exact
MOST_DIGITS = 16.0


@dataclass
class Stability:
    """Correct digits of the coefficients of each solver."""

    condition: float
    offset: float
    digits: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def with_ones(X: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(X)), X])


def one_pass(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Fit in batches of rows, which are forgotten."""
    ridge = streamgda.Ridge(alpha=0.0)
    for rows in np.array_split(np.arange(len(X)), 10):
        ridge.partial_fit(X[rows], y[rows])
    return ridge.coef_


def normal_equations(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    A = with_ones(X)
    return np.asarray(np.linalg.solve(A.T @ A, A.T @ y)[1:])


def qr(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    Q, R = linalg.qr(with_ones(X), mode="economic")
    return np.asarray(linalg.solve_triangular(R, Q.T @ y)[1:])


def of_ridge(solver: str, **params: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    return lambda X, y: TheirRidge(0.0, solver=solver, **params).fit(X, y).coef_


SOLVERS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "streamgda, 10 batches": one_pass,
    "normal equations": normal_equations,
    "QR": qr,
    "LinearRegression": lambda X, y: LinearRegression().fit(X, y).coef_,
    "Ridge, svd": of_ridge("svd"),
    "Ridge, cholesky": of_ridge("cholesky"),
    "Ridge, lsqr": of_ridge("lsqr", tol=1e-15, max_iter=10_000),
}


def run(plan: Plan) -> Iterator[Stability]:
    conditions, offsets = (CONDITIONS[:1], OFFSETS[:1]) if plan.quick else (CONDITIONS, OFFSETS)
    sets = 1 if plan.quick else SETS
    for condition in conditions:
        for offset in offsets:
            found = [digits(*rows(condition, offset, seed)) for seed in range(sets)]
            worst = {name: min(each[name] for each in found) for name in SOLVERS}
            yield Stability(condition, offset, worst)


def rows(condition: float, offset: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features with a condition number and an offset, and targets."""
    random = np.random.default_rng(seed)
    left = linalg.qr(with_ones(random.normal(size=(ROWS, FEATURES))), mode="economic")[0][:, 1:]
    right = linalg.qr(random.normal(size=(FEATURES, FEATURES)))[0]
    spread = np.geomspace(1, 1 / condition, FEATURES) * np.sqrt(ROWS)
    X = np.round(left * spread @ right * GRID) / GRID
    y = X @ random.normal(size=FEATURES) + 0.01 * random.normal(size=ROWS)
    return X + offset, y


def digits(X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the correct digits of each solver; none if it fails."""
    truth, found = exact(X, y), {}
    for name, solve in SOLVERS.items():
        try:
            error = np.abs(solve(X, y) - truth).max() / np.abs(truth).max()
            correct = -np.log10(max(error, 10.0**-MOST_DIGITS))
            found[name] = float(np.clip(correct, 0.0, MOST_DIGITS))
        except linalg.LinAlgError:
            found[name] = 0.0
    return found


def exact(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coefficients of least squares of the rows as they are, by exact fractions."""
    columns = [[Fraction(value) for value in column] for column in np.column_stack([X, y]).T]
    means = [sum(column) / len(y) for column in columns]
    centred = [[v - mean for v in c] for c, mean in zip(columns, means, strict=True)]
    d = X.shape[1]
    matrix = [
        [sum(a * b for a, b in zip(centred[i], other, strict=True)) for other in centred]
        for i in range(d)
    ]
    for i in range(d):  # Gauss and Jordan's elimination of a matrix that is positive definite
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for k in set(range(d)) - {i}:
            factor = matrix[k][i]
            matrix[k] = [a - factor * b for a, b in zip(matrix[k], matrix[i], strict=True)]
    return np.array([float(line[-1]) for line in matrix])
