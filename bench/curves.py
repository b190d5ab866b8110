"""Suite `curves`: time as a function of the number of features, of classes or of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bench.measure import Call, Plan
from bench.measure import seconds as seconds_of
from streamgda import ClassMoments, GaussianDiscriminantAnalysis

FEATURES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65)
FEATURES += (127, 128, 129, 255, 256, 784, 785)
CLASSES = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
ROWS = (1, 2, 4, 8, 9, 16, 32, 64, 96, 97, 128, 192, 193, 256, 500, 1000)
# Each a quarter more than the one before, so that each limit between two methods is passed.
STEPS = tuple(round(16 * 1.25**i) for i in range(24))  # classes: 16 to 2,711
BATCHES = tuple(round(250 * 1.25**i) for i in range(31))  # rows: 250 to 201,948
UPDATED = (8, 32, 64)  # features of the rows of updates
K, D = 10, 16  # classes when features or rows vary, and features when classes vary
WIDTH, CALLS = 64, 20  # features when rows vary, and calls of a measurement
N, NUMBERS = 200_000, 10_000_000  # limits of a measurement: rows, and values
ROUNDS = 3
FEWER = 8  # scoring takes longer per row, so it uses this many times fewer rows


@dataclass
class Curve:
    """Seconds per row, or per call, of an operation as a function of a number.

    The number is that of the features or of the classes, or, for seconds per call, of the rows.

    `jump` is the largest factor between neighbouring points, in either direction, that the number
    of operations does not explain (1 if there is none), and `where` the two points.
    """

    work: str
    over: str
    at: tuple[int, ...]
    seconds: tuple[float, ...]
    jump: float
    where: tuple[int, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return asdict(self)


def run(plan: Plan) -> Iterator[Curve]:
    features = FEATURES[::4] if plan.quick else FEATURES
    classes = CLASSES[::4] if plan.quick else CLASSES
    yield from curves(plan, "features", features, lambda at: points(plan, at, K))
    yield from curves(plan, "classes", classes, lambda at: points(plan, D, at))
    yield from curves(plan, "rows", ROWS[::4] if plan.quick else ROWS, calls)
    steps, batches = (at[::8] if plan.quick else at for at in (STEPS, BATCHES))
    yield from curves(plan, "classes", steps, lambda at: updates(plan.rows(N // 2), at))
    yield from curves(plan, "rows", batches, lambda at: updates(plan.rows(at), K))


Points = Iterator[tuple[str, float, float]]


def curves(
    plan: Plan, over: str, at: tuple[int, ...], points_at: Callable[[int], Points]
) -> Iterator[Curve]:
    seconds: dict[str, dict[int, float]] = {}
    operations: dict[str, dict[int, float]] = {}
    # The minimum of several rounds, because a machine that is busy for a while shows as a jump.
    for _ in range(min(plan.repeats, ROUNDS)):
        for value in at:
            for name, took, work in points_at(value):
                before = seconds.setdefault(name, {}).get(value, took)
                seconds[name][value] = min(before, took)
                operations.setdefault(name, {})[value] = work
    for name, took in seconds.items():
        jump, where = largest_jump(took, operations[name])
        yield Curve(name, over, tuple(took), tuple(took.values()), jump, where)


def points(plan: Plan, d: int, n_classes: int) -> Points:
    """Yield the name, seconds per row and multiply-adds per row of each operation."""
    n = plan.rows(min(N, NUMBERS // d))
    few = n // FEWER
    # The first rows are scored; they contain all classes equally.
    y = np.concatenate([np.arange(few), np.arange(n - few)]) % n_classes
    numbers = np.random.default_rng(0).integers(0, 256, (n, d)).astype(np.uint8)
    products = d * (d + 1) / 2
    for X in (numbers.astype(np.float64), numbers):
        for structure in ("full", "tied", "diag"):
            operations = d if structure == "diag" else products
            took = least(lambda X=X, s=structure: ClassMoments(s).update(X, y))
            yield f"{structure} {X.dtype}, moments", took / n, operations
        if n_classes > 1:
            model = GaussianDiscriminantAnalysis(reg_param=0.5).fit(X[:few], y[:few])
            for method in ("predict", "predict_proba"):
                score = getattr(model, method)
                took = least(lambda X=X[:few], f=score: f(X))
                yield f"QDA {X.dtype}, {method}", took / few, n_classes * products


def calls(n_rows: int) -> Points:
    """Yield the name and the seconds of calls for few rows, and their multiply-adds."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(100 * K, WIDTH)), np.arange(100 * K) % K
    products = n_rows * K * WIDTH * (WIDTH + 1) / 2
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        model, some = GaussianDiscriminantAnalysis(reg_param=0.5).fit(rows, y), rows[:n_rows]
        for method in ("predict", "predict_proba"):
            call = getattr(model, method)
            took = least(lambda f=call, X=some: [f(X) for _ in range(CALLS)])
            yield f"QDA {dtype}, a call of {method}", took / CALLS, products


def updates(n_rows: int, n_classes: int) -> Points:
    """Yield the name and the seconds of updates of moments that know the classes, and the rows."""
    random = np.random.default_rng(0)
    y = random.permutation(np.arange(n_rows) % n_classes)
    for d in UPDATED:
        X = random.normal(size=(n_rows, d))
        for structure in ("full", "tied", "diag"):
            moments = ClassMoments(structure).update(X, y)
            took = min(least(lambda m=moments, X=X: m.update(X, y)) for _ in range(ROUNDS))
            yield f"{structure} float64 x {d}, an update", took, n_rows


def least(call: Call) -> float:
    """Return the seconds of the faster of two calls; the first may compile or load kernels."""
    return min(seconds_of(call), seconds_of(call))


def largest_jump(
    seconds: dict[int, float], operations: dict[int, float]
) -> tuple[float, tuple[int, int]]:
    """Return the largest unexplained factor between neighbouring points, and the points.

    Time may grow in proportion to the operations, and should not fall when they grow.
    """
    jumps = {}
    for a, b in pairwise(seconds):
        grown = seconds[b] / seconds[a]
        jumps[a, b] = max(grown * operations[a] / operations[b], 1 / grown)
    where = max(jumps, key=jumps.__getitem__)
    return jumps[where], where
