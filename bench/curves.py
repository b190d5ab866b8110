"""Suite `curves`: time as a function of the number of features, of classes or of rows."""

from __future__ import annotations

import time
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bench.measure import PAUSE, Call, Plan
from streamgda import ClassMoments, GaussianDiscriminantAnalysis
from streamgda.kernels.vectors import LANES

FEATURES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65)
FEATURES += (80, 100, 127, 128, 129, 160, 200, 255, 256, 320, 400, 512, 640, 784, 785)
ROWS = (1, 2, 4, 8, 9, 16, 32, 64, 96, 97, 128, 192, 193, 256, 500, 1000)
# Each a quarter more than the one before, so that each limit between two methods is passed. Where
# the model of the cost changes the method, there are two neighbours more.
STEPS = (1, 2, 3, 4, 5, 6, 8, 10, 13, *(round(16 * 1.25**i) for i in range(24)))  # classes
CLASSES = STEPS[:28]  # up to 888, of many rows
BATCHES = tuple(round(250 * 1.25**i) for i in range(31))  # rows: 250 to 201,948
UPDATED = (8, 16, 32, 64)  # features of the rows of updates
DTYPES = ("float64", "float32", "uint8")
K, D = 10, 16  # classes when features or rows vary, and features when classes vary
WIDTH, CALLS = 64, 20  # features when rows vary, and calls of a measurement
N, NUMBERS = 200_000, 10_000_000  # limits of a measurement: rows, and values
FEWER = 8  # scoring takes longer per row, so it uses this many times fewer rows
STEP = 1.3  # a factor between neighbours from which on it is measured again
PAUSES = (PAUSE, 0.5, 2.0)  # seconds before each time that it is
SECONDS, LEAST, MOST = 0.006, 2, 10  # of a pair of neighbours for each repeat, and their calls


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


class Point(NamedTuple):
    """A call, how often it does something, and the operations of that."""

    call: Call
    times: int
    operations: float


Points = dict[str, Point]


def run(plan: Plan) -> Iterator[Curve]:
    features, classes, rows, steps, batches = (
        at[:: len(at) // 3] if plan.quick else at
        for at in (FEATURES, CLASSES, ROWS, STEPS, BATCHES)
    )
    yield from curves(plan, "features", features, lambda at: points(plan, at, K))
    yield from curves(plan, "classes", classes, lambda at: points(plan, D, at))
    yield from curves(plan, "rows", rows, calls)
    for d in UPDATED:
        for dtype in DTYPES:
            for kind in ("full", "tied", "diag"):
                n, of = plan.rows(N // 2), (d, dtype, kind)
                at = with_borders(steps, lambda k, of=of, n=n: way(*of, n, k))
                yield from curves(plan, "classes", at, lambda k, of=of, n=n: update(*of, n, k))
                at = with_borders(batches, lambda n, of=of: way(*of, n, K))
                yield from curves(plan, "rows", at, lambda n, of=of: update(*of, n, K))


def curves(
    plan: Plan, over: str, at: Iterable[int], points_at: Callable[[int], Points]
) -> Iterator[Curve]:
    """Yield the curves of all operations; neighbours are timed in turn, so that drift cancels."""
    seconds: dict[str, dict[int, float]] = {}
    jumps: dict[str, dict[tuple[int, int], float]] = {}
    made = ((number, points_at(number)) for number in at)
    for (a, before), (b, after) in pairwise(made):
        for name in before.keys() & after.keys():
            pair = before[name], after[name]
            took = in_turn(pair, plan.repeats)
            for pause in () if plan.quick else PAUSES:  # or something else was running
                if jump_of(took, pair) > STEP:
                    time.sleep(pause)
                    took = np.minimum(took, in_turn(pair, 3 * plan.repeats))
            jumps.setdefault(name, {})[a, b] = jump_of(took, pair)
            for number, some in zip((a, b), took.tolist(), strict=True):
                own = seconds.setdefault(name, {})
                own[number] = min(own.get(number, some), some)
    for name, took in seconds.items():
        where = max(jumps[name], key=jumps[name].__getitem__)
        numbers, times = zip(*sorted(took.items()), strict=True)
        yield Curve(name, over, numbers, times, jumps[name][where], where)


def in_turn(pair: tuple[Point, Point], repeats: int) -> np.ndarray:
    """Return the least seconds of each of two points, called in turn."""
    taken, start = [], time.perf_counter()
    while len(taken) < LEAST or (
        len(taken) < MOST * repeats and time.perf_counter() - start < SECONDS * repeats
    ):
        taken.append([clock(point.call) for point in pair])
    return np.min(taken, axis=0) / [point.times for point in pair]


def clock(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def jump_of(seconds: np.ndarray, pair: tuple[Point, Point]) -> float:
    """Return the unexplained factor between neighbours.

    Time may grow in proportion to the operations, and should not fall when they grow.
    """
    grown = seconds[1] / seconds[0]
    return float(max(grown * pair[0].operations / pair[1].operations, 1 / grown))


def with_borders(at: Iterable[int], way_of: Callable[[int], object]) -> list[int]:
    """Return numbers, and of each pair that the model adds in different ways the border between."""
    numbers = sorted(at)
    for pair in pairwise(tuple(numbers)):
        before, after = map(way_of, pair)
        if before != after:
            other = bisect(range(*pair), False, key=lambda at, way=before: way_of(at) != way)
            numbers += range(pair[0] + other - 1, pair[0] + other + 1)
    return sorted(set(numbers))


def way(d: int, dtype: str, kind: str, n_rows: int, n_classes: int) -> object:
    """Return how the model of the cost has rows added to moments."""
    sums = ClassMoments(kind).update(np.zeros((1, d), dtype), [0])._sums
    return sums.empty(n_classes).way(n_rows, np.dtype(dtype))


def update(d: int, dtype: str, kind: str, n_rows: int, n_classes: int) -> Points:
    """Return an update of moments that know the classes."""
    X, order = rows_of(d, dtype)[:n_rows], permutation(n_rows)
    y = order % n_classes
    moments = ClassMoments(kind).update(X, y)
    return {
        f"{kind} {dtype} x {d}, an update": Point(lambda: moments.update(X, y), 1, n_rows),
    }


@cache
def permutation(n_rows: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(n_rows)


@cache
def rows_of(d: int, dtype: str) -> np.ndarray:
    numbers = np.random.default_rng(0).normal(100, 20, size=(max(BATCHES), d))
    return np.clip(numbers, 0, 255).astype(dtype)


def points(plan: Plan, d: int, n_classes: int) -> Points:
    """Return operations on many rows."""
    n = plan.rows(min(N, NUMBERS // d))
    few = n // FEWER
    # The first rows are scored; they contain all classes equally.
    y = np.concatenate([np.arange(few), np.arange(n - few)]) % n_classes
    numbers = np.random.default_rng(0).integers(0, 256, (n, d)).astype(np.uint8)
    products, padded = (
        d * (d + 1) / 2,
        -(-d // LANES) * LANES,
    )  # values of sums are in whole vectors
    made: Points = {}
    for X in (numbers.astype(np.float64), numbers):
        for kind in ("full", "tied", "diag"):
            operations = padded if kind == "diag" else padded * (padded + 1) / 2
            made[f"{kind} {X.dtype}, moments"] = Point(
                lambda X=X, kind=kind: ClassMoments(kind).update(X, y), n, operations
            )
        if n_classes > 1:
            model = GaussianDiscriminantAnalysis(reg_param=0.5).fit(X[:few], y[:few])
            for method in ("predict", "predict_proba"):
                call = getattr(model, method)
                made[f"QDA {X.dtype}, {method}"] = Point(
                    lambda X=X[:few], call=call: call(X), few, n_classes * products
                )
    time.sleep(PAUSE)  # after a fit, which may use threads of BLAS
    return made


def calls(n_rows: int) -> Points:
    """Return calls for few rows."""
    random = np.random.default_rng(0)
    X, y = random.normal(size=(100 * K, WIDTH)), np.arange(100 * K) % K
    products = n_rows * K * WIDTH * (WIDTH + 1) / 2
    made: Points = {}
    for dtype in ("float64", "float32"):
        rows = X.astype(dtype)
        model, some = GaussianDiscriminantAnalysis(reg_param=0.5).fit(rows, y), rows[:n_rows]
        for method in ("predict", "predict_proba"):
            call = getattr(model, method)
            made[f"QDA {dtype}, a call of {method}"] = Point(
                lambda call=call, some=some: [call(some) for _ in range(CALLS)], CALLS, products
            )
    time.sleep(PAUSE)
    return made
