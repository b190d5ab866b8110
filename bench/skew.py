"""Suite `skew`: classes of very different sizes or in sorted order, against balanced classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench import limits
from bench.measure import Call, Plan, Row, compare, of_its_time
from streamgda import ClassMoments, GaussianDiscriminantCV, GroupedMoments

N, CHUNK = 100_000, 4000
K, MANY = 10, 1000
FOLDS = 5
NARROW = (1, 4, 8, 32)  # numbers of features for which the order of the labels is compared
BALANCED = "balanced classes"
STATE = (
    "each chunk has four rows per class and updates the moments of all 1,000 classes, which do not "
    "fit in the inner caches"
)


def run(plan: Plan) -> Iterator[Row]:
    random = np.random.default_rng(0)
    n, chunk = plan.rows(N), plan.rows(CHUNK)
    balanced = random.permutation(np.arange(n) % K)
    few = np.where(balanced == 0, 1, balanced)
    few[:3] = 0
    # Labels, and rows per chunk; the moments know all classes already.
    cases = {
        "a class with 3 rows": (few, n),
        "all rows in one class": (np.zeros(n, np.int64), n),
        "rows sorted by class": (np.sort(balanced), n),
        f"{MANY:,} classes, chunks of {chunk:,} rows": (
            random.permutation(np.arange(n) % MANY),
            chunk,
        ),
    }
    for d in (16,) if plan.quick else (16, 64):
        X = random.integers(0, 256, (n, d)).astype(np.uint8)
        for kind in ("float64", "uint8"):
            rows = X.astype(kind)
            for structure in ("full", "tied", "diag"):
                for case, (y, size) in cases.items():
                    n_classes = int(y.max()) + 1
                    yield from compare(
                        plan,
                        f"{case}: {n:,} x {d} {kind}, {structure}, moments",
                        limits.moments(rows, y, n_classes, structure, -(-n // size)),
                        updates(structure, rows, y, size),
                        {BALANCED: updates(structure, rows, balanced, size)},
                        {"": of_its_time(2, STATE)},
                    )

    yield from orders(plan)


def orders(plan: Plan) -> Iterator[Row]:
    """Time narrow rows whose labels come in another order, or of which one is of a rare class."""
    random = np.random.default_rng(1)
    n = plan.rows(N)
    balanced = random.permutation(np.arange(n) % K)
    rare = np.where(balanced == K - 1, 0, balanced)
    rare[n // 2] = K - 1
    cases = {
        "labels sorted": np.sort(balanced),
        "labels in runs of 100": np.repeat(random.permutation(np.arange(-(-n // 100)) % K), 100)[
            :n
        ],
        "one row of a tenth class": rare,
    }
    classes = balanced[::-1].copy()
    ways = {
        "moments": lambda structure, X, y: updates(structure, X, y, n),
        f"moments of {K} groups": lambda structure, X, y: grouped(structure, X, classes, y),
        f"choice of a model by {FOLDS} folds": search,
    }
    for d in NARROW[:1] if plan.quick else NARROW:
        X = random.normal(size=(n, d))
        for structure in ("full", "tied", "diag"):
            for way, call in ways.items():
                for case, y in cases.items():
                    yield from compare(
                        plan,
                        f"{case}: {n:,} x {d} float64, {structure}, {way}",
                        limits.moments(X, y, K, structure),
                        call(structure, X, y),
                        {BALANCED: call(structure, X, balanced)},
                        {"": of_its_time(1.2)},
                    )


def updates(structure: str, X: np.ndarray, y: np.ndarray, size: int) -> Call:
    """Return a call that updates moments, which know the classes already, with all chunks."""
    moments = ClassMoments(structure).update(X, y)
    chunks = [slice(start, start + size) for start in range(0, len(y), size)]

    def update() -> None:
        for chunk in chunks:
            moments.update(X[chunk], y[chunk])

    return update


def grouped(structure: str, X: np.ndarray, y: np.ndarray, groups: np.ndarray) -> Call:
    """Return a call that updates moments of groups, which know classes and groups already."""
    moments = GroupedMoments(structure).update(X, y, groups)
    return lambda: moments.update(X, y, groups)


def search(structure: str, X: np.ndarray, y: np.ndarray) -> Call:
    """Return a call that chooses between two models by folds."""
    grid = {"covariance_type": [structure], "reg_param": [0.1, 0.2]}
    return lambda: GaussianDiscriminantCV(grid, cv=FOLDS).fit(X, y)
